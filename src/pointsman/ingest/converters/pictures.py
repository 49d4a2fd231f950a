"""Reads text in pictures and scanned pages with the installed OCR engines: rapidocr, tesseract, or both.

``rapidocr`` is a package that includes its model. It is the more accurate engine for English and Chinese, also in
rotated pictures. It cannot read Russian and returns only blanks and dots for it; such lines are recognised by having
too little text for their width. ``tesseract`` is a system program that reads the languages whose data are installed.
"""

from __future__ import annotations

import io
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from pointsman.ingest.source_text import Block, ParsedDocument, Problem, clean, outline
from pointsman.tools.errors import InputError
from pointsman.tools.images import as_jpeg, open_image
from pointsman.tools.system.processes import NEUTRAL_FOLDER, bare_environment, find_program

if TYPE_CHECKING:
    from PIL.Image import Image

INSTALL = (
    "install an OCR engine to read it: pip install 'pointsman[ocr]', or the program tesseract with the data of its "
    "languages (on Debian: tesseract-ocr tesseract-ocr-rus tesseract-ocr-chi-sim)"
)

LONGEST_SIDE = 4000  # pixels; larger pictures are scaled down for the engines
_EMBEDDED_SIDE = 1024  # pixels; models of pictures take 224 to 1024
_LEAST_SIDE = 8  # pixels; smaller pictures are dots and lines without letters
_SECONDS = 20
_LANGUAGES = ("eng", "rus", "chi_sim")
_BETWEEN_HAN = re.compile(r"(?<=[\u3000-\u9fff\uff00-\uffef])[ \t]+(?=[\u3000-\u9fff\uff00-\uffef])")


class PictureLine(NamedTuple):
    """A line of text as an engine read it.

    Attributes:
        text: the text read.
        confidence: the engine's confidence, from 0 to 1.
        wordless: whether the text is far too short for the width of the line.
    """

    text: str
    confidence: float
    wordless: bool = False


class PictureWords(tuple[PictureLine, ...]):
    """The lines that an engine read."""

    __slots__ = ()

    @property
    def text(self) -> str:
        """The lines with words."""
        return "\n".join(line.text for line in self if not line.wordless)

    @property
    def letters(self) -> float:
        """The number of letters and digits, each weighted by the engine's confidence."""
        return sum(line.confidence * sum(map(str.isalnum, line.text)) for line in self if not line.wordless)

    @property
    def is_sure(self) -> bool:
        """Whether the engine is confident about most of the text."""
        return self.letters > max(10, 0.85 * sum(map(str.isalnum, self.text)))


def picture(path: str, data: bytes, *, images: bool = False) -> Iterator[ParsedDocument | Problem]:
    """Read the words in a picture.

    Args:
        path: Its path.
        data: The content of the file.
        images: Whether the picture itself is wanted, too; then it need not have words that can be read.

    Raises:
        InputError: The picture has no words, no engine is installed, or the data are not a picture.
    """
    image = open_image(data, LONGEST_SIDE, INSTALL)  # of a size that the engines accept
    words, reason = read_words(image) if any_engine() or not images else (PictureWords(), None)
    if not words.text and not images:
        raise InputError(reason or "a picture without words")
    if reason:
        yield Problem(path, reason)
    source = outline(path, "picture", [Block(0, words.text)])
    if images:
        image.thumbnail((_EMBEDDED_SIDE, _EMBEDDED_SIDE))
        source = replace(source, image=as_jpeg(image))
    yield source


def read_words(image: Image) -> tuple[PictureWords, str | None]:
    """Return the words that the installed engines read, and a note about what they could not read; None if nothing.

    rapidocr reads first. If it leaves lines without words or is not confident, tesseract reads the picture too, and the
    reading with more letters, weighted by confidence, is returned.
    """
    if min(image.size) < _LEAST_SIDE:
        return PictureWords(), None
    if not any_engine():
        return PictureWords(), f"a picture; {INSTALL}"
    readings = [_rapidocr(image)] if has_rapidocr() else []
    lines = [line for words in readings for line in words]
    wordless = sum(line.wordless for line in lines)
    if languages() and (wordless or not any(words.is_sure for words in readings)):
        readings += _by_tesseract(image)
    words = max(readings, key=lambda reading: reading.letters)
    if not wordless or "rus" in languages():
        return words, None
    return words, (
        f"{wordless} of {len(lines)} lines gave no words: rapidocr does not read Russian; install the program "
        "tesseract with its data (on Debian: tesseract-ocr tesseract-ocr-rus)"
    )


def any_engine() -> bool:
    """Whether an engine is installed."""
    return has_rapidocr() or bool(languages())


def has_rapidocr() -> bool:
    """Whether rapidocr and the runtime of its model are installed."""
    return find_spec("rapidocr") is not None and find_spec("onnxruntime") is not None


