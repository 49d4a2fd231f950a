"""Web pages, light markup, mail and XML: what a reader sees stands in the text, and no markup does."""

from __future__ import annotations

import io
import json
import re
import time

import pytest
from pptx import Presentation

from pointsman.ingest import ParsedDocument, Problem, convert
from pointsman.tools.errors import InputError


def documents(name: str, data: str | bytes) -> list[ParsedDocument]:
    items = convert(name, data.encode() if isinstance(data, str) else data)
    return [item for item in items if isinstance(item, ParsedDocument)]


def text_of_file(name: str, data: str | bytes) -> str:
    return "\n\n".join(document.text for document in documents(name, data))


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<h2><button>Как смазать стрелку?</button></h2><p>Графитом.</p>", "Как смазать стрелку?\n\nГрафитом."),
        ("<details><summary>问题</summary>答案</details>", "问题\n\n答案"),
        ("<p>Vor<img src=x alt='Plan des Bahnhofs'>nach</p>", "Vor Plan des Bahnhofs nach"),
        ("<p>a</p><noscript>Цена: 40</noscript>", "a\n\nЦена: 40"),
        ("<svg><title>t</title><text>10</text><text>Druck <tspan>bar</tspan></text></svg>", "t\n\n10\n\nDruck bar"),
        ("<select><option>пар<option>дизель</select>", "пар дизель"),
        ("<input value=Клин><input type=hidden value=x><input type=submit value=Найти>", "Клин Найти"),
        ("<ol start=3><li>a<li><p>b</p><ol><li>c</ol><li value=9>d</ol>", "3. a\n\n4. b\n\n1. c\n\n9. d"),
        ("<ol type=a><li>x</ol><ul><li>y</ul>", "a. x\n\ny"),
        ("<ol type=A start=26><li>Клин<li>Тверь</ol>", "Z. Клин\n\nТверь"),
        ("<ol type=I><li>道岔<li value=4>信号<ol type=i><li>灯</ol></ol>", "I. 道岔\n\nIV. 信号\n\ni. 灯"),
        ("<ol reversed><li>c<li>b<ul><li>x</ul><li>a</ol>", "3. c\n\n2. b\n\nx\n\n1. a"),
        ("<ol type=a start=0><li>a<li>b</ol>", "0. a\n\na. b"),
        ("<article>Text<footer>von Anna</footer></article><footer>Impressum</footer>", "Text\n\nvon Anna"),
    ],
)
def test_what_a_page_shows(page: str, text: str) -> None:
    assert text_of_file("a.html", f"<body>{page}</body>") == text


MATH = '<math xmlns="http://www.w3.org/1998/Math/MathML">{}</math>'
ENERGY = (
    "<semantics><mrow><mi>E</mi><mo>=</mo><mi>m</mi><msup><mi>c</mi><mn>2</mn></msup></mrow><annotation "
    'encoding="application/x-tex">E=mc^{2}</annotation><annotation-xml><apply><eq/><ci>E</ci></apply></annotation-xml></semantics>'
)


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        (ENERGY, "E=mc^2"),
        ("<mfrac><mrow><mi>a</mi><mo>+</mo><mi>b</mi></mrow><mn>2</mn></mfrac>", "(a+b)/2"),
        (
            "<munderover><mo>∑</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi></munderover><msub><mi>x</mi><mi>i</mi></msub>",
            "∑_(i=1)^n x_i",
        ),
        ("<mroot><mrow><mi>a</mi><mo>-</mo><mi>b</mi></mrow><mn>3</mn></mroot>", "√[3](a-b)"),
        ("<msqrt><mi>c</mi></msqrt>", "√c"),
        ("<mi>скорость</mi><mo>=</mo><mfrac><mi>путь</mi><mi>время</mi></mfrac>", "скорость=путь/время"),
        ("<mi>票价</mi><mo>×</mo><mn>1.5</mn>", "票价×1.5"),
        ("<mi>sin</mi><mo>\u2061</mo><mi>x</mi><mi>max</mi><mn>3</mn>\n", "sin x max 3"),
        ("<mn>2</mn><mo>\u2062</mo><mi>y</mi>", "2y"),
        ("<mtable><mtr><mtd><mn>1</mn></mtd><mtd>0</mtd></mtr><mtr><mtd><mn>2</mn></mtd></mtr></mtable>", "1 0; 2"),
        ("<msup><mi>f</mi><mo>′</mo></msup>", "f′"),
        ("<mfenced><mover><mi>x</mi><mo>¯</mo></mover><mi>y</mi></mfenced>", "(x¯, y)"),
        ("<mtext>if <b>much</b> rain</mtext><mspace/><msup/>", "if much rain"),
        ("<msup><mi>ℂ</mi><mrow/></msup><mo>∋</mo><mi>x</mi><mtext>\xa0при\xa0</mtext><mn>2</mn>", "ℂ∋x при 2"),
        ("<msub><mrow><mo>[</mo><mi>A</mi><mo>]</mo></mrow><mi>i</mi></msub>", "[A]_i"),
    ],
)  # fmt: skip
def test_a_formula_in_mathml_is_one_line_of_a_page_an_article_and_a_document(formula: str, text: str) -> None:
    math = MATH.format(formula)
    assert text_of_file("a.html", f"<p>So {math}, as told.</p>") == f"So {text}, as told."
    prefixed = re.sub(r"<(/?)(?=[am])(?!and)", r"<\1m:", math).replace("<m:math ", '<m:math xmlns:m="x" ')
    assert text_of_file("a.xhtml", f"<p>So {prefixed}, as told.</p>") == f"So {text}, as told."
    article = (
        f"<article><p>So <alternatives><tex-math>\\begin{{x}}</tex-math>{math}</alternatives>, as told.</p></article>"
    )
    assert text_of_file("a.xml", article) == f"So {text}, as told."


def test_many_formulas_side_by_side_are_read_in_linear_time() -> None:
    start = time.thread_time()
    assert text_of_file("a.html", f"<p>{MATH.format('<mi>x</mi>') * 4_000}</p>") == "x" * 4_000
    assert time.thread_time() - start < 3


