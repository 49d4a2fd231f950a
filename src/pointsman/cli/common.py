"""What several commands share: options, and how a workspace is opened."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pointsman.errors import InputError

if TYPE_CHECKING:
    from pointsman.workspace import Workspace


def _workspace_of_settings() -> Path:
    from pointsman.settings import Settings

    return Path(Settings.load().workspace)


WorkspaceOption = Annotated[
    Path,
    typer.Option(
        "--workspace",
        "-w",
        envvar="POINTSMAN_WORKSPACE",
        metavar="DIR",
        help="The folder of datasets.",
        default_factory=_workspace_of_settings,
        show_default=".pointsman",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
DatasetsOption = Annotated[
    list[str] | None, typer.Option("--dataset", "-d", metavar="NAME", help="Only this dataset; may be repeated.")
]
EmbedderOption = Annotated[
    str,
    typer.Option(
        envvar="POINTSMAN_EMBEDDER",
        metavar="SPEC",
        help="default, onnx:DIR, sentence-transformers:NAME or openai:MODEL@URL; fixed once a dataset has begun.",
    ),
]


@contextmanager
def workspace_at(path: Path, embedder: str = "default", *, create: bool = False) -> Iterator[Workspace]:
    """The workspace at this path, with the settings and the language models of environment and file.

    Args:
        path: the folder.
        embedder: its name; the settings name it unless it is another than the default one.
        create: whether there need not be a workspace yet; the first write makes it.

    Raises:
        InputError: there is no workspace, or a setting cannot be used.
    """
    from pointsman.models.chosen import SettingsModels, embedder_for
    from pointsman.settings import Settings
    from pointsman.workspace import Workspace

    if not create:
        check_workspace(path)
    settings = Settings.load()
    with Workspace(
        path, embedder=embedder_for(settings, embedder), settings=settings, llm=SettingsModels(settings)
    ) as workspace:
        yield workspace


def check_workspace(path: Path) -> None:
    """Check that there is a workspace.

    Raises:
        InputError: there is none.
    """
    if not (path / "datasets").is_dir():
        raise InputError(
            f"there is no workspace at {str(path)!r}; make one with 'pointsman index PATH --dataset NAME "
            f"--workspace {path}', or name another with --workspace"
        )


def announcer(workspace: Path) -> Callable[[str], None] | None:
    """Tells a person at a terminal where a service listens; elsewhere the log alone does."""

    def announce(address: str) -> None:
        sys.stderr.write(f"pointsman serves {workspace} at {address}\n")
        sys.stderr.flush()

    return announce if sys.stderr.isatty() else None
