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
from groupwise.language.engine.sampling import rules_of, sample, stream_key, uniforms

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
        ({"top_k": -1}, "top_k is -1"),
        ({"top_p": 0.0}, "top_p is 0.0; it must be above 0 and at most 1"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"min_p": 1.0}, "min_p is 1.0"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0.0"),
        ({"stop": ("",)}, "non-empty strings"),
        ({"stop": "END"}, "a tuple"),
        ({"stop_token_ids": (-1,)}, "stop_token_ids"),
    ],
)
def test_wrong_parameters_are_refused_with_value_and_limit(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        SamplingParams(**wrong)
    assert caught.value.field in wrong


def test_a_token_that_only_a_penalty_could_choose_has_a_finite_log_probability() -> None:
    """At a low temperature the softmax of an unlikely token is 0; its log-probability is not."""
    logits = torch.tensor([[6.0, 2.0, -1.0]])
    rules = rules_of([SamplingParams(temperature=0.01, repetition_penalty=50.0)], 3, CPU)
    tokens, logp = sample(logits, rules, torch.tensor([[0.5]]), torch.tensor([[True, False, False]]))
    assert tokens.tolist() == [1]
    assert logp.item() == pytest.approx(torch.log_softmax(logits.double() / 0.01, -1)[0, 1].item(), rel=1e-6)
