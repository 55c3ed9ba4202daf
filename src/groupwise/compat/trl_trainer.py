"""TRL's call over the one loop: `GRPOTrainer(model=…, reward_funcs=…, args=…, train_dataset=…)`.

    trainer = GRPOTrainer(model="tiny", reward_funcs=brief, train_dataset=[{"prompt": "Hello"}, …])
    trainer.train()

The data are rows in memory: a list of dictionaries or a `datasets.Dataset`. A prompt that is a text is continued as it
is; one that is a list of messages is asked in the model's chat format. Rewards have TRL's signature and see one group
at a time. `trainer.path` is the run's folder, with events, completions and checkpoints as of any other run.
"""

import difflib
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from groupwise.agents import agent_product, language_product
from groupwise.agents.data.problems import Epochs, Problem
from groupwise.agents.environments.contract import Environment
from groupwise.compat.trl_config import GRPOConfig, is_trls_own
from groupwise.compat.trl_tools import EnvironmentRow, Factories, Factory, ToolTalk, toolbox_of
from groupwise.config import TrainingConfig
from groupwise.core.objectives import COMBINATIONS
from groupwise.errors import ConfigError, ContractError, RunError
from groupwise.event_loop import in_caller
from groupwise.language.adapters import has_adapter, lora_of
from groupwise.language.engine import Sampled
from groupwise.language.loading import LanguageModel, load_model, prepare, save_model
from groupwise.language.policy import LanguagePolicy
from groupwise.reporting.console import watch
from groupwise.rewards.function import parameters
from groupwise.rewards.scoring import raised
from groupwise.rewards.signatures import OWN, CompletionsReward
from groupwise.training.folder import create_run, find_run
from groupwise.training.session import Parts, execute
from groupwise.training.stop_conditions import StopFlag, graceful_stop
from groupwise.training.token_attempts import token_attempt
from groupwise.types import Event, Failed, Failure, Group, Score, Task, Trajectory

RewardFunctions = Callable[..., Any] | Sequence[Callable[..., Any]]
# Our metric → TRL's name for it.
LOGGED = {
    "loss/total": "loss", "reward/mean": "reward", "reward/std": "reward_std", "policy/reference_kl": "kl",
    "policy/entropy": "entropy", "optim/grad_norm": "grad_norm", "optim/learning_rate": "learning_rate",
    "attempt/length_mean": "completions/mean_length", "attempt/length_max": "completions/max_length",
    "attempt/truncated_share": "completions/clipped_ratio", "groups/zero_spread_share": "frac_reward_zero_std",
}  # fmt: skip
PART = "reward/part/"


