"""`AgentConfig`: an agent's model, its system prompt and its sampling settings.

Annotations here are read at run time, so this module does not postpone their evaluation.
"""

from typing import Any, ClassVar, Literal

from groupwise.config import Section, TrainingConfig, setting
from groupwise.config.fields import Options
from groupwise.config.sections import SETTINGS
from groupwise.language.engine import SamplingParams

SAMPLING = ("max_new_tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty")


class AgentConfig(Section):
    """An agent's settings, read into their types and checked when it is made.

    `sampling_params()` is what the engine takes; `training_settings()` is what `TrainingConfig` takes:

        TrainingConfig(**AgentConfig(model_name="tiny").training_settings(), num_episodes=100)
    """

    SECTION: ClassVar[str] = "agent"

    model_name: str = setting("tiny", "language model: tiny, a folder, a run or a hub name")
    system_prompt: str | None = setting(None, "system prompt: instructions before the conversation")
    temperature: float = setting(1.0, "divides the logits; 0 takes the likeliest token", ge=0)
    max_new_tokens: int = setting(512, "tokens after which an answer is cut off", ge=1)
    top_p: float = setting(
        1.0, "sample from the most likely tokens that make up this probability; 1 is off", gt=0, le=1
    )
    top_k: int = setting(0, "sample from this many most likely tokens; 0 is off", ge=0)
    min_p: float = setting(
        0.0, "sample from tokens at least this likely relative to the most likely; 0 is off", ge=0, lt=1
    )
    repetition_penalty: float = setting(1.0, "above 1, tokens seen before become less likely; 1 is off", gt=0)
    stop: tuple[str, ...] = setting((), "strings that end an answer; they are not part of it")
    lora_rank: int = setting(0, "rank of a LoRA adapter; 0 trains all weights", ge=0)
    lora_alpha: float | None = setting(None, "scale of the adapter; null is twice the rank", gt=0)
    lora_options: Options = setting(
        Options(), "more arguments of PEFT's LoraConfig, such as target_modules or use_dora"
    )
    quantization: Literal["8bit", "4bit"] | None = setting(None, "load the frozen weights in 8 or 4 bits")
    dtype: Literal["float32", "bfloat16"] = setting("float32", "precision of the loaded weights")
    device: str = setting("cpu", "where the model runs")
    chat_template_kwargs: Options = setting(
        Options(), "options of the model's chat template, such as enable_thinking; a row's or a request's come first"
    )
    tool_format: str | None = setting(
        None, "how the model writes tool calls; null finds out from its chat template, docs/tools.md lists the names"
    )

    embedding: str | None = setting(
        None,
        "sentence-embedding model, a folder or a hub name, to find facts and dialogues by meaning; null uses words",
    )
    memory: str | None = setting(
        None, "file with what users say about themselves, created if missing; null remembers nothing"
    )

    def sampling_params(self) -> SamplingParams:
        """How the engine is to sample."""
        return SamplingParams(**{name: getattr(self, name) for name in SAMPLING}, stop=self.stop)

    def training_settings(self) -> dict[str, Any]:
        """The settings that a run shares with its agent, flat; what only a conversation needs is left out."""
        return {name: value for name, value in self.items() if name in SETTINGS}

    def chosen_sampling(self, settings: TrainingConfig) -> dict[str, Any]:
        """This agent's sampling settings, for a run whose own settings leave them at the default.

        A temperature of 0 is for answering: a group of equal attempts has nothing to compare.
        """
        usual = AgentConfig()
        return {
            name: value
            for name in SAMPLING
            if (value := getattr(self, name)) != getattr(usual, name)
            and getattr(settings.sampling, name) == SETTINGS[name].default
            and (name, value) != ("temperature", 0)
        }
