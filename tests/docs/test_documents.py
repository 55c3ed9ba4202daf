"""The documents describe today: their code runs, their links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from groupwise.cli import COMMANDS, CONFIG_COMMANDS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text("utf8"), re.DOTALL)


def test_the_python_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code = blocks(ROOT / "README.md", "python")
    assert code
    for block in code:
        exec(compile(block, "README.md", "exec"), {"__name__": "readme"})  # noqa: S102
    out = capsys.readouterr().out
    rewards = [float(line.split()[1]) for line in out.splitlines() if line[:1].isdigit()]
    assert len(rewards) == 20
    assert rewards[-1] > 3 * rewards[0]
    assert "-1.4142" in out


@pytest.mark.parametrize("page", ["grouping.md", "papers.md"])
def test_the_python_of_the_pages_on_control_runs(page: str) -> None:
    code = blocks(ROOT / "docs" / page, "python")
    assert code
    for block in code:
        exec(compile(block, page, "exec"), {"__name__": page})  # noqa: S102


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_documents_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf8")):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_commands_named_in_the_documents_exist() -> None:
    known = {*COMMANDS, "config"}
    for page in PAGES:
        for text in [*re.findall(r"`groupwise ([a-z][^`]*)`", page.read_text("utf8")), *shell_lines(page)]:
            first, *rest = re.split(r"[ |]+", text)
            assert first in known, f"{page.name}: groupwise {text}"
            if first == "config" and rest:
                assert rest[0] in CONFIG_COMMANDS, f"{page.name}: groupwise {text}"


def shell_lines(page: Path) -> list[str]:
    lines = "\n".join(blocks(page, "")).splitlines()
    return [line.strip("$ ").removeprefix("groupwise ") for line in lines if line.strip("$ ").startswith("groupwise ")]
