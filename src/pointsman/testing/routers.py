"""The suite for routers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pointsman._twins import wait_for
from pointsman.retrieval.router import RouteDecision
from pointsman.testing._shared import DOCUMENTS, TwinConformance, answering, is_name, is_number, refused
from pointsman.types import Query

if TYPE_CHECKING:
    from pointsman.dataset import Dataset
    from pointsman.retrieval.router import BaseRouter


class RouterConformance(TwinConformance):
    """For subclasses of `BaseRouter`, which choose datasets (R1, R2).

    Promised: at least one of the datasets given, none twice; the only one without thinking; ``route``, ``decide`` and
    their twins agree; no datasets, or two of one name, are an `InputError`.
    """

    _shared: Sequence[Dataset] | None = None

    def make(self) -> BaseRouter:
        """One of yours."""
        raise NotImplementedError(f"{type(self).__name__} overrides make() and returns a router")

    def datasets(self) -> Sequence[Dataset]:
        """At least two datasets of different names; three small keyword datasets unless you have others."""
        if RouterConformance._shared is None:
            from pointsman.dataset import Dataset

            datasets = []
            for language, description in (("en", "Railways"), ("zh", "铁路"), ("ru", "Железные дороги")):
                dataset = Dataset(language, description, "keyword")
                dataset.add(document for document in DOCUMENTS if document.metadata["language"] == language)
                datasets.append(dataset)
            RouterConformance._shared = datasets
        return RouterConformance._shared

    def _ask(self, subject: Any, text: str) -> Any:
        return subject.decide(text, self.datasets())

    async def _aask(self, subject: Any, text: str) -> Any:
        return await subject.adecide(text, self.datasets())

    def _view(self, answer: Any) -> Any:
        return [dataset.name for dataset in answer.datasets]

    def _sound(self, subject: Any, answer: Any, text: str) -> None:  # noqa: ARG002  (for those who need it)
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
        """The list of datasets is that of the decision."""
        subject, text = self.make(), self.query()
        with answering("routing"):
            decided = self._view(subject.decide(text, self.datasets()))
            routed = [dataset.name for dataset in subject.route(Query(text), self.datasets())]
            awaited = [dataset.name for dataset in wait_for(subject.aroute, text, self.datasets())]
        if self.deterministic:
            assert decided == routed == awaited, f"decide gives {decided}, route {routed}, aroute {awaited}"

    def test_the_only_dataset(self) -> None:
        """Where there is one, it is the one."""
        only = list(self.datasets())[:1]
        with answering("routing to the only dataset"):
            assert self.make().route(self.query(), only) == only, "the only dataset was not chosen"

    def test_bad_datasets_are_refused(self) -> None:
        """None at all, or two of one name."""
        subject, dataset = self.make(), self.datasets()[0]
        refused("routing to no datasets", lambda: subject.decide(self.query(), []))
        refused("routing to two datasets of one name", lambda: subject.decide(self.query(), [dataset, dataset]))
