"""Strategies that search for text written by a language model: HyDE and Query2Doc."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pointsman.llm.model_answers import DefectError, finished_answer
from pointsman.llm.prompt_templates import fenced, fill, quoted
from pointsman.retrieval.plan.transform.base_transformer import BaseTransformer, Transformed
from pointsman.retrieval.plan.transform.disambiguate_by_rules import with_earlier_question
from pointsman.retrieval.plan.transform.llm_transformers import LLMExpander, LLMTransformer
from pointsman.retrieval.plan.transform.parallel_transformers import Together
from pointsman.retrieval.plan.transform.transform_answers import usable
from pointsman.retrieval.run.variant import Variant
from pointsman.retrieval.strategies.base_strategy import BaseRetrievalStrategy
from pointsman.tools.errors import InputError
from pointsman.values.argument_checks import check_count

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pointsman.llm.base_llm import Completion
    from pointsman.values.types import Query

PASSAGE: Mapping[str, str] = tomllib.loads(Path(__file__).with_name("passage_prompts.toml").read_text("utf-8"))
"""Prompts by language; ``$query`` is replaced by fenced data."""

_REPEATS = 5
"""How often Query2Doc repeats the query before the passage in keyword search: §2 of the paper."""


class PassageWriter(LLMTransformer):
    """Has a language model write a passage that might answer the query, and makes variants from it.

    Args:
        llm: anything with ``complete(prompt)``.
        make: makes variants from a query and the passage.
        timeout: seconds for the call, unless the budget leaves less.
    """

    _schema = None

    def __init__(
        self, llm: Any, make: Callable[[str, str], Sequence[Variant]], *, timeout: float | None = 30.0
    ) -> None:
        super().__init__(llm, timeout=timeout)
        self.make, self.prompts = make, PASSAGE

    def _prompt(self, prompts: str, query: Query) -> tuple[str, str]:
        return prompts, fill(prompts, query=fenced(quoted(with_earlier_question(query))))

    def _read(self, answer: Completion, query: Query, template: str) -> Transformed:
        passage = " ".join(finished_answer(answer.text).split())
        problem = usable(passage, query.text, template)
        if problem is not None:
            raise DefectError(problem)
        variants = tuple(replace(variant, by_model=True) for variant in self.make(query.text, passage))
        return Transformed(query, variants, f"a passage of {len(passage)} characters written by the model")

    def _unusable(self, problem: str) -> str:
        return f"the model wrote no usable passage ({problem}); the query is searched unchanged"


class HyDEStrategy(BaseRetrievalStrategy):
    """Hypothetical document embeddings: a model writes a hypothetical answer, whose vector is searched too.

    Gao et al., "Precise Zero-Shot Dense Retrieval without Relevance Labels", 2022, https://arxiv.org/abs/2212.10496.
    There the hypothetical passages replace the query; here they are searched beside it, so that a wrong one cannot
    lose what the query finds by itself. As in the paper, the similarities of query and passages are averaged.
    """

    name: ClassVar[str] = "hyde"
    needs_llm: ClassVar[bool] = True

    def __init__(self, *sources: Any, llm: Any = None, num_hypotheses: int = 1, **options: Any) -> None:
        """Choose sources and model; see `BaseRetrievalStrategy`.

        Args:
            sources: what is searched.
            llm: the model; set its temperature on the model itself.
            num_hypotheses: passages written per query, all at once.
            options: of `BaseRetrievalStrategy`.

        Raises:
            InputError: there is no model, or an option is invalid.
        """
        self.num_hypotheses = check_count(num_hypotheses, "num_hypotheses")
        super().__init__(*sources, llm=llm, **options)

    def transformer(self) -> BaseTransformer:
        """One writer for each hypothesis."""
        share = 1 / self.num_hypotheses

        def hypothesis(_: str, passage: str) -> tuple[Variant]:
            return (Variant(passage, "hypothetical", share, "vector", as_passage=True),)

        writers = [PassageWriter(self.llm, hypothesis, timeout=None) for _ in range(self.num_hypotheses)]
        return Together(*writers, budget=self.budget)


class Query2DocStrategy(BaseRetrievalStrategy):
    """A model expands the query into several queries, or by a passage appended to it.

    *Queries*: other wordings, each searched, all fused. *Document*: Wang et al., "Query2doc: Query Expansion with Large
    Language Models", 2023, https://arxiv.org/abs/2303.07678: keyword search uses the query five times and then the
    passage, vector search ``query [SEP] passage``. Either way the query itself is searched as well.
    """

    name: ClassVar[str] = "query2doc"
    variants_by_rank: ClassVar[bool] = True
    needs_llm: ClassVar[bool] = True

    def __init__(
        self,
        *sources: Any,
        llm: Any = None,
        num_expansions: int = 3,
        form: Literal["queries", "document", "both"] = "queries",
        **options: Any,
    ) -> None:
        """Choose sources, model and form; see `BaseRetrievalStrategy`.

        Args:
            sources: what is searched.
            llm: the model.
            num_expansions: queries that the model writes, in one call.
            form: ``"queries"``, ``"document"`` or ``"both"``.
            options: of `BaseRetrievalStrategy`.

        Raises:
            InputError: there is no model, or an option is invalid.
        """
        if form not in ("queries", "document", "both"):
            raise InputError(f"form is 'queries', 'document' or 'both', not {form!r:.80}")
        self.num_expansions, self.form = check_count(num_expansions, "num_expansions"), form
        super().__init__(*sources, llm=llm, **options)

    def transformer(self) -> BaseTransformer:
        """The writers for the chosen form, run together."""
        writers: list[BaseTransformer] = []
        if self.form != "document":
            writers.append(LLMExpander(self.llm, self.num_expansions, weight=1 / self.num_expansions, timeout=None))
        if self.form != "queries":
            writers.append(PassageWriter(self.llm, _with_passage, timeout=None))
        return Together(*writers, budget=self.budget)


def _with_passage(query: str, passage: str) -> tuple[Variant, Variant]:
    # BM25 adds up over words, so five copies get a fifth of the weight each; the rest of the weight is the vector's.
    share = 1 / _REPEATS
    return (
        Variant(" ".join([*[query] * _REPEATS, passage]), "expansion", share, "bm25"),
        Variant(f"{query} [SEP] {passage}", "expansion", 1 - share, "vector"),
    )
