"""The laboratory in a real browser, on a real run: what is plotted is what `groupwise.core` computes."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from groupwise import core
from groupwise.config import load_config
from groupwise.core.grouping.strategies import STRATEGIES
from groupwise.reporting import statistics as st
from groupwise.reporting.history import History
from groupwise.reporting.live_run import start_run
from groupwise.reporting.recorded_step import RecordedStep, read_step, regroup
from groupwise.service.routes.page import FOLDER
from groupwise.service.settings import ServiceSettings
from tests.service.conftest import Visit, serving, until

ROOT = Path(__file__).parents[2]
STEP = 3
SETTINGS = (
    "task.max_episode_steps=40", "advantage.estimator=group_rtg", "rollout.tasks_per_step=3",
    "rollout.num_generations=4",
    "training.num_episodes=4", "training.total_samples=null", "loss.value_coef=0", "optim.num_epochs=1",
    "run.group_log_steps=1", "run.eval_steps=2", "run.eval_episodes=3", "run.save_steps=100", "run.run_name=lab",
    "grouping.group_weight_method=adaptive",
)  # fmt: skip
WIDE = 1e-6
GAPS: list[float] = []
RULES = ("none", "balanced", "inv_sqrt_steps", "performance", "adaptive")
WEIGHTING = dict(zip(("None", "Balanced", "1/√size", "Performance", "Adaptive"), RULES, strict=True))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one run: three tasks, four steps, every group saved."""
    folder = tmp_path_factory.mktemp("laboratory") / "runs"
    changes = (*SETTINGS, f"run.output_dir={folder}")
    _, failed = start_run(load_config(ROOT / "configs/grpo/reward-scales.toml", changes), json=False, quiet=True)
    assert not failed
    return folder


@pytest.fixture(scope="module")
def service(runs: Path) -> Iterator[Any]:
    with serving(ServiceSettings(port=0, runs_dir=runs, poll=0.05, reads_per_second=1e6)) as running:
        running.parts.supervisor._end.set()
        yield running


@pytest.fixture(scope="module")
def step(runs: Path) -> RecordedStep:
    return read_step(runs / "lab", STEP)


class View:
    """A view of the laboratory, and what is drawn in it."""

    def __init__(self, tab: Visit, name: str, query: str = f"run=lab&step={STEP}") -> None:
        self.page = tab.open(f"/learn/{name}")
        self.page.goto(f"{tab.url}/learn/{name}?{query}")
        self.tab = tab

    def figure(self, title: str) -> Any:
        return self.page.locator(f'figure[aria-label^="{title}"]')

    def numbers(self, title: str) -> list[list[Any]]:
        """The table of a chart, with all digits."""
        figure = self.figure(title)
        if not figure.locator("tbody").count():
            figure.locator("summary").click()
            figure.locator("tbody").wait_for()
        said: list[list[Any]] = figure.locator("tbody tr").evaluate_all(
            "rows => rows.map(row => [...row.cells].map(cell => cell.dataset.value ?? null))"
        )
        return [[_number(cell) for cell in row] for row in said]

    def column(self, title: str, at: int) -> list[float]:
        return [row[at] for row in self.numbers(title)]

    def scales(self, title: str) -> tuple[Callable[[float], float], Callable[[float], float]]:
        """From pixels back to numbers, across and up."""
        svg = self.figure(title).locator("svg[data-x]").first
        return _inverse(svg.get_attribute("data-x")), _inverse(svg.get_attribute("data-y"))

    def marks(self, title: str, mark: str, *names: str) -> list[list[Any]]:
        script = "(all, names) => all.map(one => names.map(name => one.getAttribute(name)))"
        found: list[list[Any]] = self.figure(title).locator(mark).evaluate_all(script, list(names))
        return [[_number(cell) for cell in row] for row in found]

    def bars(self, title: str) -> list[float]:
        """The heights of bars, in the units of their axis."""
        _, up = self.scales(title)
        return [up(y) - up(y + height) for y, height in self.marks(title, ".bar", "y", "height")]

    def curves(self, title: str) -> dict[str, list[tuple[float, float]]]:
        """The points of each curve, read from its path."""
        across, up = self.scales(title)
        found = {}
        for name, path in self.marks(title, ".curve", "data-name", "d"):
            pairs = [pair.split() for pair in re.split("[ML]", path) if pair]
            found[str(name)] = [(across(float(x)), up(float(y))) for x, y in pairs]
        return found

    def choose(self, label: str, option: str) -> None:
        self.page.get_by_role("combobox", name=label, exact=True).select_option(option)

    def tick(self, group: str, label: str) -> None:
        buttons = self.page.get_by_role("group", name=group, exact=True)
        buttons.get_by_role("radio", name=label, exact=True).check()

    def slide(self, label: str, value: float) -> None:
        slider = self.page.get_by_role("slider", name=re.compile(f"^{re.escape(label)}"))
        slider.evaluate(
            "(one, value) => { one.value = value; one.dispatchEvent(new Event('input', {bubbles: true})); }", str(value)
        )


