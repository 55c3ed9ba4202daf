"""Model and adapter folders come from strangers: each of these is refused in one sentence, and none runs code."""

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from groupwise.errors import ConfigError
from groupwise.language import model_files
from groupwise.language.adapters import Lora
from groupwise.language.chat_templates import chat_text
from groupwise.language.loading import LanguageModel, load_model, save_model
from groupwise.language.model_files import (
    LIMITS,
    FolderWeights,
    adapter_settings,
    base_of,
    check_counts,
    check_model,
    check_size,
    tensor_shapes,
)
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
    weights.write_bytes(content + bytes(100))
    assert f"but there are {len(content) - 8 - int.from_bytes(content[:8], 'little') + 100:,}" in refusal(folder)
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
        {"dtype": "F32", "shape": [1], "data_offsets": [1, 4]},
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


def written(path, header, data):
    content = json.dumps(header).encode()
    path.write_bytes(len(content).to_bytes(8, "little") + content + bytes(data))
    return path


# The bytes of seven numbers of each type, as the specification of safetensors has them.
SEVEN = {
    "BOOL": 7, "U8": 7, "I8": 7, "F8_E4M3": 7, "F8_E5M2": 7, "F8_E8M0": 7, "I16": 14, "U16": 14, "F16": 14, "BF16": 14,
    "I32": 28, "U32": 28, "F32": 28, "I64": 56, "U64": 56, "F64": 56, "C64": 56, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip


@pytest.mark.parametrize("kind", SEVEN)
def test_every_type_takes_as_many_bytes_as_its_bits(tmp_path, kind):
    for length in (SEVEN[kind] - 1, SEVEN[kind], SEVEN[kind] + 1):
        header = {"a": {"dtype": kind, "shape": [7], "data_offsets": [0, length]}}
        path = written(tmp_path / "a.safetensors", header, length)
        if length == SEVEN[kind]:
            assert tensor_shapes(path) == {"a": (7,)}
        else:
            with pytest.raises(ConfigError, match=rf"at \[0, {length}\] instead of \[0, {SEVEN[kind]}\]"):
                tensor_shapes(path)
    assert model_files.BITS.keys() == SEVEN.keys()


def test_tensors_may_be_listed_in_any_order_and_be_single_numbers_or_empty(tmp_path):
    header = {
        "__metadata__": {"format": "pt"},
        "last": {"dtype": "F32", "shape": [2, 3], "data_offsets": [4, 28]},
        "number": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]},
        "nothing": {"dtype": "F16", "shape": [0, 5], "data_offsets": [28, 28]},
    }
    weights = FolderWeights(tensor_shapes(written(tmp_path / "a.safetensors", header, 28)))
    assert weights.shapes == {"last": (2, 3), "number": (), "nothing": (0, 5)}
    assert weights.parameters == 7
    assert weights.longest == 5
    assert FolderWeights({"number": ()}).longest == 1
    assert (FolderWeights({}).longest, FolderWeights({}).parameters) == (0, 0)


@pytest.mark.parametrize(
    ("second", "data"),
    [([4, 12], 12), ([12, 20], 20), ([8, 16], 15), ([8, 16], 17), ([8, 12], 12), ([0, 8], 8)],
    ids=["overlap", "gap", "cut off", "more behind", "too short", "the same place"],
)
def test_tensors_lie_one_behind_the_other_without_gaps(tmp_path, second, data):
    def header(offsets):
        return {
            "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
            "b": {"dtype": "F32", "shape": [2], "data_offsets": offsets},
        }

    assert len(tensor_shapes(written(tmp_path / "a.safetensors", header([8, 16]), 16))) == 2
    with pytest.raises(ConfigError, match="its header"):
        tensor_shapes(written(tmp_path / "a.safetensors", header(second), data))


def test_a_file_without_tensors_and_a_header_of_the_largest_size_are_read(tmp_path, monkeypatch):
    path = written(tmp_path / "a.safetensors", {}, 0)
    assert tensor_shapes(path) == {}
    monkeypatch.setattr(model_files, "LARGEST_HEADER", 64)
    content = b"{}" + b" " * 62
    path.write_bytes((64).to_bytes(8, "little") + content)
    assert tensor_shapes(path) == {}
    path.write_bytes((65).to_bytes(8, "little") + content + b" ")
    with pytest.raises(ConfigError, match="its header would have 65 bytes"):
        tensor_shapes(path)
    path.write_bytes((2).to_bytes(8, "little") + b"[]")
    with pytest.raises(ConfigError, match="its header is not an object"):
        tensor_shapes(path)


def test_a_header_of_sixteen_mebibytes_is_the_largest():
    assert model_files.LARGEST_HEADER == 16 * 2**20


