"""Request and response schemas; the OpenAPI document is generated from them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, model_validator

Text = Annotated[str, Field(min_length=1, max_length=20_000)]
Prompts = Annotated[list[Text], Field(min_length=1, max_length=10_000)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
RUN_NAME = r"^[A-Za-z0-9_][A-Za-z0-9._+=@-]{0,99}$"
RunName = Annotated[str, Field(pattern=RUN_NAME, max_length=100)]


class RequestModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ErrorDetail(BaseModel):
    """What went wrong (with the value and the limit), what to do about it, and which field caused it."""

    code: str
    message: str
    hint: str = ""
    field: str = ""


class Refusal(BaseModel):
    """The body of every error response."""

    error: ErrorDetail


class TrainRequest(RequestModel):
    """What to train: `prompts` for a language model, or the complete `config` of a run of any product."""

    prompts: Prompts | None = None
    held_out: Prompts | None = Field(
        None,
        description="Evaluation prompts. Default: a tenth of the prompts, or built-in ones if there are fewer than 20.",
    )
    config: dict[str, Any] | None = Field(None, description="Settings, nested or flat, as in a settings file.")
    strategy: Literal["computational"] = Field(
        "computational", description="How: the groups of a step are scored by worker processes, see POST /api/scale."
    )
    num_iterations: Annotated[int, Field(ge=1, le=1_000_000)] = 10
    use_neural_rewards: StrictBool = False
    use_ruler_rewards: StrictBool = False
    reward: Name = Field("customer_service", description="The name of the reward; see docs/rewards.md.")
    model: Annotated[str, Field(min_length=1, max_length=500)] = Field(
        "tiny", description="The initial model: tiny, a run, a folder or a Hugging Face Hub name."
    )
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 0
    name: RunName | None = Field(None, description="The run's name. Default: a generated one.")

    @model_validator(mode="after")
    def _one_of_both(self) -> TrainRequest:
        if (self.prompts is None) == (self.config is None):
            raise ValueError("send exactly one of prompts and config")
        return self


class JobView(BaseModel):
    """A job: the request, and the state of its run."""

    id: str
    state: Literal["queued", "running", "finished", "failed", "cancelled"]
    cancelling: bool = Field(description="The job is running and will stop after the current step.")
    run: str
    product: str
    created: float
    updated: float
    step: int
    total: int
    attempt: int = Field(description="How often the run's process was started.")
    metrics: dict[str, float | None]
    error: ErrorDetail | None = None
    request: dict[str, Any]


class Paged(BaseModel):
    """A page of a list. Ask for the next one with `from` = `next`."""

    total: int = Field(description="How many there are in all.")
    next: int | None = Field(description="The place of the first one of the next page; null on the last page.")


class JobList(Paged):
    jobs: list[JobView]


class RunView(BaseModel):
    """The current state of a run, whoever started it."""

    id: str
    state: str = Field(
        description="queued, created, running, stopping, interrupted, stopped, cancelled, failed, finished or damaged."
    )
    step: int
    total: int
    attempt: int
    updated: float
    metrics: dict[str, float | None]
    product: str = ""
    environment: str = ""
    title: str = Field("", description="A name for people; the run's own name never changes.")
    tags: list[str] = []
    notes: str = ""
    archived: bool = False
    owner: str = Field("", description="The name of the key that started it; empty for the operator's runs.")
    job: str | None = Field(None, description="The job it belongs to, if any.")
    job_state: str | None = None
    error: ErrorDetail | None = Field(None, description="Why its job failed.")


class RunList(Paged):
    runs: list[RunView]
    counts: dict[str, dict[str, int]] = Field(
        description="How many runs there are for each state, product, environment, tag and owner."
    )


Tag = Annotated[str, Field(min_length=1, max_length=40, pattern=r"^[^,\n]+$")]


class LabelChange(RequestModel):
    """What to change of a run's labels; what is left out stays as it is."""

    title: Annotated[str, Field(max_length=100)] | None = None
    tags: Annotated[list[Tag], Field(max_length=20)] | None = None
    notes: Annotated[str, Field(max_length=10_000)] | None = None
    archived: StrictBool | None = None


class RunOrder(RequestModel):
    """One change to many runs at once."""

    runs: Annotated[list[RunName], Field(min_length=1, max_length=1000)]
    do: Literal["archive", "restore", "tag", "untag", "delete"]
    tag: Tag | None = Field(None, description="The tag to add or remove.")

    @model_validator(mode="after")
    def _tag_is_given(self) -> RunOrder:
        if (self.tag is not None) != (self.do in ("tag", "untag")):
            raise ValueError("send tag with tag and untag, and with nothing else")
        return self


