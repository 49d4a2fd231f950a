"""``python -m pointsman`` is the ``pointsman`` command, also where the command is not on the path."""

from pointsman.cli import main

main()
