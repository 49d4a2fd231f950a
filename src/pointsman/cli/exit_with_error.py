"""How a command ends: errors that a user can put right become one line, with exit code 2 for invalid input, else 1."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper

from pointsman.cli.core_commands import app
from pointsman.cli.translated_help import help_language
from pointsman.tools.errors import InputError, PointsmanError
from pointsman.tools.printable import printable
from pointsman.values.reasons import in_language


def run() -> None:
    """Run with the arguments of this process; errors that a user can fix become one line and an exit code."""
    # "surrogateescape" is what Python chooses in the C locale.
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors in {"strict", "surrogateescape"}:
        sys.stdout.reconfigure(errors="replace")  # one character must not cost the whole output
    if not os.environ.get("COLUMNS", "").strip("0"):  # some programs set 0 for unknown; rich would print nothing
        os.environ.pop("COLUMNS", None)
    try:
        try:
            app()
        except PointsmanError as error:
            sys.stderr.write(f"pointsman: {printable(in_language(str(error), help_language()))}\n")
            sys.exit(2 if isinstance(error, InputError) else 1)
        finally:
            if sys.stdout is not None and not sys.stdout.closed:  # a library may have
                sys.stdout.flush()  # here a failure can be reported; on exit it would be a traceback
    except BrokenPipeError:  # the reader of our output, such as head, has closed it: not our failure
        _discard_output()
        sys.exit(0)
    except OSError as error:
        if error.filename is not None:  # not of the output
            name = printable(os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else "a file")
            sys.stderr.write(f"pointsman: {name} cannot be read or written to: {error.strerror}\n")
            sys.exit(1)
        _discard_output()
        sys.stderr.write(f"pointsman: the output cannot be written: {error.strerror}\n")
        sys.exit(1)


def _discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
