"""A real vLLM on this machine's CPU, if `make sampler` has installed one: the protocol as vLLM itself speaks it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from groupwise.errors import ConfigError
from groupwise.language.adapters import Lora
from groupwise.language.engine import Sampled, SamplingParams
from groupwise.language.loading import LanguageModel, load_model
from groupwise.language.samplers.server_process import ServerOptions, ServerRecord, start_server, stop_server
from groupwise.language.samplers.vllm_engine import VllmEngine

ENVIRONMENT = Path(__file__).parents[3] / ".venv-vllm"
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not (ENVIRONMENT / "bin" / "vllm").is_file(), reason="no vLLM here: make sampler"),
]


@pytest.fixture(scope="module")
def server(tiny_qwen: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerRecord]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    folder = tmp_path_factory.mktemp("samplers")
    options = ServerOptions(port=port, lora_rank=8, length=64)
    record = start_server(str(tiny_qwen), options, environment=ENVIRONMENT, folder=folder)
    yield record
    stop_server(record, folder)


def gap(language: LanguageModel, prompts: list[list[int]], answers: list[Sampled]) -> float:
    """The largest difference between what the server and what the model says of a sampled token."""
    gaps = []
    for ids, answer in zip(prompts, answers, strict=True):
        tokens = torch.tensor([[*ids, *answer.ids.tolist()]])
        with torch.no_grad():
            rows = language.model(input_ids=tokens).logits[0, len(ids) - 1 : -1].log_softmax(-1)
        said = rows.gather(1, torch.from_numpy(answer.ids)[:, None])[:, 0].numpy()
        gaps.append(float(np.abs(said - answer.logp).max()))
    return max(gaps)


# Adapters first: full weights replace those that adapters sit on.
@pytest.mark.parametrize("lora", [Lora(8, 16.0), None])
def test_vllm_samples_from_the_weights_it_was_given(server: ServerRecord, tiny_qwen: Path, lora: Lora | None) -> None:
    language = load_model(str(tiny_qwen), lora=lora)
    prompts = [language.tokenizer.encode(f"{number}+{number}=") for number in range(16)]
    params = SamplingParams(max_new_tokens=8)
    with VllmEngine(language, [server.url], on_lost="stop", params=params) as engine:
        for version in range(3):
            engine.load(language.model, version)
            answers = engine.generate([(ids, n) for n, ids in enumerate(prompts)], params)
            assert gap(language, prompts, answers) < 1e-4
            assert {v for answer in answers for v in answer.versions.tolist()} == {version}
            with torch.no_grad():
                for parameter in language.model.parameters():
                    if parameter.requires_grad:
                        parameter += 0.1 * torch.randn(parameter.shape)
        assert engine.max_length == 64


def test_vllm_refuses_a_rank_above_its_limit(server: ServerRecord, tiny_qwen: Path) -> None:
    language = load_model(str(tiny_qwen), lora=Lora(32, 64.0))
    with (
        VllmEngine(language, [server.url], on_lost="stop") as engine,
        pytest.raises(ConfigError, match="language.lora_rank = 32 is more than the server"),
    ):
        engine.generate([([5, 6], 0)], SamplingParams(max_new_tokens=1))
