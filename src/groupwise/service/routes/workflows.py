"""Workflows: design one from requirements, edit it, check it, simulate it, convert it."""

import json
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response

from groupwise.service import schemas
from groupwise.service.designs import DesignFile, examples
from groupwise.service.refusals import refusals
from groupwise.service.state import Shared

router = APIRouter(tags=["workflows"])

FILE: dict[str, Any] = {
    "description": "The file. The header x-notes lists what the format could not store.",
    "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}},
}
REFUSED = refusals(504)
DesignId = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$")]
FormatName = Annotated[str, Path(pattern=r"^[a-z0-9_]{1,40}$")]


@router.post("/api/workflows/design", responses=refusals(504, 507))
async def design(request: schemas.DesignRequest, parts: Shared) -> schemas.DesignView:
    """Design a workflow: sound, within every rule, and the best found within the evaluations."""
    return schemas.DesignView.model_validate(await parts.designs.design(request.model_dump()))


@router.post("/api/workflows/edit", responses=refusals(504, 507))
async def edit(request: schemas.EditRequest, parts: Shared) -> schemas.EditView:
    """Edit a workflow or its requirements, and see at once what that does to its score and which rules it breaks."""
    return schemas.EditView.model_validate(await parts.designs.edit(request.model_dump()))


@router.post("/api/workflows/check", responses=REFUSED)
async def check(request: schemas.CheckRequest, parts: Shared) -> schemas.CheckView:
    """Check whether a workflow is sound and keeps its rules; if not, show the steps that lead to the problem."""
    return schemas.CheckView.model_validate(await parts.designs.work("check", request.model_dump()))


@router.post("/api/workflows/simulate", responses=REFUSED)
async def simulate(request: schemas.SimulateRequest, parts: Shared) -> schemas.SimulateView:
    """Estimate how long cases take, what they cost and how busy everyone is."""
    return schemas.SimulateView.model_validate(await parts.designs.work("simulate", request.model_dump()))


@router.post("/api/workflows/convert", response_class=Response, responses={200: FILE, **REFUSED})
async def convert(request: schemas.ConvertRequest, parts: Shared) -> Response:
    """Convert a workflow to another format."""
    return attachment(await parts.designs.convert(request.model_dump()))


@router.get("/api/workflows/examples", responses=refusals())
def example_list(parts: Shared) -> schemas.ExampleList:
    """Example requirements, each with the workflow it starts from."""
    return schemas.ExampleList(examples=[schemas.ExampleView.model_validate(example) for example in examples()])


@router.get("/api/workflows/formats", responses=REFUSED)
async def format_list(parts: Shared) -> schemas.FormatList:
    """The formats that workflows can be read from and written to."""
    return schemas.FormatList(formats=[schemas.FormatView.model_validate(one) for one in await parts.designs.formats()])


@router.get(
    "/api/workflows/{design_id}/download/{to}", response_class=Response, responses={200: FILE, **refusals(404, 504)}
)
async def download(design_id: DesignId, to: FormatName, parts: Shared) -> Response:
    """Download a design as a file."""
    return attachment(await parts.designs.download(design_id, to))


def attachment(file: DesignFile) -> Response:
    headers = {
        "content-disposition": f'attachment; filename="{file.name}"', "x-notes": json.dumps(file.notes)[:4000],
        "content-security-policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'",
    }  # fmt: skip
    return Response(file.content, media_type=file.media, headers=headers)
