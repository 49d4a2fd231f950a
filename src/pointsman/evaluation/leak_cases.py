"""Random cases for the leak test: what both copies hold, who asks, and what."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pointsman.retrieval.request import OPTIONS
from pointsman.values.types import Document
from pointsman.values.views import ACCESS, VALID_FROM, VERSION_OF, Permissions

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping, Sequence

_ENGLISH: Final = (
    "railway signal train station yard switch lamp ticket engine bridge tunnel whistle platform schedule freight brake "
    "driver cable crossing timetable salary contract budget audit invoice merger lawsuit bonus"
)


_RUSSIAN: Final = (
    "поезд сигнал станция стрелка путь вагон билет машинист мост тоннель расписание платформа договор зарплата бюджет "
    "проверка счёт премия увольнение секретный"
)


_CHINESE: Final = "铁路信号 列车 车站 道岔 时刻表 车票 司机 隧道 合同 工资 预算 审计 发票 奖金"


_WORDS: Final = {"en": _ENGLISH.split(), "ru": _RUSSIAN.split(), "zh": _CHINESE.split()}


_GROUPS: Final = ("everyone", "group:rail", "group:money", "group:law", "group:news", "user:anna", "user:boris")


_STRATEGIES: Final = ("auto", "auto", "auto", "hybrid", "bm25", "vector", "rrf", "z_score", "multi_query")


@dataclass(frozen=True, slots=True)
class Write:
    """One write to a dataset: documents that are added, or ids that are deleted."""

    dataset: str
    documents: tuple[Document, ...] = ()
    deleted: tuple[str, ...] = ()
    access: tuple[tuple[str, Permissions], ...] = ()


@dataclass(frozen=True, slots=True)
class TwinCase:
    """A random case: writes, who asks, and what.

    Attributes:
        techniques: by dataset, what is indexed.
        writes: in order.
        asker: the principals of whoever asks.
        questions: requests, each as a door and its arguments.
    """

    techniques: Mapping[str, str]
    writes: tuple[Write, ...]
    asker: tuple[str, ...]
    questions: tuple[tuple[str, Mapping[str, Any]], ...]


def random_case(
    chance: random.Random, questions: int = 20, samples: Sequence[tuple[str, str, Sequence[Document]]] = ()
) -> TwinCase:
    """Return a case with some documents that whoever asks may not see.

    Args:
        chance: draws everything.
        questions: their number.
        samples: by dataset, its technique and documents that come first.
    """
    asker = tuple(sorted(chance.sample(_GROUPS[1:], chance.choice([0, 1, 1, 2, 3]))))
    techniques = {name: technique for name, technique, _ in samples} or {
        name: chance.choice(["hybrid", "hybrid", "hybrid", "keyword", "vector"])
        for name in chance.sample(["notes", "файлы", "档案"], chance.choice([1, 1, 2]))
    }
    writes = [Write(name, tuple(documents)) for name, _, documents in samples]
    for name in techniques:
        writes += _random_writes(chance, name)
    documents = [document for write in writes for document in write.documents]
    return TwinCase(
        techniques,
        tuple(writes),
        asker,
        tuple(random_question(chance, techniques, documents) for _ in range(questions)),
    )


def _random_writes(chance: random.Random, dataset: str) -> Iterator[Write]:
    ids = [f"{chance.choice('abc')}-{number}" for number in range(chance.choice([8, 20, 60, 120]))]
    batch: list[Document] = []
    for number, id_ in enumerate(ids):
        batch.append(_random_document(chance, id_, number))
        if chance.random() < 0.03:
            yield Write(dataset, tuple(batch))
            batch = []
            yield from _random_change(chance, dataset, ids[: number + 1])
    yield Write(dataset, tuple(batch))
    yield from _random_change(chance, dataset, ids)


def _random_change(chance: random.Random, dataset: str, ids: Sequence[str]) -> Iterator[Write]:
    kind, selection = chance.random(), chance.sample(ids, min(len(ids), 3))
    if kind < 0.25:
        yield Write(dataset, deleted=tuple(selection))
    elif kind < 0.5:
        yield Write(dataset, tuple(_random_document(chance, id_, 0) for id_ in selection))
    elif kind < 0.75:
        yield Write(dataset, access=tuple((id_, _random_permissions(chance)) for id_ in selection))


def _random_permissions(chance: random.Random) -> Permissions:
    allowed_groups = chance.sample(_GROUPS, chance.choice([0, 1, 1, 1, 2]))
    denied_groups = chance.sample(_GROUPS[1:], 1) if chance.random() < 0.2 else []
    return Permissions(frozenset(allowed_groups), frozenset(denied_groups))


def _random_text(chance: random.Random) -> str:
    words = _WORDS[chance.choice(["en", "en", "ru", "zh"])]
    count = chance.choice([3, 8, 20, 60])
    text = [chance.choice(words) for _ in range(count)]
    if chance.random() < 0.3:
        text.append("".join(chance.choice("bdgklmnoprstuvz" if n % 2 else "aeiou") for n in range(9)))
    joint = "" if words is _WORDS["zh"] else " "
    sentences = [joint.join(text[start : start + 10]) for start in range(0, len(text), 10)]
    return ("。" if not joint else ". ").join(sentences) + ("。" if not joint else ".")


def _random_document(chance: random.Random, id_: str, number: int) -> Document:
    metadata: dict[str, Any] = {"year": 2000 + chance.randrange(25), "lang": chance.choice(["en", "ru", "zh"])}
    if chance.random() < 0.4:
        metadata |= {"source": f"file{number // 4}.md", "position": number, "start": 100 * number}
    if chance.random() < 0.3:
        metadata["title"] = _random_text(chance)[:30]
    if chance.random() < 0.1:
        metadata[f"key{chance.randrange(5)}"] = chance.choice(["x", 1, True])
    if chance.random() < 0.1:
        metadata[VALID_FROM] = f"{2000 + chance.randrange(30)}-03-01"
        if chance.random() < 0.5:
            metadata[VERSION_OF] = f"{chance.choice('abc')}-{chance.randrange(20)}"
    if chance.random() < 0.95:
        metadata[ACCESS] = _random_permissions(chance).to_metadata()
    return Document(id_, _random_text(chance), metadata)


def _random_query(chance: random.Random, documents: Sequence[Document]) -> str:
    if not documents or chance.random() < 0.05:
        return chance.choice(["?", "zzzz", "поезд", "列车", "what is the capital of France?"])
    words = re.findall(r"\w+", chance.choice(documents).text) or ["train"]
    selection = [chance.choice(words)[:12] for _ in range(chance.choice([1, 2, 3, 6]))]
    if chance.random() < 0.4:  # a slip
        index = chance.randrange(len(selection))
        word = selection[index]
        position = chance.randrange(max(1, len(word)))
        selection[index] = word[:position] + chance.choice("aeiouкот") + word[position + 1 :]
    if chance.random() < 0.15:
        selection.append(chance.choice(["2012", "latest", "последний", "最新"]))
    return " ".join(selection)


def random_question(
    chance: random.Random, techniques: Mapping[str, str], documents: Sequence[Document]
) -> tuple[str, Mapping[str, Any]]:
    """Return a door and its arguments."""
    name, document = chance.choice(list(techniques)), chance.choice(documents) if documents else Document("x", "x")
    query = _random_query(chance, documents)
    filters = chance.choice([None, None, None, "year >= 2010", 'lang in ["en", "zh"] and not year = 2003', "key1 = x"])
    options: dict[str, Any] = {"k": chance.choice([1, 3, 5, 20]), "strategy": chance.choice(_STRATEGIES)}
    if filters is not None:
        options["filters"] = filters
    if chance.random() < 0.5:
        options["refuse"] = False
    if chance.random() < 0.2:
        options.update({name: 0.3 for name, option in OPTIONS.items() if option.bounds.get("le") == 1})
    if chance.random() < 0.3:
        options["datasets"] = [name]
    if chance.random() < 0.1:
        options["as_of"] = f"{2000 + chance.randrange(30)}-06-01"
    door = chance.choice(_DOORS)
    requests: dict[str, Mapping[str, Any]] = {
        "search": {"query": query, **options},
        "explain": {"query": query, "document_id": document.id, **options},
        "search_many": {"queries": [query, _random_query(chance, documents)], **options},
        "route": {"query": query},
        "documents": {"dataset": name, "id": document.id, "source": document.metadata.get("source", "file0.md")},
        "http": {"query": query, "dataset": name, "id": document.id, "filters": filters, **options},
        "mcp": {
            "query": query,
            "dataset": name,
            "id": f"{name}/{document.id}",
            "source": document.metadata.get("source", "file0.md"),
            "word": query.split()[0] if query.split() else "a",
            **options,
        },
    }
    return door, requests[door]


_DOORS: Final = ("search", "search", "search", "explain", "search_many", "route", "documents", "http", "mcp")
