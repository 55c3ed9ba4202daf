"""Hold the package to its own rules: `python tools/style.py` prints the figures and what breaks a rule.

The rules: no import cycle, import lines at most 6.3%, comment-only lines at least 2%, no folder with more than 25 files,
no public class name in two files, and a docstring in the `__init__` of every package that serves as its map: it names
every file and folder beside it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
MOST_IMPORT_LINES = 0.063  # commands import what is heavy inside of them, so that `--help` stays quick
LEAST_COMMENT_LINES = 0.02
MOST_FILES = 25


@dataclass(frozen=True)
class Module:
    """One file: its dotted name, its text, and the tree it parses to."""

    name: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def import_lines(self) -> int:
        imports = (node for node in ast.walk(self.tree) if isinstance(node, ast.Import | ast.ImportFrom))
        return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in imports)

    @property
    def comment_lines(self) -> int:
        return sum(line.lstrip().startswith("#") for line in self.text.splitlines())

    @property
    def public_classes(self) -> list[str]:
        return [node.name for node in self.tree.body if isinstance(node, ast.ClassDef) and node.name[0] != "_"]

    def imports(self, known: set[str]) -> set[str]:
        """Modules of the package that this one imports when it is loaded."""
        found = set()
        for node in self.tree.body:
            if isinstance(node, ast.ImportFrom) and node.module:
                found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
        return found & known - {self.name}


def modules(source: Path = SOURCE) -> list[Module]:
    """Every file of the package, in order of its path."""
    found = []
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text("utf8")
        found.append(Module(name, path.relative_to(source), text, ast.parse(text)))
    return found


def broken_rules(package: list[Module]) -> list[str]:
    """One sentence for each rule that is broken."""
    lines = sum(len(module.text.splitlines()) for module in package)
    imports = sum(module.import_lines for module in package) / lines
    comments = sum(module.comment_lines for module in package) / lines
    folders = Counter(module.path.parent for module in package)
    classes: dict[str, list[Path]] = defaultdict(list)
    for module in package:
        for name in module.public_classes:
            classes[name].append(module.path)
    print(f"{len(package)} files, {lines} lines: {imports:.1%} import lines, {comments:.2%} comment-only lines")
    broken = [
        f"{folder} has {count} files; {MOST_FILES} at most" for folder, count in folders.items() if count > MOST_FILES
    ]
    broken += [
        f"class {name} is in {' and '.join(map(str, where))}" for name, where in classes.items() if len(where) > 1
    ]
    broken += [
        f"{module.path} does not mention {name}" for module in package for name in missing_on_map(module, package)
    ]
    if imports > MOST_IMPORT_LINES:
        broken.append(f"{imports:.1%} of all lines are imports; {MOST_IMPORT_LINES:.1%} at most")
    if comments < LEAST_COMMENT_LINES:
        broken.append(f"{comments:.2%} of all lines are comments; {LEAST_COMMENT_LINES:.0%} at least")
    return broken + import_cycle(package)


def missing_on_map(module: Module, package: list[Module]) -> list[str]:
    """The files and folders beside an `__init__` that its docstring does not name."""
    if module.path.name != "__init__.py":
        return []
    named = set(re.findall(r"\w+", ast.get_docstring(module.tree) or ""))
    beside = {other.name.rpartition(".")[2] for other in package if other.name.rpartition(".")[0] == module.name}
    return sorted(beside - named - {"__main__"})


def import_cycle(package: list[Module]) -> list[str]:
    known = {module.name for module in package}
    try:
        TopologicalSorter({module.name: module.imports(known) for module in package}).prepare()
    except CycleError as cycle:
        return [f"import cycle: {' → '.join(cycle.args[1])}"]
    return []


if __name__ == "__main__":
    found = broken_rules(modules())
    print("\n".join(found))
    sys.exit(bool(found))
