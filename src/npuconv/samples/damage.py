"""Description of what is wrong with an array file, in one line."""

from __future__ import annotations

import lzma
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from npuconv.errors import CalibrationError

# All that numpy and zipfile are known to raise for an array file with a few bits changed.
UNREADABLE = (
    *(OSError, OverflowError, ValueError, EOFError, LookupError, MemoryError, RuntimeError),
    *(TypeError, AttributeError, SyntaxError, tokenize.TokenError, struct.error),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError),
)


@contextmanager
def explained(file: Path) -> Iterator[None]:
    """Whatever goes wrong with reading is one line about the file.

    Raises:
        CalibrationError: the file cannot be read.
    """
    try:
        yield
    except UNREADABLE as error:
        raise CalibrationError(f"{file}: {_cause(error)}") from None


def _cause(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, EOFError):
        return "the file is empty" if str(error) else "damaged: it ends too early"
    if isinstance(error, MemoryError):
        return "larger than the memory"
    if "Object arrays" in str(error) or "Python objects" in str(error):  # mapped or not
        return "an array of Python objects, which are not read: are all samples of one shape?"
    if "encrypted" in str(error):
        return "encrypted, which is not read"
    if "pickle" in str(error):
        return "neither .npz nor .npy"
    return f"damaged: {error}"
