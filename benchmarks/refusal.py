"""What refusing refuses, and what thinning out costs.

    python benchmarks/refusal.py             what the shipped calibrations do on collections and queries not fitted on
    python benchmarks/refusal.py fit         fit them anew, with each collection left out in turn; prints refusal.json
    python benchmarks/refusal.py small       on 3, 10, 30 and 100 documents
    python benchmarks/refusal.py odd         on one word, a code, a typo, gibberish
    python benchmarks/refusal.py drop        nDCG@10 and recall@10 when hits are dropped one by one
    python benchmarks/refusal.py diversity   nDCG@10 with near duplicates dropped, and with MMR

Collections are read from ``$POINTSMAN_TEST_DATA``, else from ``../shared/data`` beside the repository; embeddings come
from the cache where they are there.

A query of a collection counts as answerable from it, and from the same collection in another language; the query of
another collection as not, unless the two may well overlap (see ``overlap``). Collections in ``FITTED`` are fitted on,
with one half of all queries; the others are reported, with the other half. So nothing reported was fitted on: neither
documents nor queries, answerable or not.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pointsman.dataset import Dataset
from pointsman.evaluation import TestCollection, compare, indexed, measure, read_collection
from pointsman.models import CachedEmbedder, default_embedder
from pointsman.retrieval.diversity import Diversifier
from pointsman.retrieval.refuse import LOOKED_AT, Evidence, Refuser, RelevanceCalibration, Threshold, evidence_of
from pointsman.text import detect
from pointsman.types import Document, Query, Ranked
from quality import DATA, sampled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pointsman.workspace import Workspace

XQUAD = {"en_xquad", "zh_xquad", "ru_xquad", "xl_xquad_en_zh_ru"}
ENCYCLOPAEDIAS = XQUAD | {"en_wikiqa", "zh_cmrc2018", "mh_hotpotqa", "mh_musique_train100"}
ULTRATOOL = {"tool_ultratool_en_dev", "tool_ultratool_zh_dev"}
TOOLS = ULTRATOOL | {"tool_sealtools_dev", "tool_metatool_train"}
COMPUTING = {"ru_faq_java", "en_cacm", "xl_debian_ru"}
FITTED = XQUAD | {"zh_cmrc2018", "en_scifact", "en_wikiqa", "en_cacm", "ru_faq_java", "tool_metatool_train"}
REPORTED = (
    *("en_cranfield", "mh_hotpotqa", "mh_musique_train100", "zh_domainrag", "xl_debian_ru"),
    *("tool_sealtools_dev", *sorted(ULTRATOOL)),
)
OVERLAPS = [
    *({"en_scifact", name} for name in (*XQUAD, "en_wikiqa")),  # medicine
    *({"en_cacm", name} for name in (*XQUAD, "en_wikiqa", "en_cranfield")),  # complexity, numerical methods
    *({"tool_metatool_train", name} for name in ENCYCLOPAEDIAS),  # its users ask about everything
]
LANGUAGES = ("en", "zh", "ru")
OWN, FOREIGN = 300, 60  # queries of the collection itself, and of each other one
FALSE_REFUSALS = 0.05
NAMES = sorted(FITTED | set(REPORTED))


@dataclass(frozen=True)
class Asked:
    """One query put to one collection.

    Attributes:
        corpus: whose documents were searched, and ``source`` whose query it is.
        source: see ``corpus``.
        answerable: whether they hold an answer.
        held_out: which half of the queries it belongs to.
        same: whether it is in the language of its hits.
        evidence: of the first hits.
        words_only: of the first hits of a search by words alone.
        cosine: the best.
        bm25: the best.
        relevant: whether the first hit is judged relevant.
        refused: whether the shipped default refuses, with both indexes and by words alone; None: nothing was found.
    """

    corpus: str
    source: str
    text: str
    answerable: bool
    held_out: bool
    same: bool
    evidence: tuple[Evidence, ...]
    words_only: tuple[Evidence, ...]
    cosine: float
    bm25: float
    relevant: bool
    refused: tuple[bool | None, bool | None]

    @property
    def language(self) -> str:
        """The query's."""
        return detect(self.text)


