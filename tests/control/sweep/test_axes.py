"""Ranges as people write them, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from groupwise.config import TrainingConfig
from groupwise.control.sweep.axes import make_axis, read_axes
from groupwise.control.sweep.candidates import check_bases, grid, make_candidate, random_draw
from groupwise.control.sweep.optuna_search import suggest
from groupwise.errors import ConfigError

BASE = TrainingConfig(environment="CartPole-v1", eval_steps=1)


def test_ranges_and_lists() -> None:
    rate = make_axis("optim.learning_rate", "1e-4:1e-2:log:3")
    assert rate.grid() == [1e-4, 1e-3, 1e-2]
    assert (rate.place(1e-4), rate.place(1e-3), rate.place(1e-2)) == pytest.approx((0, 0.5, 1))
    assert make_axis("learning_rate", "0.1:0.3:3").grid() == [0.1, 0.2, 0.3]
    assert make_axis("rollout.num_generations", "2:5").grid() == [2, 3, 4, 5]
    assert make_axis("rollout.num_generations", "16,4").values == (4, 16)
    assert make_axis("policy.hidden_sizes", "[64,64],[8]").values == ((64, 64), (8,))
    assert make_axis("loss.loss_type", "grpo, dapo").values == ("grpo", "dapo")
    assert make_axis("loss.value_clip", "null,0.2").values == (None, 0.2)
    assert make_axis("task.options.gravity", "1:10").at(0.5) == 6  # whole numbers at both ends
    assert make_axis("task.options.mode", "easy,hard").values == ("easy", "hard")


@pytest.mark.parametrize("text", ["1e-4:1e-2:log", "0.1:0.9", "1e-3,1e-2"])
def test_drawn_values_lie_on_the_axis_and_know_their_place(text: str) -> None:
    axis, rng = make_axis("optim.learning_rate", text), np.random.default_rng(0)
    for _ in range(50):
        value = axis.draw(rng)
        assert axis.at(0.0) <= value <= axis.at(1.0)
        if axis.is_range:
            assert axis.at(axis.place(value)) == value


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ("optim.learning_rat=1,2", "unknown setting 'learning_rat' in section optim\ndid you mean optim.learning_rate"),
        ("lr=1e-3,1e-2", "did you mean optim.learning_rate"),
        ("optim.learning_rate", "must be SETTING=RANGE"),
        ("optim.learning_rate=", "has no values"),
        ("optim.learning_rate=1e-3", "only one value"),
        ("optim.learning_rate=1e-3:x", "'x' where a number belongs"),
        ("optim.learning_rate=1:2:3:4", "is not a range"),
        ("optim.learning_rate=1e-2:1e-3", "0.01 is not below 0.001"),
        ("optim.learning_rate=-1:1e-3", "optim.learning_rate = -1.0 must be > 0"),
        ("optim.learning_rate=0:1e-3:log", "begins at 0"),
        ("optim.learning_rate=1e-3,nan", "nan"),
        ("rollout.num_generations=4,0", "num_generations = 0 must be"),
        ("rollout.num_generations=4,4", "has 4 twice"),
        ("rollout.num_generations=2.5:8", "whole numbers at its ends"),
        ("rollout.num_generations=2:8:1", "asks for 1 values"),
        ("loss.loss_type=grpo,dapoo", "'dapoo' must be one of"),
        ("loss.loss_type=grpo,,dapo", "an empty value"),
        ("run.seed=1,2", "cannot be swept"),
        ("task.environment=CartPole-v1,Acrobot-v1", "cannot be swept"),
        ("nowhere.toml", "nowhere.toml: no such file"),
    ],
)
def test_a_range_that_is_wrong_is_refused_with_the_value(over: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_axes([over])
    assert words in str(caught.value)


def test_ranges_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "ranges.toml"
    path.write_text('[sweep]\noptim.learning_rate = "1e-3:1e-2:log"\n"rollout.num_generations" = [4, 8]\n')
    axes = read_axes([str(path)])
    assert [axis.name for axis in axes] == ["optim.learning_rate", "rollout.num_generations"]
    for content, words in (("", r"no table \[sweep\]"), ("[sweep]\nlearning_rate = 3\n", "= 3 is not a range")):
        path.write_text(content)
        with pytest.raises(ConfigError, match=words):
            read_axes([str(path)])


def test_more_settings_of_a_draw_keep_the_earlier_ones() -> None:
    axes = read_axes(["optim.learning_rate=1e-4:1e-2:log", "rollout.num_generations=4,8"])
    assert random_draw(axes, 20, seed=3)[:8] == random_draw(axes, 8, seed=3)
    assert len(set(random_draw(axes[1:], 2, seed=0))) == 2
    with pytest.raises(ConfigError, match="--settings 3 is more than the 2 that the ranges have"):
        random_draw(axes[1:], 3, seed=0)


def test_a_grid_has_every_combination_within_reason() -> None:
    axes = read_axes(["optim.learning_rate=1e-4:1e-2:log:3", "rollout.num_generations=4,8"])
    assert grid(axes) == [(rate, size) for rate in (1e-4, 1e-3, 1e-2) for size in (4, 8)]
    with pytest.raises(ConfigError, match="1000 × 1000 = 1,000,000 settings"):
        grid(read_axes(["optim.learning_rate=1e-4:1e-2:1000", "loss.clip_ratio=0.1:0.3:1000"]))


def test_combinations_that_no_run_can_be_made_of_are_refused_with_their_values() -> None:
    axes = read_axes(["loss.clip_ratio=0.1,0.2", "optim.warmup_ratio=0.0,0.5"])
    made = make_candidate("grpo", BASE, 1, axes, (0.1, 0.5))
    assert (made.cfg.loss.clip_ratio, made.cfg.optim.warmup_ratio, made.name) == (0.1, 0.5, "grpo-0001")
    axes = read_axes(["advantage.estimator=group_rtg,gae"])
    with pytest.raises(ConfigError, match=r"ppo with advantage.estimator = group_rtg: "):
        make_candidate(
            "ppo", TrainingConfig(product="ppo", environment="CartPole-v1", estimator="gae"), 1, axes, ("group_rtg",)
        )


def test_algorithms_that_cannot_be_swept_together() -> None:
    axes = read_axes(["optim.learning_rate=1e-4:1e-2"])
    with pytest.raises(ConfigError, match="different environments: a in CartPole-v1; b in Acrobot-v1"):
        check_bases({"a": BASE, "b": BASE.replace(environment="Acrobot-v1")}, axes)
    with pytest.raises(ConfigError, match=r"a is never evaluated"):
        check_bases({"a": BASE.replace(eval_steps=0)}, axes)
    with pytest.raises(ConfigError, match=r"a has no setting sampling.temperature: its product is control"):
        check_bases({"a": BASE}, read_axes(["sampling.temperature=0.5:1"]))


def test_optuna_suggests_the_same_after_the_same_scores_and_goes_where_they_are_high() -> None:
    axes = read_axes(
        ["optim.learning_rate=1e-4:1e-2:log", "policy.hidden_sizes=[8],[64,64]", "rollout.num_generations=2:9"]
    )
    first = suggest(axes, [], 8, seed=1)
    assert first == suggest(axes, [], 8, seed=1) != suggest(axes, [], 8, seed=2)
    told = [
        (values, None if place == 0 else -abs(axes[0].place(values[0]) - 0.8)) for place, values in enumerate(first)
    ]
    for _ in range(4):
        more = suggest(axes, told, 8, seed=1)
        assert more == suggest(axes, told, 8, seed=1)
        told += [(values, -abs(axes[0].place(values[0]) - 0.8)) for values in more]
    early, late = ([axes[0].place(values[0]) for values, _ in part] for part in (told[:8], told[-8:]))
    assert np.mean(np.abs(np.array(late) - 0.8)) < np.mean(np.abs(np.array(early) - 0.8))
