from __future__ import annotations

import copy
import pickle
import random
import subprocess
import sys
import unicodedata
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.text import ANALYZER_VERSION, DEFAULT_ANALYZER, LONGEST_TOKEN, Analyzer, fold
from pointsman.text import tokens as module

tokens, query_tokens = DEFAULT_ANALYZER.tokens, DEFAULT_ANALYZER.query_tokens


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("Running runners ran", "run runner ran"),
        ("Indexes are read", "index are read"),
        ("Библиотеки и книги", "библиотек и книг"),
        ("ЁЛКА ёлка елка", "елк елк елк"),
        ("Москва\u0301", "москв"),
        ("中文", "中 文 中文"),
        ("中文，搜索", "中 文 中文 搜 索 搜索"),
        ("傳統", "传 统 传统"),
        ("GPT模型3个", "gpt 模 型 模型 3 个"),
        ("日本の", "日 本 の 日本 本の"),
        ("e-mail email E-MAILS", "email e mail email email e mail"),
        ("state-of-the-art", "stateoftheart state of the art"),
        ("covid-19 covid19", "covid19 covid 19 covid19"),
        ("os.path.join", "ospathjoin os path join"),
        ("snake_case snakeCase", "snakecas snake case snakecas snake case"),
        ("HTMLParser", "htmlparser html parser"),
        ("__init__", "init"),
        ("C++ C# F# c++", "c++ c# f# c++"),
        ("i++ #tag a#b", "i tag a b"),
        ("3.14 1.2.3", "3.14 1.2.3"),
        ("2024-01-15", "2024-01-15 2024 01 15 2024-01"),
        ("1 000 000 14 833,33", "1 000 000 1000000 14 833.33 14833.33"),
        ("978-3-16-148410-0", "978-3-16-148410-0 9783161484100 978 3 16 148410 0"),
        ("May 2026 20th 26S 1990s", "may 2026 2026-05 20th 26s 26 1990"),
        ("5blacZ 5mg", "5blacz 5blac z 5 mg"),
        ("25 October 2024, 25.10.2024г.", "25 octob 2024 2024-10-25 25.10.2024 2024-10-25 2024-10 2024"),
        ("８月 ２０２４年１０月２５日", "8 月 2024 年 10 月 25 日 2024-10-25 2024-10"),
        ("1,000,000 1,5", "1000000 1.5"),
        ("1,2,3", "1-2-3 1 2 3"),
        ("U.S.A. U.S.", "usa us"),
        ("O'Neill’s", "oneil o neill"),
        ("don't can’t they're", "do can they"),
        ("rock 'n' roll's end", "rock n roll end"),
        ("SQL-запросы", "sqlзапрос sql запрос"),
        ("кто-нибудь", "ктонибуд кто нибуд"),
        ("ＡＢＣ１２ ﬁnd x² 10㎏", "abc12 find x2 10 kg"),
        ("½", "1 2"),
        ("한국어 문서", "한국어 문서"),
        ("שלום עולם", "שלום עולם"),
        ("हिन्दी में", "हिन्दी में"),
        ("ไทย", "ไ ท ย ไท ทย"),
        ("go 🚀👍🏽 now", "go 🚀 👍 now"),
        ("café Zürich", "cafe zurich"),
        ("so\xadft zero\u200bwidth", "soft zero width"),
        ("a\0b", "a b"),
        ("\ud83d\ude00 \ud800x", "😀 x"),
        ("https://example.com/a?b=1", "https examplecom exampl com a b 1"),
        ("... --- !!!", ""),
    ],
)
def test_tokens(text: str, expected: str) -> None:
    assert tokens(text) == expected.split()


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("What is the index of the book?", "index book"),
        ("to be or not to be", "to be or not to be"),
        ("кто я", "кто я"),
        ("Что такое индекс?", "индекс"),
        ("的", "的"),
        ("报名什么时候截止", "报 名 截 止 报名 截止"),
        ("為什麼天空藍", "天 空 蓝 天空 空蓝"),
        ("谁", "谁"),
        ("who", "who"),
        ("?!", ""),
    ],
)
def test_queries_lose_stop_words_unless_there_is_nothing_else(query: str, expected: str) -> None:
    assert query_tokens(query) == expected.split()


def test_a_query_of_stop_words_finds_its_document() -> None:
    assert set(query_tokens("To be, or not to be")) <= set(tokens("To be, or not to be, that is the question."))