def _number(cell: Any) -> Any:
    try:
        return None if cell is None else float(cell)
    except ValueError:
        return cell


def _inverse(told: str | None) -> Callable[[float], float]:
    low, high, start, end = map(float, (told or "").split())
    return lambda place: low + (place - start) * (high - low) / (end - start)


def advantages_of(step: RecordedStep, groups: Any, **choices: Any) -> Any:
    return core.group_advantages(torch.from_numpy(step.totals), torch.as_tensor(groups), **choices).numpy()


def scaled_by(step: RecordedStep, groups: Any) -> Any:
    """Relative to the start, divided by the root mean square of the group: advantage_scale = "task_rms"."""
    standing = torch.from_numpy(advantages_of(step, step.group, scale="none"))
    square = core.mean_square_by_level(standing.square(), torch.ones_like(standing), torch.as_tensor(groups)[None])
    return torch.where(square > 0, standing / square.sqrt(), 0.0).numpy()


def weights_of(step: RecordedStep, groups: Any, rule: str) -> dict[int, float]:
    sizes = step.lengths if step.size_unit == "actions" else np.ones(len(step))
    found = core.group_sizes(np.asarray(groups), sizes.astype(float), step.totals)
    return dict(zip(found.groups.tolist(), core.make_weighting(rule)(found).tolist(), strict=True))


def drawn_groups(view: View) -> list[int]:
    found = view.marks("Attempts and their groups", ".attempt", "data-group")
    return [int(one) for (one,) in found if one is not None]  # none while the grouping is under way


def drawn_places(view: View) -> list[list[str]]:
    """Where each attempt is drawn, in pixels."""
    moves = view.marks("Attempts and their groups", ".attempt", "transform")
    return [re.findall(r"-?\d[\d.e+-]*", move) for (move,) in moves]


def until_grouped(view: View, groups: Any) -> None:
    until(lambda: drawn_groups(view) == list(groups), 60)


def close(found: Any, expected: Any) -> bool:
    """Equal to 1e-6, of numbers above 1 relatively; the largest gap is printed in the end."""
    found, expected = np.asarray(found, float), np.asarray(expected, float)
    if found.shape != expected.shape:
        return False
    GAPS.append(float(np.max(np.abs(found - expected) / np.maximum(1, np.abs(expected)), initial=0)))
    return bool(GAPS[-1] <= WIDE)


@pytest.fixture(scope="module", autouse=True)
def lab_gap() -> Iterator[None]:
    yield
    print(f"\nlab_gap {max(GAPS, default=0.0):.2g} in {len(GAPS)} comparisons")


@pytest.fixture
def formation(visit: Callable[..., Visit]) -> View:
    return View(visit(), "formation")


def test_every_strategy_and_number_of_groups_is_the_core_s_iteration_by_iteration(
    formation: View, runs: Path, step: RecordedStep
) -> None:
    for strategy in STRATEGIES:
        formation.choose("Strategy", strategy)
        counts = (3,) if strategy in ("task", "dirichlet") else (1, 2, 5, 8) if strategy == "auto" else (2, 4)
        for count in counts:
            if strategy not in ("task", "dirichlet"):
                formation.slide("Number of groups", count)
            expected = regroup(runs / "lab", STEP, strategy, count)
            until_grouped(formation, expected.iterations[-1])
            for at, groups in enumerate(expected.iterations[:-1]):
                formation.slide("Iteration", at)
                until_grouped(formation, groups)
            if len(expected.iterations) > 1:
                formation.page.get_by_role("button", name="Play the algorithm").click()
                formation.slide("Iteration", len(expected.iterations) - 1)
                until_grouped(formation, expected.iterations[-1])
            sizes = np.unique(expected.iterations[-1], return_counts=True)[1]
            assert close(formation.bars("Group sizes"), sizes)
            assert close(formation.column("Attempts and", 7), scaled_by(step, expected.iterations[-1]))


