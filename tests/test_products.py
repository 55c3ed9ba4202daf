"""The border of a product: what every declaration promises, and how a plug-in that breaks a promise is refused."""

import subprocess
import sys
from pathlib import Path

import pytest

from groupwise import products
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
        forget()

    def forget() -> None:
        sys.modules.pop("maze_plug_in", None)
        products.find.cache_clear()
        products._plug_ins.cache_clear()

    yield install
    forget()


SOUND = "PRODUCT = Product(name='maze', summary='mazes', implementation='maze_plug_in')\n"
FUNCTIONS = "def check(cfg): pass\ndef build(cfg): return 3\n"


def test_a_plug_in_is_found_by_its_name(plug_in):
    plug_in(SOUND + FUNCTIONS)
    assert find("maze").summary == "mazes"
    assert "maze" in products.names()


@pytest.mark.parametrize(
    ("declaration", "rule"),
    [
        ("PRODUCT = 3", "is a groupwise.products.Product, not 3"),
        (SOUND.replace("'maze'", "'labyrinth'", 1), "under the name of its row, 'maze', not as 'labyrinth'"),
        (
            SOUND.replace("')", "', metrics=(Metric(name='a', meaning=''),) * 2)"),
            "'a' is declared several times",
        ),
        (
            SOUND.replace("')", "', metrics=(Metric(name='a', meaning='', better='up'),))"),
            "'higher', 'lower' or '', and 'a' says 'up'",
        ),
    ],
)
def test_a_plug_in_that_breaks_a_rule_is_refused_with_the_rule(plug_in, declaration, rule):
    plug_in(declaration)
    with pytest.raises(ContractError) as refused:
        find("maze")
    assert refused.value.message.startswith("the product 'maze' breaks a rule of its border: ")
    assert rule in refused.value.message


def test_a_plug_in_with_a_heavy_declaration_is_refused(plug_in, monkeypatch):
    monkeypatch.setattr(products, "HEAVY", ("this",))
    monkeypatch.delitem(sys.modules, "this", raising=False)
    plug_in("import this\n" + SOUND)
    with pytest.raises(ContractError, match="its declaration maze_plug_in imports no this; import it in the impl"):
        find("maze")


def test_a_plug_in_cannot_take_the_name_of_a_product(plug_in):
    plug_in(SOUND, name="control")
    with pytest.raises(ContractError, match="a plug-in has a name of its own"):
        find("maze")


def test_what_an_implementation_lacks_or_returns_wrongly_is_refused(plug_in):
    plug_in(SOUND)
    with pytest.raises(ContractError, match=r"its implementation maze_plug_in has a function check\(cfg\)"):
        find("maze").check(None)
    module = sys.modules["maze_plug_in"]
    module.check, module.build = (lambda cfg: None), (lambda cfg: 3)
    module.prepare = lambda cfg: None
    with pytest.raises(ContractError, match=r"build returns training\.session\.Parts, not int"):
        find("maze").build(None)
    with pytest.raises(ContractError, match="prepare returns a TrainingConfig, not NoneType"):
        find("maze").prepare("settings")


def test_what_is_optional_may_be_left_out(plug_in, tmp_path):
    plug_in(SOUND + FUNCTIONS)
    product = find("maze")
    assert product.prepare("cfg") == product.open_run(tmp_path, "cfg", learning=True) == "cfg"
    assert product.report_sections(tmp_path, "cfg") == ()


def test_metrics_and_products_are_plain_values():
    assert Metric(name="a", meaning="b") == Metric(name="a", meaning="b")
    with pytest.raises(AttributeError):
        Product(name="a", summary="b", implementation="c").name = "d"
