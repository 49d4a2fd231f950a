"""The console and the API's description, ``/docs``: pages with their scripts and styles, from packages.

No file is opened by a name from a request: all files are read once, and any other name is not found.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

import xxhash
from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from pointsman.service.server.protocol.problems import HttpProblem
from pointsman.tools.errors import MissingDependencyError
from pointsman.tools.sync_and_async import in_thread
from pointsman.values.reasons import messages

router = APIRouter(include_in_schema=False)

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_PAGE: Final = "index.html"
_SWAGGER: Final = ("swagger-ui-bundle.js", "swagger-ui.css")


@dataclass(frozen=True, slots=True)
class _ConsoleFile:
    """A file of the console, ready to be sent."""

    content: bytes
    gzip_content: bytes
    media_type: str
    etag: str


@cache
def files() -> dict[str, _ConsoleFile]:
    """Return every file of both pages by name, except those of Swagger UI; read on the first call.

    ``reasons.mjs`` is made here: the words of reasons, as the library has them.
    """
    entries = resources.files("pointsman.service.console").iterdir()
    pages = {entry.name: file for entry in entries if entry.is_file() and (file := _read(entry)) is not None}
    reasons = f"export const REASONS = {json.dumps(messages(), ensure_ascii=False)};\n"
    return {**pages, "reasons.mjs": _to_send(reasons.encode(), _TYPES[".mjs"])}


@cache
def swagger_files() -> dict[str, _ConsoleFile]:
    """Return the files of Swagger UI by name, read on the first call; they are larger than all of the console.

    Raises:
        HttpProblem: the package that carries them is not installed.
    """
    try:
        folder = resources.files("fastapi_offline") / "static"
    except ImportError as error:
        missing = MissingDependencyError("fastapi-offline", "server", "this page")
        raise HttpProblem("unavailable", str(missing)) from error
    return {name: file for name in _SWAGGER if (file := _read(folder / name)) is not None}


def _read(entry: Traversable) -> _ConsoleFile | None:
    """Return a file, unless it is of another type than pages load."""
    kind = _TYPES.get(f".{entry.name.rpartition('.')[2]}")
    if kind is None:
        return None
    return _to_send(entry.read_bytes(), kind)


def _to_send(content: bytes, kind: str) -> _ConsoleFile:
    return _ConsoleFile(content, gzip.compress(content, 9, mtime=0), kind, xxhash.xxh3_128_hexdigest(content))


@router.api_route("/", methods=["GET", "HEAD"])
@router.api_route("/console", methods=["GET", "HEAD"])
async def page(request: Request) -> Response:
    """The page."""
    return _file_response(request, files().get(_PAGE))


@router.api_route("/docs", methods=["GET", "HEAD"])
async def docs_page(request: Request) -> Response:
    """The description of the API, by which requests can be tried."""
    return _file_response(request, files().get("docs.html"))


@router.api_route("/console/", methods=["GET", "HEAD"])
async def console_page() -> Response:
    """Redirect one level up to the page; its addresses are relative to that."""
    return RedirectResponse("../", 308)


@router.api_route("/console/{file}", methods=["GET", "HEAD"])
async def console_file(request: Request, file: str) -> Response:
    """A script, a style or the icon."""
    by_name = await in_thread(swagger_files) if file in _SWAGGER else files()
    return _file_response(request, by_name.get(file))


def _file_response(request: Request, file: _ConsoleFile | None) -> Response:
    if file is None:
        raise HttpProblem("not-found", "the console has no such file")
    packs = "gzip" in request.headers.get("accept-encoding", "")
    etag = f'"{file.etag}{"-gz" if packs else ""}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    tags = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
    if etag in tags or "*" in tags:
        return Response(status_code=304, headers=headers)
    if packs:
        headers["Content-Encoding"] = "gzip"
    content = file.gzip_content if packs else file.content
    return Response(content, media_type=file.media_type, headers=headers)
