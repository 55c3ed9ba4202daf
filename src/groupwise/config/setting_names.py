"""Which settings the runs of a product have, and which of them a given name means.

    given names and values → product, named or implied → its layout → one value per setting, and all findings

Order of precedence: general default < product's default < profile < given.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any, NamedTuple

from groupwise import products
from groupwise.config.fields import Finding, Section, Setting, quoted, read_section, section_name, settings_of
from groupwise.config.rules import broken_rules
from groupwise.config.sections import SECTIONS, SHARED
from groupwise.errors import ConfigError, ContractError
from groupwise.products import broken_border, find

PROFILE = "profile"
PRODUCT = "task.product"
# Until every product declared its own, a settings file listed these sections, whatever product it was for.
OLD_SHAPE = frozenset((*SECTIONS, "generation")) - {"vllm", "ranks", "tools"}

# What other libraries call it; used only to answer an unknown name.
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


class TrainingProfile(StrEnum):
    """How bold training is."""

    CONSERVATIVE = "conservative"
    BALANCED = "balanced"
    AGGRESSIVE = "aggressive"


_PROFILE_SETTINGS = (
    "learning_rate",
    "num_generations",
    "gradient_accumulation_steps",
    "max_grad_norm",
    "warmup_ratio",
    "eval_steps",
    "early_stopping",
    "early_stopping_patience",
    "beta",
    "use_reference_model",
)
# "Maximum stability" includes a KL term; its weight is that of DeepSeekMath (arXiv 2402.03300).
PROFILES: Mapping[TrainingProfile, Mapping[str, Any]] = {
    TrainingProfile.CONSERVATIVE: dict(
        zip(_PROFILE_SETTINGS, (1e-6, 32, 8, 0.5, 0.2, 25, True, 30, 0.04, True), strict=True)
    ),
    TrainingProfile.BALANCED: dict(
        zip(_PROFILE_SETTINGS, (5e-6, 16, 4, 1.0, 0.1, 50, False, 50, 0.0, False), strict=True)
    ),
    TrainingProfile.AGGRESSIVE: dict(
        zip(_PROFILE_SETTINGS, (1e-5, 8, 2, 2.0, 0.05, 100, False, 100, 0.0, False), strict=True)
    ),
}


@dataclass(frozen=True)
class Layout:
    """The sections that runs of some products have, and their settings by flat name."""

    # Section name → class, in the order in which files list them; flat name → setting.
    sections: Mapping[str, type[Section]]
    settings: Mapping[str, Setting]

    @classmethod
    def of(cls, sections: Iterable[type[Section]]) -> "Layout":
        """The common sections and these, in the order in which files list them."""
        added = {section_name(section): section for section in sections}
        # Shared sections keep their place among the common ones, so that files of all products read alike.
        known = {name: section for name, section in SECTIONS.items() if name not in SHARED or name in added}
        every = {**known, **added}
        return cls(every, {s.flat: s for section in every.values() for s in _declared(section)})

    def find(self, section: str, name: object) -> Setting | None:
        """The setting of a name: in a section, or flat if the section is ""."""
        if not isinstance(name, str) or not section:
            return self.settings.get(name) if isinstance(name, str) else None
        # Inside a section the short name is usual, but the flat one is accepted too.
        there = settings_of(self.sections[section]) if section in self.sections else {}
        return there.get(name) or next((declared for declared in there.values() if declared.flat == name), None)


@cache
def layout_of(product: str) -> Layout:
    """The settings of a product. Its declaration is refused if it breaks a rule about settings."""
    declared = find(product)
    # A name must mean one thing whatever the product, or flat names would be ambiguous.
    taken = {s.flat for section in SECTIONS.values() for s in _declared(section)}
    for section in declared.sections:
        if not (isinstance(section, type) and issubclass(section, Section)):
            raise broken_border(product, f"its sections must be config.fields.Section classes, but {section!r} is not")
        names = () if section in SECTIONS.values() else (section_name(section), *(s.flat for s in _declared(section)))
        clash = [name for name in names if name in taken or name in SECTIONS]
        if clash:
            raise broken_border(product, f"its sections and settings need new names, but {clash[0]!r} is taken")
    layout = Layout.of(declared.sections)
    wrong = [f"{name!r} is not one of its settings" for name in declared.defaults if name not in layout.settings]
    wrong += [finding.message for finding in _values(layout, declared.defaults)[1]]
    wrong += [
        f"{name!r} is an optional string, which a file could not set back to null"
        for name, value in declared.defaults.items()
        if value is not None and name in layout.settings and layout.settings[name].is_optional_text
    ]
    if wrong:
        raise broken_border(product, f"its defaults must be valid settings: {wrong[0]}")
    return layout


@cache
def every_setting() -> Layout:
    """The settings of all products together: what a name can mean at all."""
    return Layout.of(section for name in products.names() for section in _sections_of(name).values())


def owners_of(section: str) -> list[str]:
    """The products whose runs have a section."""
    return [name for name in products.names() if section in _sections_of(name)]


def _sections_of(product: str) -> Mapping[str, type[Section]]:
    try:
        return layout_of(product).sections
    except ContractError:  # a plug-in that breaks a rule is refused when a run asks for it, not before
        return {}


def _declared(section: type[Section]) -> Iterable[Setting]:
    return settings_of(section).values()


class Resolved(NamedTuple):
    """The values that settings come to: by flat name, without those that are wrong."""

    product: str
    values: Mapping[str, Any]
    findings: list[Finding]
    notices: list[str]
    # The flat names of the settings that were given, whatever their values.
    given: frozenset[str] = frozenset()

    def sections(self) -> dict[str, Section]:
        """The sections themselves, if there are no findings."""
        layout = layout_of(self.product)
        return {
            name: section(**{own: self.values[declared.flat] for own, declared in settings_of(section).items()})
            for name, section in layout.sections.items()
        }


class _Entry(NamedTuple):
    """One given value: its section ("" if the name is flat), its name, and whether a table held it."""

    section: str
    name: Any
    value: Any
    nested: bool = False


def resolve(settings: Mapping[Any, Any], base: Mapping[str, Any] | None = None) -> Resolved:
    """Every setting's value and all problems. `base` replaces the defaults: the values of a configuration."""
    # Everything is resolved before anything is refused, so that all problems are reported at once.
    findings: list[Finding] = []
    entries = list(_entries(settings, findings))
    product, implied = _product(entries, findings, base)
    layout = layout_of(product)
    notices: list[str] = []
    old = settings.keys() >= OLD_SHAPE
    if old:
        entries, notices = _without_idle(entries, layout, product)
    given, unknown = _collect(entries, layout, product)
    profile, wrong_profile = _profile(settings.get(PROFILE))
    # An older file leaves out what is null, and knows no defaults but the general ones.
    usual = dict(find(product).defaults) if implied and not old else {}
    if base is not None:
        usual |= {name: value for name, value in base.items() if name in layout.settings and name != "product"}
    # Later entries win: the order of precedence from the top of this file.
    values, wrong = _values(layout, {"product": product, **usual, **profile, **given})
    findings += unknown + wrong_profile + wrong
    return Resolved(product, values, findings + broken_rules(values), notices, frozenset(given))