class RunRefusal(BaseModel):
    run: str
    error: ErrorDetail


class RunOrderAnswer(BaseModel):
    done: list[str]
    refused: list[RunRefusal]


class MetricView(BaseModel):
    """What a metric means: a row of the registry that the page, reports and documents read."""

    name: str
    meaning: str
    unit: str
    better: Literal["higher", "lower", ""]
    panel: str = Field(description="The chart it is drawn in; empty if it has none of its own.")
    label: str
    worry: str = Field(description="When to look closer.")


class RunWhole(RunView):
    config: dict[str, dict[str, Any]]
    events: int = Field(description="Number of events so far, which is also the number of the next one.")
    known: list[MetricView] = Field(description="The metrics it has logged so far, in the order to show them.")
    left_out: int = Field(description="Metrics that are too many to be drawn, and so are not among `known`.")
    report: bool = Field(description="Whether it has a report: GET /api/runs/{run}/report.")


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
    """Events in order. Continue from number `next`; with `points`, steps and evaluations are downsampled."""

    run: str
    attempt: int
    next: int
    count: int
    thinned: bool
    events: list[EventView]


class Curve(BaseModel):
    steps: list[int]
    values: list[float]
    at: list[float] | None = Field(None, description="Where each point stands on the axis, unless that is the step.")


class SeriesPage(BaseModel):
    """Curves downsampled to at most `points` points: the minimum and maximum of each interval."""

    run: str
    next: int
    names: list[str]
    series: dict[str, Curve]


class Arm(BaseModel):
    """Runs that differ in nothing but their seed."""

    name: str
    runs: list[str]


class CompareView(BaseModel):
    """Runs side by side, with the verdict of `groupwise compare`."""

    metric: str
    arms: list[Arm]
    settings: dict[str, dict[str, str]] = Field(description="The settings that differ, with each run's value.")
    headline: str
    verdicts: list[str]
    cautions: list[str]


class AttemptView(BaseModel):
    trajectory_id: str
    total: float | None = Field(description="The score; null if the attempt failed.")
    parts: dict[str, float | None]
    flags: list[str]
    advantage: float
    length: int
    end: str
    failure: str
    version: int
    text: str
    reasoning: str = Field(description="What the model thought before it said `text`; empty if it did not.")


class GroupView(BaseModel):
    id: str
    task_id: str
    prompt: str
    size: int
    mean: float | None
    std: float | None
    zero_signal: bool = Field(description="All scores are equal, so there is nothing to learn from.")
    attempts: list[AttemptView]


class GroupPage(BaseModel):
    run: str
    step: int
    scale: float = Field(description="The largest advantage of the step's attempts: what colours are measured by.")
    groups: list[GroupView]


class GroupSteps(BaseModel):
    run: str
    steps: list[int]


class StepAttempts(BaseModel):
    """The scored attempts of a step, column by column; of very many, whole groups evenly spaced."""

    run: str
    step: int
    recorded: int = Field(description="Attempts in the file.")
    shown: int
    unscored: int = Field(description="Left out because they have no finite score.")
    not_finite: int = Field(description="Left out because an observation or reward is not finite.")
    ids: list[str]
    group_names: list[str]
    groups: list[int] = Field(description="Each attempt's place in `group_names`.")
    tasks: list[str]
    totals: list[float]
    lengths: list[int]
    advantages: list[float] = Field(description="What the run learned from: the mean over an attempt's actions.")
    feature_names: list[str]
    features: list[list[float]] = Field(description="What clusters are made of, one row per attempt.")
    moments: list[list[int]] = Field(description="The steps of an attempt that were recorded.")
    rewards: list[list[float]] = Field(description="What was earned up to each moment since the one before.")
    values: list[list[float]] = Field(description="What a linear critic fitted to these attempts expects.")
    last_values: list[float] = Field(description="What it expects after the last moment; 0 after an end.")
    terminated: list[bool]
    explained_variance: float | None
    gamma: float
    gae_lambda: float
    size_unit: str = Field(description="What a group's size counts in the loss: actions or attempts.")


class GroupingView(BaseModel):
    """How a strategy divides the attempts of a step."""

    run: str
    step: int
    strategy: str
    iterations: list[list[int]] = Field(
        description="Each attempt's group after every iteration; −1 means none yet. The last is the result."
    )
    names: dict[str, str]
    earlier_steps: list[int] = Field(description="Steps that a strategy with a memory was shown first.")


