"""What a sweep says, checked on scores whose causes are known."""

from __future__ import annotations

import numpy as np
import pytest

from groupwise.config import TrainingConfig
from groupwise.control.sweep.axes import read_axes
from groupwise.control.sweep.candidates import Combination, random_draw
from groupwise.control.sweep.findings import findings_of, headline
from groupwise.control.sweep.importance import dissect, places, resampled
from groupwise.control.sweep.running import SweepPlan, SweepResult
from groupwise.control.sweep.trials import ScoreMeaning, SeedScore, SweepTrial

BASE = TrainingConfig(environment="CartPole-v1", eval_steps=1)
AXES = read_axes(["optim.learning_rate=1e-4:1e-2:log", "rollout.num_generations=4,8,16", "loss.clip_ratio=0.05:0.4"])


def made_up(count: int = 64, seeds: int = 3, noise: float = 0.3, solved: float | None = 9.0) -> SweepResult:
    """Scores 10 a + 3 b of the places a and b on the first two axes: 58% and 42% of the variance; the third is idle."""
    rng, trials = np.random.default_rng(0), []
    for number, values in enumerate(random_draw(AXES, count, 0), 1):
        a, b, _ = places(AXES, [values])[0]
        scores = [float(10 * a + 3 * b + rng.normal(0, noise)) for _ in range(seeds)]
        runs = tuple(SeedScore(s, "finished", v, v / 16, v >= 9, 1000, 1.0) for s, v in enumerate(scores))
        trials.append(SweepTrial(Combination("made-up", number, values, BASE), runs))
    plan = SweepPlan({"made-up": BASE}, AXES, "random", count, tuple(range(seeds)))
    return SweepResult(plan, tuple(trials), ScoreMeaning(("task",), solved))


def test_importance_finds_the_causes_and_their_shares() -> None:
    (found,) = findings_of(made_up(), repetitions=20)
    assert [one.axis.name for one in found.importance] == [axis.name for axis in AXES]
    rate, size, clip = (one.total for one in found.importance)
    assert (rate.value, size.value) == (pytest.approx(0.58, abs=0.1), pytest.approx(0.42, abs=0.1))
    assert clip.value < 0.03
    for one in (rate, size, clip):
        assert one.low <= one.value <= one.high
    assert rate.low > clip.high
    assert found.fit > 0.8
    assert max(share for _, _, share in found.pairs) < 0.05
    assert "optim.learning_rate matters most" in headline(found)


def test_a_forest_taken_apart_adds_up_to_its_own_predictions() -> None:
    """The mean of a curve is the forest's mean, a surface's means are the curves, and two axes leave nothing over."""
    axes = AXES[:2]
    x = places(axes, random_draw(axes, 40, 1))
    whole = dissect(axes, x, x[:, 0] * x[:, 1])
    table = whole.pairs[0, 1]
    assert table.mean(1) == pytest.approx(whole.alone[0])
    assert table.mean(0) == pytest.approx(whole.alone[1])
    assert whole.share.sum() + sum(whole.together.values()) == pytest.approx(1.0)
    assert whole.together[0, 1] > 0.05


def test_noise_is_called_noise() -> None:
    result = made_up(noise=1e6)
    (found,) = findings_of(result, repetitions=5)
    assert found.fit < 0.2
    assert any("mostly noise" in note for note in found.notes)
    assert "matters most" not in headline(found)


def test_the_share_that_solves_and_what_is_recommended() -> None:
    result = made_up()
    (found,) = findings_of(result, repetitions=5)
    means = [trial.mean or 0.0 for trial in result.trials]
    assert found.solving is not None
    assert found.solving.value == np.mean(np.array(means) >= 9.0)
    assert found.solving.low < found.solving.value < found.solving.high
    assert found.recommendation is not None
    assert found.recommendation.score.value == max(means)
    assert found.recommendation.fresh is not None
    assert found.recommendation.fresh.value <= found.recommendation.score.value


def test_the_best_of_nothing_but_luck_does_not_promise_a_fresh_seed() -> None:
    rng = np.random.default_rng(1)

    def runs() -> tuple[SeedScore, ...]:
        return tuple(SeedScore(s, "finished", float(v), 0.5) for s, v in enumerate(rng.normal(size=5)))

    settings = enumerate(random_draw(AXES, 64, 0), 1)
    trials = tuple(SweepTrial(Combination("x", n, values, BASE), runs()) for n, values in settings)
    plan = SweepPlan({"x": BASE}, AXES, "random", 64, (0, 1, 2, 3, 4))
    (found,) = findings_of(SweepResult(plan, trials, ScoreMeaning()), repetitions=2)
    assert found.recommendation is not None
    assert found.recommendation.fresh is not None
    assert found.recommendation.score.value > 0.6
    assert found.recommendation.fresh.value < 0.5


def test_a_half_done_sweep_and_failures() -> None:
    whole = made_up(12)
    first, second, third, *rest = whole.trials
    failed = SweepTrial(first.candidate, (SeedScore(0, "failed", message="no such luck"), *first.runs[1:]))
    waiting = SweepTrial(second.candidate, (*second.runs[:1], SeedScore(1, "running"), SeedScore(2, "waiting")))
    result = SweepResult(whole.plan, (failed, waiting, third, *rest[:4]), whole.scale)
    assert [trial.state for trial in result.trials[:3]] == ["failed", "running", "finished"]
    (found,) = findings_of(result, repetitions=2)
    assert (found.importance, found.surface) == ((), None)
    assert any("1 run failed (no such luck)" in note for note in found.notes)
    assert any("at least 8 settings" in note for note in found.notes)
    assert not result.finished
    assert found.recommendation is not None
    assert found.recommendation.trial is not waiting
    (nothing,) = findings_of(SweepResult(whole.plan, (), ScoreMeaning()))
    assert nothing.recommendation is None


def test_bootstrap_samples_differ() -> None:
    x = places(AXES, random_draw(AXES, 20, 1))
    samples = resampled(AXES, x, [[float(row[0])] for row in x], 3)
    assert len({round(float(sample.share[0]), 6) for sample in samples}) == 3
