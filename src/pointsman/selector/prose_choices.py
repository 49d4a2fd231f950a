"""Reads which choice a model's prose selects, in English, Chinese and Russian, if it says so in one of a few forms.

The forms: the whole answer, or its first line, is a reference ("option 2", "第2个", "1, 3", a name); a marked answer
("Answer: 2"); a decision ("I choose option 2"); a judgement ("option 2 is the best"). A sentence that denies, doubts,
compares, asks or sets a condition is not read, and neither is a number word that may be a pronoun ("the one about
leave"). Claims that contradict each other make the text ambiguous. What is in no form is not guessed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pointsman.text import fold
from pointsman.text.unicode import normalize

AMBIGUOUS = -(10**19)
"""Replaces the number of a reference that may mean either of two choices; lower than any number that is read."""


class Names:
    """The names of the choices, by decreasing exactness: as written, folded, and without separators."""

    def __init__(self, names: Sequence[str]) -> None:
        self.count = len(names)
        self._by_name: dict[str, list[int]] = {}
        self._by_folded_name: dict[str, list[int]] = {}
        self._bare: dict[str, list[int]] = {}
        for number, name in enumerate(names, 1):
            folded_name = fold(name).strip()
            for table, key in (
                (self._by_name, name),
                (self._by_folded_name, folded_name),
                (self._bare, _bare(folded_name)),
            ):
                if key:
                    table.setdefault(key, []).append(number)

    def lookup(self, text: str) -> int | None:
        """Return the 1-based number of the choice with this name; `AMBIGUOUS` if several share it."""
        folded_text = fold(text).strip()
        for table, key in (
            (self._by_name, text.strip()),
            (self._by_folded_name, folded_text),
            (self._bare, _bare(folded_text)),
        ):
            if numbers := table.get(key):
                return numbers[0] if len(numbers) == 1 else AMBIGUOUS
        return None

    def extends(self, text: str) -> bool:
        """Whether a longer name starts with this text."""
        folded_text = fold(text)
        return any(name.startswith(folded_text) and name != folded_text for name in self._by_folded_name)

    def mark(self, text: str) -> str:
        """Replace the names in a text by marked numbers, the longest first; a number in the text is never a name."""
        for name in sorted(self._by_folded_name, key=len, reverse=True):
            if name.isdecimal():
                continue
            numbers = self._by_folded_name[name]
            number = numbers[0] if len(numbers) == 1 else AMBIGUOUS
            text = _pattern(name).sub(f" {_MARK}{number}{_END} ", text)
        return text


def _bare(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name)


def _pattern(name: str) -> re.Pattern[str]:
    """Return a pattern for a name as a whole word with interchangeable separators, and its quotes."""
    words = [re.escape(word) for word in re.split(r"[\s_-]+", name) if word]
    body = r"[\s_-]{1,3}".join(words) or re.escape(name)
    left_edge = r"(?<![a-z0-9_а-я-])" if re.match(r"[a-z0-9_а-я]", name[0]) else ""
    right_edge = r"(?![a-z0-9_а-я]|-[a-zа-я])" if re.match(r"[a-z0-9_а-я]", name[-1]) else ""
    return re.compile(f"[{_QUOTES}]*{left_edge}{body}{right_edge}[{_QUOTES}]*")


class ProseVerdict(StrEnum):
    """The outcome of reading a text."""

    CHOSEN = "chosen"
    NOTHING = "nothing"
    AMBIGUOUS = "ambiguous"
    NONE = "none"
    REFUSAL = "refusal"


@dataclass(frozen=True, slots=True)
class ProseReading:
    """The verdict and, if something was chosen, the 1-based numbers as in the text, not yet checked."""

    verdict: ProseVerdict
    numbers: tuple[int, ...] = ()


_MARK, _END = "\ue000", "\ue001"
_QUOTES = "\"'`*“”‘’«»「」『』"
_NOUN = (
    "option|choice|tool|candidate|index|id|dataset|source"
    "|вариант(?:ом|у|а)?|опци[яюей]|инструмент(?:ом|у|а)?|пункт(?:ом|у|а)?|номер(?:ом|у|а)?|источник(?:ом|у|а)?"
    "|选项|编号|序号|方案|工具|候选项"
)
_NUMBER_WORDS = {
    word: number
    for line in (
        "one two three four five six seven eight nine ten",
        "first second third fourth fifth sixth seventh eighth ninth tenth",
        "один два три четыре пять шесть семь восемь девять десять",
        "一 二 三 四 五 六 七 八 九 十 十一 十二",
        "1st 2nd 3rd 4th 5th 6th 7th 8th 9th 10th",
    )
    for number, word in enumerate(line.split(), 1)
} | {"两": 2}
_RU_ORDINALS = ("перв", "втор", "трет", "четверт", "пят", "шест", "седьм", "восьм", "девят", "десят")
_WORD = "|".join(sorted(_NUMBER_WORDS, key=len, reverse=True))
_RU_ORDINAL = rf"(?:{'|'.join(_RU_ORDINALS)})(?:ый|ой|ий|ая|ое|ье|ья|ью|ого|ему|ому|ую|ым|ом)"
_ORDINAL = rf"{_RU_ORDINAL}|first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|\d{{1,2}}(?:st|nd|rd|th)"
_COUNTED_NOUN = r"\s*(?:options|choices|tools|datasets|times|вариант|инструмент|источник|раз)"
_INTEGER = rf"\d{{1,18}}(?:\.0+)?(?![\da-zа-я_%°个種种条项次年月日分家人])(?![.,:/~–-]\d)(?!{_COUNTED_NOUN})"
_BOUND = r"(?<![a-zа-я0-9_.,/~–-])"
_REFERENCES = (
    # "option 2", "option #2", "tool number 2", "选项二", "вариант два"
    re.compile(
        rf"(?:(?:{_NOUN})\s*(?:number\s*|no\.\s*|#\s*)?|(?<!\w)number\s+(?=\d))[(\[{_QUOTES}]*"
        rf"(?P<n>{_INTEGER}|(?:{_WORD}|{_RU_ORDINAL})(?![\w-]))[)\]{_QUOTES}]*"
    ),
    # "第2个", "选2号"
    re.compile(r"第\s*(?P<n>\d{1,4}|[一二三四五六七八九十两]{1,3})\s*(?:[个個项項号號条條种種]|(?=\W|$))"),
    re.compile(rf"(?P<n>{_INTEGER})\s*号"),
    # "the second option", "второй вариант", "the 2nd one"
    re.compile(rf"(?<!\w)(?:the\s+)?(?P<n>{_ORDINAL}|\d{{1,2}}-?(?:й|я|е|го|му|ый|ая|ую))\s+(?:{_NOUN}|one)(?!\w)"),
    # "[2]", "#2"
    re.compile(rf"\[(?P<n>{_INTEGER})\]|#\s*(?P<m>{_INTEGER})"),
)
_ITEM = rf"(?:{_MARK}-?\d+{_END}|{_BOUND}{_INTEGER})"
_AND = r"\s*(?:[,、;&+]\s*(?:and|и|和)?|and|и|和|与|及|以及)\s*"
_LIST = (
    r"(?:(?:options|choices|tools|numbers|ids|datasets|варианты|инструменты|пункты)\s+)?"
    rf"(?P<items>{_ITEM}(?:{_AND}{_ITEM})*)"
)
_FOLLOWS = (
    rf"(?=\s*(?:(?:{_NOUN})\s*)?(?:$|[,，]|\s(?:because|since|as|for|given|which|-|–|—|потому|так как|поскольку)\b"
    r"|\s?(?:[-–—]\s|因为|由于|以便)|\(|（))"
)
_EASILY = r"(?:clearly|definitely|therefore|thus|hence|so|then|finally|ultimately|now|would|will|should|must|can)"
_DECISION = re.compile(
    r"(?:^|[,，])\s*"
    r"(?:(?:so|thus|therefore|hence|and|but|then|finally|okay|ok|yes|sure|所以|因此|поэтому|значит|итак)\s*[,，]?\s*)*"
    rf"(?:(?:i|we|i'd|i'll|i’d|i’ll|let's|let me|please|я|мы|我|我们|应该|应|请)\s*)?(?:{_EASILY}\s+)*"
    r"(?:choose|chose|pick|picked|select|selected|recommend|prefer|use|go(?:ing)? with|am going with|suggest"
    r"|have (?:chosen|selected|picked)"
    r"|am (?:choosing|picking|selecting)|выбираю|выбрал[аи]?|выберу|выбираем|рекомендую|предлагаю|беру|предпочитаю"
    r"|选择|选用|选|推荐使用|推荐|建议使用|建议选择|采用|使用)"
    rf"\s*:?\s*(?:the\s+)?{_LIST}{_FOLLOWS}"
)
_SUPERLATIVE = (
    r"(?:best|most (?:suitable|appropriate|relevant|fitting)|right|correct|closest|ideal|лучш(?:ий|ая|ее)|правильный"
    r"|самый подходящий|наиболее подходящий|最合适|最适合|最佳|最好|最相关|最匹配|正确|合适|适合)"
)
_JUDGEMENTS = (
    re.compile(
        rf"(?:^|[,，])\s*(?:(?:so|thus|therefore|hence|and|所以|因此|поэтому)\s+)?{_LIST}\s*"
        rf"(?:(?:is|are|seems|looks|это|是|—|-)\s+)?(?:(?:clearly|definitely|the|by far|самый)\s+)*(?:是)?"
        rf"(?:{_SUPERLATIVE}(?:的)?(?:\s+(?:fit|match|one|choice|option|answer|вариант))?"
        rf"|fits? (?:the (?:question|query) )?best|fits?|(?:are|is) relevant"
        rf"|(?:(?:лучше|больше) всего )?(?:подходит|подходят)(?: лучше всего| больше всего)?)"
        rf"(?=\s*(?:$|[,，]|\s(?:because|since|as|for|here|потому|так как)\b|因为|由于))"
    ),
    re.compile(
        rf"(?:^|[,，])\s*(?:(?:so|thus|therefore|hence|и|поэтому|所以|因此)\s+)?(?:the\s+|самый\s+)?{_SUPERLATIVE}(?:的)?\s*"
        rf"(?:(?:{_NOUN}|one|fit|match|answer)\s*)?(?:is|are|would be|—|-|:|=|это|是|为)\s*(?:the\s+)?{_LIST}{_FOLLOWS}"
    ),
    re.compile(rf"(?:^|[,，])\s*(?:здесь\s+)?(?:лучше|больше) всего (?:подходит|подходят)\s*{_LIST}{_FOLLOWS}"),
)
_ANSWER = (
    rf"(?:answer|choice|selection|ranking|order|排序|排名|порядок|selected|chosen|output|ids?|{_NOUN}"
    rf"|答案|回答|结论|选择|ответ|выбор|решение)"
    rf"(?:s|ы|а)?(?:\s+(?:{_NOUN}|ids?|number)s?)?"
)
_MARKED_CHOICE = re.compile(
    rf"^\W*(?:(?:so|therefore|thus|所以|因此)\s*[,，]?\s*)?(?:(?:my|the|your|мой|наш|我的)\s*)?"
    rf"(?P<final>(?:final|最终|最后|окончательный|итоговый)\s*)?(?:relevant\s+|best\s+|selected\s+|chosen\s+)?{_ANSWER}"
    rf"\s*(?:is|are|was|would be|是|为|это|[:=—–-])+\s*(?:\\?boxed\s*)?{_LIST}"
    rf"(?=\s*(?:$|[,，]|\s(?:because|since|as|потому|так как)\b|因为|由于|\(|（|[-–—]\s))"
)
_OPENING = re.compile(
    rf"^\W*{_LIST}\s*(?:$|[-–—]\s|(?:because|since|потому что|так как|因为|由于)(?:\b|(?=[\u4e00-\u9fff])))"
)
_WHOLE_LINE = re.compile(rf"^(?:the\s+|мой\s+|my\s+|选|我选)?\s*{_LIST}$")

_UNREAD_TEXT = re.compile(
    r"(?<!\w)(?:not|no|nor|never|neither|cannot|without|except|unless|if|whether|either|or|otherwise|maybe|perhaps|possibly"
    r"|probably|might|may|could|unsure|torn|tempted|almost|usually|previously|earlier|yesterday|than|rather|instead"
    r"|unlike|worse|wrong|incorrect|someone|people|users?|you|they|he|she|says?|said|example|e\.g|suppose|asked|\w+n['’]t"
    r"|не|ни|нет|нельзя|если|либо|или|кроме|вместо|возможно|может|наверное|вероятно|сомневаюсь|чем|хуже|пользовател\w*"
    r"|например|допустим|раньше|вчера|бы)(?!\w)"
    r"|不|没|非|别|如果|假如|要是|或|可能|也许|大概|否则|除了|比|还是|用户|例如|比如|之前|昨天|似乎|吗|未必|难以|无法"
    r"|\?|？|\.\.\.|…"
)
"""What a sentence has that denies, doubts, compares, quotes, asks, or sets a condition: its claims do not count."""

_TAIL = re.compile(
    r"[,，]?\s*(?:(?:and\s+)?not|rather than|instead of|а не|вместо|而不是|而非|不是)\s*(?:the\s+)?"
    rf"{_ITEM}(?:\s*(?:or|nor|и|или|或|和|,)\s*{_ITEM})*\s*$"
)
"""The end of "2, not 1": it leaves the claim as clear as it was."""

_REASON = re.compile(r"[,，]?\s*(?:(?<!\w)(?:because|since|потому что|так как|поскольку)(?!\w)|因为|由于)")
"""What a reason begins with; not "as", which may say in what role."""

_OPEN_REASON = re.compile(
    r"\.\.|…|(?<!\w)(?:unless|otherwise|though|although|wrong|incorrect|если только|иначе|неверн\w+)(?!\w)"
    r"|除非|否则|虽然|尽管|错"
)
"""What a reason has that may take the choice back."""

_CORRECTION = re.compile(
    r"(?<!\w)(?:wait|actually|correction|oops|scratch|hmm|on second thought|then again|however|but|нет"
    r"|точнее|вернее|стоп"
    r"|погоди|ошибка|хотя|но)(?!\w)|不对|更正|等等|等一下|错了|但是|不过|然而"
)
_NONE_FITS = re.compile(
    r"(?<!\w)(?:none|neither)(?: of (?:the|these|those|them|above|\w+ above)\b"
    r"|\s+(?:fits?|suits?|applies|apply|match|is|are)\b"
    rf"|$)|(?<!\w)(?:no|nothing)\s+(?:(?:suitable|relevant|matching|appropriate)\s+)?(?:{_NOUN}|fits|matches)"
    rf"|(?<!\w)(?:ни од(?:ин|на|но)|ничего (?:не|из)|нет подходящ)"
    r"|都不|没有一个|没有合适|没有任何|均不|无合适|没有适合|没有符合"
)
_REFUSES = re.compile(
    r"(?<!\w)(?:sorry|i cannot|i can['’]?t|i am unable|i'm unable|apologi[sz]e|decline|refuse"
    r"|извините|простите|отказываюсь"
    r"|не могу)(?!\w)|抱歉|对不起|无法|拒绝"
)
_SENTENCES = re.compile(r"[.;](?=\s|$)|[!?。！？；\n]+")
_BRACKETS = re.compile(r"(?<![a-z])['’]|['’](?![a-z])|[()\[\]{}<>（）【】《》\\|_*~\"`“”‘«»「」『』]")
_LIST_LINE = re.compile(r"^[ \t]*(?:[-*•][ \t]*)?[(\[*]*(\d{1,4})[.)\]:、][ \t]*(?=[^\s\d*])(.*)$", re.MULTILINE)


def read_prose(text: str, names: Names) -> ProseReading:
    """Read which choice a text selects.

    >>> names = Names(["weather", "news", "maths"])
    >>> read_prose("I choose 2 because it is about events.", names).numbers
    (2,)
    >>> read_prose("I would choose the one that plays songs.", names).verdict.value
    'nothing'
    """
    text = re.sub(r"```+[ \t]*\w*|~~~+[ \t]*\w*|</?\w{1,20}>", " ", text).replace("№", "#")
    if len(text) < 1000 and (number := names.lookup(text.strip().strip(_QUOTES + ".,;:!?。，；：！？()（）[]【】 "))):
        return _reading((number,))
    text = normalize(text).lower().replace("ё", "е").replace(_MARK, " ").replace(_END, " ").strip()
    text_with_marks = re.sub(r"([:：])[\s*]*\n\s*", r"\1 ", _mark(text, names))
    list_lines = [(int(number), _numbers(line)[:1]) for number, line in _LIST_LINE.findall(text_with_marks)]
    if len(list_lines) > 1 or (list_lines and list_lines[0][1] and _LIST_LINE.fullmatch(text_with_marks)):
        # Lines of a numbered list repeat the options; only if there is nothing else are they the answer.
        text_with_marks = _LIST_LINE.sub("", text_with_marks)
        if not text_with_marks.strip():
            return _read_list(list_lines, names)
    if numbers := _full_list(text, text_with_marks):
        return _reading(numbers)
    text_with_marks = _without_reasons(text_with_marks)
    claims, final, last = _claims(text_with_marks)
    if final:
        return _reading(final)
    return _settle(claims, text_with_marks, text_with_marks[last:]) if claims else _read_without_claim(text_with_marks)


def _full_list(text: str, marks: str) -> tuple[int, ...]:
    """Return the numbers of a text that holds nothing else."""
    if number := _NUMBER_WORDS.get(text.strip(" .!。！")):
        return (number,)
    if match := re.fullmatch(rf"(?:the\s+)?({_ORDINAL}|\d{{1,2}}-?(?:й|я|е))[.!]?", text):
        return (_value(match[1]),)
    lines = [re.sub(r"^[-•]\s|[.!。！]$", "", line.strip()).strip() for line in _plain(marks).splitlines()]
    lines = [line for line in lines if line]
    if not all(_WHOLE_LINE.match(line) for line in lines):
        return ()
    return tuple(number for line in lines for number in _numbers(line))


def _settle(claims: Sequence[tuple[int, ...]], text: str, tail: str) -> ProseReading:
    """Return what the claims agree on, unless the text takes it back."""
    is_corrected = _CORRECTION.search(tail) and set(_numbers(tail)) - set(claims[-1])
    if len(set(claims)) > 1 or is_corrected or _NONE_FITS.search(text) or _REFUSES.search(text):
        return ProseReading(ProseVerdict.AMBIGUOUS)
    return _reading(claims[0])


def _read_without_claim(text: str) -> ProseReading:
    """Return why a text that claims nothing names no choice."""
    mentions = {number for sentence in _SENTENCES.split(text) for number in _mentions(sentence)}
    if len(mentions) > 1 or AMBIGUOUS in mentions:
        return ProseReading(ProseVerdict.AMBIGUOUS)
    if _NONE_FITS.search(text):
        return ProseReading(ProseVerdict.AMBIGUOUS if _numbers(text) else ProseVerdict.NONE)
    return ProseReading(ProseVerdict.REFUSAL if _REFUSES.search(text) else ProseVerdict.NOTHING)


def _reading(numbers: Sequence[int]) -> ProseReading:
    distinct = tuple(dict.fromkeys(numbers))
    return (
        ProseReading(ProseVerdict.AMBIGUOUS) if AMBIGUOUS in distinct else ProseReading(ProseVerdict.CHOSEN, distinct)
    )


def _read_list(lines: Sequence[tuple[int, tuple[int, ...]]], names: Names) -> ProseReading:
    """Read a numbered list: its numbers, if the names beside them agree; the names, if it only counts them."""
    numbers, mentions_in_list = (
        [number for number, _ in lines],
        [mention for _, mentions in lines for mention in mentions],
    )
    if mentions_in_list == numbers and len(numbers) < names.count:
        return _reading(numbers)
    if len(mentions_in_list) == len(numbers) > 1 and mentions_in_list != numbers == list(range(1, len(numbers) + 1)):
        return _reading(mentions_in_list)
    return ProseReading(ProseVerdict.AMBIGUOUS)


def _plain(text: str) -> str:
    """Return the text without brackets and quotes; the apostrophe of a word stays."""
    return _BRACKETS.sub(" ", text)


def _mark(text: str, names: Names) -> str:
    """Mark what refers to a choice whatever surrounds it; "news (2)" is one reference."""
    text = names.mark(text)
    for pattern in _REFERENCES:
        text = pattern.sub(lambda match: f" {_MARK}{_value(next(filter(None, match.groups())))}{_END} ", text)
    repetition = rf"({_MARK}(-?\d+){_END}) *[(\[（] *(?:{_MARK}\2{_END}|\2(?!\d)) *[)\]）]"
    return re.sub(repetition, r"\1", text)


def _value(word: str) -> int:
    if word in _NUMBER_WORDS:
        return _NUMBER_WORDS[word]
    if digits := re.match(r"\d+", word):
        return int(digits[0])
    # a longer Chinese number is out of range
    return next((number for number, stem in enumerate(_RU_ORDINALS, 1) if word.startswith(stem)), 0)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(re.sub(r"\.0+$|[^\d.-]", "", item)) for item in re.findall(_ITEM, text))


def _mentions(sentence: str) -> list[int]:
    """Return the marked references of a sentence, and the plain numbers of "1 or 2"."""
    numbers = [int(number) for number in re.findall(rf"{_MARK}(-?\d+){_END}", sentence)]
    alternatives = re.search(rf"{_ITEM}(?:\s*(?:or|или|либо|或|还是|,)\s*{_ITEM})+", sentence)
    return numbers + (list(_numbers(alternatives[0])) if alternatives else [])


def _without_reasons(text: str) -> str:
    """Return a text without the reasons for its choices: what they deny or doubt is not the choice.

    A reason stays if it names another number or option, or may take the choice back.

    >>> _without_reasons("option 3 is best because the user can't drive. i agree.")
    'option 3 is best. i agree.'
    """
    segments: list[str] = []
    start = 0
    for end, following in [*(match.span() for match in _SENTENCES.finditer(text)), (len(text), len(text))]:
        sentence, stop = text[start:end], text[end:following]
        if (reason := _REASON.search(sentence)) and not ("?" in stop or "？" in stop):
            choice_text, other_names = set(_numbers(_plain(sentence[: reason.start()]))), sentence[reason.end() :]
            takes_back = _OPEN_REASON.search(other_names) or _CORRECTION.search(other_names)
            if choice_text and not takes_back and not set(_numbers(_plain(other_names))) - choice_text:
                sentence = sentence[: reason.start()]
        segments += sentence, stop
        start = following
    return "".join(segments)


def _claims(text: str) -> tuple[list[tuple[int, ...]], tuple[int, ...] | None, int]:
    """Return what the sentences claim, what is called final, and where the last claim ends."""
    claims: list[tuple[int, ...]] = []
    final: tuple[int, ...] | None = None
    last = start = 0
    ends = [*((match.start(), match.end()) for match in _SENTENCES.finditer(text)), (len(text), len(text))]
    for end, following in ends:
        sentence = _plain(text[start:following]).strip(" .!。！；;\n")
        sentence = _TAIL.sub("", sentence)
        forms: tuple[re.Pattern[str], ...] = (
            () if _UNREAD_TEXT.search(sentence) else (_MARKED_CHOICE, _DECISION, *_JUDGEMENTS)
        )
        if not claims and not text[:start].strip() and forms:
            forms = (_OPENING, *forms)
        for form in forms:
            for match in form.finditer(sentence):
                claims.append(_numbers(match["items"]))
                last = end
                if form is _MARKED_CHOICE and match["final"]:
                    final = claims[-1]
        start = following
    return claims, final, last