def test_weights_comparisons_and_deviations_are_the_core_s(formation: View, runs: Path, step: RecordedStep) -> None:
    formation.choose("Strategy", "hierarchical")
    formation.slide("Number of groups", 2)
    groups = regroup(runs / "lab", STEP, "hierarchical", 2).iterations[-1]
    until_grouped(formation, groups)
    for label, rule in WEIGHTING.items():
        formation.tick("Weighting", label)
        expected = weights_of(step, groups, rule)
        assert close(formation.bars("Weights"), list(expected.values())), rule
        assert close(formation.column("Attempts and", 8), [expected[group] for group in groups.tolist()])
    for label, std in (("population", "population"), ("sample", "sample")):
        formation.tick("Compared with", "its shown group")
        formation.tick("Standard deviation", label)
        expected_advantages = advantages_of(step, groups, std=std)
        assert close(formation.column("Attempts and", 7), expected_advantages)
        _, up = formation.scales("Advantages")
        medians = [up(y) for (y,) in formation.marks("Advantages", ".median", "y1")]
        assert close(medians, [np.median(expected_advantages[groups == one]) for one in np.unique(groups)])
    assert formation.page.get_by_text("Not a fair comparison").is_visible()
    formation.tick("Compared with", "attempts from the same start")
    assert close(formation.column("Attempts and", 7), scaled_by(step, groups))
    rows = formation.numbers("Characteristics")
    for (name, count, *_), number in zip(rows, np.unique(groups), strict=True):
        assert (name, count) == (f"hierarchical-{number}", (groups == number).sum())
    shapes = [path.split(" ") for (path,) in formation.marks("Characteristics", ".group", "points")]
    radius = float(formation.figure("Characteristics").locator("svg").first.get_attribute("data-radius") or 0)
    lengths = np.array([step.lengths[groups == one].mean() for one in np.unique(groups)])
    told = [np.hypot(*map(float, corners[2].split(","))) / radius for corners in shapes]
    assert close(told, (lengths / lengths.max())[: len(told)])
    for label in ("Task", "Return", "Length", "Group"):
        before = formation.marks("Attempts and", ".attempt", "fill")
        formation.tick("Colour by", label)
        until(lambda before=before: formation.marks("Attempts and", ".attempt", "fill") != before, 20)  # type: ignore[misc]


def test_axes_are_features_and_principal_components(formation: View, step: RecordedStep) -> None:
    ascending = np.sort(step.features, axis=0)
    spread = ascending.std(axis=0)
    varies = spread > 1e-9 * np.maximum(1, np.abs(ascending).max(axis=0))
    points = np.where(varies, (step.features - ascending.mean(axis=0)) / np.where(varies, spread, 1), 0)
    _, vectors = np.linalg.eigh(points.T @ points)
    for at in (0, 1):
        formation.choose("Across", f"pca-{at + 1}")
        drawn = np.array(formation.column("Attempts and", 3))
        expected = points @ vectors[:, -1 - at]
        assert close(drawn, expected if drawn @ expected > 0 else -expected)
    for column in (0, 1, 4):
        formation.choose("Up", f"feature-{column}")
        expected = step.features[:, column]
        assert close(formation.column("Attempts and", 4), expected)
    formation.choose("Across", "length")
    across, up = formation.scales("Attempts and")
    places = drawn_places(formation)
    assert close([across(float(x)) for x, _ in places], step.lengths)
    assert close([up(float(y)) for _, y in places], expected)


