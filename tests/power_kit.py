"""Power loss, replayed: what a process asks of the file system is recorded, and cut off after any of its calls.

`recorded` runs a script under strace and reads what it did to a folder. `Disk` plays that back and knows what would be
on the disk if the power failed now: of a file what was there when it was last synced, of a directory the names that it
had when *it* was last synced. Real disks often keep more; `Disk.left` can keep a random part of the rest, too.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pointsman.service.server.access.api_keys import KeyStore
from pointsman.store.local.collection import Collection
from store_kit import sound

STRACE: Final = shutil.which("strace")
_CALLS: Final = (
    "open,openat,creat,close,write,pwrite64,writev,pwritev,lseek,ftruncate,truncate,fallocate,fsync,fdatasync,sync,"
    "rename,renameat,renameat2,unlink,unlinkat,rmdir,mkdir,mkdirat,link,linkat,symlink,symlinkat,dup,dup2,dup3,"
    "copy_file_range,sendfile,chdir"
)


@dataclass
class Call:
    """One call that has succeeded."""

    name: str
    arguments: list[str]
    result: int


def record_calls(script: Path, *arguments: str) -> list[Call]:
    """Run a Python script under strace; what it writes to descriptor 1 is among the calls.

    Raises:
        CalledProcessError: it has failed.
    """
    assert STRACE is not None
    log = Path(arguments[0]).with_suffix(".strace")
    command = [STRACE, "-f", "--seccomp-bpf", "-qq", "-xx", "-s", "9999999", "-e", f"trace={_CALLS}", "-o", str(log)]
    subprocess.run([*command, sys.executable, "-W", "error", str(script), *arguments], check=True, capture_output=True)
    try:
        return list(parse_calls(log.read_text("ascii").splitlines()))
    finally:
        log.unlink()


def parse_calls(lines: Sequence[str]) -> Iterator[Call]:
    """The calls of strace's log that have succeeded, each where it takes effect: a close at its beginning."""
    partial_calls: dict[str, str] = {}
    for line in lines:
        process, _, text = line.partition(" ")
        text = text.strip()
        if text.endswith("<unfinished ...>"):
            text = text.removesuffix("<unfinished ...>")
            if text.startswith("close("):  # its number is free before it returns: another thread may open a file as it
                yield Call("close", [text.removeprefix("close(").rstrip(" )")], 0)
            else:
                partial_calls[process] = text
            continue
        if text.startswith("<... close resumed>"):
            continue
        if (resumption := re.match(r"<\.\.\. \w+ resumed>", text)) is not None:
            text = partial_calls.pop(process) + text[resumption.end() :]
        finished_call = re.fullmatch(r"(\w+)\((.*)\)\s+= (-?\d+)(?: .*)?", text)
        if finished_call is None:
            assert text.startswith(("+++", "---")), text
            continue
        if int(finished_call[3]) >= 0:
            yield Call(finished_call[1], _split(finished_call[2]), int(finished_call[3]))


def _split(arguments: str) -> list[str]:
    """The arguments; strings are hexadecimal throughout, so that no comma or bracket is in one."""
    parts, depth = [""], 0
    for character in arguments:
        depth += (character in "[{") - (character in "]}")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [argument.strip() for argument in parts]


def _bytes(text: str) -> bytes:
    assert text.startswith('"'), text
    assert text.endswith('"'), "a string was cut off"
    return bytes.fromhex(text[1:-1].replace("\\x", ""))


