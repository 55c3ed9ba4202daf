"""The vocabulary of YAWL 4.0: names, the order that its schema demands, and the parts that we write by default.

The reader drops what the writer would write by default anyway, so that a document does not grow by being saved.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from groupwise.workflows.files.annotations import duration_of, seconds_of
from groupwise.workflows.files.xml_tree import xml_name
from groupwise.workflows.graph import ONCE, Kind, Node, Rule, TaskCopies
from groupwise.xml_reader import Element, first

YAWL = "http://www.yawlfoundation.org/yawlschema"
BETA = "http://www.citi.qut.edu.au/yawl"
XSI = "http://www.w3.org/2001/XMLSchema-instance"
XS = "http://www.w3.org/2001/XMLSchema"
TYPE = f"{{{XSI}}}type"
LOCATION = f"{{{XSI}}}schemaLocation"
NET, GATEWAY = "NetFactsType", "WebServiceGatewayFactsType"
SEVERAL = "MultipleInstanceExternalTaskFactsType"
# The attribute by which we recognise the variable that contains our annotations.
KNOWLEDGE = "groupwise"

# The element of each kind of node.
ELEMENTS: dict[Kind, str] = {
    "start": "inputCondition", "end": "outputCondition", "condition": "condition", "task": "task",
}  # fmt: skip
# What a task, a net and a specification have besides what a graph has, in the order of the schema.
TASK_EXTRAS = (
    "defaultConfiguration", "configuration", "startingMappings", "completedMappings", "enablementMappings", "timer",
    "resourcing", "customForm", "decomposesTo", "minimum", "maximum", "threshold", "creationMode", "miDataInput",
    "miDataOutput",
)  # fmt: skip
NET_EXTRAS = ("name", "inputParam", "outputParam", "logPredicate", "localVariable", "externalDataGateway")
SPECIFICATION_EXTRAS = ("name", "documentation", "metaData", "schema", "importedNet")


def el(name: str, /, *children: Element, text: str = "", **attributes: str) -> Element:
    return Element(f"{{{YAWL}}}{name}", tuple(attributes.items()), text, children)


def is_several(node: Node) -> bool:
    """Whether YAWL treats the task as a multiple-instance task, even with only one instance."""
    return node.copies != ONCE or first(node.extras, "miDataInput", YAWL) is not None


def numbers_of(task: Element | Sequence[Element]) -> TaskCopies:
    """The copies of a multiple-instance task. A maximum that is a query counts as 2, or the minimum if that is more."""
    parts = task.children if isinstance(task, Element) else task

    def number(name: str) -> int | None:
        found = first(parts, name)
        text = "" if found is None else found.text.strip()
        return int(text) if text.isascii() and text.isdigit() else None

    least = number("minimum") or 1
    most = number("maximum")
    most = max(least, 2) if most is None else most
    return TaskCopies(least, most, number("threshold") or least)


def written_numbers(node: Node) -> list[Element]:
    """`minimum`, `maximum` and `threshold`: as they were read, if they still mean the same copies."""
    carried = [e for e in node.extras if e.name in ("minimum", "maximum", "threshold")]
    if len(carried) == 3 and numbers_of(carried) == node.copies:
        return sorted(carried, key=lambda e: TASK_EXTRAS.index(e.name))
    copies = node.copies
    values = {"minimum": copies.least, "maximum": copies.most, "threshold": copies.enough}
    return [el(name, text=str(value)) for name, value in values.items()]


def instance_input(net: str) -> Element:
    """Data for the instances: each gets one item of a variable of the net."""
    return el(
        "miDataInput",
        el("expression", query=f"/{net}/items"),
        el("splittingExpression", query="for $item in /items/* return $item"),
        el("formalInputParam", text="item"),
    )


def items_variable() -> Element:
    return variable("localVariable", "items", "<item/>")


def item_parameter() -> Element:
    return variable("inputParam", "item")


def variable(kind: str, name: str, value: str = "") -> Element:
    typed = (el("name", text=name), el("type", text="string"), el("namespace", text=XS))
    return el(kind, el("index", text="0"), *typed, *([el("initialValue", text=value)] if value else []))


def gateway_id(task: str, several: bool) -> str:
    return f"{task}_{'each' if several else 'work'}"


def gateway(name: str, several: bool) -> Element:
    item = (item_parameter(),) if several else ()
    attributes = (("id", name), (TYPE, GATEWAY))
    return Element(f"{{{YAWL}}}decomposition", attributes, "", (*item, el("externalInteraction", text="manual")))


def pool_of(resourcing: Element | None) -> str | None:
    """The first role, or else participant, that a task is offered to."""
    offer = None if resourcing is None else resourcing.find("offer")
    shared = None if offer is None else offer.find("distributionSet")
    chosen = None if shared is None else shared.find("initialSet")
    if chosen is None:
        return None
    found = [*chosen.all("role"), *chosen.all("participant")]
    return found[0].text.strip() or None if found else None


def performed(node: Node, pool: str | None) -> Node:
    """The node as if it named that pool."""
    return node if pool is None else replace(node, handling=replace(node.handling, pool=pool))


def written_resourcing(node: Node) -> Element | None:
    """The resourcing as it was read, if it still means the node's pool; otherwise an offer to the pool as a role."""
    carried = first(node.extras, "resourcing", YAWL)
    pool = node.handling.pool
    if pool_of(carried) == pool:
        return carried
    # With initiator "system" the engine offers the work by itself; with "user" an administrator does.
    chosen = () if pool is None else (el("distributionSet", el("initialSet", el("role", text=pool))),)
    rest = () if carried is None else tuple(part for part in carried.parts if part.name != "offer")
    offer = el("offer", *chosen, initiator="user" if pool is None else "system")
    return el("resourcing", offer, *(rest or (el("allocate", initiator="user"), el("start", initiator="user"))))


