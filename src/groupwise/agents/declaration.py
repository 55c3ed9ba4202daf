"""The three products with a language model, as the package knows them before a run asks for one."""

from functools import partial

from groupwise.config.sections import LanguageSettings, RewardSettings, SamplingSettings
from groupwise.products import Metric, Product

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

declared = partial(
    Product, sections=(SamplingSettings, LanguageSettings, RewardSettings), language_model=True, warm_start="warm-start"
)
LANGUAGE = declared(
    name="language",
    summary="a language model learns single answers to verifiable tasks",
    implementation="groupwise.agents.language_product",
    metrics=(*EVALUATION, *SAMPLED),
)
AGENT = declared(
    name="agent",
    summary="a language model learns conversations of several turns, with tools",
    implementation="groupwise.agents.agent_product",
    metrics=(*EVALUATION, TURNS),
)
WARM_START = declared(
    name="warm-start",
    summary="a language model imitates correct answers before it learns by GRPO",
    implementation="groupwise.agents.warm_start",
    metrics=(*EVALUATION, *SAMPLED, TURNS, SUPERVISED),
)
