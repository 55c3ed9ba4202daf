"""Loading files: every kind, every form, and one clear sentence for every way a file can be wrong."""

import json
import os
import textwrap
import tracemalloc

import pytest

from groupwise.config import TrainingConfig, check_config, load_config
from groupwise.config.files import load_given
from groupwise.errors import ConfigError

EXPECTED = TrainingConfig(learning_rate=1e-3, entropy_coef=0.1, hidden_sizes=(8, 8), run_name="first", reward_clip=None)


@pytest.fixture
def write(tmp_path):
    def write_file(name: str, content: str | bytes):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_file


def refusal(path) -> str:
    """The one message of a file that cannot be used; loading and checking agree on it."""
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    (finding,) = check_config(path)
    assert finding.message in caught.value.message
    assert str(path) in caught.value.message
    assert len(str(caught.value)) < 300 + len(str(path)) * 2
    return str(caught.value)


XML_OPTIONS = """\
<grpo-config><task><options>
    <gravity>9.8</gravity><name>a b</name><fast>true</fast><count>3</count>
</options></task></grpo-config>
"""

SAME = {
    "nested.toml": """
        optim.learning_rate = 1e-3
        loss = { entropy_coef = 0.1 }
        [policy]
        hidden_sizes = [8, 8]
        [run]
        run_name = "first"
        [advantage]
        reward_clip = "null"
    """,
    "flat.toml": """
        learning_rate = 1e-3
        entropy_coef = 0.1
        hidden_sizes = [8, 8]
        run_name = "first"
        reward_clip = "null"
    """,
    "nested.yaml": """
        optim: {learning_rate: 1e-3}
        loss:
          entropy_coef: 0.1
        policy:
          hidden_sizes: [8, 8]
        run:
          run_name: first
        advantage:
          reward_clip: null
        memory:
    """,
    "flat.YML": """
        learning_rate: 1e-3
        entropy_coef: 0.1
        hidden_sizes:
        - 8
        - 8
        run_name: first
        reward_clip: ~
    """,
    "mixed.json": """
        {"optim": {"learning_rate": 1e-3}, "loss.entropy_coef": 0.1, "hidden_sizes": [8, 8],
         "run_name": "first", "reward_clip": null}
    """,
    "nested.xml": """
        <grpo-config>
          <!-- tuned -->
          <optim><learning-rate>1e-3</learning-rate></optim>
          <entropy-coef> 0.1 </entropy-coef>
          <policy><hidden-sizes>8, 8</hidden-sizes></policy>
          <run><run-name>first</run-name></run>
          <reward-clip>null</reward-clip>
          <memory/>
        </grpo-config>
    """,
}


@pytest.mark.parametrize("name", SAME)
def test_every_kind_and_form_gives_the_same_configuration(write, name):
    path = write(name, textwrap.dedent(SAME[name]).lstrip())
    assert load_config(path) == load_config(str(path)) == EXPECTED
    assert check_config(path) == []


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(write):
    assert load_config(write("a.toml", b"\xef\xbb\xbfseed = 1\r\ngamma = 0.5\r\n")) == TrainingConfig(seed=1, gamma=0.5)


@pytest.mark.parametrize(
    ("name", "content"), [("a.toml", ""), ("a.yaml", ""), ("a.yml", "# nothing\n"), ("a.json", "{}")]
)
def test_an_empty_file_is_all_defaults(write, name, content):
    assert load_config(write(name, content)) == TrainingConfig()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.toml", 'profile = "conservative"\nnum_generations = 4'),
        ("a.yaml", "profile: conservative\nnum_generations: 4"),
        ("a.json", '{"profile": "conservative", "rollout": {"num_generations": 4}}'),
        (
            "a.xml",
            "<grpo-config><profile>conservative</profile><num-generations>4</num-generations></grpo-config>",
        ),
    ],
)
def test_a_file_may_name_a_profile(write, name, content):
    assert load_config(write(name, content)) == TrainingConfig.from_profile("conservative", num_generations=4)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.toml", "[task.options]\ngravity = 9.8\nname = 'a b'\nfast = true\ncount = 3"),
        ("a.yaml", "options: {gravity: 9.8, name: a b, fast: true, count: 3}"),
        ("a.xml", XML_OPTIONS),
    ],
)
def test_the_free_table_keeps_plain_values(write, name, content):
    options = load_config(write(name, content)).task.options
    assert options == {"gravity": 9.8, "name": "a b", "fast": True, "count": 3}
    assert options["fast"] is True


