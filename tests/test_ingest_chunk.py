"""Passages: exact offsets, bounded sizes, whole sentences, ids that follow the content."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.ingest import ParsedDocument, Problem, Section, chunk, convert, estimate_tokens
from pointsman.ingest.chunk import HARD_LIMIT, _cost, _running_costs
from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from pointsman.values.types import Document

WORDS = {
    "en": [
        "the",
        "railway",
        "switch",
        "guides",
        "every",
        "train",
        "onto",
        "its",
        "proper",
        "track",
        "before",
        "night",
        "falls",
    ],
    "ru": [
        "стрелочник",
        "переводит",
        "каждый",
        "поезд",
        "на",
        "нужный",
        "путь",
        "пока",
        "не",
        "наступила",
        "тёмная",
        "ночь",
    ],
    "zh": ["道岔", "引导", "每一列", "火车", "驶上", "正确", "轨道", "直到", "夜晚"],
}
STOP = {"en": ". ", "ru": ". ", "zh": "。"}
ANY_TEXT = st.text(st.characters() | st.sampled_from(" \n\r\t.。!?👩‍🚀é\u0301\ud800中я"), max_size=400)


def prose(language: str, count: int, seed: int = 1) -> list[str]:
    """Sentences that differ from each other."""
    rng = random.Random(seed)
    space = "" if language == "zh" else " "
    sentences = []
    for number in range(count):
        words = space.join(rng.choices(WORDS[language], k=rng.randint(6, 18)))
        sentences.append(f"{words.capitalize()}{space}{number}{STOP[language]}")
    return sentences


def plain(text: str, path: str = "a.txt") -> ParsedDocument:
    return ParsedDocument(path, "Title", (Section((), text, 0),), text, "txt")


def markdown(text: str) -> ParsedDocument:
    (source,) = convert("a.md", text.encode())
    assert isinstance(source, ParsedDocument)
    return source


def assert_exact(source: ParsedDocument, passages: list[Document], limit: int) -> None:
    coverage = bytearray(len(source.text))
    for position, passage in enumerate(passages):
        start, end = passage.metadata["start"], passage.metadata["end"]
        assert source.text[start:end] == passage.text
        assert passage.text.strip() == passage.text != ""
        assert passage.metadata["position"] == position
        assert estimate_tokens(passage.text) <= limit + 1
        coverage[start:end] = b"\x01" * (end - start)
    for section in source.sections:
        section_coverage = coverage[section.start : section.start + len(section.text)]
        assert [
            char for char, is_in in zip(section.text, section_coverage, strict=True) if not is_in and not char.isspace()
        ] == []
    assert len({passage.id for passage in passages}) == len(passages)


@given(ANY_TEXT, st.sampled_from([(16, 0), (16, 8), (64, 20)]))
@settings(deadline=None)  # the first call imports numpy
def test_offsets_are_exact_and_nothing_is_lost(text: str, sizes: tuple[int, int]) -> None:
    source = plain(text)
    assert_exact(source, chunk(source, max_tokens=sizes[0], overlap=sizes[1]), sizes[0])


@given(st.lists(st.tuples(st.integers(0, 3), ANY_TEXT), max_size=8))
@settings(max_examples=50)
def test_sections_of_any_text_are_exact(blocks: list[tuple[int, str]]) -> None:
    from pointsman.ingest.source_text import Block, outline

    source = outline("a", "md", [Block(*block) for block in blocks])
    source.text.encode()  # what converters give can be written to any file
    assert_exact(source, chunk(source, max_tokens=32, overlap=8), 32)


@pytest.mark.parametrize("language", ["en", "ru", "zh"])
def test_passages_are_whole_sentences_with_overlap(language: str) -> None:
    sentences = prose(language, 120)
    source = plain("".join(sentences))
    passages = chunk(source, max_tokens=128, overlap=40)
    assert_exact(source, passages, 128)
    assert 8 < len(passages) < 60
    starts = {sentence.strip()[:30] for sentence in sentences}
    for first, second in pairwise(passages):
        assert any(second.text.startswith(start) for start in starts)
        assert first.text.endswith(STOP[language].strip())
        assert second.metadata["start"] < first.metadata["end"]  # the overlap
    assert {passage.metadata["language"] for passage in passages} == {language}


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        # counted with the tokenizer of multilingual-e5-small
        ("The quick brown fox jumps over the lazy dog and runs into the forest.", 17),
        ("Каждый охотник желает знать, где сидит фазан, и почему он там сидит.", 19),
        ("扳道工负责扳动铁路道岔，让每一列火车都走上正确的轨道。", 20),
    ],
)
def test_sizes_are_those_of_the_embedder(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == pytest.approx(tokens, rel=0.25)


@pytest.mark.parametrize("unit", ["x", "道", "ы", "word ", " ", "👩‍🚀", "\u0301", "7", "-", "\n"])
def test_a_megabyte_without_a_stop_is_cut_within_the_limit(unit: str) -> None:
    source = plain("a" + unit * (200_000 // len(unit)) + "b")
    passages = chunk(source, max_tokens=HARD_LIMIT, overlap=0)
    assert_exact(source, passages, HARD_LIMIT)
    if unit == "word ":
        assert all(passage.text.strip("ab").startswith("word") for passage in passages[1:])


def test_an_emoji_is_not_torn_apart() -> None:
    passages = chunk(plain("👩\u200d🚀" * 200), max_tokens=16, overlap=0)
    assert not any(passage.text.startswith("\u200d") for passage in passages)


def test_a_long_heading_leaves_room_for_text() -> None:
    source = markdown("# " + "heading " * 500 + "\n\n" + "".join(prose("en", 200)))
    for passage in chunk(source, max_tokens=HARD_LIMIT):
        assert estimate_tokens(passage.searchable) <= HARD_LIMIT + 2


def test_metadata_says_where_a_passage_stands() -> None:
    body = "".join(prose("ru", 6))
    source = markdown(f"# Книга\n\n{body}\n\n## Глава\n\n{body}1\n")
    first, second = chunk(source)
    assert first.metadata["title"] == "Книга"
    assert second.metadata["title"] == "Книга › Глава"
    assert second.metadata["headings"] == ["Книга", "Глава"]
    assert (first.metadata["parent"], second.metadata["parent"]) == ("a.md#0", "a.md#1")
    assert second.metadata["source"] == "a.md"
    assert second.metadata["kind"] == "md"
    json.dumps(dict(second.metadata))


def test_tiny_sections_are_joined_and_others_are_not() -> None:
    long = "".join(prose("en", 8))
    source = markdown(f"# A\n\nTiny.\n\n## B\n\nTiny too.\n\n# C\n\n{long}\n\n# D\n\n{long}D\n")
    joint, single = chunk(source)
    assert joint.text.startswith("A\n\nTiny.\n\nB\n\nTiny too.\n\nC\n\n")
    assert "headings" not in joint.metadata
    assert single.metadata["headings"] == ["D"]


def test_code_knows_its_lines() -> None:
    text = "import os\n\n\ndef first():\n" + "    call_something(1, 2, 3)\n" * 20 + "\n\ndef second():\n    return 2\n"
    (source,) = convert("m.py", text.encode())
    assert isinstance(source, ParsedDocument)
    passages = chunk(source, max_tokens=64)
    assert_exact(source, passages, 64)
    for passage in passages:
        assert text.split("\n")[passage.metadata["line"] - 1].strip() == passage.text.split("\n")[0].strip()
    assert passages[-1].metadata["headings"] == ["second"]


@pytest.mark.parametrize("position", [0, 40, 150, 299])
@pytest.mark.parametrize("language", ["en", "ru", "zh"])
def test_an_edit_changes_only_the_passages_around_it(language: str, position: int) -> None:
    sentences = prose(language, 300)
    ids_before = {passage.id for passage in chunk(plain("".join(sentences)), max_tokens=128, overlap=16)}
    longer = [*sentences[:position], sentences[7].replace("7", "inserted"), *sentences[position:]]
    ids_after = {passage.id for passage in chunk(plain("".join(longer)), max_tokens=128, overlap=16)}
    assert 1 <= len(ids_after - ids_before) <= 8
    assert len(ids_before) > 30


def test_an_edit_in_one_section_leaves_the_others() -> None:
    sections = [f"# Part {number}\n\n{''.join(prose('en', 12, seed=number))}\n\n" for number in range(6)]
    ids_before = {passage.id for passage in chunk(markdown("".join(sections)))}
    sections[2] = sections[2].replace(" 3. ", " three. ")
    ids_after = {passage.id for passage in chunk(markdown("".join(sections)))}
    assert len(ids_after - ids_before) <= 2
    assert len(ids_before - ids_after) <= 2


def test_ids_tell_equal_passages_apart() -> None:
    long = "".join(prose("en", 6))
    passages = chunk(markdown(f"# A\n\n{long}\n\n# A\n\n{long}\n"))
    assert [passage.id for passage in passages] == [passages[0].id, f"{passages[0].id}-2"]
    assert passages[0].id.startswith("a.md#")


def test_a_record_keeps_its_id_only_while_it_is_one_passage() -> None:
    short = ParsedDocument(
        "c.jsonl", "", (Section((), "Text.", 0),), "Text.", "jsonl", {"start": "noon"}, record_id="d1"
    )
    (passage,) = chunk(short)
    assert passage.id == "d1"
    assert passage.metadata["start_"] == "noon"
    text = "".join(prose("en", 60))
    long = ParsedDocument("c.jsonl", "", (Section((), text, 0),), text, "jsonl", {}, record_id="d1")
    passages = chunk(long)
    assert len(passages) > 1
    assert all(passage.id.startswith("d1#") and passage.metadata["parent"] == "d1" for passage in passages)


def _passages_of(path: str, data: str) -> list[Document]:
    return [
        passage
        for source in convert(path, data.encode())
        if isinstance(source, ParsedDocument)
        for passage in chunk(source)
    ]


RECORDS_OF_ONE_TEXT = {
    "a.jsonl": '{"text": "ok", "user": "anna"}\n{"text": "ok", "user": "boris"}\n{"text": "ok", "title": "T"}\n',
    "a.json": '[{"text": "ok", "user": "anna"}, {"text": "ok", "user": "boris"}, {"text": "ok", "title": "T"}]',
    "a.csv": "text,user,title\nok,anna,\nok,boris,\nok,,T\n",
}


@pytest.mark.parametrize("name", RECORDS_OF_ONE_TEXT)
def test_records_of_one_text_with_other_fields_are_all_kept(name: str) -> None:
    passages = _passages_of(name, RECORDS_OF_ONE_TEXT[name])
    assert len({passage.id for passage in passages}) == 3
    assert [passage.metadata.get("user") or passage.metadata["title"] for passage in passages] == ["anna", "boris", "T"]


def test_long_records_without_ids_that_share_passages_are_all_kept() -> None:
    text = "".join(prose("en", 60))
    data = "".join(json.dumps({"text": text, "user": user}) + "\n" for user in ("anna", "boris"))
    passages = _passages_of("a.jsonl", data)
    assert len({passage.id for passage in passages}) == len(passages) > 2
    parents = [passage.metadata["parent"] for passage in passages]
    assert parents == sorted(parents, key=parents.index)
    assert len(set(parents)) == 2


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv"])
def test_a_record_that_repeats_another_in_everything_is_stored_once_and_reported(name: str) -> None:
    records = ["a", "b", "a", "a"]
    data = {
        "a.jsonl": "".join(json.dumps({"n": value}) + "\n" for value in records),
        "a.json": json.dumps([{"n": value} for value in records]),
        "a.csv": "\n".join(["n", *records]),
    }[name]
    items = list(convert(name, data.encode()))
    assert [item.text for item in items if isinstance(item, ParsedDocument)] == ["n: a", "n: b"]
    (reason,) = (item.reason for item in items if isinstance(item, Problem))
    unit = {"a.jsonl": "line 3", "a.json": "record 3", "a.csv": "line 4"}[name]
    assert reason == f"2 records repeat an earlier one in text and fields, first {unit}; such records are stored once"


def test_a_tiny_record_carries_no_more_than_its_place() -> None:
    first, second = _passages_of("a.jsonl", '{"n": 1}\n{"n": 2}\n')
    assert dict(second.metadata) == {
        "n": 2,
        "source": "a.jsonl",
        "kind": "jsonl",
        "start": len(first.text) + 2,
        "end": len(first.text) + 2 + len(second.text),
        "line": 2,
        "sha256": second.metadata["sha256"],
    } | ({"language": second.metadata["language"]} if "language" in second.metadata else {})


@pytest.mark.parametrize(("max_tokens", "overlap"), [(0, 0), (481, 0), (64, 33), (64, -1)])
def test_sizes_out_of_range_are_refused(max_tokens: int, overlap: int) -> None:
    with pytest.raises(InputError, match="between"):
        chunk(plain("Text."), max_tokens=max_tokens, overlap=overlap)


@given(ANY_TEXT)
def test_both_ways_to_count_agree(text: str) -> None:
    assert _cost(text) == pytest.approx(_running_costs(text)[-1])


def text_with_pages(*pages: str, runs_on: frozenset[int] = frozenset()) -> ParsedDocument:
    from pointsman.ingest.source_text import Block, outline

    blocks = [Block(0, text, page=number, runs_on=number in runs_on) for number, text in enumerate(pages, start=1)]
    return outline("a.pdf", "pdf", blocks)


@pytest.mark.parametrize("language", ["en", "ru", "zh"])
@pytest.mark.parametrize("size", [1, 6, 60])
def test_a_passage_cites_the_page_of_every_word_in_it(language: str, size: int) -> None:
    """K4: short pages are not joined, and no overlap comes from the page before."""
    pages = ["".join(prose(language, size, seed)).strip() for seed in range(5)]
    passages = chunk(text_with_pages(*pages))
    assert {passage.metadata["page"] for passage in passages} == {1, 2, 3, 4, 5}
    for passage in passages:
        assert passage.text in pages[passage.metadata["page"] - 1]
        assert "page_end" not in passage.metadata


@pytest.mark.parametrize(
    ("before", "after"), [("The lever is pulled,", "then the gate locks."), ("扳道员拉手柄，然后", "锁上大门。")]
)
def test_a_sentence_over_a_page_break_is_whole_and_has_both_pages(before: str, after: str) -> None:
    first, second = chunk(text_with_pages(f"Start. {before}", f"{after} The end.", runs_on=frozenset({2})))
    assert first.text.endswith(before + ("\n" if before.isascii() else "") + after)
    assert (first.metadata["page"], first.metadata["page_end"]) == (1, 2)
    assert first.text[first.metadata["page_break"] :] == after
    assert (second.text, second.metadata["page"], "page_end" in second.metadata) == ("The end.", 2, False)


def test_a_sentence_longer_than_a_page_ends_with_its_page() -> None:
    passages = chunk(text_with_pages("It", *["and more " * 200] * 3, runs_on=frozenset({2, 3, 4})), max_tokens=100)
    assert {passage.metadata["page"] for passage in passages} == {1, 2, 3, 4}
    assert not any("page_end" in passage.metadata for passage in passages)


@pytest.mark.parametrize("language", ["en", "ru", "zh"])
def test_a_passage_cites_the_lines_of_every_word_in_it(language: str) -> None:
    """K4: overlap stays on the line of the passage's own text."""
    lines = ["".join(prose(language, 3, seed)).strip() for seed in range(60)]
    (source,) = convert("a.txt", "\n".join(lines).encode())
    assert isinstance(source, ParsedDocument)
    for passage in chunk(source, max_tokens=100, overlap=40):
        first = passage.metadata["line"]
        last = passage.metadata.get("last_line", first)
        assert passage.text in "\n".join(lines[first - 1 : last])
        assert all(line in passage.text for line in lines[first : last - 1])
        assert passage.text.split("\n")[0] in lines[first - 1]