def test_a_boundary_that_is_dragged_moves_groups_advantages_and_weights(formation: View, step: RecordedStep) -> None:
    page = formation.page
    formation.tick("Weighting", "Balanced")
    formation.choose("Strategy", "length")
    formation.slide("Number of groups", 2)
    edges = np.quantile(step.lengths, [0.5])
    until_grouped(formation, np.searchsorted(edges, step.lengths))
    line = page.get_by_role("slider", name="Boundary 1 of 1")
    line.focus()
    for key in ("Shift+ArrowRight", "ArrowRight", "Shift+ArrowLeft", "Shift+ArrowRight", "Shift+ArrowRight"):
        page.keyboard.press(key)
    moved = float(line.get_attribute("data-edge") or 0)
    assert moved > edges[0]
    groups = np.searchsorted([moved], step.lengths)
    until_grouped(formation, groups)
    assert close(formation.column("Attempts and", 7), scaled_by(step, groups))
    assert close(formation.bars("Weights"), list(weights_of(step, groups, "balanced").values()))
    formation.choose("Strategy", "auto")
    formation.slide("Number of groups", 3)
    page.get_by_role("slider", name="Centre of auto-0").wait_for()
    box = page.get_by_role("slider", name="Centre of auto-0").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + 150, box["y"] + 60, steps=3)
    page.mouse.up()
    page.get_by_role("button", name="Undo my boundaries").wait_for()
    svg = formation.figure("Attempts and").locator("svg[data-x]").first
    ranges = [list(map(float, (svg.get_attribute(f"data-{axis}") or "").split()))[2:] for axis in "xy"]
    unit = [lambda place, ends=ends: (place - ends[0]) / (ends[1] - ends[0]) for ends in ranges]
    places = drawn_places(formation)
    points = np.array([[unit[0](float(x)), unit[1](float(y))] for x, y in places])
    handles = np.array([told.split() for (told,) in formation.marks("Attempts and", ".handle", "data-handle")], float)
    groups = np.square(points[:, None] - handles[None]).sum(axis=2).argmin(axis=1)
    assert drawn_groups(formation) == groups.tolist()
    assert close(formation.column("Attempts and", 7), scaled_by(step, groups))
    page.get_by_role("button", name="Undo my boundaries").click()


