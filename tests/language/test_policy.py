"""The language policy on small, random, real models of four families."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError, ContractError
from groupwise.language.adapters import Lora, add_adapter
from groupwise.language.logprobs import base_model
from groupwise.language.policy import LanguagePolicy, ValueHead
from groupwise.training.learner import Learner
from groupwise.types import Batch, Tensors

VOCABULARY, WIDTH, TEMPERATURE = 31, 16, 0.8
SHAPE = {
    "vocab_size": VOCABULARY, "hidden_size": WIDTH, "intermediate_size": 2 * WIDTH, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64, "initializer_range": 0.3,
}  # fmt: skip


def gpt2() -> Any:
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=64, n_embd=WIDTH, n_layer=2, n_head=2, initializer_range=0.3, use_cache=False
    )  # fmt: skip
    return GPT2LMHeadModel(config)


FAMILIES: dict[str, Callable[[], Any]] = {
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SHAPE)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE, tie_word_embeddings=True)),
    "gpt2": gpt2,
    "gemma2": lambda: Gemma2ForCausalLM(
        Gemma2Config(**SHAPE, head_dim=8, sliding_window=4, final_logit_softcapping=2.0, attn_implementation="eager")
    ),
}


def make(name: str) -> Any:
    """A model in double precision, so that what must not matter can be told from rounding."""
    torch.manual_seed(0)
    return FAMILIES[name]().double().eval()


def rows(seed: int = 1, count: int = 6) -> list[tuple[Tensor, Tensor]]:
    """Token ids of several lengths, and which of them the policy wrote: an answer, a tool's reply, an answer."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for length in torch.randint(6, 15, (count,), generator=generator).tolist():
        action = torch.arange(length) >= 3
        action[4:6] = False
        made.append((torch.randint(1, VOCABULARY, (length,), generator=generator), action))
    return made


def padded(
    table: list[tuple[Tensor, Tensor]], side: str = "right", extra: int = 0, filler: int = 0
) -> dict[str, Tensor]:
    width = max(len(ids) for ids, _ in table) + extra
    inputs = {
        "input_ids": torch.full((len(table), width), filler),
        "attention_mask": torch.zeros(len(table), width, dtype=torch.long),
        "action_mask": torch.zeros(len(table), width, dtype=torch.bool),
    }
    for row, (ids, action) in enumerate(table):
        at = slice(0, len(ids)) if side == "right" else slice(width - len(ids), width)
        inputs["input_ids"][row, at], inputs["action_mask"][row, at] = ids, action
        inputs["attention_mask"][row, at] = 1
    return inputs


def taken(tensor: Tensor, inputs: Tensors) -> Tensor:
    """What a [B, T] tensor says about the actions, in order: independent of the padding."""
    return tensor[inputs["action_mask"]]


def adapted(name: str) -> Any:
    model = add_adapter(make(name), Lora(rank=4, alpha=8), seed=0).double()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.normal_(0, 0.1, generator=generator)
    return model


def gradient(policy: LanguagePolicy, inputs: Tensors) -> list[Tensor]:
    seen = policy.evaluate(inputs)
    loss = (seen.logp * (1 + seen.entropy.detach())).sum() - 0.3 * seen.entropy.sum()
    return list(torch.autograd.grad(loss, policy.actor_parameters()))


@pytest.mark.parametrize("name", FAMILIES)
def test_every_token_gets_the_log_probability_the_model_gave_it_one_place_before(name: str) -> None:
    model, table = make(name), rows()
    policy = LanguagePolicy(model, temperature=TEMPERATURE, chunk_bytes=4 * VOCABULARY * 7)
    inputs = padded(table)
    seen = policy.evaluate(inputs)
    for row, (ids, action) in enumerate(table):
        full = torch.log_softmax(model(ids[None]).logits[0].double() / TEMPERATURE, -1)
        for t in range(1, len(ids)):
            logp, entropy = full[t - 1, ids[t]], -(full[t - 1].exp() * full[t - 1]).sum()
            wanted = (logp, entropy) if action[t] else (torch.zeros(()), torch.zeros(()))
            assert abs(seen.logp[row, t] - wanted[0]) < 1e-10
            assert abs(seen.entropy[row, t] - wanted[1]) < 1e-10
    assert seen.logp[~inputs["action_mask"]].eq(0).all()
    assert seen.value is None


