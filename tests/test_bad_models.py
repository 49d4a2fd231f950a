"""Language models that fail, are late or write nonsense: what a search with them answers, and what it says about it."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from patience_kit import holds_with_time
from pointsman import (
    Dataset,
    Document,
    LLMCompressor,
    LLMExpander,
    LLMReranker,
    LLMRouter,
    OpenAILLM,
    RetrievalWorkflow,
)
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.llm.scripted_llm import Delay, ScriptedLLM
from pointsman.retrieval import engine
from pointsman.retrieval.plan.transform.transform_answers import usable
from pointsman.retrieval.refine.budget import Budget, Spending, spending
from pointsman.retrieval.run import variants
from pointsman.retrieval.strategies import (
    BaseRetrievalStrategy,
    DecompositionStrategy,
    HybridStrategy,
    HyDEStrategy,
    MultiQueryStrategy,
    Query2DocStrategy,
)
from pointsman.tools import parallel_calls
from pointsman.workspace.enhanced_retrieval_service import EnhancedRetrievalService

QUESTION = "When does the harbour ferry leave the northern pier?"
BEST = "The harbour ferry leaves the northern pier every morning at seven."
_TEXT = """
anchor basil candle dolphin ember falcon garnet heron island jasmine kettle lantern marble nectar onyx pepper quartz
raven saddle timber umbrella velvet walnut yarrow zinc copper meadow orchard thistle willow harbour ferry pier northern
leave rate limit error service morning seven evening
"""
_WORDS = _TEXT.split()


def _documents() -> list[Document]:
    chance = random.Random(26)
    texts = [" ".join(chance.choices(_WORDS, k=14)) + "." for _ in range(240)]
    return [Document("best", BEST), *(Document(str(number), text) for number, text in enumerate(texts))]


@pytest.fixture(scope="module")
def harbour() -> Iterator[Dataset]:
    with Dataset("harbour", embedder=HashingEmbedder(128)) as dataset:
        dataset.add(_documents())
        yield dataset


STRATEGIES: dict[str, Callable[..., BaseRetrievalStrategy]] = {
    "hyde": HyDEStrategy,
    "three hypotheses": lambda *sources, **options: HyDEStrategy(*sources, num_hypotheses=3, **options),
    "query2doc": Query2DocStrategy,
    "query2doc, both forms": lambda *sources, **options: Query2DocStrategy(*sources, form="both", **options),
    "decomposition": DecompositionStrategy,
}


def _hostile_answers(count: int) -> Iterator[str]:
    """Answers that try to push other documents up: chatter, copies of documents, words of the question, junk."""
    chance = random.Random(4)
    texts = [document.text for document in _documents()[1:]]
    for _ in range(count):
        fragments = [
            " ".join(chance.choices(_WORDS, k=chance.randint(1, 30))),
            chance.choice(texts),
            f"{QUESTION} {chance.choice(texts)}",
            "".join(chance.choices("abcxyz 的服務поезд{}<|>[]$~", k=chance.randint(1, 60))),
            chance.choice(ERRORS),
        ]
        selection = chance.choices(fragments, k=chance.randint(1, 5))
        yield json.dumps({"queries": selection}) if chance.random() < 0.6 else "\n".join(selection)


ERRORS = [
    "Error: rate limit exceeded",
    "error 429: Too Many Requests",
    "HTTP 503 Service Unavailable",
    "openai.RateLimitError: Error code: 429",
    '{"error": {"message": "You exceeded your current quota", "type": "insufficient_quota"}}',
    "Internal server error",
    "Traceback (most recent call last):\n  File 'server.py', line 3, in complete",
    "Service is temporarily unavailable, try again later.",
    "<|im_start|>assistant<|im_end|>",
    "[INST] rewrite [/INST]",
    "### Response:",
    "Ошибка: превышен лимит запросов",
    "请求过于频繁，请稍后再试",
]


def test_first_hit_of_plain_search_stays_among_the_first_three_whatever_a_model_says(
    harbour: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = ""
    llm = ScriptedLLM(lambda _: reply)
    strategies = [make(harbour, llm=llm) for make in STRATEGIES.values()]
    first = HybridStrategy(harbour).search_sync(QUESTION, 1)[0].id
    assert first == "best"
    lower_without = 0
    for number, reply in enumerate(_hostile_answers(200)):
        strategy = strategies[number % len(strategies)]
        hits = strategy.search_sync(QUESTION, 5)
        assert first in [hit.id for hit in hits[:3]], reply
        scores = [hit.score for hit in hits]
        assert scores == sorted(scores, reverse=True)
        if number < 100:
            with monkeypatch.context() as patch:
                patch.setattr(variants, "with_first_kept", lambda ranking, _: ranking)
                lower_without += first not in [hit.id for hit in strategy.search_sync(QUESTION, 5)[:3]]
    assert lower_without > 0, "the answers are not hostile enough to show anything"


def test_rule_made_variants_cannot_push_the_first_hit_below_the_third_place(harbour: Dataset) -> None:
    chance = random.Random(7)
    for _ in range(30):
        synonyms = {word: chance.sample(_WORDS, 3) for word in ("harbour", "ferry", "pier", "northern", "leave")}
        hits = MultiQueryStrategy(harbour, thesaurus=synonyms).search_sync(QUESTION, 5)
        assert "best" in [hit.id for hit in hits[:3]]


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("message", ERRORS)
def test_error_message_in_place_of_an_answer_is_left_out_and_reported(
    harbour: Dataset, name: str, message: str
) -> None:
    hits = STRATEGIES[name](harbour, llm=ScriptedLLM(lambda _: message)).search_sync(QUESTION, 5)
    assert [hit.id for hit in hits] == [hit.id for hit in HybridStrategy(harbour).search_sync(QUESTION, 5)]
    assert hits.degraded


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("HTTP 429 Too Many Requests means that a client has sent more than the server allows.", "What is HTTP 429?"),
        ("The error rate of a classifier is the share of wrong answers.", "How good is it?"),
        ("An exception to the rule is granted by the manager.", "Who grants leave?"),
        ("Errors in invoices are corrected within ten days.", "How long does a correction take?"),
        ("What to do when the rate limit is exceeded", "limit exceeded"),
        ("The human eye sees colours.", "How do we see?"),
    ],
)
def test_answers_about_errors_are_usable(text: str, query: str) -> None:
    assert usable(text, query) is None


def test_text_without_any_relation_to_the_question_is_left_out_and_reported(harbour: Dataset) -> None:
    chatter = "umbrella velvet walnut yarrow zinc copper"
    service = EnhancedRetrievalService({}, harbour, llms={"general": ScriptedLLM(lambda _: chatter)})
    hits = service.search_sync(QUESTION, 5, "hyde")
    plain = service.search_sync(QUESTION, 5, "hybrid")
    assert [hit.id for hit in hits] == [hit.id for hit in plain]
    [note] = hits.degraded
    assert "nothing to do with the question" in note
    assert "umbrella" in note
    assert hits.context.plan.strategy == "hybrid"
    assert hits.context.plan.confidence is None


# ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_models_have_half_of_the_time_limit_of_a_search() -> None:
    account = Spending(Budget(call_seconds=300), timeout=300)
    booking = account.begin("prompt")
    assert booking.seconds == pytest.approx(150, abs=5)
    assert "raise timeout" in booking.remedy
    assert "timeout=300" in booking.remedy
    short_call = Spending(Budget(call_seconds=20), timeout=300).begin("prompt")
    assert (short_call.seconds, short_call.remedy) == (20, "raise llm_timeout")
    lower = Spending(Budget(seconds=5), timeout=300).begin("prompt")
    assert lower.seconds == pytest.approx(5, abs=1)
    assert "Budget" in lower.remedy
    assert Spending(Budget()).begin("prompt").seconds is None


def test_settings_decide_how_long_a_model_may_take(harbour: Dataset) -> None:
    accounts: list[Spending] = []

    def reply(_: str) -> str:
        with spending(Budget()) as account:
            accounts.append(account)
        return BEST

    settings = {"timeout": 300, "llm_timeout": 120}
    service = EnhancedRetrievalService(settings, harbour, llms={"general": ScriptedLLM(reply)})
    assert service.search_sync(QUESTION, 5, "hyde").degraded == ()
    [account] = accounts
    assert account.budget.call_seconds == 120
    remaining = account.left()
    assert remaining is not None
    assert 100 < remaining <= 150


@pytest.mark.parametrize(
    ("settings_of", "setting"),
    [
        (lambda seconds: {"timeout": 2 * seconds}, "raise timeout"),
        (lambda seconds: {"timeout": 300 * seconds, "llm_timeout": seconds}, "raise llm_timeout"),
    ],
)
@pytest.mark.parametrize("strategy", ["hyde", "query2doc", "decomposition"])
def test_error_of_a_late_model_names_the_setting(
    harbour: Dataset, settings_of: Callable[[float], dict[str, float]], setting: str, strategy: str
) -> None:
    late = ScriptedLLM(lambda _: Delay(300, BEST))

    def check(seconds: float) -> None:
        service = EnhancedRetrievalService(settings_of(seconds), harbour, llms={"general": late})
        hits = service.search_sync(QUESTION, 5, strategy)
        assert any(setting in note for note in hits.degraded), hits.degraded
        assert hits[0].id == "best"

    holds_with_time(check)


def test_model_that_keeps_failing_is_left_out_for_a_while(harbour: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    llm = ScriptedLLM(lambda _: RuntimeError("down"))
    service = EnhancedRetrievalService({}, harbour, llms={"general": llm})
    answers = [service.search_sync(QUESTION, 5, "hyde") for _ in range(5)]
    assert len(llm.calls) == 3
    for hits in answers:
        assert hits[0].id == "best"
        assert hits.context.plan.strategy == "hybrid"
        assert "'hyde' could add nothing" in hits.context.plan.reason
    assert all("down" in hits.degraded[0] for hits in answers)
    assert "left out for another" in answers[-1].degraded[0]
    monkeypatch.setattr(parallel_calls, "perf_counter", lambda: time.perf_counter() + 31)
    service.search_sync(QUESTION, 5, "hyde")
    assert len(llm.calls) == 4  # one call tries it again
    service.search_sync(QUESTION, 5, "hyde")
    assert len(llm.calls) == 4


def test_model_that_works_again_is_called_again(harbour: Dataset) -> None:
    replies: list[Any] = [RuntimeError("down"), RuntimeError("down"), BEST, RuntimeError("down"), BEST]
    llm = ScriptedLLM(replies)
    service = EnhancedRetrievalService({}, harbour, llms={"general": llm})
    strategies = [service.search_sync(QUESTION, 5, "hyde").context.plan.strategy for _ in replies]
    assert strategies == ["hybrid", "hybrid", "hyde", "hybrid", "hyde"]


def test_compression_does_not_ask_a_failing_model_about_every_hit() -> None:
    llm = ScriptedLLM(lambda _: RuntimeError("down"))
    with Dataset("long", embedder=HashingEmbedder()) as dataset:
        dataset.add(
            [Document(str(number), f"The ferry number {number} leaves the pier. " * 20) for number in range(30)]
        )
        service = EnhancedRetrievalService({}, dataset, llms={"general": llm})
        hits = service.search_sync("ferry", 8, "compression")
    assert len(hits) == 8
    assert any("down" in note for note in hits.degraded)
    assert 3 <= len(llm.calls) <= 6  # three failures, and the calls that ran beside them; not one for each of 24 hits


# ── rerankers ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_request_to_rerank_without_a_reranker_is_answered_with_the_remedy_once(harbour: Dataset) -> None:
    service = EnhancedRetrievalService({}, harbour)
    answer = service.search_sync(QUESTION, 5, use_rerank=True).context
    assert not answer.reranked
    [note] = answer.degraded
    assert "set reranker to onnx:DIRECTORY" in note
    assert str(answer.to_dict()).count("set reranker to") == 1
    assert service.search_sync(QUESTION, 5).degraded == ()  # nobody asked for it


# ── a slow model behind a real server ────────────────────────────────────────────────────────────────────────────────


class HeldServer:
    """A server of OpenAI's shape that receives questions and answers none before `release`."""

    def __init__(self) -> None:
        self.requests = 0
        self.answers = 0
        self.release_event = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                server.requests += 1
                self.rfile.read(int(self.headers["Content-Length"]))
                server.release_event.wait(120)
                server.answers += 1
                body = json.dumps({"choices": [{"message": {"role": "assistant", "content": "late"}}]}).encode()
                with suppress(OSError):  # nobody waits any more
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def close(self) -> None:
        self.release_event.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def held_server() -> Iterator[HeldServer]:
    server = HeldServer()
    yield server
    server.close()


