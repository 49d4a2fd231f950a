"""The text that citations refer to, and a check of an answer's quotes and numbers against the hits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from pointsman.cli import printed_answers
from pointsman.cli.shared_options import (
    DATASET,
    DatasetOption,
    JsonOption,
    WorkspaceOption,
    standard_input,
    workspace_at,
)
from pointsman.tools.errors import InputError
from pointsman.values.types import Hit


def text(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A file as its citations name it.")],
    dataset: DatasetOption = DATASET,
    hash: Annotated[  # noqa: A002  (the citation's word)
        str | None, typer.Option(metavar="SHA256", help="As in the citation.")
    ] = None,
    start: Annotated[int, typer.Option(metavar="N", min=0, help="First character to print.")] = 0,
    end: Annotated[int | None, typer.Option(metavar="N", min=0, help="Position after the last one.")] = None,
    *,
    workspace: WorkspaceOption,
    as_json: JsonOption = False,
) -> None:
    """Print the text of a file, to which citation offsets refer."""
    with workspace_at(workspace) as open_workspace:
        passage = open_workspace.dataset(dataset, create=False).text(source, hash=hash, start=start, end=end)
    printed_answers.source_text(passage, as_json=as_json)


def verify_answer(
    answer: Annotated[Path, typer.Argument(metavar="FILE", help="A language model's answer; - is standard input.")],
    hits: Annotated[Path, typer.Option(metavar="FILE", help="Output of 'pointsman search --json'.")],
    as_json: JsonOption = False,
) -> None:
    """Look up every quote and number of an answer in its sources; exit 1 if any is missing."""
    from pointsman.values.answer_check import verify

    check = verify(_read(answer), _hits(hits))
    printed_answers.answer_check(check, as_json=as_json)
    if not check.supported:
        raise typer.Exit(1)


def _hits(path: Path) -> list[Hit]:
    text = _read(path)
    try:
        return [Hit.from_dict(hit) for hit in json.loads(text)["hits"]]
    except KeyError as error:
        raise InputError(f"{path} is not output of 'pointsman search --json': it lacks {error}") from None
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path} is not output of 'pointsman search --json': {error}") from None


def _read(path: Path) -> str:
    if str(path) == "-":
        return standard_input()
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8: {error}") from None
