"""Fills in, by rules, what a question takes from the conversation before it: pronouns and ellipsis in en, zh and ru.

There are two cases. A *pronoun* (*How old is he?*, *它的创始人是谁？*, *А когда она умерла?*) is replaced by its
antecedent. An *ellipsis* (*And in Moscow?*, *那上海呢？*, *what about Python 3.12?*) is put into the user's last
question, in place of the most similar part. The result is meant for a search and need not be elegant.

A question stays unchanged if it names its own antecedent (*Why does the fan spin when its motor is off?*), if the
pronoun refers to nothing (*Is it possible …?*), or if the history offers no antecedent.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from pointsman.retrieval.plan.transform.base_transformer import BaseTransformer, Transformed, same
from pointsman.retrieval.plan.transform.chinese_questions import complete_chinese
from pointsman.retrieval.plan.transform.conversation import (
    LENGTH,
    NO_NAMES,
    UPPER,
    WHO,
    WHO_IS,
    Conversation,
    Name,
    choose_name,
    is_name,
    is_person,
    is_thing,
    last_message,
    names_in,
    sure_names,
)
from pointsman.text import detect, fold
from pointsman.text.grammar import QUESTION, STOP, WORD, en, plain
from pointsman.text.stop_words import ENGLISH, RUSSIAN
from pointsman.tools.late_regex import late
from pointsman.values.types import Message, Query

if TYPE_CHECKING:
    from collections.abc import Callable


class RuleDisambiguator(BaseTransformer):
    """Makes a question self-contained by rules; returns the same query object if it already is.

    Example:
        >>> history = (Message("user", "Who wrote Emma?"), Message("assistant", "Emma was written by Jane Austen."))
        >>> RuleDisambiguator().transform(Query("When did she die?", history=history)).query.text
        'When did Jane Austen die?'
    """

    def transform(self, query: str | Query) -> Transformed:
        """The question with pronouns replaced by names and omissions filled in."""
        query = Query.of(query)
        if not query.history or not query.text.strip() or len(query.text) > LENGTH:
            return Transformed(query)
        rules = _RULES.get(_language(query))
        if rules is None:
            return Transformed(query)
        text = rules(query.text.strip(), Conversation.of(query.history))
        if text is None or same(text) == same(query.text):
            return Transformed(query)
        return Transformed(replace(query, text=text), detail=f"{query.text!r} read as {text!r}")


def _language(query: Query) -> str:
    """The language of the question; a few function words decide, as names often are Latin: «А StringBuffer?»."""
    language = detect(query.text)
    if language in {"en", "und"}:
        if re.search("[а-яё]", query.text, re.IGNORECASE):
            return "ru"
        if re.search("[\u4e00-\u9fff]", query.text):
            return "zh"
    return language if language != "und" else detect(last_message(query.history, user=True))


def resolved(question: str, earlier: str) -> str:
    """The meaning of a question that directly follows an earlier one by the same person."""
    return RuleDisambiguator().transform(Query(question, history=(Message("user", earlier),))).query.text


def _nobody_named(history: Conversation, role: re.Pattern[str]) -> bool:
    """Whether a person was asked for but neither named nor given a role: «Who wrote War and Peace?», unanswered."""
    asked_who = WHO.match(history.question) and not WHO_IS.match(history.question)
    return bool(asked_who) and not history.answer and _role(history, role) is None


def _both_questions(text: str, history: Conversation) -> str:
    """Both questions in one, if the earlier one says whom the later one refers to."""
    return f"{text.rstrip(' ?.!')}: {history.question}"


# --- English ---------------------------------------------------------------------------------------------------------

_EN_PRONOUN = late(
    r"\b(?:(?P<he>he|him|his|himself)|(?P<she>she|her|hers|herself)|(?P<it>it|its|itself)|(?P<they>they"
    r"|them|their|theirs)"
    r"|(?P<that>(?:this|that|these|those|the same)(?= (?:one|city|country|book|film|movie|person|man"
    r"|woman|company|team|song|"
    r"place|river|building|setting|option|function|method|game|author|language|version|event|product|tool)\b)"
    r"|(?:this|these)(?= (?!week|month|year|morning|evening|weekend|time|way|kind|day)[a-z]{3,}(?<!ing)\b)"
    r"|there(?=\W*$)))\b"
    r"(?P<s>['’](?:s|re|ll|d|ve)\b)?",
    re.IGNORECASE,
)
_EN_POSSESSIVE = frozenset({"his", "its", "their", "theirs", "hers"})
_EN_EXPLETIVE = late(
    r"\b(?:(?:is|was|isn['’]t|would|will|can|could) it (?:be )?(?:\w+ly )?(?:possible|necessary|true|safe"
    r"|ok|okay|better|worth|legal|"
    r"allowed|required|normal|bad|good|best|enough|hard|easy|difficult|important|cheaper|faster|common"
    r"|correct|right|wrong|"
    r"mandatory|free|a good|a bad|sufficient|too late|recommended)\b"
    r"|(?:does|did|will|would) it (?:take(?! place| part)|mean|matter|make sense)\b"
    r"|(?:is|was|will|did|does|has|can|could) it (?:be that|(?:been |be )?(?:rain|snow|hail|freez)\w*)\b"
    r"|it (?:is|was|['’]s|takes|took|seems|depends|rains|snows|turns out)\b|what time is it\b|how (?:long"
    r"|far) is it (?:from|to)\b)",
    re.IGNORECASE,
)
_EN_LEAD = late(r"^\s*(?:(?:and|but|so|or|also|then|ok|okay|well|now)\b[\s,]*)+", re.IGNORECASE)
_EN_ABOUT = late(
    r"^\s*(?:(?:and|but|so|ok|okay|then)\b[\s,]*)*(?:(?:what|how) about|what of|(?:and|but"
    r"|or)\b)\s+(?P<rest>.{1,80}?)\s*(?:then|instead|though)?\s*[?.!]*\s*$",
    re.IGNORECASE,
)
_EN_PREPOSITION = late(r"^(of|in|on|for|at|from|to|with|by|about|under|during|after|before|without)\s+", re.IGNORECASE)
_EN_INNER = late(
    r"\b(?:and|but|if|when|because|while|that|which|who|or|so|then|after|before|although|than)\b|[,;:]", re.IGNORECASE
)
_EN_NOUN = late(r"\b(?:the|a|an|my|our|your|this)\s+((?:[\w'-]+\s+){0,4}[\w'-]+)", re.IGNORECASE)


def _english(text: str, history: Conversation) -> str | None:
    if (bare := _bare_question(text)) and history.question:
        return f"{bare}: {history.question}"
    visible = _EN_EXPLETIVE.sub(lambda match: "#" * len(match[0]), text)
    pronoun = _EN_PRONOUN.search(visible)
    if pronoun is not None:
        return _english_pronoun(text, pronoun, history)
    about_match = _EN_ABOUT.match(text)
    if about_match and (completion := _with_other_number(about_match["rest"], history.question)):
        return completion
    if about_match and history.question and len(about_match["rest"].split()) <= 6 and not _asks(about_match["rest"]):
        return _substituted(about_match["rest"], history.question, _EN_PREPOSITION, detach=_english_attribute)
    return None


def _english_pronoun(text: str, pronoun: re.Match[str], history: Conversation) -> str | None:
    prefix = _EN_LEAD.sub("", text[: pronoun.start()])
    # A name or a clause of its own before the pronoun is its antecedent.
    inner = _EN_INNER.search(prefix, len(prefix.split(maxsplit=1)[0]) if prefix.strip() else 0)
    if sure_names(names_in(prefix), text) or (inner and _content(prefix[: inner.start()], ENGLISH)):
        return None
    word = pronoun[0].lower()
    if (pronoun["he"] or pronoun["she"]) and _nobody_named(history, _EN_ROLE):
        return _both_questions(_EN_LEAD.sub("", text), history)
    entity = _with_noun(_english_entity(pronoun, history), history)
    if entity is None:
        return None
    possessive = word in _EN_POSSESSIVE or (word == "her" and re.match(r"\s+[a-z]", text[pronoun.end() :]) is not None)
    if possessive:
        replacement = f"{entity}'s"
    elif word == "there":
        replacement = f"in {entity}"
    elif pronoun["that"]:
        replacement = f"{entity},"  # «this city»: «Paris, city»
    else:
        replacement = entity + (pronoun["s"] or "")
    substituted_text = text[: pronoun.start()] + replacement + text[pronoun.end() :]
    return _capitalised(_EN_LEAD.sub("", substituted_text))


_EN_MODIFIED = r"\b(?:the|an?|our|your|my|of|about|for)\s+{}\s+(?P<noun>[a-z][a-z-]+)(?<!ed)(?!\w)"


def _with_noun(entity: str | None, history: Conversation) -> str | None:
    """A single word with the noun that it modifies, where the conversation shows both: «the Basic plan»."""
    if entity is None or " " in entity or not entity[:1].isupper():
        return entity
    for text in (history.question, history.answer):
        match = re.search(_EN_MODIFIED.format(re.escape(entity)), text)
        if match and fold(match["noun"]) not in NO_NAMES:
            return f"{entity} {match['noun']}"
    return entity


def _english_entity(pronoun: re.Match[str], history: Conversation) -> str | None:
    if pronoun[0].lower() == "there":
        return choose_name(history, is_thing)
    if pronoun["that"]:
        return choose_name(history, is_name)
    if pronoun["he"] or pronoun["she"]:
        person = choose_name(history, is_person) or _role(history, _EN_ROLE)
        return person or choose_name(history, lambda name: len(name.words) == 1 and name.text.istitle())
    if pronoun["they"]:
        entity = choose_name(history, _is_plural) or choose_name(history, is_name) or _english_noun(history.question)
        # «the Wright brothers»: the noun that the name belongs to
        plural = re.search(rf"\bthe {re.escape(entity or '')} [a-z]+s\b", history.question)
        return plural[0].removeprefix("the ") if plural else entity
    # A title may look like a person: «Who wrote Jane Eyre? When was it published?»
    entity_name = choose_name(history, is_thing, lately=True) or choose_name(history, is_name, lately=True)
    return entity_name or choose_name(history, is_thing) or _english_noun(history.question)


_EN_ROLE = late(
    r"\b(?:author|writer|director|founder|inventor|creator|composer|designer|president|king|queen|ceo|owner|captain|coach)"
    r" of [^?.,;]{2,60}",
    re.IGNORECASE,
)
_RU_ROLE = late(
    r"(?<!\w)(?:автор|писатель|режисс[её]р|основатель|изобретатель|создатель|композитор|президент|король|директор|владелец"
    r"|капитан|тренер)\w{0,3} [^?.,;]{2,60}",
    re.IGNORECASE,
)


def _role(history: Conversation, role: re.Pattern[str]) -> str | None:
    """The person asked for by their role, if the name is unknown: «the author of War and Peace»."""
    match = role.search(history.question)
    return match[0].strip() if match else None


def _is_plural(name: Name) -> bool:
    last = name.words[-1]
    return " and " in name.text or (last.endswith("s") and not last.endswith(("ss", "us", "is")))


def _english_noun(question: str) -> str | None:
    """The topic of a question without names: its last noun with an article, or its last words."""
    nouns = [match[1] for match in _EN_NOUN.finditer(question)]
    for noun in reversed(nouns):
        noun_words: list[str] = []
        for word in noun.split():
            if fold(word) in ENGLISH and not (noun_words and word in {"of", "the"}):
                break
            noun_words.append(word)
        while noun_words and fold(noun_words[-1]) in ENGLISH:
            noun_words.pop()
        if noun_words:
            return " ".join(noun_words)
    words = [word for word in re.findall(r"[\w'-]+", question) if fold(word) not in ENGLISH]
    return " ".join(words[-2:]) or None


def _english_attribute(topic: str, question: str) -> str:
    """*And the population?* asks for another attribute of the same thing."""
    names = sure_names(names_in(question), question)
    if topic[:1].islower() and names and not _EN_PREPOSITION.match(topic):
        return f"{_capitalised(topic)} of {names[-1].text}?"
    return f"{question.rstrip(' ?.!')} {topic}?"


def _asks(text: str) -> bool:
    """Whether it contains a question word."""
    return any(word in QUESTION or word in _AUXILIARY for word in WORD.findall(plain(text)))


_AUXILIARY = frozenset(en.AUXILIARY.split())
_ADVERBS_OF_QUESTIONS_TEXT = """since by in not much many long often old far year then so is that does
    в с на каких пор именно так это году долго стоит стоят стоил стоила стоило"""
_ADVERBS_OF_QUESTIONS = frozenset(_ADVERBS_OF_QUESTIONS_TEXT.split())


def _bare_question(text: str) -> str:
    """The question words of a text that consists only of them: «And since when exactly?» is «Since when»."""
    words = [word for word in WORD.findall(plain(_EN_LEAD.sub("", _RU_LEAD.sub("", text)))) if word != "exactly"]
    asking = any(word in QUESTION for word in words)
    if not asking or len(words) > 4 or not all(word in QUESTION or word in _ADVERBS_OF_QUESTIONS for word in words):
        return ""
    return " ".join(words).capitalize()


def _content(text: str, stop: frozenset[str]) -> bool:
    return any(fold(word) not in stop for word in re.findall(r"[^\W\d_]{2,}", text))


def _capitalised(text: str) -> str:
    first, *_ = text.split(maxsplit=1) or [""]
    return text if any(map(str.isupper, first)) else text[:1].upper() + text[1:]  # «iPhone» stays as it is


# --- ellipsis, English and Russian -----------------------------------------------------------------------------------


_NUMBER = late(r"(?:(?:the|in|on|в)\s+)?(?P<number>\d[\d.]*)(?:\s+(?:one|году))?", re.IGNORECASE)


def _with_other_number(topic: str, question: str) -> str | None:
    """The question with another number in place of its only one: «Who won in 2016? And in 2020?»."""
    new, old = _NUMBER.fullmatch(topic.strip()), list(re.finditer(r"(?<![\w.])\d[\d.]*(?<!\.)(?!\w)", question))
    if new is None or len(old) != 1:
        return None
    return question[: old[0].start()] + new["number"].rstrip(".") + question[old[0].end() :]


def _substituted(topic: str, question: str, prepositions: re.Pattern[str], *, detach: Callable[[str, str], str]) -> str:
    """A question with ``topic`` in place of its most similar part; without one, ``detach`` joins the two."""
    body = question.rstrip(" ?.!？")
    names = sure_names(names_in(body), body)
    preposition = prepositions.match(topic)
    new = topic[preposition.end() :] if preposition else topic
    new = re.sub(rf"^(?:the|an?)\s+(?=[{UPPER}])", "", new)
    if preposition:
        # «in Moscow» replaces «in Petersburg»
        word = re.escape(preposition[1])
        same_place = list(re.finditer(rf"\b{word}\s+((?:[\w'’.+#«»-]+\s*){{1,4}})", body, re.IGNORECASE))
        for match in reversed(same_place):
            names_in_match = [name for name in names if match.start(1) <= name.start < match.end(1)]
            if names_in_match:
                old = names_in_match[0]
                return f"{body[: match.start(1)]}{new}{body[old.start + len(old.text) :]}?"
        if not new[:1].isupper():
            # «to the station» replaces «to the airport» where the question ends with it
            last = re.search(rf"(?<!\w){word}\s+(?:(?:the|an?|my|our)\s+)?[\w-]+$", body, re.IGNORECASE)
            return f"{body[: last.start()]}{topic}?" if last else f"{body} {topic}?"
    likeness = [(_likeness(new, name), number, name) for number, name in enumerate(names)]
    if likeness and (best := max(likeness, key=lambda item: item[:2]))[0] > 0:
        prefix, suffix = body[: best[2].start], body[best[2].start + len(best[2].text) :]
        noun = re.match(r"\s+[\w-]+", suffix)
        if noun and new.endswith(noun[0]):  # «the Oslo office», «the Bergen office»
            suffix = suffix[noun.end() :]
        return f"{prefix}{new}{suffix}?"
    return _other_thing(new, body) if not names and not preposition else detach(topic, question)


_ARTICLE = late(r"(?:a|an|the|my|our)\s+\S", re.IGNORECASE)
# What stands before the last noun of a phrase: «about *green* tea», «*премиум-*тариф»
_OBJECT = late(
    r"(?:\b(?:about|of|for|on|with|about a|про|о|об|для)\s+((?:[^\W\d_]+\s+){1,2})|((?<!\S)\w+-))$", re.IGNORECASE
)
_HOW = late(r"\w+(?:ly|[ое]е|но)$")


def _other_thing(new: str, body: str) -> str:
    """A question without names, with another object in place of its last noun: «to boil an egg», «a potato»."""
    last = next((word for word in reversed(list(WORD.finditer(body))) if plain(word[0]) not in STOP), None)
    phrase = [match for match in _EN_NOUN.finditer(body) if _ARTICLE.match(new)]
    if phrase:
        # «the premium plan cost», «the basic plan»: the last word of the new phrase ends the old one
        end = re.search(rf"\b{re.escape(new.rsplit(maxsplit=1)[-1])}\b", body[phrase[-1].start() : phrase[-1].end()])
        return (
            f"{body[: phrase[-1].start()]}{new}{body[phrase[-1].start() + end.end() if end else phrase[-1].end() :]}?"
        )
    if last is None or len(new.split()) > 2 or _HOW.match(new) or last.end() < len(body):
        return f"{body} {new}?"
    start = last.start()
    if object_match := _OBJECT.search(body[:start]):
        start = object_match.start(object_match.lastindex or 0)
    return f"{body[:start]}{new}?"


def _likeness(new: str, name: Name) -> float:
    """How similar a new name is to one of the question's, as a candidate for its place."""
    new_words, name_words = fold(new).split(), fold(name.text).split()
    if (
        not new_words
        or not name_words
        or not (new[0].isupper() or new[0].isdigit() or new[0] in '«"“' or new_words[0] == name_words[0])
    ):
        return 0
    score = 1.0
    if new_words[0] == name_words[0]:
        score += 3  # another version of the same thing
    if any(map(str.isdigit, new)) == any(map(str.isdigit, name.text)):
        score += 1
    ending = 0
    while (
        ending < min(len(new_words[-1]), len(name_words[-1]), 3)
        and new_words[-1][-1 - ending] == name_words[-1][-1 - ending]
    ):
        ending += 1
    return score + 0.4 * ending


