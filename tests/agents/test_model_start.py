"""A run that starts from another run's weights."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from groupwise.agents import language_product as product
from groupwise.agents import warm_start
from groupwise.agents.export import export_run
from groupwise.agents.model_start import find_start, load_run, load_start, open_run, pin_start
from groupwise.config import TrainingConfig
from groupwise.errors import CheckpointError, ConfigError, RunError
from groupwise.language.loading import load_model, merged, save_model
from groupwise.language.model_lookup import find_model
from groupwise.training.folder import create_run, read_config, write_config
from groupwise.training.session import Parts, execute

from .conftest import LANGUAGE, MakeRun

IDS = torch.tensor([[3, 14, 15, 92, 65]])


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(IDS).logits


def test_a_run_is_found_by_folder_name_and_checkpoint(make_run: MakeRun, tmp_path: Path) -> None:
    path = make_run()
    for name, output_dir in ((str(path), "elsewhere"), (path.name, str(path.parent))):
        start = find_start(name, output_dir)
        assert start is not None
        assert (start.run, start.step) == (path, None)
    start = find_start(str(path / "checkpoints" / "000001"))
    assert start is not None
    assert (start.run, start.step) == (path, 1)
    for name in ("tiny", "tiny@3", path.name, str(tmp_path), "Qwen/Qwen3-0.6B"):
        assert find_start(name, str(tmp_path)) is None


@pytest.mark.parametrize("changes", [{}, {"lora_rank": 4}], ids=["whole weights", "adapter"])
def test_a_run_starts_where_another_ended(make_run: MakeRun, changes: dict[str, int]) -> None:
    """Not the first model: what the run learned is in the weights, and the new run's reference is that."""
    path = make_run(**changes)
    learned = load_run(path).model
    assert (logits(learned) - logits(load_model("tiny").model)).abs().max() > 0.01
    for rank in (0, 2):
        cfg = TrainingConfig.from_dict({**LANGUAGE, "model_name": str(path), "lora_rank": rank})
        model = load_start(cfg).model
        torch.testing.assert_close(logits(model), logits(learned), rtol=1e-5, atol=1e-5)
        assert hasattr(model, "peft_config") == bool(rank)


def test_the_newest_checkpoint_is_taken_and_a_damaged_one_passed_over(make_run: MakeRun, tmp_path: Path) -> None:
    path = tmp_path / "copy"
    shutil.copytree(make_run(), path)
    first, second = (logits(load_run(path, step).model) for step in (1, 2))
    assert not torch.equal(first, second)
    assert torch.equal(logits(load_run(path).model), second)
    with open(path / "checkpoints" / "000002" / "model.safetensors", "r+b") as file:
        file.write(b"damaged!")
    assert torch.equal(logits(load_run(path).model), first)
    shutil.rmtree(path / "checkpoints")
    with pytest.raises(CheckpointError, match="has no usable checkpoint: none was saved yet"):
        load_run(path)


def test_a_critic_in_the_checkpoint_is_no_obstacle(make_run: MakeRun) -> None:
    path = make_run(product="language", estimator="gae", num_episodes=1)
    assert load_run(path).name.endswith("000001")


def test_a_pinned_start_stays_the_same_when_the_other_run_goes_on(make_run: MakeRun, tmp_path: Path) -> None:
    path = tmp_path / "copy"
    shutil.copytree(make_run(), path)
    cfg = pin_start(TrainingConfig.from_dict({**LANGUAGE, "model_name": str(path)}))
    assert cfg.policy.model_name == str(path / "checkpoints" / "000002")
    before = logits(load_start(cfg).model)
    shutil.copytree(path / "checkpoints" / "000001", path / "checkpoints" / "000003")
    assert torch.equal(logits(load_start(cfg).model), before)
    shutil.rmtree(path / "checkpoints" / "000002")
    with pytest.raises(CheckpointError, match="has no usable checkpoint: none for step 2"):
        load_start(cfg)
    assert pin_start(TrainingConfig(model_name="tiny")) == TrainingConfig(model_name="tiny")


