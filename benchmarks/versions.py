"""Versions: whether the one in force is first, and whether a day is answered as of that day.

    python benchmarks/versions.py [--pairs 200] [--embedder default|hashing] [--misses]

Contracts in English, Chinese and Russian, each clause with an amendment that changes one figure. Half of the amendments
do not even name their subject ("The period in this clause is now six months."), so that no list finds them; half refer
to the clause by its heading, half by the document's id. Every question is asked four times: as it is; of the same
documents without what they say of versions; as of a day before the amendment; and as of a day after it. The clauses and
questions were written once, before anything was measured. ``--misses`` shows what is first where another document is,
with its score, and the score of what was wanted.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pointsman
from pointsman import Document
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.values.views import VALIDITY_KEYS

SUBJECTS = {
    "en": """the street lighting; the cleaning of the town hall; the delivery of school meals; the upkeep of lifts; the
        supply of road salt; the rental of the ice rink; the translation of forms; the printing of ballots; the guarding
        of the museum; the tuning of pianos; the disposal of old batteries; the lease of the boathouse; the repair of
        drinking fountains; the care of the plane trees; the transport of library books; the roofing of the market hall;
        the telephone exchange""",
    "ru": """уличное освещение; уборку ратуши; доставку школьных обедов; обслуживание лифтов; поставку дорожной соли;
        аренду катка; перевод бланков; печать бюллетеней; охрану музея; настройку роялей; вывоз старых батареек; аренду
        лодочной станции; ремонт питьевых фонтанов; уход за платанами; перевозку библиотечных книг; кровлю рыночного
        павильона; телефонную станцию""",
    "zh": """路灯照明; 市政厅保洁; 学校午餐配送; 电梯维护; 道路融雪盐供应; 溜冰场租赁; 表格翻译; 选票印刷; 博物馆保安;
        钢琴调音; 废旧电池处理; 船库租赁; 饮水台维修; 梧桐树养护; 图书馆书籍运输; 市场大厅屋顶工程; 电话交换机""",
}
CLAUSES = {  # heading, clause, amendment that names the subject, one that does not, question
    "en": [
        (
            "Termination",
            "Either party may end the contract for {subject} by giving {value} months of written notice.",
            "From now on, a party that ends the contract for {subject} gives {value} months of notice.",
            "The period in this clause is now {value} months.",
            "How long before its end must the contract for {subject} be cancelled?",
        ),
        (
            "Payment",
            "The customer pays invoices for {subject} within {value} days of receipt.",
            "Invoices for {subject} now fall due {value} days after receipt.",
            "The time in this clause is now {value} days.",
            "When does the customer have to pay the invoices for {subject}?",
        ),
        (
            "Warranty",
            "The contractor warrants the work under the contract for {subject} for {value} months after acceptance.",
            "The warranty under the contract for {subject} now lasts {value} months.",
            "It is now {value} months from acceptance.",
            "For how long does the contractor answer for defects under the contract for {subject}?",
        ),
        (
            "Delay",
            "For each day of delay under the contract for {subject}, the contractor owes a penalty of {value} euros.",
            "The penalty for a day of delay under the contract for {subject} is now {value} euros.",
            "The daily amount in this clause is now {value} euros.",
            "What does the contractor pay for being late under the contract for {subject}?",
        ),
    ],
    "ru": [
        (
            "Расторжение",
            "Каждая сторона вправе расторгнуть договор на {subject}, письменно предупредив другую за {value} месяцев.",
            "Отныне сторона, расторгающая договор на {subject}, предупреждает об этом за {value} месяцев.",
            "Срок в этом пункте теперь составляет {value} месяцев.",
            "За сколько времени нужно сообщить о прекращении договора на {subject}?",
        ),
        (
            "Оплата",
            "Заказчик оплачивает счета по договору на {subject} в течение {value} дней после получения.",
            "Счета по договору на {subject} теперь подлежат оплате через {value} дней после получения.",
            "Срок в этом пункте теперь {value} дней.",
            "Когда заказчик должен платить по счетам за {subject}?",
        ),
        (
            "Гарантия",
            "Подрядчик даёт на работы по договору на {subject} гарантию {value} месяцев со дня приёмки.",
            "Гарантия по договору на {subject} теперь действует {value} месяцев.",
            "Теперь это {value} месяцев со дня приёмки.",
            "Сколько времени подрядчик отвечает за недостатки по договору на {subject}?",
        ),
        (
            "Просрочка",
            "За каждый день просрочки по договору на {subject} подрядчик платит неустойку {value} евро.",
            "Неустойка за день просрочки по договору на {subject} теперь {value} евро.",
            "Сумма за день в этом пункте теперь {value} евро.",
            "Сколько подрядчик платит за опоздание по договору на {subject}?",
        ),
    ],
    "zh": [
        (
            "解除",
            "任何一方均可提前{value}个月书面通知对方，解除{subject}合同。",
            "自即日起，解除{subject}合同的一方须提前{value}个月通知。",
            "本条款中的期限现为{value}个月。",
            "终止{subject}合同要提前多久告知？",
        ),
        (
            "付款",
            "客户应在收到{subject}发票后{value}天内付款。",
            "{subject}的发票现于收到后{value}天到期。",
            "本条款中的时间现为{value}天。",
            "客户什么时候必须支付{subject}的账单？",
        ),
        (
            "保修",
            "承包商对{subject}合同项下的工作自验收起保修{value}个月。",
            "{subject}合同的保修期现为{value}个月。",
            "现为自验收起{value}个月。",
            "{subject}合同中承包商对缺陷负责多长时间？",
        ),
        (
            "延误",
            "{subject}合同每延误一天，承包商支付违约金{value}欧元。",
            "{subject}合同每延误一天的违约金现为{value}欧元。",
            "本条款中的每日金额现为{value}欧元。",
            "{subject}合同中承包商迟延要付多少钱？",
        ),
    ],
}
SIGNED, AMENDED, BEFORE, AFTER = "2023-01-01", "2024-07-01", "2024-06-30", "2024-07-01"


@dataclass(frozen=True)
class Pair:
    """A clause, its amendment, and a question that either could answer."""

    language: str
    clause: Document
    amendment: Document
    question: str


def pairs(count: int) -> list[Pair]:
    """Return the first of all pairs, in turn from each language."""
    by_language = [list(_pairs_in(language)) for language in SUBJECTS]
    return [pair for group in zip(*by_language, strict=True) for pair in group][:count]


def _pairs_in(language: str) -> Iterator[Pair]:
    subjects = [" ".join(subject.split()) for subject in SUBJECTS[language].split(";")]
    for kind, (heading, clause, named, terse, question) in enumerate(CLAUSES[language]):
        for number, subject in enumerate(subjects):
            source = f"{language}/contract-{number}.md"
            id_ = f"{source}#{kind}"
            words = {"subject": subject}
            about = {"source": source, "headings": [subject, heading], "title": f"{subject} › {heading}"}
            amendment = (terse if (number + kind) % 2 else named).format(value=2 * (kind + 3), **words)
            target = f"{source}#{heading}" if (number // 2) % 2 else id_
            yield Pair(
                language,
                Document(id_, clause.format(value=kind + 2, **words), {**about, "valid_from": SIGNED}),
                Document(f"{id_}-amended", amendment, {"version_of": target, "valid_from": AMENDED}),
                question.format(**words),
            )


def without_versions(document: Document) -> Document:
    metadata = {key: value for key, value in document.metadata.items() if key not in VALIDITY_KEYS}
    return Document(document.id, document.text, metadata)


def share_first(dataset: Any, asked: list[Pair], ids: list[tuple[str, ...]], **options: Any) -> str:
    """Ask all questions; return how often one of these documents is first, in all and by language."""
    contexts = dataset.search_many([pair.question for pair in asked], 3, refuse=False, **options)
    hits = [bool(context.hits) and context.hits[0].id in row for context, row in zip(contexts, ids, strict=True)]
    languages = {
        language: [hit for pair, hit in zip(asked, hits, strict=True) if pair.language == language]
        for language in SUBJECTS
    }
    by_language = ", ".join(f"{language} {sum(row)}/{len(row)}" for language, row in languages.items())
    return f"{sum(hits)}/{len(hits)} = {sum(hits) / len(hits):.3f}  ({by_language})"


def print_misses(dataset: Any, asked: list[Pair], ids: list[tuple[str, ...]], **options: Any) -> None:
    """Print the questions that another document answers first, and the first one of those wanted."""
    contexts = dataset.search_many([pair.question for pair in asked], 20, refuse=False, **options)
    for context, pair, row in zip(contexts, asked, ids, strict=True):
        hits = context.hits
        if hits and hits[0].id in row:
            continue
        places = [place for place, hit in enumerate(hits) if hit.id in row][:1]
        print(f"  {pair.question}")
        for place in [*range(min(1, len(hits))), *places]:
            print(f"    {place + 1}. {hits[place].id} {hits[place].score:.3f}: {hits[place].document.text[:100]}")


def share_above(dataset: Any, asked: list[Pair], ids: list[tuple[str, ...]], **options: Any) -> str:
    """Ask all questions; return how often this version is the first of its pair in the answer, wherever it stands."""
    contexts = dataset.search_many([pair.question for pair in asked], 20, refuse=False, **options)
    count = 0
    for context, pair, (id_,) in zip(contexts, asked, ids, strict=True):
        pair_ids = [hit.id for hit in context.hits if hit.id in {pair.clause.id, pair.amendment.id}]
        count += pair_ids[:1] == [id_]
    return f"{count}/{len(asked)} = {count / len(asked):.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--embedder", choices=("default", "hashing"), default="default")
    parser.add_argument("--misses", action="store_true", help="show them")
    arguments = parser.parse_args()
    embedder = HashingEmbedder() if arguments.embedder == "hashing" else pointsman.default_embedder()
    asked = pairs(arguments.pairs)
    documents = [document for pair in asked for document in (pair.clause, pair.amendment)]
    old: list[tuple[str, ...]] = [(pair.clause.id,) for pair in asked]
    new: list[tuple[str, ...]] = [(pair.amendment.id,) for pair in asked]
    either: list[tuple[str, ...]] = [(pair.clause.id, pair.amendment.id) for pair in asked]
    with tempfile.TemporaryDirectory() as folder, pointsman.open(folder, embedder=embedder) as workspace:
        plain, dated = workspace.dataset("plain"), workspace.dataset("dated")
        plain.add([without_versions(document) for document in documents])
        dated.add(documents)
        print(f"{len(asked)} pairs, {len(documents)} documents, embedder {embedder.name[:40]}", flush=True)
        print("nothing said of versions, either of the two is first:", share_first(plain, asked, either), flush=True)
        print("nothing said of versions, the amendment is first:", share_first(plain, asked, new), flush=True)
        print("the amendment is first:", share_first(dated, asked, new), flush=True)
        print(f"as_of {BEFORE}, the clause is first:", share_first(dated, asked, old, as_of=BEFORE), flush=True)
        print(f"as_of {AFTER}, the amendment is first:", share_first(dated, asked, new, as_of=AFTER), flush=True)
        print("wherever they stand, the version in force is the first of the two:", flush=True)
        print("  today", share_above(dated, asked, new), flush=True)
        for day, ids in ((BEFORE, old), (AFTER, new)):
            print(f"  as_of {day}", share_above(dated, asked, ids, as_of=day), flush=True)
        if arguments.misses:
            print("first is another, where nothing is said of versions:")
            print_misses(plain, asked, either)
            print("first is another, today:")
            print_misses(dated, asked, new)
        print("clauses above their amendment, or not marked as superseded:", count_above(dated, asked), flush=True)


def count_above(dataset: Any, asked: list[Pair]) -> int:
    """Return how many answers show a clause above its amendment, or without saying that it is superseded."""
    contexts = dataset.search_many([pair.question for pair in asked], 20, refuse=False)
    count = 0
    for context, pair in zip(contexts, asked, strict=True):
        ids = [hit.id for hit in context.hits]
        if pair.clause.id in ids:
            clause = context.hits[ids.index(pair.clause.id)]
            is_below = pair.amendment.id in ids[: ids.index(pair.clause.id)]
            count += not is_below or clause.not_in_force is None
    return count


if __name__ == "__main__":
    main()
