"""Settings out of code, environment and one file: I6."""

from __future__ import annotations

import copy
import json
import logging
import os
import pickle
import re
from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.tools.errors import InputError
from pointsman.values.settings import REACHING, TASKS, Settings, describe

SEED = {
    "enable_reranker_by_default": True,
    "bm25_index_path": "./data/bm25_index",
    "bm25_k1": 1.2,
    "bm25_b": 0.75,
    "bm25_auto_sync": True,
    "default_retrieval_strategy": "auto",
    "enable_strategy_auto_selection": True,
    "hyde_llm_provider": "dashscope",
    "hyde_model": "qwen-plus",
    "hyde_temperature": 0.0,
    "query2doc_num_expansions": 3,
    "query2doc_llm_provider": "dashscope",
    "decomposition_llm_provider": "dashscope",
    "decomposition_max_subqueries": 5,
    "multi_query_variants": ("original", "synonym", "paraphrase", "correction"),
    "compression_llm_provider": "dashscope",
    "compression_max_length": 1000,
    "compression_rerank": True,
}


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory without a file of settings."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load(environ: Mapping[str, str] | None = None, **overrides: Any) -> Settings:
    return Settings.load(environ=environ or {}, **overrides)


def write_settings(folder: Path, text: str | bytes, name: str = "pointsman.toml") -> Path:
    file = folder / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def test_the_seeds_names_and_defaults() -> None:
    assert {name: getattr(load(), name) for name in SEED} == SEED
    assert load() == Settings()
    assert set(load().origins.values()) == {"default"}


def test_arguments_go_before_the_environment_that_before_the_file_that_before_defaults(empty_folder: Path) -> None:
    write_settings(empty_folder, "bm25_k1 = 1\nbm25_b = 0.1\ntimeout = 7\n")
    settings = load({"POINTSMAN_BM25_K1": "2", "POINTSMAN_BM25_B": "0.2"}, bm25_k1=3)
    assert (settings.bm25_k1, settings.bm25_b, settings.timeout, settings.policy) == (3, 0.2, 7, "auto")
    expected = {
        "bm25_k1": "argument",
        "bm25_b": "POINTSMAN_BM25_B",
        "timeout": "pointsman.toml:timeout",
        "policy": "default",
    }
    assert {name: settings.origins[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("bm25_auto_sync", "no", False),
        ("bm25_auto_sync", " TRUE ", True),
        ("enable_reranker_by_default", "0", False),
        ("query2doc_num_expansions", "7", 7),
        ("hyde_temperature", "0.5", 0.5),
        ("multi_query_variants", "original, correction,", ("original", "correction")),
        ("bm25_index_path", "/tmp/索引 папка", "/tmp/索引 папка"),
        ("default_retrieval_strategy", "hyde", "hyde"),
        ("hyde_llm_provider", "https://llm.example/v1", "https://llm.example/v1"),
        ("llm_base_url", "", ""),  # an empty variable counts as none
        ("bm25_k1", " ", 1.2),
        ("policy", "heuristic", "heuristic"),
    ],
)
def test_every_kind_of_value_is_read_from_the_environment(name: str, text: str, value: object) -> None:
    setting = getattr(load({f"POINTSMAN_{name.upper()}": text}), name)
    assert setting == value
    assert type(setting) is type(value)


BAD = [
    ("bm25_k1", -1, "from 0 up"),
    ("bm25_k1", float("nan"), "from 0 up"),
    ("bm25_k1", True, "from 0 up"),
    ("bm25_k1", "much", "from 0 up"),
    ("bm25_k1", 10**400, "from 0 up"),
    ("bm25_b", 1.01, "from 0 to 1"),
    ("bm25_auto_sync", "perhaps", "true or false"),
    ("bm25_auto_sync", 1, "true or false"),
    ("query2doc_num_expansions", 0, "from 1 to 20"),
    ("query2doc_num_expansions", 2.5, "from 1 to 20"),
    ("hyde_llm_provider", "claude", "openai, dashscope, openai_compatible"),
    ("hyde_llm_provider", "ftp://there", "http://localhost"),
    ("hyde_model", "", "not empty"),
    ("hyde_temperature", 3, "from 0 to 2"),
    ("multi_query_variants", ["original", "original"], "different"),
    ("multi_query_variants", ["antonym"], "synonym"),
    ("multi_query_variants", [], "synonym"),
    ("multi_query_variants", "original", "list"),
    ("timeout", 0, "above 0"),
    ("timeout", float("inf"), "above 0"),
    ("policy", "clever", "auto, measured, heuristic"),
    ("default_retrieval_strategy", "../x", "letters"),
    ("workspace", "a\nb", "one line"),
    ("compression_max_length", None, "from 1"),
]


