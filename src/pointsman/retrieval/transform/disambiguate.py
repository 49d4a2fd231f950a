"""Fills in, by rules, what a question takes from the conversation before it: pronouns and ellipsis in en, zh and ru.

There are two cases. A *pronoun* (*How old is he?*, *它的创始人是谁？*, *А когда она умерла?*) is replaced by its
antecedent. An *ellipsis* (*And in Moscow?*, *那上海呢？*, *what about Python 3.12?*) is put into the user's last
question, in place of the most similar part. The result is meant for a search and need not be elegant.

A question stays unchanged if it names its own antecedent (*Why does the fan spin when its motor is off?*), if the
pronoun refers to nothing (*Is it possible …?*), or if the history offers no antecedent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pointsman._late import late
from pointsman.grammar import QUESTION, STOP, WORD, en, plain
from pointsman.retrieval.transform.base import BaseTransformer, Transformed, same
from pointsman.text import detect, fold
from pointsman.text._stopwords import ENGLISH, RUSSIAN
from pointsman.types import Message, Query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_MESSAGES = 6
"""The number of last messages examined."""

_LENGTH = 1_000
"""Characters examined per message; a longer query is self-contained."""

_USERS = frozenset({"user", "human", "customer", "пользователь", "用户"})


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
        if not query.history or not query.text.strip() or len(query.text) > _LENGTH:
            return Transformed(query)
        rules = _RULES.get(_language(query))
        if rules is None:
            return Transformed(query)
        text = rules(query.text.strip(), _Past.of(query.history))
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
    return language if language != "und" else detect(_last(query.history, user=True))


def resolved(question: str, earlier: str) -> str:
    """The meaning of a question that directly follows an earlier one by the same person."""
    return RuleDisambiguator().transform(Query(question, history=(Message("user", earlier),))).query.text


@dataclass(frozen=True, slots=True)
class _Past:
    """The user's last question and its answer."""

    question: str
    answer: str
    earlier: tuple[str, ...]

    @classmethod
    def of(cls, history: Sequence[Message]) -> _Past:
        recent = history[-_MESSAGES:]
        earlier = tuple(message.text[:_LENGTH] for message in reversed(recent) if message.role.lower() in _USERS)
        answer = _last(recent, user=False)
        return cls(earlier[0] if earlier else "", answer, earlier[1:])


def _last(history: Sequence[Message], *, user: bool) -> str:
    return next((m.text[:_LENGTH] for m in reversed(history) if (m.role.lower() in _USERS) is user), "")


# --- names in English and Russian ------------------------------------------------------------------------------------

_QUOTED = late(
    r"«([^«»\n]{2,80})»|“([^“”\n]{2,80})”|„([^„“\n]{2,80})“|\"([^\"\n]{2,80})\"|《([^《》\n]{1,60})》|`([^`\n]{2,60})`"
)
_UPPER = "A-ZÀ-ÖØ-ÞА-ЯЁ"
_NAME = late(
    rf"(?<![\w.])(?<!\d\s)[{_UPPER}][\w'’.+#-]*(?<![.])"
    rf"(?:(?:\s+(?:of|and|the|de|la|da|di|von|van|der|и|фон|де|да|ди|ван)){{1,2}}(?=\s+[{_UPPER}])"
    rf"|\s+[{_UPPER}][\w'’.+#-]*(?<![.])|\s+\d[\w.]*(?<![.]))*"
)
_IDENTIFIER = late(
    r"(?<!\w)(?:\w+(?:_\w+)+|[a-z]+[A-Z]\w*(?:\s+\d[\w.]*|\s+[A-Z]\w*)*(?<!\.)|--[a-z][\w-]+|\w+\(\))(?!\w)"
)
_TITLES = frozenset({"mr", "mrs", "ms", "dr", "sir", "prof"})
_NO_NAMES_TEXT = """i i'm i'll ok okay yes no please thanks sure hello hi tell compare explain describe list
    show give find click run use create add open install set go see here however also first then next there our
    your my да нет спасибо расскажи расскажите объясни объясните покажи покажите сравни сравните найди опиши
    опишите назови перечисли добавьте установите используйте запустите нажмите откройте создайте подскажи
    подскажите скажи скажите привет здравствуйте"""
_NO_NAMES = frozenset(_NO_NAMES_TEXT.split()) | ENGLISH | RUSSIAN
_NUMBER_WORDS = frozenset({"one", "two", "three", "four", "five", "один", "два", "две", "три", "четыре", "пять"})
_OF_PLACES_TEXT = """river tower university mountain mount lake city street company inc corporation museum
    bridge island ocean sea republic states kingdom club team award prize church castle street park war act
    theory река башня университет гора озеро город улица компания музей мост остров океан море республика премия
    война"""
