"""`groupwise config show | schema | check`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from groupwise.commands.options import Common, Overrides, answer
from groupwise.config import Finding, TrainingConfig, check_config, load_config
from groupwise.config.files import apply_overrides
from groupwise.config.reference import config_schema
from groupwise.errors import ConfigError
from groupwise.products import product_of


def show(
    config: Path | None = None,
    *,
    profile: Annotated[str | None, Parameter(help="conservative, balanced or aggressive.")] = None,
    comments: Annotated[bool, Parameter(negative=(), help="Add what each setting means.")] = False,
    set_: Overrides = (),
    common: Common = Common(),
) -> None:
    """Show settings with every default filled in: of a file, of a profile, or the defaults themselves.

    Parameters
    ----------
    config
        A settings file (TOML, YAML, JSON or XML).
    """
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
    answer(config_schema())


def check(config: Path, *, set_: Overrides = (), common: Common = Common()) -> int:
    """Check a settings file and name every mistake in it.

    Parameters
    ----------
    config
        A settings file (TOML, YAML, JSON or XML).
    """
    findings = check_config(config, set_)
    if not findings:
        try:
            cfg = load_config(config, set_)
            product_of(cfg).check(cfg)
        except ConfigError as error:
            findings = [Finding(error.field, error.message, error.hint)]
    if common.json:
        answer({"file": str(config), "ok": not findings, "findings": [asdict(f) for f in findings]})
    elif findings:
        for finding in findings:
            print(f"{config}: {finding}")
    else:
        print(f"{config}: every setting is right")
    return 2 if findings else 0
