"""`TrainingConfig`: every setting of a run, stored nested, given and read flat or nested."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from groupwise.config.finding import Finding, quoted, raise_findings
from groupwise.config.names import PROFILE, collect
from groupwise.config.profiles import PROFILES, TrainingProfile
from groupwise.config.reading import read
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
    TaskSettings,
    TrainingSettings,
)
from groupwise.config.setting import Options, settings_of
from groupwise.config.toml import toml_text


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
