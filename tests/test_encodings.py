"""Encodings: one that is given holds everywhere, what contradicts it is said, and so is a guess that is not certain."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

import pointsman
from pointsman.embedders import HashingEmbedder
from pointsman.ingest import FileReader, FoundFile, ParsedDocument, Problem, convert, read_paths, text_of
from pointsman.ingest.encoding import decode_file
from pointsman.tools.errors import InputError

CZECH = "Výhybka se přestaví před příjezdem vlaku; žádný řidič."
RUSSIAN = "Стрелочник переводит стрелку вручную, пока не пришёл поезд."


def read(name: str, data: bytes, encoding: str | None = None) -> tuple[str, list[str]]:
    """Return the text of a file, and its problems."""
    items = list(convert(name, data, encoding=encoding))
    texts = [item.text for item in items if isinstance(item, ParsedDocument)]
    return "\n\n".join(texts), [item.reason for item in items if isinstance(item, Problem)]


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (CZECH, "cp1250"),
        ("Η κλείδα οδηγεί το τρένο.", "iso8859-7"),
        ("Makas treni doğru yola yönlendirir, şimdi.", "cp1254"),
        (RUSSIAN, "koi8-r"),
        ("их: р", "cp866"),
        ("ЛИНИЯ", "koi8-r"),
        ("鐵路", "big5"),
        ("铁", "gbk"),
        (CZECH, "utf-16-le"),
    ],
)
def test_an_encoding_that_is_given_is_used(text: str, encoding: str) -> None:
    assert read("a.txt", text.encode(encoding), encoding) == (text, [])


@pytest.mark.parametrize("encoding", ["cp1250", "koi8-r", "gbk"])
@pytest.mark.parametrize("data", [RUSSIAN.encode(), "\ufeffРельс".encode("utf-16"), b"plain"])
def test_utf_8_and_byte_order_marks_come_first(data: bytes, encoding: str) -> None:
    assert read("a.txt", data, encoding) == (read("a.txt", data)[0], [])


def test_bytes_that_are_not_in_the_encoding_are_said() -> None:
    text, problems = read("a.txt", RUSSIAN.encode("cp1251"), "gbk")
    assert text == RUSSIAN
    assert [problem.partition(";")[0].startswith("not in gbk (byte ") for problem in problems] == [True]
    assert "read as Windows-1251" in problems[0]


def test_words_that_look_like_another_encoding_are_said() -> None:
    text, problems = read("a.txt", (RUSSIAN * 3).encode("cp1251"), "koi8-r")
    assert text == (RUSSIAN * 3).encode("cp1251").decode("koi8-r")
    assert problems == ["read as koi8-r, as was asked; its words look like Windows-1251"]


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Save в %s now", "cp866"),
        ("use с -l, please", "koi8-r"),
        ('"--quit" 或 "git"', "gbk"),
        ("the index and the working 編碼 tree", "big5"),
        ("new грN package", "cp1251"),
    ],
)
def test_a_word_among_ascii_that_resembles_western_marks_is_right_or_said(text: str, encoding: str) -> None:
    stored, problems = read("a.txt", text.encode(encoding))
    assert stored == text or any("not certain" in problem for problem in problems)


@pytest.mark.parametrize(
    "text",
    ["It’s a 5 ¢ coin", "Óscar, Élan, École", "add ½ cup, 1½ litres", "« oui », à côté", "10 £ – or €5", "ærlig øl"],
)
def test_western_marks_are_certain(text: str) -> None:
    assert read("a.txt", text.encode("cp1252")) == (text, [])


@pytest.mark.parametrize("text", ["模式", "find 缺失 in contents", "缺失 --all", "[--mode 模式]"])
def test_two_chinese_characters_that_are_valid_utf_8_are_chinese(text: str) -> None:
    data = text.encode("gbk")
    assert not data.decode("utf-8").isascii()
    assert decode_file(data)[0] == text
    assert decode_file(data, encoding="utf-8") == (data.decode("utf-8"), "")


@pytest.mark.parametrize(
    "text", ["<目录>", "*未知*", "[模式] on", "前缀 = x", "same 同 pass", "使用 模式", "缺失 位置"]
)
def test_valid_utf_8_of_two_alphabets_or_of_marks_alone_is_chinese(text: str) -> None:
    data = text.encode("gbk")
    assert decode_file(data)[0] == text


@pytest.mark.parametrize("text", ["Δρ", "α²", "«é»", "5 µm", "–½–", "שלום", "día", "σ̄", "食", "Жж", "naïve ½", "ΩŘ 2"])
def test_short_words_in_utf_8_stay_utf_8(text: str) -> None:
    assert decode_file(text.encode()) == (text, "")


@pytest.mark.parametrize("encoding", ["cp1251", "koi8-r", "cp866", "iso8859-5", "mac-cyrillic"])
@pytest.mark.parametrize(
    "text", ["СКОРОСТЬ", "set ВНИМАНИЕ here", "ОТКЛЮЧЕНО: port 7", "порт", "стрелка", "ГОСТ", "и 'quiet'", "о нас"]
)
def test_words_in_capitals_and_single_letters_are_right_or_said(text: str, encoding: str) -> None:
    read, remark = decode_file(text.encode(encoding))
    assert read == text or remark


@pytest.mark.parametrize(
    "text", ["Der Schalter »%s« fehlt.", "DÉSACTIVÉ", "CONEXIÓN", "GERÄT 2", "mises à jour", "è un"]
)
def test_german_quotes_and_western_capitals_are_certain(text: str) -> None:
    assert decode_file(text.encode("cp1252")) == (text, "")


@pytest.mark.parametrize("text", ["ə", "the sound ɪ", "kʷɪ", "ư", "ʃɪ", "Ω ≈ 3", "né", "ŕ", "Ж", "donʼt", "˚C"])
def test_letters_of_other_languages_stay_utf_8(text: str) -> None:
    assert decode_file(text.encode()) == (text, "")


@pytest.mark.parametrize(
    ("text", "encoding"), [("за %d", "cp866"), ("更新 %s", "big5"), ("和 -b", "big5"), ("以 %c", "big5")]
)
def test_marks_that_no_western_text_has_there_are_not_certain(text: str, encoding: str) -> None:
    read, remark = decode_file(text.encode(encoding))
    assert read == text or remark


def test_a_page_that_declares_another_encoding_is_read_as_it_declares() -> None:
    page = f'<meta charset="windows-1251"><p>{RUSSIAN}</p>'.encode("cp1251")
    text, problems = read("a.html", page, "koi8-r")
    assert text == RUSSIAN
    assert ["windows-1251, which it declares, not as koi8-r" in problem for problem in problems] == [True]
    assert read("a.html", page, "cp1251") == (RUSSIAN, [])


MAIL = (
    b"Subject: %s\r\nFrom: a@example.org\r\nContent-Type: text/plain%s\r\nContent-Transfer-Encoding: 8bit\r\n\r\n%s\r\n"
)


@pytest.mark.parametrize(
    ("name", "head"),
    [("a.eml", b""), ("a.mbox", b"From a@example.org Mon Mar  4 10:15:00 2024\n")],
)
def test_parts_of_mail(name: str, head: bytes) -> None:
    short, czech = "их: р".encode("cp866"), CZECH.encode("cp1250")
    text, problems = read(name, head + MAIL % (short, b"", short))
    assert len(problems) == 2
    assert all("which is not certain" in problem for problem in problems)
    assert "header Subject" in "".join(problems)
    assert "part text/plain" in "".join(problems)
    text, problems = read(name, head + MAIL % (czech, b"", czech), "cp1250")
    assert CZECH in text
    assert problems == []
    labelled_mail = head + MAIL % (b"x", b"; charset=koi8-r", RUSSIAN.encode("koi8-r"))
    assert RUSSIAN in read(name, labelled_mail, "cp1250")[0]


def test_attachments_of_mail() -> None:
    attachment = (
        b"From: a@example.org\r\nContent-Type: application/octet-stream\r\n"
        b'Content-Disposition: attachment; filename="a.txt"\r\nContent-Transfer-Encoding: 8bit\r\n\r\n'
    )
    _, problems = read("a.eml", attachment + "их: р".encode("cp866"))
    assert [problem.partition(";")[0] for problem in problems] == [
        "attachment 'a.txt': read as Windows-1251, which is not certain"
    ]
    assert read("a.eml", attachment + CZECH.encode("cp1250"), "cp1250")[1] == []


def test_a_saved_page() -> None:
    page = b"From: x\r\nContent-Type: text/html\r\nContent-Transfer-Encoding: 8bit\r\n\r\n<p>%s</p>"
    text, problems = read("a.mhtml", page % "их: р".encode("cp866"))
    assert ["part text/html: read as" in problem for problem in problems] == [True]
    assert read("a.mhtml", page % CZECH.encode("cp1250"), "cp1250") == (CZECH, [])
    assert text


def book(chapter: bytes) -> bytes:
    """Return an EPUB of one chapter."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("mimetype", "application/epub+zip")
        archive.writestr("META-INF/container.xml", '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container">'
                         '<rootfiles><rootfile full-path="a.opf"/></rootfiles></container>')  # fmt: skip
        archive.writestr("a.opf", '<package xmlns="http://www.idpf.org/2007/opf"><manifest><item id="a" href="a.html"/>'
                         '</manifest><spine><itemref idref="a"/></spine></package>')  # fmt: skip
        archive.writestr("a.html", b"<html><body><p>%s</p></body></html>" % chapter)
    return file.getvalue()


