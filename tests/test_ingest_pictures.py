"""Text in pictures and scans (K1, S11): found by their words where an engine is here, reported where none is."""

from __future__ import annotations

import io
from importlib.util import find_spec
from pathlib import Path

import pytest

from pointsman.ingest import FileLimits, ParsedDocument, Problem, convert, read_paths
from pointsman.ingest.converters import pictures as _pictures
from pointsman.tools.errors import InputError
from test_ingest_convert import minimal_pdf

FONT = Path("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf")
needs_pillow = pytest.mark.skipif(find_spec("PIL") is None, reason="Pillow is not installed")
needs_font = pytest.mark.skipif(not FONT.exists(), reason="the font DejaVu Sans is not installed")
needs_rapidocr = pytest.mark.skipif(not _pictures.has_rapidocr(), reason="rapidocr is not installed")
needs_tesseract = pytest.mark.skipif(
    "rus" not in _pictures.languages(), reason="tesseract with Russian is not installed"
)
ENGLISH, RUSSIAN = "The switch guides the train", "Стрелка направляет каждый поезд"


def picture_of(*lines: str, form: str = "PNG", angle: int = 0, size: tuple[int, int] | None = None) -> bytes:
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", size or (760, 60 + 50 * len(lines)), "white")
    pen = ImageDraw.Draw(image)
    font = ImageFont.truetype(str(FONT), 30) if FONT.exists() else ImageFont.load_default(30)
    for number, line in enumerate(lines):
        pen.text((30, 30 + 50 * number), line, fill="black", font=font)
    buffer = io.BytesIO()
    image.rotate(angle, expand=True).save(buffer, form)
    return buffer.getvalue()


def text_in(data: bytes, name: str = "a.png") -> str:
    (source,) = (item for item in convert(name, data) if isinstance(item, ParsedDocument))
    return source.text


@needs_pillow
@pytest.mark.parametrize("engine", ["rapidocr", "tesseract"])
@pytest.mark.parametrize("form", ["PNG", "JPEG", "TIFF", "GIF", "BMP", "WEBP"])
def test_english_is_read_by_either_engine(engine: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if engine == "rapidocr":
        monkeypatch.setattr(_pictures, "languages", tuple)
    else:
        monkeypatch.setattr(_pictures, "has_rapidocr", lambda: False)
    if not _pictures.any_engine():
        pytest.skip(f"{engine} is not installed")
    assert ENGLISH in text_in(picture_of(ENGLISH, form=form), f"a.{form.lower()}")


@needs_pillow
@needs_font
@needs_tesseract
@pytest.mark.parametrize("angle", [0, 90, 180, 270])
def test_russian_is_read_by_tesseract_turned_or_not(angle: int) -> None:
    assert RUSSIAN in text_in(picture_of(RUSSIAN, RUSSIAN, angle=angle))


@needs_pillow
@needs_font
@needs_rapidocr
def test_without_tesseract_russian_is_reported_never_silently_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_pictures, "languages", tuple)
    problem, source = convert("a.png", picture_of(ENGLISH, RUSSIAN))
    assert isinstance(problem, Problem)
    assert problem.reason.startswith("1 of 2 lines gave no words: rapidocr does not read Russian; install")
    assert isinstance(source, ParsedDocument)
    assert source.text == ENGLISH
    with pytest.raises(InputError, match="2 of 2 lines gave no words"):
        list(convert("a.png", picture_of(RUSSIAN, RUSSIAN)))


@needs_pillow
def test_without_an_engine_the_way_to_one_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_pictures, "languages", tuple)
    monkeypatch.setattr(_pictures, "has_rapidocr", lambda: False)
    with pytest.raises(InputError, match=r"pip install 'pointsman\[ocr\]', or the program tesseract"):
        list(convert("a.png", picture_of(ENGLISH)))
    with pytest.raises(InputError, match="2 pages are pictures; install an OCR engine"):
        list(convert("a.pdf", scan_of(ENGLISH, RUSSIAN)))


@needs_pillow
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x89PNG\r\n\x1a\nnot really", "a damaged picture"),
        (b"\xff\xd8\xff\xe0" + bytes(100), "a damaged picture"),
        (b"II*\x00" + bytes(100), "a damaged picture"),
    ],
)
def test_damaged_pictures_are_reported(data: bytes, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        list(convert("a.png", data))


@needs_pillow
def test_a_picture_that_says_it_is_huge_is_not_unpacked() -> None:
    import struct
    import zlib

    head = struct.pack(">IIBBBBB", 50_000, 50_000, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", len(head)) + b"IHDR" + head + struct.pack(">I", zlib.crc32(b"IHDR" + head))
    with pytest.raises(InputError, match=r"50000 × 50000 pixels, more than|damaged"):
        list(convert("a.png", b"\x89PNG\r\n\x1a\n" + chunk + struct.pack(">I", 0) + b"IDAT" + bytes(4)))


@needs_pillow
@pytest.mark.skipif(not _pictures.any_engine(), reason="no OCR engine is installed")
def test_a_picture_without_words_is_reported() -> None:
    with pytest.raises(InputError, match="a picture without words"):
        list(convert("a.png", picture_of(size=(300, 200))))
    with pytest.raises(InputError, match="a picture without words"):
        list(convert("a.png", picture_of(size=(3, 3))))


def scan_of(*pages: str) -> bytes:
    """A PDF whose pages are pictures."""
    from PIL import Image

    first, *later_images = (Image.open(io.BytesIO(picture_of(page))) for page in pages)
    buffer = io.BytesIO()
    first.save(buffer, "PDF", save_all=True, append_images=later_images)
    return buffer.getvalue()


@needs_pillow
@needs_font
@needs_tesseract
def test_scanned_pages_are_read_in_the_process_of_the_reader_and_keep_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(scan_of(ENGLISH, RUSSIAN, ENGLISH))
    (item,) = read_paths([tmp_path], limits=FileLimits(pictures=2))
    assert [(document.metadata["page"], document.text) for document in item.documents] == [
        (1, ENGLISH),
        (2, RUSSIAN),
    ]
    assert [problem.reason for problem in item.problems] == ["3 pages are pictures; only 2 are read"]


def test_an_empty_page_is_no_scan() -> None:
    with pytest.raises(InputError, match="PDF without text; its pages are empty"):
        list(convert("a.pdf", minimal_pdf("")))
