"""`TrainingConfig`: every setting of a run, given flat or nested, checked together, and written as TOML."""

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from groupwise.config.fields import Finding, Options, Setting, quoted, raise_findings, read, settings_of
from groupwise.config.rules import broken_rules
from groupwise.config.sections import (
    SECTIONS,
    SETTINGS,
    AdvantageSettings,
    GenerationSettings,
    GroupingSettings,
    LanguageSettings,
    LossSettings,
    MemorySettings,
    OptimSettings,
    PolicySettings,
    RewardSettings,
    RolloutSettings,
    RunSettings,
    SamplingSettings,
    ScoringSettings,
    Section,
    TaskSettings,
    TrainingSettings,
    setting_in,
)


class TrainingProfile(StrEnum):
    """How bold training is."""

    CONSERVATIVE = "conservative"
    BALANCED = "balanced"
    AGGRESSIVE = "aggressive"


_NAMES = (
    "learning_rate",
    "num_generations",
    "gradient_accumulation_steps",
    "max_grad_norm",
    "warmup_ratio",
    "eval_steps",
    "early_stopping",
    "early_stopping_patience",
)

PROFILES: Mapping[TrainingProfile, Mapping[str, Any]] = {
    TrainingProfile.CONSERVATIVE: dict(zip(_NAMES, (1e-6, 32, 8, 0.5, 0.2, 25, True, 30), strict=True)),
    TrainingProfile.BALANCED: dict(zip(_NAMES, (5e-6, 16, 4, 1.0, 0.1, 50, False, 50), strict=True)),
    TrainingProfile.AGGRESSIVE: dict(zip(_NAMES, (1e-5, 8, 2, 2.0, 0.05, 100, False, 100), strict=True)),
}


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


def toml_text(sections: Mapping[str, Section], comments: bool = False) -> str:
    """One table per section."""
    return "\n".join("".join(_table(name, section, comments)) for name, section in sections.items())


def toml_value(value: Any) -> str:
    """A value as TOML writes it; null, which TOML lacks, as a text that reading understands."""
    if value is None:
        return '"null"'
    if isinstance(value, str):
        # JSON's escapes are TOML's, except that TOML wants the delete character escaped too.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list):
        return f"[{', '.join(toml_value(member) for member in value)}]"
    return repr(value)


def _table(name: str, section: Section, comments: bool) -> Iterator[str]:
    if comments:
        yield f"# {(type(section).__doc__ or '').strip()}\n"
    yield f"[{name}]\n"
    for declared in settings_of(type(section)):
        value = getattr(section, declared.name)
        if isinstance(value, Options):
            continue
        if comments:
            yield f"# {_comment(declared)}\n"
        if value is not None or declared.default is not None:
            yield f"{declared.name} = {toml_value(value)}\n"
        elif comments:
            yield f"# {declared.name} =\n"
    for declared in settings_of(type(section)):
        value = getattr(section, declared.name)
        if isinstance(value, Options) and (value or comments):
            yield f"\n# {_comment(declared)}\n" if comments else "\n"
            yield f"[{name}.{declared.name}]\n"
            yield from (f"{_key(key)} = {toml_value(item)}\n" for key, item in value.items())


def _comment(declared: Setting) -> str:
    limits = ", ".join(filter(None, (declared.noun, declared.bounds)))
    return f"{declared.meaning} ({limits})"


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else toml_value(key)


@dataclass(frozen=True, slots=True, init=False)
class TrainingConfig:
    """Every setting of a run.

    Give them flat (`TrainingConfig(beta=0.1)`), nested (`TrainingConfig(loss={"beta": 0.1})`) or as a section
    (`TrainingConfig(loss=LossSettings(beta=0.1))`); read them as `cfg.loss.beta` or `cfg.beta`. All problems
    are raised together as one `ConfigError`.
    """

    run: RunSettings
    task: TaskSettings
    training: TrainingSettings
    rollout: RolloutSettings
    policy: PolicySettings
    sampling: SamplingSettings
    language: LanguageSettings
    reward: RewardSettings
    advantage: AdvantageSettings
    loss: LossSettings
    optim: OptimSettings
    grouping: GroupingSettings
    generation: GenerationSettings
    memory: MemorySettings
    scoring: ScoringSettings

    def __init__(self, **settings: Any) -> None:
        values, findings = resolve(settings)
        raise_findings(findings)
        for name, section in SECTIONS.items():
            own = {declared.name: values[declared.flat] for declared in settings_of(section)}
            object.__setattr__(self, name, section(**own))

    def __getattr__(self, name: str) -> Any:
        declared = SETTINGS.get(name)
        if declared is None and name.startswith("_"):
            raise AttributeError(name)
        if declared is None:
            near = difflib.get_close_matches(name, [*SETTINGS, *SECTIONS], n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise AttributeError(f"TrainingConfig has no setting {name!r}{hint}")
        return getattr(getattr(self, declared.section), declared.name)

    @classmethod
    def from_profile(cls, profile: TrainingProfile | str, **overrides: Any) -> Self:
        """A named starting point, with some settings of one's own."""
        return cls.from_dict({PROFILE: profile, **overrides})

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """From nested or flat plain values, as `to_dict` or a file gives them, `profile` perhaps too."""
        raise_findings(check_settings(settings))
        return cls(**settings)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Nested plain values that JSON can hold."""
        return {section: {name: plain(value) for name, value in getattr(self, section).items()} for section in SECTIONS}

    def to_toml(self, comments: bool = False) -> str:
        """A TOML file that reads back as this very configuration; `comments` adds each setting's meaning."""
        return toml_text({name: getattr(self, name) for name in SECTIONS}, comments)

    def replace(self, **settings: Any) -> Self:
        """The same configuration with some settings changed; a nested section changes only what it names."""
        values, findings = resolve(settings, base=self._flat())
        raise_findings(findings)
        return type(self)(**values)

    def _flat(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in SETTINGS}


def resolve(settings: Mapping[Any, Any], base: Mapping[str, Any] | None = None) -> tuple[dict[str, Any], list[Finding]]:
    """Every setting's value (as given, else the profile's, else `base` or the default) and all problems."""
    given, findings = collect(settings)
    profile, wrong_profile = _profile(settings.get(PROFILE))
    findings += wrong_profile
    values = dict(base) if base is not None else {name: s.default for name, s in SETTINGS.items()}
    values |= profile
    for name, raw in given.items():
        values[name], finding = read(SETTINGS[name], raw)
        if finding:
            findings.append(finding)
            del values[name]
    return values, findings + broken_rules(values)


def check_settings(settings: Any) -> list[Finding]:
    """What is wrong with nested or flat settings, all of it; an empty list when nothing is."""
    if not isinstance(settings, Mapping):
        return [Finding("", f"a configuration is a table of settings, not {quoted(settings)}")]
    return resolve(settings)[1]


def plain(value: Any) -> Any:
    """The value in types that JSON has."""
    if isinstance(value, tuple):
        return list(value)
    return {key: plain(item) for key, item in value.items()} if isinstance(value, Options) else value


def _profile(name: Any) -> tuple[Mapping[str, Any], list[Finding]]:
    if name is None:
        return {}, []
    try:
        return PROFILES[TrainingProfile(str(name).lower())], []
    except ValueError:
        names = ", ".join(TrainingProfile)
        return {}, [Finding(PROFILE, f"profile = {quoted(name)} must be one of {names}")]