def sparse(path, size):
    with path.open("wb") as file:
        file.truncate(size)


@pytest.mark.parametrize(
    "name", ["tokenizer.json", "chat_template.jinja", "merges.txt", "model.safetensors.index.json", "vocab.json"]
)
def test_a_text_file_is_refused_above_64_mebibytes(folder, name):
    assert LIMITS.size == 64 * 2**20
    sparse(folder / name, LIMITS.size + 1)
    with pytest.raises(ConfigError, match=f"^{name} is larger than 64 MiB"):
        check_model(folder)
    sparse(folder / name, LIMITS.size)
    if not name.endswith(".json"):
        check_model(folder)


@pytest.mark.parametrize(("levels", "bits"), [(100, 100), (101, 100), (100, 101)])
def test_settings_are_at_most_100_levels_deep_and_numbers_have_100_bits(folder, levels, bits):
    """Transformers writes int(1e30), of 100 bits, as the length of a tokenizer without limit."""
    nested = '{"a": ' * (levels - 1) + str(2 ** (bits - 1)) + "}" * (levels - 1)
    (folder / "generation_config.json").write_text(f'{{"a": {nested}}}')
    if (levels, bits) == (100, 100):
        check_model(folder)
    else:
        with pytest.raises(ConfigError, match=r"^generation_config.json: "):
            check_model(folder)


def test_folders_links_to_nowhere_and_large_files_of_other_names_do_no_harm(folder):
    wanted = check_model(folder)
    (folder / "figures").mkdir()
    (folder / "README.md").symlink_to("nowhere")
    sparse(folder / "training.log", LIMITS.size + 1)
    assert check_model(folder) == wanted


@pytest.mark.parametrize("value", [2**31 - 1, 2**31, -(2**31) + 1, -(2**31), True])
@pytest.mark.parametrize("where", ["top", "list", "inside"])
def test_whole_numbers_of_the_settings_have_at_most_31_bits(folder, value, where):
    edit(folder / "config.json", extra={"top": value, "list": [[1, value]], "inside": {"extra": {"a": value}}}[where])
    if abs(value) < 2**31:
        check_model(folder)
    else:
        with pytest.raises(ConfigError, match=f"config.json: {'a' if where == 'inside' else 'extra'} = {value} is"):
            check_model(folder)


@pytest.mark.parametrize("key", ["attn_implementation", "experts_implementation"])
@pytest.mark.parametrize("hidden", ["", "_"])
@pytest.mark.parametrize(
    ("value", "harmless"),
    [("eager", True), (None, True), ("someone/kernel", False), ({"": "eager"}, False), (7, False)],
)
def test_the_way_to_compute_attention_is_a_plain_name(folder, key, hidden, value, harmless):
    edit(folder / "config.json", **{f"{hidden}{key}": value})
    if harmless:
        check_model(folder)
    else:
        with pytest.raises(ConfigError, match=f"{key} = .* is code from elsewhere, which is never run"):
            check_model(folder)


def test_weights_in_several_files_are_those_that_the_index_lists(folder):
    whole = check_model(folder).shapes
    model = load_model(str(folder)).model
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="4KB")
    files = sorted(path.name for path in folder.glob("model-*.safetensors"))
    assert len(files) > 1
    assert check_model(folder).shapes == whole
    ids = torch.arange(9)[None]
    assert torch.equal(load_model(str(folder)).model(ids).logits, model(ids).logits)
    (folder / files[-1]).unlink()
    assert f"names the file '{files[-1]}', which is not there" in refusal(folder)


@pytest.mark.parametrize("name", ["../a.safetensors", "/a.safetensors", "sub/a.safetensors", "a.bin", "a.py", ""])
def test_an_index_names_safetensors_beside_it_only(folder, name):
    (folder / "model.safetensors").rename(folder / "a.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": "a.safetensors"}}))
    check_model(folder)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": "a.safetensors", "y": name}}))
    with pytest.raises(ConfigError, match="not a safetensors file of this folder"):
        check_model(folder)


@pytest.mark.parametrize("ending", ["bin", "pt", "pth", "ckpt", "pkl"])
def test_every_kind_of_pickled_file_is_named(folder, ending):
    (folder / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match="there are no weights"):
        check_model(folder)
    (folder / f"weights.{ending}").write_bytes(b"")
    with pytest.raises(ConfigError, match=f"only there as weights.{ending}, a pickled file"):
        check_model(folder)


def tensors(count):
    return FolderWeights({str(number): (1,) for number in range(count)})


