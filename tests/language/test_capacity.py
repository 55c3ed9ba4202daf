"""What `groupwise plan` says, compared with what was measured and with models that exist."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from groupwise.cli import run
from groupwise.errors import ConfigError
from groupwise.language.capacity.estimate import Machines, plan, predicted
from groupwise.language.capacity.model_shape import KNOWN, ModelShape, shape_of
from groupwise.language.capacity.rates import Measurement, measured
from groupwise.language.capacity.workload import GIB, Workload, known_bytes
from groupwise.language.tiny import tiny_model

ROWS = measured().measurements
SMALL = KNOWN["qwen3-0.6b"]


@pytest.mark.parametrize("row", ROWS, ids=[f"{n} {m.use}" for n, m in enumerate(ROWS)])
def test_what_was_measured_is_predicted_within_a_fifth(row: Measurement) -> None:
    found = predicted(row)
    for name in ("decode", "update", "memory"):
        if (value := getattr(row, name)) is not None:
            assert found[name] == pytest.approx(value, rel=0.2), name


def test_a_shape_counts_the_parameters_of_the_model_itself(tmp_path: Path) -> None:
    model, _ = tiny_model()
    model.save_pretrained(str(tmp_path))
    shape = shape_of(str(tmp_path))
    matrices = sum(p.numel() for p in model.parameters() if p.dim() > 1)
    assert shape.parameters == matrices
    assert shape == KNOWN["tiny"]
    # As their names say, in billions.
    for name, size in (("qwen3-0.6b", 0.6), ("qwen3-8b", 8.2), ("qwen3-32b", 32.8)):
        assert KNOWN[name].parameters / 1e9 == pytest.approx(size, rel=0.01)


def test_more_work_takes_more_and_sharing_takes_less() -> None:
    work = Workload(SMALL)
    one = plan(work, Machines())
    assert plan(replace(work, tasks=32), Machines()).step_seconds > 2 * one.step_seconds
    assert plan(replace(work, checkpointing=True), Machines()).memory_gib < one.memory_gib
    two, shared = plan(work, Machines(2)), plan(work, Machines(2, sharded=True))
    assert one.update_seconds > two.update_seconds
    assert known_bytes(work, 8, sharded=True) < known_bytes(work, 8)
    assert shared.communication_seconds > two.communication_seconds > one.communication_seconds == 0
    best = plan(replace(work, tasks=one.saturates_at), Machines()).tokens_per_second
    far = plan(replace(work, tasks=16 * one.saturates_at), Machines()).tokens_per_second
    assert best >= 0.9 * far
    assert plan(replace(work, micro_batch=one.largest_micro_batch), Machines()).fits
    assert not plan(replace(work, micro_batch=2 * one.largest_micro_batch), Machines()).fits


def test_whatever_was_not_measured_is_marked() -> None:
    work = Workload(SMALL, prompt=10)
    assert plan(work, Machines()).extrapolated == ()
    for words, found in {
        "nothing was measured on a l4": plan(work, Machines(gpu="l4")),
        "several GPUs": plan(work, Machines(2)),
        "width 4096": plan(replace(work, shape=KNOWN["qwen3-8b"]), Machines()),
        "rows of 1010 tokens": plan(replace(work, answer=1000), Machines()),
        "micro-batches of 128": plan(replace(work, micro_batch=128), Machines()),
        "512 answers at once": plan(replace(work, tasks=64, answer=32), Machines()),
        "reading memory": plan(replace(work, shape=KNOWN["qwen3-32b"]), Machines(gpu="l4")),
    }.items():
        assert any(words in reason for reason in found.extrapolated), words


def test_the_command_prints_the_plan_and_fails_if_it_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "qwen3-0.6b", "--prompt", "10", "--checkpointing"]) == 0
    assert "a token waits for launching kernels" in capsys.readouterr().out
    assert run(["plan", "qwen3-32b", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["fits"] is False
    assert found["memory_gib"] * GIB > measured().devices["h200"].memory
    assert found["largest_micro_batch"] == 0


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("qwen3-9b", "is not a model whose shape is known here"),
        ("layers=2,width=8", "the shape lacks heads"),
        ("layers=two", "is not a whole number"),
        ("depth=2", "is not part of a shape"),
        ("layers=0,width=8,heads=2,mlp=8,vocabulary=9", "not between 1 and"),
    ],
)
def test_a_shape_that_says_too_little_is_one_sentence(model: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        shape_of(model)


def test_a_spelt_shape_needs_only_what_cannot_be_guessed() -> None:
    assert shape_of("layers=2,width=8,heads=2,mlp=16,vocabulary=9,tied=false") == ModelShape(
        2, 8, 2, 2, 4, 16, 9, False
    )


@pytest.mark.parametrize(
    "config",
    [
        '{"num_attention_heads": 0, "hidden_size": 8, "num_hidden_layers": 2, "intermediate_size": 8, "vocab_size": 9}',
        '{"num_attention_heads": 2, "hidden_size": 1e400}',
        "[" * 100_000,
        "[]",
    ],
)
def test_a_hostile_config_is_one_sentence(config: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(ConfigError, match=r"does not say the model's shape|is not between 1 and"):
        shape_of(str(tmp_path))


def test_a_folder_without_a_shape_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"hidden_size": 8}')
    with pytest.raises(ConfigError, match="does not say the model's shape: lacks 'num_attention_heads'"):
        shape_of(str(tmp_path))


@pytest.mark.parametrize("machines", [Machines(gpu="tpu"), Machines(network="string"), Machines(gpus=0)])
def test_unknown_machines_are_refused(machines: Machines) -> None:
    with pytest.raises(ConfigError):
        plan(Workload(SMALL), machines)
