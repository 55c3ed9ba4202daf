"""What a `train` key can make the service load: requests that try to name code, files and URLs, and what their jobs do.

    python benchmarks/attack_service.py --json

Requests are generated from the settings' own schema and from the table of what may be named (`config.nameable`), with
hostile names in every spelling we know, and sent over HTTP with a `train` key. Jobs of those that are accepted then run
to their first step in processes of their own, forked from a warm one, under an audit hook. It counts

    code_runs     code executed from a file that does not belong to Python, to a package or to Groupwise; source that
                  contains a name of ours compiled; processes started
    reads         files opened elsewhere than in Python, packages, the job's or its key's own files, and the data folder
    connections   sockets connected, and host names looked up

The kernel (inotify) watches the files that nobody may read, so a library that opens files below Python is seen too.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import re
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 900  # seconds for one job
TOGETHER = 8  # jobs at once
KINDS = ("code_runs", "reads", "connections")
MARK = "kanary"  # in the name of everything that must not be loaded
CODE = f"open({{fired!r}}, 'a').write(__name__ + chr(10))\nimport os\ndef {MARK}(*a, **k): os._exit(86)\nTASKS = [1]\n"
LANGUAGE = {
    "model_name": "tiny", "num_generations": 2, "tasks_per_step": 1, "max_new_tokens": 4, "num_episodes": 1,
    "eval_steps": 0, "threads": 1, "save_steps": 1,
}  # fmt: skip
BASES: Mapping[str, Mapping[str, Any]] = {
    "control": {"hidden_sizes": [4], "num_generations": 2, "num_episodes": 1, "eval_steps": 0, "max_episode_steps": 5},
    "ppo": {"hidden_sizes": [4], "num_envs": 2, "num_steps": 8, "num_episodes": 1, "eval_steps": 0,
            "max_episode_steps": 5},
    "language": {**LANGUAGE, "environment": "addition"},
    "warm-start": {**LANGUAGE, "environment": "addition"},
    "agent": {**LANGUAGE, "environment": "orders", "max_conversation_turns": 2},
    "designer": {"num_generations": 2, "tasks_per_step": 1, "num_episodes": 1, "eval_steps": 0, "threads": 1},
    "code": {**LANGUAGE, "options": {"warm_steps": 1, "problems": 4}},
}  # fmt: skip
# Options that libraries behind an environment, a model or a reward might take for a path, a module or a command.
FOREIGN = (
    "xml_file", "render_mode", "env_id", "entry_point", "map_name", "path", "file", "url", "command", "module",
    "wrappers", "kwargs", "tokenizer", "trust_remote_code", "weights", "config", "data", "user", "scenario",
)  # fmt: skip
REQUIREMENTS = """name: tea
activities:
  boil: {duration: {kind: fixed, mean: 120}, pools: [cook]}
  pour: {duration: {kind: fixed, mean: 10}, pools: [cook]}
