"""Decomposes complex questions by rules: comparisons, several questions in one, and chains of hops; en, zh and ru.

A rule needs a cue that rarely occurs in simple questions; *salt and pepper* is not two questions. A text that no rule
recognises stays unchanged.

A *chain* is a sequence of look-ups: the film before its director. `chain` returns its hops in order, each with the
place in its text where the result of the previous hop belongs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pointsman.retrieval.plan.transform.base_transformer import BaseTransformer, Transformed, distinct
from pointsman.retrieval.run.variant import Variant
from pointsman.text import fold, sentences
from pointsman.text.grammar import QUESTION, STOP, WORD, opens_question, plain, refers_back
from pointsman.text.grammar.comparison import LONGEST, comparison, language_of
from pointsman.text.stop_words import ENGLISH, RUSSIAN
from pointsman.tools.errors import InputError
from pointsman.tools.late_regex import late
from pointsman.values.types import Query


@dataclass(frozen=True, slots=True)
class Hop:
    """One step of a chain.

    Attributes:
        text: what to look up; a valid search text by itself.
        slot: ``text[start:end]``, to be replaced by the result of the previous step; None in the first step.
    """

    text: str
    slot: tuple[int, int] | None = None

    def filled(self, entity: str) -> str:
        """The text with the previous result filled in.

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
        """Set the maximum number of sub-questions and the weight of each.

        Raises:
            InputError: ``max_subqueries`` is below 1.
        """
        if max_subqueries < 1:
            raise InputError(f"max_subqueries is at least 1, not {max_subqueries}")
        self.max_subqueries, self.weight = max_subqueries, weight

    def transform(self, query: str | Query) -> Transformed:
        """Return the query unchanged, with its sub-questions."""
        query = Query.of(query)
        texts, rule = _taken_apart(query.text)
        variants = distinct((Variant(text, "subquestion", self.weight) for text in texts), query.text)
        if not variants:
            return Transformed(query)
        return Transformed(query, variants[: self.max_subqueries], f"{len(variants)} sub-questions: {rule}")


def subquestions(text: str) -> tuple[str, ...]:
    """The sub-questions of a question; empty if it is simple.

    >>> subquestions("сравни Kafka и RabbitMQ"), subquestions("salt and pepper")
    (('Kafka', 'RabbitMQ'), ())
    """
    return _taken_apart(text)[0]


def chain(text: str) -> tuple[Hop, ...]:
    """The hops of a question that needs several look-ups in sequence, in order; empty if it does not.

    >>> [hop.text for hop in chain("Who directed the film that won the Palme d'Or in 1994?")]
    ["film that won the Palme d'Or in 1994", 'Who directed the film?']
    """
    if not text.strip() or len(text) > LONGEST:
        return ()
    bare = " ".join(text.split())
    return _CHAINS[language_of(bare)](bare)


# --- which rule ------------------------------------------------------------------------------------------------------


def _taken_apart(text: str) -> tuple[tuple[str, ...], str]:
    if not text.strip() or len(text) > LONGEST:
        return (), ""
    subqueries = _listed_questions(text) or _separate(text)
    if subqueries:
        return tuple(subqueries), "several questions in one"
    bare = " ".join(text.split())
    language = language_of(bare)
    if subqueries := _chinese_conjunction(bare) if language == "zh" else _conjunction(bare, language):
        return tuple(_tidy_texts(subqueries)), "several questions in one"
    if compares := comparison(text):
        return compares.parts, "a comparison"
    if hops := _CHAINS[language](bare):
        return tuple(_tidy_texts([hop.text for hop in hops])), "a chain of hops"
    return (), ""


def _tidy_texts(texts: Sequence[str]) -> list[str]:
    return [tidy for text in texts if _says_something(tidy := text.strip(" ,;:，；：、"))]


def _says_something(text: str) -> bool:
    return any(word not in STOP for word in re.findall(r"[^\W_]+", plain(text)))


def _asks(text: str) -> bool:
    """Whether it reads like a complete question."""
    return opens_question(plain(text)) and _says_something(text)