@pytest.mark.parametrize(("name", "value", "remedy"), BAD)
def test_a_bad_value_is_told_with_its_name_itself_and_the_remedy(name: str, value: object, remedy: str) -> None:
    makers: list[Callable[..., Settings]] = [Settings, load]
    for make in makers:
        with pytest.raises(InputError) as error_info:
            make(**{name: value})
        assert str(error_info.value).startswith(name)
        assert remedy in str(error_info.value)
        assert repr(value)[:80] in str(error_info.value)


def test_a_bad_value_is_told_with_where_it_comes_from(empty_folder: Path) -> None:
    with pytest.raises(InputError, match=r"bm25_k1 \(from POINTSMAN_BM25_K1\) is a number from 0 up, not 'x'"):
        load({"POINTSMAN_BM25_K1": "x"})
    file = write_settings(empty_folder, "[pointsman]\nbm25_k1 = 'x'", "other.toml")
    with pytest.raises(InputError, match=r"bm25_k1 \(from .*other.toml:bm25_k1\) is"):
        Settings.load(file, {})


# ── the file ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("text", ["bm25_k1 = 2", "[pointsman]\nbm25_k1 = 2", "\ufeffbm25_k1 = 2"])
@pytest.mark.parametrize("origin", ["working directory", "path", "variable"])
def test_the_file_is_found_and_both_forms_are_read(empty_folder: Path, text: str, origin: str) -> None:
    if origin == "working directory":
        write_settings(empty_folder, text)
        assert load().bm25_k1 == 2
        return
    file = write_settings(empty_folder, text, "mine.toml")
    settings = Settings.load(file, {}) if origin == "path" else load({"POINTSMAN_CONFIG": str(file)})
    assert settings.bm25_k1 == 2
    assert settings.origins["bm25_k1"] == f"{file}:bm25_k1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bm25_ki = 2", "did you mean 'bm25_k1'?"),
        ("[pointsman]\nbm25_index_paths = '/'", "did you mean 'bm25_index_path'?"),
        ("zzz = 2", "the settings are enable_reranker_by_default, "),
        ("[tool]\nbm25_k1 = 2", "there is no setting 'tool'"),
        ("bm25_k1 = 1\n[pointsman]\nbm25_k1 = 2", "bm25_k1 twice"),
        ("pointsman = 3", "a table"),
        ("hyde_model = 'secret", "not TOML"),
        (b"hyde_model = '\xff'", "byte 14 is not UTF-8"),
        ("a = " + "[" * 100_000, "not TOML"),
        ("#" * 1_000_001, "larger than"),
    ],
)
def test_a_file_that_cannot_be_used_is_told(empty_folder: Path, text: str | bytes, message: str) -> None:
    write_settings(empty_folder, text)
    with pytest.raises(InputError) as error_info:
        load()
    assert message in str(error_info.value)
    assert "secret" not in str(error_info.value)
    if "setting" in message or "mean" in message:
        assert "pointsman.toml:" in str(error_info.value)


@pytest.mark.parametrize("name", ["absent.toml", "."])
def test_a_file_that_is_named_and_cannot_be_read_is_an_error(empty_folder: Path, name: str) -> None:
    with pytest.raises(InputError, match="POINTSMAN_CONFIG"):
        load({"POINTSMAN_CONFIG": name})
    with pytest.raises(InputError, match="cannot be read"):
        Settings.load(name, {})


def test_an_unknown_argument_is_an_error() -> None:
    with pytest.raises(InputError, match=r"'bm25_k' \(from argument\); did you mean 'bm25_k1'"):
        load(bm25_k=2)
    with pytest.raises(InputError, match="did you mean 'policy'"):
        load().updated(polcy="heuristic")


