"""The commands in groups, as the help lists them."""

from __future__ import annotations

from typing import Any, Final

from typer.core import TyperGroup

SEARCHING: Final = "Ask"
KEEPING: Final = "Keep documents"
MEASURING: Final = "Measure and improve"
SERVING: Final = "Serve"
CHECKING: Final = "Check and repair"


class CommandGroups(TyperGroup):
    """Lists the commands of each ``rich_help_panel`` under its heading, as plain text."""

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


_ORDER: Final = (KEEPING, SEARCHING, MEASURING, SERVING, CHECKING, "Commands")
