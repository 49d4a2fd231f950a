"""What agents read with: fetch, read, outline, grep, verify, and the keys of filters; ids name documents everywhere."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
import re2
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import pointsman
from pointsman import Document
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.integrations.mcp import create_server
from pointsman.integrations.mcp.grep import MAX_COUNT, JoinedTexts, Pattern, grep, texts_of
from pointsman.tools.errors import InputError
from test_mcp import answer, call, error_text, text

if TYPE_CHECKING:
    from pathlib import Path

    from mcp.server import Server

GUIDE = "# Rails\n\nSwitches guide trains.\n\n## Signals\n\n" + "A signal stops the train at 1,200 metres. " * 60
LONG = GUIDE + "\n\n## Bread\n\n" + "Bread is baked in ovens. " * 60


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server[Any]]:
    folder = tmp_path_factory.mktemp("reading")
    (folder / "files").mkdir()
    (folder / "files" / "guide.md").write_text(LONG, "utf-8")
    (folder / "files" / "short.md").write_text("# Tea\n\nTea is drunk.", "utf-8")
    with pointsman.Workspace(folder / "workspace", embedder=HashingEmbedder()) as workspace:
        workspace.index(folder / "files", dataset="files")
        workspace.dataset("notes").add(
            [
                Document(
                    "a/b", "A note on tea.", {"url": "https://example.com/tea", "year": 2020, "root": str(folder)}
                ),
                Document("same", "The first one.", {"source": f"{folder}/secret.md", "path": "C:\\Users\\me\\x.txt"}),
            ]
        )
        workspace.dataset("more").add(
            [Document("same", "The second one.", {"tags": ["x", "y"], "ok": True, "year": 1.5})]
        )
        yield create_server(workspace)


def test_search_and_fetch_are_those_that_chatgpt_asks_for(server: Server[Any]) -> None:
    result = call(server, "search", query="tea")
    hits = json.loads(text(result))["results"]
    assert {"id", "title", "url"} <= set(hits[0])
    for hit in hits:
        document = json.loads(text(call(server, "fetch", id=hit["id"])))
        assert set(document) == {"id", "title", "text", "url", "metadata"}
        assert (document["id"], document["url"]) == (hit["id"], hit["url"])
        assert hit["text"] in document["text"]
        assert document["title"] == hit["title"]


def test_every_result_has_a_title_for_its_citation(server: Server[Any]) -> None:
    hits = json.loads(text(call(server, "search", query="tea note first second one", k=20, refuse=False)))["results"]
    titles = {hit["id"]: hit["title"] for hit in hits}
    assert all(titles.values())
    assert titles["notes/a/b"] == "A note on tea."  # the first words
    assert titles["notes/same"] == "secret.md"  # the file, without its folder
    assert titles["more/same"] == "The second one."
    assert "https://example.com/tea" in {hit["url"] for hit in hits}
    assert all(0 <= hit["relevance"] <= 1 for hit in hits if hit["relevance"] is not None)


def test_fetch_gives_the_whole_source_of_a_passage(server: Server[Any]) -> None:
    hits = answer(call(server, "search", query="bread ovens", datasets=["files"]))["results"]
    document = answer(call(server, "fetch", id=hits[0]["id"]))
    assert document["text"].count("Bread is baked in ovens.") == 60
    assert document["text"].count("A signal stops the train") == 60
    assert "cut" not in document["metadata"]


def test_an_id_without_its_dataset_names_the_only_document_of_it(server: Server[Any]) -> None:
    assert answer(call(server, "fetch", id="a/b"))["id"] == "notes/a/b"
    assert "2 datasets have a document 'same'" in error_text(call(server, "fetch", id="same"))
    assert answer(call(server, "fetch", id="more/same"))["text"] == "The second one."


def test_reading_goes_on_from_passage_to_passage(server: Server[Any]) -> None:
    """X3: all passages of a source, each once, by `next` alone; no answer is longer than its budget."""
    first = next(
        entry for entry in answer(call(server, "outline", dataset="files"))["entries"] if entry["source"] == "guide.md"
    )
    id_, passages = first["id"], []
    while id_ is not None:
        read = answer(call(server, "read", id=id_, before=0, after=1, max_chars=3_000))
        assert len(read["text"]) <= 3_000
        passages += read["passages"]
        id_ = read["next"]
    assert len(passages) == len(set(passages)) == first["passages"]
    middle = answer(call(server, "read", id=passages[1], before=1, after=0, max_chars=8_000))
    assert (middle["passages"], middle["next"]) == (passages[:2], passages[2])
    beginning = answer(call(server, "read", id=passages[1], before=9, after=9, max_tokens=50))
    assert beginning["passages"] == [passages[1]]
    assert len(beginning["text"].encode()) <= 150
    continuation = answer(call(server, "read", id=passages[1], offset=beginning["next_offset"], before=0, after=0))
    full = answer(call(server, "read", id=passages[1], before=0, after=0))
    assert beginning["text"] + continuation["text"] == full["text"]


def test_an_outline_lists_sources_and_headings(server: Server[Any]) -> None:
    entries = answer(call(server, "outline", dataset="files"))["entries"]
    assert {entry["source"] for entry in entries} == {"guide.md", "short.md"}
    sections = answer(call(server, "outline", dataset="files", source="guide.md"))["entries"]
    assert [section["headings"][-1] for section in sections] == ["Rails", "Signals", "Bread"]
    page = answer(call(server, "outline", dataset="files", source="guide.md", limit=2))
    assert (len(page["entries"]), page["total"], page["next_offset"]) == (2, 3, 2)
    last = answer(call(server, "outline", dataset="files", source="guide.md", offset=2))
    assert [*page["entries"], *last["entries"]] == sections
    notes = answer(call(server, "outline", dataset="notes"))["entries"]
    assert [(note["id"], note["passages"]) for note in notes] == [("notes/a/b", 1), ("notes/same", 1)]


def test_verify_says_what_stands_where(server: Server[Any]) -> None:
    ids = ["notes/a/b", answer(call(server, "search", query="signal", datasets=["files"]))["results"][0]["id"]]
    check = answer(call(server, "verify", answer='It stops at 1200 m [1], "A note on tea", and in 1987.', ids=ids))
    assert check["supported"] is False
    assert [(claim["text"], claim["status"], claim["id"]) for claim in check["claims"]] == [
        ("1200 m", "exact", ids[1]),
        ("A note on tea", "exact", ids[0]),
        ("1987", "unsupported", None),
    ]
    assert [claim["misattributed"] for claim in check["claims"]] == [True, False, False]


def test_verify_ends_in_time(server: Server[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pointsman.values.answer_check.perf_counter", itertools.count(step=60.0).__next__)
    message = error_text(call(server, "verify", answer="40 trains.", ids=["notes/a/b"]))
    assert "within 30 s; check a part of it" in message


def test_filterable_keys_are_listed(server: Server[Any]) -> None:
    datasets = {dataset["name"]: dataset for dataset in answer(call(server, "list_datasets"))["datasets"]}
    keys = {key["key"]: key for key in datasets["more"]["keys"]}
    assert keys["tags"] == {"key": "tags", "types": ["string"], "examples": ["x", "y"]}
    assert keys["ok"] == {"key": "ok", "types": ["boolean"], "examples": [True]}
    assert keys["year"]["types"] == ["number"]
    assert {"source", "headings", "position"} <= {key["key"] for key in datasets["files"]["keys"]}


def test_the_date_column_is_told(tmp_path: Path) -> None:
    settings = pointsman.Settings(date_columns=("two=updated",))
    with pointsman.Workspace(tmp_path, settings=settings) as workspace:
        for name, key in {"one": "created", "two": "updated", "none": "note"}.items():
            workspace.dataset(name).add(
                [Document("a", "A signal stops trains.", {key: "2024-05-01" if name != "none" else "x"})]
            )
        listed = answer(call(create_server(workspace), "list_datasets"))["datasets"]
        assert {dataset["name"]: dataset["date_column"] for dataset in listed} == {
            name: workspace.status(name)["date_column"] for name in ("one", "two", "none")
        }
        assert {dataset["date_column"] for dataset in listed} == {
            "created: guessed",
            "updated: set by date_columns",
            "none: no field holds dates",
        }


def test_no_answer_has_a_path_of_this_machine_in_it(
    server: Server[Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """X3: neither the workspace's folder, nor those that files were read from, nor absolute paths in metadata."""
    ids = ["notes/a/b", "notes/same"]
    ids += [entry["id"] for entry in answer(call(server, "outline", dataset="files"))["entries"]]
    calls: list[tuple[str, dict[str, Any]]] = [
        ("search", {"query": "tea", "k": 20, "refuse": False}),
        ("list_datasets", {}),
        ("outline", {"dataset": "notes"}),
        ("outline", {"dataset": "files", "source": "guide.md"}),
        ("grep", {"pattern": "one"}),
        ("explain", {"query": "tea", "id": "notes/same"}),
        *(("fetch", {"id": id_}) for id_ in ids),
        *(("read", {"id": id_}) for id_ in ids),
    ]
    for tool, arguments in calls:
        answer_text = text(call(server, tool, **arguments))
        for path in (str(tmp_path_factory.getbasetemp()), "C:\\\\Users", '"root"'):
            assert path not in answer_text, tool