def test_advantages_of_ppo_and_grpo_are_the_core_s(visit: Callable[..., Visit], step: RecordedStep) -> None:
    view = View(visit(), "advantages")
    longest = max(map(len, step.rewards))
    table = np.zeros((3, len(step), longest))
    mask = np.zeros((len(step), longest), bool)
    for row, (rewards, values) in enumerate(zip(step.rewards, step.values, strict=True)):
        table[0, row, : len(rewards)], table[1, row, : len(values)] = rewards, values
        table[2, row, len(rewards) - 1] = step.terminated[row]
        mask[row, : len(rewards)] = True
    rewards, values, ends = map(torch.from_numpy, table)
    alive = torch.from_numpy(mask)
    last = torch.from_numpy(step.last_values)

    def ppo(lam: float, std: str) -> Any:
        found = core.gae(
            rewards, values, last, ends.bool(), torch.zeros_like(alive), alive, gamma=step.gamma, lam=lam
        ).advantages
        played = found[alive]
        rows = (found - played.mean()) / played.std(correction=int(std == "sample"))
        return [rows[n][alive[n]].numpy() for n in range(len(step))]

    def shown(at: int) -> list[float]:
        return view.column("Before and after", at)

    for lam in (0.0, 0.5, 1.0):
        view.slide("λ of PPO", lam)
        assert close(shown(2), [row.mean() for row in ppo(lam, "population")])
    view.page.get_by_role("button", name="Previous step").wait_for()
    for baseline in ("group_mean", "group_median", "leave_one_out", "global_mean", "none"):
        view.choose("GRPO subtracts", baseline)
        for scale in ("group_std", "batch_std", "none"):
            view.choose("and divides by", scale)
            for std in ("population", "sample"):
                view.tick("Standard deviation", std)
                expected = advantages_of(step, step.group, baseline=baseline, scale=scale, std=std)
                assert close(shown(3), expected), (baseline, scale, std)
    _, up = view.scales("Before and after")
    assert close([up(y) for (y,) in view.marks("Before and after", ".slope", "y2")], shown(3))
    view.tick("GRPO credits", "each moment")
    view.choose("and divides by", "none")
    togo = core.group_return_to_go(rewards, alive, step.gamma, group_ids=torch.from_numpy(step.group))
    parted: dict[str, list[Any]] = {"group_std": [step.group == one for one in set(step.group)], "batch_std": [...]}
    for scale, parts in parted.items():
        view.choose("and divides by", scale)
        by = togo.clone()
        for part in parts:
            square = togo[part][alive[part]].square().mean()
            by[part] = togo[part] / square.sqrt() if square > 0 else 0.0
        assert close(shown(3), [by[n][alive[n]].mean() for n in range(len(step))]), scale
    view.choose("and divides by", "none")
    assert close(shown(3), [togo[n][alive[n]].mean() for n in range(len(step))])
    cells = {row[0]: [cell for cell in row[1:] if cell is not None] for row in view.numbers("Heat map: GRPO")}
    assert close(cells[step.ids[0]], togo[0][alive[0]])  # at most 60 moments: a cell for each
    shares = togo.abs().mul(alive).sum(1).numpy()
    tasks = list(dict.fromkeys(step.tasks))
    mine = [shares[np.array(step.tasks) == task].sum() / shares.sum() for task in tasks]
    assert close(view.bars("Share of the gradient")[1::2], mine)
    theirs = ppo(1.0, "sample")
    pulled = np.array([np.abs(row).sum() for row in theirs])
    assert close(
        view.bars("Share of the gradient")[::2],
        [pulled[np.array(step.tasks) == task].sum() / pulled.sum() for task in tasks],
    )
    view.tick("Rows are", "groups from one start")
    told = view.numbers("Share of the gradient")
    expected = [
        [part[step.group == group].sum() / part.sum() for part in (pulled, shares)]
        for group in dict.fromkeys(step.group)
    ]
    assert close([row[1:] for row in told], expected)
    rows = view.figure("Statistics of each group").locator("tbody tr td[data-value]")
    found = [float(cell.get_attribute("data-value")) for cell in rows.all()]
    expected = []
    for group in dict.fromkeys(step.group):
        mine, returns = step.group == group, step.totals[step.group == group]
        sides = (np.concatenate([theirs[n] for n in np.flatnonzero(mine)]), togo[mine][alive[mine]].numpy())
        expected += [returns.mean(), returns.std(ddof=1)]
        expected += [value for side in sides for value in (side.mean(), np.sqrt(np.square(side).mean()))]
    assert close(found, expected)
    view.tick("Compare", "one scale beside each group's own")
    view.choose("own scale subtracts", "group_mean")
    view.choose("and divides by", "group_std")
    everywhere = advantages_of(step, step.group, baseline="global_mean", scale="batch_std", std="sample")
    assert close(shown(2), everywhere)
    assert close(shown(3), advantages_of(step, step.group, std="sample"))
    across, up = view.scales("Advantages, one scale")
    bins = view.marks("Advantages, one scale", ".bin[data-name='one scale']", "x", "width", "height", "data-bin")
    edges = np.linspace(across(view_range(view)[0]), across(view_range(view)[1]), 25)
    moments = np.concatenate([np.full(mask[n].sum(), everywhere[n]) for n in range(len(step))])
    counts = np.histogram(moments, edges)[0]
    assert sum(up(0) - up(height) for *_, height, _ in bins) == pytest.approx(counts.sum())
    view.page.get_by_role("switch", name="Show both").uncheck(force=True)
    assert view.figure("Heat map").count() == 1


def view_range(view: View) -> tuple[float, float]:
    told = view.figure("Advantages, one scale").locator("svg[data-x]").first.get_attribute("data-x") or ""
    _, _, start, end = map(float, told.split())
    return start, end


def trailing(curve: Any, window: int) -> Any:
    """The mean of the last values up to each place."""
    return np.array([np.mean(curve[max(0, n + 1 - window) : n + 1]) for n in range(len(curve))])


def standing(rewards: Any, window: int) -> Any:
    """Each task between the lowest and highest of its smoothed rewards."""
    smoothed = np.array([trailing(row, window) for row in rewards])
    low, high = smoothed.min(1, keepdims=True), smoothed.max(1, keepdims=True)
    return (smoothed - low) / (high - low)


def heights(view: View, title: str, names: Any) -> list[float]:
    """Where the curves are drawn, in the units of their axis."""
    curves = view.curves(title)
    assert sorted(curves) == sorted(names)
    return [y for name in names for _, y in curves[name]]


def logged_groups(runs: Path) -> tuple[History, list[str], Callable[[str], Any]]:
    history = History.read(runs / "lab")
    names = sorted(one.split("/")[1] for one in history.names() if re.fullmatch("group/.*/share", one))
    return history, names, lambda what: np.array([history.series(f"group/{name}/{what}")[1] for name in names])


