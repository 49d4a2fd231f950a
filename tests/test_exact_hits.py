"""What holds a thing that a question names exactly is first and shown; a near miss is told as one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import pointsman
from pointsman import Document, Workspace
from pointsman.ingest import ParsedDocument, chunk, convert
from pointsman.ingest.source_text import numbered_title
from pointsman.retrieval.run.exact_hits import NEAR_MISS
from pointsman.values.reasons import Statement, language_of

NUMBERS = range(400, 440)
KINDS = [
    (
        "Invoice INV-2026-{:04} of May: the boiler company asks for payment within 30 days.",
        "when is INV-2026-{:04} due?",
    ),
    ("Накладная № {}: котельная поставила насосы в срок.", "что поставили по накладной № {}?"),
    ("发票{}：锅炉公司要求三十天内付款。", "发票{}什么时候到期？"),
    ("技术周刊（第 {} 期）：这里记录值得分享的内容。", "技术周刊 第{}期 内容"),
    ("The build v2.{} mends the boiler's log.", "what does version 2.{} mend?"),
    ("Room {} has a boiler and two windows.", "what is in room {}?"),
    ("The option boiler_limit_{}_max stops the pump.", "what does boiler_limit_{}_max do?"),
]


@pytest.fixture(scope="module", params=["folder", "postgres"])
def workspace(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    location = str(tmp_path_factory.mktemp("exact"))
    if request.param == "postgres":
        location = f"{request.getfixturevalue('postgres').url}?schema=exact"
    with pointsman.open(location) as workspace:
        for kind, (text, _) in enumerate(KINDS):
            documents = [Document(f"{number}", text.format(number)) for number in NUMBERS if number != 417]
            workspace.dataset(f"kind{kind}").add(documents)
        yield workspace


@pytest.mark.parametrize("kind", range(len(KINDS)))
class TestFamilies:
    def test_what_holds_it_is_first_and_shown_and_no_other_is_told_above_the_limit(
        self, workspace: Workspace, kind: int
    ) -> None:
        for number in (401, 416, 418, 439):
            for strategy in ("auto", "vector", "rrf"):
                answer = workspace.search(KINDS[kind][1].format(number), 5, datasets=f"kind{kind}", strategy=strategy)
                assert answer.hits[0].id == f"{number}", (strategy, answer.refused)
                own_level, *levels = [hit.relevance for hit in answer.hits]
                assert own_level is not None
                assert all(level is not None and level <= min(own_level, NEAR_MISS) for level in levels)
                assert not answer.degraded

    def test_what_stands_in_no_document_is_said_to(self, workspace: Workspace, kind: int) -> None:
        question = KINDS[kind][1].format(417)
        answer = workspace.search(question, 3, datasets=f"kind{kind}", refuse=False)
        [note] = answer.degraded
        language = language_of(question)
        prefix, suffix = Statement("stands_nowhere", {"names": "|"}).in_words(language).split("|")
        absence, nearest = note.split("；" if language == "zh" else "; ", 1)
        assert "417" in absence.removeprefix(prefix).removesuffix(suffix)
        assert absence.startswith(prefix)
        assert absence.endswith(suffix)
        assert nearest == Statement("the_nearest_is", {"caption": answer.hits[0].caption}).in_words(language)
        assert all(hit.relevance is not None and hit.relevance <= NEAR_MISS for hit in answer.hits)
        assert answer.confidence is not None
        assert answer.confidence <= NEAR_MISS


def test_what_no_list_has_found_is_looked_up(tmp_path: Any) -> None:
    with pointsman.open(tmp_path) as workspace:
        question = "what did the long meeting on boilers, pumps and windows decide about INV-2026-0417?"
        filler = "The long meeting on boilers, pumps and windows did decide about {}."
        letters = [
            Document(f"a{number}", filler.format(f"point {'abcdefgh'[number % 8]} {number}")) for number in range(300)
        ]
        workspace.dataset("minutes").add(
            [*letters, Document("list", "Paid so far: " + "x y z " * 300 + "inv 2026/0417")]
        )
        answer = workspace.search(question, 3)
        assert answer.hits[0].id == "list"
        assert not answer.degraded


def test_only_what_the_asker_may_see_is_said_to_be_there(tmp_path: Any) -> None:
    with pointsman.open(tmp_path) as workspace:
        notes = workspace.dataset("notes")
        notes.add([Document("other", "Invoice INV-2026-0416 is due in May.")], access=["everyone"])
        notes.add([Document("hidden", "Invoice INV-2026-0417 is due in June.")], access=["group:board"])
        workspace.switch_access(on=True)
        question = "when is INV-2026-0417 due?"
        board_answer = workspace.search(question, principals=["group:board"])
        assert (board_answer.hits[0].id, board_answer.degraded) == ("hidden", ())
        answer = workspace.search(question, principals=[], refuse=False)
        assert [hit.id for hit in answer.hits] == ["other"]
        assert "the nearest is Invoice INV-2026-0416 is due in May." in answer.degraded[0]


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("Weekly, issue {}: what is worth a look.", "weekly issue 132 cover"),
        ("Ticket {}: the gate does not open at night.", "ticket 132 status"),
        ("Заявка № {}: котельная просит насосы.", "заявка 132 состояние"),
        ("第 {} 期：这里记录值得分享的内容。", "第132期 封面"),
    ],
)
def test_what_may_be_a_count_is_a_name_where_a_document_holds_it(tmp_path: Any, text: str, question: str) -> None:
    with pointsman.open(tmp_path) as workspace:
        workspace.dataset("all").add(Document(f"{number}", text.format(number)) for number in range(110, 150))
        answer = workspace.search(question, 5)
        assert answer.hits[0].id == "132"
        assert all((hit.relevance or 0) <= NEAR_MISS for hit in answer.hits[1:])


@pytest.mark.parametrize(("question", "text"), [("order 200 chairs", "chairs"), ("заказ 200 стульев", "стулья")])
def test_what_may_be_a_count_moves_nothing_where_no_document_holds_it(tmp_path: Any, question: str, text: str) -> None:
    with pointsman.open(tmp_path) as workspace:
        workspace.dataset("all").add([Document("a", f"200 {text}: a sale"), Document("b", f"How to order {text}")])
        answer = workspace.search(question, 5, refuse=False)
        assert not answer.degraded
        assert "exact" not in {entry.source for hit in answer.hits for entry in hit.provenance}


def test_of_several_things_one_is_enough(tmp_path: Any) -> None:
    with pointsman.open(tmp_path) as workspace:
        workspace.dataset("notes").add(
            [Document(f"{number}", f"Invoice INV-2026-0{number} is due in May.") for number in (415, 416, 417)]
        )
        answer = workspace.search("compare INV-2026-0416 with INV-2026-0417", 3, refuse=False)
        assert {hit.id for hit in answer.hits[:2]} == {"416", "417"}
        absent = workspace.search("compare INV-2026-0416 with INV-2026-0999", 3, refuse=False)
        assert absent.hits[0].id == "416"
        assert absent.degraded[0].startswith("INV-2026-0999 stands in no document")


def test_a_file_named_so_holds_it(tmp_path: Any) -> None:
    (tmp_path / "files").mkdir()
    for number in (416, 417):
        (tmp_path / "files" / f"INV-2026-0{number}.txt").write_text("The boiler is to be paid within thirty days.")
    with pointsman.open(tmp_path / "work") as workspace:
        workspace.index(tmp_path / "files")
        answer = workspace.search("when is INV-2026-0417 to be paid?", 2)
        assert answer.hits[0].metadata["source"] == "INV-2026-0417.txt"


MONTHS = {
    "may": "Invoice from Acme GmbH of 2,310 euros was paid on 14 May 2026 by bank transfer.",
    "march": "Invoice from Acme GmbH of 1,870 euros was paid on 3 March 2026 by bank transfer.",
    "other year": "Invoice from Acme GmbH of 1,330 euros was paid on 14 May 2024 by bank transfer.",
    "without year": "Founded on 1 April 1999, Acme GmbH sent an invoice that was paid by bank transfer in May.",
    "май": "Счёт ООО Василёк оплачен 12 мая 2026 года переводом.",
    "апрель": "Счёт ООО Ромашка оплачен 12 апреля 2026 года переводом.",
    "五月": "发票已于二〇二六年五月十四日付款。",
    "三月": "发票已于2026年3月14日付款。",
}


@pytest.fixture(scope="module")
def invoices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    with pointsman.open(tmp_path_factory.mktemp("months")) as workspace:
        fillers = [Document(f"{n}", f"The gardener of house {n} waters the roses and the tulips.") for n in range(40)]
        workspace.dataset("invoices").add([*(Document(id_, text) for id_, text in MONTHS.items()), *fillers])
        yield workspace


class TestMonths:
    def levels(self, workspace: Workspace, question: str) -> dict[str, float]:
        answer = workspace.search(question, 8, refuse=False)
        return {hit.id: hit.relevance for hit in answer.hits if hit.relevance is not None}

    @pytest.mark.parametrize(
        ("question", "right", "others"),
        [
            ("invoice paid in May 2026", ["may", "without year"], ["march", "other year"]),
            ("какой счёт оплачен в мае 2026?", ["май"], ["апрель"]),
            ("2026年5月付款的发票", ["五月"], ["三月"]),
        ],
    )
    def test_another_month_is_a_near_miss(
        self, invoices: Workspace, question: str, right: list[str], others: list[str]
    ) -> None:
        levels = self.levels(invoices, question)
        assert all(levels[id_] > NEAR_MISS for id_ in right)
        assert all(levels[id_] <= NEAR_MISS for id_ in others if id_ in levels)
        assert levels.keys() & set(others)

    @pytest.mark.parametrize(
        "question", ["invoice paid since May 2026", "invoice paid in July 2026", "invoice paid in May"]
    )
    def test_a_range_and_a_month_that_no_hit_has_limit_nothing(self, invoices: Workspace, question: str) -> None:
        levels = self.levels(invoices, question)
        assert levels["march"] > NEAR_MISS


FILES = {
    "plans/adr_0417.md": ("# Pumps\nThe boiler's pumps run at night.", "who decided ADR-0417?"),
    "plans/2026-03-17 council.txt": (
        "Minutes\n\nThe council met about the boiler.",
        "what did they say on 17 March 2026?",
    ),
    "приказы/приказ_417_насосы.md": ("# О насосах\nНасосы котельной работают ночью.", "о чём приказ 417?"),
    "合同/HT-2026-0417.md": ("# 采购合同\n锅炉公司供应水泵。", "HT-2026-0417 是和谁签的？"),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    folder = tmp_path_factory.mktemp("files")
    for path, (text, _) in FILES.items():
        for file_name in (path, path.replace("17", "18"), path.replace("17", "16")):  # they differ in the name alone
            file = folder / file_name
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, "utf-8")
    with pointsman.open(folder / "workspace") as workspace:
        workspace.index(sorted({file.parent for file in folder.glob("*/*.*")}), "files")
        yield workspace


class TestFileNames:
    @pytest.mark.parametrize("path", FILES)
    def test_a_file_is_found_by_the_number_in_its_name(self, files: Workspace, path: str) -> None:
        answer = files.search(FILES[path][1], 3)
        first, *neighbours = answer.hits
        assert first.metadata["source"].endswith(path.rpartition("/")[2])
        assert first.relevance is not None
        assert all(hit.relevance is not None and hit.relevance <= NEAR_MISS for hit in neighbours)
        assert not answer.degraded

    def test_what_a_program_wrote_into_a_name_and_what_the_title_says_is_not_repeated(self) -> None:
        assert numbered_title("Pumps", "Pumps 3f2a9c4d5e6f708192a3b4c5d6e7f809.md") == "Pumps"
        assert numbered_title("Chapter 3: pumps", "chapter_3.md") == "Chapter 3: pumps"
        assert numbered_title("Pumps", "a/INV_2026_0417.pdf") == "Pumps (INV 2026 0417)"
        [message] = convert("1204680122.27c448.eml", b"Subject: Pumps\nMIME-Version: 1.0\n\nThey run.")
        assert isinstance(message, ParsedDocument)
        assert [passage.title for passage in chunk(message)] == ["Pumps"]
