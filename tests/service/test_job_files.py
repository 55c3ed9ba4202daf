"""What a request becomes before its process starts, and the process: its files, its limits and its last words."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from groupwise.config import TrainingConfig
from groupwise.config.nameable import NotAllowed, Reach
from groupwise.errors import ConfigError
from groupwise.files import lock_file
from groupwise.service.job_settings import HELD_OUT, run_name, wanted_settings, write_settings
from groupwise.service.job_slots import GRACE, LONGEST_OUTPUT, JobProcess, JobSlots, error_facts
from groupwise.service.schemas import TrainRequest


def request(**given: Any) -> TrainRequest:
    return TrainRequest(**({"prompts": ["Hello"]} | given if "config" not in given else given))


@pytest.mark.parametrize(("asked", "components", "weights"), [
    ({"use_ruler_rewards": True}, ["ruler", "sales"], [4 / 7, 3 / 7]),
    ({"use_neural_rewards": True}, ["neural", "sales"], [1 / 2, 1 / 2]),
    ({"use_ruler_rewards": True, "use_neural_rewards": True}, ["ruler", "neural", "sales"], [0.4, 0.3, 0.3]),
])  # fmt: skip
def test_rewards_that_are_asked_for_are_weighed_among_themselves(
    asked: dict[str, bool], components: list[str], weights: list[float]
) -> None:
    reward = wanted_settings(request(reward="sales", **asked), None).reward
    assert reward.name == "multi_objective"
    assert list(reward.options["components"]) == components  # type: ignore[arg-type]
    assert list(reward.options["weights"]) == pytest.approx(weights)  # type: ignore[arg-type]
    assert reward.options.get("fallback_enabled") is (True if "use_ruler_rewards" in asked else None)
    assert reward.options["normalization_method"] == "weighted_average"


def test_a_request_for_prompts_is_a_small_run_of_a_language_model() -> None:
    cfg = wanted_settings(request(num_iterations=7, seed=3), None)
    assert (cfg.task.product, cfg.policy.model_name, cfg.reward.name) == ("language", "tiny", "customer_service")
    assert (cfg.training.num_episodes, cfg.run.seed, cfg.optim.learning_rate) == (7, 3, 3e-3)
    assert (cfg.rollout.num_generations, cfg.rollout.tasks_per_step, cfg.sampling.max_new_tokens) == (16, 2, 48)
    assert (cfg.run.save_steps, cfg.run.eval_steps, cfg.run.eval_samples, cfg.run.threads) == (5, 10, 16, 1)
    assert wanted_settings(request(model="Qwen/Qwen3-0.6B"), None).optim.learning_rate == 1e-5
    # Nothing of one request is left in the next.
    plain = wanted_settings(request(), None)
    assert (plain.run.seed, plain.optim.learning_rate, plain.training.num_episodes) == (0, 3e-3, 10)


def test_the_settings_of_a_request_are_checked_for_its_key() -> None:
    settings = {"product": "language", "environment": "secret.jsonl"}
    assert wanted_settings(request(config=settings), None).task.environment == "secret.jsonl"
    with pytest.raises(NotAllowed, match="task.environment"):
        wanted_settings(request(config=settings), Reach())
    with pytest.raises(NotAllowed, match="policy.model_name"):
        wanted_settings(request(model="/etc"), Reach())
    assert wanted_settings(request(), Reach()).task.environment == "prompts.jsonl"  # the service's own
    with pytest.raises(NotAllowed, match="task.environment"):
        wanted_settings(request(config={"product": "language", "environment": "prompts.jsonl"}), Reach())
    with pytest.raises(ConfigError, match="run.output_dir = 'elsewhere': the service decides"):
        wanted_settings(request(config={"output_dir": "elsewhere"}), None)
    with pytest.raises(ConfigError, match="needs at least"):
        wanted_settings(request(config={"num_generations": 10**12}), None)


def test_a_run_is_named_by_its_request_its_settings_or_its_task() -> None:
    def name(**given: Any) -> str:
        asked = request(**given)
        return run_name(asked, wanted_settings(asked, None))

    assert name(name="mine", config={"run_name": "theirs"}) == "mine"
    assert name(config={"run_name": "theirs"}) == "theirs"
    for given in ({"name": "latest"}, {"config": {"run_name": "latest"}}):
        with pytest.raises(ConfigError, match="'latest' is reserved"):
            name(**given)
    for given, start in (
        ({}, "chat-"), ({"config": {"environment": "CartPole-v1"}}, "cartpole-v1-"),
        ({"config": {"environment": "a/B c__d.jsonl"}}, "b-c-d-"), ({"config": {"environment": "¶"}}, "run-"),
        ({"config": {"environment": "x" * 90}}, "x" * 40 + "-"),
    ):  # fmt: skip
        made = [name(**given) for _ in range(2)]
        assert all(one.startswith(start) and len(one) == len(start) + 6 for one in made)
        assert made[0] != made[1]


@pytest.mark.parametrize(("count", "held_out", "judged"), [
    (1, None, list(HELD_OUT)), (19, None, list(HELD_OUT)), (20, None, None), (1, ["a", "b"], ["a", "b"]),
    (20, ["a"], ["a"]),
])  # fmt: skip
def test_few_prompts_are_judged_on_others(
    tmp_path: Path, count: int, held_out: list[str] | None, judged: list[str] | None
) -> None:
    prompts = [f'"{n}"\né' for n in range(count)]
    config, file = tmp_path / "j.json", tmp_path / "j.prompts.jsonl"
    asked = request(prompts=prompts, held_out=held_out)
    write_settings(asked, Reach(), "mine", tmp_path / "runs", config, file)
    cfg = TrainingConfig.from_dict(json.loads(config.read_text()))
    assert (cfg.run.run_name, cfg.run.output_dir) == ("mine", str(tmp_path / "runs"))
    assert cfg.task.environment == str(file)
    assert [json.loads(line) for line in file.read_text().splitlines()] == [{"prompt": one} for one in prompts]
    assert cfg.task.options["check"] == "none"
    beside = tmp_path / "j.prompts.held-out.jsonl"
    assert beside.exists() is (judged is not None)
    assert cfg.task.options.get("eval_file") == (str(beside) if judged else None)
    if judged:
        assert [json.loads(line)["prompt"] for line in beside.read_text().splitlines()] == judged


def test_what_a_name_stands_for_is_looked_up_again_when_the_job_starts(tmp_path: Path) -> None:
    asked, config = request(config={"product": "language", "environment": "a.jsonl"}), tmp_path / "j.json"
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.jsonl").write_text("{}\n")
    write_settings(asked, Reach(tmp_path / "data"), "mine", tmp_path, config, tmp_path / "p")
    assert json.loads(config.read_text())["task"]["environment"] == str(tmp_path / "data" / "a.jsonl")
    (tmp_path / "data" / "a.jsonl").unlink()
    (tmp_path / "data" / "a.jsonl").symlink_to("/etc/passwd")
    with pytest.raises(NotAllowed):
        write_settings(asked, Reach(tmp_path / "data"), "mine", tmp_path, config, tmp_path / "p")


@pytest.fixture
def slots(tmp_path: Path) -> JobSlots:
    return JobSlots(tmp_path / "jobs")


def test_each_job_has_files_of_its_own(slots: JobSlots, tmp_path: Path) -> None:
    places = [place(job) for job in ("a", "b") for place in (
        slots.config, slots.prompts, slots.output, slots.lock, slots.cpu
    )]  # fmt: skip
    assert len(set(places)) == 10
    assert all(place.is_absolute() and place.parent == tmp_path / "jobs" for place in places)
    assert slots.empty.is_dir()


def test_the_processor_time_of_a_job_is_what_was_recorded(slots: JobSlots) -> None:
    assert slots.cpu_spent("a") == 0.0
    slots.cpu("a").write_text("12.50")
    assert (slots.cpu_spent("a"), slots.cpu_spent("b")) == (12.5, 0.0)
    slots.cpu("a").write_text("")
    assert slots.cpu_spent("a") == 0.0


def test_the_last_error_a_process_printed_is_found_among_its_last_words(slots: JobSlots) -> None:
    assert (slots.last_error("a"), slots.last_words("a")) == (None, "")
    first, last = ({"error": {"code": code, "message": "m", "more": 1}} for code in ("first", "last"))
    lines = ["progress", json.dumps(first), '{"metrics": {}}', json.dumps(last), "[1]", '{"error": "text"}', "\xff end"]
    slots.output("a").write_text("\n".join(lines))
    assert slots.last_error("a") == {"code": "last", "message": "m", "hint": "", "field": ""}
    assert slots.last_error("b") is None
    slots.output("a").write_bytes(b"lost" + b"x" * (LONGEST_OUTPUT - 3) + b"\xffed")
    assert len(slots.last_words("a")) == LONGEST_OUTPUT
    assert slots.last_words("a").endswith("x\ufffded")
    slots.output("a").write_bytes(b"y" * LONGEST_OUTPUT)
    assert slots.last_words("a") == "y" * LONGEST_OUTPUT
    assert error_facts({"code": 3, "hint": None}) == {"code": "3", "message": "", "hint": "None", "field": ""}


@pytest.mark.parametrize("limits", [{}, {"RLIMIT_CORE": 0}])
def test_a_job_runs_apart_without_input_and_with_limits_away_from_files_of_others(
    slots: JobSlots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int]
) -> None:
    shell = tmp_path / "python"
    shell.write_text(
        "#!/bin/sh\npwd; echo $PYTHONPATH $PYTHONUNBUFFERED $*; cat; cut -d ' ' -f 6 /proc/$$/stat; exit 3\n"
    )
    shell.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(shell))
    monkeypatch.setenv("PYTHONPATH", f"src{os.pathsep}{os.pathsep}/lib")
    slots.output("a").write_text("words of an earlier process")
    process = slots.start("a", ["train", "x y"], limits)
    assert process is not None
    assert process.wait(600)
    folder, told, session = slots.last_words("a").splitlines()
    assert Path(folder) == (slots.empty if limits else Path.cwd())
    path = f"{os.path.abspath('src')}{os.pathsep}/lib"
    assert told == f"{path} 1 -P -m groupwise.service.job_slots {json.dumps(limits)} train x y"
    assert int(session) == process.pid
    assert process.exit_status == 3
    assert process.cpu_seconds == 0.0
    process.ask_to_stop()  # too late, and harmless


def test_a_job_has_one_process_at_a_time_and_is_free_when_that_ends(slots: JobSlots, tmp_path: Path) -> None:
    holder = lock_file(slots.lock("a"))
    assert holder is not None
    assert slots.is_alive("a")
    assert slots.start("a", ["--version"], {}) is None
    holder.release()
    process = slots.start("b", ["--version"], {"RLIMIT_CORE": 0})
    assert process is not None
    assert slots.is_alive("b") or process.wait(0)  # the process itself holds the lock
    assert process.wait(600)
    assert (process.exit_status, slots.is_alive("b")) == (0, False)
    assert os.stat(slots.lock("b")).st_mode & 0o777 == 0o600
    assert slots.last_words("b").strip()


def test_a_process_is_asked_to_stop_and_waited_for(tmp_path: Path) -> None:
    code = "import os, signal, sys; print('up', flush=True); signal.pause()"
    started = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    process = JobProcess(started)
    assert started.stdout is not None
    assert started.stdout.readline() == b"up\n"
    with started.stdout:
        assert (process.exit_status, process.wait(-1.0)) == (None, False)
        process.ask_to_stop()
        assert (process.wait(600), process.exit_status) == (True, -15)


def test_processor_time_counts_all_of_a_process_and_its_children_that_have_ended() -> None:
    # Of its own and of the kernel's time, each so much that it would be missed.
    burn = "import os\nwhile min(os.times()[:2]) < 0.07: os.stat('/'); sum(range(200))\n"
    code = f"import os, subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}])\n{burn}"
    code += "t = os.times()\nprint(sum(t[:4]), flush=True)\ninput()"
    started = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    assert started.stdout is not None
    own = float(started.stdout.readline())
    assert own > 0.28  # of both
    assert JobProcess(started).cpu_seconds == pytest.approx(own, abs=0.05)
    started.communicate(b"\n")


LIMITS = """
import json, resource, sys
from groupwise.service.job_slots import take_limits
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 50))
take_limits(json.loads(sys.argv[1]))
print(json.dumps([resource.getrlimit(getattr(resource, name)) for name in sys.argv[2:]]))
"""


def test_limits_hold_and_stricter_ones_stay() -> None:
    asked = {"RLIMIT_CPU": 100, "RLIMIT_FSIZE": 1 << 20, "RLIMIT_CORE": 0, "RLIMIT_NOFILE": 1000}
    words = [sys.executable, "-c", LIMITS, json.dumps(asked), *asked, "RLIMIT_AS"]
    told = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
    # After its processor time a process gets a signal, and a few seconds later one that it cannot ignore.
    most = resource.getrlimit(resource.RLIMIT_AS)
    assert told == [[100, 100 + GRACE], [1 << 20, 1 << 20], [0, 0], [50, 50], list(most)]
