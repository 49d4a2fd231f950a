"""Files that explode: for each format, generators of files that cost far more to read than they weigh.

A generator takes a size in bytes, about what the file, or what it unpacks to, should have, and gives the file's content.
Tests take small sizes, ``benchmarks/hostile_files.py`` takes large ones.
"""

from __future__ import annotations

import io
import json
import random
import zipfile
from collections.abc import Callable, Mapping

Generator = Callable[[int], bytes]

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
LAUGHS = (
    '<!DOCTYPE x [<!ENTITY a "'
    + "ha" * 50
    + '">'
    + "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefgh", "bcdefghi", strict=True))
    + "]>"
)
"""A document type whose entity ``&i;`` grows to 10 GB."""

EXTERNAL = '<!DOCTYPE x [<!ENTITY i SYSTEM "file:///etc/passwd">]>'


def repeat(unit: str, head: str = "", tail: str = "") -> Generator:
    """One piece as often as it fits."""
    return lambda size: (head + unit * max((size - len(head)) // max(len(unit.encode()), 1), 1) + tail).encode()


def nest(begin: str, end: str = "", core: str = "x", head: str = "") -> Generator:
    def generate(size: int) -> bytes:
        depth = size // len((begin + end).encode())
        return (head + begin * depth + core + end * depth).encode()

    return generate


def number_each(unit: Callable[[int], str], head: str = "", tail: str = "") -> Generator:
    """Pieces by number, up to the size."""

    def generate(size: int) -> bytes:
        texts, length, number = [head], len(head), 0
        while length < size:
            texts.append(unit(number))
            length += len(texts[-1])
            number += 1
        return "".join([*texts, tail]).encode()

    return generate


def head_and_rows(head: Callable[[int], str], row: str, tail: str = "") -> Generator:
    """Half of the size in one head, half in small rows: what copies the head into each row grows with the square."""

    def generate(size: int) -> bytes:
        return (head(size // 2) + row * (size // 2 // len(row.encode())) + tail).encode()

    return generate


def noise(seed: int, prefix: bytes = b"") -> Generator:
    return lambda size: prefix + random.Random(seed).randbytes(min(size, 2_000_000))


def words(length: int, seed: int = 1) -> str:
    rng = random.Random(seed)
    vocabulary = ["".join(rng.choices("abcdefghiklmnoprstuvw", k=rng.randint(2, 9))) for _ in range(500)]
    return " ".join(rng.choices(vocabulary, k=length // 6))


def _text() -> list[Generator]:
    units = ["a", " ", "\n", "道", "я", "é\u0301", "\u0301", "👩\u200d🚀", "7", "1\n", "a\n\n", ".", ". ", "!?", "Dr. ", "«", "(", "\u200b", "\ufeff",
              "\x0c", "\r", "\r\n", "\u2028", "word ", "x1", "a.b", "http://", "\t", "-\n", "。", "“好”", "№", "1,", "0.1 ", "I. ", "e.g. "]  # fmt: skip
    return [
        *map(repeat, units),
        noise(1),
        lambda size: words(size).encode("utf-16"),
        lambda size: words(size).encode("utf-8") + b"\xff" * 10,
        lambda size: ("слово " * (size // 6)).encode("koi8-r"),
    ]


def _markdown() -> list[Generator]:
    units = ["> ", "- ", "* ", "1. ", "#", "# \n", "# a\n", "###### a\n", "[", "](", "![", "[a](", "[a](b)", "`", "```\n", "~~~", "***a ", "_a*", "<", "<a ", "<div>\n", "<!--",
              "&amp;", "|", "|a|b|\n|-|-|\n", "\\", "a  \n", "===\n", "---\n", "    a\n", "\t", "[^1]: ", "[a]: b\n", "[![x](y)](z)"]  # fmt: skip
    return [
        *map(repeat, units),
        head_and_rows(lambda size: f"# {'h' * size}\n\n", "## a\nSome text that is no heading.\n\n"),
        head_and_rows(lambda size: f"---\ntitle: {'t' * min(size, 19_000)}\n---\n", "## a\n\nText that stands here, long enough.\n\n"),
        head_and_rows(lambda size: "".join(f"{'#' * level} {'h' * 190}\n" for level in range(1, 6)), f"###### a\n{'word ' * 30}\n\n"),
        nest("> - ", core="x"),
        number_each(lambda number: f"{'  ' * (number % 400)}- a\n"),
        number_each(lambda number: f"{'#' * (number % 6 + 1)} {number}\n"),
    ]  # fmt: skip


def _restructured_text() -> list[Generator]:
    marks = "=-~^\"'`#*+.:_<>!"
    return [
        *(repeat(unit) for unit in ["=", "=\n", "a\n=\n", "==\na\n==\n", "`a <", "`a <b>`_", ":a:`", ":a:`b <c>`", "|a|", ".. image::\n", ".. |a| image:: b\n", ".. _a:\n", "::\n\n", "* ", "a\n---\n"]),
        *(repeat(f"{mark * 4}\n") for mark in marks),
        *(repeat(f"Head\n{mark * 4}\nText.\n") for mark in marks[:7]),
        head_and_rows(lambda size: f"{'h' * size}\n====\n\n", "a\n----\nSome text.\n\n"),
        number_each(lambda number: f"Head {number}\n{marks[number % 16] * 9}\nText {number}.\n\n"),
    ]  # fmt: skip


def _html() -> list[Generator]:
    page = "<html><body>"
    units = ["<p>", "<p>a", "<div>", "<b>", "<table>", "<tr><td>", "<td>a", "<li>", "<ul><li>", "<h1>", "<h1>a</h1>", "<h6>a</h6>b", "<br>", "<a href=", "<a href='x'>", "<!--", "<!-- a -->",
              "<script>", "<script>a</script>", "<style>", "&", "&#", "&#x41;", "&lt;", "<", "</p>", "<x y='", "<svg>", "<template>", "<select><option>", "<frameset>", "\x00<p>"]  # fmt: skip
    return [
        *(repeat(unit, page) for unit in units),
        nest("<div>", "</div>", head=page),
        nest("<font>", head=page),
        nest("<table><tr><td>", head=page),
        repeat("&i;", LAUGHS + "<html><body><p>"),
        head_and_rows(lambda size: f"{page}<h1>{'h' * size}</h1>", "<h2>a</h2><p>Some text.</p>"),
        head_and_rows(lambda size: f"<html><head><title>{'t' * size}</title></head><body>", "<h2>a</h2><p>Some text</p>"),
        number_each(lambda number: f"<h{number % 6 + 1}>{number}</h{number % 6 + 1}>", page),
        head_and_rows(lambda size: f"<html><body {attributes(size)}>", "<p>a"),
        head_and_rows(lambda size: f"{page}<table>{f'<td rowspan=0>{words(500)}' * (size // 520)}<tr>", "<tr><td>a<td>b"),
        head_and_rows(lambda size: f"{page}<table>{'<td rowspan=0 colspan=1000>a' * (size // 28)}", "<tr><td>a<td>b"),
        repeat("<td colspan=1000 rowspan=1000>a<td>b<tr>", f"{page}<table>"),
        repeat("<li value=999999999><ol>", page),
    ]  # fmt: skip


def _code() -> list[Generator]:
    units = ["(", "[", "{", "-", "a.", "a+", "not ", "lambda:", "x=\\\n", "'", "'''", "#", "# a\n", "@a\n", "def f():\n x\n", "class A:\n  a=1\n", "if 1:\n a\n", "a;", "\\", "f'{", "async ",
              "import a\n", "\tx\n", "a=1\n", "\n\n\n", "x=(1,\n", "1_0", "0x", "*", "~"]  # fmt: skip
    return [
        *map(repeat, units),
        number_each(lambda number: f"{' ' * (number % 99)}if x:\n"),
        number_each(lambda number: f"def f{number}(): pass\n"),
        number_each(lambda number: f"class C{number}:\n" + "    def f(self):\n        return 1\n\n" * 15),
        head_and_rows(lambda size: f"class {'C' * size}:\n", "    def f(self):\n        pass\n\n"),
        nest("a(", ")"),
        nest("[", "]"),
        lambda size: b"x = 1\n" * (size // 6) + b"\x00",
        lambda size: b"# coding: latin-1\n" + b"\xe9" * size,
        noise(5),
        lambda size: f"x = {'9' * size}\n".encode(),
    ]


def _json() -> list[Generator]:
    label = "label " * 1000
    return [
        repeat("1,", "[", "1]"),
        repeat("1.5,", "[", "1]"),
        repeat("[],", "[", "[]]"),
        repeat("{},", "[", "{}]"),
        repeat("[1,2],", "[", "[]]"),
        repeat('"a",', "[", '"a"]'),
        repeat('"",', "[", '""]'),
        repeat("null,", "[", "null]"),
        repeat("true,", "[", "true]"),
        repeat("9", "[", "]"),
        repeat("1e9,", "[", "1]"),
        repeat("[1.25,[2.5]],", "[", "[]]"),
        repeat("\\u0041", '"', '"'),
        repeat("\\ud800", '{"text": "', '"}'),
        repeat(" ", "[", "1]"),
        repeat('{"a":1},', "[", '{"a":2}]'),
        repeat('{"text":"a"},', "[", '{"text":"b"}]'),
        repeat('{"id":1,"text":"a"},', "[", '{"text":"b"}]'),
        repeat('{"a":[{"b":1}]},', "[", '{"a":2}]'),
        repeat('[{"a":1},2],', "[", "1]"),
        nest("[", "]", ""),
        nest("["),
        nest('{"a":', "}", "1"),
        nest('[{"a":', "}]", "1"),
        lambda size: (f'{{"{label}":' * 150 + "[" + '{"x":1},' * (size // 8) + "1]" + "}" * 150).encode(),
        lambda size: (f'{{"{"L" * (size // 2)}":[' + '"a",{},' * (size // 14) + "1]}").encode(),
        lambda size: (f'{{"{"L" * (size // 2)}":{{' + ",".join(f'"{n}":"v"' for n in range(size // 28)) + "}}").encode(),
        lambda size: json.dumps({"text": words(size // 2), "note": "n" * (size // 2)}).encode(),
        lambda size: json.dumps({"title": "t" * (size // 2), "text": words(size // 2)}).encode(),
        lambda size: json.dumps({"id": "i" * (size // 2), "text": words(size // 2)}).encode(),
        lambda size: json.dumps({"text": words(size // 2), "tags": ["t"] * (size // 10)}).encode(),
        lambda size: json.dumps({"text": words(size // 2)} | {f"f{n}": n for n in range(size // 24)}).encode(),
        lambda size: json.dumps([{"text": "a", f"f{n}": n} for n in range(size // 30)]).encode(),
        lambda size: json.dumps({f"f{n}": [n] for n in range(size // 18)}).encode(),
        lambda size: json.dumps({"a": [[n, [n]] for n in range(size // 20)]}).encode(),
        lambda size: json.dumps({"metadata": {f"k{n}": "v" for n in range(size // 32)}, "text": words(size // 2)}).encode(),
        lambda size: json.dumps([{"title": "t" * 5000, "text": ""}] * (size // 5030)).encode(),
        lambda size: json.dumps([{"L" * 500: "v"}] * (size // 512)).encode(),
        noise(3, b'{"a": "'),
        lambda size: b"\xff\xfe" + json.dumps([1] * (size // 6)).encode("utf-16-le"),
    ]  # fmt: skip


def _json_lines() -> list[Generator]:
    objects = ["{}", "1", "[", '{"text":"a"}', '{"id":1,"text":"a"}', '{"a":1}', '{"a":[]}', '{"text":""}', "null", '"a"', "{" * 500, '{"text":"\\ud800"}', '{"a":{"b":{"c":1}}}',
               '{"id":"x"}', '{"text":["a","b"]}', '{"a":1e999}', '{"a":NaN}', '{"a":"\\u0000"}', "", " ", "}", '{"text":"a","line":1}', '{"source":"x","text":"y"}']  # fmt: skip
    wide = ",".join(f'"k{n}":{n}' for n in range(2000))
    return [
        *(repeat(f"{generator}\n") for generator in objects),
        lambda size: b"".join(generator(size // 40) + b"\n" for generator in _json()[:39]),
        repeat(f'{{{wide},"text":"x"}}\n'),
        repeat(f'{{"text":"{words(20_000)}","note":"{"n" * 20_000}"}}\n'),
        repeat(f'{{"{"L" * 50_000}":"v"}}\n'),
        number_each(lambda number: f'{{"k{number}":1,"text":"a"}}\n'),
        number_each(lambda number: f'{{"_id":"{number}","text":"a"}}\n'),
        number_each(lambda number: f'{{"title":"{"t" * 400}","text":"{number}"}}\n'),
        number_each(lambda number: f'{{"id":"{"i" * 300}{number}","text":"a"}}\n'),
        lambda size: (f'{{"text":"{words(size // 2)}","a":"{"b" * (size // 2)}"}}').encode(),
        lambda size: (f'{{"text":"{words(size // 2)}","a":["{"b" * (size // 2)}"]}}').encode(),
        lambda size: (f'{{"{words(size // 2)}":"{words(size // 2)}"}}').encode(),
        lambda size: ('{"a":"' + "b" * size).encode(),
        lambda size: ("[" * size + "\n").encode(),
        lambda size: (f"{'9' * size}\n").encode(),
        noise(4),
        repeat('{"text": "a"}\r'),
        repeat('{"text": "a"}\u2028'),
    ]  # fmt: skip


def _csv() -> list[Generator]:
    columns = 200_000
    return [
        *(repeat(unit, "a,b\n") for unit in ["1,2\n", "1\n", ",\n", ",", "\n", '"', '""', '"a', '"a",', "'", "\r", "\r\n", "a;b\n", "\t", "|", "a\tb\n", "x" * 1000, "道,路\n", " , \n", '"a"b,', "\\,", '","', '"\n"\n']),
        head_and_rows(lambda size: ",".join("h" * 20 for _ in range(size // 21)) + "\n", "1,2\n"),
        head_and_rows(lambda size: "h" * size + ",b\n", "1,2\n"),
        head_and_rows(lambda size: ",".join(f"column {number}" for number in range(min(size // 12, columns))) + "\n", ",".join("1" * 50) + "\n"),
        head_and_rows(lambda size: "a,b\n", f'"{words(2000)}",1\n'),
        repeat("word ", 'a,b\n1,"', ""),
        repeat("line\n", 'a,b\n1,"', ""),
        repeat('1,"2\n', "a,b\n"),
        lambda size: (f'text,note\n"{words(size // 2)}",{"n" * (size // 2)}\n').encode(),
        lambda size: (f'a,b\n"{words(size // 2)}",{"n" * (size // 2)}\n').encode(),
        lambda size: ("a," * (size // 4) + "\n" + "1," * (size // 4)).encode(),
        lambda size: (",".join(f"c{n}" for n in range(1500)) + "\n" + (",".join("1" * 1500) + "\n") * (size // 3000)).encode(),
        lambda size: ("id,text\n" + "1,a\n" * (size // 4)).encode(),
        lambda size: ("id,title,text\n" + f"1,{'t' * 400},a\n" * (size // 405)).encode(),
        number_each(lambda number: f"{number},a\n", "id,text\n"),
        lambda size: ("a,b\n" + "1,2\n" * (size // 4)).encode("utf-16"),
        noise(6),
        lambda size: b"a,b\n" + b"\x00" * size,
    ]  # fmt: skip


def zip_of(entries: Mapping[str, bytes | str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def attributes(size: int) -> str:
    return " ".join(f'a{number}="1"' for number in range(size // 10))


def word(body: Generator, head: str = "", **generators: Generator) -> Generator:
    """A Word document of this body, and other parts by the names that they have in ``word/``."""

    def generate(size: int) -> bytes:
        document = f'{head}<w:document xmlns:w="{WORD}"><w:body>'.encode() + body(size) + b"</w:body></w:document>"
        return zip_of(
            {"word/document.xml": document}
            | {f"word/{name}.xml": generator(size) for name, generator in generators.items()}
        )

    return generate


def _docx() -> list[Generator]:
    cell = "<w:tc><w:p><w:r><w:t>x</w:t></w:r></w:p></w:tc>"
    wide = f'<w:tc><w:tcPr><w:gridSpan w:val="1000000000"/></w:tcPr>{"<w:p><w:r><w:t>wide</w:t></w:r></w:p>"}</w:tc>'
    merged_cell = "<w:tc><w:tcPr><w:vMerge/></w:tcPr><w:p><w:r><w:t>m</w:t></w:r></w:p></w:tc>"
    styles = "".join(f'<w:style w:styleId="{n}"><w:name w:val="heading {n}"/></w:style>' for n in range(1, 10))
    stylesheet = f'<w:styles xmlns:w="{WORD}">{styles}</w:styles>'

    def heading(level: int, text: str) -> str:
        return f'<w:p><w:pPr><w:pStyle w:val="{level}"/></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>'

    paragraph = "<w:p><w:r><w:t>Some words.</w:t></w:r></w:p>"
    bodies = ["<w:p/>", "<w:p><w:r><w:t>a</w:t></w:r></w:p>", paragraph, "<w:t>a</w:t>", "<w:br/>", "<w:tab/>", "<w:x/>", "<w:p><w:r><w:t>" + "a" * 100_000 + "</w:t></w:r></w:p>",
              f"<w:tbl><w:tr>{cell}</w:tr></w:tbl>", f"<w:tbl><w:tr>{wide}</w:tr></w:tbl>", f"<w:tbl><w:tr>{merged_cell}</w:tr></w:tbl>", "<w:tbl/>", "<w:tr/>", "<w:tc/>", "&amp;", "<!-- a -->", "<?a b?>", " "]  # fmt: skip
    return [
        *(word(repeat(body)) for body in bodies),
        word(repeat(cell, "<w:tbl><w:tr>", "</w:tr></w:tbl>")),
        word(repeat(f"<w:tr>{cell}</w:tr>", "<w:tbl>", "</w:tbl>")),
        word(repeat(f"<w:tr>{wide * 3}</w:tr>", "<w:tbl>", "</w:tbl>")),
        word(repeat(f"<w:tr>{merged_cell * 100}</w:tr>", "<w:tbl>", "</w:tbl>")),
        word(nest("<w:tbl><w:tr><w:tc>", "</w:tc></w:tr></w:tbl>", "<w:p/>")),
        word(nest("<w:p>", "</w:p>", "x")),
        word(nest("<w:x>", "</w:x>", "x")),
        word(nest("<w:p>")),
        word(repeat(paragraph), styles=repeat("<w:style/>", f'<w:styles xmlns:w="{WORD}">', "</w:styles>")),
        word(head_and_rows(lambda size: heading(1, "h" * size), heading(2, "a") + paragraph), styles=lambda _: stylesheet.encode()),
        word(head_and_rows(lambda _: "".join(heading(n, "h" * 190) for n in range(1, 9)), heading(9, "a") + paragraph * 12), styles=lambda _: stylesheet.encode()),
        word(repeat(heading(1, "a") + paragraph), styles=lambda _: stylesheet.encode()),
        word(repeat("<w:p><w:r><w:t>&i;</w:t></w:r></w:p>"), LAUGHS),
        word(repeat("<w:p><w:r><w:t>&i;</w:t></w:r></w:p>"), EXTERNAL),
        word(repeat(paragraph), footnotes=repeat(paragraph, f'<w:footnotes xmlns:w="{WORD}">', "</w:footnotes>")),
        lambda size: zip_of({"word/document.xml": b"0" * size * 4}),
        lambda size: zip_of({f"word/{n}": b"" for n in range(min(size // 100, 60_000))}),
        lambda size: zip_of({"word/document.xml": zip_of({"a": b"0" * size})}),
        lambda size: word(repeat(paragraph))(size)[: size // 50],
        lambda size: zip_of({"word/styles.xml": b"a" * size}),
        lambda size: zip_of({"word/document.xml": f'<w:document xmlns:w="{WORD}" {attributes(size)}/>'}),
        noise(8, b"PK\x03\x04word/"),
    ]  # fmt: skip


def pdf_of(objects: list[bytes], trailer: bytes = b"/Root 1 0 R") -> bytes:
    buffer = io.BytesIO(b"%PDF-1.5\n")
    buffer.seek(0, io.SEEK_END)
    offsets = []
    for number, body in enumerate(objects, start=1):
        offsets.append(buffer.tell())
        buffer.write(b"%d 0 obj\n%b\nendobj\n" % (number, body))
    start = buffer.tell()
    buffer.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    buffer.writelines(b"%010d 00000 n \n" % offset for offset in offsets)
    buffer.write(b"trailer\n<< /Size %d %b >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, trailer, start))
    return buffer.getvalue()


def stream(content: bytes, entries: bytes = b"") -> bytes:
    return b"<< /Length %d %b >>\nstream\n%b\nendstream" % (len(content), entries, content)


def pdf_page(
    content: Generator, entries: bytes = b"", extra_objects: list[bytes] | None = None, resources: bytes = b""
) -> Generator:
    """A PDF of one page with this content."""

    def generate(size: int) -> bytes:
        page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 5 0 R /Resources << /Font << /F1 3 0 R >> %b >> >>"
        return pdf_of([
            b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [4 0 R] /Count 1 >>",
            b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>", page % resources,
            stream(content(size), entries), *(extra_objects or []),
        ])  # fmt: skip

    return generate


def _pdf() -> list[Generator]:
    import zlib

    deflate_filter = b"/Filter /FlateDecode"
    operators = ["(a) Tj ", "[(a) 1 (b)] TJ ", "q ", "Q ", "BT ", "ET ", "1 0 0 1 0 0 cm ", "0 0 Td ", "(", ")", "<", "<41> Tj ", "/F1 12 Tf ", "/X1 Do ", "[", "<<", "% a\n", "0 ", "T* ", "' ",
                 "BI ID EI ", "/a BDC ", "\\", "-", "/a "]  # fmt: skip
    text = b"BT /F1 12 Tf %b ET"
    catalog = b"<< /Type /Catalog /Pages 2 0 R >>"
    return [
        *(pdf_page(repeat(operator, "BT /F1 12 Tf ", " ET")) for operator in operators),
        pdf_page(lambda size: zlib.compress(text % (b"(a) Tj " * (size // 7))), deflate_filter),
        pdf_page(lambda size: zlib.compress(b"0" * size * 4), deflate_filter),
        pdf_page(lambda size: zlib.compress(zlib.compress(b"0" * size * 4)), b"/Filter [/FlateDecode /FlateDecode]"),
        pdf_page(lambda size: b"/X1 Do", extra_objects=[stream(b"/X1 Do /X1 Do", b"/Type /XObject /Subtype /Form /Resources << /XObject << /X1 6 0 R >> >>")], resources=b"/XObject << /X1 6 0 R >>"),
        lambda size: pdf_of([catalog, b"<< /Type /Pages /Kids [2 0 R] /Count 1 >>"]),
        lambda size: pdf_of([catalog, b"<< /Type /Pages /Kids [%b] /Count %d >>" % (b"3 0 R " * (size // 6), size // 6), b"<< /Type /Page /Parent 2 0 R >>"]),
        lambda size: pdf_of([catalog, b"<< /Type /Pages /Kids [] /Count 1000000000 >>"]),
        lambda size: pdf_of([b"<< /Type /Catalog /Pages %b 2 0 R %b >>" % (b"[" * (size // 2), b"]" * (size // 2))]),
        lambda size: pdf_of([catalog, b"<< " * (size // 3)]),
        lambda size: pdf_of([catalog, b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>", b"3 0 R"]),
        lambda size: pdf_of([catalog, b"<< /Type /Pages /Kids [] /Count 0 >>"], b"/Root 1 0 R /Prev 9"),
        lambda size: pdf_page(repeat("(a) Tj "))(size)[: size // 2],
        noise(9, b"%PDF-1.7\n"),
        lambda size: b"%PDF-1.7\n" + b"1 0 obj\n" * (size // 8),
        lambda size: b"%PDF-1.7\n" + b"startxref\n9\n%%EOF\n" * (size // 18),
        lambda size: pdf_of([catalog, b"<< /Type /Pages /Kids [] /Count 0 >>"], b"/Root 1 0 R /Info << /Title (%b) >>" % (b"t" * size)),
    ]  # fmt: skip


def xml_bodies(paragraph: str, cell: str, row: str, table: str) -> list[Generator]:
    """What may stand in the XML of an office document, by the format strings of its own elements."""
    short, long = paragraph.format("a"), paragraph.format("Some words that say something. " * 3)
    return [
        *(
            repeat(unit)
            for unit in (
                short, long, paragraph.format(""), paragraph.format("道岔"), cell.format(short), "<x/>", " ", "&amp;",
                "<!-- a -->", "<?a b?>", "<![CDATA[a]]>", row.format(cell.format(short)), row.format(""),
                table.format(row.format(cell.format(short) * 3)), table.format(""), paragraph.format("a" * 50_000),
                paragraph.format("&i;"), paragraph.format("<x>a</x>"), table.format(row.format(cell.format(long))),
                paragraph.format("&#x10FFFF;"), paragraph.format("7 "), paragraph.format("\u0301" * 50),
            )
        ),
        repeat(row.format(cell.format(short)), *table.split("{}")),
        repeat(row.format(cell.format(short) * 200), *table.split("{}")),
        repeat(cell.format(short), *table.format(row).split("{}")),
        nest(*paragraph.split("{}")),
        nest(*table.format(row.format(cell)).split("{}")),
        nest("<x>", "</x>"),
        nest("<x>"),
        number_each(lambda number: f"<x{number}/>"),
        number_each(lambda number: paragraph.format(f"Number {number}.")),
        number_each(lambda number: table.format(row.format(cell.format(paragraph.format(f"{number}"))))),
        lambda size: f"<x {attributes(size)}/>".encode(),
        lambda size: paragraph.format("a" * size).encode(),
    ]  # fmt: skip


def broken_zips(entry: str) -> list[Generator]:
    """Zip files that hold something else, or nothing, or far too much under this name."""
    return [
        lambda size: zip_of({entry: b"0" * size * 4}),
        lambda size: zip_of({entry: b"<x>" * (size // 3)}),
        lambda size: zip_of({entry: zip_of({"a": b"0" * size})}),
        lambda size: zip_of({f"a/{number}": b"" for number in range(min(size // 100, 60_000))} | {entry: b""}),
        lambda size: zip_of({entry: b"<x/>" * (size // 4)})[: size // 200],
        noise(8, b"PK\x03\x04" + entry.encode()),
    ]


def in_zip(
    entry: str, head: str, tail: str, bodies: list[Generator], entries: Mapping[str, str] | None = None
) -> list[Generator]:
    """Each body in this part of a zip file, with and without a document type that explodes."""

    def pack(body: Generator, doctype: str = "") -> Generator:
        return lambda size: zip_of({entry: (doctype + head).encode() + body(size) + tail.encode(), **(entries or {})})

    return [*map(pack, bodies), pack(bodies[16], LAUGHS), pack(bodies[16], EXTERNAL), *broken_zips(entry)]


def _xlsx() -> list[Generator]:
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    relationships = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    extra_entries = {
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{relationships}"><sheets><sheet name="A" r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        '<Relationship Id="r1" Target="worksheets/a.xml"/></Relationships>',
    }
    shared_strings = f'<sst xmlns="{main}">' + "<si><t>shared</t></si>" * 50 + "</sst>"
    bodies = xml_bodies(
        '<c t="inlineStr"><is><t>{}</t></is></c>', "{}", '<row r="4000000000">{}</row>', '<row r="1">{}</row>'
    )
    far_cell = repeat('<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>')
    strings = repeat('<row><c t="s"><v>49</v></c><c t="s"><v>99999999999</v></c></row>')
    dates = repeat('<row><c s="1"><v>45000.5</v></c><c><v>1e300</v></c><c><v>nan</v></c></row>')
    generators = in_zip("xl/worksheets/a.xml", f'<worksheet xmlns="{main}"><sheetData>', "</sheetData></worksheet>",
                  [*bodies, far_cell, strings, dates], extra_entries | {"xl/sharedStrings.xml": shared_strings})  # fmt: skip
    return [
        *generators,
        lambda size: zip_of(extra_entries | {"xl/sharedStrings.xml": b"<si><t>a</t></si>" * (size // 18)}),
    ]


def _pptx() -> list[Generator]:
    draw, main = (
        "http://schemas.openxmlformats.org/drawingml/2006/main",
        "http://schemas.openxmlformats.org/presentationml/2006/main",
    )
    relationships = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    relation = '<Relationship Id="r1" Target="slides/a.xml"/>'
    extra_entries = {
        "ppt/presentation.xml": f'<p xmlns="{main}" xmlns:r="{relationships}">' + '<sldId r:id="r1"/>' * 3 + "</p>",
        "ppt/_rels/presentation.xml.rels": '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        f"{relation}</Relationships>",
    }
    bodies = xml_bodies(
        "<a:p><a:r><a:t>{}</a:t></a:r></a:p>", "<a:tc>{}</a:tc>", "<a:tr>{}</a:tr>", "<a:tbl>{}</a:tbl>"
    )
    return in_zip("ppt/slides/a.xml", f'<p:sld xmlns:p="{main}" xmlns:a="{draw}">', "</p:sld>", bodies, extra_entries)


def _opendocument(kind: str) -> list[Generator]:
    names = " ".join(
        f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in ("office", "text", "table")
    )
    bodies = xml_bodies(
        "<text:p>{}</text:p>",
        '<table:table-cell table:number-columns-repeated="1000000000">{}</table:table-cell>',
        '<table:table-row table:number-rows-repeated="1000000000">{}</table:table-row>',
        "<table:table>{}</table:table>",
    )
    spaces = repeat('<text:p><text:s text:c="1000000000"/>a</text:p>')
    return in_zip("content.xml", f"<office:body {names}>", "</office:body>", [*bodies, spaces], {"x.odt": kind})


def _epub() -> list[Generator]:
    container = (
        '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfile full-path="b.opf"/></container>'
    )
    chapters = '<itemref idref="a"/>' * 50
    package = (
        f'<package xmlns="http://www.idpf.org/2007/opf"><item id="a" href="a.html"/><spine>{chapters}</spine></package>'
    )
    pages = [
        lambda size, page=page: zip_of({"META-INF/container.xml": container, "b.opf": package, "a.html": page(size)})
        for page in _html()
    ]
    items = "".join(
        f'<item id="c{number}" href="a{number}.html"/><itemref idref="c{number}"/>' for number in range(5000)
    )
    return [
        *pages,
        lambda size: zip_of(
            {
                "META-INF/container.xml": container,
                "b.opf": f'<package xmlns="http://www.idpf.org/2007/opf">{items}</package>',
            }
        ),
        *broken_zips("META-INF/container.xml"),
    ]


def _mail() -> list[Generator]:
    head = "Subject: a\nMIME-Version: 1.0\n"
    multipart = head + "Content-Type: multipart/mixed; boundary=b\n\n"
    text_section = "--b\nContent-Type: text/plain\n\nSome text.\n"
    attachment = '--b\nContent-Disposition: attachment; filename="a.{}"\nContent-Transfer-Encoding: {}\n\n{}\n'
    units = ["a: b\n", "Subject: a\n", "To: a@b.c, \n ", "a", " ", "\n", ":", "=?utf-8?b?YQ==?= ", "=?x?q?a?=", "--b\n", "(", '"', "<", "@", ",", "=", "\x00", "From a\n"]  # fmt: skip
    return [
        *(repeat(unit, head + "To: ") for unit in units[2:]),
        *(repeat(unit) for unit in units[:4]),
        repeat("Some words here. ", head + "\n"),
        repeat("=41=0A", head + "Content-Transfer-Encoding: quoted-printable\n\n"),
        repeat("YWJj\n", head + "Content-Transfer-Encoding: base64\n\n"),
        repeat("YWJj", head + "Content-Transfer-Encoding: base64\n\n"),
        repeat("M86%B8V%B8V%B8V%B\n", head + "Content-Transfer-Encoding: x-uuencode\n\nbegin 644 a\n"),
        repeat(text_section, multipart),
        repeat(attachment.format("txt", "7bit", "Attached."), multipart),
        repeat(attachment.format("eml", "7bit", "Subject: x\n\ny"), multipart),
        repeat(attachment.format("json", "7bit", "[[[[1]]]]"), multipart),
        repeat(attachment.format("docx", "base64", "UEsDBA=="), multipart),
        repeat("Content-Type: message/rfc822\n\n", head),
        number_each(lambda number: f"Content-Type: multipart/mixed; boundary=b{number}\n\n--b{number}\n", head),
        number_each(
            lambda number: f"--b\nContent-Type: multipart/alternative; boundary=c{number}\n\n--c{number}\n\nx\n",
            multipart,
        ),
        repeat("<p>", head + "Content-Type: text/html\n\n"),
        repeat("<div>", head + "Content-Type: text/html\n\n"),
        repeat("a", head + "Content-Type: text/plain; charset=idna\n\n"),
        repeat("+AGE-", head + "Content-Type: text/plain; charset=utf-7\n\n"),
        lambda size: (head + "Date: " + "1" * size + "\n\nx").encode(),
        lambda size: (head.replace("a", "s" * (size // 2)) + "\n" + words(size // 2)).encode(),
        lambda size: (head + f"From: {'f' * (size // 2)}\n\n" + words(size // 2)).encode(),
        lambda size: (multipart + attachment.format("n" * (size // 2), "7bit", words(size // 2))).encode(),
        noise(11, b"Subject: x\n\n"),
    ]


def _notebook() -> list[Generator]:
    cells = ['{"cell_type":"markdown","source":"# a"},', '{"cell_type":"code","source":"a","outputs":[]},', "1,", "null,", "{},", "[],",
             '{"source":["a","b"]},', '{"source":1},', '{"cell_type":"code","outputs":[{"text":["x"]}]},', '{"cell_type":"code","outputs":1},',
             '{"outputs":[{"data":{"text/plain":"y"}},1]},', '{"cell_type":"markdown","source":["> ","- "]},', '{"source":"\\ud800"},']  # fmt: skip
    return [
        *(repeat(cell, '{"cells":[', "{}]}") for cell in cells),
        *(
            lambda size, page=page: json.dumps(
                {"cells": [{"cell_type": "markdown", "source": page(size).decode()}]}
            ).encode()
            for page in _markdown()[:20]
        ),
        lambda size: json.dumps(
            {"cells": [{"cell_type": "code", "source": "a", "outputs": [{"text": "x" * size}]}]}
        ).encode(),
        lambda size: json.dumps({"cells": [{"cell_type": "code", "source": "a" * size}]}).encode(),
        lambda size: json.dumps({"cells": [{"cell_type": "code", "source": ["a\n"] * (size // 8)}]}).encode(),
        lambda size: json.dumps(
            {"worksheets": [{"cells": [{"input": "a", "cell_type": "code"}] * (size // 40)}]}
        ).encode(),
        nest('{"cells":[', "]}"),
        nest("[", "]"),
        noise(12, b'{"cells":['),
    ]


def _archive() -> list[Generator]:
    """Hostile files of other formats in an archive, and archives that are hostile themselves."""

    def in_archive(kind: str, generate: Generator) -> Generator:
        return lambda size: zip_of({f"a.{kind}": generate(size)})

    def archives_in_archives(depth: int) -> Generator:
        def generate(size: int) -> bytes:
            content = zip_of({"a.txt": words(size)})
            for _ in range(depth):
                content = zip_of({"a.zip": content, "b.zip": content})
            return content

        return generate

    def files(name: str, content: str) -> Generator:
        return lambda size: zip_of({name.format(number): content for number in range(size // (len(content) + 100))})

    generators = [in_archive(kind, generate) for kind, formats in HOSTILE.items() for generate in formats[5:40:15]]
    return [
        *generators,
        *(archives_in_archives(depth) for depth in range(1, 6)),
        files("{}.txt", "Some words."),
        files("{}.bin", "\x00\x01\x02"),
        files("{}/" + "n" * 1000 + ".txt", "Some words."),
        files("{}.eml", "Subject: a\n\nSome words."),
        files("{}.csv", "a,b\n1,2\n"),
        lambda size: zip_of({f"{'d/' * 100}{number}.md": "# a\n\nb" for number in range(size // 400)}),
        lambda size: zip_of({"zeros.txt": bytes(100 * size), "more.txt": bytes(100 * size)}),
    ]


HOSTILE: dict[str, list[Generator]] = {
    "txt": _text(),
    "md": _markdown(),
    "rst": _restructured_text(),
    "html": _html(),
    "py": _code(),
    "json": _json(),
    "jsonl": _json_lines(),
    "csv": _csv(),
    "docx": _docx(),
    "pdf": _pdf(),
    "xlsx": _xlsx(),
    "pptx": _pptx(),
    "odt": _opendocument("odt"),
    "ods": _opendocument("ods"),
    "epub": _epub(),
    "eml": _mail(),
    "ipynb": _notebook(),
}
"""At least 40 generators for each format, by its ending."""

HOSTILE["zip"] = _archive()