def overlap(corpus: str, source: str) -> bool:
    """Whether the documents of one collection may well answer queries of another."""
    if corpus in TOOLS:  # there is a tool for nearly everything: searching the web
        return True
    both = {corpus, source}
    if both <= ENCYCLOPAEDIAS:
        # 240 paragraphs about 48 subjects do not answer many questions made for other articles
        return not (corpus in XQUAD and source in {"zh_cmrc2018", "mh_hotpotqa", "mh_musique_train100"})
    if both <= COMPUTING and (corpus, source) != ("ru_faq_java", "xl_debian_ru"):
        return True
    return (corpus in COMPUTING and source in TOOLS) or both in OVERLAPS


def answerable(corpus: str, source: str) -> bool:
    return corpus == source or {corpus, source} <= XQUAD or {corpus, source} <= ULTRATOOL


def half(source: str, query: str) -> bool:
    return bool(hashlib.md5(f"{source}{query}".encode()).digest()[0] & 1)


def ask(names: Sequence[str]) -> Iterator[Asked]:
    """All queries to all of these collections."""
    embedder = CachedEmbedder(default_embedder())
    collections = {name: read_collection(DATA / name) for name in NAMES}
    chance = random.Random(1)
    chosen = {
        name: chance.sample(list(collection.queries), min(OWN, len(collection.queries)))
        for name, collection in collections.items()
    }
    for name in names:
        refuser = Refuser(embedder=embedder.name)
        with indexed(collections[name], embedder) as workspace:
            for source in NAMES:
                if source != name and not answerable(name, source) and overlap(name, source):
                    continue
                for query in chosen[source][: OWN if source == name else FOREIGN]:
                    text = collections[source].queries[query]
                    held_out = half(source, query)
                    if held_out == (name in FITTED):
                        continue
                    grades = collections[name].qrels.get(query, {}) if source == name else {}
                    yield asked(workspace, refuser, name, source, text, held_out, grades)
        tell(f"{name} asked")


def asked(
    workspace: Workspace,
    refuser: Refuser,
    corpus: str,
    source: str,
    text: str,
    held_out: bool,
    grades: Mapping[str, int],
) -> Asked:
    query = Query(text)
    both, words = search(workspace, query), search(workspace, query, method="bm25")
    scores = {source: [0.0] for source in ("bm25", "vector")}
    for hit in both.hits:
        for one in hit.provenance:
            if one.source in scores:
                scores[one.source].append(one.score or 0.0)
    language = detect(text)
    return Asked(
        corpus,
        source,
        text,
        answerable(corpus, source),
        held_out,
        all(detect(hit.document.searchable[:300]) == language for hit in both.hits[:LOOKED_AT]),
        tuple(found for hit in both.hits[:LOOKED_AT] if (found := evidence_of(query, hit))),
        tuple(found for hit in words.hits[:LOOKED_AT] if (found := evidence_of(query, hit))),
        max(scores["vector"]),
        max(scores["bm25"]),
        bool(both.hits) and grades.get(both.hits[0].id, 0) > 0,
        (is_refused(refuser, query, both), is_refused(refuser, query, words)),
    )


def search(workspace: Workspace, query: Query | str, count: int = 10, method: str = "hybrid") -> Ranked:
    """What the workspace's dataset has to say, before anything is refused."""
    (dataset,) = workspace
    return look(dataset, query, count, method)


def look(dataset: Dataset, query: Query | str, count: int = 10, method: str = "hybrid") -> Ranked:
    scale = "calibrated" if method == "hybrid" else method
    return Ranked(tuple(dataset.retriever(method).retrieve(query, count)), scale)


def is_refused(refuser: Refuser, query: Query, ranked: Ranked) -> bool | None:
    return refuser.refine(query, ranked, 10).refused is not None if ranked.hits else None


# -- fitting -----------------------------------------------------------------------------------------------------------


