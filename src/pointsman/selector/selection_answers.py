"""Parses a model's answer to a selection prompt into selections or a named defect.

It accepts what a careful reader would and never guesses: an ambiguous answer is a defect, and the caller may ask again.
Options are numbered from 1, as in the prompt; a number out of range is never wrapped or clamped.

It tries JSON in any form that models write (`pointsman.llm.loose_json`), then prose in English, Chinese or
Russian (`pointsman.selector.prose_choices`). Parsing is pure and linear in the length of the text.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any

from pointsman.llm.loose_json import Cut, JsonPiece, Object, find_values, literal
from pointsman.llm.model_answers import DefectError, after_thinking, without_fences
from pointsman.selector.base_selector import SingleSelection, ToolMetadata
from pointsman.selector.prose_choices import AMBIGUOUS, Names, ProseVerdict, read_prose
from pointsman.text import fold, repair
from pointsman.tools.errors import InputError
from pointsman.values.argument_checks import is_number


class Defect(StrEnum):
    """Why an answer is unusable."""

    EMPTY = "empty"
    """No text, or an empty list."""
    NO_ANSWER = "no_answer"
    """It names no option."""
    OUT_OF_RANGE = "out_of_range"
    """It names an option that does not exist."""
    AMBIGUOUS = "ambiguous"
    """It can be read in two ways, or gives several answers when one was requested."""
    TOO_MANY = "too_many"
    """It names more options than requested without ranking them."""
    TRUNCATED = "truncated"
    """It ends before naming an option."""
    NONE_NOT_ALLOWED = "none_not_allowed"
    """It says that no option fits, which is not allowed here."""
    REFUSAL = "refusal"
    """The model declines to answer."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """A parsed answer.

    Attributes:
        selections: 0-based, in the given order; ``reason`` is empty if the model gave none, ``score`` is the model's
            own, unchecked. Empty if there is a defect, or if no option was chosen and that is allowed.
        repairs: how the answer was read leniently, for traces; empty for the requested JSON.
        defect: None, or why there is no selection.
        detail: the defect in words.
        named: with `Defect.TOO_MANY`, every option named, in order, for callers that do not ask again.
    """

    selections: tuple[SingleSelection, ...] = ()
    repairs: tuple[str, ...] = ()
    defect: Defect | None = None
    detail: str = ""
    named: tuple[SingleSelection, ...] = ()


def parse_selection(
    text: str,
    choices: Sequence[ToolMetadata],
    *,
    max_outputs: int = 1,
    is_list: bool = False,
    allow_none: bool = False,
    prompt: str = "",
) -> Parsed:
    """Parse a model's answer.

    If more options are named than ``max_outputs``, the best are kept only if the answer ranks them by distinct scores
    or ranks; list order alone is not a ranking. In a list of several, numbers beyond the last option are dropped (noted
    in ``repairs``) as long as one is left; a zero among them means that the model counts from zero, so no number is
    reliable.

    Args:
        text: the answer; any text is accepted.
        choices: the options, in the order of the prompt.
        max_outputs: maximum number of options; with 1, two different ones are ambiguous unless ``is_list``.
        is_list: whether a list was asked for, so that its order counts: two where 1 is allowed are `Defect.TOO_MANY`.
        allow_none: whether "none of them" is allowed; if so, it gives neither selections nor a defect.
        prompt: what the model was sent; what the answer repeats of it is no answer.

    Raises:
        InputError: there are no choices, ``max_outputs`` is below 1, or the text is not a string.

    Example:
        >>> choices = [ToolMetadata("weather", "forecasts"), ToolMetadata("news", "what happened")]
        >>> parse_selection('Sure! {"choice": "2", "reason": "an event"}', choices).selections
        (SingleSelection(index=1, reason='an event', score=None),)
        >>> parse_selection("It could be 1 or 2.", choices).defect
        <Defect.AMBIGUOUS: 'ambiguous'>
    """
    if not choices:
        raise InputError("there are no choices to read an answer for; give at least one")
    if max_outputs < 1:
        raise InputError(f"max_outputs is at least 1, not {max_outputs}")
    if not isinstance(text, str):
        raise InputError(f"an answer is a str, not {type(text).__name__}: {text!r:.80}")
    reader = _Reader(choices, max_outputs, is_list or max_outputs > 1, allow_none)
    try:
        picks = reader.read(_without_echo(repair(text), repair(prompt)))
        selections = reader.finish(picks)
    except DefectError as error:
        repairs, named = tuple(dict.fromkeys(reader.repairs)), getattr(error, "named", ())
        return Parsed((), repairs, Defect(error.problem), error.detail, named)
    return Parsed(selections, tuple(dict.fromkeys(reader.repairs)))


def _without_echo(text: str, prompt: str) -> str:
    """Return what an answer says beyond the prompt that it repeats, whole or cut off.

    Raises:
        DefectError: nothing is left.
    """
    answer, question = " ".join(text.strip(" \n`~>\"'").split()), " ".join(prompt.split())
    if not answer or not question:
        return text
    in_one_line = any(answer in " ".join(line.split()) for line in prompt.splitlines())
    if question.startswith(answer) or (
        answer in question and not in_one_line
    ):  # one line alone may quote the chosen option
        raise DefectError(Defect.NO_ANSWER, "it repeats the prompt")
    return answer.removeprefix(question) if answer.startswith(question) else text


class _UnrankedError(DefectError):
    def __init__(self, detail: str, named: tuple[SingleSelection, ...]) -> None:
        super().__init__(Defect.TOO_MANY, detail)
        self.named = named


@dataclass(frozen=True, slots=True)
class _Pick:
    """One named option; ``number`` is 1-based and unchecked."""

    number: int
    reason: str = ""
    score: float | None = None
    rank: float | None = None


_NO_PICKS: tuple[_Pick, ...] = ()
"""An explicit "none of them"; None means no answer."""

_Picks = tuple[_Pick, ...]

_TOO_LARGE = 10**18
"""The number for a name that no option has."""

_LAST_WORD = re.compile(
    r"final|answer|actually|correct|instead|итог|ответ|окончат|исправ|точнее|最终|最后|答案|更正|修正", re.IGNORECASE
)
_GAP = re.compile(r"[\s,;，；、]*")
_NEGATIONS = """none null nil n/a na nothing neither no нет никакой никакая ничего ничто 无 没有 都不是 都不 以上都不是
    无合适选项"""
_NO_CHOICE = frozenset(_NEGATIONS.split())
_LONGEST_PROSE = 200_000
"""Maximum characters of prose that are read; a longer text does not name an option."""

_SHORTEST_DESCRIPTION = 8
"""Characters from which a description that is given back stands for its option."""

_LONGEST_REASON = 500
"""Characters of prose kept as the reason."""


class _Reader:
    def __init__(self, choices: Sequence[ToolMetadata], max_outputs: int, is_list: bool, allow_none: bool) -> None:
        self.names = Names([choice.name for choice in choices])
        self.max_outputs, self.is_list, self.allow_none = max_outputs, is_list, allow_none
        self.by_description: dict[str, int] = {}
        for number, choice in enumerate(choices, 1):
            for text in (choice.description, f"{choice.name}: {choice.description}"):
                if len(bare := _bare(text)) >= _SHORTEST_DESCRIPTION:
                    self.by_description[bare] = AMBIGUOUS if bare in self.by_description else number
        self.repairs: list[str] = []
        self.empty_list = False
        self.cut_off = False

    def read(self, text: str) -> _Picks:
        """Return the named options, unchecked."""
        text = self.answer(text)
        values = find_values(text)
        if not values and '\\"' in text:
            # JSON inside of a JSON string
            values = find_values(text := text.replace('\\"', '"'))
        prose = without_fences(_remove(text, values)).strip()
        answers = [
            (value, picks)
            for value in values
            if (not prose or not _plain_list(value.value)) and (picks := self.container(value)) is not None
        ]
        if answers:
            if prose:
                self.repairs.append("JSON inside of other text")
            return self.combine(text, answers)
        if values and values[-1].cut and not _plain_list(values[-1].value):
            raise DefectError(Defect.TRUNCATED, "the JSON ends before it names an option")
        return self.prose(text)

    def answer(self, text: str) -> str:
        """Return the text without the model's thinking."""
        answer = after_thinking(text)
        if not answer.strip():
            raise DefectError(Defect.EMPTY, "there is no text")
        if len(answer) == len(text):
            return text
        self.repairs.append("reasoning before the answer")
        return answer.strip()

    def combine(self, text: str, answers: list[tuple[JsonPiece, _Picks]]) -> _Picks:
        """Combine several pieces of JSON into one answer."""
        distinct_answers = {tuple(pick.number for pick in picks): picks for _, picks in answers}
        if len(distinct_answers) == 1:
            return answers[0][1]
        gaps = [text[first.end : second.start] for (first, _), (second, _) in itertools.pairwise(answers)]
        if self.is_list and all(_GAP.fullmatch(gap) for gap in gaps):
            self.repairs.append("several pieces of JSON in place of a list")
            return tuple(pick for _, picks in answers for pick in picks)
        if _LAST_WORD.search(gaps[-1]):
            self.repairs.append("the last of several answers, which is called final")
            return answers[-1][1]
        raise DefectError(Defect.AMBIGUOUS, f"it gives {len(distinct_answers)} different answers")

    def container(self, value: JsonPiece) -> _Picks | None:
        self.cut_off = value.cut
        picks = self.value(value.value)
        if not value.cut or picks is None:
            return picks
        items = _open_list(value.value)
        is_whole = items is None or (picks and isinstance(items[0], Object) and len(items) <= len(picks))
        if not is_whole and len(picks) < max(2, self.max_outputs):
            raise DefectError(Defect.TRUNCATED, "the list ends before it is complete")
        self.repairs.append("JSON cut off after the choice")
        return picks

    def value(self, value: Any) -> _Picks | None:  # noqa: PLR0911  (a table by type)
        """Return what a JSON value names; None if it is not an answer, `_NONE` if it says that nothing fits."""
        match value:
            case Object():
                return self.object(value)
            case list():
                return self.list(value)
            case None:
                return _NO_PICKS
            case bool():
                return None
            case int():
                return (_Pick(value),)
            case float():
                return (_Pick(int(value)),) if value.is_integer() and abs(value) < _TOO_LARGE else None
            case Cut():
                return self.cut(value.raw)
            case _:
                return self.string(str(value))

    def string(self, text: str) -> _Picks | None:  # noqa: PLR0911  (tried in turn, the first that reads it)
        bare = text.strip()
        if bare[:1] in {"{", "["} and (inner := _inner_value(bare)):
            self.repairs.append("JSON inside of a string")
            return self.value(inner.value)
        if (number := self.names.lookup(bare)) is not None:
            value = literal(bare)
            if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= self.names.count:
                number = value if value == number else AMBIGUOUS  # the name of one option is the number of another
            self.repairs.append("a name in place of a number")
            return (_Pick(number),)
        if picks := self.described(bare):
            return picks
        if fold(bare) in _NO_CHOICE:
            return _NO_PICKS
        if isinstance(value := literal(bare), int | float) and not isinstance(value, bool):
            self.repairs.append("a string in place of a number")
            return self.value(value)
        if len(text) > _LONGEST_PROSE:
            return None
        reading = read_prose(text, self.names)
        self.repairs.append("words in place of a number")
        if reading.verdict is ProseVerdict.AMBIGUOUS:
            raise DefectError(Defect.AMBIGUOUS, f"{text.strip()!r:.80} can mean more than one option")
        if reading.verdict is ProseVerdict.NONE:
            return _NO_PICKS
        return tuple(map(_Pick, reading.numbers)) if reading.numbers else None

    def described(self, text: str) -> _Picks | None:
        """Return the option whose description, with or without its name, is all that a text says."""
        number = self.by_description.get(_bare(text)) if len(text) <= _LONGEST_PROSE else None
        if number is None:
            return None
        self.repairs.append("a description in place of a number")
        return (_Pick(number),)

    def cut(self, raw: str) -> _Picks | None:
        """Read a scalar that may be truncated, so that its full value is unknown."""
        value = literal(raw.strip())
        if isinstance(value, int) and not isinstance(value, bool):
            if 0 < value * 10 <= self.names.count:
                raise DefectError(Defect.TRUNCATED, f"it ends within a number that begins with {value}")
            return (_Pick(value),)
        number = self.names.lookup(raw)
        if number is None or self.names.extends(raw):
            raise DefectError(Defect.TRUNCATED, f"it ends within {raw!r:.80}")
        return (_Pick(number),)

    def list(self, values: list[Any]) -> _Picks | None:
        if not values:
            self.empty_list = True
            return _NO_PICKS
        readings = [self.value(value) for value in values]
        if readings[0] and len(values) == 2 and readings[1] is None and isinstance(values[1], str):
            return (replace(readings[0][0], reason=values[1]), *readings[0][1:])  # [2, "because …"]
        if all(picks is None for picks in readings):
            return None
        picks: list[_Pick] = []
        if self.cut_off and readings[-1] is None:
            values, readings = values[:-1], readings[:-1]  # only its beginning
        for value, reading in zip(values, readings, strict=True):
            # An unreadable item among readable ones counts as an option that does not exist.
            picks.extend((_Pick(_TOO_LARGE),) if reading is None and not isinstance(value, bool) else reading or ())
        return tuple(picks)

    def object(self, value: Object) -> _Picks | None:
        by_role: dict[str, list[Any]] = {}
        for key, item in value.pairs:
            by_role.setdefault(_role(key), []).append(item)
        readings = [picks for item in by_role.get("choice", ()) if (picks := self.value(item)) is not None]
        if not readings:
            readings = [
                picks
                for item in by_role.get("wrapper", ())
                if (isinstance(item, Object | list) or (isinstance(item, str) and item.lstrip()[:1] in {"{", "["}))
                and (picks := self.value(item)) is not None
            ]
        if not readings:
            return self.mapping(value)
        non_empty = [picks for picks in readings if picks]
        if len({frozenset(pick.number for pick in picks) for picks in non_empty}) > 1:
            raise DefectError(Defect.AMBIGUOUS, "its fields name different options")
        if not non_empty:
            return _NO_PICKS
        details = {role: next(iter(by_role.get(role, ())), None) for role in ("reason", "score", "rank")}
        return tuple(
            replace(
                pick,
                reason=pick.reason or _words(details["reason"]),
                score=_number(details["score"]) if pick.score is None else pick.score,
                rank=_number(details["rank"]) if pick.rank is None else pick.rank,
            )
            for pick in non_empty[0]
        )

    def mapping(self, value: Object) -> _Picks | None:
        """Read ``{"weather": 0.9, "news": 0.2}``, ``{"2": true}`` or ``{"weather": "because …"}``."""
        picks: list[_Pick] = []
        for key, item in value.pairs:
            number = self.names.lookup(key)
            if (
                number is None
                and isinstance(parsed_key := literal(key.strip()), int)
                and not isinstance(parsed_key, bool)
            ):
                number = parsed_key
            if number is None:
                return None
            if isinstance(item, bool):
                picks += [_Pick(number)] if item else []
            elif isinstance(item, int | float):
                picks.append(_Pick(number, score=float(item)))
            elif isinstance(item, str | Cut):
                picks.append(_Pick(number, reason=_words(item)))
            else:
                return None
        if not picks:
            return None
        self.repairs.append("options as the fields of an object")
        return tuple(picks)

    def prose(self, text: str) -> _Picks:
        if fold(without_fences(text).strip(" \n.。!\"'`*")) in _NO_CHOICE:
            return _NO_PICKS
        if len(text) > _LONGEST_PROSE:
            raise DefectError(Defect.NO_ANSWER, f"it is {len(text)} characters of prose")
        if picks := self.described(without_fences(text)):
            return picks
        reading = read_prose(text, self.names)
        match reading.verdict:
            case ProseVerdict.CHOSEN:
                self.repairs.append("prose in place of JSON")
                reason = " ".join(text[: 4 * _LONGEST_REASON].split())[:_LONGEST_REASON]
                return tuple(_Pick(number, reason) for number in reading.numbers)
            case ProseVerdict.NONE:
                return _NO_PICKS
            case ProseVerdict.AMBIGUOUS:
                raise DefectError(Defect.AMBIGUOUS, "it can be read as more than one answer")
            case ProseVerdict.REFUSAL:
                raise DefectError(Defect.REFUSAL, "the model declines to answer")
            case ProseVerdict.NOTHING:
                raise DefectError(Defect.NO_ANSWER, "it names no option")

    def finish(self, picks: _Picks) -> tuple[SingleSelection, ...]:
        """Return the picks as selections if they are distinct, exist, and are not too many."""
        if not picks:
            if not self.allow_none:
                defect = Defect.EMPTY if self.empty_list else Defect.NONE_NOT_ALLOWED
                raise DefectError(defect, "it chooses none of the options")
            return ()
        if any(pick.number == AMBIGUOUS for pick in picks):
            raise DefectError(Defect.AMBIGUOUS, "its answer fits more than one option")
        distinct = tuple({pick.number: pick for pick in reversed(picks)}.values())[::-1]
        if len(distinct) < len(picks):
            self.repairs.append("an option named twice")
        distinct = self.existing(distinct)
        if len(distinct) > self.max_outputs:
            distinct = self.best(distinct)
        return _selections(distinct)

    def existing(self, picks: _Picks) -> _Picks:
        valid = tuple(pick for pick in picks if 1 <= pick.number <= self.names.count)
        missing = [pick.number for pick in picks if not 1 <= pick.number <= self.names.count]
        if not missing:
            return picks
        listing = ", ".join("an unknown name" if number >= _TOO_LARGE else str(number) for number in missing[:5])
        if not self.is_list or not valid or min(missing) < 1:
            raise DefectError(Defect.OUT_OF_RANGE, f"there is no option {listing}; there are {self.names.count}")
        self.repairs.append(f"dropped {listing}: no such option")
        return valid

    def best(self, picks: _Picks) -> _Picks:
        """Return the allowed number of picks if scores or ranks determine them."""
        for keys in ([pick.score for pick in picks], [None if p.rank is None else -p.rank for p in picks]):
            values = [key for key in keys if key is not None]
            if len(values) < len(picks):
                continue
            by_score = sorted(zip(values, picks, strict=True), key=lambda pair: -pair[0])
            if by_score[self.max_outputs - 1][0] > by_score[self.max_outputs][0]:
                self.repairs.append(f"kept the best {self.max_outputs} of {len(picks)} by the model's own ranking")
                return tuple(pick for _, pick in by_score[: self.max_outputs])
        if not self.is_list:
            raise DefectError(Defect.AMBIGUOUS, f"it names {len(picks)} options where one was asked for")
        detail = f"it names {len(picks)} options where at most {self.max_outputs} may be"
        raise _UnrankedError(detail, _selections(picks))


