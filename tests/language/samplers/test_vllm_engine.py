"""Sampling on servers that speak vLLM's protocol: the same tokens, weights that travel, servers that die."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.errors import ConfigError, ContractError, GroupwiseError
from groupwise.language.adapters import Lora
from groupwise.language.engine import Engine, Sampled, SamplingParams
from groupwise.language.loading import LanguageModel, load_model
from groupwise.language.samplers.server_fleet import PAUSE
from groupwise.language.samplers.vllm_engine import VllmEngine
from groupwise.language.samplers.vllm_server import ServerLost, VllmServer
from groupwise.language.samplers.weight_travel import TransferTravel

EIGHT = SamplingParams(max_new_tokens=8)
Make = Callable[..., VllmEngine]


@pytest.fixture
def engine_on(tiny_qwen: Path) -> Iterator[Make]:
    made: list[VllmEngine] = []

    def make(*servers: str, lora: Lora | None = None, language: LanguageModel | None = None, **settings: Any) -> Any:
        language = language or load_model(str(tiny_qwen), lora=lora)
        made.append(VllmEngine(language, servers, **settings))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


def requests(engine: VllmEngine, count: int = 12) -> list[tuple[list[int], int]]:
    return [(engine.tokenizer.encode(f"{number}+{number}="), number) for number in range(count)]


def own(engine: VllmEngine, count: int = 12, params: SamplingParams = EIGHT) -> list[Sampled]:
    """What the engine of this process says with the same weights; the stand-in samples as it does."""
    return Engine(engine.language.model, engine.tokenizer, max_length=64).generate(requests(engine, count), params)


def assert_same(given: list[Sampled], expected: list[Sampled]) -> None:
    assert len(given) == len(expected)
    for a, b in zip(given, expected, strict=True):
        assert a.ids.tolist() == b.ids.tolist()
        assert np.allclose(a.logp, b.logp, atol=1e-4)
        assert a.end == b.end


def shake(language: LanguageModel) -> None:
    """Change the weights that training would change."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in language.model.parameters():
            if parameter.requires_grad:
                parameter += 0.1 * torch.randn(parameter.shape, generator=generator)


@pytest.mark.parametrize("lora", [None, Lora(4, 8.0)])
def test_servers_say_what_our_engine_says_before_and_after_new_weights(
    stand_ins: Any, engine_on: Make, lora: Lora | None
) -> None:
    urls = stand_ins.start(), stand_ins.start()
    engine = engine_on(*urls, lora=lora, in_flight=4)
    first = engine.generate(requests(engine), EIGHT)
    assert_same(first, own(engine))
    shake(engine.language)
    engine.load(engine.language.model, 1)
    second = engine.generate(requests(engine), EIGHT)
    assert_same(second, own(engine))
    assert [a.ids.tolist() for a in first] != [a.ids.tolist() for a in second]
    assert {version for answer in second for version in answer.versions.tolist()} == {1}
    assert sum(stand_ins.seen(url)["asked"] for url in urls) == 24
    assert all(stand_ins.seen(url)["asked"] > 0 for url in urls)
    if lora is None:
        called = [path for path, _ in stand_ins.seen(urls[0])["called"]]
        last = len(called) - called[::-1].index("/pause") - 1
        assert called[last : last + 5] == [
            "/pause", "/collective_rpc", "/reset_prefix_cache", "/update_weight_version", "/resume"
        ]  # fmt: skip


def test_stop_strings_and_ends_cut_where_our_engine_cuts(stand_ins: Any, engine_on: Make) -> None:
    engine = engine_on(stand_ins.start())
    assert_same(engine.generate(requests(engine), EIGHT), own(engine))
    drawn = own(engine)[0]
    text = engine.tokenizer.decode(drawn.ids[2:4].tolist(), skip_special_tokens=False)
    for params in (
        SamplingParams(max_new_tokens=8, stop=(text,)),
        SamplingParams(max_new_tokens=8, stop_token_ids=(int(drawn.ids[3]),)),
        SamplingParams(max_new_tokens=100, top_k=5),
    ):
        assert_same(engine.generate(requests(engine, 4), params), own(engine, 4, params))
    told: list[int] = []
    ids, seed = requests(engine)[0]
    answer = engine.submit(ids, EIGHT, seed, on_token=lambda token, _: told.append(token)).result()
    assert told == answer.ids.tolist()


