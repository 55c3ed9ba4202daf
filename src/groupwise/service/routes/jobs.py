"""Training jobs: start, watch, cancel, resume and delete them."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Path, Query, Response

from groupwise.service.job_settings import run_name, wanted_settings
from groupwise.service.jobs import Job, RunTaken
from groupwise.service.refusals import refusals
from groupwise.service.schemas import JobList, JobView, TrainRequest
from groupwise.service.state import Asker, ServiceState, Shared
from groupwise.training.folder import RunInfo, inspect_run

router = APIRouter(tags=["jobs"])

JobId = Annotated[str, Path(min_length=1, max_length=32, pattern=r"^[0-9a-z]+$")]


def own_job(job_id: JobId, parts: Shared, who: Asker) -> Job:
    """The job, if the caller may see it."""
    return parts.ownership.job(job_id, who)


OwnJob = Annotated[Job, Depends(own_job)]
Key = Annotated[
    str | None,
    Header(alias="Idempotency-Key", min_length=1, max_length=200, pattern=r"^[!-~]+$",
           description="Repeating a request with the same key and body returns the same job."),
]  # fmt: skip


@router.post(
    "/api/train",
    status_code=202,
    responses={200: {"model": JobView, "description": "The job created by the first request."}, **refusals(409, 507)},
)
def train(request: TrainRequest, response: Response, parts: Shared, who: Asker, key: Key = None) -> JobView:
    """Start a training job: prompts for a language model, or the settings of any run."""
    cfg = wanted_settings(request, parts.ownership.reach(who.owner, who.scope))
    parts.ownership.insist_on_space(who)
    asked = request.model_dump(mode="json", exclude_defaults=True)
    run = run_name(request, cfg)
    if (parts.settings.runs_dir / run).exists() and parts.jobs.of_run(run) is None:
        raise RunTaken(f"a run named {run!r} already exists", hint="Choose another name.", field="name")
    job, new = parts.jobs.add(run, cfg.task.product, asked, who, key)
    parts.supervisor.wake()
    response.status_code = 202 if new else 200
    return job_view(parts, job)


@router.get("/api/jobs", responses=refusals())
def list_jobs(
    parts: Shared,
    who: Asker,
    state: Literal["queued", "running", "finished", "failed", "cancelled"] | None = None,
    begin: Annotated[int, Query(alias="from", ge=0, lt=2**53, description="The place of the first job.")] = 0,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
) -> JobList:
    """Your jobs, newest first and page by page; an administrator sees all."""
    total = parts.jobs.count(state, who)
    found = parts.jobs.newest(state, limit, who, begin)
    following = begin + limit if begin + limit < total else None
    return JobList(jobs=[job_view(parts, job) for job in found], total=total, next=following)


@router.get("/api/jobs/{job_id}", response_model=JobView, responses=refusals(404))
async def job_status(job_id: JobId, parts: Shared, who: Asker) -> Response:
    """The state of a job, at most a tenth of a second old."""

    def look() -> bytes:
        return job_view(parts, parts.ownership.job(job_id, who)).model_dump_json().encode()

    # One cached answer for everyone who sees the same jobs.
    return Response(await parts.status_cache.of(f"{job_id} {who.view}", look), media_type="application/json")


@router.post("/api/jobs/{job_id}/cancel", responses=refusals(404, 409))
def cancel(own: OwnJob, parts: Shared) -> JobView:
    """Cancel a job. A running one finishes its step and saves, so it can be resumed."""
    job = parts.jobs.cancel(own.id)
    parts.job_changed(job)
    return job_view(parts, job)


@router.post("/api/jobs/{job_id}/resume", responses=refusals(404, 409))
def resume(own: OwnJob, parts: Shared, who: Asker) -> JobView:
    """Resume a cancelled or failed job from its last checkpoint."""
    parts.ownership.insist_on_space(who)
    info = run_info(parts, own)
    job = parts.jobs.resume(own.id, info.attempt if info else 0)
    parts.job_changed(job)
    return job_view(parts, job)


@router.delete("/api/jobs/{job_id}", status_code=204, responses=refusals(404, 409))
def delete(own: OwnJob, parts: Shared, who: Asker) -> Response:
    """Delete a job that is over, together with its run."""
    parts.ownership.delete(own.run, who)
    parts.job_changed(own)
    return Response(status_code=204)


def run_info(parts: ServiceState, job: Job) -> RunInfo | None:
    """The state of the job's run; None if it has not started."""
    path = parts.settings.runs_dir / job.run
    if not (path / "config.toml").exists():
        return None
    try:
        return inspect_run(path)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def job_view(parts: ServiceState, job: Job) -> JobView:
    info = run_info(parts, job)
    stands: dict[str, Any] = {"step": 0, "total": 0, "attempt": 0, "metrics": {}}
    if info is not None:
        stands = {name: getattr(info, name) for name in stands}
    own = {name: getattr(job, name) for name in ("id", "run", "product", "created", "updated", "error", "request")}
    cancelling = job.state == "running" and job.wanted == "cancel"
    return JobView.model_validate({**own, **stands, "state": job.state, "cancelling": cancelling})
