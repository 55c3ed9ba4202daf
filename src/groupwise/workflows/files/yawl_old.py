"""YAWL files from before 4.0, brought to its form: names, versions, and how variables used to be written."""

from __future__ import annotations

from dataclasses import replace

from groupwise.workflows.elements import COMMENT, Element
from groupwise.workflows.files.formats import BadFile
from groupwise.workflows.files.names import xml_name
from groupwise.workflows.files.xml_tree import place
from groupwise.workflows.files.yawl_words import BETA, GATEWAY, NET, TYPE, XS, YAWL, el

VERSIONS = ("Beta 3", "Beta 4", "Beta 6", "Beta 7", "Beta 7.1", "2.0", "2.1", "2.2", "3.0", "4.0")
_VARIABLES = ("inputParam", "outputParam", "localVariable", "enablementParam")


def upgraded(root: Element) -> tuple[Element, list[str]]:
    """The file as 4.0 would have it, and what it says that 4.0 has no place for."""
    if root.name != "specificationSet" or root.namespace not in (YAWL, BETA):
        raise BadFile(f"{place(root)}the root element is <{root.name}>, and a YAWL file has <specificationSet>")
    version = root.get("version")
    if version and version not in VERSIONS:
        known = f"{', '.join(VERSIONS[:-1])} and {VERSIONS[-1]}"
        raise BadFile(f"{place(root)}YAWL version {version!r} is unknown; {known} are read")
    if root.namespace == YAWL and version in ("3.0", "4.0"):
        return root, []
    old = _Upgrade(root)
    return old.element(root), old.notes


class _Upgrade:
    def __init__(self, root: Element) -> None:
        self.beta = root.namespace == BETA
        self.prefixes = dict(root.prefixes)
        self.notes: list[str] = []
        decompositions = [e for part in root.all("specification") for e in part.all("decomposition")]
        self.gateways = {e.get("id") for e in decompositions if e.get(TYPE).endswith(GATEWAY)}

    def element(self, element: Element) -> Element:
        if element.tag == COMMENT or element.namespace not in (YAWL, BETA):
            return element
        if self.beta and element.name in _VARIABLES and element.get("name"):
            return self.variable(element)
        children = tuple(self.element(child) for child in element.children if not self.left_out(child, element))
        attributes = element.attributes
        if element.name == "rootNet":
            attributes = (*attributes, ("isRootNet", "true"), (TYPE, NET))
        if element.name == "creationMode" and element.text.strip() == "restict":
            return replace(element, text="restrict")  # the schema of 2.1 has this slip
        if element.name in ("join", "split") and element.get("value"):
            attributes = tuple(pair for pair in attributes if pair[0] != "value")
            self.note(element, f"the value of a configured {element.name} ({element.get('value')})")
        if element.name in ("decomposition", "decomposesTo") and element.get("id") in self.gateways:
            attributes = self.renamed(element)
        name = "decomposition" if element.name == "rootNet" else element.name
        return replace(element, tag=f"{{{YAWL}}}{name}", attributes=attributes, children=children)

    def renamed(self, element: Element) -> tuple[tuple[str, str], ...]:
        """With an id that is a name, which it did not have to be."""
        old = element.get("id")
        new = xml_name(old)
        if new != old and element.name == "decomposition":
            self.notes.append(f"{place(element)}the decomposition {old!r} is called {new!r}, for YAWL 4.0 wants a name")
        return tuple((name, new if name == "id" else value) for name, value in element.attributes)

    def left_out(self, child: Element, parent: Element) -> bool:
        if child.name == "outputExpression" and parent.name in ("decomposition", "rootNet"):
            self.note(child, f"the output expression {child.get('query')!r} of {parent.get('id')!r}")
            return True
        return False

    def variable(self, element: Element) -> Element:
        """`<inputParam name="a"><type>xs:string</type>` with its name, type and place as elements."""
        prefix, colon, kind = element.says("type").rpartition(":")
        space = self.prefixes.get(prefix) or (XS if prefix in ("xs", "xsd") else "")
        if colon and not space:
            said = f"the type of {element.get('name')!r} has a prefix {prefix!r} that is not declared"
            self.notes.append(f"{place(element)}{said}; it is left out")
        parts = [el("index", text="0"), el("name", text=element.get("name")), el("type", text=kind or "string")]
        if space:
            parts.append(el("namespace", text=space))
        value = element.find("initialValue")
        if value is not None and value.text:
            parts.append(el("initialValue", text=value.text))
        elif element.find("mandatory") is not None and element.name != "localVariable":
            parts.append(el("mandatory"))
        known = ("type", "initialValue", "mandatory")
        for child in element.children:
            if child.name not in known:
                what = "a comment" if child.tag == COMMENT else f"<{child.name}>"
                self.note(child, f"{what} in the variable {element.get('name')!r}")
        return replace(el(element.name, *parts), line=element.line)

    def note(self, element: Element, what: str) -> None:
        self.notes.append(f"{place(element)}{what} is left out: YAWL 4.0 has no place for it")
