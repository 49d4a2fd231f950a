"""Of several versions of a document, the newest valid one answers, and a search can be as of a day."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pointsman
from pointsman import BaseReranker, Dataset, Document, Hit, Workspace
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.evaluation.leaktest import ShippedEmbedder
from pointsman.retrieval.judge.recency import BOUND, moment_of, newer_first
from pointsman.retrieval.judge.versions import Version, Versions
from pointsman.service.client import Client
from pointsman.service.server import create_app
from pointsman.store.base_store import EmptyStore
from pointsman.store.store_values import VERSIONS, Capability
from pointsman.tools.errors import InputError, UnmetNeedError
from pointsman.values.views import Validity, View, check_validity, day_of
from serving import serving

if TYPE_CHECKING:
    from postgres_kit import PostgresServer

TODAY = date.today()  # noqa: DTZ011
LAST_MONTH, NEXT_MONTH = TODAY - timedelta(30), TODAY + timedelta(30)  # the suite may run past midnight
QUESTION = "how much notice ends the contract"
LONG = "The parties have agreed on this in writing and at length. " * 30
CLAUSE = {"source": "contract.md", "headings": ["Contract", "Termination"]}


def notice(id_: str, text: str, **metadata: Any) -> Document:
    return Document(id_, text, metadata)


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace(tmp_path / "work", embedder=HashingEmbedder()) as workspace:
        workspace.dataset("contracts").add(
            [
                notice("clause", "Three months of notice ends the contract.", **CLAUSE, valid_from="2020-01-01"),
                notice("payment", "Invoices fall due in thirty days.", source="contract.md", headings=["Payment"]),
                notice("first", "It is six months.", version_of="contract.md#termination", valid_from="2021-01-01"),
                notice("second", "It is nine months.", version_of="contract.md#Termination", valid_from=LAST_MONTH),
                notice("planned", "Notice ends the contract: a year.", version_of="first", valid_from=NEXT_MONTH),
                notice("other", "Trains stop at noon."),
            ]
        )
        yield workspace


def standing(context: pointsman.RetrievalContext) -> list[tuple[str, str | None]]:
    return [(hit.id, None if hit.not_in_force is None else str(hit.not_in_force)) for hit in context.hits]


def test_newest_valid_version_is_first_and_the_superseded_ones_say_so(workspace: Workspace) -> None:
    hits = standing(workspace.search(QUESTION, 6, refuse=False))
    order = [id_ for id_, _ in hits]
    reasons = dict(hits)
    assert order[0] == "second"
    assert reasons["clause"] == reasons["first"] == f"superseded by second, valid from {LAST_MONTH}"
    assert reasons["planned"] == f"not valid before {NEXT_MONTH}"
    assert reasons["second"] is None
    assert all(order.index("second") < order.index(id_) for id_ in ("clause", "first", "planned"))


def test_amendment_of_one_clause_leaves_the_others_in_force(workspace: Workspace) -> None:
    hits = dict(standing(workspace.search("when do invoices fall due", 6, refuse=False)))
    assert hits["payment"] is None


def test_version_that_no_list_finds_takes_the_place_of_what_it_supersedes(workspace: Workspace) -> None:
    context = workspace.search(QUESTION, 1, strategy="bm25")
    assert [hit.id for hit in context.hits] == ["second"]
    assert [step.source for step in context.hits[0].provenance][:1] == ["versions"]


def test_version_that_a_filter_leaves_out_stays_out_and_is_named(workspace: Workspace) -> None:
    context = workspace.search(QUESTION, 3, strategy="bm25", filters='source = "contract.md"')
    assert standing(context)[0] == ("clause", f"superseded by second, valid from {LAST_MONTH}")
    assert {hit.metadata["source"] for hit in context.hits} == {"contract.md"}


def test_search_as_of_a_day_knows_nothing_of_later_versions(workspace: Workspace) -> None:
    answers = {day: workspace.search(QUESTION, 6, refuse=False, as_of=day) for day in ("2020-06-01", "2022-01-01")}
    assert answers["2020-06-01"].hits[0].id == "clause"
    assert {hit.id for hit in answers["2020-06-01"]} == {"clause", "payment", "other"}
    assert standing(answers["2022-01-01"])[:2] == [
        ("first", None),
        ("clause", "superseded by first, valid from 2021-01-01"),
    ]


@pytest.mark.parametrize("strategy", ["auto", "bm25", "vector", "hybrid", "rrf"])
def test_day_is_answered_as_if_only_its_documents_had_ever_been_added(
    workspace: Workspace, tmp_path: Path, strategy: Any
) -> None:
    """Scores and all: frequencies, mean length and cosines are those of that day."""
    with Workspace(tmp_path / "twin", embedder=HashingEmbedder()) as twin:
        stored = [
            document for document in workspace.dataset("contracts") if "2022-01-01" in Validity.of(document.metadata)
        ]
        twin.dataset("contracts").add(stored)
        answers = [
            [
                hit.to_dict()
                for hit in each_workspace.search(QUESTION, 6, strategy=strategy, refuse=False, as_of="2022-01-01")
            ]
            for each_workspace in (workspace, twin)
        ]
    assert answers[0] == answers[1]
    assert answers[0]


def test_version_of_a_version_supersedes_the_whole_chain() -> None:
    chain = [
        notice("a", "one"),
        notice("b", "two", version_of="a", valid_from="2021-01-01"),
        notice("c", "three", version_of="b", valid_from="2022-01-01"),
    ]
    versions = Versions(chain)
    assert [version.id for version in versions.in_force(chain[0], "2023-01-01")] == ["c"]
    assert [version.id for version in versions.in_force(chain[1], "2023-01-01")] == ["c"]
    assert versions.in_force(chain[2], "2023-01-01") == []
    assert [version.id for version in versions.in_force(chain[0], "2021-06-01")] == ["b"]


def test_versions_that_refer_to_each_other_end() -> None:
    circle = [
        notice("a", "one", version_of="b", valid_from="2021-01-01"),
        notice("b", "two", version_of="a", valid_from="2022-01-01"),
        notice("c", "three", version_of="c", valid_from="2022-01-01"),
    ]
    versions = Versions(circle)
    assert [versions.standing(document, "2023-01-01") for document in circle][1:] == [None, None]


def test_passages_of_one_amendment_are_in_force_together() -> None:
    passages = [notice(f"a{n}", "text", source="a.md", version_of="c.md", valid_from="2021-01-01") for n in range(3)]
    versions = Versions(passages)
    assert [versions.standing(document, "2023-01-01") for document in passages] == [None] * 3
    assert versions.standing(notice("x", "old", source="c.md"), "2023-01-01") is not None


def test_expired_amendment_gives_way_to_what_it_changed(tmp_path: Path) -> None:
    with Workspace(tmp_path, embedder=HashingEmbedder()) as workspace:
        workspace.dataset("rules").add(
            [
                notice("rule", "The gate opens at eight."),
                notice(
                    "winter",
                    "When does the gate open? The gate opens at nine.",
                    version_of="rule",
                    valid_from="2020-11-01",
                    valid_to="2021-03-31",
                ),
            ]
        )
        today_hits = standing(workspace.search("when does the gate open", 2, refuse=False))
        assert today_hits == [("rule", None), ("winter", "not valid after 2021-03-31")]
        earlier_hits = standing(workspace.search("when does the gate open", 2, refuse=False, as_of="2021-01-01"))
        assert earlier_hits == [("winter", None), ("rule", "superseded by winter, valid from 2020-11-01")]


class Backwards(BaseReranker):
    """Prefers the worst."""

    name = "backwards"

    def score(self, query: str, texts: Any) -> list[float]:
        return [float(-len(texts) + number) for number in range(len(texts))]


def test_reranker_cannot_put_the_superseded_above_what_is_in_force(workspace: Workspace) -> None:
    context = workspace.search(QUESTION, 6, refuse=False, rerank=Backwards())
    order = [hit.id for hit in context.hits]
    assert all(order.index("second") < order.index(id_) for id_ in ("clause", "first", "planned"))
    assert context.reranked


def test_prompt_says_what_is_superseded(workspace: Workspace) -> None:
    context = workspace.search(QUESTION, 3, refuse=False)
    quoted, xml = context.to_prompt(), context.to_prompt(style="xml")
    assert f"contract.md, superseded by second, valid from {LAST_MONTH}" in quoted
    assert f'note="superseded by second, valid from {LAST_MONTH}"' in xml


def test_form_of_a_hit_names_what_supersedes_it_and_reads_back(workspace: Workspace) -> None:
    context = workspace.search(QUESTION, 6, refuse=False)
    forms = {hit.id: hit.to_dict() for hit in context.hits}
    assert forms["clause"]["not_in_force"] == {
        "state": "superseded",
        "day": str(LAST_MONTH),
        "by": "second",
        "place": "second",
        "text": f"superseded by second, valid from {LAST_MONTH}",
    }
    again = pointsman.RetrievalContext.from_dict(context.to_dict())
    assert [hit.not_in_force for hit in again.hits] == [hit.not_in_force for hit in context.hits]


def test_documents_that_say_nothing_of_time_note_nothing(tmp_path: Path) -> None:
    with Workspace(tmp_path, embedder=HashingEmbedder()) as workspace:
        dataset = workspace.dataset("notes")
        dataset.add([notice("a", "a signal"), notice("b", "a whistle", year=2020)])
        assert VERSIONS not in dataset.store.statistics().notes
        context = workspace.search("signal", refuse=False)
        assert "versions" not in {span.stage for span in context.trace.spans}
        dataset.set_metadata({"b": {"valid_to": "2020-12-31"}})
        assert VERSIONS in dataset.store.statistics().notes
        assert dict(standing(workspace.search("whistle", refuse=False)))["b"] == "not valid after 2020-12-31"


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"valid_from": "1 March 2026"}, "is a day such as '2026-03-01'"),
        ({"valid_from": "2026-02-30"}, "is a day such as"),
        ({"valid_to": 20260301}, "is a day such as"),
        ({"valid_from": "2026-03-01T00:00:00Z"}, "is a day such as"),
        ({"valid_from": "2026-03-01", "valid_to": "2026-02-01"}, "is before 'valid_from'"),
        ({"version_of": "contract.md"}, "needs 'valid_from'"),
        ({"version_of": ["contract.md"], "valid_from": "2026-03-01"}, "is the id of a document"),
        ({"version_of": " ", "valid_from": "2026-03-01"}, "is the id of a document"),
        ({"version_of": "x" * 2001, "valid_from": "2026-03-01"}, "at most 2000 characters"),
    ],
)
def test_metadata_that_is_no_validity_is_refused_with_the_remedy(
    workspace: Workspace, metadata: dict[str, Any], message: str
) -> None:
    dataset = workspace.dataset("contracts")
    with pytest.raises(InputError, match="store other values under another key") as error_of_add:
        dataset.add(Document("new", "text", metadata))
    with pytest.raises(InputError, match="store other values under another key") as error_of_change:
        dataset.set_metadata({"other": metadata})
    assert message in str(error_of_add.value)
    assert message in str(error_of_change.value)
    assert dataset.get("new") is None


@pytest.mark.parametrize("day", ["yesterday", "2026-3-1", "2026-02-30", 5, "20260301", "2026-03-01T00:00"])
def test_day_of_a_search_is_checked(workspace: Workspace, day: Any) -> None:
    with pytest.raises(InputError, match="as_of is a day such as '2026-03-01'"):
        workspace.search(QUESTION, as_of=day)


def test_day_may_be_a_date(workspace: Workspace) -> None:
    assert day_of(TODAY) == TODAY.isoformat()
    assert workspace.search(QUESTION, refuse=False, as_of=LAST_MONTH).hits[0].id == "second"


def test_several_questions_share_their_day(workspace: Workspace) -> None:
    contexts = workspace.search_many([QUESTION, "invoices"], 6, refuse=False, as_of="2020-06-01")
    assert [{hit.id for hit in context} for context in contexts] == [{"clause", "payment", "other"}] * 2


def test_retriever_cannot_answer_as_of_a_day(workspace: Workspace) -> None:
    retriever = workspace.dataset("contracts").retriever("bm25")
    with pytest.raises(UnmetNeedError, match="cannot tell what is valid on a day"):
        workspace.engine.search(pointsman.SearchRequest.of(QUESTION, options={"as_of": TODAY}), [retriever])


def test_newer_version_that_someone_may_not_see_does_not_exist_for_them(workspace: Workspace) -> None:
    dataset = workspace.dataset("contracts")
    dataset.set_access({document.id: ["everyone"] for document in dataset})
    dataset.set_access({"second": ["group:board"]})
    workspace.switch_access(on=True)
    staff = standing(workspace.search(QUESTION, 6, refuse=False, principals=["group:staff"]))
    board = standing(workspace.search(QUESTION, 6, refuse=False, principals=["group:board"]))
    assert staff[0] == ("first", None)
    assert "second" not in str(staff)
    assert board[0] == ("second", None)
    earlier_answer = workspace.search(QUESTION, 6, refuse=False, principals=["group:staff"], as_of="2020-06-01")
    assert {hit.id for hit in earlier_answer} == {"clause", "payment", "other"}
    with pytest.raises(InputError, match="needs to know who asks"):
        workspace.search(QUESTION, as_of="2020-06-01")


def test_view_of_a_day_admits_by_one_documents_metadata() -> None:
    view = View.of_day("2026-03-01")
    assert view.admits({})
    assert view.admits({"valid_from": "2026-03-01", "valid_to": "2026-03-01"})
    assert not view.admits({"valid_from": "2026-03-02"})
    assert not view.admits({"valid_to": "2026-02-28"})
    assert view.admits({"valid_to": 7}), "what was stored before it was checked says nothing"
    assert not View(frozenset({"everyone"}), frozenset(), "2026-03-01").admits({}), "access on: nobody sees it"


def test_front_matter_says_when_a_file_is_valid_for_all_its_passages(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "contract.md").write_text(
        f"# Contract\n\n## Notice\n\nThree months. {LONG}\n\n## Payment\n\nThirty days. {LONG}\n", "utf-8"
    )
    (folder / "amendment.md").write_text(
        "---\ntitle: First amendment\nvalid_from: 2021-01-01\nversion_of: 'contract.md#Notice'\n---\n"
        f"# Amendment\n\nSix months. {LONG}\n\n## Costs\n\nNone. {LONG}\n",
        "utf-8",
    )
    (folder / "wrong.md").write_text("---\nvalid_from: 1 March\n---\nText about trains.\n", "utf-8")
    with Workspace(tmp_path / "work", embedder=HashingEmbedder()) as workspace:
        report = workspace.index(folder, dataset="files")
        documents = list(workspace.dataset("files"))
        amendments = [document for document in documents if document.metadata["source"] == "amendment.md"]
        assert len(amendments) > 1
        assert {(d.metadata["valid_from"], d.metadata["version_of"]) for d in amendments} == {
            ("2021-01-01", "contract.md#Notice")
        }
        assert [problem.path for problem in report.problems] == ["wrong.md"]
        assert "is a day such as '2026-03-01', not '1 March'" in report.problems[0].reason
        old = {
            hit.text.strip(): hit.not_in_force for hit in workspace.search("three months thirty days", 9, refuse=False)
        }
        assert next(value for text, value in old.items() if "Three" in text) is not None
        assert next(value for text, value in old.items() if "Thirty" in text) is None


def test_version_without_a_target_is_none() -> None:
    assert Version.of(Document("a", "text", {"version_of": 5})) is None
    check_validity({"year": 2020})


def test_newest_version_answers_in_postgresql_and_a_day_has_its_own_documents(postgres: PostgresServer) -> None:
    with Workspace(f"{postgres.url}?schema=versions", embedder=HashingEmbedder()) as workspace:
        dataset = workspace.dataset("contracts")
        dataset.add([notice("clause", "Three months of notice ends the contract."), notice("other", "Trains stop.")])
        assert VERSIONS not in dataset.store.statistics().notes
        dataset.add([notice("first", "It is six months.", version_of="clause", valid_from="2021-01-01")])
        hits = standing(workspace.search(QUESTION, 3, refuse=False))
        assert hits[:2] == [("first", None), ("clause", "superseded by first, valid from 2021-01-01")]
        assert standing(workspace.search(QUESTION, as_of="2020-01-01", refuse=False))[0] == ("clause", None)
        assert {hit.id for hit in workspace.search(QUESTION, as_of="2020-01-01", refuse=False)} == {"clause", "other"}
        dataset.delete(["first"])
        assert standing(workspace.search(QUESTION, 3, refuse=False))[0] == ("clause", None)


def test_a_store_that_cannot_tell_what_is_valid_on_a_day_is_refused_with_the_remedy() -> None:
    class Timeless(EmptyStore):
        def __init__(self) -> None:
            super().__init__({})
            self._info = type(self._info)("timeless", "", None, None, {}, frozenset({Capability.VIEWS}))

    with pytest.raises(UnmetNeedError, match="keep such documents in a folder or in PostgreSQL"):
        Dataset("contracts", store=Timeless()).in_view(View.of_day("2020-01-01"))


@pytest.mark.parametrize(
    ("text", "words", "day"),
    [
        ("What is the latest tariff?", "latest", "2026-03-01"),
        ("the current notice period", "current", "2026-03-01"),
        ("сколько стоит проезд в этом году", "этом году", "2026-03-01"),
        ("какой сейчас тариф", "сейчас", "2026-03-01"),
        ("действующая редакция", "действующая", "2026-03-01"),
        ("现在的票价是多少", "现在", "2026-03-01"),
        ("最新版本", "最新", "2026-03-01"),
        ("the tariff of 2021", "2021", "2021-12-31"),
        ("2021年的票价", "2021", "2021-12-31"),
        ("the tariff of 2021-05", "2021-05", "2021-05-31"),
        ("the tariff on 2021-05-07", "2021-05-07", "2021-05-07"),
    ],
)
def test_question_speaks_of_a_time(text: str, words: str, day: str) -> None:
    assert moment_of(text, "2026-03-01") == (words, day)


@pytest.mark.parametrize(
    "text",
    [
        "how does a signal work",
        "как работает светофор",
        "信号灯如何工作",
        "price 12021 euros",
        "1,999.50 euros",
        "item 20214",
    ],
)
def test_question_speaks_of_no_time(text: str) -> None:
    assert moment_of(text, "2026-03-01") is None


def dated_hit(id_: str, relevance: float | None, first: str = "") -> Hit:
    metadata = {"valid_from": first} if first else {}
    return Hit(Document(id_, "text", metadata), 10 * (relevance or 0), "notes", (), None, relevance)


def test_newer_hit_passes_only_older_ones_that_are_about_as_relevant() -> None:
    moment = moment_of("now", "2026-03-01")
    assert moment is not None
    hits = [
        dated_hit("far more relevant", 0.9, "2019-01-01"),
        dated_hit("old", 0.75, "2020-01-01"),
        dated_hit("undated", 0.72),
        dated_hit("new", 0.70, "2025-01-01"),
        dated_hit("future", 0.70, "2027-01-01"),
        dated_hit("unknown", None, "2025-06-01"),
    ]
    ordered = newer_first(hits, moment)
    assert [hit.id for hit in ordered] == ["far more relevant", "new", "old", "undated", "future", "unknown"]
    assert [hit.score for hit in ordered[1:3]] == [7.5, 7.5], "scores do not rise"
    assert ordered[1].relevance == 0.70, "relevance is not touched"
    assert BOUND < 0.9 - 0.7


def test_plan_says_that_newer_hits_come_first_where_the_question_asks_so(tmp_path: Path) -> None:
    with Workspace(tmp_path, embedder=ShippedEmbedder()) as workspace:
        workspace.dataset("tariffs").add(
            [notice(f"t{year}", "Parking costs money.", valid_from=f"{year}-01-01") for year in (2021, 2023, 2022)]
        )

        def ids(question: str, **options: Any) -> list[str]:
            return [hit.id for hit in workspace.search(question, refuse=False, **options).hits]

        plain_order = ids("parking costs")
        assert ids("current parking costs", strategy="hybrid") == plain_order, "only auto prefers the newer"
        context = workspace.search("current parking costs", refuse=False)
        assert all(hit.relevance is not None for hit in context.hits)
        assert [hit.id for hit in context.hits] == ["t2023", "t2022", "t2021"]
        assert ids("parking costs 2022")[0] == "t2022"
        (decision,) = [decision for decision in context.decisions if decision.what == "recency"]
        assert "the question says 'current'" in decision.reason
        assert "recency" in {span.stage for span in context.trace.spans}


@pytest.mark.parametrize("name", ["en_xquad", "ru_xquad", "zh_xquad"])
def test_questions_that_do_not_speak_of_time_keep_their_ranking_to_the_last_digit(
    test_data: Path, tmp_path: Path, name: str
) -> None:
    """Real questions, asked of documents with days and of the same documents without."""
    folder = test_data / name
    rows = [json.loads(line) for line in (folder / "corpus.jsonl").read_text("utf-8").splitlines()[:200]]
    texts = [json.loads(line)["text"] for line in (folder / "queries.jsonl").read_text("utf-8").splitlines()[:60]]
    questions = [text for text in texts if moment_of(text, "2026-03-01") is None]
    assert len(questions) > 30
    answers = []
    for is_dated in (True, False):
        with Workspace(tmp_path / f"dated-{is_dated}", embedder=HashingEmbedder()) as workspace:
            dataset = workspace.dataset("passages")
            dataset.add(
                notice(row["_id"], row["text"], **({"valid_from": f"20{10 + number % 15}-01-01"} if is_dated else {}))
                for number, row in enumerate(rows)
            )
            contexts = dataset.search_many(questions, 10)
            answers.append([[(hit.id, hit.score, hit.relevance) for hit in context.hits] for context in contexts])
    assert answers[0] == answers[1]
    assert any(answers[0])


class TestUnknownTargets:
    def problems(self, workspace: Workspace, target: str) -> list[str]:
        workspace.dataset("contracts").add(
            [Document("new", "The period is a year.", {"version_of": target, "valid_from": LAST_MONTH})]
        )
        assert workspace.status("contracts")["version_problems"] == [
            {"path": problem.path, "reason": problem.reason}
            for problem in workspace.dataset("contracts").version_problems()
        ]
        return [problem.reason for problem in workspace.dataset("contracts").version_problems()]

    @pytest.fixture
    def workspace(self, tmp_path: Path) -> Iterator[Workspace]:
        (tmp_path / "files").mkdir()
        text = f"# Supply\n\n{LONG}\n\n## Termination\n\nThree months. {LONG}\n\n## Payment\n\nThirty days. {LONG}"
        (tmp_path / "files" / "supply.md").write_text(text)
        with Workspace(tmp_path / "w", embedder=HashingEmbedder()) as workspace:
            workspace.index(tmp_path / "files", "contracts")
            workspace.dataset("contracts").add([Document("loan", "A loan.", {"headings": ["Interest"]})])
            yield workspace

    @pytest.mark.parametrize(
        "target", ["supply.md", "supply.md#Termination", "supply.md#  tERMINATION ", "loan", "loan#interest"]
    )
    def test_what_is_there_is_no_problem(self, workspace: Workspace, target: str) -> None:
        assert self.problems(workspace, target) == []

    @pytest.mark.parametrize(
        ("target", "remedy"),
        [
            ("suply.md", "did you mean 'supply.md'?"),
            ("suply.md#Termination", "did you mean 'supply.md#Termination'?"),
            ("supply.md#Terminaton", "did you mean 'supply.md#Termination'?"),
            ("supply.md#Zoology", "did you mean 'supply.md'?"),
            ("laon", "did you mean 'loan'?"),
            ("quite another thing", "add what it is a version of, or correct it"),
        ],
    )
    def test_what_is_not_there_is_named_with_the_nearest(self, workspace: Workspace, target: str, remedy: str) -> None:
        (reason,) = self.problems(workspace, target)
        start = f"version_of {target!r} names no document, file or heading of this dataset, so nothing is superseded"
        assert reason == f"{start}; {remedy}"

    def test_it_is_none_once_the_document_is_there(self, workspace: Workspace) -> None:
        assert self.problems(workspace, "lease")
        workspace.dataset("contracts").add([Document("lease", "A lease.")])
        assert workspace.dataset("contracts").version_problems() == []
        workspace.dataset("contracts").delete(["lease"])
        assert len(workspace.dataset("contracts").version_problems()) == 1

    def test_indexing_and_a_service_report_it(self, workspace: Workspace, tmp_path: Path) -> None:
        amendment = f"---\nvalid_from: {LAST_MONTH}\nversion_of: suply.md#Termination\n---\n\nThe period is six months."
        (tmp_path / "files" / "amendment.md").write_text(amendment)
        report = workspace.index(tmp_path / "files", "contracts")
        (problem,) = report.problems
        assert problem.path == "amendment.md"
        assert "did you mean 'supply.md#Termination'?" in problem.reason
        assert workspace.index(tmp_path / "files", "contracts").problems == (problem,)
        with serving(create_app(workspace)) as url, Client(url) as remote:
            assert remote.dataset("contracts").version_problems() == [problem]
            (tmp_path / "files" / "amendment.md").write_text(amendment.replace("suply", "supply"))
            assert workspace.index(tmp_path / "files", "contracts").problems == ()

    def test_datasets_without_versions_are_not_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with Workspace(tmp_path / "plain", embedder=HashingEmbedder()) as workspace:
            dataset = workspace.dataset("plain")
            dataset.add([Document("a", "A.")])
            monkeypatch.setattr(type(dataset.store), "documents", lambda *_: pytest.fail("it is read"))
            assert dataset.version_problems() == []


class TestMetadataThatWasSetByHand:
    @pytest.fixture
    def files(self, tmp_path: Path) -> Path:
        (tmp_path / "files").mkdir()
        (tmp_path / "files" / "contract.txt").write_text("Either party ends the contract with notice.")
        (tmp_path / "files" / "other.txt").write_text("Invoices fall due in thirty days.")
        return tmp_path / "files"

    @pytest.fixture
    def workspace(self, tmp_path: Path, files: Path) -> Iterator[Workspace]:
        with Workspace(tmp_path / "w", embedder=HashingEmbedder()) as workspace:
            workspace.index(files, "contracts")
            (id_,) = workspace.dataset("contracts").ids(source="contract.txt")
            workspace.dataset("contracts").set_metadata({id_: {"valid_from": "2026-03-01", "note": "signed"}})
            yield workspace

    def fields(self, workspace: Workspace) -> dict[str, Any]:
        dataset = workspace.dataset("contracts")
        (document,) = dataset.get_many(dataset.ids(source="contract.txt"))
        assert document is not None
        return {name: document.metadata.get(name) for name in ("valid_from", "note")}

    def test_it_stays_as_long_as_the_file_is_the_same(self, workspace: Workspace, files: Path) -> None:
        for _ in range(2):
            (files / "other.txt").write_text("Invoices fall due in sixty days.")
            report = workspace.index(files, "contracts")
            assert self.fields(workspace) == {"valid_from": "2026-03-01", "note": "signed"}
            assert report.problems == ()
        assert report.passages.unchanged == 2

    def test_a_changed_file_takes_it_away_and_the_report_says_so(self, workspace: Workspace, files: Path) -> None:
        (files / "contract.txt").write_text("Either party ends the contract at any time.")
        (problem,) = workspace.index(files, "contracts").problems
        assert problem.path == "contract.txt"
        assert "its passages have no note, valid_from any more, which the file does not say" in problem.reason
        assert self.fields(workspace) == {"valid_from": None, "note": None}
        assert workspace.index(files, "contracts").problems == ()

    def test_a_file_that_is_gone_takes_it_along(self, workspace: Workspace, files: Path) -> None:
        (files / "contract.txt").unlink()
        report = workspace.index(files, "contracts")
        assert (report.deleted, report.problems) == (1, ())

    def test_what_the_file_says_itself_wins(self, workspace: Workspace, files: Path) -> None:
        (files / "signed.json").write_text(json.dumps([{"text": "The contract is signed.", "note": "draft"}]))
        workspace.index(files, "contracts")
        dataset = workspace.dataset("contracts")
        (id_,) = dataset.ids(source="signed.json")
        dataset.set_metadata({id_: {"note": "signed", "year": 2026}})
        assert workspace.index(files, "contracts").problems == ()
        document = dataset.get(id_)
        assert document is not None
        assert (document.metadata["note"], document.metadata["year"]) == ("draft", 2026)