@pytest.mark.parametrize(
    "page",
    [
        '<span class="katex"><span>{}</span><span aria-hidden="true"><b>E</b>=<b>mc2</b></span></span>',
        '<span class="mwe-math"><span style="display:none">{}</span><img aria-hidden="true" alt="{{E=mc^2}}"></span>',
        '<span><nobr aria-hidden="true">E=mc2</nobr><span>{}</span></span><script type="math/tex">E=mc^2</script>',
    ],
)
def test_a_formula_that_a_page_holds_in_several_notations_is_read_once(page: str) -> None:
    html = f"<p>So {page.format(MATH.format(ENERGY))}, as <i aria-hidden=true>told</i>.</p>"
    assert text_of_file("a.html", html) == "So E=mc^2, as told."


@pytest.mark.parametrize(
    "front",
    [
        '+++\ntitle = "Points"\n[params]\n  author = "Ann Frog"\n+++',
        '+++\ntitle = "Points"\n[extra]\nauthor = "Ann Frog"\n[taxonomies]\ntags = ["oil"]\n+++',
        "---\ntitle: Points\nparams:\n  author: Ann Frog\n---",
        '+++\ntitle = "Points"\nauthor = "Ann Frog"\n[params]\nauthor = "Nobody"\n+++',
        '+++\ntitle = "Points"\nauthor = "Ann Frog"\nparams = "none"\n+++',
    ],
)
def test_front_matter_in_the_tables_of_site_generators_is_read(front: str) -> None:
    (source,) = documents("a.md", f"{front}\nOil them.")
    assert source.metadata["author"] == "Ann Frog"
    assert source.metadata.get("tags", ["oil"]) == ["oil"]


def test_front_matter_is_text_and_metadata() -> None:
    (source,) = documents(
        "a.md", "---\ntitle: Крестовины\nauthor: Анна\ntags: [смазка, зима]\nlayout: x\ndate: 2026-02-03\n---\nТекст."
    )
    assert source.title == "Крестовины"
    assert source.text == "author: Анна\ntags: смазка, зима\ndate: 2026-02-03\n\nТекст."
    metadata = {"author": "Анна", "tags": ["смазка", "зима"], "layout": "x", "date": "2026-02-03"}
    assert dict(source.metadata) == metadata
    (source,) = documents("a.md", '+++\ntitle = "道岔"\ntags = ["润滑"]\ndate = 2026-02-03\n+++\n正文')
    assert (source.title, source.text) == ("道岔", "tags: 润滑\ndate: 2026-02-03\n\n正文")
    (source,) = documents("a.md", "---\ntitle: How: to\nsummary: 'a' and: b\n---\nText")
    assert (source.title, source.text) == ("How: to", "summary: a' and: b\n\nText")
    for file in ("---\ntitle: Plan\nredirect_to: https://a.example/plan\n---\n", '+++\ntitle = "Plan"\n+++\n\n \n'):
        (source,) = documents("a.md", file)
        assert source.title == "Plan"
        assert source.text == file.strip("-+\n ")


@pytest.mark.parametrize(
    ("front", "text", "metadata"),
    [
        ("status: Final\neip: 7002", "status: Final\neip: 7002", {"status": "Final", "eip": "7002"}),
        ("Команда: Оплата\ndraft: true", "команда: Оплата", {"команда": "Оплата", "draft": "true"}),
        ("菜系: 川菜\n份量: 2-3 人", "菜系: 川菜\n份量: 2-3 人", {"菜系": "川菜", "份量": "2-3 人"}),
        ("aliases: [Bill, /old/bill]", "aliases: Bill, /old/bill", {"aliases": ["Bill", "/old/bill"]}),
        ("url: https://a.example/b\ncover: a.png", "", {"url": "https://a.example/b", "cover": "a.png"}),
        ("version: 1.10\ntoc: true", "version: 1.10", {"version": "1.10", "toc": "true"}),
        ("owner: {name: Ann}\nby: [{name: Bo}, 周]", "owner: Ann\nby: Bo, 周", {"owner": ["Ann"], "by": ["Bo", "周"]}),
    ],
)  # fmt: skip
def test_every_field_of_front_matter_is_kept_and_what_a_person_looks_for_is_text(
    front: str, text: str, metadata: dict[str, object]
) -> None:
    (source,) = documents("a.md", f"---\n{front}\n---\nThem.")
    assert dict(source.metadata) == metadata
    assert source.text.removesuffix("Them.").strip() == text


@pytest.mark.parametrize(
    "first", [f"[{', '.join(['x' * 40] * 100)}]", f"[[{', '.join(['x' * 40] * 100)}]]", f"[{'[],' * 3000}]"]
)
def test_front_matter_that_repeats_itself_stays_small(first: str) -> None:
    front = f"a: &a {first}\n" + "\n".join(f"b{number}: [*a, *a, *a]" for number in range(500))
    (source,) = documents("a.md", f"---\n{front}\n---\nText")
    assert len(source.text) < 3 * len(front)
    assert len(source.metadata) <= 100


@pytest.mark.parametrize(
    "target", ["a.md", '{% page "/tools/#leave" %}', "{{ site.baseurl }}/a/", '{{< ref "a.md" >}}', '<a b.md> "Title"']
)
def test_targets_of_links_are_left_out_whatever_makes_the_site(target: str) -> None:
    text = f"# [Rules]({target})\n\nYou may [book your\ntravel]({target}), or ![not\nyet]({target}).\n\n[a]\n\n(b)\n"
    (source,) = documents("a.md", text)
    assert source.text == "Rules\n\nYou may book your\ntravel, or not\nyet.\n\n[a]\n\n(b)"


def test_escaped_marks_are_themselves_but_in_code_and_formulas() -> None:
    text = (
        "# A gathering\\*? See `*args` and **C\\#**\n\n"
        "Set max\\_tokens, write to \\[name\\], pay \\$5 or \\$6.\n"
        "`keep\\_it`, $\\{1\\}$, $$x\\_i$$, \\\\server\\share, C:\\Users, R\\&D\n\n"
        "| a\\_b |\n|---|\n| c\\|d\\-e |\n\n"
        "1\\. not a list\n\n"
        "- item\\_one\n\n  ```sh\n  echo \\$HOME \\_ &amp;\n  ```\n\n1. ~~~\n   x\\_y\n"
    )
    assert documents("a.md", text)[0].text.split("\n\n") == [
        "A gathering*? See *args and C#",
        (
            "Set max_tokens, write to [name], pay $5 or $6.\n"
            "`keep\\_it`, $\\{1\\}$, $$x\\_i$$, \\\\server\\share, C:\\Users, R&D"
        ),
        "a_b\nc|d-e",
        "1. not a list",
        "- item_one",
        "  ```sh\n  echo \\$HOME \\_ &amp;\n  ```",
        "1. ~~~\n   x\\_y",
    ]


