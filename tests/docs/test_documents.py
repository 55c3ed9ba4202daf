"""The documents describe today: their code runs, their links lead somewhere."""

from __future__ import annotations

import ast
import asyncio
import os
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from groupwise import cli
from groupwise.agents import agent_product  # which adds the rewards of agents
from groupwise.agents.strategies import registry
from groupwise.cli import COMMANDS
from groupwise.config import TrainingConfig, load_config
from groupwise.designer.problem import ACTIONS
from groupwise.programs.problems.user_problems import problem_of
from groupwise.rewards.registry import ADDED, KNOWN
from groupwise.sandbox import available
from groupwise.training.folder import create_run
from groupwise.training.session import execute
from groupwise.workflows.feasibility import contradictions
from groupwise.workflows.requirements import parse_requirements, schema
from groupwise.workflows.scoring.measures import GROUPS

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


def test_every_figure_of_the_readme_stands_on_a_page_it_links_to_with_a_command() -> None:
    readme = re.sub(r"```.*?```", "", (ROOT / "README.md").read_text("utf8"), flags=re.DOTALL)
    checked = 0
    for passage in re.split(r"\n\n|\n(?=\|)", readme):
        pages = [(ROOT / name).read_text("utf8") for name in re.findall(r"\((docs/\w+\.md)", passage)]
        for figure in figures(re.sub(r"\([^)]*\.md[^)]*\)", "", passage)) if pages else ():
            checked += 1
            assert any(figure in figures(page) and re.search(r"`(python |groupwise )", page) for page in pages), (
                f"{figure} in {passage!r}"
            )
    assert checked > 20


def figures(text: str) -> set[str]:
    """The numbers of a text, as they are written; those inside words, such as Stable-Baselines3, are left out."""
    return set(re.findall(r"(?<![\w.−-])\d+(?:[.,/]\d+)*(?:e-\d+)?%?", text))


@pytest.mark.parametrize("page", ["grouping.md", "papers.md", "sweep.md"])
def test_the_python_of_the_pages_on_control_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = blocks(ROOT / "docs" / page, "python")
    assert code
    for block in code:
        exec(compile(block, page, "exec"), {"__name__": page})  # noqa: S102


def test_the_python_of_the_page_on_workflows_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    for block in blocks(ROOT / "docs" / "workflows.md", "python"):
        exec(compile(block, "workflows.md", "exec"), {"__name__": "workflows"})  # noqa: S102
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines[: len(GROUPS)]] == list(GROUPS)
    assert lines[len(GROUPS)].split()[1] == "s"  # the schedule that the page makes of the example


def test_the_requirements_of_the_page_on_workflows_are_read() -> None:
    first, extended, again = map(yaml.safe_load, blocks(ROOT / "docs" / "workflows.md", "yaml"))
    jsonschema.validate(first, schema())
    jsonschema.validate(extended, schema())
    assert contradictions(parse_requirements(extended)) == []
    # The third is a part of a file: these are the activities that it names.
    named = ("take order", "reserve courier", "pack goods", "ship express", "ship standard")
    whole = {"name": "orders", "activities": {name: {"duration": {"mean": 60}} for name in named}, **again}
    assert contradictions(parse_requirements(whole)) == []


def test_the_python_of_the_page_on_the_sandbox_runs() -> None:
    if faults := [fault for fault in available().values() if fault]:
        pytest.skip(faults[0])
    for block in blocks(ROOT / "docs" / "sandbox.md", "python"):
        exec(compile(block, "sandbox.md", "exec"), {"__name__": "sandbox"})  # noqa: S102


def test_the_page_on_program_search_says_what_is_so(capsys: pytest.CaptureFixture[str]) -> None:
    page = ROOT / "docs" / "program_search.md"
    for block in blocks(page, "python"):
        exec(compile(block, "program_search.md", "exec"), {"__name__": "program_search"})  # noqa: S102
    solved, actions, _, word = capsys.readouterr().out.splitlines()
    assert solved.startswith("True ")
    assert actions.endswith("'return a')")
    assert word == "('c', 'a', 'b', 'd')"
    (problem,) = blocks(page, "yaml")
    assert problem_of(yaml.safe_load(problem), "page").max_lines == 3


def test_the_python_of_the_page_on_conversations_runs() -> None:
    names = {"__name__": "conversations"}
    for block in blocks(ROOT / "docs" / "conversations.md", "python"):
        exec(compile(block, "conversations.md", "exec"), names)  # noqa: S102


