"""The synonyms of one's own field, from a file or one for each dataset: a question is searched with each, too."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.retrieval.plan.transform.base_transformer import BaseTransformer, Transformed
from pointsman.retrieval.plan.transform.expand_by_rules import RuleExpander
from pointsman.tools.errors import InputError
from pointsman.values.types import Query

if TYPE_CHECKING:
    from pointsman.retrieval.run.variant import Variant


class OwnSynonyms(BaseTransformer):
    """Adds the question with a term of a file replaced, for up to three synonyms; each means the same question.

    A file is read again whenever it has changed, and no index is made anew. `read_thesaurus` tells its form.

    Args:
        path: of the file, whose synonyms all datasets are searched with, or of a folder with a file ``NAME.txt`` for
            the dataset of this name.
        datasets: the names of those that may be searched.
    """

    only_computes = True

    def __init__(self, path: str | Path, datasets: Collection[str] = ()) -> None:
        self.path = Path(path).expanduser()
        self.datasets = datasets
        self._expanders: dict[Path, tuple[tuple[int, int], RuleExpander]] = {}

    def at_once(self, query: Query) -> Transformed:
        """See `BaseTransformer`; the files are small."""
        return self.transform(query)

    def transform(self, query: str | Query) -> Transformed:
        """Return the query unchanged, with its variants; without those of a file that cannot be read."""
        query = Query.of(query)
        variants: dict[Variant, set[str]] = {}
        degraded = []
        is_folder = self.path.is_dir()
        files = [file for file in sorted(self.path.glob("*.txt")) if file.stem in self.datasets]
        for file in files if is_folder else [self.path]:
            try:
                expander = self._expander(file)
            except (InputError, OSError) as error:
                degraded.append(f"synonyms: {error}; none are searched")
                continue
            for variant in expander.transform(query).variants:
                variants.setdefault(replace(variant, means_the_same=True), set()).add(file.stem)
        texts = ", ".join(repr(variant.text) for variant in variants)
        return Transformed(
            query,
            tuple(
                replace(variant, datasets=frozenset(names)) if is_folder else variant
                for variant, names in variants.items()
            ),
            f"by your synonyms also {texts:.300}" if texts else "",
            tuple(degraded),
        )

    def _expander(self, file: Path) -> RuleExpander:
        """Return the rules of a file, read again if it has changed.

        Raises:
            OSError: it is not there.
            InputError: it cannot be read, or holds something else.
        """
        status = file.stat()
        stamp = status.st_mtime_ns, status.st_size
        if file not in self._expanders or self._expanders[file][0] != stamp:
            self._expanders[file] = stamp, RuleExpander(["synonym"], file, any_form=True)
        return self._expanders[file][1]
