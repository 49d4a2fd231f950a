"""Files within files: attachments of messages, and the files in archives, within limits and under their names."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

import pointsman
from office_files import OFFICE, xlsx
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.ingest import FileLimits, chunk, convert, text_of
from pointsman.ingest.convert import joined_text
from pointsman.ingest.source_text import Problem
from pointsman.tools.errors import InputError
from pointsman.values.citations import cite
from pointsman.values.types import Document, Hit

GUIDE = "# Switches\n\nA frog guides wheels over the gap.\n"
ROWS = "part,price\nfrog,120\nclip,3\n"


def zip_of(files: Mapping[str, Any]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def message(attachments: Mapping[str, bytes], subject: str = "Prices") -> bytes:
    mail = EmailMessage()
    mail["Subject"], mail["From"] = subject, "Ann <ann@example.org>"
    mail.set_content("See the files.")
    for name, content in attachments.items():
        mail.add_attachment(content, maintype="application", subtype="octet-stream", filename=name)
    return mail.as_bytes()


def read(name: str, data: bytes, limits: FileLimits | None = None) -> tuple[list[Document], list[str]]:
    """Return the passages and the reasons of problems, all of this file."""
    passages: list[Document] = []
    reasons = []
    for item in convert(name, data, limits):
        if isinstance(item, Problem):
            assert item.path == name
            reasons.append(item.reason)
        else:
            passages += chunk(item)
    assert {passage.metadata["source"] for passage in passages} <= {name}
    assert len({passage.id for passage in passages}) == len(passages)
    return passages, reasons


def citations_of(passages: list[Document]) -> list[str]:
    return [str(cite(Hit(passage, 1.0))) for passage in passages]


def test_files_in_an_archive_keep_their_format_their_place_and_their_name() -> None:
    passages, reasons = read(
        "a.zip", zip_of({"docs/guide.md": GUIDE, "rows.csv": ROWS, "tool.py": "def stop():\n    pass\n"})
    )
    assert reasons == []
    assert citations_of(passages) == [
        *(
            "a.zip, docs/guide.md, line 3",
            "a.zip, rows.csv, line 2",
            "a.zip, rows.csv, line 3",
            "a.zip, tool.py, lines 1-2",
        )
    ]
    assert [passage.title for passage in passages] == ["Switches", "", "", "tool.py › stop"]
    assert passages[1].metadata["price"] == 120
    assert [passage.metadata["kind"] for passage in passages] == ["md", "csv", "csv", "py"]


@pytest.mark.parametrize("inner", ["docx", "xlsx", "pptx", "odt", "ods", "epub", "eml", "ipynb"])
def test_every_format_can_be_in_an_archive_and_in_a_message(inner: str) -> None:
    name = f"a.{inner}"
    passages_alone, _ = read(name, OFFICE[name]())
    for outer_name, data in (("b.zip", zip_of({name: OFFICE[name]()})), ("b.eml", message({name: OFFICE[name]()}))):
        passages, _ = read(outer_name, data)
        inner_passages = [passage for passage in passages if "member" in passage.metadata]
        assert [passage.text for passage in inner_passages] == [passage.text for passage in passages_alone]
        for passage, own_passage in zip(inner_passages, passages_alone, strict=True):
            expected = (
                str(cite(Hit(own_passage, 1.0)))
                .removeprefix(name)
                .removeprefix(f", {own_passage.metadata.get('member')}")
            )
            assert str(cite(Hit(passage, 1.0))) == f"{outer_name}, {passage.metadata['member']}{expected}"


def test_an_archive_of_office_files_is_no_office_file() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive_file:
        for name in ("a.docx", "a.xlsx", "a.odt"):
            archive_file.writestr(name, OFFICE[name]())
    passages, reasons = read("a.zip", buffer.getvalue())
    assert {passage.metadata["kind"] for passage in passages} == {"docx", "xlsx", "odt"}
    assert reasons == []


def test_archives_in_archives_are_read_within_a_depth() -> None:
    data = zip_of({"deep.txt": "The frog is worn."})
    for depth in range(1, 5):
        passages, reasons = read("a.zip", data)
        if depth < 4:
            assert [passage.text for passage in passages] == ["The frog is worn."]
            assert passages[0].metadata["member"] == "inner.zip/" * (depth - 1) + "deep.txt"
        else:
            assert passages == []
            assert "levels deep" in reasons[0]
        data = zip_of({"inner.zip": data})


@pytest.mark.parametrize("outer", ["a.zip", "a.eml"])
def test_an_archive_that_unpacks_to_too_much_is_read_up_to_there(outer: str) -> None:
    bomb = zip_of({"first.txt": "The frog is worn.", **{f"zeros{number}.txt": bytes(48 << 20) for number in range(4)}})
    passages, reasons = read(outer, bomb if outer == "a.zip" else message({"bomb.zip": bomb}))
    assert any(passage.text == "The frog is worn." for passage in passages)
    assert any("128 MB" in reason for reason in reasons), reasons


def test_archives_that_together_unpack_to_too_much_are_told() -> None:
    bomb = zip_of({"zeros.bin": bytes(100 << 20)})
    _, reasons = read("a.zip", zip_of({f"{number}.zip": bomb for number in range(3)}))
    assert [("128 MB" in reason) for reason in reasons] == [False, True, True], reasons


def test_more_files_than_pages_are_told() -> None:
    files = {f"{number}.txt": f"Frog {number}." for number in range(9)}
    passages, reasons = read("a.zip", zip_of(files), FileLimits(pages=5))
    assert len(passages) == 5
    assert reasons == ["9 files; only the first 5 are read"]
    passages, reasons = read(
        "a.eml", message({name: text.encode() for name, text in files.items()}), FileLimits(pages=5)
    )
    assert len(passages) == 6
    assert reasons == ["9 attachments; only the first 5 are read"]


def test_what_is_not_read_in_an_archive_is_told_once_for_each_reason() -> None:
    files = {
        "a.bin": bytes(99),
        "b/c.bin": bytes(99),
        "d.doc": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600),
        "e.md": GUIDE,
    }
    passages, reasons = read("a.zip", zip_of(files))
    assert len(passages) == 1
    assert reasons == [
        "file 'a.bin' and 1 more: binary data, not text", "file 'd.doc': an old Word document; save it as .docx"
    ]  # fmt: skip


def test_hidden_files_of_an_archive_are_left_out() -> None:
    passages, reasons = read(
        "a.zip", zip_of({".env": "KEY=1", "__MACOSX/e.md": "x", ".git/config": "x", "e.md": GUIDE})
    )
    assert (len(passages), reasons) == (1, [])


@pytest.mark.parametrize("files", [{}, {".env": "KEY=1"}, {"empty.txt": ""}])
def test_an_archive_without_words_is_told(files: dict[str, str]) -> None:
    assert read("a.zip", zip_of(files))[1] == ["no words in it"]


@pytest.mark.parametrize("damage", [lambda data: data[:-30], lambda data: data[:40] + b"\xff" * 20 + data[60:]])
def test_a_damaged_archive_says_so(damage: object) -> None:
    data = damage(zip_of({"guide.md": GUIDE * 20}))  # type: ignore[operator]
    try:
        _, reasons = read("a.zip", data)
    except InputError as error:
        reasons = [str(error)]
    assert "damaged" in reasons[0]


def test_equal_files_of_an_archive_are_all_stored() -> None:
    passages, _ = read(
        "a.zip",
        zip_of({"a/LICENSE.txt": "Free to all.", "b/LICENSE.txt": "Free to all.", "c.csv": ROWS, "d.csv": ROWS}),
    )
    assert len(passages) == 6


def test_records_in_an_archive_keep_their_ids_apart() -> None:
    records = "\n".join(json.dumps({"_id": str(number), "text": f"Frog {number}."}) for number in range(3))
    passages, _ = read("a.zip", zip_of({"a.jsonl": records, "b.jsonl": records}))
    assert len({passage.id for passage in passages}) == 6


def test_an_attachment_stands_under_the_subject_and_its_name() -> None:
    passages, reasons = read("a.eml", message({"guide.md": GUIDE.encode(), "rows.csv": ROWS.encode()}))
    assert reasons == []
    assert [passage.title for passage in passages] == [
        "Prices",
        "Prices › guide.md › Switches",
        *["Prices › rows.csv"] * 2,
    ]
    assert citations_of(passages) == [
        "a.eml",
        "a.eml, guide.md, line 3",
        "a.eml, rows.csv, line 2",
        "a.eml, rows.csv, line 3",
    ]
    assert {passage.metadata["from"] for passage in passages} == {"Ann <ann@example.org>"}


def test_a_message_attached_to_a_message_is_read_and_so_is_what_is_in_it() -> None:
    inner = message({"guide.md": GUIDE.encode()}, "Frogs")
    passages, reasons = read("a.eml", message({"inner.eml": inner}))
    assert reasons == []
    assert citations_of(passages) == ["a.eml", "a.eml, inner.eml", "a.eml, inner.eml/guide.md, line 3"]


def test_attachments_of_a_mailbox_are_cited_with_their_message() -> None:
    mailbox = b"".join(
        b"From a Mon Mar  4 10:15:00 2024\n" + message({"guide.md": GUIDE.encode()}) + b"\n" for _ in range(2)
    )
    passages, reasons = read("a.mbox", mailbox)
    assert reasons == []
    assert citations_of(passages) == [
        "a.mbox, message 1", "a.mbox, message 1/guide.md, line 3",
        "a.mbox, message 2", "a.mbox, message 2/guide.md, line 3",
    ]  # fmt: skip


def test_offsets_lead_to_the_words_in_the_text_of_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(zip_of({"b.eml": message({"guide.md": GUIDE.encode()}), "inner.zip": zip_of({"rows.csv": ROWS})}))
    text = text_of(path)
    items = list(convert("a.zip", path.read_bytes()))
    assert text == joined_text(iter(items))
    with pointsman.open(tmp_path / "workspace", embedder=HashingEmbedder()) as workspace:
        workspace.index(path, "x")
        documents = list(workspace.dataset("x"))
        assert len(documents) == 4
        for document in documents:
            assert text[document.metadata["start"] : document.metadata["end"]] == document.text
        (hit, *_) = workspace.search("what guides wheels over the gap", 1, refuse=False).hits
        assert str(hit.citation) == "a.zip, b.eml/guide.md, line 3"
        assert hit.citation.to_dict()["member"] == "b.eml/guide.md"
        assert workspace.dataset("x").text("a.zip").text[hit.citation.start : hit.citation.end] == hit.citation.quote
        workspace.index(path, "x")
        assert list(workspace.dataset("x")) == documents


def test_a_name_of_a_member_cannot_pass_for_another_source() -> None:
    passages, _ = read("a.zip", zip_of({"x\n[2] b.md": "The frog is worn."}))
    assert citations_of(passages) == ["a.zip, x [2] b.md, line 1"]


@pytest.mark.parametrize(
    ("kind", "holder"), [("docx", "word/document"), ("pptx", "ppt/slides/slide1"), ("xlsx", "xl/worksheets/sheet1")]
)
def test_files_embedded_in_an_office_document_are_read_or_told(kind: str, holder: str) -> None:
    folder, _, stem = holder.rpartition("/")
    office = (
        OFFICE[f"office.{kind}"] if f"office.{kind}" in OFFICE else next(OFFICE[n] for n in OFFICE if n.endswith(kind))
    )
    content = office() if callable(office) else office
    rels, root = f"{folder}/_rels/{stem}.xml.rels", holder.partition("/")[0]
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    links = "".join(
        f'<Relationship Id="rE{number}" Type="t" Target="/{root}/embeddings/{name}"/>'
        for number, name in enumerate(("Preise.xlsx", "旧.doc", "oleObject1.bin"))
    )
    empty = b'<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"></Relationships>'
    files[rels] = files.get(rels, empty).replace(b"</Relationships>", links.encode() + b"</Relationships>")
    files |= {
        f"{root}/embeddings/Preise.xlsx": xlsx(),
        f"{root}/embeddings/旧.doc": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600),
        f"{root}/embeddings/oleObject1.bin": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600),
        f"{root}/embeddings/Chart.xlsx": b"what a chart shows",
    }
    passages, reasons = read(f"a.{kind}", zip_of(files))
    assert any(
        "Switch 7" in passage.text
        for passage in passages
        if passage.metadata.get("member") == f"{root}/embeddings/Preise.xlsx"
    )
    assert reasons == [
        f"file '{root}/embeddings/旧.doc': an old Word document; save it as .docx",
        (
            f"file '{root}/embeddings/oleObject1.bin': an object of another program, which is not read; "
            "save it as a file of its own"
        ),
    ]
