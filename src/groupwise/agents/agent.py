"""`Agent`: a language model with its engine, which answers prompts. `MultiTurnAgent` builds on it."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Self

from groupwise.agents.conversation.chat_format import Frame
from groupwise.agents.conversation.compression import ContextFull
from groupwise.agents.model_start import load_start
from groupwise.agents.settings import SAMPLING, AgentConfig
from groupwise.config import TrainingConfig
from groupwise.errors import ContractError
from groupwise.language.engine import Engine, SamplingParams
from groupwise.language.loading import LanguageModel
from groupwise.types import Message


class NotInitialized(ContractError):
    code = "not_initialized"


class Agent:
    """Answers prompts with a language model. The first answer loads it, or `initialize` before; `close` frees it.

    Args:
      config: an `AgentConfig`, its fields in a mapping, or the name of a model.
      language: a model that is already loaded; otherwise `initialize` loads the one in the settings.
      slots: answers generated at once; more have to wait.
    """

    def __init__(
        self, config: AgentConfig | Mapping[str, Any] | str, *, language: LanguageModel | None = None, slots: int = 32
    ) -> None:
        self.config = _as_config(config)
        self.slots = slots
        self._given = language
        self._parts: tuple[LanguageModel, Engine, Frame] | None = None
        self._loading = asyncio.Lock()
        self._answered = 0

    async def initialize(self) -> Self:
        """Load the model unless it is already loaded. Whatever needs the model first does this by itself."""
        if self._parts is None:
            # Two answers at once must not load it twice.
            async with self._loading:
                if self._parts is None:
                    self.use(await asyncio.to_thread(self._load) if self._given is None else self._given)
        return self

    def _load(self) -> LanguageModel:
        # Sampling settings do not matter for loading, and a run would refuse a temperature of 0.
        settings = self.config.training_settings()
        return load_start(TrainingConfig(**{name: value for name, value in settings.items() if name not in SAMPLING}))

    def use(self, language: LanguageModel) -> None:
        """Answer with this model from now on; answers of the previous one are cut off."""
        frame = Frame(
            language.tokenizer, f"'{language.name}'", self.config.chat_template_kwargs, self.config.tool_format
        )
        if self._parts is not None:
            self._parts[1].close()
        engine = Engine(language.model, language.tokenizer, slots=self.slots, ends=frame.end_ids).start()
        self._parts = language, engine, frame

    async def close(self) -> None:
        """End all answers and free the engine. The model itself stays usable."""
        if self._parts is not None:
            await asyncio.to_thread(self._parts[1].close)
            self._parts = None

    async def __aenter__(self) -> Self:
        return await self.initialize()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def language(self) -> LanguageModel:
        """The model with its tokenizer and name, as trainers take it."""
        return self._ready()[0]

    @property
    def model(self) -> Any:
        return self.language.model

    @property
    def tokenizer(self) -> Any:
        return self.language.tokenizer

    @property
    def engine(self) -> Engine:
        return self._ready()[1]

    @property
    def frame(self) -> Frame:
        """The model's chat format; a plain one for a model without a chat template."""
        return self._ready()[2]

    async def generate_response(self, prompt: str | Sequence[Message], *, seed: int | None = None) -> str:
        """Return the answer to a prompt or a list of messages. Without a `seed`, answer n is sampled with seed n.

        A model without a chat template continues the text.
        """
        await self.initialize()
        if not self.tokenizer.chat_template and isinstance(prompt, str):
            ids = list(self.tokenizer.encode((self.config.system_prompt or "") + prompt))
        else:
            ids = self.frame.opening(self._opening(prompt))
        if seed is None:
            seed, self._answered = self._answered, self._answered + 1
        return await self._say(ids, self.config.sampling_params(), seed)

    def _opening(self, prompt: str | Sequence[Message]) -> list[Message]:
        messages: list[Message] = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
        system = self.config.system_prompt
        if system and messages and messages[0]["role"] != "system":
            return [{"role": "system", "content": system}, *messages]
        return messages

    async def _say(self, ids: Sequence[int], params: SamplingParams, seed: int) -> str:
        limit = self.engine.max_length
        if not 1 <= len(ids) < limit:
            message = f"the prompt has {len(ids)} tokens; it must have 1 to {limit - 1} to leave room for an answer"
            raise ContextFull(message, hint="Send a shorter prompt." if ids else "Send a prompt that is not empty.")
        future = self.engine.submit(ids, params, seed)
        try:
            sampled = await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            self.engine.cancel(future)
            raise
        text: str = self.tokenizer.decode(sampled.ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        # The sampled tokens include the stop string; the answer does not.
        return text[: min([len(text), *(place for stop in params.stop if (place := text.find(stop)) >= 0)])]

    def _ready(self) -> tuple[LanguageModel, Engine, Frame]:
        if self._parts is None:
            message = f"the agent's model {self.config.model_name!r} is not loaded yet"
            raise NotInitialized(message, hint="Call `await agent.initialize()` first.")
        return self._parts


def _as_config(config: AgentConfig | Mapping[str, Any] | str) -> AgentConfig:
    if isinstance(config, AgentConfig):
        return config
    if isinstance(config, str):
        return AgentConfig(model_name=config)
    if not isinstance(config, Mapping):
        raise ContractError(f"an agent needs an AgentConfig, a mapping or the name of a model, not {config!r:.60}")
    return AgentConfig(**config)