def _values(layout: Layout, given: Mapping[str, Any]) -> tuple[dict[str, Any], list[Finding]]:
    """Every setting's value, given or default, and what is wrong with those given."""
    values: dict[str, Any] = {}
    findings: list[Finding] = []
    for section in layout.sections.values():
        declared = settings_of(section)
        own = {name: given[setting.flat] for name, setting in declared.items() if setting.flat in given}
        sound, wrong = read_section(section, own)
        values |= {declared[name].flat: value for name, value in sound.items()}
        findings += wrong
    # Findings come in the order in which the settings were given, not in that of the sections.
    order = {layout.settings[name].path: place for place, name in enumerate(given) if name in layout.settings}
    return values, sorted(findings, key=lambda finding: order[finding.field])


def _entries(given: Mapping[Any, Any], findings: list[Finding]) -> Iterator[_Entry]:
    """Every given value. Sections that hold no settings become findings."""
    known = every_setting()
    for key, value in given.items():
        if key == PROFILE:
            continue
        # "loss.beta" is the form of an override, and of XML that spreads over several sections.
        if isinstance(key, str) and "." in key:
            section, _, name = key.partition(".")
            yield _Entry(section, name, value)
        elif key in known.sections:
            items = _section_items(key, known.sections[key], value, findings)
            yield from (_Entry(key, name, item, nested=True) for name, item in items)
        elif isinstance(value, Mapping) and key not in known.settings:
            findings.append(Finding(str(key), f"unknown section {quoted(key)}", _nearest_section(str(key))))
        else:
            yield _Entry("", key, value)


