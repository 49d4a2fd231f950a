"""``python -m pointsman`` is the ``pointsman`` command, even when the command is not on the path."""

from pointsman.cli import main

main()