def test_a_change_is_seen_by_what_is_kept(tmp_path: Path) -> None:
    with pointsman.Workspace(tmp_path / "workspace", embedder=HashingEmbedder()) as workspace:
        dataset = workspace.dataset("notes")
        dataset.add([Document("a", "one needle", {"year": 1})])
        server = create_server(workspace)
        for _ in range(2):
            assert [match["id"] for match in answer(call(server, "grep", pattern="needle"))["matches"]] == ["notes/a"]
        dataset.add([Document("b", "two needles", {"kind": "x"}), Document("a", "nothing")])
        assert [match["id"] for match in answer(call(server, "grep", pattern="needle"))["matches"]] == ["notes/b"]
        assert len(answer(call(server, "outline", dataset="notes"))["entries"]) == 2
        assert [key["key"] for key in answer(call(server, "list_datasets"))["datasets"][0]["keys"]] == ["kind"]


# ── grep ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

ALPHABET = "aAbBßſK\u212aсС列车 \n.-"
TEXTS = st.lists(st.text(ALPHABET, max_size=12), min_size=1, max_size=150)
ATOMS = st.sampled_from(
    ["a", "b", "ab", "с", "列车", "ſ", r"\.", ".", "[ab]", "[^a]", r"\b", "^", "$", r"\w", "\n", " ", r"\A", r"\z"]
)
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("(?:{}|{})".format, inner, inner),
        st.builds("(?:{}){}".format, inner, st.sampled_from(["*", "+", "?", "{0,2}", "{2}"])),
        st.builds("{}{}".format, st.sampled_from(["a", "ab", "列"]), st.sampled_from(["*", "?", "+", "{,2}", "{0}"])),
        st.builds("{}|{}".format, inner, inner),
        st.builds("(?i:{})".format, inner),
        st.builds("(?-m:{})".format, inner),
    ),
    max_leaves=6,
)


