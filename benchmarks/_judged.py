"""Labelled questions with both raw scores of every candidate, worked out once and kept on disk.

What the studies of scores need (`relevance.py`, `auto.py`): for every question of a collection the union of its 100
best documents by BM25 and its 100 best by cosine, both scores of each, and the judged grades. BM25 is the exact formula
over the analyser's tokens, so nothing here needs an index on disk.

Kept in ``$POINTSMAN_STUDY`` (default: a folder beside the embeddings) under the embedder's name; delete it to work
everything out again. ``$POINTSMAN_STUDY_MOST`` limits how many passages are taken of a collection: those that are
relevant to the questions, and others drawn evenly. ``$POINTSMAN_STUDY_SETS`` names the only ones that are taken, with
commas.
"""

from __future__ import annotations

import math
import os
import pickle
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from _data import DATA
from pointsman.embedders import CachedEmbedder, default_embedder
from pointsman.embedders.e5.prepared_files import cache_directory
from pointsman.evaluation import read_collection
from pointsman.retrieval.judge.languages import SCRIPTS, Languages, Script, script_of
from pointsman.retrieval.judge.relevance import Background, unrelated_questions
from pointsman.text import DEFAULT_ANALYZER, sentences

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pointsman.values.types import Document

T = TypeVar("T")

KEPT = Path(os.environ.get("POINTSMAN_STUDY") or cache_directory() / "study")
HERE = Path(__file__).resolve().parent

XQUAD = ("en_xquad", "zh_xquad", "ru_xquad", "xl_xquad_en_zh_ru")
ULTRATOOL = ("tool_ultratool_en_dev", "tool_ultratool_zh_dev")
_ONLY = os.environ.get("POINTSMAN_STUDY_SETS", "").replace(" ", "").split(",")


def _taken(*names: str) -> tuple[str, ...]:
    return tuple(name for name in names if _ONLY == [""] or name in _ONLY)


SETS = _taken(
    *("en_scifact", "en_cranfield", "en_cacm", "en_wikiqa", "zh_domainrag", "zh_cmrc2018", "ru_faq_java"),
    *("xl_debian_ru", *XQUAD, "mh_hotpotqa", "mh_musique_train100"),
    *("tool_metatool_train", "tool_sealtools_dev", *ULTRATOOL),
)
"""Every collection whose documents are ranked."""
DEMO = _taken("demo_python", "demo_packages", "demo_pointsman")
"""What ``pointsman demo`` indexes: real text without labels."""
MATTERS = _taken("matters", "matters_among_others", "matters_even", "matters_odd")
"""Notes as people keep them (a practice, a hotel, a club, a household), in three languages, with questions as they ask
them: all notes alone and among passages of collections, and two halves among such. Questions on people's own things are
worded like everyday ones; those of collections are not. They are in ``everyday_matters.tsv``."""
AMONG: Mapping[str, tuple[slice, int]] = {
    "matters": (slice(None), 0),
    "matters_among_others": (slice(None), 100),
    "matters_even": (slice(0, None, 2), 60),
    "matters_odd": (slice(1, None, 2), 60),
}
"""By name, which notes, and how many passages of `FILLERS` beside them."""
FILLERS = ("en_scifact", "mh_hotpotqa", "tool_sealtools_dev", "en_cacm")
PARALLEL = (
    *((a, b) for a in XQUAD[:3] for b in XQUAD[:3] if a != b),
    *(ULTRATOOL, ULTRATOOL[::-1]),
)
"""Questions of the first have the same answers, under the same names, in the second: asked across languages."""
TRANSLATED = ("ru_faq_java", "zh_domainrag", "en_scifact", "en_wikiqa", "zh_cmrc2018", "xl_debian_ru")
MOST = 600  # questions of a collection
PASSAGES = int(os.environ.get("POINTSMAN_STUDY_MOST") or 0)  # of a collection; 0: all
DEPTH = 100
CROSS = 200  # questions of a parallel collection


def family(name: str) -> str:
    """Collections of one family share texts, so they are left out together."""
    name = name.rpartition(">")[2]
    return "xquad" if name in XQUAD else "ultratool" if name in ULTRATOOL else "matters" if name in MATTERS else name


@dataclass(frozen=True)
class Judged:
    """One question with its candidates; arrays have one value a candidate.

    Attributes:
        text: the question.
        places: of the candidates among the documents.
        bm25: raw, in Lucene's form.
        cosine: raw.
        grades: as judged; 0 where not judged.
        ideal: all grades above 0, highest first.
        script: of the question: latin, cyrillic, han.
        scripts: of the candidates.
        lengths: of the candidates, in tokens.
        idf: the sum over the question's terms of their idf: what BM25 stays below.
        matched: by candidate, that of the terms that it has.
        terms: how many different terms the question has.
        vector: its embedding.
        mean: the dataset's `CosineSpread.mean`.
        more: other scores by name.
    """

    text: str
    places: NDArray[np.int64]
    bm25: NDArray[np.float64]
    cosine: NDArray[np.float64]
    grades: NDArray[np.float64]
    ideal: tuple[float, ...]
    script: Script
    scripts: NDArray[np.str_]
    lengths: NDArray[np.float64]
    idf: float
    matched: NDArray[np.float64]
    terms: int
    vector: NDArray[np.float32]
    mean: float
    more: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)


