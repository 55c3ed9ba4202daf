"""Loading and saving models: what works, and the one sentence for what does not."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
import torch
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from groupwise.errors import ConfigError, MissingExtra
from groupwise.language import loading, model_lookup
from groupwise.language.adapters import Lora, without_adapter
from groupwise.language.engine import Engine, SamplingParams
from groupwise.language.loading import LanguageModel, load_model, merged, prepare, save_model
from groupwise.language.model_files import REST
from groupwise.language.policy import LanguagePolicy
from groupwise.language.tiny import character_tokenizer

TOKENIZER = character_tokenizer()
SHAPE = {
    "vocab_size": len(TOKENIZER), "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1,
}  # fmt: skip
FAMILIES: dict[str, Callable[[], Any]] = {
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SHAPE)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE, tie_word_embeddings=True)),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=len(TOKENIZER), n_embd=16, n_layer=2, n_head=2)),
    "gemma2": lambda: Gemma2ForCausalLM(Gemma2Config(**SHAPE, head_dim=8)),
}
IDS = TOKENIZER("1 + 1 = 2", return_tensors="pt").input_ids


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., Path]:
    """Writes a small model of a family, and its tokenizer, to a folder."""

    def save(family: str = "qwen2", name: str = "model", tokenizer: Any = TOKENIZER) -> Path:
        torch.manual_seed(0)
        folder = tmp_path / name
        FAMILIES[family]().save_pretrained(folder)
        if tokenizer is not None:
            tokenizer.save_pretrained(folder)
        return folder

    return save


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_lookup, "_answers", lambda endpoint: False)


def shaken(language: LanguageModel) -> LanguageModel:
    """As if trained: every weight that learns has moved."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in language.model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return language


def test_the_tiny_model_needs_only_its_name() -> None:
    language = load_model("tiny")
    assert not language.model.training
    assert language.name == "tiny"
    seven, again = load_model("tiny", seed=7), load_model("tiny@7")
    assert seven.name == again.name == "tiny@7"
    assert torch.equal(seven.model(IDS).logits, again.model(IDS).logits)
    assert not torch.equal(seven.model(IDS).logits, language.model(IDS).logits)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_loads_as_it_was_saved(family: str, saved: Callable[..., Path]) -> None:
    folder = saved(family)
    language = load_model(str(folder))
    assert torch.equal(language.model(IDS).logits, AutoModelForCausalLM.from_pretrained(folder)(IDS).logits)
    assert language.tokenizer("a b").input_ids == TOKENIZER("a b").input_ids
    assert {p.dtype for p in load_model(str(folder), dtype=torch.bfloat16).model.parameters()} == {torch.bfloat16}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_fresh_adapter_changes_nothing_and_covers_every_linear_layer(family: str, saved: Callable[..., Path]) -> None:
    folder = str(saved(family))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain, language = load_model(folder), load_model(folder, lora=Lora(rank=4), seed=5)
    assert torch.equal(language.model(IDS).logits, plain.model(IDS).logits)
    linear = [
        n for n, m in plain.model.named_modules() if type(m).__name__ in ("Linear", "Conv1D") and "lm_head" not in n
    ]
    trained = [n for n, p in language.model.named_parameters() if p.requires_grad]
    assert len(trained) == 2 * len(linear)
    assert all("lora_" in name for name in trained)
    torch.manual_seed(99)
    twin = load_model(folder, lora=Lora(rank=4), seed=5)
    for a, b in zip(language.model.parameters(), twin.model.parameters(), strict=True):
        assert torch.equal(a, b), "an adapter depends on its seed alone"


@pytest.mark.parametrize("kind", ["full", "lora"])
@pytest.mark.parametrize("family", FAMILIES)
def test_merged_weights_load_with_transformers_alone(
    family: str, kind: str, saved: Callable[..., Path], tmp_path: Path
) -> None:
    lora = Lora(rank=4) if kind == "lora" else None
    language = shaken(load_model(str(saved(family)), lora=lora))
    before = [p.clone() for p in language.model.parameters()]
    save_model(language, tmp_path / "out")
    model, report = AutoModelForCausalLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    torch.testing.assert_close(model(IDS).logits, language.model(IDS).logits, rtol=1e-4, atol=1e-5)
    assert (model(IDS).logits - plain(IDS).logits).abs().max() > 1e-2
    assert AutoTokenizer.from_pretrained(tmp_path / "out")("a").input_ids == TOKENIZER("a").input_ids
    after = language.model.parameters()
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True)), "saving changes nothing"