@pytest.mark.parametrize("window", [1, 3])
def test_tasks_plot_what_the_run_logged(visit: Callable[..., Visit], runs: Path, window: int) -> None:
    history, names, logged = logged_groups(runs)
    view = View(visit(), "tasks", "run=lab")
    view.slide("Mean of the last", window)
    for source, rewards in (
        ("held-out episodes", np.array([history.series(f"eval/{name}/reward_mean")[1] for name in names])),
        ("training", logged("reward_mean")),
    ):
        view.tick("Rewards from", source)
        view.tick("Drawn as", "earned")
        assert close(heights(view, "Reward of each task", names), np.ravel([trailing(row, window) for row in rewards]))
        view.tick("Drawn as", "share of own range")
        progress = standing(rewards, window)
        assert close(heights(view, "Reward of each task", names), progress.ravel())
        to_the_end = np.abs(progress - progress[:, -1:])
        left = np.maximum.accumulate(to_the_end[:, ::-1], axis=1)[:, ::-1]
        assert close(heights(view, "Convergence", names), left.ravel())
        measures = {
            "worst to mean": [float(st.least_to_mean(column[None])) for column in progress.T],
            "Gini": [float(st.gini(column[None])) for column in progress.T],
            "evenness": [float(column.sum() ** 2 / np.square(column).sum() / len(column)) for column in progress.T],
        }
        for name, expected in measures.items():
            assert close([y for _, y in view.curves("Balance")[name]], expected), name
    for label, rows in (
        ("the loss", logged("share")), ("the weights", logged("weight")),
        ("the pull", logged("share") * logged("advantage_rms")),
    ):  # fmt: skip
        view.tick("Shares of", label)
        drawn = view.numbers("Shares over time")
        heads = view.figure("Shares over time").locator("th").all_inner_texts()[1:]
        parts = rows / rows.sum(axis=0)
        expected = np.array([trailing(parts[names.index(head)], window) for head in heads])
        assert close([row[1:] for row in drawn], expected.T)


@pytest.mark.parametrize("window", [1, 3])
def test_dynamics_plot_what_the_run_logged(visit: Callable[..., Visit], runs: Path, window: int) -> None:
    history, names, logged = logged_groups(runs)
    view = View(visit(), "dynamics", "run=lab")
    view.slide("Mean of the last", window)
    rewards = logged("reward_mean")
    view.tick("Rewards drawn as", "share of own range")
    assert close(heights(view, "Reward of each group", names), standing(rewards, window).ravel())
    view.tick("Rewards drawn as", "earned")
    assert close(heights(view, "Reward of each group", names), np.ravel([trailing(row, window) for row in rewards]))
    assert close(heights(view, "Weights", names), logged("weight").ravel())
    smooth = standing(rewards, max(window, 5))
    change = [[abs(row[n] - row[max(0, n - 5)]) for n in range(len(row))] for row in smooth]
    assert close(heights(view, "Convergence", names), np.ravel(change))
    shares = [row[1:] for row in view.numbers("Shares of the loss")]
    heads = view.figure("Shares of the loss").locator("th").all_inner_texts()[1:]
    parts = logged("share") / logged("share").sum(axis=0)
    assert close(shares, np.array([parts[names.index(head)] for head in heads]).T)
    for title, name, metric in (
        ("KL divergence", "this step", "policy/kl"), ("Entropy", "entropy", "policy/entropy"),
    ):  # fmt: skip
        assert close(view.curves(title)[name], list(zip(*history.series(metric), strict=True)))
    view.slide("Step", 2)
    view.page.get_by_role("link", name="Group formation").last.click()
    view.page.get_by_role("combobox", name="Step", exact=True).wait_for()
    assert "step=2" in view.page.url
    until(lambda: len(drawn_groups(view)) == 12, 60)


