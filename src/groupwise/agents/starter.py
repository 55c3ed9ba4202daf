"""What `groupwise init` asks of people with data, and the settings and the reward that it writes for them."""

import os
import textwrap
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from groupwise.agents.data.dataset import CHECKS
from groupwise.agents.data.rows import DataRow, read_splits
from groupwise.config.training_config import toml_value
from groupwise.errors import ConfigError
from groupwise.reporting.starter import Answers, Question, Starter, StarterFiles, check_settings_file, stem
from groupwise.user_code import names_code

PROMPTS = ("prompt", "question", "problem", "instruction", "input", "query", "messages", "text")
ANSWERS = ("answer", "solution", "expected", "response", "output", "target", "completion", "label")
TINY = "tiny"
OWN = "own"
REWARD = "reward.py"
WAYS = (
    (OWN, f"a function of yours, for which a stub is written to {REWARD}"),
    ("exact", "the answer in the data, word for word"),
    ("number", "the last number of the answer in the data"),
    ("contains", "the answer in the data occurs in the model's"),
)
LOOKED_AT = 2_000  # rows, for the longest answer


def question(answers: Answers) -> Question | None:
    """The next question; nothing more once all is known."""
    if "data" not in answers:
        return Question("data", "Which file has your data (.jsonl, .json, .parquet or a folder)?")
    rows = _rows(answers["data"])
    columns = _columns(rows)
    if "prompt" not in answers and not _guess(PROMPTS, columns):
        return Question("prompt", "Which column has the prompts?", choices=tuple((name, "") for name in columns))
    if "reward" not in answers:
        answered = answers.get("answer") or _guess(ANSWERS, columns)
        return Question("reward", "What makes an answer right?", OWN, WAYS if answered else WAYS[:1])
    if "model" not in answers:
        words = "Which model: tiny (0.9 million weights, from scratch), a folder, or a name on the Hugging Face hub?"
        return Question("model", words, TINY)
    return None


def write(answers: Answers, folder: Path) -> StarterFiles:
    """The settings, and a reward to edit unless the answers in the data decide."""
    rows = _rows(answers["data"])
    columns = _columns(rows)
    prompt = _known("prompt", answers.get("prompt") or _guess(PROMPTS, columns), columns)
    answer = _known("answer", answers.get("answer") or _guess(ANSWERS, columns), columns)
    model, reward = answers["model"], answers["reward"]
    own = f"{REWARD}:score" if reward == OWN else reward
    if reward not in (OWN, *CHECKS) and not names_code(reward):
        known = ", ".join(name for name, _ in WAYS)
        raise ConfigError(f"--reward {reward!r} is not known", hint=f"Use {known}, or a function as FILE.py:NAME.")
    if names_code(reward) and ".py:" in reward:
        own = os.path.relpath(reward.partition(".py:")[0], folder) + ".py:" + reward.partition(".py:")[2]
    if reward in CHECKS and not answer:
        hint = f"Name the column with --answer (there are {', '.join(columns)}), or use --reward own."
        raise ConfigError(f"--reward {reward} needs a column with the right answers", hint=hint)
    name = stem(Path(answers["data"]).stem)
    longest = max((len(str(row.columns.get(answer, ""))) for row in rows[:LOOKED_AT]), default=0) if answer else 64
    imitates = bool(answer) and model == TINY
    settings = _settings(
        os.path.relpath(answers["data"], folder),
        {"prompt": prompt, **({"answer": answer} if answer else {}), "check": own,
         **({"demonstration": answer} if imitates else {})},
        model,
        min(max(longest + 8, 16), 256) if model == TINY else 256,
    )  # fmt: skip
    train = "groupwise train {file} --set run.run_name=" + name
    commands = ("groupwise rollout {file}", train)
    if imitates:
        # It imitates with larger steps until about half of the reward is reached, which leaves something to learn.
        more = "--set optim.learning_rate=1e-3 --set training.num_episodes=1000 --set training.target_reward=0.5"
        warm = "groupwise sft {file} --set run.run_name=" + f"{name}-sft {more}"
        commands = (warm, f"{train} --set policy.model_name={name}-sft")
    notes = [f"prompts are in the column {prompt!r}" + (f", right answers in {answer!r}" if answer else "")]
    if model == TINY and not answer:
        notes.append("the tiny model starts from random weights and without answers to imitate it may find no reward")
    texts = {f"{name}.toml": settings, **({REWARD: _stub(answer)} if reward == OWN else {})}
    if reward == OWN:
        notes.append(f"edit {REWARD}: it says what a good answer is")
    return StarterFiles(f"{name}.toml", texts, commands, tuple(notes))


def _rows(data: str) -> Sequence[DataRow]:
    return read_splits(Path(data))[0]


def _columns(rows: Sequence[DataRow]) -> list[str]:
    return list(dict.fromkeys(name for row in islice(rows, LOOKED_AT) for name in row.columns))


def _guess(usual: Iterable[str], columns: Sequence[str]) -> str:
    """The column with a usual name, whatever its case; "" if there is none."""
    folded = {name.lower(): name for name in columns}
    return next((folded[name] for name in usual if name in folded), "")


def _known(option: str, name: str, columns: Sequence[str]) -> str:
    if name and name not in columns:
        raise ConfigError(f"--{option} {name!r} is not a column of the data", hint=f"It has {', '.join(columns)}.")
    return name


def _stub(answer: str) -> str:
    """A reward that works as it is, with the answer's column as an argument if it can be one."""
    head = '"""What a good answer is. Change `score` as you like; every answer of the model goes through it."""\n\n\n'
    if not answer.isidentifier() or answer == "text":
        return head + textwrap.dedent('''\
            def score(text, **columns):
                """`text` is what the model said, `columns` the columns of its row. Return a number, 1 at best."""
                return min(1.0, 50 / max(len(text), 1))
            ''')
    return head + textwrap.dedent(f'''\
        def score(text, {answer}):
            """`text` is what the model said, `{answer}` the column of its row. Return a number, 1 at best."""
            said, right = text.strip(), str({answer}).strip()
            if said == right:
                return 1.0
            same = sum(a == b for a, b in zip(said, right))
            return 0.5 * same / max(len(said), len(right), 1)
        ''')


def _settings(data: str, options: dict[str, Any], model: str, longest: int) -> str:
    shown = ", ".join(f"{name} = {toml_value(value)}" for name, value in options.items())
    tiny = model == TINY
    adapter = "" if tiny else "\n[language]\nlora_rank = 16             # train an adapter; 0 trains all weights\n"
    return (
        f"""\
# Names of files are relative to this one. `groupwise config show THIS --comments` explains every setting.

[task]
product = "language"
environment = {toml_value(data)}
options = {{ {shown} }}

[policy]
model_name = {toml_value(model)}
{adapter}
[rollout]
num_generations = 8        # answers to each prompt, which are compared with each other
tasks_per_step = {16 if tiny else 8}

[sampling]
max_new_tokens = {longest}

[optim]
learning_rate = {"3e-4" if tiny else "1e-4"}
lr_scheduler_type = "constant"
warmup_ratio = 0.0
per_device_train_batch_size = {128 if tiny else 8}
gradient_accumulation_steps = {1 if tiny else 8}

[training]
num_episodes = 100         # steps

[run]
eval_steps = 20
eval_episodes = {200 if tiny else 50}
save_steps = 50
{"threads = 1" if tiny else ""}
""".rstrip()
        + "\n"
    )


DATA = Starter(question, write, ("data", "reward", "prompt", "answer", "model"), check_settings_file)
