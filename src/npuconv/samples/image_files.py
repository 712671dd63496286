"""Image files that cannot be used: found out before they are decoded, and said why."""

from __future__ import annotations

import struct
import warnings
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from npuconv import limits
from npuconv.errors import CalibrationError
from npuconv.samples.reading import check_ordinary

NOT_READ = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    struct.error,
    Image.DecompressionBombError,
)


def check_header(file: Path, most: int) -> None:
    """Raise if a file holds no image, or too large a one; nothing is decoded.

    Raises:
        CalibrationError: no image, or one of more than ``most`` pixels.
    """
    check_ordinary(file)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the library's remarks are not for the user
            with Image.open(file) as image:
                pixels = image.width * image.height
    except NOT_READ as error:
        raise unreadable(file, error) from None
    if pixels > most:
        text = f"{file}: has {image.width} x {image.height} pixels, over {most}"
        raise CalibrationError(text, hint=limits.hint("image_pixels"))


def unreadable(file: Path, error: Exception) -> CalibrationError:
    """Return the error for the user for one that Pillow has raised."""
    if isinstance(error, Image.DecompressionBombError):
        cause = "larger than Pillow's limit against decompression bombs"
    elif isinstance(error, UnidentifiedImageError):
        cause = "not an image"
    else:
        cause = getattr(error, "strerror", None) or str(error)
    missing = isinstance(error, FileNotFoundError)
    hint = "" if missing else "remove the file, or save it again as .png or .jpg"
    return CalibrationError(f"{file}: {cause}", hint=hint)