# --- Russian ---------------------------------------------------------------------------------------------------------

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
    r"|сертификат|аппарат|результат|формат|аттестат|салат|маршрут|институт|\w+ость)(?!\w))"
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


def _russian(text: str, history: Conversation) -> str | None:
    if (bare := _bare_question(text)) and history.question:
        return f"{bare}: {history.question}"
    pronoun = _RU_PRONOUN.search(text)
    if pronoun is not None:
        return _russian_pronoun(text, pronoun, history)
    if (verb := _RU_OTHER_VERB.match(text)) and history.question:
        completion = _with_other_verb(verb["verb"], verb["end"], history.question)
        if completion or _RU_VERB.search(verb["verb"]):
            return completion
    match = _RU_ABOUT.match(text)
    if match and (completion := _russian_part(match["rest"], history.question)):
        return completion
    if (
        match
        and history.question
        and len(match["rest"].split()) <= 5
        and not _asks(match["rest"])
        and not _RU_VERB.search(match["rest"])
    ):
        return _substituted(match["rest"], history.question, _RU_PREPOSITION, detach=_russian_attribute)
    return None


_RU_ADJECTIVE = late(r"\w{3,}(?P<end>ый|ий|ой|ая|яя|ое|ее|ые|ие)")
_RU_OBJECT = late(
    r"(?P<ask>.*?\w(?:ть|ти)(?:ся)?\s+)(?P<noun>[а-яё-]+)(?=\s+(?:к|ко|в|на|от|до|для|с|у|из)\s)", re.IGNORECASE
)
_SAME_ENDS = {end: ends for ends in ("ый|ий|ой", "ая|яя", "ое|ее", "ые|ие") for end in ends.split("|")}
_RU_WHICH = late(
    r"(?P<ask>\W*как(?:ой|ая|ое|ие)\s+)(?P<noun>[а-яё-]+)(?=\s+(?:у|в|на|для|от|к|за|по|с)\s)", re.IGNORECASE
)