def test_another_step_and_another_run_are_what_was_saved(formation: View, runs: Path, step: RecordedStep) -> None:
    page = formation.page
    until(lambda: len(drawn_groups(formation)) == len(step), 60)
    for press, at in (("Previous step", STEP - 1), ("Next step", STEP)):
        page.get_by_role("button", name=press).click()
        until(lambda at=at: page.get_by_role("combobox", name="Step", exact=True).input_value() == str(at))  # type: ignore[misc]
        expected = read_step(runs / "lab", at)
        until(lambda expected=expected: formation.column("Attempts and", 5) == expected.totals.tolist(), 60)  # type: ignore[misc]
    formation.choose("Step", "1")
    expected = read_step(runs / "lab", 1)
    until(lambda: formation.column("Attempts and", 5) == expected.totals.tolist(), 60)
    formation.choose("Run", "recorded:one-scale")
    recorded = json.loads((ROOT / "dashboard/src/learn/recorded/one-scale.json").read_text())["attempts"]["60"]
    until(lambda: formation.column("Attempts and", 5) == recorded["totals"], 60)


def test_colours_are_the_groups_tasks_returns_and_lengths(formation: View, runs: Path, step: RecordedStep) -> None:
    groups = regroup(runs / "lab", STEP, "auto", 3).iterations[-1]
    until_grouped(formation, groups)
    for label, told in (("Group", groups.tolist()), ("Task", list(step.tasks))):
        formation.tick("Colour by", label)
        fills = [fill for (fill,) in formation.marks("Attempts and", ".attempt", "fill")]
        # One colour for each name, and one name for each colour.
        assert len(set(zip(fills, told, strict=True))) == len(set(fills)) == len(set(told))
    kinds = np.array(step.tasks)
    for label, values, parts in (
        ("Return", step.totals, [kinds == kind for kind in set(step.tasks)]),
        ("Length", step.lengths, [np.ones(len(step), bool)]),
    ):
        expected = np.full(len(step), 0.5)
        for part in parts:
            low, high = values[part].min(), values[part].max()
            if high > low:
                expected[part] = (values[part] - low) / (high - low)
        formation.tick("Colour by", label)
        fills = [fill for (fill,) in formation.marks("Attempts and", ".attempt", "fill")]
        shares = [int(re.search(r"(\d+)%", fill)[1]) for fill in fills]  # type: ignore[index]
        assert np.abs(np.array(shares) - (12 + 88 * expected)).max() <= 0.5 + 1e-9


def test_a_run_s_own_pages_lead_to_its_step_in_the_laboratory(visit: Callable[..., Visit]) -> None:
    tab = visit()
    page = tab.open("/runs/lab")
    page.get_by_role("link", name="of this run").first.click()
    page.get_by_role("heading", name="Training dynamics").wait_for()
    assert "run=lab&step=4" in page.url
    page.goto(f"{tab.url}/runs/lab/groups/2")
    page.get_by_role("link", name="This step in the laboratory").click()
    page.get_by_role("heading", name="Group formation").wait_for()
    assert "run=lab&step=2" in page.url


def test_the_page_loads_the_laboratory_only_there_and_it_is_small(visit: Callable[..., Visit]) -> None:
    tab = visit()
    asked: set[str] = set()
    tab.page.on("request", lambda request: asked.add(request.url.rpartition("/")[2].partition("?")[0]))
    tab.open("/")
    tab.page.wait_for_load_state("networkidle")
    before = set(asked)
    assert not [name for name in before if re.match("Laboratory|Formation|own-scale|one-scale", name)]
    for view in ("", "formation", "advantages", "tasks", "dynamics"):
        tab.page.goto(f"{tab.url}/learn/{view}")
        tab.page.get_by_role("heading", level=1).wait_for()
        tab.page.wait_for_load_state("networkidle")
    tab.page.goto(f"{tab.url}/learn/tasks?run=recorded:one-scale")
    tab.page.get_by_text("starves since").first.wait_for()
    files = [FOLDER / "assets" / name for name in asked - before if (FOLDER / "assets" / name).is_file()]
    assert len(files) > 6
    assert sum(len(gzip.compress(file.read_bytes(), 6)) for file in files) <= 300_000


def test_recorded_runs_need_no_service(visit: Callable[..., Visit]) -> None:
    tab = visit()
    tab.open("/learn")
    tab.page.get_by_role("heading", name="The laboratory").wait_for()
    tab.page.route("**/api/**", lambda route: route.abort())
    recorded = json.loads((ROOT / "dashboard/src/learn/recorded/own-scale.json").read_text())
    tab.page.get_by_role("link", name=re.compile("^Group formation")).first.click()
    found = View.__new__(View)
    found.page, found.tab = tab.page, tab
    found.page.locator(".attempt").first.wait_for()
    for strategy in ("auto", "dirichlet", "hierarchical"):
        found.choose("Strategy", strategy)
        told = recorded["groupings"]["60"][strategy]["1" if strategy == "dirichlet" else "3"]["iterations"]
        until_grouped(found, [int(letter, 36) for letter in told[-1]])
    tab.complaints[:] = [one for one in tab.complaints if "ERR_FAILED" not in one]  # the list of runs was refused