def test_escaped_marks_of_restructured_text_are_themselves_but_in_code() -> None:
    text = (
        "Names\\_of\n==========\n\n"
        "Pass \\*args and \\**kwargs to ``keep\\_it``; H\\ :sub:`2`\\ O; C:\\\\temp; a\\|b.\n\n"
        "::\n\n    code\\_stays\n"
    )
    assert documents("a.rst", text)[0].text.split("\n\n") == [
        "Names_of",
        "Pass *args and **kwargs to ``keep\\_it``; H2O; C:\\\\temp; a|b.",
        "::",
        "    code\\_stays",
    ]


def test_references_to_characters_are_characters_but_in_code() -> None:
    (source,) = documents(
        "a.md",
        "---\ntitle: Logging in &amp; out\n---\n## R&amp;D &mdash; `Vec<T>` &lt;b&gt; <i>x</i>\n\n"
        "GSA&rsquo;s [rules &amp; forms](a.md), `a &amp; b`, AT&T, ?a=1&copy=2\n\n"
        "| a &lt; b | &#1055;уть |\n|-|-|\n| x&#124;y | 1 |\n\n"
        "&laquo;Москва&raquo;&NewLine;等&hellip;\n\n```\nx &amp;&amp; y\n```",
    )
    assert source.title == "Logging in & out"
    assert [section.heading_path for section in source.sections] == [("R&D — Vec<T> <b> x",)]
    for words in (
        "GSA’s rules & forms, `a &amp; b`, AT&T, ?a=1&copy=2",
        "a < b | Путь\nx|y | 1",
        "«Москва» 等…",
        "x &amp;&amp; y",
    ):
        assert words in source.text
    (source,) = documents("a.adoc", "= R&amp;D\n\nGSA&rsquo;s &lt;rules&gt;")
    assert source.text.split() == ["R&D", "GSA’s", "<rules>"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Вызов `jobs[i](x)` и ``a[`b`](c)``.", "Вызов `jobs[i](x)` и ``a[`b`](c)``."),
        ("[Brücke](<mit Leerzeichen.md>) [x](http://y/a_(b)) `c`", "Brücke x `c`"),
    ],
)
def test_code_in_markdown_is_no_link(text: str, expected: str) -> None:
    assert text_of_file("a.md", text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Der [Plan][p] und [Karte][].\n\n[p]: /a\n[KARTE]: <b> 'Die Karte'", "Der Plan und Karte."),
        ("[![Сборка][знак]][p] `a[b][p]`\n\n  [знак]: c.svg\n[p]: /a", "Сборка `a[b][p]`"),
        ("值是 rows[0][1]。\n\n[p]: /a\n\n尾。", "值是 rows[0][1]。\n\n尾。"),
        ("A[^1] b.\n\n[^1]: word\n[//]: # (hidden)", "A[^1] b.\n\n[^1]: word"),
        ("| [x][p] |\n|--|\n| y |\n\n# [Next][p]\n\nEnd.\n\n[p]: /a", "x\ny\n\nNext\n\nEnd."),
    ],
)
def test_links_of_markdown_that_are_defined_elsewhere(text: str, expected: str) -> None:
    assert text_of_file("a.md", text) == expected


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "a.md",
            "The ![pump](data:image/png;base64,{0}) is ![][1]old.\n\n[1]: <data:image/png;base64,{0}>",
            "The pump is old.",
        ),
        ("a.adoc", "image::data:image/svg+xml;base64,{0}[Насос]", "Насос"),
        ("a.json", '{{"name": "泵", "photo": "data:image/png;base64,{0}"}}', "name: 泵\nphoto: data:image/png;base64"),
        (
            "a.css",
            "a {{ src: url('data:font/woff2;charset=utf-8;base64,{0}') }}",
            "a {{ src: url('data:font/woff2;charset=utf-8;base64') }}",
        ),
    ],
)
def test_a_picture_written_into_a_text_is_no_word(name: str, text: str, expected: str) -> None:
    assert text_of_file(name, text.format("iVBORw0KGgo+/AAA" * 500 + "==")) == expected.format()


BASE64_LINES = "\n".join(["MIIDtTCCAp2gAwIBAgIJAPXRSiP0Fs7sMA0GCSqGSIb3DQEBBQUAMEUxCzAJBgNV"] * 20)
BODY_OF_UUENCODE = 'M1TE&.#EA$P`3`*$``/___P```("`@,#`P"P`````$P`3```"1X2/F<\'M\n' * 5
UUENCODE_LINES = f"begin 644 plan.gif\n{BODY_OF_UUENCODE}`\nend"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.pem", "-----BEGIN CERTIFICATE-----\n{}\nAbc=\n-----END CERTIFICATE-----", "CERTIFICATE"),
        ("a.txt", "Ключ стрелки:\n{}\nКонец.", "Ключ стрелки:\n{}\nКонец."),
        ("a.md", "# 钥匙\n\n```\n{}\n```\n\n每年更换。", "每年更换。"),
        ("a.xml", "<рейс><фото>{}</фото><имя>Тверь</имя></рейс>", "имя: Тверь"),
        ("a.csv", "name,photo\npump,{}", "name: pump"),
        ("a.json", '{{"name": "泵", "photo": "{}"}}', "name: 泵"),
        ("a.yml", "key: |\n{}\nname: lever\n", "key: |\n{}\nname: lever"),
        ("a.eml", "Subject: Plan\nContent-Type: text/plain; charset=utf-8\n\nДо встречи\n{}\nПока", "Пока"),
    ],
)
@pytest.mark.parametrize("block", [BASE64_LINES, UUENCODE_LINES])
def test_what_is_written_in_base64_or_uuencode_is_no_word_and_is_said(
    name: str, content: str, words: str, block: str
) -> None:
    if name in ("a.xml", "a.csv", "a.json"):
        block = BASE64_LINES.replace("\n", "")
    items = list(convert(name, content.format(block).encode()))
    text = "\n".join(item.text for item in items if isinstance(item, ParsedDocument))
    empty_lines = "\n" * block.count("\n")  # so that lines keep their numbers
    assert words.format(empty_lines) in text
    assert not {"MIID", "plan.gif", "M1TE", "X2/F"} & set(re.findall("plan.gif|M[1I][TI][ED]|X2/F", text))
    (reason,) = (item.reason for item in items if isinstance(item, Problem))
    assert reason.endswith("1 pieces in base64 or uuencode are left out; decode them to index them")