def test_variables_that_are_no_settings_are_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    other_variables = {"POINTSMAN_CACHE": "/c", "POINTSMAN_TEST_DATA": "/d", "PATH": "/bin", "POINTSMANX": "1"}
    settings = load({**other_variables, "POINTSMAN_WORKSPACE": "/w", "POINTSMAN_EMBEDDER": "hashing"})
    assert (settings.workspace, settings.embedder) == ("/w", "hashing")
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        for _ in range(2):  # a command loads its settings several times
            load({"POINTSMAN_BM25_KI": "s3cret", "POINTSMAN_bm25_b": "1"})
    assert len(caplog.records) == 2
    assert "POINTSMAN_BM25_KI is not a setting and is ignored; did you mean 'bm25_k1'?" in caplog.text
    assert "POINTSMAN_bm25_b" in caplog.text
    assert "s3cret" not in caplog.text


# ── one frozen object ────────────────────────────────────────────────────────────────────────────────────────────────


def test_settings_are_frozen_comparable_and_copied_whole() -> None:
    settings = load({"POINTSMAN_BM25_K1": "2"})
    with pytest.raises(FrozenInstanceError):
        settings.bm25_k1 = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        settings.origins["bm25_k1"] = "here"  # type: ignore[index]
    assert settings == Settings(bm25_k1=2) != Settings()
    assert len({settings, Settings(bm25_k1=2)}) == 1
    for twin in (pickle.loads(pickle.dumps(settings)), copy.deepcopy(settings)):
        assert twin == settings
        assert twin.origins == settings.origins


def test_origins_of_settings_that_are_built_or_updated() -> None:
    settings = Settings(bm25_k1=2)
    assert (settings.origins["bm25_k1"], settings.origins["bm25_b"]) == ("argument", "default")
    update = load({"POINTSMAN_BM25_K1": "2"}).updated(policy="heuristic")
    assert (update.origins["bm25_k1"], update.origins["policy"]) == ("POINTSMAN_BM25_K1", "argument")
    with pytest.raises(InputError, match="bm25_b"):
        update.updated(bm25_b=2)


def test_describe_tells_every_setting_in_plain_values() -> None:
    rows = describe(load({"POINTSMAN_MULTI_QUERY_VARIANTS": "original"}))
    assert [row["name"] for row in rows] == [field.name for field in fields(Settings)]
    assert all(row["about"] for row in rows)
    assert json.loads(json.dumps(rows)) == rows
    (row,) = [row for row in rows if row["name"] == "multi_query_variants"]
    assert row["value"] == ["original"]
    assert row["default"] == ["original", "synonym", "paraphrase", "correction"]
    assert row["origin"] == "POINTSMAN_MULTI_QUERY_VARIANTS"


FROM_TEXT = [field for field in fields(Settings) if field.name != "multi_query_variants"]


@given(st.sampled_from(FROM_TEXT), st.text(max_size=40))
def test_any_text_in_a_variable_is_a_value_or_an_input_error(setting: Any, text: str) -> None:
    variable = f"POINTSMAN_{setting.name.upper()}"
    value = setting.default
    try:
        value = getattr(load({variable: text}), setting.name)
    except InputError as error:
        message = str(error)
    else:
        message = variable
    assert variable in message
    assert type(value) is type(setting.default)


# ── secrets ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("llm_api_key_env", "sk-s3cret"),
        ("llm_base_url", "https://me:s3cret@llm.example/v1"),
        ("hyde_llm_provider", "https://s3cret@llm.example/v1"),
        ("llm_base_url", "https://llm.example/v1?key=s3cret"),
        ("embedder", "openai:model@https://me:s3cret@host/v1"),
    ],
)
def test_a_secret_in_the_wrong_place_is_refused_and_not_repeated(name: str, value: str) -> None:
    arguments: dict[str, Any] = {name: value}
    for environ, overrides in (({}, arguments), ({f"POINTSMAN_{name.upper()}": value}, {})):
        with pytest.raises(InputError) as error_info:
            load(environ, **overrides)
        assert name in str(error_info.value)
        assert "s3cret" not in str(error_info.value)
        assert error_info.value.__suppress_context__


def test_a_key_is_never_part_of_settings() -> None:
    environ = {"DASHSCOPE_API_KEY": "s3cret", "OPENAI_API_KEY": "s3cret", "MY_KEY": "s3cret"}
    settings = load(environ, llm_api_key_env="MY_KEY", llm_provider="openai")
    texts = [repr(settings), repr(settings.origins), json.dumps(describe(settings))]
    texts += [repr(settings.llm(task, environ)) for task in TASKS]
    assert not any("s3cret" in text for text in texts)


