"""Settings: one frozen, validated object out of code, environment and one file (I6).

Nothing reads settings behind a caller's back: whoever wants them asks for `Settings.load` and hands the object on.
They are data. What is built from them, such as language models, is built above.
"""

from __future__ import annotations

import difflib
import logging
import math
import os
import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self

from pointsman._places import is_url, redacted
from pointsman.errors import InputError

log = logging.getLogger(__name__)

FILE: Final = "pointsman.toml"
PREFIX: Final = "POINTSMAN_"
CONFIG_VARIABLE: Final = f"{PREFIX}CONFIG"
"""Names the file, where it is not the one in the working directory."""

_NO_SETTINGS: Final = frozenset(
    {CONFIG_VARIABLE, f"{PREFIX}API_KEY", f"{PREFIX}CACHE", f"{PREFIX}TEST_DATA", f"{PREFIX}SERVE"}
)
"""Variables that are Pointsman's and no settings."""

_LARGEST_FILE: Final = 1_000_000  # bytes; a file of settings has some hundred
_LARGEST_NUMBER: Final = 1e9  # no setting means anything beyond; NaN and infinity fail the comparison too

PROVIDERS: Final = ("openai", "dashscope", "openai_compatible")
TASKS: Final = ("hyde", "query2doc", "decomposition", "compression")
"""What has a language model of its own; everything else uses the ``general`` one."""

VARIANTS: Final = ("original", "synonym", "paraphrase", "correction")

_DEFAULT_MODELS: Final = {"dashscope": "qwen-plus", "openai": "gpt-4o-mini"}
_KEYS: Final = {"dashscope": "DASHSCOPE_API_KEY", "openai": "OPENAI_API_KEY"}
_OPENAI_ADDRESS: Final = "OPENAI_BASE_URL"  # the client's own variable

_WORD = re.compile(r"[\w.\-]{1,64}")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_URL = re.compile(r"https?://[^\s/?#@]+(?:/[^\s?#]*)?", re.IGNORECASE)
RERANKER: Final = re.compile(
    r"onnx:(?P<folder>.+)|(?:(?P<api>cohere|jina|tei):)?(?:(?P<model>\S+)@)?(?P<url>https?://\S+)"
)
"""How a setting names a reranker."""
_USER_INFO = re.compile(r"://[^\s/]*@")  # an address that holds a user's name and perhaps a password


# ── what a value may be ──────────────────────────────────────────────────────────────────────────────────────────────

Check = Callable[[Any], Any]
"""Gives the value in its proper type; a ValueError says what it ought to be."""


class _HiddenError(ValueError):
    """What is wrong with a value that may be a secret and is not repeated."""


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError("true or false")


def _number(value: Any, low: float, high: float) -> float:
    if not _is_number(value) or not low <= value <= high:
        raise ValueError(f"a number from {low:g} to {high:g}" if high < math.inf else f"a number from {low:g} up")
    return float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= _LARGEST_NUMBER


def _between(low: float, high: float = math.inf) -> Check:
    return lambda value: _number(value, low, high)


def _seconds(value: Any) -> float:
    if not _is_number(value) or value <= 0:
        raise ValueError("a number of seconds above 0")
    return float(value)


def _count(most: int) -> Check:
    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise ValueError(f"a whole number from 1 to {most}")
        return value

    return check


def _text(value: Any, expected: str = "a text", *, empty: bool = False) -> str:
    if not isinstance(value, str) or not (value.strip() or empty) or not value.isprintable():
        raise ValueError(f"{expected}{'' if empty else ' that is not empty'}, on one line")
    if _USER_INFO.search(value):
        raise _HiddenError("an address without a user or password; keep keys in the environment")
    return value.strip()


def _path(value: Any) -> str:
    return _text(os.fspath(value) if isinstance(value, os.PathLike) else value, "a path")


def _place(value: Any) -> str:
    if isinstance(value, str) and is_url(value.strip()):
        if not value.isprintable():
            raise _HiddenError("a path or a URL, on one line")
        return value.strip()
    return _path(value)


