"""No heading and no word of a file is lost: each stands in the text of a passage, or in its title."""

from __future__ import annotations

import json
import random
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import losses_kit
from losses_kit import FORMATS, SIZES, descriptions, generated_file, losses
from pointsman.ingest import ParsedDocument, Problem, chunk, convert
from pointsman.ingest.source_text import Block, outline
from pointsman.text import DEFAULT_ANALYZER

FAQ = (
    "# FAQ\n\n## How long is the warranty?\n\nTwo years.\n\n## Do you ship abroad?\n\nYes.\n\n## May I return it?\n\n"
    "Within a month.\n\n## Who pays the postage?\n\nYou do.\n\n## Is there a shop?\n\nNo.\n\n"
    "## Do you repair?\n\nOften.\n"
)


def parse(name: str, text: str) -> ParsedDocument:
    (source,) = convert(name, text.encode())
    assert isinstance(source, ParsedDocument)
    return source


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", FORMATS)
def test_nothing_of_a_generated_file_is_lost(kind: str, size: tuple[int, int]) -> None:
    for seed in range(5):
        name, data, names = generated_file(kind, random.Random(f"{kind} {seed}"))
        assert losses(name, data, *size, headings=names) == []


@given(
    st.lists(st.tuples(st.integers(0, 9), st.text(st.sampled_from("ab. \n道ы9"), max_size=250)), max_size=12),
    st.sampled_from(SIZES),
)
@settings(max_examples=300, deadline=None)
def test_nothing_of_any_outline_is_lost(blocks: list[tuple[int, str]], size: tuple[int, int]) -> None:
    from losses_kit import losses_of

    source = outline("a", "md", [Block(*block) for block in blocks])
    assert losses_of(source, chunk(source, max_tokens=size[0], overlap=size[1])) == []


def test_descriptions_of_installed_packages_lose_nothing() -> None:
    files = list(islice(descriptions(), 40))
    assert files
    assert [losses(name, text.encode("utf-8", "replace"), 256, 32) for name, text in files] == [[]] * len(files)


def test_every_question_of_short_answers_stands_in_a_passage_that_begins_at_its_heading() -> None:
    source = parse("faq.md", FAQ)
    passages = chunk(source)
    searchable_text = "\n".join(passage.searchable for passage in passages)
    assert [section.heading_path[-1] in searchable_text for section in source.sections] == [True] * 6
    for passage in passages:
        assert source.text[passage.metadata["start"] : passage.metadata["end"]] == passage.text


def test_every_version_of_a_changelog_stands_in_a_passage() -> None:
    versions = [f"4.{minor}.{patch}" for minor in range(4) for patch in range(5)]
    text = "# Changes\n\n" + "\n\n".join(f"## {version}\n\n- Mended number {version[2:]}." for version in versions)
    searchable_text = " ".join(passage.searchable for passage in chunk(parse("a.md", text)))
    assert [version for version in versions if f" {version}" not in searchable_text.replace("\n", " ")] == []


def test_a_heading_above_joined_sections_of_which_it_is_not_the_common_one_is_kept() -> None:
    passages = chunk(parse("a.md", "# One\n\n## Two\n\nTiny.\n\n# Three\n\nTiny too.\n"))
    assert [passage.text for passage in passages] == ["One\n\nTwo\n\nTiny.\n\nThree\n\nTiny too."]


def test_headings_too_long_for_a_title_are_in_the_text() -> None:
    headings = [f"{level} " + "switch " * 20 for level in range(6)]
    text = "\n\n".join(f"{'#' * (level + 1)} {heading}" for level, heading in enumerate(headings)) + "\n\nTrains.\n"
    assert losses("a.md", text.encode(), 64, 0) == []


def test_a_heading_in_the_text_is_not_divided_between_passages() -> None:
    heading = " ".join(f"道岔 API_KEY 4.1.{number}" for number in range(6))
    source = parse("a.md", f"# {heading}\n\n" + "A switch guides trains. " * 60)
    first, *later_passages = chunk(source, max_tokens=64, overlap=16)
    assert heading in first.searchable
    assert later_passages