@pytest.mark.parametrize(
    ("settings", "layers", "count", "refused"),
    [
        # Every layer has a tensor at least.
        ({}, 3, 3, None),
        ({}, 4, 3, "num_hidden_layers = 4, but the weights have only 3 tensors"),
        ({}, None, 0, None),
        # Other counts up to 1024 may be in a single tensor.
        ({"n_routed_experts": 1024}, 1, 1, None),
        ({"n_routed_experts": 1025}, 1, 1024, "n_routed_experts = 1,025, but the weights have only 1,024 tensors"),
        ({"n_routed_experts": 1025}, 1, 1025, None),
        ({"text_config": {"num_encoder_Layers": 5000}}, 1, 9, "num_encoder_Layers = 5,000"),
        ({"some": [{"experts": 5000}]}, 1, 9, "experts = 5,000"),
        # Sizes are not counts.
        ({"hidden_size": 5000, "layer_size": 5000, "expert_hidden_dim": 5000}, 1, 9, None),
        ({"layer_dims": 5000}, 1, 9, "layer_dims = 5,000"),
    ],
)
def test_settings_count_no_more_modules_than_there_are_tensors(settings, layers, count, refused):
    if refused is None:
        check_counts(settings, layers, tensors(count))
    else:
        with pytest.raises(ConfigError, match=refused):
            check_counts(settings, layers, tensors(count))


@pytest.mark.parametrize(("quantized", "most"), [(False, 3_000_000), (True, 33_000_000)])
def test_a_model_is_at_most_twice_as_large_as_its_weights_unless_they_are_packed(quantized, most):
    weights = FolderWeights({"a": (1000, 1000)})
    check_size(most, weights, 0, quantized)
    with pytest.raises(ConfigError, match=f"of {most + 1:,} parameters, but the weights have 1,000,000"):
        check_size(most + 1, weights, 0, quantized)


def test_a_model_fits_into_memory_in_its_own_precision(monkeypatch):
    weights = FolderWeights({"a": (1000,)})
    monkeypatch.setattr(model_files, "memory_limit", lambda: 4000)
    check_size(1000, weights, 4, False)
    check_size(1000, weights, 5, True)
    with pytest.raises(ConfigError, match=r"needs 4.88 KiB of memory; this machine allows 3.91 KiB") as refused:
        check_size(1000, weights, 5, False)
    assert "bfloat16" in refused.value.hint


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


def test_a_tokenizer_that_fails_only_when_it_is_used_is_refused_too(folder):
    edit(folder / "tokenizer_config.json", model_max_length=["many"])
    assert "cannot be read: TypeError" in refusal(folder)


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
        ({"use_dora": True}, "missing adapter keys"),
        ({"use_dora": "yes"}, "neither true nor false"),
        ({"bias": "some"}, "bias = 'some' is not one of"),
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


@pytest.mark.parametrize("targets", [r".*\.(q|k|v|o|up|gate|down)_proj", "all-linear"])
def test_a_pattern_of_modules_finds_what_peft_would_find(adapter, targets):
    edit(adapter / "adapter_config.json", target_modules=targets)
    plain = load_model(str(adapter)).model
    assert len([name for name, _ in plain.named_modules() if name.endswith("lora_A")]) == 7


def test_a_folder_with_a_model_and_an_adapter_is_refused(folder, adapter):
    shutil.copy(adapter / "adapter_config.json", folder)
    assert "both a model" in refusal(folder)


USUAL = {"r": 8, "layer_replication": None, "megatron_config": None, "lora_alpha": 8, "use_qalora": False, "usual": 7}


@pytest.fixture
def plain_adapter(tmp_path):
    """An adapter's folder whose largest tensor has a side of 6."""
    written(
        tmp_path / "adapter_model.safetensors", {"a": {"dtype": "F32", "shape": [2, 6], "data_offsets": [0, 48]}}, 48
    )
    settings = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"], "revision": "main"}
    (tmp_path / "adapter_config.json").write_text(json.dumps(settings))
    return tmp_path