def _section_items(name: str, section: type[Section], value: Any, findings: list[Finding]) -> Iterable[tuple[Any, Any]]:
    if value is None:
        return ()
    if isinstance(value, Mapping | section):
        return value.items()
    holds = type(value).__name__ if isinstance(value, Section) else quoted(value)
    example = next(iter(settings_of(section)))
    message = f"section {name} must contain settings, not {holds}"
    findings.append(Finding(name, message, f"for example {name}.{example} = …"))
    return ()


def _product(entries: Sequence[_Entry], findings: list[Finding], base: Mapping[str, Any] | None) -> tuple[str, bool]:
    """The product that runs, and whether the settings name or imply it."""
    # A product that is named decides; one that does not exist must not hide the other mistakes.
    for entry in entries:
        if f"{entry.section or 'task'}.{entry.name}" == PRODUCT:
            try:
                return find(str(entry.value)).name, True
            except ConfigError as error:
                if isinstance(entry.value, str) and entry.value:
                    findings.append(Finding(error.field, error.message, error.hint))
                return _who_has(entries) or next(iter(products.PRODUCTS)), True
    # A configuration that is changed keeps its product, and with it its values instead of defaults.
    if base is not None:
        return str(base["product"]), False
    implied = _who_has(entries)
    environment = any(every_setting().find(entry.section, entry.name) is _ENVIRONMENT for entry in entries)
    return implied or next(iter(products.PRODUCTS)), bool(implied) or environment


_ENVIRONMENT = settings_of(SECTIONS["task"])["environment"]


def _who_has(entries: Iterable[_Entry]) -> str:
    """The first product with all those given sections that not every product has; "" if there are none such."""
    common, known = Layout.of(()), every_setting()
    found = [known.find(section, name) for section, name, *_ in entries]
    named = {section for section, *_ in entries} & known.sections.keys()
    special = (named | {setting.section for setting in found if setting}) - common.sections.keys()
    if not special:
        return ""
    return next((p for p in products.names() if all(section in _sections_of(p) for section in special)), "")


def _without_idle(entries: Sequence[_Entry], layout: Layout, product: str) -> tuple[list[_Entry], list[str]]:
    """The entries of a file that lists every section, without what its product does not have, and a notice of that."""
    known = every_setting()
    kept: list[_Entry] = []
    changed: list[str] = []
    for entry in entries:
        declared = known.find(entry.section, entry.name)
        if declared is None or layout.find(entry.section, entry.name) is not None:
            kept.append(entry)
            continue
        # Written by an older version, a default is no news; a changed value is worth mentioning.
        value, wrong = read_section(known.sections[declared.section], {declared.name: entry.value})
        if wrong or value[declared.name] != declared.default:
            changed.append(f"{declared.path} = {quoted(entry.value)}")
    idle = ", ".join(name for name in known.sections if name in OLD_SHAPE and name not in layout.sections)
    notice = f"the sections {idle} have no effect on a run of the product {product}"
    return kept, [f"{notice}, although the file sets {', '.join(changed)}" if changed else notice]