def test_settings_are_read_by_name_as_a_mapping_is() -> None:
    settings = load(bm25_k1=2)
    assert (settings.get("bm25_k1"), settings.get("bm25_b"), settings.get("none"), settings.get("llm", 1)) == (
        2,
        0.75,
        None,
        1,
    )


@pytest.mark.parametrize("text", ["original,correction", '["original", "correction"]', ' ["original","correction"]\n'])
def test_a_list_in_a_variable_is_separated_by_commas_or_json(text: str) -> None:
    assert load({"POINTSMAN_MULTI_QUERY_VARIANTS": text}).multi_query_variants == ("original", "correction")


@pytest.mark.parametrize("text", ['["original"', "[1]", "[" * 100_000, '["original", "original"]', "[]"])
def test_a_json_list_that_is_none_is_refused_by_name(text: str) -> None:
    with pytest.raises(InputError, match=r"multi_query_variants \(from POINTSMAN_MULTI_QUERY_VARIANTS\) is a list"):
        load({"POINTSMAN_MULTI_QUERY_VARIANTS": text})


# ── language models ──────────────────────────────────────────────────────────────────────────────────────────────────

DASHSCOPE, OPENAI, LOCAL = {"DASHSCOPE_API_KEY": "k"}, {"OPENAI_API_KEY": "k"}, "http://localhost:8000/v1"


@pytest.mark.parametrize(
    ("task", "fields", "environ", "expected"),
    [
        # a key in the environment is no consent to send anything to its service
        (
            "hyde",
            {},
            DASHSCOPE,
            ("dashscope", "qwen-plus", None, "set hyde_llm_provider or llm_provider to dashsco"),
        ),
        ("hyde", {}, {}, ("dashscope", "qwen-plus", None, "to dashscope and DASHSCOPE_API_KEY, or llm_base_url")),
        ("hyde", {"hyde_llm_provider": "dashscope"}, DASHSCOPE, ("dashscope", "qwen-plus", None, None)),
        ("hyde", {"llm_provider": "dashscope"}, {}, ("dashscope", "qwen-plus", None, "set DASHSCOPE_API_KEY")),
        ("query2doc", {"llm_provider": "dashscope"}, DASHSCOPE, ("dashscope", "qwen-plus", None, None)),
        ("general", {}, DASHSCOPE, ("", "", None, "set llm_provider")),
        # one server for everything
        ("hyde", {"llm_provider": LOCAL, "llm_model": "m"}, {}, ("openai_compatible", "m", LOCAL, None)),
        ("general", {"llm_base_url": LOCAL, "llm_model": "m"}, {}, ("openai_compatible", "m", LOCAL, None)),
        ("general", {"llm_base_url": LOCAL}, {}, ("openai_compatible", "", LOCAL, "set llm_model")),
        ("hyde", {"llm_provider": "openai_compatible"}, {}, ("openai_compatible", "", None, "set llm_base_url")),
        # a task's own provider goes before it, also where it is set to what is the default anyway
        (
            "hyde",
            {"llm_provider": LOCAL, "hyde_llm_provider": "dashscope"},
            DASHSCOPE,
            ("dashscope", "qwen-plus", None, None),
        ),
        ("hyde", {"hyde_llm_provider": "openai"}, OPENAI, ("openai", "gpt-4o-mini", None, None)),
        ("hyde", {"hyde_llm_provider": "openai", "hyde_model": "x"}, OPENAI, ("openai", "x", None, None)),
        ("hyde", {"hyde_llm_provider": "openai"}, {"OPENAI_BASE_URL": LOCAL}, ("openai", "gpt-4o-mini", None, None)),
        ("compression", {"llm_provider": "openai"}, {}, ("openai", "gpt-4o-mini", None, "set OPENAI_API_KEY")),
        (
            "decomposition",
            {"decomposition_llm_provider": LOCAL, "llm_model": "m", "llm_api_key_env": "MY_KEY"},
            {},
            ("openai_compatible", "m", LOCAL, "set MY_KEY"),
        ),
    ],
)
def test_which_language_model_a_task_gets(
    task: str, fields: dict[str, Any], environ: dict[str, str], expected: tuple[str, str, str | None, str | None]
) -> None:
    spec = load(**fields).llm(task, environ)
    assert (spec.provider, spec.model, spec.base_url) == expected[:3]
    if expected[3] is None:
        assert spec.missing is None
    else:
        assert expected[3] in (spec.missing or "")


