"""What is sampled, against what should be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from groupwise.errors import ConfigError
from groupwise.language.engine import Engine, SamplingParams
from groupwise.language.engine.sampling import penalised, rules_of, sample, stream_key, uniforms

from .conftest import VOCABULARY, make_model
from .test_families import full_forward
from .test_model_batcher import own_model

CPU = torch.device("cpu")
MIXES = {
    "plain": SamplingParams(),
    "warm": SamplingParams(temperature=1.7),
    "top_k": SamplingParams(top_k=5),
    "top_p": SamplingParams(top_p=0.7),
    "min_p": SamplingParams(min_p=0.2),
    "all": SamplingParams(temperature=0.8, top_k=12, top_p=0.9, min_p=0.05),
    "penalty": SamplingParams(repetition_penalty=1.5, top_p=0.8),
}
PROMPT = [3, 14, 15, 92, 65, 35]


def expected_probs(logits: torch.Tensor, params: SamplingParams, ids: list[int]) -> torch.Tensor:
    """By Hugging Face's own processors, in its order."""
    steps: list[Any] = []
    if params.repetition_penalty != 1:
        steps.append(RepetitionPenaltyLogitsProcessor(params.repetition_penalty))
    if params.temperature:
        steps.append(TemperatureLogitsWarper(float(params.temperature)))
    if params.top_k:
        steps.append(TopKLogitsWarper(params.top_k))
    if params.top_p < 1:
        steps.append(TopPLogitsWarper(params.top_p))
    if params.min_p:
        steps.append(MinPLogitsWarper(params.min_p))
    return LogitsProcessorList(steps)(torch.tensor([ids]), logits[None].clone())[0].softmax(-1)


def chi_square(counts: np.ndarray[Any, Any], probs: np.ndarray[Any, Any]) -> tuple[float, int]:
    """The statistic and its degrees of freedom, with rare outcomes taken together."""
    total = counts.sum()
    common = probs * total >= 8
    seen = np.append(counts[common], counts[~common].sum())
    expected = np.append(probs[common], probs[~common].sum()) * total
    keep = expected > 0
    assert seen[~keep].sum() == 0
    return float(((seen[keep] - expected[keep]) ** 2 / expected[keep]).sum()), int(keep.sum()) - 1


@pytest.mark.parametrize("mix", MIXES)
def test_sampled_tokens_follow_the_distribution(mix: str, model: Any) -> None:
    params = SamplingParams(**{**_fields(MIXES[mix]), "max_new_tokens": 1})
    engine = Engine(model, eos=(), slots=256)
    tokens = [int(r.ids[0]) for r in engine.generate([(PROMPT, seed) for seed in range(4000)], params)]
    with torch.no_grad():
        logits = model(torch.tensor([PROMPT])).logits[0, -1]
    probs = expected_probs(logits, params, PROMPT).numpy().astype(np.float64)
    counts = np.bincount(tokens, minlength=len(probs))
    assert counts[probs == 0].sum() == 0
    statistic, freedom = chi_square(counts, probs)
    assert freedom > 1
    assert statistic < freedom + 4 * np.sqrt(2 * freedom) + 4  # beyond the 99.9th percentile


def _fields(params: SamplingParams) -> dict[str, Any]:
    return {name: getattr(params, name) for name in SamplingParams.__dataclass_fields__}


def test_rows_are_sampled_each_by_its_own_rules() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(len(MIXES), 3000, generator=generator) * 3
    seen = torch.rand(logits.shape, generator=generator) < 0.3
    uniform = torch.rand(len(MIXES), 1, generator=generator)
    together = sample(logits, rules_of(list(MIXES.values()), 3000, CPU), uniform, seen)
    for row, params in enumerate(MIXES.values()):
        part = slice(row, row + 1)
        alone = sample(logits[part], rules_of([params], 3000, CPU), uniform[part], seen[part])
        assert together[0][row] == alone[0][0]
        torch.testing.assert_close(together[1][row], alone[1][0])


