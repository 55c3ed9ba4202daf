"""GRPO by hand, the papers and the sensitivity view in a real browser: every control, against Python to 1e-6."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.control.papers.gpmixture import Kernel, ProcessMixture
from groupwise.core import group_advantages, policy_loss, project_conflicts
from groupwise.core.divergence import ReferenceKl
from groupwise.service.settings import ServiceSettings
from tests.service.conftest import Visit, serving, until
from tests.service.test_laboratory_mathematics import PROMISES

RECORDED = Path(__file__).parents[2] / "dashboard/src/learn/recorded"
AXE = Path(__file__).parents[2] / "dashboard/node_modules/axe-core/axe.min.js"
ANSWERS = ("54", "56", "58", "63", "64", "?")
START = (1.5, 0.0, 0.5, 0.5, 0.0, 0.0)
SCORES = {"graded": (0.7, 1, 0.7, 0.2, 0.1, 0), "right": (0, 1, 0, 0, 0, 0), "equal": (0.5,) * 6}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Without a single run: these views need none."""
    with serving(ServiceSettings(port=0, runs_dir=tmp_path_factory.mktemp("none"), reads_per_second=1e6)) as running:
        yield running


def numbers(page: Any, title: str) -> list[list[Any]]:
    """The table below a chart, with all digits."""
    figure = page.locator(f'figure[aria-label^="{title}"]' if title else "figure")
    if not figure.locator("details").get_attribute("open") and not figure.locator("details tbody").count():
        figure.locator("details > summary").click()
    figure.locator("details tbody tr").first.wait_for()
    rows = figure.locator("details tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.dataset.value ?? null))"
    )
    return [[number(cell) for cell in row] for row in rows]


def number(text: str | None) -> Any:
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def slide(page: Any, label: str, value: float) -> None:
    page.get_by_label(re.compile(f"^{re.escape(label)}")).first.fill(str(value))


def tick(page: Any, group: str, choice: str) -> None:
    page.get_by_role("group", name=group).get_by_label(choice, exact=True).check()


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found, float), np.asarray(expected, float), rtol=1e-6, atol=1e-6)


def test_every_switch_breaks_what_it_is_about(visit: Callable[..., Visit]) -> None:
    page = visit().open("/learn/papers/grpo")
    for fault, keeps in PROMISES.items():
        card = page.locator(f'[data-fault="{fault}"]')
        card.scroll_into_view_if_needed()
        assert card.locator('polyline[data-name="broken"]').count() == 0
        switch = card.get_by_role("switch")
        switch.press("Enter")
        assert switch.get_attribute("aria-checked") == "true"
        until(lambda card=card: card.get_attribute("data-broken") is not None)  # type: ignore[misc]
        right, broken = (float(card.get_attribute(f"data-{which}")) for which in ("right", "broken"))
        assert keeps(right, broken), (fault, right, broken)
        # What is drawn is what was computed.
        assert len(card.locator('polyline[data-name="broken"]').get_attribute("points").split()) == 60
        if fault != "scores_rescaled":
            shown = [row[2] for row in numbers(card, "")]
            close(shown[-1], broken)
        switch.press("Enter")
        assert card.locator('polyline[data-name="broken"]').count() == 0