def test_the_python_of_the_page_on_tools_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names = {"__name__": "tools"}
    for block in blocks(ROOT / "docs" / "tools.md", "python"):
        exec(compile(block, "tools.md", "exec"), names)  # noqa: S102
    assert [line.split(" | ")[0] for line in capsys.readouterr().out.splitlines()] == [
        "['amount', 'source']", "ok", "bad_arguments", "unknown_tool", "raised",
    ]  # fmt: skip


def test_the_example_of_the_page_on_agent_programs_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "agent_programs.md").read_text("utf8")
    files = re.findall(r"```\w+ title=(\S+)\n(.*?)```", page, re.DOTALL)
    assert [name for name, _ in files] == ["agent.py", "tasks.jsonl", "agent.toml"]
    for name, text in files:
        (tmp_path / name).write_text(text, "utf8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    events = list(execute(create_run(load_config(tmp_path / "agent.toml")), agent_product.build))
    (step,) = [event.data["metrics"] for event in events if event.type == "step"]
    assert step["groups/failed_share"] == 0


def test_the_python_of_the_page_on_agents_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One block after the other, as in a notebook: `await` stands by itself."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_known", dict(registry._known))
    names: dict[str, Any] = {"__name__": "agents"}

    async def run() -> None:
        for block in blocks(ROOT / "docs" / "agents.md", "python"):
            code = compile(block, "agents.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
            if (waiting := eval(code, names)) is not None:  # noqa: S307
                await waiting

    asyncio.run(run())
    out = capsys.readouterr().out
    for shown in (
        "8 different answers", "2 delivery ['4711']", "objection - That is too expensive.", "educational",
        "{'ordered': True}", "61 messages became 12", "(1,)",
    ):  # fmt: skip
        assert shown in out


def test_the_page_on_memory_says_what_its_python_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for block in blocks(ROOT / "docs" / "memory.md", "python"):
        exec(compile(block, "memory.md", "exec"), {"__name__": "memory"})  # noqa: S102
        said = [line.split("  # ")[1] for line in block.splitlines() if line.lstrip().startswith("print(")]
        assert capsys.readouterr().out.splitlines() == said


def test_the_python_of_the_page_on_rewards_runs_from_top_to_bottom() -> None:
    names = {"__name__": "rewards"}
    for block in blocks(ROOT / "docs" / "rewards.md", "python"):
        exec(compile(block, "rewards.md", "exec"), names)  # noqa: S102


def test_the_python_of_the_page_on_the_learned_reward_runs(capsys: pytest.CaptureFixture[str]) -> None:
    for block in blocks(ROOT / "docs" / "neural_reward.md", "python"):
        exec(compile(block, "neural_reward.md", "exec"), {"__name__": "neural_reward"})  # noqa: S102
    assert "('fallback', 'neural_unproven')" in capsys.readouterr().out


def test_the_page_on_rewards_names_every_reward_there_is_and_its_settings_can_be_read() -> None:
    page = (ROOT / "docs" / "rewards.md").read_text("utf8")
    names = [*KNOWN, *ADDED]
    assert "program" in names
    assert [name for name in names if f"`{name}`" not in page and f'"{name}"' not in page] == []
    for block in blocks(ROOT / "docs" / "rewards.md", "toml"):
        assert TrainingConfig.from_dict(tomllib.loads(block)).reward.name in names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_documents_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf8")):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_commands_named_in_the_documents_exist() -> None:
    groups = {name: commands for name, (_, commands) in cli.GROUPS.items()}
    known = {*COMMANDS, *groups}
    for page in PAGES:
        for text in [*re.findall(r"`groupwise ([a-z][^`]*)`", page.read_text("utf8")), *shell_lines(page)]:
            first, *rest = re.split(r"[ |]+", text)
            assert first in known, f"{page.name}: groupwise {text}"
            if first in groups and rest:
                assert rest[0] in groups[first], f"{page.name}: groupwise {text}"


def shell_lines(page: Path) -> list[str]:
    lines = "\n".join(blocks(page, "")).splitlines()
    return [line.strip("$ ").removeprefix("groupwise ") for line in lines if line.strip("$ ").startswith("groupwise ")]


def test_the_page_on_the_designer_has_the_twelve_actions() -> None:
    text = (ROOT / "docs" / "designer.md").read_text("utf8")
    rows = re.findall(r"^\| (\w+) \| (structural|temporal|resource) \| (.+) \|$", text, re.MULTILINE)
    assert rows == [(action.name, action.family, action.words) for action in ACTIONS]
