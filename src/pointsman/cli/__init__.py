"""The command line: ``pointsman index``, ``search``, ``status`` and the rest."""

from __future__ import annotations


def main() -> None:
    """Run the command line of this process."""
    from pointsman.cli.exit_with_error import run

    run()