_OF_PLACES = frozenset(_OF_PLACES_TEXT.split())


@dataclass(frozen=True, slots=True)
class _Name:
    text: str
    start: int
    opens: bool  # opens a sentence, where any word is capitalised
    quoted: bool = False

    @property
    def words(self) -> list[str]:
        return self.text.split()


def _names(text: str) -> list[_Name]:
    """Quoted texts, capitalised names, identifiers, in the order of the text."""
    names = [_Name(next(filter(None, m.groups())), m.start(), opens=False, quoted=True) for m in _QUOTED.finditer(text)]
    spans = [(m.start(), m.end()) for m in _QUOTED.finditer(text)]
    identifiers = [m for m in _IDENTIFIER.finditer(text) if _free(m, spans)]
    names += [_Name(m[0], m.start(), opens=False) for m in identifiers]
    spans += [m.span() for m in identifiers]
    for match in _NAME.finditer(text):
        if not _free(match, spans):
            continue
        words = match[0].split()
        start = match.start()
        opens = not text[:start].rstrip() or text[:start].rstrip()[-1] in ".!?…:;\n—"
        while words and fold(words[0].removesuffix("'s").removesuffix("’s")) in _NO_NAMES:
            start += len(words[0]) + 1
            words, opens = words[1:], False
        name = re.sub(r"['’]s?$", "", " ".join(words))
        if fold(name) not in _NUMBER_WORDS and (len(name) > 1 or (name and not opens)):
            names.append(_Name(name, start, opens and len(words) == 1))
    return sorted(names, key=lambda name: name.start)


def name_texts(text: str) -> list[str]:
    """The names in a text: quoted titles, runs of capitalised words, identifiers; in order, without repeats."""
    return list(dict.fromkeys(name.text for name in _sure(_names(text), text) or _names(text)))


def _free(match: re.Match[str], spans: Iterable[tuple[int, int]]) -> bool:
    return not any(start <= match.start() < end for start, end in spans)


def _sure(names: Sequence[_Name], other_text: str) -> list[_Name]:
    """Drops words capitalised only as the first of a sentence, unless ``other_text`` shows them to be names."""
    return [n for n in names if not n.opens or re.search(rf"[\w,;»)]\s+{re.escape(n.text)}\b", other_text)]


def _choose(history: _Past, fits: Callable[[_Name], bool], *, lately: bool = False) -> str | None:
    """The last topic of the right sort: from the user's message first, then the assistant's, then earlier ones.

    If the user asked who did something, the answer to that comes first: «Who painted the Mona Lisa?».
    """
    full_text = f"{history.question}\n{history.answer}\n" + "\n".join(history.earlier)
    recent = (history.question, history.answer)
    asked_who = fits is _is_person and _WHO.match(history.question)
    for text in (*(recent[::-1] if asked_who else recent), *(() if lately else history.earlier)):
        names = _names(text)
        sure = _sure(names, full_text)
        if text is history.answer and not sure:
            # A word that opens the answer is a name unless it occurs in lower case elsewhere.
            sure = [n for n in names if not re.search(rf"(?<!\w){re.escape(n.text.lower())}", full_text)]
        fitting = [name for name in sure if fits(name)]
        if asked_who and text is history.answer:
            fitting = [name for name in fitting if name.text not in history.question]
        if fitting:
            # The topic of a question is what it names last; that of an answer is what it names first.
            return (fitting[0] if text is history.answer else fitting[-1]).text
    return None


_WHO = late(r"\W*(?:who|кто)\b", re.IGNORECASE)
_WHO_IS = late(r"\W*(?:who\s+(?:is|was|are|were)|who['’]s|кто\s+(?:так|был|эт|он)\w*)\b", re.IGNORECASE)


def _nobody_named(history: _Past, role: re.Pattern[str]) -> bool:
    """Whether a person was asked for but neither named nor given a role: «Who wrote War and Peace?», unanswered."""
    asked_who = _WHO.match(history.question) and not _WHO_IS.match(history.question)
    return bool(asked_who) and not history.answer and _role(history, role) is None


def _both_questions(text: str, history: _Past) -> str:
    """Both questions in one, if the earlier one says whom the later one refers to."""
    return f"{text.rstrip(' ?.!')}: {history.question}"


