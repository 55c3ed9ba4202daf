"""Runs: state, labels, events, curves, groups and attempts. A key sees the runs of its jobs; an administrator all."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse

from groupwise.errors import GroupwiseError
from groupwise.metrics import HELD_OUT
from groupwise.service import schemas
from groupwise.service.keys import Who
from groupwise.service.refusals import refusals
from groupwise.service.run_comparison import compared
from groupwise.service.run_index import change_labels
from groupwise.service.run_list import Order, Wanted, counted
from groupwise.service.runs import ReportNotFound
from groupwise.service.state import Asker, ServiceState, Shared

router = APIRouter(tags=["runs"])

RunId = Annotated[str, Path(pattern=schemas.RUN_NAME, max_length=100)]


def own_run(run: RunId, parts: Shared, who: Asker) -> str:
    """The name of the run, if the caller may see it."""
    return parts.ownership.run(run, who)


OwnRun = Annotated[str, Depends(own_run)]
Step = Annotated[int, Path(ge=0, lt=2**53)]
From = Annotated[int, Query(alias="from", ge=0, lt=2**53, description="The number of the first event.")]
Points = Annotated[int, Query(ge=2, le=10_000)]
Strategy = Literal["task", "difficulty", "length", "auto", "adaptive", "hierarchical", "dirichlet"]
Word = Annotated[str, Query(max_length=200)]


@router.get("/api/runs", responses=refusals())
def list_runs(
    parts: Shared,
    who: Asker,
    q: Annotated[str, Query(max_length=200, description="Words in its name, title, tags or notes.")] = "",
    state: Word = "",
    product: Word = "",
    environment: Word = "",
    tag: Word = "",
    owner: Word = "",
    archived: Annotated[
        Literal["no", "yes", "all"], Query(description="Archived runs are left out by default.")
    ] = "no",
    sort: Order = "recent",
    descending: bool = False,
    begin: Annotated[int, Query(alias="from", ge=0, lt=2**53, description="The place of the first run.")] = 0,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 200,
) -> schemas.RunList:
    """Your runs and queued jobs, page by page; an administrator sees all. `recent` puts those under way first."""
    shelved = {"no": False, "yes": True, "all": None}[archived]
    wanted = Wanted(q, state, product, environment, tag, owner, shelved, sort, descending)
    seen = parts.run_list.views(who)
    found = wanted.sorted([view for view in seen if wanted.fits(view)])
    following = begin + limit if begin + limit < len(found) else None
    # Made without checking again: these are our own values, and there may be thousands.
    return schemas.RunList.model_construct(
        runs=found[begin : begin + limit], total=len(found), next=following, counts=counted(seen)
    )


@router.get("/api/compare", responses=refusals(404))
def compare(
    parts: Shared,
    who: Asker,
    run: Annotated[list[schemas.RunName], Query(min_length=1, max_length=50, description="The runs to compare.")],
    metric: Annotated[str, Query(min_length=1, max_length=200)] = HELD_OUT,
) -> schemas.CompareView:
    """Which settings of runs differ, and which differences in a metric may be claimed."""
    names = [parts.ownership.run(name, who) for name in dict.fromkeys(run)]
    return schemas.CompareView.model_validate(compared(parts.runs, names, metric))


@router.post("/api/runs/orders", responses=refusals())
def order(request: schemas.RunOrder, parts: Shared, who: Asker) -> schemas.RunOrderAnswer:
    """Archive, restore, tag or delete many runs; each is done or refused on its own."""
    done, refused = [], []
    for run in dict.fromkeys(request.runs):
        try:
            _obey(parts, who, run, request)
            done.append(run)
        except GroupwiseError as error:
            told = schemas.ErrorDetail.model_validate(error.as_dict()["error"])
            refused.append(schemas.RunRefusal(run=run, error=told))
    return schemas.RunOrderAnswer(done=done, refused=refused)


def _obey(parts: ServiceState, who: Who, run: str, request: schemas.RunOrder) -> None:
    if request.do == "delete":
        _delete(parts, who, run)
        return
    path = parts.runs.path(parts.ownership.run(run, who))
    if request.tag is None:
        change = schemas.LabelChange(archived=request.do == "archive")
    else:
        tags = [tag for tag in parts.runs.index.look(run).labels.tags if tag != request.tag]
        change = schemas.LabelChange(tags=[*tags, request.tag] if request.do == "tag" else tags)
    change_labels(path, change)
    parts.runs.index.look(run)  # the next list shows it, however many runs there are


@router.get("/api/runs/{run}", responses=refusals(404))
def run_state(run: OwnRun, parts: Shared) -> schemas.RunWhole:
    """The state and settings of a run, and what its metrics mean."""
    view = parts.run_list.view(run)
    more: dict[str, Any] = {"config": {}, "events": 0, "known": [], "left_out": 0, "report": False}
    if run in parts.runs.index.cards:
        more = {
            "config": parts.runs.config(run), "events": len(parts.runs.log(run)), "known": parts.runs.known(run),
            "report": parts.runs.report(run) is not None, "left_out": parts.runs.log(run).left_out(),
        }  # fmt: skip
    return schemas.RunWhole.model_validate({**view.model_dump(), **more})


@router.patch("/api/runs/{run}", responses=refusals(404))
def label(run: OwnRun, change: schemas.LabelChange, parts: Shared) -> schemas.RunView:
    """Change a run's title, tags or notes, or archive it."""
    change_labels(parts.runs.path(run), change)
    return parts.run_list.view(run)


