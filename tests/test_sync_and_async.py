"""Write once, offer synchronous and asynchronous, from anywhere."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pointsman import (
    BaseCompressor,
    BaseLLM,
    BaseRefiner,
    BaseReranker,
    BaseRetriever,
    BaseRouter,
    BaseSelector,
    BaseTransformer,
    Document,
    Hit,
    Query,
)


def hit(id_: str) -> Hit:
    return Hit(Document(id_, id_), 1.0)


class Synchronous(BaseRetriever):
    def retrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        return [hit(threading.current_thread().name)][:top_k]


class Asynchronous(BaseRetriever):
    async def aretrieve(self, query: str | Query, top_k: int = 10) -> list[Hit]:
        await asyncio.sleep(0)
        if query == "fail":
            raise LookupError("as asked")
        return [hit("asynchronous")][:top_k]


def test_an_asynchronous_retriever_from_a_script() -> None:
    assert Asynchronous().retrieve("q")[0].id == "asynchronous"


def test_an_asynchronous_retriever_from_inside_a_running_loop() -> None:
    async def caller() -> list[Hit]:
        return Asynchronous().retrieve("q")  # a synchronous call in an asynchronous function, as in a notebook

    assert asyncio.run(caller())[0].id == "asynchronous"


def test_a_synchronous_retriever_awaited_runs_in_another_thread() -> None:
    assert asyncio.run(Synchronous().aretrieve("q"))[0].id != threading.main_thread().name


@pytest.mark.parametrize("inside_loop", [False, True])
def test_errors_come_through_as_they_are(inside_loop: bool) -> None:
    async def caller() -> list[Hit]:
        return Asynchronous().retrieve("fail")

    with pytest.raises(LookupError, match="as asked"):
        asyncio.run(caller()) if inside_loop else Asynchronous().retrieve("fail")


BASES = [
    (BaseRetriever, "neither retrieve nor aretrieve"),
    (BaseSelector, "neither select nor aselect"),
    (BaseLLM, "neither complete nor acomplete"),
    (BaseReranker, "none of score, ascore, rerank, arerank"),
    (BaseRefiner, "neither refine nor arefine"),
    (BaseCompressor, "neither compress nor acompress"),
    (BaseTransformer, "neither transform nor atransform"),
    (BaseRouter, "none of decide, adecide, route, aroute"),
]


@pytest.mark.parametrize(("base", "message"), BASES)
def test_what_implements_neither_twin_is_refused_before_it_can_call_itself(base: type, message: str) -> None:
    """Neither the bare base nor a subclass that adds nothing may exist."""
    with pytest.raises(TypeError, match=rf"{base.__name__} implements {message}"):
        base()
    with pytest.raises(TypeError, match=rf"Nothing implements {message}; {base.__name__} needs one"):
        type("Nothing", (base,), {})