@pytest.mark.parametrize("name", FAMILIES)
def test_padding_changes_neither_values_nor_gradients_by_a_bit(name: str) -> None:
    policy, table = LanguagePolicy(make(name)), rows()
    inputs = padded(table)
    logp, wanted = taken(policy.evaluate(inputs).logp, inputs), gradient(policy, inputs)
    for other in (padded(table, "left"), padded(table, "right", 5, filler=-100), padded(table, "left", 3, filler=7)):
        assert torch.equal(taken(policy.evaluate(other).logp, other), logp)
        assert all(torch.equal(a, b) for a, b in zip(gradient(policy, other), wanted, strict=True))


@pytest.mark.parametrize("name", FAMILIES)
def test_rows_alone_and_rows_together_give_the_same_gradient(name: str) -> None:
    policy, table = LanguagePolicy(make(name)), rows()
    whole = gradient(policy, padded(table))
    alone = [gradient(policy, padded([row])) for row in table]
    for number, wanted in enumerate(whole):
        # Norms and Gemma's attention compute in single precision whatever they are given.
        torch.testing.assert_close(sum(part[number] for part in alone), wanted, rtol=1e-5, atol=1e-5)


def batch_of(policy: LanguagePolicy, inputs: dict[str, Tensor]) -> Batch:
    """A batch in which all terms of the loss act; what it says of a token does not depend on the padding."""
    with torch.no_grad():
        seen = policy.evaluate(inputs)
        reference = policy.reference_logp(inputs)
    mask = inputs["action_mask"]
    noise = mask.double().masked_scatter(mask, torch.linspace(-0.3, 0.3, int(mask.sum())).double())
    advantages = torch.linspace(-1, 1, len(mask)).double()[:, None] * mask
    batch = Batch(inputs, mask, seen.logp + noise, advantages, denominator=float(mask.sum()), reference_logp=reference)
    if seen.value is None:
        return batch
    return replace(batch, returns=noise + 1, values=seen.value)


