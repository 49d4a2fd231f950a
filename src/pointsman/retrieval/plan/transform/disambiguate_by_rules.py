"""Fills in, by rules, what a question takes from the conversation before it: pronouns and ellipsis in en, zh and ru.

There are two cases. A *pronoun* (*How old is he?*, *它的创始人是谁？*, *А когда она умерла?*) is replaced by its
antecedent. An *ellipsis* (*And in Moscow?*, *那上海呢？*, *what about Python 3.12?*) is put into the user's last
question, in place of the only part that is like it. The result is meant for a search and need not be elegant.

A question stays unchanged if it names its own antecedent (*Why does the fan spin when its motor is off?*), if the
pronoun refers to nothing (*Is it possible …?*), if the history offers no antecedent, or more than one. If it is short,
it is then searched together with the words of the question before it, too.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pointsman.retrieval.plan.transform.base_transformer import BaseTransformer, Transformed, same
from pointsman.retrieval.plan.transform.follow_ups.chinese_follow_ups import complete_chinese
from pointsman.retrieval.plan.transform.follow_ups.conversation import LENGTH, Conversation, UnclearError, last_message
from pointsman.retrieval.plan.transform.follow_ups.english_follow_ups import complete_english
from pointsman.retrieval.plan.transform.follow_ups.russian_follow_ups import complete_russian
from pointsman.retrieval.run.variant import Variant
from pointsman.text import DEFAULT_ANALYZER, detect
from pointsman.values.types import Message, Query

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_WORDS: Final = 3
"""A question of more words, function words aside, says what it is about."""


class RuleDisambiguator(BaseTransformer):
    """Makes a question self-contained by rules; returns the same query object if it already is, or if that is unsure.

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
        conversation = Conversation.of(query.history)
        try:
            text = rules(query.text.strip(), conversation)
        except UnclearError:
            return _in_conversation(query, conversation)
        if text is None or same(text) == same(query.text):
            words = [token for token in DEFAULT_ANALYZER.query_tokens(query.text) if len(token) > 1]
            return _in_conversation(query, conversation) if len(words) <= _MOST_WORDS else Transformed(query)
        return Transformed(replace(query, text=text), detail=f"{query.text!r} read as {text!r}")


def _in_conversation(query: Query, conversation: Conversation) -> Transformed:
    """The question as it is, and as a list of its own the same with the words of the one before it."""
    if not conversation.question:
        return Transformed(query)
    text = f"{conversation.question} {query.text}"
    detail = f"{query.text!r} stays as it is; also searched: {text!r:.300}"
    return Transformed(query, (Variant(text, "conversation"),), detail)


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


_RULES: Final[dict[str, Callable[[str, Conversation], str | None]]] = {
    "en": complete_english,
    "ru": complete_russian,
    "zh": complete_chinese,
}
