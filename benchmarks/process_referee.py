"""The referee: a SimPy model of a written BPMN or YAWL file and its requirements, independent of our simulation.

    net = read_net("claim.bpmn")
    judged = simulate(net, requirements, cases=20_000, seed=77)

It reads XML and the requirements as they stand in their file, and shares no code with `groupwise.workflows`. Tokens
walk through the net; an and-join waits for all its flows; a case is over when no token of it is left. What files and
requirements say is taken as follows:

- Each server is a person. Named people may be in several pools and have hours of their own, which count while their
  first pool works. At the end of a shift work rests and goes on in the next one. Time 0 is Monday 0:00.
- Activities of `different_people` are never given to the last person who did the other; those of `same_person` only to
  that person. Nobody takes work who would leave nobody for the duties that are linked with it and still to be done, as
  long as somebody in the pool would not. Among the free, the first in the file is taken; a queue is served in order of
  arrival, except that a request waiting for somebody in particular is passed over, and that pools may serve by
  priority, by due time or the shortest first.
- Gateways whose conditions name one variable decide alike: the first draws its value, the others use what is known
  of it. It is drawn anew when the activity that decides it (an outcome of the requirements) was done again.
- A loop of the requirements repeats at most `most` times: after that, its way back is closed.
- A knock-out, or a last try that fails, takes away the token; other tokens of the case go on. Where the file has a path
  for it, the token takes that instead: a failure the event on the activity's boundary, a knock-out the exit of the
  gateway behind the activity, by the probability in the file. A gateway behind a join that names activities takes its
  exit if one of them failed or knocked out. An end event of such a path means that the case is lost. A file with an end
  event that terminates has all knock-outs as paths of its own.
- Servers are paid for all hours of their shifts, people in several pools by the first; every try costs.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import simpy
from lxml import etree

BPMN = "{http://www.omg.org/spec/BPMN/20100524/MODEL}"
YAWL = "{http://www.yawlfoundation.org/yawlschema}"
TASKS = ("task", "userTask", "serviceTask", "sendTask", "receiveTask", "manualTask", "scriptTask", "businessRuleTask")
GATEWAYS = {"exclusiveGateway": "xor", "parallelGateway": "and"}
WEEK = 168 * 3600.0
STUDENT = 2.093  # 97.5% quantile for 20 batches
WARM_UP = 0.2
OTHER = "*"  # the value of a variable that no condition names
Stated: TypeAlias = Mapping[str, Any]


@dataclass(slots=True)
class NetNode:
    """A task or gateway; `name` is None unless it is an activity."""

    name: str | None = None
    join: str = "xor"
    split: str = "and"
    pool: str | None = None
    lane: str | None = None
    told: dict[str, str] = field(default_factory=dict)
    out: list[tuple[str, float]] = field(default_factory=list)
    arriving: int = 0
    terminates: bool = False
    # Early endings: where failures go, who decides at a gateway and which way then, and whether a case is lost here.
    fails: str = ""
    deciders: tuple[str, ...] = ()
    exit: str = ""
    loses: bool = False
    # The variable that the conditions name, and by target the values that lead there; empty for the default.
    about: str = ""
    values: dict[str, set[str]] = field(default_factory=dict)


@dataclass(slots=True)
class Net:
    """`own` are the activities with a gateway of their own for knock-outs, `drawn` all that any gateway names."""

    nodes: dict[str, NetNode]
    start: str
    servers: dict[str, int]
    own: set[str] = field(default_factory=set)
    drawn: set[str] = field(default_factory=set)

    @property
    def terminates(self) -> bool:
        return any(node.terminates for node in self.nodes.values())


def read_net(path: str | Path) -> Net:
    root = etree.parse(str(path), etree.XMLParser(resolve_entities=False, no_network=True)).getroot()
    net = _from_bpmn(root) if root.tag == f"{BPMN}definitions" else _from_yawl(root)
    net.drawn = {name for node in net.nodes.values() for name in node.deciders}
    for node in net.nodes.values():
        behind = [net.nodes[target].deciders for target, _ in node.out]
        net.own |= {node.name} if node.name and behind == [(node.name,)] else set()
    _complete_values(net)
    for node in net.nodes.values():
        total = sum(share for _, share in node.out)
        node.out = [(target, share / total if node.split == "xor" else 1.0) for target, share in node.out]
        for target, _ in node.out:
            net.nodes[target].arriving += 1
    return net


def _condition(node: NetNode, target: str, text: str) -> None:
    """Note a condition `variable == 'value' or …`; those on a gateway's own variable say nothing."""
    found = re.findall(r"([\w.-]+)(?:/text\(\))?\s*==?\s*'([^']*)'", text)
    if found and not found[0][0].endswith("_goes_to"):
        node.about, node.values[target] = found[0][0], {value for _, value in found}


