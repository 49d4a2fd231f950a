"""What `golden` asks in Python, by kinds."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import pointsman
from _data import DATA
from _golden_questions import (
    COLLECTIONS,
    FILTERS,
    FUSIONS,
    LABELLED,
    MEANT,
    OPTIONS,
    POLICIES,
    QUESTIONS,
    SENTENCES,
    SETTINGS,
    STRATEGIES,
    TECHNIQUES,
    always,
    documents,
    family,
    model,
    part_of,
    versions,
)
from _golden_world import Answers, World, command, fill
from pointsman import Query, ScriptedLLM, Settings, ToolMetadata, load_embedder


def store(ask: Answers, world: World) -> None:
    """Random requests, in every store, with every strategy."""
    for name in world.stores:
        with world.open(name, "store", llm=model()) as workspace:
            fill(workspace)
            for strategy in STRATEGIES:
                chance = random.Random(f"{strategy}")
                for number in range(25 if name == "folder" else 12):
                    names = chance.choice(
                        [None, ["rails", "город"], chance.sample([*TECHNIQUES, "empty"], chance.randint(1, 4))]
                    )
                    options = {
                        "datasets": names,
                        "strategy": strategy,
                        "filters": chance.choice([None, None, None, *FILTERS[:20]]),
                        "rerank": chance.choice([None, None, True, False]),
                        "refuse": chance.choice([None, True, False]),
                        "effort": chance.choice(["fast", "balanced", "thorough"]),
                    }
                    search = partial(workspace.search, chance.choice(QUESTIONS), chance.choice([1, 3, 5, 40]))
                    ask(f"store/{strategy}/{name}/{number}", partial(search, **options))
            for dataset in workspace.names():
                ask(f"store/status/{name}/{dataset}", partial(workspace.status, dataset))
            ask(f"store/many/{name}", lambda: workspace.search_many(QUESTIONS[:8], 3))


def settings(ask: Answers, world: World) -> None:
    """Requests under settings of one's own, some of them with a language model."""
    for name, values in SETTINGS.items():
        llm = model() if name == "a model" else None
        with world.open("folder", f"settings {name}", Settings(**values), llm) as workspace:
            fill(workspace)
            for strategy in STRATEGIES:
                for number, question in enumerate(
                    QUESTIONS[:12] if llm else QUESTIONS[: 12 if strategy == "auto" else 2]
                ):
                    search = partial(workspace.search, question, 4, strategy=strategy)
                    ask(f"settings/{strategy}/{name}/{number}", search)
            for number, question in enumerate(QUESTIONS):
                ask(f"settings/plan/{name}/{number}", partial(workspace.plan, list(TECHNIQUES), "auto", question))


def options(ask: Answers, world: World) -> None:
    """Every option, with every strategy."""
    some: tuple[Any, ...] = ("auto", "bm25", "vector", "z_score", "decomposition", "compression")
    for name in (*world.stores, "meaning"):
        with ExitStack() as stack:
            if name == "meaning":
                place = world.folder / "meaning"
                workspace = stack.enter_context(pointsman.open(place, embedder=pointsman.default_embedder()))
            else:
                workspace = stack.enter_context(world.open(name, "options", llm=model()))
            fill(workspace)
            for strategy in STRATEGIES[:-1] if name == "folder" else some:
                for values in OPTIONS:
                    both = {} if strategy == "auto" else {"datasets": ["rails", "город"]}
                    search = partial(workspace.search, "red signal or railway switch", strategy=strategy)
                    ask(f"options/{strategy}/{name}/{json.dumps(values)}", partial(search, **{**both, **values}))
            for number, question in enumerate(QUESTIONS):
                for strategy in some:
                    ask(f"options/{strategy}/{name}/{number}", partial(workspace.search, question, strategy=strategy))