pools: {cook: {least: 1, most: 3}}
rules: {precedes: [[boil, pour]]}
demand: {runs: 1}
"""
TALK = {"topic": "tea", "context": "A guest.", "user_responses": ["Hello", "Thanks"]}


class World:
    """The folders of one attack: what a key may reach, and what it must not."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.runs, self.data, self.secret = (self.folder / name for name in ("runs", "data", f"{MARK}_secret"))
        self.fired = self.folder / "fired"
        for place in (self.runs, self.data / "sub", self.secret):
            place.mkdir(parents=True)
        rows = "".join(json.dumps({"prompt": f"{n}+{n}=", "answer": str(2 * n)}) + "\n" for n in range(40))
        for place in (self.data / "sums.jsonl", self.data / "sub" / "more.jsonl", self.secret / f"{MARK}.jsonl"):
            place.write_text(rows)
        (self.data / "talk.jsonl").write_text("".join(json.dumps({**TALK, "topic": f"t{n}"}) + "\n" for n in range(10)))
        (self.data / "tea.yaml").write_text(REQUIREMENTS)
        (self.secret / f"{MARK}.yaml").write_text(REQUIREMENTS)
        (self.data / "in.jsonl").symlink_to("sums.jsonl")
        (self.data / f"{MARK}_link.jsonl").symlink_to(self.secret / f"{MARK}.jsonl")
        (self.data / f"{MARK}_folder").symlink_to(self.secret)
        for place in (self.folder, self.data, self.runs, self.secret):
            (place / f"{MARK}.py").write_text(CODE.format(fired=str(self.fired)))
        (self.runs / f"{MARK}_linked").symlink_to(self.secret)

    def hostile(self, port: int) -> list[str]:
        """Names that must load nothing, in many spellings."""
        code, rows = self.secret / f"{MARK}.py", self.secret / f"{MARK}.jsonl"
        up = os.path.relpath(rows, self.data)
        names = [
            f"{MARK}:Foo-v0", f"{MARK}:CartPole-v1", f"python:{MARK}:{MARK}", f"python:{code}:{MARK}", f"{MARK}:{MARK}",
            f"{code}:{MARK}", f"./{MARK}.py:{MARK}", f"{MARK}.{MARK}:{MARK}", f"os:system {MARK}", f"python:os:{MARK}",
            str(rows), str(code), str(self.secret), up, f"./{up}", f"sub/../{up}", f"{MARK}_link.jsonl",
            f"{MARK}_folder/{MARK}.jsonl", f"{MARK}_folder", f"{MARK}_linked", f"~root/{MARK}", f"$HOME/{MARK}",
            f"file://{rows}", f"http://127.0.0.1:{port}/{MARK}", f"http://localhost:{port}/{MARK}",
            f"https://127.0.0.1:{port}/{MARK}", f"conversation:{rows}", f"conversation:{MARK}_link.jsonl",
            f"conversation:../{MARK}_secret/{MARK}.jsonl", f"reasoning_gym:../{MARK}", f"reasoning_gym:{MARK}",
            f"textarena:{MARK}", f"textarena:../{MARK}", f"tiny@{MARK}", f"tiny@../{MARK}", f"tiny/{MARK}",
            f"local/{MARK}", f"ollama/{MARK}", f"openai/{MARK}", f"{MARK}/model", f"hf://{MARK}/model", "victim",
            "../runs/victim", "victim/checkpoints/1", f"ALE/{MARK}-v5", f"`touch {MARK}`", f"$(touch {MARK})",
            f"; touch {MARK}", f"| {MARK}", f"{{{{ {MARK} }}}}", f"{{% import {MARK} %}}", f"__import__('{MARK}')",
            f"CartPole-v1\\u200b{MARK}", f"\\uff50\\uff59\\uff54\\uff48\\uff4f\\uff4e\\uff1a{MARK}\\uff1a{MARK}",
            f"pyth\\u043en:{MARK}:{MARK}", f"sums.jsonl\\u0000/{MARK}", f"..\\\\{MARK}", f"%2e%2e/{MARK}",
            f"CartPole-v1:{MARK}", f"CartPole-v1/../{MARK}", f"/proc/self/cwd/../{MARK}_secret/{MARK}.jsonl",
            f"/proc/self/fd/../../{MARK}", f"//{MARK}", f"orders:{MARK}", f"customer_service:{MARK}", f"exact/{MARK}",
        ]  # fmt: skip
        return [name.encode("latin1", "ignore").decode("unicode_escape") if "\\" in name else name for name in names]


def respelt(rng: random.Random, name: str) -> Any:
    """The name as it is, or in a form that a careless check would not recognise."""
    change = rng.randrange(12)
    if change < 6:
        return name
    forms: list[Any] = [
        f" {name}", f"{name} ", name.swapcase(), f"{name}\n", [name], [name, "exact"],
        {"name": name}, f"./{name}", name.replace("/", "//"), name.replace(":", "::"), f"{name},{name}",
    ]  # fmt: skip
    return rng.choice(forms)


