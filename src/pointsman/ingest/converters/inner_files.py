"""Files within files: attachments of messages, and the files in an archive."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from pointsman.ingest.conversion import MAX_UNPACKED, Conversion, Converted
from pointsman.ingest.converters.office.archive import Archive
from pointsman.ingest.source_text import ParsedDocument, Problem, text_digest
from pointsman.tools.errors import InputError

_EMBEDDING = re.compile(r"(?:word|xl/worksheets|ppt/slides)/[^/]+\.xml")  # parts that may refer to embedded files
_LONGEST_MEMBER = 200  # characters of a name


def archive(path: str, data: bytes, conversion: Conversion) -> Converted:
    """Yield what the files in a ZIP archive hold, each in its own format; hidden files are left out.

    Raises:
        InputError: The archive is damaged.
    """
    zip_file = Archive(data, "ZIP archive")
    names = [
        name
        for name in dict.fromkeys(zip_file.names)
        if not name.endswith("/") and not any(folder.startswith((".", "__MACOSX")) for folder in name.split("/"))
    ]
    yield from _members(path, zip_file, names, conversion)


def _members(path: str, zip_file: Archive, names: Sequence[str], conversion: Conversion) -> Converted:
    """Yield what these files in a ZIP file hold, and the problems of them by their reason."""
    most_files = conversion.limits.pages
    if len(names) > most_files:
        yield Problem(path, f"{len(names)} files; only the first {most_files} are read")
    reasons: dict[str, list[str]] = {}
    for count, name in enumerate(names[:most_files]):
        if zip_file.size_with(name) > MAX_UNPACKED:
            yield Problem(path, f"unpacks to more than {MAX_UNPACKED >> 20} MB; only its first {count} files are read")
            break
        try:
            content = zip_file.read(name)
        except InputError as error:
            yield Problem(path, f"file {name!r:.200}: {error}")
            continue
        for item in _inner_documents(path, name, content, conversion):
            if isinstance(item, Problem):
                reasons.setdefault(item.reason, []).append(name)
            else:
                yield item
    for reason, names_of_reason in reasons.items():
        count_in_words = f" and {len(names_of_reason) - 1} more" if len(names_of_reason) > 1 else ""
        yield Problem(path, f"file {names_of_reason[0]!r:.200}{count_in_words}: {reason}")


def embedded_files(path: str, data: bytes, conversion: Conversion) -> Converted:
    """Yield what files embedded in an Office document hold, but not the tables behind its charts, which are shown."""
    office_file = Archive(data, "Office document")
    holders = filter(_EMBEDDING.fullmatch, office_file.names)
    targets = [target for name in holders for target in office_file.relations(name).values()]
    names = [name for name in dict.fromkeys(targets) if "/embeddings/" in name and name in office_file.names]
    yield from _members(path, office_file, names, conversion)


def attached_files(message: ParsedDocument, files: Sequence[tuple[str, bytes]], conversion: Conversion) -> Converted:
    """Yield what is attached to a message, under its subject and the file's name, with its short header fields."""
    most_files = conversion.limits.pages
    fields = {name: value for name, value in message.metadata.items() if len(str(value)) <= _LONGEST_MEMBER}
    if len(files) > most_files:
        yield Problem(message.path, f"{len(files)} attachments; only the first {most_files} are read")
    for number, (name, content) in enumerate(islice(files, most_files), start=1):
        for item in _inner_documents(message.path, name, content, conversion, number):
            if isinstance(item, Problem):
                yield Problem(message.path, f"attachment {name!r}: {item.reason}")
            else:
                title = f"{message.title} › {name}"[: 2 * _LONGEST_MEMBER]
                yield replace(item, title=title, metadata={**fields, **item.metadata})


def _inner_documents(path: str, name: str, content: bytes, conversion: Conversion, number: int = 0) -> Converted:
    """Yield the documents of a file within another as its members; whatever stops their converter is a problem.

    ``number`` tells files with the same name apart.
    """
    try:
        for item in conversion.inner(name, content):
            if isinstance(item, Problem):
                yield item
                continue
            member = f"{name}/{item.member}" if item.member else name
            digest = "-".join(filter(None, (text_digest(f"{number}/{member}"), item.record_digest)))
            record_id = None if item.record_id is None else f"{member}#{item.record_id}"
            yield replace(item, path=path, member=member[:_LONGEST_MEMBER], record_id=record_id, record_digest=digest)
    except InputError as error:
        yield Problem(path, str(error))
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001  (a hostile file may make a parser raise any exception; it is reported)
        yield Problem(path, f"cannot be converted: {type(error).__name__}: {error}"[:1000])