@pytest.mark.parametrize(
    ("rule", "kept"),
    [
        ({"top_p": 0.4375}, 1), ({"top_p": 0.5}, 1), ({"top_p": 0.5625}, 2), ({"top_p": 0.75}, 2),
        ({"top_p": 0.8125}, 3), ({"top_p": 0.875}, 3), ({"top_p": 0.9}, 5), ({"top_p": 1.0}, 5),
        ({"top_k": 1}, 1), ({"top_k": 3}, 3), ({"top_k": 4}, 5), ({"top_k": 5}, 5),
        ({"min_p": 0.51}, 1), ({"min_p": 0.49}, 2), ({"min_p": 0.12}, 5),
        ({"top_k": 2, "top_p": 0.65}, 1), ({"top_k": 2, "top_p": 0.7}, 2), ({"top_p": 0.875, "min_p": 0.4}, 2),
    ],
)  # fmt: skip
def test_how_many_tokens_are_left_at_the_very_edge_of_a_rule(rule: dict[str, Any], kept: int) -> None:
    """A half, a quarter, an eighth and two sixteenths: their sums are exact, and the last two always stay together."""
    logits = torch.tensor([0.5, 0.25, 0.125, 0.0625, 0.0625]).log()[None]
    many = torch.arange(64, dtype=torch.float32).add_(0.5).div_(64)[:, None]
    rules = rules_of([SamplingParams(**rule)] * 64, 5, CPU)
    tokens, _ = sample(logits.expand(64, -1), rules, many, None)
    assert tokens.unique().tolist() == list(range(kept))


@pytest.mark.parametrize("spread", [0.01, 1.0, 6.0])
def test_truncation_keeps_what_hugging_face_keeps(spread: float) -> None:
    """Flat distributions need all of the vocabulary sorted, sharp ones a few tokens: the result is the same."""
    generator = torch.Generator().manual_seed(1)
    for params in MIXES.values():
        logits = torch.randn(5000, generator=generator) * spread
        probs = expected_probs(logits, params, PROMPT)
        many = torch.arange(512, dtype=torch.float32).add_(0.5).div_(512)[:, None]
        seen = torch.zeros(1, 5000, dtype=torch.bool)
        seen[0, PROMPT] = True
        rules = rules_of([params] * 512, 5000, CPU)
        tokens, logp = sample(logits.expand(512, -1), rules, many, seen.expand(512, -1))
        frequency = torch.bincount(tokens, minlength=5000) / 512
        assert (frequency - probs).abs().max() < 2 / 512
        raw = (logits / params.temperature).log_softmax(-1)
        torch.testing.assert_close(logp, raw[tokens], atol=1e-5, rtol=1e-5)


def rows_of_every_rule() -> list[SamplingParams]:
    """Every pair of values of any two rules, at, below and above what switches a rule off, in random order."""
    values: dict[str, list[Any]] = {
        "temperature": [1.0, 0.0, 0.4, 1.6],
        "top_k": [0, 1, 2, 7, VOCABULARY - 1, VOCABULARY, VOCABULARY + 1],
        "top_p": [1.0, 0.99, 0.6, 1e-4],
        "min_p": [0.0, 0.02, 0.9],
        "repetition_penalty": [1.0, 1.8, 0.6],
    }
    rows = [
        SamplingParams(**{one: first, other: second})
        for one in values for other in values if one < other for first in values[one] for second in values[other]
    ]  # fmt: skip
    return [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]