@pytest.mark.parametrize(
    ("query", "document"),
    [
        ("简体字", "簡體字"),
        ("電腦", "电脑"),
        ("email", "send an e-mail"),
        ("e-mail", "send an email"),
        ("get_user_name", "def getUserName():"),
        ("os.path", "import os.path"),
        ("path join", "use os.path.join"),
        ("ёж", "еж"),
        ("naive", "naïve"),
        ("STRASSE", "Straße"),
    ],
)
def test_spellings_meet(query: str, document: str) -> None:
    assert set(query_tokens(query)) & set(tokens(document))


ALPHABET = st.one_of(
    st.characters(exclude_categories=()),
    st.sampled_from("aZéß09_.,'’-+#ЖёїҐ漢字ガｶﾞ한ไא़ि\u0301\u0316\u200d\ufdfa\xad🚀½㎏ﬁ\u1e9e\u0130\u0345 \n"),
)


@given(st.text(alphabet=ALPHABET, max_size=300))
def test_every_token_can_be_stored_and_split_again(text: str) -> None:
    all_tokens = DEFAULT_ANALYZER.tokens(text)
    assert " ".join(all_tokens).split() == all_tokens
    assert all(0 < len(token.encode()) <= LONGEST_TOKEN for token in all_tokens)
    assert set(DEFAULT_ANALYZER.query_tokens(text)) <= set(all_tokens)


@given(st.text(alphabet=ALPHABET, max_size=100))
def test_tokens_do_not_depend_on_what_was_seen_before(text: str) -> None:
    assert Analyzer().tokens(text) == tokens(text) == tokens(text)


@given(st.text(alphabet=ALPHABET, max_size=60), st.text(alphabet=ALPHABET, max_size=60))
def test_texts_side_by_side_keep_their_tokens(first: str, second: str) -> None:
    assert tokens(f"{first} \n {second}") == tokens(first) + tokens(second)


@given(st.text(alphabet=st.characters(categories=["L", "N"]), min_size=1, max_size=50))
def test_letters_and_digits_are_never_lost(text: str) -> None:
    assert tokens(text) or all(fold(c).strip() == "" for c in text)


def test_no_letter_or_digit_of_unicode_is_lost() -> None:
    letters = [c for c in map(chr, range(0x110000)) if unicodedata.category(c)[0] in "LN" and fold(c).strip()]
    assert [c for c in letters if not tokens(c)] == []


@pytest.mark.parametrize(
    ("marked", "plain"),
    [
        ("Hawaiʻi", "Hawaii"),
        ("Qurʾān", "Quran"),
        ("ˈwɔːtə", "wɔtə"),
        ("tʰat", "that"),
        ("step ⑫ of ⓴, ⓪", "step 12 of ⓴, 0"),
        ("ⓐ⒝", "a b"),
        ("donʼt", "don't"),
        ("oʼneill", "o'neill"),
        ("пʼять", "п'ять"),
    ],
)
def test_marks_beside_letters_and_letters_in_circles_are_read(marked: str, plain: str) -> None:
    assert tokens(marked) == tokens(plain)


MANY = 200_000
HOSTILE = [
    *(
        "a",
        "漢",
        "ж",
        "\u200d",
        "\0",
        "\ud800",
        "\udc00\ud800",
        "a-",
        "a.",
        "🚀",
        "\u202eא",
        "ก",
        "ا",
        "1,",
        "'",
        "aB",
        " ",
    ),
    *("a\u0301\u0316", "\u0301\u0316", "ｶﾞ", "\u1100\u1161", "_", "a_", "c#", "\ufeff", "\x1b[0m", "Ǆ", "ß"),
]


