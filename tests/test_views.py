"""Documents exist only for those whom they allow, and what does not exist changes nothing that is shown."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest

import pointsman
from pointsman import BaseRouter, Dataset, Document, Query, RetrievalWorkflow, Workspace
from pointsman.embedders.e5.e5_embedder import E5Embedder
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.evaluation.leak_cases import TwinCase, Write
from pointsman.evaluation.leaktest import LeakReport, ShippedEmbedder, TwinPair, leaktest
from pointsman.integrations.framework_sources import hits_by_both
from pointsman.retrieval.judge import background
from pointsman.retrieval.refine.compress import WindowExpander
from pointsman.store.base_store import EmptyStore
from pointsman.store.local.columns.permissions import PermissionTable
from pointsman.store.local.folder_backend import LocalBackend
from pointsman.store.local.keyword.keyword_state import KeywordState
from pointsman.store.local.truth.truth_rows import Truth
from pointsman.store.local.vectors import vector_base, vector_index, vector_query
from pointsman.store.store_values import StoreQuery
from pointsman.tools.errors import InputError, UnknownNameError, UnmetNeedError
from pointsman.tools.json_forms import plain_form
from pointsman.values.views import ACCESS, AccessRule, Permissions, View, access_rule_for, permissions_of
from pointsman.workspace.copies.backup import backup, restore
from pointsman.workspace.copies.copying import copy
from store_kit import collection_of

ANNA = ["user:anna", "group:rail"]
BORIS = ["user:boris", "group:money"]


class Counting(HashingEmbedder):
    """Counts the documents that are embedded."""

    def __init__(self) -> None:
        super().__init__()
        self.embedded = 0

    def embed_documents(self, texts: Sequence[str], **options: Any) -> Any:
        self.embedded += len(texts)
        return super().embed_documents(texts)


class UncachedE5(E5Embedder):
    """The default embedder, whose vectors are not read from the disk, where both copies would find the same ones."""

    identified = False


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    monkeypatch.setenv("POINTSMAN_CACHE", str(tmp_path / "cache"))
    with Workspace(tmp_path / "work", embedder=Counting()) as workspace:
        dataset = workspace.dataset("notes")
        dataset.add([Document(f"rail-{n}", f"signal number {n} at the yard") for n in range(5)], access=["group:rail"])
        dataset.add([Document(f"pay-{n}", f"zanzibarko salary number {n}") for n in range(5)], access=["group:money"])
        dataset.add([Document("all", "timetable of the yard")], access=["everyone"])
        dataset.add([Document("none", "timetable that nobody may see")])
        dataset.add(
            [Document("denied", "timetable for all but anna")], access={"allow": ["everyone"], "deny": ["user:anna"]}
        )
        workspace.switch_access(on=True)
        yield workspace


def ids(workspace: Workspace, query: str, principals: Sequence[str], **options: Any) -> set[str]:
    answer = workspace.search(query, 50, principals=principals, refuse=False, **options)
    return {hit.id for hit in answer}


def test_a_router_reads_no_dataset_before_it_is_said_who_asks(workspace: Workspace, tmp_path: Path) -> None:
    asked = list[str]()

    class Second(BaseRouter):
        def route(self, query: str | Query, datasets: Sequence[Any]) -> list[Any]:
            asked.append(str(query))
            return [datasets[1]]

    with Workspace(tmp_path / "other", embedder=HashingEmbedder()) as other:
        public = other.dataset("public")
        public.add([Document("signal", "signal for all")])
        workflow = RetrievalWorkflow(router=Second())
        with pytest.raises(InputError, match="needs to know who asks"):
            workflow.search("signal", [workspace.dataset("notes"), public])
        assert not asked
        view = workspace.dataset("notes").in_view(["group:money"])
        assert [hit.id for hit in workflow.search("signal", [view, public])] == ["signal"]
        assert len(asked) == 1


def test_a_question_whose_vector_is_given_needs_to_say_who_asks(workspace: Workspace) -> None:
    dataset, query = workspace.dataset("notes"), Query("signal")
    (vector,) = dataset.embedder.embed_queries(["signal"]).tolist()
    for alpha in (None, 0.5):
        with pytest.raises(InputError, match="needs to know who asks"):
            hits_by_both(dataset, query, vector, 5, alpha=alpha)
        hits = hits_by_both(dataset.in_view(["group:money"]), query, vector, 50, alpha=alpha)
        assert {hit.id for hit in hits} <= {"all", "denied", *(f"pay-{n}" for n in range(5))}


class TestTwins:
    """The same workspace with and without what is hidden."""

    def test_answers_of_every_door_are_equal_to_the_byte(self) -> None:
        report = leaktest(pairs=5, questions=14, seed=11)
        assert report.comparisons == 70
        assert report.differing == 0, report.leaks[:3]
        assert len(report.doors) == 7, "the seed draws every door"

    def test_no_time_limit_makes_answers_depend_on_how_busy_the_machine_is(self) -> None:
        case = TwinCase({"notes": "hybrid"}, (Write("notes", (Document("a", "signal"),)),), (), ())
        with TwinPair(case, "access", ShippedEmbedder()) as twins:
            assert twins.full_copy.workflow.timeout is twins.visible_copy.workflow.timeout is None

    def test_what_is_measured_late_makes_no_difference(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def measure_slowly(*arguments: Any) -> Any:
            sleep(0.3)
            return background_of(*arguments)

        background_of = background.measured
        monkeypatch.setattr(background, "measured", measure_slowly)
        monkeypatch.setattr(
            "pointsman.retrieval.plan.transform.question_chains._HOP_SECONDS", 0.2
        )  # half of it is for measuring
        documents = tuple(Document(f"{n}", "signal lamp", {ACCESS: {"allow": ["everyone"]}}) for n in range(3))
        questions = (
            ("search", {"query": "who made the lamp that gives the signal?", "k": 1, "strategy": "decomposition"}),
        )
        case = TwinCase({"notes": "hybrid"}, (Write("notes", documents),), (), questions)
        with TwinPair(case, "access", ShippedEmbedder()) as twins:
            twins.compare(LeakReport(), {"with": [], "without": []})
        assert "was not measured" not in caplog.text

    @pytest.mark.parametrize(
        "metadata",
        [{"valid_from": "2020-01-01"}, {"valid_to": "2020-01-01"}, {"valid_from": "2020-01-01", "version_of": "a"}],
    )
    def test_what_a_hidden_document_says_of_time_is_in_no_trace(self, metadata: dict[str, str]) -> None:
        documents = (
            Document("a", "signal lamp", {ACCESS: {"allow": ["everyone"]}}),
            Document("b", "signal lamp, latest", {ACCESS: {"allow": ["group:law"]}, **metadata}),
        )
        question = {"query": "latest signal lamp", "k": 5, "refuse": False}
        case = TwinCase({"notes": "hybrid"}, (Write("notes", documents),), (), (("search", question),))
        with TwinPair(case, "access", ShippedEmbedder()) as twins:
            twins.compare(report := LeakReport(), {"with": [], "without": []})
            assert (report.comparisons, report.differing) == (1, 0), report.leaks
            answer = twins.full_copy.search("latest signal lamp", principals=["group:law"], refuse=False)
            assert any(span.stage == "versions" for span in answer.trace.spans), "who sees it is told"

    def test_hidden_documents_and_questions_of_others_change_no_last_digit(self) -> None:
        texts = {"a": ("The signal lamp at the yard is red.", "everyone")}
        texts |= {"b": ("The salary at the mill is low.", "group:law")}  # of as many tokens
        documents = tuple(Document(id_, text, {ACCESS: {"allow": [name]}}) for id_, (text, name) in texts.items())
        question = {"query": "which signal lamp is red?", "k": 5, "refuse": False}
        case = TwinCase({"notes": "hybrid"}, (Write("notes", documents),), (), (("search", question),))
        with TwinPair(case, "access", UncachedE5()) as twins:
            questions = ["which signal lamp is red?", "what salary was paid?"]
            twins.full_copy.search_many(questions, principals=["group:law"])
            twins.compare(report := LeakReport(), {"with": [], "without": []})
            assert (report.comparisons, report.differing) == (1, 0), report.leaks

    def test_a_filter_used_as_a_wall_is_found_to_leak(self) -> None:
        report = leaktest(pairs=2, questions=15, seed=11, wall="filter")
        assert report.differing > 10
        paths = {leak.path for leak in report.leaks}
        assert any(path.endswith("score") for path in paths), paths

    def test_own_documents_are_the_first_of_each_copy(self, workspace: Workspace) -> None:
        sequence = workspace.dataset("notes").store.statistics().sequence
        report = leaktest(workspace, pairs=1, questions=10)
        assert report.differing == 0, report.leaks[:3]
        assert workspace.dataset("notes").store.statistics().sequence == sequence, "nothing is written to it"

    def test_a_door_whose_package_is_missing_is_not_counted_as_equal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in ("starlette.testclient", "pointsman.integrations.mcp.tool_calls"):
            monkeypatch.setitem(sys.modules, module, None)  # importing it fails
        report = leaktest(pairs=1, questions=40, seed=11)
        assert {reason.partition(":")[0] for reason in report.skipped} == {"http", "mcp"}
        assert len(report.skipped) == 2
        assert all("pip install" in reason for reason in report.skipped)
        assert not {"http", "mcp"} & set(report.doors)
        assert report.comparisons == report.doors.total() < 40

    def test_stores_without_views_are_refused_by_the_name_of_the_capability(
        self, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(type(workspace.backend), "has_views", False)
        with pytest.raises(UnmetNeedError, match=r"lack the capability 'views'.*--by-filter"):
            leaktest(workspace, pairs=1, questions=1)
        with pytest.raises(UnmetNeedError, match="lack the capability 'views'"):
            workspace.switch_access(on=True)
        assert leaktest(workspace, pairs=1, questions=1, wall="filter").pairs == 1

    @pytest.mark.parametrize(("pairs", "wall"), [(0, "access"), (1, "fence")])
    def test_what_cannot_be_compared_is_refused(self, pairs: int, wall: Any) -> None:
        with pytest.raises(InputError, match=r"at least 1|'access' or 'filter'"):
            leaktest(pairs=pairs, wall=wall)


class TestWhatFiltersGiveAway:
    """What a view must keep, each by itself: with hidden documents, and without."""

    @pytest.fixture
    def twins(self, tmp_path: Path) -> Iterator[tuple[Workspace, Workspace]]:
        full_copy, visible_copy = (Workspace(tmp_path / name, embedder=ShippedEmbedder()) for name in ("whole", "part"))
        visible = [Document(f"a{n}", f"the red signal {n} stops trains at the yard") for n in range(30)]
        hidden = [Document(f"b{n}", f"signal of zanzibarko {n}, bonus and salary") for n in range(30)]
        for workspace in (full_copy, visible_copy):
            workspace.dataset("notes").add(visible, access=["group:a"])
        full_copy.dataset("notes").add(hidden, access=["group:b"])
        for workspace in (full_copy, visible_copy):
            workspace.switch_access(on=True)
        with full_copy, visible_copy:
            yield full_copy, visible_copy

    def test_document_frequencies_and_mean_length(self, twins: tuple[Workspace, Workspace]) -> None:
        full_copy, visible_copy = (
            workspace.search("signal", principals=["group:a"], strategy="bm25") for workspace in twins
        )
        assert [hit.score for hit in full_copy] == [hit.score for hit in visible_copy]

    def test_spread_of_cosines_and_background(self, twins: tuple[Workspace, Workspace]) -> None:
        full_copy, visible_copy = (
            workspace.search("a lamp for the train", principals=["group:a"], refuse=False) for workspace in twins
        )
        assert [(hit.score, hit.relevance) for hit in full_copy] == [(hit.score, hit.relevance) for hit in visible_copy]
        assert full_copy.confidence == visible_copy.confidence is not None

    def test_spelling(self, twins: tuple[Workspace, Workspace]) -> None:
        full_copy, visible_copy = (workspace.search("zanzibarka", principals=["group:a"]) for workspace in twins)
        assert full_copy.spelling is visible_copy.spelling is None
        assert twins[0].search("zanzibarka", principals=["group:b"]).spelling is not None

    def test_explanations(self, twins: tuple[Workspace, Workspace]) -> None:
        full_copy, visible_copy = (
            workspace.search("signal", principals=["group:a"]).explain("b1") for workspace in twins
        )
        assert plain_form(full_copy) == plain_form(visible_copy)
        assert "no dataset that was searched has a document" in str(full_copy)

    def test_a_view_of_one_asker_is_not_remembered_for_another(self, twins: tuple[Workspace, Workspace]) -> None:
        full_copy, visible_copy = twins
        for asker in (["group:b"], ["group:a"], ["group:a", "group:b"], ["group:a"]):
            answers = [
                workspace.search("red signal salary", principals=asker, refuse=False)
                for workspace in (full_copy, visible_copy)
            ]
            if asker == ["group:a"]:
                assert [hit.score for hit in answers[0]] == [hit.score for hit in answers[1]]
        assert {hit.id[0] for hit in full_copy.search("salary", principals=["group:b"], refuse=False)} == {"b"}


class TestWhoSeesWhat:
    def test_groups_everyone_and_denials(self, workspace: Workspace) -> None:
        assert ids(workspace, "timetable", ANNA) == {*(f"rail-{n}" for n in range(5)), "all"}
        assert ids(workspace, "timetable", BORIS) == {*(f"pay-{n}" for n in range(5)), "all", "denied"}
        assert ids(workspace, "timetable", []) == {"all", "denied"}
        assert ids(workspace, "timetable", ["everyone", "user:anna"]) == {"all"}

    def test_hits_do_not_say_who_else_may_see_them(self, workspace: Workspace) -> None:
        hit = workspace.search("timetable", principals=[], refuse=False).hits[0]
        assert ACCESS not in hit.metadata
        assert ACCESS in (workspace.dataset("notes").get("all") or Document("x", "x")).metadata

    def test_what_is_read_in_a_view_is_of_the_view(self, workspace: Workspace) -> None:
        view = workspace.dataset("notes").in_view(ANNA)
        assert len(view) == view.count() == len(view.ids()) == 6
        assert view.get("pay-1") is None
        assert "pay-1" not in view
        assert [document.id for document in view.get_many(["rail-1", "pay-1"]) if document] == ["rail-1"]
        assert {document.id for document in view} == set(view.ids())
        assert view.page(0, 4)[1] == 4
        assert view.get_vectors(["pay-1"]) == [None]
        assert view.store.frequencies(["zanzibarko", "signal"]) == [0, 5]
        with pytest.raises(UnknownNameError):
            view.text("pay-1")
        with pytest.raises(UnmetNeedError):
            view.add([Document("new", "text")])

    def test_revoked_and_granted_from_the_next_search_on_without_embedding(self, workspace: Workspace) -> None:
        dataset = workspace.dataset("notes")
        embedder = workspace.dataset("notes").embedder
        assert isinstance(embedder, Counting)
        before = embedder.embedded
        assert "rail-1" in ids(workspace, "signal", ANNA)
        dataset.set_access({"rail-1": None, "pay-1": ["user:anna"], "rail-2": {"allow": ANNA, "deny": ["user:anna"]}})
        assert {"rail-1", "rail-2", "pay-1"} & ids(workspace, "signal", ANNA) == {"pay-1"}
        assert embedder.embedded == before

    def test_a_change_by_another_opening_counts_at_once(self, workspace: Workspace) -> None:
        assert "rail-1" in ids(workspace, "signal", ANNA)
        with Workspace(workspace.path, embedder=HashingEmbedder()) as other:
            other.dataset("notes").set_access({"rail-1": None})
        assert "rail-1" not in ids(workspace, "signal", ANNA)

    def test_a_document_hidden_during_a_search_is_not_fetched(self, workspace: Workspace) -> None:
        view = workspace.dataset("notes").in_view(ANNA)
        (key,) = view.store.keys(["rail-1"]).values()
        workspace.dataset("notes").add([Document("rail-1", "now it holds a secret")], access=["group:money"])
        assert view.store.fetch([key]) == [None]

    def test_former_words_of_a_document_are_not_found_by_those_who_see_it_only_now(
        self, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        dataset = workspace.dataset("notes")
        keyword = collection_of(dataset).keyword
        with monkeypatch.context() as patch:
            patch.setattr(keyword, "catch_up", lambda: None)  # the index stays behind, as a writer's may elsewhere
            patch.setattr(keyword, "reload", lambda: None)
            dataset.add([Document("pay-1", "public words")], access=["group:rail"])
            answer = workspace.search("zanzibarko", 50, principals=ANNA, refuse=False, strategy="bm25", spelling=False)
            assert [hit.id for hit in answer] == []
            assert any("not indexed yet" in note for note in answer.degraded)

    def test_a_request_is_narrowed_without_escaping_a_denial(self) -> None:
        denied = Permissions.of({"allow": ["group:rail"], "deny": ["user:anna"]})
        assert denied.admit(View.of(["group:rail"]))
        assert not denied.admit(View.of(["group:rail"], identity=ANNA))


class TestSwitch:
    def test_nobody_searches_without_saying_who_asks(self, workspace: Workspace) -> None:
        dataset = workspace.dataset("notes")
        searches: list[Callable[[], object]] = [
            lambda: workspace.search("signal"),
            lambda: workspace.search_many(["signal"]),
            lambda: dataset.search("signal"),
            lambda: dataset.retriever().retrieve("signal"),
            lambda: dataset.search_vector(np.ones(64)),
            lambda: dataset.candidates(pointsman.Query("signal")),
            lambda: pointsman.EnhancedRetrievalService(None, workspace).search_sync("signal"),
            lambda: workspace.route("signal"),
        ]
        for search in searches:
            with pytest.raises(InputError, match="access is on"):
                search()

    @pytest.mark.anyio
    async def test_nobody_searches_without_saying_who_asks_async(self, workspace: Workspace) -> None:
        for source in (workspace, workspace.dataset("notes")):
            with pytest.raises(InputError, match="access is on"):
                await source.asearch("signal")
        assert len(await workspace.asearch("signal", principals=ANNA)) > 0

    def test_principals_that_would_change_nothing_are_refused(self, workspace: Workspace) -> None:
        workspace.switch_access(on=False)
        with pytest.raises(InputError, match="access is off"):
            workspace.search("signal", principals=ANNA)
        with pytest.raises(InputError, match="access is off"):
            workspace.dataset("notes").search("signal", principals=ANNA)
        assert len(workspace.search("zanzibarko")) > 0

    def test_it_stays_on_for_everyone_who_opens_the_workspace(self, workspace: Workspace) -> None:
        with Workspace(workspace.path, embedder=HashingEmbedder()) as other:
            assert other.access
            with pytest.raises(InputError, match="access is on"):
                other.search("signal")

    def test_it_stays_on_in_a_backup_and_in_a_copy(self, workspace: Workspace, tmp_path: Path) -> None:
        backup(workspace, tmp_path / "backup")
        restore(tmp_path / "backup", tmp_path / "restored")
        with LocalBackend(tmp_path / "copy") as target:
            copy(workspace.backend, target)
        for name in ("restored", "copy"):
            with Workspace(tmp_path / name, embedder=HashingEmbedder()) as other:
                assert other.access, name
                assert ids(other, "timetable", []) == {"all", "denied"}

    def test_a_copy_does_not_open_documents_to_everyone(self, workspace: Workspace, tmp_path: Path) -> None:
        with Workspace(tmp_path / "open", embedder=HashingEmbedder()) as other:
            other.dataset("theirs").add([Document("a", "b")])
            with pytest.raises(InputError, match="everyone would see the copied documents"):
                copy(workspace.backend, other.backend)
            assert other.names() == ["theirs"]

    def test_a_store_that_cannot_tell_who_may_see_a_document_is_refused(self) -> None:
        class Blind(EmptyStore):
            def __init__(self) -> None:
                super().__init__({})
                self._info = type(self._info)("blind", "", None, None, {}, frozenset())

        with pytest.raises(UnmetNeedError, match="cannot tell who may see a document"):
            Dataset("blind", store=Blind()).in_view(ANNA)

    def test_neighbours_of_a_hit_are_not_read_past_the_view(self, workspace: Workspace) -> None:
        dataset = workspace.dataset("notes")
        passages = [
            Document(f"p{n}", f"passage {n} of the lamp", {"source": "book.md", "position": n}) for n in range(3)
        ]
        dataset.add(passages[:2], access=["group:rail"])
        dataset.add(passages[2:], access=["group:money"])
        hit = workspace.search("passage 1 of the lamp", 1, principals=ANNA, refuse=False)
        ranking = pointsman.values.types.Ranked(hit.hits, "rank")
        text = WindowExpander(dataset.in_view(ANNA)).refine(pointsman.Query("x"), ranking, 1).hits[0].text
        assert "passage 0" in text
        assert "passage 2" not in text
        refined = WindowExpander(dataset).refine(pointsman.Query("x"), ranking, 1)
        assert "passage 2" not in refined.hits[0].text
        assert "access is on" in refined.degraded[0]


def test_a_deleted_document_is_in_no_view(tmp_path: Path) -> None:
    with Workspace(tmp_path / "work", embedder=HashingEmbedder()) as workspace:
        dataset = workspace.dataset("notes")
        rules = {"a": ["x"], "b": ["x"], "c": ["y"]}
        dataset.add([Document(id_, "signal", {ACCESS: {"allow": allowed}}) for id_, allowed in rules.items()])
        table = collection_of(dataset).permissions
        assert len(table.visible(View.of(["x"])).keys) == 2
        dataset.delete(["b"])
        visible_documents = table.visible(View.of(["x"]))
        assert collection_of(dataset).truth.ids_of(visible_documents.keys.tolist()) == ["a"]
        assert len(visible_documents.keys) == 1, "it is not counted either"
        dataset.delete(["c"])
        assert len(table.visible(View.of(["y"])).keys) == 0
        assert table.visible(View.of(["y"])).permissions == frozenset(), "nobody learns whom it was for"


class TestPlainView:
    def test_costs_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object) -> None:
            raise AssertionError("a plain search asks who may see a document")

        monkeypatch.setattr(PermissionTable, "visible", fail)
        monkeypatch.setattr(PermissionTable, "_catch_up", fail)
        with Workspace(tmp_path / "work", embedder=HashingEmbedder()) as workspace:
            workspace.dataset("notes").add([Document("a", "signal", {ACCESS: {"allow": ["x"]}})])
            assert [hit.id for hit in workspace.search("signal")] == ["a"]
            table = collection_of(workspace.dataset("notes")).permissions
            assert len(table._number_of) == 0


class TestPermissions:
    @pytest.mark.parametrize("value", [
        "user:anna", 5, ["user:anna", 5], [""], ["x" * 300], ["a\nb"], {"allow": "user:anna"}, {"allowed": []},
        {"deny": [None]}, ["a"] * 1001,
    ])  # fmt: skip
    def test_what_names_no_principals_is_refused(self, value: Any) -> None:
        with pytest.raises(InputError):
            Permissions.of(value)

    def test_documents_that_do_not_say_so_properly_are_seen_by_nobody(self, tmp_path: Path) -> None:
        values: list[Any] = [None, "everyone", ["everyone"], {"allow": "everyone"}, {"all": []}]
        for value in values:
            assert permissions_of({ACCESS: value}) is None
        with Workspace(tmp_path, embedder=HashingEmbedder()) as workspace, pytest.raises(InputError, match="_access"):
            workspace.dataset("a").add([Document("a", "b", {ACCESS: ["everyone"]})])

    def test_rules_of_folders(self) -> None:
        rules = [AccessRule.parse(text) for text in ("hr/pay=group:pay", "hr=group:hr,-user:eve", "*.md=everyone")]
        for path, rule in (("hr/pay/a.md", rules[0]), ("hr/b.txt", rules[1]), ("readme.md", rules[2])):
            assert access_rule_for(path, rules) is rule
        assert access_rule_for("hrx/readme.txt", rules) is None, "nobody, as no rule matches"

    @pytest.mark.parametrize("text", ["", "hr=", "=group:hr", "hr=,"])
    def test_rules_that_name_nobody_are_refused(self, text: str) -> None:
        with pytest.raises(InputError):
            AccessRule.parse(text)

    @pytest.mark.parametrize(
        ("text", "remedy"),
        [
            ("2024=final=group:board", r"2024\?final/\*=group:board"),
            ("hr=group:hr=x", "more than one ="),
            ("a==group:hr", "more than one ="),
            ("nonsense", r"\*=nonsense"),
            ("hr,everyone", r"\*=hr,everyone"),
            ("-anna", r"\*=-anna"),
        ],
    )
    def test_rules_that_can_be_read_in_two_ways_are_refused(self, text: str, remedy: str) -> None:
        with pytest.raises(InputError, match=remedy):
            AccessRule.parse(text)

    def test_what_a_refusal_proposes_says_what_was_meant(self) -> None:
        folder = AccessRule.parse("2024?final/*=group:board")
        assert folder.matches("2024=final/minutes/may.md")
        assert AccessRule.parse("*=anna").permissions.allow == {"anna"}
        assert AccessRule.parse("group:hr,-user:eve").matches("any/file.md")


class TestIndexing:
    def test_rules_that_matched_nothing_and_files_that_no_rule_matched_are_named(self, tmp_path: Path) -> None:
        folder = tmp_path / "files"
        (folder / "hr").mkdir(parents=True)
        for name in ("hr/pay.md", "plan.md", "yard.md"):
            (folder / name).write_text("# Yard\n\nThe signal of the yard.\n")
        with Workspace(tmp_path / "work", embedder=HashingEmbedder()) as workspace:
            report = workspace.index(folder, access=["HR=group:hr", "hr=group:hr", "hr/pay.md=user:anna"])
            assert [
                (problem.path, problem.reason.partition(":")[0].partition(";")[0]) for problem in report.problems
            ] == [
                ("HR", "this access rule decides about no file"),
                ("hr/pay.md", "this access rule decides about no file"),
                ("plan.md", "no access rule matches it, and 1 more"),
            ]
            assert report.files == 3
            assert not workspace.index(folder, access=["hr=group:hr", "everyone"]).problems

    def test_rules_are_set_changed_and_kept_without_embedding_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("POINTSMAN_CACHE", str(tmp_path / "cache"))
        folder = tmp_path / "files"
        (folder / "hr").mkdir(parents=True)
        (folder / "hr" / "pay.md").write_text("# Pay\n\nThe salary of the driver.\n")
        (folder / "readme.md").write_text("# Yard\n\nThe signal of the yard.\n")
        embedder = Counting()
        with Workspace(tmp_path / "work", embedder=embedder) as workspace:
            workspace.index(folder, access=["hr=group:hr", "everyone"])
            workspace.switch_access(on=True)
            count = embedder.embedded
            assert {hit.metadata["source"] for hit in workspace.search("salary", principals=[], refuse=False)} == {
                "readme.md"
            }
            assert len(ids(workspace, "salary", ["group:hr"])) == 2
            report = workspace.index(folder)
            assert report.passages.updated == 0
            assert len(ids(workspace, "salary", [])) == 1, "without rules, access stays"
            (folder / "hr" / "pay.md").write_text("# Pay\n\nThe salary of the guard.\n")
            workspace.index(folder)
            assert len(ids(workspace, "guard", [])) == 1, "and so does that of a file whose text changes"
            count = embedder.embedded
            report = workspace.index(folder, access=["everyone"])
            assert report.passages.updated == 1
            assert len(ids(workspace, "guard", [])) == 2
            assert embedder.embedded == count


class TestExactness:
    def test_ties_at_the_cut_do_not_tell_of_hidden_documents(self, tmp_path: Path) -> None:
        """With hundreds of equal documents, which of them are read must not depend on those between them."""
        answers = []
        for name, hidden in (("whole", True), ("part", False)):
            with Workspace(tmp_path / name, embedder=HashingEmbedder()) as workspace:
                dataset = workspace.dataset("notes", indexing_technique="keyword")
                for number in range(3):
                    batch = [Document(f"a{number}-{n}", "red signal lamp") for n in range(400)]
                    dataset.add(batch, access=["everyone"])
                    if hidden:
                        more = [Document(f"b{number}-{n}", "red signal " * (1 + n % 7)) for n in range(500)]
                        dataset.add(more, access=["group:b"])
                workspace.switch_access(on=True)
                lists = dataset.in_view([]).store.search([StoreQuery("red lamp", depth=100)])
                answers.append([hit.id for hit in workspace.search("red signal", 50, principals=[])])
                assert len(lists[0].rankings["bm25"]) == 100
        assert answers[0] == answers[1]
        assert len(answers[0]) == 50

    @pytest.mark.parametrize("groups", [1, 5, 9])
    def test_words_count_and_score_as_in_a_store_of_the_visible_documents(self, tmp_path: Path, groups: int) -> None:
        """Counts, lists and scores are equal to the last digit, however many are hidden, changed or deleted."""
        random = np.random.default_rng(7)
        words = [f"word{n}" for n in range(60)]
        texts = [" ".join(words[int(60 * draw**3)] for draw in random.random(2 + n % 40)) for n in range(1200)]
        questions = [" ".join(random.choice(words, 1 + n % 6)) for n in range(30)]
        answers = []
        for name in ("whole", "part"):
            with Workspace(tmp_path / name, embedder=HashingEmbedder()) as workspace:
                dataset = workspace.dataset("notes", indexing_technique="keyword")
                for start in (0, 400, 800, 0):  # the first ones are written again, with other texts
                    documents = [
                        Document(f"{n}", texts[(n + start) % 1200], {ACCESS: {"allow": [f"group:{n % 10}"]}})
                        for n in range(start, start + 400)
                    ]
                    dataset.add(
                        [document for n, document in enumerate(documents) if name == "whole" or n % 10 < groups]
                    )
                dataset.delete([f"{n}" for n in range(100, 300) if name == "whole" or n % 10 < groups])
                store = dataset.in_view([f"group:{n}" for n in range(groups)]).store
                lists = store.search([StoreQuery(question, depth=40) for question in questions])
                ids = [[document and document.id for document in store.fetch([*of.scores["bm25"]])] for of in lists]
                scores = [[*of.scores["bm25"].values()] for of in lists]
                answers.append((store.frequencies(words), ids, scores, [of.idf for of in lists]))
        assert answers[0] == answers[1]
        assert max(answers[0][0]) > 20 * groups

    @pytest.mark.parametrize("exact_rows", [50_000, 50])
    def test_cosines_are_equal_whatever_is_hidden(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exact_rows: int
    ) -> None:
        monkeypatch.setattr(vector_base, "_EXACT_ROWS", exact_rows)  # the second one is scanned by 4-bit codes
        monkeypatch.setattr(vector_index, "_ROUNDED_ROWS", exact_rows)
        monkeypatch.setattr(vector_query, "_FEW_ROWS", exact_rows)
        random = np.random.default_rng(0)
        rows = random.standard_normal((5000, 64)).astype(np.float32)
        visible = random.random(5000) < 0.3
        lists = []
        for name in ("whole", "part"):
            with Workspace(tmp_path / name, embedder=HashingEmbedder()) as workspace:
                dataset = workspace.dataset("notes", indexing_technique="vector")
                chosen = [n for n in range(5000) if name == "whole" or visible[n]]
                dataset.add(
                    [
                        Document(f"{n}", "text", {ACCESS: {"allow": ["everyone" if visible[n] else "group:b"]}})
                        for n in chosen
                    ],
                    vectors=rows[chosen],
                )
                store = dataset.in_view([]).store
                queries = [StoreQuery(None, row / np.linalg.norm(row), 20) for row in rows[:50]]
                rankings = [result.rankings["vector"] for result in store.search(queries)]
                of_workspace = []
                for ranking in rankings:
                    documents = store.fetch([key for key, _ in ranking])
                    assert None not in documents
                    scores = [score for _, score in ranking]
                    of_workspace.append([(d.id, score) for d, score in zip(documents, scores, strict=True) if d])
                lists.append(of_workspace)
        assert lists[0] == lists[1]


class TestBestCosines:
    """The best cosines of questions merge: what is known of some groups is not computed again for others."""

    @pytest.fixture
    def groups(self, tmp_path: Path) -> Iterator[Dataset]:
        random = np.random.default_rng(5)
        with Workspace(tmp_path / "work", embedder=HashingEmbedder()) as workspace:
            dataset = workspace.dataset("notes", indexing_technique="vector")
            for start in range(0, 900, 300):  # a base, and a tail
                rows = random.standard_normal((300, 48)).astype(np.float32)
                rows[::7] = rows[0]  # ties
                documents = [
                    Document(f"{start + n}", "text", {ACCESS: {"allow": [f"group:{n % 30}"], "deny": []}})
                    for n in range(300)
                ]
                dataset.add(documents, vectors=rows)
            workspace.switch_access(on=True)
            yield dataset

    @staticmethod
    def questions(count: int = 25) -> Any:
        rows = np.random.default_rng(6).standard_normal((count, 48)).astype(np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    @staticmethod
    def by_search(dataset: Dataset, questions: Any) -> list[float]:
        lists = dataset.store.search([StoreQuery(None, question, 1) for question in questions])
        return [ranked.rankings["vector"][0][1] or 0.0 for ranked in lists]

    @pytest.mark.parametrize("together", [16_384, 40, 7], ids=["all", "some", "few"])
    def test_are_those_of_searches_to_the_last_digit(
        self, groups: Dataset, monkeypatch: pytest.MonkeyPatch, together: int
    ) -> None:
        monkeypatch.setattr("pointsman.store.local.vectors.best_cosines._TOGETHER", together)
        questions = self.questions()
        for numbers in ([3], range(15), range(10, 30), range(30)):
            view = groups.in_view([f"group:{number}" for number in numbers])
            assert view.store.best_cosines(questions) == self.by_search(view, questions)
        assert groups.store.best_cosines(questions) == pytest.approx(self.by_search(groups, questions))

    def test_are_computed_once_for_each_group(self, groups: Dataset) -> None:
        best_cosines: Any = groups.store.collection.best_cosines  # type: ignore[attr-defined]
        questions = self.questions()
        for numbers, rows in ((range(10), 300), (range(5, 15), 450), (range(15), 450), (range(2, 4), 450)):
            groups.in_view([f"group:{number}" for number in numbers]).store.best_cosines(questions)
            assert best_cosines.rows == rows
        groups.in_view(["group:1"]).store.best_cosines(self.questions(3))
        assert best_cosines.rows == 480, "other questions are other cosines"

    def test_follow_changes_of_access_and_of_documents(self, groups: Dataset) -> None:
        questions = self.questions()
        asker = [f"group:{number}" for number in range(12)]
        groups.in_view(asker).store.best_cosines(questions)
        changes: list[Callable[[], Any]] = [
            lambda: groups.set_access({f"{n}": ["group:29"] for n in range(0, 300, 2)}),
            lambda: groups.delete([f"{n}" for n in range(300, 420)]),
            lambda: groups.add([Document("new", "x", {ACCESS: {"allow": ["group:1"]}})], vectors=questions[:1]),
        ]
        for change in changes:
            change()
            view = groups.in_view(asker)
            assert view.store.best_cosines(questions) == self.by_search(view, questions)
        assert view.store.best_cosines(questions)[0] == pytest.approx(1)

    def test_of_no_vectors_and_of_no_direction_are_none(self, groups: Dataset) -> None:
        questions = self.questions(2)
        questions[1] = 0
        assert np.isnan(groups.in_view(["group:none"]).store.best_cosines(questions)).all()
        assert np.isnan(groups.in_view(["group:1"]).store.best_cosines(questions)).tolist() == [False, True]


def test_a_day_in_a_view_shows_what_both_show(workspace: Workspace) -> None:
    dataset = workspace.dataset("notes")
    dataset.add(
        [
            Document("old", "timetable of the first years", {"valid_from": "2019-01-01", "valid_to": "2020-12-31"}),
            Document("new", "timetable of the next years", {"valid_from": "2021-01-01"}),
        ],
        access=["group:rail"],
    )
    seen_by_rail = dataset.in_view(["group:rail"]).store
    for day, ids_of_day in (("2020-06-01", {"old"}), ("2022-06-01", {"new"}), ("2018-06-01", set())):
        store = seen_by_rail.in_view(View.of_day(day), lambda _: {})
        assert {document.id for document in store.page(limit=50).documents} == {
            *(f"rail-{number}" for number in range(5)), "all", "denied", *ids_of_day
        }  # fmt: skip


def test_a_view_without_vectors_has_a_table_of_none(tmp_path: Path) -> None:
    with Workspace(tmp_path / "work", embedder=HashingEmbedder()) as workspace:
        words = workspace.dataset("words", indexing_technique="keyword")
        words.add([Document("a", "signal", {ACCESS: {"allow": ["group:rail"]}})])
        assert words.in_view(["group:rail"]).store.vectors().shape == (0, 0)


def test_what_is_counted_of_a_view_is_bounded(workspace: Workspace) -> None:
    collection = collection_of(workspace.dataset("notes"))
    keys = collection.permissions.visible(View.of(["group:rail"])).keys
    subset = collection.keyword.subset(keys, None)
    assert [subset.count(f"word{number}") for number in range(1200)] == [0] * 1200
    assert len(subset.frequencies) <= 500
    assert subset.count("signal") == 5


@pytest.mark.parametrize("runs", [0, 1, 2, 16, 17, 60])
def test_words_of_a_view_are_counted_exactly_and_hidden_ones_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: int
) -> None:
    """Else the time would tell of a word that only hidden documents have, at least where few of them lie between."""
    with Workspace(tmp_path, embedder=HashingEmbedder()) as workspace:
        notes = workspace.dataset("notes", indexing_technique="keyword")
        texts = {f"{n}": f"common fifth{n % 5} {'signal' if n % 2 else 'salary'}{n // 2}" for n in range(300)}
        visible = [f"{300 * run // runs + offset}" for run in range(runs) for offset in range(3)]
        others = [name for name in texts if name not in visible]
        notes.add([Document(name, text) for name, text in texts.items()], access=["group:money"])
        notes.set_access({name: ["group:rail"] for name in visible})
        notes.delete([*visible[::7], *others[::3]])
        collection, remaining = collection_of(notes), set(visible) - set(visible[::7])
        collection.refresh()
        subset = collection.keyword.subset(collection.permissions.visible(View.of(["group:rail"])).keys)
        words = {word for text in texts.values() for word in text.split()} | {"nowhere"}
        expected = {word: sum(word in texts[name].split() for name in remaining) for word in words}
        assert {word: subset.count(word) for word in words} == expected
        if runs <= 16:
            monkeypatch.setattr(KeywordState, "postings", None)
            fresh_subset = collection.keyword.subset(subset.keys)
            assert {word: fresh_subset.count(word) for word in words} == expected
        assert {word for word in words if subset.learn(word)} == {word for word, count in expected.items() if count}


def test_no_hidden_row_is_read_for_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the time would tell of a file that only hidden documents are from."""
    with Workspace(tmp_path, embedder=HashingEmbedder()) as workspace:
        notes = workspace.dataset("notes")
        notes.add([Document(f"h{n}", f"salary {n}", {"source": "pay.md"}) for n in range(50)], access=["group:hr"])
        notes.add([Document("own", "signal", {"source": "yard.md"})], access=["everyone"])
        workspace.switch_access(on=True)
        view = notes.in_view([])
        assert view.ids(source="yard.md") == ["own"]
        rows: list[object] = []
        real = Truth._rows

        def count_rows(truth: Truth, *sql: Any) -> list[Any]:
            rows.extend(answer := list(real(truth, *sql)))
            return answer

        monkeypatch.setattr(Truth, "_rows", count_rows)
        assert view.ids(source="pay.md") == []
        assert len(rows) <= 2
        assert view.ids(source="absent.md") == []
