"""How well probabilities are calibrated, beside ``bayesian-bm25``: ``python benchmarks/beside_bayesian.py [SET…]``.

The package (https://pypi.org/project/bayesian-bm25) turns BM25 into probabilities by a logistic function whose slope
and midpoint it estimates from the documents, with and without a base rate. It gets the tokens of our analyser, BM25 in
Lucene's form with the same constants, the same documents and questions, and is scored on the hits of its own order:
the first one, or the first ten where every hit was judged (with a star in the table). Ours are calibrations that the
collection's family was left out of, from both lists and from words alone. ECE in ten bins of equal count, for all.

Collections and what is kept of them: see ``relevance.py``. Needs the extra ``bench``.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

import numpy as np

import _judged
from _judged import SETS
from pointsman.retrieval.judge.relevance import FIRST
from pointsman.text import DEFAULT_ANALYZER
from pointsman.workspace.calibration.dataset_calibration import ece
from relevance import COMPLETE, COPY, PASSAGES_SAID, groups, shown, sources

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

BASE_RATES = (None, "auto")


def beside(name: str, base_rate: str | None) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The package's probabilities of the hits that count, and whether each is relevant."""
    from bayesian_bm25 import BayesianBM25Scorer

    corpus, (queries, qrels) = _judged.corpus(name), _judged.labels(name)
    scorer = BayesianBM25Scorer(k1=1.2, b=0.75, method="lucene", base_rate=base_rate)
    tokens = [DEFAULT_ANALYZER.tokens(document.searchable) for document in _judged.documents(name)]
    scorer.index([list(some) or [""] for some in tokens], show_progress=False)
    chances: list[float] = []
    labels: list[bool] = []
    for query, text in queries.items():
        probabilities = scorer.get_probabilities(list(DEFAULT_ANALYZER.query_tokens(text)))
        order = np.argsort(-probabilities, kind="stable")[:FIRST]
        order = order[probabilities[order] > 0]
        if name == "en_cranfield":
            order = order[~np.isin(order, sources(text))]
        order = order[: FIRST if name in COMPLETE else 1]
        good = np.array([corpus.place[id_] for id_, grade in qrels[query].items() if grade > 0 and id_ in corpus.place])
        relevant = np.isin(order, good)
        if len(good):
            relevant |= (corpus.vectors[order] @ corpus.vectors[good].T).max(axis=1, initial=-1) >= COPY
        chances += probabilities[order].tolist()
        labels += relevant.tolist()
    return np.array(chances, float), np.array(labels, bool)


def row(name: str) -> list[float]:
    """The errors of both lists, of words alone, and of the package without and with a base rate."""
    errors = []
    for form in ("both", "words"):
        group = next(one for one in groups(form) if (one.kind, one.label) == ("own", name))
        errors.append(ece(*shown(group, form)))
    return errors + [ece(*beside(name, base_rate)) for base_rate in BASE_RATES]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", metavar="SET", default=SETS, help="collections; by default all")
    rows = []
    print(f"| set | both lists | words | bayesian-bm25 | with a base rate |\n|---|---|---|---|---|{PASSAGES_SAID}")
    for name in parser.parse_args(arguments).sets:
        rows.append(row(name))
        star = r" \*" if name in COMPLETE else ""
        print(f"| {name}{star} | {' | '.join(f'{error:.3f}' for error in rows[-1])} |", flush=True)
    print(f"| mean | {' | '.join(f'{error:.3f}' for error in np.mean(rows, axis=0))} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