# --- lists and sentences ---------------------------------------------------------------------------------------------

_MARKERS = late(r"(?:(?<=\s)|^)[(（]?(\d{1,2}|[a-eа-д])[)）.、]\s*(?=\D)")


def _listed_questions(text: str) -> list[str]:
    """The items of «1) … 2) …»."""
    markers = list(_MARKERS.finditer(text))
    names = "".join(marker[1] for marker in markers)
    if len(markers) < 2 or not any(full.startswith(names) for full in ("1234567891011121314", "abcde", "абвгд")):
        return []
    ends = [*(marker.start() for marker in markers[1:]), len(text)]
    items = [text[marker.end() : end].strip(" \n,;，；") for marker, end in zip(markers, ends, strict=True)]
    return items if all(map(_says_something, items)) else []


def _separate(text: str) -> list[str]:
    """The questions among several sentences; the first stands before later ones that refer to it."""
    sentence_texts = [text[start:end] for start, end in sentences(text)]
    segments = (
        [
            segment
            for sentence in sentence_texts
            for segment in re.split(r"(?<=[^;；]{8})[;；]\s*(?=[^;；]{8})", sentence)
        ]
        if len(sentence_texts) < 9
        else sentence_texts
    )
    asking = (segment.strip() for segment in segments if re.search(r"[?？]\W*$", segment) or _asks(segment))
    questions = [segment for segment in asking if _says_something(segment)]
    if len(questions) < 2 or not all(map(_asks, questions)):
        return []
    return _in_context(questions)


def _in_context(questions: Sequence[str]) -> list[str]:
    """Puts the first question before later ones that refer to something: «Who wrote Emma? When did she die?»."""
    first = questions[0]
    return [first, *(f"{first} {question}" if refers_back(question) else question for question in questions[1:])]


# --- several questions in one sentence -------------------------------------------------------------------------------

_JOINTS = {
    "en": late(r"(?:\s*[,;]\s*|\s+)(?:and|but)(?:\s+(?:also|then))?\s+|\s*[,;]\s*", re.IGNORECASE),
    "ru": late(
        r"\s*[,;]\s*(?:(?:а|и)\s+(?:также|ещё|еще)|а|и|но|или)\s+|\s+(?:а также|и(?:\s+также)?)\s+", re.IGNORECASE
    ),
}
_OPEN = late(
    r"(?<!\w)(?:know|wonder|to|of|о|об|про|то|тем|того|том|тому|так|знать|понять|узнать|сказать|объяснить|определить"
    r"|указать|зависит|тот|те|та|случае|кроме|после|перед|до|потому|для)\s*$",
    re.IGNORECASE,
)
"""Words that take a following question as their clause, such as *wonder*."""
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


def _conjunction(text: str, language: str) -> list[str]:
    """Splits an English or Russian sentence at each question that follows another."""
    if not opens_question(plain(text)):
        return []
    conjuncts: list[str] = []
    start = 0
    for joint in _JOINTS[language].finditer(text):
        left_text, right = text[start : joint.start()], text[joint.end() :]
        comma = not joint[0].strip(" ,;")  # a comma alone opens a clause more often than a question
        if _stands(left_text) and _follows(right, language, is_alone=comma):
            conjuncts.append(left_text)
            start = joint.end()
    conjuncts.append(text[start:])
    if len(conjuncts) > 1:
        return _in_context([f"{conjunct.rstrip(' ?.,')}?" for conjunct in conjuncts])
    return _shared_subject(text) if language == "en" else []


def _stands(text: str) -> bool:
    """False for «where and when was he born» and «I wonder what it is and how it works»."""
    words = WORD.findall(plain(text))
    return _asks(text) and len(words) > 2 and words[-1] not in QUESTION and not _OPEN.search(text)


def _follows(right: str, language: str, *, is_alone: bool) -> bool:
    """Whether a complete question follows a conjunction, or a comma alone."""
    words = WORD.findall(plain(right))
    if len(words) < _FEWEST[language] or not opens_question(plain(right), words_alone=True):
        return False
    index = int(words[0] not in QUESTION)
    if words[index] == "whose" or re.match(r"\w+['’]", right) or not _says_something(right):
        return False
    return not is_alone or (words[index] not in _RELATIVE and words[index + 1] in _AFTER_COMMA)