def _bare(text: str) -> str:
    return " ".join(fold(text).strip(" \n.。!！,，;；\"'`*“”«»「」").split())


def _selections(picks: _Picks) -> tuple[SingleSelection, ...]:
    return tuple(SingleSelection(pick.number - 1, pick.reason, pick.score) for pick in picks)


def _remove(text: str, values: Iterable[JsonPiece]) -> str:
    position, texts = 0, []
    for value in values:
        texts.append(text[position : value.start])
        position = value.end
    return "".join((*texts, text[position:]))


def _plain_list(value: Any) -> bool:
    """Whether a value may be prose in brackets rather than JSON, as in "see [1]"."""
    return isinstance(value, list) and not any(isinstance(item, Object | list) for item in value)


def _open_list(value: Any) -> list[Any] | None:
    """Return the list of selections that the text ends inside of; None if there is none."""
    if isinstance(value, list):
        return value
    if not isinstance(value, Object) or not value.pairs:
        return None
    key, last = value.pairs[-1]
    return _open_list(last) if _role(key) in {"choice", "wrapper"} else None


def _inner_value(text: str) -> JsonPiece | None:
    try:
        values = find_values(text)
    except DefectError:
        return None
    return values[0] if len(values) == 1 else None


def _words(value: Any) -> str:
    match value:
        case str():
            return value
        case Cut():
            return value.raw
        case None | Object() | list():
            return ""
        case _:
            return str(value)