def test_chapters_of_books() -> None:
    _, problems = read("a.epub", book("их: р".encode("cp866")))
    assert [problem.partition(";")[0] for problem in problems] == [
        "chapter 'a.html': read as Windows-1251, which is not certain"
    ]
    assert read("a.epub", book(CZECH.encode("cp1250")), "cp1250") == (CZECH, [])


@pytest.mark.parametrize(
    ("number", "text"), [("936", "铁路道岔"), ("950", "鐵路道岔"), ("932", "転轍機"), ("949", "선로")]
)
def test_code_pages_have_their_names_of_windows(number: str, text: str) -> None:
    data = text.encode(f"cp{number}")
    header = f"Subject: s\nContent-Type: text/plain; charset=windows-{number}\n\n"
    assert read("a.eml", header.encode() + data) == (text, [])
    assert read("a.txt", data, f"Windows-{number}") == (text, [])


@pytest.mark.parametrize("name", ["", "klingon", "rot13", "a\x00b", "../x", 7])
def test_there_is_no_such_encoding(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no encoding is called"):
        FileReader(encoding=name)
    workspace = pointsman.open(tmp_path / "w", embedder=HashingEmbedder())
    with workspace, pytest.raises(InputError, match="no encoding is called"):
        workspace.index(tmp_path, encoding=name)


def test_every_way_to_read_a_file_takes_it(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(CZECH.encode("cp1250"))
    with FileReader(encoding="cp1250") as reader:
        assert [document.text for part in reader.read(FoundFile(path, "a.txt", 1)) for document in part.documents] == [
            CZECH
        ]
    (result,) = read_paths([path], encoding="cp1250")
    assert (result.documents[0].text, result.problems) == (CZECH, ())
    assert text_of(path, encoding="cp1250") == CZECH
    with pointsman.open(tmp_path / "w", embedder=HashingEmbedder()) as workspace:
        report = workspace.index(path, encoding="cp1250")
        assert report.problems == ()
        assert workspace.search("přestaví", refuse=False).hits[0].text == CZECH


CENTRAL_EUROPEAN = [
    "Kde je můj kufr? Nevím, viděl jsem ho naposledy večer. Příště si ho hlídej, už na tebe čekají.",
    "Gdzie jest mój bagaż? Nie wiem, widziałem go wieczorem. Następnym razem uważaj, już na ciebie czekają.",
    "Hol van a bőröndöm? Nem tudom, tegnap este láttam utoljára. Jövőre figyelj rá, mert már várnak rád, és idő sincs.",
    "Kde je môj kufor? Neviem, večer som ho videl naposledy. Nabudúce si ho stráž, už na teba čakajú, ľúbim ťa.",
    "Gdje je moj kovčeg? Ne znam, večer sam ga vidio. Idući put ga čuvaj, već te čekaju, žao mi je što kasniš.",
]


@pytest.mark.parametrize("text", CENTRAL_EUROPEAN)
def test_central_european_texts_are_read_as_such_and_said_to_be_uncertain(text: str) -> None:
    stored, problems = read("a.srt", f"1\n00:00:01,000 --> 00:00:04,000\n{text}\n".encode("cp1250"))
    assert stored == text
    assert [problem[:40] for problem in problems] == ["read as Windows-1250, which is not certa"]


@pytest.mark.parametrize(
    "word", ["Nevím, už přišel", "Dziękuję", "Őrült idő", "Ďakujem veľmi", "što želiš", "Łódź", "Příště"]
)
def test_a_central_european_word_or_two_are_right_or_said(word: str) -> None:
    stored, remark = decode_file(word.encode("cp1250"))
    assert stored == word or remark


@pytest.mark.parametrize(
    "text",
    [
        "Hvor er min kuffert? Jeg ved det ikke, jeg så den sidst i går aftes. Pas på den næste gang, de øvrige rejser.",
        "Onde está a minha mala? Não sei, vi-a pela última vez à noite. As informações são dadas na estação.",
        "Où est ma valise ? Je ne sais pas, je l'ai vue hier à côté de l'entrée. Très bien, Noël et l'été sont passés.",
        "Wo ist mein Köfferchen? Ich weiß es nicht; über Nacht stand es für alle hörbar schräg vor der Tür.",
        "Hvar er taskan mín? Ég veit það ekki, ég sá hana síðast í gærkvöldi. Þú átt að gæta hennar næst.",
        "Var är väskan? Jag såg den i går på kvällen, när vi åt på båten. Håll ögonen öppna nästa gång.",
    ],
)
def test_western_texts_are_not_taken_for_central_european_ones(text: str) -> None:
    assert decode_file(text.encode("cp1252")) == (text, "")