def test_overrides_win_over_the_file_and_over_its_profile(write):
    path = write("a.toml", 'profile = "aggressive"\nentropy_coef = 0.2\n[optim]\nlearning_rate = 0.5\n')
    overrides = ["loss.entropy_coef=0.1", "learning_rate=1e-3", "profile=conservative", "num_generations=3"]
    cfg = load_config(path, (o for o in overrides))
    names = ("entropy_coef", "learning_rate", "num_generations", "early_stopping")
    assert tuple(cfg.flat()[name] for name in names) == (
        0.1,
        1e-3,
        3,
        True,
    )


def test_several_problems_of_a_file_come_with_their_lines(write):
    path = write("a.toml", "seed = 1\n\n[loss]\nclip_ration = 0.1\n[optim]\nlearning_rate = -1\n")
    findings = check_config(path)
    assert [(f.field, f.line) for f in findings] == [("loss.clip_ration", 4), ("optim.learning_rate", 6)]
    with pytest.raises(ConfigError, match=r"a.toml: 2 problems") as caught:
        load_config(path)
    assert "line 4: unknown setting 'clip_ration' in section loss; did you mean loss.clip_ratio?" in str(caught.value)
    with pytest.raises(ConfigError, match=r"a.toml: line 6: optim.learning_rate = -1"):
        load_config(write("a.toml", "seed = 1\n\n[loss]\n\n[optim]\nlearning_rate = -1\n"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.yaml", "seed: 1\noptim:\n  learning_rate: -1\n"),
        ("a.json", '{\n"seed": 1,\n"learning_rate": -1}'),
        (
            "a.xml",
            "<grpo-config>\n<learning>\n<learning-rate>-1</learning-rate>\n</learning>\n</grpo-config>",
        ),
        ("a.toml", "\n\noptim.learning_rate = -1"),
    ],
)
def test_the_line_is_found_in_every_kind_of_file(write, name, content):
    (finding,) = check_config(write(name, content))
    assert (finding.field, finding.line) == ("optim.learning_rate", 3)


