"""`groupwise rollout`: sample groups before training, to see whether there is anything to learn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.table import Table
from rich.text import Text

from groupwise.products import product_of
from groupwise.reporting.command_options import Common, Overrides, SettingsFile, answer

if TYPE_CHECKING:
    from groupwise.training.dry_run import DryRun


LONGEST = 1500


def rollout(
    config: SettingsFile,
    *,
    tasks: Annotated[int, Parameter(validator=Number(gte=1), help="How many groups to sample.")] = 8,
    show: Annotated[int, Parameter(validator=Number(gte=0), help="How many attempts to print.")] = 2,
    set_: Overrides = (),
    common: Common = Common(),
) -> int:
    """Sample and score groups as training would, without learning: is there any signal in them?

    The exit status is 1 if every attempt failed.
    """
    from groupwise.config import load_config
    from groupwise.reporting.console import print_hints
    from groupwise.training.checkpoint import seed_everything
    from groupwise.training.dry_run import dry_run
    from groupwise.training.loop import pending_hints
    from groupwise.training.session import use_threads

    cfg = load_config(config, set_)
    product = product_of(cfg)
    product.check(cfg)
    seed_everything(cfg.run.seed)
    use_threads(cfg.run.threads)
    parts = product.build(cfg)
    try:
        with Console(stderr=True).status(f"{tasks} groups of {cfg.rollout.num_generations} attempts"):
            found = dry_run(parts.source, parts.policy, tasks)
    finally:
        print_hints(pending_hints(parts.source))
        parts.source.close()
    if common.json:
        answer({**found.as_dict(), "cautions": found.cautions()})
    else:
        _print(Console(), found, show)
    return 1 if found.as_dict()["failed_share"] == 1 else 0


def _print(console: Console, found: DryRun, show: int) -> None:
    summary = found.as_dict()
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_row("groups", f"{summary['groups']} of {summary['attempts'] // summary['groups']} attempts")
    table.add_row("without signal", _share(summary["zero_signal_share"]))
    table.add_row("cut off", _share(summary["truncated_share"]))
    table.add_row("failed", _share(summary["failed_share"]))
    table.add_row("endings", ", ".join(f"{name} {count}" for name, count in summary["endings"].items()))
    table.add_row("reward", _range(summary["reward"]))
    if summary["reward_spread_in_groups"] is not None:
        table.add_row("spread inside groups", f"{summary['reward_spread_in_groups']:.3g}")
    for name, values in summary["parts"].items():
        table.add_row(f"  {name}", _range(values))
    if summary["turns"]:
        table.add_row("turns", _range(summary["turns"]))
    table.add_row("actions or tokens", _range(summary["actions"]))
    table.add_row("time", f"{summary['rollout_seconds']:.2f} s to make, {summary['score_seconds']:.2f} s to score")
    table.add_row("speed", f"{summary['actions_per_second']:,.0f} actions or tokens a second")
    console.print(table)
    for shown in _attempts(found, show):
        console.print(shown)
    for caution in found.cautions():
        console.print(Text(f"! {caution}", style="yellow"))


def _attempts(found: DryRun, show: int) -> list[Text]:
    """The best and the worst of the first groups that have words to show."""
    from groupwise.types import Score

    texts: list[Text] = []
    for group in found.groups:
        scored = [(s.total, m) for s, m in zip(group.scores, group.group.members, strict=True) if isinstance(s, Score)]
        spoken = sorted((pair for pair in scored if "text" in pair[1].meta), key=lambda pair: -pair[0])
        for total, member in spoken[:1] + spoken[-1:] if len(spoken) > 1 else spoken:
            head = Text(f"\n{member.id}  reward {total:.3g}  ended {member.end}\n", style="bold")
            said, thought = member.meta.get("content", member.meta["text"]), member.meta.get("reasoning", "")
            thought = f"({thought[:LONGEST]})\n" if thought else ""
            texts.append(head + Text(f"{member.meta['prompt']}\n{thought}", style="dim") + Text(said[:LONGEST]))
    return texts[:show]


def _share(value: float | None) -> str:
    return "unknown: nothing was scored" if value is None else f"{value:.0%}"


def _range(values: dict[str, Any] | None) -> str:
    if values is None:
        return "none"
    return f"{values['mean']:.3g} ± {values['std']:.2g}, from {values['min']:.3g} to {values['max']:.3g}"
