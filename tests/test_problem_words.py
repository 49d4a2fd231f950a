"""The detail of a problem in the language that its reader asks for, and a test of which sentences have no words."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from string import Formatter
from time import thread_time
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the packages of the extra 'server' are not installed")

from fastapi.testclient import TestClient

import pointsman
from pointsman import Document
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.service.server import create_app
from pointsman.service.server.access.api_keys import keys_of
from pointsman.service.server.protocol.problems import KINDS, accepted_language
from pointsman.values import reasons
from pointsman.values.reasons import Reason, in_language, messages
from reason_words import is_sentence, sentences_of, sentences_of_problems

HAN, CYRILLIC = re.compile("[\u4e00-\u9fff]"), re.compile("[а-я]")
TERMS = re.compile(
    r"['\"][^'\"]*['\"]|`[^`]*`|[\w.]*_\w+|--[\w-]+|[A-Z][\w-]+|(?:可用：|есть: ).*|\b(?:body|name|principals|query|"
    r"strategy|filters|dashscope|i?(?:starts|ends)with|timeout|i?contains|exists|not|in|k|pointsman|bm25|auto|true|false|"
    r"hybrid|vector|syntax|effort|application/\w+)\b"
)
"""What is not translated: names of parameters, headers, operators, strategies and what was given."""


def template(code: str) -> str:
    return re.sub(r"\{\w+\}", "{}", messages()[code][0])


def test_what_a_request_meets_has_words() -> None:
    known_sentences = "\n".join(sentence for code in messages() for sentence in sentences_of(template(code)))
    sentences = dict(sentences_of_problems())
    unknown_sentences = {
        sentence: location
        for sentence, location in sentences.items()
        if is_sentence(sentence)
        and sentence not in PARTS
        and not re.search(f"(?m)^{re.escape(sentence).replace(BRACES, '.*')}$", known_sentences)
    }
    assert unknown_sentences == {}
    assert sentences.keys() >= PARTS


BRACES = re.escape("{}")
"""A value, or a part of a sentence, in the source: such a sentence has words if it has them with some text there."""


def test_every_word_of_a_problem_is_said() -> None:
    sentences = {sentence for sentence, _ in sentences_of_problems()}
    source = "\n".join(path.read_text("utf-8") for path in Path(pointsman.__file__).parent.rglob("*.py"))
    for code in messages():
        words = template(code)  # those of other packages begin in capitals
        if code.startswith("problem_") and code.removeprefix("problem_") not in MADE and not words[0].isupper():
            assert set(sentences_of(words)) <= sentences or messages()[code][0] in source, code


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with pointsman.open(tmp_path_factory.mktemp("problems"), embedder=HashingEmbedder()) as workspace:
        workspace.dataset("notes").add([Document("a", "a signal", {"year": 2024})])
        workspace.dataset("words", indexing_technique="keyword").add([Document("a", "a signal")])
        with TestClient(create_app(workspace), base_url="http://localhost") as client:
            yield client


SEARCH = ("POST", "/api/search")
PROBLEMS: list[tuple[str, str, Any]] = [
    (*SEARCH, {"query": "x", "k": 0}),
    (*SEARCH, {"query": "x", "k": 5000}),
    (*SEARCH, {"query": "x", "k": "many"}),
    (*SEARCH, {}),
    (*SEARCH, {"query": "x", "datasets": ["unknown"]}),
    (*SEARCH, {"query": "x", "strategy": "hybird"}),
    (*SEARCH, {"query": "x", "strategy": "hyde"}),
    (*SEARCH, {"query": "x", "strategy": "vector", "datasets": ["words"]}),
    (*SEARCH, {"query": "x", "filter": "year > 3"}),
    (*SEARCH, {"query": "x", "filters": "year 2024"}),
    (*SEARCH, {"query": "x", "filters": "year > "}),
    (*SEARCH, {"query": "x", "filters": "year == 'a"}),
    (*SEARCH, {"query": "x", "filters": {"year": {"$near": 3}}}),
    (*SEARCH, {"query": "x", "filters": {"year": {"$in": 3}}}),
    (*SEARCH, {"query": "x" * 30_000}),
    (*SEARCH, {"query": "x", "principals": ["user:anna"]}),
    (*SEARCH, {"query": "x", "timeout": -1}),
    (*SEARCH, {"query": "x", "group_size": 3}),
    (*SEARCH, "{'query': 'x'}"),
    (*SEARCH, '{"query": "x", "query": "y"}'),
    ("GET", "/api/datasets/unknown", None),
    ("GET", "/api/datasets/notes/documents/unknown", None),
    ("GET", "/api/datasets?colour=red", None),
    ("POST", "/api/datasets", {"name": "a/b"}),
    ("POST", "/api/datasets", {"name": "notes", "indexing_technique": "keyword"}),
    ("GET", "/nowhere", None),
    ("PUT", "/api/search", {}),
]


def test_every_title_has_words() -> None:
    for kind in KINDS.values():
        assert HAN.search(in_language(kind.title, "zh")), kind
        assert CYRILLIC.search(in_language(kind.title, "ru")), kind


@pytest.mark.parametrize(("method", "path", "body"), PROBLEMS)
def test_title_and_detail_are_in_the_language_asked_for(client: TestClient, method: str, path: str, body: Any) -> None:
    details, titles = {}, {}
    for language in ("", "en", "zh-CN,zh;q=0.9,en;q=0.8", "ru", "de"):
        payload: dict[str, Any] = {"content": body} if isinstance(body, str) else {} if body is None else {"json": body}
        headers = {"Accept-Language": language, "Content-Type": "application/json"}
        answer = client.request(method, path, headers=headers, **payload)
        assert answer.status_code >= 400
        details[language[:2]], titles[language[:2]] = answer.json()["detail"], answer.json()["title"]
        content_language = answer.headers.get("Content-Language")
        assert content_language == (language[:2] if language[:2] in ("zh", "ru") else None)
    assert details[""] == details["en"] == details["de"]
    assert titles[""] == titles["en"] == titles["de"]
    assert all(script.search(titles[language]) for language, script in (("zh", HAN), ("ru", CYRILLIC)))
    for language, script, foreign_script in (("zh", HAN, CYRILLIC), ("ru", CYRILLIC, HAN)):
        words = TERMS.sub("", details[language])
        assert script.search(words), words
        assert not foreign_script.search(words), words
        assert not re.search("[a-z]{2}", words.partition("\n")[0]), words


def test_a_key_is_asked_for_in_the_language_of_its_reader(tmp_path: Path) -> None:
    with pointsman.open(tmp_path, embedder=HashingEmbedder()) as workspace:
        keys_of(workspace.backend).create("me")
        with TestClient(create_app(workspace), base_url="http://localhost") as client:
            answer = client.get("/api/datasets", headers={"Accept-Language": "zh"})
            assert (answer.status_code, answer.json()["detail"][:8]) == (401, "需要有效的密钥，")


@pytest.mark.parametrize(
    ("header", "language"),
    [
        ("", "en"),
        ("zh", "zh"),
        ("ru-RU, en;q=0.5", "ru"),
        ("en-US, zh;q=0.9", "en"),
        ("de, fr;q=0.9, ru;q=0.1", "ru"),
        ("zh;q=0.1, ru;q=0.2", "ru"),
        ("zh;q=0", "en"),
        ("zh;q=high", "en"),
        ("*", "en"),
        (",;q=" * 5000, "en"),
        ("zh" * 10_000, "en"),
    ],
)
def test_the_header_decides(header: str, language: str) -> None:
    start = thread_time()
    assert accepted_language(header) == language
    assert thread_time() - start < 2


def test_the_command_line_says_errors_in_the_language_of_its_help(tmp_path: Path) -> None:
    with pointsman.open(tmp_path, embedder=HashingEmbedder()) as workspace:
        workspace.dataset("notes").add([Document("a", "x")])
    for language, script in (("zh", HAN), ("ru", CYRILLIC), ("en", re.compile("no dataset named 'unknown'"))):
        answer = subprocess.run(
            [sys.executable, "-m", "pointsman", "search", "x", "--dataset", "unknown", "--workspace", tmp_path],
            capture_output=True,
            text=True,
            check=False,
            env={"POINTSMAN_LANGUAGE": language, "PYTHONIOENCODING": "utf-8"},
        )
        assert answer.returncode == 2
        assert script.search(answer.stderr.replace("pointsman", "")), answer.stderr


def test_words_made_to_take_long_do_not() -> None:
    """Each text of a problem, repeated whole, in words and in pieces between its values."""
    reasons._known_statements.cache_clear()
    texts = set()
    for code in messages():
        if code.startswith("problem_"):
            pieces = [words for words, *_ in Formatter().parse(messages()[code][0])]
            for text in (messages()[code][0], "".join(pieces), *pieces, *(piece + "x" for piece in pieces)):
                texts |= {(text * 20_000)[:length] for length in (499, 20_000) if text}
                texts.add((pieces[0] + (text or " ") * 500)[:499])
    start = thread_time()
    for text in texts:
        text_start = thread_time()
        in_language(text, "zh")
        assert thread_time() - text_start < 0.25, text
    assert (thread_time() - start) / len(texts) < 0.01


MADE = {
    *("writing", "replaced", "nearest_known", "known_none", "set_model", "set_model_key", "indexed_for", "indexed_why"),
    *("filter_mark", "filter_key", "filter_text", "filter_ended", "filter_comparison", "filter_values", "filter_at"),
    *("make_workspace", "no_workspace", "no_dataset", "no_dataset_here", "no_strategy", "no_syntax", "no_effort"),
    *("no_fusion", "no_collection", "no_option", "no_parameter", "no_field", "made_for", "delete_to_index", "attached"),
    *("least_answered", "least_unanswered", "limit_whole", "limit_number", "no_retriever"),
    *("documents", "send", "body", "no_principal_list", "principal", "many_principals", "day"),
}
"""Texts of problems that are put together in the source, or come from elsewhere in it."""

PARTS = {
    *("another process has just deleted or recreated", "another process is writing to"),
    *("query parameter", "option of a search", "this page"),
}
"""Parts of sentences in the source: each is put into a sentence there, as its whole subject or verb."""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("route: fell back to 'all': no rule gives any choice a point", "没有规则"),
        ("fell back to 'first': no_answer: it names no option", "没有指出任何选项"),
        (f"fell back to 'best': {Reason.of('selector_unsure', confidence='0.21', threshold=0.5)}", "置信度 0.21"),
        ("fell back to 'first': could not read", "could not read"),
    ],
)
def test_why_a_selector_fell_back_has_words(text: str, words: str) -> None:
    assert words in in_language(text, "zh")
    assert CYRILLIC.search(in_language(text, "ru"))


def test_causes_in_causes_do_not_take_long() -> None:
    start = thread_time()
    in_language(("synonyms: " * 60)[:490], "ru")
    in_language(("fell back to synonyms: " * 30)[:490], "ru")
    assert thread_time() - start < 3