def fit(rows: Sequence[Asked], *, words_only: bool) -> RelevanceCalibration:
    """A calibration; of the first hits of a query the likeliest counts, which is found in a few rounds.

    Every collection weighs as much as every other, and so do its answerable and its other queries.
    """
    rows = [row for row in rows if row.same and first_hits(row, words_only)]
    counts = Counter((row.corpus, row.answerable) for row in rows)
    weights = [1 / counts[row.corpus, row.answerable] for row in rows]
    own = [] if words_only or sum(row.language == "zh" for row in rows) < 100 else ["zh"]
    chosen = [first_hits(row, words_only)[0] for row in rows]
    for _ in range(5):
        found = RelevanceCalibration.fit(
            chosen,
            [row.answerable for row in rows],
            embedder=None if words_only else default_embedder().name,
            own_offset=own,
            weights=weights,
        )
        chosen = [max(first_hits(row, words_only), key=lambda one: found.probability(one) or 0.0) for row in rows]
    return found


def first_hits(row: Asked, words_only: bool) -> tuple[Evidence, ...]:
    return row.words_only if words_only else row.evidence


def probability(calibration: RelevanceCalibration, evidence: Sequence[Evidence]) -> float:
    """That of the answer: the best among the first hits; 1 where it cannot be judged."""
    found = [calibration.probability(one) for one in evidence]
    return max((1.0 if one is None else one for one in found), default=0.0)


def print_fit() -> None:
    rows = [row for row in ask(sorted(FITTED)) if row.language in LANGUAGES]
    result = []
    for words_only, minimum in ((False, 0.03), (True, 0.05)):
        calibration = fit(rows, words_only=words_only)
        languages = {name: calibration.languages[name] for name in LANGUAGES}
        rounded = {name: round(value, 2) for name, value in asdict(calibration).items() if isinstance(value, float)}
        result.append(
            {"embedder": calibration.embedder, **rounded}
            | {"languages": {name: round(value, 2) for name, value in languages.items()}, "minimum": minimum}
        )
        print(f"\n{'by words alone' if words_only else 'cosine and words'}: each collection left out in turn;")
        print("false refusals / true refusals at a minimum of")
        levels = (0.02, 0.03, 0.05, 0.1)
        print(f"{'':20}" + "".join(f"{level:>14}" for level in levels))
        rates = []
        for name in sorted(FITTED):
            family = XQUAD if name == "xl_xquad_en_zh_ru" else {name}
            other = fit([row for row in rows if row.corpus not in family], words_only=words_only)
            here = [row for row in rows if row.corpus == name and row.same]
            chances = np.array([probability(other, first_hits(row, words_only)) for row in here])
            good = np.array([row.answerable for row in here])
            rates.append([[rate(chances[good] < level), rate(chances[~good] < level)] for level in levels])
            print(f"{name:20}" + "".join(f"{wrong:8.3f} {right:.3f}" for wrong, right in rates[-1]))
        means = np.mean(rates, axis=0)
        print(f"{'mean':20}" + "".join(f"{wrong:8.3f} {right:.3f}" for wrong, right in means))
    print("\n" + json.dumps({"calibrations": result}, indent=2))


# -- reporting ---------------------------------------------------------------------------------------------------------


