"""Answers of searches for people: hits, refusals, traces, sources and checked claims.

rich is imported only by functions that draw.
"""

from __future__ import annotations

import math
import re
import sys
from typing import TYPE_CHECKING

from pointsman.cli.output import console, print_json, table, with_noun
from pointsman.tools.json_forms import plain_form
from pointsman.tools.printable import printable
from pointsman.values.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.text import Text

    from pointsman.values.answer_check import AnswerCheck
    from pointsman.values.retrieval_context import RetrievalContext
    from pointsman.values.types import Explanation, Hit, Provenance
    from pointsman.workspace.passages import SourceText
    from pointsman.workspace.workspace_search import Routing


_SNIPPET = 320  # characters of a passage that are printed


_WORD = re.compile(r"\w+")
_EMPHASIS = re.compile(r"(?<![\w*])(\*\*|__|\*|_)(?=[^\s*_])([^*_]{0,200}[^\s*_])\1(?![\w*])")
_BULLET = re.compile(r"^([ \t]*)[*+][ \t]+(?=[^\W\d]|[\[`\"“«])", re.MULTILINE)
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[^\n`]*(?:\n|$)", re.MULTILINE)


def search_results(context: RetrievalContext, *, explain: bool, why: Sequence[str] = (), as_json: bool = False) -> None:
    """Print the results of `pointsman search`."""
    if as_json:
        form = context.to_dict(trace="stages" if explain else "none")
        print_json({**form, "why": [plain_form(context.explain(name)) for name in why]} if why else form)
        return
    terminal = console()
    _print_understanding(terminal, context)
    if not (context.hits or context.plan.datasets):
        terminal.print("Nothing is indexed here; start with: pointsman index PATH --dataset NAME", markup=False)
    elif context.refused is not None:
        _print_refusal(terminal, context, explain=explain)
    elif not context.hits:
        terminal.print("No results.", style="yellow")
    elif context.heading is not None:
        terminal.print(context.heading, style="bold yellow")
    for rank, hit in enumerate(context.hits, 1):
        print_hit(terminal, rank, hit, context, explain=explain)
    for cause in context.degraded:
        terminal.print(f"incomplete: {printable(cause)}", style="yellow", markup=False)
    _print_summary(terminal, context)
    if explain:
        _print_trace(terminal, context)
    for name in why:
        _print_explanation(terminal, context.explain(name))


def _print_understanding(terminal: Console, context: RetrievalContext) -> None:
    """Print what was understood of the question's syntax, and what was corrected."""
    for decision in context.plan.decisions:
        if decision.what == "syntax":
            terminal.print(f"Understood: {printable(decision.reason)}", style="dim", markup=False)
        elif decision.what == "hard_form":
            terminal.print(
                f"Nothing is left out for {printable(decision.value)} in a sentence; --syntax hard insists on it.",
                style="dim",
                markup=False,
            )
    if (spelling := context.spelling) is not None:
        variant = f" and {printable(spelling.instead)}" if spelling.both else ""
        terminal.print(
            f"Showing results for {printable(spelling.text)}{variant}; --no-spelling searches for "
            f"{printable(spelling.instead)} {'alone' if spelling.both else 'instead'}.",
            style="dim",
            markup=False,
        )


def _print_summary(terminal: Console, context: RetrievalContext) -> None:
    for statement in context.reasons:
        if statement.code.startswith("order_"):  # percentages run against rank
            terminal.print(printable(statement.in_words(context.language)), style="dim", markup=False)
    terminal.print(
        f"{with_noun(len(context.hits), 'hit')} in {context.trace.milliseconds:.1f} ms · {context.plan.strategy} over "
        f"{', '.join(context.plan.datasets) or 'no dataset'}{_confidence(context)}",
        style="dim",
        markup=False,
    )
    if context.receipt is not None:
        terminal.print(f"receipt: {context.receipt}", style="dim", markup=False, soft_wrap=True)


def _confidence(context: RetrievalContext) -> str:
    if context.coverage is not None:
        return f" · contain an answer for {context.coverage:.0%} of such questions"
    if context.confidence is None or not context.hits:
        return ""
    return f" · best hit {percent(context.confidence)} relevant"


def percent(chance: float) -> str:
    """Format a probability for people; it is never exactly 0 or 1, and never rounded up to the next word for odds.

    >>> percent(0.004), percent(0.47), percent(0.4996), percent(0.998)
    ('under 1%', '47%', '49%', 'over 99%')
    """
    return "under 1%" if chance < 0.01 else "over 99%" if chance > 0.99 else f"{math.floor(chance * 100 + 1e-9)}%"


def _print_refusal(terminal: Console, context: RetrievalContext, *, explain: bool) -> None:
    """Print why an answer is refused, and then the near misses, so that people can see for themselves."""
    refusal = context.refused
    assert refusal is not None, "the caller has checked"
    remedies = ("lower" if refusal.scale == "relevance" else "anyway",) if refusal.near_misses else ()
    sentence = Reason.join_all(refusal.reason, *map(Reason.of, remedies)).in_language(context.language)
    terminal.print(f"{printable(sentence)}", style="bold yellow", markup=False)
    for rank, hit in enumerate(refusal.near_misses, 1):
        print_hit(terminal, rank, hit, context, explain=explain)


def print_hit(terminal: Console, rank: int, hit: Hit, context: RetrievalContext, *, explain: bool) -> None:
    """Print one hit of an answer: its rank, its odds and metadata, and the part of its text relevant to the query."""
    from rich.padding import Padding
    from rich.text import Text

    location = printable(str(hit.citation))
    caption = printable(hit.caption)
    name = location if location.endswith(caption) else caption
    worth = f"{hit.score:.2f}"
    if hit.relevance is not None:
        worth = f"{Reason.of(f'odds_{hit.odds}').in_language(context.language)} {percent(hit.relevance)}"
    head = Text.assemble((f"{rank}. ", "bold"), (name, "bold cyan"), (f"  {worth}", "green"))
    head.append(f"  {hit.dataset}" if hit.dataset else "", "magenta")
    head.append(f"  {location}" if location not in head.plain else "", "dim")
    head.append(f"  {printable(str(hit.not_in_force))}" if hit.not_in_force is not None else "", "yellow")
    terminal.print(head)
    terminal.print(
        Padding(
            snippet(hit.text, context.query.text, is_markdown=hit.metadata.get("kind") == "md"),
            (0, 0, 0, 3),
            expand=False,
        )
    )
    if explain:
        terminal.print(
            Padding(
                Text(f"{printable(hit.id)}  ←  {', '.join(map(step_text, hit.provenance))}", "dim"),
                (0, 0, 0, 3),
                expand=False,
            )
        )
    terminal.print()


def source_text(passage: SourceText, *, as_json: bool) -> None:
    """Print the text that citations refer to."""
    if as_json:
        print_json(passage.to_dict())
    elif sys.stdout.isatty():
        console().print(printable(passage.text), markup=False, soft_wrap=True)
    else:
        sys.stdout.write(passage.text)


def answer_check(check: AnswerCheck, *, as_json: bool) -> None:
    """Print which quotes and numbers of an answer are in the hits."""
    if as_json:
        print_json(check.to_dict())
        return
    from rich.text import Text

    terminal = console()
    styles = {"exact": "green", "near": "yellow", "unsupported": "red"}
    for claim in check.claims:
        citations = "" if claim.hit is None else f"  [{claim.hit}]"
        if claim.misattributed:
            citations += f", not {', '.join(f'[{number}]' for number in claim.named)}"
        terminal.print(
            Text.assemble((f"{claim.status:12}", styles[claim.status]), printable(claim.text), (citations, "dim"))
        )
    count = f"quotes and numbers: {len(check.claims)}"
    terminal.print(f"{count}, {len(check.unsupported)} of them in none of the hits", style="dim", markup=False)


def routes(route: Routing, *, as_json: bool) -> None:
    """Print the three decisions of `pointsman route`; those that need a workspace are null without one."""
    if as_json:
        print_json(route.to_dict())
        return
    heuristic, plan, decision = route.heuristic, route.plan, route.decision
    # The reason of a rule of one's own is code and words at once.
    reasons = dict.fromkeys((", ".join(heuristic["reasons"]), route.heuristic_reason))
    rows = [["heuristic route", heuristic["route"], ": ".join(reasons)]]
    if plan:
        rows.append(["strategy", plan.strategy, plan.reason])
    if decision:
        sure = "" if decision.confidence is None else f" (confidence {decision.confidence:.2f})"
        rows.append(["datasets", ", ".join(dataset.name for dataset in decision.datasets), decision.reason + sure])
    table(["decision", "choice", "reason"], rows)


def step_text(step: Provenance) -> str:
    """Format a list, the rank in it, the raw score, and its contribution, such as ``bm25 #3 (7.251, +7.25)``."""
    rank = f"#{step.rank}" if step.rank else "not in its list"
    numbers = [f"{step.score:.3f}"] if step.score is not None else []
    numbers += [f"{step.normalised:+.3g}"] if step.normalised is not None else []
    return f"{step.source} {rank}" + (f" ({', '.join(numbers)})" if numbers else "")


_BAR = 24  # characters


_WITHOUT_DETAIL = {"transform": "the question is searched as it is"}


def _print_trace(terminal: Console, context: RetrievalContext) -> None:
    """Print every stage with its decision and timing: parallel branches are shown as overlapping bars."""
    terminal.print()
    if context.hits:
        terminal.print(
            "after ←: list or stage #rank there (score there, what it adds to the fused score)", markup=False
        )
    terminal.print(f"why {context.plan.strategy}: {printable(context.plan.reason)}", markup=False)
    duration = context.trace.milliseconds or 1.0
    rows = []
    for span in context.trace.spans:
        begin = int(_BAR * span.started / duration)
        length = max(1, round(_BAR * span.milliseconds / duration))
        bar = " " * min(begin, _BAR - 1) + ("▒" if span.error else "█") * min(length, _BAR - min(begin, _BAR - 1))
        text = span.detail or _WITHOUT_DETAIL.get(span.stage, "")
        text = text if span.error is None else f"{text}: {span.error}"
        count = "" if span.count is None else span.count
        rows.append([span.stage, text, count, f"{span.milliseconds:.2f} ms", f"{bar:{_BAR}}"])
    table(["stage", "what", "count", "time", ""], rows, right=(2, 3))


def _print_explanation(terminal: Console, explanation: Explanation) -> None:
    """Print a document's position in each list and after each stage."""
    terminal.print()
    terminal.print(f"why {printable(explanation.id)}: {printable(explanation.summary)}", markup=False)
    rows = [
        [
            step.stage if step.stage == step.source else f"{step.stage} {step.source}",
            f"{step.rank} of {step.count}" if step.rank else f"not among {step.count}",
            "" if step.score is None else f"{step.score:.3f}",
            "" if step.lowest is None else f"{step.lowest:.3f}",
            step.reason or "",
        ]
        for step in explanation.steps
    ]
    table(["stage", "rank", "score", "lowest", "reason"], rows, right=(2, 3))


def snippet(text: str, query: str, *, is_markdown: bool = False) -> Text:
    """Return the sentences around the one that shares most words with the query, with those words highlighted.

    It ends at a word. ``is_markdown`` leaves out the marks of emphasis and fences of code, and prints bullets as such.
    """
    from rich.text import Text

    from pointsman.text import DEFAULT_ANALYZER, sentences

    text = printable(text)
    if is_markdown:
        text = _FENCE.sub("", _BULLET.sub(r"\1• ", _EMPHASIS.sub(r"\2", text)))
    query_tokens = set(DEFAULT_ANALYZER.query_tokens(query))
    spans = sentences(text[:20_000]) or [(0, min(len(text), _SNIPPET))]
    overlaps = [len(query_tokens.intersection(DEFAULT_ANALYZER.tokens(text[start:end]))) for start, end in spans]
    best = overlaps.index(max(overlaps))
    start, end = spans[best]
    for _, span_end in spans[best + 1 :]:
        if span_end - start > _SNIPPET:
            break
        end = span_end
    if end > (limit := start + _SNIPPET) and not text[limit].isspace():
        limit = max(text.rfind(" ", limit - 40, limit), 0) or limit  # nearly no word is longer
    snippet = " ".join(text[start : min(end, limit)].split())
    ellipsis = "…" if end > limit or end < len(text.rstrip()) else ""
    result = Text(("…" if start > 0 else "") + snippet + ellipsis, overflow="fold")
    for match in _WORD.finditer(result.plain):
        tokens = set(DEFAULT_ANALYZER.tokens(match[0]))
        if tokens and tokens <= query_tokens:
            result.stylize("bold yellow", *match.span())
        elif not match[0].isascii():  # Chinese: its substrings of two or more characters in the query
            for token in (token for token in tokens & query_tokens if len(token) > 1):
                for occurrence in re.finditer(re.escape(token), match[0]):
                    result.stylize("bold yellow", match.start() + occurrence.start(), match.start() + occurrence.end())
    return result
