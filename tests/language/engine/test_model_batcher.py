"""Models that the engine has no description of, through their own forward pass: batched, and as right as the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from groupwise.errors import ContractError
from groupwise.language.engine import Engine, SamplingParams, model_batcher
from groupwise.language.engine.model_forward import Abilities, ModelForward, _mask, find_abilities, text_config

from .conftest import BASE, VOCABULARY
from .test_families import PROMPTS, full_forward, logp_error

EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "head_dim": 16}
HYBRID = {
    **EXPERTS, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
    "linear_value_head_dim": 8, "shared_expert_intermediate_size": 24, "num_hidden_layers": 4,
}  # fmt: skip
STATES = {"state_size": 8, "num_heads": 8, "head_dim": 8, "n_groups": 1, "chunk_size": 4}
OWN: dict[str, tuple[str, dict[str, Any]]] = {
    "experts": ("Qwen3MoeConfig", EXPERTS),
    "windows and sinks": ("GptOssConfig", {"num_local_experts": 4, "head_dim": 16, "sliding_window": 6}),
    "linear attention": ("Qwen3NextConfig", HYBRID),
    "states only": ("Mamba2Config", STATES),
    "positions by count": ("BartConfig", {"d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4}),
    # Transformers decodes a batch of these wrongly, so the engine must notice and read every row again.
    "states mixed up": ("RwkvConfig", {"attention_hidden_size": 32, "context_length": 64}),
}
# (cached, joins, pads), where not all three work.
ABILITIES = {"positions by count": (True, False, False), "states mixed up": (False, False, False)}
HOSTILE = {
    "repetition_penalty": 1.7, "suppress_tokens": list(range(0, 90, 2)), "min_new_tokens": 9, "temperature": 0.3,
    "top_k": 3, "forced_eos_token_id": 5, "eos_token_id": 7, "no_repeat_ngram_size": 1, "num_beams": 2,
}  # fmt: skip


def own_model(family: str, seed: int = 0) -> Any:
    name, extra = OWN[family]
    config = getattr(transformers, name)(**{**BASE, **extra})
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    for name, value in HOSTILE.items():
        setattr(model.generation_config, name, value)
    return model


@pytest.mark.parametrize("family", OWN)
def test_every_kind_of_cache_gives_the_models_own_log_probabilities(family: str) -> None:
    model = own_model(family)
    engine = Engine(model, eos=(), slots=3)  # fewer slots than requests: rows join while others run
    requests = [(p, seed) for p in PROMPTS for seed in (1, 2)]
    results = engine.generate(requests, SamplingParams(max_new_tokens=12, temperature=0.7))
    for (prompt, _), result in zip(requests, results, strict=True):
        assert len(result) == 12
        assert result.end == "length"
        assert logp_error(model, prompt, result, temperature=0.7) < 1e-4
    abilities = engine._inside.abilities  # type: ignore[attr-defined]
    assert (abilities.cached, abilities.joins, abilities.pads) == ABILITIES.get(family, (True, True, True))


@pytest.mark.parametrize("able", [(True, True, True), (True, True, False), (True, False, False), (False, False, False)])
def test_every_way_of_batching_gives_the_models_own_log_probabilities(
    able: tuple[bool, bool, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In sweeps of few tokens, with prompts in no order, while rows join, end, and go on with other weights."""
    monkeypatch.setattr(model_batcher, "SWEEP_TOKENS", 24)
    model = own_model("experts")
    engine, rng = Engine(model, eos=(), slots=5), np.random.default_rng(1)
    inside: Any = engine._inside
    inside.abilities = Abilities(*able)
    prompts = [rng.integers(0, VOCABULARY, size).tolist() for size in (9, 2, 11, 2, 9, 5, 30, 1, 9, 2)]
    prompts += prompts[:3]
    params = [SamplingParams(max_new_tokens=2 + i % 5) for i in range(len(prompts))]
    futures = [engine.submit(prompt, params[i], i) for i, prompt in enumerate(prompts)]
    for _ in range(3):
        engine.step()
    with torch.no_grad():
        model.lm_head.weight.mul_(1.2)
    ended, made = [future.done() for future in futures], inside.rows.made[: inside.rows.count].tolist()
    running = {id(request.future): int(n) for request, n in zip(inside.rows.requests, made, strict=True)}
    engine.run_until_idle()
    assert any(running.values())
    for i, (prompt, future) in enumerate(zip(prompts, futures, strict=True)):
        result = future.result()
        assert (len(result), result.end) == (2 + i % 5, "length")
        skip = len(result) if ended[i] else running.get(id(future), 0)
        logp = full_forward(model, prompt, result.ids).log_softmax(-1).numpy()
        expected = logp[np.arange(len(result)), result.ids]
        np.testing.assert_allclose(result.logp[skip:], expected[skip:], atol=1e-4)


