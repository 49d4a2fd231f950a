"""Quotes: altered ones that pass, true ones that do not; and answers found again through the citation of a passage.

    python benchmarks/citations.py [--quotes 10000]

Quotes are stretches of XQuAD's (English, Russian, Chinese) and CMRC's passages between words; each is altered in up to
twelve ways, and an alteration counts if it stands in none of the hits. The hits of a quote are its passage and four
others. Answers are those of ``compression_answers.tsv``: each collection is one file of one section, cut into passages,
each citation must lead back to its text, and an answer is in one passage, or in two neighbours that meet within it.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from _data import DATA
from altered_quotes import alterations, quote_from, stands_in
from pointsman.ingest import read_paths, text_of
from pointsman.values.answer_check import verify
from pointsman.values.citations import cite
from pointsman.values.types import Document, Hit

COLLECTIONS = ("en_xquad", "ru_xquad", "zh_xquad", "zh_cmrc2018")
ANSWERS = Path(__file__).with_name("compression_answers.tsv")


def passages(name: str) -> dict[str, str]:
    records = map(json.loads, (DATA / name / "corpus.jsonl").read_text("utf-8").splitlines())
    return {record["_id"]: record["text"] for record in records}


def check_quotes(name: str, count: int) -> None:
    """True quotes and altered ones, among five hits each."""
    rng = random.Random(name)
    texts = list(passages(name).values())
    true: Counter[str] = Counter()
    altered: Counter[str] = Counter()
    began, checked = time.process_time(), 0
    while altered.total() < count:
        chosen = rng.sample(texts, 5)
        quote = quote_from(chosen[0], rng)
        if quote is None:
            continue
        hits = [Hit(Document(str(number), text), 1.0) for number, text in enumerate(chosen)]
        true[status(quote, hits)] += 1
        checked += 1
        for one in alterations(quote, rng):
            if not stands_in(one, chosen):
                altered[status(one, hits)] += 1
                checked += 1
    took = 1000 * (time.process_time() - began) / checked
    print(
        f"{name:12} {true.total():6} true: {true['exact']} exact, {true['near']} near, "
        f"{true['unsupported']} unsupported;"
        f" {altered.total():6} altered: {altered['exact']} exact, {altered['near']} near,"
        f" {altered['unsupported']} unsupported; {took:.2f} ms each"
    )


def status(quote: str, hits: list[Hit]) -> str:
    (claim,) = (claim for claim in verify(f"«{quote}»", hits).claims if claim.kind == "quote")
    return claim.status


def locate_answers(name: str) -> None:
    """Answers that one passage of the collection, cut as one section, holds and leads back to."""
    texts = passages(name)
    begins: dict[str, int] = {}
    position = 0
    for identity, text in texts.items():
        begins[identity] = position
        position += len(text) + 1
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "all.txt")
        path.write_text(" ".join(text.replace("\n", " ") for text in texts.values()), "utf-8")
        citations = [cite(Hit(one, 1.0)) for item in read_paths([path]) for one in item.documents]
        whole = text_of(path)
    assert all(whole[one.start : one.end] == one.quote for one in citations)
    spans = [(one.start or 0, one.end or 0) for one in citations]
    located = torn = wanted = 0
    for line in ANSWERS.read_text("utf-8").splitlines():
        collection, _, identity, *span = line.split("\t")
        if collection != name:
            continue
        start, end = (begins[identity] + int(place) for place in span)
        whole_in = [one for one in spans if one[0] <= start and end <= one[1]]
        across = [
            one for one, other in pairwise(spans) if one[0] <= start and other[0] <= one[1] + 1 and end <= other[1]
        ]
        wanted += 1
        located += bool(whole_in)
        torn += not whole_in and bool(across)
    print(
        f"{name:12} {wanted:6} answers, {len(spans)} passages: {located} in one ({located / wanted:.3f}), {torn} in two"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quotes", type=int, default=10_000, help="altered quotes in all")
    arguments = parser.parse_args()
    for name in COLLECTIONS:
        check_quotes(name, arguments.quotes // len(COLLECTIONS))
    for name in COLLECTIONS:
        locate_answers(name)


if __name__ == "__main__":
    main()
