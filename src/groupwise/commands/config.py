"""`groupwise config show | check | schema`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from groupwise.errors import ConfigError
from groupwise.products import product_of
from groupwise.reporting.command_options import Common, Overrides, SettingsFile, answer, say


def show(
    config: Annotated[Path | None, Parameter(help="Settings file. Default: the built-in settings.")] = None,
    *,
    profile: Annotated[str | None, Parameter(help="conservative, balanced or aggressive.")] = None,
    comments: Annotated[bool, Parameter(help="Explain each setting.")] = False,
    set_: Overrides = (),
    common: Common = Common(),
) -> None:
    """Show the settings of a file or a profile with all defaults filled in."""
    from groupwise.config import TrainingConfig, apply_overrides, load_config

    if config is not None:
        cfg = load_config(config, set_)
    else:
        cfg = TrainingConfig.from_dict(apply_overrides({"profile": profile} if profile else {}, set_))
    if common.json:
        answer(cfg.to_dict())
    else:
        print(cfg.to_toml(comments=comments), end="")


def schema(*, common: Common = Common()) -> None:
    """Print the JSON Schema of settings files, for completion and checks in an editor."""
    from groupwise.config.reference import config_schema

    answer(config_schema())


def check(config: SettingsFile, *, set_: Overrides = (), common: Common = Common()) -> int:
    """Check a settings file and list every mistake in it."""
    from groupwise.config import Finding, check_config, load_config

    notes: tuple[str, ...] = ()
    findings = check_config(config, set_)
    if not findings:
        try:
            cfg = load_config(config, set_)
            notes = product_of(cfg).check(cfg)
        except ConfigError as error:
            findings = [Finding(error.field, error.message, error.hint)]
    if common.json:
        told = {"findings": [asdict(finding) for finding in findings], "notes": list(notes)}
        answer({"file": str(config), "ok": not findings, **told})
    elif findings:
        for finding in findings:
            print(f"{config}: {finding}")
    else:
        say(*(f"note: {note}" for note in notes), f"{config}: all settings are valid")
    return 2 if findings else 0
