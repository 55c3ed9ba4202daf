"""What the package knows of the products with a language model before a run asks for one."""

from groupwise.config.sections import LanguageSettings, RewardSettings, SamplingSettings
from groupwise.products import Metric, Product

SECTIONS = (SamplingSettings, LanguageSettings, RewardSettings)
ACCURACY = Metric(name="eval/accuracy", meaning="right answers to held-out tasks", unit="share", better="higher")

LANGUAGE = Product(
    name="language",
    summary="a language model learns single answers to verifiable tasks",
    implementation="groupwise.agents.language_product",
    sections=SECTIONS,
    metrics=(ACCURACY,),
    language_model=True,
    warm_start="warm-start",
)
AGENT = Product(
    name="agent",
    summary="a language model learns conversations of several turns, with tools",
    implementation="groupwise.agents.agent_product",
    sections=SECTIONS,
    metrics=(ACCURACY,),
    language_model=True,
    warm_start="warm-start",
)
WARM_START = Product(
    name="warm-start",
    summary="a language model imitates right answers, before it learns by GRPO",
    implementation="groupwise.agents.warm_start",
    sections=SECTIONS,
    metrics=(ACCURACY,),
    language_model=True,
    warm_start="warm-start",
)
