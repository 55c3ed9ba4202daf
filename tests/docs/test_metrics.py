"""The page of metrics: it has every metric that the package writes, each once, with what it is divided by."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = [line.strip("|").split(" | ") for line in (ROOT / "docs" / "metrics.md").read_text("utf8").splitlines()
        if line.startswith("| `")]  # fmt: skip
LISTED = [name for row in ROWS for name in re.findall(r"`([^`]+)`", row[0])]
FAMILIES = (
    "groups", "attempt", "reward", "advantage", "group", "replay", "loss", "policy", "sampler", "optim", "value",
    "eval", "curriculum", "programs", "search", "judge", "answers", "rollout",
)  # fmt: skip
# A metric is written as a key of a mapping or as an index, and may have a name in braces.
WRITTEN = re.compile(rf"""f?"((?:{"|".join(FAMILIES)})/[\w/@{{}}~.]+)"(?=\]? ?[:=](?!=)|\]\s*=)""")
# Only divided by, and left out of the events; and reward/mean, std, min and max once more.
INTERNAL = {"sampler/tokens", "reward/{name}"}


def pattern(listed: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"<[^>]+>", ".+", re.escape(listed).replace(r"\<", "<").replace(r"\>", ">")))


def written() -> set[str]:
    found: set[str] = set()
    for file in (ROOT / "src" / "groupwise").rglob("*.py"):
        found |= set(WRITTEN.findall(file.read_text("utf8")))
    return found - INTERNAL


def test_every_metric_that_is_written_is_on_the_page() -> None:
    names = written()
    assert {"reward/mean", "policy/clip_low", "sampler/kl", "eval/accuracy", "reward/part/{name}"} <= names
    known = [pattern(listed) for listed in LISTED]
    assert [name for name in sorted(names) if not any(one.fullmatch(name) for one in known)] == []


def test_every_metric_is_listed_once_and_says_what_it_is_divided_by() -> None:
    assert len(LISTED) == len(set(LISTED)) > 50
    assert all(len(row) == 3 and len(row[2].strip()) > 3 for row in ROWS)
    for name in LISTED:
        assert name.split("/")[0] in FAMILIES