@pytest.mark.parametrize(
    ("quote", "mode", "tail"),
    [("", "0644", "`\n"), ("", "644", " \n"), ("", "644", "\n"), ("> ", "644", "> `\n"), ("> > ", "755", ">\n")],
)
def test_uuencode_is_left_out_however_programs_of_mail_write_it(quote: str, mode: str, tail: str) -> None:
    lines = BODY_OF_UUENCODE.replace("M1", quote + "M1")
    message = f"Subject: План\n\nДо встречи\n\n{quote}begin {mode} plan.gif\n{lines}{tail}{quote}end\n\nПока"
    items = list(convert("a.eml", message.encode()))
    (text,) = (item.text for item in items if isinstance(item, ParsedDocument))
    assert text.split() == ["До", "встречи", "Пока"]
    assert any(
        "1 pieces in base64 or uuencode are left out" in item.reason for item in items if isinstance(item, Problem)
    )


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(["ACGT" * 16] * 9),
        "\n".join(["0123456789abcdef" * 4] * 9),
        "Donaudampfschifffahrtsgesellschaft" * 9,
        "begin 644 is how uuencode begins\nThe End\nend",
        "https://example.org/" + "a/b/c/" * 60 + "index.html",
        "x" * 300,
    ],
)
def test_long_words_and_digests_are_no_base64(text: str) -> None:
    (source,) = convert("a.txt", text.encode())
    assert isinstance(source, ParsedDocument)
    assert source.text == text


