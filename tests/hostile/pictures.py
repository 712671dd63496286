"""Images and lists of images that are larger, or other, than they look."""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from hostile.case import MODEL, Case, Cases
from support.builders import Net

SIDE = 16


def cases() -> Cases:
    """Every image."""
    for name, data in _pngs().items():
        yield _case(f"png-{name}", "photo.png", data)
    for name, data in _jpegs().items():
        yield _case(f"jpeg-{name}", "photo.jpg", data)
    for name, data in _bitmaps().items():
        yield _case(f"bmp-{name}", "photo.bmp", data)
    for name, (file, data) in _others().items():
        yield _case(f"other-{name}", file, data)
    yield from _lists()


def _case(name: str, file: str, data: bytes) -> Case:
    return _written(name, file, lambda folder: _put(folder / file, data))


def _put(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _written(name: str, source: str, prepare: Callable[[Path], object]) -> Case:
    def write(folder: Path) -> None:
        net = Net(x=(1, 3, SIDE, SIDE)).conv("x").op("Relu")
        (folder / MODEL).write_bytes(net.model().SerializeToString())
        prepare(folder)

    options = {"calibration": source, "preprocess": {"preset": "unit"}}
    return Case(f"picture/{name}", "image decoding", write, options=options)


def _saved(kind: str, size: tuple[int, int] = (32, 24), mode: str = "RGB", **keys: object) -> bytes:
    values = np.random.default_rng(0).integers(0, 255, (size[1], size[0], 3), np.uint8)
    stream = io.BytesIO()
    Image.fromarray(values).convert(mode).save(stream, kind, **keys)
    return stream.getvalue()


def chunk(kind: bytes, data: bytes) -> bytes:
    """A part of a PNG."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, body: bytes | None = None, depth: int = 8, kind: int = 2,
        extra: bytes = b"") -> bytes:  # fmt: skip
    """A PNG of any size, with the pixels of a small one."""
    head = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0)
    data = zlib.compress(bytes(4000) if body is None else body)
    parts = (chunk(b"IHDR", head), extra, chunk(b"IDAT", data), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _pngs() -> dict[str, bytes]:
    good = _saved("PNG")
    text = b"comment\0\0" + zlib.compress(bytes(100_000_000), 1)
    return {
        "50000-by-50000": png(50_000, 50_000),
        "12000-by-12000": png(12_000, 12_000, zlib.compress(bytes(9))),
        "max": png(2**31 - 1, 2**31 - 1),
        "wide": png(80_000_000, 1),
        "zero": png(0, 0),
        "negative": png(2**32 - 1, 5),
        "cut": good[: len(good) // 2],
        "header-only": good[:33],
        "wrong-sum": good[:40] + bytes([good[40] ^ 255]) + good[41:],
        "text-bomb": png(32, 24, extra=chunk(b"zTXt", text)),
        "pixel-bomb": png(32, 24, bytes(100_000_000)),
        "profile-bomb": png(32, 24, extra=chunk(b"iCCP", text)),
        "no-pixels": png(32, 24, b""),
        "depth-16": png(32, 24, depth=16),
        "depth-3": png(32, 24, depth=3),
        "kind-9": png(32, 24, kind=9),
        "palette-missing": png(32, 24, kind=3),
        "one-pixel": png(1, 1),
        "gray": _saved("PNG", mode="L"),
        "transparent": _saved("PNG", mode="RGBA"),
        "bits": _saved("PNG", mode="1"),
        "10000-chunks": png(32, 24, extra=chunk(b"tEXt", b"a\0b") * 10_000),
    }


def _jpegs() -> dict[str, bytes]:
    good = _saved("JPEG")
    frame = good.index(b"\xff\xc0") + 5
    exif = Image.Exif()
    exif[0x0112] = 6
    odd = Image.Exif()
    odd[0x0112] = 77
    return {
        "cut": good[: len(good) // 2],
        "header-only": good[:20],
        "65535-by-65535": good[:frame] + b"\xff\xff\xff\xff" + good[frame + 4 :],
        "zero-height": good[:frame] + b"\0\0" + good[frame + 2 :],
        "rotated": _saved("JPEG", exif=exif),
        "rotated-unknown": _saved("JPEG", exif=odd),
        "cmyk": _saved("JPEG", mode="CMYK"),
        "progressive": _saved("JPEG", progressive=True),
        "garbage-inside": good[:200] + bytes(range(255)) * 3 + good[700:],
        "exif-garbage": good[:2] + b"\xff\xe1\x00\x12Exif\0\0" + b"\xff" * 8 + good[2:],
        "comment-forged": _saved("JPEG", comment=b"\n::error::forged"),
        "1000-segments": good[:2] + b"\xff\xfe\x00\x04ab" * 1000 + good[2:],
    }


def _bitmaps() -> dict[str, bytes]:
    good = _saved("BMP")
    return {
        "max": good[:18] + struct.pack("<ii", 2**31 - 1, 2**31 - 1) + good[26:],
        "upside-down": good[:18] + struct.pack("<ii", 32, -24) + good[26:],
        "negative": good[:18] + struct.pack("<ii", -32, 24) + good[26:],
        "cut": good[:60],
        "offset-outside": good[:10] + struct.pack("<I", 2**32 - 1) + good[14:],
    }


def _others() -> dict[str, tuple[str, bytes]]:
    return {
        "gif-as-png": ("photo.png", _saved("GIF")),
        "tiff-as-png": ("photo.png", _saved("TIFF")),
        "ico-as-png": ("photo.png", _saved("ICO")),
        "svg-as-png": ("photo.png", b"<svg xmlns='http://www.w3.org/2000/svg'/>"),
        "postscript-as-png": ("photo.png", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"),
        "empty-png": ("photo.png", b""),
        "text-as-jpeg": ("photo.jpg", b"hello" * 100),
    }


def _lists() -> Cases:
    texts: dict[str, bytes] = {
        "outside": b"../../../../etc/passwd\n",
        "device": b"/dev/zero\n",
        "itself": b"photos.txt\n",
        "nul": b"a\0b.png\n",
        "not-utf8": b"\xff\xfe.png\n",
        "200000-lines": b"gone.png\n" * 200_000,
        "long-line": b"n" * 3_000_000,
        "forged": b"\x1b[31m::error::x.png\n",
        "comments": b"# nothing\n" * 50_000,
        "empty": b"",
    }
    for name, data in texts.items():
        yield _case(f"list-{name}", "photos.txt", data)
    yield _written("list-pipe", "photos.txt", lambda folder: os.mkfifo(folder / "photos.txt"))
    yield _written("folder-of-links", "photos", _links)
    yield _written("folder-of-kinds", "photos", _kinds)


def save_photos(folder: Path) -> None:
    """Two pictures, as there should be."""
    folder.mkdir()
    for name in ("a.png", "b.png"):
        _put(folder / name, _saved("PNG"))


def _links(folder: Path) -> None:
    (folder / "photos").mkdir()
    (folder / "photos" / "a.png").symlink_to("/dev/zero")
    (folder / "photos" / "b.png").symlink_to("b.png")
    _put(folder / "photos" / "c.png", _saved("PNG"))


def _kinds(folder: Path) -> None:
    (folder / "photos").mkdir()
    for name in ("a.png", "\x1b[31m.png", "c\n.png"):
        _put(folder / "photos" / name, _saved("PNG"))
    (folder / "photos" / "d.png").mkdir()
