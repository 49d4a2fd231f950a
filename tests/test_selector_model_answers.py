"""What a careful reader makes of a model's answer, and what nobody can make of it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.llm.prompt_templates import SELECTION, fenced, fill, option_lines, quoted
from pointsman.selector.base_selector import ToolMetadata
from pointsman.selector.selection_answers import Defect, parse_selection
from pointsman.tools.errors import InputError

THREE = [
    ToolMetadata("weather_api", "Forecasts and current conditions"),
    ToolMetadata("news", "What happened in the world"),
    ToolMetadata("calculator", "Arithmetic"),
]
ZH = [ToolMetadata("天气查询", "天气预报"), ToolMetadata("新闻搜索", "最近的新闻"), ToolMetadata("计算器", "算术")]
RU = [
    ToolMetadata("погода", "прогнозы"),
    ToolMetadata("поиск новостей", "что случилось"),
    ToolMetadata("калькулятор", "счёт"),
]
TWELVE = [ToolMetadata(f"tool_{letter}", "") for letter in "abcdefghijkl"]
TWINS = [ToolMetadata("search", "the web"), ToolMetadata("Search", "the archive"), ToolMetadata("SEARCH", "mail")]
YEARS = [ToolMetadata("2023", "last year"), ToolMetadata("2024", "this year")]

D = Defect
# (answer, what is expected: 1-based numbers or the defect) for three options, one of which may be chosen
SINGLE = [
    # JSON as asked for, and nearly
    ('{"choice": 2, "reason": "events"}', [2]),
    ('```json\n{"choice": 2, "reason": "events"}\n```', [2]),
    ('Sure! Here you go:\n{"choice": 2, "reason": "events"}\nHope it helps, all 3 options considered.', [2]),
    ('{"index": 3}', [3]),
    ('{"answer": "2"}', [2]),
    ('{"option": "Option 2"}', [2]),
    ('{"selected_option": 2.0}', [2]),
    ('{"selectedIndex": 2}', [2]),
    ('{"tool": "news", "why": "x"}', [2]),
    ('{"name": "WEATHER_API"}', [1]),
    ('{"tool_name": "weather api"}', [1]),
    ("{'choice': 2, 'reason': 'it\\'s news',}", [2]),
    ("{'choice': 2, 'reason': None, 'sure': True}", [2]),
    ("{choice: 2, reason: best, really}", [2]),
    ("{“选择”：２，“理由”：“新闻”}", [2]),
    ('{"选项": "第2个", "理由": "用户说“你好”"}', [2]),
    ('{"编号": "二"}', [2]),
    ('{"выбор": 2, "причина": "новости"}', [2]),
    ('{"номер": "вариант 2"}', [2]),
    ('[{"choice": 2, "reason": "x"}]', [2]),
    ('{"selections": [{"index": 2, "reason": "x"}]}', [2]),
    ('{"choice": [2]}', [2]),
    ("[2]", [2]),
    ('["news"]', [2]),
    ('{"choice": 2, "reason": "he said "hi" to me"}', [2]),
    ('{"choice": 2 "reason": "no comma"}', [2]),
    ('{"choice": 2 // the news\n}', [2]),
    ('{{"choice": 2}}', [2]),
    ('"{\\"choice\\": 2}"', [2]),
    ('{"name": "select", "arguments": {"choice": 2}}', [2]),
    ('{"function": {"name": "select", "arguments": "{\\"choice\\": 2}"}}', [2]),
    ('{"index": 2, "name": "news"}', [2]),
    ('{"weather_api": false, "news": true, "calculator": false}', [2]),
    ('{"weather_api": 0.1, "news": 0.8, "calculator": 0.1}', [2]),
    ('{"2": "because of the events"}', [2]),
    ('[{"choice": 1, "score": 0.2}, {"choice": 2, "score": 0.9}]', [2]),
    ('{"choice": 2, "reason": "x"}\n{"choice": 2, "reason": "x"}', [2]),
    ('{"choice": 1}\nWait, that is wrong. Final answer: {"choice": 2}', [2]),
    ('{"choice": 2, "rea', [2]),
    ('{"choice": 1', [1]),
    ('{"choice": "news', [2]),
    ('<think>Maybe 1? Or 3.</think>\n{"choice": 2}', [2]),
    ("maybe 1, no…</think>2", [2]),
    ('Option 1 would be {weather}, but {"choice": 2}', [2]),
    # JSON that nobody can follow
    ('{"index": 1, "name": "news"}', D.AMBIGUOUS),
    ('{"choice": 1, "choice": 2}', D.AMBIGUOUS),
    ('{"choice": 1} {"choice": 2}', D.AMBIGUOUS),
    ('{"choice": [1, 2]}', D.AMBIGUOUS),
    ('[{"choice": 1}, {"choice": 2}, {"choice": 3}]', D.AMBIGUOUS),
    ('{"choice": 0}', D.OUT_OF_RANGE),
    ('{"choice": 4}', D.OUT_OF_RANGE),
    ('{"choice": -1}', D.OUT_OF_RANGE),
    ('{"choice": 99999999999999999999999999}', D.OUT_OF_RANGE),
    ('{"choice": 2.5}', D.NO_ANSWER),
    ('{"choice": true}', D.NO_ANSWER),
    ('{"choice": null}', D.NONE_NOT_ALLOWED),
    ('{"choice": "none"}', D.NONE_NOT_ALLOWED),
    ("[]", D.EMPTY),
    ('{"selections": []}', D.EMPTY),
    ("{}", D.NO_ANSWER),
    ('{"cho', D.TRUNCATED),
    ('{"reason": "The user wants', D.TRUNCATED),
    ('{"choice": "weath', D.TRUNCATED),
    ('{"type": "object", "properties": {"choice": {"type": "integer"}}}', D.NO_ANSWER),
    ("<think>It may be 2", D.TRUNCATED),
    ("<think>It is 2</think>", D.TRUNCATED),
    # bare answers
    ("2", [2]),
    ("2.", [2]),
    (" ２ ", [2]),
    ("(2)", [2]),
    ("#2", [2]),
    ("№ 2", [2]),
    ("**2**", [2]),
    ("2.0", [2]),
    ("`news`", [2]),
    ("News.", [2]),
    ("weather-api", [1]),
    ("option 2", [2]),
    ("Option two", [2]),
    ("the second", [2]),
    ("The second option.", [2]),
    ("2nd", [2]),
    ("第2个", [2]),
    ("第二", [2]),
    ("选项二", [2]),
    ("二", [2]),
    ("②", [2]),
    ("вариант 2", [2]),
    ("Вариант два.", [2]),
    ("второй", [2]),
    ("2-й", [2]),
    ("0", D.OUT_OF_RANGE),
    ("4", D.OUT_OF_RANGE),
    ("-1", D.NO_ANSWER),
    ("", D.EMPTY),
    ("  \n ", D.EMPTY),
    ("1-3", D.NO_ANSWER),
    ("1 or 2", D.AMBIGUOUS),
    ("1, 3", D.AMBIGUOUS),
    # prose, English
    ("I choose 2 because it is about events.", [2]),
    ("The best is option 3", [3]),
    ("Answer: 2", [2]),
    ("The answer is 2.", [2]),
    ("**Answer:**\n2", [2]),
    ("2 because the question is about events", [2]),
    ("(2) - the question is about events", [2]),
    ("2, not 1", [2]),
    ("not 1 but 2", D.NO_ANSWER),
    ("Option 1 covers forecasts. Option 3 counts. I would go with option 2.", [2]),
    ("Option 1 does not fit, so option 2", D.AMBIGUOUS),
    ("I'd pick option 2 rather than option 1.", [2]),
    ("I don't choose 1, I choose 2.", D.NO_ANSWER),
    ("Use the `news` tool.", [2]),
    ("The best option is news (2).", [2]),
    ("There are 3 options; option 2 is the most suitable.", [2]),
    ("1. weather_api: forecasts\n2. news: events\n3. calculator: sums\n\nI choose 2.", [2]),
    ("Let me think. Option 1 is about weather. Final answer: \\boxed{2}", [2]),
    ("<answer>2</answer>", [2]),
    ("choice: 2\nreason: option 1 is weak", [2]),
    ("2\n\nBecause option 1 is about the weather.", [2]),
    ("As noted in [1], the best is option 2", [2]),
    ("I choose [2]", [2]),
    ("I choose 7.", D.OUT_OF_RANGE),
    ("I'm not sure, maybe 1 or 2", D.AMBIGUOUS),
    ("It could be option 1 or option 2.", D.AMBIGUOUS),
    ("Either 1 or 3.", D.AMBIGUOUS),
    ("I choose 1. Then again, I choose 2.", D.AMBIGUOUS),
    ("Option 1 and option 2 look alike.", D.AMBIGUOUS),
    ("1. weather_api: forecasts\n2. news: events\n3. calculator: sums", D.AMBIGUOUS),
    ("2. weather_api", D.AMBIGUOUS),
    ("there are 3 options and none of them fit", D.NONE_NOT_ALLOWED),
    ("None of the above.", D.NONE_NOT_ALLOWED),
    ("In 2024 it was asked 2 times.", D.NO_ANSWER),
    ("I choose 2 options", D.NO_ANSWER),
    ("I choose two options", D.NO_ANSWER),
    ("There are 2 datasets.", D.NO_ANSWER),
    ("The user wants to hear what happened.", D.NO_ANSWER),
    ("Option 1 is not suitable.", D.NO_ANSWER),
    ("I cannot say.", D.REFUSAL),
    ("I'm sorry, but I can't help with that.", D.REFUSAL),
    ("First, I looked at the question.", D.NO_ANSWER),
    ("My answer: option 2 or maybe option 3", D.AMBIGUOUS),
    ("I'd choose 1 if it is about weather; otherwise 3", D.NO_ANSWER),
    ("Answer: 1. Wait, option 2.", D.AMBIGUOUS),
    ("It is not option 1, it is option 2", D.AMBIGUOUS),
    ("Option 1 is worse than option 2.", D.AMBIGUOUS),
    ("Option 2 is better than option 1.", D.AMBIGUOUS),
    ("I would not use weather_api, calculator", D.AMBIGUOUS),
    ("I would choose the one that plays songs.", D.NO_ANSWER),
    ("The best one is the one about leave.", D.NO_ANSWER),
    ("One could argue for several.", D.NO_ANSWER),
    ("One of them fits.", D.NO_ANSWER),
    ("Our number one tool is search.", D.NO_ANSWER),
    ("The user said: I choose 2", D.NO_ANSWER),
    ("Should I choose 2?", D.NO_ANSWER),
    ("I choose 2 but wait, option 3", D.NO_ANSWER),
    ("None of them fits, though I choose 2.", D.AMBIGUOUS),
    ("第二十一个", D.OUT_OF_RANGE),
    ("其中之一", D.NO_ANSWER),
    ("其中一个比较合适。", D.NO_ANSWER),
    ("Один из них подходит.", D.NO_ANSWER),
    # prose, Chinese
    ("我选择2，因为是新闻。", [2]),
    ("我选第二个。", [2]),
    ("答案：2", [2]),
    ("最终答案是选项二", [2]),
    ("不是1而是2", D.NO_ANSWER),
    ("应该选2，而不是1", [2]),
    ("选项2最合适", [2]),
    ("有3个选项，第2个最合适。", [2]),
    ("选2号", [2]),
    ("可能是1或2", D.AMBIGUOUS),
    ("有3个选项，都不合适", D.NONE_NOT_ALLOWED),
    ("抱歉，我无法回答。", D.REFUSAL),
    ("选一个", D.NO_ANSWER),
    ("选项4", D.OUT_OF_RANGE),
    ("2024年的新闻", D.NO_ANSWER),
    ("答案不是1，是2", D.NO_ANSWER),
    ("答案：1。不对，应该是2", D.AMBIGUOUS),
    # prose, Russian
    ("Я выбираю 2, потому что это новости.", [2]),
    ("Лучше всего подходит вариант 3", [3]),
    ("Ответ: 2", [2]),
    ("Мой выбор — 2", [2]),
    ("не 1, а 2", D.NO_ANSWER),
    ("Выбираю второй вариант", [2]),
    ("Вариант 1 не подходит, поэтому вариант 2", D.AMBIGUOUS),
    ("Вместо 1 лучше 2", D.NO_ANSWER),
    ("Первый вариант хуже, чем второй", D.NO_ANSWER),
    ("1 или 2", D.AMBIGUOUS),
    ("Есть 3 варианта, ни один не подходит", D.NONE_NOT_ALLOWED),
    ("Извините, я не могу ответить.", D.REFUSAL),
    ("Выбираю два варианта", D.NO_ANSWER),
    ("Ответ: 5", D.OUT_OF_RANGE),
]


def outcome(text: str, choices: list[ToolMetadata] = THREE, **limits: int) -> object:
    reading = parse_selection(text, choices, **limits)  # type: ignore[arg-type]
    assert (reading.defect is None) == (not reading.detail)
    return reading.defect or [selection.index + 1 for selection in reading.selections]


@pytest.mark.parametrize(("text", "expected"), SINGLE)
def test_one_of_three(text: str, expected: object) -> None:
    assert outcome(text) == expected


MULTI = [
    ('{"selections": [{"choice": 1, "reason": "a"}, {"choice": 3, "reason": "b"}]}', [1, 3]),
    ("[1, 3]", [1, 3]),
    ("Choices: [1, 3]", [1, 3]),
    ('{"indices": [3, 1]}', [3, 1]),
    ('["news", "weather_api"]', [2, 1]),
    ('{"choice": 1}\n{"choice": 3}', [1, 3]),
    ('{"choice": "1 and 3"}', [1, 3]),
    ("1 and 3", [1, 3]),
    ("1, 3", [1, 3]),
    ("I choose 1 and 3.", [1, 3]),
    ("Options 1 and 3 are relevant.", [1, 3]),
    ("选择1和3", [1, 3]),
    ("选择第1个、第3个", [1, 3]),
    ("Выбираю 1 и 3", [1, 3]),
    ("IDs: 1 and 3", [1, 3]),
    ("The tool IDs are 1 and 3.", [1, 3]),
    ("Relevant tools: 1, 3", [1, 3]),
    ("ID: 1 и 3", [1, 3]),
    ("There are 3 tools; 1 and 3 fit.", [1, 3]),
    ("[1, 1, 3]", [1, 3]),
    ("[2]", [2]),
    ("1. news\n2. weather_api", [2, 1]),
    ("2. news\n3. calculator", [2, 3]),
    ("- news\n- calculator", [2, 3]),
    ("[1, 7]", [1]),
    ('{"choice": 2, "rea', [2]),
    ('{"selections": [{"choice": 1, "reason": "a"}, {"choice": 3, "reas', [1, 3]),
    ('[{"choice": 1, "score": 0.1}, {"choice": 2, "score": 0.9}, {"choice": 3, "score": 0.5}]', [2, 3]),
    ('[{"choice": 1, "rank": 2}, {"choice": 2, "rank": 1}, {"choice": 3, "rank": 3}]', [2, 1]),
    ("[0, 1]", D.OUT_OF_RANGE),
    ("[7, 8]", D.OUT_OF_RANGE),
    ("[1, 2, 3]", D.TOO_MANY),
    ('[{"choice": 1, "score": 1}, {"choice": 2, "score": 1}, {"choice": 3, "score": 1}]', D.TOO_MANY),
    ('{"selections": [{"choice": 1, "reason": "a"}, {"cho', D.TRUNCATED),
    ("1 or 3", D.AMBIGUOUS),
    ("I'm torn between options 1 or 3", D.AMBIGUOUS),
    ("[]", D.EMPTY),
]


@pytest.mark.parametrize(("text", "expected"), MULTI)
def test_two_of_three(text: str, expected: object) -> None:
    assert outcome(text, max_outputs=2) == expected


@pytest.mark.parametrize(
    ("text", "choices", "expected"),
    [
        ("天气查询", ZH, [1]),
        ("我推荐使用“新闻搜索”。", ZH, [2]),
        ('{"工具名称": "计算器"}', ZH, [3]),
        ("Погода", RU, [1]),
        ("Лучше всего подходит «поиск новостей».", RU, [2]),
        ('{"инструмент": "Калькулятор"}', RU, [3]),
        ('{"choice": 1', TWELVE, D.TRUNCATED),
        ('{"choice": "1', TWELVE, D.TRUNCATED),
        ('{"choice": 2', TWELVE, [2]),
        ('{"choice": 12', TWELVE, [12]),
        ("选项十二", TWELVE, [12]),
        ("第十一个", TWELVE, [11]),
        ("Search", TWINS, [2]),
        ('{"name": "search"}', TWINS, [1]),
        ('{"name": "sEARCH"}', TWINS, D.AMBIGUOUS),
        ("I recommend `sEarch`.", TWINS, D.AMBIGUOUS),
        ('{"choice": "2024"}', YEARS, [2]),
        ('{"choice": 2}', YEARS, [2]),
        ('{"choice": 2024}', YEARS, D.OUT_OF_RANGE),
    ],
)
def test_other_options(text: str, choices: list[ToolMetadata], expected: object) -> None:
    assert outcome(text, choices) == expected


@pytest.mark.parametrize(
    "text",
    [
        "null",
        '{"choice": null}',
        "[]",
        '{"selections": []}',
        "None of the options fits.",
        "都不合适",
        "ни один не подходит",
    ],
)
def test_none_of_them_is_an_answer_where_it_is_allowed(text: str) -> None:
    reading = parse_selection(text, THREE, allow_none=True)
    assert (reading.selections, reading.defect) == ((), None)


def test_reasons_and_scores_are_kept_and_repairs_are_told() -> None:
    reading = parse_selection('{"choice": "2", "reason": "events", "confidence": "90%"}', THREE)
    assert [(s.index, s.reason, s.score) for s in reading.selections] == [(1, "events", 0.9)]
    assert reading.repairs == ("a string in place of a number",)
    assert parse_selection('{"choice": 2, "reason": "events"}', THREE).repairs == ()
    prose = parse_selection("I choose 2 because of the events.", THREE)
    assert prose.selections[0].reason == "I choose 2 because of the events."
    assert prose.repairs == ("prose in place of JSON",)
    assert parse_selection("[2, 9]", THREE, max_outputs=2).repairs == ("dropped 9: no such option",)


ENGLISH_PROMPT = fill(
    SELECTION["en"].single,
    options=fenced(option_lines([(choice.name, choice.description) for choice in THREE])),
    query=fenced(quoted("what happened yesterday?")),
    count=3,
    most=1,
    problem="",
)


@pytest.mark.parametrize("start", ["", "> ", "```\n", '"'])
def test_echo_of_the_prompt_is_no_answer_at_any_length(start: str) -> None:
    for length in range(1, len(ENGLISH_PROMPT) + 1):
        reading = parse_selection(start + ENGLISH_PROMPT[:length], THREE, prompt=ENGLISH_PROMPT)
        assert reading.defect in {Defect.NO_ANSWER, Defect.TRUNCATED, Defect.EMPTY}, ENGLISH_PROMPT[:length]


def test_echo_of_later_lines_of_the_prompt_is_no_answer() -> None:
    lines = ENGLISH_PROMPT.splitlines(keepends=True)
    for first in range(len(lines) - 2):
        for last in range(first + 4, len(lines) + 1):  # one option alone may be the answer
            reading = parse_selection("".join(lines[first:last]), THREE, prompt=ENGLISH_PROMPT)
            assert reading.selections == ()


def test_answer_after_an_echo_of_the_prompt_is_read() -> None:
    answer = '{"choice": 2, "reason": "events"}'
    for echo in (ENGLISH_PROMPT, " ".join(ENGLISH_PROMPT.split())):
        reading = parse_selection(f"{echo}\n{answer}", THREE, prompt=ENGLISH_PROMPT)
        assert [selection.index for selection in reading.selections] == [1]


def test_generated_prose_is_not_read_as_a_choice_that_nobody_made() -> None:
    fuzz = Path(__file__).parents[1] / "benchmarks" / "prose_fuzz.py"
    run = subprocess.run([sys.executable, str(fuzz), "--answers", "3000"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("bad", [{"choices": []}, {"max_outputs": 0}, {"text": None}])
def test_what_the_caller_gets_wrong_is_an_input_error(bad: dict[str, object]) -> None:
    arguments: dict[str, object] = {"text": "2", "choices": THREE, "max_outputs": 1} | bad
    with pytest.raises(InputError):
        parse_selection(arguments["text"], arguments["choices"], max_outputs=arguments["max_outputs"])  # type: ignore[arg-type]


FRAGMENTS = st.sampled_from(
    [*(text for text, _ in SINGLE + MULTI), "{", "[", '"', "'", "“", ":", ",", "\\", "第", "not ", "\ud800", "1" * 30]
)
HOSTILE = st.one_of(
    st.text(), st.lists(FRAGMENTS, max_size=6).map("".join), st.binary().map(lambda b: b.decode("utf-16", "replace"))
)


@settings(deadline=None, max_examples=400)
@given(HOSTILE, st.integers(1, 4), st.booleans(), st.sampled_from([THREE, ZH, RU, TWELVE, TWINS, YEARS]))
def test_nothing_comes_out_of_range_and_nothing_else_is_raised(
    text: str, limit: int, allow_none: bool, choices: list[ToolMetadata]
) -> None:
    reading = parse_selection(text, choices, max_outputs=limit, allow_none=allow_none)
    numbers = [selection.index for selection in reading.selections]
    assert all(0 <= number < len(choices) for number in numbers)
    assert len(set(numbers)) == len(numbers) <= limit
    assert (reading.defect is None) == bool(numbers) or (allow_none and not numbers)


@settings(deadline=None)
@given(st.integers(1, 12), st.text(), st.sampled_from([None, 2]), st.booleans())
def test_the_json_that_was_asked_for_comes_back_as_it_was(
    number: int, reason: str, indent: int | None, ascii_: bool
) -> None:
    reason = reason.encode("utf-8", "replace").decode()
    text = json.dumps({"choice": number, "reason": reason}, indent=indent, ensure_ascii=ascii_)
    reading = parse_selection(text, TWELVE)
    assert [(s.index, s.reason) for s in reading.selections] == [(number - 1, reason)]
    assert reading.repairs == ()
    selections = [{"choice": number, "reason": reason}, {"choice": number % 12 + 1, "reason": ""}]
    reading = parse_selection(json.dumps({"selections": selections}, indent=indent), TWELVE, max_outputs=2)
    assert [(s.index, s.reason) for s in reading.selections] == [(number - 1, reason), (number % 12, "")]


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "{",
        "[",
        '{"',
        '{"a":',
        '{"a":[',
        "[1,",
        '{"choice": 1} ',
        "1 ",
        "1, ",
        "not ",
        "option 2 ",
        "news ",
        "第",
        "1.",
        "\n2. news",
        "<think>",
        "``` ",
        "“",
        "\\",
        "9",
    ],
)
def test_a_megabyte_takes_linear_time(unit: str) -> None:
    start = time.process_time()  # not hurt by other programs
    parse_selection(unit * (1_000_000 // len(unit)), THREE)
    assert time.process_time() - start < 60  # seconds, where quadratic time would take hours


# ── reasons, lists cut off, descriptions ─────────────────────────────────────────────────────────────────────────────

TRAVEL = [
    ToolMetadata("weather", "forecasts for a city"),
    ToolMetadata("news", "what happened today"),
    ToolMetadata("flights", "books plane tickets"),
]


@pytest.mark.parametrize(
    "answer",
    [
        "Option 3 is best because the user wants to fly.",
        "I choose 3 because the user may want to fly, if they said so.",
        "I pick 3, since the others do not fit.",
        "3, because nobody asked for the rest",
        "I pick the third option because you can't drive there.",
        "flights, because the user wants to fly",
        "The best option is 3 because I cannot think of a faster way.",
        "选择3，因为用户要订票",
        "选项3最合适，因为用户不想开车。",
        "Выбираю 3, потому что пользователь не хочет ехать.",
        "Вариант 3 лучше всего подходит, так как пользователь хочет лететь",
        '[{"choice": 3, "reason": "the us',
        '[{"choice": 3}',
        '{"selections": [{"choice": 3, "reason": "fly"}',
        "books plane tickets",
        "Books plane tickets.",
        "flights: books plane tickets",
        '{"choice": "books plane tickets"}',
        '["Books plane tickets"]',
        "```\nbooks plane tickets\n```",
    ],
)
@pytest.mark.parametrize("most", [1, 2])
def test_a_clear_choice_whatever_its_reason_says(answer: str, most: int) -> None:
    parsed = parse_selection(answer, TRAVEL, max_outputs=most)
    assert [selection.index for selection in parsed.selections] == [2], parsed


@pytest.mark.parametrize(
    "answer",
    [
        "Option 3 is not best because the user wants to fly.",
        "I would choose 3 if I had to, because the user wants to fly.",
        "Someone said option 3 is best because it flies.",
        "Is option 3 best because the user wants to fly?",
        "Option 3 is best because the user wants to fly, though that is wrong.",
        "Option 3 is best because the user wants to fly, but option 1 would also do.",
        "Option 3 is best because the user wants to fly. Wait, option 1 is better.",
        "I choose 3 because 1 or 2 may fail.",
        "选择3，因为用户要订票，但是1也可以",
        "Выбираю 3, потому что 1 хуже",
        '[{"choice": 3, "reason": "fly"}, {"cho',
        "[3, ",
        "tickets",
    ],
)
def test_a_choice_that_is_not_clear(answer: str) -> None:
    assert not parse_selection(answer, TRAVEL).selections


def test_a_description_of_two_options_names_neither() -> None:
    choices = [ToolMetadata("a", "the same words"), ToolMetadata("b", "the same words")]
    assert parse_selection("the same words", choices).defect == Defect.AMBIGUOUS
