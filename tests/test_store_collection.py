from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import sqlite3
import stat
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tantivy

from pointsman.store.local.collection import Collection
from pointsman.store.local.keyword import keyword_index
from pointsman.store.local.truth import truth_file, truth_rows
from pointsman.store.local.truth.sealed_rows import DIGEST, seal_vectors
from pointsman.store.local.truth.writable_truth import WritableTruth
from pointsman.store.local.vectors import vector_index
from pointsman.store.prepared_documents import Batch, Prepared, prepare
from pointsman.tools.errors import CorruptStoreError, FormatVersionError, InputError, StoreError
from pointsman.tools.system.replaced_files import replacing
from pointsman.values.types import AddResult, Document
from store_kit import DIMENSIONS, EMBEDDER, WORDS, add, corpus, opened, sound, unit, units

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pointsman.store.local.keyword.term_codes import TermCodes


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Collection]:
    collection = opened(tmp_path)
    yield collection
    collection.close()


def test_an_empty_dataset_is_up_to_date_before_it_has_an_index(store: Collection) -> None:
    store.refresh()
    assert store.keyword.applied < store.indexed == store.truth.sequence() == 0
    add(store, corpus(1))
    assert store.indexed == store.truth.sequence() > 0


def found_ids(collection: Collection, query: str, k: int = 10) -> list[str]:
    documents = collection.truth.fetch([key for key, _ in collection.keyword.search(query, k)])
    return [document.id for document in documents if document]


def nearest_ids(collection: Collection, vector: NDArray[np.float32], k: int = 1) -> list[str]:
    assert collection.vectors is not None
    documents = collection.truth.fetch([key for key, _ in collection.vectors.search(vector, k)])
    return [document.id for document in documents if document]


