"""HTML: `/docs`, generated from the OpenAPI document, and the app's page for every address outside the API.

Neither loads anything from other sites.
"""

from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, HTMLResponse, Response
from starlette.exceptions import HTTPException

docs_router = APIRouter(include_in_schema=False)

STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
code { font-size: .95em } h2 { margin-top: 2.5rem } dt { margin-top: 1rem } dd { margin-left: 1.5rem; opacity: .85 }
"""


@docs_router.get("/docs")
def docs(request: Request) -> HTMLResponse:
    document = request.app.openapi()
    body = "".join(_sections(document))
    head = f"<!doctype html><html lang='en'><meta charset='utf8'><title>Groupwise: API</title><style>{STYLE}</style>"
    about = "<p>Full details: <a href='/openapi.json'>openapi.json</a>. <a href='/'>Back to the app</a>.</p>"
    return HTMLResponse(f"{head}<h1>API of this service</h1>{about}{body}")


def _sections(document: Mapping[str, Any]) -> Iterator[str]:
    by_tag: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            by_tag.setdefault(operation["tags"][0], []).append(_entry(method, path, operation, document))
    for tag, entries in by_tag.items():
        yield f"<h2>{escape(tag)}</h2><dl>{''.join(entries)}</dl>"


def _entry(method: str, path: str, operation: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    shape = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    fields = document["components"]["schemas"].get(shape, {}).get("properties", {})
    query = [one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"]
    takes = ", ".join(f"<code>{escape(name)}</code>" for name in (*query, *fields))
    said = escape(operation.get("description", ""))
    return (
        f"<dt><code>{method.upper()} {escape(path)}</code></dt><dd>{said}{f'<br>Takes {takes}.' if takes else ''}</dd>"
    )


router = APIRouter(include_in_schema=False)

FOLDER = Path(__file__).parents[1] / "dashboard"
OTHERS = ("api/", "v1/", "ws", "docs", "openapi.json", "health", "ready", "metrics")
MISSING = "<!doctype html><title>Groupwise</title><p>The page has not been built. <a href='/docs'>The API</a> works."
FOREVER = {"cache-control": "public, max-age=31536000, immutable"}
ALWAYS_ASK = {"cache-control": "no-cache"}


@router.get("/{path:path}")
def page(path: str) -> Response:
    if path.startswith(OTHERS):
        raise HTTPException(404)
    # A request picks one of the files that exist; it never becomes a path on this machine.
    if path in {str(file.relative_to(FOLDER)) for file in FOLDER.rglob("*") if file.is_file()}:
        # Names in assets/ contain a hash of their content, so they never change; index.html always asks.
        return FileResponse(FOLDER / path, headers=FOREVER if path.startswith("assets/") else ALWAYS_ASK)
    if path.startswith("assets/"):
        raise HTTPException(404)
    index = FOLDER / "index.html"
    return FileResponse(index, headers=ALWAYS_ASK) if index.is_file() else HTMLResponse(MISSING)
