"""Spelling: what is corrected, what is left alone, spans, files, laws."""

from __future__ import annotations

import itertools
import random
import sys
from pathlib import Path
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.evaluation import read_collection
from pointsman.text import DEFAULT_ANALYZER
from pointsman.text.lexicon import LANGUAGES, WORD_LISTS, Lexicon, installed_lexicon
from pointsman.text.spelling import Change, Correction, Speller
from pointsman.tools.errors import FormatVersionError, InputError, StoreError, UnknownNameError

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import word_lists

WORDS = {
    "retrieval": 90, "neural": 70, "network": 80, "networks": 40, "temperature": 60, "necessary": 30,
    "tomorrow": 12, "thrust": 40, "symmetric": 20, "definitely": 9, "occurrence": 8, "house": 50,
    "step": 60, "python": 30, "kubernetes": 3, "погода": 50, "привет": 20, "система": 60, "объект": 30,
    "ёлка": 12, "преобразование": 20, "поиск": 40, "визуализация": 9,
}  # fmt: skip
speller = Speller(WORDS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("retreival", "retrieval"),
        ("Neurla netwrok", "Neural network"),
        ("retrievl of temperatures", "retrieval of temperatures"),
        ("temprature", "temperature"),
        ("definately neccessary", "definitely necessary"),
        ("tommorow", "tomorrow"),  # two slips of the likely kinds
        ("occurence", "occurrence"),
        ("(retreival),", "(retrieval),"),
        ("“retreival”", "“retrieval”"),
        ("RETREIVAL retreival", "RETREIVAL retrieval"),
        ("hoouse", "house"),
        ("сисетма", "система"),
        ("Преобразованние", "Преобразование"),
        ("обьект", "объект"),
        ("поисск погоды", "поиск погоды"),
        ("что такое neurla сеть", "что такое neural сеть"),
        ("用 retreival 检索", "用 retrieval 检索"),
    ],
)
def test_corrected(text: str, expected: str) -> None:
    assert speller.correct(text).text == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "   ", "the of and", "network", "Networks", "networking", "NEURAL", "is it so"),
        *(
            "stop",
            "asymmetric",
            "nets",
            "hose",
            "pithon3",
            "py-thon_x",
            "retreival.py",
            "foo@retreival.com",
            "RETREIVAL",
        ),
        *("neuRal", "neXral", "netwrok42", "https://netwrok/", "thermodynamics", "xqzzkv", "C++", "doesn't"),
        *("виртуализация", "ёлка", "елка", "Ёлку", "системы", "системный", "и в на"),
        *("检索系统", "天汽怎么样", "日本語のテキスト", "مرحبا", "👍 ok"),
    ],
)
def test_left_alone(text: str) -> None:
    assert speller.correct(text) == Correction(text)
    assert not speller.correct(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ghbdtn", "привет"),
        ("Ghbdtn, gjujlf", "Привет, погода"),
        ("j,]trn", "объект"),
        ("тугкфд", "neural"),
        ("зщгыу", "зщгыу"),
        ("abcd", "abcd"),
    ],
)
def test_the_other_keyboard_layout(text: str, expected: str) -> None:
    assert speller.correct(text).text == expected


def test_spans() -> None:
    text = "Neurla  (netwrok) ghbdtn"
    changes = speller.correct(text).changes
    assert changes == (
        Change(0, 6, "Neurla", "Neural"),
        Change(9, 16, "netwrok", "network"),
        Change(18, 24, "ghbdtn", "привет"),
    )
    assert changes[0] == (0, 6, "Neurla", "Neural", True)


def test_another_form_of_a_known_word_is_known() -> None:
    """What the stemmer finds in the corpus anyway is not touched, though the very form does not occur."""
    assert not Speller({"systems": 50, "системами": 9}).correct("system системах")


def test_words_known_elsewhere_are_left_alone() -> None:
    assert Speller({"thrust": 40, "house": 50}).correct("houses hoose").text == "houses house"
    assert not Speller({"house": 50}, known={"hoose"}).correct("hoose")
    assert not Speller.from_texts(["house " * 50], known={"hoose"}).correct("hoose")