def test_only_settings_with_a_meaning_for_us_are_kept(plain_adapter):
    edit(
        plain_adapter / "adapter_config.json", lora_dropout=None, use_qalora=None, megatron_config={}, future=7, usual=7
    )
    assert adapter_settings(plain_adapter, USUAL) == {"r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]}


SOUND = [
    {"r": 1}, {"r": 6}, {"rank_pattern": {"q_proj": 6}}, {"rank_pattern": {r".*\.experts": 1}}, {"lora_alpha": 0.5},
    {"lora_dropout": 0}, {"alpha_pattern": {"a.b": 1.5}}, {"use_dora": True}, {"bias": "all"}, {"bias": "lora_only"},
    {"trainable_token_indices": [0, 5]}, {"target_modules": "all-linear"}, {"target_modules": ".*proj"},
    {"layers_pattern": "layers"}, {"layers_pattern": ["layers", "h"]}, {"modules_to_save": ["lm_head"]},
    {"layers_to_transform": 3}, {"layers_to_transform": [0, 3]}, {"target_parameters": ["mlp.up.weight"]},
    {"exclude_modules": ["a" * 200]}, {"target_modules": []},
]  # fmt: skip
STRANGE = [
    ({"r": 0}, "the rank 0 does not"), ({"r": 7}, "the rank 7 does not"), ({"r": -1}, "the rank -1 does not"),
    ({"r": True}, "the rank True"), ({"r": 2.0}, "the rank 2.0"), ({"r": None}, "the rank None"),
    ({"rank_pattern": {"q_proj": 7}}, "the rank 7"), ({"rank_pattern": {"q_proj": 0}}, "the rank 0"),
    ({"rank_pattern": ["q_proj"]}, "rank_pattern = .* is not a table"), ({"rank_pattern": {"a b": 2}}, "rank_pattern"),
    ({"rank_pattern": {r".*\.a|b": 2}}, "rank_pattern = "), ({"alpha_pattern": 7}, "alpha_pattern = 7 is not a table"),
    ({"alpha_pattern": {"a": "1"}}, "'1' is not a number"), ({"alpha_pattern": {"(a+)+": 1}}, "alpha_pattern = "),
    ({"lora_alpha": "4"}, "'4' is not a number"), ({"lora_alpha": True}, "True is not a number"),
    ({"lora_dropout": "0"}, "'0' is not a number"), ({"lora_dropout": False}, "False is not a number"),
    *(({name: 1}, f"{name} = 1 is neither") for name in ("use_dora", "use_rslora", "lora_bias", "fan_in_fan_out")),
    ({"bias": "lora"}, "bias = 'lora' is not one of none, all, lora_only"),
    *(({"trainable_token_indices": tokens}, "trainable_token_indices = ") for tokens in ([-1], [True], {"a": [1]})),
    *(({name: [value]}, f"{name} = ") for value in ("a|b", "", "a" * 201, "a\n", 7)
      for name in ("target_modules", "modules_to_save", "exclude_modules", "layers_pattern", "target_parameters")),
    *(({name: "a"}, f"{name} = 'a' is not a list")
      for name in ("modules_to_save", "exclude_modules", "target_parameters")),
    ({"layers_pattern": "(a+)+"}, "layers_pattern"), ({"layers_to_transform": "3"}, "layers_to_transform"),
    ({"layers_to_transform": [1, "2"]}, "layers_to_transform"), ({"layers_to_transform": True}, "layers_to_transform"),
    ({"peft_type": None}, "only LORA is supported"), ({"peft_type": "lora"}, "only LORA is supported"),
    ({"layer_replication": [[0, 2]]}, "layer_replication = .* is not supported"),
    ({"use_qalora": True}, "use_qalora = True is not supported"),
]  # fmt: skip


@pytest.mark.parametrize("changes", SOUND, ids=str)
def test_settings_of_an_adapter_are_taken_as_they_are(plain_adapter, changes):
    edit(plain_adapter / "adapter_config.json", **changes)
    taken = adapter_settings(plain_adapter, USUAL)
    assert {name: taken[name] for name in changes} == changes


@pytest.mark.parametrize(("changes", "reason"), STRANGE, ids=lambda value: str(value)[:60])
def test_settings_of_an_adapter_that_mean_nothing_are_refused(plain_adapter, changes, reason):
    edit(plain_adapter / "adapter_config.json", **changes)
    with pytest.raises(ConfigError, match=reason):
        adapter_settings(plain_adapter, USUAL)


def test_an_adapter_comes_with_sound_weights_in_a_sound_folder(plain_adapter):
    (plain_adapter / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"^adapter_model.safetensors: not a safetensors file"):
        adapter_settings(plain_adapter, USUAL)
    (plain_adapter / "adapter_model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"there are no weights \(adapter_model.safetensors\)"):
        adapter_settings(plain_adapter, USUAL)
    os.mkfifo(plain_adapter / "README.md")
    with pytest.raises(ConfigError, match="README.md is not a regular file"):
        adapter_settings(plain_adapter, USUAL)


@pytest.mark.parametrize("base", ["", None, ["tiny"]])
def test_an_adapter_names_its_base_in_a_word(plain_adapter, base):
    edit(plain_adapter / "adapter_config.json", base_model_name_or_path="tiny@3")
    assert base_of(plain_adapter) == "tiny@3"
    edit(plain_adapter / "adapter_config.json", base_model_name_or_path=base)
    with pytest.raises(ConfigError, match="does not name its base model"):
        base_of(plain_adapter)