class TokenView(BaseModel):
    text: str
    advantage: float | None = Field(description="Null for tokens that the model did not write.")
    logp: float | None


class TurnView(BaseModel):
    role: Literal["policy", "context"]
    tokens: list[TokenView]


class ExhibitView(BaseModel):
    """What else can be shown: an episode's moments, a design as a drawing, a program's cases, or a search tree."""

    model_config = ConfigDict(extra="allow")

    kind: Literal["episode", "design", "program", "search"]
    svg: str = Field("", description="A design, drawn.")
    changes: list[str] = Field([], description="What sets a design apart from the worst of its group.")


class TrajectoryView(AttemptView):
    step: int
    group_id: str
    task_id: str
    prompt: str
    scale: float = Field(description="The largest advantage of the step's attempts: what colours are measured by.")
    exhibit: ExhibitView | None = None
    turns: list[TurnView] = Field(description="Empty if tokens were not recorded.")


class ChatRequest(RequestModel):
    """A message to a model, and how it should answer."""

    message: Annotated[str, Field(min_length=1, max_length=100_000)]
    strategy: Annotated[str, Field(min_length=1, max_length=60)] | None = Field(
        None, description="The strategy: customer_service, technical_support, educational or sales."
    )
    conversation_id: Name | None = Field(
        None, description="The conversation to continue. Leave it out to start a new one."
    )
    model: Name | None = Field(None, description="The base model or a trained run. Default: the service's model.")
    stream: StrictBool = False
    system: Annotated[str, Field(max_length=20_000)] | None = None
    temperature: Annotated[float, Field(ge=0, le=10)] | None = None
    max_new_tokens: Annotated[int, Field(ge=1, le=100_000)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**53)] | None = None


class CallView(BaseModel):
    """A tool call and its result."""

    name: str
    arguments: dict[str, Any]
    outcome: str
    content: str
    seconds: float
    text: str = ""


class ChatAnswer(BaseModel):
    conversation_id: str
    response: str
    reasoning: str = Field("", description="What the model thought before it answered.")
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


class ConversationList(Paged):
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


LongText = Annotated[str, Field(min_length=1, max_length=2_000_000)]
FormatName = Annotated[str, Field(min_length=1, max_length=40)]
ShortText = Annotated[str, Field(min_length=1, max_length=300)]


class DesignRequest(RequestModel):
    """The requirements to design for, and the search budget."""

    requirements: LongText | dict[str, Any] = Field(description="YAML or JSON text, or the object itself.")
    workflow: LongText | None = Field(None, description="A workflow to start from, in any readable format.")
    format: FormatName | None = Field(None, description="Its format. Default: detected.")
    evaluations: Annotated[int, Field(ge=1, le=4096)] | None = Field(
        None, description="Designs to evaluate. Default: 64, and more until the starting design is beaten."
    )
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    check: StrictBool = Field(
        False, description="Simulate the best design and report how well its performance was predicted."
    )


class CheckRequest(RequestModel):
    """A workflow and, optionally, its requirements."""

    workflow: LongText = Field(description="The workflow's text, in any readable format.")
    format: FormatName | None = Field(None, description="Its format. Default: detected.")
    requirements: LongText | dict[str, Any] | None = None