def stepped(answers: list[str], world: str, *, std: str, clip: float, beta: float, rate: float, passes: int) -> Any:
    """GRPO's step in torch: advantages, ratios, and the policy after it."""
    actions = torch.tensor([ANSWERS.index(answer) for answer in answers])
    scores = torch.tensor(SCORES[world], dtype=torch.float64)[actions]
    groups = torch.zeros(len(actions), dtype=torch.long)
    choices: dict[str, Any] = {"scale": "none"} if std == "none" else {"std": std}
    advantages = group_advantages(scores, groups, **choices)
    logits = torch.tensor(START, dtype=torch.float64)
    behavior = logits.log_softmax(0)[actions][:, None]
    mask = torch.ones_like(behavior, dtype=torch.bool)
    for _ in range(passes if beta or advantages.any() else 0):
        logits = logits.detach().requires_grad_()
        loss = policy_loss(
            logits.log_softmax(0)[actions][:, None], behavior, advantages, mask,
            denominator=len(answers), clip_low=clip, reference=ReferenceKl(behavior, beta),
        ).loss  # fmt: skip
        loss.backward()
        assert logits.grad is not None
        logits = (logits - rate * logits.grad).detach()
    ratios = (logits.log_softmax(0)[actions] - behavior[:, 0]).exp()
    return scores, advantages, ratios.detach(), logits.softmax(0).detach()


STDS = {"population": "Population (÷ n)", "sample": "Sample (÷ n − 1)", "none": "Do not divide"}
WORLDS = {"graded": "Partial credit", "right": "Right or wrong", "equal": "0.5 for everything"}
USUAL = {"size": 8, "std": "population", "clip": 0.2, "beta": 0.0, "rate": 0.5, "passes": 4, "world": "graded"}


@pytest.mark.parametrize(
    "changes",
    [
        {}, {"size": 1}, {"size": 16, "std": "sample"}, {"size": 2, "std": "sample"}, {"std": "none"}, {"clip": 0.06},
        {"passes": 12, "rate": 3.0}, {"beta": 1.0, "passes": 7}, {"world": "equal"}, {"world": "equal", "beta": 0.5},
        {"world": "right", "size": 12}, {"size": 1, "beta": 2.0},
    ],
    ids=str,
)  # fmt: skip
def test_a_step_by_hand_is_that_of_core(visit: Callable[..., Visit], changes: dict[str, Any]) -> None:
    page = visit().open("/learn/by-hand")
    chosen = USUAL | changes
    tick(page, "Scores", WORLDS[chosen["world"]])
    tick(page, "Advantages divided by", STDS[chosen["std"]])
    for label, name in (
        ("Group size", "size"), ("Clip ε", "clip"), ("Passes", "passes"), ("Learning rate", "rate"),
        ("KL weight", "beta"),
    ):  # fmt: skip
        slide(page, label, chosen[name])
    attempts = numbers(page, "1. A group")
    answers = [str(row[1]).removesuffix(".0") for row in attempts]
    assert len(answers) == chosen["size"]
    wanted = {name: chosen[name] for name in ("std", "clip", "beta", "rate", "passes")}
    scores, advantages, ratios, after = stepped(answers, chosen["world"], **wanted)
    close([row[2:5] for row in attempts], torch.stack([scores, advantages, ratios], 1))
    step = numbers(page, "2. The step")
    close([row[3] for row in step], after)
    verdict = page.locator(".verdict").inner_text()
    if chosen["size"] == 1 or chosen["world"] == "equal":
        assert not advantages.any()
        # Even a KL term has nothing to pull back: the policy stands where it started.
        close(after, torch.tensor(START).softmax(0))
        assert "advantage" in verdict
        assert "nothing" in verdict
    page.get_by_role("button", name="Take the step").click()
    expected = float((torch.tensor(SCORES[chosen["world"]], dtype=torch.float64) * after).sum())
    close(numbers(page, "3. Step after step")[1][1], expected)


def test_twenty_steps_learn_and_can_be_started_over(visit: Callable[..., Visit]) -> None:
    page = visit().open("/learn/by-hand")
    page.get_by_role("button", name="20 steps").click()
    page.get_by_role("button", name="20 steps").click()
    curve = numbers(page, "3. Step after step")
    assert len(curve) == 41
    assert curve[-1][1] > curve[0][1] + 0.1
    page.get_by_role("button", name="Start over").click()
    assert len(numbers(page, "3. Step after step")) == 1
    before = numbers(page, "1. A group")
    page.get_by_role("button", name="Sample another group").click()
    assert numbers(page, "1. A group") != before
    for name in ("A group of one", "No spread", "The clip at work", "Held back by KL", "A usual group"):
        page.get_by_role("button", name=name).click()
        assert page.locator(".verdict").inner_text()