def test_compression_by_a_slow_server_ends_with_its_time(harbour: Dataset, held_server: HeldServer) -> None:
    model = OpenAILLM("slow", held_server.url, "none", timeout=100, max_retries=0)

    def check(limit: float) -> None:
        settings = {"timeout": limit, "llm_timeout": 100, "compression_max_length": 60}
        service = EnhancedRetrievalService(settings, harbour, llms={"general": model})
        hits = service.search_sync(QUESTION, 3, "compression")
        assert hits
        assert held_server.requests
        assert held_server.answers == 0, "the answer did not wait for the model"
        assert any("raise timeout" in note for note in hits.degraded), hits.degraded

    holds_with_time(check, 1, 8, 40)


@pytest.mark.parametrize("stage", ["transformer", "router", "reranker", "refiner"])
def test_own_stage_of_a_workflow_has_the_budget_and_the_breaker(
    harbour: Dataset, held_server: HeldServer, stage: str
) -> None:
    model = OpenAILLM("slow", held_server.url, "none", timeout=100, max_retries=0)
    stages: dict[str, Any] = {
        "transformer": {"transformer": LLMExpander(model)},
        "router": {"router": LLMRouter(model)},
        "reranker": {"reranker": LLMReranker(model)},
        "refiner": {"refiners": [LLMCompressor(model, max_chars=60)]},
    }

    def check(limit: float) -> None:
        workflow = RetrievalWorkflow(**stages[stage], timeout=limit)
        requests_before = held_server.requests
        with Dataset("second", "Other things.", embedder=HashingEmbedder()) as second:
            second.add(Document("other", "Ships are painted in the dock."))
            for attempt in range(5):
                answer = workflow.search(QUESTION, [harbour, second], 3)
                assert answer.hits
                assert answer.degraded, attempt
                if attempt == 2:
                    requests = held_server.requests
        assert held_server.answers == 0
        assert "left out" in " ".join(answer.degraded), answer.degraded
        assert held_server.requests == requests > requests_before, "what keeps failing is not asked again for a while"

    holds_with_time(check, 0.5, 5, 20)


def test_stages_of_a_workflow_share_one_budget(harbour: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ScriptedLLM(lambda _: "dredger")
    monkeypatch.setattr(engine, "Budget", lambda: Budget(calls=1))
    workflow = RetrievalWorkflow(transformer=LLMExpander(model), reranker=LLMReranker(model))
    answer = workflow.search(QUESTION, [harbour], 3)
    assert len(model.calls) == 1
    assert any("budget is used up" in note for note in answer.degraded)
