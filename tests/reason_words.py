"""What a search says in English, as its source has it, and examples of the values in the words of reasons."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pointsman
from pointsman.values.reasons import messages

PACKAGE = Path(pointsman.__file__).parent
REASONS = ("retrieval/**/*.py", "tools/parallel_calls.py", "workspace/calibration/*.py", "evaluation/tune.py")
"""Where reasons come from: a search, and what is fitted to a dataset."""

NO_MESSAGES = {
    "asynchronous_search.py": "names of threads",
    "chinese_follow_ups.py": "patterns of questions",
    "conversation.py": "patterns of questions",
    "english_follow_ups.py": "patterns of questions",
    "expand_by_rules.py": "patterns of questions",
    "relevance.py": "columns of a form",
    "request.py": "descriptions of parameters",
    "russian_follow_ups.py": "patterns of questions",
    "substitution.py": "patterns of questions",
}
"""Files whose texts are not what a search says to people."""

_SILENT_CALLS = re.compile(r"(Error|log\.\w+|compile|Reason\.of|TypeVar|_used_up)$")


def values_of(code: str) -> dict[str, str]:
    """Return an example of the values in the words of a code."""
    names = {name for _, name, _, _ in Formatter().parse(messages()[code][0]) if name}
    examples = {
        "error": "OSError: gone",
        "stage": "fuse",
        "names": "'a', b",
        "part": "the order is kept",
        "count": "7",
        "all": "9",
        "position": "3",
        "quoted": "'x'",
    }
    return {name: examples.get(name, f"0.{index}") for index, name in enumerate(sorted(names))}


def sentences_of(text: str) -> list[str]:
    """Return the parts of a text, where an error and its type are one value."""
    return [re.sub(r"\{\}: \{\}$", "{}", sentence) for sentence in text.split("; ")]


def _silent_nodes(tree: ast.AST) -> set[ast.AST]:
    """Return the nodes in docstrings, errors, logs, annotations and formats."""
    silent_nodes: list[ast.AST] = []
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant()):
                silent_nodes.append(node.value)
            case ast.Raise() | ast.Assert():
                silent_nodes.append(node)
            case ast.Call() if _SILENT_CALLS.search(ast.unparse(node.func)):
                silent_nodes.append(node)
            case ast.AnnAssign(annotation=ast.AST()) | ast.arg(annotation=ast.AST()):
                silent_nodes.append(node.annotation)  # type: ignore[arg-type]  # it is one, as matched
            case ast.JoinedStr():
                silent_nodes += [value for value in node.values if isinstance(value, ast.Constant)]
            case ast.FormattedValue(format_spec=ast.AST()):
                silent_nodes.append(node.format_spec)  # type: ignore[arg-type]  # it is one, as matched
    return {inner for node in silent_nodes for inner in ast.walk(node)}


def sentences_in_source() -> Iterator[tuple[str, str]]:
    """Yield the parts of texts in the source of a search, with {} for each value, and where each is."""
    for path in sorted(path for pattern in REASONS for path in PACKAGE.glob(pattern)):
        if path.name in NO_MESSAGES:
            continue
        tree = ast.parse(path.read_text("utf-8"))
        for node in {*ast.walk(tree)} - _silent_nodes(tree):
            if isinstance(node, ast.JoinedStr):
                text = "".join(str(value.value) if isinstance(value, ast.Constant) else "{}" for value in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
            else:
                continue
            for sentence in sentences_of(text):
                yield sentence, f"{path.name}:{node.lineno}"


PROBLEMS = (
    "service/server/search_requests.py",
    "service/server/state.py",
    "service/server/request_checks.py",
    "service/server/http_protocol.py",
    "service/server/access/hosts_and_sites.py",
    "service/server/access/rate_limits.py",
    "service/server/access/request_access.py",
    "service/server/protocol/*.py",
    "service/server/routes/*.py",
    "retrieval/request.py",
    "retrieval/engine.py",
    "retrieval/decisions/named_sources.py",
    "retrieval/run/source.py",
    "tools/errors.py",
    "values/filters/*.py",
    "values/answer_check.py",
    "values/argument_checks.py",
    "workspace/dataset/__init__.py",
    "workspace/dataset/documents.py",
    "workspace/dataset/dataset_lifecycle.py",
    "workspace/calibration/*.py",
    "evaluation/tune.py",
)
"""Where the errors of a request come from: the service, and what it calls for a search or a write."""

_ERROR = re.compile(r"((?<!Type)Error|HttpProblem|self\._error|_complaint|_fail)$")
"""What is told; a `TypeError` is not: it tells a programmer of a mistake, or is caught and becomes another."""

_DETAILS = {"detail", "message", "reason", "cause", "remedy", "choices", "NO_FILES", "ACCESS_IS_OFF"}


def sentences_of_problems() -> Iterator[tuple[str, str]]:
    """Yield the parts of texts of errors that a request can meet, with {} for each value, and where each is."""
    for path in sorted({path for pattern in PROBLEMS for path in PACKAGE.glob(pattern)}):
        tree = ast.parse(path.read_text("utf-8"))
        for node in ast.walk(tree):
            match node:
                case ast.Call() if _ERROR.search(ast.unparse(node.func)):
                    texts = [*node.args, *(keyword.value for keyword in node.keywords)]
                case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)) if (
                    name in _DETAILS and node.value
                ):
                    texts = [node.value]
                case ast.Return(value=ast.JoinedStr() | ast.Constant() as told) if path.parent.name == "protocol":
                    texts = [told]
                case _:
                    continue
            for text in {inner for argument in texts for inner in ast.walk(argument)}:
                if isinstance(text, ast.JoinedStr) or (
                    isinstance(text, ast.Constant)
                    and isinstance(text.value, str)
                    and not any(
                        text in ast.walk(joined) for joined in ast.walk(node) if isinstance(joined, ast.JoinedStr)
                    )
                ):
                    for sentence in sentences_of(_template(text)):
                        yield sentence, f"{path.name}:{text.lineno}"


def _template(text: ast.JoinedStr | ast.Constant) -> str:
    """Return a text with {} for each value."""
    if isinstance(text, ast.Constant):
        return str(text.value)
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in text.values)


def is_sentence(sentence: str) -> bool:
    """Whether a sentence has words: two in small letters, after a blank."""
    return not re.search(r"[\n\\]|\(\?", sentence) and bool(re.search(r"[a-z]{2,}[,:]? [a-z]{2,}", sentence))
