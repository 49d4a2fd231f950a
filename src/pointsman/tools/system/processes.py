"""What a process that we start may run: our own interpreter, our packages, and programs of the system.

The current folder is often the folder to be indexed, written by who knows whom. Python puts it first on the module path
of ``python -c`` and ``python -m``, shells are set up with ``.`` or an empty entry in ``PATH``, and programs look for
their configuration in it. So the processes that we start get absolute paths, a short environment and another folder.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

NEUTRAL_FOLDER: Final = "/"
"""Where processes start: nobody but the administrator writes there."""

_VARIABLES: Final = frozenset(("HOME", "LANG", "LANGUAGE", "TMPDIR", "TZ", "USER", "LOGNAME", "ORT_DISABLE_TELEMETRY"))
_FOLDERS: Final = ("PATH", "LD_LIBRARY_PATH", "TESSDATA_PREFIX", "XDG_CACHE_HOME")  # only their absolute entries

_START: Final = (
    "import json, sys; paths = json.loads(sys.argv[1]); "
    "sys.path[:] = paths + [path for path in sys.path if path not in paths]; "
)


def search_path(environ: Mapping[str, str] | None = None) -> str:
    """Return the folders of ``PATH`` that are absolute.

    >>> search_path({"PATH": ".:/usr/bin::bin:/bin"})
    '/usr/bin:/bin'
    """
    return _absolute((os.environ if environ is None else environ).get("PATH", os.defpath))


def find_program(name: str) -> str | None:
    """Return the path of a program, which is never looked up in the current folder; None if there is none."""
    return shutil.which(name, path=search_path())


def bare_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables that a program needs: who and where the user is, languages, and absolute search paths.

    Python's own variables, preloaded libraries, keys and proxies are not among them.
    """
    environ = os.environ if environ is None else environ
    variables = {name: value for name, value in environ.items() if name in _VARIABLES or name.startswith("LC_")}
    folders = {name: _absolute(environ[name]) for name in _FOLDERS if name in environ}
    return variables | {name: value for name, value in folders.items() if value}


def python_command(code: str, argument: str) -> list[str]:
    """Return the command that runs ``code`` in an isolated interpreter, which imports the same packages as this one.

    Args:
        code: Python source that may import our modules.
        argument: JSON of `import_path`, ``sys.argv[1]`` there.
    """
    utf8 = f"utf8={sys.flags.utf8_mode}"  # file names are decoded alike
    return [sys.executable, "-I", "-X", utf8, "-c", _START + code, argument]


def import_path() -> list[str]:
    """Return the module path of this process, without the current folder and the folder of the program.

    Python itself has put these two first. The folder of this package comes last if it is one of them.
    """
    current, program = Path.cwd(), getattr(sys.modules.get("__main__"), "__file__", None)
    refused = {str(current), str(current.resolve())}
    if program and not sys.flags.safe_path:
        refused.add(str(Path(program).resolve().parent))
    paths = [path for path in sys.path if Path(path).is_absolute() and str(Path(path)) not in refused]
    source_folder = str(Path(__file__).resolve().parents[3])
    return paths if source_folder in paths else [*paths, source_folder]


def isolate_spawned_processes() -> None:
    """Set this process's environment so that Python processes of `multiprocessing` do not import from their folder.

    They are started with ``python -c``. Absolute entries of ``PYTHONPATH`` stay, as these were set for this program.
    """
    os.environ["PYTHONSAFEPATH"] = "1"
    os.environ.pop("PYTHONSTARTUP", None)
    current = {str(Path.cwd()), str(Path.cwd().resolve())}
    if paths := [path for path in _entries(os.environ.pop("PYTHONPATH", "")) if path not in current]:
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    sys.path[:] = import_path()


def _absolute(folders: str) -> str:
    return os.pathsep.join(_entries(folders))


def _entries(folders: str) -> Iterator[str]:
    return (folder for folder in folders.split(os.pathsep) if Path(folder).is_absolute())
