"""Rewards on trial: what wins that should not is found, and good rewards pass."""

from __future__ import annotations

import json
import random

import pytest

from groupwise.cli import run
from groupwise.errors import ConfigError
from groupwise.rewards.attacks import ATTACKS, Example, constant_search, own_words
from groupwise.rewards.function import RewardFunction
from groupwise.rewards.registry import make_reward
from groupwise.rewards.trial import on_trial, read_examples, shipped_examples
from groupwise.types import Score


class CountsPlease(RewardFunction):
    """Fooled by its own word."""

    def compute_reward(self, turns):
        return float(turns[-1]["content"].lower().count("please"))


class IgnoresItsInput(RewardFunction):
    def compute_reward(self, turns):
        return 0.5


class FailsOnGood(RewardFunction):
    def compute_reward(self, turns):
        raise ValueError("no")


def test_the_shipped_examples_have_prompts_answers_and_mostly_references():
    examples = shipped_examples()
    assert len({example.prompt for example in examples}) == len(examples) == 15
    assert all(example.good and example.bad for example in examples)
    assert sum(example.reference is not None for example in examples) == 12


@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_makes_another_reply_than_the_good_one(name):
    examples = shipped_examples()
    for example in examples:
        assert ATTACKS[name](example, random.Random(0), examples) != example.good


def test_an_exact_check_is_fooled_by_nothing():
    found = on_trial(make_reward("exact"), [Example("1+1?", "2", "3", "2"), Example("2+2?", "4", "5", "4")], tries=200)
    assert found.fooled == []
    assert found.gain == 0.0
    assert (found.pairs, found.pairs_right, found.good_mean) == (2, 2, 1.0)


def test_a_reward_that_counts_a_word_is_fooled_by_it_and_the_gain_is_told():
    found = on_trial(CountsPlease(), shipped_examples(), tries=400)
    assert "constant" in found.fooled
    assert "please" in found.constant_reply.lower()
    assert found.gain == pytest.approx(found.constant_mean - found.good_mean)
    assert found.gain > 2.0
    assert "padded" in found.fooled


def test_a_reward_that_ignores_its_input_is_found_out_and_ranks_no_pair_right():
    found = on_trial(IgnoresItsInput(), shipped_examples(), tries=20)
    assert found.fooled == ["any reply"]
    assert not on_trial(make_reward("length"), shipped_examples(), tries=0).alike
    assert (found.pairs, found.pairs_right) == (15, 0)
    assert all(finding.wins == 0 for finding in found.findings)


def test_the_heuristic_is_not_beaten_by_the_parroted_question():
    found = {row.trick: row for row in on_trial(make_reward("heuristic"), shipped_examples(), tries=0).findings}
    for trick in ("parroted", "repeated", "polite", "injected", "empty", "other_answer"):
        assert found[trick].wins <= 1
        assert found[trick].mean < found[trick].good_mean / 2


def test_a_reward_that_scores_nothing_is_refused_in_a_sentence():
    with pytest.raises(ConfigError, match="scored none of the good answers: .*raised ValueError: no"):
        on_trial(FailsOnGood(), shipped_examples()[:2], tries=0)


def test_the_words_of_a_reward_are_found_in_its_values_and_its_code():
    words = own_words(CountsPlease(), [])
    assert "please" in words
    assert "sorry" in own_words(make_reward("customer_service"), [])


def test_the_search_climbs():
    scores = {"good": 2.0, "bad": -1.0}
    text, level, _ = constant_search(
        ["good", "bad"], lambda texts: [sum(scores[w] for w in t.split()) for t in texts], 400, random.Random(1)
    )
    assert level == sum(scores[word] for word in text.split()) > 40


def test_pairs_are_read_under_the_names_that_people_use(tmp_path):
    rows = [
        {"prompt": "a", "good": "b", "bad": "c", "reference": "d"},
        {"question": "a", "chosen": "b", "rejected": "c"},
        {"prompt": "a", "answer": "b"},
    ]
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    assert read_examples(path) == [
        Example("a", "b", "c", "d"), Example("a", "b", "c", None), Example("a", "b", None, "b")
    ]  # fmt: skip
    path.write_text('{"prompt": "a"}')
    with pytest.raises(ConfigError, match="line 1 of .* has no good answer"):
        read_examples(path)