class Corpus:
    """Documents, their terms and their vectors."""

    def __init__(
        self, name: str, documents: Sequence[Document], vectors: NDArray[np.float32], stand_ins: NDArray[np.float32]
    ) -> None:
        self.name, self.vectors, self.likely = name, vectors, stand_ins
        self.ids = [document.id for document in documents]
        self.place = {id_: place for place, id_ in enumerate(self.ids)}
        tokens = [DEFAULT_ANALYZER.tokens(document.searchable) for document in documents]
        self.lengths = np.array([len(one) for one in tokens], float)
        self.titles = _Postings([DEFAULT_ANALYZER.tokens(document.title) for document in documents])
        self.words = _Postings(tokens)
        self.scripts = np.array([script_of(document.searchable) for document in documents])
        even = vectors[np.linspace(0, len(vectors) - 1, min(1000, len(vectors))).astype(int)]
        cosines = stand_ins @ even.T
        self.mean, self.sigma = float(cosines.mean()), float(cosines.std(axis=1).mean())

    def judge(self, text: str, vector: NDArray[np.float32], grades: Mapping[str, int]) -> Judged:
        terms = Counter(DEFAULT_ANALYZER.query_tokens(text))
        bm25, idf, matched = self.words.bm25(terms)
        cosine = (self.vectors @ vector).astype(float)
        best = _first(bm25, DEPTH)
        places = np.array(list(dict.fromkeys([*best[bm25[best] > 0].tolist(), *_first(cosine, DEPTH).tolist()])))
        judged = np.array([max(grades.get(self.ids[place], 0), 0) for place in places], float)
        return Judged(
            text, places, bm25[places], cosine[places], judged,
            tuple(sorted((grade for grade in grades.values() if grade > 0), reverse=True)),
            script_of(text), self.scripts[places], self.lengths[places], idf, matched[places], len(terms),
            vector, self.mean,
        )  # fmt: skip


class _Postings:
    def __init__(self, tokens: Sequence[Sequence[str]]) -> None:
        self.lengths = np.array([len(one) for one in tokens], float)
        self.average = max(float(self.lengths.mean()), 1e-9)
        rows: dict[str, list[int]] = {}
        counts: dict[str, list[int]] = {}
        for row, one in enumerate(tokens):
            for term, count in Counter(one).items():
                rows.setdefault(term, []).append(row)
                counts.setdefault(term, []).append(count)
        self.rows = {term: np.array(one, np.int32) for term, one in rows.items()}
        self.counts = {term: np.array(one, np.float32) for term, one in counts.items()}

    def bm25(
        self, terms: Mapping[str, int], k1: float = 1.2, b: float = 0.75
    ) -> tuple[NDArray[np.float64], float, NDArray[np.float64]]:
        """BM25 of every document in Lucene's form; the sum of the terms' idf, and of those each document has."""
        count, total = len(self.lengths), 0.0
        scores, matched = np.zeros(count), np.zeros(count)
        norm = k1 * (1 - b + b * self.lengths / self.average)
        for term, times in terms.items():
            rows = self.rows.get(term, _NONE)
            idf = times * math.log(1 + (count - len(rows) + 0.5) / (len(rows) + 0.5))
            total += idf
            if len(rows):
                counts = self.counts[term]
                scores[rows] += idf * counts / (counts + norm[rows])
                matched[rows] += idf
        return scores, total, matched


_NONE = np.empty(0, np.int32)


