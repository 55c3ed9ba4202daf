"""Model and adapter folders come from strangers: each of these is refused in one sentence, and none runs code."""

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from groupwise.errors import ConfigError
from groupwise.language.adapters import Lora
from groupwise.language.chat_templates import chat_text
from groupwise.language.loading import LanguageModel, load_model, save_model
from groupwise.language.model_files import tensor_shapes
from groupwise.language.tiny import tiny_model

WRITES = "import pathlib; pathlib.Path({!r}).write_text('ran')\nclass Config: ...\nclass Model: ...\n"


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    model, tokenizer = tiny_model(0, layers=1, width=16)
    return save_model(LanguageModel(model, tokenizer, "small"), tmp_path_factory.mktemp("models") / "small")


@pytest.fixture
def folder(sound, tmp_path):
    return Path(shutil.copytree(sound, tmp_path / "model"))


def edit(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def refusal(folder):
    with pytest.raises(ConfigError) as error:
        load_model(str(folder))
    assert "\n" not in error.value.message
    return str(error.value)


def test_a_sound_folder_loads(folder):
    assert load_model(str(folder)).model.config.num_hidden_layers == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"hidden_size": 10**7}, "parameters, but the weights have"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers = 1,000,000, but the weights have only 11 tensors"),
        ({"vocab_size": 2 * 10**9}, "parameters, but the weights have"),
        ({"vocab_size": 10**12}, "vocab_size = 1000000000000 is larger than"),
        ({"num_attention_heads": 0}, "ZeroDivisionError|num_attention_heads"),
        ({"hidden_size": -4}, "cannot be used"),
        ({"model_type": "nonsense"}, "nonsense"),
        ({"attn_implementation": "someone/kernel"}, "never run"),
        ({"_attn_implementation": "someone/kernel"}, "never run"),
    ],
)
def test_settings_that_do_not_fit_the_weights_are_refused(folder, changes, reason):
    edit(folder / "config.json", **changes)
    with pytest.raises(ConfigError, match=reason):
        load_model(str(folder))


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "tokenizer.json", "generation_config.json"])
@pytest.mark.parametrize("content", ["[]", "", "{", '{"a": 1, "a": 2}', '{"a": NaN}', "[" * 100_000])
def test_broken_json_is_refused_by_the_name_of_its_file(folder, name, content):
    (folder / name).write_text(content)
    assert name in refusal(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"])
def test_a_pipe_or_a_device_in_the_folder_is_refused_at_once(folder, name):
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    # Without its config.json, a folder is not a model at all; without tokenizer.json, it has no tokenizer.
    words = {"config.json": "no config.json", "tokenizer.json": "no tokenizer"}.get(name, "regular file")
    assert words in refusal(folder)
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    assert words in refusal(folder)


def test_weights_that_are_cut_off_or_lie_about_their_size_are_refused(folder):
    weights = folder / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-100])
    assert "was it cut off" in refusal(folder)
    weights.write_bytes(content[:6])
    assert "not a safetensors file" in refusal(folder)
    weights.write_bytes((2**40).to_bytes(8, "little") + content[8:])
    assert "its header would have 1,099,511,627,776 bytes" in refusal(folder)


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [10**9, 10**9], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]},
        {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]},
        {"dtype": "F32", "shape": [1]},
        {"dtype": "F32", "shape": [1], "data_offsets": "ab"},
        7,
    ],
)
def test_a_header_must_describe_its_data(tmp_path, entry):
    header = json.dumps({"a": entry}).encode()
    (tmp_path / "a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(ConfigError, match="its header"):
        tensor_shapes(tmp_path / "a.safetensors")


def test_shapes_are_those_that_safetensors_wrote(folder):
    state = {name: tuple(value.shape) for name, value in load_model(str(folder)).model.state_dict().items()}
    assert tensor_shapes(folder / "model.safetensors").items() <= state.items()


def test_pickled_weights_are_refused_with_the_remedy(folder, tmp_path):
    class Harmful:
        def __reduce__(self):
            return Path.write_text, (tmp_path / "ran", "ran")

    (folder / "model.safetensors").unlink()
    torch.save(Harmful(), folder / "pytorch_model.bin")
    said = refusal(folder)
    assert "pytorch_model.bin" in said
    assert "can run code" in said
    assert "save_pretrained" in said
    assert not (tmp_path / "ran").exists()


def test_an_index_may_only_name_files_of_its_folder(folder):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../other.safetensors"}}')
    assert "not a safetensors file of this folder" in refusal(folder)
    (folder / "model.safetensors.index.json").write_text('{"weight_map": []}')
    assert "lists no files" in refusal(folder)


def test_python_code_of_a_model_never_runs_and_nobody_is_asked(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    ran = tmp_path / "ran"
    (folder / "code.py").write_text(WRITES.format(str(ran)))
    edit(folder / "config.json", auto_map={"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"})
    edit(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["code.Model", None]}, tokenizer_class="Own")
    with suppress(ConfigError):
        load_model(str(folder))
    edit(folder / "config.json", model_type="own", architectures=["Own"])
    assert "which is never run" in refusal(folder)
    assert not ran.exists()


def test_a_template_that_never_ends_is_refused_when_it_is_used(folder):
    (folder / "chat_template.jinja").write_text(
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    )
    tokenizer = load_model(str(folder)).tokenizer
    with pytest.raises(ConfigError, match="2 seconds of processor time"):
        chat_text(tokenizer, [{"role": "user", "content": "Hi"}])


def test_templates_of_models_and_our_own_render_as_transformers_does(folder):
    tokenizer = load_model(str(folder)).tokenizer
    messages = [{"role": "system", "content": "Add."}, {"role": "user", "content": "1+1?"}]
    for template in (tokenizer.chat_template, "{{ eos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"):
        tokenizer.chat_template = template
        wanted = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert chat_text(tokenizer, messages) == wanted


# Adapters


@pytest.fixture
def adapter(folder, tmp_path):
    adapted = load_model(str(folder), lora=Lora(rank=2))
    save_model(adapted, tmp_path / "adapter", merged=False)
    edit(tmp_path / "adapter" / "adapter_config.json", base_model_name_or_path=str(folder))
    return tmp_path / "adapter"


def test_a_sound_adapter_loads(adapter):
    assert load_model(str(adapter)).model.peft_config["default"].r == 2


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"r": 10**9}, "rank 1000000000"),
        ({"r": "2"}, "rank '2'"),
        ({"peft_type": "PREFIX_TUNING"}, "only LORA"),
        ({"layer_replication": [[0, 10**6]]}, "layer_replication"),
        ({"megatron_config": {"a": 1}, "megatron_core": "evil"}, "megatron_config"),
        ({"use_dora": True}, "use_dora"),
        ({"target_modules": "(a+)+$" + "(a|a)*" * 20 + "(.*.*)*" * 30 + "!"}, "cannot be used"),
        ({"target_modules": ["(a+)+$"]}, "names of modules"),
        ({"rank_pattern": {"(a+)+": 2}}, "names of modules"),
        ({"rank_pattern": {"q_proj": 10**9}}, "rank 1000000000"),
        ({"target_modules": {"a": 1}}, "names of modules"),
        ({"base_model_name_or_path": None}, "does not name its base model"),
        ({"base_model_name_or_path": 7}, "does not name its base model"),
    ],
)
def test_a_strange_adapter_is_refused(adapter, changes, reason):
    edit(adapter / "adapter_config.json", **changes)
    with pytest.raises(ConfigError, match=reason):
        load_model(str(adapter))


@pytest.mark.parametrize("content", ["[]", "", "{", "7"])
def test_a_broken_adapter_config_is_refused(adapter, content):
    (adapter / "adapter_config.json").write_text(content)
    assert "adapter_config.json" in refusal(adapter)


def test_an_adapter_whose_base_is_an_adapter_or_itself_is_refused(adapter, tmp_path):
    edit(adapter / "adapter_config.json", base_model_name_or_path=str(adapter))
    assert "which is an adapter itself" in refusal(adapter)


def test_pickled_weights_of_an_adapter_are_refused(adapter):
    (adapter / "adapter_model.safetensors").rename(adapter / "adapter_model.bin")
    assert "can run code" in refusal(adapter)


def test_a_pattern_of_modules_finds_what_peft_would_find(adapter):
    edit(adapter / "adapter_config.json", target_modules=r".*\.(q|k|v|o|up|gate|down)_proj")
    plain = load_model(str(adapter)).model
    assert len([name for name, _ in plain.named_modules() if name.endswith("lora_A")]) == 7


def test_a_folder_with_a_model_and_an_adapter_is_refused(folder, adapter):
    shutil.copy(adapter / "adapter_config.json", folder)
    assert "both a model" in refusal(folder)