class SimulateRequest(CheckRequest):
    cases: Annotated[int, Field(ge=20, le=1_000_000)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    tier: Literal["auto", "analytic", "simulation", "schedule"] = "simulation"
    pictures: StrictBool = Field(False, description="Also draw the first cases as moving tokens, and the queues.")


class ConvertRequest(CheckRequest):
    to: FormatName = Field(description="The format to write.")


class MoveEdit(RequestModel):
    """Put an activity directly before or after another one, or in parallel to it."""

    do: Literal["move"]
    activity: ShortText
    place: Literal["before", "after", "beside"]
    other: ShortText


class ChanceEdit(RequestModel):
    """Change one of the probabilities that the answer lists as `chances`."""

    do: Literal["chance"]
    of: ShortText
    value: Annotated[float, Field(ge=0, le=1)]


class RuleEdit(RequestModel):
    """Add a rule: a pair of activities, one activity (`must_include`), or seconds (`deadline`)."""

    do: Literal["rule"]
    rule: ShortText
    first: Annotated[str, Field(max_length=300)] = ""
    then: Annotated[str, Field(max_length=300)] = ""
    seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


class StaffEdit(RequestModel):
    """Give a pool so many servers."""

    do: Literal["staff"]
    pool: ShortText
    count: Annotated[int, Field(ge=1, le=100_000)]


class AssignEdit(RequestModel):
    """Have another pool do an activity."""

    do: Literal["assign"]
    activity: ShortText
    pool: ShortText


class EditRequest(RequestModel):
    """A workflow, its requirements, and edits in their order. Without edits, the answer says what can be edited."""

    workflow: LongText = Field(description="The workflow's text, in any readable format.")
    format: FormatName | None = Field(None, description="Its format. Default: detected.")
    requirements: LongText | dict[str, Any]
    edits: list[Annotated[MoveEdit | ChanceEdit | RuleEdit | StaffEdit | AssignEdit, Field(discriminator="do")]] = (
        Field([], max_length=200)
    )
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0


class DownloadView(BaseModel):
    format: str
    title: str
    suffix: str
    url: str
    cannot: str = Field(description="Why this format cannot express the workflow; empty if it can.")


class DesignView(BaseModel):
    """The best design found: its score as a tree of components, a picture, and where to download it."""

    model_config = ConfigDict(extra="allow")

    id: str
    name: str
    headline: str = Field(description="The result in one or two sentences.")
    sound: bool
    score: float
    groups: dict[str, float | None]
    explanation: dict[str, Any]
    broken: list[dict[str, Any]]
    design: str = Field(description="The design on one line.")
    servers: dict[str, int]
    evaluations: int
    svg: str
    performance: dict[str, Any] | None
    notes: list[str]
    downloads: list[DownloadView]


class EditView(BaseModel):
    """The edited workflow with its score, beside what it was before, and what can be edited next."""

    model_config = ConfigDict(extra="allow")

    id: str
    name: str
    ok: bool
    score: float | None = Field(description="0 if a rule is broken, null if no workflow could keep them all.")
    explanation: dict[str, Any] | None
    performance: dict[str, Any] | None
    broken: list[dict[str, Any]]
    contradictions: list[dict[str, Any]]
    before: dict[str, Any]
    edits: list[str] = Field(description="The edits in words.")
    changes: list[str] = Field(description="How the workflow differs from the one sent.")
    chances: dict[str, float]
    pools: dict[str, dict[str, int]]
    activities: dict[str, dict[str, Any]]
    rules: list[str] = Field(description="The kinds of rules that can be added.")
    requirements: dict[str, Any]
    svg: str
    downloads: list[DownloadView]


class CheckView(BaseModel):
    model_config = ConfigDict(extra="allow")

    ok: bool
    name: str
    graphs: dict[str, dict[str, Any]]
    broken: list[dict[str, Any]]
    contradictions: list[dict[str, Any]]
    notes: list[str]
    svg: str


class SimulateView(BaseModel):
    model_config = ConfigDict(extra="allow")

    ok: bool
    tier: str
    cycle_time: float | None
    cost: float | None
    throughput: float | None
    utilisation: dict[str, float | None]
    broken: list[dict[str, Any]]


class ExampleView(BaseModel):
    name: str
    requirements: str
    workflow: str | None


class ExampleList(BaseModel):
    examples: list[ExampleView]


class FormatView(BaseModel):
    name: str
    title: str
    suffix: str
    reads: bool
    writes: bool


class FormatList(BaseModel):
    formats: list[FormatView]


class ScaleRequest(RequestModel):
    """Change the number of workers of running jobs: by a factor, to a number, or within limits."""

    scale_factor: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] | None = None
    workers: Annotated[int, Field(ge=1, le=100_000)] | None = None
    least: Annotated[int, Field(ge=1, le=100_000)] | None = None
    most: Annotated[int, Field(ge=1, le=100_000)] | None = None
    job: Annotated[str, Field(min_length=1, max_length=32)] | None = Field(
        None, description="One job. Default: all jobs."
    )

    @model_validator(mode="after")
    def _one_way(self) -> ScaleRequest:
        limits = self.least is not None or self.most is not None
        if sum((self.scale_factor is not None, self.workers is not None, limits)) != 1:
            raise ValueError("send exactly one of scale_factor, workers, or limits (least and most)")
        if self.least is not None and self.most is not None and self.least > self.most:
            raise ValueError("least is above most")
        return self


class Order(BaseModel):
    job: str
    run: str
    order: str = Field(
        description="The id of this command; the run reports its outcome in a `control` event with the same id."
    )


class ScaleAnswer(BaseModel):
    orders: list[Order]
