"""Where settings come from: a file, and the variables of the environment."""

from __future__ import annotations

import difflib
import functools
import json
import logging
import re
from collections.abc import Collection, Mapping
from dataclasses import MISSING, Field
from pathlib import Path
from typing import Any, Final

from pointsman.tools.errors import InputError

log = logging.getLogger(__name__)

FILE: Final = "pointsman.toml"


PREFIX: Final = "POINTSMAN_"


CONFIG_VARIABLE: Final = f"{PREFIX}CONFIG"
"""The variable that names the file, if it is not the one in the working directory."""


_NO_SETTINGS: Final = frozenset(
    {
        CONFIG_VARIABLE,
        f"{PREFIX}API_KEY",
        f"{PREFIX}CACHE",
        f"{PREFIX}LANGUAGE",
        f"{PREFIX}TEST_DATA",
        f"{PREFIX}SERVE",
        f"{PREFIX}WORKER_KEY",
    }
)
"""Variables of Pointsman that are not settings."""


_LARGEST_FILE: Final = 1_000_000  # bytes; a file of settings has some hundred


def nearest(name: str, names: Collection[str]) -> str:
    """Return a hint: the nearest of these names, or where all of them are listed."""
    close_names = difflib.get_close_matches(name[:100], names, 1, 0.6)
    return f"did you mean {close_names[0]!r}?" if close_names else f"the settings are {', '.join(names)}"


@functools.cache
def _log_unknown(variable: str, hint: str) -> None:
    """Log once that a variable is no setting: a command loads its settings several times."""
    log.warning("the variable %s is not a setting and is ignored; %s", variable, hint)


def variables(environ: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    """Return the non-empty variables that are settings; others with our prefix are logged by name."""
    result = {}
    for variable in sorted(name for name in environ if name.startswith(PREFIX) and name not in _NO_SETTINGS):
        name = variable.removeprefix(PREFIX).lower()
        if name not in names or variable != variable.upper():
            _log_unknown(variable, nearest(name, names))
        elif environ[variable].strip():
            result[variable] = environ[variable]
    return result


_FLAGS: Final = {**dict.fromkeys(("1", "true", "yes", "on"), True), **dict.fromkeys(("0", "false", "no", "off"), False)}


def parse_setting(setting: Field[Any], text: str) -> Any:
    """Convert the text of a variable to the setting's type if possible; the later check rejects the rest."""
    text = text.strip()
    default = setting.default
    assert default is not MISSING, "every setting has a default"
    if isinstance(default, bool):
        return _FLAGS.get(text.lower(), text)
    if isinstance(default, tuple) and not text.startswith("["):
        return tuple(item.strip() for item in text.split(",") if item.strip())
    if not isinstance(default, str):
        try:
            return json.loads(text) if isinstance(default, tuple) else type(default)(text)
        except (ValueError, RecursionError):
            return text
    return text


def read_file(path: str | Path | None, environ: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """Return the name of the file that applies, and its settings; both are empty without a file."""
    source = path if path is not None else environ.get(CONFIG_VARIABLE, "").strip()
    file = Path(source) if source else Path(FILE)
    if not source and not file.exists():
        return "", {}
    if not source and not file.is_file():
        raise InputError(f"{str(file)!r} in this folder is not a file; move it away")
    try:
        with file.open("rb") as stream:
            raw = stream.read(_LARGEST_FILE + 1)
    except OSError as error:
        remedy = "name another with POINTSMAN_CONFIG" if path is None else "name another"
        raise InputError(f"the settings in {str(file)!r} cannot be read ({error.strerror}); {remedy}") from error
    if len(raw) > _LARGEST_FILE:
        raise InputError(f"{str(file)!r} is larger than {_LARGEST_FILE} bytes; it is not a settings file")
    import tomllib  # most have no such file

    try:
        values = tomllib.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{str(file)!r} is not TOML in UTF-8: {_short(error)}") from None
    table = values.pop("pointsman", {})
    if not isinstance(table, dict):
        raise InputError(f"'pointsman' in {str(file)!r} is a table, written [pointsman]")
    duplicates = values.keys() & table.keys()
    if duplicates:
        raise InputError(
            f"{str(file)!r} has {', '.join(sorted(duplicates))} twice: at its top and in [pointsman]; keep one"
        )
    return str(file), {**values, **table}


def _short(error: Exception) -> str:
    """Return the position of a syntax error, without the text there."""
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is not UTF-8"
    location = re.search(r"\(at [^()]*\)\Z", str(error))
    return f"it cannot be read {location[0][1:-1]}" if location else "it cannot be read"
