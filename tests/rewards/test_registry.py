"""A reward by its name in the settings: known ones, one's own, and words for whatever is wrong."""

from __future__ import annotations

import textwrap

import pytest

from groupwise.config import RewardSettings, load_config
from groupwise.errors import ConfigError, MissingExtra
from groupwise.rewards.combination import MultiObjectiveRewardFunction
from groupwise.rewards.function import RewardFunction
from groupwise.rewards.registry import KNOWN, find_reward, make_reward
from groupwise.rewards.rules.components import Component
from groupwise.types import Failed

MINE = """
    from groupwise.rewards.function import RewardFunction
    from groupwise.types import Score

    class Brief(RewardFunction):
        def __init__(self, limit=10):
            super().__init__(name="brief")
            self.limit = limit
        def compute_reward(self, turns):
            return float(len(turns[-1]["content"]) <= self.limit)

    class Broken:
        def __init__(self):
            raise KeyError("no key")

    brief_of_three = Brief(3)

    def brief(turns, limit=10):
        return float(len(turns[-1]["content"]) <= limit)

    async def slow(turns):
        return 0.25

    async def ranked(task, group, best=1.0):
        return [best / (n + 1) for n, _ in enumerate(group)]

    def make(limit=5):
        return Brief(limit)

    def make_nothing():
        return None

    def three(a, b, c):
        return 0.0

    def fragile(turns):
        raise ZeroDivisionError("nothing to divide by")

    number = 3
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_rewards.py").write_text(textwrap.dedent(MINE))
    return "python:my_rewards.py"


def refused(name, **options):
    with pytest.raises(ConfigError) as error:
        make_reward(name, options)
    return error.value


def test_without_a_name_the_task_pays_by_itself():
    assert find_reward(RewardSettings()) is None
    with pytest.raises(ConfigError, match="reward.name is not"):
        find_reward(RewardSettings(options={"weight": 1}))


@pytest.mark.parametrize("name", KNOWN)
def test_every_known_name_makes_a_reward_that_calls_itself_so(name):
    options = {"format": {"tags": ["answer"]}, "ruler": {"name": "ruler"}}.get(name, {})
    try:
        reward = make_reward(name, options)
    except MissingExtra as missing:
        pytest.skip(missing.hint)
    assert isinstance(reward, RewardFunction)
    assert reward.name == name
    if isinstance(reward, Component):
        assert reward.label == name


def test_a_toml_file_says_which_reward_with_which_options(tmp_path, rated):
    file = tmp_path / "run.toml"
    file.write_text(
        '[reward]\nname = "customer_service"\n[reward.options]\nnormalization_method = "chebyshev"\n'
        'expected_responses = ["I\'ll help you with that", "Let me check on that"]\n'
    )
    cfg = load_config(file)
    reward = find_reward(cfg.reward)
    assert reward.normalization_method == "chebyshev"
    assert reward.compute_reward([{"role": "assistant", "content": "Let me check on that"}]).parts["similarity"] == 1.0
    assert (
        find_reward(load_config(file, ["reward.name=length", "reward.options={max_words=60}"]).reward).max_words == 60
    )


def test_several_rewards_are_combined_by_their_names(mine, scored):
    reward = make_reward(
        "multi_objective",
        {"components": ("numeric", f"{mine}:brief"), "weights": (3, 1), "normalization_method": "weighted_average"},
    )
    right, wrong = scored(reward, "12", "a long answer: 13", payload={"answer": "12"})
    assert (right.total, wrong.total) == (1.0, 0.0)
    assert list(right.parts) == ["numeric", "numeric.correct", "numeric.format", "brief"]
    assert isinstance(make_reward("multi_objective"), MultiObjectiveRewardFunction)
    assert (
        "2 components but 1 weights" in refused("multi_objective", components=("length", "style"), weights=(1,)).message
    )


@pytest.mark.parametrize(
    ("attribute", "options", "totals"),
    [
        ("Brief", {"limit": 3}, [1.0, 0.0]),
        ("brief_of_three", {}, [1.0, 0.0]),
        ("brief", {"limit": 4}, [1.0, 1.0]),
        ("make", {"limit": 4}, [1.0, 1.0]),
        ("slow", {}, [0.25, 0.25]),
        ("ranked", {"best": 2.0}, [2.0, 1.0]),
    ],
)
def test_ones_own_may_be_a_class_an_object_a_maker_or_a_function(mine, attribute, options, totals, scored):
    reward = make_reward(f"{mine}:{attribute}", options)
    assert [score.total for score in scored(reward, "abc", "abcd")] == totals


def test_a_module_is_found_in_the_present_folder(mine, scored):
    assert scored(make_reward("python:my_rewards:brief"), "abc")[0].total == 1.0


def test_code_of_ones_own_that_fails_on_an_attempt_is_named_with_its_error(mine, scored):
    (score,) = scored(make_reward(f"{mine}:fragile"), "x")
    assert isinstance(score, Failed)
    assert "ZeroDivisionError: nothing to divide by" in score.failure.message


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        (
            "custmer_service",
            {},
            ["is not a known reward", "Did you mean 'customer_service'?", "creative"],
        ),
        ("sales", {"wieght": 1}, ["reward.options.wieght", "Did you mean 'weight'?", "expected_responses"]),
        ("sales", {"normalization_method": "sum"}, ["normalization_method = 'sum'", "weighted_sum"]),
        ("length", {"target_words": "many"}, ["raised TypeError when it was created"]),
        ("ruler", {"api_key": "sk-1"}, ["would be stored in every run folder", "environment"]),
        ("length", {"target_words": 0}, ["target_words = 0"]),
        ("MINE:brif", {}, ["has no 'brif'", "Did you mean 'brief'?"]),
        ("MINE:brief", {"limt": 3}, ["reward.options.limt is not an option", "Did you mean 'limit'?"]),
        ("MINE:brief_of_three", {"limit": 3}, ["is an object and takes no options"]),
        ("MINE:Broken", {}, ["raised KeyError when it was created: 'no key'"]),
        ("MINE:make_nothing", {}, ["returns None, which is not a reward"]),
        ("MINE:three", {}, ["three(a, b, c) is not the signature of a reward", "f(turns)", "f(completions, answer"]),
        ("MINE:number", {}, ["is 3, which cannot be called"]),
        ("MINE:Score", {"total": 1.0}, ["which is not a reward"]),
        ("python:nowhere.py:x", {}, ["cannot be imported: FileNotFoundError"]),
        ("python:no_such_module:x", {}, ["cannot be imported: ModuleNotFoundError"]),
        ("python:brief", {}, ["Write FILE.py:NAME"]),
    ],
)
def test_what_is_wrong_is_said_with_the_remedy(mine, name, options, words):
    error = refused(name.replace("MINE", mine), **options)
    assert all(word in str(error) for word in words), str(error)
    assert error.field.startswith("reward.")


def test_a_file_that_cannot_be_read_is_refused_with_its_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.py").write_text("import sys; sys.exit(3)")
    assert "cannot be imported: SystemExit: 3" in refused("python:bad.py:x").message
    (tmp_path / "bad.py").write_text("def f(:")
    assert "SyntaxError" in refused("python:bad.py:f").message