def update(
    policy: LanguagePolicy, batch: Batch, size: int, **changes: Any
) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Weights and metrics after one optimiser step in micro-batches of `size` rows."""
    cfg = TrainingConfig.from_dict({
        "learning_rate": 0.05, "lr_scheduler_type": "constant", "warmup_ratio": 0.0, "adam_epsilon": 1.0,
        "per_device_train_batch_size": size, "gradient_accumulation_steps": -(-batch.rows // size),
        "max_grad_norm": 1e9, "beta": 0.1, "entropy_coef": 0.01, "value_coef": 0.5,
        "use_reference_model": True, **changes,
    })  # fmt: skip
    metrics = Learner(policy, cfg).update(batch)
    return {name: tensor.clone() for name, tensor in policy.state_dict().items()}, metrics


@pytest.mark.parametrize("kind", ["full", "lora"])
@pytest.mark.parametrize("name", ["qwen2", "gpt2"])
def test_micro_batches_and_padding_leave_the_learners_step_unchanged(name: str, kind: str) -> None:
    made = adapted(name) if kind == "lora" else make(name)
    results = []
    for size, side in ((6, "right"), (1, "right"), (4, "left"), (3, "right")):
        policy = LanguagePolicy(copy.deepcopy(made), critic=True, reference=True)
        assert policy.value_head is not None
        policy.value_head.double()
        before = policy.state_dict()["value_head.out.weight"].clone()
        results.append(update(policy, batch_of(policy, padded(rows(), side, extra=size)), size))
        assert not torch.equal(results[-1][0]["value_head.out.weight"], before)
    (weights, metrics), *others = results
    for changed, numbers in others:
        for key, tensor in weights.items():
            torch.testing.assert_close(changed[key], tensor, rtol=1e-9, atol=1e-10)
        assert numbers == pytest.approx(metrics, rel=1e-8, abs=1e-10)


@pytest.mark.parametrize("name", FAMILIES)
def test_with_the_adapter_off_the_model_is_its_own_reference(name: str) -> None:
    plain, model, inputs = make(name), adapted(name), padded(rows())
    policy = LanguagePolicy(model, temperature=TEMPERATURE)
    wanted = LanguagePolicy(plain, temperature=TEMPERATURE).evaluate(inputs).logp
    assert torch.equal(policy.reference_logp(inputs), wanted)
    assert (policy.evaluate(inputs).logp - wanted).abs().max() > 0.01, "the adapter must be on again"
    assert len(policy.actor_parameters()) == sum("lora_" in n for n, _ in model.named_parameters())


def test_lora_off_and_a_frozen_copy_give_the_same_step() -> None:
    results = []
    for kind in ("adapter off", "frozen copy"):
        policy = LanguagePolicy(adapted("llama"))
        batch = batch_of(policy, padded(rows()))
        if kind == "frozen copy":
            second = LanguagePolicy(make("llama"), reference=True)
            batch = replace(batch, reference_logp=second.reference_logp(batch.inputs))
        results.append(update(policy, batch, 2))
    assert results[0][1] == results[1][1]
    assert all(torch.equal(results[0][0][name], results[1][0][name]) for name in results[0][0])
    assert results[0][1]["policy/reference_kl"] > 1e-3


def test_the_reference_stays_where_it_was_while_the_policy_moves() -> None:
    for policy in (LanguagePolicy(make("qwen2"), reference=True), LanguagePolicy(adapted("qwen2"))):
        inputs = padded(rows())
        reference, before = policy.reference_logp(inputs), policy.evaluate(inputs).logp.detach()
        update(policy, batch_of(policy, inputs), 6)
        assert torch.equal(policy.reference_logp(inputs), reference)
        assert (policy.evaluate(inputs).logp - before).abs().max() > 1e-3
        assert policy.version == 1


def test_an_untrained_policy_is_its_reference_at_any_temperature() -> None:
    policy, inputs = LanguagePolicy(make("qwen2"), temperature=TEMPERATURE, reference=True), padded(rows())
    assert torch.equal(policy.reference_logp(inputs), policy.evaluate(inputs).logp)


def test_without_a_reference_there_is_none_to_ask() -> None:
    with pytest.raises(ContractError, match="has no reference"):
        LanguagePolicy(make("qwen2")).reference_logp(padded(rows()))


@pytest.mark.parametrize("kind", ["full", "lora"])
@pytest.mark.parametrize("name", FAMILIES)
def test_gradient_checkpointing_recomputes_layers_and_changes_nothing(name: str, kind: str) -> None:
    model, inputs = adapted(name) if kind == "lora" else make(name), padded(rows())
    policy = LanguagePolicy(model)
    wanted = gradient(policy, inputs)
    norms = [m for n, m in model.named_modules() if n.endswith(("input_layernorm", "ln_1"))]
    calls: list[nn.Module] = []
    for norm in norms:
        norm.register_forward_pre_hook(lambda module, _: calls.append(module))
    gradient(policy, inputs)
    assert len(calls) == len(norms) == 2
    inner = model.get_base_model() if kind == "lora" else model
    inner.gradient_checkpointing_enable({"use_reentrant": False})
    calls.clear()
    for ours, theirs in zip(gradient(policy, inputs), wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    assert len(calls) == 4
    assert not any(module.training for module in model.modules())


def test_dropout_is_off_even_where_a_recomputing_layer_would_apply_it() -> None:
    torch.manual_seed(0)
    shape = {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "ffn_dim": 32, "num_hidden_layers": 2}
    model = OPTForCausalLM(OPTConfig(**shape, num_attention_heads=2, word_embed_proj_dim=WIDTH, dropout=0.5))
    model.gradient_checkpointing_enable({"use_reentrant": False})
    policy, inputs = LanguagePolicy(model.train()), padded(rows())
    assert torch.equal(policy.evaluate(inputs).logp, policy.evaluate(inputs).logp)


def test_values_belong_to_the_state_before_the_token_and_do_not_touch_the_model() -> None:
    policy = LanguagePolicy(make("qwen2"), critic=True)
    for inputs in (padded(rows()), padded(rows(), "left", extra=2)):
        seen, prefixes = policy.evaluate(inputs), policy.values(inputs)
        assert seen.value is not None
        mask = inputs["action_mask"]
        torch.testing.assert_close(seen.value[:, 1:][mask[:, 1:]], prefixes[:, :-1][mask[:, 1:]])
        assert seen.value[~mask].eq(0).all()
        assert prefixes[inputs["attention_mask"] == 0].eq(0).all()
        assert prefixes[inputs["attention_mask"] == 1].ne(0).all()
    seen.value.sum().backward()
    assert all(p.grad is None for p in policy.actor_parameters())
    assert all(p.grad is not None for p in policy.critic_parameters())


def test_the_value_heads_first_weights_depend_on_the_seed_alone() -> None:
    model = make("qwen2")
    state = torch.random.get_rng_state()
    heads = [LanguagePolicy(model, critic=True, seed=seed).value_head for seed in (0, 0, 1)]
    first, same, other = (head.hidden.weight for head in heads if head is not None)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("kind", ["full", "lora"])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_state_survives_safetensors_and_restores_the_policy(name: str, kind: str, tmp_path: Path) -> None:
    def fresh() -> LanguagePolicy:
        model = add_adapter(make(name), Lora(rank=4), seed=0) if kind == "lora" else make(name)
        return LanguagePolicy(model, critic=True, reference=True)

    policy, inputs = fresh(), padded(rows())
    with torch.no_grad():
        for parameter in [*policy.actor_parameters(), *policy.critic_parameters()]:
            parameter.add_(0.1)
    save_file(policy.state_dict(), tmp_path / "model.safetensors")
    state, again = load_file(tmp_path / "model.safetensors"), fresh()
    assert (policy.evaluate(inputs).logp - again.evaluate(inputs).logp).abs().max() > 1e-3
    again.load_state_dict(state)
    assert torch.equal(policy.evaluate(inputs).logp, again.evaluate(inputs).logp)
    assert torch.equal(policy.values(inputs), again.values(inputs))
    assert torch.equal(policy.reference_logp(inputs), again.reference_logp(inputs))
    weights = sum(t.numel() for n, t in state.items() if n.startswith("model."))
    assert weights == sum(p.numel() for p in policy.actor_parameters()), "tied weights once, frozen ones not at all"


def test_a_foreign_state_is_refused() -> None:
    policy = LanguagePolicy(make("qwen2"))
    state = policy.state_dict()
    with pytest.raises(ContractError, match="unknown weight model.more"):
        policy.load_state_dict({**state, "model.more": torch.zeros(1)})
    with pytest.raises(ContractError, match=r"\[2\], not \[16\]"):
        policy.load_state_dict({**state, "model.model.norm.weight": torch.zeros(2)})
    del state["model.model.norm.weight"]
    with pytest.raises(ContractError, match="lacks model.model.norm.weight"):
        policy.load_state_dict(state)


class OddScale(GPT2LMHeadModel):
    """Multiplies its logits by something no config names."""

    factor = 1.5

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        seen = super().forward(*args, **kwargs)
        seen.logits = self.factor * seen.logits
        return seen


def odd_scale() -> Any:
    return OddScale(gpt2().config)


def slightly_odd_scale() -> Any:
    model = odd_scale()
    model.factor = 1.01
    return model


class OddProjection(GPT2LMHeadModel):
    """Projects once more between the decoder and the head."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.projection, self.lm_head = nn.Linear(WIDTH, 4), nn.Linear(4, VOCABULARY)

    def forward(self, input_ids: Tensor | None = None, **_: Any) -> Any:
        seen = self.transformer(input_ids=input_ids, output_hidden_states=True)
        seen.logits = self.lm_head(self.projection(seen.last_hidden_state))
        return seen