def test_the_ideas_of_the_papers_are_computed(visit: Callable[..., Visit]) -> None:
    page = visit().open("/learn/papers/grpo")
    for choice, baseline, scale in (
        ("Raw scores", "none", "none"), ("One mean for all", "global_mean", "none"),
        ("Each group's mean", "group_mean", "none"), ("÷ each group's std", "group_mean", "group_std"),
    ):  # fmt: skip
        tick(page, "Advantage", choice)
        rows = numbers(page, "The key idea")
        groups = torch.tensor([int(row[0] == "B") for row in rows])
        scores = torch.tensor([row[1] for row in rows], dtype=torch.float64)
        close([row[2] for row in rows], group_advantages(scores, groups, baseline=baseline, scale=scale))  # type: ignore[arg-type]
    page.get_by_label("Scores, separated by spaces").fill("1 1 0")
    shown = page.get_by_role("region", name="Advantages").locator("tr").first.locator("td")
    close([cell.get_attribute("data-value") for cell in shown.all()], [0.5**0.5, 0.5**0.5, -(2**0.5)])
    tick(page, "Advantage", "A = −1, worse")
    page.get_by_label(re.compile("^Clip")).fill("0.4")
    curve = np.array(numbers(page, "The clipped objective"))
    close(curve[:, 1], np.minimum(-curve[:, 0], -np.clip(curve[:, 0], 0.6, 1.4)))

    page = visit().open("/learn/papers/pcgrad")
    for angle, size in ((40, 1.5), (140, 3), (180, 0.5)):
        slide(page, "Angle", angle)
        slide(page, "Length", size)
        vectors = np.array([row[1:] for row in numbers(page, "Two gradients")], float)
        close(vectors[0], (1, 0))
        close(vectors[1], (size * math.cos(math.radians(angle)), size * math.sin(math.radians(angle))))
        projected = project_conflicts(torch.tensor(vectors[:2]))
        close(vectors[2:4], projected)
        close(vectors[5], projected.sum(0))

    page = visit().open("/learn/papers/softmod")
    slide(page, "Step", 60)
    rows = numbers(page, "Three tasks")
    close(np.array([row[1:5] for row in rows], float).sum(1), np.ones(3))
    seeing = [row[5] for row in rows]
    tick(page, "The routing sees", "nothing (ablation)")
    blind = [row[5] for row in numbers(page, "Three tasks")]
    assert max(seeing) < 0.01 < min(blind)
    slide(page, "Seeds", 3)
    recorded = json.loads((RECORDED / "softmod.json").read_text())["raw"]["right"]
    shown = page.locator("[data-network]")
    for cell in shown.all():
        mean = np.mean([np.mean(row) for row in recorded[cell.get_attribute("data-network")][:3]])
        assert abs(float(cell.inner_text().split()[0].split("(")[0]) - mean) < 1e-3


def test_the_mixture_on_the_page_is_that_of_python(visit: Callable[..., Visit]) -> None:
    page = visit().open("/learn/papers/gpmixture")
    for stickiness, shown, capacity, seed in (("1", "1", 40, 1), ("10000", "10,000", 40, 1), ("100", "100", 5, 3)):
        tick(page, "Stickiness", shown)
        slide(page, "Points a task", capacity)
        slide(page, "Seed of the stream", seed)
        rows = numbers(page, "What the mixture has found")
        mixture = ProcessMixture(Kernel(1.0, 1.5, 0.15), stickiness=float(stickiness), capacity=capacity)
        labels = [mixture.see(np.array([row[1]]), np.array([row[2]])) + 1 for row in rows]
        assert [row[4] for row in rows] == labels
        found = page.locator('[data-effect="tasks_found"] .here').inner_text()
        assert int(found) == len(mixture)
    slide(page, "Points seen", 30)
    assert len(numbers(page, "What the mixture has found")) == 30