_FEWEST = {"en": 3, "ru": 2}
_RELATIVE = frozenset({"who", "whom", "which"})
_AFTER_COMMA = frozenset(
    {"is", "are", "was", "were", "do", "does", "did", "can", "will", "has", "have", "much", "many", "такое"}
)


def _shared_subject(text: str) -> list[str]:
    """«Which band released X and had a drummer who …?»."""
    subject = _EN_SUBJECT.match(text)
    if subject is None:
        return []
    clauses = [clause for clause in _EN_AND_DOES.split(text.rstrip(" ?.")) if clause]
    if len(clauses) < 2 or any(len(clause.split()) < 3 for clause in clauses):
        return []
    head = f"{subject['wh']} {subject['noun'].strip()}"
    other_clauses = (re.sub(r"^(?:which|who|that) ", "", clause) for clause in clauses[1:])
    return [f"{clauses[0]}?", *(f"{head} {clause}?" for clause in other_clauses)]


_ZH_PARTS = late("[，,；;？?。！]+|以及|(?:而且|并且|另外|还有|同时)")


_ZH_EACH = late(
    r"(?P<things>[^，,；;？?。！!的]+?)的(?P<of>[^，,；;？?。！!的分各]+)(?:分别|各自|各)(?P<rest>(?:是|为|有|在|叫)[^，,；;？?。！!]+)[？?。]?"
)
_ZH_AND = late("[和与及跟]|以及")


def _each_of(text: str) -> list[str]:
    """The questions about each of several things: 北京和上海的人口分别是多少.

    Of a list the last two are joined by 和, the others by 、; a second 和 may be part of a name (颐和园), so then
    nothing is divided.
    """
    match = _ZH_EACH.fullmatch(text)
    if match is None:
        return []
    *first_things, last_things = match["things"].split("、")
    things = [thing.strip() for thing in (*first_things, *_ZH_AND.split(last_things))]
    if len(things) < 2 or not all(things) or len(_ZH_AND.findall(match["things"])) > 1:
        return []
    return [f"{thing}的{match['of']}{match['rest']}？" for thing in things]


def _chinese_conjunction(text: str) -> list[str]:
    # Cut at 以及 if a question follows; a clause that asks nothing belongs to the question after it.
    groups: list[str] = []
    pending = ""
    start = 0
    text = re.sub("^请问[，,]?", "", text)
    if questions := _each_of(text):
        return questions
    for cut in (*_ZH_PARTS.finditer(text), None):
        clause = text[start : cut.start() if cut else len(text)]
        if cut and cut[0] == "以及" and not opens_question(plain(text[cut.end() : cut.end() + 12])):
            continue
        start = cut.end() if cut else len(text)
        pending = f"{pending}，{clause.strip()}" if pending and clause.strip() else pending or clause.strip()
        if opens_question(plain(clause)):
            groups.append(pending)
            pending = ""
    if len(groups) < 2 or pending:
        return []
    return _in_context([f"{group}？" for group in groups])


# --- chains, English --------------------------------------------------------------------------------------------------

