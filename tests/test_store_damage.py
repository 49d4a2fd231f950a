"""Damage: what is read is what was written, or an error names the file and the way back. benchmarks/damage.py flips
2,000 bits."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from damage_kit import Flip, Patient
from pointsman import Dataset, Document, Workspace
from pointsman.cli.core_commands import app
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.store.local.truth.writable_truth import WritableTruth
from pointsman.store.prepared_documents import prepare
from pointsman.tools.errors import CorruptStoreError, FormatVersionError, RetrievalError
from pointsman.workspace.copies.backup import backup


@pytest.fixture(scope="module", params=[True, False], ids=["killed", "closed"])
def patient(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Patient:
    return Patient(tmp_path_factory.mktemp("patient"), killed=request.param)


def test_a_flipped_bit_is_never_silent_and_never_foreign(patient: Patient) -> None:
    outcomes = [(flip, patient.examine(flip)) for flip in patient.flips(16, 7)]
    assert [f"{flip}: {outcome}" for flip, outcome in outcomes if outcome.kind in {"silent", "foreign"}] == []
    assert {"sound", "named"} <= {outcome.kind for _, outcome in outcomes}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    with Workspace(tmp_path / "w", embedder=HashingEmbedder(16)) as handle:
        notes = handle.dataset("notes", description="Notes on trains")
        notes.add([Document(f"d{number}", f"signal number {number}", {"page": number}) for number in range(50)])
        notes.delete(["d7"])
        handle.backend.put_record("policy", "", "{}")
    return tmp_path / "w"


def open_at(path: Path) -> Workspace:
    return Workspace(path, embedder=HashingEmbedder(16))


def change(workspace: Path, sql: str, *values: object) -> None:
    with closing(sqlite3.connect(workspace / "datasets" / "notes" / "documents.sqlite")) as connection:
        connection.execute(sql, values)
        connection.commit()


CHANGES = {
    "text": "UPDATE documents SET text = 'signal number 99' WHERE id = 'd5'",
    "metadata": """UPDATE documents SET metadata = '{"page": 6}' WHERE id = 'd5'""",
    "id": "UPDATE documents SET id = 'e5' WHERE id = 'd5'",
    "sequence number": "UPDATE documents SET seq = 2 WHERE id = 'd5'",
    "key": "UPDATE documents SET key = 1000 WHERE id = 'd5'",
    "vector": "UPDATE vectors SET vector = zeroblob(length(vector)) WHERE key = 6",
    "another's vector": "UPDATE vectors SET vector = (SELECT vector FROM vectors WHERE key = 1) WHERE key = 6",
    "sequence": "UPDATE meta SET value = '7' || substr(value, 2) WHERE name = 'seq'",
    "dimensions": "UPDATE meta SET value = replace(value, '16', '17') WHERE name = 'dimensions'",
    "identity": "UPDATE meta SET value = 'x' || substr(value, 2) WHERE name = 'identity'",
    "a row that is gone": "DELETE FROM documents WHERE id = 'd5'",
}


@pytest.mark.parametrize("damage_kind", CHANGES)
def test_each_part_of_a_row_has_a_checksum(workspace: Path, damage_kind: str) -> None:
    change(workspace, CHANGES[damage_kind])
    with pytest.raises(CorruptStoreError, match=r"documents\.sqlite"), open_at(workspace) as handle:  # noqa: PT012
        notes = handle.dataset("notes", create=False)
        if problems := notes.verify().problems:
            raise CorruptStoreError(" ".join(problems))


EDITED_COLUMNS = {
    "documents": ("key", "id", "text", "metadata", "digest", "seq"),
    "vectors": ("key", "vector"),
    "tombstones": ("key", "seq"),
    "meta": ("name", "value"),
    "history": ("key", "seq", "until", "id", "text", "metadata", "digest", "vector"),
    "moments": ("seq", "time"),
    "history_notes": ("number", "seq", "name", "value"),
}
EDITS = ("'text'", "x''", "x'00010203'", "NULL", "9223372036854775807", "-1", "zeroblob(100000)")


@pytest.mark.parametrize("table", EDITED_COLUMNS)
def test_a_row_edited_by_hand_is_named_and_the_other_dataset_is_served(tmp_path: Path, table: str) -> None:
    with open_at(tmp_path / "sound") as handle:
        notes = handle.dataset("notes", versions="30 days")
        notes.add([Document(f"d{number}", f"signal number {number}", {"page": number}) for number in range(9)])
        notes.add([Document("d1", "signal number 1, changed")])
        notes.delete(["d7"])
        handle.dataset("rails").add([Document("r", "rail and signal")])
    edited_count = 0
    for number, (column, value) in enumerate((column, value) for column in EDITED_COLUMNS[table] for value in EDITS):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "sound", folder)
        sql = f"UPDATE {table} SET {column} = {value} WHERE rowid = (SELECT min(rowid) FROM {table})"
        if table == "meta":  # without rowids
            sql = f"UPDATE meta SET {column} = {value} WHERE name = 'seq'"
        try:
            change(folder, sql)
        except sqlite3.Error:  # SQLite itself refuses it, as a key that is no number
            continue
        edited_count += 1
        with open_at(folder) as handle:
            notes, problems = handle.dataset("notes", create=False), []
            for ask in (
                lambda notes=notes: notes.search("signal", refuse=False),
                lambda notes=notes: [notes.get(f"d{number}") for number in range(9)],
                lambda notes=notes: list(notes.store.documents()),
                lambda notes=notes: notes.verify().problems,
                lambda notes=notes: notes.add([Document("d2", "changed"), Document("new", "new")]),
                lambda notes=notes: notes.delete(["d3"]),
            ):
                try:
                    ask()
                except RetrievalError as error:
                    [cause] = error.causes.values()
                    assert isinstance(cause, CorruptStoreError), (column, value, cause)
                except CorruptStoreError as error:
                    problems.append(str(error))
            assert all("pointsman restore" in problem for problem in problems), (column, value)
            served = handle.search("signal", datasets=["rails"], refuse=False)
            assert [hit.id for hit in served.hits] == ["r"]
    assert edited_count


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        ("UPDATE documents SET seq = 'text' WHERE key = 3", "document 'd2', key 3"),
        ("UPDATE vectors SET vector = x'' WHERE key = 3", "the vector of key 3 does not match its checksum"),
        ("UPDATE vectors SET vector = x'00010203' WHERE key = 3", "the vector of key 3 does not match its checksum"),
        ("UPDATE tombstones SET seq = 'text'", "the deletion of key 8 has the sequence number 'text'"),
    ],
)
def test_the_edited_row_is_named_by_the_search(workspace: Path, edit: str, named: str) -> None:
    change(workspace, edit)
    with open_at(workspace) as handle, pytest.raises(RetrievalError, match=re.escape(named)):
        handle.dataset("notes", create=False).search("signal", refuse=False)


@pytest.mark.parametrize(
    ("edit", "row"),
    [
        ("UPDATE history SET seq = 'text'", "of history "),
        ("UPDATE history SET until = x''", "of history "),
        ("UPDATE moments SET time = 'text'", "of moments "),
        ("INSERT INTO history_notes VALUES (1, 2, 'note', x'')", "of history_notes "),
    ],
)
def test_an_edited_row_of_kept_versions_is_named(tmp_path: Path, edit: str, row: str) -> None:
    path = tmp_path / "documents.sqlite"
    with closing(WritableTruth(path)) as truth:
        truth.keep_versions(30)
        truth.upsert([prepare(Document("a", "rail"))])
        truth.upsert([prepare(Document("a", "rails"))])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(edit)
        connection.commit()
    with closing(WritableTruth(path)) as truth:
        assert any(row in problem for problem in truth.check())
        reads = {"of history ": lambda: truth.states(1, 2), "of moments ": lambda: truth.moment(2)}
        with pytest.raises(CorruptStoreError, match=row):
            reads.get(row, truth.former_notes)()


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        (b"CREATE TABLE documents", b"CREATE TABL\xc5 documents"),
        (b"CREATE INDEX documents_seq", b"CREATE \xc9NDEX documents_seq"),
        (b"tablemetameta", b"table\xedetameta"),
    ],
)
def test_a_definition_that_is_no_text_is_named(workspace: Path, was: bytes, becomes: bytes) -> None:
    """SQLite quotes it, and Python cannot decode the message."""
    path = workspace / "datasets" / "notes" / "documents.sqlite"
    content = path.read_bytes()
    assert was in content
    path.write_bytes(content.replace(was, becomes))
    with (
        open_at(workspace) as handle,
        pytest.raises(CorruptStoreError, match=r"documents\.sqlite is damaged \(malformed"),
    ):
        len(handle.dataset("notes", create=False))


def hide_last(workspace: Path, tree: str) -> None:
    """Take the last entry of a table or an index out of the count of its page, which SQLite does not notice."""
    path = workspace / "datasets" / "notes" / "documents.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
        sql = "SELECT (rootpage - 1) * 8192 FROM sqlite_master WHERE name = ?"
        [start] = connection.execute(sql, (tree,)).fetchone()
    content = bytearray(path.read_bytes())
    assert content[start] in {10, 13}, "a single page"
    count = int.from_bytes(content[start + 3 : start + 5], "big")
    content[start + 3 : start + 5] = (count - 1).to_bytes(2, "big")
    path.write_bytes(content)


HIDDEN: dict[str, tuple[str, Callable[[Dataset], object]]] = {
    "read by its id": ("sqlite_autoindex_documents_1", lambda notes: notes.get("d9")),
    "written": ("sqlite_autoindex_documents_1", lambda notes: notes.add([Document("d9", "written twice")])),
    "deleted": ("sqlite_autoindex_documents_1", lambda notes: notes.delete(["d9"])),
    "found": ("documents_seq", lambda notes: notes.search("signal 9", strategy="vector")),
    "indexed": ("documents_seq", lambda notes: notes.rebuild()),
    "gone from the indexes": ("tombstones_seq", lambda notes: notes.search("signal 7", strategy="vector")),
    "found by its vector": ("vectors", lambda notes: notes.search("signal 49", strategy="vector")),
    "known to have an embedder": ("meta", lambda notes: notes.add([Document("new", "signal 50")])),
}


@pytest.mark.parametrize("what", HIDDEN)
def test_an_index_that_hides_a_document_is_named_before_it_is_relied_on(workspace: Path, what: str) -> None:
    tree, action = HIDDEN[what]
    hide_last(workspace, tree)
    with (
        open_at(workspace) as changed,
        pytest.raises((CorruptStoreError, RetrievalError), match=r"documents\.sqlite is damaged"),
    ):
        action(changed.dataset("notes", create=False))


def test_a_hit_is_compared_when_it_is_read(workspace: Path) -> None:
    change(workspace, CHANGES["text"])
    with open_at(workspace) as handle:
        notes = handle.dataset("notes", create=False)
        with pytest.raises(CorruptStoreError, match=r"documents\.sqlite is damaged \(document 'd5', key 6"):
            notes.get("d5")
        assert notes.get("d6") is not None


def test_a_list_of_ids_is_compared_too(workspace: Path) -> None:
    change(workspace, CHANGES["id"])
    with open_at(workspace) as handle, pytest.raises(CorruptStoreError, match=r"documents\.sqlite is damaged"):
        handle.dataset("notes", create=False).ids()


def test_the_manifest_has_a_checksum(workspace: Path) -> None:
    path = workspace / "datasets" / "notes" / "manifest.json"
    path.write_text(path.read_text().replace("Notes on trains", "Notes on trams"))
    with open_at(workspace) as handle, pytest.raises(CorruptStoreError, match=r"manifest\.json.*pointsman restore"):
        handle.dataset("notes", create=False)


def test_a_dataset_of_another_format_is_refused(workspace: Path) -> None:
    path = workspace / "datasets" / "notes" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 2}))
    with open_at(workspace) as handle, pytest.raises(FormatVersionError, match=r"is in format 2.*knows format 3"):
        handle.dataset("notes", create=False)


@pytest.mark.parametrize("offset", [0, 16, 31])
def test_a_damaged_head_is_named(workspace: Path, offset: int) -> None:
    Flip("datasets/notes/documents.sqlite", offset, 0).apply(workspace)
    with (
        open_at(workspace) as handle,
        pytest.raises((CorruptStoreError, RetrievalError), match=r"documents\.sqlite.*pointsman restore"),
    ):
        handle.dataset("notes", create=False).search("signal", refuse=False)


def test_a_dataset_without_its_manifest_is_reported(workspace: Path) -> None:
    (workspace / "datasets" / "notes" / "manifest.json").unlink()
    with open_at(workspace) as handle:
        handle.dataset("more").add([Document("one", "signal")])
        assert handle.names() == ["more", "notes"]
        answer = handle.search("signal", refuse=False)
        assert {hit.dataset for hit in answer} == {"more"}
        assert any("manifest.json is missing" in note for note in answer.degraded)
        with pytest.raises(CorruptStoreError, match="pointsman restore"):
            handle.dataset("notes").add([Document("new", "x")])
    process = CliRunner().invoke(app, ["verify", "-w", str(workspace), "--json"])
    assert process.exit_code == 1
    assert "manifest.json is missing" in json.loads(process.stdout)["notes"]["problems"][0]


def test_the_remedies_that_errors_name_bring_the_documents_back(workspace: Path, tmp_path: Path) -> None:
    with open_at(workspace) as handle:
        backup(handle, tmp_path / "backup")
    change(workspace, CHANGES["text"])
    options = ["-w", str(workspace), "--json"]
    process = CliRunner().invoke(app, ["verify", *options])
    assert process.exit_code == 1
    assert any("'d5'" in problem for problem in json.loads(process.stdout)["notes"]["problems"])
    restored = ["-w", str(tmp_path / "restored")]
    assert CliRunner().invoke(app, ["restore", str(tmp_path / "backup"), *restored]).exit_code == 0
    assert CliRunner().invoke(app, ["verify", *restored]).exit_code == 0
    with open_at(tmp_path / "restored") as handle:
        assert handle.dataset("notes", create=False).get("d5") == Document("d5", "signal number 5", {"page": 5})
    with open_at(workspace) as handle:
        again = handle.dataset("again")
        again.add([Document("d5", "signal number 5", {"page": 5})])
        assert again.verify().problems == ()
        assert [hit.id for hit in again.search("signal", refuse=False).hits] == ["d5"]


HARM: dict[str, Callable[[Path], object]] = {
    "documents gone": lambda folder: (folder / "documents.sqlite").unlink(),
    "documents empty": lambda folder: (folder / "documents.sqlite").write_bytes(b""),
    "documents garbage": lambda folder: (folder / "documents.sqlite").write_bytes(b"x" * 5000),
    "manifest gone": lambda folder: (folder / "manifest.json").unlink(),
    "manifest empty": lambda folder: (folder / "manifest.json").write_bytes(b""),
}


@pytest.mark.parametrize("harm", HARM)
def test_a_damaged_dataset_hides_no_other_from_the_commands_and_can_be_deleted(workspace: Path, harm: str) -> None:
    with open_at(workspace) as two:
        two.dataset("a").add([Document("one", "signal")])
        two.dataset("z").add([Document("one", "signal")])
    HARM[harm](workspace / "datasets" / "a")

    def run(*arguments: str, code: int = 1) -> str:
        process = CliRunner().invoke(app, [*arguments, "-w", str(workspace)], env={"COLUMNS": "300"})
        assert process.exit_code == code, (arguments, process.output, process.exception)
        return process.stdout

    for command in ("datasets", "status", "verify"):
        output = run(command)
        assert re.search(r"^a: .*(documents\.sqlite|manifest\.json)", output, re.MULTILINE), output
        assert re.search(r"^notes\W", output, re.MULTILINE)
        assert re.search(r"^z\W", output, re.MULTILINE)
    by_name = json.loads(run("verify", "--json"))
    assert (by_name["a"]["documents"], by_name["z"]["documents"], by_name["notes"]["problems"]) == (None, 1, [])
    assert (
        run("delete", "-d", "a", "--all", "--yes", code=0)
        == "dataset 'a' deleted; its documents could not be counted\n"
    )
    assert list(json.loads(run("verify", "--json", code=0))) == ["notes", "z"]


def test_a_document_that_lost_its_row_is_not_taken_for_a_deleted_one(workspace: Path) -> None:
    with open_at(workspace) as handle:
        store = handle.dataset("notes").store
        (key,) = store.keys(["d5"]).values()
        change(workspace, CHANGES["a row that is gone"])
        with pytest.raises(CorruptStoreError, match="was not deleted"):
            store.fetch([key])


def test_an_entry_of_the_index_of_sources_that_leads_to_another_row(tmp_path: Path) -> None:
    path = tmp_path / "w" / "datasets" / "notes" / "documents.sqlite"
    with Workspace(tmp_path / "w", embedder=HashingEmbedder()) as workspace:
        dataset = workspace.dataset("notes")
        dataset.add([Document(f"d{number}", f"text {number}", {"source": f"s{number % 3}.md"}) for number in range(9)])
        assert dataset.ids(source="s1.md") == ["d1", "d4", "d7"]
    with closing(sqlite3.connect(path)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'documents_source'").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    content = bytearray(path.read_bytes())
    offset = content.index(b"s1.md\x05", (page - 1) * size, page * size) + 5
    content[offset] ^= 2  # the key after the value: 5, of d4, becomes 7, of d6
    path.write_bytes(content)
    with (
        Workspace(tmp_path / "w", embedder=HashingEmbedder()) as workspace,
        pytest.raises(CorruptStoreError, match=r"index of sources lists document 'd6' for 's1.md'.*pointsman restore"),
    ):
        workspace.dataset("notes").ids(source="s1.md")


FOREIGN_SCHEMA = {
    "a trigger": "CREATE TRIGGER back AFTER DELETE ON documents BEGIN INSERT INTO documents VALUES "
    "(old.key, old.id, old.text, old.metadata, old.digest, old.seq); END",
    "an index": "CREATE UNIQUE INDEX one ON documents (length(text))",
    "a view": "CREATE VIEW harmless AS SELECT randomblob(1000000000)",
}


@pytest.mark.parametrize("statements", FOREIGN_SCHEMA.values(), ids=FOREIGN_SCHEMA)
def test_what_others_have_added_to_the_tables_is_refused(tmp_path: Path, statements: str) -> None:
    path = tmp_path / "w" / "datasets" / "notes" / "documents.sqlite"
    with Workspace(tmp_path / "w", embedder=HashingEmbedder()) as workspace:
        workspace.dataset("notes").add([Document("a", "signal"), Document("b", "switches")])
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(statements)
    with (
        Workspace(tmp_path / "w", embedder=HashingEmbedder()) as workspace,
        pytest.raises(CorruptStoreError, match=r"tables were changed.*pointsman restore"),
    ):
        workspace.dataset("notes").delete(["a"])


@pytest.mark.parametrize("name", ["columns.bin", "vectors.bin", "keyword/meta.json", "keyword/checksums.json"])
def test_a_pipe_in_place_of_a_derived_file_is_not_waited_for(tmp_path: Path, name: str) -> None:
    with Workspace(tmp_path / "w", embedder=HashingEmbedder()) as workspace:
        workspace.dataset("notes").add([Document("a", "signal"), Document("b", "switches")])
    path = tmp_path / "w" / "datasets" / "notes" / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    with Workspace(tmp_path / "w", embedder=HashingEmbedder()) as workspace:
        notes = workspace.dataset("notes")
        assert [hit.id for hit in notes.search("signal", strategy="bm25", refuse=False).hits] == ["a"]
        notes.add(Document("c", "lamp"))
        assert notes.ids() == ["a", "b", "c"]