def _russian_part(topic: str, question: str) -> str | None:
    """The question with another number, adjective («А детский?») or noun («Какой телефон у склада? А адрес?»)."""
    if completion := _with_other_number(topic, question):
        return completion
    word = topic.strip()
    if not re.fullmatch(r"[а-яё-]+", word) or fold(word) in RUSSIAN or _asks(word):
        return None
    body = question.rstrip(" ?.!")
    if adjective := _RU_ADJECTIVE.fullmatch(word):
        return _with_adjective(word, adjective["end"], body)
    old_noun = _RU_WHICH.match(body) or _RU_OBJECT.match(body)
    if old_noun is None or _ru_ending(old_noun["noun"]) != _ru_ending(word):
        return None  # «срок для возврата», «обмена»: of another case
    return f"{old_noun['ask']}{word}{body[old_noun.end() :]}?"


def _with_adjective(word: str, end: str, body: str) -> str | None:
    """The question with an adjective in place of one of the same form, or before its last noun."""
    same_form = rf"(?<!\w)\w{{3,}}(?:{_SAME_ENDS.get(end, end)})(?=\s+[а-яё])"
    old = [match for match in re.finditer(same_form, body) if fold(match[0]) not in RUSSIAN]
    if old:
        return f"{body[: old[-1].start()]}{word}{body[old[-1].end() :]}?"
    last = re.search(r"(?<!\w)[а-яё-]+$", body)
    if last is None or _RU_VERB.fullmatch(last[0]):
        return None
    return f"{body[: last.start()]}{word} {last[0].rpartition('-')[2]}?"  # «премиум-тариф», «базовый тариф»


