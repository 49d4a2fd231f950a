"""Finds what a question compares: its sides, each with the text shared by all sides.

Shared by all callers: `recommend` recommends decomposing a comparison if this finds parts, and `RuleDecomposer`
decomposes it into them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pointsman.text import scripts, sentences
from pointsman.text.grammar import COMPARISON, STOP, asks
from pointsman.text.grammar.grammar_words import en, ru, zh
from pointsman.text.grammar.match import HAN_RUN, WORD, Match, Words, plain
from pointsman.text.stop_words import ENGLISH
from pointsman.tools.late_regex import late

LONGEST_NAME = 12
"""Longest text in capital letters that may be a name, in characters; a longer one is emphasis."""

LONGEST = 1_000
"""Longest query that is analysed, in characters; rules do not understand longer ones."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison.

    Attributes:
        cue: the word that indicates the comparison, in plain form; empty if only the question's form does.
        parts: what to look up for each side; if the sides are not named, one part: what is compared.
    """

    cue: str
    parts: tuple[str, ...]


def language_of(text: str) -> str:
    """Return ``en``, ``zh`` or ``ru``, judged by function words, as names are often in Latin letters."""
    shares = scripts(text)
    for script, language in (("han", "zh"), ("cyrillic", "ru")):
        if shares[script] > 0.3 or (shares[script] and ENGLISH.isdisjoint(WORD.findall(plain(text)))):
            return language
    return "en"


def comparison(text: str) -> Comparison | None:
    """Return what a text compares; None if it is not a comparison.

    >>> comparison("Compare Kafka, RabbitMQ and NATS for logging").parts
    ('Kafka for logging', 'RabbitMQ for logging', 'NATS for logging')
    >>> comparison("Kafka или RabbitMQ: что лучше").parts, comparison("比较北京、上海和广州的房价").parts
    (('что лучше Kafka?', 'что лучше RabbitMQ?'), ('北京的房价', '上海的房价', '广州的房价'))
    """
    if not text.strip() or len(text) > LONGEST:
        return None
    text = re.sub(r"[.?!。？！\s]+$", "", " ".join(_sentence(text).split()))
    text = _POLITE.sub("", text)
    text = text.lower() if text.isupper() and len(text) > LONGEST_NAME else text
    if not _SIDE_OF_ONE_LETTER.match(text):
        text = re.sub(r"^\S(?=\s)", lambda first: first[0].lower(), text)  # «A comparison of …» opens with no name
    language = language_of(text)
    cues = COMPARISON.all(plain(text))
    explicit = cues and not _claims(text)
    subqueries = _aspects(text, language)
    if explicit and not subqueries and not any(_asks_better(cue.text) for cue in cues):
        subqueries = _sides(text, cues, language)
    subqueries = subqueries or _by_form(text, language) or (_sides(text, cues, language) if explicit else [])
    subqueries = [
        subquery for subquery in (subquery.strip(" ,;:，；：、—-") for subquery in subqueries) if _tells(subquery)
    ]
    return Comparison(cues[0].text if cues else "", tuple(dict.fromkeys(subqueries))) if subqueries else None


_ASPECT = Words(f"{en.ASPECT} {ru.ASPECT} {zh.ASPECT}")
_FILLING = Words(f"{en.FILLING} {en.ARTICLE} {ru.FILLING}")
_AUXILIARY = frozenset(en.AUXILIARY.split())
_AND = {"en": late(en.AND, re.IGNORECASE), "ru": late(ru.AND, re.IGNORECASE), "zh": late(zh.AND, re.IGNORECASE)}
_CONTRAST = {"en": late(en.AGAINST, re.IGNORECASE), "ru": late(ru.AGAINST, re.IGNORECASE)}
_COMMON_TAIL = {"en": late(en.SHARED, re.IGNORECASE), "ru": late(ru.SHARED, re.IGNORECASE)}
_WORDS_BEFORE, _WORDS_AFTER = late(f"^{zh.BEFORE}"), late(f"{zh.AFTER}$")
_POLITE = late(r"^(?:please|пожалуйста|请问一下|请问|请)[\s,，]*", re.IGNORECASE)
_BETWEEN_SIDES = late(r"\s(?:between|между)\s+", re.IGNORECASE)
_FROM = late(r"\s+от\s+", re.IGNORECASE)
_VERSUS = frozenset({"vs", "versus"})
_VERSUS_CUE = late(r"\s+(?:vs\.?|versus)\s+", re.IGNORECASE)
_OPPOSES = late(r"(?:differ|different from|отлича|лучше чем|better than|相|对比)")
_SIDE_OF_ONE_LETTER = late(r"\S\s+(?:vs\.?|versus|and|or|против|и|или)\s", re.IGNORECASE)
_LONG_LEAD = 8
"""Words before the first comparison word above which a text without a question is a statement."""


def _sentence(text: str) -> str:
    """Return the first of several sentences that has a comparison word, else the whole text."""
    ends = sentences(text)
    texts = (text[start:end] for start, end in ends if COMPARISON.first(plain(text[start:end])))
    return next(texts, text) if len(ends) > 1 else text


def _tells(text: str) -> bool:
    return any(map(_tells_word, WORD.findall(text))) or bool(HAN_RUN.search(text))


def _tells_word(word: str) -> bool:
    """Whether a word carries content: it is not a function word, or is in capitals and so a name."""
    return word.isupper() or (plain(word) not in STOP and plain(word) not in _FILLING)


def _claims(text: str) -> bool:
    """Whether a text is a claim, like «There is no difference between …», or has a long lead before the comparison."""
    words = WORD.findall(plain(text))
    if asks(plain(text)) or not words or words[0] in _AUXILIARY:
        return False
    cue = COMPARISON.first(plain(text))
    if cue is not None and _asks_better(cue.text):
        return False
    return not _AUXILIARY.isdisjoint(words) or (cue is not None and len(WORD.findall(text[: cue.start])) > _LONG_LEAD)


def _bare(text: str, language: str) -> str:
    """Return the text beside a cue without leading and trailing function words."""
    if language == "zh":
        return _WORDS_AFTER.sub("", _WORDS_BEFORE.sub("", text)).strip()
    words = list(WORD.finditer(text))
    telling = [word for word in words if _tells_word(word[0])]
    if not telling:
        return ""
    # Punctuation that belongs to a name is kept: C++, .NET, «…»
    start = max((word.end() for word in words if word.end() <= telling[0].start()), default=0)
    end = min((word.start() for word in words if word.start() >= telling[-1].end()), default=len(text))
    return re.sub(r"^[\s,;:.—-]*\s", "", text[start:end]).strip(" ,;:—-")


# --- questions that compare by their form ---------------------------------------------------------------------------

_UP_RU = "[A-ZА-ЯЁ0-9]"
_CAPITAL = r"[A-Z0-9\"“'‘]"
_EITHER_PATTERNS = {
    "en": (
        late(
            rf"^(?P<ask>(?:which|who|what|where|whose|when|in which|are|is|were|was)\b.{{3,160}}?)[,:—-]?\s+"
            rf"(?:between )?(?P<a>(?:the )?{_CAPITAL}[^,?]{{1,80}}?),?\s+or\s+(?P<b>(?:the )?{_CAPITAL}[^,?]{{1,80}})$"
        ),
        late(
            r"^(?P<ask>(?:which|who|what|where|whose)\b[^,:]{3,160}?)(?:[,:]|(?P<between>,? between))\s*"
            r"(?P<a>[^,?]{2,80}?),?\s+(?:or|(?(between)and|or))\s+(?P<b>[^,?]{2,80})$",
            re.IGNORECASE,
        ),
        late(
            r"^(?:between|of)\s+(?P<a>[^?]{2,80}?)\s+and\s+(?P<b>[^?]{2,80}?),\s*"
            r"(?P<ask>(?:which|who|what|where|whose)\b.{3,160})$",
            re.IGNORECASE,
        ),
        late(
            r"^(?P<a>[^,:?]{1,80}?)\s+or\s+(?P<b>[^,:?]{1,80})\s*[:,—-]+\s*"
            r"(?P<ask>(?:which|who|what|where)\b.{3,160})$",
            re.IGNORECASE,
        ),
        late(
            rf"^(?P<ask>should (?:I|we|you)\b.{{2,60}}?)\s(?P<a>{_CAPITAL}\S*)\s+or\s+"
            rf"(?P<b>{_CAPITAL}\S*)(?P<rest>\s.{{1,60}})?$",
            re.IGNORECASE,
        ),
    ),
    "ru": (
        late(
            r"^(?P<ask>(?:что|кто|какой|какая|какое|какие|где|у кого|кого|чей)\s.{2,120}?)[,:—-]\s*"
            r"(?P<a>[^,?]{1,80}?),?\s+или\s+(?P<b>[^,?]{1,80})$",
            re.IGNORECASE,
        ),
        late(
            r"^(?P<a>[^,:?]{1,80}?)\s+или\s+(?P<b>[^,:?]{1,80})\s*[:,—-]+\s*"
            r"(?P<ask>(?:что|кто|какой|какая|какое|какие|где|кого)\b.{3,120})$",
            re.IGNORECASE,
        ),
    ),
    "zh": (
        late(
            "^(?P<a>[^，。？,]{1,40}?)[，,]?(?P<who>哪一?[个家种部座款]|谁)(?P<rest>[^，。？]{0,8}?(?:更|比较)[^，。？]{1,20}"
            "|的?[^，。？]{0,8}[大小高矮长短早晚多少快慢好强弱远近老深浅重先][^，。？]{0,4})$"
        ),
        late("^(?P<ask>(?:哪一?[个家种部座款]|谁)[^，。？]{1,20})[，,：:](?P<a>[^，。？]{1,60})$"),
        late("^(?P<a>[^，。？：:]{1,60})[，,：:](?:哪一?[个家种部座款]|谁)(?P<rest>[^，。？]{1,20})$"),
    ),
}
_COMPARATIVE = late(
    r"(?<!\w)(?:\w{3,}(?:ее|ей|ше|же|че)|лучше|хуже|больше|меньше|выбрать|из них|первым|первой|позже|позднее)(?!\w)",
    re.IGNORECASE,
)
_THAN = late(
    rf"^(?P<aux>is|are|was|were|does|do|did|has|have|had|can|could|would|will)\s+(?:the )?"
    rf"(?P<a>{_CAPITAL}[\w'’. -]{{1,60}}?)\s+(?P<ask>(?:\w+\s+){{0,4}}?(?:\w+er|more|less|fewer|better|worse"
    rf"|as \w+|born|formed|founded|built|published|released|die|died|live|lived)(?:\s+\w+){{0,4}}?)\s+"
    rf"(?:than|before|after|as|longer than)\s+(?:the )?(?P<b>\D.{{1,80}})$",
    re.IGNORECASE,
)
_BOTH_OF = late(
    rf"^(?P<aux>(?:are|were|is|was|do|did|does|have|has|had|can|could))\s+(?P<both>both )?"
    rf"(?P<kind>(?-i:the (?:[a-z]+ ){{1,4}}))?(?P<a>(?:the )?(?-i:{_CAPITAL})[^,?]{{1,80}}?),?\s+and\s+"
    rf"(?P<b>(?:the )?(?-i:{_CAPITAL}).{{1,140}})$",
    re.IGNORECASE,
)
_QUANTIFIER = late(r",?\s+(?=(?:both|each|all|either)\b)")
_NAME = late(
    rf"(?:the\s+)?{_CAPITAL}[\w'’.&-]*(?:(?:\s+(?:of|the|and|de|von|van|in|a|for|to|from)){{0,2}}\s+{_CAPITAL}[\w'’.&-]*)*"
)
_SAID_OF_BOTH = late(
    r"\s+(?=(?:both|each|all|either|located|(?:in|on|from|of) the same|the same|members?|directed|written|composed"
    r"|born|used|known|made|based|found|considered|famous|named|published|produced|released|American|British|English|French|German"
    r"|Canadian|Australian|in|an?|at|on|of|from|have|has|share|belong|live|play|work|native|still|also|currently|primarily"
    r"|types?|part|different|similar|films?|bands?|authors?|writers?|directors?|actors?|actresses|singers?|musicians"
    r"|magazines?|plants?|cities|universities|mountains|companies|documentaries|genus|genera|breeds?|species|games?)\b)"
)


_TWO_SIDES = {
    "en": (
        late(
            r"^(?:the )?(?:dis)?(?:advantages?|benefits?)\s+of\s+(?P<a>[^,?]{1,60}?)\s+over\s+(?P<b>[^,?]{1,60})$",
            re.IGNORECASE,
        ),
    ),
    "ru": (
        # Two names: «лекарство против гриппа» is no comparison.
        late(
            rf"^(?P<a>(?:[^\W\d_]+\s)?(?-i:{_UP_RU})\S*) против (?P<b>(?:[^\W\d_]+\s)?(?-i:{_UP_RU})\S*)$",
            re.IGNORECASE,
        ),
        late(r"^чем\s+(?P<a>[^,?]{1,40}?)\s+(?:лучше|хуже|\w{3,}ее|\w{3,}ше)\s+(?P<b>[^,?]{1,40})$", re.IGNORECASE),
    ),
    "zh": (
        late("^(?P<a>[^，。？]{1,15}?)(?P<rest>[\u4e00-\u9fff]{1,2})[，,]?还是(?P<b>[^，。？]{1,15}?)(?P=rest)$"),
        late(
            "^(?P<a>[^，。？比]{1,15})比(?![较赛例如重喻])(?P<b>[^，。？]{1,15}?)"
            "(?P<rest>[更好贵快慢强差][^，。？]{0,4}[哪吗多几么][^，。？]{0,3})$"
        ),
    ),
}
"""Forms that name two sides, and nothing or the same of both: «A против B», «租房好还是买房好»."""


def _by_form(text: str, language: str) -> list[str]:
    """«Who is older, X or Y», «Are X and Y both …», «X和Y哪个更 …»."""
    if named := next(filter(None, (pattern.match(text) for pattern in _TWO_SIDES[language])), None):
        return [named[side] + (named.groupdict().get("rest") or "") for side in ("a", "b")]
    for pattern in _EITHER_PATTERNS[language]:
        if not (match := pattern.match(text)):
            continue
        groups = match.groupdict()
        ask, predicate = (groups.get("ask") or "").strip(" ,:"), (groups.get("rest") or "").strip()
        if language == "zh":
            sides = _split_han(_WORDS_BEFORE.sub("", _WORDS_AFTER.sub("", groups["a"])))
            if len(sides) > 1:
                return [f"{ask}{' ' if ask else ''}{side}{predicate}" for side in sides]
            continue
        if language == "ru" and ":" not in text and not _COMPARATIVE.search(ask):
            continue
        ask = re.sub(r"\s*(?:between|either|among|,|:)\s*$|^(?:of|between) the two,?\s*", "", ask, flags=re.IGNORECASE)
        is_consistent = _is_named(groups["a"]) == _is_named(groups["b"])
        if len(WORD.findall(ask)) < 2 or (language == "en" and not is_consistent):
            continue
        sides = _with_common_tail([groups["a"], groups["b"]], language)
        return [f"{ask} {side}{' ' if predicate else ''}{predicate}?" for side in sides]
    if language == "en" and (match := _BOTH_OF.match(text)):
        return _said_of_both(match)
    if language == "en" and (match := _THAN.match(text)):
        return [f"{match['ask']} {match['a']}", f"{match['ask']} {match['b']}"]
    return []


def _is_named(side: str) -> bool:
    return re.match(r"(?i:the\s+)?\S*[A-Z0-9\"“'‘]", side) is not None


def _said_of_both(match: re.Match[str]) -> list[str]:
    first, second, predicate = match["a"].strip(), match["b"].strip(), ""
    # The second name ends where the text about both begins.
    said_of_both = _QUANTIFIER.search(second) or (None if match["both"] else _SAID_OF_BOTH.search(second))
    if said_of_both is not None:
        second, predicate = second[: said_of_both.start()], second[said_of_both.end() :]
    elif match["both"] and (name := _NAME.match(second)):
        second, predicate = name[0], second[name.end() :].strip()
    if not predicate:
        return []
    predicate = re.sub(r"^(?:both|each|either|all)\b\s*", "", predicate)
    kind = (match["kind"] or "").removeprefix("the ").strip()
    return [
        " ".join(word for word in (match["aux"], kind, name, predicate) if word).strip() + "?"
        for name in (first, second)
    ]


# --- aspects ---------------------------------------------------------------------------------------------------------


def _aspects(text: str, language: str) -> list[str]:
    """Split by aspect: «pros and cons of X» into two, and «the features of X and the drawbacks of Y»."""
    aspects = _ASPECT.all(plain(text))
    if language == "zh":
        return _aspects_after(text, aspects)
    for first, second in pairwise(aspects):
        middle = text[first.end : second.start]
        if _bare(text[: first.start], language):
            return []
        following = text[second.end :].strip(" ,:")
        if _AND[language].fullmatch(middle) and _tells(following):
            owners = re.sub(r"^(?:of|for|у)\s+", "", following)
            owner_sides = _VERSUS_CUE.split(owners)
            if len(owner_sides) > 1:
                prefix = text[first.start : text.rindex(owners)]
                return [prefix + side for side in _with_common_tail(owner_sides, language)]
            return [f"{text[aspect.start : aspect.end]} {following}" for aspect in (first, second)]
        joint = re.match(rf"(\s+\S.*?)(?:{_AND[language].pattern})(?:the\s+)?$", middle, re.IGNORECASE)
        if joint and _tells(joint[1]) and _tells(following):
            return [text[first.start : first.end] + joint[1], text[second.start :]]
    return []


def _aspects_after(text: str, matches: Sequence[Match]) -> list[str]:
    for first, second in pairwise(matches):
        middle, owner = text[first.end : second.start], _bare(text[: first.start], "zh")
        joint = _AND["zh"].match(middle)
        if not joint or not owner or _WORDS_AFTER.sub("", text[second.end :]):
            continue
        if joint.end() == len(middle):
            return [f"{owner}的{aspect.text}" for aspect in (first, second)]
        if _tells(middle[joint.end() :]) and middle.endswith("的"):
            return [text[: first.end], text[first.end + joint.end() : second.end]]
    opposites = {"优缺点": ("优点", "缺点"), "利弊": ("利", "弊"), "优劣": ("优", "劣")}
    for cue, aspects in opposites.items():
        owner, _, following = text.partition(cue)
        owner = _bare(owner, "zh")
        if following != text and owner and cue in text and not _WORDS_AFTER.sub("", following):
            sides = _split(owner, "zh")
            return (
                [f"{side}的{cue}" for side in sides] if len(sides) > 1 else [f"{owner}的{aspect}" for aspect in aspects]
            )
    return []


# --- sides -----------------------------------------------------------------------------------------------------------


def _sides(text: str, cues: Sequence[Match], language: str) -> list[str]:
    """Return the sides: one stretch between cues names them all, or each stretch names one."""
    ends = [*(cue.start for cue in cues), len(text)]
    starts = [0, *(cue.end for cue in cues)]
    stretches = [_bare(text[start:end], language) for start, end in zip(starts, ends, strict=True)]
    texts = [stretch for stretch in stretches if stretch]
    if not texts:
        return []
    if cues[0].text in _VERSUS:
        return _with_common_tail([*texts], language)
    is_against = cues[0].text.startswith("отлич")
    lists = [_split(stretch, language, has_contrast=is_against) for stretch in texts]
    index = next((number for number, items in enumerate(lists) if len(items) > 1), None)
    if index is None:
        # «how do X differ from Y» has a side in each stretch, «file comparison tools» none.
        is_opposed = len(texts) == 1 or any(_opposes(text, cue, language) for cue in cues)
        return (
            _with_common_tail(texts, language) if is_opposed and not any(_asks_better(cue.text) for cue in cues) else []
        )
    sides = _with_common_tail(lists[index], language)
    other_texts = [stretch for number, stretch in enumerate(texts) if number != index]
    question = next((cue.text for cue in cues if _asks_better(cue.text)), "")
    if language == "zh":
        question = re.sub("^(?:哪[个种款家台部门者]?一?个?|谁)", "", question)
        return [f"{side}{question}{''.join(other_texts)}" for side in sides]
    return [" ".join(text_of_side for text_of_side in (question, side, *other_texts) if text_of_side) for side in sides]


def _opposes(text: str, cue: Match, language: str) -> bool:
    """Whether one side is before a cue and the other one after it."""
    following = text[cue.end :]
    set_against = following.startswith("于") if language == "zh" else _CONTRAST[language].match(following)
    return bool(set_against) or _OPPOSES.match(cue.text) is not None


def _asks_better(cue: str) -> bool:
    return cue.endswith(("better", "лучше", "更", "最", "比较")) and cue not in {"лучше", "比较"}


def _split(text: str, language: str, *, has_contrast: bool = False) -> list[str]:
    """Return the sides that a stretch names; ``has_contrast`` is for the form «X от Y и Z»."""
    if language == "zh":
        return _split_han(text)
    if (match := _BETWEEN_SIDES.search(text)) and (topic := _bare(text[: match.start()], language)):
        return [f"{side} {topic}" for side in _split(text[match.end() :], language)]  # «in price between X and Y»
    tail = _COMMON_TAIL[language].search(text)
    joint = tail and any(joint[language].search(text, 0, tail.start()) for joint in (_AND, _CONTRAST))
    ending = tail[0] if tail and joint else ""
    names = text[: len(text) - len(ending)]
    joints = [*([_FROM] if has_contrast else []), _AND[language], _CONTRAST[language]]
    sides = next((sides for joint in joints if len(sides := joint.split(names)) > 1), [])
    if len(sides) < 2:
        return [text]
    return [side + ending for side in (_bare(side, language) for side in sides) if side]


def _with_common_tail(sides: Sequence[str], language: str) -> list[str]:
    """Add to each side the words that only one of them has: «Java 8 and 11», «local and global variables»."""
    if language == "zh" or len(sides) < 2:
        return list(sides)
    *firsts, last = sides
    if common_tail := _COMMON_TAIL[language].search(last):
        firsts = [side if side.endswith(common_tail[0]) else side + common_tail[0] for side in firsts]
        if any(not side.endswith(common_tail[0]) for side in sides):
            return [*firsts, last]
    number = re.match(r"\d[\d.]*(?=\s|$)", last)
    if number and (lead := re.match(r"(.*?\D)\s*[\d.]+$", firsts[0])):
        return [*(side + last[number.end() :] for side in firsts), f"{lead[1].rstrip()} {last}"]
    adjectives = r"[^\W\d_]+" if language == "en" else r"\w+(?:[ыиоеа][йех]|[ыи]ми?|[ое]го|[ое]му|ая|яя|ую|юю)"
    if len(last.split()) in {2, 3} and all(re.fullmatch(adjectives, side) and side.islower() for side in firsts):
        tail = last.split(maxsplit=1)[1]
        return [*(f"{side} {tail}" for side in firsts), last]
    return _shared_by_names(firsts, last, language)


def _shared_by_names(firsts: Sequence[str], last: str, language: str) -> list[str]:
    """Add to each name the words before the first or after the last one."""
    # «prices in London and Paris», «скорость Python и Java»
    leads = r".*\s(?:in|of|on|at|for|from)" if language == "en" else r"[^А-ЯЁA-Z]*[а-яё]"
    lead = re.fullmatch(rf"({leads}\s+)({_CAPITALISED_NAME})", firsts[0])
    if lead and firsts[0][0].islower() and all(re.fullmatch(_CAPITALISED_NAME, side) for side in (*firsts[1:], last)):
        return [lead[1] + side for side in (lead[2], *firsts[1:], last)]
    # «Python and Java syntax»
    tail = re.fullmatch(rf"({_CAPITALISED_NAME})((?:\s+[a-z][a-z-]+){{1,2}})", last)
    if language == "en" and tail and all(re.fullmatch(_CAPITALISED_NAME, side) for side in firsts):
        return [side + tail[2] for side in (*firsts, tail[1])]
    return [*firsts, last]


_CAPITALISED_NAME = r"[^\W\d_]*[A-ZА-ЯЁ][^\s]*(?:\s[A-ZА-ЯЁ\d]\S*){0,3}"
"""A name of one or several words: «Kafka», «iPhone 15», «New York»."""


def _split_han(text: str) -> list[str]:
    """Split «北京、上海和广州的房价»: the text after 的 in the last side applies to all sides."""
    cuts = [cut.span() for cut in _AND["zh"].finditer(text) if cut.start() and cut.end() < len(text)]
    if not cuts:
        return [text]
    if not any(text[start] in "、，," for start, _ in cuts):
        cuts = [_cut(text, cuts)] if len({text[start:end] for start, end in cuts}) == 1 or len(cuts) > 2 else cuts[:2]
    starts, ends = [0, *(end for _, end in cuts)], [*(start for start, _ in cuts), len(text)]
    sides = [text[start:end].strip() for start, end in zip(starts, ends, strict=True)]
    if min(map(len, sides)) < 1 or len(text) > 60:
        return [text]
    tail = re.search("(?:在[^，。？]{1,20}[上面中])?的[^，。？]{1,20}$", sides[-1])
    if tail and not any("的" in side for side in sides[:-1]):
        sides = [*(side + tail[0] for side in sides[:-1]), sides[-1]]
    return sides


def _cut(text: str, cuts: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Choose among several conjunctions («甲与乙专业与丙专业») the one whose sides end alike, else the first."""

    def overlap(cut: tuple[int, int]) -> int:
        start, right = text[: cut[0]], re.split("的|在", text[cut[1] :])[0]
        pairs = zip(reversed(start), reversed(right), strict=False)
        return next((count for count, (a, b) in enumerate(pairs) if a != b), min(len(start), len(right)))

    return max(cuts, key=overlap)