def timeout_of(timer: Element | None) -> float | None:
    return None if timer is None else seconds_of(timer.says("duration"))


def written_timer(node: Node) -> Element | None:
    """The timer as it was read, if it still means the node's timeout; otherwise a new one."""
    carried = first(node.extras, "timer", YAWL)
    timeout = node.handling.timeout
    if timeout_of(carried) == timeout:
        return carried
    if timeout is None:
        return None
    trigger = "OnExecuting" if carried is None else carried.says("trigger") or "OnExecuting"
    return el("timer", el("trigger", text=trigger), el("duration", text=duration_of(timeout)))


def quoted(text: str) -> str:
    """A text that can stand between single quotes."""
    return text.replace("'", "’")


@dataclass(frozen=True, slots=True)
class YawlRoute:
    """How a flow is chosen: its predicate, the order in which that is evaluated, and whether it is the default."""

    predicate: str = ""
    ordering: str = ""
    default: bool = False


def generated_routes(
    net: str,
    task: str,
    rule: Rule,
    targets: Sequence[str],
    asks: tuple[str, list[tuple[str, ...]]] | None = None,
) -> tuple[Element | None, list[YawlRoute]]:
    """A variable that names the next element, and a predicate on it for every flow; the last flow is the default.

    Tasks that ask for the same outcome have one variable, which names the result.
    """
    if rule == "and" or len(targets) < 2:
        return None, [YawlRoute() for _ in targets]
    name = f"{task}_goes_to" if asks is None else xml_name(asks[0])
    # An XPath to the text of the variable in the data of the net.
    path = f"/{net}/{name}/text()"
    if asks is not None:
        named = [" or ".join(f"{path} = '{quoted(answer)}'" for answer in some) for some in asks[1]]
        routes = [YawlRoute(question, str(place)) for place, question in enumerate(named[:-1])]
        return variable("localVariable", name, ""), [*routes, YawlRoute(default=True)]
    asked = [f"{path} = '{t}'" if rule == "xor" else f"contains({path}, '{t}')" for t in targets]
    found = [YawlRoute(question, str(place)) for place, question in enumerate(asked[:-1])]
    return variable("localVariable", name, targets[-1]), [*found, YawlRoute(default=True)]


def plain_meta_data() -> Element:
    return el("metaData", el("version", text="0.1"), el("persistent", text="false"))


def empty_schema() -> Element:
    return Element(f"{{{XS}}}schema", prefixes=(("xs", XS),))
