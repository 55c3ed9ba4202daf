"""The three products with a language model, as the package knows them before a run asks for one."""

from groupwise.config.sections import LanguageSettings, RewardSettings, SamplingSettings
from groupwise.products import Metric, Product

SECTIONS = (SamplingSettings, LanguageSettings, RewardSettings)
# The first metric is the one that reports judge a run by.
EVALUATION = (
    Metric(name="eval/accuracy", meaning="right answers to held-out tasks", unit="share", better="higher"),
    Metric(name="eval/reward_mean", meaning="mean reward on held-out tasks", better="higher"),
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

LANGUAGE = Product(
    name="language",
    summary="a language model learns single answers to verifiable tasks",
    implementation="groupwise.agents.language_product",
    sections=SECTIONS,
    metrics=(*EVALUATION, *SAMPLED),
    language_model=True,
    warm_start="warm-start",
)
AGENT = Product(
    name="agent",
    summary="a language model learns conversations of several turns, with tools",
    implementation="groupwise.agents.agent_product",
    sections=SECTIONS,
    metrics=(*EVALUATION, TURNS),
    language_model=True,
    warm_start="warm-start",
)
WARM_START = Product(
    name="warm-start",
    summary="a language model imitates right answers before it learns by GRPO",
    implementation="groupwise.agents.warm_start",
    sections=SECTIONS,
    metrics=(*EVALUATION, *SAMPLED, TURNS, SUPERVISED),
    language_model=True,
    warm_start="warm-start",
)