def _complete_values(net: Net) -> None:
    """The values of default flows: all that the other flows of the gateway do not name."""
    for node in net.nodes.values():
        if node.about:
            every = {value for one in net.nodes.values() if one.about == node.about for some in one.values.values()
                     for value in some} | {OTHER}  # fmt: skip
            named = set().union(*node.values.values())
            node.values = {target: node.values.get(target) or every - named for target, _ in node.out}


def _own(element: Any, name: str) -> Any:
    """A direct extension element of ours with this local name."""
    inside = element.find(f"{BPMN}extensionElements")
    return next((one for one in (inside if inside is not None else ()) if etree.QName(one).localname == name), None)


def _mark(node: NetNode, told: Stated) -> None:
    """What our annotation of an early ending says."""
    node.deciders = tuple(json.loads(told.get("of", "[]"))) if told.get("role") == "gate" else ()
    node.loses = told.get("role") == "end" and told.get("kind") != "branch"


def _bpmn_node(element: Any) -> NetNode | None:
    """The node of an element; None if it is not one."""
    kind = etree.QName(element).localname
    if kind in TASKS:
        handling = _own(element, "handling")
        told = dict(handling.attrib) if handling is not None else {}
        return NetNode(element.get("name"), pool=told.get("pool"), told=told)
    if kind in GATEWAYS:
        return NetNode(join=GATEWAYS[kind], split=GATEWAYS[kind])
    if kind.endswith("Gateway"):
        raise ValueError(f"the referee does not know {kind}")
    if not kind.endswith("Event"):
        return None
    # A catching event with a name is an activity that waits.
    waits = element.get("name") if kind.startswith("intermediate") else None
    return NetNode(waits, terminates=element.find(f"{BPMN}terminateEventDefinition") is not None)


def _from_bpmn(root: Any) -> Net:
    process = root.find(f"{BPMN}process")
    nodes = {element.get("id"): node for element in process if (node := _bpmn_node(element)) is not None}
    for element in process:
        if (ending := _own(element, "ending")) is not None:
            _mark(nodes[element.get("id")], ending.attrib)
    for element in process.iter(f"{BPMN}boundaryEvent"):
        nodes[element.get("attachedToRef")].fails = element.get("id")
    for flow in process.iter(f"{BPMN}sequenceFlow"):
        told = _own(flow, "flow")
        share = float(told.get("probability", 1.0)) if told is not None else 1.0
        nodes[flow.get("sourceRef")].out.append((flow.get("targetRef"), share))
        if (condition := flow.findtext(f"{BPMN}conditionExpression")) is not None:
            _condition(nodes[flow.get("sourceRef")], flow.get("targetRef"), condition)
        if told is not None and told.get("exit") == "true":
            nodes[flow.get("sourceRef")].exit = flow.get("targetRef")
    for lane in process.iter(f"{BPMN}lane"):
        for ref in lane.iter(f"{BPMN}flowNodeRef"):
            nodes[ref.text].lane = lane.get("name")
    kept = _own(process, "document")
    start = process.find(f"{BPMN}startEvent").get("id")
    return Net(nodes, start, dict(json.loads(kept.text).get("servers", ())) if kept is not None else {})


