"""Which model a name means, and how its weights are recognised later."""

from __future__ import annotations

import json
import os
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import huggingface_hub
import pytest
import transformers

from groupwise.errors import ConfigError, MissingExtra
from groupwise.language import model_lookup
from groupwise.language.model_files import REST, TOKENIZERS
from groupwise.language.model_lookup import ModelLocation, find_model, fingerprint, import_extra, is_model


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that looks like a model, in the home folder and the current one."""
    path = tmp_path / "model"
    path.mkdir()
    (path / "config.json").write_text("{}")
    (path / "tokenizer.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return path


def adapter(path: Path, base: str) -> Path:
    path.mkdir()
    (path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base}))
    return path


@pytest.mark.parametrize(
    ("name", "seed", "wanted"),
    [
        ("tiny", 0, ModelLocation("tiny", tiny_seed=0)),
        ("tiny", 5, ModelLocation("tiny@5", tiny_seed=5)),
        ("tiny@7", 5, ModelLocation("tiny@7", tiny_seed=7)),
        ("tiny@0", 5, ModelLocation("tiny", tiny_seed=0)),
        ("tiny@007", 0, ModelLocation("tiny@7", tiny_seed=7)),
    ],
)
def test_the_tiny_models_seed_is_that_of_its_name_or_else_the_one_given(
    name: str, seed: int, wanted: ModelLocation
) -> None:
    assert find_model(name, seed) == wanted


def test_a_folder_is_found_by_any_of_its_names(folder: Path) -> None:
    for name in ("model", "./model", str(folder), "~/model"):
        assert find_model(name, seed=3) == ModelLocation(name, source=str(Path(name).expanduser()))
    # A folder is taken before a name of the hub, and a name like tiny's is not tiny.
    (folder.parent / "tiny@x").symlink_to(folder)
    assert find_model("tiny@x").source == "tiny@x"


@pytest.mark.parametrize("name", TOKENIZERS)
def test_any_file_of_a_tokenizer_will_do(folder: Path, name: str) -> None:
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match="has a model but no tokenizer"):
        find_model(str(folder))
    (folder / name).write_text("{}")
    assert find_model(str(folder)).source == str(folder)


def test_an_adapter_is_found_together_with_its_model(folder: Path, tmp_path: Path) -> None:
    one = adapter(tmp_path / "one", "~/model")
    assert find_model(str(one)) == ModelLocation(str(one), source=str(folder), adapter=one)
    two = adapter(tmp_path / "two", "tiny@4")
    assert find_model(str(two), seed=9) == ModelLocation(str(two), tiny_seed=4, adapter=two)
    three = adapter(tmp_path / "three", str(two))
    with pytest.raises(ConfigError, match=f"base model .* is '{two}', which is an adapter itself"):
        find_model(str(three))
    (three / "config.json").write_text("{}")
    (three / "vocab.json").write_text("{}")
    assert find_model(str(three)).adapter is None, "with a config.json it is a model, whatever else is there"
    assert is_model(one)
    assert is_model(folder)
    assert not is_model(tmp_path)


@pytest.mark.parametrize("name", ["./no", "/no/such", "~/no", "../no", "a/b/c", "  "])
def test_names_that_can_only_be_folders_are_never_asked_of_the_hub(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_lookup, "_look_on_hub", lambda name: pytest.fail("asked the hub"))
    with pytest.raises(ConfigError, match=f"^model folder '{name}' does not exist"):
        find_model(name)


@pytest.mark.parametrize("name", ["gpt2", "Qwen/Qwen3-0.6B", "tiny-model", "tiny@x"])
def test_other_names_are_looked_up_on_the_hub(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(model_lookup, "_look_on_hub", asked.append)
    assert find_model(name) == ModelLocation(name, source=name)
    assert asked == [name]


class Hub:
    """A hub whose cache and pages have certain models; it counts how often it is asked over the network."""

    def __init__(self, cached: tuple[str, ...] = (), online: tuple[str, ...] = ()) -> None:
        self.cached, self.online, self.asked = cached, online, 0

    def from_pretrained(self, name: str, local_files_only: bool = False, **options: Any) -> None:
        assert options == {"trust_remote_code": False}
        self.asked += not local_files_only
        if name not in (self.cached if local_files_only else self.online):
            raise OSError(f"{name} is not a model\nand more about it")


@pytest.mark.parametrize(
    ("hub", "offline", "answers", "refusal"),
    [
        (Hub(cached=("a/b",)), True, False, None),
        (Hub(online=("a/b",)), False, True, None),
        (Hub(online=("a/b",)), True, True, "is not on this machine, and the Hugging Face hub cannot be reached"),
        (Hub(online=("a/b",)), False, False, "is not on this machine, and the Hugging Face hub cannot be reached"),
        (Hub(), False, True, "cannot be loaded from the Hugging Face hub: a/b is not a model"),
    ],
    ids=["cached", "online", "offline by choice", "out of reach", "unknown"],
)
def test_the_cache_is_asked_before_the_hub(
    hub: Hub, offline: bool, answers: bool, refusal: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", hub.from_pretrained)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", offline)
    monkeypatch.setattr(model_lookup, "_answers", lambda endpoint: answers)
    if refusal is None:
        assert find_model("a/b").source == "a/b"
    else:
        with pytest.raises(ConfigError) as refused:
            find_model("a/b")
        assert refused.value.message == f"model 'a/b' {refusal}"
        assert "use model_name='tiny'" in refused.value.hint
    assert hub.asked == (not offline and answers and not hub.cached)


@pytest.mark.parametrize("status", [200, 404, 503])
def test_a_hub_answers_whatever_it_says(status: int) -> None:
    class Page(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = Thread(target=server.handle_request)
    thread.start()
    assert model_lookup._answers(f"http://127.0.0.1:{server.server_port}")
    thread.join()
    server.server_close()
    assert not model_lookup._answers(f"http://127.0.0.1:{server.server_port}")


def test_model_folders_nearby_are_suggested(folder: Path, tmp_path: Path) -> None:
    """Beside the folder that was named, inside it, and here; only folders with a model or an adapter."""
    beside = tmp_path / "deep" / "model-2"
    inside = tmp_path / "modell" / "modell"
    for path in (beside, inside):
        path.mkdir(parents=True)
    adapter(tmp_path / "deep" / "model-3", "tiny")
    (tmp_path / "models").mkdir()
    (beside / "config.json").write_text("{}")
    (inside / "config.json").write_text("{}")
    for name, meant in (
        ("./deep/model-1", {"deep/model-2", "deep/model-3", "model"}),
        ("./modell", {"modell/modell", "model"}),
        ("./xyz", set()),
    ):
        with pytest.raises(ConfigError) as refused:
            find_model(name)
        suggested, _, _ = refused.value.hint.partition("Name the folder")
        found = suggested.removeprefix("Did you mean ").strip().rstrip("?").split(" or ")
        assert {text.strip("'") for text in found} - {""} == meant


def test_an_extra_that_is_not_installed_is_named() -> None:
    assert import_extra("json") is json
    with pytest.raises(MissingExtra, match="need the package no_such, which cannot be imported") as missing:
        import_extra("no_such.inner", "pip install it")
    assert missing.value.hint == "pip install it"


def test_every_file_that_decides_about_a_model_is_in_its_fingerprint(folder: Path) -> None:
    for number, name in enumerate((*REST, "model-1.safetensors", "model-2.safetensors")):
        (folder / name).write_bytes(bytes([number]))
    (folder / "README.md").write_text("about it")
    before = fingerprint(find_model("model"))
    assert before["weights"].keys() == {"model-1.safetensors", "model-2.safetensors"}
    assert before["rest"].keys() == set(REST)
    for kind, names in (("weights", before["weights"]), ("rest", before["rest"])):
        for name in names:
            content = (folder / name).read_bytes()
            (folder / name).write_bytes(b"x")
            after = fingerprint(find_model("model"))
            assert [n for n in names if after[kind][n] != before[kind][n]] == [name]
            (folder / name).write_bytes(content)
    (folder / "README.md").write_text("more about it")
    os.utime(folder / "model-1.safetensors", (1, 1))
    assert fingerprint(find_model("model")) == before
    assert len(set(before["rest"].values())) == len(REST)


def test_the_tiny_model_is_recognised_by_its_seed() -> None:
    assert fingerprint(find_model("tiny@3")) == {"weights": {"seed": "3"}, "rest": {}}


@pytest.mark.parametrize("size", [0, 1, 10, 11, 39, 40, 41, 79, 80, 95, 200])
def test_a_digest_covers_the_size_and_pieces_from_beginning_to_end(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With four pieces of ten bytes: all of a small file, and the first ten of every quarter of a large one."""
    monkeypatch.setattr(model_lookup, "PIECE", 10)
    monkeypatch.setattr(model_lookup, "PIECES", 4)
    path = tmp_path / "weights"

    def digest(content: bytes) -> str:
        path.write_bytes(content)
        return model_lookup._digest(path)

    content = bytes(size)
    known = digest(content)
    assert digest(content) == known
    assert digest(bytes(size + 1)) != known
    step = max(10, -(-size // 4))
    covered = {place for start in range(0, size, step) for place in range(start, min(start + 10, size))}
    noticed = {place for place in range(size) if digest(content[:place] + b"x" + content[place + 1 :]) != known}
    assert noticed == covered
    assert len(noticed) == size if size <= 40 else len(noticed) >= 31


def test_at_most_sixteen_mebibytes_of_a_file_are_read() -> None:
    assert model_lookup.PIECE * model_lookup.PIECES == 16 * 2**20
