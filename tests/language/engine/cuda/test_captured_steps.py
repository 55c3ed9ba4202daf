"""Graphs: which are captured, and that they change nothing. What needs a GPU skips without one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.language.engine import Engine, SamplingParams

from ..conftest import make_model

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="the kernels need Triton, which is not installed")
MakeEngine = Callable[..., Engine]
ASKED = [(list(range(1, 40)), seed) for seed in range(6)] + [(list(range(3, 90)), 7)]
GREEDY = SamplingParams(max_new_tokens=40, temperature=0)


def wide(**changes: Any) -> Any:
    return make_model("qwen3", hidden_size=128, intermediate_size=256, head_dim=64, vocab_size=977, **changes)


def test_few_sizes_are_captured_and_few_of_their_rows_are_spare() -> None:
    from groupwise.language.engine.cuda.captured_steps import row_bucket

    sizes = [row_bucket(rows, 1024) for rows in range(1, 1025)]
    assert all(size >= rows for rows, size in enumerate(sizes, start=1))
    assert all(size <= 1.25 * rows for rows, size in enumerate(sizes, start=1) if rows > 8)
    assert len(set(sizes)) < 32


def test_few_rows_are_cut_into_parts_and_many_are_not() -> None:
    from groupwise.language.engine.cuda.captured_steps import splits_for

    assert splits_for(256, 8, 4096) == 1
    assert splits_for(1, 8, 4096) == 32
    assert splits_for(1, 8, 100) == 1


def test_groups_are_neighbours_that_share_enough() -> None:
    from groupwise.language.engine.cuda.cuda_batcher import find_groups

    assert find_groups([3, 3, 0, 2], most=8) == [(0, 3, 3), (3, 2, 2)]
    assert find_groups([3, 3, 3, 3, 3], most=2) == [(0, 2, 3), (2, 2, 3), (4, 2, 3)]
    # Two groups with the same instructions, which are much shorter than their prompts.
    assert find_groups([9, 9, 1, 9, 9], most=8) == [(0, 3, 9), (3, 3, 9)]
    assert find_groups([0, 0], most=8) == []
    assert find_groups([], most=8) == []


@pytest.mark.usefixtures("gpu")
def test_greedy_is_generate(paged: MakeEngine) -> None:
    model = wide()
    found = paged(model).generate(ASKED, GREEDY)
    for (ids, _), one in zip(ASKED, found, strict=True):
        out = model.generate(torch.tensor([ids], device="cuda"), max_new_tokens=40, do_sample=False)
        np.testing.assert_array_equal(out[0, len(ids) :].cpu().numpy(), one.ids)


@pytest.mark.usefixtures("gpu")
def test_graph_and_eager_agree_bit_for_bit(paged: MakeEngine) -> None:
    model, params = wide(), SamplingParams(max_new_tokens=40)
    captured, eager = paged(model, slots=8), paged(model, slots=8)
    eager._inside.steps.capture = False  # type: ignore[attr-defined]
    for one, other in zip(captured.generate(ASKED, params), eager.generate(ASKED, params), strict=True):
        np.testing.assert_array_equal(one.ids, other.ids)
        np.testing.assert_array_equal(one.logp, other.logp)
    assert captured._inside.steps.graphs  # type: ignore[attr-defined]
    assert not eager._inside.steps.graphs  # type: ignore[attr-defined]


@pytest.mark.usefixtures("gpu")
def test_graphs_survive_an_update(paged: MakeEngine) -> None:
    model = wide()
    engine = paged(model, slots=8)
    engine.generate(ASKED, GREEDY)
    graphs = dict(engine._inside.steps.graphs)  # type: ignore[attr-defined]
    with engine.hold(), torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.3)
    found = engine.generate(ASKED, GREEDY)
    assert graphs.items() <= engine._inside.steps.graphs.items()  # type: ignore[attr-defined]
    for (ids, _), one in zip(ASKED, found, strict=True):
        out = model.generate(torch.tensor([ids], device="cuda"), max_new_tokens=40, do_sample=False)
        np.testing.assert_array_equal(out[0, len(ids) :].cpu().numpy(), one.ids)


@pytest.mark.usefixtures("gpu")
def test_without_memory_for_a_graph_decoding_goes_on(
    paged: MakeEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from groupwise.language.engine.cuda.captured_steps import CapturedSteps

    def full(self: Any, shape: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    model = wide()
    wanted = paged(model, slots=8).generate(ASKED, GREEDY)
    monkeypatch.setattr(CapturedSteps, "_captured", full)
    with caplog.at_level(logging.WARNING):
        found = paged(model, slots=8).generate(ASKED, GREEDY)
    assert [one.ids.tolist() for one in found] == [one.ids.tolist() for one in wanted]
    assert [r.message for r in caplog.records] == [
        "decoding goes on without CUDA graphs, which is slower: a step could not be captured (not enough GPU memory)"
    ]


@pytest.mark.usefixtures("gpu")
def test_an_adapter_is_merged_for_sampling_and_follows_its_updates(paged: MakeEngine) -> None:
    peft = pytest.importorskip("peft")
    model = wide().cuda()
    model = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj", "down_proj"]))
    engine = paged(model, slots=8)
    graphs = 0
    for _ in range(2):
        with engine.hold(), torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_B" in name:
                    parameter.add_(0.05 * torch.randn_like(parameter))
        found = engine.generate(ASKED, SamplingParams(max_new_tokens=20))
        for (ids, _), one in zip(ASKED, found, strict=True):
            text = torch.tensor([[*ids, *one.ids.tolist()]], device="cuda")
            with torch.no_grad():
                logs = model(text).logits[0, len(ids) - 1 : -1].float().log_softmax(-1)
            own = logs.gather(1, text[0, len(ids) :, None])[:, 0].cpu().numpy()
            np.testing.assert_allclose(one.logp, own, atol=1e-4)
        graphs = graphs or len(engine._inside.steps.graphs)  # type: ignore[attr-defined]
        assert len(engine._inside.steps.graphs) == graphs  # type: ignore[attr-defined]