def _from_yawl(root: Any) -> Net:
    net = next(one for one in root.iter(f"{YAWL}decomposition") if one.get("isRootNet") == "true")
    notes = next((json.loads(one.findtext(f"{YAWL}initialValue")) for one in net if one.get("groupwise")), {})
    shares, endings = notes.get("probabilities", {}), notes.get("endings", {})
    nodes, start = {}, ""
    for element in net.find(f"{YAWL}processControlElements"):
        kind, key = etree.QName(element).localname, element.get("id")
        start = key if kind == "inputCondition" else start
        node = nodes[key] = NetNode()
        _mark(node, endings.get(key, {}))
        if kind == "task":
            node.join, node.split = (element.find(f"{YAWL}{end}").get("code") for end in ("join", "split"))
            node.name = element.findtext(f"{YAWL}name") if element.find(f"{YAWL}decomposesTo") is not None else None
            node.pool = element.findtext(f".//{YAWL}role")
            node.told = {name: str(value) for name, value in notes.get("handling", {}).get(key, {}).items()}
            if (limit := element.findtext(f"{YAWL}timer/{YAWL}duration")) is not None:
                node.told["timeout"] = limit.removeprefix("PT").removesuffix("S")
        for flow in element.iter(f"{YAWL}flowsInto"):
            target = flow.find(f"{YAWL}nextElementRef").get("id")
            if endings.get(target, {}).get("role") == "event":
                node.fails = target
                continue
            node.out.append((target, float(shares.get(f"{key}→{target}", 1.0))))
            _condition(node, target, flow.findtext(f"{YAWL}predicate") or "")
            node.exit = target if notes.get("exits", {}).get(f"{key}→{target}") else node.exit
    return Net(nodes, start, dict(notes.get("servers", ())))


# People and their hours.


class Server:
    """One person: the pools, skills, and shifts of the week in seconds (empty: always)."""

    def __init__(self, name: str, pools: tuple[str, ...], skills: set[str], shifts: list[tuple[float, float]]) -> None:
        self.name, self.pools, self.skills, self.shifts = name, pools, skills, shifts
        self.free, self.worked = True, 0.0

    def opens(self, now: float) -> float:
        """The first time from `now` on at which the person is at work."""
        if not self.shifts:
            return now
        week, hour = divmod(now, WEEK)
        for start, end in self.shifts:
            if hour < end - 1e-9:
                return week * WEEK + max(start, hour)
        return (week + 1) * WEEK + self.shifts[0][0]

    def finishes(self, now: float, work: float) -> float:
        """When `work` seconds of work are done that begin now, with rests between shifts."""
        if not self.shifts:
            return now + work
        while True:
            now = self.opens(now)
            hour = now % WEEK
            left = next(end for start, end in self.shifts if start - 1e-9 <= hour < end - 1e-9) - hour
            if work <= left:
                return now + work
            work, now = work - left, now + left + 1e-6

    @property
    def hours(self) -> float:
        return sum(end - start for start, end in self.shifts) / WEEK if self.shifts else 1.0


def _shifts(own: Any, shared: Any) -> list[tuple[float, float]]:
    """Own hours while the pool works, as seconds of the week; shifts that touch are one."""
    mine, ours = own or [[0, 168]], shared or [[0, 168]]
    if not own and not shared:
        return []
    both = sorted((max(a, c), min(b, d)) for a, b in mine for c, d in ours if max(a, c) < min(b, d))
    found: list[list[float]] = []
    for start, end in both:
        if found and start <= found[-1][1]:
            found[-1][1] = max(end, found[-1][1])
        else:
            found.append([start, end])
    return [(3600.0 * start, 3600.0 * end) for start, end in found]


def performer(node: NetNode, stated: Stated) -> str | None:
    """The pool of an activity: the one it names, or that of its lane if it may do it, or the first that may."""
    may = stated["activities"][node.name].get("pools", ())
    return node.pool or (node.lane if node.lane in may else next(iter(may), None))


