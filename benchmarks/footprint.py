"""Where the bytes of a dataset of tiny records go: ``python benchmarks/footprint.py [--records 100000]``.

A file of JSON lines with a few characters each is indexed with vectors of 384 numbers, which cost the
same whatever they say. Printed per passage, after the writer has closed: the file itself; what its rows hold in
`documents.sqlite`; each file on disk; and the same without vectors.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from pointsman import Workspace
from pointsman.embedders.scripted_embedders import HashingEmbedder
from pointsman.workspace.indexing.folder_sync import index_paths

DIMENSIONS = 384


def measure(folder: Path, records: int, *, embed: bool) -> None:
    """Index and print."""
    source = folder / "records.jsonl"
    source.write_text("".join(json.dumps({"n": number, "ok": True}) + "\n" for number in range(records)), "utf-8")
    with Workspace(folder / f"w{embed}", embedder=HashingEmbedder(DIMENSIONS)) as workspace:
        dataset = workspace.dataset("records", indexing_technique="hybrid" if embed else "keyword")
        index_paths(dataset, [source])
        count = len(dataset)
    place = folder / f"w{embed}" / "datasets" / "records"
    print(f"\n{count:,} passages, {'with' if embed else 'without'} vectors; bytes for each:")
    print(f"{source.stat().st_size / count:8.0f} the file")
    with closing(sqlite3.connect(place / "documents.sqlite")) as connection:
        for column in ("text", "metadata", "id", "digest"):
            size = connection.execute(f"SELECT sum(length(CAST({column} AS BLOB))) FROM documents").fetchone()[0]
            print(f"{size / count:8.0f} {column} in the rows")
        size = connection.execute("SELECT ifnull(sum(length(vector)), 0) FROM vectors").fetchone()[0]
        print(f"{size / count:8.0f} vector in the rows")
    sizes = {
        entry.name: sum(file.stat().st_size for file in ([entry] if entry.is_file() else entry.rglob("*")))
        for entry in sorted(place.iterdir())
    }
    for name, size in sizes.items():
        if size >= count:
            print(f"{size / count:8.0f} {name} on disk")
    print(f"{sum(sizes.values()) / count:8.0f} on disk in all")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    records = parser.parse_args().records
    for embed in (True, False):
        with tempfile.TemporaryDirectory() as folder:
            measure(Path(folder), records, embed=embed)


if __name__ == "__main__":
    main()
