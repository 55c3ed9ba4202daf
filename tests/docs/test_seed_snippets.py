"""The code of founding documents 0 to 4 as they print it, taken from them: other import paths, smaller numbers.

Document 0 prints Java; its statements are run as the Python that they spell: without types, `new`, braces and
semicolons, and with method names in our spelling.
What they print as an outline (a class with bullet points, a loop body with dots) cannot run; there, the names and
parameters are compared. `test_seed_examples.py` has the same examples where the documents are not at hand.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from groupwise.agents.conversation.dialogues import DialogueDatabase
from groupwise.compat import GRPO, GRPOTrainer, MultiTurnGRPOTrainer, create_customer_service_reward, train
from groupwise.compat.core import compute_grpo_advantages, compute_grpo_loss
from groupwise.compat.language import TrajectoryDataset
from groupwise.config import TrainingConfig
from groupwise.designer.features import features_of, situation
from groupwise.designer.memory import open_memory
from groupwise.designer.pipeline import Designer
from groupwise.designer.policy import load_policy
from groupwise.designer.problem import DesignProblem
from groupwise.designer.tasks import random_requirements
from groupwise.language.tiny import character_tokenizer
from groupwise.memory import Experience
from groupwise.training.events import read_events
from tests.docs.test_migration import HERE

SEEDS = next((p for parent in Path(__file__).parents if (p := parent / "shared/seeds").is_dir()), None)
pytestmark = [
    pytest.mark.skipif(SEEDS is None, reason="the founding documents are not beside the repository in shared/seeds"),
    pytest.mark.filterwarnings("ignore:You are using 'rollout_func'"),
]
IMPORT = re.compile(r"from stateset_agents[\w.]* import (\([^)]*\)|[^\n]*)")
BEFORE = ("# Before (Old Framework)", "# Before (Single GPU)")
PLACES = {name: module for module, _, name in HERE}
SMALL: dict[str, Any] = {
    "max_new_tokens": 6, "num_generations": 2, "num_episodes": 1, "tasks_per_step": 1, "eval_steps": 0, "threads": 1,
    "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1,
}  # fmt: skip


def snippet(document: int, begin: str, **replaced: str) -> str:
    """The document's one block of Python that contains this line, with our import paths."""
    assert SEEDS is not None
    (path,) = SEEDS.glob(f"00{document}-*.md")
    blocks = re.findall(r"^```python\n(.*?)^```", path.read_text("utf8"), re.MULTILINE | re.DOTALL)
    (code,) = [block for block in blocks if begin in block]
    # What comes after in these needs the cluster, which is not here yet.
    code = code.partition("# After")[0] if begin in BEFORE else code
    code = IMPORT.sub(lambda found: "\n".join(_ours(found[1])), code)
    for old, new in replaced.items():
        setting, value = re.escape(old), new
        code, count = re.subn(rf"\b{setting}=[\w\"']+", f"{old}={value}", code)
        assert count == 1, (old, count)
    return code


def _ours(names: str) -> Iterator[str]:
    for name in re.findall(r"\w+", names):
        yield f"from {PLACES[name]} import {name}"