class TextTrainer:
    """Trains a model on prompts in memory; made by `GRPOTrainer(model=…, reward_funcs=…)`.

    Args:
      model: a model of Transformers or PEFT, a folder, a name on the hub, or "tiny".
      reward_funcs: one function or several, in TRL's form: `f(completions, answer, **columns)`, async or not.
      args: a `GRPOConfig`, ours or TRL's own.
      train_dataset, eval_dataset: rows with a column `prompt`; all columns reach the rewards. Not needed for training
        if the environment's `reset` returns the prompt; `max_steps` then says how long.
      processing_class: the tokenizer, if the model is an object.
      callbacks: `transformers.TrainerCallback` objects.
      peft_config: of an adapter to train instead of all weights.
      tools: functions that the model may call.
      rollout_func: samples in our place, as in TRL.
      environment_factory: makes an object whose methods are tools; `reset(**row)` begins, `get_reward()` is added to
        the rewards, which get the objects as `environments`. With a dictionary of factories, a row's column
        `environment` names one.
      reward_processing_classes, optimizers, quantization_config: only with the values that change nothing.
    """

    def __init__(
        self,
        model: Any,
        reward_funcs: RewardFunctions | None = None,
        args: GRPOConfig | None = None,
        train_dataset: Iterable[Mapping[str, Any]] | None = None,
        eval_dataset: Iterable[Mapping[str, Any]] | None = None,
        processing_class: Any = None,
        reward_processing_classes: Any = None,
        callbacks: Sequence[Any] | None = None,
        optimizers: Any = (None, None),
        quantization_config: Any = None,
        peft_config: Any = None,
        tools: Sequence[Callable[..., Any]] | None = None,
        rollout_func: Callable[..., Mapping[str, Any]] | None = None,
        environment_factory: Factory | Mapping[str, Factory] | None = None,
        **unknown: Any,
    ) -> None:
        _refuse_unknown(unknown)
        given: Any = GRPOConfig() if args is None else args
        if is_trls_own(given):
            given = GRPOConfig.from_trl(given)
        if not isinstance(given, GRPOConfig):
            message = f"args is a {type(args).__module__}.{type(args).__name__}"
            raise ConfigError(message, hint="Use groupwise.GRPOConfig, which has the same arguments.", field="args")
        self.args = given
        _refuse_unused(reward_processing_classes, optimizers, quantization_config)
        factories = Factories(environment_factory) if environment_factory else None
        if train_dataset is None and factories is not None:
            train_dataset = _no_rows(given, factories)
        self.train_dataset = rows_of(train_dataset, "train_dataset", prompts=factories is None)
        self.eval_dataset = None
        if eval_dataset is not None:
            self.eval_dataset = rows_of(eval_dataset, "eval_dataset", prompts=factories is None)
        self.language = adapted(loaded(model, processing_class, self.args), peft_config, self.args.seed)
        device = "cuda" if torch.cuda.is_available() and not self.args.use_cpu else "cpu"
        self.cfg = self.args.settings(len(self.train_dataset), device=device, evaluates=eval_dataset is not None)
        if (lora := lora_of(self.language.model)) is not None:
            self.cfg = self.cfg.replace(lora_rank=lora.rank, lora_alpha=lora.alpha)
        self.language = prepare(
            self.language, device=device, gradient_checkpointing=self.args.gradient_checkpointing, seed=self.args.seed
        )
        if tools or factories:
            self.cfg = self.cfg.replace(product="agent")
        self.tools, self.factories, self.rollout_func = toolbox_of(tools or ()), factories, rollout_func
        from transformers import TrainerControl, TrainerState

        self.state, self.control = TrainerState(), TrainerControl()
        self.state.max_steps = round(self.cfg.training.num_episodes * self.args.updates)
        self.callbacks = [one() if isinstance(one, type) else one for one in callbacks or ()]
        functions = [] if reward_funcs is None else [reward_funcs] if callable(reward_funcs) else list(reward_funcs)
        self.reward = Rewards(functions, self.language.tokenizer, self.args, self.state, factories)
        self.reward.insist_on_columns({name for row in self.train_dataset for name in row})
        self.accelerator = OneProcess(device)
        self.problems = Rows(self.train_dataset, self.eval_dataset, shuffled=self.args.shuffle_dataset)
        self.path: Path | None = None
        self._reference: LanguagePolicy | None = None

    @property
    def model(self) -> Any:
        return self.language.model

    @property
    def processing_class(self) -> Any:
        return self.language.tokenizer

    def train(self, resume_from_checkpoint: str | bool | None = None) -> Any:
        """Train to the end, with a live display unless `disable_tqdm`; Ctrl-C ends it after the step, and saves."""
        from transformers.trainer_utils import TrainOutput

        resume = self.args.resume_from_checkpoint if resume_from_checkpoint is None else resume_from_checkpoint
        self.path = self._begun(resume) if resume else create_run(self.cfg)
        self._tell("on_train_begin")
        last: Mapping[str, Any] = {}
        with graceful_stop() as stop:
            for event in watch(execute(self.path, self._build, self.cfg, stop), quiet=bool(self.args.disable_tqdm)):
                last = self._see(event, stop) or last
        self._tell("on_train_end")
        losses = [entry["loss"] for entry in self.state.log_history if entry.get("loss") is not None]
        return TrainOutput(self.state.global_step, math.fsum(losses) / max(1, len(losses)), dict(last))

    def evaluate(self, eval_dataset: Iterable[Mapping[str, Any]] | None = None) -> dict[str, float]:
        """Sample answers to the evaluation prompts, and return their mean reward as `eval_reward`, with the rest."""
        rows = self.eval_dataset
        if eval_dataset is not None:
            rows = rows_of(eval_dataset, "eval_dataset", prompts=self.factories is None)
        if rows is None:
            raise ConfigError("there is nothing to evaluate on", hint="Pass eval_dataset.", field="eval_dataset")
        before = self.problems
        self.problems = Rows(self.train_dataset, rows, shuffled=False)
        parts = self._build(self.cfg.replace(eval_episodes=len(rows)))
        try:
            assert parts.evaluate is not None
            parts.source.publish(parts.policy)
            found = parts.evaluate(parts.policy)
        finally:
            parts.source.close()
            self.problems = before
        metrics = _as_trl(found)
        self._log(metrics)
        self._tell("on_evaluate", metrics=metrics)
        return metrics

    def save_model(self, output_dir: str | None = None) -> None:
        """Save the model, or its adapter if it has one, with its tokenizer."""
        folder = Path(output_dir or self.args.output_dir or "runs")
        save_model(self.language, folder, merged=not has_adapter(self.model))

    def push_to_hub(self, *_: Any, **__: Any) -> None:
        raise ConfigError("nothing is uploaded from here", hint="Use save_model(folder), then `hf upload` the folder.")

    def end(self) -> None:
        """Nothing is left open after `train`."""

    def add_callback(self, callback: Any) -> None:
        self.callbacks.append(callback() if isinstance(callback, type) else callback)

    def _begun(self, given: str | bool) -> Path:
        if given is True:
            return find_run("latest", self.cfg.run.output_dir)
        path = Path(str(given))
        run = path.parent.parent if path.parent.name == "checkpoints" else path
        if not (run / "config.toml").is_file():
            raise RunError(f"{path} is not a run to resume", hint="Pass the folder that trainer.path named.")
        return run

    def _build(self, cfg: TrainingConfig) -> Parts:
        # However often the parts are built, the reference is the model as this trainer first saw it.
        if cfg.task.product == "agent":
            scenarios = Talks(self.problems, lambda: ToolTalk(self.tools, self.factories))
            parts = agent_product.build(cfg, self.reward, scenarios, self.language, self._reference)
        else:
            parts = language_product.build(cfg, self.reward, self.problems, self.language, self._reference)
        source: Any = parts.source
        if self.rollout_func is not None:
            source.rollout = FunctionRollout(self.rollout_func, self, source.engine, cfg.rollout.num_generations)
        policy: Any = parts.policy
        self._reference = policy.reference
        return parts

    def _see(self, event: Event, stop: StopFlag) -> dict[str, float] | None:
        self.state.global_step = round(event.step * self.args.updates)
        self.state.epoch = event.step * self.cfg.rollout.tasks_per_step / len(self.train_dataset)
        logged = None
        if event.type == "step":
            self._tell("on_step_end")
            if event.step % max(1, round(self.args.logging_steps / self.args.updates)) == 0 or event.step == 1:
                logged = _as_trl(event.data["metrics"]) | self.reward.take_logged()
                self._log(logged)
        elif event.type == "eval":
            metrics = _as_trl(event.data["metrics"])
            self._log(metrics)
            self._tell("on_evaluate", metrics=metrics)
        elif event.type == "checkpoint":
            self._tell("on_save")
        if self.control.should_training_stop:
            stop.raised = True
        return logged

    def _log(self, metrics: Mapping[str, float]) -> None:
        self.state.log_history.append({**metrics, "epoch": self.state.epoch, "step": self.state.global_step})
        self._tell("on_log", logs=dict(metrics))

    def _tell(self, moment: str, **more: Any) -> None:
        """Call every callback that has something to do at this moment."""
        for callback in self.callbacks:
            told = getattr(callback, moment)(
                self.args, self.state, self.control, model=self.model, processing_class=self.processing_class, **more
            )
            self.control = told or self.control