@router.delete("/api/runs/{run}", status_code=204, responses=refusals(404, 409))
def delete(run: OwnRun, parts: Shared, who: Asker) -> Response:
    """Delete a run that has no process, together with its job."""
    _delete(parts, who, run)
    return Response(status_code=204)


def _delete(parts: ServiceState, who: Who, run: str) -> None:
    job = parts.jobs.of_run(run)
    parts.ownership.delete(run, who)
    if job is not None:
        parts.job_changed(job)


@router.get("/api/runs/{run}/report", response_class=FileResponse, responses=refusals(404))
def report(run: OwnRun, parts: Shared) -> FileResponse:
    """The run's report: one page without scripts."""
    found = parts.runs.report(run)
    if found is None:
        hint = "It is written when a run ends; groupwise report writes it again."
        raise ReportNotFound(f"run {run} has no report yet", hint=hint)
    return FileResponse(found, media_type="text/html")


@router.get("/api/runs/{run}/events", response_model=schemas.EventPage, responses=refusals(404))
def events(
    run: OwnRun,
    parts: Shared,
    begin: From = 0,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    points: Annotated[
        int | None, Query(ge=2, le=10_000, description="Downsample steps and evaluations to this many, up to the end.")
    ] = None,
) -> Response:
    """The events of a run from a number on: page by page, or all of them downsampled."""
    if points is None:
        log, lines = parts.runs.events(run, begin, limit)
        following = begin + len(lines)
    else:
        log, lines = parts.runs.thinned_events(run, begin, points)
        following = len(log)
    thin = "false" if points is None else "true"
    head = f'{{"run":"{run}","attempt":{log.attempt},"next":{following},"count":{len(log)},"thinned":{thin},"events":['
    return Response(head.encode() + b",".join(lines) + b"]}", media_type="application/json")


@router.get("/api/runs/{run}/series", responses=refusals(404))
def series(
    run: OwnRun,
    parts: Shared,
    names: Annotated[list[str] | None, Query(max_length=200, description="Metric names; all if omitted.")] = None,
    points: Points = 1000,
    since: Annotated[int, Query(ge=0, lt=2**53, description="First step to include.")] = 0,
    until: Annotated[int | None, Query(ge=0, lt=2**53, description="Last step to include.")] = None,
    axis: Annotated[
        Literal["step", "samples", "time", "processor"],
        Query(description="What `at` measures: samples, seconds of training, or seconds of processor time."),
    ] = "step",
) -> schemas.SeriesPage:
    """Metrics of a run as curves, downsampled for drawing. An unknown name is refused."""
    return schemas.SeriesPage.model_validate(parts.runs.series(run, names or [], points, since, until, axis))


@router.get("/api/runs/{run}/groups", responses=refusals(404))
def group_steps(run: OwnRun, parts: Shared) -> schemas.GroupSteps:
    """The steps whose groups were saved."""
    return schemas.GroupSteps(run=run, steps=parts.runs.steps_with_groups(run))


@router.get("/api/runs/{run}/groups/{step}", responses=refusals(404))
def groups(run: OwnRun, step: Step, parts: Shared) -> schemas.GroupPage:
    """The groups of a step, with each attempt's score and advantage."""
    return schemas.GroupPage.model_validate(parts.runs.groups(run, step))


@router.get("/api/runs/{run}/attempts/{step}", responses=refusals(404, 504))
async def attempts(run: OwnRun, step: Step, parts: Shared) -> schemas.StepAttempts:
    """The attempts of a step as groupings and critics see them: features, rewards over time, expected values."""
    found = await _in_laboratory(parts, "attempts", run, step)
    return schemas.StepAttempts.model_validate(found)


@router.get("/api/runs/{run}/groupings/{step}", responses=refusals(404, 504))
async def groupings(
    run: OwnRun,
    step: Step,
    parts: Shared,
    strategy: Strategy = "task",
    n_groups: Annotated[int | None, Query(ge=1, le=8, description="Automatic if omitted.")] = None,
) -> schemas.GroupingView:
    """How a grouping strategy divides the attempts of a step, iteration by iteration."""
    found = await _in_laboratory(parts, "grouping", run, step, strategy=strategy, n_groups=n_groups)
    return schemas.GroupingView.model_validate(found)


async def _in_laboratory(parts: ServiceState, what: str, run: str, step: int, **more: Any) -> dict[str, Any]:
    folder = (await run_in_threadpool(parts.runs.folder_with, run, step)).resolve()
    asked = {"run": str(folder), "step": step, **more}
    found = await parts.laboratory.answer(what, asked, parts.settings.workflow_timeout)
    return {"run": run, "step": step, **found}


@router.get("/api/runs/{run}/trajectories/{trajectory:path}", responses=refusals(404))
def trajectory(
    run: OwnRun,
    trajectory: Annotated[str, Path(min_length=1, max_length=300)],
    parts: Shared,
    step: Annotated[int | None, Query(ge=0, lt=2**53, description="Its step, if known.")] = None,
) -> schemas.TrajectoryView:
    """One attempt: its text, and each token with its advantage."""
    return schemas.TrajectoryView.model_validate(parts.runs.trajectory(run, trajectory, step))