def test_a_saved_view_works_without_the_service(
    visit: Callable[..., Visit], browser: Any, runs: Path, step: RecordedStep, tmp_path: Path
) -> None:
    view = View(visit(), "formation")
    view.page.locator(".attempt").first.wait_for()
    with view.page.expect_download() as saving:
        view.page.get_by_role("button", name="Save as a file").click()
    saving.value.save_as(tmp_path / "laboratory.html")
    tab = Visit(browser.new_page(), "")
    asked: list[str] = []
    tab.page.on("request", lambda request: asked.append(request.url.partition(":")[0]))
    tab.page.goto((tmp_path / "laboratory.html").as_uri())
    file = View.__new__(View)
    file.page, file.tab = tab.page, tab
    file.page.locator(".attempt").first.wait_for()
    for strategy in STRATEGIES:
        file.choose("Strategy", strategy)
        if strategy not in ("task", "dirichlet"):
            file.slide("Number of groups", 2)
        expected = regroup(runs / "lab", STEP, strategy, 2)
        until_grouped(file, expected.iterations[-1])
        assert close(file.column("Attempts and", 7), scaled_by(step, expected.iterations[-1]))
    file.tick("Weighting", "Balanced")
    assert close(file.bars("Weights"), list(weights_of(step, expected.iterations[-1], "balanced").values()))
    links = tab.page.get_by_role("navigation", name="Views of the laboratory")
    links.get_by_role("link", name="Advantages").click()
    file.choose("and divides by", "batch_std")
    assert close(file.column("Before and after", 3), advantages_of(step, step.group, scale="batch_std"))
    links.get_by_role("link", name="Training dynamics").click()
    file.tick("Rewards drawn as", "earned")
    values = History.read(runs / "lab").series("policy/kl")[1]
    assert close([y for _, y in file.curves("KL divergence")["this step"]], values)
    for name, shows in (
        ("Several tasks", "Balance"),
        ("Sensitivity", "Response surface"),
        ("GRPO by hand", "2. The step"),
    ):
        links.get_by_role("link", name=name).click()
        file.figure(shows).wait_for()
    links.get_by_role("link", name="Papers").click()
    for paper in ("GRPO", "Gradient surgery", "Soft modules", "Mixture of Gaussian processes"):
        tab.page.get_by_role("navigation", name="Papers").get_by_role("link", name=paper, exact=True).click()
        tab.page.get_by_role("heading", name="Step by step").wait_for()
    tab.page.go_back()
    tab.page.get_by_role("heading", name=re.compile("Soft Modularization")).wait_for()
    tab.page.reload()  # the address behind the # still says which view
    tab.page.get_by_role("heading", name=re.compile("Soft Modularization")).wait_for()
    assert tab.complaints == []
    assert set(asked) <= {"file", "data"}
    tab.page.close()


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everyone_can_use_the_laboratory(browser: Any, service: Any, scheme: str) -> None:
    axe = ROOT / "dashboard" / "node_modules" / "axe-core" / "axe.min.js"
    if not axe.is_file():
        pytest.skip("axe-core is not installed: cd dashboard && npm ci")
    for width in (390, 1024, 1440):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
        tab = Visit(context.new_page(), service.url, service.settings.token)
        tab.open("/learn")
        for path in ("", "/formation", "/advantages", "/tasks", "/dynamics", "/formation?run=lab", "/tasks?run=none"):
            tab.page.goto(f"{service.url}/learn{path}")
            tab.page.get_by_role("heading", level=1).wait_for()
            tab.page.wait_for_load_state("networkidle")
            for summary in tab.page.locator("details summary").all():
                summary.click()
            tab.page.evaluate(axe.read_text())
            found = tab.page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
            assert [(path, one["id"], one["nodes"][0]["html"]) for one in found] == []
            assert not tab.is_too_wide(), (path, width)
        context.close()