_PERCENT = re.compile(r"\s*(\d{1,6}(?:\.\d{1,6})?)\s*%\s*")


def _number(value: Any) -> float | None:
    """Return a score or rank given as a finite number or percentage; None if it is something else."""
    if isinstance(value, Cut):
        return None
    if isinstance(value, str):
        if percent := _PERCENT.fullmatch(value):
            return float(percent[1]) / 100
        value = literal(value.strip())
    return float(value) if is_number(value) else None


_CHOICE_KEYS = """choice choices index indices indexes idx id ids option options number numbers num no tool tools name
    names answer answers selection selections selected select selects chosen pick picks picked result results decision
    candidate candidates dataset datasets route action item items category intent
    выбор выборы номер номера вариант варианты индекс индексы инструмент инструменты название имя ответ ответы решение
    опция опции результат результаты
    选择 选项 编号 序号 索引 工具 名称 答案 结果 选中 号码 方案 选"""
_QUALIFYING = """best final my the top most recommended suitable relevant of value user лучший лучшие итоговый
    окончательный выбранный выбранные выбранного мой 最佳 最终 所选 选择的 选中的 推荐 推荐的 的 最合适的"""
_CHOICE_WORDS, _QUALIFIERS = frozenset(_CHOICE_KEYS.split()), frozenset(_QUALIFYING.split())
_ROLES = {
    "reason": """reason reasons reasoning explanation rationale why justification thought thoughts because comment
        理由 原因 解释 说明 分析 推理 причина причины объяснение обоснование почему пояснение комментарий""",
    "score": """score confidence probability relevance weight likelihood certainty 分数 得分 评分 置信度 概率 相关度
        уверенность оценка балл вероятность релевантность""",
    "rank": "rank ranking order priority position 排名 排序 优先级 ранг место порядок приоритет",
    "wrapper": """arguments parameters params function functioncall toolcall toolcalls input data output response json
        content properties 参数 输出 данные параметры аргументы""",
}
_ROLE_OF = {word: role for role, line in _ROLES.items() for word in line.split()}
_KEY_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[а-яёА-ЯЁ]+|[\u4e00-\u9fff]+")
_HAN_WORDS = sorted((word for word in _CHOICE_WORDS | _QUALIFIERS if word >= "一"), key=len, reverse=True)
_HAN_PARTS = re.compile("|".join(_HAN_WORDS))


@lru_cache(maxsize=1024)
def _role(key: str) -> str:
    """Return the role of a field: ``choice``, ``reason``, ``score``, ``rank``, ``wrapper``, or ``other``."""
    if len(key) > 64:
        return "other"
    squeezed_key = re.sub(r"[\s_-]+", "", fold(key))
    if squeezed_key in _ROLE_OF:
        return _ROLE_OF[squeezed_key]
    key_parts = [key_part.lower().replace("ё", "е") for key_part in _KEY_PARTS.findall(key)]
    words: list[str] = []
    for key_part in key_parts:
        words += (
            (_HAN_PARTS.findall(key_part) if not _HAN_PARTS.sub("", key_part) else [key_part])
            if key_part > "一"
            else [key_part]
        )
    if any(word in _CHOICE_WORDS for word in words) and all(word in _CHOICE_WORDS | _QUALIFIERS for word in words):
        return "choice"
    return "other"