@pytest.mark.parametrize("name", ["tiny@3", "folder"])
def test_an_adapter_is_saved_alone_and_finds_its_model_again(
    name: str, saved: Callable[..., Path], tmp_path: Path
) -> None:
    language = shaken(load_model(str(saved()) if name == "folder" else name, lora=Lora(rank=4)))
    save_model(language, tmp_path / "adapter", merged=False)
    assert not (tmp_path / "adapter" / "config.json").exists()
    again = load_model(str(tmp_path / "adapter"))
    assert torch.equal(again.model(IDS).logits, language.model(IDS).logits)
    assert any(p.requires_grad for p in again.model.parameters())
    inputs = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS), "action_mask": torch.arange(9)[None] > 3}
    first, second = LanguagePolicy(language.model), LanguagePolicy(again.model)
    assert torch.equal(first.reference_logp(inputs), second.reference_logp(inputs))


def test_a_model_without_an_adapter_has_none_to_save(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'tiny' has no adapter to save"):
        save_model(load_model("tiny"), tmp_path, merged=False)


def test_a_rank_that_cannot_fit_into_memory_is_refused_with_the_limit() -> None:
    with pytest.raises(
        ConfigError, match=r"language.lora_rank = 1000000000 needs at least .* this machine allows"
    ) as no:
        load_model("tiny", lora=Lora(rank=10**9))
    assert "8 to 64 is usual" in no.value.hint


def test_gradient_checkpointing_is_switched_on_under_an_adapter_too() -> None:
    for lora in (None, Lora(rank=2)):
        model = load_model("tiny", lora=lora, gradient_checkpointing=True).model
        assert sum(getattr(m, "gradient_checkpointing", False) for m in model.modules()) >= 4


def test_a_hub_name_out_of_reach_says_what_to_do(
    saved: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(name="Qwen3-0.6B-local")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        load_model("Qwen/Qwen3-0.6B")
    assert caught.value.message == (
        "model 'Qwen/Qwen3-0.6B' is not on this machine, and the Hugging Face hub cannot be reached"
    )
    assert caught.value.hint == (
        "Did you mean 'Qwen3-0.6B-local'? Name the folder of a downloaded model, or use model_name='tiny', which "
        "needs no download."
    )


@pytest.mark.parametrize("name", ["./nowhere", "/no/such/folder", "a/b/c", "~/nowhere", " "])
def test_a_folder_that_is_not_there_is_not_looked_for_on_the_hub(name: str) -> None:
    with pytest.raises(ConfigError, match="^model folder '.*' does not exist"):
        load_model(name)


def test_a_misspelt_folder_is_guessed(saved: Callable[..., Path]) -> None:
    folder = saved(name="my-model")
    with pytest.raises(ConfigError) as caught:
        load_model(str(folder.parent / "my-modle"))
    assert f"Did you mean '{folder}'?" in caught.value.hint


def test_folders_that_lack_something_say_what(saved: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="is not a model: it has no config.json"):
        load_model(str(tmp_path / "empty"))
    with pytest.raises(ConfigError, match="has a model but no tokenizer"):
        load_model(str(saved(name="mute", tokenizer=None)))
    weightless = saved(name="weightless")
    (weightless / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match="'.*weightless' cannot be used: there are no weights .model.safetensors"):
        load_model(str(weightless))
    broken = saved(name="broken")
    (broken / "config.json").write_text("{")
    with pytest.raises(ConfigError, match="'.*broken' cannot be used: config.json"):
        load_model(str(broken))


def test_code_in_a_model_folder_never_runs_even_if_the_user_would_agree(
    saved: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, ran = saved("llama"), tmp_path / "ran"
    settings = json.loads((folder / "config.json").read_text())
    settings |= {"model_type": "custom", "auto_map": {"AutoConfig": "code.C", "AutoModelForCausalLM": "code.M"}}
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "code.py").write_text(f"open({str(ran)!r}, 'w')\n")
    monkeypatch.setattr("builtins.input", lambda *asked: "y")
    with pytest.raises(ConfigError, match="which is never run"):
        load_model(str(folder))
    assert not ran.exists()


def test_weights_of_another_shape_are_not_filled_up_with_random_ones(saved: Callable[..., Path]) -> None:
    folder = saved()
    config = json.loads((folder / "config.json").read_text())
    layers = {"num_hidden_layers": 3, "layer_types": ["full_attention"] * 3}
    (folder / "config.json").write_text(json.dumps({**config, **layers}))
    with pytest.raises(ConfigError, match=r"incomplete: 1\d are missing, for example model.layers.2"):
        load_model(str(folder))


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(saved: Callable[..., Path]) -> None:
    larger = character_tokenizer()
    larger.add_tokens(["<more>", "<and more>"])
    with pytest.raises(ConfigError, match="do not belong together: 106 tokens, but 104 rows of embeddings"):
        load_model(str(saved(tokenizer=larger)))
    # As many tokens as rows, but with a gap in their numbers.
    folder = saved(name="gap")
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text())
    content["model"]["vocab"]["a"] = 150
    file.write_text(json.dumps(content))
    with pytest.raises(ConfigError, match="do not belong together: 151 tokens, but 104 rows of embeddings"):
        load_model(str(folder))


def test_a_tokenizer_without_pad_token_pads_with_its_end_token(
    saved: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    bare = character_tokenizer()
    bare.pad_token = None
    folder = str(saved(tokenizer=bare))
    with caplog.at_level(logging.WARNING):
        language = load_model(folder)
    assert "has no pad token; using '<|end|>' instead" in caplog.text
    assert language.tokenizer.pad_token_id == language.model.config.pad_token_id == TOKENIZER.eos_token_id
    bare.eos_token = None
    with pytest.raises(ConfigError, match="neither a pad nor an end token"):
        load_model(str(saved(tokenizer=bare)))


def test_quantised_loading_says_what_it_needs(monkeypatch: pytest.MonkeyPatch, saved: Callable[..., Path]) -> None:
    folder = str(saved())
    with pytest.raises(ConfigError, match="quantised weights cannot be trained"):
        load_model(folder, quantization="4bit")
    monkeypatch.setattr("groupwise.language.loading.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="needs bitsandbytes"):
        load_model(folder, quantization="8bit", lora=Lora())


def test_without_the_extra_the_command_that_installs_it_is_named() -> None:
    with pytest.raises(MissingExtra) as caught:
        model_lookup.import_extra("no_such_library")
    assert caught.value.hint == "pip install 'groupwise[language]'"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_not_used_silently() -> None:
    with pytest.raises(ConfigError, match="torch finds no GPU"):
        load_model("tiny", device="cuda")


def test_targets_that_no_layer_has_are_answered_with_those_it_has() -> None:
    with pytest.raises(ConfigError, match="wq.* not found in the base model") as caught:
        load_model("tiny", lora=Lora(options={"target_modules": ["wq"]}))
    assert "q_proj" in caught.value.hint
    model = load_model("tiny", lora=Lora(options={"target_modules": ["q_proj", "v_proj"]})).model
    assert sum(isinstance(m, nn.ModuleDict) and bool(m) for n, m in model.named_modules() if n.endswith("lora_A")) == 8


@pytest.mark.parametrize("terminal", [False, True])
def test_transformers_shows_no_bars_of_its_own(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal, raising=False)
    folder = save_model(load_model("tiny"), tmp_path / "model")
    load_model(str(folder))
    assert capfd.readouterr().err == ""


ADAPTERS: dict[str, dict[str, Any]] = {
    "dora": {"use_dora": True, "target_modules": ("q_proj", "v_proj")},
    "rslora with patterns": {"use_rslora": True, "rank_pattern": ("q_proj=8",), "alpha_pattern": ("v_proj=3",)},
    "whole modules": {"modules_to_save": ("lm_head", "norm")},
    "biases": {"bias": "all", "lora_bias": True, "target_modules": ("q_proj", "v_proj")},
    "gaussian": {"init_lora_weights": "gaussian", "target_modules": r".*\.(q|up)_proj"},
    "some layers": {"layers_to_transform": (1,), "target_modules": ("q_proj", "up_proj")},
    "some tokens": {"trainable_token_indices": (3, 5)},
}


@pytest.mark.parametrize("kind", ADAPTERS)
def test_every_kind_of_adapter_is_sampled_saved_loaded_and_merged_alike(
    kind: str, saved: Callable[..., Path], tmp_path: Path
) -> None:
    folder, ids = str(saved()), torch.arange(3, 15)[None]
    plain = load_model(folder).model
    language = load_model(folder, lora=Lora(rank=4, options=ADAPTERS[kind]), seed=5)
    with torch.no_grad():
        for parameter in language.model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.1)
        wanted = language.model(ids).logits
        assert not torch.allclose(wanted, plain(ids).logits, atol=1e-3)
        alone = load_model(str(save_model(language, tmp_path / "adapter", merged=False))).model
        whole = load_model(str(save_model(language, tmp_path / "merged"))).model
        for twin in (alone, whole):
            assert torch.allclose(twin(ids).logits, wanted, atol=1e-5)
        if kind != "biases":
            assert torch.allclose(without_adapter(language.model)(ids).logits, plain(ids).logits, atol=1e-6)
    prompt = ids[0].tolist()
    for copy_weights in (True, False):
        engine = Engine(language.model, eos=(), copy_weights=copy_weights)
        result = engine.generate([(prompt, 0)], SamplingParams(max_new_tokens=6))[0]
        with torch.no_grad():
            logits = language.model(torch.tensor([prompt + result.ids.tolist()])).logits[0, len(prompt) - 1 : -1]
        expected = logits.log_softmax(-1).gather(1, torch.from_numpy(result.ids)[:, None])[:, 0]
        assert torch.allclose(expected, torch.from_numpy(result.logp), atol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"use_dorra": True}, "use_dorra, which is not a setting"),
        ({"r": 3}, "sets r, which is the setting language.lora_rank"),
        ({"bias": "some"}, "PEFT .*bias"),
        ({"lora_bias": True, "init_lora_weights": "gaussian"}, "PEFT refuses .* lora_bias=True is only supported with"),
        ({"init_lora_weights": "pissa"}, "'pissa' changes the frozen weights"),
        ({"megatron_core": "os"}, "megatron_core, which is not a setting"),
    ],
)
def test_an_adapter_that_cannot_be_is_refused_with_the_reason(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_model("tiny", lora=Lora(options=options))


def test_dropout_of_an_adapter_acts_only_while_it_learns() -> None:
    language = load_model("tiny", lora=Lora(rank=4, options={"lora_dropout": 0.5}))
    policy = LanguagePolicy(language.model)
    with torch.no_grad():
        for parameter in policy.actor_parameters():
            parameter.normal_(0, 0.3)
    ids = torch.arange(3, 15)[None]
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "action_mask": ids > 5}
    with torch.no_grad():
        assert torch.equal(policy.evaluate(inputs).logp, policy.evaluate(inputs).logp)
    assert not torch.equal(policy.evaluate(inputs).logp, policy.evaluate(inputs).logp)
    with torch.no_grad():
        assert torch.equal(policy.evaluate(inputs).logp, policy.evaluate(inputs).logp)