class Attacker:
    """Generates requests."""

    def __init__(self, world: World, port: int, seed: int) -> None:
        from groupwise import products
        from groupwise.config.nameable import COMMON
        from groupwise.config.setting_names import layout_of
        from groupwise.rewards.registry import KNOWN

        self.rng, self.world, self.names = random.Random(seed), world, world.hostile(port)
        self.rewards = [name for name in KNOWN if name not in ("symbolic", "program")]
        self.places: dict[str, list[str]] = {}
        self.options: dict[str, list[str]] = {}
        for product in BASES:
            rows = [row.setting for row in (*products.find(product).nameable, *COMMON)]
            # Every setting, text or not; those that take text ten times as often.
            settings = layout_of(product).settings.values()
            self.places[product] = [one.path for one in settings for _ in range(10 if one.kind is str else 1)]
            self.options[product] = [row for row in rows if ".options." in row]

    def request(self) -> dict[str, Any]:
        kind = self.rng.randrange(10)
        if kind == 0:
            return self.prompts()
        return self.tempting() if kind < 4 else self.blunt()

    def prompts(self) -> dict[str, Any]:
        """Prompts for a language model, with a hostile field, or hostile text where text is only text."""
        asked: dict[str, Any] = {"prompts": [self.rng.choice(self.names) or "x" for _ in range(3)], "num_iterations": 1}
        field = self.rng.choice(["model", "reward", "name", "strategy", "held_out", "", "", ""])
        if field == "held_out":
            asked["held_out"] = [self.rng.choice(self.names), "Hello"]
        elif field:
            asked[field] = respelt(self.rng, self.rng.choice(self.names))
        return asked

    def blunt(self) -> dict[str, Any]:
        """Hostile names anywhere."""
        product = self.rng.choice(list(BASES))
        config: dict[str, Any] = {"product": product, **BASES[product]}
        for _ in range(self.rng.choice((1, 1, 1, 2, 3))):
            value = respelt(self.rng, self.rng.choice(self.names))
            place = self.rng.choice(("setting", "option", "foreign"))
            if place == "setting":
                path = self.rng.choice(self.places[product])
                config = {name: given for name, given in config.items() if name != path.rpartition(".")[2]}
                config[path] = value
                continue
            known = place == "option" and self.options[product]
            path = self.rng.choice(self.options[product]) if known else f"task.options.{self.rng.choice(FOREIGN)}"
            section, _, name = path.rpartition(".")
            if section == "reward.options":
                config["reward.name"] = self.rng.choice(self.rewards)
            given = [config.pop("options", {}) if section == "task.options" else {}, config.get(section, {})]
            tables = [one for one in given if isinstance(one, dict)]
            config[section] = {**{key: one for table in tables for key, one in table.items()}, name: value}
        return {"config": config}

    def tempting(self) -> dict[str, Any]:
        """Names that the table allows, in odd spellings, and hostile text in settings that name nothing."""
        rng, data = self.rng, self.world.data
        text = rng.choice([name for name in self.names if name.isprintable()])
        rows = rng.choice(("sums.jsonl", "./sums.jsonl", "sub/../sums.jsonl", "sub/more.jsonl", "in.jsonl",
                           str(data / "sums.jsonl"), f"{data}/sub/../in.jsonl"))  # fmt: skip
        lists = [[text], [text, "no"]]
        choices: list[tuple[str, dict[str, Any]]] = [
            ("control", {"environment": rng.choice(("CartPole-v1", "FrozenLake-v1", "Taxi-v4", "Acrobot-v1", "classic",
                                                    "Blackjack-v1", "Pendulum-v1", "CliffWalking-v1", "lengths"))}),
            ("control", {"environment": "CartPole-v1", "options": {"gymnasium": True}, "report_to": ["tensorboard"]}),
            ("ppo", {"environment": rng.choice(("MountainCar-v0", "MountainCarContinuous-v0", "CartPole-v1"))}),
            ("language", {"environment": rows}),
            ("language", {"environment": rows, "options": {"eval_file": rng.choice(("sub/more.jsonl", "in.jsonl"))}}),
            ("language", {"environment": rows, "options": {"prompt": f"{{prompt}} {text}"}}),
            ("language", {"environment": rows, "options": {"check": rng.choice(("number", "contains", "exact"))}}),
            ("language", {"environment": rows, "options": {"check": "none", "demonstration": f"{{answer}} {text}"},
                          "reward_name": "length", "reward_options": {"name": text}}),
            ("language", {"reward_name": "exact", "reward_options": {"expected": text}}),
            ("language", {"reward_name": "keywords", "reward_options": {"keywords": rng.choice(lists)}}),
            ("language", {"reward_name": "similarity", "reward_options": {"expected_responses": rng.choice(lists)}}),
            ("language", {"reward_name": "safety", "reward_options": {"forbidden": rng.choice(lists)}}),
            ("language", {"reward_name": "format", "reward_options": {"tags": [MARK], "name": text}}),
            ("language", {"reward_name": "ruler", "reward_options": {"model": "openai/gpt-4", "retries": 0}}),
            ("language", {"reward_name": "neural", "reward_options": {"teacher": rng.choice(("heuristic", "exact"))}}),
            ("language", {"reward_name": "multi_objective",
                          "reward_options": {"components": ["length", "safety", rng.choice(("empathy", "style"))]}}),
            ("language", {"model_name": rng.choice(("tiny@7", "tiny@0", "mine"))}),
            ("language", {"environment": rng.choice(("reasoning_gym:chain_sum", "reasoning_gym:leg_counting"))}),
            ("warm-start", {"environment": rows, "options": {"demonstration": "answer"}}),
            ("agent", {"options": {"demonstrations": "right", "kinds": ["buyer"]}}),
            ("agent", {"environment": rng.choice(("conversation:talk.jsonl", f"conversation:{data}/talk.jsonl"))}),
            ("designer", {"options": {"requirements": rng.choice(("tea.yaml", "./tea.yaml,sub/../tea.yaml"))}}),
            ("designer", {"options": {"start": "pretrained"}}),
            ("code", {"options": {"warm_steps": 1, "problems": 4, "families": "tables"}}),
        ]  # fmt: skip
        product, more = rng.choice(choices)
        return {"config": {"product": product, **BASES[product], **more}}


