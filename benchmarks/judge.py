"""Is the judge fair to every place, does it put solved attempts above unsolved ones, and is its drift noticed?

    python benchmarks/judge.py --json

Scripted judges on a real port know the quality of every attempt, which the attempt states, and spoil it: a bonus of
0.3 for the first place (`first`), marks that fall by 0.3 from the first place to the last (`slope`), or Gaussian noise
of 0.2 for every mark (`noise`); marks stay in [0, 1]. 60 groups of 8 attempts, four groups at a time as in a run,
judged in three orders and in one. Quality is uniform on [0, 1]; `narrow` repeats it on [0.2, 0.8], where noise of 0.2
is as large as the differences.

Claims: `spearman_worst`, the lowest over biases of the mean rank correlation with the true quality; calls per group;
how many groups after the judge begins to answer 0.5 to everything the hint comes, and hints on a healthy judge in 200
groups; and the share of pairs with random other marks in which the solved attempt (goal at least 0.8) scores above the
unsolved one (goal at most 0.5), over all shipped rubrics.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from statistics import fmean
from typing import Any

import numpy as np
from record import print_result

from groupwise.rewards.function import attempt_of
from groupwise.rewards.judge.drift import agreement_of
from groupwise.rewards.judge.judge_reward import RulerRewardFunction
from groupwise.rewards.judge.rubrics import RUBRICS, Criterion, Rubric
from groupwise.rewards.scoring import RewardScorer
from groupwise.types import Group, Score, Task

GROUPS, SIZE, AT_ONCE, DRIFT_FROM = 60, 8, 4, 40
PLAIN = Rubric("plain", (Criterion("quality", "How good is it?"),))
RANGES = {"": (0.0, 1.0), "narrow_": (0.2, 0.8)}
# The mark at a place of SIZE, given the quality and a source of noise.
Bias = Callable[[float, int, random.Random], float]
BIASES: dict[str, Bias] = {
    "first": lambda quality, place, _: quality + 0.3 * (place == 0),
    "slope": lambda quality, place, _: quality + 0.15 - 0.3 * place / (SIZE - 1),
    "noise": lambda quality, _, rng: quality + rng.gauss(0, 0.2),
}
HONEST: Bias = lambda quality, *_: quality  # noqa: E731
BORED: Bias = lambda *_: 0.5  # noqa: E731


class BiasedJudge(BaseHTTPRequestHandler):
    """Marks each attempt by the quality it states, and by the bias of its server."""

    protocol_version = "HTTP/1.1"
    server: BiasedServer

    def do_POST(self) -> None:
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"][-1]["content"]
        shown = re.findall(r'<attempt id="(\w+)">.*?quality (\d\.\d+)', question, re.DOTALL)
        # Noise depends on the question alone, so that threads cannot change the result.
        rng = random.Random(f"{self.server.seed} {question}")
        marks = [self.server.bias(float(quality), place, rng) for place, (_, quality) in enumerate(shown)]
        rows = [{"id": n, "quality": min(1.0, max(0.0, mark))} for (n, _), mark in zip(shown, marks, strict=True)]
        content = json.dumps({"scores": rows})
        usage = {"prompt_tokens": len(question) // 4, "completion_tokens": len(content) // 4}
        choice = {"message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
        body = json.dumps({"choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


class BiasedServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, bias: Bias, seed: int) -> None:
        super().__init__(("127.0.0.1", 0), BiasedJudge)
        self.bias, self.seed = bias, seed


@contextmanager
def serving(bias: Bias, seed: int, **settings: Any) -> Iterator[tuple[BiasedServer, RulerRewardFunction]]:
    """A biased judge, and the reward that asks it."""
    server = BiasedServer(bias, seed)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield server, RulerRewardFunction("local/scripted", PLAIN, base_url=url, seed=seed, **settings)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def groups(seed: int, count: int, low: float, high: float) -> list[tuple[Group, list[float]]]:
    rng = random.Random(seed)
    found = []
    for number in range(count):
        quality = [round(rng.uniform(low, high), 4) for _ in range(SIZE)]
        asked = {"role": "user", "content": f"Task {number}"}
        said = [{"role": "assistant", "content": f"attempt {n}: quality {q:.4f}"} for n, q in enumerate(quality)]
        members = tuple(attempt_of([asked, each]) for each in said)
        found.append((Group(f"g{number}", Task(f"t{number}"), members), quality))
    return found


def fairness(bias: Bias, seed: int, orders: int, low: float, high: float) -> tuple[float, float]:
    """The mean rank correlation with the true quality, and the calls per group."""
    found: list[float] = []
    with serving(bias, seed, orders=orders, consistency_share=0.0) as (_, judge), RewardScorer() as scorer:
        tasks = groups(seed, GROUPS, low, high)
        for start in range(0, GROUPS, AT_ONCE):
            step = tasks[start : start + AT_ONCE]
            for scored, (_, quality) in zip(scorer.score(judge, [group for group, _ in step]), step, strict=True):
                totals = [score.total for score in scored.scores if isinstance(score, Score)]
                found.append(agreement_of(np.array([totals, quality])) or 0.0)
        return fmean(found), judge.metrics()["judge/calls_per_group"]


def drift(seed: int) -> int:
    """Groups from the first constant answer to the hint; -1 without one."""
    with serving(HONEST, seed) as (server, judge), RewardScorer() as scorer:
        for number, (group, _) in enumerate(groups(seed, DRIFT_FROM + 20, 0.0, 1.0)):
            if number == DRIFT_FROM:
                server.bias = BORED
            scorer.score(judge, [group])
            if any(hint.code == "judge_constant" for hint in judge.hints()):
                return number - DRIFT_FROM + 1 if number >= DRIFT_FROM else -1
    return -1


def healthy_hints(seed: int, orders: int) -> int:
    """Hints about a judge with a little noise and no bias, in 200 groups."""
    slight: Bias = lambda quality, _, rng: quality + rng.gauss(0, 0.05)  # noqa: E731
    told = 0
    with serving(slight, seed, orders=orders) as (_, judge), RewardScorer() as scorer:
        for group, _ in groups(seed, 200, 0.0, 1.0):
            scorer.score(judge, [group])
            told += len(judge.hints())
    return told


def solved_above_unsolved(seed: int, pairs: int = 2000) -> float:
    rng = random.Random(seed)
    right = 0
    for _ in range(pairs):
        rubric = RUBRICS[rng.choice(sorted(RUBRICS))]
        solved, unsolved = ({name: rng.choice((0.0, 1.0, rng.random())) for name in rubric.names} for _ in range(2))
        solved["goal"], unsolved["goal"] = rng.uniform(0.8, 1.0), rng.uniform(0.0, 0.5)
        right += rubric.total(solved) > rubric.total(unsolved)
    return right / pairs


def run_seed(seed: int) -> dict[str, Any]:
    found: dict[str, Any] = {"seed": seed}
    for scope, (low, high) in RANGES.items():
        for name, bias in BIASES.items():
            for orders in (1, 3):
                found[f"{scope}{name}_{orders}"], calls = fairness(bias, seed, orders, low, high)
                found[f"calls_{orders}"] = max(calls, found.get(f"calls_{orders}", 0.0))
    found["drift_groups"] = drift(seed)
    found["healthy_hints"] = healthy_hints(seed, 1) + healthy_hints(seed, 3)
    found["solved_above_unsolved"] = solved_above_unsolved(seed)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[101, 102, 103])
    parser.add_argument("--json", action="store_true", help="for the sake of one form: the result is JSON anyway")
    seeds = parser.parse_args().seeds
    raw = [run_seed(seed) for seed in seeds]
    means = {name: fmean(r[name] for r in raw) for name in raw[0] if name != "seed"}
    claims = {
        "spearman_worst": min(means[f"{name}_3"] for name in BIASES),
        "spearman_worst_seed": min(r[f"{name}_3"] for r in raw for name in BIASES),
        "spearman_one_order": {name: means[f"{name}_1"] for name in BIASES},
        "spearman_three_orders": {name: means[f"{name}_3"] for name in BIASES},
        "spearman_narrow": {name: means[f"narrow_{name}_3"] for name in BIASES},
        "calls_per_group": means["calls_3"],
        "drift_groups": max(r["drift_groups"] for r in raw),
        "healthy_hints": sum(r["healthy_hints"] for r in raw),
        "solved_above_unsolved": min(r["solved_above_unsolved"] for r in raw),
    }
    print_result("judge", claims, seeds=seeds, raw=raw)


if __name__ == "__main__":
    main()