def test_a_model_whose_biases_are_trained_is_not_its_own_reference() -> None:
    language = load_model("tiny", lora=Lora(rank=2, options={"bias": "all"}))
    with pytest.raises(ConfigError, match="cannot be its own reference"):
        LanguagePolicy(language.model, reference=True)
    given = LanguagePolicy(load_model("tiny").model)
    assert LanguagePolicy(language.model, reference=given).reference is given, "another model may be"


@pytest.mark.parametrize("bits", ["8bit", "4bit"])
def test_an_adapter_learns_over_quantised_weights(bits: Any, saved: Callable[..., Path], tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    language = load_model(str(saved()), quantization=bits, lora=Lora(rank=4))
    policy, ids = LanguagePolicy(language.model), torch.arange(3, 15)[None]
    optimiser = torch.optim.Adam(policy.actor_parameters(), 1e-2)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "action_mask": ids > 5}
    found = []
    for _ in range(3):
        loss = -policy.evaluate(inputs).logp.sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        found.append(float(loss.detach()))
    assert found[0] > found[1] > found[2]
    prompt = ids[0].tolist()
    result = Engine(language.model, eos=()).generate([(prompt, 0)], SamplingParams(max_new_tokens=5))[0]
    with torch.no_grad():
        logits = language.model(torch.tensor([prompt + result.ids.tolist()])).logits[0, len(prompt) - 1 : -1]
    expected = logits.float().log_softmax(-1).gather(1, torch.from_numpy(result.ids)[:, None])[:, 0]
    assert torch.allclose(expected, torch.from_numpy(result.logp), atol=1e-3)
    save_model(language, tmp_path / "adapter", merged=False)
    with pytest.raises(ConfigError, match="cannot be merged into quantised weights"):
        save_model(language, tmp_path / "merged")