@pytest.mark.parametrize(
    "unit",
    [
        "begin 644 x\n",
        "begin 644 x\nM`\n",
        "> begin 644 X\n> \n>\n",
        pytest.param("begin 644 X\n" + "  \n" * 6_000, id="lines that may be of a quotation or of the file"),
        f"{'aA1' * 66} ",
        f"{'aA1' * 21}\n \n",
        "data:a;base64 ",
        "=" * 60,
    ],
)
def test_pieces_of_base64_are_found_in_linear_time(unit: str) -> None:
    start = time.thread_time()
    list(convert("a.txt", (unit * (20_000 // len(unit))).encode()))
    assert time.thread_time() - start < 5


def test_substitutions_and_pictures_of_restructured_text() -> None:
    text = (
        "Версия |v| и |x| по модулю, a|b|c.\n\n.. |v| replace:: 2.1\n\n.. |лого| image:: a.png\n   :alt: знак\n\n"
        ".. figure:: b.png\n   :alt: схема\n\n   Подпись к схеме.\n\n|лого| End."
    )
    page_text = text_of_file("a.rst", text)
    assert "Версия 2.1 и |x| по модулю, a|b|c." in page_text
    assert {"знак", "схема", "Подпись к схеме."} <= set(page_text.split("\n"))
    assert "|лого|" not in page_text


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        (
            "a.tex",
            "\\begin{document}\n\\section{Grö\\ss e}\\label{s}\nEin \\emph{alt\\`es} Z\\~ahl\\cite{q}, 5\\,\\% % weg",
            "Größe\n\nEin altès Zãhl, 5 %",
        ),
        (
            "a.org",
            "* Крестовина\n:PROPERTIES:\n:ID: 7\n:END:\nСм. [[https://x][чертёж]].\n| a | b |\n|---+---|\n| 1 | 2 |",
            "Крестовина\n\nСм. чертёж.\n\na | b\n1 | 2",
        ),
        (
            "a.adoc",
            "= 道岔\n:toc:\n\n见 https://x[图纸] 。\n\n----\nkept\n----\n\n|===\n|部件|价格\n\n|辙叉\n|12\n|===",
            "道岔\n\n见 图纸 。\n\nkept\n\n部件 | 价格\n辙叉 | 12",
        ),
        (
            "a.ics",
            "BEGIN:VEVENT\nSUMMARY:Осмотр\\, депо\nDTSTART:20260305T0900\n 00Z\nLOCATION:Клин\nUID:1\nEND:VEVENT",
            "Осмотр, депо\nBegin: 2026-03-05 09:00 UTC\nPlace: Клин",
        ),
        ("a.vcf", "BEGIN:VCARD\nFN:王伟\nTEL:123\nEND:VCARD", "王伟\nTelephone: 123"),
        (  # as phones write them: bytes quoted, and continued after =
            "a.vcf",
            (
                "BEGIN:VCARD\nN;CHARSET=UTF-8;ENCODING=QUOTED-PRINTABLE:=D0=98=D0=B2=D0=B0=D0=BD;=D0=90=\n"
                "=D0=BD=D0=BD=D0=B0;;;\nTEL;CELL:1\nEND:VCARD"
            ),
            "Иван Анна\nTelephone: 1",
        ),
        (
            "a.vcf",
            (
                "BEGIN:VCARD\nFN;ENCODING=quoted-printable;CHARSET=GBK:=CD=F5=CE=B0\nN:王;伟\n"
                "NOTE;ENCODING=QUOTED-PRINTABLE:Line one=0D=0Aline two 50=25 \nEND:VCARD"
            ),
            "王伟\nLine one\nline two 50%",
        ),
        (
            "a.vcf",
            (
                "BEGIN:VCARD\nFN;CHARSET=windows-1251;ENCODING=QUOTED-PRINTABLE:=C0=ED=ED=E0\n"
                "item1.EMAIL;TYPE=INTERNET:a@example.org\nitem1.X-ABLabel:work\n"
                "ADR;TYPE=HOME:;;Main St 1;Leeds\\; UK;;;\nEND:VCARD"
            ),
            "Анна\nE-mail: a@example.org\nAddress: Main St 1 Leeds; UK",
        ),
        (
            "a.ics",
            "BEGIN:VCALENDAR\nX-WR-CALNAME:值班\nBEGIN:VEVENT\nSUMMARY:检修\nEND:VEVENT\nEND:VCALENDAR",
            "值班\n\n检修",
        ),
        (
            "a.srt",
            "1\n00:00:01,000 --> 00:00:02,000\n<i>第一行</i>\n第二行\n\n2\n00:00:03,000 --> 00:00:04,000\n42",
            "第一行\n第二行\n\n42",
        ),
        (
            "a.vtt",
            (
                "WEBVTT\n\nNOTE не показано\nи это\n\nSTYLE\n::cue {color: red}\n\n1\n00:01.000 --> 00:02.000\n"
                "<v.loud Анна Клим>Вход &amp; выход</v>\nNOTE видно\n\n2\n00:02.000 --> 00:03.000\n<v 王明>你好</v>"
            ),
            "Анна Клим: Вход & выход\nNOTE видно\n\n王明: 你好",
        ),
        (
            "a.srt",
            "1\n00:00:01,000 --> 00:00:02,000\n{\\an8}{\\i1}Вход{\\i0} {сам}\n{\\pos(1,2)}你好",
            "Вход {сам}\n你好",
        ),
        (
            "a.log",
            "\x1b[1;31mОшибка\x1b[0m 道岔 \x1b]8;;http://x\x07log\x1b]8;;\x1b\\ \x1b(Bend",
            "Ошибка 道岔 log end",
        ),
        ("a.txt", "[31m is no command without its mark", "[31m is no command without its mark"),
        (
            "a.tex",
            (
                "Скидка\\footnote{До мая.} есть,\\marginpar{сбоку} на \\LaTeX{} и \\TeX.\n\n"
                "\\begin{tabular}{ll}\nЦена & 5 \\\\\n\\multicolumn{2}{c}{всего 20}\n\\end{tabular}"
            ),
            "Скидка До мая. есть, сбоку на LaTeX и TeX.\n\nЦена  |  5 \n\nвсего 20",
        ),
        ("a.tex", "\\begin{tabular}[t]{*{2}{l}}\n{\\bf Цена} & 5\n\\end{tabular}", "Цена  |  5"),
        ("a.tex", "\\begin{tabularx}{.9\\textwidth}{@{}l*{3}{p{2cm}|}}\n道岔 & 5\n\\end{tabularx}", "道岔  |  5"),
        ("a.tex", "\\begin{longtable}{>{\\raggedright}p{3cm}l}\nName & 5\n\\end{longtable}", "Name  |  5"),
        ("a.tex", "\\begin{tabular}{l}{Name} & 5\n\\end{tabular}", "Name  |  5"),
        ("a.vtt", "WEBVTT\n\n00:01.000 --> 00:02.000\nСлова", "Слова"),
        (
            "a.xml",
            "<?xml version='1.0'?><a><b c='1'>x &amp; y</b><d>Текст <i>с</i> тегами</d></a>",
            "c: 1\nb: x & y\n\nТекст с тегами",
        ),
        (
            "a.xml",
            (
                "<rss><channel><title>Поезда</title><item><title>道岔</title><description>"
                "&lt;p&gt;Вход &amp;lt; 5&lt;br/&gt;и &lt;b&gt;выход&lt;/b&gt;&lt;/p&gt;</description></item>"
                "<item><description>2 &lt; 3</description></item></channel></rss>"
            ),
            "Поезда\n\n道岔\n\ndescription: Вход < 5 и выход\n\ndescription: 2 < 3",
        ),
        (
            "a.xml",
            (
                "<feed xmlns='http://www.w3.org/2005/Atom'><entry><content type='html'><![CDATA[<h1>票价</h1>"
                "<p>5</p>]]></content></entry></feed>"
            ),
            "type: html\ncontent: 票价 5",
        ),
        (
            "a.xml",
            "<posts><row Body='&lt;p&gt;如何 &lt;b&gt;git&lt;/b&gt;&lt;/p&gt;'/></posts>",
            "Body: 如何 git",
        ),
        ("a.xml", "<a><b>vector&lt;int&gt; a &lt; b</b></a>", "b: vector<int> a < b"),
        ("a.xml", "<a>not closed", "<a>not closed"),
        (
            "a.fb2",
            "<FictionBook><body><section><title><p>Глава</p></title><p>Слова.</p></section></body><binary>QUJD</binary></FictionBook>",
            "Глава\n\nСлова.",
        ),
        (
            "a.fb2",
            (
                "<FictionBook xmlns='http://www.gribuser.ru/xml/fictionbook/2.0' xmlns:l='l'><body><section id='s1'>"
                "<p>Слова <a l:href='#n1' type='note'>1</a>.</p><image l:href='#i.png' alt='Карта'/></section></body>"
                "</FictionBook>"
            ),
            "Слова 1.\n\nalt: Карта",
        ),
        (
            "a.xml",
            "<book xmlns='http://docbook.org/ns/docbook' version='5.0'><para xml:id='p1'>Стрелка.</para></book>",
            "Стрелка.",
        ),
        ("a.svg", "<svg xmlns='http://www.w3.org/2000/svg'><text>схема</text></svg>", "схема"),
        (
            "a.tex",
            (
                "\\newcommand{\\depot}[1]{депо #1}\n\n\\renewcommand*\\name[2][x]{von #1}\n\n\\def\\x#1{Text #1}\n\n"
                "\\begin{figure}[!ht]\n图 \\#1\n\\end{figure}"
            ),
            "депо\n\nvon\n\nText\n\n图 #1",
        ),
        (  # commands whose names begin as others do
            "a.tex",
            (
                "\\includegraphics[width=3cm]{bild}Plan\\index{Plan!alt} \\labelwidth \\inputencoding{utf8}\n\n"
                "\\hypertarget{a}{См.} \\hyperlink{b}{схему} Eisen\\-bahn\\definecolor{rot}{RGB}\n\n\\href{http://x}{链接}"
            ),
            "Plan utf8\n\nСм. схему EisenbahnrotRGB\n\n链接",
        ),
        (
            "a.adoc",
            (
                ":url-docs: https://docs.example\n:product: Weiche 7\nifdef::x[:caption: Abb.]\n\n"
                "{product} 见 {url-docs}[手册^]，{unknown}。\nifndef::y[]\nendif::[]\ninclude::a.adoc[]"
            ),
            "Weiche 7 见 手册，{unknown}。",
        ),
        ("a.rst", "модуль\\_a пакет\\*\n==============\n\nx\\_y", "модуль_a пакет*\n\nx_y"),
        (
            "a.vcf",
            'BEGIN:VCARD\nFN:Анна\nURL:http\\://x.org\nNOTE:Sie sagt: \\"ja\\"\\, 是\nEND:VCARD',
            'Анна\nLink: http://x.org\nSie sagt: "ja", 是',
        ),
        (
            "a.ics",
            (
                "BEGIN:VTIMEZONE\nBEGIN:STANDARD\nDTSTART:19671029T020000\nRRULE:FREQ=YEARLY\nEND:STANDARD\n"
                "BEGIN:DAYLIGHT\nDTSTART:19870405T020000\nEND:DAYLIGHT\nEND:VTIMEZONE\nBEGIN:VEVENT\nSUMMARY:检修\nEND:VEVENT"
            ),
            "检修",
        ),
        (
            "a.fb2",
            "<FictionBook><stylesheet>p {margin: 0}</stylesheet><body><p>Слова.</p></body></FictionBook>",
            "Слова.",
        ),
    ],
)
def test_formats_with_little_markup(name: str, data: str, text: str) -> None:
    assert text_of_file(name, data) == text


@pytest.mark.parametrize(
    "unit", ["\\newcommand\\a[1]", "\\def\\a[", "\\begin{figure}[ht", "\\newcommand{\\a}[1][", "#1"]
)
def test_definitions_of_tex_take_time_that_grows_with_the_text_alone(unit: str) -> None:
    start = time.process_time()
    text_of_file("a.tex", unit * (200_000 // len(unit)))
    assert time.process_time() - start < 20


def test_an_entity_that_grows_is_not_expanded() -> None:
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    bomb = f'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY e0 "ha">{entities}]><a><b>&e11;</b></a>'
    try:
        assert len(text_of_file("a.xml", bomb)) < 1000
    except InputError as error:
        assert "text" in str(error)  # noqa: PT017  (either will do)


def test_results_of_a_notebook() -> None:
    outputs = [
        {"output_type": "error", "ename": "KeyError", "evalue": "'болт'"},
        {"output_type": "display_data", "data": {"text/html": ["<p>итог: <b>7</b></p>"]}},
        {"output_type": "display_data", "data": {"text/markdown": "**结果**"}},
    ]
    notebook = {"cells": [{"cell_type": "code", "source": "run()", "outputs": outputs}]}
    assert text_of_file("a.ipynb", json.dumps(notebook)) == "run()\n\nKeyError: 'болт'\n\nитог: 7\n\n**结果**"


def mail_of(*bodies: tuple[str, str], kind: str = "alternative") -> str:
    body = "".join(f"--b\nContent-Type: {name}; charset=utf-8\n\n{text}\n" for name, text in bodies)
    return f"From: a@example.org\nSubject: s\nContent-Type: multipart/{kind}; boundary=b\n\n{body}--b--\n"


def test_of_twins_in_a_mail_the_one_with_the_words_is_read_once() -> None:
    mail = mail_of(("text/plain", "Стрелка 14\nисправна."), ("text/html", "<p>Стрелка 14 исправна.</p>"))
    assert text_of_file("a.eml", mail).count("исправна") == 1
    inner_mail = (
        'multipart/related; boundary="c"',
        "--c\nContent-Type: text/html; charset=utf-8\n\n<p>Слово дня.</p>\n--c--",
    )
    assert text_of_file("a.eml", mail_of(("text/plain", "Слово дня."), inner_mail)).count("Слово дня.") == 1
    pointer = mail_of(("text/plain", "请用浏览器查看。"), ("text/html", "<p>辙叉每套一百二十元。</p>"))
    assert "一百二十元" in text_of_file("a.eml", pointer)
    assert "浏览器" not in text_of_file("a.eml", pointer)


@pytest.mark.parametrize(
    ("plain", "page"),
    [
        ("You have a survey waiting. To take it, call Anna.", "<p>hello world</p>"),
        ("Стрелка 14 исправна, рычаг заменён в мае.", "<p>Добрый день</p>"),
        ("第十四号道岔已经修好，五月更换拉杆。", "<p>大家早上好</p>"),
    ],
)
def test_alternatives_of_a_mail_that_say_different_things_are_both_read(plain: str, page: str) -> None:
    text = text_of_file("a.eml", mail_of(("text/plain", plain), ("text/html", page)))
    assert plain in text
    assert page[3:-4] in text


def test_a_forwarded_message_has_its_subject_and_sender_and_an_invitation_its_words() -> None:
    inner = "From: Анна <z@example.org>\nSubject: Поворотный круг\n\nНе вращается."
    text = text_of_file(
        "a.eml", mail_of(("text/plain", "См. ниже."), ("message/rfc822", f"\n{inner}".lstrip("\n")), kind="mixed")
    )
    assert "Поворотный круг\n\nFrom: Анна <z@example.org>" in text
    assert "Не вращается." in text
    event = "BEGIN:VEVENT\nSUMMARY:Осмотр\nLOCATION:Клин\nEND:VEVENT"
    assert "Осмотр\nPlace: Клин" in text_of_file("a.eml", mail_of(("text/calendar", event), kind="mixed"))


def test_a_quoted_field_of_a_card_is_read_in_an_encoding_that_is_told_if_none_is_named() -> None:
    letters = "".join(f"={byte:02X}" for byte in "Станция закрыта на ремонт".encode("cp1251"))
    for parameter in ("", ";CHARSET=no-such", ";CHARSET=UTF-8"):
        card = f"BEGIN:VCARD\nNOTE{parameter};ENCODING=QUOTED-PRINTABLE:{letters}\nEND:VCARD"
        assert text_of_file("a.vcf", card) == "Станция закрыта на ремонт"
    items = list(convert("a.vcf", b"BEGIN:VCARD\nFN;ENCODING=QUOTED-PRINTABLE:=D1=E2=E5=F2\nEND:VCARD"))
    assert [item.reason.partition(";")[0] for item in items if isinstance(item, Problem)] == [
        "a quoted field: read as Windows-1251, which is not certain"
    ]
    letters = "".join(f"={byte:02X}" for byte in "Свет".encode("koi8-r"))
    quoted = f"BEGIN:VCARD\nFN;ENCODING=QUOTED-PRINTABLE:{letters}\nEND:VCARD"
    (source,) = convert("a.vcf", quoted.encode(), encoding="koi8-r")
    assert isinstance(source, ParsedDocument)
    assert source.text == "Свет"


def test_a_card_of_continued_lines_is_read_in_linear_time() -> None:
    card = "BEGIN:VCARD\nFN:A\nNOTE;ENCODING=QUOTED-PRINTABLE:" + "=41=\n" * 200_000 + "\nEND:VCARD"
    begin = time.process_time()
    assert len(text_of_file("a.vcf", card)) == 200_002
    assert time.process_time() - begin < 5


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ("DURATION:PT1H30M", "Duration: 1 hour 30 minutes"),
        ("DURATION:P1DT2H", "Duration: 1 day 2 hours"),
        ("DURATION:P2W", "Duration: 2 weeks"),
        ("DURATION:two hours", "Duration: two hours"),
        ("EXDATE;TZID=Europe/Moscow:20240507T090000,20240514T090000", "Not on: 2024-05-07 09:00, 2024-05-14 09:00"),
        ("EXDATE;VALUE=DATE:20240501", "Not on: 2024-05-01"),
        ("RDATE:20240601T080000Z", "Also on: 2024-06-01 08:00 UTC"),
        (
            "BEGIN:VALARM\nACTION:DISPLAY\nTRIGGER:-PT15M\nDESCRIPTION:Напоминание\nEND:VALARM",
            "Reminder: 15 minutes before\nНапоминание",
        ),
        ("BEGIN:VALARM\nTRIGGER;RELATED=END:PT1M\nEND:VALARM", "Reminder: 1 minute after"),
        ("BEGIN:VALARM\nTRIGGER:-P0DT0H0M0S\nEND:VALARM", "Reminder: at the time"),
        ("BEGIN:VALARM\nTRIGGER;VALUE=DATE-TIME:20240502T070000Z\nEND:VALARM", "Reminder: 2024-05-02 07:00 UTC"),
    ],
)
@pytest.mark.parametrize("title", ["Points are greased", "Смазка стрелок", "润滑道岔"])
def test_times_of_a_calendar_are_read_in_words(fields: str, words: str, title: str) -> None:
    text = text_of_file(
        "a.ics", f"BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:{title}\n{fields}\nLOCATION:7\nEND:VEVENT\nEND:VCALENDAR"
    )
    assert text == f"{title}\n{words}\nPlace: 7"


@pytest.mark.parametrize("value", ["P" + "1" * 20_000, "20240501," * 2000, "-" * 20_000, "PT" * 9000])
def test_times_of_a_calendar_are_read_in_linear_time(value: str) -> None:
    start = time.thread_time()
    text_of_file(
        "a.ics", "".join(f"BEGIN:VEVENT\n{name}:{value}\nEND:VEVENT\n" for name in ("DURATION", "EXDATE", "TRIGGER"))
    )
    assert time.thread_time() - start < 5


def test_a_mailbox_is_its_messages() -> None:
    box = (
        "From a@x Mon Jan  1 00:00:00 2026\nSubject: Первая\n\nСлова.\nFrom here on\n\n"
        "From b@x Tue Jan  2 00:00:00 2026\nSubject: Zweite\n\nWorte.\n"
    )
    messages = documents("a.mbox", box)
    assert [(item.title, item.metadata["message"]) for item in messages] == [("Первая", 1), ("Zweite", 2)]
    assert messages[0].text.endswith("From here on")
    with pytest.raises(InputError, match="no line begins with From"):
        documents("b.mbox", "nothing")


def test_a_saved_page_is_its_html() -> None:
    page = (
        "From: <Saved>\nContent-Type: multipart/related; boundary=b\n\n--b\n"
        "Content-Type: text/html; charset=utf-8\nContent-Transfer-Encoding: quoted-printable\n\n"
        "<title>t</title><p>Stra=C3=9Fe =\nfrei</p>\n--b--"
    )
    (source,) = documents("a.mht", page)
    assert (source.title, source.text, source.kind) == ("t", "Straße frei", "mhtml")


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("The lever’s lock – 5 € each.", "cp1252"),
        ("Boil at 98°C, then cool.", "cp1252"),
        ("id,name\n1,café\n2,Zürich\n3,naïve", "cp1252"),
        ("id,town\n1,depot\n2,Тверь\n3,yard", "cp1251"),
        ("id,town\n1,depot\n2,哈尔滨\n3,yard", "gbk"),
        ("Болт", "koi8-r"),
        ("Гайка М8 без шайбы", "iso8859-5"),
        ("Путь закрыт до утра", "cp866"),
        ("Поезд опоздал — ждите", "mac-cyrillic"),
        ("鐵路道岔檢查", "big5"),
        ("車両の点検カード", "shift_jis"),
    ],
)
def test_a_few_words_tell_the_encoding(text: str, encoding: str) -> None:
    items = list(convert("a.txt", text.encode(encoding)))
    assert [item.text for item in items if isinstance(item, ParsedDocument)] == [text]


