"""Real text on every machine with Python: the standard library, the installed packages, our own pages."""

from __future__ import annotations

import ast
import importlib
import sysconfig
import warnings
from dataclasses import replace
from itertools import islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pointsman.ingest import converters
from pointsman.ingest.chunk import chunk
from pointsman.ingest.convert import plain
from pointsman.ingest.folder import read_paths
from pointsman.ingest.source_text import ParsedDocument, Section, clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from importlib.metadata import Distribution

    from pointsman.values.types import Document

MODULES = (  # noqa: SIM905  (a list would fill pages)
    "abc argparse array ast asyncio.base_events asyncio.events asyncio.futures asyncio.locks asyncio.queues "
    "asyncio.runners asyncio.streams asyncio.subprocess asyncio.tasks asyncio.taskgroups asyncio.timeouts base64 bdb "
    "bisect builtins bz2 calendar cmath cmd code codecs collections colorsys compileall "
    "concurrent.futures._base concurrent.futures.process concurrent.futures.thread configparser "
    "contextlib contextvars copy cProfile csv ctypes.util dataclasses datetime decimal difflib dis doctest "
    "email.message email.policy email.utils email.headerregistry enum errno faulthandler filecmp fileinput fnmatch "
    "fractions ftplib functools gc getopt getpass gettext glob graphlib gzip hashlib heapq hmac html html.parser "
    "http.client http.cookies http.cookiejar http.server imaplib importlib importlib.metadata "
    "importlib.util inspect io ipaddress itertools json json.decoder json.encoder keyword linecache locale logging "
    "logging.config logging.handlers lzma mailbox marshal math mimetypes mmap multiprocessing.connection "
    "multiprocessing.context multiprocessing.managers multiprocessing.pool multiprocessing.process "
    "multiprocessing.shared_memory netrc ntpath numbers operator optparse os pathlib pdb "
    "pickle pickletools pkgutil platform plistlib poplib posixpath pprint profile pstats py_compile pydoc queue "
    "quopri random re readline reprlib rlcompleter runpy sched secrets select selectors shelve shlex shutil signal "
    "site smtplib socket socketserver sqlite3 ssl stat statistics string struct subprocess symtable "
    "sys sysconfig tarfile tempfile textwrap threading time timeit tokenize trace traceback tracemalloc types "
    "typing unicodedata unittest.case unittest.loader unittest.mock unittest.runner unittest.suite urllib.error "
    "urllib.parse urllib.request urllib.robotparser uuid venv warnings wave weakref webbrowser wsgiref.handlers "
    "wsgiref.simple_server wsgiref.util xml.dom.minidom xml.etree.ElementTree xml.sax.handler xmlrpc.client "
    "xmlrpc.server zipapp zipfile zipimport zlib zoneinfo"
).split()
"""Commonly used modules of the standard library, in alphabetical order; missing ones are skipped."""

_PYTHON_TWINS = {"datetime": "_pydatetime", "decimal": "_pydecimal", "io": "_pyio"}
_COMPILED_MODULES = frozenset(
    "array bisect builtins cmath collections contextvars csv errno faulthandler functools gc heapq itertools marshal "  # noqa: SIM905  (a list would fill pages)
    "math mmap operator random readline select signal sqlite3 struct sys time unicodedata zlib "
    "zoneinfo".split()
)
"""Modules partly or wholly written in C: their documentation exists only in memory, and importing them is harmless."""

_FEW_WORDS = 8  # a shorter docstring repeats a name rather than explaining it

Docstring = tuple[str, str, str]
"""Qualified name, kind, and text with the signature above."""


def standard_library_documents(limit: int | None = 1500, modules: Iterable[str] = MODULES) -> list[Document]:
    """Return the documentation of the running interpreter's standard library, one document per docstring.

    Source files are parsed, not imported, so no code runs. If there are more than ``limit`` passages, modules take
    turns, each giving its next docstring, so that every module is represented.
    """
    return list(islice(_turns([_module_documents(module) for module in modules]), limit))


def _module_documents(module: str) -> Iterator[Document]:
    for name, kind, text in _docstrings(module):
        source = ParsedDocument(
            path=f"python/{module}",
            title=name,
            sections=(Section((), text, 0),),
            text=text,
            kind=kind,
            metadata={"module": module},
            record_id=name,
        )
        yield from chunk(source)


def installed_package_documents(limit: int | None = 600, per_package: int = 12) -> list[Document]:
    """Return the long descriptions of the installed distributions by heading: the first passages of each, in turns."""
    from importlib.metadata import distributions  # slow to import, seldom needed

    latest = {_field(item, "Name").lower(): item for item in distributions()}
    per_distribution = [islice(_description(item), per_package) for name, item in sorted(latest.items()) if name]
    return list(islice(_turns(per_distribution), limit))


