"""Whether scores mean something: the relevance of a hit, refusing, and what each costs.

    python benchmarks/relevance.py [SECTION…] [--write]

``calibration``  ECE of `hit.relevance`, each collection's family left out of the fit: of the first ten hits where every
                 hit was judged, of the first hit elsewhere
``refusal``      off-topic and on-topic questions refused, the collection left out of the fit
``labels``       the same, the minimum fitted to half of a collection's own questions, as by ``pointsman calibrate``
``path``         all of that by ``workspace.search``: refusals, one hit's relevance over numbers of hits, strategies and
                 datasets, the milliseconds it costs; by the shipped calibrations, so the collections were fitted to,
                 but not these everyday questions
``languages``    answers in another language than the question among the first five of several datasets, with and
                 without what `raised_cosines` adds; the former datasets chose its constant, the latter report it
``mixed``        documents in one language with forty in each of two others, searched with and without the language of
                 the question: right first, and refused; the former datasets chose that rule, the latter report it
``directions``   how far own and everyday questions lie towards the documents
``cost``         milliseconds of judging alone
``fit``          the calibrations out of all collections; with ``--write`` they are put into relevance.json

Collections are read from ``$POINTSMAN_TEST_DATA``, else from ``../shared/data`` beside the repository; see
``_judged.py`` for what is kept on disk. Exit status 1: a bound was missed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from statistics import median
from time import process_time
from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np

import _judged
import pointsman
from _data import DATA
from _judged import DEMO, MATTERS, PASSAGES, SETS, Judged, across, background, everyday, family, foreign, own
from pointsman.evaluation import read_collection
from pointsman.retrieval.judge import relevance as module
from pointsman.retrieval.judge.kept_calibrations import REFUSED, minimum_for
from pointsman.retrieval.judge.relevance import FIRST, Background, Evidence, Form, Relevance, judge_by
from pointsman.retrieval.request import SearchRequest
from pointsman.retrieval.run import judging
from pointsman.values.types import Document
from pointsman.workspace.calibration.dataset_calibration import BINS, ece
from pointsman.workspace.calibration.fitting import MINIMUM, Labelled, PreparedQuestion, fit_prepared, prepare

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Asked = tuple[str, str, frozenset[str]]  # dataset, question, ids of its answers

LOW = 0.3  # a relevance that would talk a reader out of a hit
ROUND = 4  # digits that are kept
UNLIKE = "tool_metatool_train"  # its own questions are everyday ones: no negatives can be had for it
MIXED = (
    ("en_scifact", "ru_faq_java", "zh_domainrag", "xl_debian_ru"),
    ("en_wikiqa", "zh_cmrc2018", "ru_xquad", "en_cranfield", "en_cacm"),
)
BESIDE = {
    "en_scifact": ("ru_faq_java", "zh_domainrag"),
    "ru_faq_java": ("en_scifact", "zh_domainrag"),
    "zh_domainrag": ("ru_faq_java", "en_scifact"),
    "en_wikiqa": ("xl_debian_ru", "zh_cmrc2018"),
    "xl_debian_ru": ("en_wikiqa", "zh_cmrc2018"),
    "zh_cmrc2018": ("xl_debian_ru", "en_wikiqa"),
}
"""By collection, those of which it gets the documents that answer the questions of cross_lingual.tsv."""
NAMED = ("demo_python", "zh_domainrag", "ru_faq_java", "en_scifact")
LANGUAGE = {"latin": "en", "cyrillic": "ru", "han": "zh"}
PASSAGES_SAID = f" (at most {PASSAGES:,} passages each, beside the relevant ones)" if PASSAGES else ""
KINDS = ("own", "everyday", "foreign")
HALVINGS = 20  # random halves of labels
LEAST = 40  # labelled questions to which a minimum is fitted
COMPLETE = frozenset({"en_cacm", "en_cranfield", "demo_python"})
"""Collections of which every one of the first ten hits was judged."""
COPY = 0.985  # cosine of two passages that say the same; a copy of a relevant passage is relevant
OF_COMPLETE = 4.0  # the weight of a collection whose hits are all judged, in a fit; there are few
FORMS: tuple[Form, ...] = ("both", "vector", "words")


@dataclass(frozen=True)
class Group:
    """Questions of one kind asked of one dataset.

    Attributes:
        kind: own, across (in another language), everyday or foreign (of another collection).
        label: for people.
        dataset: which documents.
        rows: what was brought, and judged.
        labelled: whether hits are judged one by one.
    """

    kind: str
    label: str
    dataset: str
    rows: tuple[Labelled, ...]
    labelled: bool = True

    @property
    def answered(self) -> bool:
        """Whether the dataset has answers to them."""
        return self.kind in ("own", "across")


def evidence_of(judged: Judged, dataset: str, form: Form = "both") -> Evidence:
    words, near = form != "vector", form != "words"
    return Evidence(
        judged.script,
        judged.terms,
        judged.bm25 if words else None,
        judged.idf if words else None,
        judged.matched if words else None,
        judged.cosine if near else None,
        background(dataset).nearness(judged.vector) if near else None,
        background(dataset) if near else None,
    )


def order_of(judged: Judged, form: Form = "both") -> NDArray[np.int64]:
    """The first candidates by a form of evidence."""
    scores = {"words": judged.bm25, "vector": judged.cosine, "both": judged.bm25 + 3.3 * judged.cosine / 0.019}[form]
    order = np.argsort(-scores, kind="stable")[:FIRST]
    return order[judged.bm25[order] > 0] if form == "words" else order


def row_of(judged: Judged, dataset: str, answered: bool, form: Form = "both") -> Labelled:
    order, grades = order_of(judged, form), judged.grades
    complete = dataset in COMPLETE and answered
    if dataset == "en_cranfield" and answered:  # the paper that a question was written from was not judged
        order = order[~np.isin(judged.places[order], sources(judged.text))]
    if dataset == "demo_python" and answered and judged.text in by_reading():
        labels = by_reading()[judged.text]
        ids = _judged.corpus(dataset).ids
        order = np.array([place for place in order if ids[judged.places[place]] in labels], int)
        known = [labels[ids[judged.places[place]]] for place in order]
        return Labelled(evidence_of(judged, dataset, form), order.tolist(), known, True, True, dataset)
    relevant = grades[order] > 0
    if answered and (grades > 0).any():
        vectors = _judged.corpus(dataset).vectors
        cosines = vectors[judged.places[order]] @ vectors[judged.places[grades > 0]].T
        relevant |= cosines.max(axis=1, initial=-1) >= COPY
    return Labelled(
        evidence_of(judged, dataset, form), order.tolist(), relevant.tolist(), answered, complete, dataset
    )  # fmt: skip


@cache
def by_reading() -> Mapping[str, Mapping[str, bool]]:
    """By question on the standard library and passage, whether it is relevant: the first ten hits, all read."""
    labels: dict[str, dict[str, bool]] = {}
    for text, id_, relevant in _judged.tsv("judged_python.tsv"):
        labels.setdefault(text, {})[id_] = relevant == "1"
    return labels


@cache
def _sources() -> Mapping[str, NDArray[np.int64]]:
    collection, corpus = read_collection(DATA / "en_cranfield"), _judged.corpus("en_cranfield")
    return {
        text: np.array(
            [corpus.place[id_] for id_, grade in collection.qrels[query].items() if not grade and id_ in corpus.place],
            int,
        )
        for query, text in collection.queries.items()
    }


def sources(text: str) -> NDArray[np.int64]:
    """The places of the papers that a question of en_cranfield was written from."""
    return _sources().get(text, np.empty(0, int))


@cache
def groups(form: Form = "both") -> tuple[Group, ...]:
    found = []
    for name in (*SETS, *MATTERS, *DEMO):
        if name not in DEMO or name == "demo_python":
            labelled = name not in DEMO
            rows = tuple(row_of(one, name, True, form) for one in own(name))
            found.append(Group("own", name, name, rows, labelled))
        if name == "demo_python":
            rows = tuple(row_of(one, name, True, form) for one in own(name) if one.text in by_reading())
            found.append(Group("own", "demo_python, read", name, rows))
        found.append(Group("everyday", name, name, tuple(row_of(one, name, False, form) for one in everyday(name))))
        if others := foreign(name):
            found.append(Group("foreign", name, name, tuple(row_of(one, name, False, form) for one in others)))
    if form != "words":
        for label, some in across():
            name = label.split(">")[1]
            rows = tuple(row_of(one, name, True, form) for one in some)
            found.append(Group("across", label, name, rows, name in SETS))
    return tuple(found)


@cache
def prepared_rows(form: Form) -> list[tuple[Group, list[PreparedQuestion]]]:
    return [(group, [one for row in group.rows if (one := prepare(row, form))]) for group in groups(form)]


def fit(form: Form, without: frozenset[str] = frozenset()) -> Relevance:
    """Out of all groups but those of these families; half of the everyday questions are never fitted to.

    People's own notes (`MATTERS`) count only where there are words. The questions on them are in their language, while
    those across languages are judged by vectors alone, which these notes would make worse; docs/scores.md has the
    figures.
    """
    rows: list[PreparedQuestion] = []
    for group, every in prepared_rows(form):
        if family(group.dataset) in without or not group.labelled or (group.dataset == UNLIKE and not group.answered):
            continue
        some = every[::2] if group.kind == "everyday" else every
        share = {"own": 1.0, "across": min(1.0, len(some) / 40), "everyday": 0.7, "foreign": 0.3}[group.kind]
        if group.dataset in MATTERS:
            if form == "vector":
                continue
            share = 1.0 if group.kind == "foreign" else share
        share *= OF_COMPLETE if group.answered and group.dataset in COMPLETE else 1.0
        rows += [replace(row, weight=share / len(some), collection=group.label) for row in some]
    return fit_prepared(rows, form, None if form == "words" else _judged.embedder().name)


def left_out(form: Form, name: str) -> tuple[Relevance, ...]:
    return without(form, frozenset([family(name)]))


@cache
def without(form: Form, families: frozenset[str]) -> tuple[Relevance, ...]:
    """What judges a question: hits of questions across languages are judged by the vectors' calibration."""
    return tuple(fit(one, families) for one in (("both", "vector") if form == "both" else (form,)))


