"""Exports: what Transformers and PEFT load is the run's policy, and a folder is whole or not there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import peft
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from groupwise.agents.export import export_run
from groupwise.agents.model_start import load_run
from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError, RunError, StorageError
from groupwise.language.loading import load_model
from groupwise.language.tiny import character_tokenizer
from groupwise.training.folder import create_run

from .conftest import MakeRun

TEXT = "Is 12 + 30 = 42?\n  yes"
TOKENIZER = character_tokenizer()
IDS = torch.tensor([TOKENIZER.encode(TEXT)])


@torch.no_grad()
def logits(model: torch.nn.Module) -> torch.Tensor:
    return model(IDS).logits


@pytest.mark.parametrize("changes", [{}, {"lora_rank": 4}], ids=["whole weights", "adapter"])
def test_transformers_alone_loads_the_runs_policy(make_run: MakeRun, tmp_path: Path, changes: dict[str, int]) -> None:
    run, folder = make_run(**changes), tmp_path / "deep" / "model"
    written = export_run(run, folder)
    assert written["step"] == 2
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    torch.testing.assert_close(logits(model), logits(load_run(run).model), rtol=1e-5, atol=1e-5)
    assert (logits(model) - logits(load_model("tiny").model)).abs().max() > 0.01
    assert tokenizer.encode(TEXT) == IDS[0].tolist()
    assert tokenizer.decode(IDS[0]) == TEXT
    assert tokenizer.chat_template == TOKENIZER.chat_template
    torch.testing.assert_close(logits(load_model(str(folder)).model), logits(model))
    assert len({path.stat().st_mode for path in folder.iterdir()}) == 1


def test_peft_loads_the_adapter_alone(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run(lora_rank=4)
    export_run(run, tmp_path / "adapter", adapter=True)
    assert not (tmp_path / "adapter" / "model.safetensors").exists()
    learned = logits(load_run(run).model)
    on_top = peft.PeftModel.from_pretrained(load_model("tiny").model, str(tmp_path / "adapter")).eval()
    torch.testing.assert_close(logits(on_top), learned, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(logits(load_model(str(tmp_path / "adapter")).model), learned, rtol=1e-5, atol=1e-5)


def test_an_older_checkpoint_can_be_had(make_run: MakeRun, tmp_path: Path) -> None:
    export_run(make_run(), tmp_path / "first", step=1)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "first")
    torch.testing.assert_close(logits(model), logits(load_run(make_run(), 1).model))
    assert not torch.equal(logits(model), logits(load_run(make_run()).model))


def test_what_is_in_the_way_is_not_overwritten(make_run: MakeRun, tmp_path: Path) -> None:
    run, folder = make_run(), tmp_path / "model"
    folder.mkdir()
    export_run(run, folder, step=1)
    (folder / "mine.txt").write_text("notes")
    with pytest.raises(StorageError, match="contains an earlier export"):
        export_run(run, folder)
    export_run(run, folder, force=True)
    assert json.loads((folder / "groupwise.json").read_text())["step"] == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("years of work")
    with pytest.raises(StorageError, match="other is not empty, and not an earlier export"):
        export_run(run, tmp_path / "other", force=True)
    with pytest.raises(StorageError, match="is a file"):
        export_run(run, tmp_path / "other" / "thesis.tex", force=True)
    assert (tmp_path / "other" / "thesis.tex").read_text() == "years of work"


def test_the_folder_one_stands_in_is_not_replaced(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (".", "..", str(tmp_path)):
        with pytest.raises(StorageError, match="is the current folder or a parent of it") as caught:
            export_run(make_run(), Path(folder))
        assert "./model" in caught.value.hint
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    export_run(make_run(), Path("link/../link"))
    assert (tmp_path / "empty" / "model.safetensors").is_file()


def test_runs_that_have_nothing_of_the_kind_say_so(
    make_run: MakeRun, small_config: Callable[..., TrainingConfig], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"has no adapter: it trained all weights \(language.lora_rank = 0\)"):
        export_run(make_run(), tmp_path / "x", adapter=True)
    second = make_run(lora_rank=2, model_name=str(make_run()))
    with pytest.raises(ConfigError, match=f"was trained on top of {make_run()}"):
        export_run(second, tmp_path / "x", adapter=True)
    with pytest.raises(RunError, match="did not train a language model"):
        export_run(create_run(small_config()), tmp_path / "x")
    assert not (tmp_path / "x").exists()


KILLED = """
import hashlib, os, signal, sys
from pathlib import Path
from groupwise.agents.export import export_run

TOUCHES = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir")
run, folder = Path(sys.argv[1]), Path(sys.argv[2])


def content():
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()} if folder.exists() else None


def export_and_die(moment):
    def count(event, arguments):
        nonlocal moment
        if event in TOUCHES and str(folder.parent) in str(arguments[0]):
            moment -= 1
            if moment == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    export_run(run, folder, force=True)
    os._exit(0)


export_run(run, folder)
new = content()
export_run(run, folder, step=1, force=True)
old = content()
seen, status = [], None
while status != 0:
    if (child := os.fork()) == 0:
        export_and_die(5 * len(seen) + 5)
    status = os.waitpid(child, 0)[1]
    found = content()
    assert found in (old, new, None), (len(seen), found)
    seen.append("new" if found == new else "old" if found == old else "none")
    if found != old:
        export_run(run, folder, step=1, force=True)
        assert [p.name for p in folder.parent.iterdir()] == [folder.name], "what was left over is cleared away"
print(" ".join(seen))
"""


def test_an_export_killed_at_any_moment_leaves_the_old_folder_the_new_one_or_none(
    make_run: MakeRun, tmp_path: Path
) -> None:
    """A child kills itself at the 5th, the 10th, … time it touches the disk, until it comes through."""
    words = [sys.executable, "-c", KILLED, str(make_run()), str(tmp_path / "place" / "model")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    seen = done.stdout.split()
    assert done.returncode == 0, done.stderr
    assert seen[0] == "old"
    assert seen[-1] == "new"
    assert len(seen) > 4
