"""Several vectors of one document: as datasets with the same ids, of which a search gives each document once."""

from __future__ import annotations

from pathlib import Path

import pointsman
from pointsman import Document
from pointsman.embedders.scripted_embedders import HashingEmbedder


def test_several_vectors_of_a_document_are_datasets_with_the_same_ids(tmp_path: Path) -> None:
    with pointsman.open(tmp_path / "work", embedder=HashingEmbedder()) as workspace:
        for name, texts in (("titles", ["red signal", "tea"]), ("bodies", ["stop at once", "a red signal at tea"])):
            workspace.dataset(name).add([Document(str(number), text) for number, text in enumerate(texts)])
        answer = workspace.search("red signal", 4, refuse=False, group_by="_id")
        assert [hit.id for hit in answer] == ["0", "1"]
        assert [hit.dataset for hit in answer] == ["titles", "bodies"]