def test_an_encoding_that_is_not_certain_is_said() -> None:
    problem, source = convert("a.txt", "их: р".encode("cp866"))
    assert isinstance(problem, Problem)
    assert "which is not certain; if its words are wrong" in problem.reason
    assert isinstance(source, ParsedDocument)


def test_a_presentation_of_pictures_is_said() -> None:
    slides = Presentation()
    slides.slides.add_slide(slides.slide_layouts[6])
    file = io.BytesIO()
    slides.save(file)
    (problem,) = (item for item in convert("a.pptx", file.getvalue()) if isinstance(item, Problem))
    assert problem.reason == "no words in it"


@pytest.mark.parametrize("control", [r"{\pict\jpegblip\bin ffd8ffe0}", r"\uc ", r"{\pict\wmetafile8 0100\bin}"])
def test_rtf_with_a_control_that_lacks_its_number(control: str) -> None:
    data = rf"{{\rtf1\ansi\ansicpg1251 \'cf\'f3\'f2\'fc 3. {control}C:\\bin \u31449?.}}"
    assert text_of_file("a.rtf", data) == "Путь 3. C:\\bin 站."


def test_rtf_with_a_number_that_it_does_not_have() -> None:
    with pytest.raises(InputError, match="damaged RTF, with a number"):
        text_of_file("a.rtf", r"{\rtf1 Path \u9999999?}")