def test_the_command_says_what_fools_a_reward_and_fails_then(tmp_path, capsys):
    mine = tmp_path / "mine.py"
    mine.write_text("def polite(turns):\n    return float('please' in turns[-1]['content'].lower())\n")
    assert run(["reward", "check", f"python:{mine}:polite", "--tries", "60"]) == 1
    told = capsys.readouterr().out
    assert "fooled" in told
    assert "A policy can gain" in told
    settings = tmp_path / "run.toml"
    settings.write_text('[task]\nproduct = "language"\nenvironment = "addition"\n[reward]\nname = "exact"\n')
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"prompt": "1+1?", "good": "2", "bad": "3", "reference": "2"}\n')
    assert run(["reward", "check", str(settings), "--pairs", str(pairs), "--tries", "20", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["fooled"] == []
    assert answer["pairs_right"] == 1


def test_the_command_says_which_tricks_a_reward_cannot_tell_from_good_answers(tmp_path, capsys):
    mine = tmp_path / "mine.py"
    mine.write_text("def brief(turns):\n    return -float(len(turns[-1]['content'].split()))\n")
    run(["reward", "check", f"{mine}:brief", "--tries", "0"])
    told = " ".join(capsys.readouterr().out.split())
    assert "The reward cannot tell these from good answers: shuffled." in told
    mine.write_text("def alike(turns):\n    return 0.7\n")
    assert run(["reward", "check", f"{mine}:alike", "--tries", "0"]) == 1
    told = capsys.readouterr().out
    assert " ok" not in told
    assert "Every reply scores 0.7: the reward does not look at what is said." in told


def test_the_command_refuses_what_it_cannot_try(tmp_path, capsys):
    settings = tmp_path / "run.toml"
    settings.write_text('[task]\nproduct = "language"\nenvironment = "addition"\n')
    assert run(["reward", "check", str(settings)]) == 2
    assert "names no reward" in capsys.readouterr().err
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    assert run(["reward", "check", "exact", "--pairs", str(empty)]) == 2
    assert "has no examples" in capsys.readouterr().err


def test_flags_of_a_score_do_not_disturb_the_trial():
    class Flagged(RewardFunction):
        def compute_reward(self, turns):
            return Score(float(len(turns[-1]["content"]) < 200), flags=("short",))

    assert on_trial(Flagged(), shipped_examples()[:3], tries=0).questions == 3


USERS = """
import time

def ignores(turns):
    return 0.5

def picky(turns):
    if "?" in turns[-1]["content"]:
        raise ValueError("no questions, please")
    return 1.0 / len(turns[-1]["content"] or "x")

def leaves(turns):
    raise SystemExit(3)

def slow(turns):
    time.sleep(0.002)
    return float(len(turns[-1]["content"]))
"""


@pytest.mark.parametrize(
    ("name", "options", "status", "said"),
    [
        ("ignores", [], 1, "Every reply scores 0.5: the reward does not look at what is said."),
        ("picky", [], 1, "could not be scored and are left out: python:mine.py:picky raised ValueError: no questions"),
        ("leaves", [], 2, "error: the reward ended the program (exit status 3) instead of returning a score"),
        ("slow", ["--seconds", "0.001"], 1, "The search stopped after 1 of 40 tries, because the reward is slow."),
    ],
)
def test_a_users_function_is_answered_in_a_sentence(name, options, status, said, tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.py").write_text(USERS)
    monkeypatch.chdir(tmp_path)
    assert run(["reward", "check", f"python:mine.py:{name}", "--tries", "40", *options]) == status
    heard = capsys.readouterr()
    assert said in " ".join(f"{heard.out} {heard.err}".split())


def test_a_judge_without_a_key_is_refused_before_anything_is_scored(monkeypatch, capsys):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert run(["reward", "check", "ruler", "--tries", "0"]) == 2
    assert "key" in capsys.readouterr().err.lower()


def test_a_file_that_cannot_be_read_is_named(tmp_path, capsys):
    (tmp_path / "broken.jsonl").write_text("no json")
    for name in ("broken.jsonl", "absent.jsonl"):
        assert run(["reward", "check", "length", "--pairs", str(tmp_path / name)]) == 2
        assert name in capsys.readouterr().err.replace("\n", "")
