"""What `golden` asks: questions, options, filters, and the documents to ask them of."""

from __future__ import annotations

import csv
import json
import random
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from _data import DATA
from pointsman import Document, ScriptedLLM

SENTENCES: Final = (
    "A railway switch guides trains from one track to another.",
    "A red signal stops every train before the station.",
    "The yard of the city opens at six and closes at midnight.",
    "Green tea is brewed below boiling point; black tea is not.",
    "Стрелочный перевод направляет поезд с одного пути на другой.",
    "Красный сигнал останавливает поезд перед станцией.",
    "道岔使列车由一股道转入另一股道。",
    "红色信号使列车在车站前停车，环保设备净化空气。",
)
TECHNIQUES: Final = {"rails": "hybrid", "город": "hybrid", "words": "keyword", "near": "vector"}
QUESTIONS: Final = (
    "railway switch", "what stops a train?", "compare green tea and black tea", "railway swtich", "Rule 7", "поезд",
    "чем отличается сигнал от стрелки?", "道岔", "红色信号和道岔的区别是什么?", "zzzz qqqq", "when does the yard open",
    "How do I brew green tea, and at which temperature?", "signal", "列车在哪里停车", "E-4711", "the capital of France",
    '"red signal" -tea', "title:Rule", "what is the latest rule of 2019?", "trains after 2010-01-01", "",
)  # fmt: skip
STRATEGIES: Final[Sequence[Any]] = (
    "auto", "hybrid", "bm25", "vector", "dense", "rrf", "weighted_rrf", "min_max", "z_score", "dbsf", "round_robin",
    "decomposition", "multi_query", "compression", "prf", "parent_child", "sparse", "hyde", "query2doc", "hybird",
)  # fmt: skip
FUSIONS: Final = ("rrf", "weighted_rrf", "min_max", "z_score", "dbsf", "round_robin")
SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "default": {},
    "a strategy": {"default_retrieval_strategy": "rrf", "bm25_k1": 0.6, "bm25_b": 0.2},
    "no choice": {"enable_strategy_auto_selection": False, "enable_reranker_by_default": False},
    "by the look": {"policy": "heuristic", "decomposition_max_subqueries": 2, "multi_query_variants": ("correction",)},
    "short excerpts": {"default_retrieval_strategy": "compression", "compression_max_length": 60},
    "a model": {"query2doc_num_expansions": 2, "decomposition_max_subqueries": 3},
}
OPTIONS: Final[Sequence[Mapping[str, Any]]] = (
    {"k": 1}, {"k": 12}, {"rerank": True}, {"rerank": False}, {"refuse": True}, {"refuse": False},
    {"min_relevance": 0.0}, {"min_relevance": 0.3}, {"min_relevance": 1.0}, {"coverage": 0.9}, {"spelling": False},
    {"effort": "fast"}, {"effort": "thorough"}, {"timeout": 300.0}, {"as_of": "2012-06-30"}, {"group_by": "lang"},
    {"group_by": "year", "group_size": 2}, {"group_by": "title", "k": 12}, {"filters": "year >= 2010"},
    {"filters": {"lang": "ru"}}, {"filters": "year > 3000"}, {"datasets": ["rails"]}, {"datasets": "near"},
    {"datasets": ["words", "near", "empty"]}, {"datasets": ["empty"]}, {"datasets": ["typo"]},
    {"principals": ["user:anna"]}, {"refuse": False, "rerank": False, "effort": "fast", "spelling": False},
)  # fmt: skip
FILTERS: Final[Sequence[Any]] = (
    "year = 2003", "year != 2003", "year >= 2010", "year < 2003 or year > 2020", 'lang in ["en", "zh"]',
    'lang not in ["en", "zh"]', 'lang in ["en", "zh"] and not year = 2003', "not (lang = ru or year >= 2005)",
    "exists(tags)", "not exists(tags)", "tags = red", 'tags in ["red", "blue"]', "note = null", "note != null",
    "exists(note)", "author.name = Anna", "author.age >= 40", "author.age > 40 and author.name startswith A",
    'title contains "Rule 1"', 'title icontains "rule 1"', 'title startswith "Rule 2"', 'title iendswith "7"',
    '_id = "0-3"', '_id in ["0-3", "0-4", "nobody"]', '_text contains "red signal"', '_text icontains "ПОЕЗД"',
    "big = 9007199254740993", "big > 9007199254740992", "price >= 1.5", "price = 2", "flag = true", "flag = false",
    "on >= 2020-01-01", "on < 2021-06-15 and on >= 2020-06-15", "year >= 2000 and year <= 2001", "lang = RU",
    {"lang": "ru"}, {"year": {"gte": 2010, "lt": 2015}}, {"lang": {"in": ["en", "ru"]}}, {"tags": {"exists": True}},
    {"$not": {"lang": "en"}}, {"$and": [{"lang": "en"}, {"year": {"gt": 2005}}]},
    {"$or": [{"lang": "zh"}, {"year": 2001}]},
    {"title": {"contains": "Rule"}}, {"note": None}, {"year": {"ne": 2003}}, {"_id": "0-3"}, {},
    "year >=", "year ~ 3", "lang = ", "(year = 3", "year = 3 and", "in [1]", {"year": {"above": 3}}, {"and": 3},
    {"$and": 3}, 7,
    {"year": {"gte": "x" * 200}}, "a" * 5000, "year = 3 or " * 400 + "year = 4", "_access = anna", "year in []",
)  # fmt: skip
COLLECTIONS: Final = (
    "en_scifact", "en_cranfield", "en_cacm", "en_wikiqa", "en_xquad", "ru_xquad", "ru_faq_java", "xl_debian_ru",
    "xl_xquad_en_zh_ru", "zh_cmrc2018", "zh_domainrag", "mh_hotpotqa", "mh_musique_train100", "tool_metatool_train",
)  # fmt: skip
MEANT: Final = ("en_xquad", "ru_faq_java", "zh_domainrag", "mh_hotpotqa")
"""Those that are also searched by the default embedder."""
LABELLED: Final[Sequence[dict[str, Any]]] = (
    *({}, {"coverage": 0.8}, {"coverage": 0.95}, {"refuse": False}, {"min_relevance": 0.5}),
)
"""Options of searches where relevance is fitted."""
POLICIES: Final[Sequence[dict[str, Any]]] = (
    {"vector_weight": 0.4}, {"strategy": "rrf"}, {"additions": {"multi_query": {"synonym": 0.5}}},
)  # fmt: skip