def test_rtf_without_its_outer_group() -> None:
    row = r"{\trowd\cellx1{{\pard\intbl Achse\par}\cell}{{\pard\intbl 12\par}\cell}\intbl\row}"
    assert text_of_file("a.rtf", r"{\pard Vor der Tabelle.\par}" + row).split() == [
        "Vor",
        "der",
        "Tabelle.",
        "Achse",
        "|",
        "12",
    ]


@pytest.mark.parametrize(
    ("code", "text", "hidden_runs"),
    [
        (r"The frog{\v  of the draft} is worn{\v }.", "The frog is worn.", 1),
        (r"\'d0\'e5\'eb\'fc\'f1\v  \'f2\'e0\'e9\'ed\'e0\v0 {\v x\plain  7.}", "Рельс 7.", 2),
        (r"{\v {\b \u31192?\u23494?\par}\super 9\nosupersub }\u36947?\u23700?", "道岔", 2),
        (r"Levers{\deleted  not} locked.{\xe {\v Levers}}", "Levers locked.", 0),
        (r"\v1 gone \v0 Stays \v\u1234?}", "Stays", 2),
        (r"C:\\v {\stylesheet{\s1\v\super n;}}kept}}{\v", "C:\\v kept", 0),
    ],
)
def test_hidden_text_of_rtf_is_left_out_and_said(code: str, text: str, hidden_runs: int) -> None:
    items = list(convert("a.rtf", rf"{{\rtf1\ansi\ansicpg1251 {code}}}".encode()))
    assert [item.text for item in items if isinstance(item, ParsedDocument)] == [text]
    reasons = [item.reason for item in items if isinstance(item, Problem)]
    assert reasons == [f"{hidden_runs} pieces of hidden text are left out; show them in Word to index them"] * bool(
        hidden_runs
    )


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (r"The fee is $500{\super 1} a year", "The fee is $500^1 a year"),
        (r"\'c2\'ee\'e4\'e0\super 3\nosupersub  \'e4\'ee\'f0\'ee\'e6\'e0\'e5\'f2", "Вода^3 дорожает"),
        (r"\u36153?\u29992?{\super 2}\u19978?", "费用^2上"),
        (r"25 \'ec{\super 2}, 10{\super -3}, 18{\super th}, H{\sub 2}O", "25 м2, 10^-3, 18th, H2O"),
    ],
)
def test_raised_numbers_of_rtf_stay_apart(code: str, text: str) -> None:
    assert text_of_file("a.rtf", rf"{{\rtf1\ansi\ansicpg1251 {code}}}") == text


