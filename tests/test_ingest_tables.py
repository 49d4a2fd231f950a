"""Tables in text, HTML and Markdown: each value under the header, on the line, that a reader sees it under and on."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from pointsman.ingest import ParsedDocument, Problem, chunk, convert
from pointsman.ingest.converters.typed_columns import column_notations
from pointsman.tools.errors import InputError


def sources(name: str, text: str | bytes) -> list[ParsedDocument]:
    items = convert(name, text.encode() if isinstance(text, str) else text)
    return [item for item in items if isinstance(item, ParsedDocument)]


def texts_and_lines(name: str, text: str) -> list[tuple[str, int]]:
    return [(source.text, source.lines[0].first) for source in sources(name, text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Teil, Maß;Preis, EUR\nBolzen, 5 mm;1,20\nMutter;0,35\n", [
            ("Teil, Maß: Bolzen, 5 mm\nPreis, EUR: 1,20", 2), ("Teil, Maß: Mutter\nPreis, EUR: 0,35", 3)
        ]),
        ("站\t里程\n哈尔滨\t1,249\n长春\t1,003\n", [("站: 哈尔滨\n里程: 1,249", 2), ("站: 长春\n里程: 1,003", 3)]),
        ("депо|план, шт.\nТверь|1,5\nКлин|2\n", [("депо: Тверь\nплан, шт.: 1,5", 2), ("депо: Клин\nплан, шт.: 2", 3)]),
        ('a,"b;c",d\n1,"2;3",4\n', [("a: 1\nb;c: 2;3\nd: 4", 2)]),
        ("sep=|\nrail|mass\nUIC60|60,2\n", [("rail: UIC60\nmass: 60,2", 3)]),
        ("SEP=;\nимя;цена\nболт;1,5\n", [("имя: болт\nцена: 1,5", 3)]),
        ("word\nodin\ndva\n", [("word: odin", 2), ("word: dva", 3)]),
    ],
)  # fmt: skip
def test_what_separates_cells_is_told_from_all_rows(text: str, expected: list[tuple[str, int]]) -> None:
    assert texts_and_lines("a.csv", text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("库存报告\n打印于 2026-03-01\n\n零件,数量,价格\n道岔,3,900\n", [
            ("库存报告\n打印于 2026-03-01", 1), ("零件: 道岔\n数量: 3\n价格: 900", 5)
        ]),
        ("Отчёт;;;\nболт;вес;цена;склад\nМ8;5;7;Клин\nМ9;6;8;Тверь\n", [
            ("Отчёт", 1), ("болт: М8\nвес: 5\nцена: 7\nсклад: Клин", 3),
            ("болт: М9\nвес: 6\nцена: 8\nсклад: Тверь", 4)
        ]),
        ("Report,Sales\nid,name,qty,price\n7,bolt,1,2\n", [
            ("Report | Sales", 1), ("id: 7\nname: bolt\nqty: 1\nprice: 2", 3)
        ]),
        (",value\nbolt,3\nnut,4\n", [("bolt\nvalue: 3", 2), ("nut\nvalue: 4", 3)]),
    ],
)  # fmt: skip
def test_titles_above_the_header_are_text_and_no_names(text: str, expected: list[tuple[str, int]]) -> None:
    assert texts_and_lines("a.csv", text) == expected


@pytest.mark.parametrize(
    "rows",
    [
        ["болт;120;Клин", "гайка;3;Тверь"],
        ["anna@example.org,Anna", "bob@example.org,Bob", "wei@example.org,Wei"],
        ["01.02.2026,Поезд 7", "02.02.2026,Поезд 9"],
        ["A-17\tdepot", "B-4\tyard"],
        ["1.5,2.5,bolt", "3,4.25,nut"],
    ],
)
def test_a_first_row_of_values_is_a_row(rows: list[str]) -> None:
    separator = max(";\t,", key=rows[0].count)
    cells = [" | ".join(row.split(separator)) for row in rows]
    assert texts_and_lines("a.csv", "\n".join(rows)) == [("\n".join(cells), 1)]


def test_rows_of_codes_without_a_header_are_packed_and_know_their_lines() -> None:
    rows = [f"INV-{number},https://example.org/{number},{number}.50" for number in range(1000, 1200)]
    [source] = sources("codes.csv", "\n".join([*rows[:100], "", *rows[100:]]))
    passages = chunk(source, max_tokens=128, overlap=0)
    assert 10 < len(passages) < 60
    lines = [line for passage in passages for line in passage.text.split("\n")]
    assert lines == [row.replace(",", " | ") for row in rows]
    for passage in passages:
        first, *_, last = passage.text.split("\n")
        places = [1 + rows.index(row.replace(" | ", ",")) for row in (first, last)]
        expected = [place + (place > 100) for place in places]
        assert [passage.metadata["line"], passage.metadata.get("last_line", passage.metadata["line"])] == expected


def test_a_row_on_several_lines_is_one_line_of_a_list() -> None:
    [source] = sources("codes.csv", 'A-1,"x\n7",1\nB-2,y 8,2\nC-3,z 9,3\n')
    assert source.text == "A-1 | x 7 | 1\nB-2 | y 8 | 2\nC-3 | z 9 | 3"
    assert [(lines.first, lines.last) for lines in source.lines] == [(1, 2), (3, 4)]


@pytest.mark.parametrize(
    "sentence",
    ["The pump leaks when it is cold.", "Насос течёт, когда на улице холодно", "水泵在寒冷的天气里会漏水，需要更换"],
)
def test_rows_that_hold_a_sentence_stand_alone(sentence: str) -> None:
    rows = [f'P-{number};{number};"{sentence}"' for number in range(10, 15)]
    expected = [(f"P-{number} | {number} | {sentence}", line) for line, number in enumerate(range(10, 15), 1)]
    assert texts_and_lines("a.csv", "\n".join(rows)) == expected


def test_rows_under_a_header_are_records_however_short() -> None:
    assert texts_and_lines("a.csv", "code,link\nA-1,https://a.example/1\nB-2,https://a.example/2\n") == [
        ("code: A-1\nlink: https://a.example/1", 2), ("code: B-2\nlink: https://a.example/2", 3)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("region,2024,2025\nNorth,120,130\nSouth,7,9\n", "region: North\n2024: 120\n2025: 130"),
        ("pupil,1,2,3\nAnna,5,4,3\nBob,2,2,1\n", "pupil: Anna\n1: 5\n2: 4\n3: 3"),
        ("город,страна\nКлин,Россия\nХарбин,Китай\n", "город: Клин\nстрана: Россия"),
        ("item,Q1,Q2\nbolt,3,4\n", "item: bolt\nQ1: 3\nQ2: 4"),
        ("bolt,12\n", None),
    ],
)
def test_a_first_row_of_names_is_the_header(text: str, first: str | None) -> None:
    if first is None:
        with pytest.raises(ValueError, match="without rows below its header"):
            sources("a.csv", text)
    else:
        assert sources("a.csv", text)[0].text == first


@pytest.mark.parametrize("mark", ["\u2028", "\u2029"])
@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.csv", "имя,число\nодин{}два,1\nthird,2\n", 3),
        ("a.jsonl", '{{"text": "один{}два"}}\n{{"text": "third"}}\n', 2),
        ("a.py", 'x = "один{}два"\n\nthird = 1\n', 3),
    ],
)
def test_a_line_goes_on_over_unicode_separators(name: str, text: str, line: int, mark: str) -> None:
    lines = {
        number: words
        for source in sources(name, text.format(mark))
        for number, words in enumerate(source.text.split("\n"), source.lines[0].first)
    }
    assert any("один два" in words for words in lines.values())
    assert "third" in lines[line]


def test_false_and_true_are_values() -> None:
    (source,) = sources("a.json", '{"стрелка": "14", "заперта": false, "flags": [true, null, 3]}')
    assert source.text == "стрелка: 14\nзаперта: false\nflags: true, 3"


def test_cells_of_html_that_span_rows_and_columns() -> None:
    page = (
        "<table><caption>Вес по годам</caption>\n<tr><th>Депо<th colspan=2>План<th>Факт</tr>\n"
        "<tr><td rowspan=2>Клин<td>1<td>2<td>3</tr>\n<tr><td>4<td>5<td>6</tr>\n"
        "<tr><td rowspan=2 colspan=2>合计<td>7<td>8</tr>\n<tr><td>9<td>10</tr></table>"
    )
    (source,) = sources("a.html", page)
    assert source.text == (
        "Вес по годам\n\nДепо | План |  | Факт\nКлин | 1 | 2 | 3\nКлин | 4 | 5 | 6\n合计 |  | 7 | 8\n合计 |  | 9 | 10"
    )


@pytest.mark.parametrize(
    "page",
    [
        "<table><tr><td><h1>План</h1></td><td>меню</td></tr><tr><td><p>Первый.</p><p>Второй.</p><td>x</table>",
        "<table role=presentation><tr><td><p>Первый.</p></td><td>b</td></tr><tr><td><p>Второй.</p><td>d</table>",
        "<table><tr><td><table><tr><td>a<td>b</table><p>Первый.</p></td><td>c</td></tr><tr><td><p>Второй.</p><td>e</table>",
    ],
)  # fmt: skip
def test_a_table_that_arranges_a_page_is_running_text(page: str) -> None:
    (source,) = sources("a.html", page)
    assert "|" not in source.text
    assert {"Первый.", "Второй."} <= set(source.text.replace("  ", "\n").splitlines())


@pytest.mark.parametrize("kind", ["html", "md"])
def test_each_passage_of_a_long_table_has_its_header_and_the_lines_of_its_rows(kind: str) -> None:
    rows = [(f"деталь номер {number}", f"{number} руб.") for number in range(100)]
    if kind == "html":
        lines = ["<table>", "<tr><th>Название</th><th>Цена без НДС</th></tr>"]
        lines += [f"<tr><td>{name}</td><td>{price}</td></tr>" for name, price in rows]
        lines.append("</table>")
    else:
        lines = ["| Название | Цена без НДС |", "|---|---|", *(f"| {name} | {price} |" for name, price in rows)]
    (source,) = sources(f"a.{kind}", "\n".join(lines))
    passages = chunk(source)
    assert len(passages) > 4
    for passage in passages:
        assert "Название | Цена без НДС" in passage.text
        first, last = passage.metadata["line"], passage.metadata.get("last_line", passage.metadata["line"])
        cited_lines = "\n".join(lines[first - 1 : last])
        cells = [line.split(" | ") for line in passage.text.splitlines() if line.startswith("деталь")]
        assert all(name in cited_lines and price in cited_lines for name, price in cells)
    assert sum(passage.text.count("деталь") for passage in passages) == 100


def test_a_cell_that_spans_a_whole_long_table_is_not_stored_with_each_row() -> None:
    cells = "".join(f"<td rowspan=0>{'слово ' * 100}" for _ in range(50))
    document: Any = sources("a.html", f"<table><tr>{cells}<td>x</tr>" + "<tr><td>y</tr>" * 5000)[0]
    assert len(document.text) < 400_000
    assert document.text.count("y") == 5000


def records_and_lines(name: str, text: str) -> list[tuple[str, int, int]]:
    """Return the words and the first and last line of each record."""
    sources = [item for item in convert(name, text.encode()) if isinstance(item, ParsedDocument)]
    passages = [passage for source in sources for passage in chunk(source)]
    return [
        (passage.text, passage.metadata["line"], passage.metadata.get("last_line", passage.metadata["line"]))
        for passage in passages
    ]


@pytest.mark.parametrize(
    "value",
    [{"part": "frog"}, {"part": {"name": "frog", "parts": [{"n": "tip"}, {"n": "heel"}]}}, {"tags": ["x", "y"]}],
)
@pytest.mark.parametrize("indent", [None, 0, 2])
@pytest.mark.parametrize("words", ["stroke", "стрелка", '道岔 \u2028 \\ " [ { ,'])
def test_a_record_of_a_json_list_has_the_lines_on_which_it_stands(
    value: dict[str, Any], indent: int | None, words: str
) -> None:
    records = [{"words": f"{words} {number}", **value} for number in range(4)]
    text = json.dumps(records, indent=indent, ensure_ascii=False)
    lines = text.split("\n")
    records_read = records_and_lines("a.json", text)
    assert len(records_read) == 4
    for number, (_, first, last) in enumerate(records_read):
        excerpt = "\n".join(lines[first - 1 : last])
        assert json.dumps(f"{words} {number}", ensure_ascii=False) in excerpt
        if indent is not None:
            assert json.loads(excerpt.strip().rstrip(",")) == records[number]


@pytest.mark.parametrize(
    ("text", "surroundings"),
    [
        ('{{"name": "Анна", "id": 1, "messages": {0}, "total": 3}}', "name: Анна\nid: 1\ntotal: 3"),
        ('{{"状态": "好", "response": {{"page": {{"no": 7, "docs": {0}}}}}}}', "状态: 好\nresponse › page › no: 7"),
        ('{{"type": "FeatureCollection", "features":\n\n  {0}\n}}', "type: FeatureCollection"),
        ('{{"next": null, "results": {0}}}', None),
        ('{{"items": [{{"text": "replaced"}}, {{}}], "items": {0}}}', None),
        ("{0}", None),
    ],
)
@pytest.mark.parametrize("indent", [None, 1])
def test_records_in_an_object_are_read_one_by_one(text: str, surroundings: str | None, indent: int | None) -> None:
    """Exports of chats, answers of services, GeoJSON: a record is not all that is in the file."""
    records = [
        {"id": n, "from": sender, "text": f"the night tram {n} is late"}
        for n, sender in enumerate(("Ann", "Боб", "甲"))
    ]
    is_corpus = text == "{0}"  # a corpus: fields have names that say what they are
    text = text.format(json.dumps(records, indent=indent, ensure_ascii=False))
    documents = sources("a.json", text)
    if surroundings is not None:
        first = documents.pop(0)
        assert (first.text, first.record_id, "record" in first.metadata) == (surroundings, None, False)
        assert (first.lines[0].first, first.lines[0].last) == (1, text.count("\n") + 1)
    whole_texts = ["id: {id}\nfrom: {from}\ntext: {text}".format(**record) for record in records]
    assert [document.text for document in documents] == (
        [record["text"] for record in records] if is_corpus else whole_texts
    )
    assert [document.metadata["record"] for document in documents] == [1, 2, 3]
    assert [document.metadata["from"] for document in documents] == ["Ann", "Боб", "甲"]
    for document, record in zip(documents, records, strict=True):
        (lines,) = document.lines
        excerpt = "\n".join(text.split("\n")[lines.first - 1 : lines.last])
        assert str(record["text"]) in excerpt
        assert indent is None or json.loads(excerpt[excerpt.index("{") : excerpt.rindex("}") + 1]) == record


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('["See the README.",\n {"part": "frog"},\n {"part": "heel"}]', [
            ("See the README.", 1), ("part: frog", 2), ("part: heel", 3)
        ]),
        ('[{"部件": "辙叉"},\n null,\n {"部件": "跟端"}]', [("部件: 辙叉", 1), ("部件: 跟端", 3)]),
        ('["Стрелки зимой обогреваются током из сети.",\n "Трамваи ходят ночью по пятницам и субботам."]', [
            ("Стрелки зимой обогреваются током из сети.", 1), ("Трамваи ходят ночью по пятницам и субботам.", 2)
        ]),
        ('["frog", "heel",\n "toe"]', [("frog, heel, toe", 1)]),
        ('{"name": "pkg", "needs": {"a": "1.0.1", "b": "2.3.4"}, "authors": [{"name": "A"},\n {"name": "B"}]}', [
            ("name: pkg\nneeds › a: 1.0.1\nneeds › b: 2.3.4\nauthors › name: A\nauthors › name: B", 1)
        ]),
        ('{"order": [{"id": 7, "lines": [{"part": "frog"},\n {"part": "heel"}]}]}', [
            ("order › id: 7\norder › lines › part: frog\norder › lines › part: heel", 1)
        ]),
    ],
)  # fmt: skip
def test_what_a_list_in_json_holds_most_says_what_a_record_is(text: str, expected: list[tuple[str, int]]) -> None:
    assert texts_and_lines("a.json", text) == expected


@pytest.mark.parametrize(
    ("endings", "text"),
    [
        (("geojson", "jsonld", "har"), '{"features": [{"名称": "站 0"}, {"名称": "站 1"}]}'),
        (("jsonlines", "geojsonl", "ndjson"), '{"名称": "站 0"}\n{"名称": "站 1"}\n'),
    ],
)
def test_other_names_of_json_are_known(endings: tuple[str, ...], text: str) -> None:
    for ending in endings:
        assert [document.text for document in sources(f"a.{ending}", text)] == ["名称: 站 0", "名称: 站 1"]


@pytest.mark.parametrize("noise", ['{"a":', '{"a":[', '{"a": {"b": "x"}, "c":'])
def test_objects_within_objects_cost_time_in_proportion(noise: str) -> None:
    depth = 400
    closing = "".join("]" if bracket == "[" else "}" for bracket in reversed(noise) if bracket in "[{")
    ends = closing if closing.count("}") == 1 else "}"
    text = noise * depth + json.dumps([1] * 500_000) + ends * depth
    start = time.thread_time()
    assert len(sources("a.json", text)) <= 2
    assert time.thread_time() - start < 6  # some .3 s; if each level were read anew, twenty


@pytest.mark.parametrize(
    "text",
    [
        *("[]", "[1, 2]", "{}", '[{"a": 1}, 2]', '[{"a": 1}] x'),
        *('[{"a": 1} {"a": 2}]', '[{"a": 1}', "[[[["),
    ],
)
def test_what_is_no_list_of_records_is_read_or_refused_as_json_says(text: str) -> None:
    try:
        json.loads(text)
    except ValueError:
        with pytest.raises(InputError, match="not JSON"):
            list(convert("a.json", text.encode()))
    else:
        assert len(list(convert("a.json", text.encode()))) == 1


@pytest.mark.parametrize(
    ("name", "text", "texts"),
    [
        (
            "tsconfig.json",
            '{\n  // Ziel\n  "strict": true, /* ein\nKommentar, */\n  "url": "http://a/*b*/",\n}',
            ["strict: true\nurl: http://a/*b*/"],
        ),
        (
            "настройки.jsonc",
            '[{"имя": "a // b, ]"}, // первый\n {"имя": "\\"в\\", }"},\n]\n',
            ["имя: a // b, ]", 'имя: "в", }'],
        ),
        ("表.json", '// 泵\n[{"泵": "甲",}, {"泵": "乙"} /* 未完', None),
    ],
)
def test_json_with_comments_and_commas_at_the_end(name: str, text: str, texts: list[str] | None) -> None:
    if texts is None:
        with pytest.raises(InputError, match="not JSON"):
            list(convert(name, text.encode()))
    else:
        assert [source.text for source in sources(name, text)] == texts


@pytest.mark.parametrize("noise", ['"\\', '"', "//", "/*", "/* */", ",", ", ", '",\n', "\\"])
def test_broken_json_costs_time_in_proportion(noise: str) -> None:
    with pytest.raises(InputError, match="not JSON"):
        list(convert("a.json", b"[" + noise.encode() * 50_000))


def test_records_that_share_a_line_have_that_line() -> None:
    text = '{"a": "frog"}\n[{"a": "clip"}, {"a": "lever"}]\n{"a": "tip"} {"a": "heel"}\n{"a": "bolt"}\n'
    records_read = records_and_lines("a.jsonl", text)
    assert records_read == [
        *(("a: frog", 1, 1), ("a: clip", 2, 2), ("a: lever", 2, 2)),
        *(("a: tip", 3, 3), ("a: heel", 3, 3), ("a: bolt", 4, 4)),
    ]


@pytest.mark.parametrize("line", ["7", '"word"', "[1, 2]", '{"a": 1} x', "{", '[{"a": 1}, 2]'])
def test_a_line_that_is_no_record_is_told(line: str) -> None:
    items = list(convert("a.jsonl", f'{{"a": "frog"}}\n{line}\n'.encode()))
    problems = [item.reason for item in items if isinstance(item, Problem)]
    assert len(problems) == 1
    assert problems[0].startswith("line 2: ")


@pytest.mark.parametrize(
    "sentence",
    [
        "The lever locks the points after dusk.",
        "Рычаг запирает стрелку после заката.",
        "手柄在日落之后锁住道岔，信号机显示红灯，列车停下。",
    ],
)
def test_a_first_row_that_holds_a_sentence_is_not_repeated_as_a_header(sentence: str) -> None:
    """K4: its words would be cited where they do not stand; a header is repeated."""
    rows = "".join(f"<tr><td>{number}</td><td>{sentence[:-1]} {number}{sentence[-1]}</td></tr>" for number in range(40))
    for header, is_repeated in (("", False), ("<tr><th>n</th><th>sentence</th></tr>", True)):
        passages = chunk(sources("a.html", f"<table>{header}{rows}</table>")[0])
        first_line = passages[0].text.split("\n")[0]
        assert len(passages) > 2
        assert sum(first_line in passage.text for passage in passages) == (len(passages) if is_repeated else 1)


class TestTypedColumns:
    def fields(self, text: str, name: str) -> list[Any]:
        return [source.metadata.get(name) for source in sources("a.csv", text)]

    def remarks(self, text: str) -> str:
        return "; ".join(item.reason for item in convert("a.csv", text.encode()) if isinstance(item, Problem))

    @pytest.mark.parametrize(
        ("cells", "values"),
        [
            (["1.299", "17,50", "0"], [1299, 17.5, 0]),
            (["1.299", "17.50", "-3"], [1.299, 17.5, -3]),
            (["1,299", "12,345.5"], [1299, 12345.5]),
            (["1 299", "1.000.000", "2,5"], [1299, 1000000, 2.5]),
            (["05/06/2024", "23/06/2024"], ["2024-06-05", "2024-06-23"]),
            (["05/06/2024", "06/23/2024"], ["2024-05-06", "2024-06-23"]),
            (["5.6.2024", "25.10.2024"], ["2024-06-05", "2024-10-25"]),
            (["2020", "", "2024"], [2020, None, 2024]),
            (["123456789012345678", "1"], [123456789012345678, 1]),
            (["1.299", "2.400"], ["1.299", "2.400"]),
            (["05/06/2024", "07/08/2024"], ["05/06/2024", "07/08/2024"]),
            (["01067", "10115"], ["01067", "10115"]),
            (["1.5", "unknown"], ["1.5", "unknown"]),
            (["1,50 €", "2,50 €"], ["1,50 €", "2,50 €"]),
            (["13/13/2024", "1/2/2024"], ["13/13/2024", "1/2/2024"]),
        ],
    )
    def test_all_rows_tell_what_a_cell_is(self, cells: list[str], values: list[Any]) -> None:
        text = "part;value\n" + "".join(f"part {n};{cell}\n" for n, cell in enumerate(cells))
        assert self.fields(text, "value") == values
        assert sources("a.csv", text)[0].text == f"part: part 0\nvalue: {cells[0]}"
        assert list(map(type, self.fields(text, "value"))) == list(map(type, values))

    @pytest.mark.parametrize(
        ("cells", "remark"),
        [
            (["1.299", "17,50"], "'value': 1.299 is 1299, as other rows have a comma before decimals"),
            (["05/06/2024", "23/06/2024"], "'value': 05/06/2024 is 2024-06-05, as other rows have the day first"),
            (["1.299"], "'value': 1.299 is 1.299 or 1299, which no row tells, so the column stays text"),
            (["17.5", "2"], ""),
            (["1.299", "unknown"], ""),
        ],
    )
    def test_what_was_read_is_said(self, cells: list[str], remark: str) -> None:
        text = "part;value\n" + "".join(f"part {n};{cell}\n" for n, cell in enumerate(cells))
        assert self.remarks(text) == remark

    def test_a_later_cell_that_does_not_fit_stays_text(self) -> None:
        text = "part;value\n" + "".join(f"part {n};{n},5\n" for n in range(8000)) + "last;1.5\n"
        assert self.fields(text, "value")[-2:] == [7999.5, "1.5"]

    def test_many_columns_and_many_rows_take_linear_time(self) -> None:
        header, rows = ["price"] * 15_000, [["1"]] * 15_000
        assert column_notations(header, rows)[0] == {"price": "a point before decimals"}

    def test_cells_without_a_name_take_linear_time(self) -> None:
        cells = [f"code-{number:012}" for number in range(200_000)]  # copied again for each cell: 500 GB
        (row,) = sources("t.csv", "name,size\n" + ",".join(cells) + "\n")
        assert row.text.splitlines() == [f"name: {cells[0]}", f"size: {cells[1]}", *cells[2:]]
