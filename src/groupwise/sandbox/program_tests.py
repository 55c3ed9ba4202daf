"""Tests of programs, read before they run: which names they expect of the program, and what they import.

    facts = read_tests("import pytest\\ndef test_add():\\n    assert add(1, 2) == 3")
    facts.wanted, facts.packages      # ('add',), ('pytest',)

Whatever is wrong with tests themselves is a `ConfigError` here, so that no program is blamed for it.
"""

import ast
import builtins
import symtable
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from groupwise.errors import ConfigError
from groupwise.sandbox.fixed_limits import LONGEST_CODE

# Tests may import the program under this name.
SOLUTION = "solution"
BUILT_IN = frozenset(dir(builtins))


@dataclass(frozen=True)
class Expectations:
    """What tests expect.

    `wanted` are names that the program must define; `packages` are installed packages that the tests import, and
    `standard` are modules of the standard library that take long to import.
    """

    wanted: tuple[str, ...]
    packages: tuple[str, ...]
    standard: tuple[str, ...]


@lru_cache(maxsize=4096)
def read_tests(text: str, tested: str = "", helpers: str = "") -> Expectations:
    """What the tests expect of a program; raises if they cannot run, or use nothing that a program defines."""
    if len(text) > LONGEST_CODE:
        raise tests_fault(f"they have {len(text):,} characters; the limit is {LONGEST_CODE:,}")
    try:
        tree = ast.parse(text, "<tests>")
        helped = _bound(symtable.symtable(helpers, "<helpers>", "exec")) - {tested}
        table = symtable.symtable(text, "<tests>", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise tests_fault(f"{type(error).__name__}: {error}") from None
    wanted = [
        name
        for name in dict.fromkeys([*_used(table), *_imported_from_solution(tree)])
        if name not in helped and name not in _bound(table) - {*_imported_from_solution(tree)}
        if name == tested or name not in BUILT_IN
        if not name.startswith("__")
    ]
    if not wanted and not _imports_all(tree):
        raise tests_fault("they never call the program: they use no name that a program could define")
    needed, optional = _imports(tree)
    if _takes_fixtures(tree):
        needed.add("pytest")
    outside = {name for name in needed if name not in sys.stdlib_module_names and name != SOLUTION}
    return Expectations(tuple(wanted), tuple(sorted(outside)), ("unittest",) if "unittest" in needed | optional else ())


@lru_cache(maxsize=4096)
def without_classes(helpers: str) -> str:
    """The helpers that the tests have for themselves; classes stay with the code, which gets objects of them."""
    tree = ast.parse(helpers)
    return ast.unparse(ast.Module([node for node in tree.body if not isinstance(node, ast.ClassDef)], []))


def tests_fault(words: str) -> ConfigError:
    return ConfigError(f"the tests cannot be run: {words}", hint="Correct the tests; the model did not write them.")


def _bound(table: symtable.SymbolTable) -> set[str]:
    """Names that the text itself defines at its top level, or as globals inside functions."""
    own = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()}
    inner = {s.get_name() for t in _below(table) for s in t.get_symbols() if s.is_declared_global() and s.is_assigned()}
    return own | inner


def _used(table: symtable.SymbolTable) -> list[str]:
    """Global names that are read anywhere in the text."""
    top = [s.get_name() for s in table.get_symbols() if s.is_referenced()]
    return top + [s.get_name() for t in _below(table) for s in t.get_symbols() if s.is_global() and s.is_referenced()]


def _below(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    for child in table.get_children():
        yield child
        yield from _below(child)


def _imported_from_solution(tree: ast.Module) -> list[str]:
    """Names taken from the module `solution`: imported from it, or read as its attributes."""
    found = [
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == SOLUTION
        for alias in node.names
        if alias.name != "*"
    ]
    return found + [
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == SOLUTION
    ]


def _imports_all(tree: ast.Module) -> bool:
    """Whether any name may come from elsewhere: `from solution import *`."""
    stars = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == SOLUTION)
    return any(alias.name == "*" for node in stars for alias in node.names)


def _imports(tree: ast.Module) -> tuple[set[str], set[str]]:
    """Top-level modules that the text imports, and those that it tries to import but can do without."""
    tried = {id(inner) for node in ast.walk(tree) if isinstance(node, ast.Try) for inner in ast.walk(node)}
    found: tuple[set[str], set[str]] = (set(), set())
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        found[id(node) in tried].update(name.partition(".")[0] for name in names)
    return found


def _takes_fixtures(tree: ast.Module) -> bool:
    """Whether a test function that the text does not call itself takes arguments: only pytest can provide them."""
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return any(
        node.name.startswith("test_") and node.name not in called and len(node.args.args) > len(node.args.defaults)
        for node in functions
    )
