"""`pointsman eval`, `eval-select`, `tune`, `calibrate`: figures on labelled questions, and what is fitted to them."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pointsman.cli import output
from pointsman.cli.shared_options import (
    DATASET,
    DatasetOption,
    DatasetsOption,
    EmbedderOption,
    JsonOption,
    WorkspaceOption,
    workspace_at,
    workspace_of_settings,
)
from pointsman.tools.errors import InputError, PointsmanError
from pointsman.tools.printable import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pointsman.evaluation import Report
    from pointsman.workspace.workspace_search import Workspace


_LABELS = "Questions (query,source[,quote]), or a folder with your queries.jsonl and qrels.tsv."


def evaluate(
    labels: Annotated[
        Path,
        typer.Argument(
            metavar="CSV|DIR",
            help="Questions (query,source[,quote]) over the workspace, or a collection in BEIR form (corpus.jsonl, "
            "queries.jsonl, qrels.tsv).",
        ),
    ],
    dataset: DatasetsOption = None,
    strategies: Annotated[
        str, typer.Option(help="Comma-separated, as in hybrid,hybrid+rerank; 'all' also tests the differences.")
    ] = "bm25,vector,hybrid,auto",
    k: Annotated[int, typer.Option("--k", min=1, max=1000, help="Cutoff rank.")] = 10,
    no_rerank: Annotated[bool, typer.Option("--no-rerank", help="Do not rerank.")] = False,
    limit_queries: Annotated[int | None, typer.Option(min=1, metavar="N", help="Use only the first N.")] = None,
    workspace: Annotated[
        str | None,
        typer.Option(
            "--workspace",
            "-w",
            metavar="DIR|URL",
            help="What the CSV's questions search, by default .pointsman; the result is stored here, for the console.",
        ),
    ] = None,
    embedder: EmbedderOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Measure strategies on your own questions, or on a labelled collection.

    Prints nDCG, recall, precision and MRR as trec_eval counts them, the latency of a search with and without the
    embedding of its query, and calls and tokens of a language model. In a CSV file, a file counts by
    its best passage, a quote by the passage that holds it. The figures of a CSV file, with those of each question, are
    stored in the workspace that was searched; those of a collection, which is indexed apart, only with --workspace.
    """
    from pointsman.embedders.named_embedders import embedder_for
    from pointsman.evaluation import evaluate as evaluate_collection
    from pointsman.evaluation import evaluate_questions
    from pointsman.values.settings import Settings

    if labels.is_file():
        location = workspace or workspace_of_settings()
        with (
            workspace_at(location, embedder, service="evaluate") as open_workspace,
            output.progress("Evaluating") as on_progress,
        ):
            report = evaluate_questions(
                open_workspace,
                labels,
                strategies,
                datasets=dataset,
                k=k,
                rerank=not no_rerank,
                limit_queries=limit_queries,
                on_progress=on_progress,
            )
            output.evaluation(report, as_json=as_json)
            _store(report, open_workspace)
        return
    if dataset and labels.is_dir():
        raise InputError("--dataset goes with a CSV file of questions; a folder brings its own documents")
    # opened first: a place that cannot keep the result is refused before the measurement, not after it
    target = nullcontext() if workspace is None else workspace_at(workspace, create=True, service="keep evaluations")
    settings = Settings.load()
    with target as open_workspace:
        report = evaluate_collection(
            labels,
            strategies,
            k=k,
            rerank=not no_rerank,
            limit_queries=limit_queries,
            embedder=embedder_for(settings, embedder),
            settings=settings,
        )
        output.evaluation(report, as_json=as_json)
        if open_workspace is not None:
            _store(report, open_workspace)


