"""What editors and people read about settings: JSON Schema, the constructor's keywords and the reference page."""

import sys
import textwrap
from collections.abc import Iterator
from typing import Any

from groupwise.config.fields import Options, Section, Setting, section_name, settings_of
from groupwise.config.files import XML_RENAMED
from groupwise.config.nameable import COMMON, Row
from groupwise.config.rules import RULES
from groupwise.config.setting_names import PROFILE, PROFILES, TrainingProfile, every_setting, layout_of, owners_of
from groupwise.config.training_config import plain, toml_value
from groupwise.products import PRODUCTS, find


def config_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a configuration file, nested or flat."""
    known = every_setting()
    profiles = {"enum": [str(profile) for profile in TrainingProfile], "description": "named starting point"}
    properties: dict[str, Any] = {PROFILE: profiles}
    properties |= {name: _section_schema(section) for name, section in known.sections.items()}
    for name, declared in known.settings.items():
        properties[name] = {"$ref": f"#/properties/{declared.section}/properties/{declared.name}"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Groupwise configuration",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }


def _section_schema(section: type[Section]) -> dict[str, Any]:
    """Pydantic's schema of a section, without titles, and with null beside the type instead of in an `anyOf`."""
    schema = section.model_json_schema()
    properties = {name: _setting_schema(schema["properties"][name], s) for name, s in settings_of(section).items()}
    return {"type": "object", "description": section.__doc__, "properties": properties, "additionalProperties": False}


def _setting_schema(schema: dict[str, Any], declared: Setting) -> dict[str, Any]:
    if declared.nullable:
        schema |= schema.pop("anyOf")[0]
        schema["type"] = [schema["type"], "null"]
        if declared.choices:
            schema["enum"] = [*declared.choices, None]
    elif declared.kind is str and not declared.many and not declared.choices and "pattern" not in schema:
        schema["minLength"] = 1
    hidden = ("title", "shape", "flat")
    return {**{k: v for k, v in schema.items() if k not in hidden}, "default": plain(declared.default)}


_KEYWORDS = '''\
"""The flat names of all settings with their types, so that an editor completes `TrainingConfig(…)`.

Written by `python -m groupwise.config.reference keywords > src/groupwise/config/flat_names.py`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict


class SettingNames(TypedDict, total=False):
    """What `TrainingConfig(…)`, `from_profile` and `replace` take."""

'''


def keywords_module() -> str:
    """The text of config/flat_names.py: the settings of our own products."""
    sections = {name: section for product in PRODUCTS for name, section in layout_of(product).sections.items()}
    lines = []
    for name, section in sections.items():
        lines += [f"    # {name}\n", *(f"    {s.flat}: {_python_type(s)}\n" for s in settings_of(section).values())]
    return _KEYWORDS + "".join(lines)


def _python_type(declared: Setting) -> str:
    choices = ", ".join(f'"{choice}"' for choice in declared.choices)
    one = f"Literal[{choices}]" if choices else declared.kind.__name__
    one = "Mapping[str, Any]" if declared.kind is Options else one
    one = f"Sequence[{one}]" if declared.many else one
    return f"{one} | None" if declared.nullable else one


_INTRODUCTION = """\
# Configuration

<!-- Written by `python -m groupwise.config.reference > docs/reference/config.md`. -->

`TrainingConfig` has every setting of a run. Pass settings by their flat names, which are unique and which an
editor completes; read them in their sections:

```python
from groupwise.config import TrainingConfig, TrainingProfile

cfg = TrainingConfig(num_episodes=100, beta=0.1, use_reference_model=True)
assert cfg.loss.beta == 0.1
assert cfg.replace(beta=0.2).loss.beta == 0.2
assert cfg == TrainingConfig.from_dict(cfg.to_dict())
bold = TrainingConfig.from_profile(TrainingProfile.AGGRESSIVE, seed=3)
```

`load_config(path, overrides)` reads `.toml`, `.yaml`, `.json` and `.xml` files, with settings flat or
inside their sections (where a few names are shorter: `reward.name` is `reward_name` when flat). A file may
name a `profile`. Precedence, lowest first: general default, product's default, profile, file, override.
Overrides look like `loss.beta=0.1`, `policy.hidden_sizes=[32, 32]` or `run.run_name=null`; their values are
read as TOML, or as plain text if they are not valid TOML. TOML has no null: leave the setting out, or write
`"null"`.

A run has the common sections and those of its product. `task.product` may be left out if other settings
imply it: a section that only one product has, or just an `environment` (then it is `{first}`). A section or
setting of another product is refused. A file that lists all sections, as older versions wrote it, is still
read; settings that have no effect are named in a notice.
"""