def test_an_adapter_is_merged_for_good_and_a_plain_model_stays_itself() -> None:
    plain, adapted = load_model("tiny"), shaken(load_model("tiny", lora=Lora(rank=2)))
    assert merged(plain) is plain
    wanted = adapted.model(IDS).logits
    whole = merged(adapted)
    assert (whole.name, whole.tokenizer) == (adapted.name, adapted.tokenizer)
    assert not hasattr(whole.model, "peft_config")
    torch.testing.assert_close(whole.model(IDS).logits, wanted, rtol=1e-3, atol=1e-3)
    assert (wanted - plain.model(IDS).logits).abs().max() > 0.01


def test_a_model_is_prepared_once_and_moved_only_where_it_is_wanted() -> None:
    language = load_model("tiny", lora=Lora(rank=2), seed=4)
    again = prepare(language, device="cpu", lora=Lora(rank=8), seed=5)
    assert again.model is language.model, "an adapter is there already"
    fresh = LanguageModel(load_model("tiny").model.train(), TOKENIZER, "mine")
    assert not prepare(fresh, device=None).model.training
    assert prepare(LanguageModel(nn.Linear(2, 2), None, "x"), device="meta").model.weight.is_meta
    seeds = [prepare(load_model("tiny"), device=None, lora=Lora(rank=2), seed=seed).model for seed in (4, 5)]
    name = next(name for name, _ in seeds[0].named_parameters() if "lora_A" in name)
    assert torch.equal(seeds[0].get_parameter(name), language.model.get_parameter(name))
    assert not torch.equal(seeds[0].get_parameter(name), seeds[1].get_parameter(name))