@pytest.mark.parametrize(
    ("word", "neighbour"),
    [
        ("альтернатив", "альтернативы"),  # another form, which the stemmer misses
        ("погодных", "подобных"),  # two letters replaced
        ("приключения", "переключения"),  # the same letters, not as often
        ("symmetric", "asymmetric"),
        ("ghbdtn", "ghbdtns"),
    ],
)
def test_other_words_are_left_alone(word: str, neighbour: str) -> None:
    assert not Speller({neighbour: 50, "привет": 50, "network": 9} | ({word: 1} if word == "ghbdtn" else {})).correct(
        word
    )


def test_of_a_very_long_text_some_words_are_looked_up() -> None:
    syllables = ["ba", "de", "fi", "go", "hu", "ka", "le"]
    words = ["".join(three) + "ation" for three in itertools.product(syllables, repeat=3)]
    slips = " ".join(word.replace("ation", "atoin") for word in words)
    correction = Speller(dict.fromkeys(words, 9)).correct(slips)
    assert len(words) == 343
    assert len(correction.changes) == 200
    assert correction.text.startswith("bababaation")


def test_frequency_decides_between_equals() -> None:
    assert Speller({"planet": 50, "planer": 5}).correct("planex").text == "planet"
    assert Speller({"planet": 5, "planer": 50}).correct("planex").text == "planer"


def test_order_of_words_does_not_matter() -> None:
    queries = ["neurla netwrok", "сисетма", "tempreature", "planex"]
    words = [*WORDS.items(), ("planet", 7), ("planer", 7)]
    first = [Speller(dict(words)).correct(query) for query in queries]
    random.Random(1).shuffle(words)
    assert [Speller(dict(words)).correct(query) for query in queries] == first


def test_words_of_texts_and_more_of_them() -> None:
    speller = Speller.from_texts(["Neural networks. Нейронные сети! 神经网络 x2 snake_case", "Neural"])
    assert speller.frequencies["neural"] == 2
    assert sorted(speller.frequencies) == ["case", "networks", "neural", "snake", "x", "нейронные", "сети"]
    assert "NEURAL" in speller
    assert "retrieval" not in speller
    assert not speller.correct("retreival")
    speller.add(["Retrieval, retrieval."])
    assert len(speller) == 8
    assert speller.correct("retreival").text == "retrieval"
    speller.add(["retreival"])
    assert not speller.correct("retreival")


def test_frequencies_are_positive() -> None:
    with pytest.raises(InputError, match="'house' is at least 1"):
        Speller({"house": 0})


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "words"
    speller.save(path)
    copy = Speller.load(path)
    assert dict(copy.frequencies) == dict(speller.frequencies)
    assert copy.correct("Neurla ghbdtn") == speller.correct("Neurla ghbdtn")
    assert [file.name for file in tmp_path.iterdir()] == ["words"]
    Speller({}).save(path)
    assert len(Speller.load(path)) == 0