def test_end_of_text_tokens_end_a_request_and_none_means_none() -> None:
    model, params = own_model("experts"), SamplingParams(max_new_tokens=60)
    model.generation_config.eos_token_id = [5, 7]
    requests = [(PROMPTS[0], seed) for seed in range(20)]
    free = Engine(model, eos=(), max_length=70).generate(requests, params)
    ended = Engine(model, max_length=70, ends=(9,)).generate(requests, params)
    assert {len(result) for result in free} == {58}  # of 70 positions, 12 are the prompt's
    assert {result.end for result in free} == {"context"}
    assert {int(result.ids[-1]) for result in ended if result.end == "stop"} == {5, 7, 9}
    for one, other in zip(free, ended, strict=True):
        until = next((i + 1 for i, token in enumerate(one.ids.tolist()) if token in (5, 7, 9)), 58)
        assert other.ids.tolist() == one.ids[:until].tolist()


def test_rows_of_one_length_run_together_where_lengths_do_not_mix() -> None:
    engine, params = Engine(own_model("positions by count"), eos=(), slots=3), SamplingParams(max_new_tokens=3)
    lengths = (4, 6, 4, 4, 4, 6)
    asked = [np.random.default_rng(i).integers(0, VOCABULARY, size).tolist() for i, size in enumerate(lengths)]
    futures = [engine.submit(prompt, params, 0) for prompt in asked]
    rounds = []
    while engine.step():
        rounds.append([i for i, future in enumerate(futures) if future.done()])
    assert rounds == [[], [0, 2, 3], [0, 2, 3], [0, 1, 2, 3, 5], [0, 1, 2, 3, 5], [0, 1, 2, 3, 4, 5]]


def test_a_prompt_is_kept_as_long_as_somebody_waits_for_it() -> None:
    engine, params = Engine(own_model("experts"), eos=(), slots=1), SamplingParams(max_new_tokens=5)
    inside: Any = engine._inside
    futures = [engine.submit(prompt, params, s) for s, prompt in enumerate([PROMPTS[0]] * 3 + [PROMPTS[2]])]
    engine.step()
    kept = []
    for future in (futures[3], futures[2], futures[1]):
        engine.cancel(future)
        engine.step()
        kept.append(len(inside.prompts))
    assert kept == [1, 1, 0]
    engine.run_until_idle()
    assert engine.tokens_read == len(PROMPTS[0])


class Noisy(ModelForward):
    """Decodes with an error: a share of the logits' standard deviation, or an exception."""

    noise: float | None = 0.0

    def decode(self, *args: Any) -> Any:
        cache, logits = super().decode(*args)
        if self.noise is None:
            raise IndexError("no such cache")
        return cache, logits + self.noise * logits.std()


@pytest.mark.parametrize(
    ("dtype", "noise", "able"),
    [
        (torch.float32, 0.0, True),
        (torch.float32, 1e-4, True),
        (torch.float32, 1e-3, False),
        (torch.float32, None, False),
        (torch.bfloat16, 0.0, True),
        (torch.bfloat16, 0.2, False),
    ],
)
def test_only_what_gives_the_models_own_logits_is_an_ability(
    dtype: torch.dtype, noise: float | None, able: bool
) -> None:
    forward = Noisy(own_model("experts").to(dtype))
    forward.noise = noise
    assert find_abilities(forward) == Abilities(able, able, able)


def test_masks_show_real_tokens_and_are_left_out_without_padding() -> None:
    lengths = np.array([2, 3, 1])
    assert _mask(lengths, 3).tolist() == [[0, 1, 1], [1, 1, 1], [0, 0, 1]]  # type: ignore[union-attr]
    assert _mask(lengths, 4).tolist() == [[0, 0, 1, 1], [0, 1, 1, 1], [0, 0, 0, 1]]  # type: ignore[union-attr]
    assert _mask(np.array([3, 3]), 3) is None


def test_a_model_of_several_kinds_of_input_is_read_by_its_text_decoder() -> None:
    model = own_model("experts")
    assert text_config(model) is model.config
    whole = SimpleNamespace(get_text_config=lambda decoder: model.config if decoder else None)
    assert text_config(SimpleNamespace(config=whole)) is model.config
    bare = SimpleNamespace(vocab_size=3)
    assert text_config(SimpleNamespace(config=bare)) is bare


def test_greedy_tokens_are_the_most_likely_ones_whatever_the_generation_config_says() -> None:
    model = own_model("experts")
    result = Engine(model, eos=()).generate([(PROMPTS[0], 0)], SamplingParams(max_new_tokens=10, temperature=0))[0]
    assert result.ids.tolist() == full_forward(model, PROMPTS[0], result.ids).argmax(-1).tolist()


def test_a_request_does_not_depend_on_its_company_nor_on_padding() -> None:
    model = own_model("windows and sinks")
    params = SamplingParams(max_new_tokens=10)
    alone = [Engine(model, eos=()).generate([(p, 3)], params)[0] for p in PROMPTS]
    together = Engine(model, eos=()).generate([(p, 3) for p in PROMPTS], params)
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one.ids, other.ids)
        np.testing.assert_allclose(one.logp, other.logp, atol=1e-5)


