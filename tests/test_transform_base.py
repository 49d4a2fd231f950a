"""Composing transformers: order, failures, duplicates, bounds, twins."""

from __future__ import annotations

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.retrieval.plan import transform
from pointsman.retrieval.plan.transform import BaseTransformer, QueryTransformer, Transformed, Variant
from pointsman.retrieval.plan.transform.base_transformer import distinct, same
from pointsman.tools.errors import InputError
from pointsman.values.types import Query


class Adds(BaseTransformer):
    """Adds variants; rewrites where told to."""

    def __init__(self, *texts: str, rewrite: str | None = None, degraded: tuple[str, ...] = ()) -> None:
        self.texts, self.rewrite, self.degraded = texts, rewrite, degraded
        self.queries: list[str] = []

    def transform(self, query: str | Query) -> Transformed:
        query = Query.of(query)
        self.queries.append(query.text)
        rewriting = Query(self.rewrite) if self.rewrite else query
        return Transformed(
            rewriting, tuple(Variant(text, "expansion", 0.5) for text in self.texts), "done", self.degraded
        )


class AddsLater(BaseTransformer):
    async def atransform(self, query: str | Query) -> Transformed:
        return Transformed(Query.of(query), (Variant("later", "expansion"),))


class Fails(BaseTransformer):
    def transform(self, query: str | Query) -> Transformed:
        raise RuntimeError("no such luck")


def both_ways(transformer: BaseTransformer, query: str | Query) -> Transformed:
    """The synchronous answer, checked to be the asynchronous one."""
    answer = transformer.transform(query)

    async def transform_async() -> Transformed:
        return await transformer.atransform(query)

    assert anyio.run(transform_async) == answer
    return answer


def test_each_step_sees_what_the_one_before_has_made() -> None:
    first, second = Adds("a", rewrite="rewritten"), Adds("b")
    transformation = both_ways(QueryTransformer(first, AddsLater(), second), "asked")
    assert first.queries == ["asked"] * 2
    assert second.queries == ["rewritten"] * 2
    assert transformation.query == Query("rewritten")
    assert [variant.text for variant in transformation.variants] == ["a", "later", "b"]
    assert transformation.detail == "Adds: done; Adds: done"


def test_every_public_name_is_there() -> None:
    for name in transform.__all__:
        assert name == "TRANSFORM" or getattr(transform, name).__module__.startswith("pointsman.")
    assert set(transform.__all__) <= set(dir(transform))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        transform.nothing  # type: ignore[attr-defined]  # noqa: B018  (asking is the test)


def test_nothing_to_do_gives_the_same_query() -> None:
    query = Query("asked")
    assert QueryTransformer().transform(query) == Transformed(query)
    assert QueryTransformer(Adds()).transform(query).query is query


def test_a_failing_step_is_told_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    transformation = both_ways(QueryTransformer(Adds("a", degraded=("half",)), Fails(), Adds("b")), "asked")
    assert [variant.text for variant in transformation.variants] == ["a", "b"]
    assert transformation.degraded == ("half", "Fails failed and was skipped: RuntimeError: no such luck")
    assert "Fails failed" in caplog.text


def test_variants_that_read_alike_are_kept_once_and_never_the_query() -> None:
    transformation = QueryTransformer(
        Adds("Who was  Bach", "BACH’s life", "who was bach?"), Adds("bach’s life.", "")
    ).transform("Who was Bach?")
    assert [variant.text for variant in transformation.variants] == ["BACH’s life"]


def test_a_variant_of_the_rewritten_query_goes_too() -> None:
    transformation = QueryTransformer(
        Adds("He died when", rewrite="Bach died when"), Adds("Bach died when?")
    ).transform("x")
    assert [variant.text for variant in transformation.variants] == ["He died when"]


def test_variants_are_bounded_and_it_is_said() -> None:
    transformation = QueryTransformer(Adds(*map(str, range(9))), max_variants=3).transform("asked")
    assert [variant.text for variant in transformation.variants] == ["0", "1", "2"]
    assert "the first 3 of 9" in transformation.detail
    assert QueryTransformer(Adds("a"), max_variants=0).transform("asked").variants == ()


def test_what_is_no_transformer_is_refused() -> None:
    with pytest.raises(InputError, match="max_variants"):
        QueryTransformer(max_variants=-1)
    with pytest.raises(InputError, match="transform and atransform"):
        QueryTransformer("decompose")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="neither transform nor atransform"):
        type("Nothing", (BaseTransformer,), {})


@given(st.lists(st.text(max_size=8), max_size=8), st.text(max_size=8))
def test_distinct_is_idempotent_and_never_repeats(texts: list[str], query: str) -> None:
    variants = distinct((Variant(text, "x") for text in texts), query)
    assert distinct(variants, query) == variants
    keys = [same(variant.text) for variant in variants]
    assert len({*keys, same(query), ""}) == len(keys) + len({same(query), ""})
