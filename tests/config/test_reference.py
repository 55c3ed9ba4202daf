"""The JSON Schema and the reference page say what the code does."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from groupwise.config import check_settings
from groupwise.config import flat_names as keywords
from groupwise.config.reference import config_schema, keywords_module, reference_page
from groupwise.config.rules import RULES
from groupwise.config.setting_names import every_setting, layout_of
from groupwise.config.training_config import TrainingConfig
from groupwise.products import PRODUCTS

SECTIONS, SETTINGS = every_setting().sections, every_setting().settings

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "config.md"


def schema_of(name: str) -> dict:
    schema = config_schema()["properties"]
    return schema[SETTINGS[name].section]["properties"][SETTINGS[name].name]


def general(product: str) -> dict:
    """The general defaults of a product's sections."""
    defaults = {name: setting.default for name, setting in layout_of(product).settings.items()}
    sections = TrainingConfig.from_dict({**defaults, "product": product}).to_dict()
    sections["task"]["product"] = SETTINGS["product"].default
    return sections


def test_the_schema_has_every_setting_nested_and_flat():
    schema = json.loads(json.dumps(config_schema(), allow_nan=False))
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == {"profile", *SECTIONS, *SETTINGS}
    every = {name: section for product in PRODUCTS for name, section in general(product).items()}
    assert set(every) == set(SECTIONS)
    for name, section in every.items():
        declared = schema["properties"][name]
        assert declared["additionalProperties"] is False
        assert {key: value["default"] for key, value in declared["properties"].items()} == section
        assert all(value["description"] for value in declared["properties"].values())
    assert schema["properties"]["beta"] == {"$ref": "#/properties/loss/properties/beta"}


def test_the_schema_states_types_bounds_and_choices():
    assert schema_of("learning_rate") | {"description": ""} == {
        "type": "number",
        "exclusiveMinimum": 0,
        "maximum": 1,
        "default": 5e-6,
        "description": "",
    }
    assert schema_of("hidden_sizes")["items"] == {"type": "integer", "minimum": 1}
    assert schema_of("adam_beta1")["exclusiveMaximum"] == 1
    assert schema_of("dual_clip")["type"] == ["number", "null"]
    assert schema_of("importance_level")["enum"] == ["token", "sequence", None]
    assert schema_of("report_to")["items"]["enum"] == ["tensorboard", "wandb", "mlflow", "trackio"]
    plain, several = schema_of("options")["additionalProperties"]["anyOf"]
    assert plain == {"type": ["string", "number", "boolean"]}
    assert several == {"type": "array", "items": plain}
    assert re.search(schema_of("run_name")["pattern"], "a-1")
    assert not re.search(schema_of("run_name")["pattern"], "a/b")


@pytest.mark.parametrize("name", SETTINGS)
def test_bounds_in_the_schema_are_the_bounds_in_force(name):
    schema = schema_of(name)
    for keyword, beyond in (
        ("minimum", -1),
        ("maximum", 1),
        ("exclusiveMinimum", 0),
        ("exclusiveMaximum", 0),
    ):
        if keyword in schema:
            findings = check_settings({name: schema[keyword] + beyond})
            assert f"{SETTINGS[name].path} = " in findings[0].message


def test_the_committed_page_is_current():
    command = "python -m groupwise.config.reference > docs/reference/config.md"
    assert PAGE.read_text("utf8") == reference_page(), f"run {command}"


def test_the_committed_keywords_are_current():
    command = "python -m groupwise.config.reference keywords > src/groupwise/config/flat_names.py"
    assert Path(keywords.__file__).read_text("utf8") == keywords_module(), f"run {command}"


def test_the_command_prints_the_page_and_the_keywords():
    for words, text in (([], reference_page()), (["keywords"], keywords_module())):
        command = [sys.executable, "-m", "groupwise.config.reference", *words]
        assert subprocess.run(command, capture_output=True, check=True).stdout.decode() == text


def test_the_page_has_a_row_for_every_setting_and_a_line_for_every_rule():
    page = reference_page()
    for setting in SETTINGS.values():
        called = f"`{setting.name}`" + (f" (flat: `{setting.flat}`)" if setting.flat != setting.name else "")
        (row,) = [line for line in page.splitlines() if line.startswith(f"| {called} |")]
        assert row.count(" | ") == 4
        assert setting.meaning in row
    assert all(f"- {rule.__doc__}\n" in page for rule in RULES)
    assert max(len(line) for line in page.splitlines() if not line.startswith(("|", "- "))) <= 110


def test_the_example_on_the_page_runs(tmp_path):
    (example,) = re.findall(r"```python\n(.*?)```", reference_page(), re.DOTALL)
    script = tmp_path / "example.py"
    script.write_text(example)
    subprocess.run([sys.executable, str(script)], check=True)
