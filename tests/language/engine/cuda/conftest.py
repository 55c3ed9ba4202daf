"""Where the kernels run in tests: on a GPU, or else in Triton's interpreter."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import nn

from groupwise.language.engine import Engine
from groupwise.language.engine.families import describe

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

MakeEngine = Callable[..., Engine]


@pytest.fixture(scope="session")
def device() -> str:
    if find_spec("triton") is None:
        pytest.skip("the kernels need Triton, which is not installed")
    if torch.cuda.is_available():
        return "cuda"
    _let_scalars_be_integers()
    return "cpu"


def _let_scalars_be_integers() -> None:
    """NumPy 2.4 no longer turns arrays of one element into numbers, which the interpreter of Triton 3.6 relies on."""
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patched


@pytest.fixture
def paged(device: str) -> MakeEngine:
    """Makes an engine on pages, with the model on the device where kernels run."""
    from groupwise.language.engine.cuda.cuda_batcher import CudaBatcher

    def make(model: nn.Module, *, slots: int = 4, length: int = 256, eos: tuple[int, ...] = ()) -> Engine:
        engine = Engine(model.to(device), slots=slots, eos=eos, max_length=length)
        if device == "cpu":  # where the engine would choose something faster
            architecture = describe(model)
            assert architecture is not None
            engine._inside = CudaBatcher(model, architecture, slots=slots, length=length, eos=frozenset(eos))
        assert isinstance(engine._inside, CudaBatcher)
        return engine

    return make


@pytest.fixture
def gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU")