def _one_of(*choices: str) -> Check:
    def check(value: Any) -> str:
        if value not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return str(value)

    return check


def _name(value: Any) -> str:
    text = _text(value, "a name")
    if not _WORD.fullmatch(text):
        raise ValueError("a name of 1 to 64 letters, digits, '_', '-' or '.'")
    return text


def _provider(value: Any) -> str:
    text = _text(value, "a provider")
    if text in PROVIDERS:
        return text
    return _url(text, f"{', '.join(PROVIDERS)}, or the address of an OpenAI-compatible server, such as ")


def _url(value: str, expected: str = "an address such as ") -> str:
    if "?" in value or "#" in value:
        raise _HiddenError("an address without '?' and '#'; keep keys in the environment")
    if not _URL.fullmatch(value):
        raise ValueError(f"{expected}http://localhost:8000/v1")
    return value


def _or_empty(check: Callable[[str], str]) -> Check:
    def checked(value: Any) -> str:
        text = _text(value, empty=True)
        return check(text) if text else ""

    return checked


def _variable(value: str) -> str:
    if not _VARIABLE.fullmatch(value):  # somebody has put the key itself there, most likely
        raise _HiddenError("the name of an environment variable in capitals, such as MY_API_KEY, not the key itself")
    return value


def _reranker(value: str) -> str:
    if "?" in value or "#" in value:
        raise _HiddenError("a reranker without '?' and '#'; keep keys in the environment")
    if not RERANKER.fullmatch(value):
        raise ValueError(
            "onnx:DIRECTORY, or the address of a rerank server such as http://localhost:8080, if need be with the "
            "shape of its requests (cohere:, jina:, tei:) and the model before it: jina:bge-reranker@http://localhost:8080"
        )
    return value


def _variants(value: Any) -> tuple[str, ...]:
    expected = f"a list of different names out of {', '.join(VARIANTS)}"
    names = tuple(value) if isinstance(value, (list, tuple)) else ()
    if not names or not all(name in VARIANTS for name in names) or len(set(names)) < len(names):
        raise ValueError(expected)
    return names


def _setting(default: Any, check: Check, about: str, *, shown: bool = True) -> Any:
    return field(default=default, repr=shown, metadata={"check": check, "about": about})


