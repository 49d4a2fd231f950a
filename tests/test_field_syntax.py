"""Conditions on fields that a query has in words are obeyed where the documents have such fields."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pointsman
from pointsman import Document, Workspace
from pointsman.embedders import HashingEmbedder
from pointsman.text.field_syntax import written_names
from pointsman.tools.errors import InputError

REPORTS: dict[str, dict[str, Any]] = {
    "smith": {"author": "John Smith", "year": 2023, "status": "open", "date": "2023-04-05", "room": "4"},
    "lee": {"author": "Lee", "year": 2024, "status": "Closed", "date": "2024-05-14T10:00:00+00:00", "room": "14"},
    "ivanova": {"author": "Иванова", "year": 2025, "status": "reopened", "date": "2025-01-01", "room": "41"},
    "wang": {"author": "王芳", "year": "2026", "tags": ["budget", "draft"], "room": "44"},
}


@pytest.fixture(scope="module", params=["folder", "postgres"])
def reports(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    if request.param == "postgres":
        location = f"{request.getfixturevalue('postgres').url}?schema=fields"
    else:
        location = str(tmp_path_factory.mktemp("fields"))
    with pointsman.open(location, embedder=HashingEmbedder()) as workspace:
        workspace.dataset("reports").add(
            [Document(id_, f"The budget report of {id_}.", metadata) for id_, metadata in REPORTS.items()]
        )
        yield workspace


def ids(workspace: Workspace, query: str, **options: Any) -> set[str]:
    return {hit.id for hit in workspace.search(query, refuse=False, **options).hits}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("budget author:lee", {"lee"}),
        ("budget Author:LEE", {"lee"}),
        ("budget author:smith", {"smith"}),  # no author is so; one is John Smith
        ('budget author:"john smith"', {"smith"}),
        ("budget author:(lee OR 王芳)", {"lee", "wang"}),
        ("бюджет author:(иванова ИЛИ lee)", {"ivanova", "lee"}),
        ("预算 author:(王芳 或 lee)", {"wang", "lee"}),
        ("budget -author:lee", {"smith", "ivanova", "wang"}),
        ("budget year:2024", {"lee"}),
        ("budget year:2026", {"wang"}),  # a text
        ("budget year:>=2024", {"lee", "ivanova", "wang"}),
        ("budget year:<2024", {"smith"}),
        ("budget year:>2023 year:<=2025", {"lee", "ivanova"}),
        ("budget status:open", {"smith"}),  # not reopened
        ("budget status:*open*", {"smith", "ivanova"}),
        ("budget status:clo*", {"lee"}),
        ("budget room:4", {"smith"}),  # not 14
        ("budget tags:draft", {"wang"}),
        ("budget before:2024", {"smith"}),
        ("budget after:2024", {"ivanova"}),
        ("budget after:2024-04", {"lee", "ivanova"}),
        ("budget since:14.05.2024", {"lee", "ivanova"}),
        ("budget until:14.05.2024", {"smith", "lee"}),
        ("бюджет до:2024", {"smith"}),
        ("бюджет с:2025", {"ivanova"}),
        ("预算 之后:2024", {"ivanova"}),
        ("预算 之前:2024年5月", {"smith"}),
        ("budget date:2024-05", {"lee"}),
        ("budget date:2024", {"lee"}),
        ("budget дата:14.05.2024", {"lee"}),
        ("what does the budget report say author:lee?", {"lee"}),  # in a sentence, too: the field is there
        ("author:lee", {"lee"}),
        ("-author:lee", {"smith", "ivanova", "wang"}),
    ],
)
def test_a_field_is_obeyed(reports: Workspace, query: str, expected: set[str]) -> None:
    assert ids(reports, query) == expected


@pytest.mark.parametrize("strategy", ["bm25", "vector", "hybrid", "auto"])
def test_every_strategy_obeys(reports: Workspace, strategy: str) -> None:
    assert ids(reports, "budget -author:lee year:<2026", strategy=strategy) == {"smith", "ivanova"}


def test_a_filter_counts_besides(reports: Workspace) -> None:
    assert ids(reports, "budget year:>=2024", filters="year < 2025") == {"lee"}


@pytest.mark.parametrize(
    "text",
    ["at 10:30", "note: this", "std::sort", r"C:\temp", "https://a.example", "3:4", "a:", ":b", "ratio 3 :4", "x:/etc"],
)
def test_what_is_no_field(text: str) -> None:
    assert written_names(text) == ()


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("act record number:4", {"4"}),
        ('act "record number":4', {"4"}),
        ('act -"Record Number":4', {"17", "5"}),
        ('"record number":4', {"4"}),
        ("акт номер договора:17", {"17"}),
        ('акт "номер договора":(17 OR 4)', {"17"}),
        ("契约 合同 编号:5", {"5"}),
        ('act amount "Amount (EUR)":>100', {"17"}),
        ("what does the act record number:>=4 say?", {"4"}),
        ("act number:4", {"4", "17", "5"}),  # there is no such field
        ("the record number: 4", {"4", "17", "5"}),
    ],
)
def test_names_of_fields_may_have_blanks(tmp_path: Path, query: str, expected: set[str]) -> None:
    rows: dict[str, dict[str, Any]] = {
        "4": {"record number": 4},
        "17": {"номер договора": "17", "Amount (EUR)": 120},
        "5": {"合同 编号": 5, "Amount (EUR)": 80},
    }
    with pointsman.open(tmp_path, embedder=HashingEmbedder()) as workspace:
        workspace.dataset("acts").add([Document(id_, f"An act of {id_}.", row) for id_, row in rows.items()])
        assert ids(workspace, query) == expected


def test_a_name_with_blanks_is_told_as_written(tmp_path: Path) -> None:
    with pointsman.open(tmp_path, embedder=HashingEmbedder()) as workspace:
        workspace.dataset("acts").add([Document("4", "An act.", {"record number": 4})])
        answer = workspace.search("act record number:4", refuse=False)
        (decision,) = [decision for decision in answer.plan.decisions if decision.what == "syntax"]
        assert decision.value == '"record number":4'


def test_plain_reads_no_field(reports: Workspace) -> None:
    assert ids(reports, "budget author:lee", syntax="plain") == set(REPORTS)


def test_what_was_understood_is_said(reports: Workspace) -> None:
    answer = reports.search("budget author:lee -status:open", refuse=False)
    (decision,) = [decision for decision in answer.plan.decisions if decision.what == "syntax"]
    assert "searched for 'budget'" in decision.reason
    assert 'author in ["lee"' in decision.reason
    assert 'status not in ["open"' in decision.reason
    assert answer.asked is not None
    assert answer.asked.text == "budget author:lee -status:open"
    assert answer.query.text == "budget"


def test_an_unknown_field_is_words_and_said(reports: Workspace) -> None:
    answer = reports.search("budget autor:lee", refuse=False)
    assert {hit.id for hit in answer.hits} == set(REPORTS)
    assert any("has the key 'autor'; did you mean 'author'?" in note for note in answer.degraded)


def test_what_no_document_has_is_said_with_the_nearest(reports: Workspace) -> None:
    answer = reports.search("budget author:nobody", refuse=False)
    assert {hit.id for hit in answer.hits} == set(REPORTS)
    assert any("no document that was searched has author" in note for note in answer.degraded)
    assert not reports.search("budget author:nobody", refuse=False, syntax="hard").hits


def test_other_syntax_stands_beside_fields(reports: Workspace) -> None:
    assert ids(reports, "budget -wang year:>=2024") == {"lee", "ivanova"}


def test_texts_are_not_compared_with_numbers(tmp_path: Path) -> None:
    with pointsman.open(tmp_path, embedder=HashingEmbedder()) as workspace:
        workspace.dataset("csv").add(
            [Document(f"{number}", "an invoice", {"amount": f"{number}.00"}) for number in (75, 1299)]
        )
        answer = workspace.search("invoice amount:>1000", refuse=False)
        assert len(answer.hits) == 2
        assert any("'amount' holds texts" in note for note in answer.degraded)
        assert workspace.search("amount:>1000", refuse=False).query.text == "amount"


def test_dates_need_one_field(tmp_path: Path) -> None:
    with pointsman.open(tmp_path, embedder=HashingEmbedder()) as workspace:
        workspace.dataset("two").add(
            [
                Document("a", "a budget", {"created": "2024-01-02", "updated": "2025-01-02", "note": "x"}),
                Document("b", "b budget", {"created": "2025-01-02", "updated": "2025-02-02", "note": "2024-01-01"}),
            ]
        )
        answer = workspace.search("budget before:2025", refuse=False)
        assert len(answer.hits) == 2
        assert any("several dates" in note and "created:<2024" in note for note in answer.degraded)
        assert ids(workspace, "budget created:<2025") == {"a"}
        workspace.dataset("none").add([Document("c", "c budget", {"note": "x"})])
        notes = workspace.search("budget before:2025", datasets="none", refuse=False).degraded
        assert any("no field of the documents that were searched is a date" in note for note in notes)


DATED = {
    "a": {"created": "2024-01-02", "updated": "2025-01-02", "date": "2026-01-02"},
    "b": {"created": "2025-01-02", "updated": "2025-02-02", "date": "2023-01-02"},
    "c": {"updated": "2024-03-02"},
}


@pytest.mark.parametrize(
    ("column", "early_ids", "status_text"),
    [
        ("created", {"a"}, "created: set by date_columns"),
        ("updated", {"c"}, "updated: set by date_columns"),
        ("", {"b"}, "date: guessed"),
    ],
)
def test_the_date_of_a_dataset_can_be_set(tmp_path: Path, column: str, early_ids: set[str], status_text: str) -> None:
    settings = pointsman.Settings(date_columns=(f"dated={column}",) if column else ())
    with pointsman.open(tmp_path, embedder=HashingEmbedder(), settings=settings) as workspace:
        workspace.dataset("dated").add([Document(id_, f"{id_} budget", metadata) for id_, metadata in DATED.items()])
        assert workspace.status("dated")["date_column"] == status_text
        for query in ("budget before:2025", "бюджет до:2025", "budget 之前:2025"):
            assert ids(workspace, query) == early_ids
        assert ids(workspace, "budget -before:2025") == set(DATED) - early_ids
        assert ids(workspace, "budget date:2026") == {"a"}  # the field that it names
        reason = workspace.search("budget before:2025", refuse=False).plan.decisions[-1].reason
        assert f"; {0 if column == 'updated' else 1} without a date are left out" in reason


def test_each_dataset_goes_by_its_own_date(tmp_path: Path) -> None:
    columns = ("mails = sent", "acts=Дата акта")
    settings = pointsman.Settings(date_columns=columns)
    with pointsman.open(tmp_path, embedder=HashingEmbedder(), settings=settings) as workspace:
        workspace.dataset("mails").add(
            [
                Document("old", "old budget", {"sent": "2023-01-02"}),
                Document("new", "new budget", {"sent": "2026-01-02"}),
            ]
        )
        workspace.dataset("acts").add([Document("act", "act budget", {"Дата акта": "2024-01-02", "x": "2026-01-02"})])
        assert ids(workspace, "budget before:2025") == {"old", "act"}
        assert ids(workspace, "budget -before:2025") == {"new"}
        workspace.dataset("acts").add(
            [Document("both", "both budget", {"Дата акта": "2026-01-02", "sent": "2023-01-02"})]
        )
        notes = workspace.search("budget before:2025", refuse=False).degraded
        assert any("several dates" in note and "or set date_columns" in note for note in notes)


def test_what_status_says_of_dates(tmp_path: Path) -> None:
    settings = pointsman.Settings(date_columns=("misspelt=creatd",))
    rows: dict[str, dict[str, Any]] = {
        "one": {"created": "2024-01-02", "number": 5},
        "several": {"created": "2024-01-02", "updated": "2025-01-02"},
        "no": {"number": 5},
        "misspelt": {"created": "2024-01-02"},
    }
    with pointsman.open(tmp_path, embedder=HashingEmbedder(), settings=settings) as workspace:
        for name, metadata in rows.items():
            workspace.dataset(name).add([Document("a", "a budget", metadata)])
        assert {name: workspace.status(name)["date_column"] for name in rows} == {
            "one": "created: guessed",
            "several": "none: created, updated hold dates; set date_columns",
            "no": "none: no field holds dates",
            "misspelt": "creatd: set by date_columns, and no document has it",
        }
        assert {name: workspace.status(name)["date_column_reasons"] for name in rows} == {
            "one": [{"code": "date_guessed", "values": {"key": "created"}}],
            "several": [{"code": "date_several", "values": {"keys": "created, updated"}}],
            "no": [{"code": "date_none", "values": {}}],
            "misspelt": [{"code": "date_absent", "values": {"key": "creatd"}}],
        }


@pytest.mark.parametrize("value", [("created",), ("=created",), ("a=",), ("a=b", "a = c"), "a=b", (5,), 7])
def test_what_sets_no_date(value: Any) -> None:
    with pytest.raises(InputError, match="date_columns"):
        pointsman.Settings(date_columns=value)


@pytest.mark.parametrize(
    "value", ["nan", "inf", "1e999", "9" * 5000, "*", "**", "(", "()", '"', "\x00", "a" * 5000, ">=", "<"]
)
def test_no_value_breaks_a_search(reports: Workspace, value: str) -> None:
    for field in ("year", "author", "before", "-year", "_id"):
        assert reports.search(f"budget {field}:{value}", refuse=False).asked is not None


def test_many_names_are_bounded(reports: Workspace) -> None:
    query = " ".join(f"name{number}:x" for number in range(200))
    assert len(reports.search(query, refuse=False).degraded) < 20


def test_a_hidden_field_is_no_field(tmp_path: Path) -> None:
    """What a reader may not see neither filters nor is offered as a name."""
    with pointsman.open(tmp_path, embedder=HashingEmbedder()) as workspace:
        dataset = workspace.dataset("mixed")
        dataset.add(
            [
                Document("open", "open budget", {"_access": {"allow": ["everyone"]}}),
                Document("secret", "secret budget", {"owner": "lee", "_access": {"allow": ["group:board"]}}),
            ]
        )
        workspace.switch_access(on=True)
        answer = workspace.search("budget owner:lee", refuse=False, principals=["group:staff"])
        assert [hit.id for hit in answer.hits] == ["open"]
        assert any("has the key 'owner'" in note and "did you mean" not in note for note in answer.degraded)
