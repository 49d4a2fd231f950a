"""The suite for routers, which only the project's own tests use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pointsman.evaluation.conformance.suite_samples import (
    DOCUMENTS,
    TwinConformance,
    answering,
    is_name,
    refused,
)
from pointsman.retrieval.plan.routers import RouteDecision
from pointsman.tools.sync_and_async import wait_for
from pointsman.values.argument_checks import is_number
from pointsman.values.types import Query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pointsman.retrieval.plan.routers import BaseRouter
    from pointsman.workspace.dataset import Dataset


class RouterConformance(TwinConformance):
    """For subclasses of `BaseRouter`, which choose datasets.

    Promised: at least one of the given datasets, without repeats; a single dataset is always chosen; ``route``,
    ``decide`` and their async versions agree; no datasets, or two with the same name, raise an `InputError`.
    """

    _shared_datasets: Sequence[Dataset] | None = None

    def make(self) -> BaseRouter:
        """Return an instance of your implementation."""
        raise NotImplementedError(f"{type(self).__name__} overrides make() and returns a router")

    def datasets(self) -> Sequence[Dataset]:
        """Return at least two datasets with different names; by default, three small keyword datasets."""
        if RouterConformance._shared_datasets is None:
            from pointsman.workspace.dataset import Dataset

            datasets = []
            for language, description in (("en", "Railways"), ("zh", "铁路"), ("ru", "Железные дороги")):
                dataset = Dataset(language, description, "keyword")
                dataset.add(document for document in DOCUMENTS if document.metadata["language"] == language)
                datasets.append(dataset)
            RouterConformance._shared_datasets = datasets
        return RouterConformance._shared_datasets

    def _ask(self, subject: Any, text: str) -> Any:
        return subject.decide(text, self.datasets())

    async def _aask(self, subject: Any, text: str) -> Any:
        return await subject.adecide(text, self.datasets())

    def _view(self, answer: Any) -> Any:
        return [dataset.name for dataset in answer.datasets]

    def _sound(self, subject: Any, answer: Any, text: str) -> None:
        assert isinstance(answer, RouteDecision), f"decide returns a RouteDecision, not {type(answer).__name__}"
        names = [dataset.name for dataset in answer.datasets]
        names_known = [dataset.name for dataset in self.datasets()]
        assert names, "no dataset was chosen; who cannot tell chooses all"
        assert set(names) <= set(names_known), f"datasets nobody gave it: {sorted(set(names) - set(names_known))}"
        assert len(set(names)) == len(names), f"a dataset is chosen once: {names}"
        assert is_name(answer.reason), f"a decision has a reason: {answer.reason!r}"
        confidence = answer.confidence
        assert confidence is None or (is_number(confidence) and 0 <= confidence <= 1), (
            f"confidence is from 0 to 1, or None: {confidence!r}"
        )

    def test_route_and_decide_agree(self) -> None:
        """`route` returns the datasets of the decision."""
        subject, text = self.make(), self.query()
        with answering("routing"):
            by_decide = self._view(subject.decide(text, self.datasets()))
            by_route = [dataset.name for dataset in subject.route(Query(text), self.datasets())]
            by_aroute = [dataset.name for dataset in wait_for(subject.aroute, text, self.datasets())]
        if self.deterministic:
            assert by_decide == by_route == by_aroute, f"decide gives {by_decide}, route {by_route}, aroute {by_aroute}"

    def test_the_only_dataset(self) -> None:
        """A single dataset is chosen."""
        datasets = list(self.datasets())[:1]
        with answering("routing to the only dataset"):
            assert self.make().route(self.query(), datasets) == datasets, "the only dataset was not chosen"

    def test_bad_datasets_are_refused(self) -> None:
        """No datasets, or two with the same name."""
        subject, dataset = self.make(), self.datasets()[0]
        refused("routing to no datasets", lambda: subject.decide(self.query(), []))
        refused("routing to two datasets of one name", lambda: subject.decide(self.query(), [dataset, dataset]))