def collections(ask: Answers, world: World) -> None:
    """Questions of real collections over part of their passages; some by the default embedder, too."""
    for name in COLLECTIONS if DATA.is_dir() else ():
        for embedder in ("hashing", "default") if name in MEANT else ("hashing",):
            passages, questions = part_of(name, 8, 60 if embedder == "default" else 150)
            place = world.folder / "collections" / embedder / name
            with pointsman.open(place, embedder=load_embedder(embedder)) as workspace:
                workspace.dataset(name).add(passages)
                for strategy in ("auto", "hybrid", "vector", "rrf", "decomposition"):
                    for id_, text in questions.items():
                        search = partial(workspace.search, text, 5, strategy=strategy)
                        ask(f"collections/{strategy}/{embedder}/{name}/{id_}", search)
                text = f"{next(iter(questions.values()))} {QUESTIONS[0]}"
                ask(f"collections/explain/{embedder}/{name}", lambda: workspace.search(text).explain(passages[-1].id))  # noqa: B023
                ask(f"collections/prompt/{embedder}/{name}", lambda: workspace.search(text).to_prompt(400))  # noqa: B023


def fitted(ask: Answers, world: World) -> None:
    """What is fitted to labels: relevance, coverage, refusal, policies; and searches by them."""
    for name in ("ru_faq_java", "en_xquad", "zh_domainrag") if DATA.is_dir() else ():
        passages, questions = part_of(name, 60, 60)
        rows = [line.split("\t") for line in (DATA / name / "qrels.tsv").read_text("utf-8").splitlines()]
        labels = {id_: {row[1]: int(row[2]) for row in rows if row[0] == id_} for id_ in questions}
        place = world.folder / "fitted" / name
        with pointsman.open(place, embedder=pointsman.default_embedder()) as workspace:
            workspace.dataset(name).add(passages)
            ask(f"fitted/calibrate/{name}", partial(workspace.calibrate, name, questions, labels))
            some = [*list(questions.values())[:10], *QUESTIONS[:12]]
            for number, question in enumerate(some):
                for values in LABELLED:
                    search = partial(workspace.search, question, **values)
                    ask(f"fitted/search/{name}/{number}/{json.dumps(values)}", search)
            for values in POLICIES:
                keep = partial(pointsman.Policy, **values)
                ask(f"fitted/keep/{name}/{json.dumps(values)}", lambda: workspace.keep(keep()))  # noqa: B023
                for number, question in enumerate(some[::3]):
                    ask(f"fitted/policy/{name}/{json.dumps(values)}/{number}", partial(workspace.search, question))
        folder = world.folder / "labels" / name
        folder.mkdir(parents=True)
        lines = [json.dumps({"_id": id_, "text": text}) for id_, text in questions.items()]
        (folder / "queries.jsonl").write_text("\n".join(lines), "utf-8")
        rows = [rows[0], *(row for row in rows if row[0] in questions)]
        (folder / "qrels.tsv").write_text("\n".join(map("\t".join, rows)), "utf-8")
        here = {"POINTSMAN_WORKSPACE": str(place), "POINTSMAN_EMBEDDER": "default"}
        for tool in ("tune", "calibrate"):
            line = [tool, str(folder), "-d", name, "--dry-run", "--json"]
            ask(f"fitted/{tool} command/{name}", partial(command, line, here))


def filters(ask: Answers, world: World) -> None:
    """Filters in every form: read, matched, and put to every store."""
    every = documents(0, 60)
    for number, source in enumerate(FILTERS):
        ask(f"filters/read/{number}", partial(pointsman.parse_filter, source))
        ask(f"filters/match/{number}", lambda: [pointsman.parse_filter(source).matches(one.fields) for one in every])  # noqa: B023
    for name in world.stores:
        with world.open(name, "filters") as workspace:
            rules = workspace.dataset("rules")
            rules.add(every)
            for number, source in enumerate(FILTERS):
                ask(f"filters/ids/{name}/{number}", partial(rules.ids, filters=source))
                ask(f"filters/count/{name}/{number}", partial(rules.count, source))
                ask(f"filters/search/{name}/{number}", partial(rules.search, "red signal", 3, filters=source))
            ask(f"filters/keys/{name}", rules.metadata_keys)
            ask(f"filters/page/{name}", partial(rules.page, limit=3, filters="year > 2003"))
            near = partial(rules.search_vector, filters="year > 2003", group_by="lang")
            ask(f"filters/vector/{name}", partial(near, load_embedder("hashing").embed_queries(["red signal"])[0], 5))