def _is_name(name: _Name) -> bool:
    return bool(name.text)


def _is_thing(name: _Name) -> bool:
    return not _is_person(name)


def _is_person(name: _Name) -> bool:
    words = name.words
    if name.quoted or any(fold(word) in _OF_PLACES for word in words) or re.search(r"\d|_|\(", name.text):
        return False
    if fold(words[0]).rstrip(".") in _TITLES:
        return True
    return (
        2 <= len(words) <= 4
        and not {"of", "and", "the", "и", "на"} & set(words)
        and not any(map(str.isupper, words[:1]))
    )


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


def _english(text: str, history: _Past) -> str | None:
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


def _english_pronoun(text: str, pronoun: re.Match[str], history: _Past) -> str | None:
    prefix = _EN_LEAD.sub("", text[: pronoun.start()])
    # A name or a clause of its own before the pronoun is its antecedent.
    inner = _EN_INNER.search(prefix, len(prefix.split(maxsplit=1)[0]) if prefix.strip() else 0)
    if _sure(_names(prefix), text) or (inner and _content(prefix[: inner.start()], ENGLISH)):
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


def _with_noun(entity: str | None, history: _Past) -> str | None:
    """A single word with the noun that it modifies, where the conversation shows both: «the Basic plan»."""
    if entity is None or " " in entity or not entity[:1].isupper():
        return entity
    for text in (history.question, history.answer):
        match = re.search(_EN_MODIFIED.format(re.escape(entity)), text)
        if match and fold(match["noun"]) not in _NO_NAMES:
            return f"{entity} {match['noun']}"
    return entity


def _english_entity(pronoun: re.Match[str], history: _Past) -> str | None:
    if pronoun[0].lower() == "there":
        return _choose(history, _is_thing)
    if pronoun["that"]:
        return _choose(history, _is_name)
    if pronoun["he"] or pronoun["she"]:
        person = _choose(history, _is_person) or _role(history, _EN_ROLE)
        return person or _choose(history, lambda name: len(name.words) == 1 and name.text.istitle())
    if pronoun["they"]:
        entity = _choose(history, _is_plural) or _choose(history, _is_name) or _english_noun(history.question)
        # «the Wright brothers»: the noun that the name belongs to
        plural = re.search(rf"\bthe {re.escape(entity or '')} [a-z]+s\b", history.question)
        return plural[0].removeprefix("the ") if plural else entity
    # A title may look like a person: «Who wrote Jane Eyre? When was it published?»
    entity_name = _choose(history, _is_thing, lately=True) or _choose(history, _is_name, lately=True)
    return entity_name or _choose(history, _is_thing) or _english_noun(history.question)


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


def _role(history: _Past, role: re.Pattern[str]) -> str | None:
    """The person asked for by their role, if the name is unknown: «the author of War and Peace»."""
    match = role.search(history.question)
    return match[0].strip() if match else None


def _is_plural(name: _Name) -> bool:
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
    names = _sure(_names(question), question)
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
    names = _sure(_names(body), body)
    preposition = prepositions.match(topic)
    new = topic[preposition.end() :] if preposition else topic
    new = re.sub(rf"^(?:the|an?)\s+(?=[{_UPPER}])", "", new)
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


def _likeness(new: str, name: _Name) -> float:
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


def _russian(text: str, history: _Past) -> str | None:
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


def _russian_pronoun(text: str, pronoun: re.Match[str], history: _Past) -> str | None:
    prefix = _RU_LEAD.sub("", text[: pronoun.start()])
    inner = _RU_INNER.search(prefix.split(maxsplit=1)[1]) if len(prefix.split()) > 1 else None
    if _sure(_names(prefix), text) or (inner and _content(prefix, RUSSIAN)):
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


