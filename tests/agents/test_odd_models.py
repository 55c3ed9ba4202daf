"""Models as they come: no pad token, or fewer words than rows. They learn and converse all the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from groupwise.agents import language_product as product
from groupwise.agents import warm_start
from groupwise.agents.conversation.chat import ChatSession
from groupwise.agents.settings import AgentConfig
from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError
from groupwise.language.loading import load_model
from groupwise.language.tiny import character_tokenizer
from groupwise.training.folder import create_run
from groupwise.training.session import execute

from .conftest import LANGUAGE

Folder = Callable[..., Path]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A small Llama with some rows of embeddings, and the character tokenizer with or without a pad token."""

    def save(rows: int = 104, pad: bool = True) -> Path:
        torch.manual_seed(0)
        tokenizer = character_tokenizer()
        if not pad:
            tokenizer.pad_token = None
        shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
        LlamaForCausalLM(LlamaConfig(vocab_size=rows, **shape)).save_pretrained(tmp_path / "model")
        tokenizer.save_pretrained(tmp_path / "model")
        return tmp_path / "model"

    return save


@pytest.mark.parametrize("odd", [{"pad": False}, {"rows": 160}], ids=["no pad token", "rows without a word"])
@pytest.mark.parametrize("build", [product.build, warm_start.build])
def test_an_odd_model_trains(folder: Folder, tmp_path: Path, odd: dict[str, Any], build: Any) -> None:
    changes = {"output_dir": str(tmp_path / "runs"), "model_name": str(folder(**odd)), "product": "language"}
    cfg = TrainingConfig.from_dict({**LANGUAGE, **changes, "eval_steps": 1, "eval_episodes": 2})
    events = list(execute(create_run(cfg), build))
    assert events[-1].type == "end"
    assert not [event for event in events if event.type == "error"]


@pytest.mark.parametrize("odd", [{"pad": False}, {"rows": 160}], ids=["no pad token", "rows without a word"])
def test_an_odd_model_converses(folder: Folder, odd: dict[str, Any]) -> None:
    """A row without a word can be sampled: it is then a token without text."""
    language = load_model(str(folder(**odd)))
    with ChatSession(language, AgentConfig(max_new_tokens=60, stop=("~~",))) as conversation:
        assert "".join(conversation.reply("hi")) == conversation.answers[0].text
        assert [*conversation.reply("more")]


def test_padding_behind_changes_no_number_whatever_it_is_made_of(folder: Folder) -> None:
    """Without a pad token rows are padded with the end token: no answer may look as if it had ended for that."""
    from groupwise.language.policy import LanguagePolicy

    language = load_model(str(folder(pad=False)))
    assert language.tokenizer.pad_token_id == language.tokenizer.eos_token_id
    ids = torch.tensor([[10, 11, 12, 13]])
    end = torch.full((1, 3), language.tokenizer.eos_token_id)
    policy = LanguagePolicy(language.model)
    alone = {"input_ids": ids, "attention_mask": torch.ones(1, 4), "action_mask": torch.tensor([[0, 0, 1, 1]])}
    padded = {
        "input_ids": torch.cat([ids, end], 1),
        "attention_mask": torch.tensor([[1, 1, 1, 1, 0, 0, 0]]),
        "action_mask": torch.tensor([[0, 0, 1, 1, 0, 0, 0]]),
    }
    with torch.no_grad():
        assert torch.equal(policy.evaluate(padded).logp[:, :4], policy.evaluate(alone).logp)


def test_a_supervised_run_without_an_end_of_text_token_is_refused(tmp_path: Path, folder: Folder) -> None:
    path = folder()
    tokenizer = character_tokenizer()
    tokenizer.eos_token = None
    tokenizer.save_pretrained(path)
    cfg = TrainingConfig.from_dict({**LANGUAGE, "model_name": str(path), "output_dir": str(tmp_path)})
    with pytest.raises(ConfigError, match="has no end-of-text token"):
        warm_start.build(cfg)