def views(ask: Answers, world: World) -> None:
    """Who may see what, what was valid when, changes of both, and answers given again."""
    who: tuple[Any, ...] = (
        [],
        ["user:anna"],
        ["group:hr"],
        ["user:anna", "group:hr"],
        ["user:eve", "group:hr"],
        ["nobody here"],
        "x",
        3,
    )
    for name in world.stores:
        with world.open(name, "views") as workspace:
            rails, laws = workspace.dataset("rails"), workspace.dataset("laws")
            rails.add(documents(1, 20), access=["everyone"])
            rails.add(documents(2, 20), access={"allow": ["group:hr"], "deny": ["user:eve"]})
            rails.add(documents(3, 10), access=["user:anna"])
            laws.add(versions(1), access=["everyone", "group:hr"])
            days = ("2005-01-01", "2012-06-30", "2026-01-01", "2016-05-01", "no day")
            for day in days:
                for number, question in enumerate(("clause 3", "red signal", "what does clause 5 say now?", "switch")):
                    ask(f"views/as_of/{name}/{day}/{number}", partial(workspace.search, question, 6, as_of=day))
            ask(f"views/problems/{name}", laws.version_problems)
            workspace.switch_access(on=True)
            for number, principals in enumerate(who):
                for question in ("red signal", "railway swtich", "clause 3", "Rule 7 of 2"):
                    for strategy in ("auto", "bm25", "vector"):
                        search = partial(workspace.search, question, 6, strategy=strategy, principals=principals)
                        ask(f"views/access/{name}/{number}/{question}/{strategy}", search)
            ask(f"views/nobody/{name}", partial(workspace.search, "red signal"))
            rails.set_access({"2-3": ["user:anna"], "1-3": None})
            ask(f"views/changed/{name}", partial(workspace.search, "red signal", 30, principals=["user:anna"]))
            workspace.switch_access(on=False)
            rails.set_metadata({"1-1": {"year": None, "colour": "red"}})
            ask(f"views/metadata/{name}", partial(rails.get, "1-1"))
            ask(f"views/deleted/{name}", partial(rails.delete, filters="lang = ru"))
            ask(f"views/after/{name}", partial(workspace.search, "red signal", 20))
            ask(f"views/verify/{name}", rails.verify)
            if name == "opensearch":
                continue  # it keeps no versions
            kept = workspace.dataset("kept", versions="90 days")
            kept.add(documents(5, 20))
            given = [workspace.search(question, 4, datasets=["kept"]) for question in QUESTIONS[:6]]
            kept.add(documents(6, 10))
            kept.delete(["5-1", "5-2"])
            for number, answer in enumerate(given):
                ask(f"views/replay/{name}/{number}", partial(workspace.replay, str(answer.receipt)))
            ask(f"views/replay/{name}/broken", partial(workspace.replay, "r1.nonsense"))


