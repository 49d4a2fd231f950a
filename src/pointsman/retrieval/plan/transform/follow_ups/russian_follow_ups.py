"""Follow-up questions in Russian: pronouns are replaced by what they stand for, and omissions filled in."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

from pointsman.retrieval.plan.transform.follow_ups.conversation import (
    UPPER,
    WHO,
    Conversation,
    Name,
    UnclearError,
    choose_name,
    is_person,
    names_in,
    person_or_role,
    sure_names,
)
from pointsman.retrieval.plan.transform.follow_ups.substitution import (
    asks,
    capitalised,
    has_content,
    substituted,
    with_bare_question,
    with_other_number,
)
from pointsman.text import fold
from pointsman.text.grammar import WORD
from pointsman.text.stop_words import RUSSIAN
from pointsman.tools.late_regex import late

if TYPE_CHECKING:
    from collections.abc import Callable

_RU_ROLE = late(
    r"(?<!\w)(?:автор|писатель|режисс[её]р|основатель|изобретатель|создатель|композитор|президент|король|директор|владелец"
    r"|капитан|тренер)\w{0,3} [^?.,;]{2,60}",
    re.IGNORECASE,
)
_RU_PRONOUN = late(
    r"(?<!\w)(?:(?P<he>он|него|ему|нему|нём|нем|его)|(?P<she>она|неё|нее|её|ее|ей|ней|нею|ею)|(?P<it>оно)"
    r"|(?P<they>они|их|них|ими|ними)|(?P<him>им|ним))(?!\w)",
    re.IGNORECASE,
)
_RU_LEAD = late(r"^\s*(?:(?:а|и|но|ну|так|или|тогда|хорошо|ок|ладно|ещё|еще)(?!\w)[\s,]*)+", re.IGNORECASE)
_RU_ABOUT = late(
    r"^\s*(?:(?:ну|хорошо|ок|ладно|тогда)[\s,]*)?(?:(?:а|и)\s+)?(?:(?:как|что) насч[её]т"
    r"|что (?:там )?(?:с|про|по поводу)|как там с|а|и|или)\s+(?P<rest>.{1,80}?)\s*[?.!]*\s*$",
    re.IGNORECASE,
)
_RU_VERB = late(
    r"(?<!\w)(?!(?:билет|планшет|пакет|кабинет|бюджет|предмет|совет|ответ|интернет|кредит|лимит|визит|аудит|депозит"
    r"|сертификат|аппарат|результат|формат|аттестат|салат|маршрут|институт|\w+(?:ость|асть|есть|сеть|ерть))(?!\w))"
    r"(?:можно|нужно|надо|есть|был[аои]?|будет|\w{3,}(?:ть|ться|ет|ёт|ют|ут|ит|ат|ят|ется|ются|ится|ался|илась))(?!\w)",
    re.IGNORECASE,
)
_RU_PREPOSITION = late(r"^(во?|на|для|со?|из|от|до|у|к|по|при|без|под|о|об|за|после|перед|во время)\s+", re.IGNORECASE)
_RU_INNER = late(
    r"(?<!\w)(?:и|а|но|если|когда|потому|пока|что|котор\w+|или|то|чтобы|после|чем|как|где)(?!\w)|[,;:—]", re.IGNORECASE
)
_RU_ASKS_TEXT = """такой такая такое такие расскажи расскажите объясни объясните покажи опиши опишите скажи
    скажите подскажи можно нужно надо находится работает называется существует означает значит является"""
_RU_ASKS = frozenset(_RU_ASKS_TEXT.split())


def complete_russian(text: str, history: Conversation) -> str | None:
    """Return the question with what it leaves unsaid filled in; None if that is not sure.

    Raises:
        UnclearError: it may refer to several things.
    """
    if with_question := with_bare_question(text, _RU_LEAD, history.question):
        return with_question
    if pronoun := _RU_PRONOUN.search(text):
        return _russian_pronoun(text, pronoun, history)
    return _complete(text, history.question) if history.question else None


def _complete(text: str, question: str) -> str | None:
    """The earlier question with what the later one names instead."""
    if verb := _RU_OTHER_VERB.match(text):
        completion = _with_other_verb(verb["verb"], verb["end"], question)
        if completion or _RU_VERB.search(verb["verb"]):
            return completion
    match = _RU_ABOUT.match(text)
    topic = match["rest"] if match else ""
    if completion := with_other_number(topic, question) or _with_modifier(topic, question):
        return completion
    if not topic or len(topic.split()) > _MOST_WORDS or asks(topic) or _RU_VERB.search(topic):
        return None
    return substituted(topic, question, _RU_PREPOSITION, _russian_thing)


def _with_modifier(topic: str, question: str) -> str | None:
    """The question with another adjective after a preposition: «на бюджетные места», «на платные»."""
    preposition, _, new = topic.partition(" ")
    old = re.findall(rf"(?<!\w){re.escape(preposition)} ([\w-]+)(?= [\w-])", question, re.IGNORECASE)
    is_alike = _RU_MODIFIER.fullmatch(new) and len(old) == 1 and _ru_ending(old[0]) == _ru_ending(new)
    return question.replace(f"{preposition} {old[0]}", topic, 1) if is_alike else None


_MOST_WORDS = 5
_RU_MODIFIER = late(r"\w{3,}(?:[ыио]й|ая|яя|[оеы]е|(?<![нт])ие|ого|его|ому|ему|[ыи]х|[ыи]м|ом|ую|юю)", re.IGNORECASE)
_RU_PREDICATE = late(r"(?:открыт|закрыт|нуж|доступ|долж|бесплат)\w*", re.IGNORECASE)


def _russian_thing(new: str, body: str) -> str | None:
    """The question with an adjective («А детский?») or a noun («А адрес?») in place of the only one of its form."""
    if " " in new or not re.fullmatch("[а-яё-]+", new):
        return None
    words = [word for word in re.finditer(r"(?<!\w)[а-яё-]+", body) if _names_something(word[0])]
    modifiers = [word for word in words if _RU_MODIFIER.fullmatch(word[0])]
    if _RU_MODIFIER.fullmatch(new):
        hyphen = [word.start() + word[0].index("-") for word in words if "-" in word[0]]
        if len(hyphen) == 1:  # «премиум-тариф», «базовый тариф»
            return f"{re.sub('[а-яё]+$', '', body[: hyphen[0]])}{new} {body[hyphen[0] + 1 :]}?"
        matching_words = [
            word for word in modifiers if word[0][-2:] == new[-2:] or {word[0][-2:], new[-2:]} <= {"ый", "ий", "ой"}
        ]
    else:
        nouns = [word for word in words if word not in modifiers]
        matching_words = [word for word in nouns if _ru_ending(word[0]) == _ru_ending(new)] if len(words) > 1 else nouns
    return (
        f"{body[: matching_words[0].start()]}{new}{body[matching_words[0].end() :]}?"
        if len(matching_words) == 1
        else None
    )


def _names_something(word: str) -> bool:
    """Whether a word is likely a noun or an adjective."""
    is_other = fold(word) in RUSSIAN or fold(word) in _RU_ASKS or asks(word)
    return not is_other and not _RU_VERB.fullmatch(word) and not _RU_PREDICATE.fullmatch(word)


def _ru_ending(word: str) -> str:
    """The kind of its ending: oblique, feminine, neuter, plural, accusative, or a consonant."""
    oblique = re.search("(?:[ая](?:м|х|ми)|[оеё]м)$", word)
    return oblique[0] if oblique else next((ends for ends in ("ая", "оеё", "ыи", "ую") if word[-1:] in ends), "")


_RU_VERB_END = "(?:ться|ть|ется|ится|ются|ятся|ет|ит|ют|ят)"
_RU_OTHER_VERB = late(rf"^\s*(?:а|и)\s+(?P<verb>\w{{3,}}?(?P<end>{_RU_VERB_END}))\s*[?.!]*\s*$", re.IGNORECASE)


def _with_other_verb(verb: str, end: str, question: str) -> str | None:
    """The question with another verb, «А отменить?», in place of the only one of the same form."""
    similar_words = [word for word in WORD.finditer(question) if word[0].lower().endswith(end.lower())]
    if len(similar_words) != 1:
        return None
    return question[: similar_words[0].start()] + verb.lower() + question[similar_words[0].end() :]


def _russian_pronoun(text: str, pronoun: re.Match[str], history: Conversation) -> str | None:
    prefix = _RU_LEAD.sub("", text[: pronoun.start()])
    inner = _RU_INNER.search(prefix.split(maxsplit=1)[1]) if len(prefix.split()) > 1 else None
    if sure_names(names_in(prefix), text) or (inner and has_content(prefix, RUSSIAN)):
        return None
    of_person = (pronoun["he"] or pronoun["she"]) and _RU_LIFE.search(text)
    entity = _russian_entity(pronoun, history, of_person=bool(of_person))
    if entity is None:
        return None
    # «о нём», «у неё»: the preposition stays, the name has its own case
    substituted_text = text[: pronoun.start()] + entity + text[pronoun.end() :]
    return capitalised(_RU_LEAD.sub("", substituted_text))


_RU_LIFE = late(r"умер|род|жил|жив|женил|замуж|написал|снял|лет |учил|погиб|возраст|семь|дет[иь]|зовут")


def _russian_entity(pronoun: re.Match[str], history: Conversation, *, of_person: bool) -> str | None:
    feminine, masculine = bool(pronoun["she"]), bool(pronoun["he"])

    def agrees(name: Name) -> bool:
        last = fold(name.words[-1] if not name.quoted else name.words[0])
        first = fold(name.words[0])
        if not re.search("[а-я]", last):
            return not feminine or not is_person(name)
        soft = last.endswith(("а", "я")) or (len(name.words) > 1 and first.endswith(("а", "я", "ю", "у")))
        if feminine:
            return soft or last.endswith(("ь", "ую", "ей", "ой", "и", "ию"))
        return not masculine or not (last.endswith(("ия", "ова", "ева", "ина")) and first.endswith(("а", "я")))

    if pronoun["they"] or pronoun["him"]:
        conjunction = choose_name(history, lambda name: bool({"и", "and"} & set(name.words)))
        if conjunction is not None:
            return conjunction
    person = _person(history, agrees) if of_person else None
    name = person or choose_name(history, agrees)
    if name is None and history.names_several:
        raise UnclearError
    return name or _russian_noun(history.question, feminine=feminine, masculine=masculine)


def _person(history: Conversation, agrees: Callable[[Name], bool]) -> str | None:
    """Whom *он* or *она* means: the answer to *кто*, somebody named, or the role of somebody who is not."""
    answer = choose_name(history, is_person) if WHO.match(history.question) else None
    person = answer or choose_name(history, lambda name: is_person(name) and agrees(name))
    return person_or_role(history, person, _RU_ROLE)


_RU_WITH_PREPOSITION = late(
    rf"(?<!\w)(?:у|во?|на|для|по|к|со?|из|от|до|при|без|перед|за)\s+((?:{_RU_MODIFIER.pattern}\s+)?[а-яё-]+)",
    re.IGNORECASE,
)


def _russian_noun(question: str, *, feminine: bool, masculine: bool) -> str | None:
    """The only thing of the pronoun's gender in a question, with its adjectives and name.

    What stands with a preposition comes second: «Какой срок у визы?», *она*.

    Raises:
        UnclearError: the question has several.
    """
    ends = _FEMININE if feminine else _MASCULINE if masculine else ""
    for text in (_RU_WITH_PREPOSITION.sub(",", question), ", ".join(_RU_WITH_PREPOSITION.findall(question))):
        runs = [run for run in (_noun_run(clause) for clause in re.split(r"[^\w\s-]", text)) if run]
        runs = [run for run in runs if not ends or _head(run)[-1] in ends]
        if len(runs) > 1:
            raise UnclearError
        if runs:
            name = re.search(rf"{re.escape(runs[0])}(?:\s+(?:«[^»]+»|[{UPPER}][\w-]*))*", question)
            return name[0] if name else runs[0]
    return None


_FEMININE, _MASCULINE = "аяьуюыией", "бвгджзйклмнпрстфхцчшщьуюе"
"""Letters in which a noun ends, in any case, to which *она* and *он* may refer."""


def _head(run: str) -> str:
    """The noun that a run of adjectives and nouns is about: *размер* of «максимальный размер вложения»."""
    words = run.split()
    return next((word for word in words if not _RU_MODIFIER.fullmatch(word)), words[-1]).lower()


def _noun_run(text: str) -> str:
    """The first run of words that name something."""
    run = itertools.dropwhile(lambda word: not _names_something(word), re.findall(r"[\w-]+", text))
    return " ".join(itertools.islice(itertools.takewhile(_names_something, run), 3))
