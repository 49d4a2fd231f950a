# ruff: noqa: E501  (one template after the other)
"""Generated prose answers with known truth through the answer parser: how many are read as a choice nobody made.

Each answer is made from templates in English, Chinese and Russian whose truth is known from their construction: answers
that choose (and what), and answers that do not: pronouns, denials, doubts, conditions, comparisons, questions,
quotations, refusals, several mentions, echoes of the prompt at any length. Fails if more than 1 in 1,000 is read
wrongly; also prints how many of the clear choices are read.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter

from pointsman.llm.prompt_templates import SELECTION, fenced, fill, option_lines, quoted
from pointsman.selector.base_selector import ToolMetadata
from pointsman.selector.selection_answers import parse_selection

CHOICES = {
    "en": [
        [("weather_api", "Forecasts"), ("news", "What happened"), ("calculator", "Arithmetic")],
        [
            ("leave", "Holidays and sick days"),
            ("music", "Plays songs"),
            ("travel expenses", "Trips"),
            ("it-help", "Laptops"),
        ],
        [("vector_search", "Semantic similarity"), ("keyword_search", "Exact words")],
    ],
    "zh": [
        [("天气查询", "天气预报"), ("新闻搜索", "最近的新闻"), ("计算器", "算术")],
        [("请假制度", "年假和病假"), ("音乐", "播放歌曲"), ("报销", "差旅"), ("工具箱", "电脑")],
    ],
    "ru": [
        [("погода", "прогнозы"), ("поиск новостей", "что случилось"), ("калькулятор", "счёт")],
        [
            ("отпуска", "отпуск и больничный"),
            ("музыка", "играет песни"),
            ("командировки", "поездки"),
            ("связь", "ноутбуки"),
        ],
    ],
}
QUERIES = {
    "en": ["what happened yesterday?", "How many days of leave in 2024?", "play the 2nd song of album 1"],
    "zh": ["昨天发生了什么？", "2024年有几天年假？", "播放第二首歌"],
    "ru": ["что случилось вчера?", "Сколько дней отпуска в 2024 году?", "включи вторую песню"],
}

# {a}: the chosen number, {b}: another one, {A}, {B}: their names, {n}: how many there are, {x}: a number of something
CLEAR = {
    "en": [
        "{a}", "{a}.", "option {a}", "Option {a}.", "Answer: {a}", "The answer is {a}.", "**{a}**", "({a})", "#{a}",
        "I choose {a}.", "I choose option {a} because it fits the question.", "I would go with option {a}.",
        "I'd pick {a}, not {b}.", "I recommend option {a} rather than option {b}.", "The best option is {a}.",
        "Option {a} is the best.", "Final answer: {a}", "Choice: {a}\nReason: it is about that.", "`{A}`", "{A}",
        "Option {b} covers something else. I choose option {a}.", "The most suitable tool is `{A}`.",
        "So I select {a}, as the question is about it.", "My choice is option {a}.", "Use `{A}`.", "[{a}]",
        "The best option is {A} ({a}).", "{a}\n\nBecause the question is about it.", "Let me think. Final answer: {a}.",
    ],
    "zh": [
        "{a}", "选项{a}", "第{a}个", "答案：{a}", "我选择{a}。", "我选择{a}，因为问题与它有关。", "选项{a}最合适。", "应该选{a}，而不是{b}。",
        "最终答案是{a}。", "最合适的是选项{a}", "{A}", "我推荐使用“{A}”。", "选{a}号", "选择第{a}个。", "因此，我选择选项{a}。",
    ],
    "ru": [
        "{a}", "вариант {a}", "Вариант {a}.", "Ответ: {a}", "Я выбираю {a}.", "Я выбираю вариант {a}, потому что он о том же.",
        "Лучше всего подходит вариант {a}.", "Мой выбор — {a}", "Окончательный ответ: {a}", "{A}", "Выбираю {a}, а не {b}.",
        "Самый подходящий вариант — {a}.", "Рекомендую вариант {a}.", "Вариант {a} подходит лучше всего.",
    ],
}  # fmt: skip
NOT_CHOSEN = {
    "en": [
        "I would choose the one that suits.", "The best one is the one about {B}.", "One of them should do.",
        "One could argue for several.", "The first thing I notice is the wording.", "First, let me think about it.",
        "I'd choose the one with the best description.", "It is number one in its field.", "At one point I considered it.",
        "No one would choose {b}.", "I have no second thoughts.", "This one is tricky.", "I need two more details.",
        "I do not choose {b}.", "Option {b} does not fit.", "Option {b} is not suitable.", "I wouldn't go with option {b}.",
        "Definitely not option {b}.", "I can't recommend {b}.", "It is anything but option {b}.", "Option {b} is the wrong choice.",
        "Never use {b}.", "Avoid option {b}.", "I would exclude option {b}.", "Option {b} is unsuitable.",
        "Maybe option {b}.", "Perhaps {b}?", "It might be {b}.", "It could be option {a} or option {b}.", "Either {a} or {b}.",
        "I'm torn between {a} and {b}.", "Possibly option {b}, possibly option {a}.", "I am not sure whether {b} is right.",
        "If the question is about money, I choose {b}.", "I would choose {b} if it were about that.", "Unless it is urgent, {b}.",
        "Option {a} is better than option {b} in some ways.", "Option {b} is worse than {a}.", "{a} versus {b} is hard to say.",
        "Should I choose {b}?", "Which one is best, {a} or {b}?", "Do you want option {b}?", "Why not option {b}?",
        "The user said: I choose {b}.", "In the example the answer is {b}.", 'Someone wrote "I choose option {b}".',
        "You chose option {b} yesterday.", "Earlier I picked {b}.", "A user might say 'option {b}'.",
        "I'm sorry, but I can't help with that.", "I cannot choose.", "As an AI model, I have no opinion.",
        "None of the {n} options fits.", "There are {n} options.", "I see {n} tools here.", "All {n} are plausible.",
        "The question was asked {x} times in 2024.", "It takes {x} minutes.", "Version {x}.5 is out.", "Chapter {x} tells more.",
        "Section {x} of the manual covers this.", "I choose {x} options.", "The answer is {x} days.", "The answer is {x}%.",
        "Options {a} and {b} look alike.", "Both {a} and {b} work.", "Option {a} covers it; option {b} covers the rest.",
        "Option {a} is about that. Option {b} is about this.", "I choose {a}. Then again, I choose {b}.",
        "Answer: {a}. Wait, option {b}.", "I choose {a}, no, {b}.", "The user wants to know about {B}.",
        "The question mentions {B}.", "{B} comes to mind, and so does {A}.", "To answer, I need more context.",
        "Pick a number from {a} to {b}.", "Choose between {a} and {b}.", "The choice is hard.", "The answer is unclear.",
        "I would use {x} sources for this.", "Answer in {x} words.", "Select {x} of them.", "Rank {x} comes before it.",
        "I hesitate to choose {b}.", "It is wrong to pick {b}.", "I was going to choose {b}.", "I refuse to pick {b}.",
        "Some would choose {b}.", "Most people pick {b}.", "My colleague recommends {b}.", "Option {b} seems tempting.",
        "Error: rate limit exceeded, retry in {x} s.", "HTTP 50{x}", "Please choose option {b}?", "I almost chose {b}.",
    ],
    "zh": [
        "其中之一", "其中一个比较合适。", "我会选能播放歌曲的那一个。", "选一个。", "最好的一个是关于{B}的那个。", "一方面，问题很难。", "第一，我看了问题。",
        "首先看一下问题。", "我不选{b}。", "选项{b}不合适。", "不要选{b}。", "绝对不是选项{b}。", "选项{b}是错误的。", "别用第{b}个。", "排除选项{b}。",
        "可能是{b}。", "也许选{b}。", "可能是{a}或{b}。", "要么{a}，要么{b}。", "如果是关于钱的，我选{b}。", "假如很急，选{b}。", "选项{a}比选项{b}好。",
        "应该选{b}吗？", "{a}还是{b}？", "用户说我选择{b}。", "例如，答案是{b}。", "昨天我选了{b}。", "抱歉，我无法回答。", "无法选择。", "{n}个选项都不合适。",
        "有{n}个选项。", "需要{x}分钟。", "2024年有{x}次。", "第{x}章有说明。", "答案是{x}天。", "选{x}个。", "选项{a}和选项{b}很像。", "选项{a}讲这个，选项{b}讲那个。",
        "答案：{a}。不对，应该是{b}。", "用户想了解{B}。", "问题提到了{B}。", "请在{a}到{b}之间选择。", "一般来说很难选。", "二者都可以。", "两个都行。", "我差点选{b}。",
        "有人会选{b}。", "大多数人选{b}。", "我犹豫要不要选{b}。", "不建议使用{b}。", "难以选择{b}。",
    ],
    "ru": [
        "Один из них подходит.", "Я бы выбрал тот, который играет песни.", "Одна из причин в вопросе.", "Во-первых, вопрос сложный.",
        "Лучший тот, который про {B}.", "Первое, что я вижу, это вопрос.", "Ни один не годится, и {b} тоже.", "Я не выбираю {b}.",
        "Вариант {b} не подходит.", "Точно не вариант {b}.", "Нельзя выбрать {b}.", "Вариант {b} неправильный.", "Исключаю вариант {b}.",
        "Возможно, {b}.", "Может быть, вариант {b}.", "Либо {a}, либо {b}.", "{a} или {b}", "Если речь о деньгах, выбираю {b}.",
        "Я бы выбрал {b}, если бы знал больше.", "Вариант {a} лучше, чем вариант {b}, но оба слабы.", "Выбрать {b}?", "Почему бы не {b}?",
        "Пользователь сказал: я выбираю {b}.", "Например, ответ: {b}.", "Вчера я выбрал {b}.", "Извините, я не могу ответить.",
        "Есть {n} варианта, ни один не подходит.", "Есть {n} варианта.", "Это займёт {x} минут.", "В 2024 году было {x} раз.",
        "Глава {x} расскажет больше.", "Ответ: {x} дней.", "Выбираю {x} варианта.", "Варианты {a} и {b} похожи.",
        "Вариант {a} про одно, вариант {b} про другое.", "Ответ: {a}. Нет, точнее {b}.", "Пользователь хочет узнать про {B}.",
        "Вопрос про {B}.", "Выберите от {a} до {b}.", "Оба подходят.", "Сомневаюсь, что вариант {b}.", "Вряд ли вариант {b}.",
        "Я почти выбрал {b}.", "Многие выбирают {b}.", "Коллега рекомендует {b}.", "Отказываюсь выбирать {b}.",
    ],
}  # fmt: skip
FILLERS = {
    "en": ["", "", "Let me think.", "Hmm.", "The question is short.", "Thanks for asking!", "I looked at everything."],
    "zh": ["", "", "让我想想。", "问题很短。", "谢谢提问！"],
    "ru": ["", "", "Дайте подумать.", "Вопрос короткий.", "Спасибо за вопрос!"],
}


def answer(
    random_: random.Random, language: str, count: int, names: list[str], *, clear: bool
) -> tuple[str, int | None]:
    """Return an answer and the number that a person would read from it; None if there is none."""
    first, second = random_.sample(range(1, count + 1), 2)
    templates = (CLEAR if clear else NOT_CHOSEN)[language]
    template = random_.choice(templates)
    values = {"a": first, "b": second, "A": names[first - 1], "B": names[second - 1], "n": count}
    text = template.format(**values, x=random_.randint(1, count))
    if len(template) > 12 and "\n" not in template:
        separator = "" if language == "zh" else " "
        text = separator.join(filter(None, (random_.choice(FILLERS[language]), text)))
        if not clear and random_.random() < 0.3:  # a second sentence that chooses nothing either
            other = random_.choice(FILLERS[language])
            text = separator.join(filter(None, (text, other)))
    return text, first if clear else None


def echo(random_: random.Random, prompt: str) -> str:
    """Return a part of the prompt, from its start or from a later line, cut off anywhere."""
    lines = prompt.splitlines(keepends=True)
    text = prompt if random_.random() < 0.7 else "".join(lines[random_.randrange(len(lines)) :])
    text = text[: random_.randint(1, len(text))]
    return random_.choice(["", "> ", "```\n", '"']) + (" ".join(text.split()) if random_.random() < 0.2 else text)


def is_option_line(text: str, prompt: str) -> bool:
    """Whether an echo is a part of one option's line, which a person may read as that choice."""
    text = " ".join(text.strip(' \n`~>"').split())
    return '"name"' in text and any(text in line for line in prompt.splitlines())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=5)
    arguments = parser.parse_args()
    random_ = random.Random(arguments.seed)
    counts: Counter[tuple[str, str]] = Counter()
    wrong: dict[str, str] = {}
    unread: Counter[str] = Counter()
    started = time.perf_counter()
    for _ in range(arguments.answers):
        language = random_.choice(["en", "zh", "ru"])
        options = random_.choice(CHOICES[language])
        choices = [ToolMetadata(name, description) for name, description in options]
        prompt = fill(
            SELECTION[language].single,
            options=fenced(option_lines(options)),
            query=fenced(quoted(random_.choice(QUERIES[language]))),
            count=len(options),
            most=1,
            problem="",
        )
        kind = random_.choices(["not chosen", "clear", "echo"], (6, 2, 2))[0]
        if kind == "echo":
            text, truth = echo(random_, prompt), None
            if is_option_line(text, prompt):
                continue
        else:
            text, truth = answer(random_, language, len(options), [name for name, _ in options], clear=kind == "clear")
        parsed = parse_selection(text, choices, prompt=prompt)
        number = parsed.selections[0].index + 1 if parsed.selections else None
        if number == truth:
            outcome = "right"
        elif number is None:
            outcome = "not read"
            unread[text] += 1
        else:
            outcome = "WRONG"
            wrong.setdefault(text, f"read as {number}, is {truth}")
        counts[kind, outcome] += 1
    total, mistakes = sum(counts.values()), sum(count for (_, outcome), count in counts.items() if outcome == "WRONG")
    print(f"{total} answers in {time.perf_counter() - started:.1f} s")
    for (kind, outcome), count in sorted(counts.items()):
        print(f"  {kind:12}{outcome:10}{count:8}")
    for text, what in list(wrong.items())[:40]:
        print(f"  {what}: {text!r}")
    for text, count in unread.most_common(10):
        print(f"  not read {count} times: {text!r}")
    print(f"read as a choice that nobody made: {mistakes} of {total}, {1000 * mistakes / max(1, total):.2f} in 1,000")
    return mistakes * 1000 > total


if __name__ == "__main__":
    sys.exit(main())
