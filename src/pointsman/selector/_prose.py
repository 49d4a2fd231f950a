"""Reads which numbered choice a prose answer selects, in English, Chinese and Russian.

The text is split into small tokens, and one pass over them collects every *reference* to a choice ("option 2", "the
second", "第2个", a name) with its firmness, from `WEAK` (a bare number, or a name that may be an ordinary word) to
`FINAL` ("the final answer is 2"). The firmest references that are not negated are the reading; if they disagree, the
text is ambiguous. Time is linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import lru_cache
from typing import NamedTuple

from pointsman.text import fold
from pointsman.text.unicode import normalize

AMBIGUOUS = -(10**19)
"""Replaces the number of a reference that may mean either of two choices; lower than any number that is read."""

_HUGE = 10**18 - 1
"""The value that stands for all longer numbers."""


class Names:
    """The names of the choices, by decreasing exactness: as written, folded, and without separators."""

    def __init__(self, names: Sequence[str]) -> None:
        self.count = len(names)
        self._written: dict[str, list[int]] = {}
        self._folded: dict[str, list[int]] = {}
        self._bare: dict[str, list[int]] = {}
        for number, name in enumerate(names, 1):
            folded = fold(name).strip()
            for table, key in ((self._written, name), (self._folded, folded), (self._bare, _bare(folded))):
                if key:
                    table.setdefault(key, []).append(number)

    def lookup(self, text: str) -> int | None:
        """Return the 1-based number of the choice with this name; `AMBIGUOUS` if several share it."""
        folded = fold(text).strip()
        for table, key in ((self._written, text.strip()), (self._folded, folded), (self._bare, _bare(folded))):
            if numbers := table.get(key):
                return numbers[0] if len(numbers) == 1 else AMBIGUOUS
        return None

    def extends(self, text: str) -> bool:
        """Whether a longer name starts with this text."""
        folded = fold(text)
        return any(name.startswith(folded) and name != folded for name in self._folded)

    def spans(self, text: str) -> list[tuple[int, int, int]]:
        """Return start, end and number of names in a normalised, lower-case text; longest first, no overlaps."""
        results: list[tuple[int, int, int]] = []
        for name, numbers in self._folded.items():
            if name.isdecimal():
                continue  # numbers in the text are numbers of choices
            number = numbers[0] if len(numbers) == 1 else AMBIGUOUS
            results.extend((match.start(), match.end(), number) for match in _pattern(name).finditer(text))
        results.sort(key=lambda span: (span[0], -span[1]))
        spans: list[tuple[int, int, int]] = []
        for span in results:
            if not spans or span[0] >= spans[-1][1]:
                spans.append(span)
        return spans


def _bare(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name)


@lru_cache(maxsize=1024)
def _pattern(name: str) -> re.Pattern[str]:
    """Return a pattern for a name as a whole word with interchangeable separators."""
    parts = [re.escape(part) for part in re.split(r"[\s_-]+", name) if part]
    body = r"[\s_-]{1,3}".join(parts) or re.escape(name)
    before = r"(?<![a-z0-9_а-яё-])" if _SPACED.match(name[0]) else ""
    after = r"(?![a-z0-9_а-яё]|-[a-zа-яё])" if _SPACED.match(name[-1]) else ""
    return re.compile(before + body + after)


_SPACED = re.compile(r"[a-z0-9_а-яё]")


class Kind(StrEnum):
    """The role of a token."""

    WORD = "word"
    FILL = "fill"  # may stand between "answer" and its number: is, the, :, quotes
    END = "end"  # end of a sentence or line
    COMMA = "comma"
    COLON = "colon"
    OPEN = "open"  # a bracket or quote
    CLOSE = "close"
    FINAL = "final"
    ANSWER = "answer"
    VERB = "verb"  # choose, pick
    BEST = "best"  # best, fits: before or after its reference
    NOUN = "noun"  # option, tool
    NOT = "not"
    ONLY = "only"  # not only
    BUT = "but"
    AND = "and"
    OR = "or"
    NONE = "none"
    BAD = "bad"  # wrong, worse: applies to its reference
    IF = "if"  # a condition: the reference before it does not count yet
    CORRECTION = "correction"  # wait, no: earlier statements may be withdrawn
    REFUSE = "refuse"
    BECAUSE = "because"
    COUNTED = "counted"  # after a number: the number is a count, not a name
    HASH = "hash"
    NUMBER = "number"
    COUNT_WORD = "count word"  # two, два, 二
    ORDINAL = "ordinal"
    NAME = "name"


class Token(NamedTuple):
    """A token; ``number`` if it refers to a choice, ``firm`` if its form alone shows that."""

    kind: Kind
    number: int = 0
    firm: bool = False


class Tier(IntEnum):
    """How firm a reference is."""

    WEAK = 0
    NAMED = 1
    CHOSEN = 2
    ANSWERED = 3
    FINAL = 4


class Verdict(StrEnum):
    """The outcome of reading a text."""

    CHOSEN = "chosen"
    NOTHING = "nothing"
    AMBIGUOUS = "ambiguous"
    NONE = "none"
    REFUSAL = "refusal"


@dataclass(frozen=True, slots=True)
class Reading:
    """The verdict and, if something was chosen, the 1-based numbers as in the text, not yet checked."""

    verdict: Verdict
    numbers: tuple[int, ...] = ()


def _table(**words: str) -> dict[str, Kind]:
    return {word: Kind[kind] for kind, line in words.items() for word in line.split()}


_WORDS = _table(
    FINAL="final finally ultimately conclusion boxed итого",
    ANSWER="answer output",
    VERB="""choose chose choosing select selected selecting selection pick picked picking recommend recommended suggest
        prefer use using go going decision route call выбираю выбрал выбрала выбираем выберу выбрать выбор выбран
        выбрано выберите беру предпочитаю""",
    BEST="""best suitable appropriate relevant right correct fit fits match matches matching closest ideal applicable
        needed better подходит подходят подойдет подойдут лучше лучший лучшая лучшее лучшим правильный правильно
        верный уместен уместнее нужен нужны""",
    NOUN="""option choice number tool candidate item index id dataset source
        options choices numbers tools candidates items ids datasets sources
        вариант варианту вариантом номер номером опция опцию инструмент инструментом пункт пункта пункту источник
        варианты вариантов номера опции опций инструменты инструментов пункты источники источников""",
    NOT="""not no never rather instead except than without excluding unlike nor neither не ни вместо кроме чем
        нельзя""",
    BAD="""worse wrong incorrect unsuitable irrelevant inappropriate bad weak weaker poor unrelated хуже неуместен
        неверный неверно неправильный неправильно""",
    IF="if otherwise unless если иначе",
    CORRECTION="wait actually correction oops scratch hmm нет точнее вернее стоп погоди ошибка",
    ONLY="only just merely только лишь просто",
    BUT="but а но",
    AND="and & + plus и также as-well",
    OR="or either или либо",
    NONE="none neither nothing никакой никакая никакие ничего ничто нету",
    REFUSE="sorry cannot can't can’t unable apologize apologise refuse decline извините простите отказываюсь сожалению",
    BECAUSE="because since so thus for ибо потому поскольку так",
    FILL="""is are be the a an to would will be my its it it's this that was should definitely clearly with
        maybe perhaps possibly i'd i ll
        это эта этот будет является был мой моя мне возможно""",
    COUNTED="of из times варианта инструмента",
)
_STEMS = (
    (re.compile(r"окончательн|итогов|финальн"), Kind.FINAL),
    (re.compile(r"ответ"), Kind.ANSWER),
    (re.compile(r"рекоменд|предпоч"), Kind.VERB),
    (re.compile(r"подход|подойд|лучш|правильн"), Kind.BEST),
    (re.compile(r"\w+n't$|\w+n’t$"), Kind.NOT),
)
_COUNT_WORDS = {
    word: number
    for line in (
        "one two three four five six seven eight nine ten",
        "один два три четыре пять шесть семь восемь девять десять",
    )
    for number, word in enumerate(line.split(), 1)
}
_ORDINALS = {
    word: number
    for number, word in enumerate(
        ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"), 1
    )
}
_ORDINAL_STEMS = tuple(
    (re.compile(stem + r"(?:ый|ой|ий|ая|ое|ье|ья|ьего|ьему|ью|ого|ому|ую|ым|ом)$"), number)
    for number, stem in enumerate(
        ("перв", "втор", "трет", "четв[её]рт", "пят", "шест", "седьм", "восьм", "девят", "десят"), 1
    )
)
_HAN_DIGITS = {character: value for value, character in enumerate("零一二三四五六七八九")} | {"两": 2, "〇": 0}

_HAN = _table(
    FINAL="最终 最后 综上 总之",
    ANSWER="答案 回答 结论",
    VERB="选择 我选 应选 选用 选 推荐 建议 使用 应该用 采用 决定",
    BEST="最合适 最适合 最佳 最好 最相关 最匹配 更合适 更适合 合适 适合 正确 相关 匹配 符合 适用",
    NOUN="选项 编号 序号 方案 工具 候选项 候选",
    NOT="不是 不选 而不是 而非 不要 不 非 除了 没 别 并非 不能选",
    BAD="错误 错 更差",
    IF="如果 否则",
    CORRECTION="不对 更正 等等 等一下 错了",
    ONLY="仅 只 仅仅 光",
    BUT="而是 但是 但 而",
    AND="和 与 及 以及 跟 还有",
    OR="或者 或 还是 抑或",
    NONE="都不 没有一个 没有合适 没有任何 均不 无合适 没有哪个 没有适合 没有符合 没有选项 无一",
    REFUSE="抱歉 对不起 无法 不能 不便 拒绝",
    BECAUSE="因为 因 由于 所以 因此",
    FILL="应该 应当 应 是 为 了 的 就是 就 我 会 该 这个 它 可能 也许",
    COUNTED="个 种 条 项 次 分钟 年 月 日 家",
)
_HAN_PHRASES = "|".join(sorted(_HAN, key=len, reverse=True))

_TOKEN = re.compile(
    rf"""
    (?P<complex>\d+(?:[./:\-–~]\d+)+%?|\d{{1,3}}(?:,\d{{3}})+|\d+\s?[%°]|[-−]\d+)
  | (?P<hash>(?:\bno\.|[#№])\s*(?=\d)|n°\s*(?=\d))
  | (?P<nth>\d+(?:st|nd|rd|th|-?(?:й|я|е|го|му|ый|ая|ое|ую|ой))\b)
  | (?P<unit>\d+[a-zа-яё_]\w*)
  | (?P<number>\d+)
  | 第\s*(?P<han_nth>\d+|[零一二三四五六七八九十两〇]+)\s*(?P<han_unit>[个個项項号號条條种種]?)
  | (?P<han>{_HAN_PHRASES})
  | (?P<han_number>[一二三四五六七八九十两]+)
  | (?P<word>[a-zа-яё][a-zа-яё'’]*(?:-[a-zа-яё]+)*)
  | (?P<end>[.!?;。！？；…\n]+)
  | (?P<comma>[,、，]+)
  | (?P<colon>[:=]+>?|[-—–−]+>?|→)
  | (?P<open>[(\[{{<（【《]+)
  | (?P<close>[)\]}}>）】》]+)
  | (?P<fill>["'`“”‘’«»「」『』*\\/|_]+)
  | (?P<and>[&+])
    """,
    re.VERBOSE,
)
_WHOLE_NUMBER = re.compile(r"\d+\.0+")
_LIST_LINE = re.compile(r"^[ \t]*(?:[-*•][ \t]*)?\**[(\[]?(\d{1,4})[.)\]:、][ \t]*\S.*$", re.MULTILINE)
_FENCE_MARK = re.compile(r"```+[ \t]*\w*|~~~+[ \t]*\w*")
_PLAIN = {kind.value: Token(kind) for kind in Kind}
_WORD = _PLAIN["word"]
_PLURALS = "options choices numbers tools candidates items ids datasets sources вариантов инструментов опций источников"
_FIRM = frozenset({"no", "ни", "it", "it's", "is", "это", "是", "应该", "应", "应当", *_PLURALS.split()})
"""Words that are stronger than others of their kind: "no option"; "not 1, it is 2"; "two options" is a count."""
_HAN_TOKENS = {word: Token(kind, firm=word in _FIRM) for word, kind in _HAN.items()}


def read_prose(text: str, names: Names) -> Reading:
    """Read which choice a text selects.

    >>> names = Names(["weather", "news", "maths"])
    >>> read_prose("I choose 2 because it is about events.", names).numbers
    (2,)
    >>> read_prose("There are 3 options and none of them fit.", names).verdict.value
    'none'
    """
    text = _FENCE_MARK.sub(" ", text).replace("№", "#")
    if len(text) < 1000 and (number := names.lookup(_trim(text))):
        return _reading((number,))
    text = normalize(text).lower().replace("ё", "е").strip()
    lines = _LIST_LINE.findall(text)
    if len(lines) > 1:
        # Lines of a numbered list only count or repeat the options; the text outside the list decides.
        rest = _LIST_LINE.sub("", text)
        reading = _decide(list(_tokens(rest, names)))
        return _read_list(text, names) if reading.verdict is Verdict.NOTHING else reading
    return _decide(list(_tokens(text, names)))


def _trim(text: str) -> str:
    return text.strip().strip("\"'`“”‘’«»「」『』*.,;:!?。，；：！？()（）[]【】 ").strip()


def _reading(numbers: Sequence[int]) -> Reading:
    distinct = tuple(dict.fromkeys(numbers))
    return Reading(Verdict.AMBIGUOUS) if AMBIGUOUS in distinct else Reading(Verdict.CHOSEN, distinct)


def _read_list(text: str, names: Names) -> Reading:
    """Read a text that is only a numbered list: its numbers are those of the options if the names beside them agree."""
    numbers, name_numbers = [], []
    for match in _LIST_LINE.finditer(text):
        numbers.append(int(match[1]))
        spans = names.spans(match[0])
        name_numbers.append(spans[0][2] if spans else None)
    if name_numbers == numbers:
        return _reading(numbers) if len(numbers) < names.count else Reading(Verdict.AMBIGUOUS)
    counting = numbers == list(range(1, len(numbers) + 1))
    if counting and None not in name_numbers:
        return _reading([number for number in name_numbers if number is not None])
    if not counting and not any(name_numbers):
        return _reading(numbers)
    return Reading(Verdict.AMBIGUOUS)


def _tokens(text: str, names: Names) -> Iterator[Token]:
    position = 0
    for start, end, number in names.spans(text):
        yield from _lex(text, position, start)
        name = text[start:end]
        quoted = start > 0 and text[start - 1] in "\"'`“‘«「『*([<（【《"
        yield Token(Kind.NAME, number, firm=quoted or bool(re.search(r"[\s\d_-]", name)))
        position = end
    yield from _lex(text, position, len(text))


def _lex(text: str, start: int, end: int) -> Iterator[Token]:
    for match in _TOKEN.finditer(text, start, end):
        group = match.lastgroup or "word"
        value = match[0]
        match group:
            case "word":
                yield _word(value)
            case "han":
                yield _HAN_TOKENS[value]
            case "number":
                yield Token(Kind.NUMBER, _integer(value))
            case "complex":
                whole = _WHOLE_NUMBER.fullmatch(value)
                yield Token(Kind.NUMBER, _integer(value.split(".", 1)[0])) if whole else _WORD
            case "nth":
                digits = re.match(r"\d+", value)
                assert digits is not None  # the group begins with digits
                yield Token(Kind.ORDINAL, _integer(digits[0]))
            case "han_unit" | "han_nth":
                number = match["han_nth"]
                value = number if number.isdecimal() else str(_han_integer(number))
                yield Token(Kind.ORDINAL, _integer(value), firm=bool(match["han_unit"]))
            case "han_number":
                yield Token(Kind.COUNT_WORD, _han_integer(value))
            case "unit":
                yield _WORD
            case _:
                yield _PLAIN[group]


@lru_cache(maxsize=4096)
def _word(word: str) -> Token:
    if word in _COUNT_WORDS:
        return Token(Kind.COUNT_WORD, _COUNT_WORDS[word])
    if word in _ORDINALS:
        return Token(Kind.ORDINAL, _ORDINALS[word])
    for stem, number in _ORDINAL_STEMS:
        if stem.match(word):
            return Token(Kind.ORDINAL, number)
    if kind := _WORDS.get(word):
        return Token(kind, firm=word in _FIRM)
    return next((Token(kind) for stem, kind in _STEMS if stem.match(word)), _WORD)


def _integer(digits: str) -> int:
    return int(digits) if len(digits) <= 18 else _HUGE


def _han_integer(digits: str) -> int:
    """Return the value of Chinese numerals up to 99; 0 for anything else."""
    if len(digits) > 3:
        return 0
    if "十" in digits:
        tens, _, ones = digits.partition("十")
        return _HAN_DIGITS.get(tens, 1 if not tens else 0) * 10 + (_HAN_DIGITS.get(ones, 0) if ones else 0)
    return int("".join(str(_HAN_DIGITS[digit]) for digit in digits))


@dataclass(slots=True)
class _Group:
    """References joined by "and", "or" or commas: statements apply to all of them."""

    numbers: list[int]
    tier: Tier
    negated: bool
    alternatives: bool = False


_CUES = {Kind.FINAL: Tier.FINAL, Kind.ANSWER: Tier.ANSWERED, Kind.VERB: Tier.CHOSEN, Kind.BEST: Tier.CHOSEN}
_QUIET = frozenset({Kind.FILL, Kind.OPEN, Kind.CLOSE, Kind.COLON, Kind.HASH})
_BOUNDARIES = frozenset(
    {Kind.END, Kind.COMMA, Kind.BECAUSE, Kind.BEST, Kind.BUT, Kind.NOT, Kind.CLOSE, Kind.OR, Kind.AND}
)
_REFERENCES = frozenset({Kind.NUMBER, Kind.ORDINAL, Kind.COUNT_WORD, Kind.NAME})
_SAYS_ONLY_WHICH = _REFERENCES | _QUIET | {Kind.NOUN, Kind.COMMA, Kind.AND, Kind.OR}
_REACH = 3
"""Maximum distance in words between "not" and a reference, in either order."""
_FAR = 1_000_000


class _Walk:
    """One pass over the tokens; the attributes hold the state at the current one."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens
        self.groups: list[_Group] = []
        self.none = self.refused = False
        self.corrected = 0  # number of groups before "wait, no"
        self.alone = False  # this line or sentence has only references
        self.cue: Tier | None = None  # "answer:" waits for its reference
        self.cue_negated = False
        self.cue_words = 0  # words since the cue, except fillers
        self.spent: Tier | None = None  # the cue of the last reference, which "but" reopens
        self.since_not = _FAR
        self.since_reference = _FAR
        self.joint: Kind | None = None  # and, or, comma: the only token since the last reference
        self.doubted: _Group | None = None  # a reference before "not", which may belong to it or to the next one

    def run(self) -> None:
        for position, token in enumerate(self.tokens):
            if not position or self.tokens[position - 1].kind is Kind.END:
                self.alone = self.only_references(position)
            if token.kind in _REFERENCES and self.refers(position, token):
                self.reference(position, token)
            else:
                self.other(position, token.kind)
        self.doubt()

    # the context of a token

    def only_references(self, position: int) -> bool:
        """Whether the line or sentence that begins here has only references."""
        while position < len(self.tokens) and (kind := self.tokens[position].kind) is not Kind.END:
            if kind not in _SAYS_ONLY_WHICH:
                return False
            position += 1
        return True

    def near(self, position: int, step: int, skip: frozenset[Kind] = frozenset({Kind.OPEN, Kind.CLOSE})) -> Kind:
        """Return the kind of the next (or previous) token that is not a bracket; END if there is none."""
        position += step
        while 0 <= position < len(self.tokens):
            if self.tokens[position].kind not in skip:
                return self.tokens[position].kind
            position += step
        return Kind.END

    def at(self, position: int) -> Kind:
        return self.tokens[position].kind if 0 <= position < len(self.tokens) else Kind.END

    def refers(self, position: int, token: Token) -> bool:
        """Whether a number, ordinal or name refers to a choice here, rather than counting or describing."""
        after = self.at(position + 1)
        before = self.near(position, -1, _QUIET)
        match token.kind:
            case Kind.NAME:
                return True
            case Kind.NUMBER:
                return after is not Kind.COUNTED and (after is not Kind.NOUN or before is Kind.NOUN)
            case Kind.COUNT_WORD:
                counts = after is Kind.COUNTED or (after is Kind.NOUN and self.tokens[position + 1].firm)
                return not counts and (before is Kind.NOUN or self.alone or self.chosen(position))
            case _:
                if token.firm or after is Kind.NOUN or before is Kind.NOUN or self.alone:
                    return True
                introduced = self.at(position - 1) is Kind.FILL or self.chosen(position)
                return introduced and self.near(position, 1, frozenset({Kind.CLOSE, Kind.FILL})) in _BOUNDARIES

    def chosen(self, position: int) -> bool:
        """Whether a cue directly precedes."""
        return self.cue is not None and self.near(position, -1, _QUIET) in _CUES

    def firm(self, position: int, token: Token) -> bool:
        before, after = self.at(position - 1), self.at(position + 1)
        has_noun = before in {Kind.NOUN, Kind.HASH} or self.near(position, -1, _QUIET) is Kind.NOUN
        if token.kind is Kind.NAME:
            return token.firm or has_noun or after is Kind.NOUN
        bracketed = before is Kind.OPEN and after in {Kind.CLOSE, Kind.COMMA}
        return token.kind is not Kind.NUMBER or has_noun or bracketed

    # the effect of a token

    def reference(self, position: int, token: Token) -> None:
        if self.same(position, token):
            return
        if self.joint is not None and self.since_reference == 0 and self.since_not > 0:
            group = self.groups[-1]
            group.numbers.append(token.number)
            group.alternatives |= self.joint is Kind.OR
        else:
            self.groups.append(self.group(position, token))
        if self.since_not <= _REACH:
            self.doubted = None  # "2 not 1": the "not" belongs to this one
        self.cue, self.since_not, self.since_reference, self.joint = None, _FAR, 0, None

    def group(self, position: int, token: Token) -> _Group:
        firm = self.firm(position, token)
        negated = self.since_not <= _REACH
        tier = Tier.NAMED if firm else Tier.WEAK
        if self.cue is not None and (
            self.cue_words == 0 or (self.cue_words <= 6 and (firm or token.kind is Kind.NAME))
        ):
            tier, negated = self.cue, negated or self.cue_negated
            self.spent = self.cue
        elif self.alone or self.leads(position):
            tier = Tier.CHOSEN
        return _Group([token.number], tier, negated)

    def leads(self, position: int) -> bool:
        """Whether the text opens with the reference and then explains: "2 because", "(2) - it is"."""
        if self.near(position, -1, _QUIET) is not Kind.END or self.groups or self.tokens[position].kind is Kind.NAME:
            return False
        if any(token.kind is not Kind.END and token.kind not in _QUIET for token in self.tokens[:position]):
            return False
        return self.near(position, 1, frozenset({Kind.CLOSE, Kind.FILL})) in {*_BOUNDARIES, Kind.COLON, Kind.NAME} - {
            Kind.OR,
            Kind.AND,
            Kind.NOT,
        }

    def same(self, position: int, token: Token) -> bool:
        """Whether it repeats the last reference, "2 (weather)" or "weather (option 2)"; if not, the text is unclear."""
        if not self.groups or self.since_reference or self.joint is not None or self.since_not <= _REACH:
            return False
        last = self.groups[-1]
        if last.numbers[-1] != token.number:
            last.numbers[-1] = AMBIGUOUS
        elif self.firm(position, token) and last.tier is Tier.WEAK:
            last.tier = Tier.NAMED
        return True

    def other(self, position: int, kind: Kind) -> None:  # noqa: C901, PLR0912  (a table, one line per kind)
        match kind:
            case Kind.END:
                self.end()
            case Kind.FINAL | Kind.ANSWER | Kind.VERB | Kind.BEST:
                self.open(kind)
            case Kind.NOUN if self.label(position):
                self.open(Kind.ANSWER)
            case Kind.NOT | Kind.NONE | Kind.REFUSE:
                self.none |= kind is Kind.NONE or self.no_option(position)
                self.refused |= kind is Kind.REFUSE
                self.deny()
            case Kind.ONLY:
                if self.since_not == 0:  # "not only"
                    self.since_not, self.doubted = _FAR, None
            case Kind.BUT:
                self.turn()
            case Kind.COMMA | Kind.AND | Kind.OR:
                self.join(kind)
            case Kind.BAD:
                self.bad()
            case Kind.IF:
                self.condition()
            case Kind.CORRECTION:
                self.corrected = len(self.groups)
                self.word()
            case Kind.FILL if self.tokens[position].firm and self.joint is Kind.COMMA:
                self.turn()  # "not 1, it is 2"
            case Kind.FILL | Kind.OPEN | Kind.CLOSE | Kind.HASH | Kind.NOUN:
                pass
            case Kind.COLON:
                self.since_reference += bool(self.groups)
            case _:
                self.word()

    def word(self) -> None:
        self.cue_words += 1
        self.since_not += 1
        self.since_reference += 1
        self.joint = None
        if self.since_not >= 2:
            self.doubt()

    def end(self) -> None:
        self.doubt()
        # "Answer:" may be on its own line
        if not (self.cue is not None and self.cue >= Tier.ANSWERED and self.cue_words == 0):
            self.cue = None
        self.spent, self.since_not, self.since_reference, self.joint = None, _FAR, _FAR, None

    def open(self, kind: Kind) -> None:
        tier = _CUES[kind]
        denied = self.since_not <= _REACH
        group = self.groups[-1] if self.groups and self.since_reference <= 4 and self.joint is None else None
        if kind is Kind.BEST and group is not None and not group.negated:
            group.tier = max(group.tier, tier)
            group.negated |= denied and self.doubted is group
            self.doubted, self.since_not = None, _FAR
            self.since_reference = _FAR
            return
        self.doubt()
        self.cue_negated = denied or (self.cue is not None and self.cue_negated and self.cue_words == 0)
        # "the final answer": the firmer of two adjacent cues
        self.cue = max(tier, self.cue) if self.cue is not None and self.cue_words <= 2 else tier
        self.cue_words, self.since_not, self.joint = 0, _FAR, None
        self.since_reference = _FAR

    def bad(self) -> None:
        if self.groups and self.since_reference <= 4 and self.joint is None:
            self.groups[-1].negated |= self.since_not > _REACH  # "not worse" is weak
            self.doubted = None
        else:
            self.deny()

    def condition(self) -> None:
        if self.groups and self.since_reference <= 1:
            self.groups[-1].alternatives = True
        self.word()

    def withdrawn(self, best: Tier) -> bool:
        """Whether the firmest references came before "wait, no", and others came after it."""
        positive = [group for group in self.groups[: self.corrected] if group.tier is best and not group.negated]
        numbers = {number for group in positive for number in group.numbers}
        later = (group for group in self.groups[self.corrected :] if not group.negated)
        return bool(positive) and any(not numbers.issuperset(group.numbers) for group in later)

    def label(self, position: int) -> bool:
        """Whether a line opens with "choice:"."""
        return self.at(position + 1) is Kind.COLON and self.near(position, -1, _QUIET) is Kind.END

    def no_option(self, position: int) -> bool:
        """Whether the text here is "no option" or "ни один"."""
        return self.tokens[position].firm and self.at(position + 1) in {Kind.NOUN, Kind.BEST, Kind.COUNT_WORD}

    def deny(self) -> None:
        if self.since_not > 0:  # not the second word of "rather than"
            self.doubt()
            if self.groups and self.since_reference <= _REACH and self.joint is None:
                self.doubted = self.groups[-1]
        self.since_not = 0
        self.joint = None

    def doubt(self) -> None:
        """Apply the open "not" to the reference before it."""
        if self.doubted is not None:
            self.doubted.negated = True
            self.doubted = None

    def turn(self) -> None:
        self.doubt()
        self.since_not, self.joint, self.since_reference = _FAR, None, _FAR
        if self.groups and self.groups[-1].negated and self.cue is None:
            self.cue, self.cue_words = self.spent or Tier.CHOSEN, 0
            self.cue_negated = False

    def join(self, kind: Kind) -> None:
        self.doubt()
        if self.since_reference == 0:
            # "1, or 2": the word outweighs the comma before it
            self.joint = kind if self.joint in {None, Kind.COMMA} else self.joint
        elif kind is Kind.COMMA:
            self.since_not, self.since_reference = _FAR, _FAR


def _decide(tokens: Sequence[Token]) -> Reading:
    walk = _Walk(tokens)
    walk.run()
    positive = [group for group in walk.groups if not group.negated]
    best = max((group.tier for group in positive), default=Tier.WEAK)
    firmest = [group for group in positive if group.tier is best]
    if best >= Tier.CHOSEN or (best is Tier.NAMED and not walk.none and not walk.refused):
        if any(group.alternatives for group in firmest) or walk.withdrawn(best):
            return Reading(Verdict.AMBIGUOUS)
        if best in {Tier.NAMED, Tier.ANSWERED, Tier.FINAL} and len({tuple(group.numbers) for group in firmest}) > 1:
            return Reading(Verdict.AMBIGUOUS)
        return _reading([number for group in firmest for number in group.numbers])
    if positive and (walk.none or walk.refused or len({number for group in positive for number in group.numbers}) > 1):
        return Reading(Verdict.AMBIGUOUS)
    if walk.none:
        return Reading(Verdict.NONE)
    return Reading(Verdict.REFUSAL if walk.refused else Verdict.NOTHING)
