"""Samples in arrays that run code, swell, lie, or are none."""

from __future__ import annotations

import io
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hostile.case import Case, Cases, beside, good

SHAPE = (2, 1, 8, 8)


class _Evil:
    def __reduce__(self) -> Any:
        return os.system, ("touch /tmp/npuconv-was-here",)


def cases() -> Cases:
    """Every file of arrays."""
    yield from _archives()
    yield from _members()
    yield from _plain()
    yield from _values()
    yield from _places()


def _case(name: str, data: bytes | str, file: str = "samples.npz") -> Case:
    return Case(f"array/{name}", "samples", beside(file, data), options={"calibration": file})


def npy(shape: object, dtype: str = "<f4", body: bytes = b"", version: int = 1) -> bytes:
    """An array file with a header as it is given."""
    text = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}, }}"
    return _npy(text.encode("latin1"), body, version)


def _npy(header: bytes, body: bytes = b"", version: int = 1) -> bytes:
    kind = "<H" if version == 1 else "<I"
    length = struct.pack(kind, len(header) + 1)
    return b"\x93NUMPY" + bytes([version, 0]) + length + header + b"\n" + body


def zipped(*members: tuple[str, bytes], kind: int = zipfile.ZIP_STORED, repeat: int = 1) -> bytes:
    """An archive; a member's content may be repeated, which costs nothing when deflated."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", kind) as archive:
        for name, data in members:
            with archive.open(zipfile.ZipInfo(name), "w", force_zip64=True) as member:
                member._compress_type = kind  # type: ignore[attr-defined]
                for _ in range(repeat):
                    member.write(data)
    return stream.getvalue()


def _deflated(name: str, head: bytes, size: int) -> bytes:
    """A member of zeros behind a head: a thousand times smaller than it claims."""
    stream = io.BytesIO()
    info = zipfile.ZipInfo(name)
    info.compress_type = zipfile.ZIP_DEFLATED
    with (
        zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open(info, "w", force_zip64=True) as member,
    ):
        member.write(head)
        for _ in range(size // 2**20):
            member.write(bytes(2**20))
    return stream.getvalue()


def _write_bomb(member: str, shape: tuple[int, ...], folder: Path) -> None:
    good(folder)
    (folder / "samples.npz").write_bytes(_deflated(member, npy(shape), 2**28))


def _body() -> bytes:
    return np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32).tobytes()


def _archives() -> Cases:
    right = npy(SHAPE, body=_body())
    pickled = _pickled()
    for name, member, shape in (
        ("rows", "x.npy", (2**20, 1, 8, 8)),
        ("columns", "x.npy", (1, 1, 8, 2**23)),
        ("other-name", "y.npy", (2**20, 1, 8, 8)),
    ):
        options = {"calibration": "samples.npz"}
        write = partial(_write_bomb, member, shape)
        yield Case(f"array/bomb-256-mb-{name}", "samples", write, options=options)
    for name, data in {
        "pickle": zipped(("x.npy", pickled)),
        "pickle-alone": zipped(("x", pickle.dumps(_Evil()))),
        "not-npy": zipped(("x.npy", b"hello")),
        "empty": zipped(),
        "empty-member": zipped(("x.npy", b"")),
        "member-outside": zipped(("../../x.npy", right)),
        "member-absolute": zipped(("/x.npy", right)),
        "member-folder": zipped(("x.npy/", b"")),
        "member-control": zipped(("\x1b[31m\n::error::.npy", right)),
        "member-long": zipped(("n" * 60_000 + ".npy", right)),
        "20000-members": zipped(*((f"m{i}.npy", b"") for i in range(20_000))),
        "archive-in-archive": zipped(("x.npy", zipped(("x.npy", right)))),
        "cut": zipped(("x.npy", right))[:-30],
        "cut-at-front": zipped(("x.npy", right))[30:],
        "encrypted": _patched(zipped(("x.npy", right)), 6, b"\x01\x00"),
        "unknown-compression": _patched(zipped(("x.npy", right)), 8, b"\x63\x00"),
        "wrong-sum": zipped(("x.npy", right)).replace(_body()[:64], bytes(64)),
        "text": "PK" + "hello" * 99,
    }.items():
        yield _case(f"npz-{name}", data)


def _patched(data: bytes, at: int, value: bytes) -> bytes:
    """A field of the header of the first member, in both of its places."""
    central = data.index(b"PK\x01\x02") + 2 + at
    changed = data[:at] + value + data[at + len(value) :]
    return changed[:central] + value + changed[central + len(value) :]


def _pickled() -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.array([_Evil()], object), allow_pickle=True)
    return stream.getvalue()


_SHAPES: dict[str, object] = {
    "10-to-15": (10**15, 1, 8, 8),
    "overflowing": (2**62, 4, 8, 8),
    "beyond-int": (2**80, 1, 8, 8),
    "negative": (-2, 1, 8, 8),
    "zero-and-huge": (0, 2**62, 8, 8),
    "rank-100": (1,) * 100,
    "float": "(2.0, 1, 8, 8)",
    "text": "'abc'",
    "none": "()",
    "call": "__import__('os').system('id')",
    "wide-row": (1, 1, 8, 10**12),
    "more-than-there": (20, 1, 8, 8),
}
_TYPES = ("|O", "<U64", "|S9", "<c16", "<M8[s]", "|V0", "<f2", "<f8", ">f4", "|b1", "<i8", "zzz",
          "f4" * 9)  # fmt: skip


def _members() -> Cases:
    for name, shape in _SHAPES.items():
        yield _case(f"npz-shape-{name}", zipped(("x.npy", npy(shape, body=_body()))))
        yield _case(f"npy-shape-{name}", npy(shape, body=_body()), "samples.npy")
    for number, kind in enumerate(_TYPES):
        yield _case(f"npz-type-{number}", zipped(("x.npy", npy(SHAPE, kind, _body() * 4))))
        if number % 2:
            yield _case(f"npy-type-{number}", npy(SHAPE, kind, _body() * 4), "samples.npy")


_PLAIN = b"{'descr': '<f4', 'fortran_order': False, 'shape': "


def _plain() -> Cases:
    headers = {
        "deep": b"{'descr': " + b"[" * 3000 + b"]" * 3000 + b"}",
        "long": b"{'descr': '<f4', 'fortran_order': False, 'shape': (2,1,8,8),"
        + b" " * 60_000
        + b"}",
        "no-dict": b"[1, 2]",
        "missing-keys": b"{'descr': '<f4'}",
        "code": b"exec('raise SystemExit(70)')",
        "nul": b"{'descr': '<f4\0'}",
        "structured": _PLAIN.replace(b"'<f4'", b"[('a', '<f4'), ('b', '|O')]") + b"(2,)}",
        "endless-digits": b"{'descr': '<f4', 'fortran_order': False, 'shape': ("
        + b"9" * 9000
        + b",)}",
    }
    for name, header in headers.items():
        yield _case(f"npy-header-{name}", _npy(header, _body()), "samples.npy")
    for name, data in {
        "empty": b"",
        "magic-only": b"\x93NUMPY",
        "version-9": npy(SHAPE, body=_body(), version=9),
        "pickle": pickle.dumps(_Evil()),
        "pickled-array": _pickled(),
        "long-header-lie": b"\x93NUMPY\x02\x00\xff\xff\xff\x7f",
        "cut": npy(SHAPE, body=_body())[:-9],
    }.items():
        yield _case(f"npy-{name}", data, "samples.npy")


def _values() -> Cases:
    for name, value in {"nan": np.nan, "inf": np.inf, "huge": 3e38, "denormal": 1e-45,
                        "zero": 0.0}.items():  # fmt: skip
        body = np.full(SHAPE, value, np.float32).tobytes()
        yield _case(f"values-{name}", zipped(("x.npy", npy(SHAPE, body=body))))


def _places() -> Cases:
    def placed(prepare: Callable[[Path], None]) -> Callable[[Path], None]:
        def write(folder: Path) -> None:
            good(folder)
            prepare(folder)

        return write

    def case(name: str, source: str, prepare: Callable[[Path], None] = lambda _: None) -> Case:
        return Case(f"array/at-{name}", "samples", placed(prepare), options={"calibration": source})

    yield case("device", "/dev/zero")
    yield case("pipe", "s.npz", lambda folder: os.mkfifo(folder / "s.npz"))
    yield case("pipe-npy", "s.npy", lambda folder: os.mkfifo(folder / "s.npy"))
    yield case("folder", "s.npz", lambda folder: (folder / "s.npz").mkdir())
    yield case("link-to-itself", "s.npz", lambda folder: (folder / "s.npz").symlink_to("s.npz"))
    yield case("device-as-npy", "s.npy", lambda folder: (folder / "s.npy").symlink_to("/dev/zero"))
    yield case("proc", "/proc/self/mem")
    yield case("nul", "a\0b.npz")
    yield case("long", "n" * 6000 + ".npz")
    yield case("system-folder", "/proc/self")