def _russian_entity(pronoun: re.Match[str], history: _Past, *, of_person: bool) -> str | None:
    feminine, masculine = bool(pronoun["she"]), bool(pronoun["he"])

    def agrees(name: _Name) -> bool:
        last = fold(name.words[-1] if not name.quoted else name.words[0])
        first = fold(name.words[0])
        if not re.search("[а-я]", last):
            return not feminine or not _is_person(name)
        soft = last.endswith(("а", "я")) or (len(name.words) > 1 and first.endswith(("а", "я", "ю", "у")))
        if feminine:
            return soft or last.endswith(("ь", "ую", "ей", "ой", "и", "ию"))
        return not masculine or not (last.endswith(("ия", "ова", "ева", "ина")) and first.endswith(("а", "я")))

    if pronoun["they"] or pronoun["him"]:
        conjunction = _choose(history, lambda name: bool({"и", "and"} & set(name.words)))
        if conjunction is not None:
            return conjunction
    if of_person:
        answer = _choose(history, _is_person) if _WHO.match(history.question) else None
        person = answer or _choose(history, lambda name: _is_person(name) and agrees(name))
        if person := person or _role(history, _RU_ROLE):
            return person
    return _choose(history, agrees) or _russian_noun(history.question, feminine=feminine)


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
    names = _sure(_names(question), question)
    if topic[:1].islower() and names and not _RU_PREPOSITION.match(topic):
        return f"{_capitalised(topic)} {names[-1].text}?"
    return f"{question.rstrip(' ?.!')} {topic}?"


# --- Chinese ---------------------------------------------------------------------------------------------------------

_ZH_PRONOUN = late(
    "(?P<person>他们|她们|(?<![其吉])他(?![人乡国妈日杀])|她)|(?P<thing>它们?)"
    "|(?P<its>(?<![尤极与及])其(?![中他实余次间它一二三]))"
    "|(?P<this>[这該该此](?=[个座部本家款位种条所项首只支名台片场幅届栋])"
    "|该(?=[校司国市片书剧企产项学机地城功方院系省县区岛族词奖赛]))"
)
_ZH_THEN = late("^(?:那么?|所以|还有|另外|请问|[，,、\\s])*")
_ZH_LEAD = late(
    "^(?:那么?|所以|还有|另外|然后|此外|而|但是?|和|请问一下|请问|请|麻烦|帮我|给我|你知道|我想知道|告诉我|你能|能不能|可以|能"
    "|关于|对于|有关|(?:介绍|讲|说|谈|解释|描述|查)一下|讲讲|讲一讲|说说|说一说|谈谈|查查|介绍|解释|描述|列出|什么是|何为|谁是"
    "|为什么|为何|怎么|如何|什么时候|何时|哪一?年|在哪里?|是|[，,、\\s])+"
)
_ZH_VERB = (
    "创办|创立|创作|发明|发现|执导|主演|出版|提出|设计|建立|建成|成立|获得|荣获|赢得|毕业|担任|出生|去世|逝世|发表|发布"
    "|推出|开发|属于|位于|拥有|流经|支持|包括|[写拍画唱演建住死赢输得买卖当做说打造教译](?=[了过着出到于什哪谁多几])"
)
_ZH_SUBJECT_END = late(
    "的|在(?!线)|是|由|有(?!限|效)|被|能(?![源量力])|可以|会(?![议员计话场馆长])|要(?![求点素])|使用|(?<![作信费公专])用"
    f"|吗|呢|什么|多少|哪|谁|怎|如何|为何|何时|几|多[长高大远重深久]|{_ZH_VERB}"
    "|[，。？！?!、：:；（(]|(?<=[\u4e00-\u9fff])\\s|\\s(?=[\u4e00-\u9fff])"
)
_ZH_ELLIPSIS = late(
    "^(?P<lead>那么?|还有|如果是|要是|(?:如果)?换成)?(?P<rest>[^，。？！?!]{1,20}?)(?:呢|(?P<how>怎么样|如何))[？?。!！]*$"
)
_ZH_ATTRIBUTE = late(
    "(?:面积|人口|重量|价格|长度|高度|深度|速度|容量|历史|海拔|票价|作者|首都|特点|优点|缺点|原理|用途)"
)
_ZH_OMITTED = late(
    f"^(?:{_ZH_ATTRIBUTE.pattern})?(?:是|有|在|能|会|要|用|叫|由|属于|支持|需要)*"
    "(?:为什么|为何|怎么|如何|什么时候|何时|什么|哪[里儿些个年天种位]?|哪一年|谁|多少|多[长高大远重深久]|几[个种次年岁月])+"
    "[\u4e00-\u9fff]{0,3}?(?:的|了|呢|啊)?[？?。]*$"
)
_ZH_ASKS_ABOUT = late("(?:谁|怎么|怎样|如何|为什么|为何|什么时候)[\u4e00-\u9fff]{1,4}")
_ZH_BOOK = late("《[^《》\n]{1,60}》")
_ZH_ROLE = late(
    "(?:《[^《》]{1,60}》|[^，。？！的]{1,30})的(?:作者|导演|编剧|主演|作曲者?|创始人|创办人|发明者|发明人|设计者|父亲|母亲|妻子"
    "|丈夫|儿子|女儿|总统|总理|国王|皇帝|校长|董事长|总裁|队长|教练|主席|市长)"
)
_ZH_MAKERS = {
    "写": "作者",
    "著": "作者",
    "导": "导演",
    "拍": "导演",
    "发明": "发明者",
    "创": "创始人",
    "设计": "设计者",
}
_ZH_WHO = late("谁|作者|导演|哪位|什么人|创始人|发明|[总主]席|总统")
_ZH_DOES = "写|著|创作|执导|导演|发明|发现|创立|创办|提出|设计|主演|担任|所"
_ZH_PERSON = late(
    f"(?:是|由|叫|为)(?P<name>[\u4e00-\u9fff·]{{2,12}}?)(?=[。，,；;]|$|{_ZH_DOES})"
    f"|^(?P<first>[\u4e00-\u9fff·]{{2,12}}?)(?=[。！]?$|{_ZH_DOES})"
)
_LATIN_TERM = late(r"[A-Za-z][\w.+#-]*(?:\s+[A-Z0-9][\w.+#-]*)*", re.ASCII)