def test_a_server_killed_in_the_middle_of_a_step_costs_no_request(stand_ins: Any, engine_on: Make) -> None:
    urls = stand_ins.start(), stand_ins.start(die_at=3)
    engine = engine_on(*urls, in_flight=4)
    answers = engine.generate(requests(engine, 24), EIGHT)
    assert_same(answers, own(engine, 24))
    metrics = engine.metrics()
    assert metrics["sampler/servers"] == 1
    assert metrics["sampler/resent"] >= 1
    assert [hint.code for hint in engine.take_hints()] == ["server_lost"]


@pytest.mark.parametrize("lora", [None, Lora(4, 8.0)])
def test_a_server_that_returns_gets_the_present_weights_first(
    stand_ins: Any, engine_on: Make, lora: Lora | None
) -> None:
    url = stand_ins.start(die_at=5)
    engine = engine_on(url, in_flight=4, lora=lora)
    shake(engine.language)
    engine.load(engine.language.model, 7)
    futures = [engine.submit(ids, EIGHT, seed) for ids, seed in requests(engine, 12)]
    # The run waits: no server is left until one is started at the same address.
    stand_ins.wait_for_death()
    stand_ins.start(port=int(url.rpartition(":")[2]))
    assert_same([future.result(timeout=60) for future in futures], own(engine, 12))
    assert stand_ins.seen(url)["asked"] <= 12


def test_vllm_without_our_extension_reloads_by_its_own_method(stand_ins: Any, engine_on: Make) -> None:
    engine = engine_on(stand_ins.start(plain=True))
    engine.generate(requests(engine, 1), EIGHT)
    shake(engine.language)
    engine.load(engine.language.model, 1)
    assert_same(engine.generate(requests(engine, 4), EIGHT), own(engine, 4))


def test_weights_that_silently_do_not_arrive_end_the_run(stand_ins: Any, engine_on: Make) -> None:
    engine = engine_on(stand_ins.start(stale=True))
    engine.generate(requests(engine, 1), EIGHT)
    shake(engine.language)
    with pytest.raises(ContractError, match="did not take the new weights"):
        engine.load(engine.language.model, 1)


def test_a_server_that_has_forgotten_the_weights_is_given_them_again(stand_ins: Any, engine_on: Make) -> None:
    engine = engine_on(stand_ins.start(forget=3), in_flight=2)
    assert_same(engine.generate(requests(engine, 8), EIGHT), own(engine, 8))
    assert engine.metrics()["sampler/resent"] == 1


@pytest.mark.parametrize(
    ("on_lost", "words"),
    [("stop", "vllm.on_lost = 'stop'"), ("shrink", "no vLLM server is left"), ("wait", "for 0.1 s")],
)
def test_without_a_server_the_run_ends_as_the_settings_say(
    stand_ins: Any, engine_on: Make, on_lost: str, words: str
) -> None:
    engine = engine_on(stand_ins.start(die_at=1), on_lost=on_lost, patience=0.1)
    with pytest.raises(ServerLost, match=words) as told:
        engine.generate(requests(engine, 4), EIGHT)
    assert "groupwise resume" in told.value.hint


def test_a_dead_address_is_one_sentence(engine_on: Make) -> None:
    engine = engine_on("http://127.0.0.1:9", on_lost="shrink")
    with pytest.raises(ServerLost, match=r"no vLLM server is left: the server at http://127.0.0.1:9 does not answer"):
        _ = engine.max_length


FAULTS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"tokens": 1}, {}, "another tokenizer: token 0"),
    ({"logprobs": "none"}, {}, "gives no log-probabilities"),
    ({"missing": ["/inference/v1/generate"]}, {}, "has no route /inference/v1/generate"),
    ({"missing": ["/pause"]}, {}, "has no route /pause"),
    ({"missing": ["/v1/load_lora_adapter"]}, {"lora": Lora(4, 8.0)}, "takes no adapters while it runs"),
    ({"max_rank": 2}, {"lora": Lora(4, 8.0)}, r"language.lora_rank = 4 is more than the server at \S+ allows"),
    ({"logprobs": "raw"}, {"params": SamplingParams(temperature=0.5)}, "from before the temperature"),
]


