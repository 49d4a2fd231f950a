"""Receipts and replay: the same answer to the byte, or what of it is no longer held."""

from __future__ import annotations

import json
import subprocess
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pointsman
from command_kit import run_command
from pointsman.retrieval.plan import vocabulary
from pointsman.retrieval.plan.transform import spelling_corrector as spelling
from pointsman.retrieval.receipts import (
    Receipt,
    SourceState,
    digest_of_answer,
    digest_of_reaching,
    version_with_build,
)
from pointsman.tools.errors import InputError, NotHeldError
from pointsman.tools.version import __version__
from pointsman.values.settings import Settings
from serving import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pointsman.values.retrieval_context import RetrievalContext
    from pointsman.workspace.workspace_search import Workspace

CLAUSES = {
    "notice": "Either party ends the contract with three months of notice.",
    "invoices": "Invoices fall due in thirty days after they have arrived.",
    "court": "The court of Riga decides about this contract.",
    "drivers": "Drivers rest for eleven hours between two shifts.",
    "wagons": "Wagons are inspected before each journey.",
    "сроки": "Поставщик отгружает товар в течение пяти дней.",
}
QUESTIONS = ("How much notice ends the contract?", "When do invoices fall due?", "сроки отгрузки товара")


def answer_bytes(context: RetrievalContext) -> dict[str, Any]:
    """All of an answer but its times."""
    return {name: value for name, value in context.to_dict().items() if name not in {"milliseconds", "trace"}}


def fill_workspace(address: str | Path) -> Workspace:
    """A workspace whose dataset ``clauses`` keeps versions."""
    opened = pointsman.open(address)
    opened.dataset("clauses", versions="90 days").add(
        [{"id": id_, "text": text, "metadata": {"n": n}} for n, (id_, text) in enumerate(CLAUSES.items())]
    )
    return opened


