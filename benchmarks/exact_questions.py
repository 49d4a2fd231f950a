"""Exact things in real questions, code and words of one's own: rows of what numbers, syntax and synonyms must keep to.

    python benchmarks/exact_questions.py [counts] [quotes] [identifiers] [synonyms] [size]

- counts: questions with digits of four collections and questions made of counts, limits, ages and years, in three
  languages; the relevance of right hits with the rule of exact names, and without it
- quotes: all questions of the development data with quotation marks, and those with ``-``, ``+`` or ``:``: how many
  of them are obeyed, and nDCG@10 of these, obeyed and as plain words
- identifiers: 300 names that stand in one file each, of the standard library's modules and the logs of this machine,
  and 150 of its packages; asked whole, in another case, in another notation and by their parts
- synonyms: 60 groups in three languages, two-way and one-way; files that were written; twins with a hidden word
- size: bytes of a stored collection, without vectors; run it in two checkouts to compare
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import sysconfig
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import pointsman
from _data import DATA
from pointsman import Document, Settings
from pointsman.embedders import HashingEmbedder
from pointsman.evaluation import read_collection
from pointsman.workspace.calibration.reranking import ndcg

COUNTED = {
    "en": ("the {n} largest pumps", "pumps under {n} euros", "what changed since {y}?", "a plan for {n} years in {y}"),
    "ru": ("{n} самых больших насосов", "насосы до {n} рублей", "что изменилось с {y} года?", "детям до {n} лет в {y}"),
    "zh": ("最大的{n}个水泵", "{n}元以下的水泵", "{y}年以来有什么变化？", "{y}年{n}岁以下的儿童"),
}
IDENTIFIER = re.compile(r"[A-Za-z][a-z]+(?:_[a-z]+)+|[a-z]+(?:[A-Z][a-z]+)+|(?:[A-Z][a-z]+){2,}|[A-Z]+(?:_[A-Z]+)+")
PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
LANGUAGES = ("alpha {} beta", "редкий {} термин", "罕见{}词语")


def counts() -> None:
    """Compare the relevance of right hits with and without the rule of exact names."""
    from pointsman.text.designations import designations

    draw, named, figures = random.Random(45), Counter[str](), Counter[str]()
    made = [
        question.format(n=draw.choice((3, 12, 45, 150, 300, 2500)), y=draw.randint(1950, 2026))
        for questions in COUNTED.values()
        for question in questions
        for _ in range(20)
    ]
    print(f"made: {len(made)} questions, {sum(bool(designations(question)) for question in made)} taken for names")
    off = mock.patch("pointsman.retrieval.search.designations", return_value=())
    with tempfile.TemporaryDirectory() as folder, pointsman.open(folder) as workspace:
        for name in ("en_xquad", "ru_xquad", "zh_xquad", "en_cranfield"):
            collection = read_collection(DATA / name)
            workspace.dataset(name).add(collection.documents)
            digits = [key for key, text in collection.queries.items() if re.search(r"\d", text)]
            for key in digits:
                question = collection.queries[key]
                with_rule = workspace.search(question, 10, datasets=name, refuse=False)
                with off:
                    without = workspace.search(question, 10, datasets=name, refuse=False)
                right = {document for document, grade in collection.qrels.get(key, {}).items() if grade > 0}
                levels = [
                    {hit.id: hit.relevance or 0 for hit in answer.hits if hit.id in right}
                    for answer in (with_rule, without)
                ]
                figures["questions"] += 1
                named[name] += bool(designations(question))
                for document in levels[0].keys() | levels[1].keys():
                    change = levels[0].get(document, 0) - levels[1].get(document, 0)
                    figures["right hits"] += 1
                    figures[
                        "right hits that fell" if change < 0 else "right hits that rose" if change > 0 else "equal"
                    ] += 1
                    if change < 0:
                        print(f"  fell by {-change:.2f}: {question[:100]}")
    print(f"collections: {dict(figures)}; taken for names: {dict(named)}")


def quotes() -> None:
    """Count what is obeyed of real questions, and compare nDCG@10 with their plain words."""
    groups = {"quotation marks": re.compile('["«»“”「」]'), "- + :": re.compile(r"(?<!\S)[-+]\S|:\S|：")}
    figures: dict[str, list[Any]] = {name: [0, 0, 0, [], []] for name in groups}
    for path in sorted(DATA.iterdir()):
        if not (path / "qrels.tsv").exists() or path.name == "route_dev":
            continue
        collection = read_collection(path)
        asked = {
            key: text for key, text in collection.queries.items() if any(sign.search(text) for sign in groups.values())
        }
        if not asked:
            continue
        with tempfile.TemporaryDirectory() as folder, pointsman.open(folder, embedder=HashingEmbedder()) as workspace:
            workspace.dataset("all", indexing_technique="keyword").add(collection.documents)
            for key, question in asked.items():
                answer = workspace.search(question, 10, strategy="bm25", refuse=False)
                obeyed = [decision for decision in answer.plan.decisions if decision.what == "syntax"]
                grades = collection.qrels.get(key, {})
                for name, sign in groups.items():
                    if not sign.search(question):
                        continue
                    own = figures[name]
                    own[0] += 1
                    own[1] += bool(obeyed)
                    own[2] += bool(obeyed) and bool(re.search(r"[?？.。]\s*$", question))
                    if obeyed:
                        plain = workspace.search(question, 10, strategy="bm25", refuse=False, syntax="plain")
                        own[3].append(ndcg([hit.id for hit in answer.hits], grades, 10))
                        own[4].append(ndcg([hit.id for hit in plain.hits], grades, 10))
                        print(f"  {path.name} {own[3][-1]:.2f} {own[4][-1]:.2f} {question[:100]!r} {obeyed[0].value!r}")
    for name, (asked_count, obeyed_count, sentences, obeyed_scores, plain_scores) in figures.items():
        means = [sum(scores) / max(len(scores), 1) for scores in (obeyed_scores, plain_scores)]
        print(
            f"{name}: {asked_count} questions, {obeyed_count} obeyed, {sentences} of them sentences; "
            f"nDCG@10 of the obeyed {means[0]:.4f}, as plain words {means[1]:.4f}"
        )


def identifiers() -> None:
    """Ask for names that stand in one file each."""
    library = Path(sysconfig.get_paths()["stdlib"])
    draw = random.Random(45)
    paths = [path for path in sorted(library.glob("*.py")) if 3_000 < path.stat().st_size < 40_000]
    files = (
        draw.sample(paths, 70) + [path for path in sorted(Path("/var/log").rglob("*.log")) if path.stat().st_size][:5]
    )
    _ask_identifiers("modules and logs", draw, files, 300)
    packages = [path for path in sorted(library.glob("[a-z]*/*.py")) if 3_000 < path.stat().st_size < 40_000]
    _ask_identifiers("packages", draw, draw.sample([path for path in packages if path.stem[0] != "_"], 75), 150)


def _ask_identifiers(title: str, draw: random.Random, files: list[Path], count: int) -> None:
    texts = {path.name: path.read_text(errors="replace")[:40_000] for path in files}
    files_of: dict[str, set[str]] = {}
    for name, text in texts.items():
        for identifier in set(IDENTIFIER.findall(text)):
            files_of.setdefault(" ".join(PARTS.findall(identifier)).lower(), set()).add(f"{name}\t{identifier}")
    own = [next(iter(places)).split("\t") for parts, places in files_of.items() if len(places) == 1 and len(parts) > 9]
    chosen, figures = draw.sample(sorted(own), count), Counter[str]()
    with tempfile.TemporaryDirectory() as folder, pointsman.open(Path(folder) / "work") as workspace:
        source = Path(folder) / "files"
        source.mkdir()
        for name, text in texts.items():
            (source / name).write_text(text)
        workspace.index(source)
        for name, identifier in chosen:
            parts = PARTS.findall(identifier)
            forms = {
                "whole": identifier,
                "in a sentence": f"where is {identifier} used?",
                "in another case": identifier.upper() if identifier != identifier.upper() else identifier.lower(),
                "in another notation": "_".join(parts).lower()
                if "_" not in identifier
                else "".join(map(str.title, parts)),
                "in parts": " ".join(parts).lower(),
            }
            for form, question in forms.items():
                hits = workspace.search(question, 5).hits
                figures[form] += bool(hits) and hits[0].metadata["source"] == name
    print(f"{title}, right file first:", ", ".join(f"{form} {right / count:.3f}" for form, right in figures.items()))


def synonyms() -> None:
    """Ask with 60 groups of own words; look at files that were written, and at twins."""
    asked_words = {
        "en": [
            first + last for first in ("bru", "cle", "dro", "sta", "fli") for last in ("mzon", "gvek", "plot", "shur")
        ],
        "ru": [
            first + last for first in ("бру", "кла", "дро", "стя", "хре") for last in ("мзон", "гвак", "плет", "шнур")
        ],
        "zh": [first + last for first in "鹭翡琉璁瓴" for last in "鸢鲛麒麓"],
    }
    held_words = {
        "en": [
            f"{first} {last}"
            for first in ("amber", "cobalt", "umber", "indigo", "olive")
            for last in ("jig", "wedge", "yoke", "quoin")
        ],
        "ru": [
            f"{first} {last}"
            for first in ("янтарный", "медный", "оливковый", "лунный", "зимний")
            for last in ("хомут", "клин", "штуцер", "якорь")
        ],
        "zh": [
            first + last
            for first in ("琥珀", "青铜", "橄榄", "月光", "冬季")
            for last in ("夹具", "楔子", "轭铁", "锚链")
        ],
    }
    groups = [
        (language, asked, held_words[language][number], number % 2)
        for language, words in asked_words.items()
        for number, asked in enumerate(words)
    ]
    lines = [f"{asked} => {held}" if one_way else f"{asked}, {held}" for _, asked, held, one_way in groups]
    sentence = {
        "en": "The {} keeps the valve shut at night.",
        "ru": "Прибор {} закрывает клапан ночью.",
        "zh": "{}在夜间关闭阀门。",
    }
    filler = [
        Document(f"f{n}", f"{text.format(word)} {n}")
        for n, (text, word) in enumerate(
            (text, word) for text in sentence.values() for word in ("pump", "насос", "水泵", "boiler")
        )
    ]
    documents = [
        *(Document(f"{n}", sentence[language].format(held)) for n, (language, _, held, _) in enumerate(groups)),
        *filler,
    ]
    searched = first = backwards = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "own.txt"
        path.write_text("\n".join(lines))
        with pointsman.open(Path(folder) / "work", settings=Settings(synonyms=str(path))) as workspace:
            workspace.dataset("notes").add(documents)
            before = {
                file: (file.stat().st_mtime_ns, file.stat().st_size)
                for file in (Path(folder) / "work").rglob("*")
                if file.suffix in {".idx", ".pos", ".term", ".store"}
            }
            for n, (_, asked, held, one_way) in enumerate(groups):
                for strategy in ("auto", "bm25", "hybrid"):
                    answer = workspace.search(asked, 3, strategy=strategy, refuse=False)
                    searched += f"your synonyms also {held!r}" in str(answer.trace)
                    first += bool(answer.hits) and answer.hits[0].id == f"{n}"
                backwards += one_way and "synonym" in str(workspace.search(held, 3, refuse=False).trace)
            path.write_text("\n".join([*lines, "zorgon, valve"]))
            workspace.search("zorgon", refuse=False)
            after = {file: (file.stat().st_mtime_ns, file.stat().st_size) for file in before}
        changed = sum(before[file] != after[file] for file in before)
        print(f"{searched} of {3 * len(groups)} applied, the right one first {first}; backwards {backwards}")
        print(f"index files changed by questions and a changed file: {changed} of {len(before)}")
        answers = []
        for twin in range(2):
            with pointsman.open(Path(folder) / f"twin{twin}", settings=Settings(synonyms=str(path))) as workspace:
                notes = workspace.dataset("notes")
                notes.add(filler, access=["everyone"])
                if twin:
                    notes.add(documents[: len(groups)], access=["group:board"])
                workspace.switch_access(on=True)
                answers.append(
                    [
                        [
                            (hit.id, hit.score, hit.relevance)
                            for hit in workspace.search(question, 5, principals=[], refuse=False).hits
                        ]
                        for _, asked, held, _ in groups
                        for question in (asked, held)
                    ]
                )
        differ = sum(first != second for first, second in zip(*answers, strict=True))
        print(f"twins with a hidden word of a group: {differ} of {len(answers[0])} answers differ")


def size() -> None:
    """Print the bytes of stored collections."""
    for name in ("en_xquad", "ru_xquad", "zh_xquad", "en_cranfield", "mh_hotpotqa"):
        folder = tempfile.mkdtemp()
        with pointsman.open(folder, embedder=HashingEmbedder()) as workspace:
            workspace.dataset(name, indexing_technique="keyword").add(read_collection(DATA / name).documents)
        print(f"{name}: {sum(file.stat().st_size for file in Path(folder).rglob('*') if file.is_file()):,} bytes")
        shutil.rmtree(folder)


ROWS = {row.__name__: row for row in (counts, quotes, identifiers, synonyms, size)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW")
    for row in parser.parse_args().rows or ROWS:
        ROWS[row]()