def test_ablations_run_beside_their_recorded_results(visit: Callable[..., Visit]) -> None:
    page = visit().open("/learn/papers/grpo")
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_role("button", name="Run", exact=True).wait_for()
    steps = {arm: page.locator(f'[data-arm="{arm}"] td').all_inner_texts() for arm in ("nothing", "critic", "group")}
    here = {arm: float(found[0]) for arm, found in steps.items()}
    recorded = json.loads((RECORDED / "grpo.json").read_text())["raw"]["steps"]
    assert {arm: float(found[1]) for arm, found in steps.items()} == pytest.approx(
        {arm: np.mean([row[1] for row in rows]) for arm, rows in recorded.items()}, rel=0.01
    )
    assert here["group"] < here["critic"] < here["nothing"]

    page = visit().open("/learn/papers/pcgrad")
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_role("button", name="Run", exact=True).wait_for()
    worst = {arm: float(page.locator(f'[data-arm="{arm}"] .here').inner_text()) for arm in ("sum", "surgery", "scaled")}
    assert worst["sum"] < worst["surgery"] < worst["scaled"]


def cells(page: Any) -> list[float | None]:
    return [number(cell.get_attribute("data-mean")) for cell in page.locator("button.cell").all()]


def command(page: Any) -> list[str]:
    return shlex.split(page.locator("pre.command").inner_text())


def test_a_sweep_is_drawn_and_leads_to_the_next(visit: Callable[..., Visit]) -> None:
    sweep = json.loads((RECORDED / "sweep.json").read_text())
    page = visit().open("/learn/sensitivity")
    page.get_by_text("40 of 40 runs finished").wait_for()
    means = np.array([trial["mean"] for trial in sweep["trials"]]).reshape(5, 4)
    close(cells(page), means.T.ravel())
    found = sweep["findings"]["grpo"]
    close(
        [row[1:4] for row in numbers(page, "What matters")],
        [[one[f"importance{end}"] for end in ("", "_low", "_high")] for one in found["importance"]],
    )
    advice = page.get_by_role("region", name="The recommended setting").inner_text()
    assert "optim.learning_rate = 0.01" in advice
    assert f"{found['recommendation']['score']:.0f}" in advice
    close([row[1:] for row in numbers(page, "Response surface")], means.T)
    tick(page, "Heights", "predicted by the forest")
    close([row[1:] for row in numbers(page, "Response surface")], found["surface"]["scores"])
    page.get_by_label("Across").select_option("rollout.num_generations")
    close(cells(page), means.ravel())
    close([row[1:] for row in numbers(page, "Response surface")], np.array(found["surface"]["scores"]).T)

    face = page.locator("polygon.face").first
    before = face.get_attribute("points")
    page.get_by_role("application").press("ArrowRight")
    assert face.get_attribute("points") != before
    slide(page, "Turn", 200)
    slide(page, "Seen from above", 85)

    page.get_by_role("button", name="Show the command").click()
    words = command(page)
    assert words[:3] == ["groupwise", "sweep", "grpo=examples/cartpole.toml"]
    # Two cells select what lies between them: 2 to 4 attempts, learning rates from 0.001.
    page.locator("button.cell").nth(8).press("Enter")
    page.locator("button.cell").nth(17).press("Enter")
    over = [words[at + 1] for words in [command(page)] for at, word in enumerate(words) if word == "--over"]
    assert over == ["optim.learning_rate=0.001:0.01:log:4", "rollout.num_generations=2:4:4"]
    tick(page, "Settings are chosen by", "random draws")
    page.get_by_role("group", name="rollout.num_generations").get_by_label("to").select_option("2")
    words = command(page)
    assert "--method" in words
    assert words[words.index("--set") + 1] == "rollout.num_generations=2"


