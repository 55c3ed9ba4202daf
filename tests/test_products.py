"""The border of a product: what every declaration promises, and how a plug-in that breaks a promise is refused."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from groupwise import products
from groupwise.cli import run
from groupwise.config import TrainingConfig
from groupwise.config import setting_names as layout
from groupwise.errors import ConfigError, ContractError
from groupwise.products import Metric, Product, broken_rule, find

BUILT_IN = tuple(products.PRODUCTS)


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_product_keeps_the_rules_of_the_border(name):
    product = find(name)
    assert broken_rule(product, name) == ""
    assert product.summary
    assert product.warm_start in ("", *BUILT_IN)
    product._module()


def test_declarations_import_nothing_heavy():
    code = f"import sys; from groupwise.products import *; [find(name) for name in {BUILT_IN}]; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not set(products.HEAVY) & set(loaded)


def test_an_unknown_product_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match=r"'controll' is not a product\nDid you mean 'control'\?"):
        find("controll")
    with pytest.raises(ConfigError, match="Products are control, ppo, language"):
        find("zzz")


def test_a_removed_product_says_what_to_use_instead():
    with pytest.raises(ConfigError, match=r"'scheduling' was removed: learning added little to HEFT\. Use groupwise"):
        find("scheduling")


def forget_products() -> None:
    sys.modules.pop("maze_plug_in", None)
    products.find.cache_clear()
    products._plug_ins.cache_clear()
    layout.layout_of.cache_clear()
    layout.every_setting.cache_clear()


@pytest.fixture
def plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Install a package that declares a product, as pip would: a module, and its entry point."""

    def install(declaration: str, name: str = "maze") -> None:
        (tmp_path / "maze_plug_in.py").write_text(f"from groupwise.products import Metric, Product\n{declaration}\n")
        info = tmp_path / "maze_plug_in-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: maze-plug-in\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[groupwise.products]\n{name} = maze_plug_in:PRODUCT\n")
        monkeypatch.syspath_prepend(tmp_path)
        forget_products()

    yield install
    forget_products()


SOUND = "PRODUCT = Product(name='maze', summary='mazes', implementation='maze_plug_in')\n"
FUNCTIONS = "def check(cfg): pass\ndef build(cfg): return 3\n"


def test_a_plug_in_is_found_by_its_name(plug_in):
    plug_in(SOUND + FUNCTIONS)
    assert find("maze").summary == "mazes"
    assert "maze" in products.names()


@pytest.mark.parametrize(
    ("declaration", "rule"),
    [
        ("PRODUCT = 3", "must be a Product, not 3"),
        (SOUND.replace("'maze'", "'labyrinth'", 1), "must be that of its row, 'maze', not 'labyrinth'"),
        (
            SOUND.replace("')", "', metrics=(Metric(name='a', meaning=''),) * 2)"),
            "'a' is declared several times",
        ),
        (
            SOUND.replace("')", "', metrics=(Metric(name='a', meaning='', better='up'),))"),
            "metric 'a' must be better 'higher', 'lower' or '', not 'up'",
        ),
    ],
)
def test_a_plug_in_that_breaks_a_rule_is_refused_with_the_rule(plug_in, declaration, rule):
    plug_in(declaration)
    with pytest.raises(ContractError) as refused:
        find("maze")
    assert refused.value.message.startswith("the product 'maze' breaks a rule for products: ")
    assert rule in refused.value.message


def test_a_plug_in_with_a_heavy_declaration_is_refused(plug_in, monkeypatch):
    monkeypatch.setattr(products, "HEAVY", ("this",))
    monkeypatch.delitem(sys.modules, "this", raising=False)
    plug_in("import this\n" + SOUND)
    with pytest.raises(ContractError, match="its declaration maze_plug_in must not import this"):
        find("maze")


def test_a_plug_in_that_takes_the_name_of_a_product_is_ignored_with_a_warning(plug_in, caplog):
    plug_in(SOUND, name="control")
    assert products.names() == BUILT_IN
    assert "a plug-in needs a name of its own; this one is taken" in caplog.text
    assert find("control").implementation.startswith("groupwise.control")


SECTION = """
from groupwise.config import Section, setting
class MazeSettings(Section):
    'The maze.'
    width: int = setting(7, "cells from wall to wall", ge=3)
"""