def _ru_ending(word: str) -> str:
    """The last letter; one for all consonants."""
    return word[-1] if word[-1] in "аяоеёиыуюьй" else "т"


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
    if sure_names(names_in(prefix), text) or (inner and _content(prefix, RUSSIAN)):
        return None
    of_person = (pronoun["he"] or pronoun["she"]) and _RU_LIFE.search(text)
    if of_person and _nobody_named(history, _RU_ROLE):
        return _both_questions(_RU_LEAD.sub("", text), history)
    entity = _russian_entity(pronoun, history, of_person=bool(of_person))
    if entity is None:
        return None
    # «о нём», «у неё»: the preposition stays, the name has its own case
    substituted_text = text[: pronoun.start()] + entity + text[pronoun.end() :]
    return _capitalised(_RU_LEAD.sub("", substituted_text))


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
    if of_person:
        answer = choose_name(history, is_person) if WHO.match(history.question) else None
        person = answer or choose_name(history, lambda name: is_person(name) and agrees(name))
        if person := person or _role(history, _RU_ROLE):
            return person
    return choose_name(history, agrees) or _russian_noun(history.question, feminine=feminine)


def _russian_noun(question: str, *, feminine: bool = False) -> str | None:
    """The topic of a question without names: its first content words, up to a preposition or stop.

    For *она*, the words after the preposition, if only they can be feminine: «Какой срок у визы?».
    """
    first, _, second = re.sub(r"(?<!\w)(?:у|в|на|для)(?!\w)", "\0", question, count=1).partition("\0")
    if feminine and second and not re.search(r"[аяьуюыией]\W*$", first) and re.search(r"[аяьуюыией]\W*$", second):
        question = second
    words: list[str] = []
    for word in re.findall(r"[\w-]+|[,.:;—]", question):
        key = fold(word)
        if (
            key in RUSSIAN
            or key in _RU_ASKS
            or not re.match(r"\w", word)
            or re.search("(?:[аиоуыя]ть|(?<!с)еть|ться|ешь|ете|ите)$", key)
        ):
            if words:
                break
            continue
        words.append(word)
    return " ".join(words[:3]) or None


def _russian_attribute(topic: str, question: str) -> str:
    names = sure_names(names_in(question), question)
    if topic[:1].islower() and names and not _RU_PREPOSITION.match(topic):
        return f"{_capitalised(topic)} {names[-1].text}?"
    return f"{question.rstrip(' ?.!')} {topic}?"


_RULES: dict[str, Callable[[str, Conversation], str | None]] = {"en": _english, "ru": _russian, "zh": complete_chinese}
