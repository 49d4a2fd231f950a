"""Code shared by commands: options, and opening a workspace."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import Parameter, Signature, signature
from io import TextIOWrapper
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar, get_args, get_origin

import typer

from pointsman.retrieval.request import OPTIONS, Option
from pointsman.tools.errors import InputError, ServiceError, StoreError
from pointsman.tools.sync_and_async import set_within
from pointsman.tools.system.locations import is_service, is_url, path_of, redacted, with_home

if TYPE_CHECKING:
    from pointsman.workspace.workspace_search import Workspace


T = TypeVar("T")

_LONGEST_QUESTION: Final = 1_000_000  # characters; searches refuse far shorter ones, and say so

UNREADABLE: Final = (StoreError, ServiceError)
"""The errors of a dataset that is damaged or away, here or in a service."""


def workspace_of_settings() -> str:
    """Return the location of the workspace that the settings name."""
    from pointsman.values.settings import Settings

    return Settings.load().workspace


def path_without_service(location: str) -> str:
    """Return the path for the ``file:`` URL of a folder, since commands tell folders from servers."""
    location = path_of(location) or location
    return location if is_url(location) else str(with_home(location))


WorkspaceOption = Annotated[
    str,
    typer.Option(
        "--workspace",
        "-w",
        envvar="POINTSMAN_WORKSPACE",
        metavar="DIR|URL",
        help="A folder, postgresql://…, opensearch+https://… or https://… (a service; its key: POINTSMAN_API_KEY).",
        default_factory=workspace_of_settings,
        callback=path_without_service,
        show_default=".pointsman",
    ),
]


def can_ask() -> bool:
    """Whether there is a terminal to ask on."""
    return sys.stdin is not None and sys.stdin.isatty()


def confirm(action: str, *, is_confirmed: bool) -> None:
    """Ask whether to do what cannot be undone, unless ``--yes`` has said so.

    Raises:
        InputError: the answer is no, or there is no terminal to ask on.
    """
    if is_confirmed:
        return
    if not can_ask():
        raise InputError(f"this would {action}, which cannot be undone; give --yes if that is meant")
    if not typer.confirm(f"{action[0].upper()}{action[1:]}? This cannot be undone.", err=True):
        raise InputError("nothing is deleted")


QuestionArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="QUESTION", help="The question or keywords; - reads standard input, as does a pipe."),
]
DatasetOption = Annotated[str, typer.Option("--dataset", "-d", metavar="NAME", help="The dataset.")]
DATASET: Final = "files"
"""The dataset of a command that names none, as of `Workspace.index`."""
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
DatasetsOption = Annotated[
    list[str] | None, typer.Option("--dataset", "-d", metavar="NAME", help="Only this dataset; may be repeated.")
]
EmbedderOption = Annotated[
    str,
    typer.Option(
        envvar="POINTSMAN_EMBEDDER",
        metavar="SPEC",
        help="default, onnx:DIR, sentence-transformers:NAME or openai:MODEL@URL; fixed once a dataset has vectors.",
    ),
]


HostOption = Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on; other machines need keys.")]
PortOption = Annotated[int, typer.Option("--port", "-p", min=0, max=65535, help="0: any free port.")]
KeylessOption = Annotated[bool, typer.Option("--open", help="Allow requests from this machine without a key.")]
AllowHostOption = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="Host name to accept besides localhost; may be repeated.")
]
AllowOriginOption = Annotated[
    list[str] | None, typer.Option(metavar="URL", help="Origin whose pages may use it; may be repeated.")
]


_SEARCHING: Final[Mapping[str, tuple[tuple[str, ...], dict[str, Any]]]] = {
    "k": (("-k",), {"max": 1000}),
    "datasets": (("--dataset", "-d"), {"metavar": "NAME", "help": "Only this dataset; may be repeated."}),
    "filters": (("--filter",), {"metavar": "EXPR", "help": 'Such as: year >= 2020 and lang = "ru"'}),
    "rerank": ((), {"metavar": "always|late|never"}),
    "refuse": ((), {"metavar": "elsewhere|unsure|never"}),
    "spelling": ((), {"help": "Correct probable typos, or search as written."}),
}
"""Flags and texts of options that are written otherwise on the command line than elsewhere."""


def with_search_options(command: Callable[..., None], options: Mapping[str, Option] = OPTIONS) -> Callable[..., None]:
    """Give a command the options of a search, which it receives by keyword."""
    parameters = list(signature(command, eval_str=True).parameters.values())
    query, *other_parameters = (parameter for parameter in parameters if parameter.kind is not Parameter.VAR_KEYWORD)
    annotations = {name: _annotation(name, option) for name, option in options.items()}
    options_added = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=options[name].default, annotation=kind)
        for name, kind in annotations.items()
    ]
    other_parameters = [
        command_parameter.replace(kind=Parameter.KEYWORD_ONLY) for command_parameter in other_parameters
    ]
    command.__signature__ = Signature([query, *options_added, *other_parameters])  # type: ignore[attr-defined]  # what typer reads
    command.__annotations__.update(annotations)
    return command


def _annotation(name: str, option: Option) -> Any:
    """Return an option as typer has it."""
    kinds = [kind for kind in get_args(option.kind) if kind is not type(None)] or [option.kind]
    optional = type(None) in get_args(option.kind)
    has_names = any(get_origin(kind) is Literal for kind in kinds)
    kind = next((kind for kind in kinds if kind in {int, float} or get_origin(kind) is list), str)
    kind = bool if bool in kinds and not has_names else kind
    flag = name.replace("_", "-")
    flags = (f"--{flag}/--no-{flag}",) if kind is bool else (f"--{flag}",)
    own_flags, extra = _SEARCHING.get(name, ((), {}))
    attributes: dict[str, Any] = {"help": option.help.replace("`", ""), "show_default": not optional}
    attributes |= {
        short: option.bounds[bound] for short, bound in (("min", "ge"), ("max", "le")) if bound in option.bounds
    }
    return Annotated[kind | None if optional else kind, typer.Option(*(own_flags or flags), **{**attributes, **extra})]


@contextmanager
def workspace_at(
    location: str, embedder: str = "default", *, create: bool = False, service: str | None = None
) -> Iterator[Workspace]:
    """Open the workspace at this place, with the settings and language models of environment and settings file.

    Args:
        location: a folder or URL; ``https://…`` is a Pointsman service, sent the key in ``POINTSMAN_API_KEY``.
        embedder: name of the embedder; if it is the default one, the settings decide.
        create: whether the workspace may be missing; it is then created by the first write.
        service: what cannot be done through a service, if the command needs it.

    Raises:
        InputError: there is no workspace, a setting is invalid, or the command does not work through a service.
    """
    from pointsman.service.opening import open_workspace
    from pointsman.tools.audit_log import door
    from pointsman.values.settings import Settings

    if is_service(location) and service is not None:
        raise InputError(f"this command cannot {service} through a service; run it where the workspace is")
    if not create:
        check_workspace(location)
    settings = Settings.load()
    with (
        set_within(door, "command line"),
        open_workspace(location, embedder=embedder, settings=settings) as workspace,
    ):
        yield workspace


def question_of(words: Sequence[str] | None) -> str:
    """Return the question: the words of the command, or standard input if they are ``-`` or missing.

    Raises:
        InputError: there is no question.
    """
    if words and list(words) != ["-"]:
        return " ".join(words)
    if not words and sys.stdin is not None and sys.stdin.isatty():
        raise InputError("no question; write it after the command, as in: pointsman search how do I change a fuse")
    question = standard_input(_LONGEST_QUESTION).strip()
    if not question:
        raise InputError("no question; write it after the command, or send it to standard input")
    return question


def standard_input(size: int = -1) -> str:
    """Return standard input as UTF-8, whatever the locale's encoding.

    Args:
        size: the maximum number of characters to read; negative: all.

    Raises:
        InputError: standard input is closed, or not UTF-8.
    """
    if sys.stdin is None:
        raise InputError("standard input is closed; write the text after the command, or name a file")
    try:
        return TextIOWrapper(sys.stdin.buffer, "utf-8-sig").read(size)
    except UnicodeDecodeError as error:
        raise InputError(f"standard input is not UTF-8: {error}") from None


def of_each(
    names: Iterable[str], describe: Callable[[str], T], errors: tuple[type[Exception], ...] = UNREADABLE
) -> tuple[dict[str, T], dict[str, str]]:
    """Return what is asked about each dataset, and the problem of each that cannot be read; none hides the others.

    Args:
        names: the datasets.
        describe: returns it, given a name.
        errors: the errors that count as a problem of one dataset.
    """
    answers: dict[str, T] = {}
    problems: dict[str, str] = {}
    for name in names:
        try:
            answers[name] = describe(name)
        except errors as error:
            problems[name] = str(error)
    return answers, problems


def check_no_service(location: str) -> None:
    """Check that a place is a workspace, not a service.

    Raises:
        InputError: it is a service.
    """
    if is_service(location):
        raise InputError(f"{redacted(location)} is a service; give the location of its workspace")


def check_workspace(location: str) -> None:
    """Check that a workspace exists, if that needs no network.

    Raises:
        InputError: there is none.
    """
    from pointsman.store.local.folder_backend import holds_workspace, no_workspace

    if not is_url(location) and not holds_workspace(location):
        raise InputError(
            f"{no_workspace(location)} or create one with 'pointsman index PATH --dataset NAME "
            f"--workspace {quote(location)}'"
        )


def announcer(workspace: str) -> Callable[[str], None] | None:
    """Return a function that prints a service's address to a terminal; without a terminal only the log has it."""

    def announce(address: str) -> None:
        sys.stderr.write(f"pointsman serves {redacted(workspace)} at {address}\n")
        sys.stderr.flush()

    return announce if sys.stderr.isatty() else None
