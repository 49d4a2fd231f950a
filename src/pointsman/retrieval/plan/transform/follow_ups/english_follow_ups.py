"""Follow-up questions in English: pronouns are replaced by what they stand for, and omissions filled in."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from pointsman.retrieval.plan.transform.follow_ups.conversation import (
    NO_NAMES,
    WHO,
    Conversation,
    UnclearError,
    choose_name,
    is_name,
    is_person,
    is_thing,
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
from pointsman.text.grammar import WORD, plain
from pointsman.text.stop_words import ENGLISH
from pointsman.tools.late_regex import late

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
    r"|do (?:it|that|this|so)\b|(?:does|did|will|would) it (?:take(?! place| part)|mean|matter|make sense)\b"
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


def complete_english(text: str, history: Conversation) -> str | None:
    """Return the question with what it leaves unsaid filled in; None if that is not sure.

    Raises:
        UnclearError: it may refer to several things.
    """
    if with_question := with_bare_question(text, _EN_LEAD, history.question):
        return with_question
    visible = _EN_EXPLETIVE.sub(lambda match: "#" * len(match[0]), text)
    pronoun = _EN_PRONOUN.search(visible)
    if pronoun is not None:
        return _english_pronoun(text, pronoun, history)
    about_match = _EN_ABOUT.match(text)
    if about_match and (completion := with_other_number(about_match["rest"], history.question)):
        return completion
    if about_match and history.question and len(about_match["rest"].split()) <= 6 and not asks(about_match["rest"]):
        return substituted(about_match["rest"], history.question, _EN_PREPOSITION, _other_thing)
    return None


def _english_pronoun(text: str, pronoun: re.Match[str], history: Conversation) -> str | None:
    prefix = _EN_LEAD.sub("", text[: pronoun.start()])
    # A name or a clause of its own before the pronoun is its antecedent.
    inner = _EN_INNER.search(prefix, len(prefix.split(maxsplit=1)[0]) if prefix.strip() else 0)
    if sure_names(names_in(prefix), text) or (inner and has_content(prefix[: inner.start()], ENGLISH)):
        return None
    word = pronoun[0].lower()
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
    return capitalised(_EN_LEAD.sub("", substituted_text))


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
        return _person(history)
    if pronoun["they"]:
        entity = choose_name(history, lambda name: _is_plural(name.text)) or _only_phrase(history, plural=True)
        # «the Wright brothers»: the noun that the name belongs to
        plural = re.search(rf"\bthe {re.escape(entity or '')} [a-z]+s\b", history.question)
        return plural[0].removeprefix("the ") if plural else entity
    question_alone = replace(history, answer="", earlier=())
    name = choose_name(question_alone, is_name)  # a title may look like a person: «Who wrote Jane Eyre?»
    if name and any(_is_apart(phrase, name, history.question) for phrase in _phrases(history.question)):
        raise UnclearError
    if _MEANS.match(history.answer):
        raise UnclearError
    history = question_alone if WHO.match(history.question) else history
    entity = name or _only_phrase(question_alone, plural=False) or choose_name(history, is_name, lately=True)
    return entity or _only_phrase(history, plural=False) or choose_name(history, is_thing)


def _person(history: Conversation) -> str | None:
    """Whom *he* or *she* means: the answer to *who*, somebody named, or the role of somebody who is not."""
    answer = re.fullmatch(r"(?:an?|the)\s+((?:[a-z-]+\s+){0,3}[a-z-]+)", history.answer.strip(" ."), re.IGNORECASE)
    if answer and history.asks_who:
        return str(answer[1])
    person = person_or_role(history, choose_name(history, is_person), _EN_ROLE)
    return person or choose_name(history, lambda name: len(name.words) == 1 and name.text.istitle())


_MEANS = late(r"\W*(?:yes\W+|no\W+)?(?:with|by|through)\b", re.IGNORECASE)
"""What opens an answer that names a means, which *it* may mean as well: «With permission.»."""


def _is_apart(phrase: _Phrase, name: str, question: str) -> bool:
    """Whether a phrase with an article is neither part of a name nor its owner: «the capital of Peru»."""
    is_owner = re.match(r"\s+of\b", question[phrase.end :])
    return phrase.article in {"a", "the"} and not is_owner and name not in phrase.text and phrase.text not in name


def _only_phrase(history: Conversation, *, plural: bool) -> str | None:
    """What the question is about, where it names one thing, else what its answer names.

    Raises:
        UnclearError: the question names several.
    """
    if history.names_several:
        raise UnclearError
    for text in (history.question.rstrip(" ?.!"), history.answer):
        phrases = [phrase for phrase in _phrases(text) if _is_plural(phrase.text) is plural]
        phrases = [
            phrase for phrase in phrases if not re.search(rf"\bof {re.escape(phrase.text)}$", text[: phrase.end])
        ]
        if len({fold(phrase.text) for phrase in phrases}) > 1:
            raise UnclearError
        if phrases:
            return re.sub(r"^(?:an?|the|my|our|your)\s", "", phrases[0].text, flags=re.IGNORECASE)
    return None


_EN_ROLE = late(
    r"\b(?:author|writer|director|founder|inventor|creator|composer|designer|president|king|queen|ceo|owner|captain|coach)"
    r" of [^?.,;]{2,60}",
    re.IGNORECASE,
)


def _is_plural(text: str) -> bool:
    return " and " in text or (text.endswith("s") and not text.endswith(("ss", "us", "is")))


_VERBS_TEXT = """
    accept allow apply ask begin book bring buy cancel change charge close contain cost cover delete eat end
    export finish give have include insure keep last like look make need offer open own park pay provide register
    repair replace report require reset restore return run sell send serve start stop store supply support take use want
    work write"""
_VERBS = frozenset(_VERBS_TEXT.split())
_DO = late(r"\b(?:do|does|did|can|could|will|would|must|should|may)\s*$", re.IGNORECASE)
_PREDICATE = late(r"(?:open|closed|free|available|held|kept|made|due|valid|paid|sold|sent|\w{3,}ed|built)$")
_BARE = late(
    r"(?:\b(?:(?:do|does|did|can|could|should|may|must|would) (?:i|you|we|they|one) [a-z]+|tell me about|about|of|for"
    r"|explain|describe|(?:what|who) (?:is|are|was|were)|(?P<many>how many))"
    r"|^(?P<subject>is|are|was|were|do|does|did|can|may|must))\s+(?=(?P<words>[a-z][\w'-]*(?:\s+[\w'-]+){0,3}))",
    re.IGNORECASE,
)
_AFTER_ARTICLE = late(
    r"\b(?P<article>an?|the|my|our|your)\s+(?=(?P<words>[\w'’-]+(?:\s+[\w'’-]+){0,3}))", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class _Phrase:
    """A noun phrase, and where it stands; before it, ``"a"``, ``"the"`` (also for *my*), ``"how many"`` or nothing."""

    article: str
    text: str
    start: int
    end: int


def _phrases(question: str) -> list[_Phrase]:
    """The noun phrases in lower case, as far as articles, prepositions and frequent verbs show them."""
    phrases: list[_Phrase] = []
    matches = [*_AFTER_ARTICLE.finditer(question), *_BARE.finditer(question)]
    for verb in WORD.finditer(question):  # «Does the policy cover *water damage*?»
        if plain(verb[0]) in _VERBS and verb.start():
            matches += [match] if (match := _AFTER_VERB.match(question, verb.end())) else []
    for match in matches:
        words = list(re.finditer(r"[\w'’-]+", match["words"]))
        count = next((number for number, word in enumerate(words) if number and _ends_phrase(word[0])), len(words))
        groups = match.groupdict()
        if groups.get("subject") and count == len(words):
            continue  # where it ends is not known: «Can students borrow laptops?»
        if (
            fold(words[0][0]) in ENGLISH
            or _PREDICATE.match(words[0][0].lower())
            or (count == len(words) == 1 and not words[0][0][0].isalpha())
        ):
            continue
        if 1 < count == len(words) and match.end("words") == len(question) and _DO.search(question[: match.start()]):
            count -= 1  # «What does the red light *mean*?»
        article = (groups.get("article") or groups.get("many") or "").lower().removesuffix("n")
        start, end = (
            match.start() if groups.get("article") else match.start("words"),
            match.start("words") + words[count - 1].end(),
        )
        phrases.append(_Phrase(article if article in {"", "a", "how many"} else "the", question[start:end], start, end))
    unique = {phrase.end: phrase for phrase in sorted(phrases, key=lambda phrase: -phrase.start)}
    return sorted(unique.values(), key=lambda phrase: phrase.start)


def _ends_phrase(word: str) -> bool:
    return fold(word) in ENGLISH or fold(word) in _VERBS or _PREDICATE.match(word.lower()) is not None


_AFTER_VERB = late(r"\s+(?P<words>[a-z][\w'-]*(?:\s+[\w'-]+){0,3})")


def _other_thing(new: str, body: str) -> str | None:
    """The question with another object in place of the only one of its form: «to boil an egg», «a potato»."""
    phrases = [phrase for phrase in _phrases(body) if not names_in(phrase.text)]
    body, modifier = body.rstrip(" ?"), new.removesuffix(" one")
    article = re.match(r"(?:(an?)|the|my|our|your)\s", new, re.IGNORECASE)
    form = ("a" if article[1] else "the") if article else ""
    matching_phrases = [phrase for phrase in phrases if phrase.article == form]
    same_head = [phrase for phrase in phrases if phrase.text.split()[-1] == new.rsplit(maxsplit=1)[-1]]
    if len(same_head) == 1 or len(matching_phrases) == 1:
        old = (same_head if len(same_head) == 1 else matching_phrases)[0]
        new = new if modifier == new else f"{modifier} {old.text.split()[-1]}"  # «the blue one»
        return f"{body[: old.start]}{new}{body[old.end :]}?"
    verb = re.search(r"\b[a-z]+$", body)
    if not article and not matching_phrases and verb and " " not in new and plain(verb[0]) in _VERBS:
        return f"{body[: verb.start()]}{new}?"  # «When does the museum open?», «close»
    return None
