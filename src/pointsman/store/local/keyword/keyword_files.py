"""The files of a keyword index, and whether they are intact.

tantivy ends each of its files with a CRC-32 but does not check it while searching; here it is checked when an index is
opened. Since a file of another index is valid in itself, the checksums are also recorded in a separate file.
"""

from __future__ import annotations

import json
import logging
import os
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pointsman.store.local.files_and_locks import file_stamp, open_regular, read_regular
from pointsman.store.prepared_documents import UNREADABLE
from pointsman.tools.system.at_once import at_once, in_turn

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger(__name__)

_CHECKSUMS = "checksums.json"
_FOOTER_MAGIC = 1337
_FOOTER_BYTES = 256  # of which tantivy uses about a hundred
_READ_BYTES = 1 << 18
_BESIDE_BYTES = 1 << 25  # as many take some 20 ms


def damaged_files(directory: Path) -> list[Path]:
    """Return the files of live segments that have a wrong checksum, belong to another index, or are missing.

    Raises:
        ValueError, OSError: the list of segments itself cannot be read.
    """
    while True:
        state = file_stamp(directory / "meta.json")
        try:
            files = _damaged_files(directory)
        except (ValueError, OSError):
            if file_stamp(directory / "meta.json") == state:
                raise
        else:
            if file_stamp(directory / "meta.json") == state:
                return files
        # A merge replaced files during the check: check again.


def _damaged_files(directory: Path) -> list[Path]:
    live, checksums = _live(directory), _noted_checksums(directory)
    wrong = []
    if checksums.get(_signature(directory), crc := _meta_crc(directory)) != crc:
        wrong.append(directory / "meta.json")
    sizes = {path: path.stat().st_size for path in live}
    unchecked = iter(sorted(live, key=sizes.__getitem__, reverse=True))  # both threads take the next one from it

    def check_files() -> None:
        for path in unchecked:
            own_crc = _sound_crc(path)
            if own_crc is None or checksums.get(path.name, own_crc) != own_crc:
                wrong.append(path)

    both = at_once if sum(sizes.values()) > _BESIDE_BYTES else in_turn
    both(check_files, check_files)
    names, present = {_segment(path.name) for path in live}, {path.name for path in live}
    # Lists of deletions come and go during the life of a segment; its other files do not.
    missing = [
        name for name in checksums if _segment(name) in names and name not in present and not name.endswith(".del")
    ]
    return wrong + [directory / name for name in missing]


def segments(directory: Path) -> list[Any]:
    """Return the live segments.

    Raises:
        ValueError: the list of segments is damaged.
        OSError: it cannot be read.
    """
    try:
        segment_list = json.loads(read_regular(directory / "meta.json"))["segments"]
        for segment in segment_list:
            if not isinstance(segment["segment_id"], str) or not isinstance(segment["deletes"], dict | None):
                raise TypeError(f"a segment is {segment!r:.80}")
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"meta.json is no list of segments: {type(error).__name__}: {error!s:.200}") from error
    return list(segment_list)


def _signature(directory: Path) -> str:
    """Return a name for a state of the segment list, which has no checksum of its own: its segments and deletions."""
    states = [f"{segment['segment_id']} {(segment['deletes'] or {}).get('opstamp')}" for segment in segments(directory)]
    return "meta.json: " + ", ".join(sorted(states))


def _meta_crc(directory: Path) -> int:
    return zlib.crc32(read_regular(directory / "meta.json"))


def _live(directory: Path) -> list[Path]:
    names = {segment["segment_id"].replace("-", "") for segment in segments(directory)}
    return [path for path in directory.iterdir() if _segment(path.name) in names]


def _segment(name: str) -> str:
    return name.partition(".")[0]


def note_checksums(directory: Path) -> None:
    """Record the checksums of the files; not synced: if the record is missing or old, less is checked."""
    temporary = directory / f"{_CHECKSUMS}.tmp"
    try:
        old_checksums, checksums = _noted_checksums(directory), {}
        for path in _live(directory):
            if path.name in old_checksums:  # files are written once, under names that are never reused
                checksums[path.name] = old_checksums[path.name]
                continue
            with suppress(FileNotFoundError), open_regular(path) as file:  # it was just merged away
                file.seek(-min(_FOOTER_BYTES, path.stat().st_size), os.SEEK_END)
                checksums[path.name] = _crc(file.read())
        checksums[_signature(directory)] = _meta_crc(directory)
        if checksums != old_checksums:
            temporary.write_text(json.dumps(checksums))
            temporary.replace(directory / _CHECKSUMS)
    except (OSError, ValueError) as error:
        log.warning("%s cannot be written (%s) and is not used", directory / _CHECKSUMS, error)


def _noted_checksums(directory: Path) -> dict[str, int]:
    try:
        checksums = json.loads(read_regular(directory / _CHECKSUMS))
        return {str(name): int(crc) for name, crc in checksums.items()}
    except FileNotFoundError:
        return {}
    except (OSError, *UNREADABLE) as error:
        log.info("%s cannot be read (%s) and is not used", directory / _CHECKSUMS, error)
        return {}


def _sound_crc(path: Path) -> int | None:
    """Return the checksum stated at the end of a file; None if the file does not have it.

    A file may be half a gigabyte, and is never in memory as a whole.
    """
    with open_regular(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(-min(_FOOTER_BYTES, size), os.SEEK_END)
        footer = file.read()
        unread_bytes = size - 8 - int.from_bytes(footer[-8:-4], "little")
        file.seek(0)
        crc, buffer = 0, memoryview(bytearray(_READ_BYTES))
        while unread_bytes > 0 and (count := file.readinto(buffer[:unread_bytes])):  # type: ignore[attr-defined]  # of a binary file
            crc = zlib.crc32(buffer[:count], crc)
            unread_bytes -= count
    return crc if unread_bytes == 0 and crc == _crc(footer) else None


def _crc(content: bytes) -> int:
    """Return the checksum stated at the end of a file, of which the last bytes suffice; -1 when there is none.

    A file ends with a JSON footer that holds the CRC-32 of what precedes it, the footer's length and a magic number.
    """
    length, magic = int.from_bytes(content[-8:-4], "little"), int.from_bytes(content[-4:], "little")
    if magic != _FOOTER_MAGIC or length + 8 > len(content):
        return -1
    try:
        return int(json.loads(content[-8 - length : -8])["crc"])
    except (*UNREADABLE, KeyError):
        return -1
