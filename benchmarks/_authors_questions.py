"""Rows of `authors.py` on what is made of a question and its answers: synonyms, follow-ups, compression, commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pointsman
from _authors_kit import typed
from pointsman import (
    Dataset,
    Document,
    EnhancedRetrievalService,
    Message,
    Query,
    RuleDisambiguator,
    RuleExpander,
)
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.llm.scripted_llm import ScriptedLLM

SYNONYMS: Final = {
    **dict.fromkeys(("repairing cars", "he sells old books", "two broken screens' colours", "he buys houses"), ""),
    **dict.fromkeys(("дешёвые телефоны", "большая ошибка", "ремонт машины", "новая машина", "старого документа"), ""),
    **dict.fromkeys(("цены на лекарства", "он купил дом", "ремонт автомобиль", "быстро доехать"), ""),
    "how to repair a car": "how to repair an automobile",
    "buy a cheap phone": "buy an inexpensive phone",
    "error in the report": "failure in the report",
    "big house": "large house",
    "choose an answer": "choose a reply",
    "quick answer": "quick reply",
    "как исправить ошибку": "как устранить ошибку",
    "купить телефон": "приобрести телефон",
    "удалить файл": "стереть файл",
    "проблема с оплатой": "неполадка с оплатой",
    "как выбрать врача": "как подобрать врача",
    "быстрый поиск": "скорый поиск",
    "如何购买汽车": "如何采购汽车",
    "电脑崩溃": "计算机崩溃",
    "删除文件夹": "移除文件夹",
    "修理电脑": "维修电脑",
    "便宜的手机": "廉价的手机",
    "快速搜索": "迅速搜索",
}
"""Phrases with a variant that is right; empty where each synonym would have to be inflected."""

LEFT_IN_BASE_FORM: Final = {"two broken screens' colours": "broken", "быстро доехать": "быстро"}
"""The word of such a phrase that may be replaced all the same."""


def synonyms() -> Iterator[tuple[str, bool]]:
    """Row 001: synonyms in the form of the word they stand for, or none, and those of one's own."""
    expander = RuleExpander(["synonym"])
    for phrase, variant in SYNONYMS.items():
        texts = [one.text for one in expander.transform(phrase).variants]
        kept_words = [word for word in phrase.split() if word != LEFT_IN_BASE_FORM.get(phrase)]
        are_kept = all(word in text.split() for text in texts for word in kept_words)
        yield f"{phrase}: {', '.join(texts) or 'none'}", variant in texts if variant else are_kept
    for phrase, wrong in (("быстро доехать", "скорый доехать"), ("как устранить телефон", "починить телефон")):
        texts = [one.text for one in expander.transform(phrase).variants]
        yield f"{phrase}: not {wrong}", wrong not in texts
    Path("own.txt").write_text("турникет, вертушка\nlaptop => notebook\n")
    settings = pointsman.Settings(synonyms="own.txt")
    workspace = pointsman.open("ws", settings=settings, embedder=HashingEmbedder())
    workspace.dataset("gate", indexing_technique="keyword").add(
        [Document("a", "Вертушка открывается картой."), Document("b", "A notebook is kept in the drawer.")]
    )
    for question, found in (("турникет", "a"), ("laptop", "b")):
        hits = workspace.search(question, refuse="never").hits
        yield f"own synonyms: {question}", [hit.id for hit in hits] == [found]


def follow_ups() -> Iterator[tuple[str, bool]]:
    """Row 001: what cannot be resolved surely is left alone, and searched with the conversation's words."""
    conversations = (
        ("怎么在 Mac 上安装打印机驱动？", "下载后双击安装。", "Windows上呢？"),
        ("北京明天的天气怎么样？", "晴，25度。", "上海呢？"),
        ("Does the policy cover water damage?", "Yes, up to 5,000 euros.", "And theft?"),
    )
    for question, answer, follow_up in conversations:
        history = (Message("user", question), Message("assistant", answer))
        transformation = RuleDisambiguator().transform(Query(follow_up, history=history))
        is_itself = transformation.query.text == follow_up
        yield follow_up, is_itself and [one.text for one in transformation.variants] == [f"{question} {follow_up}"]


def compression_in_all() -> Iterator[tuple[str, bool]]:
    """Row 004: the model compresses what is over the budget in all, though no text is over it."""
    text = "The architect of bridge {0} was Bradfield. The paint of it is grey. It carries trains."
    dataset = Dataset("bridges", embedder=HashingEmbedder())
    dataset.add([Document(f"{number}", text.format(number)) for number in range(3)])
    llm = ScriptedLLM(lambda _: {"keep": [1]})
    service = EnhancedRetrievalService({"compression_max_length": 130}, dataset, llms={"compression": llm})
    hits = service.search_sync("Who was the architect of the bridge?", 3, "compression")
    lengths = [len(hit.text) for hit in hits]
    yield f"three texts of {len(text) - 2} characters become {lengths}", bool(llm.calls) and 0 < sum(lengths) <= 130
    yield "each keeps what bears on the question", all("architect" in hit.text for hit in hits)


def commands() -> Iterator[tuple[str, bool]]:
    """Row 004: a table of every strategy for a file of questions, and a key that no setting names."""
    with pointsman.open("ws", embedder=HashingEmbedder()) as workspace:
        workspace.dataset("notes").add([Document("switch", "A railway switch guides trains.")])
    Path("questions.csv").write_text("query,source\nwhat guides a train?,switch\n")
    table = typed("eval", "questions.csv", "--workspace", "ws", "--strategies", "all")
    names = ("bm25", "vector", "hybrid", "auto", "hybrid+rerank", "multi_query", "decomposition")
    yield "eval questions.csv --strategies all", all(f" {name} " in table for name in names)
    for words in (["config"], ["status", "--workspace", "ws"]):
        told = typed(*words, DASHSCOPE_API_KEY="k")
        yield f"{words[0]} names the key", "DASHSCOPE_API_KEY is set and not used" in told and "llm_provider" in told