@pytest.fixture(params=["folder", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a workspace that is not there yet."""
    if request.param == "folder":
        return str(tmp_path / "contracts")
    return f"{request.getfixturevalue('postgres').url}?schema=replay_{uuid.uuid4().hex}"


@pytest.fixture
def workspace(address: str) -> Iterator[Workspace]:
    with fill_workspace(address) as opened:
        yield opened


@pytest.fixture
def in_folder(tmp_path: Path) -> Workspace:
    return fill_workspace(tmp_path / "contracts")


def rewrite(workspace: Workspace) -> None:
    """Replace, delete and add documents, so that every question has another answer."""
    dataset = workspace.dataset("clauses")
    dataset.add([{"id": id_, "text": f"{text} Amended."} for id_, text in list(CLAUSES.items())[:3]])
    dataset.delete(["wagons", "сроки"])
    dataset.add([{"id": f"new-{n}", "text": f"Notice {n} ends the contract at once."} for n in range(20)])
    dataset.set_metadata({"drivers": {"n": 77}})


@pytest.mark.parametrize("strategy", ["auto", "bm25", "vector", "hybrid", "rrf"])
def test_replay_gives_the_same_answer_after_everything_has_changed(workspace: Workspace, strategy: Any) -> None:
    answers = [workspace.search(question, strategy=strategy) for question in QUESTIONS]
    answers.append(workspace.search(QUESTIONS[0], k=3, filters="n < 4", refuse=False, strategy=strategy))
    rewrite(workspace)
    assert [hit.id for hit in workspace.search(QUESTIONS[0])] != [hit.id for hit in answers[0]]
    for answer in answers:
        assert answer.receipt
        assert answer_bytes(workspace.replay(answer.receipt)) == answer_bytes(answer)


def test_a_dataset_without_versions_beside_may_be_one_that_was_never_written_to(workspace: Workspace) -> None:
    workspace.dataset("empty").make()
    answer = workspace.search(QUESTIONS[0])
    assert set(answer.datasets) == {"clauses", "empty"}
    assert answer_bytes(workspace.replay(str(answer.receipt))) == answer_bytes(answer)


def test_replay_works_in_another_process_s_workspace(workspace: Workspace, address: str) -> None:
    answer = workspace.search(QUESTIONS[1])
    rewrite(workspace)
    workspace.close()
    with pointsman.open(address) as again:
        assert answer_bytes(again.replay(str(answer.receipt))) == answer_bytes(answer)


def test_replay_over_http_gives_the_same_answer(workspace: Workspace) -> None:
    import httpx

    from pointsman import Client
    from pointsman.service.server import create_app

    answer = workspace.search(QUESTIONS[0])
    rewrite(workspace)
    with serving(create_app(workspace)) as address, Client(address) as client:
        assert answer_bytes(client.replay(str(answer.receipt))) == answer_bytes(answer)
        over_http = client.search(QUESTIONS[1])
        workspace.dataset("clauses").delete([hit.id for hit in over_http])
        assert answer_bytes(client.replay(str(over_http.receipt))) == answer_bytes(over_http)
        form = httpx.post(f"{address}/api/replay", json={"receipt": answer.receipt}, timeout=60).json()
        assert [hit["id"] for hit in form["hits"]] == [hit.id for hit in answer]
        client.dataset("more", versions="9 days").add([{"id": "a", "text": "More."}])
        assert workspace.status("more")["kept_days"] == 9
        workspace.dataset("clauses", versions="off")
        with pytest.raises(NotHeldError, match="'clauses' keeps no versions any more"):
            client.replay(str(answer.receipt))
        response = httpx.post(f"{address}/api/replay", json={"receipt": answer.receipt}, timeout=60)
        assert response.status_code == 410


def test_replay_on_the_command_line_gives_the_same_answer(workspace: Workspace, address: str, tmp_path: Path) -> None:
    answer = workspace.search(QUESTIONS[0])
    rewrite(workspace)
    workspace.close()

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run_command(*arguments, "--workspace", address)

    shown = run("replay", str(answer.receipt), "--json")
    assert shown.returncode == 0, shown.stderr
    form = json.loads(shown.stdout)
    assert {name: form[name] for name in answer_bytes(answer)} == answer_bytes(answer)
    refused = run("replay", str(answer.receipt)[:-1] + "!")
    assert refused.returncode != 0
    assert "not issued here" in refused.stderr
    (tmp_path / "strike.txt").write_text("A strike ends no contract.", "utf-8")
    indexed = run("index", str(tmp_path / "strike.txt"), "--dataset", "strikes", "--versions", "9 days")
    assert indexed.returncode == 0, indexed.stderr
    with pointsman.open(address) as again:
        assert again.dataset("strikes").kept_days == 9


def test_restored_workspace_replays_the_receipts_of_the_first_one(in_folder: Workspace, tmp_path: Path) -> None:
    from pointsman.workspace.copies.backup import backup, restore

    workspace = in_folder
    answer = workspace.search(QUESTIONS[0])
    rewrite(workspace)
    later = workspace.search(QUESTIONS[0])
    backup(workspace, tmp_path / "backup")
    workspace.dataset("clauses").add([{"id": "after", "text": "Notice after the backup ends the contract."}])
    too_late = workspace.search(QUESTIONS[0])
    restore(tmp_path / "backup", tmp_path / "restored")
    with pointsman.open(tmp_path / "restored") as restored:
        for before in (answer, later):
            assert answer_bytes(restored.replay(str(before.receipt))) == answer_bytes(before)
        with pytest.raises(NotHeldError, match="probably restored from a backup of before"):
            restored.replay(str(too_late.receipt))


def test_replay_goes_back_and_forth_between_states(workspace: Workspace) -> None:
    dataset, answers = workspace.dataset("clauses"), []
    for number in range(8):
        dataset.add([{"id": "notice", "text": f"The notice is {number} months, and ends the contract."}])
        if number % 3 == 0:
            dataset.delete([f"extra-{number - 1}"])
        dataset.add([{"id": f"extra-{number}", "text": f"Contract {number} is about wagons and notice."}])
        answers.append(workspace.search(QUESTIONS[0]))
    for answer in (*answers[::2], *answers[::-1]):
        assert answer_bytes(workspace.replay(str(answer.receipt))) == answer_bytes(answer)


def test_receipts_come_only_from_datasets_that_keep_versions(workspace: Workspace) -> None:
    workspace.dataset("plain").add([{"id": "a", "text": "A plain note about notice."}])
    assert workspace.search("notice", datasets=["plain"]).receipt is None
    both = workspace.search("notice")
    assert answer_bytes(workspace.replay(str(both.receipt))) == answer_bytes(both)
    workspace.dataset("plain").add([{"id": "b", "text": "Another."}])
    with pytest.raises(NotHeldError, match="'plain' kept no versions, and has changed since"):
        workspace.replay(str(both.receipt))


def test_a_receipt_of_datasets_that_never_kept_versions_is_refused_whatever_its_seal(workspace: Workspace) -> None:
    workspace.dataset("plain").add([{"id": "a", "text": "A plain note about notice."}])
    info, sequence = workspace.dataset("plain").store.info, workspace.dataset("plain").store.statistics().sequence
    issued = Receipt.read(str(workspace.search(QUESTIONS[0]).receipt))
    answer = workspace.search(QUESTIONS[0], datasets=["plain"])
    forged = replace(
        issued,
        sources=(SourceState("plain", info.identity.partition(" ")[0], sequence),),
        options={"datasets": ["plain"]},
        answer=digest_of_answer(answer),
    )
    with pytest.raises(InputError, match="not issued here"):
        workspace.replay(forged.seal(b"a key of one's own"))


def test_replay_uses_the_settings_of_then(workspace: Workspace, address: str) -> None:
    answer = workspace.search(QUESTIONS[0])
    rewrite(workspace)
    workspace.close()
    with pointsman.open(address, settings=Settings(default_retrieval_strategy="bm25", bm25_k1=2.0)) as changed:
        other = changed.search(QUESTIONS[0])
        assert other.strategy == "bm25"
        assert answer_bytes(changed.replay(str(answer.receipt))) == answer_bytes(answer)
        assert answer_bytes(changed.replay(str(other.receipt))) == answer_bytes(other)


def test_replay_answers_as_of_the_day_and_for_whom_it_was_asked(address: str) -> None:
    with pointsman.open(address) as workspace:
        dataset = workspace.dataset("notes", versions="7 days")
        for n, group in enumerate(["hr", "sales", "hr", "sales"]):
            metadata = {"valid_from": f"202{n}-01-01"}
            dataset.add([{"id": f"n{n}", "text": f"Salary note {n}.", "metadata": metadata}], access=[f"group:{group}"])
        workspace.switch_access(on=True)
        answers = [
            workspace.search("salary note", principals=["group:hr"]),
            workspace.search("salary note", principals=["group:sales"], as_of="2022-06-01"),
        ]
        dataset.set_access({f"n{n}": ["group:nobody"] for n in range(4)})
        assert not workspace.search("salary note", principals=["group:hr"]).hits
        for answer in answers:
            assert answer.hits
            assert answer_bytes(workspace.replay(str(answer.receipt))) == answer_bytes(answer)
        workspace.switch_access(on=False)
        with pytest.raises(NotHeldError, match="access was on, and is off now"):
            workspace.replay(str(answers[0].receipt))


def test_what_is_no_longer_held_is_named(workspace: Workspace) -> None:
    answer = workspace.search(QUESTIONS[0])
    workspace.dataset("clauses", versions="off")
    with pytest.raises(NotHeldError, match="'clauses' keeps no versions any more"):
        workspace.replay(str(answer.receipt))
    workspace.dataset("clauses", versions="90 days")
    rewrite(workspace)
    with pytest.raises(InputError, match="not issued here"):  # the key went with what was kept
        workspace.replay(str(answer.receipt))
    workspace.drop("clauses")
    with pytest.raises(NotHeldError, match="'clauses', which was deleted"):
        workspace.replay(str(answer.receipt))
    workspace.dataset("clauses").add([{"id": "a", "text": "another dataset of this name"}])
    with pytest.raises(NotHeldError, match="there is a new one of the same name"):
        workspace.replay(str(answer.receipt))


def test_replaced_policy_is_named(workspace: Workspace) -> None:
    from dataclasses import replace

    from pointsman.retrieval.plan.policy import measured

    answer = workspace.search(QUESTIONS[0])
    workspace.keep(replace(measured(), vector_weight=3.0))
    with pytest.raises(NotHeldError, match="the policy, which was replaced"):
        workspace.replay(str(answer.receipt))
    workspace.keep(None)
    assert answer_bytes(workspace.replay(str(answer.receipt))) == answer_bytes(answer)


def test_object_given_in_python_is_named(workspace: Workspace) -> None:
    from pointsman.retrieval.refine.refuse import Refuser

    answer = workspace.search(QUESTIONS[0], refuse=Refuser())
    with pytest.raises(NotHeldError, match="refuse, which was an object in Python"):
        workspace.replay(str(answer.receipt))


@pytest.mark.parametrize("as_of", [None, "2026-01-01"])
def test_replay_corrects_spelling_by_the_words_of_then(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, as_of: str | None
) -> None:
    dataset, question = workspace.dataset("clauses"), "What about wagosn and journye?"
    first = workspace.search(question, as_of=as_of)
    assert first.spelling is not None
    assert "wagons" in first.spelling.text
    monkeypatch.setattr(vocabulary, "_AT_ONCE", 0.0)  # words are read again later, as in a large dataset
    monkeypatch.setattr(vocabulary, "ANEW", 9.0)
    dataset.delete(["wagons"])
    dataset.add([{"id": "walls", "text": "Wagtail walls waggons journeys. Notice of wagoners."}])
    later = workspace.search(question, as_of=as_of)
    rewrite(workspace)
    for answer in (later, first):
        assert answer_bytes(workspace.replay(str(answer.receipt))) == answer_bytes(answer)
    assert Receipt.read(str(first.receipt)).sources[0].words is None
    if as_of is None:  # a view's words are always its own
        assert Receipt.read(str(later.receipt)).sources[0].words == Receipt.read(str(first.receipt)).sources[0].sequence


def test_replay_leaves_spelling_as_it_is_if_words_were_being_read(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(spelling, "FIRST_SECONDS", -9.0)
        answer = workspace.search("Are wagosn inspected?")
    assert any("still being read" in note for note in answer.degraded)
    rewrite(workspace)
    assert answer_bytes(workspace.replay(str(answer.receipt))) == answer_bytes(answer)


def test_words_of_an_earlier_state_without_versions_are_named(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = workspace.dataset("plain")
    plain.add([{"id": "a", "text": "Locomotives are painted green."}])
    workspace.search("locomtoives")
    monkeypatch.setattr(vocabulary, "_AT_ONCE", 0.0)
    monkeypatch.setattr(vocabulary, "ANEW", 9.0)
    plain.add([{"id": "b", "text": "Carriages are painted red."}])
    answer = workspace.search("carriaegs")
    with pytest.raises(NotHeldError, match="the words for spelling of dataset 'plain', which were of an earlier state"):
        workspace.replay(str(answer.receipt))


@pytest.mark.parametrize("text", ["", "r1.x.y", "r2.eJw.x", "…", "r1." + "A" * 300_000 + ".x"])
def test_text_that_is_no_receipt_is_refused(workspace: Workspace, text: str) -> None:
    with pytest.raises(InputError, match="not a receipt"):
        workspace.replay(text)


def test_changed_receipt_is_refused(workspace: Workspace) -> None:
    from dataclasses import replace

    answer = workspace.search(QUESTIONS[0])
    forged = replace(Receipt.read(str(answer.receipt)), question={"text": "salaries"}).seal(b"guess")
    with pytest.raises(InputError, match="not issued here"):
        workspace.replay(forged)


def test_different_answer_is_never_shown_as_the_same(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = workspace.search(QUESTIONS[0])
    rewrite(workspace)
    monkeypatch.setattr(
        "pointsman.workspace.replaying.digest_of_answer", lambda context: "x" + digest_of_answer(context)
    )
    with pytest.raises(NotHeldError, match="a language model or another server answered differently"):
        workspace.replay(str(answer.receipt))
    monkeypatch.setattr("pointsman.workspace.replaying.version_with_build", lambda: "9.9.9")
    with pytest.raises(NotHeldError, match=r"from version 0\.1\.0\+[\w-]{16} of the program, and this is 9\.9\.9"):
        workspace.replay(str(answer.receipt))


@pytest.mark.parametrize("version", [__version__, f"{__version__}+of-another-build"])
@pytest.mark.parametrize("odds", [{"strong": 1.1, "possible": 1.1}, {"strong": 0.0, "possible": 0.0}])
def test_answer_that_another_build_judges_differently_is_said_to_be_of_it(
    in_folder: Workspace, monkeypatch: pytest.MonkeyPatch, version: str, odds: dict[str, float]
) -> None:
    with monkeypatch.context() as build_of_then, in_folder as workspace:
        build_of_then.setattr("pointsman.values.types.ODDS", {**odds, "nearest": 0.0})
        build_of_then.setattr("pointsman.retrieval.receipts.version_with_build", lambda: version)
        answers = [workspace.search(question, refuse=False) for question in (*QUESTIONS, "wet bridges")]
        verdicts = [answer.verdict for answer in answers]  # as they were told: `verdict` is worked out when it is read
        build_of_then.undo()
        reasons = []
        for answer, verdict in zip(answers, verdicts, strict=True):
            if answer.verdict == verdict:
                assert workspace.replay(str(answer.receipt)).verdict == verdict
                continue
            with pytest.raises(NotHeldError) as caught:
                workspace.replay(str(answer.receipt))
            reasons.append(str(caught.value))
        assert reasons
        for reason in reasons:
            assert f"it is from version {version} of the program, and this is {version_with_build()}" in reason
            assert "another server" not in reason


def test_build_is_told_by_code_and_fitted_numbers_wherever_they_stand(tmp_path: Path) -> None:
    for place in ("one", "other"):
        (tmp_path / place / "judge").mkdir(parents=True)
        (tmp_path / place / "judge" / "relevance.json").write_text('{"possible": 0.58}', "utf-8")
        (tmp_path / place / "judge" / "relevance.py").write_text("FEW = 4\n", "utf-8")
    (tmp_path / "other" / "__pycache__").mkdir()
    (tmp_path / "other" / "__pycache__" / "relevance.cpython-313.pyc").write_bytes(b"\0")
    one = version_with_build(tmp_path / "one")
    version_with_build.cache_clear()
    assert version_with_build(tmp_path / "other") == one != version_with_build()
    changed = {
        "relevance.json": "{}",
        "relevance.py": "FEW = 5\n",
        "few.py": "",
        "prompts.toml": "",
        "synonyms.txt": "",
    }
    for name, text in changed.items():
        version_with_build.cache_clear()
        before = version_with_build(tmp_path / "one")
        (tmp_path / "one" / "judge" / name).write_text(text, "utf-8")
        version_with_build.cache_clear()
        assert version_with_build(tmp_path / "one") != before


def test_versions_are_a_time_or_off(address: str) -> None:
    with pointsman.open(address) as workspace:
        for wrong in ("90", "0 days", "forever", "1.5 days"):
            with pytest.raises(InputError, match="such as '90 days'"):
                workspace.dataset("notes", versions=wrong)
        dataset = workspace.dataset("notes", versions="1 day")
        assert dataset.kept_days == 1
        dataset.add([{"id": "a", "text": "one"}])
        assert workspace.status("notes")["kept_days"] == 1
        assert workspace.dataset("notes").kept_days == 1


def test_a_receipt_knows_which_models_were_named() -> None:
    digests = [
        digest_of_reaching(Settings(**named))
        for named in (
            {},
            {"llm_base_url": "http://a"},
            {"llm_base_url": "http://b"},
            {"workspace": "elsewhere"},
            {"bm25_k1": 2.0},
        )
    ]
    assert (digests[0], digests[3], digests[4]) == ("", "", "")
    assert len({*digests[:3]}) == 3


def test_a_build_is_what_is_in_the_package_and_nothing_beside_it() -> None:
    assert version_with_build() == version_with_build(Path(pointsman.__file__).parent)
    assert version_with_build() != version_with_build(Path(pointsman.__file__).parents[1])