def in_memory(texts: list[str]) -> JoinedTexts:
    return JoinedTexts([Document(str(number), text) for number, text in enumerate(texts)])


@settings(max_examples=300, deadline=None)
@given(TEXTS, EXPRESSIONS, st.booleans())
def test_grep_finds_what_the_expression_matches_in_each_document_alone(
    texts: list[str], expression: str, ignore_case: bool
) -> None:
    """X3: joining the texts leaves nothing out and adds nothing, whatever the expression."""
    options = re2.Options()
    options.case_sensitive = not ignore_case
    plain = re2.compile(f"(?m){expression}", options)
    expected = []
    for number, content in enumerate(texts):
        spans = [match.span() for match in plain.finditer(content) if match.end() > match.start()]
        if spans:
            expected.append((str(number), *spans[0], len(spans)))
    pattern = Pattern(expression, regex=True, ignore_case=ignore_case)
    matches = in_memory(texts).grep(pattern, time.monotonic() + 60)
    assert [(match.id, match.start, match.end, match.count) for match in matches] == expected


FRAGMENTS = (
    r"a b c { } {a|b} \{ \} {2} {1,} {,2} {} | * + ? ( ) (?: (?s) (?i) (?i-s) [{] [^|] []}] [(?i)] \( \| \b . , 2"
)
SYNTAX = st.lists(
    st.sampled_from(FRAGMENTS.split()),
    min_size=1,
    max_size=8,
).map("".join)


@settings(max_examples=500, deadline=None)
@given(st.lists(st.text("aAbBc{}|,2(?", max_size=8), min_size=1, max_size=20), SYNTAX)
@example(["call foo{a now", "call fob}bar now", "b}bar only"], "foo{a|b}bar")
@example(["call foo{a now", "call fob}bar now", "b}bar only"], r"foo\{a|b}bar")
@example(["a"], "ab(?s)*")
def test_grep_finds_what_the_expression_matches_whatever_its_syntax(texts: list[str], expression: str) -> None:
    options = re2.Options()
    options.log_errors = False
    try:
        plain = re2.compile(f"(?m){expression}", options)
    except re2.error:
        assume(False)
    expected = [str(number) for number, content in enumerate(texts) if any(m.group() for m in plain.finditer(content))]
    matches = in_memory(texts).grep(Pattern(expression, regex=True), time.monotonic() + 60)
    assert [match.id for match in matches] == expected


@settings(max_examples=200, deadline=None)
@given(TEXTS, st.text(ALPHABET, min_size=1, max_size=5), st.booleans())
def test_grep_finds_texts_as_they_are(texts: list[str], fragment: str, ignore_case: bool) -> None:
    ids = {
        match.id for match in in_memory(texts).grep(Pattern(fragment, ignore_case=ignore_case), time.monotonic() + 60)
    }
    exact = {str(number) for number, content in enumerate(texts) if fragment in content}
    assert exact <= ids if ignore_case else exact == ids
    if ignore_case:
        assert ids <= {str(number) for number, content in enumerate(texts) if fragment.casefold() in content.casefold()}


