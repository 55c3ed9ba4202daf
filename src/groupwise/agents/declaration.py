"""The three products with a language model, as the package knows them before a run asks for one."""

from functools import partial

from groupwise.config.nameable import REWARDS, DataFile, Known, Row, plain
from groupwise.config.sections import LanguageSettings, RewardSettings, SamplingSettings, ToolsSettings, VllmSettings
from groupwise.products import Metric, Product

# The first metric is the one that reports judge a run by.
EVALUATION = (
    Metric(name="eval/accuracy", meaning="right answers to held-out tasks", unit="share", better="higher"),
    Metric(name="eval/reward_mean", meaning="mean reward on held-out tasks", better="higher"),
    Metric(name="eval/check_mean", meaning="mean score by the task's own check on held-out tasks", better="higher"),
    Metric(name="eval/check_std", meaning="standard deviation of that score"),
    Metric(name="eval/check_failed_share", meaning="attempts that could not be checked", unit="share", better="lower"),
    Metric(name="eval/reward_std", meaning="standard deviation of the reward on held-out tasks"),
    Metric(name="eval/length_mean", meaning="mean length of an evaluated attempt", unit="tokens"),
    Metric(name="eval/attempts", meaning="attempts of the evaluation"),
    Metric(name="eval/failed_share", meaning="attempts that could not be graded", unit="share", better="lower"),
    Metric(name="eval/format", meaning="answers in the expected form", unit="share", better="higher"),
)
SAMPLED = (
    Metric(name="eval/drawn_reward_mean", meaning="mean reward of sampled held-out answers", better="higher"),
    Metric(name="eval/pass@*", meaning="tasks solved by at least one of k samples", unit="share", better="higher"),
)
TURNS = Metric(name="eval/turns_mean", meaning="mean number of the model's turns in a conversation", unit="turns")
SUPERVISED = Metric(
    name="loss/supervised",
    meaning="negative log-likelihood per token of the demonstrations",
    unit="nats",
    better="lower",
)
PROGRAM = Known(("program",))
REASONING_GYM = Known(registry="reasoning_gym.factory:DATASETS", prefix="reasoning_gym:")
PROBLEMS = (
    Known(registry="groupwise.agents.data.problems:TASKS"),
    REASONING_GYM,
    DataFile(),
)
# TextArena's games may download word lists, so they are not among them.
SCENARIOS = (
    Known(("orders",)),
    REASONING_GYM,
    DataFile("conversation:"),
    DataFile(),
)
NAMEABLE = (
    Row("task.options.check", "a built-in check", (Known(registry="groupwise.agents.data.dataset:CHECKS"),)),
    Row("task.options.eval_file", "a file in the data folder", (DataFile(),)),
    Row("task.options.python", "a Python to run"),
    Row("task.options.args", "options of an environment of verifiers"),
    Row("task.options.tasks", "a file in the data folder", (DataFile(),)),
    Row("task.options.held_out", "a file in the data folder", (DataFile(),)),
    Row("reward.name", "a built-in reward", (REWARDS, PROGRAM)),
    Row("reward.options.components", "built-in rewards", (REWARDS, PROGRAM)),
    Row("reward.options.tests", "code, which the sandbox runs"),
    *plain(
        "task.options.prompt", "task.options.answer", "task.options.answer_pattern", "task.options.demonstration",
        "task.options.demonstrations", "task.options.score", "task.options.kinds", "task.options.name",
        "reward.options.bad_tests",
    ),
)  # fmt: skip
SINGLE_ANSWERS = (
    Row("task.environment", "a built-in task, a reasoning-gym dataset, or a file in the data folder", PROBLEMS),
    *NAMEABLE,
)
# Code, commands and addresses: whoever names one decides what this machine runs, or whom it talks to.
TOOLS = Row("tools.sources", "code, commands and addresses of tools")
CONVERSATIONS = (
    TOOLS,
    Row(
        "task.environment",
        "orders, a reasoning-gym dataset, or a file in the data folder, also after conversation:",
        SCENARIOS,
    ),
    Row("task.options.memory", "a file that the run writes to"),
    *NAMEABLE,
)
BOTH = (
    TOOLS,
    Row(
        "task.environment",
        "a built-in task, orders, a reasoning-gym dataset, or a file in the data folder",
        (*PROBLEMS, *SCENARIOS),
    ),
    *NAMEABLE,
)

SECTIONS = (SamplingSettings, LanguageSettings, VllmSettings, RewardSettings)
declared = partial(
    Product,
    language_model=True,
    warm_start="warm-start",
)
LANGUAGE = declared(
    name="language",
    summary="a language model learns single answers to verifiable tasks",
    implementation="groupwise.agents.language_product",
    checks="groupwise.agents.checks:check_language_run",
    metrics=(*EVALUATION, *SAMPLED),
    nameable=SINGLE_ANSWERS,
    sections=SECTIONS,
)
AGENT = declared(
    name="agent",
    summary="a language model learns conversations of several turns, with tools",
    implementation="groupwise.agents.agent_product",
    checks="groupwise.agents.checks:check_agent_run",
    metrics=(*EVALUATION, TURNS),
    nameable=CONVERSATIONS,
    sections=(*SECTIONS, ToolsSettings),
)
WARM_START = declared(
    name="warm-start",
    summary="a language model imitates correct answers before it learns by GRPO",
    implementation="groupwise.agents.warm_start",
    checks="groupwise.agents.checks:check_warm_start",
    grouped=False,
    metrics=(*EVALUATION, *SAMPLED, TURNS, SUPERVISED),
    nameable=BOTH,
    sections=(*SECTIONS, ToolsSettings),
)