def own_documents(root: Path | None = None) -> list[Document]:
    """Return Pointsman's own pages: those of a checkout at ``root``, else the installed package's description."""
    if root is not None:
        pages = [path for path in (root / "README.md", root / "docs") if path.exists()]
        if pages:
            documents = (document for item in read_paths(pages) for document in item.documents)
            return [document for document in documents if document.metadata["kind"] == "md"]
    from importlib.metadata import PackageNotFoundError, distribution  # as above

    try:
        return list(_description(distribution("pointsman")))
    except PackageNotFoundError:
        return []


def _turns(lists: Iterable[Iterator[Document]]) -> Iterator[Document]:
    """Yield the first item of each list, then the second of each, and so on."""
    for turn in zip_longest(*lists):
        yield from (document for document in turn if document is not None)


def _field(item: Distribution, name: str) -> str:
    """Return a metadata field of a distribution, empty if missing, for which indexing will raise an error in future."""
    return str((item.metadata.get_all(name) or [""])[0])


def _description(item: Distribution) -> Iterator[Document]:
    metadata = item.metadata
    name, summary = _field(item, "Name"), _field(item, "Summary")
    payload = _field(item, "Description") or (metadata.get_payload() if hasattr(metadata, "get_payload") else "")
    text = clean(payload if isinstance(payload, str) else "").strip()
    if not text or text == "UNKNOWN":
        text = summary
    if not text:
        return
    content_type = (_field(item, "Description-Content-Type") or "text/x-rst").partition(";")[0].strip().lower()
    convert = {"text/markdown": converters.markup.markdown, "text/x-rst": converters.markup.restructured_text}.get(
        content_type, plain
    )
    source = convert(f"packages/{name}", text)
    facts: dict[str, Any] = {"name": name, "version": item.version, "summary": summary}
    yield from chunk(replace(source, title=name, metadata={**source.metadata, **facts}))


def _docstrings(module: str) -> Iterator[Docstring]:
    docstrings: dict[str, Docstring] = {}
    for name in (_PYTHON_TWINS.get(module, module), module):
        base = Path(sysconfig.get_path("stdlib"), *name.split("."))
        for path in (base.with_suffix(".py"), base / "__init__.py"):
            if path.is_file() and not docstrings:
                docstrings = {item[0]: item for item in _parsed_docstrings(module, path)}
    if module in _COMPILED_MODULES:
        docstrings = {item[0]: item for item in _imported_docstrings(module)} | docstrings
    yield from docstrings.values()


def _parsed_docstrings(module: str, path: Path) -> Iterator[Docstring]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in old modules
        tree = ast.parse(path.read_bytes())
    if text := _worthy(ast.get_docstring(tree)):
        yield module, "module", text
    yield from _members(tree.body, module, "function")


def _members(body: list[ast.stmt], owner: str, kind: str) -> Iterator[Docstring]:
    for node in body:
        if isinstance(node, ast.If | ast.Try):  # platform-dependent definitions
            yield from _members(node.body, owner, kind)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or node.name[0] == "_":
            continue
        name = f"{owner}.{node.name}"
        text = _worthy(ast.get_docstring(node))
        if isinstance(node, ast.ClassDef):
            if text:
                yield name, "class", text
            yield from _members(node.body, name, "method")
        elif text:
            yield name, kind, f"{node.name}({ast.unparse(node.args)})\n\n{text}"


def _imported_docstrings(module: str) -> Iterator[Docstring]:
    try:
        imported_module = importlib.import_module(module)
    except ImportError:
        return  # not built into this interpreter
    if text := _worthy(imported_module.__doc__):
        yield module, "module", text
    for name, member in sorted(vars(imported_module).items()):
        if name.startswith("_") or getattr(member, "__module__", None) not in (module, f"_{module}"):
            continue
        if isinstance(member, type):
            if text := _worthy(member.__doc__):
                yield f"{module}.{name}", "class", text
            for inner, method in sorted(vars(member).items()):
                text = _worthy(getattr(method, "__doc__", None)) if callable(method) else ""
                if text and not inner.startswith("_"):
                    yield f"{module}.{name}.{inner}", "method", f"{inner}{_signature(method)}\n\n{text}"
        elif callable(member) and (text := _worthy(member.__doc__)):
            yield f"{module}.{name}", "function", f"{name}{_signature(member)}\n\n{text}"


def _signature(member: Any) -> str:
    import inspect  # slow to import, seldom needed

    try:
        return str(inspect.signature(member))
    except (TypeError, ValueError):
        return "(…)"  # C functions may lack a signature


def _worthy(docstring: str | None) -> str:
    from inspect import cleandoc  # as above

    text = cleandoc(clean(docstring or "")).strip()
    return text if len(text.split()) >= _FEW_WORDS else ""