def _first(scores: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    count = min(count, len(scores))
    best = np.argpartition(-scores, count - 1)[:count]
    return best[np.lexsort((best, -scores[best]))]


@cache
def embedder() -> CachedEmbedder:
    return CachedEmbedder(default_embedder(), KEPT, max_bytes=8 * 1024**3)


def kept(name: str, make: Callable[[], T]) -> T:
    """What ``make`` gave when it was first asked for, from disk."""
    path = KEPT / f"{name}@{embedder().name}{f'-{PASSAGES}' if PASSAGES else ''}.pickle"
    if path.exists():
        found: T = pickle.loads(path.read_bytes())
        return found
    made = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(f".{os.getpid()}")
    aside.write_bytes(pickle.dumps(made))
    aside.rename(path)
    return made


def _demo(name: str) -> list[Document]:
    from pointsman.ingest import installed_package_documents, own_documents, standard_library_documents

    readers: dict[str, Callable[[], Iterable[Document]]] = {
        "demo_python": standard_library_documents,
        "demo_packages": installed_package_documents,
        "demo_pointsman": lambda: own_documents(HERE.parent),
    }
    return list(readers[name]())


def _matters() -> Iterator[tuple[str, list[str]]]:
    """The notes with their questions; under ``-`` those that none answers."""
    for passage, texts in tsv("everyday_matters.tsv"):
        yield passage, texts.split(" | ")


def _notes(name: str) -> dict[str, tuple[str, list[str]]]:
    """The notes of a dataset with their questions, by id."""
    notes = {str(number): row for number, row in enumerate(_matters()) if row[0] != "-"}
    return {id_: notes[id_] for id_ in list(notes)[AMONG[name][0]]}


def _among(name: str) -> list[Document]:
    from pointsman.values.types import Document

    chance, count = random.Random(name), AMONG[name][1]
    made = [Document(id_, text) for id_, (text, _) in _notes(name).items()]
    for other in FILLERS:
        made += chance.sample(list(documents(other)), count // len(FILLERS))
    chance.shuffle(made)
    return made


def labels(name: str) -> tuple[dict[str, str], dict[str, Mapping[str, int]]]:
    """The questions of a collection, a fixed sample where there are many, and their judgments."""
    if name in DEMO:
        return {}, {}
    if name in MATTERS:
        pairs = [(id_, text) for id_, (_, texts) in _notes(name).items() for text in texts]
        return {text: text for _, text in pairs}, {text: {id_: 1} for id_, text in pairs}
    collection = read_collection(DATA / name)
    chosen = sorted(random.Random(0).sample(list(collection.queries), min(MOST, len(collection.queries))))
    return {query: collection.queries[query] for query in chosen}, {query: collection.qrels[query] for query in chosen}


def documents(name: str) -> Sequence[Document]:
    """What a collection, or a part of the demo, consists of."""
    if name in DEMO:
        return kept("demo-" + name, lambda: _demo(name))
    if name in MATTERS:
        return _among(name)
    every = read_collection(DATA / name).documents
    if not 0 < PASSAGES < len(every):
        return every
    judged = read_collection(DATA / name).qrels
    asked = {*labels(name)[0], *(row[1] for row in tsv("cross_lingual.tsv") if row[0] == name)}
    relevant = {id_ for query in asked for id_, grade in judged[query].items() if grade > 0}
    others = [document.id for document in every if document.id not in relevant]
    more = max(0, PASSAGES - len(relevant))
    drawn = relevant | {others[place * len(others) // more] for place in range(more)}
    return [document for document in every if document.id in drawn]


@cache
def corpus(name: str) -> Corpus:
    def make() -> Corpus:
        every = documents(name)
        count, texts = len(every), []
        for row in range(32):
            document = every[row * count // 32]
            bounds = sentences(document.text[:2000])
            texts.append(document.text[slice(*bounds[0])] if bounds else document.title)
        searchable = [document.searchable for document in every]
        parts = [embedder().embed_documents(searchable[at : at + 512]) for at in range(0, count, 512)]
        return Corpus(name, every, np.concatenate(parts), embedder().embed_queries(texts))

    return kept("corpus-" + name, make)


@cache
def background(name: str) -> Background:
    """As a dataset measures it when it is embedded, and a search uses it."""

    def make() -> Background:
        at = corpus(name)
        vectors = {script: embedder().embed_queries(list(texts)) for script, texts in unrelated_questions().items()}
        even = at.vectors[np.linspace(0, len(at.vectors) - 1, min(1000, len(at.vectors))).astype(int)]

        def of(likely: NDArray[np.float32], unrelated: Mapping[Script, NDArray[np.float32]]) -> Background:
            best = {script: (at.vectors @ some.T).max(axis=0).tolist() for script, some in unrelated.items()}
            shares = {script: float((at.scripts == script).mean()) for script in SCRIPTS}
            sigma = embedder().cosine_spread or at.sigma
            return Background.measured(embedder().name, sigma, even, likely, unrelated, best, shares)

        plain = of(at.likely, vectors)
        if not plain.is_mixed:
            return plain
        languages = Languages.of(vectors)
        neutral = of(
            languages.neutral(at.likely), {script: languages.neutral(some) for script, some in vectors.items()}
        )
        return plain.beside(neutral, languages)

    made = kept("background-" + name, make)
    return made.neutral or made


def searched_by(name: str, vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """The vector of a question that a dataset is searched by: without its language if documents are in several."""
    languages = background(name).languages
    return vector if languages is None else languages.neutral(vector)


def tsv(name: str) -> list[list[str]]:
    return [line.split("\t") for line in (HERE / name).read_text("utf-8").splitlines()[1:]]


def _all(at: Corpus, texts: Sequence[str], grades: Sequence[Mapping[str, int]]) -> list[Judged]:
    vectors: Iterable[NDArray[np.float32]] = embedder().embed_queries(list(texts)) if texts else ()
    return [
        at.judge(text, searched_by(at.name, vector), grade)
        for text, vector, grade in zip(texts, vectors, grades, strict=True)
    ]


def own(name: str) -> list[Judged]:
    """A collection's questions; of the standard library's documentation those in English that stand beside this."""

    def make() -> list[Judged]:
        at = corpus(name)
        if name == "demo_python":
            return _python(at, ("en",))
        queries, qrels = labels(name)
        return _all(at, list(queries.values()), [qrels[query] for query in queries])

    return kept("own-" + name, make)


def _python(at: Corpus, languages: Sequence[str]) -> list[Judged]:
    rows = [row for row in tsv("python_questions.tsv") if row[1] in languages]
    wanted = [
        {id_: 1 for id_ in at.ids if id_.split("#")[0].split(".")[0] in modules.split(",")} for modules, _, _ in rows
    ]
    return _all(at, [row[2] for row in rows], wanted)


def across() -> Iterator[tuple[str, list[Judged]]]:
    """Questions asked in another language than the documents are in, by ``source>documents``."""
    for source, name in PARALLEL:
        if not {source, name} <= {*SETS}:
            continue
        yield f"{source}>{name}", kept(f"across-{source}-{name}", partial(_parallel, source, name))
    for name in _taken(*TRANSLATED):
        for language in ("en", "zh", "ru"):
            rows = [row for row in tsv("cross_lingual.tsv") if row[0] == name and row[2] == language]
            if rows:
                yield f"{language}>{name}", kept(f"across-{language}-{name}", partial(_translated, rows, name))
    for language in ("zh", "ru") if "demo_python" in DEMO else ():
        yield f"{language}>demo_python", kept(f"across-{language}-python", partial(_asked_in, language))


def _asked_in(language: str) -> list[Judged]:
    return _python(corpus("demo_python"), (language,))


def _parallel(source: str, name: str) -> list[Judged]:
    queries, qrels = labels(source)
    some = list(queries)[:CROSS]
    return _all(corpus(name), [queries[query] for query in some], [qrels[query] for query in some])


def _translated(rows: Sequence[Sequence[str]], name: str) -> list[Judged]:
    qrels = read_collection(DATA / name).qrels
    return _all(corpus(name), [row[3] for row in rows], [qrels[row[1]] for row in rows])


def everyday(name: str) -> list[Judged]:
    """The 200 everyday questions, asked of a collection that has no answer to them."""
    return kept("everyday-" + name, lambda: _all(corpus(name), [row[2] for row in tsv("off_topic.tsv")], [{}] * 200))


ENCYCLOPAEDIAS = {*XQUAD, "en_wikiqa", "zh_cmrc2018", "mh_hotpotqa", "mh_musique_train100"}
TOOLS = {*ULTRATOOL, "tool_sealtools_dev", "tool_metatool_train"}
COMPUTING = {"ru_faq_java", "en_cacm", "xl_debian_ru", *DEMO}
OVERLAPS = (
    *({"en_scifact", name} for name in (*XQUAD, "en_wikiqa")),  # medicine
    *({"en_cacm", name} for name in (*XQUAD, "en_wikiqa", "en_cranfield")),  # complexity, numerical methods
    *({"tool_metatool_train", name} for name in SETS),  # its users ask about everything
)


def may_overlap(name: str, other: str) -> bool:
    """Whether questions of one may well have an answer in the other."""
    return any({name, other} <= set(group) for group in (ENCYCLOPAEDIAS, TOOLS, COMPUTING)) or {name, other} in OVERLAPS


def foreign(name: str) -> list[Judged]:
    """Questions of other collections, 12 of each that has surely other subjects; of notes, those that none answers."""

    def make() -> list[Judged]:
        texts: list[str] = []
        if name in MATTERS:
            own_notes = _notes(name)
            rows = enumerate(_matters())
            texts = [text for number, (_, some) in rows if str(number) not in own_notes for text in some]
        for other in SETS if name not in MATTERS else ():
            if other != name and not may_overlap(name, other):
                queries = list(labels(other)[0].values())
                texts += queries[:: max(1, len(queries) // 12)][:12]
        return _all(corpus(name), texts, [{}] * len(texts))

    return kept("foreign-" + name, make)


if __name__ == "__main__":
    import _judged  # what is kept names the module of its classes, and this one is called __main__

    for one in sys.argv[1:] or (*SETS, *DEMO):
        print(one, *(len(read(one)) for read in (_judged.own, _judged.everyday, _judged.foreign)), flush=True)
