"""Fills in, without a model, what a question takes from the conversation before it, in any language.

The question itself is never reworded, as a rule that guesses what *it* or *And theft?* means makes it another question
now and then. Instead it is searched a second time with the words of the user's question before it, and its hits are
judged by both, as far as they have words of its own (`pointsman.retrieval.stages.judged_variants`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pointsman.retrieval.plan.transform.base_transformer import BaseTransformer, Transformed
from pointsman.retrieval.plan.transform.names_in_text import CONTRACTION, COURTESIES, NO_NAMES
from pointsman.retrieval.run.variant import CONVERSATION, Variant
from pointsman.text import fold, query_tokens
from pointsman.text.grammar import refers_back
from pointsman.tools.late_regex import late
from pointsman.values.types import Query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pointsman.values.types import Message

_MOST_WORDS: Final = 4
"""A question of more words, function words aside, says what it is about unless it refers to something before it."""

_MESSAGES: Final = 6
"""The number of last messages examined."""

_LENGTH: Final = 1_000
"""Characters examined per message; a longer query is self-contained."""

_USERS: Final = frozenset({"user", "human", "customer", "пользователь", "用户"})


class RuleDisambiguator(BaseTransformer):
    """Adds the words of the user's last question to one that may leave something unsaid, as a variant of it.

    Example:
        >>> from pointsman import Message
        >>> history = (Message("user", "Who wrote Emma?"), Message("assistant", "Emma was written by Jane Austen."))
        >>> transformation = RuleDisambiguator().transform(Query("When did she die?", history=history))
        >>> transformation.query.text, transformation.variants[0].text
        ('When did she die?', 'Who wrote Emma? When did she die?')
    """

    def transform(self, query: str | Query) -> Transformed:
        """The question as it is, and where it is short or refers to something, a variant with the one before it."""
        query = Query.of(query)
        text = with_earlier_question(query)
        if text == query.text:
            return Transformed(query)
        detail = f"{query.text!r} stays as it is; also searched: {text!r:.300}"
        return Transformed(query, (Variant(text, CONVERSATION, means_the_same=True),), detail)


def with_earlier_question(query: Query) -> str:
    """The text of a question, after the user's question before it if it may leave something unsaid."""
    earlier = last_question(query.history)
    if not earlier or not query.text.strip() or len(query.text) > _LENGTH:
        return query.text
    words = [token for token in query_tokens(query.text) if len(token) > 1]
    if len(words) > _MOST_WORDS and not refers_back(query.text):
        return query.text
    return f"{earlier} {query.text}"


def last_question(history: Sequence[Message]) -> str:
    """What the user last said in a conversation, greetings, thanks and their like aside; empty if there is nothing."""
    texts = (message.text for message in reversed(history[-_MESSAGES:]) if message.role.lower() in _USERS)
    return next((text[:_LENGTH] for text in texts if not is_courtesy(text)), "")


_CHINESE_COURTESY = late(
    "(?:你好|您好|谢谢|多谢|感谢|不客气|不用谢|好的?|明白|知道|了解|收到|没问题|可以|嗯|再见|(?:请问)?有什么可以帮[您你]|还有(?:其他|别的)问题)[你您了啊吧的吗]?|[，,。.！!？?～~\\s]+"
)


def is_courtesy(text: str) -> bool:
    """Whether a message greets, thanks, agrees or hedges, and says nothing else.

    >>> is_courtesy("Perfect, thanks!"), is_courtesy("谢谢你！"), is_courtesy("Thanks, and the router?")
    (True, True, False)
    """
    words = [fold(CONTRACTION.sub("", word)) for word in re.findall(r"[\w'’]+", text[:_LENGTH])]
    is_polite = not COURTESIES.isdisjoint(words) and (COURTESIES | NO_NAMES).issuperset(words)
    return is_polite or (bool(text) and not _CHINESE_COURTESY.sub("", text[:_LENGTH]))
