"""A search on the terminal: the tree, the winning program, and what it took."""

from __future__ import annotations

from rich.console import RenderableType
from rich.panel import Panel
from rich.syntax import Syntax
from rich.text import Text
from rich.tree import Tree as Drawing

from groupwise.reporting.text import printable
from groupwise.workflows.search.outline import Branch, outline
from groupwise.workflows.search.tree import Tree

BAR = 8


def tree_view(tree: Tree, title: str, most: int = 30) -> Drawing:
    """The tree, branch by branch: how often each line was tried, and the best that came of it."""
    top = outline(tree, most)
    drawing = Drawing(Text(printable(title), style="bold"), guide_style="dim")
    _grow(drawing, top)
    return drawing


def _grow(drawing: Drawing, branch: Branch) -> None:
    for one in branch.branches:
        _grow(drawing.add(_label(one)), one)
    if branch.hidden:
        drawing.add(Text(f"… {branch.hidden} more", style="dim"))


def _label(branch: Branch) -> Text:
    style = "bold green" if branch.winner and branch.solved else "bold" if branch.winner else ""
    text = Text(printable(branch.action), style=style)
    text.append("  ")
    text.append(bar(branch.best), style="green" if branch.best >= 1 else "yellow" if branch.best > 0 else "dim")
    text.append(f" {branch.best:.2f}", style="dim")
    if branch.finished:
        return text.append(" ✓" if branch.solved else "", style="bold green")
    return text.append(f"  {branch.tries} tried", style="dim")


def bar(value: float) -> str:
    """A value from 0 to 1 as a bar of blocks."""
    eighths = round(max(0.0, min(1.0, value)) * BAR * 8)
    full, part = divmod(eighths, 8)
    return ("█" * full + (" ▏▎▍▌▋▊▉"[part] if part else "")).ljust(BAR, "·")


def program_view(text: str, title: str, solved: bool) -> RenderableType:
    """A program in a frame that says how well it does."""
    code = Syntax(printable_lines(text), "python", background_color="default")
    return Panel(
        code, title=Text(title), title_align="left", border_style="green" if solved else "yellow", expand=False
    )


def printable_lines(text: str) -> str:
    return "\n".join(printable(line) for line in text.split("\n"))
