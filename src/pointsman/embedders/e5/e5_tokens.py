"""Tokenises text for XLM-RoBERTa's vocabulary: Unicode normalisation and SentencePiece's unigram model.

It replaces a library for measured reasons: for the same tokens, ``sentencepiece`` takes 3 to 5 times as long to load
(it builds a trie of 250,000 pieces at every start), Hugging Face's ``tokenizers`` even longer and 290 MB; this
encoder's first pass over a text takes some 2 to 5 % of the model's time.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

LONGEST_PIECE: Final = 16
"""Length of the longest piece of the vocabulary, in characters."""

_WORD_MARK: Final = "▁"  # starts every word; no piece of this vocabulary contains one, so words are independent
_UNKNOWN_PENALTY: Final = 10.0  # SentencePiece: an unknown character scores this much less than the rarest piece
_MEMO_WORDS: Final = 32_768
_MEMO_TEXTS: Final = 512  # those of a batch, which are asked for again: are they longer than the limit?
_MEMO_LENGTH: Final = 24  # longer "words" are mostly unspaced text that does not recur

# SentencePiece's nmt_nfkc differs from Unicode's NFKC: control characters vanish, invisible ones separate words.
_BEFORE_NFKC: Final = dict.fromkeys([*range(0x20), 0x7F, 0x8F, 0x9F]) | dict.fromkeys(
    [*map(ord, "\t\n\f\r"), 0x1680, *range(0x200B, 0x2010), 0x2028, 0x2029, 0x2581, 0xFEFF, 0xFFFD], " "
)
_FULLWIDTH_TILDE: Final = "～"  # common in Chinese; NFKC would make it "~", but the vocabulary has it unchanged

Segment = Callable[[str], tuple[int, ...]]


def normalise(text: str, characters: int) -> str:
    """Normalise a text for the vocabulary, to at most ``characters`` characters.

    The input is cut to twice that length before normalisation, which bounds the time: composition shortens real text by
    less, and NFKC's expansions (up to 18 characters from one) are cut afterwards.
    """
    text = text[: 2 * characters].translate(_BEFORE_NFKC)
    normalised_texts = (unicodedata.normalize("NFKC", segment) for segment in text.split(_FULLWIDTH_TILDE))
    return _FULLWIDTH_TILDE.join(normalised_texts)[:characters]


class UnigramTokenizer:
    """Finds the most probable segmentation into pieces, word by word.

    Example:
        >>> vocabulary = ["<unk>", "▁", "t", "rain", "▁train", "s"]
        >>> tokenizer = UnigramTokenizer(vocabulary, [0, -4, -5, -6, -7, -3], unknown_id=0)
        >>> tokenizer.encode("trains", limit=8)
        [4, 5]
    """

    def __init__(self, vocabulary: Sequence[str], scores: Sequence[float], unknown_id: int) -> None:
        """Set the vocabulary, ordered by token id.

        Args:
            vocabulary: The pieces. One with a character that no text can contain (a word mark inside) never matches.
            scores: Their log-probabilities.
            unknown_id: The id for text outside the vocabulary.
        """
        self._ids = dict(zip(vocabulary, range(len(vocabulary)), strict=True))
        self._scores = scores
        self._unknown_id = unknown_id
        self._unknown_score = min(scores) - _UNKNOWN_PENALTY
        self._remembered_segment: Segment = lru_cache(_MEMO_WORDS)(self._segment)
        self._remembered_ids = lru_cache(_MEMO_TEXTS)(self._ids_of)

    def encode(self, text: str, limit: int) -> list[int]:
        """Return the ids of the first ``limit`` tokens; fewer for a shorter text, none for an empty one."""
        return list(self._remembered_ids(text[: 2 * limit * LONGEST_PIECE], limit))

    def surprise(self, ids: Sequence[int]) -> list[float]:
        """Return how rare each token is: the negative logarithm of its probability."""
        return [-self._scores[token_id] for token_id in ids]

    def _ids_of(self, text: str, limit: int) -> tuple[int, ...]:
        ids: list[int] = []
        for word in normalise(text, limit * LONGEST_PIECE).split():
            ids += self._remembered_segment(word) if len(word) <= _MEMO_LENGTH else self._segment(word)
            if len(ids) >= limit:
                break
        return tuple(ids[:limit])

    def _segment(self, word: str) -> tuple[int, ...]:
        """Segment a word with Viterbi's algorithm; linear in its length, as no piece is longer than 16."""
        word = _WORD_MARK + word
        length = len(word)
        find, scores = self._ids.get, self._scores
        best = [float("-inf")] * (length + 1)
        best[0] = 0.0
        came_from, came_by = [0] * (length + 1), [self._unknown_id] * (length + 1)
        for start in range(length):
            base = best[start]
            for end in range(start + 1, min(start + LONGEST_PIECE, length) + 1):
                token_id = find(word[start:end])
                if token_id is not None:
                    score = base + scores[token_id]
                    if score > best[end]:
                        best[end], came_from[end], came_by[end] = score, start, token_id
            score = base + self._unknown_score
            if score > best[start + 1]:
                best[start + 1], came_from[start + 1], came_by[start + 1] = score, start, self._unknown_id
        ids = []
        while length:
            ids.append(came_by[length])
            length = came_from[length]
        return tuple(reversed(ids))
