"""Every reader of foreign files, with sound samples to damage: made by the package's own writers where it has them."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from groupwise.agents.conversation.chat_format import Frame
from groupwise.agents.conversation.dialogues import DialogueDatabase
from groupwise.agents.data.dataset import find_data
from groupwise.agents.environments.conversation import ConversationEnvironment
from groupwise.agents.tools.mcp_server import read_servers
from groupwise.config import TrainingConfig, load_config
from groupwise.control.comparison.foreign_logs import read_log, thinned
from groupwise.control.environments import make
from groupwise.control.grpo import build
from groupwise.control.model import ControlModel
from groupwise.designer.policy import load_policy
from groupwise.language.adapters import Lora
from groupwise.language.capacity.model_shape import shape_of
from groupwise.language.loading import LanguageModel, load_model, save_model
from groupwise.language.tiny import tiny_model
from groupwise.products import product_of
from groupwise.programs.problems.user_problems import problem_of_file
from groupwise.programs.search.program_search import Uniform, explore
from groupwise.programs.search.tree import load_tree
from groupwise.reporting.comparison import read_courses
from groupwise.reporting.history import History
from groupwise.rewards.learned.preferences import read_preferences
from groupwise.rewards.trial import read_examples
from groupwise.training.checkpoint import choose_checkpoint
from groupwise.training.folder import create_run, inspect_run, read_config
from groupwise.training.group_files import read_groups
from groupwise.training.session import execute
from groupwise.workflows.files import read_workflow, write_workflow
from groupwise.workflows.inspection import inspect_workflow, open_workflow
from groupwise.workflows.process_mining import requirements_from_log
from groupwise.workflows.requirements import read_requirements

ROOT = Path(__file__).parent.parent
WORKFLOWS = ROOT / "examples" / "workflows"
PRETRAINED = ROOT / "src" / "groupwise" / "designer" / "pretrained.safetensors"


@dataclass(frozen=True)
class FileReader:
    """`samples` writes sound files (or folders) into a folder; `read` reads one of them as the package does."""

    name: str
    samples: Callable[[Path], list[Path]]
    read: Callable[[Path], Any]


def _place(folder: Path, name: str) -> Path:
    place = folder / "samples" / name
    place.mkdir(parents=True, exist_ok=True)
    return place


# Settings

SETTINGS: tuple[dict[str, Any], ...] = (
    {"task": {"product": "control", "environment": "CartPole-v1"}, "policy": {"hidden_sizes": [8, 8]}},
    {"task": {"product": "ppo"}, "rollout": {"num_envs": 2, "num_steps": 8}, "optim": {"learning_rate": 0.001}},
    {
        "task": {"product": "language", "environment": "addition"},
        "policy": {"model_name": "tiny"}, "sampling": {"temperature": 1.0, "max_new_tokens": 8},
        "reward": {"name": "format", "options": {"pattern": "[0-9]+"}},
    },
    {"task": {"product": "designer"}, "generation": {"batch_size": 4}, "scoring": {"performance_weight": 0.4}},
    {"task": {"product": "code", "options": {"problems": 4, "warm_steps": 2}}, "training": {"num_episodes": 5}},
)  # fmt: skip


def _settings(folder: Path) -> list[Path]:
    place, found = _place(folder, "settings"), []
    for number, settings in enumerate(SETTINGS):
        cfg = TrainingConfig.from_dict(settings)
        for suffix, text in (
            (".json", json.dumps(settings)),
            (".yaml", yaml.safe_dump(settings)),
            (".toml", cfg.to_toml()),
        ):
            found.append(place / f"{number}{suffix}")
            found[-1].write_text(text)
    xml = place / "settings.xml"
    xml.write_text(
        "<grpo-config><learning><learning-rate>0.001</learning-rate><epochs>3</epochs></learning>"
        "<task><environment>CartPole-v1</environment><max-episode-steps>9</max-episode-steps></task></grpo-config>"
    )
    return [*found, xml]


def _read_settings(path: Path) -> None:
    cfg = load_config(path)
    # Code, models and data that settings may name are other readers' business; a name here must not find any.
    product_of(cfg).check(cfg)


# Data

ROWS = [
    {"prompt": f"What is {n} + {n}?", "answer": f"{n} + {n} = #### {2 * n}", "n": n, "half": n / 2} for n in range(12)
]
SYSTEM = {"role": "system", "content": "Add."}
CHATS = [
    {"prompt": [SYSTEM, {"role": "user", "content": f"{n}+1?"}], "answer": str(n + 1)} for n in range(6)
]  # fmt: skip
SCENARIOS = [
    {"topic": "refund", "context": "late order", "user_responses": ["Well?", "Thanks."], "demonstration": ["Sorry."]},
    {"opening": "Hello", "rules": [{"pattern": "sorry|refund", "reply": "Thanks", "satisfies": True}]},
]
HELLO = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
PREFERENCES = [
    {"prompt": "Hi", "chosen": "Hello!", "rejected": "What?"},
    {"prompt": HELLO[:1], "chosen": HELLO[1:], "rejected": "No"},
]
PAIRS = [
    {"prompt": "2 + 2?", "good": "4", "bad": "5", "reference": "4"},
    {"question": "2 + 2?", "chosen": "It is 4.", "rejected": "Who knows?"},
]
DIALOGUES = [HELLO, {"prompt": "a", "response": "b"}, {"messages": HELLO}]


def _json_lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _data(folder: Path) -> list[Path]:
    place = _place(folder, "data")
    table = pa.table({name: [row[name] for row in ROWS] for name in ROWS[0]})
    pq.write_table(table, place / "rows.parquet")
    pq.write_table(table, place / "packed.parquet", compression="zstd", use_dictionary=["answer"])
    (place / "rows.json").write_text(json.dumps(ROWS))
    saved = place / "saved"
    saved.mkdir(exist_ok=True)
    with (
        pa.OSFile(str(saved / "data-00000-of-00001.arrow"), "wb") as file,
        pa.ipc.new_stream(file, table.schema) as out,
    ):
        out.write_table(table)
    (saved / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
    split = place / "split"
    split.mkdir(exist_ok=True)
    _json_lines(split / "train.jsonl", ROWS[:8])
    pq.write_table(table.slice(8), split / "test.parquet")
    files = [_json_lines(place / "rows.jsonl", ROWS), _json_lines(place / "chats.jsonl", CHATS)]
    return [*files, place / "rows.json", place / "rows.parquet", place / "packed.parquet", saved, split]


def _read_data(path: Path) -> None:
    options = {"answer_pattern": "#### (.+)"} if "rows" in path.name else {}
    find_data(path, options)


def _lines_of(name: str, rows: list[Any]) -> Callable[[Path], list[Path]]:
    return lambda folder: [_json_lines(_place(folder, name) / f"{name}.jsonl", rows)]


def _read_dialogues(path: Path) -> None:
    database = DialogueDatabase()
    database.import_jsonl(path)
    database.search("hello")


# Problems, logs, requirements, workflows

PROBLEM = {
    "question": "Keep the even numbers, then add them up, 2 at most.",
    "examples": [{"inputs": [[1, 2, 3, 4]], "answer": 6}, {"inputs": [[5, 6, 8]], "answer": 14}],
    "constants": [2, "a"],
    "max_lines": 4,
}
TABLE = {"examples": [{"inputs": [[{"name": "a", "price": 3}, {"name": "b", "price": 4}]], "answer": "b"}]}


def _problems(folder: Path) -> list[Path]:
    place = _place(folder, "problems")
    (place / "sums.yaml").write_text(yaml.safe_dump(PROBLEM))
    (place / "sums.json").write_text(json.dumps(PROBLEM))
    (place / "table.yaml").write_text(yaml.safe_dump(TABLE))
    return [place / "sums.yaml", place / "sums.json", place / "table.yaml"]


def _logs(folder: Path) -> list[Path]:
    place = _place(folder, "logs")
    steps = [(case, name, 60 * case + 10 * at) for case in range(12) for at, name in enumerate("abcd"[: 3 + case % 2])]
    lines = [f"{case},{name},{time},{time + 5},r{case % 3},clerk" for case, name, time in steps]
    (place / "log.csv").write_text("case,activity,start,time,resource,role\n" + "\n".join(lines) + "\n")
    traces = ""
    for case in range(12):
        events = "".join(
            f'<event><string key="concept:name" value="{name}"/><string key="org:resource" value="r{case % 3}"/>'
            f'<date key="time:timestamp" value="2026-03-{1 + case:02}T09:{at:02}:00+00:00"/></event>'
            for at, (number, name, _) in enumerate(steps) if number == case
        )  # fmt: skip
        traces += f'<trace><string key="concept:name" value="{case}"/>{events}</trace>\n'
    (place / "log.xes").write_text(f'<log xes.version="1.0">{traces}</log>')
    (place / "log.csv.gz").write_bytes(gzip.compress((place / "log.csv").read_bytes()))
    return [place / "log.csv", place / "log.xes", place / "log.csv.gz"]


def _requirements(folder: Path) -> list[Path]:
    place = _place(folder, "requirements")
    found = [shutil.copy(path, place) for path in sorted(WORKFLOWS.glob("*.yaml"))]
    own = read_requirements(WORKFLOWS / "loan.yaml")
    (place / "loan.json").write_text(own.model_dump_json(exclude_defaults=True))
    return [*map(Path, found), place / "loan.json"]


WRITTEN = ("yawl", "bpmn", "pnml", "json", "yml", "argo.yaml", "wfcommons.json")


def _workflows(folder: Path) -> list[Path]:
    place = _place(folder, "workflows")
    chosen = [path for path in sorted(WORKFLOWS.iterdir()) if path.suffix not in (".csv", ".yaml")]
    found = [Path(shutil.copy(path, place)) for path in chosen]
    document = read_workflow(WORKFLOWS / "loan.bpmn")
    dag = read_workflow(WORKFLOWS / "scientific_dag.json")
    for suffix in WRITTEN:
        for name, one in (("loan", document), ("dag", dag)):
            path = place / f"written_{name}.{suffix}"
            try:
                write_workflow(one, path)
            except ValueError:  # not every format can express every workflow
                continue
            found.append(path)
    return found


def _read_workflow(path: Path) -> None:
    inspect_workflow(open_workflow(path))


# Models

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m['content'] | trim }}\n{% endfor %}"
    "{% if add_generation_prompt %}>{% endif %}"
)


def _small_model() -> LanguageModel:
    model, tokenizer = tiny_model(0, layers=1, width=16)
    tokenizer.chat_template = TEMPLATE
    return LanguageModel(model, tokenizer, "small")


def _models(folder: Path) -> list[Path]:
    place = _place(folder, "models")
    return [save_model(_small_model(), place / "small")]


def _adapters(folder: Path) -> list[Path]:
    place = _place(folder, "adapters")
    base = save_model(_small_model(), place / "base")
    adapted = load_model(str(base), lora=Lora(rank=2))
    save_model(adapted, place / "adapter", merged=False)
    settings = place / "adapter" / "adapter_config.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "base_model_name_or_path": str(base)}))
    return [place / "adapter"]


def _read_model(path: Path) -> None:
    language = load_model(str(path))
    if language.tokenizer.chat_template:
        Frame(language.tokenizer).opening([{"role": "user", "content": "Hi"}])


def _templates(folder: Path) -> list[Path]:
    place = _place(folder, "templates")
    (place / "chat.jinja").write_text(TEMPLATE)
    return [place / "chat.jinja"]


def _read_template(path: Path) -> None:
    tokenizer = _small_model().tokenizer
    tokenizer.chat_template = (
        path.read_text("utf8", "replace") if path.is_file() and path.stat().st_size < 10**6 else "a"
    )
    Frame(tokenizer).opening([{"role": "user", "content": "Hi"}])


def _policies(folder: Path) -> list[Path]:
    return [Path(shutil.copy(PRETRAINED, _place(folder, "policies") / "policy.safetensors"))]


# Runs

RUN = {
    "hidden_sizes": [4], "num_generations": 2, "estimator": "group_rtg", "num_episodes": 2, "eval_steps": 1,
    "eval_episodes": 1, "save_steps": 1, "max_episode_steps": 8,
}  # fmt: skip


def _runs(folder: Path) -> list[Path]:
    cfg = TrainingConfig.from_dict({**RUN, "output_dir": str(_place(folder, "runs")), "run_name": "run"})
    path = create_run(cfg)
    for _ in execute(path, build, cfg):
        pass
    return [path]


def _read_run(path: Path) -> None:
    read_config(path)
    inspect_run(path)
    History.read(path)
    for file in sorted((path / "groups").glob("*.parquet")):
        read_groups(file)
    choose_checkpoint(path)


def _saved_models(folder: Path) -> list[Path]:
    place = _place(folder, "saved_models")
    model = ControlModel("CartPole-v1", folder=place, **{key: RUN[key] for key in ("hidden_sizes", "num_generations")})
    model.learn(total_timesteps=20)
    return [model.save(place / "model.zip")]


def _trees(folder: Path) -> list[Path]:
    place = _place(folder, "trees")
    problem = problem_of_file(_problems(folder)[0])
    explore(problem, Uniform(), 4, file=place / "tree.json")
    return [place / "tree.json"]


SHAPE = {
    "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2,
    "intermediate_size": 128, "vocab_size": 1000, "tie_word_embeddings": True,
}  # fmt: skip


def _model_shapes(folder: Path) -> list[Path]:
    path = _place(folder, "model_shapes") / "config.json"
    path.write_text(json.dumps(SHAPE))
    return [path]


SUITE = """[[task]]
environment = "Pendulum-v1"
name = "light"
weight = 2
options = { g = 3.0 }
wrappers = ["gymnasium.wrappers:NormalizeReward", { wrapper = "gymnasium.wrappers:TimeLimit", max_episode_steps = 9 }]
[[task]]
environment = "Pendulum-v1"
reward_scale = 0.01
max_episode_steps = 200
"""


def _suites(folder: Path) -> list[Path]:
    path = _place(folder, "suites") / "suite.toml"
    path.write_text(SUITE)
    return [path]


TOOL_SERVERS = {
    "mcpServers": {
        "desk": {"command": "python", "args": ["desk.py", "--quiet"], "env": {"KEY": "${DESK_KEY}"}, "cwd": "shop"},
        "away": {"url": "https://tools.example.com/mcp", "headers": {"Authorization": "Bearer ${KEY}"}},
        "old": {"url": "https://tools.example.com/old", "type": "http", "disabled": True},
    }
}


def _tool_servers(folder: Path) -> list[Path]:
    path = _place(folder, "tool_servers") / "servers.json"
    path.write_text(json.dumps(TOOL_SERVERS, indent=1))
    return [path]


COURSES = [
    {
        "algorithm": "grpo", "environment": "CartPole-v1", "task": "CartPole-v1", "seed": 1, "steps": [10, 20],
        "scores": [1.0, 2.0], "wall_seconds": 1.0, "cpu_seconds": 1.0,
    }
]  # fmt: skip


def _courses(folder: Path) -> list[Path]:
    path = _place(folder, "courses") / "courses.json"
    path.write_text(json.dumps(COURSES))
    return [path]


MONITOR = '#{"t_start": 1700000000.5, "env_id": "CartPole-v1"}\nr,l,t\n9.0,9,0.5\n21.0,21,1.25\n17.0,17,2.5\n'
LOGGED = "global_step,charts/episodic_return,seed\n100,20.5,1\n200,40,1\n100,18,2\n200,nan,2\n"


def _logs_of_tools(folder: Path) -> list[Path]:
    """A monitor of Stable-Baselines3, a table, and TensorBoard's file, as torch writes it."""
    from torch.utils.tensorboard.writer import SummaryWriter

    place = _place(folder, "logs of tools")
    (place / "0.monitor.csv").write_text(MONITOR)
    (place / "table.csv").write_text(LOGGED)
    with SummaryWriter(str(place / "run")) as writer:
        for step in range(5):
            writer.add_scalar("charts/episodic_return", 10.0 * step, 100 * step)
    return [place / "0.monitor.csv", place / "table.csv", next((place / "run").iterdir())]


