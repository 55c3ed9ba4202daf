"""Whole runs sampled on servers that speak vLLM's protocol and draw as our engine does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from groupwise.agents import agent_product, language_product
from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError
from groupwise.language.samplers.server_fleet import ServerFleet
from groupwise.language.samplers.vllm_server import VllmServer
from groupwise.rewards.scoring import per_attempt
from groupwise.training.folder import create_run
from groupwise.training.session import Parts, execute

LANGUAGE = {
    "product": "language", "environment": "addition", "max_new_tokens": 5, "num_generations": 4, "tasks_per_step": 2,
    "num_episodes": 3, "save_steps": 3, "eval_steps": 3, "eval_episodes": 4, "learning_rate": 1e-3,
    "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "threads": 1, "vllm_in_flight": 4,
}  # fmt: skip
Settings = Callable[..., TrainingConfig]


@pytest.fixture
def settings(tmp_path: Path, tiny_qwen: Path) -> Settings:
    def make(*servers: str, **changes: Any) -> TrainingConfig:
        where = {"sampler": "vllm", "vllm_servers": list(servers)} if servers else {}
        here = {"model_name": str(tiny_qwen), "output_dir": str(tmp_path / "runs")}
        return TrainingConfig.from_dict({**LANGUAGE, **here, **where, **changes})

    return make


def build(cfg: TrainingConfig) -> Parts:
    """An untrained model gets every sum wrong; this reward tells its answers apart all the same."""
    reward = per_attempt(lambda task, attempt: float(attempt.actions[attempt.mask].sum() % 11))
    return language_product.build(cfg, reward)


def course(cfg: TrainingConfig) -> tuple[list[dict[str, Any]], list[str], list[dict[str, Any]]]:
    """The metrics of every step, the codes of all hints, and the totals."""
    events = list(execute(create_run(cfg), build))
    steps = [event.data for event in events if event.type == "step"]
    hints = [event.data["code"] for event in events if event.type == "hint"]
    return [step["metrics"] for step in steps], hints, [step["totals"] for step in steps]


@pytest.mark.parametrize("way", [{}, {"lora_rank": 4}])
def test_a_run_whose_server_is_killed_is_the_run_of_our_own_engine(
    settings: Settings, stand_ins: Any, way: dict[str, Any]
) -> None:
    alone, _, totals = course(settings(**way))
    metrics, hints, same = course(settings(stand_ins.start(), stand_ins.start(die_at=10), **way))
    assert same == totals
    assert [m["reward/mean"] for m in metrics] == [m["reward/mean"] for m in alone]
    assert [m["optim/grad_norm"] for m in metrics] == pytest.approx([m["optim/grad_norm"] for m in alone], rel=1e-3)
    assert max(m["sampler/ratio_gap_max"] for m in metrics) < 1e-3
    assert [m["sampler/servers"] for m in metrics][-1] == 1
    assert sum(m["sampler/resent"] for m in metrics) >= 1
    assert hints.count("server_lost") == 1


def test_a_run_without_servers_ends_with_one_sentence_and_can_be_resumed(
    settings: Settings, stand_ins: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg = settings(stand_ins.start(die_at=24), vllm_on_lost="shrink", save_steps=1)
    path, seen = create_run(cfg), []
    with pytest.raises(Exception, match="no vLLM server is left"):
        seen.extend(execute(path, build))
    record = [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]
    assert record[-1]["type"] == "error"
    assert record[-1]["data"]["error"]["code"] == "server_lost"
    again = cfg.replace(vllm_servers=(stand_ins.start(),))
    events = list(execute(path, build, again))
    alone, _, _ = course(settings())
    last = [event.data["metrics"] for event in events if event.type == "step"]
    assert [m["reward/mean"] for m in last] == [m["reward/mean"] for m in alone][-len(last) :]
    assert events[-1].data == {**events[-1].data, "reason": "finished", "steps": 3}


def test_conversations_run_on_servers_too(settings: Settings, stand_ins: Any) -> None:
    url = stand_ins.start()
    changes = {"product": "agent", "environment": "reasoning_gym:basic_arithmetic", "num_episodes": 1, "eval_steps": 0}
    cfg = settings(url, **{**changes, "max_new_tokens": 4, "max_conversation_turns": 1})
    parts = agent_product.build(cfg)
    batch = parts.source.next()
    parts.source.close()
    assert batch.attempts == 8
    assert stand_ins.seen(url)["asked"] == 8


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sampler": "vllm"}, "vllm.servers is empty"),
        ({"sampler": "vllm", "vllm_servers": ["here"]}, "'here' is not the address of a server"),
        ({"sampler": "vllm", "vllm_servers": ["http://a:1", "http://a:1/"]}, "names http://a:1 twice"),
        ({"sampler": "vllm", "vllm_servers": ["http://a:1"], "vllm_weights": "adapter"}, "needs an adapter"),
    ],
)
def test_settings_that_no_server_could_be_used_with_are_refused_before_the_run(
    settings: Settings, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        language_product.check(settings(**changes))


def test_several_ranks_do_not_share_servers(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="each of 2 ranks would replace the servers' weights"):
        language_product.check(settings("http://127.0.0.1:8000"))


def test_control_runs_have_no_use_for_a_sampler() -> None:
    with pytest.raises(ConfigError, match="task.product = 'control' has no language model"):
        TrainingConfig(sampler="vllm")


def test_the_fleet_shares_requests_by_load_and_keeps_conversations_together() -> None:
    servers = [VllmServer(f"http://127.0.0.1:{port}") for port in (1, 2, 3)]
    fleet = ServerFleet(servers, in_flight=2, on_lost="stop", patience=1, admit=lambda servers: [])
    fleet.open()
    first = [fleet.take(1), fleet.take(1)]
    assert {member.server for member in first} == {servers[1]}
    rest = [fleet.take(1) for _ in range(4)]  # the preferred one is full
    assert sorted(member.server.url for member in rest) == sorted(2 * [servers[0].url, servers[2].url])