def _as_trl(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Metrics under TRL's names; what it has no name for keeps ours."""
    named: dict[str, float] = {}
    for name, value in metrics.items():
        if value is None:
            continue
        if name.startswith("eval/"):
            theirs = {"drawn_reward_mean": "reward"}.get(name.removeprefix("eval/"), name.removeprefix("eval/"))
            named[f"eval_{theirs}"] = float(value)
        elif name.startswith(PART):
            named[f"rewards/{name.removeprefix(PART)}/mean"] = float(value)
        else:
            named[LOGGED.get(name, name)] = float(value)
    return named


class OneProcess:
    """What scripts use of TRL's `trainer.accelerator`, in a single process."""

    is_main_process = is_local_main_process = True
    num_processes, process_index = 1, 0

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)

    def print(self, *words: Any, **options: Any) -> None:
        print(*words, **options)

    def wait_for_everyone(self) -> None:
        """There is nobody else."""


def _refuse_unknown(given: Mapping[str, Any]) -> None:
    for name in given:
        known = [one for one in inspect.signature(TextTrainer.__init__).parameters if one not in ("self", "unknown")]
        near = difflib.get_close_matches(name, known, 1)
        hint = f"Did you mean {near[0]!r}?" if near else f"It takes {', '.join(known)}."
        raise ConfigError(f"{name!r} is not an argument of GRPOTrainer", hint=hint, field=name)