def judge(calibrations: Sequence[Relevance], row: Labelled, count: int = FIRST) -> module.Judgement | None:
    judgement = judge_by(calibrations, row.evidence, row.places[:count])
    return None if judgement is None else judgement[0]


def judged(
    calibrations: Sequence[Relevance], rows: Sequence[Labelled], count: int = FIRST
) -> list[module.Judgement | None]:
    return [judge(calibrations, row, count) for row in rows]


# ── calibration ──────────────────────────────────────────────────────────────────────────────────────────────────────


def noise(chances: NDArray[np.float64], bins: int = BINS) -> float:
    """What the error would be on average of these very probabilities if they were true: few hits make some of it."""
    chance = np.random.default_rng(0)
    return float(np.mean([ece(chances, chance.random(len(chances)) < chances, bins) for _ in range(50)]))


def shown(group: Group, form: Form) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The relevance of the hits whose labels count, and the labels: of the first hit, or of all that were judged."""
    count = FIRST if group.dataset in COMPLETE else 1
    results = judged(left_out(form, group.dataset), group.rows, count)
    pairs = [(one.relevance, row.relevant[:count]) for one, row in zip(results, group.rows, strict=True) if one]
    return (
        np.array([chance for chances, _ in pairs for chance in chances], float),
        np.array([label for _, labels in pairs for label in labels], bool),
    )


def calibration() -> bool:
    print("ECE of hit.relevance over 10 bins of equal count; the collection's family left out of the fit.")
    print("First ten hits of collections whose hits are all judged (*), the first hit of the others.\n")
    heads = ("hits", "relevant", "said", "ECE", "noise", "vectors", "words", "low")
    print(" " * 46 + "".join(f"{head:>10}" for head in heads))
    errors: dict[str, dict[str, float]] = {"complete": {}, "sparse": {}, "across": {}}
    for group in groups():
        if not group.answered or not group.labelled:
            continue
        chances, good = shown(group, "both")
        others = []
        for form in ("vector", "words"):
            twin = next((one for one in groups(form) if (one.kind, one.label) == (group.kind, group.label)), None)
            others.append(f"{ece(*shown(twin, form)):.3f}" if twin else "-")
        error = ece(chances, good)
        complete = group.kind == "own" and group.dataset in COMPLETE
        if complete or (len(group.rows) >= 50 and group.dataset not in MATTERS):
            errors["complete" if complete else "across" if group.kind == "across" else "sparse"][group.label] = error
        low = float((chances[good] < LOW).mean()) if good.any() else 0.0
        figures = (good.mean(), chances.mean(), error, noise(chances))
        cells = "".join(f"{figure:10.3f}" for figure in figures) + "".join(f"{one:>10}" for one in others)
        print(f"{group.label + ('*' if complete else ''):46}{len(good):10}{cells}{low:10.3f}", flush=True)
    print()
    mean, worst = np.mean([*errors["sparse"].values()]), max(errors["sparse"].values())
    return all(
        [
            *(
                held(error <= 0.1, f"{name}, all judged, at most .10: {error:.3f}")
                for name, error in errors["complete"].items()
            ),
            held(mean <= 0.05, f"first hits of the others, mean at most .05: {mean:.3f}"),
            held(worst <= 0.1, f"none above .10: {worst:.3f}"),
            held(True, f"across languages, first hits: {np.mean([*errors['across'].values()]):.3f}"),
        ]
    )


def directions() -> bool:
    """How far questions lie from unrelated ones in the direction of the documents, in σ: the feature ``towards``."""
    print(f"{'σ towards the documents':26}{'own':>16}{'everyday':>16}")
    for name in (*SETS, *MATTERS):
        cells = []
        for questions in (own(name), everyday(name)):
            at = background(name)
            places = [at.nearness(one.vector) - at.chance[one.script] for one in questions]
            cells.append(f"{np.mean(places):9.1f} ± {np.std(places):3.1f}")
        print(f"{name:26}{cells[0]:>16}{cells[1]:>16}", flush=True)
    return True


# ── refusing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def refused(group: Group, form: Form, minimum: float | None = None) -> NDArray[np.bool_]:
    calibrations = left_out(form, group.dataset)
    least = calibrations[0].minimum if minimum is None else minimum
    return np.array([one is None or one.best < least for one in judged(calibrations, group.rows, 0)])


def refusal() -> bool:
    met = True
    for form in FORMS:
        print(f"\nrefused, {form}; the dataset's family left out, and of the everyday questions the half fitted to")
        print(f"{'':24}{'own':>7}{'everyday':>9}{'foreign':>9}   across")
        by_name: dict[str, dict[str, list[float]]] = {}
        for group in groups(form):
            rows = refused(group, form)
            rows = rows[1::2] if group.kind == "everyday" else rows
            by_name.setdefault(group.dataset, {}).setdefault(group.kind, []).append(float(rows.mean()))
        for name, kinds in by_name.items():
            cells = "".join(
                f"{kinds[kind][0]:9.3f}" if kind in kinds else f"{'-':>9}" for kind in ("own", "everyday", "foreign")
            )
            print(f"{name:22}{cells}   {' '.join(f'{one:.3f}' for one in kinds.get('across', []))}", flush=True)
        usual = {name: kinds for name, kinds in by_name.items() if name != UNLIKE and name not in MATTERS}
        means = {
            kind: np.mean([kinds[kind][0] for kinds in usual.values() if kind in kinds])
            for kind in ("own", "everyday", "foreign")
        }
        print(f"{'mean':22}" + "".join(f"{value:9.3f}" for value in means.values()))
        if form == "both":
            off = np.mean([by_name[name]["everyday"][0] for name in NAMED])
            worst = max(kinds["own"][0] for kinds in usual.values() if "own" in kinds)
            others = np.mean([one for name in NAMED for one in by_name[name].get("across", [])])
            met &= held(off >= 0.9, f"everyday questions against {', '.join(NAMED)}: {off:.3f}, at least .90")
            met &= held(worst <= 0.03, f"own questions at most .03 on each collection: worst {worst:.3f}")
            met &= held(others <= 0.05, f"on-topic questions across languages there at most .05: {others:.3f}")
    return met & several()


@dataclass(frozen=True)
class Chances:
    """The probabilities of an answer to the questions of a group, the dataset's family left out of the fit.

    Attributes:
        kind: as in `Group`.
        answerable: one a question.
        across: whether it is in another language than the documents.
    """

    kind: str
    answerable: NDArray[np.float64]
    across: NDArray[np.bool_]

    def refused(self, minimum: float, usual: float) -> float:
        """The share below a minimum; for questions across languages, below the usual one."""
        return float((self.answerable < np.where(self.across, usual, minimum)).mean())


@cache
def chances() -> Mapping[str, Sequence[Chances]]:
    """By dataset; of the everyday questions, the half that nothing is fitted to."""
    by_name: dict[str, list[Chances]] = {}
    for group in groups("both"):
        half = group.rows[1::2] if group.kind == "everyday" else group.rows
        judgements = judged(left_out("both", group.dataset), half, 0)
        answerable = np.array([0.0 if one is None else one.best for one in judgements])
        across_languages = np.array([row.evidence.across for row in half])
        by_name.setdefault(group.dataset, []).append(Chances(group.kind, answerable, across_languages))
    return by_name


def labels() -> bool:
    """Refusals where the minimum is fitted to half of the own questions: of the other half, and of all others."""
    print(
        f"refused, both; the minimum fitted to half of the own questions, mean of {HALVINGS} halves; before in brackets"
    )
    print(f"{'':24}{'own':>14}{'everyday':>15}{'foreign':>15}   across")
    usual, rows = MINIMUM, []
    for name, some in chances().items():
        own_chances = [one for group in some if group.kind == "own" for one in group.answerable[~group.across]]
        others = [group for group in some if group.kind != "own"]
        if len(own_chances) < 2 * LEAST or not any(group.kind == "foreign" for group in others):
            continue
        after: list[list[float]] = []
        for seed in range(HALVINGS):
            order = np.random.default_rng(seed).permutation(own_chances)
            minimum = minimum_for(order[::2].tolist())
            assert minimum is not None, "there are enough"
            after.append([float((order[1::2] < minimum).mean()), *(one.refused(minimum, usual) for one in others)])
        before = [float((np.array(own_chances) < usual).mean()), *(one.refused(usual, usual) for one in others)]
        pairs = list(zip(np.mean(after, axis=0), before, strict=True))
        cells = [f"{one:8.3f} ({two:.3f})" for one, two in pairs]
        print(f"{name:24}{''.join(cells[:3])}   {' '.join(cells[3:])}", flush=True)
        rows.append(pairs[:3])
    means = np.mean(rows, axis=0)
    print(f"{'mean':24}{''.join(f'{one:8.3f} ({two:.3f})' for one, two in means)}")
    return held(means[0][0] <= REFUSED + 0.01, f"own questions refused at most {REFUSED}: {means[0][0]:.3f}")


def stricter() -> bool:
    """Means over datasets where every question is refused below another minimum."""
    print(f"\nrefused, both, by minimum{'own':>8}{'worst':>7}{'everyday':>9}{'foreign':>8}{'across':>8}")
    for minimum in (0.05, 0.08, 0.1, MINIMUM, 0.15, 0.2, 0.3):
        shares: dict[str, list[float]] = {}
        for name, some in chances().items():
            if name != UNLIKE:
                for group in some:
                    shares.setdefault(group.kind, []).append(group.refused(minimum, minimum))
        means = [float(np.mean(shares[kind])) for kind in ("own", "everyday", "foreign", "across")]
        print(f"{minimum:23}{means[0]:10.3f}{max(shares['own']):7.3f}{means[1]:9.3f}{means[2]:8.3f}{means[3]:8.3f}")
    return True


def several() -> bool:
    """Several datasets at once: refused when none of them is likely to hold an answer."""
    print("\nover four datasets at once, both lists, all four left out of the fit")
    met = True
    for sets in (NAMED, (*DEMO, "ru_faq_java")):
        fitted = without("both", frozenset(map(family, sets)))
        minimum = fitted[0].minimum
        off = [row[2] for row in _judged.tsv("off_topic.tsv")][1::2]
        share = float((_best(fitted, sets, off) < minimum).mean())
        print(f"{', '.join(sets)}:")
        met &= held(share >= 0.9, f"everyday questions refused: {share:.3f}, at least .90")
        for name in sets:
            if name in SETS or name == "demo_python":
                some = [one.text for one in own(name)[:200]]
                share = float((_best(fitted, sets, some) < minimum).mean())
                met &= held(share <= 0.03, f"questions of {name} refused: {share:.3f}, at most .03")
        some = [row[2] for row in _judged.tsv("python_questions.tsv") if row[1] != "en"]
        share = float((_best(fitted, sets, some) < minimum).mean())
        met &= held(share <= 0.05, f"Chinese and Russian questions on Python refused: {share:.3f}, at most .05")
    return met


def _best(fitted: Sequence[Relevance], sets: Sequence[str], texts: Sequence[str]) -> NDArray[np.float64]:
    """The highest probability over the datasets that one holds an answer, by question."""
    vectors = _judged.embedder().embed_queries(list(texts))
    found = []
    for name in sets:
        at = _judged.corpus(name)
        rows = [
            row_of(at.judge(text, _judged.searched_by(name, vector), {}), name, False)
            for text, vector in zip(texts, vectors, strict=True)
        ]
        found.append([one.best if one else 0.0 for one in judged(fitted, rows, 0)])
    best: NDArray[np.float64] = np.array(found).max(axis=0)
    return best


# ── by the real way ──────────────────────────────────────────────────────────────────────────────────────────────────


def workspace(names: Sequence[str] = (*NAMED, *DEMO)) -> pointsman.Workspace:
    """These datasets, with the vectors that are there already."""
    made = pointsman.open(_judged.KEPT / (f"workspace-{PASSAGES}" if PASSAGES else "workspace"))
    for name in dict.fromkeys(names):
        dataset = made.dataset(name)
        if not len(dataset):
            dataset.add(_judged.documents(name), vectors=_judged.corpus(name).vectors)
    return made


def path() -> bool:
    met = True
    made = workspace()
    half = [row[2] for row in _judged.tsv("off_topic.tsv")][1::2]

    def share(texts: Sequence[str], names: Sequence[str]) -> float:
        answers = made.search_many(list(texts), 5, datasets=list(names))
        return float(np.mean([answer.refused is not None for answer in answers]))

    print(f"{'refused by workspace.search':44}{'everyday':>9}{'own':>9}{'across':>9}")
    off: list[float] = []
    far: list[float] = []
    for names in (*((name,) for name in NAMED), NAMED, (*DEMO, "ru_faq_java")):
        of_own = [one.text for name in names if name in SETS or name == "demo_python" for one in own(name)[:200]]
        rows = [row[3] for row in _judged.tsv("cross_lingual.tsv") if row[0] in names]
        if "demo_python" in names:
            rows += [row[2] for row in _judged.tsv("python_questions.tsv") if row[1] != "en"]
        figures = share(half, names), share(of_own, names), share(rows, names)
        off, far = [*off, figures[0]], [*far, figures[2]]
        met &= figures[1] <= 0.03
        print(f"{', '.join(names)[:43]:44}" + "".join(f"{figure:9.3f}" for figure in figures), flush=True)
    for name in NAMED:
        _lost(made, name)
    one = len(NAMED)
    met &= held(np.mean(off[:one]) >= 0.9, f"everyday questions, one dataset: {np.mean(off[:one]):.3f}, at least .90")
    met &= held(min(off[one:]) >= 0.9, f"everyday questions, four datasets: {min(off[one:]):.3f}, at least .90")
    met &= held(np.mean(far) <= 0.05, f"on-topic questions across languages: {np.mean(far):.3f}, at most .05")
    met &= _one_relevance(made)
    return met & _price(made)


def _one_relevance(made: pointsman.Workspace) -> bool:
    """Whether one hit has one relevance for a question, however it is searched for."""
    widest: list[float] = []
    corrected: list[float] = []  # of hits that were judged for the question as it is spelt and as ``auto`` corrects it
    for name in NAMED:
        for judged_ in own(name)[:60]:
            pairs: dict[tuple[str, str], list[float]] = {}
            ways = [
                *((strategy, k, (name,)) for strategy in ("auto", "hybrid", "rrf", "z_score") for k in (1, 5, 50)),
                ("auto", 5, NAMED),
            ]
            for strategy, k, where in ways:
                answer = made.search(judged_.text, k, strategy=strategy, datasets=where, refuse=False)  # type: ignore[arg-type]
                for hit in answer:
                    if hit.dataset == name and hit.relevance is not None:
                        pairs.setdefault((hit.id, answer.query.text), []).append(hit.relevance)
            widest += [max(some) - min(some) for some in pairs.values() if len(some) > 1]
            of_hit: dict[str, list[float]] = {}
            for (id_, _), some in pairs.items():
                of_hit.setdefault(id_, []).append(some[0])
            corrected += [max(some) - min(some) for some in of_hit.values() if len(some) > 1]
    print(f"\n{len(widest)} hits in 13 ways: k 1, 5 and 50, four strategies, one dataset and four")
    if corrected:
        print(f"{len(corrected)} hits were also judged for a corrected spelling: {max(corrected):.4f} at most")
    met = held(
        median(widest) <= 0.01, f"one hit's relevance differs by at most .01 in the median: {median(widest):.4f}"
    )
    return met & held(max(widest) <= 0.05, f"by at most .05 in the worst case: {max(widest):.4f}")


def _lost(made: pointsman.Workspace, name: str) -> None:
    """How many of the questions refused across languages had an answer among the first five."""
    rows = [row for row in _judged.tsv("cross_lingual.tsv") if row[0] == name]
    if not rows:
        return
    texts, qrels = [row[3] for row in rows], read_collection(DATA / name).qrels
    refused = [answer.refused is not None for answer in made.search_many(texts, 5, datasets=[name])]
    answers = made.search_many(texts, 5, datasets=[name], refuse=False)
    good = [any(qrels[row[1]].get(hit.id, 0) > 0 for hit in answer) for row, answer in zip(rows, answers, strict=True)]
    both = sum(a and b for a, b in zip(refused, good, strict=True))
    print(
        f"{name} across languages: {len(rows)}, refused {sum(refused)}; with an answer among the first five: "
        f"{sum(good)}, refused {both}"
    )


def _price(made: pointsman.Workspace) -> bool:
    """What judging and refusing add to a search, with the vectors of the questions at hand.

    Milliseconds of the processor, as others use it too; each the least of several runs.
    """
    usual, dataset = made.engine, made.dataset("ru_faq_java")
    without = replace(usual, stages=replace(usual.stages, calibrations=()))
    least: dict[str, list[float]] = {"with": [], "without": []}
    for one in own("ru_faq_java")[:150]:
        requests = {
            name: SearchRequest.of(one.text, 5, options)
            for name, options in (("with", {}), ("without", {"refuse": False}))
        }
        usual.search(requests["with"], [dataset])
        taken: dict[str, list[float]] = {"with": [], "without": []}
        for _ in range(6):
            for name, engine in (("with", usual), ("without", without)):
                began = process_time()
                engine.search(requests[name], [dataset])
                taken[name].append((process_time() - began) * 1e3)
        for name, some in taken.items():
            least[name].append(min(some))
    whole, bare = median(least["with"]), median(least["without"])
    return held(
        whole - bare <= 0.3, f"at most .3 ms a search: {whole - bare:.3f} of {whole:.2f}, {whole / bare:.3f} times"
    )


# ── cost ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def languages() -> bool:
    print(f"share with an answer among the first five: alone -> together{PASSAGES_SAID}")
    for names in MIXED:
        made = workspace(names)
        asked: dict[str, list[Asked]] = {"own": [], "across": []}
        for name in names:
            queries, qrels = _judged.labels(name)
            stored, rows = made.dataset(name).store.keys, [(query, queries[query], "own") for query in [*queries][:100]]
            rows += [(row[1], row[3], "across") for row in _judged.tsv("cross_lingual.tsv") if row[0] == name]
            for query, text, kind in rows:
                good = frozenset(id_ for id_, grade in qrels.get(query, {}).items() if grade > 0)
                if stored(sorted(good)):
                    asked[kind].append((name, text, good))
        for kind, questions in asked.items():
            by_name = {name: [one for one in questions if one[0] == name] for name in names}
            for raised in (0.0, judging.RAISED):
                with patch.object(judging, "RAISED", raised):
                    shares = [
                        f"{name} {_found(made, [name], some):.2f} -> {_found(made, names, some):.2f}"
                        for name, some in by_name.items()
                        if some
                    ]
                print(f"{kind:7}{raised:3g}  {'  '.join(shares)}", flush=True)
    return True


def _found(made: pointsman.Workspace, names: Sequence[str], questions: Sequence[Asked]) -> float:
    """The share of questions with an answer among the first five."""
    answers = made.search_many([text for _, text, _ in questions], 5, datasets=list(names), refuse=False)
    hits = [
        any(hit.dataset == name and hit.id in good for hit in answer)
        for (name, _, good), answer in zip(questions, answers, strict=True)
    ]
    return float(np.mean(hits))


def mixed() -> bool:
    print(f"right first / refused, with the language of the question -> without{PASSAGES_SAID}\n")
    print(f"{'':14}" + "".join(f"{kind:>32}" for kind in MIXED_KINDS))
    for major, minors in BESIDE.items():
        documents, asked = _mixture(major, minors)
        cells: dict[str, list[str]] = {kind: [] for kind in MIXED_KINDS}
        with tempfile.TemporaryDirectory() as folder, pointsman.open(Path(folder)) as made:
            dataset = made.dataset("mixed")
            dataset.add(documents, vectors=_judged.embedder().embed_documents([one.searchable for one in documents]))
            for keeps_language in (True, False):
                dataset.remembered_background = None
                with patch.object(Background, "is_mixed", not keeps_language):
                    for kind, questions in asked.items():
                        cells[kind].append(_right_and_refused(made, questions))
        print(f"{major:14}" + "".join(f"{' -> '.join(cells[kind]):>32}" for kind in MIXED_KINDS), flush=True)
    return True


MIXED_KINDS = ("own", "own, other language", "across", "everyday")


def _mixture(major: str, minors: Sequence[str]) -> tuple[list[Document], dict[str, list[tuple[str, frozenset[str]]]]]:
    """Documents in several languages, and by kind the questions asked of them with the ids of their answers."""
    documents = [replace(one, id=f"{major}/{one.id}") for one in _judged.documents(major)]
    asked: dict[str, list[tuple[str, frozenset[str]]]] = {kind: [] for kind in MIXED_KINDS}
    asked["everyday"] = [(row[2], frozenset()) for row in _judged.tsv("off_topic.tsv")]
    queries, qrels = _judged.labels(major)
    asked["own"] = [(queries[query], _answers(major, qrels[query])) for query in [*queries][:150]]
    for minor in minors:
        by_id = {one.id: one for one in _judged.documents(minor)}
        collection, added = read_collection(DATA / minor), dict[str, Document]()
        for _, query, _, text in [row for row in _judged.tsv("cross_lingual.tsv") if row[0] == minor]:
            good = [id_ for id_, grade in collection.qrels[query].items() if grade > 0 and id_ in by_id]
            if good:
                added[good[0]] = replace(by_id[good[0]], id=f"{minor}/{good[0]}")
                answers = _answers(minor, collection.qrels[query])
                asked["across"].append((text, answers))
                asked["own, other language"].append((collection.queries[query], answers))
        documents += added.values()
    random.Random(0).shuffle(documents)
    return documents, asked


def _answers(name: str, grades: Mapping[str, int]) -> frozenset[str]:
    return frozenset(f"{name}/{id_}" for id_, grade in grades.items() if grade > 0)


def _right_and_refused(made: pointsman.Workspace, questions: Sequence[tuple[str, frozenset[str]]]) -> str:
    answers = made.search_many([text for text, _ in questions], 5)
    refused = float(np.mean([answer.refused is not None for answer in answers]))
    hits = [answer.refused.near_misses if answer.refused else answer.hits for answer in answers]
    right = [bool(some) and some[0].id in good for some, (_, good) in zip(hits, questions, strict=True)]
    return f"{np.mean(right):.3f} / {refused:.3f}"


def cost() -> bool:
    calibration, name = fit("both"), "en_scifact"
    questions, taken = own(name), {}
    for count in (5, 10, 100):
        times = []
        for one in questions:
            evidence, order = evidence_of(one, name), np.argsort(-one.cosine)[:count]
            began = process_time()
            calibration.judge(evidence, order.tolist())
            times.append((process_time() - began) * 1e3)
        taken[count] = median(times)
    print({count: f"{value:.3f} ms" for count, value in taken.items()})
    return held(max(taken.values()) <= 0.3, f"at most .3 ms for 5 to 100 hits: {max(taken.values()):.3f}")


# ── fitting ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def fitting(write: bool) -> bool:
    found = []
    for form in FORMS:
        values = asdict(fit(form))
        del values["correction"]  # one for all, which `folder_correction.py` fits
        for part in ("question", "hit"):
            values[part] = {
                "intercept": round(values[part]["intercept"], ROUND),
                "slopes": {name: round(slope, ROUND) for name, slope in values[part]["slopes"].items()},
            }
        found.append(values)
    about = (
        "Read by pointsman.retrieval.judge.relevance, which says what the features are. Fitted by: python "
        f"benchmarks/relevance.py fit --write. Collections: {', '.join((*SETS, *DEMO))}{PASSAGES_SAID}, people's own "
        "notes, and the 200 everyday questions against each. The corrections: python benchmarks/folder_correction.py "
        "--write."
    )
    path = Path(module.__file__).with_name("relevance.json")
    correction = json.loads(path.read_text("utf-8"))["correction"]
    text = json.dumps({"about": about, "correction": correction, "calibrations": found}, indent=2) + "\n"
    if write:
        path.write_text(text, "utf-8")
        print(f"written: {path}")
    else:
        print(text)
    return True


def held(good: bool | np.bool, what: str) -> bool:
    print(f"{'ok    ' if good else 'MISSED'} {what}")
    return bool(good)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sections: Mapping[str, object] = {
        "calibration": calibration,
        "refusal": refusal,
        "labels": lambda: labels() & stricter(),
        "path": path,
        "languages": languages,
        "mixed": mixed,
        "directions": directions,
        "cost": cost,
    }
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join((*sections, 'fit'))}")
    parser.add_argument("--write", action="store_true", help="put what is fitted into relevance.json")
    options = parser.parse_intermixed_args()
    if unknown := set(options.sections) - {*sections, "fit"}:
        parser.error(f"no section named {', '.join(sorted(unknown))}")
    met = True
    for name in options.sections or sections:
        print(f"── {name} ──\n")
        met &= fitting(options.write) if name == "fit" else sections[name]()  # type: ignore[operator]
        print()
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