def _chinese(text: str, history: _Past) -> str | None:
    pronoun = _ZH_PRONOUN.search(text)
    if pronoun is not None:
        return _chinese_pronoun(text, pronoun, history)
    ellipsis = _ZH_ELLIPSIS.match(text)
    if (
        ellipsis
        and history.question
        and (ellipsis["lead"] or not ellipsis["how"])
        and not QUESTION.all(ellipsis["rest"])
    ):
        return _chinese_ellipsis(ellipsis["rest"], history.question)
    bare = text[_ZH_THEN.match(text).end() :]  # type: ignore[union-attr]  # it matches the empty string
    if _ZH_OMITTED.match(bare) and (entity := _chinese_entity(history, person=False)):
        return f"{entity}的{bare}" if _ZH_ATTRIBUTE.match(bare) else entity + bare
    return None


def _chinese_pronoun(text: str, pronoun: re.Match[str], history: _Past) -> str | None:
    prefix = text[: pronoun.start()]
    if len(re.findall(r"\w", _ZH_LEAD.sub("", prefix))) >= 2 and not _ZH_ASKS_ABOUT.fullmatch(prefix):
        return None  # it has its own antecedent
    entity = _chinese_entity(history, person=bool(pronoun["person"]))
    suffix_text = text[pronoun.end() :]
    if entity is None:
        return None
    if re.match("呢[？?]*$", suffix_text):
        return f"{entity}{history.question}" if history.question else None
    start = min(_ZH_THEN.match(text).end(), pronoun.start())  # type: ignore[union-attr]  # as above
    suffix = pronoun[0] if pronoun["this"] else "的" if pronoun["its"] else ""  # 故宫这座宫殿
    return text[start : pronoun.start()] + entity + suffix + suffix_text


def _chinese_entity(history: _Past, *, person: bool) -> str | None:
    """The last topic: a person from the answer if one was asked for, otherwise the topic of the question."""
    if person and _ZH_WHO.search(history.question) and (match := _ZH_PERSON.search(history.answer)):
        return str(match["name"] or match["first"])
    for question in (history.question, *history.earlier):
        subject = _chinese_subject(question, person=person)
        if subject and not _ZH_PRONOUN.match(subject):
            return subject
    return _chinese_subject(history.answer, person=False)


def _chinese_subject(text: str, *, person: bool) -> str | None:
    """The topic of a question: a title, a term in Latin letters, or its words up to the first verb or particle.

    For a pronoun that refers to a person, it is the author of a work: 《战争与和平》的作者.
    """
    bare = _ZH_LEAD.sub("", text.strip())
    if person and (role := _ZH_ROLE.search(bare)):
        return role[0]
    if book := _ZH_BOOK.search(text):
        maker = next((maker for verb, maker in _ZH_MAKERS.items() if verb in text.replace(book[0], "")), None)
        return f"{book[0]}的{maker}" if person and maker and "谁" in text else book[0]
    if quote := _QUOTED.search(text):
        return str(next(filter(None, quote.groups())))
    end = _ZH_SUBJECT_END.search(bare)
    subject = (bare[: end.start()] if end else bare).strip()
    if len(subject) >= 2:
        return subject if len(subject) <= 16 else None
    latin = _LATIN_TERM.search(text)
    return latin[0] if latin else None


