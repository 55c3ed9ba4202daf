"""TRL's call over our loop: the same script, the same arguments and, fed the same samples, the same weights."""

import copy
import dataclasses
import json
import signal
import threading
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

import groupwise
from groupwise.agents.environments.contract import Reply, ToolCall
from groupwise.compat.trainer import ConversationTrainer
from groupwise.compat.trl_config import CARRIED, NO_EFFECT, ONLY, page
from groupwise.compat.trl_tools import EnvironmentRow, Factories, ToolTalk, toolbox_of
from groupwise.errors import ConfigError, GroupwiseError
from groupwise.event_loop import EventLoop
from groupwise.language.loading import load_model
from groupwise.types import Task

ROWS = [{"prompt": f"{n}+1=", "answer": str(n + 1)} for n in range(12)]


def brief(completions: list[str], **columns: Any) -> list[float]:
    return [-len(text) / 10 for text in completions]


def arguments(folder: Path, **changes: Any) -> dict[str, Any]:
    usual = {
        "output_dir": str(folder), "max_steps": 2, "per_device_train_batch_size": 8, "num_generations": 4,
        "max_completion_length": 6, "learning_rate": 1e-3, "logging_steps": 1, "use_cpu": True, "bf16": False,
        "gradient_checkpointing": False, "disable_tqdm": True,
    }  # fmt: skip
    return {**usual, **changes}


def trained(folder: Path, rewards: Any, rows: Any = ROWS, **changes: Any) -> Any:
    made = changes.pop("made", {})
    args = groupwise.GRPOConfig(**arguments(folder, **changes))
    trainer = groupwise.GRPOTrainer(model="tiny", reward_funcs=rewards, args=args, train_dataset=rows, **made)
    trainer.train()
    return trainer


def test_every_field_of_trl_is_carried_over_or_refused_or_without_effect() -> None:
    trl = pytest.importorskip("trl")
    theirs = {field.name: field.default for field in dataclasses.fields(trl.GRPOConfig)}
    assert theirs.keys() == {*CARRIED, *ONLY, *NO_EFFECT}
    ours = {**CARRIED, **{name: allowed[0] for name, (allowed, _) in ONLY.items()}}
    assert {name: theirs[name] for name in ours} == ours


def test_the_page_of_arguments_is_current() -> None:
    written = Path(__file__).parents[2] / "docs" / "trl_arguments.md"
    assert written.read_text("utf8") == "\n".join(page()) + "\n"