@contextmanager
def serving(world: World) -> Iterator[tuple[Any, Any]]:
    """A service with the world's folders, started in the folder where the hostile module lies, and a client of it."""
    import httpx2
    import uvicorn

    from groupwise.service.app import server_config
    from groupwise.service.settings import Quotas, ServiceSettings

    os.chdir(world.folder)
    settings = ServiceSettings(
        port=0, runs_dir=world.runs, data_dir=world.data, poll=0.1, niceness=0, writes_per_second=1e9,
        reads_per_second=1e9, largest_queue=10**6, quotas=Quotas(queued_per_key=10**6),
    )  # fmt: skip
    server = uvicorn.Server(server_config(settings))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=300) as client:
            yield server.config.app.state.parts, client  # type: ignore[union-attr]
    finally:
        server.should_exit = True
        thread.join()


def ask(count: int, seed: int, world: World) -> tuple[Counter[str], list[dict[str, Any]]]:
    """Send the requests; how they were answered, and the jobs that were accepted, with the files they would read."""
    with serving(world) as (parts, client):
        mine, victim = (parts.keys.add(name, "train")[0] for name in ("mine", "victim"))
        parts.keys.refresh()
        for name, key in (("mine", mine), ("victim", victim)):
            _train(client, name, key)
        parts.supervisor._end.set()  # jobs are accepted and wait: they run later, under the audit hook
        attacker = Attacker(world, client.base_url.port, seed)
        answers: Counter[str] = Counter()
        jobs = []
        for number in range(count):
            asked = attacker.request()
            answer = client.post(
                "/api/train", content=json.dumps(asked), headers=_bearer(mine) | {"content-type": "application/json"}
            )
            told = answer.json()
            answers["accepted" if answer.status_code == 202 else told["error"]["code"]] += 1
            if answer.status_code == 202:
                jobs.append(_written(parts, told["id"], asked, number))
            if number % 500 == 499:
                print(f"{time.strftime('%H:%M:%S')} {number + 1} requests: {dict(answers)}", file=sys.stderr)
        return answers, [job for job in jobs if job is not None]


def _train(client: Any, name: str, key: str) -> None:
    """A run that has ended, for others to name."""
    asked = {"name": name, "config": {"product": "language", **BASES["language"]}}
    job = client.post("/api/train", json=asked, headers=_bearer(key)).json()["id"]
    while (state := client.get(f"/api/jobs/{job}", headers=_bearer(key)).json())["state"] in ("queued", "running"):
        time.sleep(0.2)
    assert state["state"] == "finished", state


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def _written(parts: Any, job_id: str, asked: Mapping[str, Any], number: int) -> dict[str, Any] | None:
    """The job's settings, written as the supervisor writes them before it starts a process."""
    from groupwise.errors import GroupwiseError

    job, supervisor = parts.jobs.get(job_id), parts.supervisor
    try:
        words, limits = supervisor._words(job, None), supervisor._limits(job)
    except GroupwiseError:  # refused when it would start
        return None
    own = [str(file) for file in (supervisor.places.config(job.id), supervisor.places.prompts(job.id))]
    return {"number": number, "run": job.run, "words": words, "limits": limits, "own": own, "asked": asked,
            "cwd": str(supervisor.places.empty)}  # fmt: skip