@pytest.mark.parametrize("unit", HOSTILE, ids=ascii)
def test_many_hostile_characters(unit: str) -> None:
    all_tokens = tokens(unit * (MANY // len(unit)))  # quadratic time would be minutes
    assert len(all_tokens) <= 2 * MANY
    assert all(0 < len(token.encode()) <= LONGEST_TOKEN for token in set(all_tokens))


def test_a_hundred_thousand_marks_on_one_letter() -> None:
    assert tokens("e" + "\u0301\u0316" * 50_000 + " end")[-1] == "end"


def test_words_among_random_code_points_are_found_and_every_token_can_be_stored() -> None:
    chance = random.Random(7)
    noise = ["".join(map(chr, chance.choices(range(0x110000), k=1000))) for _ in range(200)]
    all_tokens = tokens(" railways ".join(noise))
    assert all_tokens.count(tokens("railways")[0]) == 199
    assert len(all_tokens) > 10_000
    assert " ".join(all_tokens).split() == all_tokens, "no token is empty or has white space in it"
    assert max(len(token.encode()) for token in all_tokens) <= LONGEST_TOKEN


@pytest.mark.parametrize(
    ("notation", "other"),
    [
        ("3.5mm", "3.5 mm"),
        ("3,5мм", "3.5 мм"),
        ("16GB", "16 gb"),
        ("1.5kg", "1,5 kg"),
        ("14,833.33", "14833.33"),
        ("14.833,33", "14833.33"),
        ("1.000.000", "1000000"),
        ("v1.12", "1.12"),
        ("V2.10.1", "2.10.1"),
        ("№616", "№ 616"),
        ("ISO9370", "ISO 9370"),
        ("25.10.2024г.", "25.10.2024"),
        ("1990s", "1990"),
        ("１６ＧＢ", "16 gb"),
        ("1 000 000", "1000000"),
        ("14\u202f833,33", "14833.33"),
        ("2\u2009500\u00a0000", "2500000"),
        ("DE89 3704 0044 0532 0130 00", "DE89370400440532013000"),
        ("4276-3800-0012-3456", "4276380000123456"),
        ("8-800-555-35-35", "88005553535"),
        ("+7 (495) 123-45-67", "74951234567"),
        ("138 1234 5678", "13812345678"),
        ("2024-10-25T12:30:01", "2024-10-25"),
    ],
)
def test_a_thing_meets_itself_in_another_notation(notation: str, other: str) -> None:
    wanted = set(query_tokens(other))
    assert wanted <= set(tokens(notation)), (tokens(notation), wanted)


@pytest.mark.parametrize(
    ("thing", "near_miss"),
    [
        ("3.5mm", "35mm"),
        ("1.5kg", "15kg"),
        ("v1.12", "v11.2"),
        ("1.299,99", "129999"),
        ("14,833.33", "1483333"),
        ("2.10", "2.1"),
        ("0417", "417"),
    ],
)
def test_a_near_miss_shares_no_number(thing: str, near_miss: str) -> None:
    def numbers(text: str) -> set[str]:
        return {token for token in tokens(text) if any(map(str.isdigit, token))}

    assert not numbers(thing) & numbers(near_miss)


DAYS = ["25 October 2024", "October 25, 2024", "25 октября 2024 года", "2024年10月25日", "25.10.2024г.", "2024-10-25"]


@pytest.mark.parametrize("written", [*DAYS, "25/10/2024", "the 25th of October, 2024", "２０２４年１０月２５日"])
def test_a_day_is_one_term_however_it_is_written(written: str) -> None:
    assert "2024-10-25" in query_tokens(written)
    assert "2024-10-25" in tokens(f"Held on {written}, it was short.")


@pytest.mark.parametrize("written", ["24 October 2024", "25 октября 2023", "2024年11月25日", "5.10.2024", "2024-10-26"])
def test_another_day_is_not_that_term(written: str) -> None:
    assert "2024-10-25" not in tokens(written)


@pytest.mark.parametrize("month", ["May 2026", "май 2026", "в мае 2026", "2026年5月", "2026-05"])
@pytest.mark.parametrize("day", ["2026-05-14", "14.05.2026", "2026年5月14日", "14/05/2026"])
def test_a_month_meets_its_days_in_figures(month: str, day: str) -> None:
    assert "2026-05" in set(query_tokens(month)) & set(tokens(day))


@pytest.mark.parametrize(
    "text", ["paid (May 2026)", "paid\nMay 2026", "April-May 2026", "“May 2026”", "оплачено (мая 2026)"]
)
def test_a_month_is_read_whatever_sign_stands_before_it(text: str) -> None:
    assert "2026-05" in tokens(text)


@pytest.mark.parametrize("text", ["the 5th\u00a0of May 2026", "(5 May, 2026)", "[May\n5, 2026]", "—5 мая 2026"])
def test_a_day_is_read_whatever_sign_or_blank_stands_before_it(text: str) -> None:
    assert "2026-05-05" in tokens(text)


@pytest.mark.parametrize("text", ["dismay 2026", "Maya 2026", "may come in 2026", "32.13.2026", "mid 2026", "5 (2026)"])
def test_what_only_looks_like_a_month_is_none(text: str) -> None:
    assert not [token for token in tokens(text) if token.startswith("2026-")]


NAMES_OF_MONTHS = [
    "january jan январь января январе янв", "february feb февраль февраля феврале фев",
    "march mar март марта марте мар",
    "april apr апрель апреля апреле апр", "may май мая мае",
    "june jun июнь июня июне июн", "july jul июль июля июле июл",
    "august aug август августа августе авг", "september sept sep сентябрь сентября сентябре сен сент",
    "october oct октябрь октября октябре окт", "november nov ноябрь ноября ноябре ноя нояб",
    "december dec декабрь декабря декабре дек",
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "number"), [(name, number) for number, names in enumerate(NAMES_OF_MONTHS, 1) for name in names.split()]
)
def test_every_name_of_a_month_is_read_before_a_year(name: str, number: int) -> None:
    month = f"2026-{number:02}"
    assert month in tokens(f"In {name} 2026.")
    assert month in tokens(f"In {name.capitalize()}., 2026")
    assert f"{month}-03" in tokens(f"On 3 {name.upper()} 2026.")
    assert f"{month}-03" in tokens(f"On {name} 3rd 2026.")


def test_a_day_that_may_be_two_is_both() -> None:
    assert {"2024-06-05", "2024-05-06"} <= set(tokens("05/06/2024"))


@pytest.mark.parametrize("text", ["in 2019 300 people", "room 5 12", "1 0000", "10.12 345", "1 000-5", "5, 000"])
def test_numbers_side_by_side_are_not_one(text: str) -> None:
    assert all(len(token) < 5 or not token.isdigit() for token in tokens(text)), tokens(text)


@pytest.mark.parametrize(("code", "near_miss"), [("INV-2026-0417", "INV-20260-417"), ("KX-50-11", "KX-501-1")])
def test_codes_that_differ_in_a_hyphen_differ(code: str, near_miss: str) -> None:
    assert tokens(code)[0] != tokens(near_miss)[0]


def test_long_words_are_cut_alike_in_query_and_document() -> None:
    digest = "0123456789abcdef" * 8
    assert tokens(digest) == query_tokens(digest)
    assert len(tokens(digest)) == 3  # two of the greatest length, and the rest


def test_threads_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MEMO_WORDS", 50)  # threads empty the memo under each other all the time
    rng = random.Random(3)
    words = [
        "running",
        "Библиотеки",
        "中文搜索",
        "os.path",
        "libraries",
        "бегущие",
        "don't",
        "nations",
        "傳統",
        "houses",
    ]
    texts = [
        " ".join(f"{rng.choice(words)} {rng.choice(words)}{rng.randrange(90)}" for _ in range(40)) for _ in range(200)
    ]
    expected = [Analyzer().tokens(text) for text in texts]
    analyzer = Analyzer()
    with ThreadPoolExecutor(8) as pool:
        results = [list(pool.map(analyzer.tokens, texts)) for _ in range(3)]
    assert results == [expected] * 3


def test_the_memo_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MEMO_WORDS", 100)
    analyzer = Analyzer()
    analyzer.tokens(" ".join(f"word{i}" for i in range(1000)))
    analyzer.tokens("x" * 1000)
    assert len(analyzer._everything) <= 100
    assert max(map(len, analyzer._everything)) <= 60


def test_an_analyzer_is_a_value() -> None:
    analyzer = Analyzer()
    analyzer.tokens("some words")
    assert analyzer == Analyzer()
    assert hash(analyzer) == hash(Analyzer())
    pickle_copy = pickle.loads(pickle.dumps(analyzer))
    assert pickle_copy == copy.deepcopy(analyzer) == analyzer
    assert pickle_copy.tokens("Indexes") == ["index"]
    assert len(pickle.dumps(analyzer)) < 200
    with pytest.raises(AttributeError):
        analyzer._content = analyzer._everything  # type: ignore[misc]


def test_the_fingerprint_tells_the_rules() -> None:
    assert DEFAULT_ANALYZER.fingerprint == Analyzer().fingerprint
    assert DEFAULT_ANALYZER.fingerprint.startswith(f"{ANALYZER_VERSION}/")


def test_importing_loads_neither_stemmer_nor_table() -> None:
    code = "import sys, pointsman.text; from pointsman.text.unicode import simplified; "
    code += "print(sorted({'Stemmer', 'numpy'} & set(sys.modules)), simplified.cache_info().currsize)"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[] 0"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("self.pool.max_size", "maxsize"),
        ("signature.getSignDate()", "GETSIGNDATE"),
        ("pre-mRNA", "mrna"),
        ("HTTP2Server.connectTimeout", "http2server"),
        ("настройки.макс_размер", "максразмер"),
        ("数据 obj.childNodes", "childnodes"),
    ],
)
def test_a_name_between_points_and_hyphens_is_a_term(text: str, name: str) -> None:
    [term] = DEFAULT_ANALYZER.tokens(name)
    assert term in DEFAULT_ANALYZER.tokens(text)
    assert term in DEFAULT_ANALYZER.query_tokens(text)


