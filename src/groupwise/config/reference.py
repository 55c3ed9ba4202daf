"""What editors and people read about settings: the JSON Schema and the reference page."""

from collections.abc import Iterator, Mapping
from typing import Any

from groupwise.config.fields import Setting, settings_of
from groupwise.config.files import XML_RENAMED
from groupwise.config.rules import RULES
from groupwise.config.sections import SECTIONS, SETTINGS
from groupwise.config.training_config import PROFILE, PROFILES, TrainingProfile, plain, toml_value

_TYPES: Mapping[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    Mapping: "object",
}


def config_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a configuration file, nested or flat."""
    properties: dict[str, Any] = {
        PROFILE: {
            "enum": [str(profile) for profile in TrainingProfile],
            "description": "named starting point",
        }
    }
    for name, section in SECTIONS.items():
        properties[name] = {
            "type": "object",
            "description": section.__doc__,
            "properties": {declared.name: setting_schema(declared) for declared in settings_of(section)},
            "additionalProperties": False,
        }
    for name, declared in SETTINGS.items():
        properties[name] = {"$ref": f"#/properties/{declared.section}/properties/{declared.name}"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Groupwise configuration",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }


def setting_schema(declared: Setting) -> dict[str, Any]:
    """One setting: its type and limits, default and meaning."""
    one = _one(declared)
    schema: dict[str, Any] = {"type": "array", "items": one} if declared.many else one
    if declared.nullable:
        schema["type"] = [schema["type"], "null"]
        if "enum" in schema:
            schema["enum"] = [*schema["enum"], None]
    return {**schema, "default": plain(declared.default), "description": declared.meaning}


def _one(declared: Setting) -> dict[str, Any]:
    limits = declared.limits
    schema: dict[str, Any] = {"type": _TYPES[declared.kind]}
    bounds = {
        "minimum": limits.ge,
        "exclusiveMinimum": limits.gt,
        "maximum": limits.le,
        "exclusiveMaximum": limits.lt,
    }
    schema |= {keyword: bound for keyword, bound in bounds.items() if bound is not None}
    if declared.choices:
        schema["enum"] = list(declared.choices)
    elif declared.kind is str:
        schema |= {"pattern": f"^(?:{limits.pattern})$"} if limits.pattern else {"minLength": 1}
    elif declared.kind is Mapping:
        plain = {"type": ["string", "number", "boolean"]}
        schema["additionalProperties"] = {"anyOf": [plain, {"type": "array", "items": plain}]}
    return schema


_INTRODUCTION = """\
# Configuration

<!-- Written by `python -m groupwise.config > docs/reference/config.md`. -->

`TrainingConfig` holds every setting of a run. A setting has one name, unique over all sections, and may be
given flat or inside its section (where a few are shorter: `reward.name` is `reward_name` when flat):

```python
from groupwise.config import TrainingConfig, TrainingProfile, load_config

cfg = TrainingConfig(num_episodes=100, beta=0.1, use_reference_model=True)
assert cfg == TrainingConfig(
    training={"num_episodes": 100}, loss={"beta": 0.1}, policy={"use_reference_model": True}
)
assert cfg.loss.beta == cfg.beta == 0.1
bold = TrainingConfig.from_profile(TrainingProfile.AGGRESSIVE, seed=3)
```

`load_config(path, overrides)` reads `.toml`, `.yaml`, `.json` and `.xml` files, nested or flat; a file may
name a `profile`, over which its own settings win, and over those win overrides such as `loss.beta=0.1`,
`policy.hidden_sizes=[32, 32]` or `run.run_name=null`. An override's value is read as TOML, and as plain text
where it is no TOML. TOML has no null: leave the setting out, or write `"null"` where the default is a value.
"""

_XML = """\
## XML

The root is `<grpo-config>`. Names have hyphens for underscores (`<memory><decay-factor>`). `<learning>` may
hold settings of any section; in it {renamed}, and
giving `<early-stopping-threshold>` switches `early_stopping` on. DTDs, entities and attributes are refused.
"""


def reference_page() -> str:
    """The Markdown of docs/reference/config.md."""
    parts = [_INTRODUCTION, *_sections(), _profiles(), _rules(), _xml()]
    return "\n".join(parts)


def _sections() -> Iterator[str]:
    for name, section in SECTIONS.items():
        rows = "".join(_row(declared) for declared in settings_of(section))
        head = "| name | type | default | limits | meaning |\n|---|---|---|---|---|\n"
        yield f"## {name}\n\n{section.__doc__}\n\n{head}{rows}"


def _row(declared: Setting) -> str:
    kind = _kind(declared)
    default = "null" if declared.default is None else toml_value(declared.default)
    limits = ", ".join(f"`{choice}`" for choice in declared.choices) or declared.bounds
    flat = f" (flat: `{declared.flat}`)" if declared.flat != declared.name else ""
    cells = (f"`{declared.name}`{flat}", kind, f"`{default}`", limits, declared.meaning)
    return f"| {' | '.join(cells)} |\n"


def _kind(declared: Setting) -> str:
    one = {bool: "true or false", int: "whole number", float: "number", str: "text"}.get(declared.kind, "table")
    one = "choice" if declared.choices else one
    return f"{'list of ' if declared.many else ''}{one}{' or null' if declared.nullable else ''}"


def _profiles() -> str:
    head = f"| setting | {' | '.join(TrainingProfile)} |\n|---|{'---|' * len(TrainingProfile)}\n"
    rows = ""
    for name in PROFILES[TrainingProfile.BALANCED]:
        values = (toml_value(PROFILES[profile][name]) for profile in TrainingProfile)
        rows += f"| `{SETTINGS[name].path}` | {' | '.join(values)} |\n"
    return f"## Profiles\n\n{head}{rows}"


def _rules() -> str:
    return "## Rules between settings\n\n" + "".join(f"- {rule.__doc__}\n" for rule in RULES)


def _xml() -> str:
    renamed = " and ".join(f"`<{name.replace('_', '-')}>` is `{target}`" for name, target in XML_RENAMED.items())
    return _XML.format(renamed=renamed)
