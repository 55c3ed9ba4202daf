"""Where fused layers cannot be, one sentence says why, and the model's own modules go on."""

from __future__ import annotations

import importlib.util
import logging
from typing import Any

import pytest
import torch

from groupwise.language.adapters import Lora, add_adapter
from groupwise.language.fused.choice import find_fused_layers
from groupwise.language.policy import LanguagePolicy

from ..engine.conftest import make_model
from ..test_batch_layout import groups

GPU = torch.device("cuda")


def refusal(model: Any, caplog: pytest.LogCaptureFixture) -> str:
    with caplog.at_level(logging.WARNING):
        assert find_fused_layers(model, model.base_model, GPU) is None
    (record,) = caplog.records
    return record.getMessage()


def test_an_old_gpu_is_named(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr("groupwise.language.triton_support.find_spec", lambda name: object())
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert "compute capability 7.5, and the kernels need 8.0" in refusal(make_model("llama"), caplog)


def test_without_triton_the_sentence_says_so(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("groupwise.language.triton_support.find_spec", lambda name: None)
    message = refusal(make_model("llama"), caplog)
    assert message.endswith("because Triton is not installed")
    assert "slower" in message


def test_other_families_and_dropout_are_named(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert "GemmaRMSNorm" in refusal(make_model("gemma"), caplog) or "MLP" in caplog.text
    caplog.clear()
    assert "local or capped" in refusal(make_model("mistral"), caplog)
    caplog.clear()
    dropping = add_adapter(make_model("llama"), Lora(4, 8, {"lora_dropout": 0.1}), 0)
    assert "dropout" in refusal(dropping, caplog)


def test_a_policy_on_the_cpu_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    policy = LanguagePolicy(make_model("qwen3"))
    assert not policy.packs_rows
    assert policy.evaluate(groups()).logp.isfinite().all()
    assert not caplog.records