def test_the_tiny_model_has_the_type_that_is_wanted_and_is_never_quantised(monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_model("tiny@3", dtype=torch.bfloat16).model
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert model.name_or_path == model.config.name_or_path == "tiny@3"
    monkeypatch.setattr(loading, "_quantization", lambda *_: object())
    with pytest.raises(ConfigError, match="the tiny model cannot be quantised"):
        load_model("tiny", quantization="8bit", lora=Lora())


def test_a_model_is_saved_into_new_and_existing_folders(tmp_path: Path) -> None:
    language = load_model("tiny", lora=Lora(rank=2))
    for merged_too in (True, False):
        folder = tmp_path / "new" / str(merged_too)
        assert save_model(language, str(folder), merged=merged_too) == folder
        assert (folder / "tokenizer.json").is_file()
        assert (folder / "adapter_model.safetensors").is_file() != merged_too
        save_model(language, folder, merged=merged_too)


def test_of_a_model_on_the_hub_only_what_is_read_is_downloaded(
    saved: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, asked = saved(), []

    def download(name: str, allow_patterns: list[str]) -> str:
        asked.append((name, sorted(allow_patterns)))
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    language = load_model(model_lookup.ModelLocation("some/model", source="some/model"))
    assert asked == [("some/model", sorted((*REST, "model.safetensors.index.json", "model*.safetensors")))]
    assert torch.equal(language.model(IDS).logits, load_model(str(folder)).model(IDS).logits)


class PanicException(BaseException):
    """What a library written in Rust raises, by its name."""


@pytest.mark.parametrize(
    ("error", "message", "hint"),
    [
        (ConfigError("no", hint="Do."), "it fails: no", "Do."),
        (OSError("gone\nfor ever"), "it fails: gone", ""),
        (ValueError("  odd"), "it fails: odd", ""),
        (KeyError("a"), "it fails: KeyError: 'a'", ""),
        (RuntimeError(""), "it fails: RuntimeError: RuntimeError", ""),
        (OSError("trust_remote_code"), "it fails: it needs Python code of its own (auto_map), which is never run", ""),
        (TypeError("x" * 1000), "it fails: TypeError: " + "x" * 389, ""),
        (PanicException("rust"), "it fails: PanicException: rust", ""),
    ],
)  # fmt: skip
def test_whatever_a_library_raises_becomes_one_sentence(error: BaseException, message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as refused, loading._refusals("it fails"):
        raise error
    assert (refused.value.message, refused.value.hint) == (message, hint)


@pytest.mark.parametrize("error", [MissingExtra("install it"), KeyboardInterrupt(), SystemExit(2)])
def test_a_missing_library_and_the_wish_to_stop_are_not_the_folders_fault(error: BaseException) -> None:
    with pytest.raises(type(error)) as passed, loading._refusals("it fails"):
        raise error
    assert passed.value is error


def test_texts_are_padded_on_the_right_whatever_the_tokenizer_was_saved_with(saved: Callable[..., Path]) -> None:
    left = character_tokenizer()
    left.padding_side = "left"
    assert load_model(str(saved(tokenizer=left))).tokenizer.padding_side == "right"


@pytest.mark.parametrize(
    ("files", "generic"),
    [
        ({"tokenizer.json": "{}", "tokenizer_config.json": '{"tokenizer_class": "PreTrainedTokenizerFast"}'}, True),
        ({"tokenizer.json": "{}", "tokenizer_config.json": '{"tokenizer_class": "TokenizersBackend"}'}, True),
        ({"tokenizer.json": "{}", "tokenizer_config.json": '{"tokenizer_class": "LlamaTokenizer"}'}, False),
        ({"tokenizer.json": "{}", "tokenizer_config.json": "{}"}, False),
        ({"tokenizer_config.json": '{"tokenizer_class": "PreTrainedTokenizerFast"}'}, False),
        ({"tokenizer.json": "{}"}, False),
    ],
)
def test_a_tokenizer_of_its_family_is_left_to_the_family(files: dict[str, str], generic: bool, tmp_path: Path) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    assert loading._is_generic(tmp_path) == generic


@pytest.mark.parametrize(("rows", "noticed"), [(104, False), (242, False), (243, True)])
def test_many_more_embeddings_than_tokens_are_noticed(
    rows: int, noticed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A tenth more than the 104 tokens, and 128, are usual padding."""
    model = LlamaForCausalLM(LlamaConfig(**{**SHAPE, "vocab_size": rows}))
    with caplog.at_level(logging.WARNING):
        loading._check_vocabulary("it", model, TOKENIZER)
    assert ("'it' has 243 tokens, but its tokenizer only knows 104" in caplog.text) == noticed
    assert bool(caplog.records) == noticed


def test_a_models_own_number_for_padding_is_kept() -> None:
    for own, wanted in ((None, TOKENIZER.pad_token_id), (7, 7)):
        model = LlamaForCausalLM(LlamaConfig(**SHAPE, pad_token_id=own))
        loading._ensure_pad("it", model, TOKENIZER)
        assert model.config.pad_token_id == wanted


def test_weights_that_do_not_fit_into_memory_in_the_wanted_type_are_refused(
    saved: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(saved())
    size = sum(p.numel() for p in load_model(folder).model.parameters())
    monkeypatch.setattr("groupwise.language.model_files.memory_limit", lambda: 2 * size)
    load_model(folder, dtype=torch.bfloat16)
    with pytest.raises(ConfigError, match="cannot be used: the model needs .* of memory; this machine allows"):
        load_model(folder)


@pytest.mark.parametrize(
    ("wanted", "arguments"),
    [
        ("8bit", {"load_in_8bit": True}),
        (
            "4bit",
            {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": torch.bfloat16},
        ),
        ({"load_in_4bit": True, "bnb_4bit_quant_type": "fp4"}, {"load_in_4bit": True, "bnb_4bit_quant_type": "fp4"}),
    ],
)
def test_quantisation_by_name_or_by_its_arguments(
    wanted: Any, arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "find_spec", lambda name: object())
    monkeypatch.setattr("transformers.BitsAndBytesConfig", dict)
    assert loading._quantization(wanted, Lora(), torch.bfloat16) == arguments
    assert loading._quantization(None, None, torch.bfloat16) is None
    with pytest.raises(ConfigError, match="must be '8bit', '4bit' or a table of arguments, not '2bit'"):
        loading._quantization("2bit", Lora(), torch.bfloat16)  # type: ignore[arg-type]


class Quantised(nn.Linear):
    """A layer of bitsandbytes, as far as we look at it."""

    support_avx512bf16_for_cpu = True


@pytest.mark.parametrize("quantized", [None, "4bit"])
def test_weights_are_read_from_safetensors_without_code_and_quantised_ones_onto_their_device(
    quantized: Any, tmp_path: Path
) -> None:
    asked: dict[str, Any] = {}
    missing: list[str] = []

    class Auto:
        @staticmethod
        def from_pretrained(folder: str, **options: Any) -> Any:
            asked.update(options, folder=folder)
            return nn.Sequential(Quantised(2, 2)), {"missing_keys": missing}

    def model() -> Any:
        library = SimpleNamespace(AutoModelForCausalLM=Auto)
        device = torch.device("cuda", 1)
        return loading._model(library, "it", tmp_path, "config", torch.float16, quantized, device)

    assert not model()[0].support_avx512bf16_for_cpu
    placed = {"quantization_config": "4bit", "device_map": {"": "cuda:1"}} if quantized else {}
    assert asked == {
        "folder": str(tmp_path), "config": "config", "dtype": torch.float16, "output_loading_info": True,
        "use_safetensors": True, "trust_remote_code": False, **placed,
    }  # fmt: skip
    missing += ["b", "a"]
    with pytest.raises(ConfigError, match="the weights of 'it' are incomplete: 2 are missing, for example a"):
        model()


@pytest.mark.parametrize("quantized", [None, object()])
def test_quantised_weights_are_not_moved_again(quantized: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    language = LanguageModel(nn.Linear(2, 2), None, "it")
    monkeypatch.setattr(loading, "_quantization", lambda *_: quantized)
    monkeypatch.setattr(loading, "_load", lambda *_: language)
    loaded = load_model(model_lookup.ModelLocation("it"), device="meta", seed=3)
    assert loaded.model.weight.is_meta == (quantized is None)


@pytest.mark.parametrize("enabled", [True, False])
def test_progress_bars_are_as_they_were_afterwards(enabled: bool) -> None:
    from transformers.utils import logging as bars

    before = bars.is_progress_bar_enabled()
    try:
        bars.enable_progress_bar() if enabled else bars.disable_progress_bar()
        with pytest.raises(KeyError), loading._quiet_bars():
            assert not bars.is_progress_bar_enabled()
            raise KeyError
        assert bars.is_progress_bar_enabled() == enabled
    finally:
        bars.enable_progress_bar() if before else bars.disable_progress_bar()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("device", ["cuda", "cuda:0", torch.device("cuda", 1)])
def test_no_gpu_of_any_number_is_there(device: Any) -> None:
    with pytest.raises(ConfigError, match="torch finds no GPU"):
        loading._device(device)
    assert loading._device("cpu") == torch.device("cpu")