_XML = """\
## XML

The root element is `<grpo-config>`. Names have hyphens instead of underscores (`<memory><decay-factor>`).
`<learning>` may contain settings of any section. In it,
{renamed};
`<early-stopping-threshold>` switches `early_stopping` on. DTDs, entities and attributes are refused.
"""


_NAMES = """\
## What settings may name

On the command line a setting may name anything. In [the service](../service.md), a key with scope `train`
may name what this table allows and nothing else: whatever else a text could make the program import, open
or fetch needs scope `admin`. A setting or option that is not listed takes text only from an administrator.

| setting | product | it names | scope |
|---|---|---|---|
"""


def reference_page() -> str:
    """The Markdown of docs/reference/config.md."""
    introduction = _INTRODUCTION.format(first=next(iter(PRODUCTS)))
    parts = [introduction, _products(), *_sections(), _profiles(), _rules(), _names(), _xml()]
    return "\n".join(parts)


def _products() -> str:
    head = "| product | what it does | its sections | its defaults |\n|---|---|---|---|\n"
    rows = ""
    for name in PRODUCTS:
        product = find(name)
        sections = ", ".join(f"`{section_name(section)}`" for section in product.sections)
        defaults = ", ".join(f"`{key} = {toml_value(value)}`" for key, value in product.defaults.items())
        rows += f"| `{name}` | {product.summary} | {sections or 'none'} | {defaults or 'the general ones'} |\n"
    return f"## Products\n\n{head}{rows}"


def _sections() -> Iterator[str]:
    for name, section in every_setting().sections.items():
        rows = "".join(_row(declared) for declared in settings_of(section).values())
        head = "| name | type | default | limits | meaning |\n|---|---|---|---|---|\n"
        owners = "" if owners_of(name) == list(PRODUCTS) else f"\n\nOnly for: {', '.join(owners_of(name))}."
        yield f"## {name}\n\n{section.__doc__}{owners}\n\n{head}{rows}"


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
        rows += f"| `{every_setting().settings[name].path}` | {' | '.join(values)} |\n"
    return f"## Profiles\n\n{head}{rows}"


def _rules() -> str:
    return "## Rules between settings\n\n" + "".join(f"- {rule.__doc__}\n" for rule in RULES)


def _names() -> str:
    """The table of `config.nameable`; rows that name nothing are listed together."""
    owners: dict[Row, list[str]] = {}
    for name in PRODUCTS:
        sections = layout_of(name).sections
        known = {row.setting: row for row in (*COMMON, *find(name).nameable)}
        for row in known.values():
            if row.setting.partition(".")[0] in sections:
                owners.setdefault(row, []).append(name)
    rows = ""
    for row in sorted((row for row in owners if not row.is_plain), key=lambda row: row.setting):
        who = "all" if owners[row] == list(PRODUCTS) else ", ".join(owners[row])
        rows += f"| `{row.setting}` | {who} | {row.names} | `{'train' if row.train else 'admin'}` |\n"
    plain_ones = ", ".join(f"`{setting}`" for setting in sorted({row.setting for row in owners if row.is_plain}))
    told = textwrap.fill(f"These take text that names nothing: {plain_ones}.", 105, break_on_hyphens=False)
    return f"{_NAMES}{rows}\n{told}\n"


def _xml() -> str:
    renamed = " and ".join(f"`<{name.replace('_', '-')}>` is `{target}`" for name, target in XML_RENAMED.items())
    return _XML.format(renamed=renamed)


if __name__ == "__main__":
    sys.stdout.write(keywords_module() if sys.argv[1:] == ["keywords"] else reference_page())
