"""Finding the setting that a given name means: flat, nested or dotted, and what to say when there is none."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from groupwise.config.finding import Finding, quoted
from groupwise.config.sections import SECTIONS, SETTINGS, Section, setting_in

PROFILE = "profile"

# What other libraries call it; only ever used to answer an unknown name.
FOREIGN: Mapping[str, str] = {
    "lr": "learning_rate",
    "epsilon": "clip_ratio",
    "epsilon_high": "clip_ratio_high",
    "clip_range": "clip_ratio",
    "delta": "dual_clip",
    "group_size": "num_generations",
    "kl_coef": "beta",
    "ent_coef": "entropy_coef",
    "vf_coef": "value_coef",
    "max_steps": "num_episodes",
    "n_envs": "num_envs",
    "n_steps": "num_steps",
    "total_timesteps": "total_samples",
    "n_epochs": "num_epochs",
    "num_iterations": "num_epochs",
    "scale_rewards": "advantage_scale",
    "importance_sampling_level": "importance_level",
    "max_turns": "max_conversation_turns",
    "env": "environment",
    "env_id": "environment",
    "model": "model_name",
}


def collect(given: Mapping[Any, Any]) -> tuple[dict[str, Any], list[Finding]]:
    """The raw values under their settings' names, and a finding for each name unknown or given twice."""
    values: dict[str, Any] = {}
    findings: list[Finding] = []
    for section, name, value in _entries(given, findings):
        declared = setting_in(section, name)
        if declared is None:
            findings.append(_unknown(section, name))
        elif declared.flat in values:
            twice = f"{declared.path} is given twice, as {quoted(values[declared.flat])} and as {quoted(value)}"
            findings.append(Finding(declared.path, twice, "keep one; flat and nested forms are the same setting"))
        else:
            values[declared.flat] = value
    return values, findings


def _entries(given: Mapping[Any, Any], findings: list[Finding]) -> Iterator[tuple[str, Any, Any]]:
    """(section or "", name, value) for each value; sections that hold no settings become findings."""
    for key, value in given.items():
        if key == PROFILE:
            continue
        if isinstance(key, str) and "." in key:
            head, _, tail = key.partition(".")
            yield head, tail, value
        elif key in SECTIONS:
            yield from ((key, name, item) for name, item in _section_items(key, value, findings))
        elif isinstance(value, Mapping) and key not in SETTINGS:
            findings.append(_unknown_section(key))
        else:
            yield "", key, value


def _section_items(section: str, value: Any, findings: list[Finding]) -> Iterable[tuple[Any, Any]]:
    if value is None:
        return ()
    if isinstance(value, Mapping | SECTIONS[section]):
        return value.items()
    holds = type(value).__name__ if isinstance(value, Section) else quoted(value)
    example = next(name for name, declared in SETTINGS.items() if declared.section == section)
    findings.append(
        Finding(
            section,
            f"section {section} must hold settings, not {holds}",
            f"for example {section}.{example} = …",
        )
    )
    return ()


def _unknown(section: str, name: Any) -> Finding:
    path = f"{section}.{name}" if section else f"{name}"
    if section and section not in SECTIONS:
        return Finding(path, f"unknown section {section!r} in {path!r}", _nearest_section(section, name))
    home = SETTINGS.get(name) if isinstance(name, str) else None
    if home:
        return Finding(path, f"unknown setting {path!r}: {name} is in section {home.section}", f"write {home.path}")
    where = f" in section {section}" if section else ""
    return Finding(path, f"unknown setting {quoted(name)}{where}", _nearest(section, str(name)))


def _unknown_section(key: Any) -> Finding:
    return Finding(str(key), f"unknown section {quoted(key)}", _nearest_section(str(key)))


def _nearest(section: str, name: str) -> str:
    """Which setting was probably meant; within the section first, then anywhere."""
    plain = name.lower().replace("-", "_")
    near = SETTINGS.get(FOREIGN.get(plain, plain)) or _closest(plain, section) or _closest(plain)
    if near:
        return f"did you mean {near.path}?"
    members = [s.name for s in SETTINGS.values() if s.section == section]
    return f"section {section} has {', '.join(members)}" if members else "docs/reference/config.md lists them all"


def _closest(name: str, section: str = "") -> Any:
    declared = [known for known in SETTINGS.values() if section in ("", known.section)]
    names = {known.name if section else known.flat: known for known in declared}
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return names[near[0]] if near else None


def _nearest_section(section: str, name: str = "") -> str:
    meant = SETTINGS.get(name) or _closest(name)
    if meant:
        return f"did you mean {meant.path}?"
    near = difflib.get_close_matches(section.lower(), SECTIONS, n=1)
    return f"did you mean {near[0]}?" if near else f"sections are {', '.join(SECTIONS)}"