@pytest.mark.parametrize("name", ONLY)
def test_what_is_not_supported_is_refused_with_what_to_use_instead(name: str) -> None:
    with pytest.raises(ConfigError) as error:
        groupwise.GRPOConfig(**{name: "something else"})
    assert error.value.field == name
    assert error.value.hint


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"learning_rat": 1e-5}, "Did you mean 'learning_rate'?"),
        ({"num_generations": 3}, "not a multiple of num_generations = 3"),
        ({"generation_batch_size": 8, "steps_per_generation": 1}, "both set"),
        ({"lr_scheduler_type": "polynomial"}, "Use one of"),
    ],
)
def test_wrong_arguments_are_one_sentence(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as error:
        groupwise.GRPOConfig(**given)
    assert words in f"{error.value.message} {error.value.hint}"


def test_a_script_of_trl_trains_with_all_columns_and_several_weighted_rewards(tmp_path: Path) -> None:
    seen: dict[str, Any] = {}

    async def right(
        prompts: Any, completions: Any, completion_ids: Any, answer: Any, trainer_state: Any, **rest: Any
    ) -> Any:
        seen.update(rest, step=trainer_state.global_step, prompts=prompts, answer=answer)
        assert len(completion_ids) == len(completions) == len(prompts) == 4
        return [None, 1.0, 0.0, 1.0]

    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list([{**row, "extra": [n]} for n, row in enumerate(ROWS)])
    trainer = trained(tmp_path, [brief, right], rows, reward_weights=[1.0, 2.0], made={"eval_dataset": ROWS[:2]})
    assert seen["extra"][0] == seen["extra"][3]
    assert int(seen["prompts"][0].partition("+")[0]) + 1 == int(seen["answer"][0])
    first, last = trainer.state.log_history[0], trainer.state.log_history[-1]
    assert {"loss", "reward", "reward_std", "entropy", "learning_rate", "grad_norm", "step"} <= first.keys()
    assert first["rewards/right/mean"] == pytest.approx(2 / 3)  # as in TRL, over those that it scored
    assert (last["step"], trainer.state.global_step) == (2, 2)
    metrics = trainer.evaluate()
    assert metrics["eval_reward"] < 3
    trainer.save_model(str(tmp_path / "saved"))
    saved = load_model(str(tmp_path / "saved")).model.state_dict()
    assert all(torch.equal(saved[name], weight) for name, weight in trainer.model.state_dict().items())
    # The run is one of ours, and resumes as one.
    assert (trainer.path / "events.jsonl").is_file()


def test_callbacks_hear_of_the_run_and_may_stop_it(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    heard: list[str] = []

    class Listener(transformers.TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            heard.append("begin")

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **rest: Any) -> None:
            heard.append(f"log {state.global_step} {sorted(logs)[0] != ''}")

        def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> Any:
            control.should_training_stop = state.global_step == 1
            return control

    trainer = trained(tmp_path, brief, max_steps=5, made={"callbacks": [Listener]})
    assert heard[:2] == ["begin", "log 1 True"]
    assert trainer.state.global_step < 5


def test_an_adapter_and_a_model_object(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    language = load_model("tiny")
    before = copy.deepcopy(language.model.state_dict())
    trainer = groupwise.GRPOTrainer(
        language.model, brief, args=groupwise.GRPOConfig(**arguments(tmp_path, max_steps=1)), train_dataset=ROWS,
        processing_class=language.tokenizer, peft_config=peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"]),
    )  # fmt: skip
    trainer.train()
    trainer.save_model(str(tmp_path / "adapter"))
    assert json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())["r"] == 4
    inner = trainer.model.get_base_model().state_dict()
    assert any("lora" in name for name in inner)
    assert all(torch.equal(inner[name], before[name]) for name in before if name in inner)


class Counter:
    """An environment in TRL's form."""

    def reset(self, answer: str = "", **columns: Any) -> str:
        self.answer, self.count = answer, 0
        return " Count."

    def add(self, number: int) -> str:
        """Add to the count.

        Args:
            number: What to add.
        """
        self.count += number
        return str(self.count)

    def get_reward(self) -> float:
        return float(self.count)


def test_the_methods_of_an_environment_are_tools_and_its_reward_counts(tmp_path: Path) -> None:
    rows = [{"prompt": [{"role": "user", "content": f"{n}+1="}], "answer": str(n + 1)} for n in range(6)]
    seen: list[Any] = []

    def spoken(completions: Any, **columns: Any) -> list[float]:
        seen.extend(completions)
        return [float(len(said)) for said in completions]

    trainer = trained(tmp_path, spoken, rows, max_steps=1, made={"environment_factory": Counter})
    logged = trainer.state.log_history[0]
    assert logged["reward"] == pytest.approx(logged["rewards/spoken/mean"] + logged["rewards/Counter/mean"])
    assert all(said[0]["role"] == "assistant" for said in seen)


class Threads(Counter):
    """Notes the thread of every call; its tools use what only the main thread may."""

    seen: ClassVar[set[int]] = set()

    def reset(self, **columns: Any) -> str:
        self.seen.add(threading.get_ident())
        return super().reset(**columns)

    def alarm(self) -> str:
        """Set a timer, as scripts do."""
        self.seen.add(threading.get_ident())
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        return "set"

    @property
    def broken(self) -> str:
        raise AssertionError("nobody asked for this")

    async def get_reward(self) -> float:  # type: ignore[override]
        return 1.0


def test_code_that_is_not_async_runs_in_the_thread_that_trains() -> None:
    task = Task("t", EnvironmentRow((({"role": "user", "content": "Go."}),), "", {"answer": "1"}), 0)
    talk = ToolTalk(toolbox_of([]), Factories(Threads))

    async def played() -> Any:
        opening = await talk.reset(task)
        calls = (ToolCall("1", "alarm", {}), ToolCall("2", "add", {"number": 2}))
        return opening, await talk.step(Reply("", calls)), talk.for_reward.count

    loop = EventLoop("test")
    opening, answered, count = loop.run(played())
    loop.close()
    assert opening.messages[-1]["content"] == "Go. Count."
    assert [message["content"] for message in answered.messages] == ["set", "2"]
    assert (count, Threads.seen) == (2, {threading.main_thread().ident})


def test_rewards_get_the_environments_which_may_own_the_prompts(tmp_path: Path) -> None:
    seen: list[Any] = []

    def counted(environments: Any, log_metric: Any, **columns: Any) -> list[float]:
        seen.append((threading.get_ident(), [type(one) for one in environments]))
        log_metric("mine", 3.0)
        return [float(n) for n in range(len(environments))]

    made = {"environment_factory": {"one": Counter, "two": Threads}}
    trainer = trained(tmp_path, counted, [{"environment": "one"}, {"environment": "two"}], max_steps=1, made=made)
    logged = trainer.state.log_history[0]
    assert {kind for _, kinds in seen for kind in kinds} == {Counter, Threads}
    assert {thread for thread, _ in seen} == {threading.main_thread().ident}
    assert (logged["rewards/Counter/mean"], logged["rewards/Threads/mean"], logged["mine"]) == (0.0, 1.0, 3.0)
    alone = trained(tmp_path / "alone", counted, None, max_steps=1, made={"environment_factory": Threads})
    assert alone.state.global_step == 1


def test_trls_own_arguments_are_taken(tmp_path: Path) -> None:
    trl = pytest.importorskip("trl")
    given = arguments(tmp_path, steps_per_generation=2, lr_scheduler_type="cosine", beta=0.04, logging_steps=3)
    theirs = trl.GRPOConfig(**given, report_to="none")
    theirs.chat_template_kwargs = {"enable_thinking": False}
    ours = groupwise.GRPOConfig.from_trl(theirs)
    both = [one.settings(12, device="cpu", evaluates=False) for one in (ours, groupwise.GRPOConfig(**given))]
    assert both[0] == both[1].replace(chat_template_kwargs={"enable_thinking": False})
    theirs.use_vllm = True
    with pytest.raises(ConfigError, match="use_vllm=True"):
        groupwise.GRPOTrainer("tiny", brief, args=theirs, train_dataset=ROWS)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ({"train_dataset": ["2+2="]}, "row 0 of train_dataset is '2\\+2='"),
        ({"train_dataset": [{"prompt": 3}]}, "has the prompt 3"),
        ({"train_dataset": [{"prompt": [{"role": "user", "content": [{"type": "image"}]}]}]}, "has the prompt"),
        ({"train_dataset": [{"prompt": [{"role": "user"}]}]}, "an empty prompt"),
        ({"reward_funcs": lambda completions, target: []}, "needs the column 'target'"),
        ({"reward_funcs": lambda completions, environments: []}, "there is no environment_factory"),
        ({"environment_factory": dict}, "the environment dict has no method reset"),
        ({"environment_factory": Counter, "train_dataset": None, "args": None}, "nothing says how long to train"),
        ({"optimizers": (object(), None)}, "optimizers"),
        ({"compute_metrics": brief}, "'compute_metrics' is not an argument"),
        ({"train_dataset": [{"question": "1+1"}]}, "no column 'prompt'"),
        ({"train_dataset": []}, "train_dataset is empty"),
        ({"train_dataset": None}, "train_dataset is missing"),
        ({"reward_funcs": "a/reward-model"}, "the name of a reward model, not a function"),
        ({"reward_funcs": None}, "nothing to reward"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, made: dict[str, Any], words: str) -> None:
    args = groupwise.GRPOConfig(**arguments(tmp_path))
    usual = {"model": "tiny", "reward_funcs": brief, "train_dataset": ROWS, "args": args}
    with pytest.raises(ConfigError, match=words):
        groupwise.GRPOTrainer(**{**usual, **made})


def test_a_reward_of_the_wrong_length_ends_the_run_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(GroupwiseError, match="returned 1 rewards for 4 completions"):
        trained(tmp_path, lambda completions, **columns: [1.0])


def test_one_name_takes_both_calls(tmp_path: Path) -> None:
    agent = groupwise.MultiTurnAgent(groupwise.AgentConfig(model_name="tiny"))
    environment = groupwise.ConversationEnvironment([{"topic": "refund", "context": "late"}])
    assert isinstance(groupwise.GRPOTrainer(agent, environment), ConversationTrainer)
    assert issubclass(ConversationTrainer, groupwise.GRPOTrainer)


def sampler(tokenizer: Any) -> Any:
    """The same tokens for the same call and place, whichever library asks."""
    calls = 0

    def sample(prompts: list[str], trainer: Any) -> dict[str, Any]:
        nonlocal calls
        calls += 1
        made: dict[str, Any] = {"prompt_ids": [], "completion_ids": [], "logprobs": []}
        for place, prompt in enumerate(prompts):
            generator, length = torch.Generator().manual_seed(1000 * calls + place), 2 + place % 4
            ids = torch.randint(10, 90, (length,), generator=generator).tolist()
            made["prompt_ids"].append(tokenizer.encode(prompt))
            made["completion_ids"].append([*ids, tokenizer.eos_token_id])
            made["logprobs"].append([-4.0] * (length + 1))
        return made

    return sample


def spread(completions: list[str], **columns: Any) -> list[float]:
    return [sum(map(ord, text)) % 17 / 4 for text in completions]


CHANGES = [{"max_steps": 3}, {"max_steps": 4, "num_iterations": 2, "lr_scheduler_type": "constant"}]


@pytest.mark.parametrize("changes", CHANGES, ids=["usual", "twice"])
def test_weights_equal_those_of_trl_when_both_are_fed_the_same_samples(tmp_path: Path, changes: dict[str, Any]) -> None:
    trl, datasets = pytest.importorskip("trl"), pytest.importorskip("datasets")
    found = []
    for library in (trl, groupwise):
        language = load_model("tiny")
        # With Adam's tiny default epsilon, a gradient of rounding errors alone would move a weight by a whole step.
        given = arguments(tmp_path / library.__name__, shuffle_dataset=False, adam_epsilon=1e-5, **changes)
        trainer = library.GRPOTrainer(
            model=language.model, reward_funcs=spread, args=library.GRPOConfig(**given, report_to="none"),
            train_dataset=datasets.Dataset.from_list(ROWS), processing_class=language.tokenizer,
            rollout_func=sampler(language.tokenizer),
        )  # fmt: skip
        trainer.train()
        found.append(trainer.model.state_dict())
    theirs, ours = found
    started = load_model("tiny").model.state_dict()
    assert max(float((theirs[name] - started[name]).abs().max()) for name in theirs) > 1e-3
    assert max(float((theirs[name] - ours[name]).abs().max()) for name in theirs) < 1e-4