def odd_projection() -> Any:
    config = gpt2().config
    config.tie_word_embeddings = False
    return OddProjection(config)


def odd_head() -> Any:
    model = FAMILIES["qwen2"]()
    model.lm_head = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, VOCABULARY))
    return model


@pytest.mark.parametrize("build", [odd_scale, slightly_odd_scale, odd_head, odd_projection])
def test_a_head_that_is_not_a_matrix_is_noticed_and_still_right(
    build: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(0)
    model, inputs = build().double().eval(), padded(rows(), "left")
    with caplog.at_level(logging.WARNING):
        policy = LanguagePolicy(model, temperature=TEMPERATURE, critic=True, chunk_bytes=4 * VOCABULARY * 7)
    assert "is not a plain linear layer" in caplog.text
    table, seen = rows(), policy.evaluate(inputs)
    plain = [torch.log_softmax(model(ids[None]).logits[0] / TEMPERATURE, -1) for ids, _ in table]
    wanted = torch.cat([p[:-1].gather(1, ids[1:, None])[:, 0][a[1:]] for p, (ids, a) in zip(plain, table, strict=True)])
    torch.testing.assert_close(taken(seen.logp, inputs), wanted)
    assert seen.value is not None
    torch.testing.assert_close(taken(seen.value, inputs), policy.values(inputs).roll(1, 1)[inputs["action_mask"]])
    theirs = torch.autograd.grad(wanted.sum(), policy.actor_parameters())
    torch.testing.assert_close(torch.autograd.grad(seen.logp.sum(), policy.actor_parameters()), theirs)


def test_the_usual_heads_give_no_notice(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for name in FAMILIES:
            LanguagePolicy(make(name))
            LanguagePolicy(FAMILIES[name]().bfloat16())
    assert caplog.text == ""


def test_bfloat16_autocast_trains_and_stays_near_single_precision() -> None:
    model, inputs = make("llama").float(), padded(rows())
    policy = LanguagePolicy(model)
    single = policy.evaluate(inputs).logp
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = policy.evaluate(inputs).logp
    assert half.dtype == torch.float32
    assert 0 < (half - single).abs().max() < 0.2
    half.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in policy.actor_parameters())


def test_a_batch_without_actions_is_all_zero_and_can_be_learned_from() -> None:
    policy, inputs = LanguagePolicy(make("qwen2")), padded(rows())
    inputs["action_mask"] = torch.zeros_like(inputs["action_mask"])
    seen = policy.evaluate(inputs)
    assert seen.logp.eq(0).all()
    assert seen.entropy.eq(0).all()
    (seen.logp.sum() + seen.entropy.sum()).backward()


def test_inputs_that_cannot_be_meant_are_refused() -> None:
    policy, inputs = LanguagePolicy(make("qwen2")), padded(rows())
    with pytest.raises(ContractError, match="action_mask is missing"):
        policy.evaluate({name: inputs[name] for name in ("input_ids", "attention_mask")})
    everything = torch.ones_like(inputs["action_mask"])
    with pytest.raises(ContractError, match="marks padding"):
        policy.evaluate({**inputs, "action_mask": everything})
    with pytest.raises(ContractError, match="row 0 begins with an action"):
        policy.evaluate({**inputs, "action_mask": inputs["attention_mask"].bool()})
    with pytest.raises(ConfigError, match="above 0, not 0"):
        LanguagePolicy(make("qwen2"), temperature=0)
    with pytest.raises(ContractError, match="no value head"):
        policy.values(inputs)


def test_a_value_is_a_hidden_layer_a_relu_and_a_sum() -> None:
    head = ValueHead(2, dropout=0.5).eval()
    with torch.no_grad():
        head.hidden.weight.copy_(torch.tensor([[1.0, 2.0], [-1.0, 0.0]]))
        head.hidden.bias.copy_(torch.tensor([0.0, 0.5]))
        head.out.weight.copy_(torch.tensor([[3.0, 10.0]]))
        head.out.bias.fill_(0.25)
    # relu(1·1 + 2·1) = 3 and relu(−1 + 0.5) = 0; relu(−2) = 0 and relu(2 + 0.5) = 2.5.
    states = torch.tensor([[[1.0, 1.0], [-2.0, 0.0]]], dtype=torch.bfloat16)
    assert head(states).tolist() == [[9.25, 25.25]]
    values = torch.stack([head.train()(states) for _ in range(32)])
    assert values.unique().numel() > 2, "in training, dropout acts"


def test_a_fresh_value_head_predicts_about_nothing() -> None:
    torch.manual_seed(0)
    head = ValueHead(64)
    assert head.dropout.p == 0.1
    assert head.out.bias.item() == 0
    assert head.out.weight.std().item() == pytest.approx(1 / 65, rel=0.3)


def test_a_policy_leaves_the_model_and_its_value_head_in_evaluation_mode() -> None:
    policy = LanguagePolicy(make("qwen2").train(), critic=True)
    assert policy.value_head is not None
    assert not any(module.training for module in (*policy.model.modules(), *policy.value_head.modules()))
    assert policy.value_head.dropout.p == 0
    assert policy.critic_parameters() == list(policy.value_head.parameters())
    assert LanguagePolicy(make("qwen2")).critic_parameters() == []
    assert policy.version == 0


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_no_dropout_is_left_even_if_somebody_trains_the_model_later(name: str) -> None:
    """Llama keeps its dropout as a number of its attention, GPT-2 in layers."""
    torch.manual_seed(0)
    config = FAMILIES[name]().config
    config.update({"attention_dropout": 0.5, "attn_pdrop": 0.5, "resid_pdrop": 0.5, "embd_pdrop": 0.5})
    model = type(FAMILIES[name]())(config).double()
    wanted = model.eval()(torch.arange(9)[None]).logits
    policy = LanguagePolicy(model)
    policy.model.train()
    assert torch.equal(policy.model(torch.arange(9)[None]).logits, wanted)


def test_only_an_adapters_own_dropout_is_kept() -> None:
    model = add_adapter(gpt2(), Lora(rank=2, options={"lora_dropout": 0.5}), seed=0)
    LanguagePolicy(model)
    kept = {name for name, part in model.named_modules() if isinstance(part, nn.Dropout) and part.p > 0}
    assert kept
    assert all(".lora_dropout." in name for name in kept)


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_a_reference_that_is_given_is_the_one_asked(kind: str) -> None:
    inputs, other = padded(rows()), make("llama")
    with torch.no_grad():
        other.model.norm.weight.mul_(1.5)
    given = LanguagePolicy(other, temperature=1.3)
    policy = LanguagePolicy(adapted("llama") if kind == "lora" else make("llama"), reference=given)
    assert policy.reference is given
    assert torch.equal(policy.reference_logp(inputs), given.evaluate(inputs).logp)


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_the_reference_has_the_policys_settings_and_nothing_to_train(kind: str) -> None:
    model = adapted("llama") if kind == "lora" else make("llama")
    policy = LanguagePolicy(model, temperature=TEMPERATURE, reference=True, chunk_bytes=1234)
    assert not policy.reference_logp(padded(rows())).requires_grad
    assert policy.reference is not None
    assert (policy.reference.temperature, policy.reference.chunk_bytes) == (TEMPERATURE, 1234)
    assert kind == "lora" or policy.reference.actor_parameters() == []


def test_values_are_found_wherever_the_padding_is() -> None:
    policy = LanguagePolicy(make("qwen2"), critic=True)
    assert policy.value_head is not None
    ids = torch.randint(1, VOCABULARY, (4, 9), generator=torch.Generator().manual_seed(3))
    there = torch.tensor([[1] * 9, [0, 1, 0, 0, 1, 1, 0, 1, 0], [0] * 9, [0] * 8 + [1]])
    wanted = torch.zeros(4, 9)
    with torch.no_grad():
        for row in range(4):
            if len(tokens := ids[row, there[row] == 1]):
                states = policy.model.model(tokens[None]).last_hidden_state
                wanted[row, there[row] == 1] = policy.value_head(states)[0]
    found = policy.values({"input_ids": ids.masked_fill(there == 0, -100), "attention_mask": there})
    torch.testing.assert_close(found, wanted)
    assert policy.values({"input_ids": ids[2:3], "attention_mask": there[2:3]}).tolist() == [[0.0] * 9]


def test_a_failed_evaluation_leaves_no_layer_in_training_mode() -> None:
    model, inputs = make("llama"), padded(rows())
    policy = LanguagePolicy(model)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    with pytest.raises(IndexError):
        policy.evaluate({**inputs, "input_ids": inputs["input_ids"] + VOCABULARY})
    assert not any(module.training for module in model.modules())


def test_weights_are_loaded_in_place_and_a_refused_state_changes_none() -> None:
    policy = LanguagePolicy(make("llama"), critic=True)
    places = [p.data_ptr() for p in (*policy.actor_parameters(), *policy.critic_parameters())]
    before = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
    assert "model.model.embed_tokens.weight" in before
    assert "model.lm_head.weight" not in before, "tied weights go by their first name"
    assert not any(tensor.requires_grad for tensor in policy.state_dict().values())
    moved = {name: tensor + 1 for name, tensor in before.items()}
    with pytest.raises(ContractError, match=r"norm.weight is \[2\], not \[16\]"):
        policy.load_state_dict({**moved, "model.model.norm.weight": torch.zeros(2)})
    assert all(torch.equal(tensor, before[name]) for name, tensor in policy.state_dict().items())
    policy.load_state_dict(moved)
    assert all(torch.equal(tensor, moved[name]) for name, tensor in policy.state_dict().items())
    assert [p.data_ptr() for p in (*policy.actor_parameters(), *policy.critic_parameters())] == places


@pytest.mark.parametrize("recomputes", [False, True])
def test_an_adapters_dropout_acts_while_learning_alone_even_in_layers_that_are_run_again(recomputes: bool) -> None:
    model = add_adapter(make("llama"), Lora(rank=2, options={"lora_dropout": 0.5}), seed=0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_()
    if recomputes:
        base_model(model).gradient_checkpointing_enable({"use_reentrant": False})
    policy, inputs = LanguagePolicy(model), padded(rows())
    learned = policy.evaluate(inputs).logp
    learned.sum().backward()
    with torch.no_grad():
        shown = policy.evaluate(inputs).logp
        assert torch.equal(shown, policy.evaluate(inputs).logp)
    assert not torch.equal(learned, shown)
