"""Uploaded files, as OpenAI's clients send them: kept in the workspace, and cut into passages for a dataset when asked.

A file belongs to the key that sent it; for every other key it does not exist.
"""

from __future__ import annotations

import json
import re
import secrets
import tempfile
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pointsman.ingest import FileLimits, FileReader, FoundFile
from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from pointsman.store.backend import Backend
    from pointsman.values.types import Document

MAX_UPLOADS: Final = 1000
"""Files of one key; more are refused until it deletes some."""

_DESCRIPTION: Final = "upload"
_CONTENT: Final = "upload_content"
_BATCH: Final = "upload_batch"
_ID: Final = re.compile(r"file-[0-9a-f]{24}")
_BATCH_ID: Final = re.compile(r"vsfb_[0-9a-f]{24}")
_LONGEST_NAME: Final = 255  # bytes
_cutting: Final = threading.BoundedSemaphore(2)  # each takes a processor, and up to 900 MB
_LONGEST_SUFFIX: Final = 20  # characters; a longer one says nothing of the format


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that a client has sent.

    Attributes:
        id: ``file-`` and 24 hexadecimal digits.
        owner: the id of the key that sent it; empty where there are no keys.
        filename: its name, without folders.
        purpose: what the client says that it is for.
        size: in bytes.
        created_at: in seconds since 1970.
    """

    id: str
    owner: str
    filename: str
    purpose: str
    size: int
    created_at: int

    @property
    def source(self) -> str:
        """The source of its passages: no other file has it."""
        return f"{self.id}/{self.filename}"


@dataclass(frozen=True, slots=True)
class UploadBatch:
    """Files that were attached to a dataset together.

    Attributes:
        id: ``vsfb_`` and 24 hexadecimal digits.
        dataset: the dataset's name.
        created_at: in seconds since 1970.
        file_ids: the files.
        errors: by the ids of files that could not be attached, why.
        gaps: by the ids of files that were attached in part, what was left out, and why.
    """

    id: str
    dataset: str
    created_at: int
    file_ids: Sequence[str]
    errors: Mapping[str, str]
    gaps: Mapping[str, str]


class Uploads:
    """The uploaded files of one key.

    Args:
        backend: where the workspace is stored.
        owner: the id of the key; None where there are no keys.
    """

    def __init__(self, backend: Backend, owner: str | None) -> None:
        self._backend, self._owner = backend, owner or ""

    def save(self, filename: str, purpose: str, content: bytes) -> Upload:
        """Keep a file.

        Raises:
            InputError: its name cannot be one, or the key has too many files already.
        """
        name = _checked_name(filename)
        if len(self.all()) >= MAX_UPLOADS:
            raise InputError(f"there are {MAX_UPLOADS} uploaded files already; delete some of them")
        upload = Upload(_new_id("file-"), self._owner, name, purpose, len(content), int(time.time()))
        self._backend.put_record(_CONTENT, upload.id, b64encode(content).decode("ascii"))
        self._backend.put_record(_DESCRIPTION, upload.id, json.dumps(asdict(upload)))  # last: it makes the file exist
        return upload

    def all(self) -> list[Upload]:
        """Return the files, the oldest first."""
        uploads = (Upload(**json.loads(record.value)) for record in self._backend.records(_DESCRIPTION).values())
        return sorted(
            (upload for upload in uploads if upload.owner == self._owner),
            key=lambda upload: (upload.created_at, upload.id),
        )

    def get(self, file_id: str) -> Upload | None:
        """Return a file; None if there is no such file of this key."""
        record = self._backend.record(_DESCRIPTION, file_id) if _ID.fullmatch(file_id) else None
        upload = None if record is None else Upload(**json.loads(record.value))
        return upload if upload is not None and upload.owner == self._owner else None

    def content(self, upload: Upload) -> bytes:
        """Return what was sent.

        Raises:
            InputError: the file has been deleted meanwhile.
        """
        record = self._backend.record(_CONTENT, upload.id)
        if record is None:
            raise InputError(f"the file {upload.id} has been deleted; upload it again")
        return b64decode(record.value)

    def delete(self, upload: Upload) -> None:
        """Delete a file; passages made from it stay."""
        self._backend.put_record(_DESCRIPTION, upload.id, None)
        self._backend.put_record(_CONTENT, upload.id, None)

    def passages(
        self, upload: Upload, max_tokens: int, overlap: int, limits: FileLimits
    ) -> tuple[list[Document], list[str]]:
        """Cut a file into passages; also return what of it could not be read, and why. Only two are cut at a time."""
        with _cutting, tempfile.TemporaryDirectory(prefix="pointsman-upload-") as folder:
            suffix = Path(upload.filename).suffix
            path = Path(folder) / f"upload{suffix if len(suffix) <= _LONGEST_SUFFIX else ''}"
            path.write_bytes(self.content(upload))
            with FileReader(max_tokens=max_tokens, overlap=overlap, limits=limits) as reader:
                results = list(reader.read(FoundFile(path, upload.source, upload.size, False)))
        documents = [document for result in results for document in result.documents]
        return documents, [problem.reason for result in results for problem in result.problems]

    def save_batch(
        self, dataset: str, file_ids: Sequence[str], errors: Mapping[str, str], gaps: Mapping[str, str]
    ) -> UploadBatch:
        """Note which files were attached to a dataset together; of too many batches, the oldest are forgotten."""
        batches = sorted(self._batches(), key=lambda batch: (batch.created_at, batch.id))
        for old in batches[: max(0, len(batches) - MAX_UPLOADS + 1)]:
            self._backend.put_record(_BATCH, old.id, None)
        batch = UploadBatch(_new_id("vsfb_"), dataset, int(time.time()), list(file_ids), dict(errors), dict(gaps))
        self._backend.put_record(_BATCH, batch.id, json.dumps(asdict(batch)))
        return batch

    def batch(self, dataset: str, batch_id: str) -> UploadBatch | None:
        """Return a batch of a dataset; None if there is none."""
        record = self._backend.record(_BATCH, batch_id) if _BATCH_ID.fullmatch(batch_id) else None
        batch = None if record is None else UploadBatch(**json.loads(record.value))
        return batch if batch is not None and batch.dataset == dataset else None

    def forget_batches(self, dataset: str) -> None:
        """Forget the batches of a dataset that is gone."""
        for batch in self._batches():
            if batch.dataset == dataset:
                self._backend.put_record(_BATCH, batch.id, None)

    def _batches(self) -> list[UploadBatch]:
        return [UploadBatch(**json.loads(record.value)) for record in self._backend.records(_BATCH).values()]


def file_of(document_id: str) -> str:
    """Return the uploaded file that a document is a passage of; the document's own id if it is none.

    >>> file_of("file-0123456789abcdef01234567/manual.md#3"), file_of("manual.md#3")
    ('file-0123456789abcdef01234567', 'manual.md#3')
    """
    first, slash, _ = document_id.partition("/")
    return first if slash and _ID.fullmatch(first) else document_id


def is_upload(file_id: str) -> bool:
    """Whether this is the id of an uploaded file."""
    return _ID.fullmatch(file_id) is not None


def _new_id(prefix: str) -> str:
    return prefix + secrets.token_hex(12)


def _checked_name(filename: Any) -> str:
    name = str(filename or "").replace("\\", "/").rpartition("/")[2].strip()
    if name in {"", ".", ".."} or not name.isprintable() or len(name.encode("utf-8", "replace")) > _LONGEST_NAME:
        raise InputError(
            f"the name of a file is up to {_LONGEST_NAME} bytes of printable characters, not {filename!r:.80}"
        )
    return name