def _collect(entries: Iterable[_Entry], layout: Layout, product: str) -> tuple[dict[str, Any], list[Finding]]:
    """The raw values under their settings' flat names, and a finding for each name unknown or given twice."""
    values: dict[str, Any] = {}
    findings: dict[str, Finding] = {}
    for section, name, value, nested in entries:
        declared = layout.find(section, name)
        if declared is None:
            finding = _unknown(layout, product, section, name, nested)
            findings.setdefault(finding.field, finding)
        elif declared.flat in values:
            twice = f"{declared.path} is given twice, as {quoted(values[declared.flat])} and as {quoted(value)}"
            hint = "keep one; flat and nested forms are the same setting"
            findings[declared.path] = Finding(declared.path, twice, hint)
        else:
            values[declared.flat] = value
    return values, list(findings.values())


def _unknown(layout: Layout, product: str, section: str, name: Any, nested: bool) -> Finding:
    """What to say about a name that is none of the product's settings."""
    path = f"{section}.{name}" if section else f"{name}"
    known = every_setting()
    if section in known.sections and section not in layout.sections:
        owners = owners_of(section)
        remedy = f"remove it, or set {PRODUCT} = {owners[0]!r}"
        belongs = f"belongs to {_listed(owners)}, and this run's product is {product}"
        if nested:
            return Finding(section, f"section {section} {belongs}", remedy)
        return Finding(path, f"{path} {belongs}", remedy)
    if section and section not in layout.sections:
        return Finding(path, f"unknown section {section!r} in {path!r}", _nearest_section(section, name))
    home = known.settings.get(name) if isinstance(name, str) else None
    if home and home.section not in layout.sections:
        owners = owners_of(home.section)
        message = f"{home.path} belongs to {_listed(owners)}, and this run's product is {product}"
        return Finding(path, message, f"remove it, or set {PRODUCT} = {owners[0]!r}")
    if home:
        return Finding(path, f"unknown setting {path!r}: {name} is in section {home.section}", f"write {home.path}")
    where = f" in section {section}" if section else ""
    return Finding(path, f"unknown setting {quoted(name)}{where}", _nearest(section, str(name)))


def _listed(owners: Sequence[str]) -> str:
    return f"the product {owners[0]}" if len(owners) == 1 else f"the products {', '.join(owners)}"


def _nearest(section: str, name: str) -> str:
    """Which setting was probably meant: within the section first, then anywhere."""
    known = every_setting()
    # XML writes hyphens, people write capitals.
    plain = name.lower().replace("-", "_")
    near = known.settings.get(FOREIGN.get(plain, plain)) or _closest(plain, section) or _closest(plain)
    if near:
        return f"did you mean {near.path}?"
    members = settings_of(known.sections[section]) if section else ()
    return f"section {section} has {', '.join(members)}" if members else "docs/reference/config.md lists them all"


def _closest(name: str, section: str = "") -> Setting | None:
    declared = [known for known in every_setting().settings.values() if section in ("", known.section)]
    names = {known.name if section else known.flat: known for known in declared}
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return names[near[0]] if near else None


def _nearest_section(section: str, name: str = "") -> str:
    known = every_setting()
    meant = known.settings.get(name) or _closest(name)
    if meant:
        return f"did you mean {meant.path}?"
    near = difflib.get_close_matches(section.lower(), known.sections, n=1)
    return f"did you mean {near[0]}?" if near else f"sections are {', '.join(known.sections)}"


def _profile(name: Any) -> tuple[Mapping[str, Any], list[Finding]]:
    if name is None:
        return {}, []
    try:
        return PROFILES[TrainingProfile(str(name).lower())], []
    except ValueError:
        names = ", ".join(TrainingProfile)
        return {}, [Finding(PROFILE, f"profile = {quoted(name)} must be one of {names}")]
