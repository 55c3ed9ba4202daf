"""Which models are decoded with kernels, and what is said of the others."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
import torch

from groupwise.language.engine.cuda import support
from groupwise.language.engine.families import describe

from ..conftest import make_model


def reason(model: Any, length: int = 64) -> str | None:
    architecture = describe(model)
    assert architecture is not None
    return support.reason_against(architecture, length)


@pytest.fixture
def triton(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(support, "find_spec", lambda name: found("torch") if name == "triton" else found(name))


@pytest.mark.usefixtures("triton")
@pytest.mark.parametrize("family", ["llama", "llama-biases", "llama-scaled-rope", "qwen2", "qwen3"])
def test_dense_families_with_rotary_positions_are_supported(family: str) -> None:
    assert reason(make_model(family)) is None


@pytest.mark.usefixtures("triton")
@pytest.mark.parametrize(
    ("family", "why"),
    [
        ("mistral", "it attends to a window of 10 tokens"),
        ("gemma", "the embedding is a GemmaTextScaledWordEmbedding"),
        ("phi", "its norms are LayerNorm"),
        ("gpt2", "gpt2 models have no rotary positions"),
    ],
)
def test_other_families_are_named_with_what_differs(family: str, why: str) -> None:
    assert reason(make_model(family)) == why


@pytest.mark.usefixtures("triton")
def test_a_window_longer_than_any_text_is_none() -> None:
    assert reason(make_model("mistral"), length=10) is None


@pytest.mark.usefixtures("triton")
def test_odd_heads_and_double_precision_are_left_alone() -> None:
    assert reason(make_model("qwen3", head_dim=288)) == "4 heads of 288 on 2 key heads are not a shape of the kernels"
    assert reason(make_model("qwen3").double()) == "the weights are torch.float64"


def test_a_machine_without_triton_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "find_spec", lambda name: None)
    assert reason(make_model("qwen3")) == "Triton is not installed"


@pytest.mark.usefixtures("triton")
def test_a_gpu_that_is_too_old_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    said = support._of_the_machine(torch.device("cuda"))
    assert said == "the GPU has compute capability 7.5, and the kernels need 8.0"
