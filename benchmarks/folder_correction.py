"""How often first hits are right in people's folders: fits what corrects `hit.relevance`, and says how well.

    python benchmarks/folder_correction.py [--write]

Asked of the folders of ``verdicts.py``, ours and those of strangers; for each kind of evidence by the strategy that
searches with it alone. Two numbers are fitted (`pointsman.retrieval.judge.relevance`, ``correction``): what is added to
the logit of the best hit's relevance, and how much faster the others fall behind it. A hit is right if it is in a file
that answers. In folders of strangers such files have many passages, so that a later hit in one counts as half right;
the later hits of a question count as much as its first one. Printed is the calibration error of first and of later
hits, before and after, each folder corrected by numbers that were fitted to the others; with ``--write`` the numbers
fitted to all are put into relevance.json. Vectors and words alone are corrected as both lists are, so that limits of
verdicts mean the same for them; their own numbers differ little.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from unittest.mock import patch

import numpy as np

import pointsman
from _checkouts import CHECKOUTS, why_missing, write_checkout
from _folder_files import write_folder
from folders import FOLDERS
from pointsman.retrieval.judge import relevance as module
from pointsman.retrieval.judge.relevance import Form, Relevance, sigmoid
from pointsman.workspace.calibration.dataset_calibration import ece
from verdicts import of_folder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pointsman.retrieval.request import SearchOptions

HITS = 5
OPTIONS: dict[Form, SearchOptions] = {
    "both": {"refuse": False},
    "vector": {"refuse": False, "strategy": "vector"},
    "words": {"refuse": False, "strategy": "bm25"},
}


class Shown(NamedTuple):
    """A hit: its folder, rank, logit without a correction and that below the best hit's, and how right it is."""

    folder: str
    rank: int
    logit: float
    below_best: float
    right: float


def shown(workspace: pointsman.Workspace, name: str, options: SearchOptions) -> list[Shown]:
    """Ask the questions of a folder."""
    hits = []
    for question in of_folder(name):
        answer = workspace.search(question.text, HITS, datasets=[name], **options)
        judged = [hit for hit in answer.hits if hit.relevance is not None]
        logits = [float(np.log(hit.relevance / (1 - hit.relevance))) for hit in judged if hit.relevance is not None]
        for rank, (hit, logit) in enumerate(zip(judged, logits, strict=True)):
            right = float(hit.metadata.get("source") in question.answers)
            share = right if rank == 0 or name in FOLDERS else right / 2
            hits.append(Shown(name, rank, logit, max(logits) - logit, share))
    return hits


def columns(hits: Sequence[Shown]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The logits, shape ``(n,)``, and what the two numbers are multiplied by, shape ``(n, 2)``."""
    return np.array([hit.logit for hit in hits]), np.array([(1.0, hit.below_best) for hit in hits])


def fitted(hits: Sequence[Shown]) -> NDArray[np.float64]:
    """The two numbers, by Newton's method."""
    logits, features = columns(hits)
    right = np.array([hit.right for hit in hits])
    weights = np.array([1.0 if hit.rank == 0 else 1 / (HITS - 1) for hit in hits])
    numbers = np.zeros(2)
    for _ in range(50):
        chances = sigmoid(logits + features @ numbers)
        curve = (features.T * (weights * chances * (1 - chances))) @ features
        numbers = numbers + np.linalg.solve(curve, features.T @ (weights * (right - chances)))
    return numbers


def corrected(hits: Sequence[Shown], numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """The relevance of hits, corrected by these numbers."""
    logits, features = columns(hits)
    return np.asarray(sigmoid(logits + features @ numbers))


def errors(hits: Sequence[Shown], relevance: NDArray[np.float64], whose: Callable[[Shown], bool]) -> float:
    """The calibration error of some hits."""
    mine = np.array([whose(hit) for hit in hits])
    return ece(relevance[mine], np.array([hit.right > 0 for hit in hits])[mine])


def print_errors(form: Form, hits: Sequence[Shown], fitted_to: Sequence[Shown]) -> None:
    """Print the calibration error, each folder corrected by what was fitted to the others."""
    names = dict.fromkeys(hit.folder for hit in hits)
    left_out = {name: fitted([hit for hit in fitted_to if hit.folder != name]) for name in names}
    before = corrected(hits, np.zeros(2))
    after = np.concatenate([corrected([hit for hit in hits if hit.folder == name], left_out[name]) for name in names])
    spread = np.std(list(left_out.values()), axis=0)
    own = "" if hits is fitted_to else f"; by its own hits {fitted(hits).round(2)}"
    print(f"{form}: {fitted(fitted_to).round(2)}, ± {spread.round(2)} with each folder left out{own}")
    groups: dict[str, Callable[[Shown], bool]] = {
        "first hits, ours": lambda hit: hit.rank == 0 and hit.folder in FOLDERS,
        "first hits, strangers": lambda hit: hit.rank == 0 and hit.folder not in FOLDERS,
        "later hits, ours": lambda hit: hit.rank > 0 and hit.folder in FOLDERS,
    }
    for group, whose in groups.items():
        if any(map(whose, hits)):
            print(f"  {group:24}{errors(hits, before, whose):7.3f} →{errors(hits, after, whose):6.3f}")


def main() -> None:
    """Fit, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the numbers into relevance.json")
    is_written = parser.parse_args().write
    by_form: dict[Form, list[Shown]] = {form: [] for form in OPTIONS}
    chances = Relevance.chances
    with (
        tempfile.TemporaryDirectory() as directory,
        pointsman.open(Path(directory) / "index") as workspace,
        patch.object(Relevance, "chances", lambda self, *features: chances(replace(self, correction=None), *features)),
    ):
        for name in (*FOLDERS, *CHECKOUTS):
            if name in CHECKOUTS and (reason := why_missing(name)):
                print(f"{name}: left out, {reason}")
                continue
            (write_folder if name in FOLDERS else write_checkout)(name, Path(directory) / name)
            workspace.index(Path(directory) / name, name)
            for form, options in OPTIONS.items():
                by_form[form] += shown(workspace, name, options)
    for form, hits in by_form.items():
        print_errors(form, hits, by_form["both"])
    if is_written:
        path = Path(module.__file__).with_name("relevance.json")
        text = json.loads(path.read_text("utf-8"))
        intercept, slope = fitted(by_form["both"]).round(2).tolist()
        text["correction"] = {"intercept": intercept, "slopes": {"below_best": slope}}
        path.write_text(json.dumps(text, indent=2) + "\n", "utf-8")
        print(f"written: {path}")


if __name__ == "__main__":
    main()