def test_tables_of_rtf_are_rows_whatever_paragraphs_their_cells_hold() -> None:
    row = r"\trowd\cellx1\cellx2{{\pard\intbl %s\par}\cell}{{\pard\intbl %s\par}\cell}\intbl\row"
    rows = row % ("Depot", "Gauge") + row % (r"\'d2\'e2\'e5\'f0\'fc\par \'fe\'e3", "1520 | 1524")
    text = text_of_file("a.rtf", rf"{{\rtf1\ansi\ansicpg1251 Before.\par {rows}\pard After.\par {rows}}}")
    table = "Depot | Gauge\nТверь юг | 1520 | 1524"
    assert text == f"Before.\n\n{table}\n\nAfter.\n\n{table}"


def test_nested_tables_of_rtf_are_rows() -> None:
    properties = r"{\*\nesttableprops\trowd\cellx9\nestrow}{\nonesttables\par}"
    inner = "".join(rf"\intbl\itap2 {a}\nestcell {b}\nestcell{properties}" for a, b in (("RCA", 0), ("LM", 7)))
    text = text_of_file("a.rtf", rf"{{\rtf1\trowd\cellx9\intbl Score\cell {inner}\intbl\itap1 \u21518?\cell\row Next}}")
    assert text == "Score | RCA | 0\nLM | 7\n后\n\nNext"


def test_a_long_table_of_rtf_repeats_its_header() -> None:
    rows = "".join(rf"\trowd\intbl Lever {n} of the box\cell {n}\cell\row" for n in range(60))
    sections = documents("a.rtf", rf"{{\rtf1\trowd Lever\cell Number\cell\row{rows}}}")[0].sections
    assert len(sections) > 2
    assert all(section.text.startswith("Lever | Number\n") for section in sections)


@pytest.mark.parametrize(
    "unit", [r"\trowd", r"\row", r"\cell", r"\v", r"{\v a", r"\v a\v0 ", r"{\super", "1\\super 1", "}"]
)
def test_marks_of_rtf_take_time_that_grows_with_the_text_alone(unit: str) -> None:
    start = time.thread_time()
    list(convert("a.rtf", f"{{\\rtf1 Words.{unit * (20_000 // len(unit))}".encode()))
    assert time.thread_time() - start < 5


def test_elements_of_many_attributes() -> None:
    for count in (100, 101, 20_000):
        names = [f"k{number}" for number in range(count - 1)]
        attributes = " ".join(f'{name}="значение {name}"' for name in names)
        text = text_of_file("a.xml", f'<a xmlns:x="urn:x" {attributes} x:last="道岔" />')
        assert text.split("\n") == [*(f"{name}: значение {name}" for name in names), "last: 道岔"]


@pytest.mark.parametrize("name", ["a.ics", "a.srt", "a.tex", "a.org", "a.adoc", "a.xml", "a.md", "a.rst"])
def test_a_file_without_words_is_said(name: str) -> None:
    markup = {
        "a.tex": "\\begin{document}",
        "a.org": "#+BEGIN_SRC",
        "a.adoc": ":toc:",
        "a.xml": "<a/>",
        "a.md": "<!-- x -->",
    }
    markup |= {"a.ics": "BEGIN:VEVENT", "a.srt": "1\n00:00:01,000 --> 00:00:02,000", "a.rst": ".. raw:: html"}
    assert [item.reason for item in convert(name, markup[name].encode()) if isinstance(item, Problem)] == [
        "no words in it"
    ]


def test_a_replacement_that_would_fill_the_file_is_not_made() -> None:
    text = f".. |x| replace:: {'слово ' * 50}\n\n" + "|x| " * 500
    assert len(text_of_file("a.rst", text)) <= len(text)


@pytest.mark.parametrize(("start", "name"), [(b"PK\x03\x04", "ZIP"), (b"\x1f\x8b", "gzip"), (b"Rar!\x1a\x07", "RAR")])
def test_an_archive_is_called_one(start: bytes, name: str) -> None:
    with pytest.raises(InputError, match=f"a {name} archive; unpack it"):
        documents("reports.dat", start + bytes(range(256)))