def run(code: str, **names: Any) -> dict[str, Any]:
    """Run a snippet that may await at its top level; return the names it leaves."""
    known = {name: getattr(importlib.import_module(module), name) for name, module in PLACES.items()}
    space: dict[str, Any] = {**known, **names}
    compiled = compile(code, "the document", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert isinstance(compiled, CodeType)
    waiting = eval(compiled, space)  # noqa: S307
    if inspect.iscoroutine(waiting):
        asyncio.run(waiting)
    return space


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def gpt2(tmp_path: Path) -> Path:
    """A folder `gpt2`, which the document's name then means: its shape and kind of tokenizer, without a template."""
    torch.manual_seed(0)
    letters = {letter: n for n, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    backend = Tokenizer(models.BPE({**letters, "<|endoftext|>": len(letters)}, []))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    end = "<|endoftext|>"
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=end, eos_token=end, unk_token=end)
    assert tokenizer.chat_template is None
    shape = GPT2Config(
        vocab_size=len(letters) + 1, n_positions=256, n_embd=16, n_layer=1, n_head=2, bos_token_id=256, eos_token_id=256
    )
    for part in (tokenizer, GPT2LMHeadModel(shape)):
        part.save_pretrained(tmp_path / "gpt2")
    return tmp_path / "gpt2"


def talk() -> dict[str, Any]:
    """What the snippets take for granted: an agent, an environment, a reward and settings."""
    place = {name: getattr(importlib.import_module(module), name) for name, module in PLACES.items()}
    scenarios = [{"topic": "refund", "context": "Order delayed"}, {"topic": "shipping", "context": "Track package"}]
    return {
        "agent": place["MultiTurnAgent"](place["AgentConfig"](model_name="tiny", max_new_tokens=6)),
        "environment": place["ConversationEnvironment"](scenarios=scenarios, max_turns=2), "scenarios": scenarios,
        "reward_function": create_customer_service_reward(), "config": TrainingConfig(**SMALL),
    }  # fmt: skip


def java(begin: str) -> str:
    """Document 0's one block of Java that contains this line, as Python; blocks are indented alike in both."""
    assert SEEDS is not None
    (path,) = SEEDS.glob("000-*.md")
    blocks = re.findall(r"^```java\n(.*?)^```", path.read_text("utf8"), re.MULTILINE | re.DOTALL)
    (code,) = [block for block in blocks if begin in block]
    code = re.sub(r"for \(\w+ (\w+) : (\w+)\) {", r"for \1 in \2:", code)
    code = re.sub(r"if \((.*)\) {", r"if \1:", code)
    code = re.sub(r"^( *)[\w<>]+ (\w+) = ", r"\1\2 = ", code, flags=re.MULTILINE)
    for old, new in (
        ("//", "#"),
        ("new ", ""),
        (";", ""),
        ("}\n", "\n"),
        ("{", "%s"),
        ("%s}", "%s"),
        (".add(", ".append("),
    ):
        code = code.replace(old, new)
    code = re.sub(r"\.get([A-Z]\w*)\(\)", lambda found: "." + _snake(found[1]), code)
    return re.sub(r"\b[a-z]+(?:[A-Z]\w*)+\b", lambda found: _snake(found[0]), code)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def test_0_the_monitoring_of_a_generation(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("designer")
    with Designer(load_policy(), learn=True) as designer, caplog.at_level(logging.INFO):
        grpo = designer.begin(random_requirements(3, 8))
        assert grpo.policy is not None
        before = grpo.policy.improvement.policy.version
        names = {"grpo": grpo, "evaluator": grpo.evaluator, "policy": grpo.policy, "logger": logger}
        left = run(java("GenerationMetrics metrics"), **names)
    assert len(left["metrics"].results) == len(left["candidates"]) == 32
    assert left["update"].version == before + 1
    assert re.search(r"Generation metrics: 32 judged, best 0\.\d+.*policy loss", caplog.text)


def test_0_patterns_are_recalled_and_experiences_stored() -> None:
    requirements = random_requirements(3, 8)
    context = {"features": situation(features_of(DesignProblem(requirements)))}
    with open_memory(":memory:") as memory:
        Designer(load_policy(), memory).design(requirements, 32)
        stored = len(memory.experiences)
        names = {"memory_system": memory, "current_requirements": requirements, "context": context}
        left = run(java("memorySystem.recallPatterns"), **names, candidates=[], random=lambda: 0.0)
        assert len(left["candidates"]) == len(left["patterns"]) > 0
        experience = {
            "input_requirements": {"name": "x"}, "generated_workflow": {"choices": [1]},
            "achieved_performance": {"score": 0.5}, "context_metadata": {}, "REPLAY_PRIORITY": 0.5,
        }  # fmt: skip
        run(java("memorySystem.storeExperience"), memory_system=memory, Experience=Experience, **experience)
        assert len(memory.experiences) == stored + 1


def test_1_the_minimal_example_on_a_tokenizer_without_a_chat_template(gpt2: Path) -> None:
    code = snippet(1, 'model_name="gpt2"', num_episodes="1", num_generations="2", max_turns="2")
    left = run(code.replace("asyncio.run(train())", "trained = asyncio.run(train())"))
    before = GPT2LMHeadModel.from_pretrained(gpt2).state_dict()
    assert any(not torch.equal(value, before[name]) for name, value in left["trained"].model.state_dict().items())


def test_1_values_settings_and_profiles() -> None:
    torch.manual_seed(0)
    agent = talk()["agent"]
    asyncio.run(agent.initialize())
    found = run(snippet(1, "create_value_function("), agent=agent)["advantages"]
    assert found.sum().item() == pytest.approx(0.0, abs=1e-6)
    assert run(snippet(1, "# GRPO-specific"))["config"].loss.beta == 0.1
    assert run(snippet(1, "# Reduce memory"))["config"].policy.gradient_checkpointing
    assert run(snippet(1, "TrainingProfile.CONSERVATIVE"))["config"] == TrainingConfig.from_profile("aggressive")


def test_1_the_loop_and_the_step_that_it_describes() -> None:
    """The bodies that the document prints, over the trainer's methods of the same names."""
    given = talk()
    trainer = GRPOTrainer(given["agent"], given["environment"], given["reward_function"], given["config"])
    methods = {name: getattr(trainer, name) for name in ("generate_trajectories", "evaluate", "save_checkpoint")}
    losses, scheduled = {"compute_grpo_loss": trainer.compute_grpo_loss}, []
    steps: list[Any] = []

    async def by_hand(groups: Any) -> Any:
        model = trainer.agent.language.model
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        space = run(
            snippet(1, "async def training_step("), **losses, model=model, optimizer=optimizer, scaler=None,
            use_amp=False, autocast=lambda enabled: torch.autocast("cpu", enabled=enabled), max_grad_norm=1.0,
            metrics={"done": True}, clip_grad_norm_=torch.nn.utils.clip_grad_norm_,
            lr_scheduler=SimpleNamespace(step=lambda: scheduled.append(1)),
        )  # fmt: skip
        steps.append(await space["training_step"](groups))
        return steps[-1]

    loop = run(
        snippet(1, "# 1. Generate trajectories"), **methods, **losses, training_step=by_hand, num_episodes=1,
        eval_steps=1, save_steps=1, scenarios=given["scenarios"], eval_scenarios=given["scenarios"],
    )  # fmt: skip

    async def all_of_it() -> None:
        await trainer.initialize()
        await loop["train"]()

    asyncio.run(all_of_it())
    assert (steps, scheduled) == ([{"done": True}], [1])
    assert list(Path("runs").glob("*/checkpoints/*/COMPLETE"))
    trainer.close()


@pytest.mark.parametrize("name", ["_compute_group_policy_loss", "_update_policy"])
def test_1_methods_that_it_outlines_have_its_parameters(name: str) -> None:
    outlined = run(snippet(1, f"def {name}("))[name]
    ours = list(inspect.signature(getattr(MultiTurnGRPOTrainer, name)).parameters)
    assert len(ours) == 1 + len(inspect.signature(outlined).parameters)
    assert ours[1:] == list(inspect.signature(outlined).parameters)
    assert inspect.iscoroutinefunction(getattr(MultiTurnGRPOTrainer, name)) == inspect.iscoroutinefunction(outlined)


def test_1_training_with_trl() -> None:
    pytest.importorskip("trl")
    given = talk()
    cfg = given["config"].replace(beta=0.1, use_reference_model=True)
    code = snippet(1, "train_with_trl_grpo")
    names = {"config": cfg, "agent": given["agent"], "env": given["environment"], "reward_fn": given["reward_function"]}
    assert run(code, **names)["trained_agent"] is given["agent"]


def test_2_trajectories_from_files_to_a_loss(tmp_path: Path) -> None:
    torch.manual_seed(0)
    for name in ("good", "bad"):
        (tmp_path / f"{name}.py").write_text(f"def solve():\n    return {name!r}\n")
    results = [{"workflow_path": str(tmp_path / f"{name}.py")} for name in ("good", "bad")]
    names = {"eval_results": results, "problem": {"question": "2+2=?"}, "rewards": [1.0, 0.0], "problem_idx": 7}
    trajectory = run(snippet(2, "# Read actual workflow code"), **names)["trajectory"]
    rows = TrajectoryDataset([trajectory], character_tokenizer(), max_length=2048)
    assert [float(rows[n]["reward"]) for n in range(len(rows))] == [1.0, 0.0]
    outlined = re.search(r"def (\w+)\((.*)\):", snippet(2, "def compute_grpo_advantages("))
    assert outlined is not None
    wanted = [name.split("=")[0].strip() for name in outlined[2].split(",")]
    assert list(inspect.signature(compute_grpo_advantages).parameters)[: len(wanted)] == wanted
    mask = torch.ones(3, 4)
    found = compute_grpo_advantages(
        torch.tensor([1.0, 1.0, 0.0]), mask, torch.zeros(3, dtype=torch.long), norm_by_std=True
    )
    assert np.allclose(found[:, 0], [0.70, 0.70, -1.41], atol=0.01)


def test_2_the_loss_that_it_prints_has_our_gradient_up_to_the_shift() -> None:
    """The document forgets that logits at t − 1 predict token t (fault 4); on shifted logits both agree."""
    torch.manual_seed(0)
    printed = run(snippet(2, "def compute_grpo_loss("), F=torch.nn.functional, entropy=None)["compute_grpo_loss"]
    logits, ids = torch.randn(2, 5, 7, requires_grad=True), torch.randint(7, (2, 5))
    mask, advantages = torch.tensor([[0, 0, 1, 1, 1], [0, 1, 1, 1, 0]]), torch.tensor([1.0, -1.0])
    (theirs,) = torch.autograd.grad(
        printed(logits[:, :-1], ids[:, 1:], mask[:, 1:], advantages[:, None])["loss"], logits
    )
    (ours,) = torch.autograd.grad(compute_grpo_loss(logits, ids, mask, advantages)["loss"], logits)
    assert theirs.abs().sum() > 0
    assert torch.allclose(ours, theirs, atol=1e-6)


def test_4_training_before_the_engine_and_before_many_gpus() -> None:
    """Only the settings are added, so that it is over soon."""
    given = talk()
    short = {name: value for name, value in SMALL.items() if name != "num_episodes"}
    quick = {
        "train": lambda *positional, **named: train(*positional, **named, **short),
        "GRPOTrainer": lambda *positional: GRPOTrainer(*positional, given["config"]),
    }
    for begin, name, changes in ((BEFORE[0], "train", {"num_episodes": "1"}), (BEFORE[1], "GRPOTrainer", {})):
        code = snippet(4, begin, **changes).replace(f"from {PLACES[name]} import {name}\n", "")
        trainer = run(code, **{**given, **quick})["trainer"]
        assert trainer.path is not None
        assert [event.type for event in read_events(trainer.path / "events.jsonl")][-1] == "end"


def distributed_training() -> str:
    """The second half of the block about many GPUs, as it was written."""
    assert SEEDS is not None
    text = next(SEEDS.glob("004-*.md")).read_text("utf8")
    code = text.partition("# After (Distributed Multi-GPU)\n")[2].partition("```")[0]
    return IMPORT.sub(lambda found: "\n".join(_ours(found[1])), code)


@pytest.mark.long
def test_4_training_on_four_ranks() -> None:
    given = talk()
    agent, cfg = given["agent"], given["config"].replace(tasks_per_step=4, num_episodes=2)
    asyncio.run(agent.initialize())
    before = {name: value.clone() for name, value in agent.language.model.state_dict().items()}
    results = run(distributed_training(), **given, training_config=cfg)["results"]
    assert (results.steps, results.reason, results.attempts) == (2, "finished", 1)
    start = read_events(results.path / "events.jsonl")[0].data["config"]
    assert start["optim"]["bf16"] is start["policy"]["gradient_checkpointing"] is True
    assert start["optim"]["gradient_accumulation_steps"] == 2
    saved = load_file(results.path / "checkpoints/000002/model.safetensors")
    now = agent.language.model.state_dict()
    assert all(torch.equal(now[name.removeprefix("model.")], value) for name, value in saved.items())
    assert any(not torch.equal(now[name], value) for name, value in before.items())


def test_4_large_models_ask_for_eight_ranks() -> None:
    config = run(snippet(4, "# Use distributed training for large models"), model_size=2_000_000_000)["config"]
    assert (config.world_size, config.mixed_precision, config.gradient_accumulation_steps) == (8, True, 4)


def test_4_agents_answer_without_being_initialised() -> None:
    names = {
        "config": {"model_name": "tiny", "max_new_tokens": 6},
        "prompt": "Hello",
        "dialogue_db": DialogueDatabase(),
    }
    left = run(snippet(4, "# Before (Single-turn Agent)"), **names)
    assert left["response"].metadata["strategy"] == "customer_service"
    assert left["context"].user_id == "user123"


@pytest.mark.parametrize(
    ("begin", "made"),
    [
        ("# Before (Simple Rewards)", "ruler_reward"),
        ("# Before (Hand-crafted Rewards)", "neural_reward"),
        ("# Before (Simple Multi-objective)", "reward"),
        ("# Combine multiple reward types", "reward"),
        ("# Choose strategy based on domain", "strategies"),
    ],
)
def test_4_rewards_and_strategies(begin: str, made: str) -> None:
    assert made in run(snippet(4, begin))


@pytest.mark.filterwarnings("ignore:group_strategy")
@pytest.mark.parametrize("strategy", ["auto", "task", "difficulty", "length"])
def test_003_the_update_of_the_plan_runs_on_the_parts_of_our_grpo(strategy: str) -> None:
    """`compute_gae` is the one name that the document uses and leaves open."""
    grpo, rng = GRPO(strategy, n_groups=3), np.random.default_rng(0)
    rollouts = [
        SimpleNamespace(obs=rng.normal(size=(n, 3)), actions=rng.integers(2, size=n), rewards=np.ones(n))
        for n in range(2, 12)
    ]
    plan = run(snippet(3, "class GRPO:"), compute_gae=grpo.compute_gae)["GRPO"]
    named = set(re.findall(r"self\.(\w+)", snippet(3, "class GRPO:")))
    assert {name for name in named if not hasattr(grpo, name)} == set()
    assert list(inspect.signature(plan).parameters)[:3] == list(inspect.signature(GRPO).parameters)[:3]
    loss = plan.update(grpo, rollouts)
    assert torch.isfinite(loss)
    assert grpo.policy is not None
    loss.backward()
    assert all(parameter.grad is not None for parameter in grpo.policy.actor_parameters())
