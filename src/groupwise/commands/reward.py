"""`groupwise reward check`: what a reward can be fooled with, before a long run finds out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.table import Table
from rich.text import Text

from groupwise.errors import ConfigError
from groupwise.reporting.command_options import Common, Overrides, answer

if TYPE_CHECKING:
    from groupwise.rewards.trial import Trial
    from groupwise.types import Reward


SETTINGS = (".toml", ".yaml", ".yml", ".json", ".xml")
SHOWN = 160  # characters of a reply


def check(
    reward: Annotated[str, Parameter(help="A settings file, the name of a reward, or FILE.py:NAME.")],
    *,
    pairs: Annotated[
        Path | None,
        Parameter(help="JSON lines with prompt, good, and perhaps bad and reference. Default: 15 shipped examples."),
    ] = None,
    tries: Annotated[
        int,
        Parameter(validator=Number(gte=0), help="Constant replies to try. 0 skips the search, which a judge needs."),
    ] = 2000,
    seconds: Annotated[
        float | None,
        Parameter(validator=Number(gt=0), help="How long the search for a constant may take, for slow rewards."),
    ] = None,
    seed: Annotated[int, Parameter(help="Random seed of the attacks.")] = 0,
    set_: Overrides = (),
    common: Common = Common(),
) -> int:
    """Try a reward on good and bad answers, on ten tricks, and on the best constant reply a search finds.

    The exit status is 1 if a trick beats good answers.
    """
    from groupwise.rewards.attacks import BATCH
    from groupwise.rewards.trial import SECONDS, on_trial, read_examples, shipped_examples

    patience = SECONDS if seconds is None else seconds
    examples = shipped_examples() if pairs is None else read_examples(pairs)
    if not examples:
        raise ConfigError(f"{pairs} has no examples", hint='Each line: {"prompt": …, "good": …, "bad": …}.')
    with Console(stderr=True).status(f"{len(examples)} questions, {tries:,} constant replies"):
        try:
            found = on_trial(_found(reward, set_), examples, tries, seed, patience)
        except SystemExit as error:
            message = f"the reward ended the program (exit status {error.code!r}) instead of returning a score"
            raise ConfigError(message, hint="Raise an exception: then only that attempt is left out.") from None
    if common.json:
        answer({"reward": reward, **found.as_dict()})
    else:
        _print(Console(), reward, found, tries - tries % BATCH)
    return 1 if found.fooled else 0


def _found(name: str, overrides: tuple[str, ...]) -> Reward:
    from groupwise.config import RewardSettings, load_config
    from groupwise.rewards.registry import find_reward

    settings = load_config(Path(name), overrides).reward if name.endswith(SETTINGS) else RewardSettings(name=name)
    reward = find_reward(settings)
    if reward is None:
        message = f"{name} names no reward: the task's own score counts, and cannot be tried here"
        raise ConfigError(message, hint="Set reward.name, or name the reward on the command line.")
    return reward


def _print(console: Console, name: str, found: Trial, tries: int) -> None:
    from groupwise.rewards.trial import BETTER

    console.print(f"{name}: good answers to {found.questions} questions score {found.good_mean:.3f} on average")
    if found.failed:
        console.print(Text(f"{found.failed} of the good answers could not be scored and are left out: {found.reason}"))
    if found.pairs:
        console.print(f"good above bad in {found.pairs_right} of {found.pairs} pairs")
    table = Table(box=None, pad_edge=False)
    for heading in ("trick", "mean", "beats the good answer", ""):
        table.add_column(heading, justify="right" if heading == "mean" else "left")
    for row in found.findings:
        verdict = Text("unseen", "yellow") if row.unseen else Text("ok", "green")
        verdict = Text("fooled", "red") if row.fooled else verdict
        table.add_row(row.trick.replace("_", " "), f"{row.mean:.3f}", f"{row.wins} of {row.questions}", verdict)
    fooled = "constant" in found.fooled
    if found.constant_reply:
        verdict = Text("fooled", "red") if fooled else Text("ok", "green")
        table.add_row("one reply for everything", f"{found.constant_mean:.3f}", "", verdict)
        console.print(table)
        console.print(Text(f"the best of those found: {found.constant_reply[:SHOWN]!r}"))
    else:
        console.print(table)
    if 0 < found.tries < tries:
        console.print(f"The search stopped after {found.tries:,} of {tries:,} tries, because the reward is slow.")
    unseen = [row.trick.replace("_", " ") for row in found.findings if row.unseen]
    if unseen and not found.alike:
        console.print(f"The reward cannot tell these from good answers: {', '.join(unseen)}.")
    if found.alike:
        console.print(f"Every reply scores {found.good_mean:.3g}: the reward does not look at what is said.")
    elif found.fooled:
        told = (
            f"A policy can gain {found.gain:.3f} over good answers."
            if found.gain > BETTER
            else "Good answers score higher on average, but these tricks win on more than a tenth of the questions."
        )
        advice = "Add a check that can be right or wrong, a reference answer or a judge."
        console.print(f"{told} {advice}")
    else:
        console.print("No trick beats good answers.")
