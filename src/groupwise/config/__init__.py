"""Every setting of a run, declared once, checked when given, and written so that it reads back exactly.

sections.py ← setting.py, reading.py     what settings there are; how one value is read
training_config.py ← names.py, rules.py, profiles.py, toml.py
files.py ← formats.py, overrides.py      loading a file
schema.py, reference.py                  what editors and people read
"""

from groupwise.config.fields import Finding
from groupwise.config.files import apply_overrides, check_config, load_config
from groupwise.config.reference import config_schema, reference_page
from groupwise.config.sections import (
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
from groupwise.config.training_config import TrainingConfig, TrainingProfile, check_settings

__all__ = [
    "AdvantageSettings",
    "Finding",
    "GenerationSettings",
    "GroupingSettings",
    "LanguageSettings",
    "LossSettings",
    "MemorySettings",
    "OptimSettings",
    "PolicySettings",
    "RewardSettings",
    "RolloutSettings",
    "RunSettings",
    "SamplingSettings",
    "ScoringSettings",
    "TaskSettings",
    "TrainingConfig",
    "TrainingProfile",
    "TrainingSettings",
    "apply_overrides",
    "check_config",
    "check_settings",
    "config_schema",
    "load_config",
    "reference_page",
]
