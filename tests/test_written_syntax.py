"""Phrases, excluded and required words of a query are obeyed where they are surely syntax."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pointsman
from pointsman import Document, InputError, Workspace
from pointsman.embedders import HashingEmbedder
from pointsman.text.written_syntax import WrittenTerm, read_syntax

SYNTAX_CASES = [
    # query, what is searched for, its conditions
    ("pressure -boiler", "pressure", "-boiler"),
    ("beta opens -2025", "beta opens", "-2025"),
    ('pressure -"boiler room"', "pressure", '-"boiler room"'),
    ('pressure "safety valve"', "pressure safety valve", '"safety valve"'),
    ("“safety valve” pressure", "safety valve pressure", '"safety valve"'),
    (
        "давление «предохранительный клапан» -насос",
        "давление предохранительный клапан",
        '"предохранительный клапан" -насос',
    ),
    ("„синий клапан“ насос", "синий клапан насос", '"синий клапан"'),
    ("pump -„safety valve” „blue“", "pump blue", '"blue" -"safety valve"'),
    ("压力 -锅炉 「安全阀」", "压力 安全阀", '"安全阀" -锅炉'),
    ("pressure +valve -INV-2026-0417", "pressure valve", "+valve -INV-2026-0417"),
]

KEYWORDS_WITHOUT_SYNTAX = [
    "state-of-the-art search",
    "grep -r pattern",
    "pip install --pre",
    "sensor -5 V",
    "sensor -2.5",
    "annual report - draft",
    "-boiler",
    '-"boiler"',
    'screen 15" wide 17"',
    "C++ a+b",
    "《红楼梦》 作者",
    "„Kessel ohne Ende",
    "the 'safety valve'",
    'an unclosed "quote',
    '""',
    "+7 999",
]

SENTENCES = [
    'who wrote "safety valve"?',
    'what is a "safety valve"',
    "find the boiler -draft",
    'Explain "safety valve".',
    "为什么「安全阀」漏水",
    "что такое «предохранительный клапан»",
    '"How should I set the safety valve?"',
    "one two three four five six seven eight nine ten eleven twelve -thirteen",
]


@pytest.mark.parametrize(("query", "text", "conditions_text"), SYNTAX_CASES)
@pytest.mark.parametrize("syntax", ["auto", "hard"])
def test_syntax_is_read(query: str, text: str, conditions_text: str, syntax: Any) -> None:
    conditions = read_syntax(query, syntax)
    assert conditions is not None
    assert (conditions.text, str(conditions)) == (text, conditions_text)
    assert read_syntax(query, "plain") is None


@pytest.mark.parametrize("query", KEYWORDS_WITHOUT_SYNTAX)
def test_what_only_resembles_syntax_is_plain(query: str) -> None:
    assert read_syntax(query, "auto") is read_syntax(query, "hard") is None


@pytest.mark.parametrize("query", SENTENCES)
def test_sentences_are_obeyed_on_demand_only(query: str) -> None:
    assert read_syntax(query, "auto") is None
    assert read_syntax(query, "hard") is not None


def test_a_word_is_its_forms_and_a_phrase_the_very_words() -> None:
    boiler, phrase = WrittenTerm("boiler", is_phrase=False), WrittenTerm("Safety  valve", is_phrase=True)
    assert boiler.is_in("Two BOILERS.")
    assert not boiler.is_in("a boilerplate")
    assert phrase.is_in("the safety\nvalve, shut")
    assert not phrase.is_in("safety valves")
    assert not phrase.is_in("valve safety")
    assert WrittenTerm("насос", is_phrase=False).is_in("два насоса")
    assert WrittenTerm("锅炉", is_phrase=False).is_in("旧锅炉房")
    assert not WrittenTerm("锅炉", is_phrase=False).is_in("炉锅")
    for word, text in (
        ("BSkyB", "订阅BSkyB与酗酒"),
        ("INV-2026-0417", "发票INV-2026-0417的金额"),
        ("2025", "2025年的会议"),
    ):
        assert all(WrittenTerm(word, is_phrase).is_in(text) for is_phrase in (True, False)), word
    assert not WrittenTerm("BSkyB", is_phrase=True).is_in("订阅BSkyBs与")
    code = WrittenTerm("INV-2026-0417", is_phrase=False)
    assert code.is_in("see inv-2026-0417.")
    assert not code.is_in("INV-2026-0418, INV-2026-04170")


def test_reading_takes_linear_time() -> None:
    for text in ('-"' * 200_000, "-a " * 200_000, '"' * 400_000, "+«" * 200_000):
        read_syntax(text, "hard")


WORDS = (
    *("boiler", "boilers", "valve", "valves", "pump", "pumps", "pressure", "water"),
    *("насос", "насосы", "клапан", "вода", "锅炉", "安全阀", "水"),
)
DATASET = "manual"


@pytest.fixture(scope="module", params=["folder", "postgres"])
def workspace(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    location = str(tmp_path_factory.mktemp("syntax"))
    if request.param == "postgres":
        location = f"{request.getfixturevalue('postgres').url}?schema=syntax"
    draw = random.Random(45)
    with pointsman.open(location, embedder=HashingEmbedder()) as workspace:
        workspace.dataset(DATASET).add(
            [
                Document(
                    f"{number}", " ".join(draw.choices(WORDS, k=draw.randint(2, 6))), {"title": draw.choice(WORDS)}
                )
                for number in range(1500)
            ]
        )
        yield workspace


def violations(context: Any, term: str) -> list[str]:
    conditions = WrittenTerm(term.strip('"'), is_phrase='"' in term)
    return [hit.id for hit in context.hits if conditions.is_in(f"{hit.document.title}\n{hit.document.text}")]


@pytest.mark.parametrize("strategy", ["auto", "bm25", "vector", "rrf", "multi_query", "decomposition", "compression"])
def test_no_hit_holds_what_is_excluded(workspace: Workspace, strategy: Any) -> None:
    draw = random.Random(strategy)
    for _ in range(8):  # 10,000 in benchmarks/written_syntax.py
        word, excluded_word = draw.sample(WORDS, 2)
        term = draw.choice([excluded_word, f'"{excluded_word}"'])
        answer = workspace.search(f"{word} -{term}", draw.choice([1, 10, 200]), strategy=strategy, refuse=False)
        assert answer.plan.decisions[-1].value == f"-{term}"
        assert answer.asked is not None
        assert answer.asked.text == f"{word} -{term}"
        assert answer.hits
        assert violations(answer, term) == []
        plain = workspace.search(f"{word} {excluded_word}", 10, strategy=strategy, refuse=False)
        assert violations(plain, term), "without the syntax the word is there"


@pytest.mark.parametrize(
    ("question", "conditions"),
    [
        ('who wrote "safety valve"?', '"safety valve"'),
        ("why does the pressure fall -boiler", "-boiler"),
        ("кто описал «клапан» в отчёте?", '"клапан"'),
        ("谁写了「安全阀」？", '"安全阀"'),
    ],
)
def test_a_sentence_is_offered_its_hard_form(workspace: Workspace, question: str, conditions: str) -> None:
    answer = workspace.search(question, 3, refuse=False)
    assert (answer.plan.decisions[-1].what, answer.plan.decisions[-1].value) == ("hard_form", conditions)
    form = answer.to_dict()
    assert form["decisions"][-1]["value"] == conditions, "at every door"
    hard_answer = workspace.search(question, 3, refuse=False, syntax="hard")
    assert (hard_answer.plan.decisions[-1].what, hard_answer.plan.decisions[-1].by) == ("syntax", "request")


@pytest.mark.parametrize(
    ("question", "syntax"), [("valve -boiler", "auto"), ('who "wrote" it?', "plain"), ("why is it so?", "auto")]
)
def test_no_hard_form_is_offered_of_what_is_obeyed_plain_or_absent(
    workspace: Workspace, question: str, syntax: Any
) -> None:
    answer = workspace.search(question, 3, refuse=False, syntax=syntax)
    assert "hard_form" not in [decision.what for decision in answer.plan.decisions]


def test_hits_hold_what_is_required(workspace: Workspace) -> None:
    for query, term in (('water "pump valve"', '"pump valve"'), ("water +насос", "насос"), ("water +锅炉", "锅炉")):
        answer = workspace.search(query, 20, refuse=False)
        assert answer.hits
        assert len(violations(answer, term)) == len(answer.hits)


def test_what_no_document_holds_is_said(workspace: Workspace) -> None:
    answer = workspace.search('water "steam engine" -pump', 5, refuse=False)
    assert 'meets "steam engine" -pump; the nearest are shown, which do not hold "steam engine"' in answer.degraded[0]
    assert answer.hits
    assert violations(answer, "pump") == []
    hard = workspace.search('water "steam engine"', 5, syntax="hard")
    assert not hard.hits
    assert "syntax='plain' searches for the question as written" in hard.degraded[0]


def test_many_questions_answer_as_alone_and_async(workspace: Workspace) -> None:
    queries = ["water -pump", "water pump", 'valve "pump valve"']
    single_answers = [[hit.id for hit in workspace.search(query, 7, refuse=False).hits] for query in queries]
    joint_answers = workspace.search_many(queries, 7, refuse=False)
    assert [[hit.id for hit in answer.hits] for answer in joint_answers] == single_answers
    answer = asyncio.run(workspace.asearch(queries[0], 7, refuse=False))
    assert [hit.id for hit in answer.hits] == single_answers[0]


def test_with_groups_and_versions_and_neighbours(tmp_path: Path) -> None:
    with pointsman.open(tmp_path, embedder=HashingEmbedder()) as workspace:
        notes = workspace.dataset("notes")
        notes.add(
            [
                Document(
                    f"{number}", f"pump {'boiler' if number % 2 else 'valve'} {number}", {"source": f"{number // 4}"}
                )
                for number in range(40)
            ]
        )
        answer = workspace.search("pump -boiler", 10, group_by="source", refuse=False)
        assert len(answer.hits) == 10
        assert violations(answer, "boiler") == []
        notes.add([Document("old", "pump policy"), Document("new", "pump policy boiler", {"replaces": "old"})])
        assert violations(workspace.search("pump policy -boiler", 50, refuse=False), "boiler") == []


def test_what_a_query_names_exactly_meets_its_syntax(tmp_path: Path) -> None:
    with pointsman.open(tmp_path, embedder=HashingEmbedder()) as workspace:
        notes = workspace.dataset("notes")
        notes.add([Document(f"{number}", f"pump order {number}") for number in range(30)])
        notes.add([Document("named", "boiler INV-2026-0417"), Document("phrase", "the pump order of INV-2026-0418")])
        answer = workspace.search("pump INV-2026-0417 -boiler", 50, refuse=False)
        assert violations(answer, "boiler") == []
        answer = workspace.search('INV-2026-0417 "the pump"', 50, refuse=False)
        assert [hit.id for hit in answer.hits] == ["phrase"]


def test_an_unknown_syntax_is_an_error(workspace: Workspace) -> None:
    with pytest.raises(InputError, match=r"syntax.*'hardest'"):
        workspace.search("water", syntax="hardest")  # type: ignore[arg-type]