def test_files_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "words"
    path.write_bytes(b"something else")
    with pytest.raises(FormatVersionError, match="not in a known format"):
        Speller.load(path)
    speller.save(path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(StoreError, match="damaged"):
        Speller.load(path)


LETTERS = st.text(alphabet="abcdehilmnoprstuvwабвеиклнопрстуьё'’-. ,;[`AБ天1", max_size=60)


@given(st.one_of(LETTERS, st.text(max_size=60)))
def test_laws(text: str) -> None:
    correction = speller.correct(text)
    rebuilt, end = "", 0
    for change in correction.changes:
        assert end <= change.start < change.end
        assert text[change.start : change.end] == change.old != change.new
        rebuilt += text[end : change.start] + change.new
        end = change.end
    assert rebuilt + text[end:] == correction.text
    assert speller.correct(correction.text).text == correction.text


LONG = sorted(word for word in WORDS if len(word) >= 8)


@given(st.sampled_from(LONG), st.integers(1, 6), st.integers(0, 25), st.integers(0, 3))
def test_one_slip_inside_a_long_word_is_put_right(word: str, position: int, number: int, kind: int) -> None:
    letter = "abcdefghijklmnopqrstuvwxyz"[number] if word.isascii() else "абвгдежзийклмнопрстуфхцчшщъыьэюя"[number]
    misspelling = (
        word[:position] + word[position + 1 :],
        word[:position] + letter + word[position:],
        word[:position] + letter + word[position + 1 :],
        word[:position] + word[position + 1] + word[position] + word[position + 2 :],
    )[kind]
    correction = speller.correct(misspelling).text
    # A slip can make another form of the word, which is known; and one of its forms is nearer than another.
    assert correction == word or DEFAULT_ANALYZER.tokens(correction) == DEFAULT_ANALYZER.tokens(word)


@pytest.mark.parametrize("unit", ["retreival ", "абвгдежз ", "a", "'", "ghbdtn,", "天"])
def test_time_is_linear(unit: str) -> None:
    huge = unit * (200_000 // len(unit))
    long_text = " ".join(f"{a}{b}retreval" for a in "abcdefghij" * 10 for b in "klmnopqrst" * 10)
    start = process_time()  # not hurt by other programs
    speller.correct(huge)
    speller.correct(long_text)
    Speller.from_texts([huge]).correct(huge[:1000])
    assert process_time() - start < 10  # some 1; quadratic or worse would take minutes


@pytest.mark.parametrize("name", ["en_cranfield", "en_cacm"])
def test_queries_of_a_real_collection_are_left_alone(test_data: Path, name: str) -> None:
    collection = read_collection(test_data / name)
    speller = Speller.from_texts(document.searchable for document in collection.documents)
    changed_queries = [query for query in collection.queries.values() if speller.correct(query)]
    assert len(changed_queries) <= 0.06 * len(collection.queries)


# ── words of the language ────────────────────────────────────────────────────────────────────────────────────────────

LEXICON = Lexicon({"bake": 3.9, "break": 5.1, "goverment": 2.7, "government": 5.6, "следует": 5.3, "следуете": 2.0})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("how do I bake bread", "how do I bake bread"),  # the manual knows break alone
        ("goverment", "government"),  # listed, and eight hundred times as rare
        ("braek", "break"),  # in no list: a slip
        ("следуете", "следуете"),  # a form of a word
    ],
)
def test_words_of_the_language_are_left_alone(text: str, expected: str) -> None:
    words = Speller({"break": 50, "government": 40, "bread": 9, "следует": 30}, lexicon=LEXICON)
    assert words.correct(text).text == expected


COMMON = Lexicon(
    {
        "файлы": 3.9,
        "открыть": 4.9,
        "сети": 4.8,
        "вообще": 5.6,
        "среда": 4.2,
        "серна": 2.2,
        "load": 4.6,
        "poem": 4.1,
        "government": 5.6,
    }
)


@pytest.mark.parametrize(
    ("text", "alternative"),
    [
        ("айлы", "файлы"),  # the first letter
        ("рткрыть ыайлы", "открыть файлы"),
        ("фйлы", "файлы"),  # short, and in few documents
        ("вобще", "вообще"),  # in no document
        ("wovernment", "government"),
        ("серна", None),  # a rare word, and not rare enough for a slip
        ("поем", None),  # of the other script
        ("фай", None),  # too short
        ("файл", None),  # a form of a word
        ("Вобще вообще", "Вообще вообще"),
        ("он Вобще", None),  # may be a name of which no document knows
        ("poad lozd", "load load"),
        ("poad lozd lpad", None),  # three such words are of another language
    ],
)
def test_for_what_only_the_language_speaks_is_searched_in_both_forms(text: str, alternative: str | None) -> None:
    words = Speller({"файлы": 2, "сеть": 20, "среды": 3, "load": 4}, lexicon=COMMON)
    correction = words.correct(text)
    assert (correction.text, correction.alternative) == (text, alternative)


