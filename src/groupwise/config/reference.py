"""The reference page of all settings, written from their declarations."""

from collections.abc import Iterator

from groupwise.config.formats import XML_RENAMED
from groupwise.config.profiles import PROFILES, TrainingProfile
from groupwise.config.rules import RULES
from groupwise.config.sections import SECTIONS, SETTINGS
from groupwise.config.setting import Setting, settings_of
from groupwise.config.toml import toml_value

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
