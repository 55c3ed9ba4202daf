"""The course of a search: where candidates came from, and how diverse each generation was."""

from collections import Counter
from collections.abc import Sequence

from groupwise.designer.results.outcome import Generation

WORDS = {
    "likeliest": "likeliest", "sample": "sampled", "edit": "edited", "memory": "from memory", "rule": "by heuristics",
}  # fmt: skip
# The generations that a table shows: the first and the last of a long search.
SHOWN = 12


def candidates_line(generations: Sequence[Generation]) -> str:
    """Where the candidates came from, how many explored, and in how many generations every diversity target held."""
    origins, modes = Counter[str](), Counter[str]()
    for one in generations:
        origins.update(one.origins)
        modes.update(one.modes)
    names = ", ".join(f"{count} {WORDS[origin]}" for origin, count in origins.most_common())
    held = sum(all(one.met.values()) for one in generations)
    explored = f"{modes['exploring'] / max(modes.total(), 1):.0%} explored"
    return f"Candidates: {names}; {explored}; diverse in {held} of {len(generations)} generations"


def diversity_table(generations: Sequence[Generation]) -> str:
    """The diversity of every generation as HTML, marked where it is below its target, with its edits by action."""
    families = list(generations[0].diversity.distinct) if generations else []
    names = (
        "generation",
        "exploring",
        "exploiting",
        *families,
        "novelty",
        *(generations[0].actions if families else ()),
    )
    head = "".join(f"<th scope=col>{name}</th>" for name in names)
    half = SHOWN // 2
    shown = generations if len(generations) <= SHOWN else [*generations[:half], *generations[-half:]]
    rows = "".join(f"<tr>{''.join(_cells(one))}</tr>" for one in shown)
    words = (
        "Diversity is the share of distinct structures, timings and resources, and of new designs; ✗ marks what is "
        "below its target. The last columns count edits by the actions they contain."
    )
    table = f"<div class=scroll><table class=numbers><tr>{head}</tr>{rows}</table></div>"
    return f"<details><summary>Diversity by generation</summary><p>{words}</p>{table}</details>"


def _cells(one: Generation) -> list[str]:
    measured = {**one.diversity.distinct, "novelty": one.novelty}
    shares = ["–" if value is None else f"{value:.2f}{_mark(one, name)}" for name, value in measured.items()]
    counts = [one.modes.get("exploring", 0), one.modes.get("exploiting", 0)]
    return [f"<td>{value}</td>" for value in (one.number + 1, *counts, *shares, *one.actions.values())]


def _mark(one: Generation, name: str) -> str:
    return "" if one.met.get(name, True) else " ✗"
