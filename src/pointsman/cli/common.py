"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

WorkspaceOption = Annotated[
    Path,
    typer.Option("--workspace", "-w", envvar="POINTSMAN_WORKSPACE", metavar="DIR", help="The folder of datasets."),
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
DEFAULT_WORKSPACE: Final = Path(".pointsman")
