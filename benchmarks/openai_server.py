"""Does the OpenAI server keep its promises: answers fit their schema, and log-probabilities are the learner's?

    python benchmarks/openai_server.py --json

A service with an untrained tiny model is asked through the `openai` client. `schema_valid` is the share of answers to
random JSON schemas (objects, arrays, enums, numbers within limits, strings with limits) that are complete and valid by
`jsonschema`; answers that a limit of tokens cut off count as invalid. `logprob_gap` is the largest difference between a
token's reported log-probability and the learner's, over sampled conversations at several temperatures.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from record import print_result

from groupwise.agents.conversation.chat_format import Frame
from groupwise.language.loading import load_model
from groupwise.language.policy import LanguagePolicy

HI: Any = [{"role": "user", "content": "hi"}]
TEMPERATURES = (0.5, 0.8, 1.0, 1.5)


def random_schema(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    kinds = [
        "integer",
        "boolean",
        "enum",
        "string",
        "number",
        "any of",
        *(["object", "array"] * 2 if depth < 3 else []),
    ]
    kind = rng.choice(kinds)
    if kind == "enum":
        return {"enum": rng.sample(["red", "green", 3, None, True, "a b"], rng.randrange(1, 4))}
    if kind == "any of":
        return {"anyOf": [{"type": "null"}, {"type": "boolean"}, {"const": rng.randrange(9)}]}
    if kind == "string":
        return {"type": "string", "minLength": rng.randrange(2), "maxLength": rng.randrange(1, 8)}
    if kind == "integer":
        low = rng.randrange(-50, 50)
        return {"type": "integer", "minimum": low, "maximum": low + rng.randrange(90)}
    if kind == "number":
        return {"type": "number", "minimum": 0, "maximum": rng.randrange(1, 20)}
    if kind == "array":
        least = rng.randrange(2)
        return {"type": "array", "items": random_schema(rng, depth + 1), "minItems": least, "maxItems": least + 1}
    if kind == "object":
        names = rng.sample("abcdefg", rng.randrange(1, 5))
        inner = {name: random_schema(rng, depth + 1) for name in names}
        needed = rng.sample(names, rng.randrange(1, len(names) + 1))
        return {"type": "object", "properties": inner, "required": needed, "additionalProperties": False}
    return {"type": kind}


def is_valid(client: Any, seed: int) -> bool:
    import jsonschema

    schema = random_schema(random.Random(seed))
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    # Random weights rarely close a number or a string: the end, and what may come after it, is made likelier.
    answer = client.chat.completions.create(
        model="tiny", messages=HI, seed=seed, max_tokens=1200, response_format=wanted, logit_bias={"3": 2}
    )
    choice = answer.choices[0]
    if choice.finish_reason != "stop":
        return False
    try:
        jsonschema.validate(json.loads(choice.message.content), schema)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def gap(client: Any, seed: int, frame: Frame, policies: dict[float, LanguagePolicy]) -> float:
    import torch

    temperature = TEMPERATURES[seed % len(TEMPERATURES)]
    answer = client.chat.completions.create(
        model="tiny", messages=HI, seed=seed, max_tokens=32, temperature=temperature, logprobs=True
    )
    listed = answer.choices[0].logprobs.content
    if not listed:
        return 0.0
    prompt = list(frame.opening(HI))
    ids = [frame.tokenizer.convert_tokens_to_ids(one.token) for one in listed]
    rows = torch.tensor([prompt + ids])
    said = torch.arange(rows.shape[1])[None] >= len(prompt)
    inputs = {"input_ids": rows, "attention_mask": torch.ones_like(rows), "action_mask": said}
    with torch.no_grad():
        learned = policies[temperature].evaluate(inputs).logp[0, len(prompt) :]
    return float((learned - torch.tensor([one.logprob for one in listed])).abs().max())


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """A service on this machine, in a thread; yields its address."""
    import uvicorn

    from groupwise.service.app import server_config
    from groupwise.service.settings import ServiceSettings

    fast = {"writes_per_second": 1e6, "reads_per_second": 1e6}
    server = uvicorn.Server(server_config(ServiceSettings(port=0, runs_dir=folder / "runs", **fast)))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schemas", type=int, default=1000)
    parser.add_argument("--conversations", type=int, default=100)
    parser.add_argument("--json", action="store_true", help="print only the JSON object")
    options = parser.parse_args()
    import openai

    language = load_model("tiny")
    policies = {temperature: LanguagePolicy(language.model, temperature=temperature) for temperature in TEMPERATURES}
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as url:
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="anything", max_retries=0, timeout=600)
        gaps = [gap(client, n, Frame(language.tokenizer), policies) for n in range(options.conversations)]
        with ThreadPoolExecutor(8) as several:
            valid = list(several.map(lambda seed: is_valid(client, seed), range(options.schemas)))
    wrong = [seed for seed, fits in enumerate(valid) if not fits]
    claims = {"schema_valid": sum(valid) / len(valid), "logprob_gap": max(gaps)}
    if not options.json:
        print(f"{sum(valid)} of {len(valid)} schemas met (not: {wrong[:10]}); largest gap {max(gaps):.2g}")
    print_result("openai_server", claims, raw={"wrong": wrong, "gaps": gaps})


if __name__ == "__main__":
    main()