class Audit:
    """What a process does that the table does not allow."""

    def __init__(self, world: World, job: Mapping[str, Any], path: Sequence[str] = ()) -> None:
        import gymnasium  # its folder is one of those that packages are in

        # A worker imports from where its job does: `path`.
        packages = [*filter(None, [*sys.path, *path]), sys.prefix, sys.base_prefix, str(ROOT / "src")]
        self.code = tuple({os.path.realpath(path) + "/" for path in (*packages, Path(gymnasium.__file__).parents[1])})
        runs = [str(world.runs / name) for name in (job["run"], "mine")]
        held = os.path.join(str(world.runs), ".service", "jobs")
        # A run's folder is made under a name of its own first, and the folder around it is synchronised.
        made = f"{world.runs}/.{job['run']}."
        self.files = (
            *self.code, *(f"{run}/" for run in runs), made, f"{world.data}/", f"{held}/empty/", "/proc/", "/sys/",
            "/dev/", "/usr/share/zoneinfo/", "/usr/lib/", "/lib/", "/tmp/torch", "/etc/ld.so", "/etc/mime.types",
        )  # fmt: skip
        self.own = {
            *job["own"],
            *runs,
            str(world.runs),
            *(f"{name.removesuffix('.jsonl')}.held-out.jsonl" for name in job["own"]),
        }
        self.found: dict[str, list[str]] = {"code_runs": [], "reads": [], "connections": []}

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "exec":
            place = getattr(args[0], "co_filename", "")
            if not place.startswith("<") and not self._is_below(place, self.code):
                self._add("code_runs", f"exec {place}")
        elif event == "compile":
            source = args[0] if isinstance(args[0], bytes | str) else b""
            if MARK in (source if isinstance(source, str) else source.decode("utf8", "replace")):
                self._add("code_runs", f"compile {source[:80]!r}")
        elif event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn"):
            if not any(known in str(args[:2]) for known in CONSTANT) and not is_worker(args[1]):
                self._add("code_runs", f"{event} {str(args[:2])[:200]}")
        elif event in ("open", "sqlite3.connect", "os.listdir", "os.scandir", "ctypes.dlopen"):
            self._opened(event, args[0])
        elif event in ("socket.connect", "socket.getaddrinfo", "socket.sendto", "urllib.Request"):
            self._add("connections", f"{event} {str(args)[:200]}")

    def _opened(self, event: str, path: Any) -> None:
        # A library that is loaded by its bare name comes from the system's folders.
        if not isinstance(path, str | bytes | os.PathLike) or (event == "ctypes.dlopen" and "/" not in str(path)):
            return
        place = os.path.abspath(os.fsdecode(path))
        if place in self.own or self._is_below(place, self.files) or (MARK not in place and place in HARMLESS):
            return
        self._add("reads", f"{event} {place}")

    def _is_below(self, place: str, roots: Sequence[str]) -> bool:
        real = os.path.realpath(place)
        return any(f"{real}/".startswith(root) for root in roots)

    def _add(self, kind: str, what: str) -> None:
        if len(self.found[kind]) < 20:
            self.found[kind].append(what)


WARM = (
    "groupwise.agents.agent_product", "groupwise.agents.language_product", "groupwise.agents.warm_start",
    "groupwise.control.ppo", "groupwise.control.grpo", "groupwise.designer.product",
    "groupwise.programs.learning.product", "groupwise.reporting.report", "groupwise.service.job_slots",
)  # fmt: skip
# Programs that libraries and the run's record start with arguments of their own, whatever the settings say.
CONSTANT = ("git", "bwrap", "ldconfig", "uname", "lscpu", "nvidia-smi")
# What `groupwise.workers` starts: the same program whatever the settings say. It is watched like the job itself.
WORKER = re.compile(
    r"import sys; ours = \[.*\]; sys\.path\[:\] = .*; from groupwise\.worker_process import serve; serve\(\d+, \d+\)"
)
# What Python and libraries look at in any process.
HARMLESS = (
    "/",
    "/tmp",
    "/etc/os-release",
    "/usr/lib/os-release",
    "/etc/localtime",
    "/etc/passwd",
    "/etc/nsswitch.conf",
)