def documents(seed: int, count: int) -> list[Document]:
    """Passages of two sentences each, of different years and languages, with metadata of every type."""
    chance = random.Random(seed)
    made = []
    for number in range(count):
        metadata: dict[str, Any] = {
            "year": 2000 + number % 25,
            "lang": chance.choice(["en", "ru", "zh"]),
            "title": f"Rule {number}",
            "author": {"name": chance.choice(["Anna", "Boris"]), "age": 20 + number},
            "big": 9007199254740990 + number,
            "price": number / 4,
            "flag": number % 3 == 0,
            "on": f"{2019 + number % 4}-0{1 + number % 9}-15",
        }
        if number % 4 == 0:
            metadata |= {"tags": chance.sample(["red", "green", "blue"], 2), "note": None}
        text = " ".join(chance.sample(SENTENCES, 2)) + f" Rule {number} of {seed}."
        made.append(Document(f"{seed}-{number}", text, metadata))
    return made


def family(seed: int) -> list[Document]:
    """Parents with children, for the strategies that merge them."""
    chance, made = random.Random(seed), []
    for number in range(6):
        made.append(Document(f"p{number}", " ".join(SENTENCES[number : number + 3]), {"title": f"Chapter {number}"}))
        made += [
            Document(f"p{number}c{part}", chance.choice(SENTENCES) + f" Part {part}.", {"parent": f"p{number}"})
            for part in range(3)
        ]
    return made


def versions(seed: int) -> list[Document]:
    """Clauses with amendments, valid from and to days."""
    chance, made = random.Random(seed), []
    for number in range(12):
        text = f"Clause {number}. {chance.choice(SENTENCES)}"
        made.append(Document(f"c{number}", text, {"valid_from": "2010-01-01", "title": f"Clause {number}"}))
        if number % 2:
            metadata = {"valid_from": f"201{number % 8}-05-01", "version_of": f"c{number}"}
            made.append(Document(f"a{number}", f"Clause {number} now says: {chance.choice(SENTENCES)}", metadata))
        if number % 3 == 0:
            made.append(Document(f"o{number}", f"Once: {text}", {"valid_from": "2001-01-01", "valid_to": "2009-12-31"}))
    return made


def model() -> ScriptedLLM:
    """A language model that answers by the very words of the prompt, so that a change of one shows."""
    return ScriptedLLM(lambda prompt: f"A red signal; a railway switch {zlib.crc32(prompt.encode()) % 1000}")


def always(text: str) -> ScriptedLLM:
    """A language model that always answers the same."""
    return ScriptedLLM(lambda _: text)


def part_of(name: str, queries: int, passages: int) -> tuple[list[Document], dict[str, str]]:
    """Some questions of a collection, and passages of it, those that answer them included."""
    lines = (json.loads(line) for line in (DATA / name / "queries.jsonl").open("rb"))
    every = {line["_id"]: line["text"] for line in lines}
    chosen = dict(list(every.items())[:: max(1, len(every) // queries)][:queries])
    with (DATA / name / "qrels.tsv").open(encoding="utf-8", newline="") as file:
        relevant = {row[1] for row in list(csv.reader(file, delimiter="\t"))[1:] if row[0] in chosen and row[2] != "0"}
    drawn: list[Document] = []
    for number, line in enumerate((DATA / name / "corpus.jsonl").open("rb")):
        row = json.loads(line)
        if row["_id"] in relevant or (number % 3 == 0 and len(drawn) < passages):
            metadata = {"title": row["title"]} if row.get("title") else {}
            drawn.append(Document(row["_id"], row["text"], {**metadata, "number": number}))
    return drawn, chosen