def test_runs_that_moved_together_still_find_each_other(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make_run()
    second = make_run(lora_rank=2, model_name=str(first / "checkpoints" / "000002"))
    before = logits(load_run(second).model)
    for path in (first, second):
        shutil.copytree(path, tmp_path / "moved" / path.name)
    monkeypatch.chdir(tmp_path)
    config = (tmp_path / "moved" / second.name / "config.toml").read_text().partition("\n")[2]
    elsewhere = config.replace(str(first.parent), "gone")
    write_config(tmp_path / "moved" / second.name, TrainingConfig.from_dict(tomllib.loads(elsewhere)))
    assert torch.equal(logits(load_run(Path("moved") / second.name).model), before)


@pytest.mark.parametrize("build", [product.build, warm_start.build])
def test_both_products_start_from_a_run(make_run: MakeRun, build: Callable[[TrainingConfig], object]) -> None:
    cfg = TrainingConfig.from_dict({**LANGUAGE, "model_name": str(make_run())})
    parts = build(cfg)
    policy_model = parts.policy.model  # type: ignore[attr-defined]
    assert torch.equal(logits(policy_model), logits(load_run(make_run()).model))
    parts.source.close()  # type: ignore[attr-defined]


def test_what_cannot_be_a_start_says_why(
    make_run: MakeRun, small_config: Callable[..., TrainingConfig], tmp_path: Path
) -> None:
    control = create_run(small_config())
    for refused in (
        lambda: load_run(control),
        lambda: pin_start(read_config(control).replace(model_name=str(control))),
    ):
        with pytest.raises(RunError, match="did not train a language model: its task.product is 'control'") as caught:
            refused()
        assert "groupwise eval" in caught.value.hint
    quantised = TrainingConfig.from_dict(
        {**LANGUAGE, "model_name": str(make_run()), "quantization": "4bit", "lora_rank": 2}
    )
    with pytest.raises(ConfigError, match="needs a plain model, but .* is a run or an adapter"):
        load_start(quantised)


def begin(base: Path, model: str, **changes: object) -> Path:
    """A run as the commands make one: its start is named in full, and kept."""
    settings = {**LANGUAGE, "output_dir": str(base), "model_name": model, "num_episodes": 1, **changes}
    path = create_run(pin_start(TrainingConfig.from_dict(settings)))
    resume(path)
    return path


def resume(path: Path, **changes: object) -> None:
    cfg = read_config(path).replace(**changes)
    kind = product if cfg.task.product == "language" else warm_start

    def build(cfg: TrainingConfig) -> Parts:
        return kind.build(open_run(path, cfg, learning=True))

    assert [event.type for event in execute(path, build, cfg)][-1] == "end"


@pytest.mark.parametrize("changes", [{}, {"lora_rank": 2}, {"product": "language", "use_reference_model": True}])
def test_a_run_outlives_the_one_it_began_with(make_run: MakeRun, tmp_path: Path, changes: dict[str, object]) -> None:
    shutil.copytree(make_run(lora_rank=4), tmp_path / "first")
    path = begin(tmp_path / "runs", str(tmp_path / "first"), **changes)
    before = logits(load_run(path).model)
    shutil.rmtree(tmp_path / "first")
    (tmp_path / "runs").rename(tmp_path / "moved")
    path = tmp_path / "moved" / path.name
    assert torch.equal(logits(load_run(path).model), before)
    resume(path, num_episodes=2)
    assert load_run(path).name.endswith("000002")


def test_what_a_run_keeps_is_where_it_began(make_run: MakeRun, tmp_path: Path) -> None:
    path = begin(tmp_path / "runs", str(make_run()), lora_rank=2)
    kept = load_model(str(path / "start")).model
    assert torch.equal(logits(kept), logits(load_run(make_run()).model))
    shutil.rmtree(path / "checkpoints")
    resume(path)
    with pytest.raises(ConfigError, match="is not the model that run addition-1 started from: that was .*000002"):
        resume(path, model_name="tiny")


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json", "origin.json"])
@pytest.mark.parametrize("damage", ["missing", "changed"])
def test_a_kept_start_that_was_damaged_is_refused_and_can_be_copied_again(
    make_run: MakeRun, tmp_path: Path, file: str, damage: str
) -> None:
    """An adapter on other weights would be another model, and nobody would notice."""
    path = begin(tmp_path / "runs", str(make_run()), lora_rank=2)
    learned, damaged = logits(load_run(path).model), path / "start" / file
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 128
    damaged.unlink() if damage == "missing" else damaged.write_bytes(content)
    for refused in (lambda: load_run(path), lambda: resume(path, num_episodes=2)):
        with pytest.raises(RunError, match=f"{file} is missing or has changed since the run started") as caught:
            refused()
    assert f"delete {path / 'start'}: it is then copied again" in caught.value.hint
    shutil.rmtree(path / "start")
    resume(path, num_episodes=2)
    assert (logits(load_run(path, 1).model) - learned).abs().max() == 0


@pytest.mark.parametrize("content", [b"", b"[]", b'{"weights": 1}', b"\xff"])
def test_a_damaged_fingerprint_of_the_start_is_refused_in_a_sentence(tmp_path: Path, content: bytes) -> None:
    path = begin(tmp_path / "runs", "tiny", lora_rank=2)
    (path / "start.json").write_bytes(content)
    with pytest.raises(RunError, match="start.json is damaged"):
        resume(path, num_episodes=2)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model in the folder `strict` of the current directory."""
    monkeypatch.chdir(tmp_path)
    return save_model(load_model("tiny@3"), tmp_path / "strict")


def test_a_folder_is_named_in_full_and_no_later_run_takes_its_place(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("strict", "./strict"):
        path = begin(Path("runs"), name, lora_rank=2, run_name="strict")
        assert read_config(path).policy.model_name == str(folder)
        before = logits(load_run(path).model)
        monkeypatch.chdir(path)
        assert torch.equal(logits(load_run(tmp_path / path).model), before)
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ConfigError, match="'strict' is a model folder here and a run in runs") as caught:
            find_start("strict")
        assert "'./strict' or 'runs/strict'" in caught.value.hint
        assert find_start("./strict") is None
        assert find_start("runs/strict") is not None
        shutil.rmtree("runs")


def test_other_weights_in_the_folder_are_noticed_where_they_matter(folder: Path) -> None:
    adapter, whole = begin(Path("runs"), "strict", lora_rank=2), begin(Path("runs"), "strict")
    learned = logits(load_run(whole).model)
    save_model(load_model("tiny@4"), folder)
    for refused in (lambda: load_run(adapter), lambda: resume(adapter, num_episodes=2)):
        with pytest.raises(ConfigError, match="run addition-1 started from: its model.safetensors has changed"):
            refused()
    assert torch.equal(logits(load_run(whole).model), learned)
    open_run(whole, read_config(whole), learning=True)
    shutil.rmtree(whole / "checkpoints")
    with pytest.raises(ConfigError, match=r"its model.safetensors has changed"):
        open_run(whole, read_config(whole), learning=True)


def test_the_same_model_in_another_folder_is_as_good(folder: Path) -> None:
    path = begin(Path("runs"), "strict", lora_rank=2)
    shutil.rmtree(folder)
    save_model(load_model("tiny@3"), "elsewhere")
    resume(path, num_episodes=2, model_name="elsewhere")
    (Path("elsewhere") / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match="started from: its tokenizer.json has changed"):
        load_run(path)


@pytest.mark.parametrize("rank", [0, 2])
def test_an_adapters_folder_is_merged_and_the_rank_is_the_settings(
    make_run: MakeRun, tmp_path: Path, rank: int
) -> None:
    """So the reference is the first policy: before any update, nothing lies between the two."""
    export_run(make_run(lora_rank=4), tmp_path / "adapter", adapter=True)
    assert find_model(str(tmp_path / "adapter")).adapter
    learned = logits(merged(load_model(str(tmp_path / "adapter"))).model)
    assert (learned - logits(load_model("tiny").model)).abs().max() > 0.01
    changes = {"model_name": str(tmp_path / "adapter"), "lora_rank": rank, "use_reference_model": True}
    policy = product.build(TrainingConfig.from_dict({**LANGUAGE, "product": "language", **changes})).policy
    ranks = {p.shape[0] for name, p in policy.model.named_parameters() if "lora_A" in name}  # type: ignore[attr-defined]
    assert ranks == ({rank} if rank else set())
    mask = torch.ones_like(IDS)
    inputs = {"input_ids": IDS, "attention_mask": mask, "action_mask": torch.arange(5)[None] > 1}
    assert torch.equal(policy.reference_logp(inputs), policy.evaluate(inputs).logp.detach())  # type: ignore[attr-defined]
    torch.testing.assert_close(logits(policy.model), learned, rtol=1e-5, atol=1e-5)  # type: ignore[attr-defined]
    path = begin(tmp_path / "runs", str(tmp_path / "adapter"), lora_rank=rank)
    shutil.rmtree(tmp_path / "adapter")
    assert load_run(path).name.endswith("000001")


def test_a_model_that_changed_on_the_hub_is_told_of(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a new commit nobody knows whether it brought other weights or a better description: it is not refused."""
    cache = tmp_path / "hub" / "models--me--small"
    for commit in ("a" * 40, "b" * 40):
        shutil.copytree(folder, cache / "snapshots" / commit)
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("a" * 40)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    cfg = TrainingConfig.from_dict({**LANGUAGE, "model_name": "me/small", "lora_rank": 2})
    path = create_run(pin_start(cfg))
    assert open_run(path, cfg, learning=True) == cfg
    assert not caplog.messages
    (cache / "refs" / "main").write_text("b" * 40)
    assert open_run(path, cfg, learning=False) == cfg
    assert caplog.messages == [f"me/small has changed on the hub since run {path.name} started"]
