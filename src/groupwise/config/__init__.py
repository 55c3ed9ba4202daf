"""Every setting of a run: declared once, checked when given, and written so that it reads back exactly.

    sections.py ← fields.py                      the settings there are, and how one value is read and refused
    setting_names.py ← rules.py                  a product's settings; from given names to values and findings
    training_config.py ← flat_names.py           `TrainingConfig`, and its TOML
    files.py ← overrides.py relative_names.py    loading a TOML, YAML, JSON or XML file, with `--set` on top
    nameable.py                                  what text settings may make the program load, and for which scope
    reference.py                                 JSON Schema, docs/reference/config.md and flat_names.py, generated

Open sections.py to see or add a setting; a product's own settings are in its `declaration.py`.
"""

from groupwise.config.fields import Finding, Section, setting
from groupwise.config.files import check_config, load_config
from groupwise.config.overrides import apply_overrides
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
from groupwise.config.setting_names import TrainingProfile
from groupwise.config.training_config import TrainingConfig, check_settings

__all__ = [
    "AdvantageSettings", "Finding", "GroupingSettings", "LanguageSettings", "LossSettings", "MemorySettings",
    "OptimSettings", "PolicySettings", "RanksSettings", "RewardSettings", "RolloutSettings", "RunSettings",
    "SamplingSettings", "ScoringSettings", "Section", "TaskSettings", "ToolsSettings", "TrainingConfig",
    "TrainingProfile", "TrainingSettings", "VllmSettings",
    "apply_overrides", "check_config", "check_settings", "load_config", "setting",
]  # fmt: skip