_CAPITAL = r"[A-Z0-9\"“'‘]"
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
"""Nouns that precede a name with «of»: the city of Rome need not be looked up."""
_EN_ADJ = r"(?:(?!(?:of|in|is|are|was|were|did|does|do|the|a|an|and|or|that|which|who)\b)[\w'’-]+\s+){0,3}?"
_EN_PROPER = (
    rf"(?:the\s+)?{_CAPITAL}[\w'’.&-]*(?:(?:\s+(?:of|the|and|de|von|van|in|a|for|to)){{0,2}}\s+{_CAPITAL}[\w'’.&-]*)*"
)
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
    rf"|with)?\s*(?={_CAPITAL}).{{3,}})"
)
_EN_OF = late(
    rf"\b[Tt]he\s+(?P<noun>{_EN_ADJ}(?:(?!{_SORTS}\b)(?:{_REL})|(?:{_REL})\s+of\s+(?:birth|death"
    rf"|citizenship|origin|residence)))\s+of\s+(?P<of>{_EN_PROPER})"
)
_EN_GENITIVE = late(
    rf"(?P<who>{_EN_PROPER})(?<=[^'’])['’]s?\s+(?P<noun>{_EN_ADJ}(?:{_REL}){_EN_BIRTH})\b(?!\s+{_CAPITAL})"
)
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
    if not (
        opens_question(plain(text)) or text.rstrip().endswith("?") or re.search(r"\b(?:what|who|whom|which)\b", text)
    ):
        return ()
    bare = text.rstrip(" ?.!")
    hops = _english_inner(bare, 3)
    if len(hops) < 2:
        return ()
    # «the nationality of the director of the film»: the director, once the film is known
    hops = _further_hops(hops, _EN_OWNER, "the ")
    return (*hops[:-1], Hop(f"{hops[-1].text}?", hops[-1].slot))


def _further_hops(hops: list[Hop], owner: re.Pattern[str], article: str) -> list[Hop]:
    """The hops, with the last one split if it asks for an attribute of something related to the earlier result."""
    for _ in range(2):
        last = hops[-1]
        assert last.slot is not None
        prefix, suffix = last.text[: last.slot[0]], last.text[last.slot[1] :]
        match = owner.search(prefix)
        if match is None or not _asks_more(prefix[: match.start()] + suffix):
            break
        noun = match["noun"].strip()
        inner = f"{noun}{match['of']}{last.text[slice(*last.slot)]}"
        start = len(inner) - (last.slot[1] - last.slot[0])
        outer = f"{prefix[: match.start()]}{article}{noun}{suffix}"
        slot = (match.start(), match.start() + len(article) + len(noun))
        hops = [*hops[:-1], Hop(inner, (start, len(inner))), Hop(outer, slot)]
    return hops


def _asks_more(text: str) -> bool:
    return bool([word for word in _content(text) if word not in RUSSIAN and word not in _RU_WEAK])


def _english_inner(text: str, depth: int) -> list[Hop]:
    """The hops of a phrase, the innermost first; one hop if it is simple."""
    if not depth:
        return [Hop(text)]
    for pattern in (_EN_RELATIVE, _EN_PARTICIPLE, _EN_OF, _EN_GENITIVE):
        matches = [match for match in pattern.finditer(text) if _bridges(text, match)]
        if not matches:
            continue
        match = matches[-1]
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
        prefix = text[: match.start()]
        if prefix[-1:].strip():
            prefix += " "
        placeholder = (
            f"the {noun}"
            if not re.match(r"(?:what|which)\b", noun, re.IGNORECASE)
            else f"that {noun.split(maxsplit=1)[-1]}"
        )
        outer = f"{prefix}{placeholder}{text[inner_end:]}"
        slot = (len(prefix), len(prefix) + len(placeholder))
        if len(_content(outer[: slot[0]] + outer[slot[1] :])) < 1:
            continue
        inner_hops = _english_inner(inner, depth - 1)
        return [*inner_hops, Hop(outer, slot)]
    return [Hop(text)]


def _asked_inside(text: str, match: re.Match[str], noun: str, end: int, depth: int) -> list[Hop]:
    """A question in a clause: «X was bought by a retailer that has how many stores» asks for the retailer first."""
    clause = text[match.start("clause") : end]
    prefix = text[: match.start()]
    if match.groupdict().get("rel") not in {"that", "which", "who"} or text[end:].strip() or not _content(prefix):
        return []
    if _EN_WH.search(prefix) or re.match(r"(?:what|which)\b", match["np"], re.IGNORECASE) or not _EN_WH.search(clause):
        return []
    placeholder = f"the {noun}"
    return [*_english_inner(f"{prefix}{match['np']}", depth - 1), Hop(f"{placeholder} {clause}", (0, len(placeholder)))]


