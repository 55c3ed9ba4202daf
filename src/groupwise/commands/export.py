"""`groupwise export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from groupwise.agents.export import export_run
from groupwise.commands.options import RUNS, Common, RunName, RunsDir, answer
from groupwise.training.folder import find_run


def export(
    run: RunName,
    folder: Annotated[Path, Parameter(help="Where to; made if it is not there.")],
    *,
    adapter: Annotated[bool, Parameter(negative=(), help="The LoRA adapter alone, for PEFT.")] = False,
    step: Annotated[int | None, Parameter(help="Which checkpoint; the newest if not given.")] = None,
    force: Annotated[bool, Parameter(negative=(), help="Replace an earlier export.")] = False,
    runs_dir: RunsDir = Path(RUNS),
    common: Common = Common(),
) -> None:
    """Write a run's language model as a folder that `AutoModelForCausalLM.from_pretrained` loads."""
    path = find_run(run, str(runs_dir))
    written = export_run(path, folder, adapter=adapter, step=step, force=force)
    if common.json:
        answer(written)
        return
    loader = "PeftModel.from_pretrained" if adapter else "AutoModelForCausalLM.from_pretrained"
    print(f"{written['kind']} weights of {path.name} at step {written['step']} are in {folder}")
    print(f"load them with {loader}, or talk to them: groupwise chat {folder}")
