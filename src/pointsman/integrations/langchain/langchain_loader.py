"""Files as LangChain documents."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_core.document_loaders import BaseLoader

from pointsman.ingest import Problem, read_paths
from pointsman.integrations.langchain.langchain_documents import langchain_document

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from langchain_core import documents as theirs


class PointsmanLoader(BaseLoader):
    """The files below some paths as LangChain documents: passages of real length, each below its headings.

    Their metadata has ``source``, ``title`` and, where the format has them, ``page``, ``sheet`` and positions, as
    those of `pointsman.ingest.read_paths`. A file that cannot be read is left out; after loading, ``problems`` says
    which and why, and so does a warning.

    Args:
        paths: files and folders.
        options: of `pointsman.ingest.read_paths`, such as ``max_tokens=200``.

    Raises:
        InputError: an option is out of range.
    """

    def __init__(self, paths: str | Path | Iterable[str | Path], **options: Any) -> None:
        self.paths = [paths] if isinstance(paths, str | Path) else list(paths)
        self.options = options
        self.problems: list[Problem] = []

    def lazy_load(self) -> Iterator[theirs.Document]:
        """Yield the passages of one file after the other."""
        self.problems = []
        for content in read_paths(self.paths, **self.options):
            for problem in content.problems:
                self.problems.append(problem)
                warnings.warn(f"{problem.path}: {problem.reason}", stacklevel=2)
            yield from map(langchain_document, content.documents)
