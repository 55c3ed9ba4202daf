"""Servers that speak vLLM's protocol, in processes of their own."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from groupwise.language.tiny import character_tokenizer


class StandIns:
    """Starts servers; each is forked from one process that has imported everything."""

    def __init__(self, model: Path) -> None:
        self.model = model
        self.pids: list[int] = []
        self.parent = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("stand_in.py"))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def start(self, port: int = 0, model: Path | None = None, **faults: Any) -> str:
        assert self.parent.stdin is not None
        assert self.parent.stdout is not None
        request = {"model": str(model or self.model), "port": port, "faults": faults}
        self.parent.stdin.write(json.dumps(request) + "\n")
        self.parent.stdin.flush()
        started = json.loads(self.parent.stdout.readline())
        self.pids.append(started["pid"])
        return f"http://127.0.0.1:{started['port']}"

    def wait_for_death(self) -> None:
        """Return when the server started last has ended."""
        descriptor = os.pidfd_open(self.pids[-1])
        select.select([descriptor], [], [], 60)
        os.close(descriptor)

    def seen(self, url: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"{url}/seen", timeout=30) as answer:
            found: dict[str, Any] = json.loads(answer.read())
        return found

    def close(self) -> None:
        os.killpg(self.parent.pid, signal.SIGKILL)
        self.parent.wait()


@pytest.fixture(scope="session")
def tiny_qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen3 of two layers with random weights, in a folder."""
    return _write_qwen(tmp_path_factory.mktemp("qwen") / "model", seed=0)


@pytest.fixture(scope="session")
def write_qwen() -> Callable[..., Path]:
    return _write_qwen


def _write_qwen(folder: Path, seed: int, **changes: Any) -> Path:
    tokenizer = character_tokenizer()
    shape = {
        "vocab_size": len(tokenizer), "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "max_position_embeddings": 256,
        "tie_word_embeddings": True, "initializer_range": 0.2,
    }  # fmt: skip
    config = transformers.Qwen3Config(
        **{**shape, **changes},
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.Qwen3ForCausalLM(config)
    model.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    return folder


@pytest.fixture(scope="session")
def stand_ins(tiny_qwen: Path) -> Iterator[StandIns]:
    servers = StandIns(tiny_qwen)
    yield servers
    servers.close()