@pytest.mark.parametrize(("faults", "settings", "words"), FAULTS, ids=[words[:24] for _, _, words in FAULTS])
def test_a_server_that_cannot_be_used_is_refused_in_one_sentence(
    stand_ins: Any, engine_on: Make, faults: dict[str, Any], settings: dict[str, Any], words: str
) -> None:
    engine = engine_on(stand_ins.start(**faults), **settings)
    with pytest.raises(GroupwiseError, match=words) as told:
        engine.generate(requests(engine, 1), EIGHT)
    assert "\n" not in told.value.message
    assert told.value.hint


ANSWERS = {
    "a web page": b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 13\r\n\r\n<html></html>",
    "null": b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnull",
    "nothing": b"HTTP/1.1 204 No Content\r\n\r\n",
    "a list": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
    "another API": b"HTTP/1.1 404 Not Found\r\nContent-Length: 18\r\n\r\n404 page not found",
    "a redirect": b"HTTP/1.1 302 Found\r\nLocation: https://elsewhere\r\nContent-Length: 0\r\n\r\n",
    "a refusal of everything": b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
    "a key": b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n",
}
LOST = {
    "half an answer": b'HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"choices": [',
    "headers alone": b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n",
    "nothing at all": b"",
    "another protocol": b"SSH-2.0-OpenSSH_9.2\r\n",
    "a proxy without its server": b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n",
}


@pytest.fixture
def says() -> Iterator[Callable[[bytes], str]]:
    """A server that says the same to whoever asks whatever, and its address."""
    with ExitStack() as servers:

        def serve(answer: bytes) -> str:
            class Handler(socketserver.StreamRequestHandler):
                def handle(self) -> None:
                    length = 0
                    while (line := self.rfile.readline()).strip():
                        name, _, value = line.partition(b":")
                        length = int(value) if name.lower() == b"content-length" else length
                    self.rfile.read(length)
                    self.wfile.write(answer)

            server = servers.enter_context(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler))
            threading.Thread(target=server.serve_forever, daemon=True).start()
            servers.callback(server.shutdown)
            return f"http://127.0.0.1:{server.server_address[1]}"

        yield serve


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_server_of_something_else_is_refused_in_one_sentence(says: Any, engine_on: Make, answer: str) -> None:
    with pytest.raises(ConfigError, match="wants another API key" if answer == "a key" else "is not a vLLM") as told:
        engine_on(says(ANSWERS[answer])).generate([([5, 6], 0)], EIGHT)
    assert "\n" not in told.value.message
    assert told.value.hint


@pytest.mark.parametrize("on_lost", ["wait", "shrink", "stop"])
def test_why_a_server_is_refused_is_said_whatever_becomes_of_lost_ones(
    says: Any, stand_ins: Any, engine_on: Make, on_lost: str
) -> None:
    engine = engine_on(stand_ins.start(), says(ANSWERS["a web page"]), on_lost=on_lost)
    with pytest.raises(ConfigError, match="is not a vLLM server"):
        engine.generate([([5, 6], 0)], EIGHT)


@pytest.mark.parametrize("answer", LOST)
def test_a_server_that_dies_while_it_answers_is_lost(says: Any, answer: str) -> None:
    server = VllmServer(says(LOST[answer]))
    for ask in (server.model, lambda: server.generate({"token_ids": [1]})):
        with pytest.raises(ServerLost, match=server.url):
            ask()


def test_another_model_is_refused_before_the_first_token(
    stand_ins: Any, engine_on: Make, write_qwen: Any, tmp_path: Path
) -> None:
    """Full weights replace whatever the server began with; an adapter sits on the server's own."""
    other = write_qwen(tmp_path / "other", seed=1)
    url = stand_ins.start(model=other)
    with pytest.raises(ConfigError, match="serves another model"):
        engine_on(url, lora=Lora(4, 8.0)).generate([([5, 6], 0)], EIGHT)
    assert stand_ins.seen(url)["asked"] == 0


