"""Opens pictures from bytes that nobody has checked: formats are listed, sizes are limited."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

from pointsman.tools.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image

_FORMATS: Final = ("PNG", "JPEG", "TIFF", "WEBP", "BMP", "DIB", "GIF")  # Pillow's names; others, as EPS, start programs
_MOST_PIXELS: Final = 60_000_000  # a file of a few kilobytes can claim to be a picture of gigabytes
_QUALITY: Final = 90  # of JPEG


def open_image(data: bytes, longest_side: int, install: str = "pip install 'pointsman[images]'") -> Image:
    """Open a picture, turn it upright, put it on white where it is transparent, and scale it down.

    Args:
        data: the content of a file; of an animation, the first picture is taken.
        longest_side: the maximum width and height, in pixels.
        install: what to do if Pillow is not installed.

    Returns:
        A picture in RGB.

    Raises:
        InputError: It is damaged, of another format, or too large, or Pillow is not installed.
    """
    try:
        from PIL import Image as images  # noqa: N813  (a module)
        from PIL import ImageOps, UnidentifiedImageError
    except ImportError as error:
        raise InputError(f"a picture; {install}") from error
    try:
        image: Image = images.open(io.BytesIO(data), formats=_FORMATS)
        if image.width * image.height > _MOST_PIXELS:
            raise InputError(f"a picture of {image.width} × {image.height} pixels, more than {_MOST_PIXELS} in all")
        image = ImageOps.exif_transpose(image)
        if "A" in image.getbands() or "transparency" in image.info:  # models take transparent pixels for black
            image = image.convert("RGBA")
            image = images.alpha_composite(images.new("RGBA", image.size, "white"), image)
        image = image.convert("RGB")
    except UnidentifiedImageError:
        raise InputError("a damaged picture, or none in PNG, JPEG, TIFF, WebP, BMP or GIF") from None
    except (OSError, SyntaxError, ValueError, EOFError, images.DecompressionBombError) as error:
        raise InputError(f"a damaged picture: {error}") from error
    image.thumbnail((longest_side, longest_side))
    return image


def as_jpeg(image: Image) -> bytes:
    """Return a picture in RGB as the bytes of a JPEG file."""
    data = io.BytesIO()
    image.save(data, "JPEG", quality=_QUALITY)
    return data.getvalue()
