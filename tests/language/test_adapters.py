"""LoRA adapters: which settings make which, and what is left when one is merged or taken away."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError
from groupwise.language import adapters
from groupwise.language.adapters import (
    Lora,
    adapter_dropout,
    add_adapter,
    has_adapter,
    insist_on_frozen_base,
    lora_config,
    lora_of,
    merged_state,
    wanted_lora,
    without_adapter,
)
from groupwise.machine_memory import WEIGHT

SHAPE = {
    "vocab_size": 11, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 16,
}  # fmt: skip
IDS = torch.arange(6)[None]


def llama() -> Any:
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SHAPE)).eval()


def gpt2() -> Any:
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=11, n_positions=16, n_embd=8, n_layer=1, n_head=2)).eval()


def trained(model: Any, lora: Lora) -> Any:
    adapted = add_adapter(model, lora, seed=0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.normal_(0, 0.3, generator=generator)
    return adapted.eval()


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({}, None),
        ({"lora_rank": 8}, Lora(8, 16.0)),
        ({"lora_rank": 8, "lora_alpha": 5.0}, Lora(8, 5.0)),
        ({"lora_rank": 1, "lora_options": {"use_rslora": True}}, Lora(1, 2.0, {"use_rslora": True})),
        ({"lora_alpha": 5.0}, None),
    ],
)
def test_settings_ask_for_an_adapter_with_twice_its_rank_as_scale(settings: Any, wanted: Lora | None) -> None:
    assert wanted_lora(TrainingConfig.from_dict({"product": "language", **settings}).language) == wanted


def test_options_without_a_rank_are_refused() -> None:
    settings = SimpleNamespace(lora_rank=0, lora_alpha=None, lora_options={"use_dora": True})
    with pytest.raises(ConfigError, match="lora_options sets use_dora, but language.lora_rank = 0 trains all weights"):
        wanted_lora(settings)


def test_an_adapter_has_rank_16_and_scale_32_without_dropout_unless_told_otherwise() -> None:
    assert Lora() == Lora(16, 32.0, {})
    plain = lora_config(llama(), Lora(3, 7.0))
    assert (plain.r, plain.lora_alpha, plain.lora_dropout, plain.target_modules) == (3, 7.0, 0.0, "all-linear")
    assert (plain.task_type, plain.fan_in_fan_out, plain.bias) == ("CAUSAL_LM", False, "none")
    assert lora_config(gpt2(), Lora()).fan_in_fan_out, "GPT-2 stores its matrices transposed"
    other = lora_config(llama(), Lora(options={"lora_dropout": 0.3, "target_modules": ("q_proj",)}))
    assert (other.lora_dropout, set(other.target_modules)) == (0.3, {"q_proj"})
    alone = lora_config(llama(), Lora(options={"target_parameters": ("mlp.up_proj.weight",)}))
    assert (alone.target_modules, alone.target_parameters) == (None, ["mlp.up_proj.weight"])


@pytest.mark.parametrize(
    ("name", "given", "taken"),
    [
        ("rank_pattern", ("q_proj=8", " v_proj = 4"), {"q_proj": 8, "v_proj": 4}),
        ("alpha_pattern", ("a=b=1.5",), {"a=b": 1.5}),
        ("rank_pattern", ("q_proj",), ["q_proj"]),
        ("rank_pattern", ("q_proj=8", "v_proj"), ["q_proj=8", "v_proj"]),
        ("layers_to_transform", (0, 1), [0, 1]),
        ("rank_pattern", (), []),
        ("target_modules", ("a=b",), ["a=b"]),
        ("use_dora", True, True),
        ("rank_pattern", {"q_proj": 8}, {"q_proj": 8}),
    ],
)
def test_lists_of_name_and_number_become_tables_where_peft_wants_them(name: str, given: Any, taken: Any) -> None:
    assert adapters._value(name, given) == taken


@pytest.mark.parametrize("name", sorted(adapters.FIXED))
def test_where_an_adapter_comes_from_is_not_a_setting(name: str) -> None:
    with pytest.raises(ConfigError, match=f"sets {name}, which is not a setting of an adapter"):
        lora_config(llama(), Lora(options={name: "x"}))


@pytest.mark.parametrize("name", sorted(adapters.OURS))
def test_what_has_a_setting_of_its_own_is_not_an_option(name: str) -> None:
    with pytest.raises(ConfigError, match=f"sets {name}, which is the setting {adapters.OURS[name]}"):
        lora_config(llama(), Lora(options={name: 4}))


@pytest.mark.parametrize("start", ["pissa", "pissa_niter_4", "olora", "corda", "loftq", "lora_ga"])
def test_first_weights_that_change_the_model_below_are_refused(start: str) -> None:
    with pytest.raises(ConfigError, match=f"init_lora_weights = '{start}' changes the frozen weights too"):
        lora_config(llama(), Lora(options={"init_lora_weights": start}))
    for harmless in (True, False, "gaussian"):
        assert lora_config(llama(), Lora(options={"init_lora_weights": harmless})).init_lora_weights == harmless


@pytest.mark.parametrize(
    ("make", "options", "sides"),
    [
        # q 8×8, k and v 4×8, o 8×8, gate and up 12×8, down 8×12; without a list, the head is counted too.
        (llama, {"target_modules": ("q_proj", "v_proj")}, 16 + 12),
        (llama, {}, 16 + 12 + 12 + 16 + 20 + 20 + 20 + (11 + 8)),
        # GPT-2's own layers: 8×24, 8×8, 8×32 and 32×8.
        (gpt2, {"target_modules": ("c_attn", "c_proj", "c_fc")}, 32 + 16 + 40 + 40),
    ],
)
def test_a_rank_is_refused_from_the_first_one_that_does_not_fit(
    make: Any, options: Any, sides: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every adapted matrix gets two, of rank times each of its sides; a weight takes 16 bytes while it is trained."""
    room = 3 * sides * WEIGHT
    monkeypatch.setattr(adapters, "memory_limit", lambda: room)
    assert has_adapter(add_adapter(make(), Lora(3, options=options), 0))
    for rank in (4, 50):
        with pytest.raises(ConfigError, match=f"lora_rank = {rank} needs at least") as refused:
            add_adapter(make(), Lora(rank, options=options), 0)
        assert "Set it to at most 3;" in refused.value.hint
        assert refused.value.field == "language.lora_rank"
    monkeypatch.setattr(adapters, "memory_limit", lambda: room // 3 - 1)
    with pytest.raises(ConfigError) as refused:
        add_adapter(make(), Lora(1, options=options), 0)
    assert "Set it to at most 1;" in refused.value.hint


def test_what_peft_refuses_comes_with_the_names_of_the_layers() -> None:
    with pytest.raises(ConfigError, match="PEFT cannot put this adapter on LlamaForCausalLM") as refused:
        add_adapter(llama(), Lora(options={"target_modules": ("wq",)}), 0)
    assert refused.value.hint == (
        "Its linear layers are called down_proj, gate_proj, k_proj, lm_head, o_proj, q_proj, up_proj, v_proj."
    )


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("no\nmore"), "no"),
        (KeyError("a"), "KeyError: 'a'"),
        (TypeError(""), "TypeError: no reason given"),
        (ValueError("x" * 400), "x" * 300),
    ],
)
def test_the_reason_is_the_first_line_and_names_what_is_not_a_wrong_value(error: Exception, said: str) -> None:
    assert adapters._reason(error) == said


