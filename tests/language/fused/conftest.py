"""Triton's kernels run on a GPU, or else interpreted on the CPU; without Triton there is nothing to test."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

import pytest
import torch

# Read by Triton when kernels are defined, so before any test imports them.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """Where kernels run here."""
    if find_spec("triton") is None:
        pytest.skip("Triton is not installed")
    if not torch.cuda.is_available():
        _mend_interpreter(monkeypatch)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _mend_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its scalars are arrays of one number, which NumPy 2.4 no longer turns into an int for the bounds of a loop."""
    from triton.runtime import interpreter

    plain = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        plain(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", patched)