def test_a_name_alone_has_no_further_terms() -> None:
    assert DEFAULT_ANALYZER.tokens("os.path maxSize") == ["ospath", "os", "path", "maxsiz", "max", "size"]


@pytest.mark.parametrize(
    ("text", "other_notation"),
    [
        ("二百五十元", "250元"),
        ("第十二条", "第12条"),
        ("两万五千人", "25,000人"),
        ("一千零一夜", "1001夜"),
        ("十五亿三千万", "1530000000"),
        ("贰佰伍拾元整", "250"),
        ("百分之十五", "15%"),
        ("3.5万", "35000"),
        ("3亿5000万", "350000000"),
        ("1,200万", "12,000,000"),
        ("二〇三医院", "203医院"),
        ("二〇二四年", "2024年"),
        ("十月二十五日", "10月25日"),
        ("3千克", "3000克"),
        ("5千元", "5,000元"),
        ("3百人", "三百人"),
        ("二万亿", "2000000000000"),
        ("1.5万亿元", "1,500,000,000,000"),
        ("十二万亿", "12000000000000"),
        ("3亿五千万年", "350000000年"),
        ("3亿6千5百万", "365000000"),
        ("5 thousand euros", "5,000 euros"),
        ("1.2 million people", "1,200,000 people"),
        ("a 2-Billion fund", "2,000,000,000"),
        ("5 тыс. рублей", "5000 рублей"),
        ("1,2 млн человек", "1200000 человек"),
        ("2 миллиарда", "2000000000"),
    ],
)
def test_words_for_powers_of_ten_meet_figures(text: str, other_notation: str) -> None:
    numbers = [term for term in DEFAULT_ANALYZER.tokens(other_notation) if term.isdecimal()]
    assert numbers
    assert set(numbers) <= set(DEFAULT_ANALYZER.tokens(text))
    assert set(numbers) <= set(DEFAULT_ANALYZER.query_tokens(text))


