"""`TrainingConfig`: every setting of a run, checked together, and written as TOML that reads back exactly."""

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self, Unpack

from pydantic import BaseModel, ConfigDict

from groupwise.config.fields import Finding, Options, Section, Setting, quoted, raise_findings, settings_of
from groupwise.config.flat_names import SettingNames
from groupwise.config.sections import (
    AdvantageSettings,
    GroupingSettings,
    LanguageSettings,
    LossSettings,
    MemorySettings,
    OptimSettings,
    PolicySettings,
    RanksSettings,
    RewardSettings,
    RolloutSettings,
    RunSettings,
    SamplingSettings,
    ScoringSettings,
    TaskSettings,
    ToolsSettings,
    TrainingSettings,
    VllmSettings,
)
from groupwise.config.setting_names import (
    PROFILE,
    Resolved,
    TrainingProfile,
    every_setting,
    layout_of,
    owners_of,
    resolve,
)
from groupwise.products import find


class TrainingConfig(BaseModel):
    """Every setting of a run: the common sections, and those of its product.

    Pass settings by their flat names, `TrainingConfig(beta=0.1)`, and read them in their sections, `cfg.loss.beta`.
    Files and `from_dict` may nest them. All problems are raised together as one `ConfigError`.
    """

    # The sections of the product are kept as Pydantic's extra fields.
    model_config = ConfigDict(frozen=True, extra="allow")

    run: RunSettings
    task: TaskSettings
    training: TrainingSettings
    rollout: RolloutSettings
    policy: PolicySettings
    advantage: AdvantageSettings
    loss: LossSettings
    optim: OptimSettings
    ranks: RanksSettings
    grouping: GroupingSettings
    if TYPE_CHECKING:  # sections that some products share; at run time they are extra fields
        sampling: SamplingSettings
        language: LanguageSettings
        vllm: VllmSettings
        tools: ToolsSettings
        reward: RewardSettings
        memory: MemorySettings
        scoring: ScoringSettings

    def __init__(self, **settings: Unpack[SettingNames]) -> None:
        # Nested sections are for files; one form in Python keeps keywords typed.
        nested = [name for name in settings if name in every_setting().sections]
        raise_findings([_not_flat(name) for name in nested])
        super().__init__(**_sound(resolve(settings)))

    def __getattr__(self, name: str) -> Any:
        """A section of the product; a wrong name is answered with the right one."""
        try:
            extra = object.__getattribute__(self, "__pydantic_extra__")
        except AttributeError:  # not made yet: it is being copied or unpickled
            extra = None
        if extra and name in extra:
            return extra[name]
        raise AttributeError(name if extra is None or name.startswith("_") else self._missing(name))

    def _missing(self, name: str) -> str:
        known = every_setting()
        if name in known.sections:
            return f"a {self.task.product} run has no section {name!r}; it belongs to {', '.join(owners_of(name))}"
        near = difflib.get_close_matches(name, [*known.settings, *known.sections], n=1)
        meant = known.settings[near[0]].path if near and near[0] in known.settings else "".join(near)
        return f"TrainingConfig has no section {name!r}" + (f"; did you mean {meant}?" if meant else "")

    @property
    def sections(self) -> dict[str, Section]:
        """The sections by name, in the order in which files list them."""
        return {name: getattr(self, name) for name in layout_of(self.task.product).sections}

    @classmethod
    def from_profile(cls, profile: TrainingProfile | str, **settings: Unpack[SettingNames]) -> Self:
        """A named starting point, with some settings changed."""
        return cls.from_dict({PROFILE: profile, **settings})

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """From nested or flat plain values, as `to_dict` or a file gives them; they may name a `profile`."""
        raise_findings(_not_a_table(settings))
        return cls._made(resolve(settings))

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Nested plain values, as JSON has them."""
        return {name: {own: plain(value) for own, value in section.items()} for name, section in self.sections.items()}

    def to_toml(self, comments: bool = False) -> str:
        """A TOML file that reads back as this very configuration; `comments` adds each setting's meaning."""
        usual = find(self.task.product).defaults
        tables = (_table(name, section, comments, usual) for name, section in self.sections.items())
        return "\n".join("".join(lines) for lines in tables)

    def replace(self, **settings: Unpack[SettingNames]) -> Self:
        """The same configuration with some settings changed."""
        return self._made(resolve(settings, base=self.flat()))

    def flat(self) -> dict[str, Any]:
        """Every setting by its flat name."""
        return {
            declared.flat: getattr(section, own)
            for section in self.sections.values()
            for own, declared in settings_of(type(section)).items()
        }

    @classmethod
    def _made(cls, resolved: Resolved) -> Self:
        # The constructor takes flat names; values that are resolved already go around it.
        made = cls.__new__(cls)
        BaseModel.__init__(made, **_sound(resolved))
        return made


def _sound(resolved: Resolved) -> dict[str, Any]:
    raise_findings(resolved.findings)
    return {**resolved.sections()}


def _not_flat(section: str) -> Finding:
    example = next(iter(settings_of(every_setting().sections[section]).values())).flat
    message = f"{section} is a section; the constructor takes settings by their flat names"
    return Finding(section, message, f"write {example}=… for a setting of it, or use TrainingConfig.from_dict")


def _not_a_table(settings: Any) -> list[Finding]:
    if isinstance(settings, Mapping):
        return []
    return [Finding("", f"a configuration is a table of settings, not {quoted(settings)}")]


def check_settings(settings: Any) -> list[Finding]:
    """Everything that is wrong with nested or flat settings; an empty list if nothing is."""
    return _not_a_table(settings) or resolve(settings).findings


def plain(value: Any) -> Any:
    """The value in types that JSON has."""
    if isinstance(value, tuple):
        return list(value)
    return {key: plain(item) for key, item in value.items()} if isinstance(value, Options) else value


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


def _table(name: str, section: Section, comments: bool, usual: Mapping[str, Any]) -> Iterator[str]:
    if comments:
        yield f"# {(type(section).__doc__ or '').strip()}\n"
    yield f"[{name}]\n"
    tables: list[tuple[Setting, Options]] = []
    for declared in settings_of(type(section)).values():
        value = getattr(section, declared.name)
        if isinstance(value, Options):
            tables.append((declared, value))  # TOML wants them after the plain values of their section
            continue
        if comments:
            yield f"# {_comment(declared)}\n"
        # null is the default of most optional settings and then left out; if the product's default is
        # another, leaving it out would read back as that.
        if value is not None or usual.get(declared.flat, declared.default) is not None:
            yield f"{declared.name} = {toml_value(value)}\n"
        elif comments:
            yield f"# {declared.name} =\n"
    for declared, options in tables:
        if options or comments:
            yield f"\n# {_comment(declared)}\n" if comments else "\n"
            yield f"[{name}.{declared.name}]\n"
            yield from (f"{_key(key)} = {toml_value(item)}\n" for key, item in options.items())


def _comment(declared: Setting) -> str:
    limits = ", ".join(filter(None, (declared.noun, declared.bounds)))
    return f"{declared.meaning} ({limits})"


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else toml_value(key)