def test_an_override_is_not_blamed_on_a_line_of_the_file(write):
    (finding,) = check_config(write("a.toml", "learning_rate = 0.1\n"), ["optim.learning_rate=-1"])
    assert finding.line is None


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.toml", "seed = 1\nbeta = \n", "not valid TOML: Invalid value (at line 2"),
        ("a.toml", "seed = 1\nseed = 2\n", "Cannot overwrite a value (at line 2"),
        ("a.toml", "a" + ".a" * 100_000 + " = 1", "a name of more than 100 dotted parts (at line 1)"),
        ("a.toml", "a = " + "[" * 3000, "nested too deeply"),
        ("a.toml", "seed = " + "9" * 4090, "64 bits"),
        ("a.json", '{"seed": 1,\n "beta": }', "not valid JSON: Expecting value (at line 2, column 10)"),
        ("a.json", "", "not valid JSON: Expecting value (at line 1"),
        ("a.json", '{"seed": 1, "seed": 2}', "'seed' is given twice"),
        ("a.json", '{"learning_rate": NaN}', "learning_rate = nan must be a finite number"),
        ("a.json", '{"seed": ' + "9" * 5000 + "}", "not valid JSON: Exceeds the limit"),
        ("a.json", "[" * 100_000, "nested too deeply"),
        ("a.json", "[1]", "a configuration is a table of settings, not [1]"),
        ("a.yaml", "seed: 1\nbeta: [\n", "not valid YAML"),
        ("a.yaml", "seed: 1\n\tbeta: 2\n", "(at line 2, column 1)"),
        ("a.yaml", "seed: 1\nseed: 2\n", "'seed' is given twice (at line 2"),
        ("a.yaml", "run:\n  seed: 1\n  seed: 2\n", "'seed' is given twice (at line 3"),
        ("a.yaml", "--- \nseed: 1\n---\nseed: 2\n", "not valid YAML: but found another document"),
        ("a.yaml", "seed: !!python/object/apply:os.getcwd []\n", "could not determine a constructor"),
        (
            "a.yaml",
            "options: &a {x: 1}\n",
            "anchors and aliases (& and *) are not allowed (at line 1, column 10)",
        ),
        ("a.yaml", "just text", "a configuration is a table of settings, not 'just text'"),
        ("a.yaml", "[" * 50_000, "nested too deeply"),
        ("a.yaml", "x: [" + "1," * 50_000 + "]", "more than 10000 values"),
        ("a.yaml", "seed: \x07", "not valid YAML: unacceptable character"),
        ("a.yaml", "? [1, 2]\n: 3\n", "not valid YAML"),
        ("a.yaml", "seed: 2020-01-01", "run.seed = datetime.date(2020, 1, 1) must be a whole number"),
        ("a.xml", "<grpo-config>\n<seed>1</sed></grpo-config>", "not valid XML: mismatched tag (at line 2"),
        ("a.xml", "<config/>", "the root element is <config> and must be <grpo-config>"),
        ("a.xml", "<grpo-config><seed>1</seed><seed>2</seed></grpo-config>", "'seed' is given twice"),
        ("a.xml", '<grpo-config><seed value="1"/></grpo-config>', "<seed> has attributes"),
        ("a.xml", "<grpo-config>1<seed>1</seed></grpo-config>", "<grpo-config> must contain elements, not text"),
        ("a.xml", "<grpo-config><loss>1</loss></grpo-config>", "<loss> must contain elements, not text"),
        (
            "a.xml",
            "<grpo-config><learning><lerning-rate>1</lerning-rate></learning></grpo-config>",
            "did you mean optim.learning_rate?",
        ),
        (
            "a.xml",
            "<grpo-config><learning><epochs>1</epochs></learning><num-episodes>2</num-episodes></grpo-config>",
            "training.num_episodes is given twice",
        ),
        ("a.txt", "seed = 1", "a configuration file ends in .toml, .yaml, .yml, .json, .xml, not '.txt'"),
        ("config", "seed = 1", "not ''"),
        ("a.toml", b"\x89PNG\r\n\x1a\n\xff\xd8", "the file is not UTF-8 text (at byte 0"),
        ("a.toml", b"seed = 1\n\x00\x00", "not text: it contains a zero byte (at byte 9"),
        ("a.toml", "seed = 1".encode("utf-16"), "the file is UTF-16 text\nSave it as UTF-8."),
        ("a.yaml", b"x" * 1_000_001, "larger than 1,000,000 bytes"),
    ],
)
def test_a_damaged_file_is_one_clear_sentence(write, name, content, words):
    """The timeout of the suite bounds what a hostile file may cost: some take a naive parser quadratic time."""
    assert words in refusal(write(name, content))


def test_aliases_that_multiply_are_refused_at_once(write):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
    assert "anchors and aliases" in refusal(write("bomb.yaml", "\n".join(lines)))


@pytest.mark.parametrize(
    "doctype",
    [
        '<!DOCTYPE c [<!ENTITY a "x"><!ENTITY b "&a;&a;&a;">]>',
        '<!DOCTYPE c [<!ENTITY a SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE c SYSTEM "http://example.com/c.dtd">',
        "<!DOCTYPE c>",
    ],
)
def test_dtds_entities_and_external_references_are_refused(write, doctype):
    text = f"{doctype}<grpo-config><run-name>&a;</run-name></grpo-config>"
    assert "a DTD, entity or external reference is not allowed" in refusal(write("a.xml", text))