def is_worker(words: Any) -> bool:
    """Whether a command starts a worker of ours, with its fixed program."""
    given = [str(word) for word in words] if isinstance(words, list | tuple) else []
    return given[:2] == [sys.executable, "-c"] and len(given) > 2 and WORKER.fullmatch(given[2]) is not None


def watch_worker() -> None:
    """Put a worker under the hook, as it starts, by `sitecustomize`. What it finds is written at once."""
    given = json.loads(Path(os.environ["ATTACK_JOB"]).read_text())
    world, told = restored(given["world"]), Path(given["told"])
    audit = Audit(world, given["job"], given["path"])

    def hook(event: str, args: tuple[Any, ...]) -> None:
        before = sum(map(len, audit.found.values()))
        audit(event, args)
        if sum(map(len, audit.found.values())) > before:
            descriptor = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.write(descriptor, (json.dumps(audit.found) + "\n").encode())
            os.close(descriptor)

    audit.own |= {str(told)}
    # Python finds its folder of temporary files by writing one there, of a random name.
    tempfile.gettempdir()
    sys.addaudithook(hook)


def _watch_workers(world: World, job: Mapping[str, Any]) -> None:
    """Let every Python process that this one starts put itself under the hook."""
    folder = world.folder / "hook"
    folder.mkdir(exist_ok=True)
    here = str(Path(__file__).parent)
    (folder / "sitecustomize.py").write_text(
        f"import sys\nsys.path.append({here!r})\nimport attack_service\nsys.path.remove({here!r})\n"
        "attack_service.watch_worker()\n"
    )
    given = {"world": {name: str(path) for name, path in vars(world).items()}, "job": job, "path": sys.path}
    file = world.folder / f"{job['run']}.job"
    file.write_text(json.dumps({**given, "told": str(_words(world, job).with_suffix(".workers"))}))
    paths = [str(folder), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    os.environ |= {"ATTACK_JOB": str(file), "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def restored(places: Mapping[str, str]) -> World:
    world = World.__new__(World)
    world.__dict__ |= {name: Path(path) for name, path in places.items()}
    return world


class Watch:
    """The kernel's view: whether anybody opened a file in a folder."""

    OPENED = 0x20  # IN_OPEN of inotify(7)

    def __init__(self, folders: Sequence[Path]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK)
        for folder in folders:
            assert self._libc.inotify_add_watch(self._descriptor, os.fsencode(folder), self.OPENED) >= 0

    def opened(self) -> list[str]:
        """Names of the files opened since the last call."""
        try:
            told = os.read(self._descriptor, 1 << 16)
        except BlockingIOError:
            return []
        names, place = [], 0
        while place < len(told):
            (length,) = struct.unpack_from("I", told, place + 12)
            names.append(told[place + 16 : place + 16 + length].rstrip(b"\0").decode())
            place += 16 + length
        return names


def run_jobs(world: World, jobs: Sequence[Mapping[str, Any]], wanted: int) -> dict[str, Any]:
    """Run jobs one after the other until `wanted` have reached their first step, each in a process forked from here."""
    sys.path = [path for path in sys.path if path and Path(path).resolve() != Path(__file__).parent]
    _warm_up()
    watch = Watch([world.secret])
    totals: Counter[str] = Counter()
    found: list[dict[str, Any]] = []
    for start in range(0, len(jobs), TOGETHER):
        if totals["run"] >= wanted:
            break
        batch = jobs[start : start + TOGETHER]
        told = [_told(world, job, child) for job, child in [(job, _child(world, job)) for job in batch]]
        told.append({"reads": [f"inotify {name}" for name in watch.opened() if name]})
        totals["started"] += len(batch)
        for one, job in zip(told, [*batch, {}], strict=True):
            totals["run"] += one.get("stepped", False)
            totals += Counter({kind: 1 for kind in KINDS if one.get(kind)})
            if any(one.get(kind) for kind in KINDS):
                found.append({**one, "asked": job.get("asked")})
                print(json.dumps(found[-1])[:2000], file=sys.stderr)
        if start % 20 == 0:
            print(f"{time.strftime('%H:%M:%S')} {dict(totals)}", file=sys.stderr)
    if world.fired.exists():
        totals["code_runs"] += 1
        found.append({"fired": world.fired.read_text()})
    return {**{kind: totals[kind] for kind in ("started", "run", *KINDS)}, "found": found}


def _warm_up() -> None:
    """Import what every job imports, so that each of them costs a fork and not ten seconds."""
    for module in WARM:
        import_module(module)
    import_module("matplotlib.font_manager").findfont("DejaVu Sans")  # reads its cache of fonts


def _child(world: World, job: Mapping[str, Any]) -> int:
    """Start a process for the job."""
    _words(world, job).unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        _be_the_job(world, job)
    return child


def _told(world: World, job: Mapping[str, Any], child: int) -> dict[str, Any]:
    """What the job's process did, once it has ended."""
    _, status = os.waitpid(child, 0)
    events, words = world.runs / job["run"] / "events.jsonl", _words(world, job)
    stepped = events.is_file() and '"type":"step"' in events.read_text().replace(": ", ":")
    # A process that ended without a word was killed, or ran our code, which ends it at once.
    silent = {"code_runs": [f"ended with status {status}"], "reads": [], "connections": []}
    told = {**(json.loads(words.read_text()) if words.is_file() else silent), "stepped": stepped}
    workers = words.with_suffix(".workers")
    for line in workers.read_text().splitlines() if workers.is_file() else ():
        for kind, found in json.loads(line).items():
            told[kind] = [*told[kind], *(f"in a worker: {what}" for what in found)]
    return told


def _words(world: World, job: Mapping[str, Any]) -> Path:
    return world.folder / f"{job['run']}.told"


def _be_the_job(world: World, job: Mapping[str, Any]) -> None:
    """What `service.job_slots` does, under the hook."""
    from groupwise.cli import run
    from groupwise.service.job_slots import take_limits

    os.setsid()
    signal.alarm(LONGEST)
    # The report comes after the last step.
    import_module("groupwise.reporting.live_run").write_run_report = lambda path: path
    _watch_workers(world, job)
    audit = Audit(world, job)
    listening = [True]
    try:
        os.chdir(job["cwd"])
        output = os.open(world.folder / f"{job['run']}.output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        take_limits(job["limits"])
        sys.addaudithook(lambda event, args: audit(event, args) if listening[0] else None)
        run(job["words"])
    finally:
        listening[0] = False
        _words(world, job).write_text(json.dumps(audit.found))
        os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object (it always does)")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=300, help="accepted requests to run to their first step")
    parser.add_argument("--seed", type=int, default=19)
    parser.add_argument("--jobs", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.jobs is not None:
        given = json.loads(options.jobs.read_text())
        print(json.dumps(run_jobs(restored(given["world"]), given["jobs"], options.runs)))
        return
    with tempfile.TemporaryDirectory(prefix="attack-") as folder:
        world = World(Path(folder))
        answers, jobs = ask(options.requests, options.seed, world)
        random.Random(options.seed).shuffle(jobs)
        file = Path(folder) / "accepted.json"
        file.write_text(json.dumps({"jobs": jobs, "world": {name: str(path) for name, path in vars(world).items()}}))
        words = [sys.executable, __file__, "--jobs", str(file), "--runs", str(options.runs)]
        quiet = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
        ran = subprocess.run(words, stdout=subprocess.PIPE, check=True, env=quiet, cwd=ROOT)
        found = json.loads(ran.stdout.splitlines()[-1])
    from record import print_result

    claims = {"requests": options.requests, "accepted": answers["accepted"]}
    claims |= {name: found[name] for name in ("started", "run", "code_runs", "reads", "connections")}
    print_result(
        "attack_service", claims, raw={"answers": dict(answers), "found": found["found"]}, seeds=[options.seed]
    )


if __name__ == "__main__":
    main()