def staff_of(net: Net, stated: Stated) -> list[Server]:
    pools, people, found = stated.get("pools", {}), stated.get("people", {}), []
    used = {performer(node, stated) for node in net.nodes.values() if node.name}
    count = {pool: net.servers.get(pool, max(told.get("least", 1), pool in used)) for pool, told in pools.items()}
    taking_part = {
        who for pool in pools for who in [n for n, one in people.items() if pool in one["pools"]][: count[pool]]
    }
    for who, one in people.items():
        if who in taking_part:
            shifts = _shifts(one.get("calendar"), pools[one["pools"][0]].get("calendar"))
            found.append(Server(who, tuple(one["pools"]), set(one.get("skills", ())), shifts))
    for pool, told in pools.items():
        if not any(pool in one["pools"] for one in people.values()):
            shifts = _shifts(None, told.get("calendar"))
            found += [Server(f"{pool} {n + 1}", (pool,), set(), shifts) for n in range(count[pool])]
    return found


@dataclass(slots=True)
class Request:
    """Work that waits for somebody."""

    activity: str
    pool: str
    case: Case
    granted: simpy.Event
    key: tuple[float, int]


@dataclass(slots=True)
class Case:
    began: float
    tokens: int = 1
    joined: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    done: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    by: dict[str, Server] = field(default_factory=dict)
    lost: bool = False
    ended: set[str] = field(default_factory=set)
    known: dict[str, set[str]] = field(default_factory=dict)
    spent: float = 0.0
    took: float = math.nan


class Office:
    """Gives waiting work to free people, whenever work arrives, somebody becomes free, or a shift begins."""

    def __init__(
        self, world: simpy.Environment, stated: Stated, servers: list[Server], doing: Mapping[str, str]
    ) -> None:
        self.world, self.stated, self.doing = world, stated, doing
        self.members: dict[str, list[Server]] = defaultdict(list)
        for server in servers:
            for pool in server.pools:
                self.members[pool].append(server)
        self.queues: dict[str, list[Request]] = defaultdict(list)
        rules = stated.get("rules", {})
        self.apart, self.bound = _partners(rules.get("different_people", ())), _partners(rules.get("same_person", ()))
        needed = {name: set(stated["activities"][name].get("skills", ())) for name in doing}
        self.skilled = {
            name: [one for one in self.members[pool] if needed[name] <= one.skills] for name, pool in doing.items()
        }
        self.linked = {name: self._linked(name) for name in doing}
        self.number = 0
        self.wakes: set[tuple[str, float]] = set()

    def ask(self, activity: str, pool: str, case: Case, rank: float) -> simpy.Event:
        self.number += 1
        request = Request(activity, pool, case, self.world.event(), (rank, self.number))
        self._insert(request)
        self.serve(pool)
        return request.granted

    def _insert(self, request: Request) -> None:
        queue = self.queues[request.pool]
        place = len(queue)
        while place and queue[place - 1].key > request.key:
            place -= 1
        queue.insert(place, request)

    def give_back(self, server: Server) -> None:
        server.free = True
        for pool in server.pools:
            self.serve(pool)

    def serve(self, pool: str) -> None:
        now, queue = self.world.now, self.queues[pool]
        free = [server for server in self.members[pool] if server.free] if queue else []
        here = [server for server in free if server.opens(now) <= now]
        kept: list[Request] = []
        for place, request in enumerate(queue):
            if not here:
                kept += queue[place:]
                break
            chosen = self._chosen(here, request)
            if chosen is None:
                kept.append(request)
                continue
            here.remove(chosen)
            chosen.free = False
            request.case.by[request.activity] = chosen
            request.granted.succeed(chosen)
        self.queues[pool] = kept
        # Whoever is free but not at work looks again when the shift begins.
        later = [server.opens(now) for server in free if server.opens(now) > now]
        if kept and later:
            self._wake(pool, min(later))

    def _chosen(self, here: list[Server], request: Request) -> Server | None:
        """The first who may, and leaves somebody for the rest; if nobody of the pool would, the first who may."""
        by, named = request.case.by, request.activity
        able = [server for server in here if self._may(server, named, by)]
        rest = [one for one in self.linked[named] if one not in by]
        if not rest or not able:
            return able[0] if able else None
        for server in able:
            if self._can_go_on({**by, named: server}, rest):
                return server
        others = (one for one in self.skilled[named] if one not in here and self._may(one, named, by))
        return None if any(self._can_go_on({**by, named: one}, rest) for one in others) else able[0]

    def _linked(self, start: str) -> list[str]:
        """The other activities whose people depend on who does this one, directly or through others."""
        found = [start]
        for one in found:
            near = [*self.apart.get(one, ()), *self.bound.get(one, ())]
            found += [other for other in dict.fromkeys(near) if other in self.doing and other not in found]
        return found[1:]

    def _can_go_on(self, by: dict[str, Server], rest: list[str]) -> bool:
        if not rest:
            return True
        named, *others = rest
        return any(
            self._can_go_on({**by, named: server}, others)
            for server in self.skilled[named]
            if self._may(server, named, by)
        )

    def _may(self, server: Server, named: str, by: Mapping[str, Server]) -> bool:
        if server not in self.skilled[named]:
            return False
        if any(by.get(other) is server for other in self.apart.get(named, ())):
            return False
        return all(by.get(other, server) is server for other in self.bound.get(named, ()))

    def _wake(self, pool: str, when: float) -> None:
        if (pool, when) not in self.wakes:
            self.wakes.add((pool, when))
            self.world.process(self._later(pool, when))

    def _later(self, pool: str, when: float) -> Iterator[simpy.Event]:
        yield self.world.timeout(when - self.world.now + 1e-6)
        self.wakes.discard((pool, when))
        self.serve(pool)


