"""Messages of Outlook: subjects, names and addresses by the rule of other mail, messages within messages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from outlook_files import Tree, attached_file, attached_message, compound_file, message
from pointsman.ingest import ParsedDocument, Problem, convert
from pointsman.tools.errors import InputError

pytest.importorskip("oxmsg", reason="an extra")

SUBJECT, SENDER, ADDRESS, SMTP, BODY, HEADERS, NAME = 0x37, 0xC1A, 0xC1F, 0x5D01, 0x1000, 0x7D, 0x3001
MAIL, PERSON_SMTP, CODE_PAGE, TEXT_PAGE, TIME, HTML = 0x3003, 0x39FE, 0x3FFD, 0x3FDE, 0x39, 0x1013


def read(tree: Tree) -> tuple[list[ParsedDocument], list[str]]:
    items = list(convert("a.msg", compound_file(tree)))
    documents = [item for item in items if isinstance(item, ParsedDocument)]
    return documents, [item.reason for item in items if isinstance(item, Problem)]


@pytest.mark.parametrize(
    ("page", "encoding", "subject", "name", "body"),
    [
        (1251, "cp1251", "Акт осмотра вагона", "Свиридов Дмитрий", "Колёса исправны, тормоза заменить."),
        (950, "big5", "車輛檢查報告", "張志明", "煞車需要更換。"),
        (936, "gbk", "车辆检查报告", "王建国", "刹车需要更换。"),
        (1250, "cp1250", "Příští schůzka", "Dvořák Jiří", "Brzdy je třeba vyměnit."),
        (65001, "utf-8", "Réunion", "Kurtuluş", "Frein à remplacer."),
    ],
)
@pytest.mark.parametrize("page_property", [CODE_PAGE, TEXT_PAGE])
def test_subject_names_and_text_are_read_in_the_code_page_of_the_message(
    page: int, encoding: str, subject: str, name: str, body: str, page_property: int
) -> None:
    texts = {SUBJECT: subject.encode(encoding), SENDER: name.encode(encoding), SMTP: b"a@example.com",
             BODY: body.encode(encoding)}  # fmt: skip
    people = {"first": ({NAME: name.encode(encoding), PERSON_SMTP: b"b@example.com"}, 1)}
    (document,), problems = read(message(texts, {page_property: page}, people))
    assert document.title == subject
    assert f"From: {name} <a@example.com>\nTo: {name} <b@example.com>" in document.text
    assert body in document.text
    assert not problems


def test_bytes_that_their_code_page_does_not_hold_are_guessed_and_not_refused() -> None:
    text = "Das Prüfgerät für die Bremsen wird am Dienstag geliefert."
    (document,), _ = read(
        message({SUBJECT: "Prüfung".encode("cp1252"), BODY: text.encode("cp1252")}, {TEXT_PAGE: 65001})
    )
    assert (document.title, document.text) == ("Prüfung", text)
    (document,), _ = read(message({BODY: "Тормоза заменены в депо.".encode("cp1251")}, {TEXT_PAGE: 20127}))
    assert document.text == "Тормоза заменены в депо."
    (document,), _ = read(message({BODY: b"plain"}, {CODE_PAGE: 4711, TEXT_PAGE: 57002}))
    assert document.text == "plain"


@pytest.mark.parametrize(
    ("raw", "expected_name"),
    [
        ("=?UTF-8?B?VWRlbXk=?= <a@example.com>", "Udemy <a@example.com>"),
        ("=?iso-8859-1?Q?L'=C9quipe?= <a@example.com>", "L'Équipe <a@example.com>"),
        ("=?koi8-r?B?6dfBzs/X?= <a@example.com>", "Иванов <a@example.com>"),
    ],
)
def test_encoded_words_of_headers_subjects_and_names_are_read(raw: str, expected_name: str) -> None:
    word = raw.rpartition(" ")[0]
    headers = f"Received: from here\r\nFrom: {raw}\r\nSubject: x\r\n"
    people = {"first": ({NAME: word, PERSON_SMTP: "a@example.com"}, 1)}
    (document,), _ = read(message({SUBJECT: word, HEADERS: headers, BODY: "Words."}, {}, people))
    assert f"From: {expected_name}\nTo: {expected_name}\n" in document.text
    assert document.title == expected_name.rpartition(" ")[0]


def test_people_without_an_address_or_with_an_internal_one_are_named_alone() -> None:
    exchange = "/O=RAIL/OU=DEPOT/CN=RECIPIENTS/CN=AMANDA"
    people: dict[str, Any] = {
        "none": ({NAME: "New user"}, 1),
        "internal": ({NAME: "Juan", MAIL: exchange}, 1),
        "twice": ({NAME: "'c@example.com'", MAIL: "c@example.com"}, 1),
        "empty": ({}, 1),
        "copy": ({NAME: "Eva", MAIL: "e@example.com"}, 2),
        "blind": ({NAME: "Hidden", MAIL: "h@example.com"}, 3),
    }
    sending_time = datetime(2007, 5, 31, 16, 6, 38, tzinfo=UTC)
    ticks = int((sending_time - datetime(1601, 1, 1, tzinfo=UTC)).total_seconds()) * 10**7
    (document,), _ = read(message({SENDER: "Amanda", ADDRESS: exchange, BODY: "Words."}, {TIME: ticks}, people))
    head = "From: Amanda\nTo: New user, Juan, c@example.com\nCc: Eva <e@example.com>\nDate: 2007-05-31 16:06:38+00:00"
    assert document.text == f"{head}\n\nWords."
    assert document.metadata["cc"] == "Eva <e@example.com>"


def test_a_message_in_a_message_is_read_with_its_subject_sender_and_files() -> None:
    original = message(
        {SUBJECT: "Angebot", SENDER: "Jörg".encode("cp1252"), BODY: "Bremsen für Zug 7."},
        {CODE_PAGE: 1252}, {"first": ({NAME: "Яна"}, 1)}, (attached_file("Preise.txt", b"Scheibe 90 Euro"),), header=24,
    )  # fmt: skip
    message_around = message({SUBJECT: "FW", BODY: "See below."}, {}, None, (attached_message(original),))
    documents, problems = read(message_around)
    assert "See below.\n\nAngebot\n\nFrom: Jörg\nTo: Яна\n\nBremsen für Zug 7." in documents[0].text
    assert (documents[1].member, documents[1].text) == ("Preise.txt", "Scheibe 90 Euro")
    assert not problems


def test_names_of_files_are_of_the_code_page_too_and_objects_are_named() -> None:
    file_storage = attached_file("Акт.txt".encode("cp1251"), b"Words of the file")
    ole_object: Tree = {"__properties_version1.0": bytes(8), "__substg1.0_3701000D": {"CONTENTS": b"\1\2"}}
    tree = message({BODY: "Words."}, {CODE_PAGE: 1251}, None, (file_storage, ole_object))
    documents, problems = read(tree)
    assert documents[1].member == "Акт.txt"
    assert problems == [
        "attachment 'attachment.bin': an object of another program, which is not read; save it as a file of its own"
    ]


def test_html_is_read_where_there_is_no_plain_text() -> None:
    page = "<p>Тормоза <b>заменены</b></p>".encode("cp1251")
    tree = {**message({SUBJECT: "x"}, {TEXT_PAGE: 1251}), "__substg1.0_10130102": page}
    assert read(tree)[0][0].text == "Тормоза заменены"
    (document,), _ = read(message({HTML: "<p>刹车</p>"}))
    assert document.text == "刹车"


@pytest.mark.parametrize("sending_time", [1 << 63, (1 << 64) - 1, 2**40])
def test_impossible_dates_do_not_lose_a_message(sending_time: int) -> None:
    assert read(message({BODY: "Words."}, {TIME: sending_time}))[0][0].text.endswith("Words.")


def test_mail_that_is_called_msg_is_read_as_mail() -> None:
    (document,) = convert("a.msg", b"From: a@example.com\nSubject: Brakes\n\nWorn out.\n")
    assert isinstance(document, ParsedDocument)
    assert (document.title, document.kind) == ("Brakes", "eml")
    with pytest.raises(InputError, match="damaged message of Outlook"):
        list(convert("a.msg", b"\xff\xfe\x00\x01 nothing of mail"))


def test_a_damaged_message_is_refused_with_the_reason() -> None:
    content = compound_file(message({SUBJECT: "Words", BODY: "More words."}))
    for size in (9, 300, 600, 1100):
        with pytest.raises(InputError, match="damaged message of Outlook"):
            list(convert("a.msg", content[:size]))
    with pytest.raises(InputError, match="damaged message of Outlook: '__properties"):
        list(convert("a.msg", compound_file({"words": b"1"})))


def test_a_long_list_of_recipients_is_stored_whole() -> None:
    names = [f"Person {number:03d} <person.{number}@example.com>" for number in range(80)]
    (document,) = convert("a.eml", f"To: {', '.join(names)}\nSubject: x\n\nWords.\n".encode())
    assert isinstance(document, ParsedDocument)
    assert all(name in document.text for name in names)
    people = {name: ({NAME: name[:10], PERSON_SMTP: name[12:-1]}, 2) for name in names}
    (outlook,), _ = read(message({BODY: "Words."}, {}, people))
    assert all(name in outlook.text for name in names)