def routes(ask: Answers, world: World) -> None:
    """Which way a question goes: by its form, by datasets, by strategies; and what becomes of it."""
    questions = list(QUESTIONS)
    if DATA.is_dir():
        for name in ("en_xquad", "ru_xquad", "zh_xquad", "mh_hotpotqa", "tool_ultratool_zh_dev", "qtype_trec"):
            file = DATA / name / ("queries.jsonl" if name != "qtype_trec" else "test.jsonl")
            lines = file.read_text("utf-8").splitlines()
            questions += [json.loads(line)["text"] for line in lines[:: len(lines) // 15][:15]]
    thesaurus = {"railway": ["railroad"], "поезд": ["состав"]}
    speller = pointsman.Speller.from_texts(SENTENCES)
    history: Any = (
        {"role": "user", "content": "Tell me about the red signal"},
        {"role": "assistant", "text": "It stops."},
    )
    ways: dict[str, Callable[[str], Any]] = {
        "router_select": pointsman.router_select,
        "recommend": pointsman.recommend,
        "recommend without a model": lambda text: pointsman.recommend(text, ["hybrid", "multi_query", "decomposition"]),
        "decompose": lambda text: pointsman.RuleDecomposer(3).transform(Query(text)),
        "expand": lambda text: pointsman.RuleExpander(thesaurus=thesaurus, speller=speller).transform(Query(text)),
        "disambiguate": lambda text: pointsman.RuleDisambiguator().transform(Query(text, history=history)),
        "decompose by a model": lambda text: pointsman.LLMDecomposer(model()).transform(Query(text)),
        "expand by a model": lambda text: pointsman.LLMExpander(model()).transform(Query(text)),
        "spell": lambda text: [speller.correct(word) for word in text.split()],
    }
    with world.open("folder", "routes") as workspace:
        fill(workspace)
        ways["route"] = workspace.route
        ways["recommend here"] = workspace.recommend
        ways["content"] = lambda text: pointsman.ContentRouter().decide(text, workspace.datasets())
        for way, call in ways.items():
            for number, text in enumerate(questions):
                ask(f"routes/{way}/{number}", partial(call, text))


def selectors(ask: Answers, _: World) -> None:
    """Selectors of every kind over tools, those of a collection included."""
    tools = [
        ToolMetadata("get_weather", "Weather forecast for a city", {"examples": ["will it rain?", "明天会下雨吗？"]}),
        ToolMetadata("play_music", "Plays songs of an artist"),
        ToolMetadata("book_flight", "Finds and books airline tickets"),
        ToolMetadata("calculator", "Adds and multiplies numbers"),
    ]
    questions = [
        "will it snow in Riga?",
        "play something by Bach",
        "明天会下雨吗？",
        "сколько будет 2+2",
        "tickets to Rome",
        "",
    ]
    sets = {"four": (tools, questions), "one": (tools[:1], questions[:2]), "none": ([], questions[:1])}
    for name in ("tool_metatool_train", "tool_ultratool_zh_dev") if DATA.is_dir() else ():
        passages, asked = part_of(name, 20, 40)
        sets[name] = [ToolMetadata(one.title or one.id, one.text) for one in passages], list(asked.values())
    embedder = load_embedder("hashing")
    rules = [pointsman.keyword_match_rule, pointsman.semantic_query_rule, pointsman.query_length_rule]
    rule = pointsman.RuleSelector(rules)
    near = pointsman.EmbeddingSelector(embedder)
    described = pointsman.DescriptionSelector(embedder)
    replies = ('{"answer": [{"choice": 2, "reason": "so"}]}', '[{"choice": "2", "reason": "so"}]', "2", "none of them",
               '```json\n[{"choice": 1}]\n```', '[{"choice": 9, "reason": "?"}]', "play_music, because",
               "[]", '[{"cho')  # fmt: skip
    makes: dict[str, Callable[[], Any]] = {
        "rule": lambda: rule,
        "embedding": lambda: near,
        "embedding threshold": lambda: pointsman.EmbeddingSelector(embedder, threshold=0.5),
        "description": lambda: described,
        "description 3": lambda: pointsman.DescriptionSelector(embedder, 3),
        "hybrid": lambda: pointsman.HybridSelector(near, rule),
        "ensemble": lambda: pointsman.EnsembleSelector([near, rule, described], [1, 2, 1]),
        "random": lambda: pointsman.RandomSelector(5),
        "llm many": lambda: pointsman.LLMSelector(always('[{"choice": 1}, {"choice": 2}]'), True, 2),
        "llm all": lambda: pointsman.LLMSelector(always("no"), fallback="all"),
        "llm raise": lambda: pointsman.LLMSelector(always("no"), fallback="raise"),
        "llm prompts": lambda: pointsman.LLMSelector(model(), fallback="all"),
    }
    for number, text in enumerate(replies):
        makes[f"llm {number}"] = partial(pointsman.LLMSelector, always(text))
    for kind, make in makes.items():
        for name, (choices, asked_of) in sets.items():
            for number, question in enumerate(asked_of if not kind.startswith("llm") else asked_of[:3]):
                ask(f"selectors/{kind}/{name}/{number}", lambda: make().select(choices, question))  # noqa: B023


def fusion(ask: Answers, world: World) -> None:
    """Fusion of random lists, diversity, and orders of hits."""
    for method in FUSIONS:
        chance = random.Random(method)
        for number in range(60):
            lists: list[list[tuple[str, float | None]]] = []
            for _ in range(chance.randint(0, 4)):
                keys = chance.choices("abcdefghijklmnop", k=chance.randint(0, 12))
                scale = chance.choice([None, 1.0, 30.0, 0.0, 1e300])
                scores = [None if scale is None else scale * chance.choice([1, chance.random()]) for _ in keys]
                lists.append(list(zip(keys, sorted(scores, key=lambda one: -(one or 0)), strict=True)))
            weights = chance.choice([None, None, [chance.choice([0, 0.5, 1, 2.5]) for _ in lists]])
            ask(f"fusion/{method}/{number}", partial(pointsman.fuse, lists, method, weights))
    with world.open("folder", "fusion") as workspace:
        fill(workspace)
        hits = workspace.search("red signal railway switch", 12, refuse=False).hits
        chance = random.Random(1)
        for number in range(20):
            size, weight = chance.randint(1, 8), chance.random()
            relevance = [chance.random() for _ in range(size)]
            likeness = [[1.0 if a == b else round(0.1 * abs(a - b), 1) for a in range(size)] for b in range(size)]
            ask(f"fusion/mmr/{number}", partial(pointsman.mmr, relevance, likeness, weight, chance.choice([None, 3])))
        ranked = pointsman.Ranked(tuple(hits), "calibrated")
        refiners: dict[str, Any] = {
            "extractive": pointsman.ExtractiveCompressor(load_embedder("hashing"), max_chars=120),
            "extractive words": pointsman.ExtractiveCompressor(max_tokens=30),
            "by a model": pointsman.LLMCompressor(model(), max_chars=100),
            "summary": pointsman.LLMCompressor(model(), "summary"),
            "diverse": pointsman.Diversifier(0.9, 0.7),
            "offline": pointsman.CalibratedReranker(load_embedder("hashing"), 0.1),
            "by points": pointsman.LLMReranker(ScriptedLLM(lambda prompt: str(len(prompt) % 10))),
            "by a list": pointsman.LLMReranker(ScriptedLLM(lambda _: "[2] > [1] > [3]"), "listwise"),
            "threshold": pointsman.Refuser(thresholds=pointsman.Threshold("calibrated", 3.0)),
        }
        for name, refiner in refiners.items():
            for number, question in enumerate(QUESTIONS[:8]):
                ask(f"fusion/refine/{name}/{number}", partial(refiner.refine, Query(question), ranked, 6))


class Engine:
    """Answers a question with its own name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def query(self, text: str) -> str:
        """The name and the question."""
        return f"{self.name}: {text}"


def parts(ask: Answers, world: World) -> None:
    """The pieces that programs put together themselves: retrievers, workflows, strategies, services, agents."""
    with world.open("folder", "parts") as workspace:
        fill(workspace)
        rails, near = workspace.dataset("rails"), workspace.dataset("near")
        retrievers = rails.retriever("bm25"), near.retriever("vector")
        texts = ["About rails", "About what is near"]
        rule = pointsman.RuleSelector([pointsman.keyword_match_rule])
        asks: dict[str, Callable[[str], Any]] = {}
        for method in FUSIONS:
            asks[f"hybrid {method}"] = pointsman.SimpleHybridRetriever(*retrievers, fusion=method).retrieve
        asks["hybrid content"] = pointsman.SimpleHybridRetriever(*retrievers, dedupe="content", weights=[2, 1]).retrieve
        asks["router"] = pointsman.RouterRetriever(retrievers, texts, rule).retrieve
        asks["router many"] = pointsman.RouterRetriever(
            retrievers, texts, pointsman.EmbeddingSelector(load_embedder("hashing"), 2)
        ).retrieve
        sources = [rails, near]
        asks["workflow"] = lambda text: pointsman.RetrievalWorkflow().search(text, sources, 4)
        asks["workflow retrieve"] = lambda text: pointsman.RetrievalWorkflow().retrieve(text, sources, 4)
        asks["workflow llm router"] = lambda text: pointsman.RetrievalWorkflow(
            pointsman.LLMRouter(ScriptedLLM(lambda prompt: f"[{1 + len(prompt) % 2}]"))
        ).search(text, sources, 4)
        asks["workflow selector router"] = lambda text: pointsman.RetrievalWorkflow(
            pointsman.SelectorRouter(rule), pointsman.LLMReranker(ScriptedLLM(lambda prompt: str(len(prompt) % 9))),
            pointsman.RuleDecomposer(), [pointsman.ExtractiveCompressor(max_chars=80)], "rrf",
        ).search(text, sources, 4)  # fmt: skip
        made: dict[str, Any] = {
            name: getattr(pointsman, name)
            for name in pointsman.__all__
            if name.endswith("Strategy") and not name.startswith(("Base", "Registered"))
        }
        for name, strategy in made.items():
            asks[f"strategy {name}"] = strategy(rails, workspace.dataset("город"), llm=model()).search_sync
        service = pointsman.EnhancedRetrievalService(Settings(), workspace, llms={"general": model()})
        asks["service"] = lambda text: service.search_sync(text, 4).context
        asks["service recommends"] = service.recommend_strategy
        tool = pointsman.Tool("look_up", "Looks up a railway rule", lambda text: f"found {text}")
        other = pointsman.Tool("brew", "Brews green tea", lambda: "tea")
        asks["agent"] = lambda text: pointsman.ReActAgent([tool, other], rule).run(text)
        asks["engine"] = pointsman.MultiIndexQueryEngine([Engine(text) for text in texts], texts, rule).query
        for name, call in asks.items():
            for number, question in enumerate(QUESTIONS[:8]):
                ask(f"parts/{name}/{number}", partial(call, question))
        service.close()
        answer = workspace.search("when does the yard open", 3, refuse=False)
        for number, text in enumerate(
            ("It opens at six.", 'It says "closes at midnight" [1].', "At 7:30 on page 12.", "")
        ):
            ask(f"parts/verify/{number}", partial(answer.verify, text))
        for style in ("quoted", "xml", "other"):
            ask(f"parts/prompt/{style}", partial(answer.to_prompt, 200, style))  # type: ignore[arg-type]
        for hit in answer.hits:
            ask(f"parts/explain/{hit.id}", partial(answer.explain, hit.id))
        with world.open("folder", "family") as other_workspace:
            chapters = other_workspace.dataset("chapters")
            chapters.add(family(3))
            for strategy in ("parent_child", "auto", "compression"):
                for number, question in enumerate(QUESTIONS[:12]):
                    ask(f"parts/family/{strategy}/{number}", partial(chapters.search, question, 4, strategy=strategy))  # type: ignore[arg-type]


def ingest(ask: Answers, world: World) -> None:
    """The passages of files of every format, and where they stand."""
    files = DATA / "hard_files"
    if not files.is_dir():
        return
    with world.open("folder", "ingest") as workspace:
        report = workspace.index(files, "files")
        ask("ingest/report", lambda: report)
        dataset = workspace.dataset("files")
        passages: dict[str, list[Any]] = {}
        after: int | None = 0
        while after is not None:
            page, after = dataset.page(after, 500)
            for one in page:
                passages.setdefault(str(one.metadata.get("source")), []).append([one.text, one.metadata, one.caption])
        for source, each in sorted(passages.items()):
            ask(f"ingest/passages/{source}", lambda: each)  # noqa: B023
            ask(f"ingest/text/{source}", partial(dataset.text, source))
        for question in ("болт цена", "frog", "Leeds York", "price list", "опись", "价格"):
            ask(f"ingest/search/{question}", partial(dataset.search, question, 6))