def test_a_row_is_inverted_at_its_number_under_any_rules_in_any_company() -> None:
    params, generator = rows_of_every_rule() * 3, torch.Generator().manual_seed(2)
    spread = torch.tensor([0.3, 1.0, 3.0]).repeat_interleave(len(params) // 3)[:, None]
    logits = torch.randn(len(params), VOCABULARY, generator=generator) * spread
    seen = torch.rand(logits.shape, generator=generator) < 0.3
    uniform = torch.rand(len(params), 1, generator=generator)
    tokens, logp = sample(logits, rules_of(params, VOCABULARY, CPU), uniform, seen)
    for row, rule in enumerate(params):
        ids = seen[row].nonzero()[:, 0].tolist()
        assert_drawn(logits[row], rule, ids, float(uniform[row]), int(tokens[row]))
        raw = (logits[row] / (rule.temperature or 1)).log_softmax(-1)
        assert float(logp[row]) == pytest.approx(float(raw[tokens[row]]), abs=1e-5)


def assert_drawn(logits: torch.Tensor, params: SamplingParams, ids: list[int], uniform: float, token: int) -> None:
    """`token` is where the distribution function passes `uniform`, or the most likely one; up to rounding."""
    probs = expected_probs(logits, params, ids).double()
    if params.temperature == 0:
        assert probs[token] > probs.max() - 1e-5
        return
    assert probs[token] > 0
    above = float(probs[: token + 1].sum())
    assert above - float(probs[token]) - 1e-4 < uniform < above + 1e-4


@pytest.mark.parametrize("known", [True, False], ids=["known family", "own forward pass"])
def test_every_token_is_the_one_that_its_seed_and_rules_choose(known: bool) -> None:
    """From the model's own logits, with all earlier tokens penalised, while rows come, go and move."""
    model = make_model("llama") if known else own_model("experts")
    rules: list[dict[str, Any]] = [
        {"temperature": 0.0, "repetition_penalty": 1.4},
        {"repetition_penalty": 0.7, "temperature": 1.3},
        {"repetition_penalty": 2.0, "top_k": 20, "top_p": 0.8},
        {"temperature": 0.6, "min_p": 0.02},
        {},
    ]
    engine = Engine(model, eos=(), slots=3)
    asked = [
        (np.random.default_rng(i).integers(0, VOCABULARY, 3 + i).tolist(),
         SamplingParams(max_new_tokens=3 + 4 * i % 7, **rules[i % 5]), i)
        for i in range(10)
    ]  # fmt: skip
    futures = [engine.submit(*request) for request in asked]
    engine.run_until_idle()
    for (prompt, params, seed), future in zip(asked, futures, strict=True):
        ids = future.result().ids
        numbers = uniforms(np.full(len(ids), stream_key(seed), np.uint64), np.arange(len(ids)))
        for t, logits in enumerate(full_forward(model, prompt, ids)):
            assert_drawn(logits, params, prompt + ids[:t].tolist(), float(numbers[t]), int(ids[t]))


def test_a_penalty_makes_tokens_that_were_seen_less_likely() -> None:
    logits = torch.tensor([[-2.0, -0.5, 0.0, 0.5, 2.0]] * 3)
    seen = torch.tensor([[True] * 5, [False] * 5, [False, True, True, True, False]])
    found = penalised(logits, torch.tensor([[2.0], [2.0], [0.5]]), seen)
    assert found.tolist() == [[-4, -1, 0, 0.25, 1], [-2, -0.5, 0, 0.5, 2], [-2, -0.25, 0, 1, 2]]


def test_tokens_as_likely_as_the_last_that_top_k_keeps_stay_too() -> None:
    logits = torch.tensor([0.0, 2.0, 1.0, -1.0, 1.0]).log_softmax(-1).expand(200, -1)
    numbers = (torch.arange(200)[:, None] + 0.5) / 200
    tokens, _ = sample(logits, rules_of([SamplingParams(top_k=2)] * 200, 5, CPU), numbers, None)
    assert set(tokens.tolist()) == {1, 2, 4}


def test_streams_are_those_of_splitmix64() -> None:
    """Against the numbers that its authors' program prints for the seed 1234567."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431,
                 16408922859458223821]  # fmt: skip
    numbers = uniforms(np.full(5, 1234567, np.uint64), np.arange(5))
    assert numbers.tolist() == [(number >> 40) / 2**24 for number in published]
    assert uniforms(np.array([1234567, 5], np.uint64), np.array([3, 0])).tolist()[0] == numbers[3]


def test_every_integer_starts_a_stream_of_its_own() -> None:
    sizes = [*range(50), *(2**bits + more for bits in (31, 32, 33, 63, 64, 65, 127, 128, 200) for more in (0, 1))]
    seeds = {sign * size for size in sizes for sign in (1, -1)}
    assert len({int(stream_key(seed)) for seed in seeds}) == len(seeds)


def test_streams_are_uniform_and_independent() -> None:
    keys = np.array([stream_key(seed) for seed in range(200)], np.uint64)
    numbers = np.stack([uniforms(keys, np.full(200, t)) for t in range(200)])
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert abs(numbers.mean() - 0.5) < 0.005
    assert np.abs(np.corrcoef(numbers)[np.triu_indices(200, 1)]).max() < 0.4  # across neighbouring steps
    assert np.abs(np.corrcoef(numbers.T)[np.triu_indices(200, 1)]).max() < 0.4  # across neighbouring seeds
    assert len(np.unique(numbers)) > 39_000


def test_any_integer_is_a_seed(model: Any) -> None:
    engine = Engine(model, eos=())
    params = SamplingParams(max_new_tokens=6)
    results = engine.generate([(PROMPT, seed) for seed in (0, -1, 2**63, 2**200, 1)], params)
    assert len({tuple(r.ids.tolist()) for r in results}) == 5


def test_tokens_of_no_weight_are_never_sampled() -> None:
    logits = torch.full((1, 50), float("-inf"))
    logits[0, 20] = 0.0
    for u in (0.0, 0.5, 1 - 2**-24):
        tokens, logp = sample(logits, rules_of([SamplingParams()], 50, CPU), torch.tensor([[u]]), None)
        assert tokens.tolist() == [20]
        assert logp.tolist() == [0.0]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens is 0; it must be at least 1"),
        ({"temperature": -0.5}, "temperature is -0.5; it must be 0 or more"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"temperature": float("inf")}, "temperature is inf"),
        ({"top_k": -1}, "top_k is -1"),
        ({"top_p": 0.0}, "top_p is 0.0; it must be above 0 and at most 1"),
        ({"top_p": -0.1}, "top_p is -0.1"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"min_p": 1.0}, "min_p is 1.0"),
        ({"min_p": -0.01}, "min_p is -0.01; it must be at least 0"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0.0"),
        ({"repetition_penalty": -1.0}, "repetition_penalty is -1.0"),
        ({"repetition_penalty": float("inf")}, "repetition_penalty is inf"),
        ({"stop": ("",)}, "non-empty strings"),
        ({"stop": ("END", "")}, "non-empty strings"),
        ({"stop": "END"}, "a tuple"),
        ({"stop": ["END"]}, "a tuple"),
        ({"stop_token_ids": (-1,)}, "stop_token_ids"),
        ({"stop_token_ids": (5, -1)}, "stop_token_ids"),
        ({"stop_token_ids": [5]}, "a tuple of ids"),
    ],
)
def test_wrong_parameters_are_refused_with_value_and_limit(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        SamplingParams(**wrong)
    assert caught.value.field in wrong


def test_by_default_64_tokens_are_sampled_from_the_models_own_distribution() -> None:
    off = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
    assert _fields(SamplingParams()) == {"max_new_tokens": 64, **off, "stop": (), "stop_token_ids": ()}
    rules = rules_of([SamplingParams()] * 3, VOCABULARY, CPU)
    columns = (rules.sharpness, rules.greedy, rules.top_k, rules.top_p, rules.log_min_p, rules.penalty)
    assert (columns, rules.all_greedy) == ((None,) * 6, False)


@pytest.mark.parametrize(
    "right",
    [
        {"max_new_tokens": 1}, {"temperature": 0.0}, {"top_k": 0}, {"top_k": 1}, {"top_p": 1.0}, {"top_p": 1e-6},
        {"min_p": 0.0}, {"min_p": 0.99}, {"repetition_penalty": 0.01}, {"stop": ()}, {"stop_token_ids": (0,)},
    ],
)  # fmt: skip
def test_parameters_at_their_limits_are_taken(right: dict[str, Any]) -> None:
    assert _fields(SamplingParams(**right)) == {**_fields(SamplingParams()), **right}


def test_a_token_that_only_a_penalty_could_choose_has_a_finite_log_probability() -> None:
    """At a low temperature the softmax of an unlikely token is 0; its log-probability is not."""
    logits = torch.tensor([[6.0, 2.0, -1.0]])
    rules = rules_of([SamplingParams(temperature=0.01, repetition_penalty=50.0)], 3, CPU)
    tokens, logp = sample(logits, rules, torch.tensor([[0.5]]), torch.tensor([[True, False, False]]))
    assert tokens.tolist() == [1]
    assert logp.item() == pytest.approx(torch.log_softmax(logits.double() / 0.01, -1)[0, 1].item(), rel=1e-6)