def _bridges(text: str, match: re.Match[str]) -> bool:
    """Whether the phrase describes an unknown that the rest of the question asks about."""
    groups = match.groupdict()
    inner = groups.get("clause") or groups.get("of") or groups.get("who") or ""
    if not re.search(rf"(?<!\w){_CAPITAL}", inner) and not _EN_WH.search(inner):
        return False  # the clause contains no name that could be looked up
    following = re.match(r"\s+([a-z]+)", text[match.end() :]) if groups.get("of") else None
    if following and following[1] not in ENGLISH and following[1] not in _EN_VERBS:
        return False  # «the leader of the Islamist regime»: the name goes on
    end = _clause_end(text, match) if groups.get("clause") else match.end()
    return bool(_content(text[: match.start()] + text[end:]))


def _clause_end(text: str, match: re.Match[str]) -> int:
    """The end of a clause: the comma that closes it, or the question's verb; otherwise the end of the text."""
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


# --- chains, Russian --------------------------------------------------------------------------------------------------

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


def _russian_chain(text: str) -> tuple[Hop, ...]:
    if not (opens_question(plain(text)) or text.rstrip().endswith("?")):
        return ()
    bare = text.rstrip(" ?.!")
    hops = _russian_inner(bare, 3)
    if len(hops) < 2:
        return ()
    hops = _further_hops(hops, _RU_OWNER, "")
    return (*hops[:-1], Hop(f"{hops[-1].text}?", hops[-1].slot))


def _russian_inner(text: str, depth: int) -> list[Hop]:
    for pattern in (_RU_WHICH, _RU_OF) if depth else ():
        for match in reversed(list(pattern.finditer(text))):
            inner = f"{match['np']}, {match['rel']} {match['clause']}" if pattern is _RU_WHICH else match[0]
            clause = match["clause"] if pattern is _RU_WHICH else match["of"]
            if not re.search(r"[A-ZА-ЯЁ0-9«\"]", clause):
                continue
            noun = match["noun"]
            prefix, suffix = text[: match.start()], text[match.end() :]
            outer_words = [
                w for w in re.findall(r"[\w-]+", fold(f"{prefix} {suffix}")) if w not in RUSSIAN and w not in _RU_WEAK
            ]
            if not outer_words:
                continue
            suffix = f" {suffix.lstrip(' ,')}" if suffix.strip(" ,") else ""
            slot = (len(prefix), len(prefix) + len(noun))
            return [*_russian_inner(inner, depth - 1), Hop(f"{prefix}{noun}{suffix}", slot)]
    return [Hop(text)]


_RU_WEAK_TEXT = """какой какая какое какие кто такой такая является зовут имя назовите называется фамилия"""
_RU_WEAK = frozenset(_RU_WEAK_TEXT.split())


# --- chains, Chinese --------------------------------------------------------------------------------------------------

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


def _chinese_chain(text: str) -> tuple[Hop, ...]:
    bare = re.sub("^请问", "", text).rstrip("？?。")
    hops: list[Hop] = []
    if (
        (clause := _ZH_CLAUSE.match(bare))
        and opens_question(plain(clause["rest"]))
        and not opens_question(plain(clause["inner"]))
    ):
        hops.append(Hop(clause["inner"]))
        bare = f"{clause['noun']}的{clause['rest']}"
    for _ in range(3):
        match = _ZH_HOP.match(bare)
        if match is None or not opens_question(plain(match["rest"])) or _ZH_NOTHING_LEFT.match(match["rest"]):
            break
        slot = (0, len(match["noun"])) if hops else None
        inner = match["inner"]
        hops.append(Hop(inner, slot))
        bare = f"{match['noun']}{match['rest']}"
    if not hops:
        return ()
    noun = re.match(f"(?:{_ZH_RELATIONS}|{_ZH_UNKNOWNS})", bare)
    return (*hops, Hop(f"{bare}？", (0, noun.end() if noun else 0)))


_CHAINS: dict[str, Callable[[str], tuple[Hop, ...]]] = {
    "en": _english_chain,
    "ru": _russian_chain,
    "zh": _chinese_chain,
}