_ZH_WHEN = late(
    "(?:今|明|后|昨)天|周末|节假日|假期|晚上|早上|(?:周|星期)[一二三四五六日天]|[今明去]年|[上下]个?[周月]|\\d{1,4}年"
    "|十?[一二三四五六七八九十]月"
)
_ZH_CONTACT = late("电话号码|手机号|电话|手机|邮箱|邮件|地址|网址|传真|微信|账号")


def _chinese_attribute(topic: str, question: str, subject: str) -> str | None:
    """The question about another attribute, another means of contact, or another time of the same subject."""
    if _ZH_WHEN.fullmatch(topic):
        time = _ZH_WHEN.search(question)
        return question[: time.start()] + topic + question[time.end() :] if time else topic + question
    if _ZH_ATTRIBUTE.fullmatch(topic):
        return f"{subject}的{topic}"
    owner = f"{subject}的"
    contact = _ZH_CONTACT.match(question, len(owner)) if question.startswith(owner) else None
    return owner + topic + question[contact.end() :] if contact and _ZH_CONTACT.fullmatch(topic) else None


_ZH_ASKING = late("[怎什么多少几哪谁是吗]")
_ZH_DIRECTION = late("[到去给跟](?=[\u4e00-\u9fff])")
_ZH_OWNER = late("(?:^|在|的|是)(?P<owner>[^在的是，。？]{1,6})的(?=[^，。？]{1,6}(?:在|是|有|多|怎|什|几|哪))")


def _chinese_part(topic: str, question: str) -> str | None:
    """The question with another direction («到杭州»), owner («广州的») or kind («支付密码») in place of its own."""
    direction = _ZH_DIRECTION.match(topic)
    if direction and (old := re.search(f"{direction[0]}[^的要怎多有能吗呢么是什几，。？]{{1,8}}", question)):
        # «给手机充电», «给电脑»: a verb follows the object
        end = old.end() if len(old[0]) <= len(topic) + 1 else old.start() + len(topic)
        return question[: old.start()] + topic + question[end:]
    if topic.endswith("的") and len(topic) > 1 and (owner := _ZH_OWNER.search(question)):
        return question[: owner.start("owner")] + topic + question[owner.end("owner") + 1 :]
    for size in range(len(topic) - 1, 1, -1):
        position = question.find(topic[-size:])
        if position == 0:
            return topic + question[size:]  # «会员价格», «非会员»
        if position >= len(topic) - size and not _ZH_ASKING.search(
            question[position - len(topic) + size : position]
        ):  # «登录密码», «支付密码»: another word before the same noun
            return question[: position - len(topic) + size] + topic + question[position + size :]
    if len(topic) == 2 and question[1:2] == topic[1] and re.fullmatch("[\u4e00-\u9fff]{2}", topic):
        return topic + question[2:]  # «退货», «换货»
    return None


def _chinese_ellipsis(topic: str, question: str) -> str | None:
    """The question with ``topic`` in place of its most similar part."""
    new, old = _LATIN_TERM.findall(topic), list(_LATIN_TERM.finditer(question))
    if re.match(r"\d", topic) and (version := re.search(r"\d[\d.]*", question)):
        return f"{question[: version.start()]}{topic}{question[version.end() :]}"  # another version
    if new and old:
        # «Excel文件»: the term before the same word, otherwise the last one
        tail = topic[topic.rindex(new[-1]) + len(new[-1]) :]
        same_tail = next((term for term in reversed(old) if tail and question[term.end() :].startswith(tail)), old[-1])
        best = next((term for term in old if term[0].split()[0] == new[0].split()[0]), same_tail)
        end = best.end() + (len(tail) if question[best.end() :].startswith(tail) else 0)
        prefix = question[: best.start()].removesuffix(topic[: topic.index(new[0])] or "\0")  # «在Ubuntu», «在macOS»
        return prefix + topic + question[end:]
    subject = _ZH_BOOK.search(question)
    old_subject = subject[0] if subject else _chinese_subject(question, person=False)
    completion = _chinese_part(topic, question) or (old_subject and _chinese_attribute(topic, question, old_subject))
    if completion:
        return completion
    if _ZH_CONTACT.fullmatch(topic) and question.startswith(("怎么", "怎样", "如何")):
        return None  # «怎么联系客服？那邮箱呢»: a question of its own
    if old_subject and (index := question.find(old_subject)) >= 0:
        return question[:index] + topic + question[index + len(old_subject) :]
    return f"{topic}{question}"


_RULES: dict[str, Callable[[str, _Past], str | None]] = {"en": _english, "ru": _russian, "zh": _chinese}