@pytest.mark.parametrize("pattern", ["(a|aa)+$", "(.*)(.*)(.*)(.*)zzz", "(x+x+)+y", "((a?){30}){5}b", "[^b]*c"])
def test_hostile_expressions_take_no_longer(pattern: str) -> None:
    """A backtracking engine would not come back from these."""
    texts = in_memory(["a" * 5_000] * 50)
    start = time.process_time()  # not hurt by other programs
    with contextlib.suppress(TimeoutError):
        list(texts.grep(Pattern(pattern, regex=True), time.monotonic() + 2.0))
    assert time.process_time() - start < 10


def test_an_expression_may_match_parts_of_a_character() -> None:
    (match,) = in_memory(["a列b"]).grep(Pattern(r"a\C", regex=True), time.monotonic() + 60)
    assert (match.start, match.end) == (0, 1)


@pytest.mark.parametrize("pattern", ["(", "a**", r"\1", "((a{100}){100}){100}", "(?=a)", "\ud800"])
def test_what_is_no_expression_is_refused(pattern: str) -> None:
    with pytest.raises(InputError, match="pattern"):
        Pattern(pattern, regex=True)


def test_a_grep_that_takes_too_long_says_so(server: Server[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pointsman.integrations.mcp.reading_tools.SECONDS", -1.0)
    cut_short = answer(call(server, "grep", pattern="one"))
    assert (cut_short["matches"], cut_short["more"]) == ([], True)
    assert cut_short["degraded"] == ["files", "more", "notes"]


def test_a_grep_stops_within_a_document_whose_matches_are_all_empty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each empty match reads the rest of the text: without a look at the clock, time would be quadratic."""
    pattern, text = Pattern("(?:a*Z)?", regex=True), "a" * 1_000
    steps = itertools.count()
    monkeypatch.setattr("pointsman.integrations.mcp.grep.time.monotonic", lambda: float(next(steps)))
    with pytest.raises(TimeoutError):
        list(in_memory([text]).grep(pattern, 10.0))
    assert next(steps) < 20


def test_grep_shows_k_and_says_that_there_is_more(server: Server[Any]) -> None:
    cut_answer = answer(call(server, "grep", pattern="[a-z]+", regex=True, k=1, context=0))
    assert (len(cut_answer["matches"]), cut_answer["more"]) == (1, True)
    match = cut_answer["matches"][0]
    assert match["text"] == answer(call(server, "fetch", id=match["id"]))["text"][match["start"] : match["end"]]
    full_answer = answer(call(server, "grep", pattern="the (first|second) one", regex=True, ignore_case=True))
    assert ([match["id"] for match in full_answer["matches"]], full_answer["more"]) == (
        ["more/same", "notes/same"],
        False,
    )
    many_matches = answer(call(server, "grep", pattern="e", datasets=["files"]))
    assert max(match["count"] for match in many_matches["matches"]) <= MAX_COUNT


def test_a_dataset_that_is_dropped_meanwhile_does_not_keep_others_from_answering(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pointsman.Workspace(tmp_path / "workspace", embedder=HashingEmbedder()) as workspace:
        workspace.dataset("notes").add([Document("1", "A note on tea.")])
        server = create_server(workspace)
        monkeypatch.setattr(workspace, "names", lambda: ["gone", "notes"])
        assert answer(call(server, "search", query="tea", refuse=False))["datasets"] == ["notes"]
        assert [match["id"] for match in answer(call(server, "grep", pattern="tea"))["matches"]] == ["notes/1"]
        assert answer(call(server, "list_datasets"))["total"] == 1
        assert answer(call(server, "route", query="tea"))
        assert answer(call(server, "fetch", id="1"))["text"] == "A note on tea."


def test_without_texts_in_memory_documents_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pointsman.Workspace(tmp_path / "workspace", embedder=HashingEmbedder()) as workspace:
        dataset = workspace.dataset("notes")
        dataset.add([Document(str(n), f"text {n}") for n in range(20)])
        pattern = Pattern("text 1[0-4]", regex=True)
        texts = texts_of(dataset.store)
        deadline = time.monotonic() + 60
        matches = list(grep(dataset.store, texts, pattern, deadline))
        assert [match.id for match in matches] == ["10", "11", "12", "13", "14"]
        monkeypatch.setattr("pointsman.integrations.mcp.grep.DATASET_BYTES", 50)
        assert texts_of(dataset.store) is None
        assert list(grep(dataset.store, None, pattern, deadline)) == matches