def print_report() -> None:
    refuser = Refuser()
    by_both, by_words = (
        next(one for one in refuser.calibrations if (one.embedder is None) == words) for words in (False, True)
    )
    rows = list(ask(REPORTED))
    # Negatives of the fitted collections are asked of documents fitted on; their queries of the other half are new.
    print("1. Same language, collections and queries not fitted on.")
    print(f"   True refusals at {FALSE_REFUSALS:.0%} false refusals (AUC), thresholds set per language:\n")
    print(f"{'':10}{'queries':>14}{'calibrated':>18}{'cosine':>18}{'BM25':>18}{'words alone':>18}")
    same = [row for row in rows if row.same]
    for language in (*LANGUAGES, "all"):
        here = [row for row in same if language in {row.language, "all"}]
        # tool collections have no queries that they surely cannot answer; their own would only set the threshold
        here = [row for row in here if row.corpus not in TOOLS]
        good = np.array([row.answerable for row in here])
        scores = {
            "calibrated": [probability(by_both, row.evidence) for row in here],
            "cosine": [row.cosine for row in here],
            "BM25": [row.bm25 for row in here],
            "words alone": [probability(by_words, row.words_only) for row in here],
        }
        cells = (separation(np.array(values), good) for values in scores.values())
        print(f"{language:10}{f'{good.sum()} + {(~good).sum()}':>14}" + "".join(f"{cell:>18}" for cell in cells))
        if language == "all":
            chances = np.array(scores["calibrated"])
            print(f"\n   ECE of the probability {calibration_error(chances, good):.3f}, ", end="")
            print(f"by words alone {calibration_error(np.array(scores['words alone']), good):.3f} ", end="")
            print("(answerable and not weigh alike)")
    print(f"\n2. The shipped default ({by_both.minimum:g}; by words alone {by_words.minimum:g}), same language.\n")
    print(f"{'':24}{'top hit relevant':>18}{'false refusals':>24}{'true refusals':>24}")
    for name in REPORTED:
        here = [row for row in same if row.corpus == name]
        own, other = [row for row in here if row.answerable], [row for row in here if not row.answerable]
        judged = rate([row.relevant for row in own if row.source == name])
        print(f"{name:24}{judged:18.3f}{outcome(own):>24}{outcome(other):>24}")
    print("\n3. Asked in another language than the hits: not judged, so never refused.\n")
    foreign = [row for row in rows if not row.same]
    for label, part in (
        ("answerable", [row for row in foreign if row.answerable]),
        ("not answerable", [row for row in foreign if not row.answerable]),
    ):
        print(f"{label:24}{outcome(part):>24}")


def outcome(rows: Sequence[Asked]) -> str:
    """The share refused with both indexes, by words alone (where something was found), and of how many."""
    if not rows:
        return "-"
    found = ([bool(row.refused[way]) for row in rows if row.refused[way] is not None] for way in (0, 1))
    return " / ".join(f"{rate(values):.3f}" for values in found) + f" of {len(rows)}"


def separation(scores: NDArray[np.float64], good: NDArray[np.bool_]) -> str:
    if good.all() or not good.any():
        return "-"
    threshold = np.quantile(scores[good], FALSE_REFUSALS)
    return f"{rate(scores[~good] < threshold):.3f} ({auc(scores, good):.3f})"


def auc(scores: NDArray[np.float64], good: NDArray[np.bool_]) -> float:
    """How often an answerable query scores higher than another; a tie counts half."""
    above = np.searchsorted(np.sort(scores[~good]), scores[good], "left")
    level = np.searchsorted(np.sort(scores[~good]), scores[good], "right")
    return float((above + level).mean() / 2 / (~good).sum())


def calibration_error(chances: NDArray[np.float64], good: NDArray[np.bool_]) -> float:
    """ECE over ten equal bins, as if there were as many queries of the one kind as of the other."""
    weights = np.where(good, 0.5 / good.sum(), 0.5 / (~good).sum())
    bins = np.minimum((chances * 10).astype(int), 9)
    gaps = [abs(((chances - good) * weights)[bins == one].sum()) for one in range(10)]
    return float(sum(gaps))