@dataclass(eq=False)
class File:
    """A regular file: as it is, as it is on the disk, and what was done to it since."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)  # (place, data), or (length, None)

    def write(self, offset: int, data: bytes) -> None:
        if len(self.content) < offset:
            self.content.extend(b"\0" * (offset - len(self.content)))
        self.content[offset : offset + len(data)] = data
        self.pending.append((offset, data))

    def cut(self, length: int) -> None:
        del self.content[length:]
        self.content.extend(b"\0" * (length - len(self.content)))
        self.pending.append((length, None))

    def sync(self) -> None:
        self.durable, self.pending = bytes(self.content), []

    def surviving(self, chance: random.Random | None) -> bytes:
        """What the disk has of it; with ``chance``, some of what was not synced too, in any order."""
        if chance is None:
            return self.durable
        file = File(bytearray(self.durable))
        for offset, data in self.pending:
            if chance.random() < 0.5:
                if data is None:
                    file.cut(offset)
                else:
                    file.write(offset, data)
        return bytes(file.content)


@dataclass(eq=False)
class Folder:
    """A directory: its names, those that are on the disk, and the states in between."""

    names: dict[str, File | Folder] = field(default_factory=dict)
    durable: dict[str, File | Folder] = field(default_factory=dict)
    pending: list[dict[str, File | Folder]] = field(default_factory=list)

    def change(self, name: str, entry: File | Folder | None) -> None:
        if entry is None:
            del self.names[name]
        else:
            self.names[name] = entry
        self.pending.append(dict(self.names))

    def sync(self) -> None:
        self.durable, self.pending = dict(self.names), []

    def surviving(self, chance: random.Random | None) -> dict[str, File | Folder]:
        return self.durable if chance is None else chance.choice([self.durable, *self.pending])


@dataclass
class _Descriptor:
    node: File | Folder
    offset: int = 0
    append: bool = False


class Disk:
    """A folder on a disk, as the recorded calls change it.

    Args:
        root: the folder; empty, and on the disk, when the recording began.
    """

    def __init__(self, root: Path) -> None:
        self._root, self._prefix = Folder(), os.fsencode(root)
        self._descriptors: dict[int, _Descriptor] = {}
        self.announcements: list[str] = []
        """What the process has written to its standard output, line by line."""

    def play(self, call: Call) -> bool:
        """Apply a call; whether it had to do with the folder."""
        handle = getattr(self, f"_{call.name}", None)
        assert handle is not None, f"{call.name} is not played back"
        return bool(handle(call.arguments, call.result))

    def write_surviving(self, target: Path, chance: random.Random | None = None) -> None:
        """Write down what would be there if the power failed now."""
        while target.exists():  # what was open there may still be writing
            shutil.rmtree(target, ignore_errors=True)
        _write_down(self._root, target, chance)

    # ── the calls ────────────────────────────────────────────────────────────────────────────────────────────────

    def _locate(self, path: str, base: str = "AT_FDCWD") -> tuple[Folder, str] | None:
        """The directory and the name that a path stands for, if that is within the folder."""
        raw = _bytes(path)
        if raw.startswith(b"/"):
            if not raw.startswith(self._prefix + b"/") or not raw[len(self._prefix) :].strip(b"/"):
                return None
            folder, names = self._root, os.fsdecode(raw[len(self._prefix) + 1 :]).split("/")
        elif base != "AT_FDCWD" and int(base) in self._descriptors:
            descriptor = self._descriptors[int(base)].node
            assert isinstance(descriptor, Folder)
            folder, names = descriptor, os.fsdecode(raw).split("/")
        else:
            return None
        *parents, name = [name for name in names if name]
        for part in parents:
            inner = folder.names.get(part)
            assert isinstance(inner, Folder), (path, part)
            folder = inner
        return folder, name

    def _openat(self, arguments: list[str], result: int) -> bool:
        base, path, flags = arguments[:3]
        self._descriptors.pop(result, None)
        if _bytes(path).rstrip(b"/") == self._prefix:
            self._descriptors[result] = _Descriptor(self._root)
            return False
        location = self._locate(path, base)
        if location is None:
            return False
        folder, name = location
        node = folder.names.get(name)
        is_new = node is None
        if node is None:
            assert "O_CREAT" in flags, (path, flags)
            node = File()
            folder.change(name, node)
        if "O_TRUNC" in flags and isinstance(node, File) and node.content:
            node.cut(0)
            is_new = True
        self._descriptors[result] = _Descriptor(node, append="O_APPEND" in flags)
        return is_new

    def _open(self, arguments: list[str], result: int) -> bool:
        return self._openat(["AT_FDCWD", *arguments], result)

    def _close(self, arguments: list[str], _: int) -> bool:
        self._descriptors.pop(int(arguments[0]), None)
        return False

    def _dup(self, arguments: list[str], result: int) -> bool:
        if int(arguments[0]) in self._descriptors:
            self._descriptors[result] = self._descriptors[int(arguments[0])]
        return False

    def _dup2(self, arguments: list[str], result: int) -> bool:
        self._descriptors.pop(result, None)
        return self._dup(arguments, result)

    _dup3 = _dup2

    def _file(self, descriptor: str) -> _Descriptor | None:
        held = self._descriptors.get(int(descriptor))
        return held if held is not None and isinstance(held.node, File) else None

    def _write(self, arguments: list[str], result: int) -> bool:
        if arguments[0] == "1":
            self.announcements += _bytes(arguments[1]).decode().split("\n")[:-1]
        return self._put(arguments[0], _bytes(arguments[1])[:result], None)

    def _writev(self, arguments: list[str], result: int) -> bool:
        data = b"".join(map(_bytes, re.findall(r'iov_base=("[^"]*")', arguments[1])))
        return self._put(arguments[0], data[:result], None)

    def _pwrite64(self, arguments: list[str], result: int) -> bool:
        return self._put(arguments[0], _bytes(arguments[1])[:result], int(arguments[3]))

    def _put(self, descriptor: str, data: bytes, offset: int | None) -> bool:
        held = self._file(descriptor)
        if held is None:
            return False
        assert isinstance(held.node, File)
        if offset is not None:
            held.node.write(offset, data)
            return True
        if held.append:
            held.offset = len(held.node.content)
        held.node.write(held.offset, data)
        held.offset += len(data)
        return True

    def _lseek(self, arguments: list[str], result: int) -> bool:
        if (descriptor := self._file(arguments[0])) is not None:
            descriptor.offset = result
        return False

    def _ftruncate(self, arguments: list[str], _: int) -> bool:
        descriptor = self._file(arguments[0])
        if descriptor is None:
            return False
        assert isinstance(descriptor.node, File)
        descriptor.node.cut(int(arguments[1]))
        return True

    def _fsync(self, arguments: list[str], _: int) -> bool:
        descriptor = self._descriptors.get(int(arguments[0]))
        if descriptor is not None:
            descriptor.node.sync()
        return descriptor is not None

    _fdatasync = _fsync

    def _renameat(self, arguments: list[str], _: int) -> bool:
        source, target = self._locate(arguments[1], arguments[0]), self._locate(arguments[3], arguments[2])
        if source is None or target is None:
            return False
        node = source[0].names[source[1]]
        source[0].change(source[1], None)
        target[0].change(target[1], node)
        return True

    _renameat2 = _renameat

    def _rename(self, arguments: list[str], result: int) -> bool:
        return self._renameat(["AT_FDCWD", arguments[0], "AT_FDCWD", arguments[1]], result)

    def _linkat(self, arguments: list[str], _: int) -> bool:
        source, target = self._locate(arguments[1], arguments[0]), self._locate(arguments[3], arguments[2])
        if source is None or target is None:
            return False
        target[0].change(target[1], source[0].names[source[1]])
        return True

    def _unlinkat(self, arguments: list[str], _: int) -> bool:
        location = self._locate(arguments[1], arguments[0])
        if location is not None:
            location[0].change(location[1], None)
        return location is not None

    def _unlink(self, arguments: list[str], result: int) -> bool:
        return self._unlinkat(["AT_FDCWD", arguments[0]], result)

    _rmdir = _unlink

    def _mkdirat(self, arguments: list[str], _: int) -> bool:
        location = self._locate(arguments[1], arguments[0])
        if location is not None:
            location[0].change(location[1], Folder())
        return location is not None

    def _mkdir(self, arguments: list[str], result: int) -> bool:
        return self._mkdirat(["AT_FDCWD", arguments[0]], result)


def _write_down(folder: Folder, target: Path, chance: random.Random | None) -> None:
    target.mkdir()
    for name, node in folder.surviving(chance).items():
        if isinstance(node, Folder):
            _write_down(node, target / name, chance)
        else:
            (target / name).write_bytes(node.surviving(chance))


class Replay:
    """What must be there after a power loss, and whether it is.

    The script says on its standard output what it begins (``begin`` and a JSON list) and that it is ``done``.
    """

    def __init__(self, script: Path, folder: Path, workspace_name: str = "store") -> None:
        self._root, self._crash_folder = folder / "workspace", folder / "after"
        self._root.mkdir()
        self.calls = record_calls(script, str(self._root), workspace_name)
        self.problems: list[str] = []
        self.replays = 0

    def crash_everywhere(self, step: int = 1, chances: Sequence[random.Random | None] = (None,)) -> None:
        """Cut the power off after each ``step``-th call that changes or syncs something, and at the end."""
        disk, changes = Disk(self._root), 0
        for number, call in enumerate(self.calls):
            if disk.play(call):
                changes += 1
                if changes % step == 0 or number == len(self.calls) - 1:
                    for chance in chances:
                        self._check(disk, changes, chance)

    def _check(self, disk: Disk, number: int, chance: random.Random | None) -> None:
        disk.write_surviving(self._crash_folder, chance)
        self.replays += 1
        expected, interrupted_step = _expected(disk.announcements)
        try:
            state = _read_state(self._crash_folder)
        except Exception as error:  # noqa: BLE001  (this is what is looked for)
            self.problems.append(f"after call {number} ({disk.announcements[-1:]}): {type(error).__name__}: {error}")
            return
        if state == expected or (interrupted_step is not None and state == _apply(expected, interrupted_step)):
            return
        if (
            interrupted_step is not None
            and interrupted_step[0] == "add"
            and _is_part(state, expected, interrupted_step)
        ):
            return
        self.problems.append(f"after call {number} ({disk.announcements[-1:]}): {state} instead of {expected}")


State = dict[str, dict[str, str]]
"""Text by id by dataset; a file beside the datasets is a dataset of its own name with its content as one text."""


def _expected(announcements: Sequence[str]) -> tuple[State, list[Any] | None]:
    """What was acknowledged, and what had begun and was not."""
    state: State = {}
    step: list[Any] | None = None
    for line in announcements:
        word, _, payload = line.partition(" ")
        if word == "begin":
            step = json.loads(payload)
        elif word == "done":
            assert step is not None
            state, step = _apply(state, step), None
    return state, step


def _apply(state: State, step: Sequence[Any]) -> State:
    operation, name, *payload = step
    state = {dataset: dict(texts) for dataset, texts in state.items()}
    if operation == "make":
        state.setdefault(name, {})
    elif operation == "add":
        state[name].update(payload[0])
    elif operation == "delete":
        for id_ in payload[0]:
            state[name].pop(id_, None)
    elif operation == "put":
        state[name] = {"": payload[0]}
    elif operation in {"drop", "remove"}:
        state.pop(name, None)
    return state


def _is_part(actual: State, expected: State, step: Sequence[Any]) -> bool:
    """An add that was cut short may have written some of its batches."""
    _, name, texts = step
    texts_of_step = {id_: text for id_, text in actual.get(name, {}).items() if expected[name].get(id_) != text}
    return texts_of_step.items() <= texts.items() and actual == _apply(expected, ("add", name, texts_of_step))


def _read_state(root: Path) -> State:
    """What there is; the stores of every dataset agree."""
    state: State = {}
    for path in sorted(root.iterdir()) if root.exists() else []:
        if path.name == "keys.json":
            state[path.name] = {"": ", ".join(key.name for key in KeyStore(path).list() if key.revocation_time is None)}
        elif path.is_file() and path.suffix not in {".tmp", ".lock"} and path.name != "workspace.json":
            state[path.name] = {"": path.read_text("utf-8")}
    names = sorted(path.parent.name for path in (root / "datasets").glob("[!.]*/manifest.json"))
    for name in names:
        store = Collection(root / "datasets" / name)
        state[name] = {document.id: document.text for document in store.truth.documents()}
        sound(store)
        indexed_keys = {key for key, _ in store.keyword.search("rail", 10_000)}
        assert indexed_keys == {key for key, _ in store.truth.alive()}, "the keyword index does not find all documents"
        store.close()
    return state
