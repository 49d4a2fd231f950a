"""Files to passages within limits: files are converted in a separate process that can be terminated."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from pointsman.ingest.chunk import MAX_TOKENS, OVERLAP, check_sizes
from pointsman.ingest.encoding import check_encoding
from pointsman.ingest.reading_limits import FileLimits
from pointsman.ingest.source_text import Problem
from pointsman.tools.errors import InputError
from pointsman.tools.system.processes import NEUTRAL_FOLDER, bare_environment, import_path, python_command
from pointsman.values.types import Document

if TYPE_CHECKING:
    from pointsman.ingest.source_text import FoundFile

_START = "from pointsman.ingest.worker import main; main()"
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # each thread would need memory of its own


@dataclass(frozen=True, slots=True)
class ReadResult:
    """Content of one file; a large file yields several of these, an empty file one without content.

    ``stopped`` means that the file was not read to its end, because of a limit or a crash of its converter. If pictures
    were wanted, ``image`` is the picture that the only document is, as JPEG of at most 1024 by 1024 pixels.
    """

    path: str
    documents: tuple[Document, ...] = ()
    problems: tuple[Problem, ...] = ()
    is_stopped: bool = False
    image: bytes = b""


class FileReader:
    """Reads files one after the other, all in one separate process, which is terminated if a file exceeds its limits.

    The process is started for the first file, and again after a file for which it was terminated::

        with FileReader(limits=FileLimits(seconds=10)) as reader:
            for part in reader.read(file):
                dataset.add(part.documents)

    Args:
        max_tokens: Largest size of a passage, in estimated tokens.
        overlap: Estimated tokens that neighbouring passages share.
        limits: Limits of reading one file.
        images: Whether results of picture files carry the picture, too; then it need not have words.
        encoding: Of text that is not UTF-8 and does not declare its own, such as ``"windows-1251"``; by default it is
            guessed. What contradicts it is a problem, and so is a guess that is not certain.

    Raises:
        InputError: A size is out of range, or there is no such encoding.
    """

    def __init__(
        self,
        *,
        max_tokens: int = MAX_TOKENS,
        overlap: int = OVERLAP,
        limits: FileLimits | None = None,
        images: bool = False,
        encoding: str | None = None,
    ) -> None:
        check_sizes(max_tokens, overlap)
        check_encoding(encoding)
        self._options = {"max_tokens": max_tokens, "overlap": overlap, "images": images}
        self._encoding = encoding
        self._limits = limits or FileLimits()
        self._worker: _ConverterWorker | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        if self._worker:
            self._worker.end()
            self._worker = None

    def read(self, file: FoundFile) -> Iterator[ReadResult]:
        """Yield the passages of a file, in parts; a file that cannot be read is a problem, never an exception."""
        any_part = False
        for answer in self._ask(file.path, file.id, wanted="passages", alone=file.is_single, **self._options):
            documents = tuple(Document(*fields) for fields in answer.get("documents", ()))
            problems = tuple(Problem(*fields) for fields in answer.get("problems", ()))
            if documents or problems or (answer.get("end") and not any_part):
                any_part = True
                image = b64decode(answer.get("image", ""))
                yield ReadResult(file.id, documents, problems, answer.get("stopped", False), image)

    def text(self, path: str | Path) -> str:
        """Return the text of a file, to which its passages' ``start`` and ``end`` refer; see `text_of`.

        Raises:
            InputError: The file cannot be read, or not within the limits.
        """
        text, reasons = "", []
        for answer in self._ask(Path(path), str(path), wanted="text"):
            text = answer.get("text", text)
            reasons += [reason for _, reason in answer.get("problems", ())]
        if reasons:
            raise InputError(f"{path}: {'; '.join(reasons)}")
        return text

    def _ask(self, path: Path, identity: str, **request: Any) -> Iterator[dict[str, Any]]:
        worker = self._worker or _ConverterWorker(self._limits)
        self._worker = None  # if the caller stops early, this process has unread answers left
        try:
            question = {"path": str(path.absolute()), "id": identity, "encoding": self._encoding}
            for answer in worker.ask(question | request):
                yield answer
                if answer.get("end") and not answer.get("last"):
                    self._worker = worker
        finally:
            if self._worker is not worker:
                worker.end()


class _ConverterWorker:
    """A process that runs `pointsman.ingest.worker`."""

    def __init__(self, limits: FileLimits) -> None:
        self._limits = limits
        self._patience = 5 * limits.seconds + 5  # for a process that waits, or is kept waiting, without working
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (closed in `end`)
        self._process = subprocess.Popen(  # noqa: S603  (our own interpreter and module)
            python_command(_START, json.dumps(import_path())),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            env=bare_environment() | _ONE_THREAD, cwd=NEUTRAL_FOLDER,
        )  # fmt: skip
        self._answers = selectors.DefaultSelector()
        self._answers.register(self._pipe.fileno(), selectors.EVENT_READ)
        self._buffer = b""
        self._send(asdict(limits))

    def ask(self, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the answers to a request; if the process ends early, the last one says why."""
        self._send(request)
        while True:
            line = self._line(self._patience)
            if line is None:
                reason = f"its converter made no progress for {self._patience} s"
            elif not line:
                reason = self._cause_of_death()
            else:
                answer = json.loads(line)
                yield answer
                if answer.get("end"):
                    return
                continue
            yield {"problems": [[request["id"], reason]], "stopped": True, "end": True, "last": True}
            return

    def end(self) -> None:
        """Terminate the process, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        self._answers.close()
        self._pipe.close()
        if self._process.stdin:
            self._process.stdin.close()
        self._errors.close()

    @property
    def _pipe(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended; the reason is reported when its answer is read

    def _line(self, seconds: float) -> bytes | None:
        """Return the next line; empty if the process has ended, None if it does not arrive in time."""
        deadline = time.monotonic() + seconds
        chunks = [self._buffer]
        while b"\n" not in chunks[-1]:
            if not self._answers.select(max(deadline - time.monotonic(), 0)):
                return None
            data = os.read(self._pipe.fileno(), 1 << 20)
            if not data:
                return b""
            chunks.append(data)
        last, _, self._buffer = chunks[-1].partition(b"\n")
        return b"".join(chunks[:-1]) + last + b"\n"

    def _cause_of_death(self) -> str:
        code = self._process.wait()
        if code == -signal.SIGXCPU:
            return f"takes more than {self._limits.seconds} s; raise the limit seconds to index it"
        self._errors.seek(0)
        output = self._errors.read()[-4000:].decode("utf-8", "replace").strip().rpartition("\n")[2][:300]
        if "MemoryError" in output or "alloc" in output or code == -signal.SIGKILL:
            return f"needs more than {self._limits.memory >> 20} MB of memory; raise the limit memory to index it"
        if code == -signal.SIGABRT:  # PDFium aborts where an allocation fails
            return "its converter gave up (SIGABRT), as libraries do that need more memory; raise the limit memory"
        cause = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"its converter crashed ({cause}){': ' + output if output else ''}"