@cache
def languages() -> tuple[str, ...]:
    """The supported languages whose tesseract data are installed; empty if tesseract is not installed."""
    program = find_program("tesseract")
    if not program:
        return ()
    command = [program, "--list-langs"]
    process = _run(command, b"")
    languages_of_engine = process.stdout.decode("utf-8", "replace").split()
    return tuple(language for language in _LANGUAGES if language in languages_of_engine)


def _by_tesseract(image: Image) -> Iterator[PictureWords]:
    """Yield readings of the picture, rotated until tesseract is confident about one."""
    factor = 2 if max(image.size) < LONGEST_SIDE // 4 else 1  # tesseract needs letters at least twenty pixels high
    if factor > 1:
        image = image.resize((image.width * factor, image.height * factor))
    for angle in (0, 90, 270, 180):
        words = _tesseract(image.rotate(angle, expand=True) if angle else image)
        yield words
        if words.is_sure:
            return


def _tesseract(image: Image) -> PictureWords:
    """Read the picture once; words with very low confidence are left out."""
    data = io.BytesIO()
    image.save(data, "PPM")
    command = [find_program("tesseract") or "", "stdin", "stdout", "-l", "+".join(languages()), "--psm", "3", "tsv"]
    try:
        process = _run(command, data.getvalue())
    except subprocess.TimeoutExpired:
        return PictureWords()  # another engine may be faster
    lines: dict[tuple[str, ...], list[tuple[str, float]]] = {}
    for row in process.stdout.decode("utf-8", "replace").splitlines()[1:]:
        fields = row.split("\t")
        if len(fields) == 12 and fields[11].strip() and float(fields[10]) >= _LEAST_CONFIDENCE:
            lines.setdefault(tuple(fields[1:5]), []).append((fields[11], float(fields[10]) / 100))
    return PictureWords(
        _line(words) for words in lines.values() if any(char.isalnum() for word, _ in words for char in word)
    )


def _run(command: list[str], data: bytes) -> subprocess.CompletedProcess[bytes]:
    """Run tesseract outside of the current folder, where it would look for configuration too."""
    return subprocess.run(  # noqa: S603  (a fixed command)
        command, input=data, capture_output=True, check=False, timeout=_SECONDS, cwd=NEUTRAL_FOLDER,
        env=bare_environment() | {"OMP_THREAD_LIMIT": "1"},
    )  # fmt: skip


_LEAST_CONFIDENCE = 30.0


def _line(words: list[tuple[str, float]]) -> PictureLine:
    text = _BETWEEN_HAN.sub("", clean(" ".join(word for word, _ in words)))  # it puts spaces between Chinese characters
    letters = sum(len(word) for word, _ in words)
    return PictureLine(text, sum(len(word) * confidence for word, confidence in words) / letters)


def _rapidocr(image: Image) -> PictureWords:
    import numpy as np  # only pictures need it

    pixels = np.asarray(image)[:, :, ::-1]
    boxes = _engine()(pixels, use_det=True, use_cls=False, use_rec=False).boxes
    if boxes is None:
        return PictureWords()
    result = _engine()(pixels, use_det=True, use_cls=True, use_rec=True)
    texts = () if result.txts is None else zip(result.txts, result.scores, result.boxes, strict=True)
    lines = [PictureLine(clean(text).strip(), float(score), _is_wordless(text, box)) for text, score, box in texts]
    # Its results omit lines that it reads as blank, so those are the detected boxes without a result.
    return PictureWords([*lines, *[PictureLine("", 0.0, wordless=True)] * (len(boxes) - len(lines))])


@cache
def _engine() -> Any:
    from pointsman.embedders.onnx_runtime import load_onnxruntime

    load_onnxruntime()  # rapidocr would import it with its telemetry
    from rapidocr import RapidOCR  # slow to load, seldom needed

    return RapidOCR(
        params={
            "Global.log_level": "error",
            "Global.text_score": 0.0,  # lines without words must be seen to be reported
            "Global.max_side_len": LONGEST_SIDE,
            # To save memory, the picture is not enlarged, lines are read one by one, and no arena is kept.
            "Det.limit_type": "max",
            "Det.limit_side_len": 1280,
            "Cls.cls_batch_num": 1,
            "Rec.rec_batch_num": 1,
            "EngineConfig.onnxruntime.enable_cpu_mem_arena": False,
            "EngineConfig.onnxruntime.intra_op_num_threads": 1,
        }
    )


def _is_wordless(text: str, box: Any) -> bool:
    """Whether a line has less than 35 % of the letters that fit its width at its height."""
    sides = sorted(float(((box[corner] - box[corner - 1]) ** 2).sum()) ** 0.5 for corner in range(4))
    height, width = max(sides[0], 1.0), sides[3]
    letters = sum(2 if char >= "\u2e80" else 1 for char in text if char.isalnum())
    return bool(letters < 0.35 * width / (0.6 * height))
