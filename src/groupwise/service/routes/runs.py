"""Runs: state, events, curves, groups and attempts. A key sees the runs of its jobs; an administrator sees all."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Response

from groupwise.service import schemas
from groupwise.service.refusals import refusals
from groupwise.service.runs import facts
from groupwise.service.state import Asker, Shared

router = APIRouter(tags=["runs"])

RunId = Annotated[str, Path(pattern=schemas.RUN_NAME, max_length=100)]


def own_run(run: RunId, parts: Shared, who: Asker) -> str:
    """The name of the run, if the caller may see it."""
    return parts.ownership.run(run, who)


OwnRun = Annotated[str, Depends(own_run)]
Step = Annotated[int, Path(ge=0, lt=2**53)]
From = Annotated[int, Query(alias="from", ge=0, lt=2**53, description="The number of the first event.")]
Points = Annotated[int, Query(ge=2, le=10_000)]


@router.get("/api/runs", responses=refusals())
def list_runs(parts: Shared, who: Asker, limit: Annotated[int, Query(ge=1, le=10_000)] = 200) -> schemas.RunList:
    """Your runs, most recently changed first; an administrator sees all."""
    found = parts.ownership.visible(parts.runs.all(), who)[:limit]
    return schemas.RunList(runs=[schemas.RunView.model_validate(facts(info)) for info in found])


@router.get("/api/runs/{run}", responses=refusals(404))
def run_state(run: OwnRun, parts: Shared) -> schemas.RunWhole:
    """The state and settings of a run."""
    info = parts.runs.info(run)
    job = parts.jobs.of_run(run)
    more = {"job": job.id if job else None, "config": parts.runs.config(run), "events": len(parts.runs.log(run))}
    return schemas.RunWhole.model_validate({**facts(info), **more})


@router.delete("/api/runs/{run}", status_code=204, responses=refusals(404, 409))
def delete(run: OwnRun, parts: Shared, who: Asker) -> Response:
    """Delete a run that has no process, together with its job."""
    job = parts.jobs.of_run(run)
    parts.ownership.delete(run, who)
    if job is not None:
        parts.job_changed(job)
    return Response(status_code=204)


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
) -> schemas.SeriesPage:
    """Metrics of a run as curves, downsampled for drawing."""
    return schemas.SeriesPage.model_validate(parts.runs.series(run, names or [], points, since))


@router.get("/api/runs/{run}/groups", responses=refusals(404))
def group_steps(run: OwnRun, parts: Shared) -> schemas.GroupSteps:
    """The steps whose groups were saved."""
    return schemas.GroupSteps(run=run, steps=parts.runs.steps_with_groups(run))


@router.get("/api/runs/{run}/groups/{step}", responses=refusals(404))
def groups(run: OwnRun, step: Step, parts: Shared) -> schemas.GroupPage:
    """The groups of a step, with each attempt's score and advantage."""
    return schemas.GroupPage.model_validate({"run": run, "step": step, "groups": parts.runs.groups(run, step)})


@router.get("/api/runs/{run}/trajectories/{trajectory:path}", responses=refusals(404))
def trajectory(
    run: OwnRun,
    trajectory: Annotated[str, Path(min_length=1, max_length=300)],
    parts: Shared,
    step: Annotated[int | None, Query(ge=0, lt=2**53, description="Its step, if known.")] = None,
) -> schemas.TrajectoryView:
    """One attempt: its text, and each token with its advantage."""
    return schemas.TrajectoryView.model_validate(parts.runs.trajectory(run, trajectory, step))
