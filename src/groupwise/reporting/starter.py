"""What `groupwise init` needs to know of a product: its questions, and the files that the answers make.

A product's `Starter` is a row of `products.STARTERS`. `init` asks its questions in order, each with the answers so far;
`write` makes the texts of the files, with names relative to the folder they will be in; `check` tries them out in a
folder where they lie, before anything is written where the user works.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from groupwise.config import check_config, load_config
from groupwise.config.fields import raise_findings
from groupwise.products import product_of

Answers: TypeAlias = Mapping[str, str]


@dataclass(frozen=True)
class Question:
    """One question: the option that answers it in a script, the words, the usual answer, and the choices with meanings.

    Without a usual answer it must be answered.
    """

    option: str
    words: str
    usual: str = ""
    choices: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class StarterFiles:
    """The name of the settings file, the texts of all files by name, the next commands, and what else to know.

    In the commands `{file}` stands for the path of the settings file.
    """

    settings: str
    texts: Mapping[str, str]
    commands: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Starter:
    """How one kind of work begins. `options` are those it understands beside the ones that its questions name."""

    question: Callable[[Answers], Question | None]
    write: Callable[[Answers, Path], StarterFiles]
    options: tuple[str, ...]
    check: Callable[[Path], Sequence[str]]


def check_settings_file(path: Path) -> tuple[str, ...]:
    """Check as a run does before it has a folder; the notes of the product."""
    raise_findings(check_config(path), where=path.name)
    cfg = load_config(path)
    product = product_of(cfg)
    return product.check(product.prepare(cfg))


def stem(name: str) -> str:
    """A name for files made of something else's: letters, digits, hyphens and underscores."""
    words = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in name).strip("-")
    return words or "start"