def test_weights_of_another_shape_never_reach_a_token(
    stand_ins: Any, engine_on: Make, write_qwen: Any, tmp_path: Path
) -> None:
    other = write_qwen(tmp_path / "wide", seed=1, hidden_size=64)
    engine = engine_on(stand_ins.start(model=other), on_lost="shrink")
    with pytest.raises(GroupwiseError):
        engine.generate([([5, 6], 0)], EIGHT)


def test_a_cancelled_request_ends_without_tokens_and_a_closed_engine_takes_none(
    stand_ins: Any, engine_on: Make
) -> None:
    engine = engine_on(stand_ins.start(), in_flight=1)
    assert engine.max_length == 64
    with engine.hold():
        futures = [engine.submit(ids, EIGHT, seed) for ids, seed in requests(engine, 3)]
        engine.cancel(futures[1])
    assert futures[1].result(timeout=60).end == "cancelled"
    assert len(futures[2].result(timeout=60)) > 0
    engine.close()
    with pytest.raises(ContractError, match="closed"):
        engine.submit([1, 2], EIGHT, 0)


class Recorded:
    """The learner's end of the way from GPU to GPU, without GPUs: what would be sent, in order."""

    def __init__(self) -> None:
        self.world, self.sent = 0, list[tuple[int, ...]]()

    def ticket(self) -> str:
        return "aWQ="

    def join(self, world: int) -> None:
        self.world = world

    def send(self, tensor: torch.Tensor) -> None:
        self.sent.append(tuple(tensor.shape))


def test_weights_from_gpu_to_gpu_follow_the_protocol_of_the_transfer_engine(
    stand_ins: Any, engine_on: Make, tiny_qwen: Path
) -> None:
    urls = stand_ins.start(), stand_ins.start()
    language, sender = load_model(str(tiny_qwen)), Recorded()
    engine = engine_on(*urls, language=language, travel=TransferTravel(language, sender))  # type: ignore[arg-type]
    assert_same(engine.generate(requests(engine), EIGHT), own(engine))
    shake(language)
    engine.travel.prepare(1)
    assert engine.travel.send(engine.fleet.in_service) == []
    assert sender.world == 5  # this process, and two GPUs of each server
    names = [name for name in language.model.state_dict() if name != "lm_head.weight"]
    assert len(sender.sent) == 2 * len(names)
    for url, first in zip(urls, (1, 3), strict=True):
        called = [(path, body) for path, body in stand_ins.seen(url)["called"]]
        told = next(body for path, body in called if path == "/init_weight_transfer_engine")
        assert told["init_info"] == {
            "nccl_unique_id_b64": "aWQ=", "rank_offset": first, "world_size": 5, "packed": False
        }  # fmt: skip
        last = max(n for n, (path, _) in enumerate(called) if path == "/pause")
        assert [path for path, _ in called[last : last + 5]] == [
            "/pause", "/start_weight_update", "/update_weights", "/finish_weight_update", "/resume"
        ]  # fmt: skip
        assert called[last + 2][1]["update_info"]["names"] == names
        assert called[last + 3][1]["weight_version"] == engine.travel.label


def test_without_a_gpu_weights_cannot_travel_from_gpu_to_gpu(tiny_qwen: Path) -> None:
    with pytest.raises(ConfigError, match="policy.device is cpu"):
        TransferTravel(load_model(str(tiny_qwen)))


def test_a_server_elsewhere_needs_a_shared_folder(tiny_qwen: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read this one's temporary files"):
        VllmEngine(load_model(str(tiny_qwen)), ["http://10.0.0.1:8000"])


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000", "ftp://host", "http://", "http://me:secret@host:1", "http://h:99999"]
)
def test_an_address_that_is_none_is_refused_without_quoting_a_password(url: str) -> None:
    with pytest.raises(ConfigError, match="is not the address of a server") as told:
        VllmEngine(None, [url])  # type: ignore[arg-type]
    assert "secret" not in str(told.value)


assert PAUSE <= 1  # the tests above wait for a server to be tried again