def test_the_temperature_is_hydes_own() -> None:
    settings = load(hyde_temperature=0.7, llm_timeout=3)
    assert (settings.llm("hyde").temperature, settings.llm("query2doc").temperature) == (0.7, 0)
    assert settings.llm("hyde").timeout == 3
    with pytest.raises(InputError, match="cooking"):
        settings.llm("cooking")


class TestUnnamedSettings:
    def test_it_sets_nothing_that_reaches_beyond_the_process(self, empty_folder: Path) -> None:
        values = {item["name"]: item["default"] for item in describe(Settings())}
        for name, value in values.items():
            text = "MY_KEY" if name.endswith("_env") else "http://localhost:9/v1" if value == "" else value
            text = "colours" if name == "image_embedder" else text
            write_settings(empty_folder, f"{name} = {json.dumps(text)}")
            if name not in REACHING:
                assert load().origins[name] == f"pointsman.toml:{name}"
                continue
            with pytest.raises(InputError, match=f"sets {name}, .*POINTSMAN_CONFIG={empty_folder}/pointsman.toml"):
                load()
            all_origins = (
                load({"POINTSMAN_CONFIG": "pointsman.toml"}).origins,
                Settings.load("pointsman.toml", {}).origins,
            )
            assert [origins[name] for origins in all_origins] == [f"pointsman.toml:{name}"] * 2

    def test_every_setting_of_an_address_a_key_a_path_or_a_provider_reaches(self) -> None:
        words = ("path", "url", "provider", "key", "workspace", "embedder")
        names = {item["name"] for item in describe(Settings()) if any(word in item["name"] for word in words)}
        assert names | {"reranker", "audit_log", "synonyms"} == REACHING

    def test_the_page_lists_them(self) -> None:
        page = (Path(__file__).parents[1] / "docs" / "settings.md").read_text("utf-8")
        names = page.partition("name it: ")[2].partition(".\n\n")[0]
        assert set(re.findall(r"`(\w+)`", names)) == REACHING

    def test_what_has_priority_over_it_is_not_its_affair(self, empty_folder: Path) -> None:
        write_settings(empty_folder, 'embedder = "openai:x@http://localhost:9"')
        assert load({"POINTSMAN_EMBEDDER": "hashing"}).embedder == load(embedder="hashing").embedder == "hashing"

    def test_a_pipe_is_not_waited_for(self, empty_folder: Path) -> None:
        os.mkfifo(empty_folder / "pointsman.toml")
        with pytest.raises(InputError, match="is not a file"):
            load()


@pytest.mark.parametrize(
    ("fields", "environ", "unused"),
    [
        ({}, {}, set()),
        ({}, {**DASHSCOPE, **OPENAI}, {"DASHSCOPE_API_KEY", "OPENAI_API_KEY"}),
        ({"llm_provider": "dashscope"}, {**DASHSCOPE, **OPENAI}, {"OPENAI_API_KEY"}),
        ({"hyde_llm_provider": "openai"}, {**DASHSCOPE, **OPENAI}, {"DASHSCOPE_API_KEY"}),
        ({"embedder": "openai:text-embedding-3-small"}, OPENAI, set()),
        ({"llm_base_url": LOCAL, "llm_model": "m"}, DASHSCOPE, {"DASHSCOPE_API_KEY"}),
        ({"llm_base_url": LOCAL, "llm_model": "m", "llm_api_key_env": "DASHSCOPE_API_KEY"}, DASHSCOPE, set()),
        ({"reranker": f"jina:m@{LOCAL}", "reranker_api_key_env": "DASHSCOPE_API_KEY"}, DASHSCOPE, set()),
    ],
)
def test_a_key_that_no_setting_uses_is_named_with_that_setting(
    fields: dict[str, Any], environ: dict[str, str], unused: set[str]
) -> None:
    keys = load(**fields).unused_keys(environ)
    assert set(keys) == unused
    for key, reason in keys.items():
        remedy = re.search(r"set llm_provider to (\w+)$", reason)
        assert remedy is not None
        assert load(**{**fields, "llm_provider": remedy[1]}).llm("general", environ).missing is None, "the remedy helps"
        assert key in reason
