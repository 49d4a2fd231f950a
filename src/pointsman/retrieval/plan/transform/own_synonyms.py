"""The synonyms of one's own field, from a file: a question is searched with each of them, too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pointsman.retrieval.plan.transform.base_transformer import BaseTransformer, Transformed
from pointsman.retrieval.plan.transform.expand_by_rules import RuleExpander
from pointsman.tools.errors import InputError
from pointsman.values.types import Query


class OwnSynonyms(BaseTransformer):
    """Adds the question with a term of the file replaced, for up to three synonyms; each means the same question.

    The file is read again whenever it has changed, and no index is made anew. `read_thesaurus` tells its form.

    Args:
        path: of the file.
    """

    only_computes = True

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()
        self._stamp: tuple[int, int] | None = None
        self._expander = RuleExpander(["synonym"], {})

    def at_once(self, query: Query) -> Transformed:
        """See `BaseTransformer`; the file is small."""
        return self.transform(query)

    def transform(self, query: str | Query) -> Transformed:
        """Return the query unchanged, with its variants; without them if the file cannot be read."""
        query = Query.of(query)
        try:
            self._read_again()
        except (InputError, OSError) as error:
            return Transformed(query, degraded=(f"synonyms: {error}; none are searched",))
        result = self._expander.transform(query)
        texts = ", ".join(repr(variant.text) for variant in result.variants)
        return replace(
            result,
            variants=tuple(replace(variant, means_the_same=True) for variant in result.variants),
            detail=f"by your synonyms also {texts:.300}" if texts else "",
        )

    def _read_again(self) -> None:
        """Read the file if it has changed.

        Raises:
            OSError: it is not there.
            InputError: it cannot be read, or holds something else.
        """
        status = self.path.stat()
        stamp = status.st_mtime_ns, status.st_size
        if stamp != self._stamp:
            self._expander, self._stamp = RuleExpander(["synonym"], self.path, any_form=True), stamp
