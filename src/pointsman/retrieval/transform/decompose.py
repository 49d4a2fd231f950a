"""Taking complex questions apart by rules: comparisons, several questions in one, and chains of hops; en, zh and ru.

A rule needs a cue that hardly anything but a complex question has; *salt and pepper* is no two questions. What no rule
recognises is left alone.

A *chain* is what has to be looked up one after the other: the film before its director. `chain` gives its hops in
order, each with the place in its text that what was found before belongs in; `bridge_entities` finds candidates for it
in what the search before has found.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pointsman.errors import InputError
from pointsman.retrieval.transform._late import late
from pointsman.retrieval.transform.base import BaseTransformer, Transformed, Variant, distinct
from pointsman.retrieval.transform.disambiguate import name_texts, resolved
from pointsman.text import fold, scripts, sentences
from pointsman.text._stopwords import ENGLISH, RUSSIAN
from pointsman.types import Query

_LONGEST = 1_000
"""Characters of a query that are looked at; what is longer is no question that rules understand."""

_STOP = ENGLISH | RUSSIAN


@dataclass(frozen=True, slots=True)
class Hop:
    """One step of a chain.

    Attributes:
        text: what to look up; it can be searched for as it stands.
        slot: ``text[start:end]``, which stands for what the step before has found; None in the first step.
    """

    text: str
    slot: tuple[int, int] | None = None

    def filled(self, entity: str) -> str:
        """The text with what was found before.

        >>> Hop("Who directed the film?", (13, 21)).filled("Alien")
        'Who directed Alien?'
        """
        if self.slot is None:
            return self.text
        return self.text[: self.slot[0]] + entity + self.text[self.slot[1] :]


class RuleDecomposer(BaseTransformer):
    """Sub-questions by rules, as variants of kind ``"subquestion"``; a simple question gets none.

    Example:
        >>> [v.text for v in RuleDecomposer().transform("What is RRF and how does BM25 work?").variants]
        ['What is RRF?', 'how does BM25 work?']
    """

    def __init__(self, max_subqueries: int = 5, *, weight: float = 1.0) -> None:
        """Choose how many sub-questions there may be, and the weight of each.

        Raises:
            InputError: ``max_subqueries`` is below 1.
        """
        if max_subqueries < 1:
            raise InputError(f"max_subqueries is at least 1, not {max_subqueries}")
        self.max_subqueries, self.weight = max_subqueries, weight

    def transform(self, query: str | Query) -> Transformed:
        """The query as it is, with its sub-questions."""
        query = Query.of(query)
        texts, rule = _taken_apart(query.text)
        variants = distinct((Variant(text, "subquestion", self.weight) for text in texts), query.text)
        if not variants:
            return Transformed(query)
        return Transformed(query, variants[: self.max_subqueries], f"{len(variants)} sub-questions: {rule}")


def subquestions(text: str) -> tuple[str, ...]:
    """What a question consists of; empty where it is simple.

    >>> subquestions("сравни Kafka и RabbitMQ"), subquestions("salt and pepper")
    (('Kafka', 'RabbitMQ'), ())
    """
    return _taken_apart(text)[0]


def chain(text: str) -> tuple[Hop, ...]:
    """The hops of a question that needs several look-ups one after the other, the first one first; empty: it does not.

    >>> [hop.text for hop in chain("Who directed the film that won the Palme d'Or in 1994?")]
    ["film that won the Palme d'Or in 1994", 'Who directed the film?']
    """
    if not text.strip() or len(text) > _LONGEST:
        return ()
    bare = " ".join(text.split())
    return _CHAINS[_language(bare)](bare)


def bridge_entities(query: str, passages: Sequence[str], limit: int = 3) -> list[str]:
    """What the passages found for one hop may offer for the next: names that the query does not hold.

    Titles (a first line of its own) count most, then what the first sentence names, then what many passages name;
    passages count less further down.

    Args:
        query: what was searched for.
        passages: texts, best first, with the title as the first line where there is one.
        limit: how many at most.
    """
    asked = f" {_words(query)} "
    scores: Counter[str] = Counter()
    spelling: dict[str, str] = {}
    for rank, passage in enumerate(passages):
        head, _, body = passage[:_LONGEST].strip().partition("\n")
        titled = bool(body.strip()) and len(head) <= 100 and not re.search(r"[.!?。！？]\s*$", head)
        found = [(head.strip(), 3.0)] if titled else []
        text = body if titled else passage[:_LONGEST]
        ends = sentences(text)
        first = ends[0][1] if ends else len(text)
        found += [(name, 1.0) for name in _candidates(text[:first])]
        found += [(name, 0.4) for name in _candidates(text[first:])]
        for name, weight in found:
            key = _words(name)
            if (
                len(key) < 2
                or f" {key} " in asked
                or (re.search("[\u4e00-\u9fff]", key) and key in asked)
                or key in _STOP
            ):
                continue
            spelling.setdefault(key, name)
            scores[key] += weight / (1 + rank)  # type: ignore[assignment]  # a Counter counts floats as well
    order = sorted(scores, key=lambda key: (-scores[key], key))
    return [spelling[key] for key in order[: max(0, limit)]]


_ZH_PERSON = late(
    "(?:由|作家|作者|诗人|导演|演员|歌手|科学家|总统|主席|校长|创始人|皇帝|将军|画家"
    "|是)(?P<name>[\u4e00-\u9fff]{2,4}?|[\u4e00-\u9fff]{1,8}·[\u4e00-\u9fff·]{1,12}?)"
    "(?=创作|执导|导演|所|撰写|编写|发明|创立|创办|主演|担任|[，。、；])"
)


def _candidates(text: str) -> list[str]:
    """Names, and in Chinese, which has no capitals, those of people beside what they do."""
    return name_texts(text) + [match["name"] for match in _ZH_PERSON.finditer(text)]


def _words(text: str) -> str:
    return " ".join(re.findall(r"[^\W_]+", fold(text)))


# --- which rule ------------------------------------------------------------------------------------------------------


def _language(text: str) -> str:
    shares = scripts(text)
    if shares["han"] > 0.3:
        return "zh"
    return "ru" if shares["cyrillic"] > 0.3 else "en"


def _taken_apart(text: str) -> tuple[tuple[str, ...], str]:
    if not text.strip() or len(text) > _LONGEST:
        return (), ""
    parts = _listed(text) or _separate(text)
    if parts:
        return tuple(parts), "several questions in one"
    bare = " ".join(text.split())
    language = _language(bare)
    if parts := _COMPARISONS[language](bare):
        return tuple(part.strip(" ,;:，；：、") for part in parts), "a comparison"
    if parts := _CONJUNCTIONS[language](bare):
        return tuple(_tidied(parts)), "several questions in one"
    if hops := _CHAINS[language](bare):
        return tuple(_tidied([hop.text for hop in hops])), "a chain of hops"
    return (), ""


def _tidied(parts: Sequence[str]) -> list[str]:
    return [tidy for part in parts if _says_something(tidy := part.strip(" ,;:，；：、"))]


def _says_something(text: str) -> bool:
    return any(word not in _STOP for word in re.findall(r"[^\W_]+", fold(text)))


# --- lists and sentences ---------------------------------------------------------------------------------------------

_MARKERS = late(r"(?:(?<=\s)|^)[(（]?(\d{1,2}|[a-eа-д])[)）.、]\s*(?=\D)")
_ASKS = {
    "en": late(
        r"^\W*(?:(?:and|also|so|then|please)\W+)*(?:what|who|whom|whose|when|where|why|how|which|is|are|was"
        r"|were|do|does|did|can|could"
        r"|will|would|should|has|have|had|in (?:what|which)|tell|list|name|explain|describe)\b",
        re.IGNORECASE,
    ),
    "ru": late(
        r"^\W*(?:(?:а|и|также|ещё|пожалуйста)\W+)*(?:(?:в|на|о|об|от|до|с|со|из|за|для|к|по|у|при"
        r"|из-за)\s+)?(?:кто|что|чт[оё]|где|когда|куда|откуда|почему|зачем|как|как(?:ой|ая|ое|ие|ого|их|им"
        r"|ими|ом|ую)"
        r"|сколько|чем|чём|чего|чему|чей|чья|чьё|чьи|кого|кому|кем|ком|можно ли|есть ли|расскажите|опишите"
        r"|объясните|назовите|перечислите)(?!\w)",
        re.IGNORECASE,
    ),
}
_ZH_ASKS = late(
    "什么|哪|谁|多少|几[个位年种条名岁次]|怎么|怎样|如何|为何|为什么|何时|何地|何种|是否|多[长高大远重深久]|吗"
)


def _asks(text: str) -> bool:
    """Whether it reads like a question of its own."""
    language = _language(text)
    if language == "zh":
        return bool(_ZH_ASKS.search(text))
    return bool(_ASKS[language].search(text)) and _says_something(text)


def _listed(text: str) -> list[str]:
    """The items of «1) … 2) …»."""
    markers = list(_MARKERS.finditer(text))
    if len(markers) < 2:
        return []
    names = [marker[1] for marker in markers]
    if names not in (
        [str(number) for number in range(1, len(names) + 1)],
        list("abcde")[: len(names)],
        list("абвгд")[: len(names)],
    ):
        return []
    ends = [*(marker.start() for marker in markers[1:]), len(text)]
    items = [text[marker.end() : end].strip(" \n,;，；") for marker, end in zip(markers, ends, strict=True)]
    return items if all(map(_says_something, items)) else []


def _separate(text: str) -> list[str]:
    """The questions among several sentences; pronouns in later ones give way to what the first is about."""
    parts = [text[start:end] for start, end in sentences(text)]
    pieces = (
        [piece for part in parts for piece in re.split(r"(?<=[^;；]{8})[;；]\s*(?=[^;；]{8})", part)]
        if len(parts) < 9
        else parts
    )
    asking = (piece.strip() for piece in pieces if re.search(r"[?？]\W*$", piece) or _asks(piece))
    questions = [piece for piece in asking if _says_something(piece)]
    if len(questions) < 2 or not all(map(_asks, questions)):
        return []
    first = questions[0]
    return [first, *(resolved(question, first) for question in questions[1:])]


# --- English ---------------------------------------------------------------------------------------------------------

_EN_COMPARE = (
    late(
        r"^(?:please |can you |could you )?(?:compare|contrast)\s+(?:the )?(?P<a>[^?]{2,120}?)\s+(?:and|with"
        r"|to|vs\.?|versus|against)\s+(?P<b>[^?]{2,120}?)(?P<rest>\s+(?:in terms of|with respect to|regarding"
        r"|by|for)\s.{2,80})?[.?!]*$",
        re.IGNORECASE,
    ),
    late(
        r"^(?P<lead>.{0,60}?)\b(?:differences?|distinctions?|similarit(?:y|ies)|comparison|choose"
        r"|choosing) (?:\w+ )?between\s+(?:the )?(?P<a>[^?]{2,120}?)\s+and\s+(?P<b>[^?]{2,120}?)[.?!]*$",
        re.IGNORECASE,
    ),
    late(
        r"^how (?:do|does|is|are)\s+(?P<a>[^?]{2,80}?)\s+(?:differ|different"
        r"|differs)\s+from\s+(?P<b>[^?]{2,80}?)[.?!]*$",
        re.IGNORECASE,
    ),
    late(
        r"^(?P<a>[^,?]{2,80}?)\s+(?:vs\.?|versus)\s+(?P<b>[^,?]{2,80}?)(?P<rest>\s*[,:]\s*.{2,80})?[.?!]*$",
        re.IGNORECASE,
    ),
)
_UP = r"[A-Z0-9\"“'‘]"
_EN_EITHER = late(
    rf"^(?P<ask>(?:(?:of|between) the two,? )?(?:which|who|what|where|whose|when|between|in which|are|is"
    rf"|were|was)\b.{{3,160}}?)[,:—-]?\s+(?:either |between )?(?P<a>(?:the "
    rf")?{_UP}[^,?]{{1,80}}?),?\s+or\s+(?P<b>(?:the )?{_UP}[^,?]{{1,80}}?)\s*\?*$"
)
_EN_EITHER_COMMA = late(
    r"^(?P<ask>(?:which|who|what|where|whose)\b[^,]{3,160}),\s*(?P<a>[^,?]{2,80}?),?\s+or\s+(?P<b>[^,?]{2,80}?)\s*\?*$",
    re.IGNORECASE,
)
_EN_LEADING = late(
    r"^(?:between|of)\s+(?P<a>[^?]{2,80}?)\s+and\s+(?P<b>[^?]{2,80}?),\s*(?P<ask>(?:which|who|what|where"
    r"|whose)\b.{3,160}?)\s*\?*$",
    re.IGNORECASE,
)
_EN_BOTH = late(
    rf"^(?P<aux>(?:[Aa]re|[Ww]ere|[Ii]s|[Ww]as|[Dd]o|[Dd]id|[Dd]oes|[Hh]ave|[Hh]as|[Hh]ad|[Cc]an"
    rf"|[Cc]ould))\s+(?P<both>both )?(?P<kind>the (?:[a-z]+ ){{1,4}})?(?P<a>(?:[Tt]he "
    rf")?{_UP}[^,?]{{1,80}}?),?\s+and\s+(?P<b>(?:the )?{_UP}.{{1,140}}?)\s*\?*$"
)
_EN_ALL = late(r",?\s+(?=(?:both|each|all|either)\b)")
_EN_NAME_THERE = late(
    rf"(?:the\s+)?{_UP}[\w'’.&-]*(?:(?:\s+(?:of|the|and|de|von|van|in|a|for|to|from)){{0,2}}\s+{_UP}[\w'’.&-]*)*"
)
_EN_SHARED = late(
    r"\s+(?=(?:both|each|all|either|located|in the same|on the same|from the same|of the same|the same"
    r"|members?|directed|written|composed|born|"
    r"used|known|made|based|found|considered|famous|named|published|produced|released|American|British"
    r"|English|French|German|Canadian|Australian|"
    r"in|an?|at|on|of|from|have|has|share|belong|live|play|work|native|still|also|currently|primarily"
    r"|type|types|part|different|similar|"
    r"films?|bands?|authors?|writers?|directors?|actors?|actresses|singers?|musicians|magazines?|plants?"
    r"|cities|universities|mountains|companies|documentaries|genus|genera|breeds?|species|games?)\b)"
)
_EN_COMPARATIVE = late(
    rf"^(?P<aux>is|are|was|were|does|do|did|has|have|had|can|could|would"
    rf"|will)\s+(?:the )?(?P<a>{_UP}[\w'’. -]{{1,60}}?)\s+(?P<ask>(?:\w+\s+){{0,4}}?(?:\w+er|more|less"
    rf"|fewer|better|worse|as \w+|born|formed|founded|built|published|released|die|died|live"
    rf"|lived)(?:\s+\w+){{0,4}}?)\s+(?:than|before|after|as"
    rf"|longer than)\s+(?:the )?(?P<b>.{{2,80}}?)\s*\?*$",
    re.IGNORECASE,
)
_EN_AND_ASKS = late(
    r"(?:\s*[,;]\s*|\s+)(?:and|or|but)(?:\s+(?:also|then))?\s+(?=(?:(?:in|at|on|from|to|for|of"
    r"|with)\s+(?:what|which|whom)|what|who|when|where|why|how|which)\b\s+\w+\s+\w)"
    r"|\s*[,;]\s*(?:and\s+)?(?=(?:what|when|where|why|how)\s+(?:is|are|was|were|do|does|did|can|will|has"
    r"|have|much|many)\b)",
    re.IGNORECASE,
)
_EN_AND_DOES = late(
    r"\s*,?\s+and\s+(?=(?:is|was|are|were|has|had|have|did|does|also|who|which|that|won|wrote|directed"
    r"|starred|produced|served|played|co-\w+|[a-z]{3,}ed)\b\s)"
)
_EN_SUBJECT = late(
    r"^(?P<wh>which|what)\s+(?P<noun>(?!(?:is|was|are|were|has|had|have|did|does|do|can|could|will"
    r"|would)\b)(?:[\w'’-]+\s+){1,7}?)(?P<verb>is|was|are|were|has|had|have|did|does|can|could|also|that"
    r"|who|which|[a-z]{3,}ed|won|wrote|starred|sang|made|became|began|ran|led|took|stars|features|plays"
    r"|contains|includes)\b",
    re.IGNORECASE,
)


def _english_comparison(text: str) -> list[str]:
    for pattern in _EN_COMPARE:
        if match := pattern.match(text):
            groups = match.groupdict()
            if (groups.get("lead") or "").strip() and not (_asks(text) or text.endswith("?")):
                continue  # «There is no difference between …» is a claim
            rest = (groups.get("rest") or "").strip(" ,:")
            one, two = _tails(groups["a"], groups["b"])
            return [f"{one} {rest}".strip(), f"{two} {rest}".strip()]
    for pattern in (_EN_LEADING, _EN_EITHER_COMMA, _EN_EITHER):
        if match := pattern.match(text):
            ask = re.sub(r"\s*(?:between|either|among|,|:)\s*$", "", match["ask"]).strip()
            if (
                len(re.findall(r"\w+", ask)) < 2
                or _without_the(match["a"])[:1].islower() != _without_the(match["b"])[:1].islower()
            ):
                continue
            return [f"{_asked_of(ask)} {side}?" for side in (match["a"], match["b"])]
    if match := _EN_BOTH.match(text):
        return _english_both(match)
    if (match := _EN_COMPARATIVE.match(text)) and not re.match(r"\d", match["b"]):
        return [f"{match['ask']} {match['a']}", f"{match['ask']} {match['b']}"]
    return []


def _without_the(name: str) -> str:
    return re.sub(r"^the\s+", "", name, flags=re.IGNORECASE)


def _english_both(match: re.Match[str]) -> list[str]:
    one, two, said = match["a"].strip(), match["b"].strip(), ""
    # Where the second name ends is where something is said of both.
    cut = _EN_ALL.search(two) or (None if match["both"] else _EN_SHARED.search(two))
    if cut is not None:
        two, said = two[: cut.start()], two[cut.end() :]
    elif match["both"] and (name := _EN_NAME_THERE.match(two)):
        two, said = name[0], two[name.end() :].strip()
    if not said:
        return []
    said = re.sub(r"^(?:both|each|either|all)\b\s*", "", said)
    kind = (match["kind"] or "").removeprefix("the ").removeprefix("The ").strip()
    return [" ".join(part for part in (match["aux"], kind, name, said) if part).strip() + "?" for name in (one, two)]


def _tails(one: str, two: str) -> tuple[str, str]:
    """«Java 8 and 11» share the word before the numbers, «local and global variables» the one behind."""
    if re.fullmatch(r"[^\W\d_]+", one) and one.islower() and len(two.split()) in {2, 3}:
        return f"{one} {two.split(maxsplit=1)[1]}", two
    if re.fullmatch(r"[\d.]+", two) and (lead := re.match(r"(.*?\D)\s*[\d.]+$", one)):
        return one, f"{lead[1].rstrip()} {two}"
    return one, two


def _asked_of(ask: str) -> str:
    """What is compared, without what only compares: «Which band was formed first» asks when each was formed."""
    return re.sub(r"^(?:(?:of|between) the two,?\s*)", "", ask, flags=re.IGNORECASE).rstrip(" ,:?")


def _english_conjunction(text: str) -> list[str]:
    if not _ASKS["en"].search(text):
        return []
    parts = _split_where(text, _EN_AND_ASKS, _is_whole_question)
    if len(parts) > 1:
        return [f"{part.rstrip(' ?.,')}?" for part in (parts[0], *(resolved(part, parts[0]) for part in parts[1:]))]
    subject = _EN_SUBJECT.match(text)
    if subject is None:
        return []
    pieces = [piece for piece in _EN_AND_DOES.split(text.rstrip(" ?.")) if piece]
    if len(pieces) < 2 or any(len(piece.split()) < 3 for piece in pieces):
        return []
    # «Which band released X and had a drummer who …?»
    head = f"{subject['wh']} {subject['noun'].strip()}"
    others = (re.sub(r"^(?:which|who|that) ", "", piece) for piece in pieces[1:])
    return [f"{pieces[0]}?", *(f"{head} {piece}?" for piece in others)]


def _split_where(text: str, pattern: re.Pattern[str], whole: Callable[[str, str], bool]) -> list[str]:
    """The text split at those matches that have a whole question on either side."""
    parts: list[str] = []
    start = 0
    for match in pattern.finditer(text):
        left, right = text[start : match.start()], text[match.end() :]
        if whole(left, right):
            parts.append(left)
            start = match.end()
    return [*parts, text[start:]]


def _is_whole_question(left: str, right: str) -> bool:
    """Not «where and when was he born», nor «I wonder what it is and how it works»."""
    return (
        _asks(left)
        and len(left.split()) >= 3
        and not re.search(r"\b(?:what|who|when|where|why|how|which|know|wonder|to|of)\s*$", left, re.IGNORECASE)
        and _says_something(right)
    )


_EN_RELATIONS = """father mother son daughter wife husband spouse brother sister sibling parents child children
    founder author writer director producer performer singer composer creator inventor designer developer
    publisher owner president chairman ceo leader king queen emperor ruler governor mayor captain coach manager
    capital birthplace hometown headquarters home team club band album film movie song novel book character
    actor actress star host network label company manufacturer employer school university college alma mater
    country nation state city county province region district continent river mouth namesake successor
    predecessor record label death place birth place birth death nationality"""
_REL = "|".join(sorted(set(_EN_RELATIONS.split()), key=len, reverse=True))
_SORTS = (
    "(?:country|nation|state|city|county|province|region|district|continent|river|university|college"
    "|company|team|club|king|queen|emperor|band|label|school|network)"
)
"""What a name stands behind with «of»: the city of Rome is no city to be looked up."""
_EN_ADJ = r"(?:(?!(?:of|in|is|are|was|were|did|does|do|the|a|an|and|or|that|which|who)\b)[\w'’-]+\s+){0,3}?"
_EN_PROPER = rf"(?:the\s+)?{_UP}[\w'’.&-]*(?:(?:\s+(?:of|the|and|de|von|van|in|a|for|to)){{0,2}}\s+{_UP}[\w'’.&-]*)*"
_EN_BIRTH = r"(?:\s+of\s+(?:birth|death|citizenship|origin|residence))?"
_EN_RELATIVE = late(
    rf"\b(?P<np>(?:[Tt]he|[Aa]n?|[Tt]his|that|[Ww]hat"
    rf"|[Ww]hich)\s+{_EN_ADJ}(?P<noun>[a-z][a-z-]+)),?\s+(?P<rel>that|which|who|whose|whom|where|(?:in|to"
    rf"|of|on|at|from|for|by|with) (?:which|whom))\s+(?P<clause>.{{6,}})"
)
_EN_PARTICIPLE = late(
    rf"\b(?P<np>[Tt]he\s+{_EN_ADJ}(?P<noun>{_REL}))\s+(?P<clause>(?:directed|written|produced|founded"
    rf"|created|starring|featuring|based|named|located|born|played|owned|released|published|performed"
    rf"|known|made|built|designed|written and \w+)\s+(?:by|in|on|after|at|as|from"
    rf"|with)?\s*(?={_UP}).{{3,}})"
)
_EN_OF = late(
    rf"\b[Tt]he\s+(?P<noun>{_EN_ADJ}(?:(?!{_SORTS}\b)(?:{_REL})|(?:{_REL})\s+of\s+(?:birth|death"
    rf"|citizenship|origin|residence)))\s+of\s+(?P<of>{_EN_PROPER})"
)
_EN_GENITIVE = late(rf"(?P<who>{_EN_PROPER})(?<=[^'’])['’]s?\s+(?P<noun>{_EN_ADJ}(?:{_REL}){_EN_BIRTH})\b(?!\s+{_UP})")
_EN_OWNER = late(rf"\b[Tt]he\s+(?P<noun>{_EN_ADJ}(?:{_REL}){_EN_BIRTH})(?P<of>\s+of\s+)$")
_EN_WH = late(r"\b(?:what|which|how many|how much|where|when|whom|who)\b\s*(?!.*\b(?:that|who|which)\b)", re.IGNORECASE)
_EN_VERBS_TEXT = """die died live lived play played start begin began end win won attend work worked move
    release graduate marry married debut become became have host belong born buried located educated write wrote
    direct directed"""
_EN_VERBS = frozenset(_EN_VERBS_TEXT.split())
_EN_WEAK_TEXT = """what who which where when whose whom how is was are were do does did the a an of in name
    called many much people person"""
_EN_WEAK = frozenset(_EN_WEAK_TEXT.split())


def _english_chain(text: str) -> tuple[Hop, ...]:
    if not (_ASKS["en"].search(text) or text.rstrip().endswith("?") or re.search(r"\b(?:what|who|whom|which)\b", text)):
        return ()
    bare = text.rstrip(" ?.!")
    hops = _english_inner(bare, 3)
    if len(hops) < 2:
        return ()
    # «the nationality of the director of the film»: the director, once the film is known
    hops = _further(hops, _EN_OWNER, "the ")
    return (*hops[:-1], Hop(f"{hops[-1].text}?", hops[-1].slot))


def _further(hops: list[Hop], owner: re.Pattern[str], article: str) -> list[Hop]:
    """The hops, with the last one split where it asks something of what belongs to what is found before it."""
    for _ in range(2):
        last = hops[-1]
        assert last.slot is not None
        before, after = last.text[: last.slot[0]], last.text[last.slot[1] :]
        match = owner.search(before)
        if match is None or not _asks_more(before[: match.start()] + after):
            break
        noun = match["noun"].strip()
        inner = f"{noun}{match['of']}{last.text[slice(*last.slot)]}"
        start = len(inner) - (last.slot[1] - last.slot[0])
        outer = f"{before[: match.start()]}{article}{noun}{after}"
        place = (match.start(), match.start() + len(article) + len(noun))
        hops = [*hops[:-1], Hop(inner, (start, len(inner))), Hop(outer, place)]
    return hops


def _asks_more(text: str) -> bool:
    return bool([word for word in _content(text) if word not in RUSSIAN and word not in _RU_WEAK])


def _english_inner(text: str, depth: int) -> list[Hop]:
    """The hops of a phrase, the innermost first; one hop where it is simple."""
    if not depth:
        return [Hop(text)]
    for pattern in (_EN_RELATIVE, _EN_PARTICIPLE, _EN_OF, _EN_GENITIVE):
        found = [match for match in pattern.finditer(text) if _bridges(text, match)]
        if not found:
            continue
        match = found[-1]
        inner = match[0]
        noun = match.groupdict().get("np") or match["noun"]
        noun = re.sub(r"^(?:the|a|an|this|that)\s+", "", noun, flags=re.IGNORECASE)
        inner_end = match.end()
        if "clause" in pattern.groupindex:
            inner_end = _clause_end(text, match)
            inner = text[match.start() : inner_end]
            if reversed_hops := _asked_inside(text, match, noun, inner_end, depth):
                return reversed_hops
        inner = re.sub(r"^(?:the|a|an|this|that)\s+", "", inner, flags=re.IGNORECASE)
        before = text[: match.start()]
        if before[-1:].strip():
            before += " "
        place = (
            f"the {noun}"
            if not re.match(r"(?:what|which)\b", noun, re.IGNORECASE)
            else f"that {noun.split(maxsplit=1)[-1]}"
        )
        outer = f"{before}{place}{text[inner_end:]}"
        slot = (len(before), len(before) + len(place))
        if len(_content(outer[: slot[0]] + outer[slot[1] :])) < 1:
            continue
        inside = _english_inner(inner, depth - 1)
        return [*inside, Hop(outer, slot)]
    return [Hop(text)]


def _asked_inside(text: str, match: re.Match[str], noun: str, end: int, depth: int) -> list[Hop]:
    """Where the clause asks: «X was bought by a retailer that has how many stores» looks for the retailer first."""
    clause = text[match.start("clause") : end]
    before = text[: match.start()]
    if match.groupdict().get("rel") not in {"that", "which", "who"} or text[end:].strip() or not _content(before):
        return []
    if _EN_WH.search(before) or re.match(r"(?:what|which)\b", match["np"], re.IGNORECASE) or not _EN_WH.search(clause):
        return []
    place = f"the {noun}"
    return [*_english_inner(f"{before}{match['np']}", depth - 1), Hop(f"{place} {clause}", (0, len(place)))]


def _bridges(text: str, match: re.Match[str]) -> bool:
    """Whether the phrase names something unknown that the rest asks something about."""
    groups = match.groupdict()
    inner = groups.get("clause") or groups.get("of") or groups.get("who") or ""
    if not re.search(rf"(?<!\w){_UP}", inner) and not _EN_WH.search(inner):
        return False  # the clause names nothing that could be looked up
    after = re.match(r"\s+([a-z]+)", text[match.end() :]) if groups.get("of") else None
    if after and after[1] not in ENGLISH and after[1] not in _EN_VERBS:
        return False  # «the leader of the Islamist regime»: the name goes on
    end = _clause_end(text, match) if groups.get("clause") else match.end()
    return bool(_content(text[: match.start()] + text[end:]))


def _clause_end(text: str, match: re.Match[str]) -> int:
    """Where a clause ends: at a comma that closes it, or where the verb of the question follows; else with the text."""
    start = match.start("clause")
    comma = re.search(
        r",\s+(?=(?:what|who|when|where|how|which|is|was|did|does|has|had|in (?:what|which)|lived|died|played|have)\b)",
        text[start:],
    )
    if comma:
        return start + comma.start()
    if re.search(r"\b(?:did|does|do)\s*$", text[: match.start()]):
        # «When did the actor who played X die»: the last word is the question's verb
        tail = re.search(
            rf"\s(?:{'|'.join(sorted(_EN_VERBS))}|come from)"
            r"(?:\s+(?:in|at|for|from|with|to))?\s*$",
            text,
        )
        if tail and tail.start() > start:
            return tail.start()
    return len(text)


def _content(text: str) -> list[str]:
    return [word for word in re.findall(r"[\w'’-]+", fold(text)) if word not in ENGLISH and word not in _EN_WEAK]


# --- Russian ---------------------------------------------------------------------------------------------------------

_RU_COMPARE = (
    late(
        r"^(?:пожалуйста,? )?сравни(?:те|ть)?\s+(?P<a>[^?]{2,100}?)\s+(?:и|с|со"
        r"|vs\.?)\s+(?P<b>[^?]{2,100}?)(?P<rest>\s+(?:по|с точки зрения)\s.{2,80})?[.?!]*$",
        re.IGNORECASE,
    ),
    late(
        r"^(?:чем|как|в чём|в чем)\s+(?:\w+\s+)?(?:отлича(?:ется|ются)"
        r"|различаются)\s+(?P<a>[^?]{2,100}?)\s+от\s+(?P<b>[^?]{2,100}?)[.?!]*$",
        re.IGNORECASE,
    ),
    late(
        r"^чем\s+(?P<a>[^?]{2,100}?)\s+(?:(?:принципиально|существенно|именно|вообще|сильно"
        r"|в основном)\s+)?отлича(?:ется|ются)\s+от\s+(?P<b>[^?]{2,100}?)[.?!]*$",
        re.IGNORECASE,
    ),
    late(
        r"^(?:.{0,60}?\s)?(?:разниц\w|отличи\w|различи\w|сходств\w|общего"
        r"|сравнени\w)\s+(?:\w+\s+)?между\s+(?P<a>[^?]{2,100}?)\s+и\s+(?P<b>[^?]{2,100}?)[.?!]*$",
        re.IGNORECASE,
    ),
    late(r"^(?:.{0,60}?\s)?отличи\w\s+(?P<a>[^?]{2,100}?)\s+от\s+(?P<b>[^?]{2,100}?)[.?!]*$", re.IGNORECASE),
    late(r"^(?P<a>[^,?]{2,80}?)\s+(?:vs\.?|versus)\s+(?P<b>[^,?]{2,80}?)(?P<rest>)[.?!]*$", re.IGNORECASE),
)
_RU_EITHER = late(
    r"^(?P<ask>(?:что|кто|какой|какая|какое|какие|где|у кого|кого"
    r"|чей)\s.{2,120}?)[,:—-]\s*(?P<a>[^,?]{1,80}?),?\s+или\s+(?P<b>[^,?]{1,80}?)\s*\?*$",
    re.IGNORECASE,
)
_RU_COMPARATIVE = late(
    r"(?<!\w)(?:\w{3,}(?:ее|ей|ше|же|че)|лучше|хуже|больше|меньше|выбрать|из них|первым|первой|позже|позднее)(?!\w)",
    re.IGNORECASE,
)
_RU_AND_ASKS = late(
    r"(?:\s*[,;]\s*(?:(?:а|и)\s+(?:также|ещё|еще)\s+|а\s+|и\s+|но\s+|или\s+)|\s+(?:а также|и(?:\s+также)?)\s+)"
    r"(?=(?:(?:в|на|о|об|от|до|с|из|за|для|к|по|у|при)\s+)?(?:кто|что такое|что|где|когда|куда|откуда"
    r"|почему|зачем|как|как(?:ой|ая|ое|ие|ого|их|им|ими|ом|ую)|сколько|чем|чём|кого|кому|кем|ком)\s+\w)",
    re.IGNORECASE,
)
_RU_SUBORDINATE = late(
    r"(?:о|об|про|то|тем|того|том|тому|так|знать|понять|узнать|сказать|объяснить|определить|расскажите"
    r"|опишите|указать|зависит|тот|те|та|случае|кроме|после|перед|до|потому|для)\s*$",
    re.IGNORECASE,
)
_RU_PERSONS = (
    "автор|писател|режисс[её]р|создател|основател|изобретател|композитор|исполнител|отец|отц|мат[ье]р"
    "|жен|муж|супруг|брат|сестр|сын"
    "|доч|столиц|глав|президент|директор|владел|тренер|капитан|редактор|разработчик|продюсер|родин|штаб-квартир"
)
_RU_RELATIONS = (
    f"{_RU_PERSONS}|река|город|стран|фильм|роман|книг|песн|альбом|групп|компани|университет|актрис"
    f"|акт[её]р|певец|певиц|художник|архитектор"
)
_RU_OWNER = late(rf"(?<!\w)(?P<noun>(?i:{_RU_PERSONS})[а-яё]{{0,4}})(?P<of>\s+)$")
_RU_WHICH = late(
    rf"(?<!\w)(?P<np>(?:[а-яё-]+(?:ого|его|ый|ий|ая|ой|ей|ую|ом|ему|ому)\s+)?(?P<noun>(?:{_RU_RELATIONS}"
    rf"|учён|учен|человек|женщин|мужчин|игрок|писательниц|остров|озер|област"
    rf"|регион)\w{{0,4}})),\s+(?P<rel>(?:(?:в|на|о|об|с|к|от|из|для|за|по|у|при)\s+)?котор\w+|где|чей"
    rf"|чья)\s+(?P<clause>[^?]{{6,}}?)(?P<end>,\s+|\s*$)",
    re.IGNORECASE,
)
_RU_OF = late(
    rf"(?<!\w)(?P<noun>(?i:{_RU_PERSONS})[а-яё]{{0,4}})\s+(?P<of>(?:(?:романа|фильма|книги|повести|песни"
    rf"|оперы|пьесы|компании|группы|страны|города|картины|сериала|игры|поэмы|рассказа|альбома"
    rf"|балета)\s+)?(?:«[^«»]+»|\"[^\"]+\"|[A-ZА-ЯЁ][\w-]+(?:\s+[A-ZА-ЯЁ][\w-]+)*))"
)


def _russian_comparison(text: str) -> list[str]:
    for pattern in _RU_COMPARE:
        if match := pattern.match(text):
            rest = (match.groupdict().get("rest") or "").strip()
            one, two = _tails(match["a"], match["b"])
            return [f"{one} {rest}".strip(), f"{two} {rest}".strip()]
    match = _RU_EITHER.match(text)
    if match and (":" in text or _RU_COMPARATIVE.search(match["ask"])):
        return [f"{match['ask'].strip()} {side}?" for side in (match["a"], match["b"])]
    return []


def _russian_conjunction(text: str) -> list[str]:
    if not _ASKS["ru"].search(text):
        return []

    def whole(left: str, right: str) -> bool:
        return (
            _asks(left)
            and len(left.split()) >= 3
            and not _RU_SUBORDINATE.search(left)
            and not re.search(
                r"(?<!\w)(?:кто|что|где|когда|почему|зачем|как|сколько|расскажите|опишите|объясните)\s*$",
                left,
                re.IGNORECASE,
            )
            and len(re.findall(r"\w+", right)) >= 2
        )

    parts = _split_where(text, _RU_AND_ASKS, whole)
    # «Чем обусловлено то, что …»: a comma alone opens a clause more often than a question
    if len(parts) < 2:
        return []
    return [f"{part.rstrip(' ?.,')}?" for part in (parts[0], *(resolved(part, parts[0]) for part in parts[1:]))]


def _russian_chain(text: str) -> tuple[Hop, ...]:
    if not (_ASKS["ru"].search(text) or text.rstrip().endswith("?")):
        return ()
    bare = text.rstrip(" ?.!")
    hops = _russian_inner(bare, 3)
    if len(hops) < 2:
        return ()
    hops = _further(hops, _RU_OWNER, "")
    return (*hops[:-1], Hop(f"{hops[-1].text}?", hops[-1].slot))


def _russian_inner(text: str, depth: int) -> list[Hop]:
    for pattern in (_RU_WHICH, _RU_OF) if depth else ():
        for match in reversed(list(pattern.finditer(text))):
            inner = f"{match['np']}, {match['rel']} {match['clause']}" if pattern is _RU_WHICH else match[0]
            named = match["clause"] if pattern is _RU_WHICH else match["of"]
            if not re.search(r"[A-ZА-ЯЁ0-9«\"]", named):
                continue
            noun = match["noun"]
            before, after = text[: match.start()], text[match.end() :]
            outside = [
                w for w in re.findall(r"[\w-]+", fold(f"{before} {after}")) if w not in RUSSIAN and w not in _RU_WEAK
            ]
            if not outside:
                continue
            after = f" {after.lstrip(' ,')}" if after.strip(" ,") else ""
            slot = (len(before), len(before) + len(noun))
            return [*_russian_inner(inner, depth - 1), Hop(f"{before}{noun}{after}", slot)]
    return [Hop(text)]


_RU_WEAK_TEXT = """какой какая какое какие кто такой такая является зовут имя назовите называется фамилия"""
_RU_WEAK = frozenset(_RU_WEAK_TEXT.split())


# --- Chinese ---------------------------------------------------------------------------------------------------------

_ZH_AND = "(?:和|与|跟(?![随踪从着])|同(?![属时样学意志盟类名年一胞行事期])|及(?![其时格第])|、|以及)"
_ZH_COMPARE = (
    late(
        f"^(?:请问|请)?(?P<lead>[^，。？]{{0,12}}[，,])?(?P<a>[^，。？,]{{1,40}}?){_ZH_AND}(?P<b>[^，。？,]{{1"
        f",40}}?)(?:之间|两者|二者)?(?P<rest>在[^，。？]{{1,20}}[上面中])?的?(?:主要)?(?:有什么|有何|有哪些"
        f"|是什么|有啥|究竟有什么)?的?(?:本质|主要|具体)?(?:(?:区别|不同点?|差异|差别|异同点?|相同点|重合之处"
        f"|共同点|相似之处|相同之处|不同之处)(?:和|与|及|、|以及)?)+(?:是什么|在哪里?|在于什么|有哪些"
        f"|呢)?[？?。]*$"
    ),
    late(
        f"^(?:请问|请)?(?:比较|对比)(?:一下)?(?P<a>[^，。？]{{1,40}}?){_ZH_AND}(?P<b>[^，。？]{{1,40}}?)(?P<re"
        f"st>的[^，。？]{{1,20}})?[？?。]*$"
    ),
    late(
        f"^(?:请问)?(?P<a>[^，。？]{{1,40}}?){_ZH_AND}(?P<b>[^，。？]{{1,40}}?)(?:相比)?[，,]?(?:哪一?[个家种"
        f"部座款]|谁)(?P<rest>更[^，。？]{{1,20}}|比较[^，。？]{{1,20}}"
        f"|(?:的[^，。？]{{1,8}}更?)?[大小高矮长短早晚多少快慢好强弱远近老深浅重先][^，。？]{{0,4}})[？?。]*$"
    ),
    late(
        "^(?:请问)?(?P<ask>(?:哪一?[个家种部座款]|谁)[^，。？]{1,20})[，,：:](?P<a>[^，。？]{1,30}?)(?:还是"
        "|或者?)(?P<b>[^，。？]{1,30}?)[？?。]*$"
    ),
)
_ZH_PARTS = late(
    "[，,；;？?。！]+|以及(?=[^，。？]{0,12}(?:什么|哪|谁|多少|怎|如何|为何|几))|(?:而且|并且|另外|还有|同时)"
)
_ZH_RELATIONS = (
    "导演|作者|主演|编剧|作曲者?|演唱者|创始人|创办人|创立者|发明者|发明人|设计者|父亲|母亲|妻子|丈夫"
    "|儿子|女儿|哥哥|弟弟|姐姐|妹妹|首都|省会|总部|总统|总理|国王|皇帝|校长|院长|董事长|总裁|队长|教练"
    "|母校|出生地|家乡|故乡|祖国|母公司|出版社|制作公司|开发商|前任|继任者"
)
_ZH_HOP = late(
    f"(?P<inner>(?:《[^《》]+》|[^，。？的]{{1,30}}?)(?:的(?:[^，。？的]{{1,20}}))*?的(?P<noun>"
    f"{_ZH_RELATIONS}))(?P<rest>(?![级队及和与或、兼])的?[^，。？]{{2,}})$"
)
_ZH_UNKNOWNS = "电影|影片|小说|电视剧|动画|书|歌曲|专辑|公司|城市|国家|大学|学校|演员|导演|作家|科学家|球员|球队|游戏"
_ZH_DOES = "获得|荣获|赢得|执导|主演|导演|创作|拍摄|发明|建立|创立|创办|出演|参演|举办|出版|改编"
_ZH_CLAUSE = late(
    f"^(?P<inner>[^，。？的]{{0,20}}(?:{_ZH_DOES})[^，。？]{{0,30}}?的(?P<noun>{_ZH_UNKNOWNS}))的(?P<rest>"
    f"[^，。？]{{2,}})$"
)
_ZH_NOTHING_LEFT = late(
    "^(?:位于|设立|设在|坐落|属于|称为|地区|地方|城市|国家|地点|时候|什么时候|担任|是|叫|名|为|又?有|的"
    "|姓名|名字|什么|谁|哪[位个里家些所座]?|人|在|分别|都|曾|呢|多少|现任)*$"
)


def _chinese_comparison(text: str) -> list[str]:
    for pattern in _ZH_COMPARE:
        if match := pattern.match(text):
            groups = match.groupdict()
            rest = groups.get("rest") or ""
            one, two = _zh_sides(text[match.start("a") : match.end("b")], match.start("b") - match.start("a"))
            if (
                min(len(one.strip()), len(two.strip())) < 1 + bool(re.match("[\u4e00-\u9fff]", two))
                or len(one + two) > 60
            ):
                continue
            lead = (groups.get("lead") or groups.get("ask") or "").strip("，,")
            return [f"{lead}{' ' if lead else ''}{side}{rest}" for side in (one, two)]
    return []


def _zh_sides(both: str, first: int) -> tuple[str, str]:
    """«甲与乙专业与丙专业»: of several conjunctions the one whose sides end alike; else the first."""
    cuts = [
        (match.start(), match.end())
        for match in re.finditer(_ZH_AND, both)
        if match.start() > 0 and match.end() < len(both)
    ]
    ends = [(both[:start], re.split("的|在|两[个门种者]|之间", both[end:])[0], both[end:]) for start, end in cuts]
    alike = [
        (max(_alike_at_the_end(one, other) for other in (head, two)), -number)
        for number, (one, head, two) in enumerate(ends)
    ]
    best = max(alike, default=(0, 0))
    if best[0]:
        one, _, two = ends[-best[1]]
        return one, two
    cut = next((start for start, end in cuts if end == first), first)
    return both[:cut], both[first:]


def _alike_at_the_end(one: str, other: str) -> int:
    """How many characters two texts have in common at their ends."""
    pairs = zip(reversed(one), reversed(other), strict=False)
    return next((count for count, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _chinese_conjunction(text: str) -> list[str]:
    parts = [part.strip() for part in _ZH_PARTS.split(text) if part and part.strip()]
    if len(parts) < 2:
        return []
    groups: list[str] = []
    # A clause that asks nothing belongs to the question after it.
    held = ""
    for part in parts:
        held = f"{held}，{part}" if held else part
        if _ZH_ASKS.search(part):
            groups.append(held)
            held = ""
    if len(groups) < 2 or held:
        return []
    return [f"{question}？" for question in (groups[0], *(resolved(group, groups[0]) for group in groups[1:]))]


def _chinese_chain(text: str) -> tuple[Hop, ...]:
    bare = re.sub("^请问", "", text).rstrip("？?。")
    hops: list[Hop] = []
    if (clause := _ZH_CLAUSE.match(bare)) and _ZH_ASKS.search(clause["rest"]) and not _ZH_ASKS.search(clause["inner"]):
        hops.append(Hop(clause["inner"]))
        bare = f"{clause['noun']}的{clause['rest']}"
    for _ in range(3):
        match = _ZH_HOP.match(bare)
        if match is None or not _ZH_ASKS.search(match["rest"]) or _ZH_NOTHING_LEFT.match(match["rest"]):
            break
        slot = (0, len(match["noun"])) if hops else None
        inner = match["inner"]
        hops.append(Hop(inner, slot))
        bare = f"{match['noun']}{match['rest']}"
    if not hops:
        return ()
    noun = re.match(f"(?:{_ZH_RELATIONS}|{_ZH_UNKNOWNS})", bare)
    return (*hops, Hop(f"{bare}？", (0, noun.end() if noun else 0)))


_Rule = Callable[[str], list[str]]
_COMPARISONS: dict[str, _Rule] = {"en": _english_comparison, "ru": _russian_comparison, "zh": _chinese_comparison}
_CONJUNCTIONS: dict[str, _Rule] = {"en": _english_conjunction, "ru": _russian_conjunction, "zh": _chinese_conjunction}
_CHAINS: dict[str, Callable[[str], tuple[Hop, ...]]] = {
    "en": _english_chain,
    "ru": _russian_chain,
    "zh": _chinese_chain,
}