def rate(values: Sequence[bool] | NDArray[np.bool_]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


# -- small datasets and odd queries ------------------------------------------------------------------------------------


def print_small() -> None:
    """Queries answerable from a handful of documents, and the same ones asked of a handful of others' documents."""
    embedder = CachedEmbedder(default_embedder())
    collections = {name: read_collection(DATA / name) for name in ("mh_hotpotqa", "zh_domainrag", "xl_debian_ru")}
    others = {"mh_hotpotqa": "en_cranfield", "zh_domainrag": "zh_cmrc2018", "xl_debian_ru": "ru_xquad"}
    print("false / true refusals of the shipped default in datasets of few documents; both indexes | words alone\n")
    print(f"{'':18}" + "".join(f"{f'{size} documents':>40}" for size in (3, 10, 30, 100)))
    for name, collection in collections.items():
        cells = []
        foreign = [text for query, text in read_collection(DATA / others[name]).queries.items() if half("", query)]
        for size in (3, 10, 30, 100):
            chance = random.Random(size)
            counts: dict[tuple[bool, int], list[bool]] = {(good, way): [] for good in (True, False) for way in (0, 1)}
            for _ in range(max(4, 60 // size)):
                queries = chance.sample(list(collection.queries), min(3, size))
                wanted = {document for query in queries for document in collection.qrels[query]}
                rest = [document for document in collection.documents if document.id not in wanted]
                kept = [document for document in collection.documents if document.id in wanted][:size]
                kept += chance.sample(rest, max(0, size - len(kept)))
                found = {document.id for document in kept}
                with Dataset("few", embedder=embedder) as dataset:
                    dataset.add(kept)
                    questions = [(collection.queries[q], True) for q in queries if collection.qrels[q].keys() & found]
                    questions += [(text, False) for text in chance.sample(foreign, 5)]
                    for text, good in questions:
                        for way, method in enumerate(("hybrid", "bm25")):
                            counts[good, way].append(refuses(dataset, text, embedder.name, method))
            parts = (f"{rate(counts[True, way]):.2f} / {rate(counts[False, way]):.2f}" for way in (0, 1))
            cells.append(" | ".join(parts) + f" of {len(counts[True, 0])} + {len(counts[False, 0])}")
        print(f"{name:18}" + "".join(f"{cell:>40}" for cell in cells), flush=True)


def refuses(dataset: Dataset, text: str, embedder: str, method: str = "hybrid") -> bool:
    return Refuser(embedder=embedder).refine(Query(text), look(dataset, text, method=method), 10).refused is not None


ODD = {
    "in the documents": (
        "E1234 | E1234 error | Kafka | Bergmann | timeout | vpn | how do i reset my passwrod | vacation days | "
        "refund policy | what does error E1234 mean? | wer ist Frau Bergmann? | how many days off do I get | кафка | "
        "таймаут | отпуск | как сбросить парль | сколько дней отпуск | 卡夫卡 | 超时 | 年假 | 怎么重置密码"
    ),
    "not in the documents": (
        "asdf qwer | ??? | qwertyuiop | zxcvbn asdfgh | blorptastic fnord | capital of France | recipe for borscht | "
        "who won the world cup in 1998 | E9999 | Zimmermann | photosynthesis | йцукен | рецепт борща | фотосинтез | "
        "кто выиграл чемпионат мира | 呜呜呜嘎嘎 | 红烧肉的做法 | 光合作用 | 谁赢得了世界杯"
    ),
}
SMALL_WORLD = [
    "Error E1234: the connection to the broker timed out. Raise the timeout in settings.toml and restart the service.",
    "To reset your password open the login page, choose 'Forgot password' and follow the link in the mail.",
    "Every employee has 28 vacation days per year; ask your manager two weeks ahead.",
    "Ms Bergmann leads the Berlin office. Her assistant books rooms.",
    "Refund policy: goods can be returned within 30 days for a full refund.",
    "Messages go through Apache Kafka; topics are kept for seven days.",
    "The VPN needs a hardware token. Ask the help desk for one.",
    "Чтобы сбросить пароль, откройте страницу входа и нажмите «Забыли пароль?».",
    "Отпуск составляет 28 календарных дней в году, заявление подаётся за две недели.",
    "Таймаут соединения с брокером настраивается в файле settings.toml.",
    "Сообщения передаются через Kafka (Кафка) и хранятся семь дней.",
    "重置密码：打开登录页面，点击“忘记密码”，按照邮件中的链接操作。",
    "员工每年有二十八天年假，需提前两周申请。",
    "与消息代理的连接超时可以在 settings.toml 中设置。",
    "消息通过卡夫卡（Kafka）传递，保存七天。",
]


def print_odd() -> None:
    """Each question is put to the documents in its own language: one-liners, the hardest case."""
    embedder = CachedEmbedder(default_embedder())
    refuser = Refuser(embedder=embedder.name)
    for label, questions in ODD.items():
        print(f"\n{label}:")
        for text in questions.split(" | "):
            language = detect(text) if detect(text) in LANGUAGES else "en"
            documents = [Document(str(row), one) for row, one in enumerate(SMALL_WORLD) if detect(one) == language]
            answers = []
            with Dataset("odd", embedder=embedder) as dataset:
                dataset.add(documents)
                for method in ("hybrid", "bm25"):
                    answer = refuser.refine(Query(text), look(dataset, text, method=method), 10)
                    answers.append(f"{'REFUSED' if answer.refused else 'passes '} {answer.detail[:50]}")
            print(f"  {text:32} {answers[0]:62} words alone: {answers[1]}")


# -- what it costs -----------------------------------------------------------------------------------------------------


def print_drop() -> None:
    print("nDCG@10 and recall@10 when hits are dropped one by one below a probability; p from a paired test\n")
    shown = ("as is", "refused", "≥ 0.02", "≥ 0.05", "≥ 0.1", "≥ 0.2")
    print(f"{'':22}" + "".join(f"{label:>24}" for label in shown))
    embedder = CachedEmbedder(default_embedder())
    for name in (*REPORTED, *sorted(FITTED)):
        if name == min(FITTED):
            print("fitted on, but for these queries:")
        collection = held_out(sampled(read_collection(DATA / name)))
        refusers = {"as is": None, "refused": Refuser(embedder=embedder.name)} | {
            f"≥ {least:g}": Refuser(minimum=0, thresholds=Threshold("probability", least), embedder=embedder.name)
            for least in (0.02, 0.05, 0.1, 0.2)
        }
        rankings: dict[str, dict[str, list[str]]] = {label: {} for label in refusers}
        with indexed(collection, embedder) as workspace:
            for number, text in collection.queries.items():
                ranked = search(workspace, text)
                for label, refuser in refusers.items():
                    kept = ranked if refuser is None else refuser.refine(Query(text), ranked, 10)
                    rankings[label][number] = [hit.id for hit in kept.hits]
        print_costs(name, collection, rankings)


def print_diversity() -> None:
    print("nDCG@10 and recall@10 after thinning out at default settings (30 candidates); p from a paired test\n")
    refiners = {
        "as is": None,
        "near duplicates 0.9": Diversifier(near_duplicates=0.9),
        "MMR 0.7": Diversifier(mmr_lambda=0.7),
        "MMR 0.9": Diversifier(mmr_lambda=0.9),
    }
    print(f"{'':22}" + "".join(f"{label:>24}" for label in refiners))
    embedder = CachedEmbedder(default_embedder())
    for name in ("en_cranfield", "zh_domainrag", "ru_faq_java"):
        collection = read_collection(DATA / name)
        rankings: dict[str, dict[str, list[str]]] = {label: {} for label in refiners}
        with indexed(collection, embedder) as workspace:
            for number, text in collection.queries.items():
                ranked = search(workspace, text, 30)
                for label, refiner in refiners.items():
                    kept = ranked if refiner is None else refiner.refine(Query(text), ranked, 10)
                    rankings[label][number] = [hit.id for hit in kept.hits[:10]]
        print_costs(name, collection, rankings)


def held_out(collection: TestCollection) -> TestCollection:
    kept = [query for query in collection.queries if half(collection.name, query)]
    return replace(
        collection,
        queries={query: collection.queries[query] for query in kept},
        qrels={query: collection.qrels[query] for query in kept},
    )


def print_costs(name: str, collection: TestCollection, rankings: dict[str, dict[str, list[str]]]) -> None:
    """Both measures for each ranking, and what its nDCG differs by from the first, with p."""
    figures = {label: measure(collection.qrels, found) for label, found in rankings.items()}
    before = next(iter(figures.values()))
    cells = []
    for label, after in figures.items():
        cell = f"{after.means['ndcg@10']:.4f} {after.means['recall@10']:.3f}"
        if label != "as is":
            cell += f" p={compare(after.per_query['ndcg@10'], before.per_query['ndcg@10']).p:.3f}"
        cells.append(cell)
    print(f"{name:22}" + "".join(f"{cell:>24}" for cell in cells), flush=True)


def tell(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text}\033[K", end="\r", file=sys.stderr)


MODES = {
    "report": print_report,
    "fit": print_fit,
    "small": print_small,
    "odd": print_odd,
    "drop": print_drop,
    "diversity": print_diversity,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=MODES, default="report")
    what = parser.parse_args().what
    absent = [name for name in NAMES if not Path(DATA / name).is_dir()]
    if absent:
        print(f"not in {DATA}: {', '.join(absent)}; set POINTSMAN_TEST_DATA to where they are", file=sys.stderr)
        return 2
    MODES[what]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