def _read_log_of_a_tool(path: Path) -> None:
    for run in read_log(path):
        thinned(run.points)


READERS: tuple[FileReader, ...] = (
    FileReader("settings", _settings, _read_settings),
    FileReader("data", _data, _read_data),
    FileReader("scenarios", _lines_of("scenarios", SCENARIOS), ConversationEnvironment.from_file),
    FileReader("preferences", _lines_of("preferences", PREFERENCES), read_preferences),
    FileReader("pairs for rewards", _lines_of("pairs", PAIRS), read_examples),
    FileReader("suites", _suites, lambda path: make(str(path))),
    FileReader("tool servers", _tool_servers, read_servers),
    FileReader("dialogues", _lines_of("dialogues", DIALOGUES), _read_dialogues),
    FileReader("problems", _problems, problem_of_file),
    FileReader("event logs", _logs, requirements_from_log),
    FileReader("requirements", _requirements, read_requirements),
    FileReader("workflows", _workflows, _read_workflow),
    FileReader("model folders", _models, _read_model),
    FileReader("model shapes", _model_shapes, lambda path: shape_of(str(path.parent))),
    FileReader("adapters", _adapters, _read_model),
    FileReader("chat templates", _templates, _read_template),
    FileReader("designer policies", _policies, load_policy),
    FileReader("runs", _runs, _read_run),
    FileReader("saved models", _saved_models, lambda path: ControlModel.load(path, folder=path.parent / "loaded")),
    FileReader("search trees", _trees, load_tree),
    FileReader("courses", _courses, read_courses),
    FileReader("logs of other tools", _logs_of_tools, _read_log_of_a_tool),
)
