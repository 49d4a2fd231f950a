"""Messages of Outlook (.msg), written property by property as [MS-OXMSG] and [MS-CFB] describe them."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

Tree = Mapping[str, "bytes | Tree"]
"""A compound file: streams and storages by their names."""

_END, _FAT, _FREE, _NOWHERE = 0xFFFFFFFE, 0xFFFFFFFD, 0xFFFFFFFF, 0xFFFFFFFF


def message(
    texts: Mapping[int, str | bytes],
    numbers: Mapping[int, int] | None = None,
    people: Mapping[str, tuple[Mapping[int, str | bytes], int]] | None = None,
    attachments: tuple[Tree, ...] = (),
    *,
    header: int = 32,
) -> dict[str, bytes | Tree]:
    """Return the storages of a message: a text is UTF-16, bytes are of a code page; people have a kind (1 To, 2 Cc)."""
    tree: dict[str, bytes | Tree] = storage_of(texts, numbers or {}, header)
    for number, (person_texts, kind) in enumerate((people or {}).values()):
        tree[f"__recip_version1.0_#{number:08X}"] = storage_of(person_texts, {0x0C15: kind}, 8)
    for number, attachment in enumerate(attachments):
        tree[f"__attach_version1.0_#{number:08X}"] = attachment
    return tree


def storage_of(texts: Mapping[int, str | bytes], numbers: Mapping[int, int], header: int) -> dict[str, bytes | Tree]:
    rows = [struct.pack("<HHIQ", 0x40 if number > 1 << 32 else 3, pid, 6, number) for pid, number in numbers.items()]
    tree: dict[str, bytes | Tree] = {}
    for pid, text in texts.items():
        kind = 0x1F if isinstance(text, str) else 0x1E
        content = text.encode("utf-16-le") if isinstance(text, str) else text
        rows.append(struct.pack("<HHIQ", kind, pid, 6, len(content)))
        tree[f"__substg1.0_{pid:04X}{kind:04X}"] = content
    return {"__properties_version1.0": bytes(header) + b"".join(rows), **tree}


def attached_message(tree: Tree) -> Tree:
    return {**storage_of({0x3001: "forwarded"}, {0x3705: 5}, 8), "__substg1.0_3701000D": tree}


def attached_file(name: str | bytes, content: bytes) -> Tree:
    return {**storage_of({0x3707: name}, {0x3705: 1}, 8), "__substg1.0_37010102": content}


class _Entry(NamedTuple):
    name: str
    kind: int
    child: int
    sibling: int
    start: int
    size: int

    def directory_entry(self) -> bytes:
        name = (self.name + "\0").encode("utf-16-le")
        form = "<64sHBBIII16sIQQIQ"
        return struct.pack(form, name, len(name), self.kind, 1, _NOWHERE, self.sibling, self.child, b"", 0, 0, 0,
                           self.start, self.size)  # fmt: skip


def compound_file(tree: Tree) -> bytes:
    """Return a compound file; all streams are in its mini stream, so each is shorter than 4096 bytes."""
    entries: list[_Entry] = [_Entry("Root Entry", 5, 1 if tree else _NOWHERE, _NOWHERE, 0, 0)]
    mini_stream = bytearray()
    chains: list[int] = []

    def add(folder: Tree) -> None:
        names = list(folder)
        for position, name in enumerate(names):
            content = folder[name]
            index = len(entries)
            if isinstance(content, bytes):
                assert len(content) < 4096
                sectors = -(-len(content) // 64)
                first = len(chains) if sectors else _END
                chains.extend([len(chains) + number + 1 for number in range(sectors - 1)] + ([_END] if sectors else []))
                mini_stream.extend(content.ljust(64 * sectors, b"\0"))
                entries.append(_Entry(name, 2, _NOWHERE, _NOWHERE, first, len(content)))
            else:
                entries.append(_Entry(name, 1, index + 1 if content else _NOWHERE, _NOWHERE, 0, 0))
                add(content)
            if position + 1 < len(names):
                entries[index] = entries[index]._replace(sibling=len(entries))

    add(tree)
    sizes = [-(-len(entries) // 4), -(-len(chains) // 128), -(-len(mini_stream) // 512)]
    starts = [0, sizes[0], sizes[0] + sizes[1]]
    sector_count = sum(sizes)
    fats = next(count for count in range(1, 99) if 128 * count >= sector_count + count)
    table = list(_chains(starts, sizes)) + [_FAT] * fats
    entries[0] = entries[0]._replace(start=starts[2] if mini_stream else _END, size=len(mini_stream))
    directory = b"".join(entry.directory_entry() for entry in entries).ljust(512 * sizes[0], b"\0")
    header = struct.pack(
        "<8s16sHHHHH6sIIIIIIIII", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"", 0x3E, 3, 0xFFFE, 9, 6, b"", 0, fats, 0, 0,
        4096, starts[1] if chains else _END, sizes[1], _END, 0,
    )  # fmt: skip
    header += struct.pack("<109I", *range(sector_count, sector_count + fats), *[_FREE] * (109 - fats))
    mini_fat = struct.pack(f"<{len(chains)}I", *chains).ljust(512 * sizes[1], b"\xff")
    fat = struct.pack(f"<{len(table)}I", *table).ljust(512 * fats, b"\xff")
    return header + directory + mini_fat + bytes(mini_stream).ljust(512 * sizes[2], b"\0") + fat


def _chains(starts: list[int], sizes: list[int]) -> Iterator[int]:
    for start, size in zip(starts, sizes, strict=True):
        yield from (start + number + 1 if number < size - 1 else _END for number in range(size))