def evaluate_select(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="corpus.jsonl with the choices, queries.jsonl, qrels.tsv: a BEIR folder."),
    ],
    selector: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="description, embedding, rule, hybrid, llm or ensemble; may be repeated."),
    ] = None,
    limit_queries: Annotated[int | None, typer.Option(min=1, metavar="N", help="Use only the first N.")] = None,
    price: Annotated[float | None, typer.Option(min=0, help="Of a million tokens, to print what 1,000 cost.")] = None,
    embedder: EmbedderOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Measure selectors on questions whose right choices are known.

    Prints accuracy, the latency of a selection with and without the embedding of its question, and calls, tokens and
    cost of a language model: the one that the settings name, if they do.
    """
    from pointsman.embedders.named_embedders import embedder_for
    from pointsman.evaluation import evaluate_selectors
    from pointsman.llm.chosen_models import llm_for
    from pointsman.values.settings import Settings

    settings = Settings.load()
    with output.progress("Evaluating") as on_progress:
        report = evaluate_selectors(
            folder,
            selector,
            llm=llm_for(settings).llm,
            embedder=embedder_for(settings, embedder),
            limit_queries=limit_queries,
            price=price,
            on_progress=on_progress,
        )
    output.evaluation(report, as_json=as_json)


def _store(report: Report, workspace: Workspace) -> None:
    """Store a result in a workspace; figures that were printed stay valid where nothing can be written."""
    from pointsman.workspace.past_runs import keep

    try:
        keep(workspace.backend, report.to_record())
    except (OSError, PointsmanError) as error:
        sys.stderr.write(f"pointsman: the result is not stored: {printable(str(error))}\n")


def tune(
    labels: Annotated[Path, typer.Argument(metavar="CSV|DIR", help=_LABELS)],
    dataset: DatasetOption = DATASET,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the result without storing it.")] = False,
    *,
    workspace: WorkspaceOption,
    embedder: EmbedderOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Fit the automatic choice to your own labelled queries.

    Cross-validation compares it with the default and the fixed strategies. The workspace stores it only if its gain is
    significant; otherwise the default stays. The output says which, and why. A reranker named in the settings is
    measured on the same labels; 'auto' uses it on this dataset only if its gain is significant.
    """
    from pointsman.evaluation.collections import read_labels
    from pointsman.evaluation.question_files import file_labels, read_questions
    from pointsman.evaluation.tune import tune as fitted

    queries: Mapping[str, str]
    qrels: Mapping[str, Mapping[str, int]]

    with workspace_at(workspace, embedder, service="tune") as open_workspace:
        target = open_workspace.dataset(dataset, create=False)
        answers = None
        if labels.is_file():
            by_file = file_labels([target], read_questions(labels))
            queries, qrels, answers = by_file.queries, by_file.qrels, by_file.answers
        else:
            queries, qrels = read_labels(labels)
        with output.progress("Tuning") as on_progress:
            result = fitted(target, queries, qrels, answers=answers, on_progress=on_progress)
        if not dry_run:
            open_workspace.keep(result.policy if result.chosen != "default" else None)
            if result.reranking is not None:
                open_workspace.keep_reranking(dataset, result.reranking)
        output.tuning(result, is_kept=not dry_run, as_json=as_json)


def calibrate(
    labels: Annotated[Path | None, typer.Argument(metavar="CSV|DIR", help=_LABELS)] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            "--dataset", "-d", metavar="NAME", help="The dataset.", show_default=f"{DATASET}; all with --reset"
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the result without storing it.")] = False,
    reset: Annotated[bool, typer.Option("--reset", help="Remove the calibration of the dataset, or of all.")] = False,
    *,
    workspace: WorkspaceOption,
    embedder: EmbedderOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Calibrate relevance, confidence, refusal and coverage for your own dataset.

    Without labels, it makes questions from the documents, but only if there is no built-in calibration, as with an
    embedder other than the default. Only fits that are better by cross-validation are stored; the output says which,
    and why. With forty labelled questions or more, at most 3 % of such questions are refused from then on. A reranker
    named in the settings is measured too; 'auto' uses it on this dataset only if its gain is significant.
    """
    from pointsman.evaluation.collections import read_labels
    from pointsman.evaluation.question_files import best_passages, file_labels, read_questions

    if reset and labels is not None:
        raise InputError("--reset removes a calibration; do not combine it with labels")
    with workspace_at(workspace, embedder, service="calibrate") as open_workspace:
        if reset:
            names = list(open_workspace.stored_calibrations()) if dataset is None else [dataset]
            for name in names:
                open_workspace.keep_calibration(name, None)
            output.say({"reset": names}, f"removed: {', '.join(names) or 'nothing'}", as_json=as_json)
            return
        dataset = dataset or DATASET
        queries: Mapping[str, str] | None = None
        qrels: Mapping[str, Mapping[str, int]] | None = None
        if labels is not None and labels.is_file():
            target = open_workspace.dataset(dataset, create=False)
            by_file = file_labels([target], read_questions(labels))
            queries, qrels = by_file.queries, best_passages(target, by_file)
        elif labels is not None:
            queries, qrels = read_labels(labels)
        with output.progress("Calibrating") as on_progress:
            result = open_workspace.calibrate(dataset, queries, qrels, keep=not dry_run, on_progress=on_progress)
        output.calibrating(result, is_kept=not dry_run and result.calibration is not None, as_json=as_json)
