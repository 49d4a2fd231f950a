"""``pointsman demo``: the main use case on real input that every machine has."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from pointsman.cli import output, printed_answers
from pointsman.tools.system.locations import redacted
from pointsman.workspace.workspace_search import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable

    from pointsman.values.types import Document

ANY_LANGUAGE, PYTHON, POINTSMAN = None, ["python"], ["pointsman"]
QUESTIONS = (
    ("How do I start another process and wait for its result?", ANY_LANGUAGE),
    ("run tests in parallel", ANY_LANGUAGE),
    ("is anything lost when the process is killed?", POINTSMAN),
    ("怎样压缩文件", PYTHON),
    ("如何读取 JSON 文件？", PYTHON),
    ("как прочитать CSV-файл построчно", PYTHON),
    ("чем глубокая копия отличается от поверхностной?", PYTHON),
)


_CHECKOUT = Path(__file__).resolve().parents[4]  # where the pages are in a checkout


def run_demo(path: str) -> None:
    """Index three datasets into ``path``, ask some questions in three languages, and suggest next steps."""
    from pointsman.ingest import installed_package_documents, own_documents, standard_library_documents

    console = output.console()
    sources: list[tuple[str, str, Callable[[], list[Document]]]] = [
        ("python", "The documentation of Python's standard library", standard_library_documents),
        ("packages", "The descriptions of the packages installed here", installed_package_documents),
        ("pointsman", "Pointsman's own documentation", lambda: own_documents(_CHECKOUT)),
    ]
    with Workspace(path) as workspace:
        for name, description, load in sources:
            start = perf_counter()
            documents = load()
            dataset = workspace.dataset(name, description=description)
            with output.progress(f"Indexing {name}") as on_progress:
                progress = 0

                def advance(count: int, total: int = len(documents)) -> None:
                    nonlocal progress
                    progress += count
                    on_progress(progress, total, f"{progress} of {total} passages")

                result = dataset.add(documents, on_progress=advance)
            stale = set(dataset.ids()) - {document.id for document in documents}
            dataset.delete(stale)
            console.print(
                f"[bold]{name}[/]  {description}: {len(dataset)} passages ({result.added} new) in "
                f"{perf_counter() - start:.1f} s"
            )
        for question, datasets in QUESTIONS:
            console.print()
            console.rule(question, style="cyan")
            context = workspace.search(question, 3, datasets=datasets)
            printed_answers.search_results(context, explain=False, as_json=False)
    console.print()
    console.print("Next steps:", style="bold")
    for line in (
        f"pointsman search 'your own question' --workspace {redacted(path)} --explain",
        f"pointsman status --workspace {redacted(path)}",
        f"pointsman serve --workspace {redacted(path)}  # a console at http://127.0.0.1:8080",
        "pointsman index some/folder --dataset notes && pointsman search 'what is in it'",
    ):
        console.print(
            f"  {line}", markup=False, highlight=False, soft_wrap=True
        )  # in one line, so that it can be copied