def test_a_huge_file_is_refused_without_being_read(tmp_path):
    path = tmp_path / "huge.toml"
    with path.open("wb") as file:
        file.truncate(100_000_000)
    tracemalloc.start()
    assert "larger than 1,000,000 bytes" in refusal(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000_000


def test_a_missing_file_names_its_neighbours(write, tmp_path):
    write("right.toml", "")
    assert f"wrong.toml: no such file\nin {tmp_path} there is right.toml" in refusal(tmp_path / "wrong.toml")
    assert "there is no folder" in refusal(tmp_path / "nowhere" / "wrong.toml")


def test_what_is_not_a_readable_file_is_said(tmp_path):
    (tmp_path / "folder.toml").mkdir()
    assert "folder.toml: is a directory" in refusal(tmp_path / "folder.toml")
    os.mkfifo(tmp_path / "pipe.toml")
    assert "pipe.toml: is not a regular file" in refusal(tmp_path / "pipe.toml")
    (tmp_path / "loop.toml").symlink_to("loop.toml")
    assert "cannot be read: Too many levels of symbolic links" in refusal(tmp_path / "loop.toml")
    assert "embedded null" in refusal(f"{tmp_path}/a\0.toml")


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_a_file_one_may_not_read_is_said(write):
    path = write("secret.toml", "seed = 1")
    path.chmod(0)
    assert "cannot be read: Permission denied" in refusal(path)


def test_a_saved_configuration_loads_as_json_too(write):
    assert load_config(write("a.json", json.dumps(EXPECTED.to_dict()))) == EXPECTED


def test_the_settings_of_a_product_are_read_with_those_that_were_given(write):
    path = write("a.toml", "[loss]\nclip_ratio = 0.3\n[run]\nseed = 0\n")
    cfg, given = load_given(path, ["learning_rate=1e-3"], "designer")
    assert (cfg.task.product, cfg.loss.clip_ratio, cfg.optim.learning_rate) == ("designer", 0.3, 1e-3)
    assert given == {"clip_ratio", "seed", "learning_rate"}, "also those that are given as they would be anyway"
    assert load_given(None, ["seed=7"], "designer") == (TrainingConfig(product="designer", seed=7), {"seed"})
    assert load_given(None, ["product=designer"], "designer") == (TrainingConfig(product="designer"), {"product"})


def test_settings_of_another_product_are_refused_and_so_are_wrong_ones(write):
    with pytest.raises(ConfigError, match="task.product is 'ppo', but these settings are for the product 'designer'"):
        load_given(write("a.toml", "[task]\nproduct = 'ppo'\n"), [], "designer")
    wrong = write("b.toml", "[run]\nseed = -1\n")
    with pytest.raises(ConfigError) as caught:
        load_given(wrong, [], "designer")
    assert str(wrong) in str(caught.value)
    assert "line 2" in str(caught.value)
    with pytest.raises(ConfigError, match="run.seed = -1 must be >= 0"):
        load_given(None, ["seed=-1"], "designer")


def test_five_neighbours_of_a_missing_file_are_named_in_order(write, tmp_path):
    for name in ("f.yml", "b.xml", "a.TOML", "e.json", "c.yaml", "d.toml", "notes.txt"):
        write(name, "")
    assert refusal(tmp_path / "wrong.toml").endswith("there is a.TOML, b.xml, c.yaml, d.toml, e.json")


def test_a_name_given_twice_is_the_field_at_fault(write):
    (finding,) = check_config(write("a.xml", "<grpo-config><run><seed>1</seed><seed>2</seed></run></grpo-config>"))
    assert (finding.field, finding.hint) == ("seed", "keep one")
