"""A worker of a cluster that indexes: it reads files and embeds texts for whoever has its key, and stores nothing.

`pointsman.workspace.indexing.indexing_cluster` asks it. Each request is a POST of JSON, and so is each answer:

========= ============================================================== ==============================================
path      request                                                        answer
========= ============================================================== ==============================================
/hello    nothing                                                        ``version``, ``tasks`` at once, ``embedder``
/read     ``files`` ([path, id, is_single]), ``options`` (`FileReader`)  ``files``: of each, a list of parts
/embed    ``texts``, ``embedder``                                        ``vectors``, each float32 in base64
========= ============================================================== ==============================================

A part has ``documents`` ([id, text, metadata]), ``problems`` ([path, reason]) and ``stopped``, as a `ReadResult`. What
cannot be done is said in ``refusal``, the error of an embedder in ``failure``, either in place of all that.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from pointsman.embedders import load_embedder
from pointsman.ingest import FileReader, FoundFile
from pointsman.ingest.reading_limits import FileLimits
from pointsman.service.server.protocol.problems import HttpProblem
from pointsman.service.server.protocol.request_body import Bodies
from pointsman.service.server.protocol.request_limits import Limits
from pointsman.service.server.protocol.strict_json import parse_json
from pointsman.service.server.run import address, bound, configure, run_server
from pointsman.tools.errors import InputError, PointsmanError
from pointsman.tools.vectors import encode_vector
from pointsman.tools.version import __version__
from pointsman.values.settings import Settings
from pointsman.workspace.indexing.indexing_cluster import worker_key

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from pointsman.embedders import BaseEmbedder
    from pointsman.ingest import ReadResult

_LIMITS: Final = Limits(max_body_bytes=64_000_000, body_seconds=60.0, idle_seconds=60.0)


def run_worker(
    folders: Sequence[str],
    *,
    host: str = "127.0.0.1",
    port: int = 8082,
    tasks: int = 1,
    embedder: str = "default",
    on_listening: Callable[[str], None] | None = None,
) -> None:
    """Work until stopped by SIGTERM or SIGINT; tasks under way are completed first.

    Args:
        folders: whose files are read, and no others.
        host: the address to listen on.
        port: the port to listen on; 0 for any free one.
        tasks: how many are computed at the same time.
        embedder: the specification of the embedder; see `load_embedder`.
        on_listening: called with the address once it is bound.

    Raises:
        InputError: a folder does not exist, there is no key, or the address cannot be bound.
    """
    key, settings = worker_key(), Settings.load()
    model = load_embedder(settings.embedder if embedder == "default" else embedder)
    app = IndexingWorker(folders, key, model, tasks)
    with bound(host, port) as listening:
        if on_listening is not None:
            on_listening(address(listening))
        run_server(configure(with_limits(app), limits=_LIMITS, log_level="warning"), listening)


def with_limits(worker: IndexingWorker) -> ASGIApp:
    """Return the application that asks for the key first, then reads a body of limited size and time."""
    bodies = Bodies(worker, _LIMITS)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope.get("headers", ()))
        if scope["type"] != "http" or worker.knows(headers.get(b"authorization", b"")):
            await bodies(scope, receive, send)
        else:
            message = {"refusal": "the key is another one than in POINTSMAN_WORKER_KEY of the worker"}
            await JSONResponse(message, 401, {"Connection": "close"})(scope, receive, send)

    return app


class IndexingWorker:
    """The application behind key and limits.

    Args:
        folders: whose files are read, and no others.
        key: what requests have as bearer token.
        embedder: embeds the texts.
        tasks: how many are computed at the same time.

    Raises:
        InputError: a folder does not exist.
    """

    def __init__(self, folders: Sequence[str], key: str, embedder: BaseEmbedder, tasks: int) -> None:
        self._folders = [Path(folder).resolve() for folder in folders]
        for folder in self._folders:
            if not folder.is_dir():
                raise InputError(f"{folder} is no folder; give those whose files are to be read")
        self._authorization, self._embedder, self._tasks = f"Bearer {key}".encode(), embedder, tasks
        self._answers: dict[str, Callable[[Any], dict[str, Any]]] = {
            "/hello": self._hello,
            "/read": self._read,
            "/embed": self._embed,
        }
        self._turns: anyio.CapacityLimiter | None = None

    def knows(self, authorization: bytes) -> bool:
        """Whether this header has the key."""
        return hmac.compare_digest(authorization, self._authorization)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        self._turns = self._turns or anyio.CapacityLimiter(self._tasks + 1)  # one to say hello
        content = await anyio.to_thread.run_sync(
            self._answer, request.method, request.url.path, await request.body(), limiter=self._turns
        )
        await Response(content, media_type="application/json")(scope, receive, send)

    def _answer(self, method: str, path: str, body: bytes) -> str:
        """Return what to answer, as JSON."""
        answer: dict[str, Any]
        try:
            if method != "POST" or path not in self._answers:
                raise InputError(f"there is no {method} {path:.100}")
            answer = self._answers[path](parse_json(body))
        except (HttpProblem, InputError) as error:
            answer = {"refusal": str(error)}
        except (KeyError, TypeError, ValueError) as error:
            answer = {"refusal": f"not a request of this version: {type(error).__name__}: {error}"}
        except PointsmanError as error:
            answer = {"failure": str(error)}
        return json.dumps(answer)  # in ASCII: what was read may hold lone surrogates

    def _hello(self, _: Any) -> dict[str, Any]:
        return {"version": __version__, "tasks": self._tasks, "embedder": self._embedder.name}

    def _read(self, fields: Any) -> dict[str, Any]:
        options = dict(fields["options"])
        limits = options.pop("limits")
        files = [FoundFile(self._path_in_folders(path), id_, 0, is_single) for path, id_, is_single in fields["files"]]
        with FileReader(**options, limits=None if limits is None else FileLimits(**limits)) as reader:
            return {"files": [[_read_result_form(result) for result in reader.read(file)] for file in files]}

    def _path_in_folders(self, path: str) -> Path:
        """Return the path of a file in one of the folders.

        Raises:
            InputError: it is elsewhere.
        """
        resolved_path = Path(path).resolve()
        if not any(resolved_path.is_relative_to(folder) for folder in self._folders):
            folders = ", ".join(map(str, self._folders))
            raise InputError(f"{path!r:.300} is not below {folders:.300}; start the worker with its folder, too")
        return resolved_path

    def _embed(self, fields: Any) -> dict[str, Any]:
        texts = [str(text) for text in fields["texts"]]
        if self._embedder.name != fields["embedder"]:
            raise InputError(
                f"the dataset's embedder is {fields['embedder']!r:.200}, and that of the worker is "
                f"{self._embedder.name!r}; give the same --embedder to both"
            )
        return {"vectors": [encode_vector(vector) for vector in self._embedder.embed_documents(texts)]}


def _read_result_form(result: ReadResult) -> dict[str, Any]:
    return {
        "documents": [[document.id, document.text, document.metadata] for document in result.documents],
        "problems": [[problem.path, problem.reason] for problem in result.problems],
        "stopped": result.is_stopped,
    }