def _partners(pairs: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for one, other in pairs:
        found[one].append(other)
        found[other].append(one)
    return found


# The process.


@dataclass(frozen=True, slots=True)
class Judged:
    """Means per case, with the 95% confidence interval of the cycle time."""

    cycle_time: float
    interval: tuple[float, float]
    cost: float
    completed: float
    utilisation: float


class Referee:
    def __init__(self, net: Net, stated: Stated, seed: int) -> None:
        self.net, self.stated = net, stated
        self.world, self.draw = simpy.Environment(), random.Random(f"referee/{seed}")
        self.servers = staff_of(net, stated)
        orders = {}
        for node in net.nodes.values():
            if node.name and node.told.get("scheduling", "fifo") != "fifo":
                orders.setdefault(self.pool_of(node) or "", node.told["scheduling"])
        doing = {node.name: self.pool_of(node) for node in net.nodes.values() if node.name}
        self.office = Office(self.world, stated, self.servers, {name: pool for name, pool in doing.items() if pool})
        self.orders = orders
        self.limits = dict(_limits(net, stated))
        self.decided = defaultdict(list)
        for outcome in stated.get("outcomes", ()):
            self.decided[outcome["after"]] += [n.about for n in net.nodes.values() if _is_about(n, outcome["name"])]

    def pool_of(self, node: NetNode) -> str | None:
        return performer(node, self.stated)

    def walk(self, case: Case, here: str) -> Iterator[simpy.Event]:
        """One token of a case, from a node on."""
        while True:
            node = self.net.nodes[here]
            if node.join == "and" and node.arriving > 1:
                case.joined[here] += 1
                if case.joined[here] < node.arriving:
                    break
                case.joined[here] = 0
            if node.name is not None and not (yield from self.work(case, node)):
                case.ended.add(node.name)
                if node.fails:
                    here = node.fails
                    continue
                case.lost = True
                break
            case.lost = case.lost or node.loses
            if not node.out or node.loses:
                break
            if node.deciders and not self.is_own(node):
                over = bool(case.ended & {*node.deciders})
                here = next(target for target, _ in node.out if (target == node.exit) == over)
                continue
            if node.split == "xor":
                here = self.choose(case, here)
                case.ended |= {*node.deciders} if here == node.exit else set()
                continue
            here = node.out[0][0]
            for target, _ in node.out[1:]:
                case.tokens += 1
                self.world.process(self.walk(case, target))
        case.tokens -= 1
        if not case.tokens:
            case.took = self.world.now - case.began

    def is_own(self, node: NetNode) -> bool:
        """Whether a gateway decides about one activity, right behind it."""
        return len(node.deciders) == 1 and node.arriving == 1 and node.deciders[0] in self.net.own

    def choose(self, case: Case, here: str) -> str:
        node = self.net.nodes[here]
        ways = node.out
        if node.about:
            known = case.known.get(node.about)
            ways = [way for way in ways if known is None or known & node.values[way[0]]]
        if here in self.limits:
            after, most, back = self.limits[here]
            if case.done[after] > most:
                ways = [way for way in ways if way[0] != back]
        number = self.draw.random() * sum(share for _, share in ways)
        chosen = ways[-1][0]
        for target, share in ways:
            number -= share
            if number < 0:
                chosen = target
                break
        if node.about:
            case.known[node.about] = case.known.get(node.about, node.values[chosen]) & node.values[chosen]
        return chosen

    def work(self, case: Case, node: NetNode) -> Iterator[simpy.Event]:
        """Do an activity, with its retries; False if the token ends here."""
        assert node.name is not None
        told, how, pool = self.stated["activities"][node.name], node.told, self.pool_of(node)
        if delay := float(how.get("delay", 0)):
            yield self.world.timeout(delay)
        limit, pause = float(how.get("timeout", math.inf)), float(how.get("pause", 0))
        for attempt in range(int(how.get("retries", 0)) + 1):
            if attempt and pause:
                yield self.world.timeout(pause * float(how.get("growth", 2)) ** (attempt - 1))
            seconds = self.duration(told["duration"])
            if pool is None:
                yield self.world.timeout(min(seconds, limit))
            else:
                seconds /= self.stated["pools"][pool].get("speed", 1.0)
                server = yield self.office.ask(node.name, pool, case, self.rank(node, pool, told, case))
                now = self.world.now
                yield self.world.timeout(server.finishes(now, min(seconds, limit)) - now)
                server.worked += min(seconds, limit)
                self.office.give_back(server)
            case.spent += told.get("cost", 0.0)
            if seconds <= limit and self.draw.random() >= told.get("failure", 0.0):
                case.done[node.name] += 1
                for variable in self.decided[node.name]:
                    case.known.pop(variable, None)
                if self.net.terminates or node.name in self.net.own:
                    return True
                goes_on = self.draw.random() >= told.get("knock_out", 0.0)
                # A gateway further on asks for it; this token goes there.
                case.ended |= set() if goes_on else {node.name}
                return goes_on or node.name in self.net.drawn
        return False

    def rank(self, node: NetNode, pool: str, told: Stated, case: Case) -> float:
        order = self.orders.get(pool, "fifo")
        if order == "priority":
            return -float(node.told.get("priority", 0))
        if order == "due":
            # Due so long after the case began; work without a due time comes last.
            return case.began + float(node.told.get("due", math.inf))
        return float(told["duration"]["mean"]) if order == "shortest" else 0.0

    def duration(self, told: Stated) -> float:
        mean, std, kind = float(told["mean"]), float(told.get("std") or 0.0), told.get("kind", "exponential")
        if kind == "fixed" or not mean or (kind != "exponential" and not std):
            return mean
        if kind == "exponential":
            return self.draw.expovariate(1 / mean)
        if kind == "normal":
            return max(0.0, self.draw.gauss(mean, std))
        if kind == "uniform":
            return self.draw.uniform(mean - math.sqrt(3) * std, mean + math.sqrt(3) * std)
        if kind == "gamma":
            return self.draw.gammavariate((mean / std) ** 2, std**2 / mean)
        spread = math.log(1 + (std / mean) ** 2)
        return self.draw.lognormvariate(math.log(mean) - spread / 2, math.sqrt(spread))

    def run(self, cases: int) -> Judged:
        rate = self.stated["demand"]["arrivals_per_second"]
        measured: list[Case] = []
        first = int(cases * WARM_UP)

        def arrivals() -> Iterator[simpy.Event]:
            for number in range(first + cases):
                yield self.world.timeout(self.draw.expovariate(rate))
                case = Case(self.world.now)
                if number >= first:
                    measured.append(case)
                self.world.process(self.walk(case, self.net.start))

        self.world.process(arrivals())
        # Cases that are still under way when the last one has arrived are finished, too.
        self.world.run()
        return self._summary(measured, rate)

    def _summary(self, measured: list[Case], rate: float) -> Judged:
        times = [case.took for case in measured if not math.isnan(case.took)]
        if len(times) < len(measured):
            raise ValueError(f"{len(measured) - len(times)} of {len(measured)} cases never ended")
        size = len(times) // 20
        means = [sum(times[n * size : (n + 1) * size]) / size for n in range(20)]
        mean = sum(times) / len(times)
        half = STUDENT * math.sqrt(sum((one - mean) ** 2 for one in means) / 19 / 20)
        pools = self.stated.get("pools", {})
        wages = sum(pools[server.pools[0]].get("wage", 0.0) * server.hours for server in self.servers)
        hours = sum(server.hours for server in self.servers) * self.world.now
        return Judged(
            mean,
            (mean - half, mean + half),
            wages / rate + sum(case.spent for case in measured) / len(measured),
            sum(not case.lost for case in measured) / len(measured),
            sum(server.worked for server in self.servers) / hours if hours else 0.0,
        )


def _limits(net: Net, stated: Stated) -> Iterator[tuple[str, tuple[str, int, str]]]:
    """For every loop with a limit: the split that decides it, the activity that counts its rounds, and the way back."""
    at = {node.name: key for key, node in net.nodes.items() if node.name}
    for loop in stated.get("loops", ()):
        body = {at[name] for name in loop["activities"]}
        if loop.get("most") is None:
            continue
        found = []
        for key in _silent(net, at[loop["after"]]):
            node = net.nodes[key]
            if node.split == "xor" and len(node.out) > 1 and not node.deciders:
                near = {target: _distance(net, target, body) for target, _ in node.out}
                back = min(near, key=lambda target: near[target])
                found.append((near[back], key, back))
        # A split before it may end the case, and leads back only through the one that decides.
        closest = min(found, default=(math.inf, "", ""))
        if math.isfinite(closest[0]):
            yield closest[1], (loop["after"], loop["most"], closest[2])


def _is_about(node: NetNode, outcome: str) -> bool:
    return bool(node.about) and re.sub(r"\W", "_", node.about) == re.sub(r"\W", "_", outcome)


def _silent(net: Net, start: str) -> Iterator[str]:
    """Nodes after a task, nearest first, up to the next task."""
    queue, seen = deque(target for target, _ in net.nodes[start].out), set()
    while queue:
        here = queue.popleft()
        if here not in seen and net.nodes[here].name is None:
            seen.add(here)
            yield here
            queue += [target for target, _ in net.nodes[here].out]


def _distance(net: Net, start: str, goals: set[str]) -> float:
    far, queue = {start: 0}, deque([start])
    while queue:
        here = queue.popleft()
        if here in goals:
            return far[here]
        for target, _ in net.nodes[here].out:
            if target not in far:
                far[target] = far[here] + 1
                queue.append(target)
    return math.inf


def simulate(net: Net, stated: Stated, cases: int = 20_000, seed: int = 1) -> Judged:
    """How the process in the file performs: `cases` measured after a fifth as many that are not."""
    return Referee(net, stated, seed).run(cases)
