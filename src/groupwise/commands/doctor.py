"""`groupwise doctor`: is this machine ready, and is there anything to learn with these settings?"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from groupwise.errors import GroupwiseError, StorageError
from groupwise.extras import PACKAGES
from groupwise.files import write_atomic
from groupwise.products import product_of
from groupwise.reporting.command_options import RUNS, Common, Overrides, RunsDir, answer
from groupwise.sandbox import available

MARKS = {"ok": "[green]ok[/green]", "note": "[yellow]note[/yellow]", "fault": "[red]fault[/red]"}


@dataclass(frozen=True)
class DoctorFinding:
    """One thing that was checked: its state (`ok`, `note` or `fault`), and what to do about it."""

    name: str
    state: str
    detail: str
    remedy: str = ""


def doctor(
    config: Annotated[Path | None, Parameter(help="A settings file to try out; nothing is trained or saved.")] = None,
    *,
    steps: Annotated[int, Parameter(validator=Number(gte=1), help="How many steps to sample groups for.")] = 3,
    runs_dir: RunsDir = Path(RUNS),
    set_: Overrides = (),
    common: Common = Common(),
) -> int:
    """Check this machine; with a settings file, also sample a few groups and check that they differ."""
    findings = [*machine(runs_dir)]
    if config is not None:
        findings += preflight(config, set_, steps)
    healthy = all(finding.state != "fault" for finding in findings)
    if common.json:
        answer({"ok": healthy, "findings": [asdict(finding) for finding in findings]})
    else:
        show(findings)
    return 0 if healthy else 1


def machine(runs_dir: Path) -> Iterator[DoctorFinding]:
    """What Groupwise needs from the machine itself."""
    yield DoctorFinding("python", "ok", sys.version.split()[0])
    if find_spec("torch") is not None:
        yield from torch_findings()
    extras: dict[str, list[str]] = {}
    for package, extra in PACKAGES.items():
        extras.setdefault(extra, []).append(package)
    for extra, packages in extras.items():
        missing = [name for name in packages if find_spec(name) is None]
        detail = f"missing: {', '.join(missing)}" if missing else "installed"
        remedy = f"pip install 'groupwise[{extra}]'" if missing else ""
        yield DoctorFinding(f"extra {extra}", "note" if missing else "ok", detail, remedy)
    yield disk_finding(runs_dir)
    yield sandbox_finding()


def torch_findings() -> Iterator[DoctorFinding]:
    import torch

    device = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "CPU only"
    yield DoctorFinding("torch", "ok", f"{torch.__version__}, {device}")
    threads, cores = torch.get_num_threads(), os.cpu_count() or 1
    remedy = "" if threads == 1 else "Small networks run faster, and repeat exactly, with OMP_NUM_THREADS=1."
    yield DoctorFinding("threads", "ok" if threads == 1 else "note", f"{threads} of {cores} cores", remedy)


def disk_finding(runs_dir: Path) -> DoctorFinding:
    """Whether a run could be saved here, and how long a safe write takes."""
    place = runs_dir if runs_dir.is_dir() else Path()
    free = shutil.disk_usage(place).free / 1e9
    try:
        with tempfile.TemporaryDirectory(dir=place) as folder:
            clock = time.perf_counter()
            write_atomic(Path(folder) / "probe", b"x" * 4096)
            took = (time.perf_counter() - clock) * 1000
    except (StorageError, OSError) as error:
        return DoctorFinding("disk", "fault", str(error), "Choose another folder: --set run.output_dir=…")
    state = "ok" if free > 1 else "note"
    return DoctorFinding("disk", state, f"{free:.1f} GB free, {took:.1f} ms for a safe write")


def sandbox_finding() -> DoctorFinding:
    """Whether code written by a model can be run safely here, and in which tier."""
    faults = available()
    there = [tier for tier, fault in faults.items() if not fault]
    missing = [f"{tier}: {fault.splitlines()[0]}" for tier, fault in faults.items() if fault]
    remedies = [fault.splitlines()[-1] for fault in faults.values() if fault]
    detail = "; ".join([*([f"{' and '.join(there)}, tried just now"] if there else []), *missing])
    return DoctorFinding("sandbox", "note" if missing else "ok", detail, " ".join(remedies))


def preflight(config: Path, overrides: tuple[str, ...], steps: int) -> Iterator[DoctorFinding]:
    """A few steps without learning: do the groups differ, and how fast are they sampled?"""
    from groupwise.config import load_config

    try:
        cfg = load_config(config, overrides)
        notes = product_of(cfg).check(cfg)
        parts = product_of(cfg).build(cfg)
        source = parts.source
        yield DoctorFinding("settings", "ok", str(config))
        yield from (DoctorFinding("settings", "ok", note) for note in notes)
        if parts.inspect is not None:
            broken = [
                DoctorFinding("environment", "fault", failure.message, failure.hint) for failure in parts.inspect()
            ]
            yield from broken or [DoctorFinding("environment", "ok", f"{cfg.task.environment} keeps its contract")]
        clock = time.perf_counter()
        batches = [source.next() for _ in range(steps)]
        seconds = time.perf_counter() - clock
    except GroupwiseError as error:
        yield DoctorFinding("settings" if error.code == "config" else "rollout", "fault", error.message, error.hint)
        return
    samples = sum(batch.samples for batch in batches)
    yield DoctorFinding("sampling", "ok", f"{samples / seconds:,.0f} samples/s over {steps} steps of groups")
    yield from judge_groups([dict(batch.metrics) for batch in batches])


def judge_groups(metrics: list[dict[str, float | None]]) -> Iterator[DoctorFinding]:
    """Faults that would waste a whole run, found before it starts."""

    def mean(name: str) -> float:
        values = [value for row in metrics if (value := row.get(name)) is not None]
        return sum(values) / len(values) if values else float("nan")

    # (metric, name, share above which to note it, share from which it is a fault, remedy)
    rules = (
        ("groups/failed_share", "attempts without a score", 0.0, 0.5, "Check the reward and the environment."),
        ("groups/zero_spread_share", "groups without spread", 0.5, 0.99,
         "All attempts of a group score the same: try easier or harder tasks, or a larger rollout.num_generations."),
        ("attempt/truncated_share", "attempts cut off", 0.5, 1.1,
         "Raise task.max_episode_steps, or sampling.max_new_tokens."),
    )  # fmt: skip
    for name, words, note, fault, remedy in rules:
        share = mean(name)
        state = "fault" if share >= fault else "note" if share > note else "ok"
        yield DoctorFinding(words, state, f"{share:.0%}", remedy if state != "ok" else "")
    yield DoctorFinding("reward", "ok", f"{mean('reward/mean'):.4g} ± {mean('reward/std'):.4g} before training")


def show(findings: list[DoctorFinding]) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("", "what", "found", "what to do"):
        table.add_column(column, overflow="fold")
    for finding in findings:
        # The brackets of an extra are not markup.
        table.add_row(MARKS[finding.state], finding.name, escape(finding.detail), escape(finding.remedy))
    Console().print(table)
