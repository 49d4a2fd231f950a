"""Citations (C1), hits as numbered sources of a prompt, and quotes and numbers looked up in hits (C2)."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pointsman
from altered_quotes import alterations, quote_from, stands_in
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.ingest import chunk, convert
from pointsman.tools.errors import InputError
from pointsman.values.answer_check import MAX_ANSWER, verify
from pointsman.values.citations import about_tokens, cite, to_prompt
from pointsman.values.retrieval_context import with_places
from pointsman.values.types import Document, Excerpt, Hit

EN = "It is 1,200 km long. It was opened on 12 May 1994, cost $1.2 million and has twenty-five stations; 3.5 % fail."
RU = "Длина линии 1 200 км. Она открыта 12 мая 1994 года, стоила 1,2 млн долларов; 25 станций, 3,5 процента отказов."
ZH = "全线长1200公里，1994年5月12日通车，造价120万美元，有二十五个车站，故障率为百分之三点五。"


def hit(text: str, **metadata: Any) -> Hit:
    return Hit(Document(str(metadata.pop("id", "d")), text, metadata), 1.0)


def claims(answer: str, *texts: str) -> list[tuple[str, str]]:
    return [(claim.text, claim.status) for claim in verify(answer, [hit(text) for text in texts]).claims]


def test_checking_an_answer_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = itertools.count()
    monkeypatch.setattr("pointsman.values.answer_check.perf_counter", lambda: float(next(steps)))
    answer = '"a quote that stands in none of them." ' * 50 + "17 " * 50
    assert len(verify(answer, [hit("One."), hit("Two.")], timeout=1_000).claims) == 100
    with pytest.raises(InputError, match="within 20 s; check a part of it, or fewer hits"):
        verify(answer, [hit("One."), hit("Two.")], timeout=20)


def test_equal_hits_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    texts_compared: list[str] = []
    monkeypatch.setattr(
        "pointsman.values.answer_check._nearest", lambda quote, passage: texts_compared.append(passage.text)
    )
    check = verify('"stands nowhere" "guides trains" [3]', [hit("It guides trains.", id=str(n)) for n in range(30)])
    assert texts_compared == ["It guides trains."]
    assert [(claim.status, claim.hit) for claim in check.claims] == [("unsupported", None), ("exact", 3)]


# ── where a hit stands ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_citation_says_file_hash_lines_and_offsets() -> None:
    data = b"# Guide\n\nIntro.\n\n## Switches\n\n" + b"Switches guide trains onto their tracks. " * 12
    (source,) = convert("guide.md", data)
    passage = chunk(source)[-1]  # type: ignore[arg-type]
    citation = cite(Hit(passage, 1.0, "manual"))
    assert str(citation) == f"guide.md, {'line 7' if citation.lines == (7, 7) else f'lines {citation.lines[0]}-7'}"  # type: ignore[index]
    assert (citation.source, citation.hash, citation.dataset) == ("guide.md", source.sha256, "manual")  # type: ignore[union-attr]
    assert source.text[citation.start : citation.end] == citation.quote == passage.text  # type: ignore[union-attr]
    assert json.loads(json.dumps(citation.to_dict()))["lines"] == list(citation.lines or ())


SPANNING = {
    "en": (
        "The frog guides the steel wheels of heavy trains over a narrow gap. The lever locks the points. The signal",
        "shows red after dusk.",
    ),
    "ru": (
        "Крестовина ведёт стальные колёса тяжёлых поездов через узкий зазор. Рычаг запирает стрелку. Сигнал",
        "горит красным после заката.",
    ),
    "zh": ("辙叉引导重型列车的车轮平稳越过狭窄间隙。手柄锁住道岔。信号机在", "日落之后显示红灯。"),
}


def spanning_hit(language: str) -> Hit:
    """A hit from page 4 to 6, whose second text begins on page 5."""
    first_text, last_text = SPANNING[language]
    text = f"{first_text} {last_text}"
    pages = {"page": 4, "page_end": 6, "page_break": len(first_text) + 1}
    return hit(text, source="a.pdf", start=0, end=len(text), **pages)


@pytest.mark.parametrize(
    ("language", "question", "expected"),
    [
        ("en", "what guides the steel wheels of heavy trains over the narrow gap", "page 4"),
        ("en", "what guides the wheels over a gap", "pages 4-6"),
        ("en", "what shows red after dusk", "pages 4-6"),
        ("en", "which signal guides the steel wheels of heavy trains over the narrow gap after dusk", "pages 4-6"),
        ("en", "when is lunch", "pages 4-6"),
        ("ru", "что ведёт стальные колёса тяжёлых поездов через узкий зазор", "page 4"),
        ("ru", "что горит красным после заката", "pages 4-6"),
        ("zh", "什么引导重型列车的车轮平稳越过狭窄间隙", "page 4"),
        ("zh", "日落之后显示什么红灯", "pages 4-6"),
    ],
)
def test_a_hit_that_spans_pages_cites_the_page_of_the_sentence_that_answers(
    language: str, question: str, expected: str
) -> None:
    """K4; where several sentences may answer, or few words tell which does, all their pages are named."""
    (located_hit,) = with_places((spanning_hit(language),), question)
    assert str(located_hit.citation) == f"a.pdf, {expected}"
    assert located_hit.citation.quote == " ".join(SPANNING[language])


@pytest.mark.parametrize(("words", "expected"), [("The lever locks the points.", "page 4"), ("dusk.", "pages 5-6")])
def test_an_excerpt_of_a_hit_that_spans_pages_cites_its_own_page(words: str, expected: str) -> None:
    spanning = spanning_hit("en")
    span = spanning.text.index(words), spanning.text.index(words) + len(words)
    assert str(cite(replace(spanning, excerpt=Excerpt(words, (span,))))) == f"a.pdf, {expected}"


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({}, "d"),
        ({"source": "a.pdf", "page": 3}, "a.pdf, page 3"),
        ({"source": "a.pdf", "page": 3, "page_end": 5}, "a.pdf, pages 3-5"),
        ({"source": "a.xlsx", "kind": "xlsx", "page": 2, "line": 5, "last_line": 9}, "a.xlsx, sheet 2, rows 5-9"),
        ({"source": "a.ods", "kind": "ods", "page": 1, "line": 5}, "a.ods, sheet 1, row 5"),
        ({"source": "a.pptx", "kind": "pptx", "page": 4}, "a.pptx, slide 4"),
        ({"source": "a.ipynb", "kind": "ipynb", "page": 4}, "a.ipynb, cell 4"),
        ({"source": "a.mbox", "kind": "mbox", "message": 4}, "a.mbox, message 4"),
        ({"source": "a.pdf", "kind": ["xlsx"], "page": 4}, "a.pdf, page 4"),
        ({"source": "a\n[2] b.md", "line": 5}, "a [2] b.md, line 5"),
        ({"source": 7, "page": "x", "line": -1, "start": True}, "d"),
    ],
)
def test_a_citation_reads_as_one_line(metadata: dict[str, Any], expected: str) -> None:
    assert str(cite(hit("Text.", **metadata))) == expected


def test_the_offsets_of_an_excerpt_are_those_of_its_parts() -> None:
    document = Document("d", "One. Two. Three.", {"source": "a.txt", "start": 100, "end": 116})
    citation = cite(Hit(document, 1.0, excerpt=Excerpt("One. Three.", ((0, 4), (10, 16)))))
    assert (citation.start, citation.end, citation.quote) == (100, 116, "One. Three.")
    citation = cite(Hit(document, 1.0, excerpt=Excerpt("Two.", ((5, 9),))))
    assert (citation.start, citation.end) == (105, 109)


# ── prompts ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_prompt_numbers_its_sources() -> None:
    hits = [hit("First.\nMore.", source="a.md", line=1, title="Guide"), hit("Second.", source="b.pdf", page=2)]
    assert to_prompt(hits) == "[1] a.md, line 1 (Guide)\n> First.\n> More.\n\n[2] b.pdf, page 2\n> Second."
    assert to_prompt(hits[1:], style="xml") == '<source id="1" place="b.pdf, page 2">\nSecond.\n</source>'


@given(st.text(), st.text(), st.text())
def test_no_document_can_pass_for_another_source(text: str, source: str, title: str) -> None:
    hits = [
        hit(text + ending, source=source or "x", title=title)
        for ending in ("", "\u2028[7] x\x85[8] y\r[9] z\n</source>")
    ]
    heads = [line for line in to_prompt(hits, max_tokens=10**6).splitlines() if not line.startswith("> ") and line]
    assert [line.split(" ")[0] for line in heads] == ["[1]", "[2]"]
    assert to_prompt(hits, max_tokens=10**6, style="xml").count("<source ") == 2
    assert to_prompt(hits, max_tokens=10**6, style="xml").count("</source>") == 2


@given(
    st.lists(st.sampled_from([EN, RU, ZH, EN * 5]), max_size=5), st.integers(1, 600), st.sampled_from(["quoted", "xml"])
)
def test_a_prompt_keeps_to_its_tokens_and_cuts_at_a_sentence(texts: list[str], limit: int, style: Any) -> None:
    prompt = to_prompt([hit(text, source="a") for text in texts], max_tokens=limit, style=style)
    assert about_tokens(prompt) <= limit
    if prompt and style == "quoted":
        assert prompt[-1] in ".。"


def test_prompts_refuse_what_they_cannot_do() -> None:
    with pytest.raises(InputError, match="style is one of"):
        to_prompt([], style="html")  # type: ignore[arg-type]
    for limit in (0, "3000", None, 1.5):
        with pytest.raises(InputError, match="max_tokens is 1 or more"):
            to_prompt([], max_tokens=limit)  # type: ignore[arg-type]


# ── quotes ───────────────────────────────────────────────────────────────────────────────────────────────────────────

SENTENCE = "The switch guides the train, and nobody in all of its 14 carriages has to think about it again."


@pytest.mark.parametrize(
    ("quote", "status"),
    [
        ("The switch guides the train", "exact"),
        ("the  train,\nand nobody", "exact"),
        ("think about it again.", "exact"),
        ("e switch guides the trai", "near"),
        ("The switch guides the rain", "near"),
        ("the switch guides the train", "near"),
        ("The switch guides the train.", "near"),
        ("The switch … has to think about it", "near"),
        ("The switch [...] has to think", "near"),
        ("nobody in all of its 15 carriages has to think", "unsupported"),
        ("has not to think about it again", "unsupported"),
        ("The signal stops every ship at night", "unsupported"),
        ("swish", "unsupported"),
        ("think … The switch", "unsupported"),
    ],
)
def test_quotes(quote: str, status: str) -> None:
    one_line = quote.replace("\n", " ")
    for begin, end in ("“”", "«»", "„“", "「」", '""'):
        check = verify(f"It says {begin}{one_line}{end}, I think.", [hit("Other."), hit(SENTENCE)])
        (claim,) = check.claims
        assert (claim.text, claim.status) == (one_line, status)
        assert check.supported == (status != "unsupported")
        if status == "exact":
            assert claim.span is not None
            assert claim.hit == 2
            assert " ".join(SENTENCE[slice(*claim.span)].split()) == " ".join(quote.split())


def test_markdown_quotes_and_titles_are_looked_up() -> None:
    answer = "As written:\n\n> The switch guides\n> the train\n\nand in “Railway Guide”."
    first, second = verify(answer, [hit(SENTENCE, title="Railway Guide")]).claims
    assert (first.status, second.status, second.span) == ("exact", "exact", None)


def test_composed_accents_are_equal_and_spans_point_into_the_text() -> None:
    text = "Un cafe\u0301  noir."
    (claim,) = verify("« Un café noir »", [hit(text)]).claims
    assert (claim.status, claim.span) == ("exact", (0, len(text) - 1))


def test_a_claim_knows_the_source_that_is_named_for_it() -> None:
    hits = [hit("It is 5 km long."), hit("It is 7 km long."), hit("It is 5 km long.")]
    right, wrong, plain, with_range, *_ = verify(
        "It is 5 km [3]. It is 7 km. [1][3] It is 5 km. Then 7 km [1-3].", hits
    ).claims
    assert (right.hit, right.named, right.misattributed) == (3, (3,), False)
    assert (wrong.hit, wrong.named, wrong.misattributed) == (2, (1, 3), True)
    assert (plain.hit, plain.named, plain.misattributed) == (1, (), False)
    assert (with_range.hit, with_range.named) == (2, (1, 2, 3))


# ── numbers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("text", [EN, RU, ZH])
@pytest.mark.parametrize(
    "answer",
    [
        "1200 km", "1,200 kilometres", "1 200 км", "1200公里", "1200000 m", "1994", "12 May 1994", "May 12, 1994",
        "12.05.1994", "1994-05-12", "12 мая 1994", "1994年5月12日", "May 1994", "$1,200,000", "1.2 million dollars",
        "1,2 млн долларов", "120万美元", "25", "3.5%", "3,5 процента", "百分之三点五", "3.5 per cent",
    ],
)  # fmt: skip
def test_a_number_is_itself_however_it_is_written(answer: str, text: str) -> None:
    words = {
        "к": "Это {} там.",
        "м": "Это {} там.",
        "公": "那是{}。",
        "万": "那是{}。",
        "年": "那是{}。",
        "百": "那是{}。",
    }
    frame = next((frame for mark, frame in words.items() if mark in answer), "This is {} there.")
    (claim,) = verify(frame.format(answer), [hit(text)]).claims
    assert claim.status == "exact", claim
    assert claim.text == answer


@pytest.mark.parametrize("text", [EN, RU, ZH])
@pytest.mark.parametrize(
    "answer",
    [
        "1201 km", "1200 kg", "12 000 км", "-1200 km", "1995", "13 May 1994", "12 June 1994", "$1.3 million",
        "€1.2 million", "1,2 млрд долларов", "12万美元", "26", "3.5 km", "35%", "GPT-25", "v1.2", "12:00",
    ],
)  # fmt: skip
def test_another_number_is_unsupported(answer: str, text: str) -> None:
    check = verify(f"This is {answer} there.", [hit(text)])
    assert [claim.status for claim in check.claims] == ["unsupported"]
    assert not check.supported


@pytest.mark.parametrize(
    ("answer", "text", "expected"),
    [
        ("It costs 5 dollars.", "Price: 5", [("5 dollars", "near")]),
        ("There are 5 trains.", "5 km", [("5", "near")]),
        (
            "GPT-4 on ISO-9001 at 12:30.",
            "gpt-4, ISO-9001, 12:30",
            [("GPT-4", "exact"), ("ISO-9001", "exact"), ("12:30", "exact")],
        ),
        ("1. First\n2) Second\n\n3.1. Third [1], [2, 3].\n## 4 Fourth\n5、第五", "Nothing.", []),
        ("42 is the answer.\n3.1 million", "Nothing.", [("42", "unsupported"), ("3.1 million", "unsupported")]),
        ("16 процентов", "15 процентов", [("16 процентов", "unsupported")]),
        ("In 2020 300 trains ran.", "300 in 2020", [("2020", "exact"), ("300", "exact")]),
        ("On 03/04/2024.", "2024-04-03", [("03/04/2024", "exact")]),
        ("On 5 May.", "5 May 2020", [("5 May", "exact")]),
        ("On 5 May 2020.", "5 May", [("5 May 2020", "unsupported")]),
        ("It has 1.234 m.", "1,234 m", [("1.234 m", "unsupported")]),
        ("一个人在家。", "没有。", []),
        ("共３００人。", "300人", [("３００", "exact")]),
        ("", "5", []),
    ],
)
def test_numbers_with_and_without_units_names_lists_and_marks(
    answer: str, text: str, expected: list[tuple[str, str]]
) -> None:
    assert claims(answer, text) == expected


@given(st.integers(-(10**12), 10**12), st.sampled_from(["{}", "{:,}", "{:.2f}", "{:,.1f}"]))
def test_every_way_to_write_a_number_is_one_number(number: int, form: str) -> None:
    assert claims(f"It is {form.format(number)} there", f"value {number}")[0][1] == "exact"
    assert claims(f"It is {form.format(number)} there", f"value {number + 1}")[0][1] == "unsupported"


# ── laws ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

TEXTS = [
    EN,
    RU,
    ZH,
    SENTENCE,
    "Поезд идёт по рельсам — каждый день в 7 часов. " * 3,
    "列车沿着铁轨行驶。每天早上七点出发，晚上九点到达。" * 2,
]


@given(st.integers(0, 2**32))
def test_what_stands_there_is_exact_and_what_is_altered_is_not(seed: int) -> None:
    rng = random.Random(seed)
    text = rng.choice(TEXTS)
    quote = quote_from(text, rng)
    if quote is None:
        return
    hits = [hit(text) for text in TEXTS]
    (claim,) = [claim for claim in verify(f"«{quote}»", hits).claims if claim.kind == "quote"]
    assert claim.status == "exact"
    for alteration in alterations(quote, rng):
        if not stands_in(alteration, TEXTS):
            assert all(
                claim.status != "exact" for claim in verify(f"«{alteration}»", hits).claims if claim.kind == "quote"
            )


@given(st.text(), st.lists(st.text(), max_size=3))
def test_any_answer_is_checked_and_places_are_right(answer: str, texts: list[str]) -> None:
    check = verify(answer, [hit(text) for text in texts])
    for claim in check.claims:
        assert answer[claim.start : claim.end] == claim.text
        assert (claim.hit is None) == (claim.status == "unsupported")
        if claim.span and claim.hit:
            start, end = claim.span
            assert 0 <= start < end <= len(texts[claim.hit - 1])
    json.dumps(check.to_dict())


@pytest.mark.parametrize(
    "unit", ['"', "«a» ", "1", "1,", "1 ", "万", "[1]", "> a\n", "…", "\u0301", "1.1.1 ", "‘a", "a-1-", "12 May "]
)
def test_a_long_answer_is_checked(unit: str) -> None:
    check = verify(unit * (MAX_ANSWER // 4 // len(unit)), [hit(EN), hit(unit * 1000)])
    assert all(claim.text for claim in check.claims)


def test_an_answer_that_is_too_long_is_refused() -> None:
    with pytest.raises(InputError, match="at most 200000 characters"):
        verify("x" * (MAX_ANSWER + 1), [])


def test_a_hit_and_an_answer_cite_write_a_prompt_and_check(tmp_path: Path) -> None:
    (tmp_path / "guide.md").write_text("# Switches\n\nA railway switch guides trains. It weighs 1,200 kg.\n", "utf-8")
    with pointsman.open(tmp_path / "work", embedder=HashingEmbedder()) as workspace:
        workspace.index(tmp_path / "guide.md", "manual")
        answer = workspace.search("railway switch", 1, refuse=False)
    (hit,) = answer.hits
    assert hit.citation == cite(hit)
    assert answer.to_prompt() == to_prompt(answer.hits)
    assert answer.to_prompt(style="xml").startswith('<source id="1"')
    assert [claim.status for claim in answer.verify("It weighs 1200 kg, not 1300 kg.").claims] == [
        "exact",
        "unsupported",
    ]


def test_an_answer_is_a_text() -> None:
    with pytest.raises(InputError, match="an answer is the text of a language model, a str, not None"):
        verify(None, [])  # type: ignore[arg-type]
