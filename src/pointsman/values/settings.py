"""Settings: one frozen, validated object from code, environment and one file.

No module reads settings implicitly: callers use `Settings.load` and pass the object on. Settings are plain data;
objects built from them, such as language models, are built in higher layers.
"""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self

from pointsman.text.grammar.route_words import RouteByWords, route_rules
from pointsman.tools.errors import InputError
from pointsman.tools.json_forms import plain_form
from pointsman.tools.system.locations import is_url, redacted
from pointsman.values.setting_sources import CONFIG_VARIABLE, PREFIX, nearest, parse_setting, read_file, variables

log = logging.getLogger(__name__)


_LARGEST_NUMBER: Final = 1e9  # no setting means anything beyond; NaN and infinity fail the comparison too

PROVIDERS: Final = ("openai", "dashscope", "openai_compatible")
TASKS: Final = ("hyde", "query2doc", "decomposition", "compression")
"""The tasks that can have their own language model; all others use the ``general`` one."""

VARIANTS: Final = ("original", "synonym", "paraphrase", "correction")

_DEFAULT_MODELS: Final = {"dashscope": "qwen-plus", "openai": "gpt-4o-mini"}
_KEYS: Final = {"dashscope": "DASHSCOPE_API_KEY", "openai": "OPENAI_API_KEY"}
_OPENAI_ADDRESS: Final = "OPENAI_BASE_URL"  # the client's own variable

_WORD = re.compile(r"[\w.\-]{1,64}")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_URL = re.compile(r"https?://[^\s/?#@]+(?:/[^\s?#]*)?", re.IGNORECASE)
RERANKER: Final = re.compile(
    r"(?P<late>late)|onnx:(?P<folder>.+)|sentence-transformers:(?P<library_model>.+)|(?:(?P<api>cohere|jina|tei):)?(?:(?P<model>\S+)@)?(?P<url>https?://\S+)"
)
"""The pattern of a setting that names a reranker."""
_IMAGE_EMBEDDER = re.compile(r"colours|clip:.+")
_USER_INFO = re.compile(r"://[^\s/]*@")  # an address that holds a user's name and perhaps a password


# ── valid values ─────────────────────────────────────────────────────────────────────────────────────────────────────

Check = Callable[[Any], Any]
"""Returns the value in its proper type; raises a ValueError that describes valid values."""


class _HiddenError(ValueError):
    """An invalid value that may be a secret and is not repeated in the message."""


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


def _in_range(low: float, high: float = math.inf) -> Check:
    return lambda value: _number(value, low, high)


def _seconds(value: Any) -> float:
    if not _is_number(value) or value <= 0:
        raise ValueError("a number of seconds above 0")
    return float(value)


def _count(limit: int) -> Check:
    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= limit:
            raise ValueError(f"a whole number from 1 to {limit}")
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


def _location(value: Any) -> str:
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
    def wrapper(value: Any) -> str:
        text = _text(value, empty=True)
        return check(text) if text else ""

    return wrapper


def _variable(value: str) -> str:
    if not _VARIABLE.fullmatch(value):  # probably the key itself instead of a variable's name
        raise _HiddenError("the name of an environment variable in capitals, such as MY_API_KEY, not the key itself")
    return value


def _reranker(value: str) -> str:
    if "?" in value or "#" in value:
        raise _HiddenError("a reranker without '?' and '#'; keep keys in the environment")
    if not RERANKER.fullmatch(value):
        raise ValueError(
            "late, onnx:DIRECTORY, sentence-transformers:NAME, or the address of a rerank server such as "
            "http://localhost:8080, if need be with the shape of its requests (cohere:, jina:, tei:) and the model "
            "before it: jina:bge-reranker@http://localhost:8080"
        )
    return value


def _image_embedder(value: str) -> str:
    if not _IMAGE_EMBEDDER.fullmatch(value):
        raise ValueError("clip:NAME; a model behind a server is given as an object with embed_images")
    return value


