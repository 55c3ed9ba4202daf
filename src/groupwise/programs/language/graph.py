"""A program as a graph: a node for every operator call, an arrow wherever a result is used; and its picture.

    program_svg(parse(text))

For plain programs and workflows the arrows follow names in the order of the text: what a loop or a branch may have made
points to all that may use it.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from groupwise.programs.language.program import Form, Parameter, Program, Result
from groupwise.programs.language.straight import written
from groupwise.workflows.document import Document
from groupwise.workflows.graph import Flow, Graph, Node
from groupwise.workflows.pictures.svg import svg

START, END = "start", "end"


@dataclass(frozen=True, slots=True)
class ProgramGraph:
    """Nodes with their labels, by id, and arrows between ids. `start` gives the inputs and `end` takes the answer."""

    nodes: dict[str, str]
    edges: tuple[tuple[str, str], ...]


def graph(program: Program) -> ProgramGraph:
    """The graph of a program."""
    return _of_steps(program) if program.form is Form.STRAIGHT else _of_text(program)


def program_svg(program: Program) -> str:
    """The picture of a program, as SVG."""
    seen = graph(program)
    nodes = [Node(START, ", ".join(program.parameters) or "start", "start")]
    nodes += [Node(id, label, "task", join="and") for id, label in seen.nodes.items()]
    nodes.append(Node(END, "answer", "end"))
    flows = tuple(Flow(source, target) for source, target in seen.edges)
    return svg(Document(program.function, (Graph(program.function, tuple(nodes), flows),)))


def _of_steps(program: Program) -> ProgramGraph:
    nodes, edges = {}, []
    for at, step in enumerate(program.steps):
        given = ", ".join(written(argument, program.parameters) for argument in step.arguments)
        nodes[f"n{at}"] = f"{step.operator}({given})"
        sources = {f"n{one.at}" if isinstance(one, Result) else START for one in step.arguments}
        edges += [(source, f"n{at}") for source in sorted(_without_start(sources, step.arguments))]
    last = program.result
    edges.append((f"n{last.at}" if isinstance(last, Result) else START, END))
    return ProgramGraph(nodes, tuple(edges))


def _without_start(sources: set[str], arguments: tuple[object, ...]) -> set[str]:
    """Constants need no arrow, unless there is nothing else to come from."""
    if any(isinstance(one, Parameter) for one in arguments) or len(sources) == 1:
        return sources
    return sources - {START}


@dataclass
class _Tracer(ast.NodeVisitor):
    """Follows names through a text: which calls may have made what a name holds."""

    program: Program
    nodes: dict[str, str] = field(default_factory=dict)
    edges: dict[tuple[str, str], None] = field(default_factory=dict)
    made: dict[str, set[str]] = field(default_factory=dict)

    def sources(self, node: ast.AST) -> set[str]:
        """The nodes that an expression comes from; operator calls in it become nodes."""
        if isinstance(node, ast.Name):
            return set(self.made.get(node.id, ()))
        found: set[str] = set()
        for child in ast.iter_child_nodes(node):
            found |= self.sources(child)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in self.program.operators:
            name = f"n{len(self.nodes)}"
            self.nodes[name] = ast.unparse(node)[:60]
            self.edges |= dict.fromkeys((source, name) for source in sorted(found or {START}))
            return {name}
        return found

    def gives(self, target: ast.AST, found: set[str]) -> None:
        for node in ast.walk(target):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Load):
                self.made[node.id] = self.made.get(node.id, set()) | found

    def visit_Assign(self, node: ast.Assign) -> None:
        found = self.sources(node.value)
        for target in node.targets:
            self.gives(target, found)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.gives(node.target, self.sources(node.value))

    def visit_For(self, node: ast.For) -> None:
        self.gives(node.target, self.sources(node.iter))
        for statement in (*node.body, *node.orelse):
            self.visit(statement)

    def visit_If(self, node: ast.If | ast.While) -> None:
        self.sources(node.test)
        for statement in (*node.body, *node.orelse):
            self.visit(statement)

    visit_While = visit_If

    def visit_Expr(self, node: ast.Expr) -> None:
        found = self.sources(node.value)
        if isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
            self.gives(node.value.func.value, found)

    def visit_Return(self, node: ast.Return) -> None:
        found = self.sources(node.value) if node.value else set()
        self.edges |= dict.fromkeys((source, END) for source in sorted(found or {START}))


def _of_text(program: Program) -> ProgramGraph:
    tracer = _Tracer(program, made={name: {START} for name in program.parameters})
    for statement in ast.parse(program.text).body[0].body:  # type: ignore[attr-defined]
        tracer.visit(statement)
    used = {source for source, _ in tracer.edges}
    loose = [(name, END) for name in tracer.nodes if name not in used]
    return ProgramGraph(tracer.nodes, (*tracer.edges, *loose))
