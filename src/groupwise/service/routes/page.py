"""The app's page: built files that ship with the package, and one HTML page for every address outside the API."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse, HTMLResponse, Response
from starlette.exceptions import HTTPException

router = APIRouter(include_in_schema=False)

FOLDER = Path(__file__).parents[1] / "dashboard"
OTHERS = ("api/", "v1/", "ws", "docs", "openapi.json", "health", "ready", "metrics")
MISSING = "<!doctype html><title>Groupwise</title><p>The page has not been built. <a href='/docs'>The API</a> works."
FOREVER = {"cache-control": "public, max-age=31536000, immutable"}
ALWAYS_ASK = {"cache-control": "no-cache"}


def _files() -> frozenset[str]:
    """The files that exist. A request picks one of these; it never becomes a path on this machine."""
    return frozenset(str(file.relative_to(FOLDER)) for file in FOLDER.rglob("*") if file.is_file())


@router.get("/{path:path}")
def page(path: str) -> Response:
    if path.startswith(OTHERS):
        raise HTTPException(404)
    if path in _files():
        return FileResponse(FOLDER / path, headers=FOREVER if path.startswith("assets/") else ALWAYS_ASK)
    if path.startswith("assets/"):
        raise HTTPException(404)
    index = FOLDER / "index.html"
    return FileResponse(index, headers=ALWAYS_ASK) if index.is_file() else HTMLResponse(MISSING)