def _refuse_unused(reward_processing_classes: Any, optimizers: Any, quantization_config: Any) -> None:
    refused = {
        "reward_processing_classes": (reward_processing_classes, "Rewards are functions here, without tokenizers."),
        "optimizers": (next((one for one in optimizers if one is not None), None), "Use the arguments of GRPOConfig."),
        "quantization_config": (
            quantization_config, "Train from a settings file with language.quantization (docs/trl.md)."
        ),
    }  # fmt: skip
    for name, (value, hint) in refused.items():
        if value is not None:
            raise ConfigError(f"GRPOTrainer({name}=…) is not supported here", hint=hint, field=name)


def _no_rows(args: GRPOConfig, factories: Factories) -> list[dict[str, Any]]:
    """Rows without a prompt, as many as are sampled at once: the environment makes up the tasks."""
    if factories.by_name is not None:
        hint = "Its rows need a column 'environment'."
        raise ConfigError("several environments need a train_dataset that names them", hint=hint, field="train_dataset")
    if args.max_steps <= 0:
        message = "without a train_dataset, nothing says how long to train"
        raise ConfigError(message, hint="Set GRPOConfig(max_steps=…).", field="max_steps")
    return [{"prompt": [{"role": "user", "content": ""}]} for _ in range(args.rows // args.num_generations)]


def rows_of(given: Iterable[Mapping[str, Any]] | None, name: str, *, prompts: bool = True) -> list[dict[str, Any]]:
    """The rows of a list or a `datasets.Dataset`, each with a prompt unless an environment gives it."""
    if given is None or isinstance(given, str | Mapping):
        kind = "missing" if given is None else f"a {type(given).__name__}"
        hint = 'Pass a list of rows like {"prompt": "…"}, or one split of a datasets.DatasetDict.'
        raise ConfigError(f"{name} is {kind}, not rows", hint=hint, field=name)
    listed = list(given)
    odd = next((n for n, row in enumerate(listed) if not isinstance(row, Mapping)), None)
    if odd is not None:
        hint = 'Pass rows like {"prompt": "…"}.'
        raise ConfigError(f"row {odd} of {name} is {listed[odd]!r:.40}, not a table of columns", hint=hint, field=name)
    rows = [dict(row) for row in listed]
    if not rows:
        raise ConfigError(f"{name} is empty", hint="It needs at least one row.", field=name)
    for number, row in enumerate(rows):
        if "prompt" not in row and not prompts:
            row["prompt"] = [{"role": "user", "content": ""}]
        if "prompt" not in row:
            hint = f"Its columns are {', '.join(row)}; rename one, as with Dataset.rename_column."
            raise ConfigError(f"row {number} of {name} has no column 'prompt'", hint=hint, field=name)
        if not _is_prompt(row["prompt"]):
            hint = 'A prompt is a text, or a list of messages like {"role": "user", "content": "…"} with texts only.'
            raise ConfigError(f"row {number} of {name} has the prompt {row['prompt']!r:.60}", hint=hint, field=name)
        if prompts and _is_empty(row["prompt"]):
            hint = "Fill it in, or leave it out."
            raise ConfigError(f"row {number} of {name} has an empty prompt", hint=hint, field=name)
    return rows


def _is_empty(prompt: Any) -> bool:
    texts = [prompt] if isinstance(prompt, str) else [message.get("content") or "" for message in prompt]
    return not any(text.strip() for text in texts)


def _is_prompt(given: Any) -> bool:
    if isinstance(given, str):
        return True
    return (
        isinstance(given, Sequence)
        and len(given) > 0
        and all(
            isinstance(one, Mapping) and isinstance(one.get("content") or "", str) and isinstance(one.get("role"), str)
            for one in given
        )
    )


def loaded(model: Any, tokenizer: Any, args: GRPOConfig) -> LanguageModel:
    """The model and its tokenizer, loaded by name unless they are objects already."""
    if isinstance(model, str):
        options = dict(args.model_init_kwargs or {})
        dtype = options.pop("dtype", options.pop("torch_dtype", "float32"))
        # How attention is computed and where layers go does not change what is learned.
        usual = {"revision": (None, "main"), "trust_remote_code": (None, False)}
        other = [
            name for name, value in options.items()
            if name not in ("attn_implementation", "device_map", "use_cache") and value not in usual.get(name, ())
        ]  # fmt: skip
        if other:
            message = f"model_init_kwargs has {other[0]!r}, which is not supported"
            raise ConfigError(message, hint="Load the model yourself and pass the object.", field="model_init_kwargs")
        named = dtype if isinstance(dtype, torch.dtype) else getattr(torch, str(dtype), None)
        language = load_model(model, dtype=named or torch.float32)
        return language if tokenizer is None else replace(language, tokenizer=tokenizer)
    name = str(getattr(getattr(model, "config", None), "_name_or_path", "") or type(model).__name__)
    if tokenizer is None:
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(name)
        except (OSError, ValueError) as error:
            message = f"the tokenizer of {name!r} cannot be loaded"
            raise ConfigError(message, hint="Pass processing_class=tokenizer.", field="processing_class") from error
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return LanguageModel(model, tokenizer, name)


def adapted(language: LanguageModel, peft_config: Any, seed: int) -> LanguageModel:
    if peft_config is None:
        return language
    from peft import get_peft_model

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return replace(language, model=get_peft_model(language.model, peft_config))


class Rows(Epochs[Problem]):
    """Rows in memory as problems that rewards score."""

    name, has_check = "dataset", False

    def __init__(
        self, train: Sequence[Mapping[str, Any]], test: Sequence[Mapping[str, Any]] | None, *, shuffled: bool
    ) -> None:
        self.shuffled = shuffled
        super().__init__(*([_problem(n, row) for n, row in enumerate(rows or ())] for rows in (train, test)))

    def training(self, seed: int, number: int) -> Problem:
        return super().training(seed, number) if self.shuffled else self.train[number % len(self.train)]

    def grade(self, problem: Problem, text: str, finished: bool) -> Score:
        raise ContractError("rows in memory have no check of their own", hint="Pass reward_funcs.")

    def demonstration(self, problem: Problem) -> str:
        raise ContractError("rows in memory have no demonstrations", hint="Use groupwise sft with a data file.")


def _problem(number: int, row: Mapping[str, Any]) -> Problem:
    asked = row["prompt"]
    plain = isinstance(asked, str)
    prompt = asked if plain else tuple(dict(message) for message in asked)
    return (EnvironmentRow if _is_empty(asked) else Problem)(prompt, "", dict(row), place=f"row {number}", plain=plain)


class Talks:
    """The same rows as conversations with tools."""

    def __init__(self, rows: Rows, make: Callable[[], Environment]) -> None:
        self.rows, self.make, self.name = rows, make, rows.name
        self.training, self.held_out = rows.training, rows.held_out


class FunctionRollout:
    """Groups that a function of TRL's form samples: it gets every prompt as often as a group has members."""

    def __init__(self, function: Callable[..., Mapping[str, Any]], trainer: Any, engine: Any, size: int) -> None:
        self.function, self.trainer, self.engine, self.size = function, trainer, engine, size

    def collect(self, tasks: Sequence[Task]) -> list[Group]:
        prompts = [_prompt(task) for task in tasks for _ in range(self.size)]
        made = self.function(prompts, self.trainer)
        missing = [name for name in ("prompt_ids", "completion_ids", "logprobs") if name not in made]
        if missing or len(made["completion_ids"]) != len(prompts):
            what = f"has no {missing[0]!r}" if missing else f"has {len(made['completion_ids'])} completions"
            raise ContractError(f"what rollout_func returned {what} for {len(prompts)} prompts")
        return [
            Group(f"g{task.seed}", task, tuple(self._attempt(task, n, first + n, made) for n in range(self.size)))
            for task, first in zip(tasks, range(0, len(prompts), self.size), strict=True)
        ]

    def _attempt(self, task: Task, member: int, place: int, made: Mapping[str, Any]) -> Trajectory:
        ids = np.asarray(made["completion_ids"][place], np.int64)
        logp = np.asarray(made["logprobs"][place], np.float32)
        tokenizer = self.trainer.processing_class
        ended = len(ids) > 0 and int(ids[-1]) in (tokenizer.eos_token_id, tokenizer.pad_token_id)
        version = self.engine.version
        sampled = Sampled(ids, logp, np.full(len(ids), version), version, "stop" if ended else "length")
        before = made["prompt_ids"][place]
        attempt = token_attempt(tokenizer, task, before, member, sampled, task.payload.prompt)
        if "env_mask" not in made:
            return attempt
        own = np.concatenate([np.zeros(len(before), np.bool_), np.asarray(made["env_mask"][place], np.bool_)])
        return replace(attempt, mask=own)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing to restore."""


def _prompt(task: Task) -> Any:
    asked = task.payload.prompt
    return asked if isinstance(asked, str) else [dict(message) for message in asked]


class RawCompletions(CompletionsReward):
    """A reward of TRL's form that sees an answer as it was written, thoughts included."""

    def __init__(
        self, function: Callable[..., Any], name: str, tokenizer: Any, given: Mapping[str, Any], *, environments: bool
    ) -> None:
        given = {**given, **({"environments": ()} if environments else {})}
        taken = parameters(function)
        everything, names = any(one.kind is one.VAR_KEYWORD for one in taken), {one.name for one in taken}
        super().__init__(function, name, {key: one for key, one in given.items() if everything or key in names})
        self.tokenizer = tokenizer
        if "environments" in names and not environments:
            message = f"{name} asks for environments, but there is no environment_factory"
            raise ConfigError(message, hint="Pass environment_factory=…", field="reward_funcs")

    def __call__(self, task: Task, group: Sequence[Trajectory]) -> Any:
        self.written = [
            self.tokenizer.decode(attempt.actions[attempt.mask], skip_special_tokens=True)
            if "messages" not in attempt.meta else None
            for attempt in group
        ]  # fmt: skip
        if "environments" in self.options:
            self.options["environments"] = [attempt.meta.get("environment") for attempt in group]
        return super().__call__(task, group)

    def _completions(self, said: list[Any]) -> list[Any]:
        return [
            one if text is None else text if isinstance(one, str) else [{"role": "assistant", "content": text}]
            for one, text in zip(said, self.written, strict=True)
        ]


class OwnReward:
    """What `get_reward` of the environments of one class returns; None for those of another."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, task: Task, group: Sequence[Trajectory]) -> Any:
        found: list[Any] = [attempt.meta.get("environment") for attempt in group]
        values = [one.get_reward() if type(one).__name__ == self.name else None for one in found]
        return _all(values) if any(map(inspect.isawaitable, values)) else values


async def _all(values: Sequence[Any]) -> list[Any]:
    return [await one if inspect.isawaitable(one) else one for one in values]


class Rewards:
    """Several functions as one reward: the weighted sum of what they return; None counts as no opinion."""

    def __init__(
        self, functions: Sequence[Any], tokenizer: Any, args: GRPOConfig, state: Any, factories: Factories | None
    ) -> None:
        self._logged: dict[str, list[float]] = {}
        given = {"trainer_state": state, "log_extra": _nothing, "log_metric": self._log_metric}
        there = factories is not None
        self.parts: list[Any] = [
            RawCompletions(one, _function_name(one), tokenizer, given, environments=there) for one in functions
        ]
        self.weights = list(args.reward_weights or [1.0] * len(self.parts))
        if len(self.weights) != len(self.parts):
            message = f"there are {len(self.parts)} reward functions but {len(self.weights)} reward_weights"
            raise ConfigError(message, hint="Give one weight per function.", field="reward_weights")
        own = [OwnReward(name) for name in factories.scoring] if factories is not None else []
        self.parts += own
        self.weights += [1.0] * len(own)
        if not self.parts:
            hint = "Pass reward_funcs=f, with f(completions, **columns) → one number per completion."
            raise ConfigError("there is nothing to reward completions with", hint=hint, field="reward_funcs")
        self.apart = args.multi_objective_aggregation == "normalize_then_sum"

    async def __call__(self, task: Task, group: Sequence[Trajectory]) -> Sequence[Score | Failed]:
        self._note_tools(group)
        columns = [await self._column(part, task, group) for part in self.parts]
        broken = next((column for column in columns if isinstance(column, Failed)), None)
        if broken is not None:
            return [broken] * len(group)
        table = np.array(columns)
        weights = np.array(self.weights)[:, None]
        if self.apart and not np.isnan(table).any():
            totals = COMBINATIONS["normalize_then_sum"](table.T, self.weights)
        else:
            totals = np.nansum(table * weights, axis=0)
        found: list[Score | Failed] = []
        for n, total in enumerate(totals):
            known = {
                part.name: float(value) for part, value in zip(self.parts, table[:, n], strict=True) if value == value
            }
            if not known:
                found.append(Failed(Failure("reward", "no_score", "every reward function returned None or NaN")))
                continue
            for name, value in known.items():
                self._log_metric(f"rewards/{name}/mean", value)
            found.append(Score(float(total), known))
        return found

    async def _column(self, part: Any, task: Task, group: Sequence[Trajectory]) -> list[float] | Failed:
        """One number for every attempt, NaN for None; a failure if the function raises or returns something else."""
        try:
            answer = await in_caller(lambda: part(task, group))
            answer = await answer if inspect.isawaitable(answer) else answer
        except Exception as error:
            return raised(part.name, error)
        try:
            values = [math.nan if isinstance(one, Failed) or one is None else float(one) for one in answer]
        except (TypeError, ValueError):
            return _broken(f"{part.name} returned {answer!r:.60}, not a list of numbers")
        if len(values) != len(group):
            return _broken(f"{part.name} returned {len(values)} rewards for {len(group)} completions")
        return values

    def insist_on_columns(self, there: Set[str]) -> None:
        """Refuse a function that needs a column which no row has."""
        for part in self.parts:
            lacking = [name for name in getattr(part, "needs", ()) if name not in there and name not in OWN]
            if lacking:
                message = f"{part.name} needs the column {lacking[0]!r}, which no row of train_dataset has"
                hint = f"The columns are {', '.join(sorted(there))}."
                raise ConfigError(message, hint=hint, field="reward_funcs")

    def _log_metric(self, name: str, value: float) -> None:
        self._logged.setdefault(name, []).append(float(value))

    def _note_tools(self, group: Sequence[Trajectory]) -> None:
        for parts in (attempt.meta.get("parts") or {} for attempt in group):
            if "tool_calls" in parts:
                self._log_metric("tools/call_frequency", parts["tool_calls"])
                if parts["tool_calls"]:
                    self._log_metric("tools/failure_frequency", parts["tool_errors"] / parts["tool_calls"])

    def take_logged(self) -> dict[str, float]:
        """Means since the last call: of what each reward returned, of tool calls, of what came to `log_metric`."""
        found = {name: math.fsum(values) / len(values) for name, values in self._logged.items()}
        self._logged.clear()
        return found


def _broken(message: str) -> Failed:
    hint = "Return one number per completion, or None where it cannot score one."
    return Failed(Failure("reward", "contract", message, hint))


def _nothing(*_: Any, **__: Any) -> None:
    """TRL's `log_extra`: the run records every completion with its rewards, and nothing else of it."""


def _function_name(function: Any) -> str:
    if not callable(function):
        what = "the name of a reward model" if isinstance(function, str) else f"{function!r:.60}"
        hint = "Pass a function f(completions, **columns), which may call a model."
        raise ConfigError(f"a reward is {what}, not a function", hint=hint, field="reward_funcs")
    if isinstance(function, torch.nn.Module):
        hint = "Pass a function that calls it: f(prompts, completions, **columns)."
        raise ConfigError("a reward is a model, not a function", hint=hint, field="reward_funcs")
    return str(getattr(function, "__name__", type(function).__name__))
