"""Rule-based variants of a query: with synonyms, without function words, with corrected spelling."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.retrieval.plan.transform.base_transformer import BaseTransformer, Transformed, distinct
from pointsman.retrieval.run.variant import Variant
from pointsman.text import DEFAULT_ANALYZER, fold, scripts
from pointsman.text.grammar import HAN_RUN, STOP
from pointsman.text.grammar.grammar_words import en, ru
from pointsman.text.grammar.thesaurus import longest_han, replacements
from pointsman.tools.errors import InputError
from pointsman.tools.late_regex import late
from pointsman.values.types import Query

if TYPE_CHECKING:
    from pointsman.text.spelling import Speller

Thesaurus = Mapping[str, Sequence[str]]
"""Synonyms by term; terms and synonyms may be phrases, of any language."""

KINDS = ("synonym", "paraphrase", "correction")
"""The kinds of variants."""

_LONGEST = 2_000
"""The longest query, in characters, that is expanded; longer ones are specific enough."""

_SYNONYM_VARIANTS = 3
"""The maximum number of variants with synonyms: one synonym each, of different terms first."""

_LONGEST_TERM = 6
"""The number of words in the longest thesaurus term to look for; twice as many characters for Chinese."""

_COMMA = late("[,，、]")
_ARTICLE = late(r"\b(a)n?(\s+)$", re.IGNORECASE)
_VOWEL_SOUND = late(r"(?!uni|us[eu]|util|eu|ewe|once?\b)[aeiou]|hour|honest|hono|heir", re.IGNORECASE)
_WORD = late(r"[^\W_]+(?:[-'’][^\W_]+)*")

_EN_POLITE = late(
    r"^\W*(?:(?:hi|hello|hey|please|so|well|ok|okay|thanks)\b[\s,.!]*)*"
    r"(?:(?:can|could|would|will) (?:you|someone|anyone|anybody|i|we)(?: please| kindly)? (?:tell|explain"
    r"|show|help|describe|give|find|list|get|ask|know)\b(?: to)?(?: me| us)?(?: about| out"
    r"| with)?(?: a list of)?"
    r"|(?:please )?(?:tell|explain|show|describe|give|find)(?: to)?(?: me| us)?\b(?: about| out)?(?: a list of)?"
    r"|i(?:['’]d| would)? (?:want|like|need|am trying|wish)(?: to (?:know|find|find out|learn|understand"
    r"|see|ask))?(?: about)?"
    r"|i(?:['’]m| am) (?:looking for|interested in|searching for|wondering)|do you (?:know"
    r"|happen to know)(?: about)?|i wonder|is there (?:any|a) way to|what can you tell me about)?\s*",
    re.IGNORECASE,
)
_RU_POLITE = late(
    r"^\W*(?:(?:привет|здравствуйте|добрый день|пожалуйста|скажите|подскажите|спасибо|ну|а)(?!\w)[\s,.!]*)*"
    r"(?:(?:не )?(?:могли бы вы|можете(?: ли)?(?: вы)?|можешь(?: ли)?|расскажи(?:те)?|объясни(?:те)?"
    r"|подскажи(?:те)?|скажи(?:те)?|опиши(?:те)?|покажи(?:те)?|найди(?:те)?|хочу (?:узнать|понять|найти"
    r"|знать)|хотел(?:а)? бы (?:узнать|понять|знать)|мне (?:нужно|надо|нужна|нужен|нужны)|интересует"
    r"|меня интересует|вы не знаете|дай(?:те)?)(?!\w)"
    r"(?:\s+(?:мне|нам|пожалуйста|рассказать|объяснить|подсказать|сказать))*[\s,]*(?:(?:о|об|обо|про)(?!\w))?)?\s*",
    re.IGNORECASE,
)
_ZH_POLITE = late(
    "^(?:你好|您好|请问一下|请问|请|麻烦你?|劳驾|那么|[，,。！!\\s])*(?:(?:你|您)?(?:能不能|能否|可以"
    "|可否|能)?(?:帮我|给我|帮忙|为我|告诉我|跟我|和我)?(?:介绍一下|介绍|讲一讲|讲讲|讲一下|说一说|说说"
    "|说一下|谈谈|告诉我|解释一下|解释|描述一下|描述|查一下|查查|查询一下|找一下|找|列出|说明一下"
    "|聊聊))?(?:我想知道|我想了解|我想问一下|想了解|想知道|想问|你知道|关于)?"
)
_ZH_ASKING = late(
    "(?:什么是|是什么样的|是什么|是谁|是多少|是怎么样的|是怎样的|有哪些|有什么|有多少|叫做?什么|为什么"
    "|怎么样|怎么办|怎么|怎样|如何|什么时候|何时|什么|哪里|哪儿|哪[个些种位年]|哪|多少|谁|是否|能不能"
    "|可不可以|吗|呢|吧|啊|呀)"
)
_MATTERS = frozenset(f"{en.MATTERS} {ru.MATTERS}".split())
"""Function words that a paraphrase keeps because they change the meaning."""


class RuleExpander(BaseTransformer):
    """Variants of a query by rules, of the kinds ``"synonym"``, ``"paraphrase"`` and ``"correction"``.

    *Paraphrase*: without greetings, requests, question words and other function words. *Correction*: as corrected by
    the speller; the other kinds are then based on the corrected query. *Synonym*: one term of the query replaced by a
    synonym, in up to three variants, from the thesaurus; without one, from the built-in everyday
    thesaurus of some 500 words per language (en, zh, ru).

    Example:
        >>> expander = RuleExpander(thesaurus={"car": ["automobile"]})
        >>> [(v.kind, v.text) for v in expander.transform("Could you tell me how to repair a car?").variants]
        [('synonym', 'how to repair an automobile'), ('paraphrase', 'how repair car')]
    """

    def __init__(
        self,
        variants: Sequence[str] = KINDS,
        thesaurus: Thesaurus | str | Path | None = None,
        speller: Speller | None = None,
        *,
        weights: Mapping[str, float] | None = None,
        any_form: bool = False,
    ) -> None:
        """Choose the kinds and their sources; a kind without a source gives no variants.

        Args:
            variants: the kinds wanted, in the order of the result.
            thesaurus: synonyms by term, or a file of them (see `read_thesaurus`). None: the built-in one; ``{}``: none.
            speller: knows the words of the corpus.
            weights: of the lists that the variants find, by kind; 1 for other kinds.
            any_form: find a term of the thesaurus in any form of its words; the synonym stands as it is written.

        Raises:
            InputError: a kind does not exist, or the thesaurus is invalid.
        """
        unknown_kinds = sorted({*variants, *(weights or {})} - set(KINDS))
        if unknown_kinds:
            raise InputError(f"variants are of the kinds {', '.join(KINDS)}, not {', '.join(map(repr, unknown_kinds))}")
        self.variants = tuple(variants)
        self.speller = speller
        self.weights = dict(weights or {})
        self._synonyms = _fold_thesaurus(
            read_thesaurus(thesaurus) if isinstance(thesaurus, str | Path) else thesaurus or {}
        )
        self._longest = max((len(term.split()) for term in self._synonyms), default=1)
        self._longest_han = max((len(term) for term in self._synonyms if HAN_RUN.fullmatch(term)), default=0)
        self._by_stems = {_stems(term): synonyms for term, synonyms in self._synonyms.items()} if any_form else {}
        self._is_default = thesaurus is None

    def transform(self, query: str | Query) -> Transformed:
        """Return the query unchanged, with its variants."""
        query = Query.of(query)
        if not query.text.strip() or len(query.text) > _LONGEST:
            return Transformed(query)
        text = query.text
        texts: dict[str, list[str]] = {}
        if "correction" in self.variants and self.speller is not None:
            correction = self.speller.correct(text)
            text = correction.text
            if correction:  # both forms, if the speller is unsure
                texts["correction"] = [item for item in (text, correction.alternative) if item and item != query.text]
        if "paraphrase" in self.variants:
            texts["paraphrase"] = [paraphrase(text)]
        if "synonym" in self.variants:
            texts["synonym"] = self._with_synonyms(text)
        candidates = (
            Variant(variant_text, kind, self.weights.get(kind, 1.0))
            for kind in self.variants
            for variant_text in texts.get(kind, ())
        )
        variants = distinct(candidates, query.text)
        detail = ", ".join(dict.fromkeys(variant.kind for variant in variants))
        return Transformed(query, variants, detail)

    def _with_synonyms(self, text: str) -> list[str]:
        """Return the text with a term replaced: by the first synonym of every term, then by the second ones."""
        bare = without_request(text)
        by_term = [
            [_before(bare[:start], synonym) + synonym + bare[end:] for synonym in synonyms]
            for start, end, synonyms in self._terms(bare)
        ]
        rounds = (texts[number] for number in range(_SYNONYM_VARIANTS) for texts in by_term if number < len(texts))
        return list(rounds)[:_SYNONYM_VARIANTS]

    def _synonyms_of(self, term: str) -> tuple[str, ...]:
        if self._is_default:
            return replacements(term)
        return self._synonyms.get(_key(term)) or (self._by_stems.get(_stems(term), ()) if self._by_stems else ())

    def _terms(self, text: str) -> Iterator[tuple[int, int, tuple[str, ...]]]:
        """Yields the places of thesaurus terms, the longest first if they overlap."""
        if not self._synonyms and not self._is_default:
            return
        words = [(match.start(), match.end()) for match in _WORD.finditer(text)]
        position = 0
        for number, (start, _) in enumerate(words):
            if start < position:
                continue
            for count in range(min(self._longest, _LONGEST_TERM, len(words) - number), 0, -1):
                end = words[number + count - 1][1]
                if synonyms := self._synonyms_of(text[start:end]):
                    yield start, end, synonyms
                    position = end
                    break
        longest = longest_han() if self._is_default else min(self._longest_han, 2 * _LONGEST_TERM)
        for run in HAN_RUN.finditer(text) if longest else ():
            start = run.start()
            while start < run.end():
                for end in range(min(run.end(), start + longest), start, -1):
                    if (synonyms := self._synonyms_of(text[start:end])) and (start, end) not in words:
                        yield start, end, synonyms
                        start = end - 1
                        break
                start += 1


def _before(text: str, word: str) -> str:
    """Return the text that a word follows, with the indefinite article that English puts before it."""
    article = "an" if _VOWEL_SOUND.match(word) else "a"
    return _ARTICLE.sub(lambda match: match[1] + article[1:] + match[2], text)


def paraphrase(text: str) -> str:
    """A query without the words that only make it polite or a question; unchanged if nothing else would remain.

    >>> paraphrase("Can you tell me what is the capital of France?"), paraphrase("请问什么是机器学习？")
    ('capital France', '机器学习')
    >>> paraphrase("Подскажите, пожалуйста, как установить Docker на сервер?")
    'как установить Docker сервер'
    """
    bare = without_request(text)
    if scripts(bare)["han"] > 0.3:
        statement = _ZH_ASKING.sub(" ", bare)
        statement = re.sub("[？?。！!]+", " ", statement)
        statement = " ".join(
            bare_word for segment in statement.split() if (bare_word := segment.strip("的是了在，,、；;：: "))
        )
        return statement if len(re.findall(r"\w", statement)) >= 2 else text
    words = [
        bare_word
        for bare_word in bare.split()
        if (word := fold(bare_word.strip(".,;:!?…()«»\"'“”"))) and (word in _MATTERS or word not in STOP)
    ]
    if not any(fold(bare_word.strip("?.,!")) not in _MATTERS for bare_word in words):
        return text
    return " ".join(words).strip(" .,;:!?…")


def without_request(text: str) -> str:
    """A query without greeting, request and final punctuation: «Hi, could you tell me about X?» is X."""
    bare_text = text.strip()
    shares = scripts(bare_text)
    pattern = _ZH_POLITE if shares["han"] > 0.3 else _RU_POLITE if shares["cyrillic"] > 0.3 else _EN_POLITE
    match = pattern.match(bare_text)
    bare = (bare_text[match.end() :] if match else bare_text).strip(" ,.?!？。！，…")
    return bare if any(map(str.isalnum, bare)) else bare_text


def read_thesaurus(path: str | Path) -> dict[str, list[str]]:
    """Read the synonyms of each term from a file with a group in each line, as search engines write them.

    ``car, automobile`` are synonyms both ways, ``laptop => notebook`` one way; a line that begins with ``#`` is a
    comment.

    Raises:
        InputError: the file cannot be read, or a line is no group.
    """
    path = Path(path)
    try:
        content = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the thesaurus {path}: {error}") from error
    synonyms: dict[str, list[str]] = {}
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        sides = [[term for cell in _COMMA.split(side) if (term := cell.strip())] for side in line.split("=>")]
        if not all(sides) or len(sides) > 2 or len(sides) == len(sides[0]) == 1:
            raise InputError(
                f"{path.name}, line {number}: synonyms are a group such as 'car, automobile', or 'laptop => notebook' "
                f"for one way, not {line!r:.80}"
            )
        for term in sides[0]:
            synonyms.setdefault(term, []).extend(other for other in sides[-1] if other != term)
    return synonyms


def _fold_thesaurus(thesaurus: Thesaurus) -> dict[str, tuple[str, ...]]:
    """One table for all languages: a term is looked for in queries of any language."""
    if not isinstance(thesaurus, Mapping):
        raise InputError(f"a thesaurus is a mapping of terms to synonyms or a file, not {type(thesaurus).__name__}")
    table: dict[str, tuple[str, ...]] = {}
    for term, synonyms in thesaurus.items():
        if not isinstance(term, str) or isinstance(synonyms, str | Mapping) or not _are_texts(synonyms):
            raise InputError(f"the synonyms of {term!r:.80} are a list of str, not {synonyms!r:.80}")
        key = _key(term)
        terms = (" ".join(synonym.split()) for synonym in synonyms)
        table[key] = tuple(dict.fromkeys(term for term in terms if term and _key(term) != key))
    return table


def _are_texts(values: object) -> bool:
    return isinstance(values, Iterable) and all(isinstance(value, str) for value in values)


def _key(text: str) -> str:
    return " ".join(fold(text).split())


def _stems(text: str) -> tuple[str, ...]:
    return tuple(DEFAULT_ANALYZER.tokens(text))