# ── the settings ─────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that can be configured, with its default (I6).

    `load` fills it from everywhere; built directly, only what is given counts. Either way every value is checked.
    `describe` tells what each setting is for.

    Raises:
        InputError: a value cannot be used; it names the setting, where it comes from, the value and what it may be.
    """

    enable_reranker_by_default: bool = _setting(True, _flag, "rerank unless a search says otherwise")

    bm25_index_path: str = _setting(
        "./data/bm25_index", _path, "the folder of the keyword index over a vector store that keeps none itself"
    )
    bm25_k1: float = _setting(1.2, _between(0), "that index's term frequency saturation")
    bm25_b: float = _setting(0.75, _between(0, 1), "that index's length normalisation")
    bm25_auto_sync: bool = _setting(True, _flag, "update that index before every search")

    default_retrieval_strategy: str = _setting("auto", _name, "what a search for 'auto' does: choose, or this one")
    enable_strategy_auto_selection: bool = _setting(
        True, _flag, "choose the strategy by the query; if not, 'auto' means hybrid"
    )

    hyde_llm_provider: str = _setting("dashscope", _provider, "provider of the model that writes hypothetical answers")
    hyde_model: str = _setting("qwen-plus", _text, "by which model")
    hyde_temperature: float = _setting(0.0, _between(0, 2), "how freely")

    query2doc_num_expansions: int = _setting(3, _count(20), "number of additional queries to write")
    query2doc_llm_provider: str = _setting("dashscope", _provider, "who writes them")

    decomposition_llm_provider: str = _setting(
        "dashscope", _provider, "provider of the model that decomposes questions"
    )
    decomposition_max_subqueries: int = _setting(5, _count(20), "maximum number of sub-questions")

    multi_query_variants: tuple[str, ...] = _setting(VARIANTS, _variants, "kinds of query variants made by rules")

    compression_llm_provider: str = _setting("dashscope", _provider, "who compresses")
    compression_max_length: int = _setting(1000, _count(1_000_000), "characters of all excerpts together")
    compression_rerank: bool = _setting(True, _flag, "rerank what was compressed")

    llm_provider: str = _setting(
        "", _or_empty(_provider), "the language model of everything whose own provider is not set"
    )
    llm_model: str = _setting("", _or_empty(_text), "its model; empty: the provider's default")
    llm_base_url: str = _setting("", _or_empty(_url), "the address where a provider is openai_compatible")
    llm_api_key_env: str = _setting(
        "", _or_empty(_variable), "the environment variable with the key; empty: the provider's default"
    )
    llm_timeout: float = _setting(30.0, _seconds, "seconds for one answer of a language model")

    reranker: str = _setting(
        "",
        _or_empty(_reranker),
        "a reranker, onnx:DIRECTORY or [cohere:|jina:|tei:][MODEL@]URL: for 'auto' where tune or calibrate show a gain",
    )
    reranker_api_key_env: str = _setting(
        "", _or_empty(_variable), "the environment variable with its key; empty: it needs none"
    )
    reranker_timeout: float = _setting(10.0, _seconds, "seconds for one reranking")

    workspace: str = _setting(".pointsman", _place, "the folder of datasets, or the URL of a server", shown=False)
    embedder: str = _setting("default", _text, "the embedder: default, onnx:DIR, openai:MODEL@URL …")
    timeout: float = _setting(30.0, _seconds, "seconds for a whole search")
    policy: str = _setting(
        "measured", _one_of("measured", "heuristic"), "how 'auto' chooses: as measured best, or by the query's look"
    )

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            object.__setattr__(self, item.name, _checked(item, value, "argument"))
        changed = {item.name for item in fields(self) if getattr(self, item.name) != item.default}
        _came_from(self, dict.fromkeys(changed, "argument"))

    @property
    def origins(self) -> Mapping[str, str]:
        """Where each value comes from: ``"default"``, ``"argument"``, a variable's name, or the file and the key in it.

        Built directly, a value that differs from its default is an argument.
        """
        result: Mapping[str, str] = self.__dict__["_origins"]
        return result

    @classmethod
    def load(cls, path: str | Path | None = None, environ: Mapping[str, str] | None = None, **overrides: Any) -> Self:
        """Settings from everywhere, the first that has one: arguments, environment, file, default.

        Args:
            path: the file, in TOML: settings at its top or in a table ``[pointsman]``. Unless given, the one that
                ``POINTSMAN_CONFIG`` names, or ``pointsman.toml`` in the working directory if there is one.
            environ: the environment; that of this process unless given. ``POINTSMAN_BM25_K1`` sets ``bm25_k1``; lists
                are separated by commas; an empty variable counts as none. A ``POINTSMAN_`` variable that is no setting
                is logged.
            overrides: settings by name.

        Raises:
            InputError: a value cannot be used, a name in the file or in ``overrides`` is no setting, or the file
                cannot be read.
        """
        environ = os.environ if environ is None else environ
        by_name = {item.name: item for item in fields(cls)}
        values: dict[str, Any] = {}
        origins: dict[str, str] = {}

        def take(name: str, value: Any, origin: str) -> None:
            values[name] = _checked(by_name[name], value, origin)
            origins[name] = origin

        for name, value in overrides.items():
            _check_known(name, by_name, "argument")
            take(name, value, "argument")
        for variable, text in _variables(environ, by_name).items():
            name = variable.removeprefix(PREFIX).lower()
            if name not in values:
                take(name, _parsed(by_name[name], text), variable)
        file, table = _read_file(path, environ)
        for name, value in table.items():
            _check_known(name, by_name, f"{file}:{name}")
            if name not in values:
                take(name, value, f"{file}:{name}")
        settings = cls(**values)
        _came_from(settings, origins)
        return settings

    def updated(self, **changes: Any) -> Self:
        """A copy with these changed; the others keep their origins.

        Raises:
            InputError: as in `load`.
        """
        by_name = {item.name: item for item in fields(self)}
        for name in changes:
            _check_known(name, by_name, "argument")
        settings = replace(self, **changes)
        previous = {name: origin for name, origin in self.origins.items() if origin != "default"}
        _came_from(settings, {**previous, **dict.fromkeys(changes, "argument")})
        return settings

    def llm(self, task: str = "general", environ: Mapping[str, str] | None = None) -> LLMSpec:
        """Which language model a task is to use, and why there is none if there is none. Nothing is loaded or asked.

        A task's own provider counts where it is set, then ``llm_provider`` (``llm_base_url`` alone means
        ``openai_compatible``), then the default of the task's own. ``hyde_model`` is for HyDE alone, and its default
        for DashScope alone; other models come from ``llm_model``, or are the provider's usual one.

        Args:
            task: one of `TASKS`, or ``"general"``.
            environ: where keys are looked for; the environment of this process unless given.

        Raises:
            InputError: there is no such task.
        """
        if task not in (*TASKS, "general"):
            raise InputError(f"a language model is for one of {', '.join(TASKS)} or general, not {task!r}")
        environ = os.environ if environ is None else environ
        provider, source = self._provider(task)
        if not provider:
            return LLMSpec(task, missing="no language model is configured; set llm_provider, or llm_base_url")
        kind = provider if provider in PROVIDERS else "openai_compatible"
        address = {"openai_compatible": self.llm_base_url}.get(provider) if kind == provider else provider
        model = self._model(task, kind)
        key = self.llm_api_key_env or _KEYS.get(kind, "")
        temperature = self.hyde_temperature if task == "hyde" else 0.0
        spec = LLMSpec(task, kind, model, address or None, key or None, temperature, self.llm_timeout)
        if kind == "openai_compatible" and not address:
            return replace(spec, missing=f"{source} is openai_compatible; set llm_base_url to the server's address")
        if not model:
            return replace(spec, missing=f"no model is named for {address}; set llm_model")
        if key and not environ.get(key) and not (kind == "openai" and environ.get(_OPENAI_ADDRESS)):
            return replace(spec, missing=f"{source} is {kind}, and there is no key; set {key}, or another provider")
        return spec

    def _provider(self, task: str) -> tuple[str, str]:
        """The provider of a task, and the setting that says so."""
        own = f"{task}_llm_provider"
        if task in TASKS and self.origins[own] != "default":
            return getattr(self, own), own
        if self.llm_provider:
            return self.llm_provider, "llm_provider"
        if self.llm_base_url:
            return "openai_compatible", "llm_base_url"
        return (getattr(self, own), own) if task in TASKS else ("", "llm_provider")

    def _model(self, task: str, kind: str) -> str:
        if task == "hyde" and self.origins["hyde_model"] != "default":
            return self.hyde_model
        if self.llm_model:
            return self.llm_model
        return self.hyde_model if (task, kind) == ("hyde", "dashscope") else _DEFAULT_MODELS.get(kind, "")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_origins": dict(self.origins)}  # a view of a dict cannot be pickled

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _origins=MappingProxyType(state["_origins"]))


def _came_from(settings: Settings, origins: Mapping[str, str]) -> None:
    """Note the origins of a new object; those not given are defaults."""
    complete = {item.name: origins.get(item.name, "default") for item in fields(settings)}
    object.__setattr__(settings, "_origins", MappingProxyType(complete))


@dataclass(frozen=True, slots=True)
class LLMSpec:
    """A language model by its description; it holds no key, only the name of the variable that does.

    Attributes:
        task: what it is for.
        provider: one of `PROVIDERS`; empty where none is configured.
        model: as the server names it.
        base_url: the server's address; None: the provider's own.
        api_key_env: the environment variable with its key; None: it needs none.
        temperature: how freely it writes.
        timeout: seconds for one answer.
        missing: why it cannot be had, and what to do; None: it can.
    """

    task: str
    provider: str = ""
    model: str = ""
    base_url: str | None = None
    api_key_env: str | None = None
    temperature: float = 0.0
    timeout: float = 30.0
    missing: str | None = None


def describe(settings: Settings) -> list[dict[str, Any]]:
    """Every setting as a row that JSON can hold: ``name``, ``value``, ``default``, ``origin``, ``about``.

    Example:
        >>> row = describe(Settings(bm25_k1=2))[2]
        >>> row["name"], row["value"], row["default"], row["origin"]
        ('bm25_k1', 2.0, 1.2, 'argument')
    """
    return [
        {
            "name": item.name,
            "value": _plain(getattr(settings, item.name)),
            "default": _plain(item.default),
            "origin": settings.origins[item.name],
            "about": item.metadata["about"],
        }
        for item in fields(settings)
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return redacted(value)
    return list(value) if isinstance(value, tuple) else value


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _checked(setting: Field[Any], value: Any, origin: str) -> Any:
    where = "" if origin == "argument" else f" (from {origin})"
    try:
        return setting.metadata["check"](value)
    except _HiddenError as error:
        raise InputError(f"{setting.name}{where} is {error}; its value is not shown") from None
    except ValueError as error:
        raise InputError(f"{setting.name}{where} is {error}, not {value!r:.80}") from None


def _check_known(name: str, names: Collection[str], origin: str) -> None:
    if name not in names:
        raise InputError(f"there is no setting {name!r:.80} (from {origin}); {_nearest(name, names)}")


def _nearest(name: str, names: Collection[str]) -> str:
    near = difflib.get_close_matches(name[:100], names, 1, 0.6)
    return f"did you mean {near[0]!r}?" if near else f"the settings are {', '.join(names)}"


def _variables(environ: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    """The variables that are settings and not empty; others of our prefix are logged, by name."""
    result = {}
    for variable in sorted(name for name in environ if name.startswith(PREFIX) and name not in _NO_SETTINGS):
        name = variable.removeprefix(PREFIX).lower()
        if name not in names or variable != variable.upper():
            log.warning("the variable %s is not a setting and is ignored; %s", variable, _nearest(name, names))
        elif environ[variable].strip():
            result[variable] = environ[variable]
    return result


_FLAGS: Final = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


def _parsed(setting: Field[Any], text: str) -> Any:
    """The text of a variable as the type of the setting, as far as it can be read; the check says the rest."""
    text = text.strip()
    default = setting.default
    assert default is not MISSING, "every setting has a default"
    if isinstance(default, bool):
        return _FLAGS.get(text.lower(), text)
    if isinstance(default, (int, float)):
        try:
            return type(default)(text)
        except ValueError:
            return text
    if isinstance(default, tuple):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return text


def _read_file(path: str | Path | None, environ: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """The file's name as it was found, and its settings; no file, no settings."""
    source = path if path is not None else environ.get(CONFIG_VARIABLE, "").strip()
    file = Path(source) if source else Path(FILE)
    if not source and not file.exists():
        return "", {}
    try:
        with file.open("rb") as stream:
            raw = stream.read(_LARGEST_FILE + 1)
    except OSError as error:
        remedy = "name another with POINTSMAN_CONFIG" if path is None else "name another"
        raise InputError(f"the settings in {str(file)!r} cannot be read ({error.strerror}); {remedy}") from error
    if len(raw) > _LARGEST_FILE:
        raise InputError(f"{str(file)!r} is larger than {_LARGEST_FILE} bytes; it is not a settings file")
    try:
        values = tomllib.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{str(file)!r} is not TOML in UTF-8: {_short(error)}") from None
    table = values.pop("pointsman", {})
    if not isinstance(table, dict):
        raise InputError(f"'pointsman' in {str(file)!r} is a table, written [pointsman]")
    twice = values.keys() & table.keys()
    if twice:
        raise InputError(f"{str(file)!r} has {', '.join(sorted(twice))} twice: at its top and in [pointsman]; keep one")
    return str(file), {**values, **table}


def _short(error: Exception) -> str:
    """Where a file cannot be read, without what stands there."""
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is not UTF-8"
    place = re.search(r"\(at [^()]*\)\Z", str(error))
    return f"it cannot be read {place[0][1:-1]}" if place else "it cannot be read"