@pytest.mark.parametrize(
    ("text", "alternative"),
    [
        ("weird wurd", "weird word"),
        ("wann wurd die Zahlung gebucht", None),  # most words are of another language
        ("où est wurd", None),  # a letter of another language
        ("weird naïve wurd", "weird naïve word"),  # which the documents have
        ("пора и сторку", "пора и строку"),
        ("пора і сторку", None),
        ("a knot", None),  # a well-known word, though "not" is a thousand times as common
    ],
)
def test_what_is_right_in_its_own_language_is_left_alone(text: str, alternative: str | None) -> None:
    common = {"word": 5.6, "weird": 4.4, "not": 6.8, "knot": 3.7, "строку": 5.1, "пора": 5.0}
    words = Speller({"naive": 2, "track": 9, "поезд": 9}, lexicon=Lexicon(common))
    correction = words.correct(text)
    assert (correction.text, correction.alternative) == (text, alternative)


@pytest.mark.parametrize("word", ["sago", "leek", "kelp", "udon", "chard", "rafter"])
def test_a_rare_word_is_no_slip_of_a_common_one_that_begins_otherwise_or_of_any_if_it_is_short(word: str) -> None:
    documents = "It was long ago, a week of hard help upon the government after all; keep it."
    for words in (Speller({"recipe": 9}, lexicon=LEXICON), Speller.from_texts([documents] * 20, lexicon=LEXICON)):
        assert not words.correct(f"how much {word} goes into the bowl")
    assert words.correct("how much of the govermnent").text == "how much of the government"


def test_the_commoner_of_two_words_one_slip_away_is_meant() -> None:
    words = Speller({"сайты": 3, "файлы": 3}, lexicon=Lexicon({"сайты": 2.6, "файлы": 4.9}))
    assert words.correct("сайлы").alternative == "файлы"
    words = Speller({"сайты": 3000, "файлы": 3}, lexicon=Lexicon({"сайты": 4.6, "файлы": 4.9}))
    assert words.correct("сайлы").text == "сайты", "and the one that fills the corpus, for sure"


def test_what_may_be_a_name_is_searched_in_both_forms() -> None:
    correction = speller.correct("the Neurla retreival")
    assert correction.text == "the Neurla retrieval"
    assert correction.alternative == "the Neural retrieval"
    assert [change.sure for change in correction.changes] == [False, True]
    assert speller.correct("the neurla retreival").alternative is None


@given(st.dictionaries(st.text("abcdeжзи", min_size=1), st.floats(0, 10), max_size=20))
def test_a_lexicon_survives_being_written(frequencies: dict[str, float]) -> None:
    read = Lexicon.from_bytes(Lexicon(frequencies).to_bytes())
    for word, zipf in frequencies.items():
        assert read.zipf(word) == pytest.approx(max(zipf, 0.04), abs=0.021)
    assert read.zipf("unlisted") == 0


def test_a_frequency_out_of_range_is_refused() -> None:
    with pytest.raises(InputError, match="0 to 10"):
        Lexicon({"word": 11})


def test_the_installed_lists_know_everyday_words_and_no_slips() -> None:
    english, russian = installed_lexicon("en"), installed_lexicon("ru")
    for word in ("bake", "sourdough", "borscht", "ukulele", "phosphorylation"):
        assert english.zipf(word) > 2
    for word in ("закваске", "пампушками", "елка"):
        assert russian.zipf(word) > 1
    assert english.zipf("retreival") == russian.zipf("сисетма") == 0
    with pytest.raises(UnknownNameError):
        installed_lexicon("xx")


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_word_lists_in_the_package_are_those_of_wordfreq(language: str) -> None:
    is_same = (WORD_LISTS / f"{language}.bin").read_bytes() == word_lists.word_list(language)
    assert is_same, "python benchmarks/word_lists.py --write"  # to show where millions of bytes differ takes minutes