class TestWriting:
    def test_add_update_delete_get_iterate(self, store: Collection) -> None:
        first, second = Document("1", "the red lamp"), Document("2", "the green lamp", {"n": [1, "x", None]})
        assert add(store, [first, second]) == AddResult(added=2)
        assert store.truth.get(["2", "0", "1"]) == [second, None, first]
        changed_document = Document("1", "the blue lamp", {"n": 1})
        assert add(store, [changed_document, Document("3", "a tunnel")]) == AddResult(added=1, updated=1)
        assert list(store.truth.documents()) == [changed_document, second, Document("3", "a tunnel")]
        assert found_ids(store, "blue") == ["1"]
        assert found_ids(store, "red") == []
        assert store.delete(["2", "unknown", "2"]) == 1
        assert store.truth.ids() == ["1", "3"]
        assert len(store.truth) == 2
        assert found_ids(store, "green") == []
        assert nearest_ids(store, units([second])[0], 5) != ["2"]
        sound(store)

    def test_what_is_stored_just_so_is_not_written(self, store: Collection) -> None:
        documents = corpus(20)
        add(store, documents)
        sequence = store.truth.sequence()
        assert add(store, documents) == AddResult(unchanged=20)
        assert store.truth.sequence() == sequence
        second_version = [*documents[:5], Document("d5", "changed")]
        assert add(store, second_version) == AddResult(updated=1, unchanged=5)

    def test_a_new_vector_alone_is_an_update(self, store: Collection) -> None:
        documents = corpus(20)
        add(store, documents)
        rows = units(documents)
        rows[3] = unit("another")
        assert add(store, documents, rows) == AddResult(updated=1, unchanged=19)
        assert nearest_ids(store, unit("another")) == ["d3"]
        assert nearest_ids(store, units(documents)[3]) != ["d3"]
        sound(store)

    def test_a_deleted_id_comes_back_as_a_new_document(self, store: Collection) -> None:
        add(store, corpus(3))
        key = store.truth.keys(["d1"])["d1"]
        store.delete(["d1"])
        add(store, [Document("d1", "reborn whistle")])
        assert store.truth.keys(["d1"])["d1"] > key
        assert found_ids(store, "reborn") == ["d1"]
        sound(store)

    def test_a_write_that_fails_half_way_leaves_nothing(self, store: Collection) -> None:
        add(store, corpus(5))
        sequence = store.truth.sequence()
        with pytest.raises((ValueError, IndexError)), store.writer():
            store.truth.upsert([prepare(document) for document in corpus(9)], [b"x"])
        assert store.truth.sequence() == sequence
        assert len(store.truth) == 5
        assert add(store, corpus(9)).added == 4
        sound(store)

    def test_interrupted_derivation_is_not_doubled(self, store: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
        postings = keyword_index._postings

        def interrupt(key: int, document: Document, codes: TermCodes) -> object:
            if document.id == "d7":
                raise KeyboardInterrupt
            return postings(key, document, codes)

        monkeypatch.setattr(keyword_index, "_postings", interrupt)
        with pytest.raises(KeyboardInterrupt):
            add(store, corpus(10))
        monkeypatch.undo()
        assert len(list(store.keyword.keys())) == 0
        store.refresh()
        assert sorted(store.keyword.keys()) == list(range(1, 11))
        sound(store)

    @pytest.mark.parametrize(
        ("rows", "message"),
        [
            (np.zeros((2, DIMENSIONS)), "all zeros"),
            (np.full((2, DIMENSIONS), np.nan), "not finite numbers"),
            (np.full((2, DIMENSIONS), np.inf), "not finite numbers"),
            (np.full((2, DIMENSIONS), 1e38), "not finite numbers"),
            (np.ones((3, DIMENSIONS)), "one row for each"),
            (np.ones(DIMENSIONS), "one row for each"),
            (np.ones((2, 0)), "one row for each"),
            (np.ones((2, DIMENSIONS + 1)), "17"),
            (np.full((2, DIMENSIONS), "x"), "matrix of numbers"),
        ],
    )
    def test_vectors_that_cannot_be_used(self, store: Collection, rows: NDArray[Any], message: str) -> None:
        add(store, corpus(1))
        with pytest.raises(InputError, match=message):
            add(store, [Document("x", "x"), Document("y", "y")], rows)
        assert store.truth.ids() == ["d0"]
        sound(store)

    def test_vectors_of_another_length_are_brought_to_one(self, store: Collection) -> None:
        documents = corpus(5)
        add(store, documents, units(documents) * np.arange(1, 6, dtype=np.float32)[:, None])
        assert store.vectors is not None
        long, short = store.vectors.search(unit("q") * 7, 5), store.vectors.search(unit("q"), 5)
        assert dict(long) == pytest.approx(dict(short))
        assert dict(store.vectors.search(units(documents)[4], 1)) == pytest.approx({5: 1}, abs=1e-5)

    def test_another_embedder_is_refused(self, store: Collection) -> None:
        add(store, corpus(2))
        with pytest.raises(InputError, match=r"'test'.*'other'"), store.writer():
            store.write(Batch([prepare(Document("x", "x"))], units([Document("x", "x")]), "other"))


class TestPersistence:
    def test_the_same_results_after_opening_again(self, tmp_path: Path) -> None:
        store = opened(tmp_path)
        add(store, corpus(300))
        add(store, corpus(60, seed=1))  # updates
        store.delete([f"d{number}" for number in range(100, 140)])
        assert store.vectors is not None
        results_at_start = store.keyword.search("rail switch lamp", 50), store.vectors.search(unit("q"), 50)
        store.close()
        reopened_store = opened(tmp_path)
        assert reopened_store.vectors is not None
        assert (
            reopened_store.keyword.search("rail switch lamp", 50),
            reopened_store.vectors.search(unit("q"), 50),
        ) == results_at_start
        sound(reopened_store)
        reopened_store.close()

    def test_an_object_that_was_closed_can_be_used_again(self, store: Collection) -> None:
        add(store, corpus(5))
        store.close()
        assert len(found_ids(store, " ".join(["rail", "track", "lamp", "yard", "guard", "switch"]))) > 0
        add(store, corpus(6))
        sound(store)

    def test_a_change_is_read_by_an_object_opened_before(self, tmp_path: Path, store: Collection) -> None:
        other_store = opened(tmp_path)
        from pointsman.values.filters import Range

        assert other_store.keyword.search("zebra", 5, Range("number", gte=0)) == []  # loads the columns
        add(store, [Document("z", "zebra", {"number": 1})])
        assert len(other_store.keyword.search("zebra", 5, Range("number", gte=0))) == 1
        assert nearest_ids(other_store, units([Document("z", "zebra")])[0]) == ["z"]
        store.delete(["z"])
        assert other_store.keyword.search("zebra", 5, Range("number", gte=0)) == []
        other_store.close()

    def test_a_reader_takes_a_new_base_instead_of_a_long_log(
        self, tmp_path: Path, store: Collection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(vector_index, "_REBASE_ROWS", 10)
        add(store, corpus(20))
        reader = opened(tmp_path)
        assert reader.vectors is not None
        assert len(reader.vectors) == 20
        add(store, corpus(200))
        reader.refresh()
        state = reader.vectors._state
        assert state is not None
        assert len(state.base.keys) == 200
        assert len(state.tail_keys) == 0
        reader.close()

    def test_manifest_says_what_it_was_given(self, tmp_path: Path) -> None:
        Collection(tmp_path / "x", about={"name": "x", "description": "путь 轨道"}).close()
        reopened_store = Collection(tmp_path / "x", about={"name": "ignored"})
        assert (reopened_store.manifest["name"], reopened_store.manifest["description"]) == ("x", "путь 轨道")
        reopened_store.describe(description="new")
        reopened_store.close()
        assert json.loads((tmp_path / "x" / "manifest.json").read_text("utf-8"))["description"] == "new"


HOSTILE = [
    Document("nul", "before\0after whistle"),
    Document("surrogate", "half \ud800 a pair", {"title": "\udfff", "k\ud800": ["\udc00"]}),
    Document("empty", ""),
    Document("blank", " \n\t\u3000"),
    Document("long", "x" * 1_000_000),
    Document("many", "word " * 100_000),
    Document('it\'s "quoted" / \\ \n; DROP TABLE documents --', "quoted"),
    Document("../../etc/passwd", "path"),
    Document("\0", "nul id"),
    Document("轨道 ё 🚂", "emoji 🚂 轨道 ё ﷺ"),
    Document("huge", "metadata", {f"key{number}": "v" * 100 for number in range(5000)}),
    Document("keys", "metadata", {'$.a"': 1, "": 2, "a.b": [1], "'": {"deep": [{"er": None}]}, "\0": "\0", "body": 1}),
    Document("numbers", "metadata", {"big": 10**300, "neg": -0.0, "int": 2**63, "list": [[1], {}]}),
    Document("rtl", "\u202eשלום עולם\u202c مرحبا"),
    Document("-1", "the marker's own key"),
]


def test_threads_that_replace_one_file_at_once_leave_it_whole(tmp_path: Path) -> None:
    path, meeting = tmp_path / "file", threading.Barrier(4)

    def write(byte: int) -> None:
        with replacing(path) as file:
            meeting.wait(10)  # all of them have opened theirs
            file.write(bytes([byte]) * 100_000)
            meeting.wait(10)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert path.stat().st_size == 100_000
    assert len(set(path.read_bytes())) == 1
    assert list(tmp_path.iterdir()) == [path]


class TestHostileInput:
    def test_documents_of_every_kind_come_back(self, tmp_path: Path) -> None:
        store = opened(tmp_path)
        add(store, HOSTILE)
        for _ in range(2):
            for document in HOSTILE:
                (document_back,) = store.truth.get([document.id])
                assert document_back is not None
                if document.id == "surrogate":
                    assert document_back.text == "half \ufffd a pair"
                    assert document_back.metadata == {"title": "\ufffd", "k\ufffd": ["\ufffd"]}
                else:
                    assert document_back == document
            assert found_ids(store, "whistle") == ["nul"]
            assert found_ids(store, "🚂") == ["轨道 ё 🚂"]
            sound(store)
            store.close()
            store = opened(tmp_path)
        assert store.delete([document.id for document in HOSTILE]) == len(HOSTILE)
        sound(store)
        store.close()

    @pytest.mark.parametrize(
        "query", ["", "\0", "\ud800", "()[]{}:\"'*?~^-+ AND OR NOT", "body:x", "a" * 100_000, "лампа " * 10_000, "🚂"]
    )
    def test_queries_of_every_kind(self, store: Collection, query: str) -> None:
        add(store, HOSTILE)
        hits = store.keyword.search(query, 100)
        assert len(hits) <= len(HOSTILE)
        assert len(store.keyword.score(query, [1, 2, 99])) == 3

    @pytest.mark.parametrize(
        ("document", "message"),
        [
            (Document("x", "x", {"a": float("nan")}), "not JSON"),
            (Document("x", "x", {"a": object()}), "not JSON"),
            (Document("x", "x", {"a": {1, 2}}), "not JSON"),
            (Document("x", "x", {1: 1, "a": 2}), "not JSON"),  # type: ignore[dict-item]
            (Document("\ud800", "x"), "lone surrogate"),
            (Document("x" * 1025, "x"), "at most 1024 bytes"),
        ],
    )
    def test_documents_that_cannot_be_kept(self, document: Document, message: str) -> None:
        with pytest.raises(InputError, match=message):
            prepare(document)

    def test_metadata_nested_without_end(self) -> None:
        nested_list: list[object] = []
        for _ in range(100_000):
            nested_list = [nested_list]
        with pytest.raises(InputError, match="deeper than 64"):
            prepare(Document("x", "x", {"a": nested_list}))

    @pytest.mark.parametrize("levels", [1, 63, 64, 980])
    def test_metadata_that_is_accepted_comes_back(self, levels: int) -> None:
        nested_list: object = "a"
        for _ in range(levels):
            nested_list = {"k": nested_list}
        document = Document("x", "x", {"a": nested_list})
        if levels < 64:
            assert json.loads(prepare(document).metadata) == document.metadata
        else:
            with pytest.raises(InputError, match="deeper than 64"):
                prepare(document)

    @pytest.mark.parametrize("key", [1, True, None, 1.5])
    def test_a_key_that_is_no_text_is_refused_and_not_made_one(self, key: object) -> None:
        for metadata in ({key: "a"}, {"a": {key: 1}}, {"a": [{key: 1}]}):
            with pytest.raises(InputError, match="is not a text"):
                prepare(Document("x", "x", metadata))  # type: ignore[arg-type]

    def test_metadata_too_deep_for_sqlite_has_no_source(self, tmp_path: Path) -> None:
        deep = '{"source":"a.md","x":' + "[" * 2500 + "]" * 2500 + "}"
        with closing(WritableTruth(tmp_path / "documents.sqlite")) as one_truth:
            other_row = prepare(Document("2", "y", {"source": "a.md"}))
            one_truth.upsert([Prepared(Document("1", "x"), deep, bytes(DIGEST)), other_row])
            assert (one_truth.ids(), one_truth.ids(source="a.md")) == (["1", "2"], ["2"])

    def test_k_beyond_all_documents(self, store: Collection) -> None:
        add(store, [Document(str(number), "rail") for number in range(30)])
        assert store.vectors is not None
        assert [key for key, _ in store.keyword.search("rail", 10**9)] == list(range(1, 31))
        assert len(store.vectors.search(unit("q"), 10**9)) == 30
        assert store.keyword.search("rail", 0) == store.vectors.search(unit("q"), 0) == []

    @pytest.mark.parametrize(
        ("vector", "message"),
        [(np.ones(3), "shape"), (np.ones((1, DIMENSIONS)), "shape"), (np.full(DIMENSIONS, np.nan), "finite")],
    )
    def test_query_vectors_that_cannot_be_used(self, store: Collection, vector: NDArray[Any], message: str) -> None:
        add(store, corpus(3))
        assert store.vectors is not None
        with pytest.raises(InputError, match=message):
            store.vectors.search(vector, 3)
        with pytest.raises(InputError, match=message):
            store.vectors.score(vector, [1])

    def test_a_zero_query_vector_finds_nothing(self, store: Collection) -> None:
        add(store, corpus(3))
        assert store.vectors is not None
        assert store.vectors.search(np.zeros(DIMENSIONS, np.float32), 3) == []


class TestDamage:
    """Every file of a dataset, damaged in every way: indexes heal and say so, the truth says that it is damaged."""

    @pytest.fixture(autouse=True)
    def small_base(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(vector_index, "_REBASE_ROWS", 10)

    @pytest.fixture
    def two_datasets(self, tmp_path: Path) -> Path:
        for name, seed in (("one", 1), ("two", 2)):
            store = Collection(tmp_path / name, about={"name": name})
            add(store, corpus(100, seed))
            store.delete(["d7"])
            store.close()
        return tmp_path

    def damage(self, path: Path, damage_kind: str, foreign: Path) -> None:
        content = path.read_bytes()
        if damage_kind == "delete":
            path.unlink()
        elif damage_kind == "truncate":
            path.write_bytes(content[: len(content) // 2])
        elif damage_kind == "empty":
            path.write_bytes(b"")
        elif damage_kind == "flip":
            middle = len(content) // 2
            path.write_bytes(content[:middle] + bytes([content[middle] ^ 0x55]) + content[middle + 1 :])
        else:
            path.write_bytes(foreign.read_bytes())

    def answers(self, store: Collection) -> tuple[object, ...]:
        assert store.vectors is not None
        words = store.keyword.search("rail lamp guard", 99)  # scores shift a little when deletions are merged away
        return {key for key, _ in words}, [(key, round(score, 4)) for key, score in store.vectors.search(unit("q"), 99)]

    @pytest.mark.parametrize("damage_kind", ["delete", "truncate", "empty", "flip", "foreign"])
    def test_every_file_of_the_indexes(
        self, two_datasets: Path, damage_kind: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        store = Collection(two_datasets / "one")
        expected = self.answers(store)
        store.close()
        files = [path for path in (two_datasets / "one" / "keyword").iterdir() if "lock" not in path.name]
        files.append(two_datasets / "one" / "vectors.bin")
        assert len(files) >= 9
        assert any(path.suffix == ".del" for path in files)
        for number, original in enumerate(files):
            copy = two_datasets / f"copy{number}"  # a new one: a thread of the last one may still read its files
            counterpart = two_datasets / "two" / original.relative_to(two_datasets / "one")
            counterpart = (
                counterpart if counterpart.exists() else next(counterpart.parent.glob(f"*{counterpart.suffix}"))
            )
            if damage_kind == "foreign" and counterpart.read_bytes() == original.read_bytes():
                continue
            shutil.copytree(two_datasets / "one", copy)
            target = copy / original.relative_to(two_datasets / "one")
            self.damage(target, damage_kind, counterpart)
            caplog.clear()
            store = Collection(copy)
            assert self.answers(store) == expected, target.name
            if target.suffix != ".json" and (damage_kind != "delete" or target.suffix not in {".bin", ".pos"}):
                assert any(record.levelno >= logging.WARNING for record in caplog.records), target.name
            sound(store)
            store.close()
            caplog.clear()
            collection = Collection(copy)
            sound(collection)
            assert self.answers(collection) == expected
            assert not caplog.records, target.name
            collection.close()

    def test_the_whole_index_of_another_dataset(self, two_datasets: Path, caplog: pytest.LogCaptureFixture) -> None:
        shutil.rmtree(two_datasets / "one" / "keyword")
        shutil.copytree(two_datasets / "two" / "keyword", two_datasets / "one" / "keyword")
        shutil.copy(two_datasets / "two" / "vectors.bin", two_datasets / "one" / "vectors.bin")
        store = Collection(two_datasets / "one")
        assert nearest_ids(store, units(corpus(100, 1))[50]) == ["d50"]
        sound(store)
        assert sum("belongs to" in record.getMessage() for record in caplog.records) == 2
        store.close()

    @pytest.mark.parametrize("damage_kind", ["truncate", "empty", "flip"])
    def test_the_manifest(self, two_datasets: Path, damage_kind: str) -> None:
        path = two_datasets / "one" / "manifest.json"
        self.damage(path, damage_kind, path)
        if damage_kind == "flip":
            path.write_text('{"format": 1')
        with pytest.raises(CorruptStoreError, match=r"manifest\.json"):
            Collection(two_datasets / "one")

    def test_a_manifest_that_is_missing_is_written_again(self, two_datasets: Path) -> None:
        (two_datasets / "one" / "manifest.json").unlink()
        store = Collection(two_datasets / "one", about={"name": "one"})
        assert len(store.truth) == 99
        sound(store)
        store.close()

    @pytest.mark.parametrize("file", ["manifest.json", "documents.sqlite"])
    def test_files_of_another_dataset_are_told_from_its_own(self, two_datasets: Path, file: str) -> None:
        (two_datasets / "one" / file).write_bytes((two_datasets / "two" / file).read_bytes())
        with pytest.raises(CorruptStoreError, match="different datasets"):
            Collection(two_datasets / "one")

    def test_an_unknown_format_is_refused_with_the_remedy(self, two_datasets: Path) -> None:
        path = two_datasets / "one" / "manifest.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))
        with pytest.raises(FormatVersionError, match=r"99.*format 3.*open it with the version that wrote it"):
            Collection(two_datasets / "one")

    def test_a_truth_that_is_missing(self, two_datasets: Path) -> None:
        (two_datasets / "one" / "documents.sqlite").unlink()
        with pytest.raises(CorruptStoreError, match=r"missing.*backup"):
            Collection(two_datasets / "one")

    @pytest.mark.parametrize("damage_kind", ["truncate", "empty", "header"])
    def test_a_truth_that_is_torn(self, two_datasets: Path, damage_kind: str) -> None:
        path = two_datasets / "one" / "documents.sqlite"
        content = path.read_bytes()
        damaged_bytes = {
            "truncate": content[: len(content) // 2],
            "empty": b"",
            "header": b"\xff" * 100 + content[100:],
        }
        path.write_bytes(damaged_bytes[damage_kind])

        def use() -> None:
            store = Collection(two_datasets / "one")
            try:
                store.verify()
                list(store.truth.documents())
            finally:
                store.close()

        with pytest.raises(CorruptStoreError):
            use()

    def test_a_flipped_byte_in_a_text_is_found_by_verify(self, two_datasets: Path) -> None:
        path = two_datasets / "one" / "documents.sqlite"
        content = bytearray(path.read_bytes())
        offset = content.rindex(b"whistle")
        content[offset] ^= 1
        path.write_bytes(content)
        store = Collection(two_datasets / "one")
        assert any("does not match its checksum" in problem for problem in store.verify().problems)
        store.close()

    def test_leftovers_of_killed_writers_go(self, two_datasets: Path) -> None:
        leftover = two_datasets / "one" / "vectors.bin.1234.tmp"
        leftover.write_bytes(b"half")
        store = Collection(two_datasets / "one")
        add(store, corpus(200, 3))
        store.close()
        assert not leftover.exists()


class TestRebuild:
    def test_indexes_are_made_anew(self, store: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(vector_index, "_REBASE_ROWS", 10)
        add(store, corpus(50))
        results_at_start = store.keyword.search("rail", 50)
        store.rebuild()
        assert [key for key, _ in store.keyword.search("rail", 50)] == [key for key, _ in results_at_start]
        sound(store)

    def test_searches_go_on_meanwhile(self, store: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
        add(store, corpus(50))
        assert store.vectors is not None
        counts = []
        postings = keyword_index._postings

        def search() -> None:
            assert store.vectors is not None
            counts.append((len(store.keyword.search("rail lamp", 99)), len(store.vectors.search(unit("q"), 99))))

        def searching(key: int, document: Document, codes: TermCodes) -> object:
            thread = threading.Thread(target=search)
            thread.start()
            thread.join()
            return postings(key, document, codes)

        expected = len(store.keyword.search("rail lamp", 99)), 50
        monkeypatch.setattr(keyword_index, "_postings", searching)
        store.rebuild()
        assert counts == [expected] * 50

    @pytest.mark.parametrize(
        ("behind_the_log", "problem"),
        [
            ("DELETE FROM documents WHERE key = 3", "the keyword index holds 1 documents that are deleted, the first"),
            ("DELETE FROM documents WHERE key = 3", "the index of its ids does not list what was written"),
            (
                f"UPDATE vectors SET vector = x'{seal_vectors([(5, bytes(64))])[0][1].hex()}' WHERE key = 5",
                "the vector index differs from the truth for key 5",
            ),
        ],
    )
    def test_verify_names_what_disagrees(self, store: Collection, behind_the_log: str, problem: str) -> None:
        add(store, corpus(20))
        with store.truth.transaction(advance=False) as (connection, _):
            connection.execute(behind_the_log)
        assert problem in " / ".join(store.verify().problems)


class TestLog:
    def test_every_key_once_and_deletions_first(self, store: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(truth_rows, "_PAGE", 7)
        add(store, corpus(50))
        start = store.truth.sequence()
        add(store, corpus(20, seed=5))
        store.delete(["d1", "d30"])
        add(store, corpus(60, seed=6)[55:])
        changes = [change for batch in store.truth.changes(start) for change in batch]
        deleted_keys = [change.key for change in changes if change.document is None]
        changed_ids = [change.document.id for change in changes if change.document is not None]
        assert deleted_keys == [2, 31]
        assert [change.document is None for change in changes] == [True] * 2 + [False] * len(changed_ids)
        assert sorted(changed_ids) == sorted({f"d{n}" for n in range(20) if n != 1} | {f"d{n}" for n in range(55, 60)})
        keys = [change.key for batch in store.truth.changes(0) for change in batch]
        assert sorted(keys) == sorted(key for key, _ in store.truth.alive())
        assert list(store.truth.changes(store.truth.sequence())) == []

    def test_what_is_written_meanwhile_comes_next_time(
        self, store: Collection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(truth_rows, "_PAGE", 10)
        add(store, corpus(30))
        target = store.truth.sequence()
        changes = []
        for batch in store.truth.changes(0):
            changes += batch
            store.delete(["d29"])
            add(store, [Document("d28", "changed meanwhile"), Document("new", "new")])
        assert {change.key for change in changes} == set(range(1, 29))
        later_changes = {change.key: change.document for batch in store.truth.changes(target) for change in batch}
        assert later_changes[30] is None
        assert later_changes[29] == Document("d28", "changed meanwhile")
        assert len(later_changes) == 3

    def test_vectors_without_documents_of_their_own(self, store: Collection) -> None:
        with store.writer():
            store.write(Batch([prepare(document) for document in corpus(5)], None))
        add(store, corpus(8)[5:])
        assert store.vectors is not None
        assert len(store.vectors) == 3
        scores = store.vectors.score(unit("q"), [1, 6, 99])
        assert np.isnan(scores[0])
        assert not np.isnan(scores[1])
        assert np.isnan(scores[2])
        with store.writer():  # written without its vector it loses it
            store.write(Batch([prepare(Document("d6", "no vector"))], None))
        assert np.isnan(store.vectors.score(unit("q"), [7])[0])
        sound(store)
        assert store.embedder == EMBEDDER


class TestLeftovers:
    def test_a_file_of_deletions_from_a_write_that_was_interrupted(self, tmp_path: Path) -> None:
        """A full disk or a kill before the commit leaves it, and the next write has the same name for its own."""
        with closing(Collection(tmp_path / "a")) as store:
            add(store, corpus(50))
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        with closing(Collection(tmp_path / "b")) as other_store:
            other_store.delete(["d7"])
        (name,) = {path.name for path in (tmp_path / "b" / "keyword").glob("*.del")}
        with closing(Collection(tmp_path / "a")) as store:
            assert store.keyword.shown == store.truth.sequence(), "it is open before the file is there"
            (tmp_path / "a" / "keyword" / name).write_bytes(b"half of it")
            store.delete(["d7"])
            assert (tmp_path / "a" / "keyword" / name).read_bytes() != b"half of it"
            sound(store)


def test_dataset_opened_when_it_could_only_be_read_is_opened_again_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path)
    add(store, corpus(3))
    store.truth.close()
    with monkeypatch.context() as patch:
        patch.setattr(truth_file, "_mode", lambda path, *, create: "mode=ro")  # as SQLite falls back to
        assert len(store.truth) == 3
    assert add(store, corpus(5)[3:]).added == 2
    sound(store)
    store.close()


@pytest.mark.parametrize("message", ["An IO error occurred: '(os error 5)'", "a thread of the writer died"])
def test_a_keyword_index_that_cannot_be_written_is_named_and_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    """What tantivy raises where the disk fails, which no disk here does."""

    def fail(*arguments: Any) -> None:
        raise ValueError(message)

    store = opened(tmp_path)
    add(store, corpus(3))
    with monkeypatch.context() as patch:
        patch.setattr(keyword_index.KeywordIndex, "_apply", fail)
        with pytest.raises(StoreError, match=r"dataset.*the documents are stored; the index will be updated"):
            add(store, corpus(5)[3:])
    assert len(store.truth) == 5
    add(store, corpus(6)[5:])
    sound(store)
    store.close()


def test_an_index_that_was_read_through_links_is_written_in_its_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a folder could only be read, and no longer; whoever runs the tests may write everywhere."""
    store = opened(tmp_path)
    add(store, corpus(3))
    store.close()
    folders: list[str] = []

    class ReadOnly:
        @staticmethod
        def open(path: str) -> tantivy.Index:
            folders.append(path)
            if path.startswith(str(tmp_path)):
                raise OSError(errno.EROFS, "Read-only file system")
            return tantivy.Index.open(path)

    with monkeypatch.context() as patch:
        patch.setattr(keyword_index, "tantivy", SimpleNamespace(**{**vars(tantivy), "Index": ReadOnly}))
        store = opened(tmp_path)
        assert sorted(key for key, _ in store.keyword.search(" ".join(WORDS), 10)) == [1, 2, 3]
    assert len(folders) == 2
    add(store, corpus(6)[3:])
    assert not Path(folders[1]).exists()
    sound(store)
    store.close()
    store = opened(tmp_path)
    assert sorted(key for key, _ in store.keyword.search(" ".join(WORDS), 10)) == [1, 2, 3, 4, 5, 6]
    store.close()


def test_an_index_that_was_closed_is_opened_again_by_a_search(tmp_path: Path) -> None:
    store = opened(tmp_path)
    add(store, corpus(3))
    frequencies = store.keyword.frequencies(WORDS)
    assert max(frequencies) > 0
    store.keyword.close()
    assert store.keyword.frequencies(WORDS) == frequencies
    store.close()


def test_dataset_that_can_still_only_be_read_says_so_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path)
    add(store, corpus(3))
    store.truth.close()
    monkeypatch.setattr(truth_file, "_mode", lambda path, *, create: "mode=ro")
    for _ in range(3):
        with pytest.raises(StoreError, match="readonly"):
            store.truth.delete(["d0"])
    assert len(store.truth) == 3
    store.close()


def test_file_taken_for_unchangeable_is_opened_again_once_others_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path)
    add(store, corpus(3))
    store.truth.close()
    with monkeypatch.context() as patch:
        patch.setattr(truth_file, "_mode", lambda path, *, create: "immutable=1")
        assert len(store.truth) == 3
    other_store = opened(tmp_path)
    add(other_store, corpus(5)[3:])
    assert len(store.truth) == 5
    other_store.close()
    store.close()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_only_the_owner_may_read_a_dataset(tmp_path: Path, umask: int) -> None:
    umask_at_start = os.umask(umask)
    try:
        store = opened(tmp_path)
        add(store, corpus(20))
        rights = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "dataset").iterdir()}
        folder = stat.S_IMODE((tmp_path / "dataset").stat().st_mode)
        store.close()
    finally:
        os.umask(umask_at_start)
    assert folder == 0o700
    assert {name: rights[name] for name in rights if name.startswith("documents")} == {
        "documents.sqlite": 0o600,
        "documents.sqlite-wal": 0o600,
        "documents.sqlite-shm": 0o600,
    }


def test_rights_of_others_to_an_existing_dataset_are_withdrawn_when_it_is_opened(tmp_path: Path) -> None:
    store = opened(tmp_path)
    add(store, corpus(20))
    store.close()
    folder = tmp_path / "dataset"
    for path in (folder, *folder.iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o644)
    opened(tmp_path).close()
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in (folder, *folder.iterdir())} == {0}


def test_verifying_while_others_write_reports_no_problems(store: Collection) -> None:
    """The keyword index follows the documents a moment later; verifying in between compared two moments."""
    documents, is_finished = corpus(40), threading.Event()
    problems: list[str] = []

    def write() -> None:
        try:
            for number in range(25):
                add(store, [Document(f"x{number}", f"rail {number}"), documents[number]])
                store.delete([f"x{number}"])
        finally:
            is_finished.set()

    thread = threading.Thread(target=write)
    thread.start()
    while not is_finished.is_set():
        problems += store.verify().problems
    thread.join()
    assert problems == []


def test_verifying_still_reports_what_a_writer_does_not_mend(store: Collection) -> None:
    add(store, corpus(5))
    with sqlite3.connect(store._directory / "documents.sqlite") as connection:
        connection.execute("UPDATE documents SET text = 'other' WHERE id = 'd0'")
    assert any("checksum" in problem for problem in store.verify().problems)


@pytest.mark.parametrize("content", ['{"format": 1e999}', '{"format": []}', "[" * 100_000, "5"])
def test_damaged_manifest_is_an_error_that_names_the_file(tmp_path: Path, content: str) -> None:
    opened(tmp_path).close()
    (tmp_path / "dataset" / "manifest.json").write_text(content)
    with pytest.raises(CorruptStoreError, match=r"manifest\.json"):
        opened(tmp_path)
