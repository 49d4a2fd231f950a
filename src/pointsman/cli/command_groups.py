"""The commands in groups, as the help lists them."""

from __future__ import annotations

import re
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from pointsman.cli.translated_help import TranslatedContext

SEARCHING: Final = "Ask"
KEEPING: Final = "Keep documents"
MEASURING: Final = "Measure and improve"
SERVING: Final = "Serve"
CHECKING: Final = "Check and rebuild"


class CommandGroups(TyperGroup):
    """Lists the commands of each ``rich_help_panel`` under its heading, as plain text."""

    context_class = TranslatedContext

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, whose help is translated too."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            command.context_class = TranslatedContext
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands, group by group; the arguments are click's, of which typer may have a copy of its own."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                heading = getattr(command, "rich_help_panel", None)
                help_text = command.get_short_help_str(limit=200)  # whole: the formatter wraps it
                groups.setdefault(heading if isinstance(heading, str) else "Commands", []).append((name, help_text))
        for heading in sorted(groups, key=_ORDER.index):
            with formatter.section(heading):
                formatter.write_dl(groups[heading])


def command_group(name: str, text: str) -> typer.Typer:
    """Return commands below one name, such as ``pointsman keys``, with the text of their help."""
    return typer.Typer(cls=CommandGroups, name=name, help=text, no_args_is_help=True, rich_markup_mode=None)


_WORD_TO_EXCLUDE: Final = re.compile(r"-(?:[^\W\d_]{2}|\W*\").*", re.DOTALL)
_ESCAPE: Final = "\0"  # no argument of a program can hold it


class QuestionCommand(TyperCommand):
    """A command whose words are a question: after its first word ``-draft`` is one of them, and no ``-d raft``.

    ``-k 5`` and ``-k5`` are options wherever they stand.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; those of the question that begin with a hyphen are kept from click's parser."""
        options_with_value = {
            flag for option in self.params if not getattr(option, "is_flag", True) for flag in option.opts
        }
        is_value, is_question, escaped_args = False, False, []
        for number, argument in enumerate(args):
            if argument == "--":
                escaped_args += args[number:]
                break
            is_word = not is_value and is_question and _WORD_TO_EXCLUDE.fullmatch(argument) is not None
            is_question |= not is_value and not argument.startswith("-")
            is_value = not is_value and argument in options_with_value
            escaped_args.append(f"{_ESCAPE}{argument}" if is_word else argument)
        remaining_args = super().parse_args(ctx, escaped_args)
        if words := ctx.params.get("words"):
            ctx.params["words"] = [word.removeprefix(_ESCAPE) for word in words]
        return remaining_args


_ORDER: Final = (KEEPING, SEARCHING, MEASURING, SERVING, CHECKING, "Commands")
