"""vLLM's routes, served by our own engine: a real HTTP server in a process of its own, for tests of the protocol.

One parent process imports what is slow and forks a server for each line of JSON it reads, so that a test can kill one:

    {"model": folder, "port": 0, "faults": {…}}  →  {"port": 40001, "pid": 4711}

Faults: `die_at` a number of requests for tokens (SIGKILL in the middle of it), `logprobs` "none" or "raw" (before the
temperature), `missing` routes, `max_rank` of adapters, `plain` vLLM without our
extension, `stale` (says that it reloads), `tokens` added to what the tokenizer says, `forget` the weights.
"""

from __future__ import annotations

import copy
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import peft
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from groupwise.language.adapters import load_adapter
from groupwise.language.engine import Engine, SamplingParams
from groupwise.language.loading import load_model

SAME = ("max_new_tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty")


class Server:
    """The state of one server, and its routes by path."""

    def __init__(self, model: str, faults: dict[str, Any]) -> None:
        language = load_model(model)
        self.name, self.faults, self.tokenizer = model, faults, language.tokenizer
        self.engines: dict[str, Engine] = {}
        self.models = {model: language.model}
        self.label, self.asked, self.called = "default", 0, []
        self.lock, self.paused = threading.Lock(), False
        self.routes: dict[str, Callable[[dict[str, Any]], Any]] = {
            "/health": lambda body: {},
            "/v1/models": self.listed,
            "/tokenize": self.tokenize,
            "/inference/v1/generate": self.generate,
            "/v1/load_lora_adapter": self.load_lora_adapter,
            "/v1/unload_lora_adapter": self.unload_lora_adapter,
            "/pause": lambda body: setattr(self, "paused", True),
            "/resume": lambda body: setattr(self, "paused", False),
            "/collective_rpc": self.collective_rpc,
            "/reset_prefix_cache": lambda body: {},
            "/update_weight_version": lambda body: setattr(self, "label", body["new_version"]),
            "/get_world_size": lambda body: {"world_size": 2},
            "/init_weight_transfer_engine": lambda body: {},
            "/start_weight_update": lambda body: {},
            "/update_weights": self.update_weights,
            "/finish_weight_update": lambda body: setattr(self, "label", body["weight_version"]),
            "/shutdown_weight_transfer_engine": lambda body: {},
            "/seen": lambda body: {"called": self.called, "asked": self.asked, "label": self.label},
        }

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        route = self.routes.get(path)
        if route is None or path in self.faults.get("missing", ()):
            return 404, {"detail": "Not Found"}
        with self.lock:
            self.called.append([path, body])
        found = route(body)
        return found if isinstance(found, tuple) else (200, found)

    def listed(self, body: dict[str, Any]) -> Any:
        base = {"id": self.name, "root": self.name, "parent": None, "max_model_len": 64}
        return {"data": [base, *({"id": n, "parent": self.name} for n in self.models if n != self.name)]}

    def tokenize(self, body: dict[str, Any]) -> Any:
        ids = self.tokenizer.encode(body["prompt"], add_special_tokens=body["add_special_tokens"])
        return {"tokens": [token + self.faults.get("tokens", 0) for token in ids]}

    def generate(self, body: dict[str, Any]) -> Any:
        if not body.get("token_ids"):
            return 400, {"error": {"message": "token_ids is missing"}}
        name = body["model"]
        if name not in self.models:
            return 404, {"error": {"message": f"The model {name!r} does not exist."}}
        if self.paused:
            return 503, {"error": {"message": "paused"}}
        given = body["sampling_params"]
        probe = "prompt_logprobs" in given
        with self.lock:
            self.asked += not probe
            number = 0 if probe else self.asked
            if self.asked == self.faults.get("die_at"):
                os.kill(os.getpid(), signal.SIGKILL)
            if name not in self.engines:
                # Ends come with every request.
                self.engines[name] = Engine(self.models[name], self.tokenizer, eos=(), max_length=64).start()
        known = {n: given["max_tokens" if n == "max_new_tokens" else n] for n in SAME}
        params = SamplingParams(**known, stop=tuple(given["stop"]), stop_token_ids=tuple(given["stop_token_ids"]))
        sampled = self.engines[name].submit(body["token_ids"], params, given["seed"]).result()
        logp = sampled.logp.tolist()
        if self.faults.get("logprobs") == "raw":
            ids = [*body["token_ids"], *sampled.ids.tolist()]
            logp = self.logp(name, ids)[len(body["token_ids"]) - 1 :]
        content = [{"token_id": t, "logprob": value} for t, value in zip(sampled.ids.tolist(), logp, strict=True)]
        label = "default" if number and number == self.faults.get("forget") else self.label
        choice = {
            "index": 0, "token_ids": sampled.ids.tolist(),
            "finish_reason": "stop" if sampled.end == "stop" else "length",
            "logprobs": None if self.faults.get("logprobs") == "none" else {"content": content},
            "weight_versions": [{"version": label, "start": 0, "end": len(sampled)}],
        }  # fmt: skip
        prompt = None
        if probe:
            told = self.logp(name, body["token_ids"])
            prompt = [None, *({str(t): {"logprob": v}} for t, v in zip(body["token_ids"][1:], told, strict=True))]
        return {"model": name, "choices": [choice], "prompt_logprobs": prompt}

    @torch.no_grad()
    def logp(self, name: str, ids: list[int]) -> list[float]:
        tokens = torch.tensor([ids])
        rows = self.models[name](input_ids=tokens).logits[0, :-1].log_softmax(-1)
        return rows.gather(1, tokens[0, 1:, None])[:, 0].tolist()

    def load_lora_adapter(self, body: dict[str, Any]) -> Any:
        folder = Path(body["lora_path"])
        if not (folder / "adapter_config.json").is_file():
            return 404, {"error": {"message": f"No adapter found for {folder}"}}
        rank = json.loads((folder / "adapter_config.json").read_text())["r"]
        if rank > self.faults.get("max_rank", 64):
            words = f"LoRA rank {rank} is greater than max_lora_rank {self.faults['max_rank']}."
            return 500, {"error": {"message": words}}
        self.models[body["lora_name"]] = load_adapter(copy.deepcopy(self.models[self.name]), folder)
        return 200, None

    def unload_lora_adapter(self, body: dict[str, Any]) -> Any:
        self.engines.pop(body["lora_name"]).close() if body["lora_name"] in self.engines else None
        return 200, self.models.pop(body["lora_name"], None) and None

    def collective_rpc(self, body: dict[str, Any]) -> Any:
        if body["method"] == "groupwise_reload" and self.faults.get("plain"):
            return 500, {"error": {"message": "'CPUWorker' object has no attribute 'groupwise_reload'"}}
        if self.faults.get("stale"):
            return {"results": [None]}
        given = body["kwargs"]
        folder = Path(given["folder" if body["method"] == "groupwise_reload" else "weights_path"])
        state = load_file(folder / "model.safetensors")
        self.models[self.name].load_state_dict(state, strict=False)
        if self.name in self.engines:
            self.engines[self.name].load(self.models[self.name], 0)
        return {"results": [None]}

    def update_weights(self, body: dict[str, Any]) -> Any:
        known = dict(self.models[self.name].named_parameters())
        info = body["update_info"]
        fits = all(list(known[n].shape) == s for n, s in zip(info["names"], info["shapes"], strict=True))
        return {"message": "Weights updated"} if fits else (500, {"error": {"message": "shapes differ"}})


def serve(request: dict[str, Any], out: int) -> None:
    state = Server(request["model"], request.get("faults", {}))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply({})

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            self.reply(json.loads(self.rfile.read(length) or b"{}") if length else {})

        def reply(self, body: dict[str, Any]) -> None:
            status, said = state.answer(urlsplit(self.path).path, body)
            text = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            pass

    class Sturdy(ThreadingHTTPServer):
        daemon_threads, request_queue_size = True, 128

        def handle_error(self, *_: Any) -> None:
            """A client that broke off."""

    server = Sturdy(("127.0.0.1", request.get("port", 0)), Handler)
    os.write(out, (json.dumps({"port": server.server_port, "pid": os.getpid()}) + "\n").encode())
    server.serve_forever()


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    torch.set_num_threads(1)
    assert peft.LoraConfig  # imported before the first fork, as are the classes of the model
    assert AutoModelForCausalLM
    for line in sys.stdin:
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(0)
            serve(json.loads(line), 1)


if __name__ == "__main__":
    main()
