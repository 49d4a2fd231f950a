"""The console: one page with its scripts and styles, from the package.

No file is opened by a name from a request: all files are read once, and any other name is not found.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

import xxhash
from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from pointsman.service.server.protocol.problems import HttpProblem

router = APIRouter(include_in_schema=False)

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_PAGE: Final = "index.html"


@dataclass(frozen=True, slots=True)
class _ConsoleFile:
    """A file of the console, ready to be sent."""

    content: bytes
    gzip_content: bytes
    media_type: str
    etag: str


@cache
def files() -> dict[str, _ConsoleFile]:
    """Return every file of the console by name, read on the first call."""
    result: dict[str, _ConsoleFile] = {}
    for entry in resources.files("pointsman.service.console").iterdir():
        kind = _TYPES.get(f".{entry.name.rpartition('.')[2]}")
        if kind is not None and entry.is_file():
            content = entry.read_bytes()
            digest = xxhash.xxh3_128_hexdigest(content)
            result[entry.name] = _ConsoleFile(content, gzip.compress(content, 9, mtime=0), kind, digest)
    return result


@router.api_route("/", methods=["GET", "HEAD"])
@router.api_route("/console", methods=["GET", "HEAD"])
async def page(request: Request) -> Response:
    """The page."""
    return _file_response(request, _PAGE)


@router.api_route("/console/", methods=["GET", "HEAD"])
async def console_page() -> Response:
    """Redirect one level up to the page; its addresses are relative to that."""
    return RedirectResponse("../", 308)


@router.api_route("/console/{file}", methods=["GET", "HEAD"])
async def console_file(request: Request, file: str) -> Response:
    """A script, a style or the icon."""
    return _file_response(request, file)


def _file_response(request: Request, name: str) -> Response:
    file = files().get(name)
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
