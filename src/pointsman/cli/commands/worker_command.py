"""`pointsman worker`: reads files and embeds texts for 'pointsman index --cluster' on another machine."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from pointsman.cli.shared_options import EmbedderOption
from pointsman.tools.errors import MissingDependencyError


def worker(
    folders: Annotated[list[str], typer.Argument(metavar="FOLDER", help="Read the files in these folders alone.")],
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", "-p", min=0, max=65535, help="0: any free port.")] = 8082,
    tasks: Annotated[
        int, typer.Option(min=1, max=256, help="Tasks at the same time.", show_default="number of processors")
    ] = os.cpu_count() or 1,
    *,
    embedder: EmbedderOption = "default",
) -> None:
    """Read files and embed texts for 'pointsman index --cluster' on another machine.

    The key, of at least 16 characters, is in POINTSMAN_WORKER_KEY on both. The folders are at the same paths on both.
    """
    try:
        from pointsman.service.indexing_worker import run_worker
    except ModuleNotFoundError as error:
        raise MissingDependencyError((error.name or "").partition(".")[0], "server", "pointsman worker") from error

    def announce(url: str) -> None:
        sys.stderr.write(f"pointsman: a worker listens at {url}\n")

    run_worker(folders, host=host, port=port, tasks=tasks, embedder=embedder, on_listening=announce)
