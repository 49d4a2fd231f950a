"""Compression without a model: what bears on the query, within the budget, word for word from the source."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.embedders import HashingEmbedder
from pointsman.retrieval.refine.compress import JOINER, MAX_CHARS, BaseCompressor, Compressed, ExtractiveCompressor
from pointsman.retrieval.refine.compress.spans import TextBudget, Unit, fill, units_of, window
from pointsman.tools.errors import InputError
from pointsman.values.types import Document, Excerpt, Hit, Provenance, Query, Ranked, Refusal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

EN = (
    "The bridge was opened in 1932. It carries trains and cars. Its architect was John Bradfield. "
    "Many tourists climb it every year. The paint is grey. Fireworks are lit on it at New Year."
)
ZH = "大桥于1932年通车。它可以通行火车和汽车。设计师是约翰·布拉德菲尔德。每年有许多游客登桥。油漆是灰色的。"
RU = (
    "Мост открыли в 1932 году. По нему ходят поезда и машины. Его архитектором был Джон Брэдфилд. "
    "Каждый год на него поднимается много туристов. Краска серая."
)


def hit(text: str, name: str = "d", score: float = 1.0, **fields: Any) -> Hit:
    return Hit(Document(name, text), score, **fields)


def ranking(*texts: str) -> Ranked:
    return Ranked(tuple(hit(text, f"d{index}", 1 / (1 + index)) for index, text in enumerate(texts)), "bm25")


def refine(refiner: Any, query: str, ranking: Ranked, top_k: int = 10) -> Ranked:
    ranked: Ranked = refiner.refine(Query(query), ranking, top_k)
    return ranked


# ── what is kept ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("query", "text", "sentence"),
    [
        ("Who was the architect of the bridge?", EN, "Its architect was John Bradfield."),
        ("When was it opened?", EN, "The bridge was opened in 1932."),
        ("How many tourists climb the bridge?", EN, "Many tourists climb it every year."),
        ("谁是大桥的设计师？", ZH, "设计师是约翰·布拉德菲尔德。"),
        ("大桥哪年通车？", ZH, "大桥于1932年通车。"),
        ("Кто был архитектором моста?", RU, "Его архитектором был Джон Брэдфилд."),
        ("Сколько туристов поднимается на мост?", RU, "Каждый год на него поднимается много туристов."),
    ],
)
def test_sentences_that_bear_on_the_query_are_kept(query: str, text: str, sentence: str) -> None:
    filler = "A sentence about something else entirely. " * 2
    original = ranking(text, filler)
    outcome = refine(ExtractiveCompressor(max_chars=len(text) // 2), query, original)
    assert sentence in outcome.hits[0].text
    assert outcome.degraded == ()
    assert outcome.hits[0].document is original.hits[0].document
    assert (outcome.hits[0].score, outcome.scale) == (1.0, "bm25")


def test_a_number_that_is_asked_for_counts() -> None:
    text = (
        "The tower stands in the old town by the river. The tower has 324 metres. The tower is grey and made of iron."
    )
    outcome = ExtractiveCompressor(max_chars=30).refine(Query("How tall is the tower?"), ranking(text), 1)
    assert outcome.hits[0].text == "The tower has 324 metres."


def test_texts_that_fit_are_left_alone() -> None:
    original = ranking(EN, ZH)
    outcome = refine(ExtractiveCompressor(), "bridge", original)
    assert outcome.hits == original.hits
    assert outcome.detail == f"left whole: {len(EN) + len(ZH)} of at most 1000 characters"


def test_only_the_hits_of_the_answer_are_compressed() -> None:
    outcome = refine(ExtractiveCompressor(max_chars=150), "bridge", ranking(EN, RU, ZH), 2)
    assert [hit.id for hit in outcome.hits] == ["d0", "d1"]
    assert outcome.dropped == {(None, "d2"): "below the cut: only the hits of the answer are compressed"}


def test_a_hit_of_which_nothing_is_left_is_dropped_with_the_reason() -> None:
    outcome = ExtractiveCompressor(max_chars=40).refine(
        Query("Who was the architect?"), ranking(EN, "Nothing. " * 20), 5
    )
    assert [hit.id for hit in outcome.hits] == ["d0"]
    assert "used up the budget" in outcome.dropped[None, "d1"]


def test_an_empty_ranking_and_a_refusal_pass() -> None:
    refused = Ranked((), "bm25", refused=Refusal("nothing relevant"))
    outcome = ExtractiveCompressor().refine(Query("x"), refused, 5)
    assert (outcome.hits, outcome.refused, outcome.degraded) == ((), refused.refused, ())


def test_parts_are_joined_by_the_sources_own_text_or_by_the_joiner() -> None:
    text = "Alpha beta one. Alpha beta two. Nothing here at all that matters. Alpha beta three."
    outcome = ExtractiveCompressor(max_chars=51).refine(Query("alpha beta"), ranking(text), 1)
    excerpt = outcome.hits[0].excerpt
    assert excerpt is not None
    assert excerpt.text == "Alpha beta one. Alpha beta two. … Alpha beta three."
    assert excerpt.spans == ((0, 31), (66, 83))


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("the needle", "hay " * 300 + "the needle lies here " + "hay " * 300),
        ("针在哪里", "草" * 700 + "，针在这里，" + "草" * 700),
        ("где игла", "сено " * 300 + "игла лежит здесь " + "сено " * 300),
    ],
)
def test_a_sentence_longer_than_the_budget_is_cut_around_the_words(query: str, text: str) -> None:
    outcome = ExtractiveCompressor(max_chars=50).refine(Query(query), ranking(text), 1)
    assert any(word in outcome.hits[0].text for word in ("needle", "针", "игла"))
    assert 10 < len(outcome.hits[0].text) <= 50
    ((start, end),) = outcome.hits[0].excerpt.spans if outcome.hits[0].excerpt else ()
    if " " in text:
        assert text[start - 1] == " "
        assert text[end] == " "


def test_repetitions_are_kept_once_and_the_better_hit_has_them() -> None:
    sentence = "The bridge was opened in 1932 by the king."
    outcome = ExtractiveCompressor(max_chars=120).refine(
        Query("When was the bridge opened?"),
        ranking(f"{sentence} Grey paint.", f"{sentence.upper()} Other words there.", EN),
        5,
    )
    assert outcome.hits[0].text.startswith(sentence)
    assert sum("king" in hit.text.lower() for hit in outcome.hits) == 1


@pytest.mark.parametrize(
    "pair",
    [
        (
            "The drug is effective in adults with mild disease.",
            "The drug is not effective in adults with mild disease.",
        ),
        (
            "Sales rose by 12 percent in the north of the country.",
            "Sales rose by 15 percent in the north of the country.",
        ),
        (
            "Лекарство помогает взрослым при лёгкой форме болезни.",
            "Лекарство не помогает взрослым при лёгкой форме болезни.",
        ),
        ("这种药物对成年轻症患者是有效的。", "这种药物对成年轻症患者是没有效的。"),
    ],
)
def test_sentences_that_contradict_each_other_are_no_repetitions(pair: tuple[str, str]) -> None:
    filler = "Etwas anderes steht hier und hat keinerlei Bezug dazu, " * 3
    outcome = ExtractiveCompressor(max_chars=150).refine(Query(pair[0]), ranking(*pair, filler), 5)
    assert {pair[0], pair[1]} <= {hit.text for hit in outcome.hits}


def test_an_excerpt_is_compressed_further_where_it_stands() -> None:
    first = ExtractiveCompressor(max_chars=100).refine(Query("architect of the bridge"), ranking(EN), 1)
    spans = first.hits[0].excerpt.spans if first.hits[0].excerpt else ()
    second = ExtractiveCompressor(max_chars=40).refine(Query("architect"), first, 1)
    inner = second.hits[0].excerpt.spans if second.hits[0].excerpt else ()
    assert inner
    assert all(any(a <= start and end <= b for a, b in spans) for start, end in inner)


def test_a_summary_stands_nowhere_so_the_document_is_read() -> None:
    original = Ranked((hit(EN, excerpt=Excerpt("A bridge. " * 20)),), "bm25")
    outcome = ExtractiveCompressor(max_chars=60).refine(Query("architect"), original, 1)
    assert "John Bradfield" in outcome.hits[0].text


# ── the embedder ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_embedder_finds_what_words_do_not() -> None:
    text = "Colourless green ideas sleep. The photographers waited outside for hours. Grey paint is cheap."
    query = Query("photography")
    assert "photographers" not in ExtractiveCompressor(max_chars=30).refine(query, ranking(text), 1).hits[0].text
    outcome = ExtractiveCompressor(HashingEmbedder(256), max_chars=60).refine(query, ranking(text), 1)
    assert "photographers" in outcome.hits[0].text
    assert "by words and hashing-256" in outcome.detail


class Counting(HashingEmbedder):
    largest_batch = 0

    def embed_documents(self, texts: Sequence[str], **_: Any) -> NDArray[np.float32]:
        self.largest_batch = max(self.largest_batch, len(texts))
        return super().embed_documents(texts)


def test_the_number_of_sentences_embedded_is_bounded() -> None:
    embedder = Counting()
    text = "".join(f"Sentence w{number} is here. " for number in range(1000)) + "The needle lies in the hay."
    outcome = ExtractiveCompressor(embedder, max_chars=100).refine(Query("needle in hay"), ranking(text), 1)
    assert 1 < embedder.largest_batch <= 256
    assert "needle" in outcome.hits[0].text


class FailingEmbedder(HashingEmbedder):
    def embed_documents(self, texts: Sequence[str], **_: Any) -> NDArray[np.float32]:
        raise RuntimeError("out of memory")


class Nonsense(HashingEmbedder):
    def embed_documents(self, texts: Sequence[str], **_: Any) -> NDArray[np.float32]:
        return super().embed_documents(texts) * float("nan")


@pytest.mark.parametrize(("embedder", "cause"), [(FailingEmbedder(), "out of memory"), (Nonsense(), "finite")])
def test_an_embedder_that_fails_is_told_and_words_decide(
    embedder: HashingEmbedder, cause: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "pointsman"):
        outcome = refine(ExtractiveCompressor(embedder, max_chars=100), "architect of the bridge", ranking(EN))
    assert outcome.hits == refine(ExtractiveCompressor(max_chars=100), "architect of the bridge", ranking(EN)).hits
    assert len(outcome.degraded) == 1
    assert cause in outcome.degraded[0]
    assert cause in caplog.text


# ── budgets ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_default_budget_is_a_thousand_characters() -> None:
    outcome = ExtractiveCompressor().refine(Query("bridge"), ranking(*[f"{n} {EN}" for n in range(30)]), 30)
    assert MAX_CHARS == 1000
    assert 900 < sum(len(hit.text) for hit in outcome.hits) <= 1000


def test_tokens_are_counted_by_who_knows_or_estimated() -> None:
    words = ExtractiveCompressor(max_tokens=12, count_tokens=lambda text: len(text.split()))
    outcome = words.refine(Query("architect of the bridge"), ranking(EN, RU), 5)
    assert 5 <= sum(len(hit.text.split()) for hit in outcome.hits) <= 12
    estimate = ExtractiveCompressor(max_tokens=20).refine(Query("大桥的设计师"), ranking(ZH), 5)
    assert estimate.detail.startswith("36 tokens became 18 (50%), of at most 20; ")
    assert "设计师" in estimate.hits[0].text


def test_a_part_of_a_sentence_is_shortened_until_its_tokens_fit() -> None:
    text = "w" * 200 + " a b c d e f the needle g h i j k l m n"
    compressor = ExtractiveCompressor(max_tokens=5, count_tokens=lambda text: len(text.split()))
    outcome = compressor.refine(Query("needle"), ranking(text), 1)
    assert "needle" in outcome.hits[0].text
    assert 1 <= len(outcome.hits[0].text.split()) <= 5


def test_a_counter_that_is_not_additive_is_obeyed_all_the_same() -> None:
    odd = ExtractiveCompressor(max_tokens=150, count_tokens=lambda text: len(text) ** 2 // 20)
    outcome = odd.refine(Query("architect of the bridge"), ranking(EN, RU), 5)
    assert outcome.degraded == ()
    assert outcome.hits
    assert sum(odd.budget.count(hit.text) for hit in outcome.hits) <= 150


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_chars": 0},
        {"max_chars": True},
        {"max_chars": 1.5},
        {"max_tokens": -1},
        {"max_chars": 10, "max_tokens": 10},
        {"count_tokens": len},
        {"max_tokens": 5, "count_tokens": "len"},
    ],
)
def test_budgets_that_cannot_be_used_are_input_errors(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        ExtractiveCompressor(**wrong)


@pytest.mark.parametrize("count", [lambda text: -1, lambda text: 1.5, lambda text: 1 // 0])
def test_a_counter_that_fails_leaves_texts_whole(count: Callable[[str], int]) -> None:
    original = ranking(EN, RU)
    outcome = refine(ExtractiveCompressor(max_tokens=10, count_tokens=count), "bridge", original, 1)
    assert outcome.hits == original.hits[:1]
    assert outcome.degraded[0].startswith("compress failed in ExtractiveCompressor, texts are left whole: ")


# ── one's own compressor ─────────────────────────────────────────────────────────────────────────────────────────────


class Custom(BaseCompressor):
    def __init__(self, compression: object) -> None:
        super().__init__(max_chars=20)
        self.compression = compression

    def compress(self, query: Query, hits: Sequence[Hit]) -> Compressed:
        if isinstance(self.compression, Exception):
            raise self.compression
        return self.compression  # type: ignore[return-value]  # what is wrong is the point


class AsyncCompressor(BaseCompressor):
    async def acompress(self, query: Query, hits: Sequence[Hit]) -> Compressed:
        return Compressed(tuple(Excerpt(hit.document.text[:3], ((0, 3),)) for hit in hits), "cut")


def test_the_base_gives_the_twin_and_asks_for_one() -> None:
    outcome = refine(AsyncCompressor(max_chars=20), "x", ranking(EN, RU))
    assert [hit.text for hit in outcome.hits] == [EN[:3], RU[:3]]
    assert outcome.detail == "336 characters became 6 (2%), of at most 20; cut"
    with pytest.raises(TypeError, match="compress"):

        class EmptyCompressor(BaseCompressor): ...


def test_an_excerpt_of_nothing_drops_its_hit_with_the_reason_given() -> None:
    compression = Compressed((Excerpt(" \n"), None, Excerpt("A bridge.")), reasons={1: "off topic"})
    outcome = refine(Custom(compression), "x", ranking(EN, RU, ZH))
    assert [hit.text for hit in outcome.hits] == ["A bridge."]
    assert outcome.dropped[None, "d1"] == "off topic"
    assert "used up the budget" in outcome.dropped[None, "d0"]


@pytest.mark.parametrize(
    ("compression", "cause"),
    [
        (RuntimeError("boom\nboom"), "RuntimeError: boom boom"),
        (None, "no Compressed"),
        (Compressed(()), "one excerpt for each"),
        (Compressed((Excerpt(EN, ((0, len(EN)),)),)), "at most 20"),
        (Compressed((Excerpt("x", ((5, 5),)),)), "out of order"),
        (Compressed((Excerpt("The … The", ((0, 3), (0, 3))),)), "out of order"),
        (Compressed((Excerpt("x", ((0, 10_000),)),)), "out of its text"),
        (Compressed((Excerpt("invented", ((0, 8),)),)), "is not in its text"),
    ],
)
def test_what_is_not_sound_leaves_texts_whole_and_is_told(
    compression: object, cause: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "pointsman"):
        outcome = refine(Custom(compression), "x", ranking(EN, RU), 1)
    assert outcome.hits == ranking(EN, RU).hits[:1]
    assert len(outcome.degraded) == 1
    assert outcome.degraded[0].startswith("compress failed in Custom, texts are left whole: ")
    assert cause in outcome.degraded[0]
    assert "texts are left whole" in caplog.text


# ── laws ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

FRAGMENTS = st.sampled_from(
    [
        *("The cat sat. ", "Dr. Wu came! ", "it rained, and the cat slept; nobody cared", "\n\n", " ", "Yes. "),
        *("猫坐在这里。", "没有标点的中文文本一直写下去", "他问：“猫呢？”", "Кошка спала. ", "г. Москва, ул. Мира. "),
        *(
            "\ud83d",
            "\ude00",
            "👩‍👩‍👧",
            "e\u0301\u0302",
            "القط نائم. ",
            "חתול ישן. ",
            "\x00",
            "\u2028",
            "x" * 450,
            "a b " * 150,
        ),
        *("In 1999 the cat had 3 kittens. ", "| a | b |\n", "```\ncode();\n```\n", "...", "…", "\u3000"),
    ]
)
TEXTS = st.lists(st.lists(FRAGMENTS, max_size=12).map("".join), min_size=1, max_size=4)
QUERIES = st.sampled_from(
    ["where is the cat", "猫在哪里", "где кошка", "how many kittens", "", "?!", "\ud800 cat", "the"]
)
BUDGETS = st.integers(1, 700)


def spans_of(hit: Hit) -> tuple[tuple[int, int], ...]:
    return ((0, len(hit.document.text)),) if hit.excerpt is None else hit.excerpt.spans


@settings(max_examples=300, deadline=None)
@given(TEXTS, QUERIES, BUDGETS, st.booleans())
def test_laws_of_an_excerpt(texts: list[str], query: str, budget: int, with_embedder: bool) -> None:
    original = ranking(*texts)
    fields = [(hit.document.text, hit.score, hit.excerpt) for hit in original.hits]
    compressor = ExtractiveCompressor(HashingEmbedder() if with_embedder else None, max_chars=budget)
    outcome = compressor.refine(Query(query), original, 9)
    assert outcome.degraded == ()
    # the budget is kept, whatever the texts
    assert sum(len(hit.text) for hit in outcome.hits) <= budget
    # every part stands in the source where it says, in order; the excerpt is these parts and nothing else
    for hit in outcome.hits:
        text, spans = hit.document.text, spans_of(hit)
        assert all(0 <= a < b <= len(text) for a, b in spans) or (hit.excerpt is None and not text)
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))
        assert hit.text == JOINER.join(text[a:b] for a, b in spans)
    # the order stays, the others are dropped with a reason, what came in is as it was
    assert [hit.key for hit in outcome.hits] == [hit.key for hit in original.hits if hit.key not in outcome.dropped]
    assert [(hit.document.text, hit.score, hit.excerpt) for hit in original.hits] == fields
    # and what fits is not compressed again
    assert compressor.refine(Query(query), outcome, 9).hits == outcome.hits


@settings(max_examples=200, deadline=None)
@given(TEXTS, QUERIES, BUDGETS, st.integers(0, 300))
def test_a_larger_budget_loses_no_whole_sentence(texts: list[str], query: str, smaller: int, increment: int) -> None:
    def whole_sentences(budget: int) -> set[Unit]:
        outcome = ExtractiveCompressor(max_chars=budget).refine(Query(query), ranking(*texts), 9)
        spans = {int(hit.id[1:]): spans_of(hit) for hit in outcome.hits}
        return {
            unit
            for unit in units_of(ranking(*texts).hits)
            if any(a <= unit.start and unit.end <= b for a, b in spans.get(unit.hit, ()))
        }

    assert whole_sentences(smaller) <= whole_sentences(smaller + increment)


@settings(max_examples=200, deadline=None)
@given(TEXTS, st.integers(1, 60), st.sampled_from([1, 2, 3, 7]))
def test_the_budget_holds_for_any_counter(texts: list[str], budget: int, characters_per_token: int) -> None:
    def count(text: str) -> int:
        return -(-len(text) // characters_per_token) + text.count(" ")

    compressor = ExtractiveCompressor(max_tokens=budget, count_tokens=count)
    outcome = compressor.refine(Query("the cat"), ranking(*texts), 9)
    assert sum(count(hit.text) for hit in outcome.hits) <= budget


@given(st.lists(FRAGMENTS, max_size=20).map("".join))
def test_units_hold_every_character_but_white_space(text: str) -> None:
    units = units_of([hit(text)])
    assert "".join("".join(text[unit.start : unit.end].split()) for unit in units) == "".join(text.split())
    assert all(unit.end - unit.start <= 400 for unit in units)
    assert all(text[unit.start : unit.end].strip() == text[unit.start : unit.end] for unit in units)


@given(
    st.lists(FRAGMENTS, min_size=1, max_size=4).map("".join).filter(lambda text: bool(text.strip())),
    st.integers(1, 500),
)
def test_a_window_is_no_larger_than_its_room_and_stands_in_the_text(text: str, room: int) -> None:
    start, end = window(text, 0, len(text), room, {"cat": 1.0, "猫": 1.0})
    assert 0 <= start < end <= len(text)
    assert end - start <= room


def test_a_window_tears_no_character_apart() -> None:
    for text in ("e\u0301" * 100, "👍🏽" * 100, "\ud83d\ude00" * 100, "か\u3099" * 100):
        for room in (21, 22, 23, 24):
            _, end = window(text, 0, len(text), room, {})
            assert end % 2 == 0


def test_fill_takes_in_the_order_given() -> None:
    hits = [hit("One two. Three four. Five six.")]
    units = units_of(hits)
    (excerpt,) = fill([units[2], units[0], units[1]], hits, TextBudget(21), {})
    assert excerpt is not None
    assert excerpt.text == "One two. … Five six."


def test_what_fits_exactly_is_taken_whole() -> None:
    text = "One two. Three four. Five six."
    hits = [hit(text)]
    units = units_of(hits)
    assert fill([units[2], units[0], units[1]], hits, TextBudget(len(text)), {}) == (Excerpt(text, ((0, len(text)),)),)


def test_a_better_hit_counts_a_little() -> None:
    texts = [
        "Quite another matter. A needle is here.",
        *["Nothing to see."] * 6,
        "The needle rests. Hay and more hay.",
    ]
    outcome = ExtractiveCompressor(max_chars=25).refine(Query("needle"), ranking(*texts), 8)
    assert [hit.text for hit in outcome.hits] == ["A needle is here."]
    outcome = ExtractiveCompressor(max_chars=25).refine(Query("needle rests"), ranking(*texts), 8)
    assert [hit.text for hit in outcome.hits] == ["The needle rests."]


# ── hostile and large ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "text",
    [
        "a" * 200_000,
        "草堆里没有标点" * 28_000,
        "The needle is here number one. " * 6_400,
        "".join(f"The needle w{number} is in hay. " for number in range(6_400)),
        "e" + "\u0301" * 200_000,
        "👩‍👩‍👧‍👦" * 28_000,
        "\ud800" * 200_000,
        "\n" * 200_000,
    ],
    ids=["letter", "chinese", "same", "alike", "marks", "emoji", "surrogates", "lines"],
)
def test_much_of_anything(text: str) -> None:  # some .1 s; quadratic time would be minutes
    original = ranking(text, "The needle lies in the hay.")
    outcome = ExtractiveCompressor(max_chars=900).refine(Query("where is the needle"), original, 5)
    assert sum(len(hit.text) for hit in outcome.hits) <= 900
    assert any("needle" in hit.text for hit in outcome.hits)


@pytest.mark.parametrize("embedder", [None, HashingEmbedder()])
def test_nothing_but_white_space_is_dropped(embedder: HashingEmbedder | None) -> None:
    outcome = ExtractiveCompressor(embedder, max_chars=10).refine(Query("x"), ranking(" " * 50, ""), 5)
    assert outcome.hits == ()
    assert outcome.degraded == ()
    assert len(outcome.dropped) == 2


def test_hits_of_several_datasets_keep_what_they_carry() -> None:
    provenance = (Provenance("bm25", 1, 2.0),)
    original = Ranked((hit(EN, dataset="a", provenance=provenance), hit(RU, dataset="b")), "calibrated")
    outcome = ExtractiveCompressor(max_chars=200).refine(Query("bridge мост"), original, 5)
    assert [hit.key for hit in outcome.hits] == [("a", "d"), ("b", "d")]
    assert replace(outcome.hits[0], excerpt=None) == original.hits[0]


def test_a_compressor_alone_takes_a_query_as_text() -> None:
    hits = [Hit(Document("a", "Coffee is roasted at first. Green tea is brewed below boiling point."), 1.0)]
    compressor = ExtractiveCompressor(max_chars=40)
    assert compressor.compress("tea", hits) == compressor.compress(Query("tea"), hits)