def test_the_first_weights_follow_the_seed_and_leave_the_global_generator_alone() -> None:
    torch.manual_seed(3)
    state = torch.random.get_rng_state()
    model = llama()
    torch.random.set_rng_state(state)
    first = add_adapter(model, Lora(2), seed=1)
    assert torch.equal(torch.random.get_rng_state(), state)
    again, other = add_adapter(llama(), Lora(2), seed=1), add_adapter(llama(), Lora(2), seed=2)
    drawn = [name for name, _ in first.named_parameters() if "lora_A" in name]
    for name in drawn:
        assert torch.equal(first.get_parameter(name), again.get_parameter(name))
        assert not torch.equal(first.get_parameter(name), other.get_parameter(name))
    assert all(p.eq(0).all() for name, p in first.named_parameters() if "lora_B" in name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("make", [llama, gpt2])
def test_merged_weights_are_the_frozen_ones_plus_the_scaled_product(make: Any, dtype: torch.dtype) -> None:
    model = make().to(dtype)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    adapted = trained(model, Lora(2, alpha=6.0)).to(dtype)
    after = merged_state(adapted)
    assert {n: (t.shape, t.dtype) for n, t in after.items()} == {n: (t.shape, t.dtype) for n, t in before.items()}
    parts = {name.replace("base_model.model.", ""): p for name, p in adapted.named_parameters() if "lora_" in name}
    changed = set()
    for name in parts:
        if "lora_A" in name:
            own = name.replace(".lora_A.default", "")
            change = 6.0 / 2 * parts[name.replace("lora_A", "lora_B")].float() @ parts[name].float()
            change = change.T if make is gpt2 else change
            wanted = (before[own].float() + change).to(dtype)
            if dtype == torch.float32:
                torch.testing.assert_close(after[own], wanted, rtol=1e-6, atol=1e-6)
            else:  # summed in full precision and rounded once; another order of sums may tip one number at most
                assert (after[own] != wanted).sum() <= 1
            changed.add(own)
    assert len(changed) == (7 if make is llama else 4)
    for name in before.keys() - changed:
        assert torch.equal(after[name], before[name])
    below = {name: t for name, t in adapted.state_dict().items() if "lora_" not in name}
    assert all(torch.equal(t, before[n.removeprefix("base_model.model.").replace(".base_layer.", ".")])
               for n, t in below.items()), "the model itself is not touched"  # fmt: skip
    after["lm_head.weight"].zero_()
    assert adapted.get_base_model().lm_head.weight.ne(0).any(), "and shares nothing with the result"


def test_whole_modules_of_an_adapter_are_merged_and_left_out() -> None:
    model = llama().bfloat16()
    frozen = model.model.norm.weight.clone()
    adapted = trained(model, Lora(2, options={"modules_to_save": ("norm",)}))
    trained_norm = adapted.get_parameter("base_model.model.model.norm.modules_to_save.default.weight").detach()
    after = merged_state(adapted)
    assert after["model.norm.weight"].dtype == torch.bfloat16
    assert torch.equal(after["model.norm.weight"], trained_norm)
    below = without_adapter(adapted)
    assert torch.equal(below.model.norm.weight, frozen)
    assert torch.equal(below(IDS).logits, llama().bfloat16()(IDS).logits)


def test_the_model_below_is_in_evaluation_mode_and_copies_no_buffer_either() -> None:
    adapted = trained(llama(), Lora(2)).train()
    below = without_adapter(adapted)
    assert not any(module.training for module in below.modules())
    assert all(module.training for module in adapted.modules())
    own = {tensor.data_ptr() for tensor in (*adapted.parameters(), *adapted.buffers())}
    assert {tensor.data_ptr() for tensor in (*below.parameters(), *below.buffers())} <= own
    assert list(below.buffers())


@pytest.mark.parametrize("where", ["adapter", "model"])
def test_quantised_weights_are_not_merged(where: str) -> None:
    adapted = trained(llama(), Lora(2))
    (adapted if where == "adapter" else adapted.get_base_model()).is_quantized = True
    with pytest.raises(ConfigError, match="cannot be merged into quantised weights"):
        merged_state(adapted)


def test_the_settings_of_an_adapter_can_be_asked_of_its_model() -> None:
    assert lora_of(llama()) is None
    assert not has_adapter(llama())
    assert lora_of(add_adapter(llama(), Lora(3, 5.0), 0)) == Lora(3, 5.0)


def test_the_dropout_of_an_adapter_is_found_where_there_is_one() -> None:
    assert adapter_dropout(add_adapter(gpt2(), Lora(2), 0)) == []
    found = adapter_dropout(add_adapter(gpt2(), Lora(2, options={"lora_dropout": 0.25}), 0))
    assert [part.p for part in found if isinstance(part, nn.Dropout)] == [0.25] * 4


@pytest.mark.parametrize("bias", ["all", "lora_only"])
def test_trained_biases_are_no_reference(bias: str) -> None:
    insist_on_frozen_base(add_adapter(gpt2(), Lora(2), 0))
    with pytest.raises(ConfigError, match=f"bias = '{bias}' trains the model's own biases"):
        insist_on_frozen_base(add_adapter(gpt2(), Lora(2, options={"bias": bias}), 0))


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (r".*\.(q|v)_proj", ["q_proj", "v_proj"]),
        ("q_proj", []),
        (r".*q_proj|.*mlp", ["q_proj", "mlp"]),
        (r".*q_pro", []),
        ("model|lm_head", ["model", "lm_head"]),
        (r"self_attn.*", []),
    ],
)
def test_a_pattern_must_match_the_whole_name_of_a_module(pattern: str, found: list[str]) -> None:
    names = adapters._matching(llama(), pattern)
    assert [name.rpartition(".")[2] for name in names] == found
    assert all(re.fullmatch(pattern, name) for name in names)
