"""The shapes of requests and answers, from which the OpenAPI document is made."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, model_validator

Text = Annotated[str, Field(min_length=1, max_length=20_000)]
RunName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._+=@-]{0,99}$", max_length=100)]


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Fault(BaseModel):
    """What went wrong, with the value and the limit; what to do about it; and which field is at fault."""

    code: str
    message: str
    hint: str = ""
    field: str = ""


class Refusal(BaseModel):
    """The one shape of every error."""

    error: Fault


class TrainRequest(Shape):
    """What to train: `prompts` for a language model, or the whole `config` of a run of any product."""

    prompts: Annotated[list[Text], Field(min_length=1, max_length=10_000)] | None = None
    held_out: Annotated[list[Text], Field(min_length=1, max_length=10_000)] | None = Field(
        None, description="Prompts to judge on. Without them: a tenth of the prompts, or our own where they are few."
    )
    config: dict[str, Any] | None = Field(None, description="Settings as in a settings file, nested or flat.")
    strategy: Literal["computational"] = Field("computational", description="Where it is computed: on this machine.")
    num_iterations: Annotated[int, Field(ge=1, le=1_000_000)] = 10
    use_neural_rewards: StrictBool = False
    use_ruler_rewards: StrictBool = False
    reward: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        "customer_service", description="The reward by its name; see docs/rewards.md."
    )
    model: Annotated[str, Field(min_length=1, max_length=500)] = Field(
        "tiny", description="The model to begin with: tiny, a run, a folder or a hub name."
    )
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 0
    name: RunName | None = Field(None, description="The run's name; one is made up without it.")

    @model_validator(mode="after")
    def _one_of_both(self) -> TrainRequest:
        if (self.prompts is None) == (self.config is None):
            raise ValueError("give either prompts or config")
        return self


class JobView(BaseModel):
    """A job: what was asked for, and how its run stands."""

    id: str
    state: Literal["queued", "running", "finished", "failed", "cancelled"]
    cancelling: bool = Field(description="It runs, and ends after its present step.")
    run: str
    product: str
    created: float
    updated: float
    step: int
    total: int
    attempt: int = Field(description="How often the run's process was started.")
    metrics: dict[str, float | None]
    error: Fault | None = None
    request: dict[str, Any]


class JobList(BaseModel):
    jobs: list[JobView]


class RunView(BaseModel):
    """A run as it stands, whoever started it."""

    id: str
    state: str = Field(description="created, running, interrupted, stopped, failed, finished or damaged.")
    step: int
    total: int
    attempt: int
    updated: float
    metrics: dict[str, float | None]


class RunList(BaseModel):
    runs: list[RunView]


class RunWhole(RunView):
    job: str | None = Field(description="The job that it belongs to, if it has one.")
    config: dict[str, dict[str, Any]]
    events: int = Field(description="How many events there are: the number of the next one.")


class EventView(BaseModel):
    v: int
    run: str
    seq: int
    attempt: int
    time: float
    step: int
    type: str
    data: dict[str, Any]


class EventPage(BaseModel):
    """Events in order. `next` is the number to go on from; with `points`, steps and evaluations are thinned out."""

    run: str
    attempt: int
    next: int
    count: int
    thinned: bool
    events: list[EventView]


class Curve(BaseModel):
    steps: list[int]
    values: list[float]


class SeriesPage(BaseModel):
    """Curves of at most `points` points: of each stretch the lowest and the highest value."""

    run: str
    next: int
    names: list[str]
    series: dict[str, Curve]


class AttemptView(BaseModel):
    trajectory_id: str
    total: float | None = Field(description="The score; null where the attempt failed.")
    parts: dict[str, float | None]
    flags: list[str]
    advantage: float
    length: int
    end: str
    failure: str
    version: int
    text: str


class GroupView(BaseModel):
    id: str
    task_id: str
    prompt: str
    size: int
    mean: float | None
    std: float | None
    zero_signal: bool = Field(description="All scores are equal: nothing can be learned from it.")
    attempts: list[AttemptView]


class GroupPage(BaseModel):
    run: str
    step: int
    groups: list[GroupView]


class GroupSteps(BaseModel):
    run: str
    steps: list[int]


class TokenView(BaseModel):
    text: str
    advantage: float | None = Field(description="Null at tokens the model was given.")
    logp: float | None


class TurnView(BaseModel):
    role: Literal["policy", "context"]
    tokens: list[TokenView]


class TrajectoryView(AttemptView):
    step: int
    group_id: str
    task_id: str
    prompt: str
    turns: list[TurnView] = Field(description="Empty where tokens were not recorded.")


class ChatRequest(Shape):
    """What is said to a model, and how it should answer."""

    message: Annotated[str, Field(min_length=1, max_length=100_000)]
    strategy: Annotated[str, Field(min_length=1, max_length=60)] | None = Field(
        None, description="How the conversation is led: customer_service, technical_support, educational or sales."
    )
    conversation_id: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        None, description="The conversation to go on with; a new one without it."
    )
    model: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        None, description="The base model or a trained run; the service's own without it."
    )
    stream: StrictBool = False
    system: Annotated[str, Field(max_length=20_000)] | None = None
    temperature: Annotated[float, Field(ge=0, le=10)] | None = None
    max_new_tokens: Annotated[int, Field(ge=1, le=100_000)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**53)] | None = None


class CallView(BaseModel):
    """A tool that was called, and what came of it."""

    name: str
    arguments: dict[str, Any]
    outcome: str
    content: str
    seconds: float
    text: str = ""


class ChatAnswer(BaseModel):
    conversation_id: str
    response: str
    model: str
    strategy: str | None
    state: dict[str, Any]
    turn: int
    tokens: int
    end: str
    seconds: float
    compressed: bool
    calls: list[CallView]


class ConversationSummary(BaseModel):
    conversation_id: str
    strategy: str | None
    turns: int
    created: float
    updated: float
    preview: str


class ConversationList(BaseModel):
    conversations: list[ConversationSummary]


class ConversationView(ConversationSummary):
    state: dict[str, Any]
    messages: list[dict[str, Any]]


class ModelView(BaseModel):
    id: str
    kind: Literal["base", "run"]
    step: int | None


class ModelList(BaseModel):
    models: list[ModelView]
    strategies: list[str]