REPEATING = {
    "a.csv": "name,text\nOne,A switch.\nTwo,A signal.\nOne,A switch.\n",
    "a.jsonl": "".join(
        json.dumps({"title": title, "text": text}) + "\n"
        for title, text in (("One", "A switch."), ("Two", "A signal."), ("One", "A switch."))
    ),
}


@pytest.mark.parametrize("name", REPEATING)
def test_a_repeated_record_is_no_loss_only_if_the_first_is_stored_and_the_others_are_reported(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = REPEATING[name].encode()
    items = list(convert(name, data))
    assert [type(item) for item in items] == [ParsedDocument, ParsedDocument, Problem]
    assert losses(name, data, 64, 0) == []
    for left_out, loss in enumerate(("record {", "record {", "1 repeated records, 0 reported")):
        remaining = items[:left_out] + items[left_out + 1 :]
        monkeypatch.setattr(losses_kit, "convert", lambda *_, remaining=remaining: remaining)
        (reason,) = losses(name, data, 64, 0)
        assert reason.startswith(loss)


@pytest.mark.parametrize("fields", [{}, {"id": "r1"}])
@pytest.mark.parametrize("count", [2, 3, 4, 9])
def test_no_passage_of_a_long_record_is_lost(fields: dict[str, str], count: int) -> None:
    sentences = [f"Sentence {number} tells of switches, signals and trains." for number in range(count)]
    source = parse("a.jsonl", json.dumps({**fields, "text": " ".join(sentences)}))
    assert [passage.text for passage in chunk(source, max_tokens=16, overlap=0)] == sentences


WRAPPED = "自动备份可以帮助你从错误中恢复，但是如果你的设备损坏，它们就无法再保护你的牌\n组；不再需要的就请删掉。"
LONG_LINES = "自动备份可以帮助你从错误中恢复，但是如果你的设备损坏，它们就无法再保护你的牌组\n\n"
MAIL = "Subject: 备份\nContent-Type: text/plain; charset=utf-8\n\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.md", f"# 备份\n\n{WRAPPED}"),
        ("a.md", f"# 备份\n\n- {WRAPPED}".replace("\n组", "\n  组")),
        ("a.txt", WRAPPED),
        ("a.rst", f"备份\n====\n\n{WRAPPED}"),
        ("a.org", f"* 备份\n{WRAPPED}"),
        ("a.adoc", f"== 备份\n\n{WRAPPED}"),
        ("a.eml", MAIL + WRAPPED),
    ],
)
def test_words_that_an_editor_has_broken_over_two_lines_are_whole(name: str, text: str) -> None:
    passages = chunk(parse(name, text))
    assert "牌组；" in passages[0].text
    assert "牌组" in DEFAULT_ANALYZER.tokens(passages[0].text)
    assert losses(name, text.encode(), 256, 32) == []


@pytest.mark.parametrize("name", ["a.md", "a.txt"])
def test_a_citation_counts_the_lines_that_were_joined(name: str) -> None:
    lines = [
        f"第{n}章的内容讲的是第{n}种火车的来历和它在那个年代里所走过的每一条路线以及沿途的风\n景。" for n in range(40)
    ]
    text = "\n\n".join(lines)
    passages = chunk(parse(name, text), max_tokens=64)
    assert len(passages) > 10
    for passage in passages:
        first, last = passage.metadata["line"], passage.metadata.get("last_line", passage.metadata["line"])
        cited = "".join(text.split("\n")[first - 1 : last])
        assert cited == passage.text.replace("\n", "")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.md", "春眠不觉晓\n处处闻啼鸟"),
        ("a.txt", LONG_LINES + "姓名\n地址"),
        ("a.log", WRAPPED),
        ("a.py", f'"""{WRAPPED}"""'),
    ],
)
def test_lines_that_are_meant_stay(name: str, text: str) -> None:
    assert parse(name, text).text.split() == text.split()