@pytest.mark.parametrize(
    ("text", "number"),
    [("3千5百", "5"), ("12.5.3 million", "12.5.3"), ("7·9 million", "9"), ("万亿元 5", "5"), ("5 миль", "5")],
)
def test_what_is_no_power_of_ten(text: str, number: str) -> None:
    assert not any(term.isdecimal() and len(term) > 1 for term in DEFAULT_ANALYZER.tokens(text))
    assert number in DEFAULT_ANALYZER.tokens(text)


@pytest.mark.parametrize("text", ["二零二四年十月二十五日", "2024年十月二十五日", "二〇二四年10月25日"])
def test_a_date_in_chinese_numerals_is_that_day(text: str) -> None:
    assert "2024-10-25" in DEFAULT_ANALYZER.tokens(f"会议于{text}召开")


@pytest.mark.parametrize(
    "text",
    [
        "一般",
        "统一",
        "十分",
        "万一",
        "千万不要",
        "一一说明",
        "一五一十",
        "七八十",
        "两万五",
        "一百一",
        "〇〇七",
        "数以百万计",
    ],
)
def test_numerals_in_words_and_doubtful_ones_are_no_numbers(text: str) -> None:
    assert not any(term.isascii() for term in DEFAULT_ANALYZER.tokens(text))


def test_chinese_numerals_in_a_row_take_linear_time() -> None:
    assert not any(term.isascii() for term in DEFAULT_ANALYZER.tokens("一二三十百千万" * 20_000))


def test_dates_in_a_row_without_a_blank_take_linear_time() -> None:
    assert tokens("2024年5月，" * 100_000).count("2024-05") == 100_000  # minutes, when each looked for the next blank