def declared(**more: str) -> str:
    """A sound declaration with more fields."""
    return SOUND.replace("')", "'" + "".join(f", {name}={value}" for name, value in more.items()) + ")")


def test_a_plug_in_brings_its_own_section_and_defaults(plug_in):
    plug_in(SECTION + declared(sections="(MazeSettings,)", defaults="{'learning_rate': 0.5}") + FUNCTIONS)
    cfg = TrainingConfig.from_dict({"maze": {"width": 9}})
    assert (cfg.task.product, cfg.maze.width, cfg.optim.learning_rate) == ("maze", 9, 0.5)
    assert TrainingConfig.from_dict(tomllib.loads(cfg.to_toml())) == cfg
    with pytest.raises(
        ConfigError, match="section maze belongs to the product maze, and this run's product is control"
    ):
        TrainingConfig.from_dict({"product": "control", "maze": {"width": 9}})


@pytest.mark.parametrize(
    ("declaration", "rule"),
    [
        (declared(sections="(3,)"), "its sections must be config.fields.Section classes, but 3 is not"),
        (SECTION.replace("width", "seed") + declared(sections="(MazeSettings,)"), "new names, but 'seed' is taken"),
        (SECTION.replace("MazeS", "LossS") + declared(sections="(LossSettings,)"), "new names, but 'loss' is taken"),
        (declared(defaults="{'width': 3}"), "'width' is not one of its settings"),
        (declared(defaults="{'learning_rate': -1}"), "optim.learning_rate = -1 must be > 0"),
        (declared(defaults="{'run_name': 'a'}"), "'run_name' is an optional string"),
    ],
)
def test_a_plug_in_that_breaks_a_rule_about_settings_is_refused_with_the_rule(plug_in, declaration, rule):
    plug_in(declaration)
    with pytest.raises(ContractError) as refused:
        TrainingConfig(product="maze")
    assert rule in refused.value.message
    assert TrainingConfig(environment="CartPole-v1").task.product == "control"


def test_what_an_implementation_lacks_or_returns_wrongly_is_refused(plug_in):
    plug_in(SOUND)
    with pytest.raises(ContractError, match=r"maze_plug_in must have a function check\(cfg\)"):
        find("maze").check(TrainingConfig())
    module = sys.modules["maze_plug_in"]
    module.check, module.build = (lambda cfg: None), (lambda cfg: 3)
    module.prepare = lambda cfg: None
    with pytest.raises(ContractError, match=r"build must return training\.session\.Parts, not int"):
        find("maze").build(None)
    with pytest.raises(ContractError, match="prepare must return a TrainingConfig, not NoneType"):
        find("maze").prepare("settings")


def test_what_is_optional_may_be_left_out(plug_in, tmp_path):
    plug_in(SOUND + FUNCTIONS)
    product = find("maze")
    assert product.prepare("cfg") == product.open_run(tmp_path, "cfg", learning=True) == "cfg"
    assert product.report_sections(tmp_path, "cfg") == ()


def test_the_product_of_the_architecture_page_learns(tmp_path, monkeypatch, capsys):
    page = Path(__file__).parents[1] / "docs" / "architecture.md"
    declaration, product = re.findall(r"```python\n(# bandit/.*?)```", page.read_text("utf8"), re.DOTALL)
    assert len([line for line in f"{declaration}{product}".splitlines() if line.strip()]) <= 44
    (tmp_path / "bandit").mkdir()
    (tmp_path / "bandit" / "declaration.py").write_text(declaration)
    (tmp_path / "bandit" / "product.py").write_text(product)
    (tmp_path / "bandit.toml").write_text("[bandit]\narms = 5\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(products, "PRODUCTS", {**products.PRODUCTS, "bandit": "bandit.declaration:BANDIT"})
    forget_products()
    try:
        assert run(["config", "check", "bandit.toml"]) == 0
        assert run(["train", "bandit.toml", "--quiet"]) == 0
        assert run(["eval", "arms-1", "--json"]) == 0
        assert json.loads(capsys.readouterr().out.splitlines()[-1])["metrics"] == {"eval/reward_mean": 1.0}
    finally:
        monkeypatch.undo()
        forget_products()


def test_metrics_and_products_are_plain_values():
    assert Metric(name="a", meaning="b") == Metric(name="a", meaning="b")
    with pytest.raises(AttributeError):
        Product(name="a", summary="b", implementation="c").name = "d"
