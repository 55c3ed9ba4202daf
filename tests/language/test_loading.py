"""Loading and saving models: what works, and the one sentence for what does not."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
from groupwise.language import model_lookup
from groupwise.language.adapters import Lora
from groupwise.language.loading import LanguageModel, load_model, save_model
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
    with pytest.raises(ConfigError, match="no layer named wq") as caught:
        load_model("tiny", lora=Lora(targets=("wq",)))
    assert "q_proj" in caught.value.hint
    model = load_model("tiny", lora=Lora(targets=("q_proj", "v_proj"))).model
    assert sum(isinstance(m, nn.ModuleDict) and bool(m) for n, m in model.named_modules() if n.endswith("lora_A")) == 8


@pytest.mark.parametrize("terminal", [False, True])
def test_transformers_shows_no_bars_of_its_own(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal, raising=False)
    folder = save_model(load_model("tiny"), tmp_path / "model")
    load_model(str(folder))
    assert capfd.readouterr().err == ""