def _variants(value: Any) -> tuple[str, ...]:
    expected = f"a list of different names out of {', '.join(VARIANTS)}"
    names = tuple(value) if isinstance(value, (list, tuple)) else ()
    if not names or not all(name in VARIANTS for name in names) or len(set(names)) < len(names):
        raise ValueError(expected)
    return names


def by_dataset(columns: Sequence[str]) -> dict[str, str]:
    """Return the columns of a setting such as ``("reports=created",)`` by the name of their dataset."""
    return {name.strip(): column.strip() for name, _, column in (item.partition("=") for item in columns)}


def _columns(value: Any) -> tuple[str, ...]:
    columns = tuple(map(_text, value)) if isinstance(value, (list, tuple)) else ("",)
    by_name = by_dataset(columns)
    if len(by_name) < len(columns) or not all(name and column for name, column in by_name.items()):
        raise ValueError("a list of DATASET=COLUMN, each dataset once, such as reports=created")
    return columns


def _setting(default: Any, check: Check, description: str, *, is_visible: bool = True, reaches: bool = False) -> Any:
    """Define a setting; ``reaches``: it decides where texts, questions or keys are sent, or which files are used."""
    return field(default=default, repr=is_visible, metadata={"check": check, "about": description, "reaches": reaches})


# ── the settings ─────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings with their defaults.

    `load` fills it from all origins; the constructor uses only its arguments. Both check every value. `describe`
    explains each setting.

    Raises:
        InputError: a value is invalid; the message names the setting, its origin, the value and the valid ones.
    """

    enable_reranker_by_default: bool = _setting(
        True, _flag, "use the reranker of the settings, 'auto' unless measured not to gain; searches may say otherwise"
    )

    synonyms: str = _setting(
        "",
        _or_empty(_path),
        "file with synonyms of your own: 'car, automobile' in a line, or 'laptop => notebook' for one way; or a folder "
        "with such a file for each dataset, NAME.txt",
        reaches=True,
    )

    bm25_index_path: str = _setting(
        "./data/bm25_index", _path, "folder of the keyword index for a vector store that has none", reaches=True
    )
    bm25_k1: float = _setting(
        1.2, _in_range(0), "term frequency saturation of that index and of a workspace's datasets"
    )
    bm25_b: float = _setting(0.75, _in_range(0, 1), "length normalisation of that index and of a workspace's datasets")
    bm25_auto_sync: bool = _setting(True, _flag, "update that index before every search")

    date_columns: tuple[str, ...] = _setting(
        (), _columns, "the column that before: means, as DATASET=COLUMN; others: date, or the only one of dates"
    )

    default_retrieval_strategy: str = _setting(
        "auto", _name, "what 'auto' means: choose by the query, or this strategy"
    )
    route_rules: tuple[RouteByWords, ...] = _setting(
        (), route_rules, "rules for router_select before its own: words, route and reason of each"
    )
    enable_strategy_auto_selection: bool = _setting(
        True, _flag, "choose the strategy by the query; if false, 'auto' means hybrid"
    )

    hyde_llm_provider: str = _setting(
        "dashscope", _provider, "provider of the model that writes hypothetical answers", reaches=True
    )
    hyde_model: str = _setting("qwen-plus", _text, "model that writes them")
    hyde_temperature: float = _setting(0.0, _in_range(0, 2), "its temperature")

    query2doc_num_expansions: int = _setting(3, _count(20), "number of additional queries to write")
    query2doc_llm_provider: str = _setting(
        "dashscope", _provider, "provider of the model that writes them", reaches=True
    )

    decomposition_llm_provider: str = _setting(
        "dashscope", _provider, "provider of the model that decomposes questions", reaches=True
    )
    decomposition_max_subqueries: int = _setting(5, _count(20), "maximum number of sub-questions")

    multi_query_variants: tuple[str, ...] = _setting(VARIANTS, _variants, "kinds of query variants made by rules")

    compression_llm_provider: str = _setting(
        "dashscope", _provider, "provider of the model that compresses texts", reaches=True
    )
    compression_max_length: int = _setting(1000, _count(1_000_000), "maximum characters of all excerpts together")
    compression_use_llm: bool = _setting(
        True, _flag, "let the model, if there is one, choose the sentences, however short the texts are"
    )
    compression_rerank: bool = _setting(True, _flag, "rerank the compressed texts")

    llm_provider: str = _setting(
        "", _or_empty(_provider), "provider for all tasks whose own provider is not set", reaches=True
    )
    llm_model: str = _setting("", _or_empty(_text), "its model; empty: the provider's default")
    llm_base_url: str = _setting("", _or_empty(_url), "server address if a provider is openai_compatible", reaches=True)
    llm_api_key_env: str = _setting(
        "", _or_empty(_variable), "environment variable with the key; empty: the provider's default", reaches=True
    )
    llm_timeout: float = _setting(
        30.0, _seconds, "time limit in seconds for one language model answer; all of a search have half of timeout"
    )

    reranker: str = _setting(
        "",
        _or_empty(_reranker),
        "onnx:DIRECTORY, sentence-transformers:NAME or [cohere:|jina:|tei:][MODEL@]URL",
        reaches=True,
    )
    reranker_api_key_env: str = _setting(
        "", _or_empty(_variable), "environment variable with its key; empty: no key needed", reaches=True
    )
    reranker_timeout: float = _setting(10.0, _seconds, "time limit in seconds for one reranking")

    workspace: str = _setting(
        ".pointsman", _location, "folder of datasets, or URL of a server", is_visible=False, reaches=True
    )
    embedder: str = _setting("default", _text, "default, onnx:DIR, openai:MODEL@URL …", reaches=True)
    embedder_api_key_env: str = _setting(
        "",
        _or_empty(_variable),
        "environment variable with its key; empty: OPENAI_API_KEY for OpenAI alone, or the server in OPENAI_BASE_URL",
        reaches=True,
    )
    image_embedder: str = _setting("", _or_empty(_image_embedder), "of datasets of pictures: clip:NAME", reaches=True)
    calibrate_automatically: bool = _setting(
        True, _flag, "make a calibration from the documents where the embedder has no built-in one"
    )
    timeout: float = _setting(30.0, _seconds, "time limit in seconds for a whole search")
    cache_megabytes: int = _setting(
        48, _count(1_000_000), "megabytes that this process may keep in memory to answer sooner, such as views"
    )
    audit_log: str = _setting(
        "", _or_empty(_path), "file with a line for each request that shows documents; empty: none", reaches=True
    )
    policy: str = _setting(
        "auto",
        _one_of("auto", "measured", "heuristic"),
        "how 'auto' chooses: measured, heuristic (by the query's form), or auto (measured; heuristic if there is a "
        "language model and no fitted policy)",
    )

    def __new__(cls, **arguments: Any) -> Self:
        """Note which settings are arguments, which a default that is repeated is too."""
        settings = super().__new__(cls)
        object.__setattr__(settings, "_arguments", frozenset(arguments))
        return settings

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            object.__setattr__(self, item.name, _check_setting(item, value, "argument"))
        _came_from(self, dict.fromkeys(self.__dict__.pop("_arguments"), "argument"))

    @property
    def origins(self) -> Mapping[str, str]:
        """The origin of each value: ``"default"``, ``"argument"``, a variable's name, or the file and the key in it.

        In an object built by the constructor, the values given to it are arguments.
        """
        return MappingProxyType(self.__dict__["_origins"])

    @classmethod
    def load(cls, path: str | Path | None = None, environ: Mapping[str, str] | None = None, **overrides: Any) -> Self:
        """Load settings; for each, the first of these that has a value wins: arguments, environment, file, default.

        Args:
            path: the file, in TOML: settings at its top or in a table ``[pointsman]``. By default the one that
                ``POINTSMAN_CONFIG`` names, or ``pointsman.toml`` in the working directory if there is one; since that
                may have come with a folder of documents, it cannot set what `REACHING` names.
            environ: the environment; by default that of this process. ``POINTSMAN_BM25_K1`` sets ``bm25_k1``; lists are
                separated by commas, or JSON; an empty variable counts as unset. A ``POINTSMAN_`` variable that is not a
                setting is logged.
            overrides: settings by name.

        Raises:
            InputError: a value is invalid, a name in the file or in ``overrides`` is not a setting, the file cannot
                be read, or nobody named it and it sets what only a named one may.
        """
        environ = os.environ if environ is None else environ
        by_name = {item.name: item for item in fields(cls)}
        values: dict[str, Any] = {}
        origins: dict[str, str] = {}

        def take(name: str, value: Any, origin: str) -> None:
            values[name] = _check_setting(by_name[name], value, origin)
            origins[name] = origin

        for name, value in overrides.items():
            _check_known(name, by_name, "argument")
            take(name, value, "argument")
        for variable, text in variables(environ, by_name).items():
            name = variable.removeprefix(PREFIX).lower()
            if name not in values:
                take(name, parse_setting(by_name[name], text), variable)
        file, table = read_file(path, environ)
        for name, value in table.items():
            _check_known(name, by_name, f"{file}:{name}")
            if name not in values:
                take(name, value, f"{file}:{name}")
        if path is None and not environ.get(CONFIG_VARIABLE, "").strip():
            _check_harmless(file, [name for name in table if origins[name] == f"{file}:{name}"])
        settings = cls(**values)
        _came_from(settings, origins)
        return settings

    def updated(self, **changes: Any) -> Self:
        """Return a copy with these values changed; the others keep their origins.

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

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a setting by name; ``default`` if there is no such setting."""
        return getattr(self, name) if name in self.origins else default

    def unused_keys(self, environ: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return, by variable, why the keys of providers in the environment are not used, and the remedy."""
        environ = os.environ if environ is None else environ
        models = [self.llm(task, environ) for task in (*TASKS, "general")]
        keys_in_use = {model.api_key_env for model in models if model.missing is None}
        keys_in_use |= {self.embedder_api_key_env, self.reranker_api_key_env}
        if self.embedder.startswith("openai:"):
            keys_in_use.add(_KEYS["openai"])
        return {
            key: f"{key} is set and not used: no setting names {provider}; set llm_provider to {provider}"
            for provider, key in _KEYS.items()
            if environ.get(key) and key not in keys_in_use
        }

    def llm(self, task: str = "general", environ: Mapping[str, str] | None = None) -> LLMSpec:
        """Return the language model for a task, or the reason why there is none. Nothing is loaded or called.

        The task's own provider applies if it is set, then ``llm_provider`` (``llm_base_url`` alone means
        ``openai_compatible``), then the default of the task's own provider. A default, even with its key in the
        environment, is no consent: the model counts as missing until a setting names a provider. ``hyde_model`` applies
        only to HyDE, and its default only to DashScope; other models come from ``llm_model``, or are the provider's
        usual one.

        Args:
            task: one of `TASKS`, or ``"general"``.
            environ: the environment with the keys; by default that of this process.

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
        if self.origins[source] == "default":
            requirement = "" if environ.get(key) else f" and {key}"
            consent = f"set {source} or llm_provider to {kind}{requirement}, or llm_base_url to a server's address"
            return replace(spec, missing=f"nothing is sent to a service that no setting names; {consent}")
        if kind == "openai_compatible" and not address:
            return replace(spec, missing=f"{source} is openai_compatible; set llm_base_url to the server's address")
        if not model:
            return replace(spec, missing=f"no model is named for {address}; set llm_model")
        if key and not environ.get(key) and not (kind == "openai" and environ.get(_OPENAI_ADDRESS)):
            return replace(spec, missing=f"{source} is {kind}, and there is no key; set {key}, or another provider")
        return spec

    def _provider(self, task: str) -> tuple[str, str]:
        """Return the provider of a task, and the setting that determines it."""
        setting_of_task = f"{task}_llm_provider"
        if task in TASKS and self.origins[setting_of_task] != "default":
            return getattr(self, setting_of_task), setting_of_task
        if self.llm_provider:
            return self.llm_provider, "llm_provider"
        if self.llm_base_url:
            return "openai_compatible", "llm_base_url"
        return (getattr(self, setting_of_task), setting_of_task) if task in TASKS else ("", "llm_provider")

    def _model(self, task: str, kind: str) -> str:
        if task == "hyde" and self.origins["hyde_model"] != "default":
            return self.hyde_model
        if self.llm_model:
            return self.llm_model
        return self.hyde_model if (task, kind) == ("hyde", "dashscope") else _DEFAULT_MODELS.get(kind, "")


REACHING: Final = frozenset(item.name for item in fields(Settings) if item.metadata["reaches"])
"""Settings that decide where texts, questions or keys are sent, or which files are read and written."""


def _check_harmless(file: str, names: Sequence[str]) -> None:
    """Check that a file that nobody named sets nothing that reaches beyond this process.

    Raises:
        InputError: it does.
    """
    reaching = [name for name in names if name in REACHING]
    if reaching:
        raise InputError(
            f"{file} in this folder sets {', '.join(reaching)}, which decides where questions, texts or keys are sent, "
            "or which files are used; a file that may have come with the folder does not decide that. If it is yours, "
            f"name it: {CONFIG_VARIABLE}={Path(file).absolute()}"
        )


def _came_from(settings: Settings, origins: Mapping[str, str]) -> None:
    """Note the origins of a new object; those not given are defaults."""
    complete = {item.name: origins.get(item.name, "default") for item in fields(settings)}
    object.__setattr__(settings, "_origins", complete)


@dataclass(frozen=True, slots=True)
class LLMSpec:
    """The description of a language model; it contains the name of the variable with the key, not the key.

    Attributes:
        task: the task it is for.
        provider: one of `PROVIDERS`; empty if none is configured.
        model: the server's name for the model.
        base_url: the server's address; None: the provider's own.
        api_key_env: the environment variable with its key; None if it needs none.
        temperature: the sampling temperature.
        timeout: seconds for one answer.
        missing: why it cannot be used, and the remedy; None if it can.
    """

    task: str
    provider: str = ""
    model: str = ""
    base_url: str | None = None
    api_key_env: str | None = None
    temperature: float = 0.0
    timeout: float = 30.0
    missing: str | None = None


def key_in(environ: Mapping[str, str] | None, variable: str, subject: str) -> str | None:
    """Return the key in an environment variable; None if no variable is named.

    Args:
        environ: by default that of the process.
        variable: the name of the variable, or an empty text.
        subject: what needs the key, for the message.

    Raises:
        InputError: the variable is not set, or empty.
    """
    key = (os.environ if environ is None else environ).get(variable) if variable else None
    if variable and not key:
        raise InputError(f"{subject} has no key; set the variable {variable}")
    return key


def describe(settings: Settings) -> list[dict[str, Any]]:
    """Return every setting as a row of JSON values: ``name``, ``value``, ``default``, ``origin``, ``about``.

    Example:
        >>> row = describe(Settings(bm25_k1=2))[3]
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
    return redacted(value) if isinstance(value, str) else plain_form(value)


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _check_setting(setting: Field[Any], value: Any, origin: str) -> Any:
    origin_note = "" if origin == "argument" else f" (from {origin})"
    try:
        return setting.metadata["check"](value)
    except _HiddenError as error:
        raise InputError(f"{setting.name}{origin_note} is {error}; its value is not shown") from None
    except ValueError as error:
        expected, wrong = error.args if len(error.args) > 1 else (error, value)
        raise InputError(f"{setting.name}{origin_note} is {expected}, not {wrong!r:.80}") from None


def _check_known(name: str, names: Collection[str], origin: str) -> None:
    if name not in names:
        raise InputError(f"there is no setting {name!r:.80} (from {origin}); {nearest(name, names)}")