def test_a_sweep_under_way_is_drawn_with_its_gaps(visit: Callable[..., Visit]) -> None:
    sweep = json.loads((RECORDED / "sweep.json").read_text())
    sweep |= {"state": "unfinished", "findings": {}, "runs": {"total": 40, "finished": 21, "failed": 1}}
    for at, trial in enumerate(sweep["trials"]):
        if at == 10:
            trial["seeds"][1] = {"seed": 1, "state": "failed", "message": "out of memory"}
            trial |= {"state": "failed", "mean": trial["seeds"][0]["score"]}
        elif at > 10:
            trial |= {"state": "waiting", "mean": None, "seeds": [{"seed": s, "state": "waiting"} for s in (0, 1)]}
    page = visit().open("/learn/sensitivity")
    page.get_by_text("Paste").click()
    page.get_by_label("Text of a sweep.json").fill(json.dumps(sweep))
    page.get_by_role("button", name="Draw it").click()
    page.get_by_text("This sweep is not finished").wait_for()
    drawn = cells(page)
    assert len(drawn) == 20
    assert sum(mean is None for mean in drawn) == 10
    assert page.locator("button.cell").get_by_text("failed").count() == 1
    assert page.get_by_text("Best so far").count() == 1
    # Of 12 faces, those whose four corners have finished.
    assert page.locator("polygon.face").count() == 4
    # Ranges are cut into parts, and a single axis is a row.
    sweep["axes"] = [
        {
            "name": "optim.learning_rate",
            "kind": "range",
            "low": 1e-4,
            "high": 1e-2,
            "scale": "log",
            "whole_numbers": False,
        }
    ]
    page.get_by_label("Text of a sweep.json").fill(json.dumps(sweep))
    page.get_by_role("button", name="Draw it").click()
    until(lambda: len(cells(page)) == 6)
    # Learning rates of 0.0001, 0.0003 and 0.001 have finished settings, each in a part of its own.
    assert sum(mean is None for mean in cells(page)) == 3


def sweep_of(axis: dict[str, Any], *trials: dict[str, Any]) -> str:
    return json.dumps({"kind": "sweep", "axes": [axis], "trials": trials})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not valid JSON"), ("[1]", "not a sweep"), ('{"kind": "sweep"}', "no axes"),
        (sweep_of({"name": "a", "kind": "range", "low": 1, "high": 1}), "not a range"),
        (sweep_of({"name": "a", "kind": "values", "values": [1, 2]}, {}), "no settings"),
    ],
)  # fmt: skip
def test_what_is_no_sweep_is_said_so(visit: Callable[..., Visit], text: str, says: str) -> None:
    page = visit().open("/learn/sensitivity")
    page.get_by_text("40 of 40 runs finished").wait_for()
    page.get_by_label("Open sweep.json").set_input_files(
        {"name": "sweep.json", "mimeType": "application/json", "buffer": text.encode()}
    )
    assert says in page.get_by_role("alert").inner_text()
    assert len(cells(page)) == 20  # what was there stays


PATHS = ("by-hand", "papers/grpo", "papers/pcgrad", "papers/softmod", "papers/gpmixture", "sensitivity")


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everyone_can_read_the_papers(browser: Any, service: Any, scheme: str) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: cd dashboard && npm ci")
    for width in (390, 1024, 1440):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
        tab = Visit(context.new_page(), service.url, service.settings.token)
        for path in PATHS:
            page = tab.open(f"/learn/{path}")
            page.get_by_role("heading", level=2).first.wait_for()
            page.wait_for_load_state("networkidle")
            page.evaluate(AXE.read_text())
            found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
            assert [(path, one["id"], one["nodes"][0]["html"]) for one in found] == []
            assert not tab.is_too_wide(), (path, width)
        assert tab.complaints == []
        context.close()