@pytest.mark.parametrize("slots", [3, 16])
@pytest.mark.parametrize("family", ["experts", "states only"])
def test_a_groups_prompt_is_read_once_even_if_some_members_wait(family: str, slots: int) -> None:
    engine = Engine(own_model(family), eos=(), slots=slots)
    prompts = [PROMPTS[0], PROMPTS[2]]
    results = engine.generate([(p, s) for p in prompts for s in range(8)], SamplingParams(max_new_tokens=4))
    assert engine.tokens_read == sum(len(p) for p in prompts)
    assert len({result.ids.tobytes() for result in results}) > 8
    assert not engine._inside.prompts  # type: ignore[attr-defined]


def test_stopping_cancelling_and_watching_work_in_a_batch(tokenizer: Any) -> None:
    model = own_model("experts")
    engine, params = Engine(model, tokenizer, eos=()), SamplingParams(max_new_tokens=12)
    plain = engine.generate([(p, 1) for p in PROMPTS], params)
    stop, text = int(plain[0].ids[2]), tokenizer.decode([int(plain[1].ids[1])])
    stopped = engine.submit(PROMPTS[0], SamplingParams(max_new_tokens=12, stop_token_ids=(stop,)), 1)
    worded = engine.submit(PROMPTS[1], SamplingParams(max_new_tokens=12, stop=(text,)), 1)
    seen: list[int] = []
    watched = engine.submit(PROMPTS[2], params, 1, on_token=lambda token, _: seen.append(token))
    broken = engine.submit(PROMPTS[2], params, 1, on_token=lambda *_: 1 / 0)
    cancelled = engine.submit(PROMPTS[3], params, 1)
    engine.step()
    engine.cancel(cancelled)
    engine.run_until_idle()
    assert (stopped.result().end, worded.result().end, cancelled.result().end) == ("stop", "stop", "cancelled")
    assert stop == int(stopped.result().ids[-1])
    assert len(stopped.result()) <= 3
    assert len(worded.result()) <= 2
    assert seen == plain[2].ids.tolist() == watched.result().ids.tolist()
    assert isinstance(broken.exception(), ZeroDivisionError)
    assert 0 < len(cancelled.result()) < 12
    np.testing.assert_array_equal(cancelled.result().ids, plain[3].ids[: len(cancelled.result())])


@pytest.mark.parametrize("family", ["experts", "positions by count"])
def test_running_rows_go_on_with_changed_weights(family: str) -> None:
    model = own_model(family)
    engine = Engine(model, eos=())
    future = engine.submit(PROMPTS[0], SamplingParams(max_new_tokens=8), 0)
    engine.step()
    made = int(engine._inside.rows.made[0])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.1)
    engine.run_until_idle()
    after = full_forward(model, PROMPTS[0], future.result().ids).log_softmax(-1)
    expected = after.gather(1, torch.from_numpy(future.result().ids)[:, None])[:, 0].numpy()
    np.testing.assert_allclose(future.result().logp[made:], expected[made:], atol=1e-4)
    assert abs(future.result().logp[:made] - expected[:made]).max() > 1e-4


def test_padding_that_no_row_needs_any_more_is_dropped() -> None:
    model = own_model("experts")
    engine = Engine(model, eos=())
    long = np.random.default_rng(0).integers(0, VOCABULARY, 120).tolist()
    futures = [engine.submit(long, SamplingParams(max_new_tokens=2), 0)]
    futures.append(engine.submit(PROMPTS[3], SamplingParams(max_new_tokens=8), 0))
    engine.run_until_idle()
    assert engine._inside.width < 20  # type: ignore[attr-defined]
    assert logp_error(model, PROMPTS[3], futures[1].result()) < 1e-4


def test_a_model_in_training_mode_is_put_at_rest_and_back() -> None:
    model = own_model("experts")
    model.config.attention_dropout = 0.5
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.5
    result = Engine(model.train(), eos=()).generate([(PROMPTS[0], 0)], SamplingParams(max_new_tokens=6))[0]
    assert model.training
    assert logp_error(model.eval(), PROMPTS[0], result) < 1e-4


def test_another_module_can_be_loaded_and_a_misfit_is_refused() -> None:
    engine, other = Engine(own_model("experts"), eos=()), own_model("experts", seed=5)
    engine.load(other, 3)
    result = engine.generate([(PROMPTS[0], 0)], SamplingParams(max_new_tokens=5))[0]
    assert logp_error(other, PROMPTS[0], result) < 1e-4
    assert result.version == 3
    # Another kind of model: how its rows can be batched is found out anew.
    counted = own_model("positions by count")
    engine.load(counted, 4)
    results = engine.generate([(p, 0) for p in PROMPTS], SamplingParams(max_new_tokens=5))
    assert max(logp_error(counted, p, r) for p, r in zip(PROMPTS, results, strict=True)) < 1e-4
    small = transformers.AutoModelForCausalLM.from_config(
        transformers.Qwen3MoeConfig(**{**BASE, **EXPERTS, "vocab_size": 50})
    )
    with pytest.raises(ContractError, match="cannot load Qwen3MoeForCausalLM with 50"):
        engine.load(small, 5)
    assert (engine.version, engine.model is counted) == (4, True)
