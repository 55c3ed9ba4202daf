"""Reading prompts: in parts of a limited size, each distinct one once, whoever shares it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from groupwise.language.engine import Engine, Sampled, SamplingParams, prefill
from groupwise.language.engine.network import Network, PromptPiece

from .conftest import VOCABULARY, make_model
from .test_engine import same
from .test_families import logp_error

LENGTHS = (9, 3, 7, 16, 1, 17, 4, 4, 8, 8, 1, 15)
PROMPTS = [np.random.default_rng(i).integers(0, VOCABULARY, n).tolist() for i, n in enumerate(LENGTHS)]
PARAMS = SamplingParams(max_new_tokens=3)


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The tokens of each piece of each sweep, which may have 16 together."""
    seen: list[list[int]] = []
    whole = Network.prefill

    def noted(network: Network, pieces: Sequence[PromptPiece], cache: Any) -> Tensor:
        seen.append([len(piece.tokens) for piece in pieces])
        return whole(network, pieces, cache)

    monkeypatch.setattr(prefill, "SWEEP_TOKENS", 16)
    monkeypatch.setattr(Network, "prefill", noted)
    return seen


@pytest.mark.parametrize(("count", "sweeps"), [(2, 1), (3, 2), (4, 3), (len(LENGTHS), 8)])
def test_prompts_are_read_in_sweeps_that_are_full_but_not_too_large(
    count: int, sweeps: int, model: Any, sizes: list[list[int]]
) -> None:
    engine = Engine(model, eos=())
    results = engine.generate([(prompt, i) for i, prompt in enumerate(PROMPTS[:count])], PARAMS)
    assert sizes == [[9, 3], [7], [16], [1], [17], [4, 4, 8], [8, 1], [15]][:sweeps]
    assert engine.tokens_read == sum(LENGTHS[:count])
    for prompt, result in zip(PROMPTS[:count], results, strict=True):
        assert logp_error(model, prompt, result) < 1e-4


def test_rows_are_read_again_in_the_same_sweeps_when_weights_change(sizes: list[list[int]]) -> None:
    old, new = make_model("llama", seed=1), make_model("llama", seed=2)
    engine = Engine(old, eos=())
    futures = [engine.submit(prompt, PARAMS, i) for i, prompt in enumerate(PROMPTS[:5])]
    engine.step()
    sizes.clear()
    engine.load(new, 1)
    assert sizes == [[10, 4], [8], [17], [2]]
    engine.run_until_idle()
    for prompt, future in zip(PROMPTS, futures, strict=False):
        result = future.result()
        assert result.versions.tolist() == [0, 0, 1]
        last = Sampled(result.ids[2:], result.logp[2:], result.versions[2:], 1, result.end)
        assert logp_error(new, prompt + result.ids[:2].tolist(), last) < 1e-4


def test_whoever_shares_a_prompt_gets_its_logits(model: Any) -> None:
    """Of one step: a session that goes on, one that is new, newcomers with and without company, and some that wait."""
    engine, turn = Engine(model, eos=(), slots=7), SamplingParams(max_new_tokens=4)
    first = engine.submit(PROMPTS[0], turn, 0, session="talk")
    engine.run_until_idle()
    again = PROMPTS[0] + first.result().ids.tolist() + [1, 2]
    running = engine.submit(PROMPTS[3], SamplingParams(max_new_tokens=9), 1)
    engine.step()
    before = engine.tokens_read
    asked: list[tuple[list[int], str | None]] = [
        (again, None), (PROMPTS[3], None), (again, "talk"), (PROMPTS[5], None), (again, "new"), (PROMPTS[3], None),
        (PROMPTS[5], None), (again, None), (PROMPTS[3], "last"),
    ]  # fmt: skip
    futures = [engine.submit(ids, turn, seed, session=session) for seed, (ids, session) in enumerate(asked)]
    engine.run_until_idle()
    # Of `again` the session lacks the last sampled token and 2 new ones; of PROMPTS[3] only the last is read again.
    assert engine.tokens_read - before == 3 + 1 + len(PROMPTS[5])
    for seed, ((ids, _), future) in enumerate(zip(asked, futures, strict=True)):
        same(future.result(), Engine(model, eos=()).generate([(ids, seed)], turn)[0])
    assert len(running.result()) == 9
    inside: Any = engine._inside
    assert not inside.prompts.snapshots
    assert not inside.prompts.waiting
