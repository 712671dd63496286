"""Classes of samples that are none, or more than anybody has; for ``verify``."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from hostile.arrays import SHAPE, npy, zipped
from hostile.case import MODEL, Case, Cases
from hostile.pictures import save_photos
from support.builders import digits

_ARRAYS: dict[str, bytes] = {
    "negative": npy((2,), "<i8", np.int64([-1, -5]).tobytes()),
    "no-class": npy((2,), "<i8", np.int64([10**12, 0]).tobytes()),
    "fractions": npy((2,), "<f4", np.float32([0.5, np.nan]).tobytes()),
    "objects": npy((2,), "|O", b"cos\nsystem\n(S'touch /tmp/npuconv-was-here'\ntR."),
    "10-to-15": npy((10**15,), "<i8"),
    "beyond-int": npy((2**80,), "<i8"),
    "negative-shape": npy((-2,), "<i8", bytes(16)),
    "square": npy((2, 2), "<i8", bytes(32)),
    "scalar": npy((), "<i8", bytes(8)),
    "none": npy((0,), "<i8"),
    "empty-file": b"",
    "text": b"hello",
}
_TABLES: dict[str, bytes] = {
    "long-line": b"n" * 300_000 + b"\t1\n",
    "zero": b"a\0.png\t1\n",
    "huge-number": b"a.png\t" + b"9" * 6000 + b"\nb.png\t" + b"9" * 6000 + b"\n",
    "negative": b"a.png\t-1\nb.png\t-7\n",
    "no-class": b"a.png\t99\nb.png\t1\n",
    "one-column": b"a.png\nb.png\n",
    "quotes": b'"a.png\t1\nb.png\t2\n' * 1000,
    "not-utf8": b"\xff\xfe\t1\n",
    "forged": b"a.png\t1\n\x1b[31m::error::\tx\n",
    "empty": b"",
    "100000-lines": b"a.png\t1\nb.png\t2\n" * 50_000,
}


def cases() -> Cases:
    """Every file of labels."""
    for name, data in _ARRAYS.items():
        yield _case(f"npy-{name}", "labels.npy", _bytes("labels.npy", data))
        archive = zipped(("y.npy", data))
        yield _case(f"npz-{name}", "labels.npz", _bytes("labels.npz", archive))
    for name, data in _TABLES.items():
        yield _case(f"table-{name}", "labels.tsv", _bytes("labels.tsv", data), "photos")
    yield _case("pipe", "labels.tsv", lambda folder: os.mkfifo(folder / "labels.tsv"), "photos")
    yield _case("device", "/dev/zero", lambda _: None)


def _bytes(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(data)


def _case(
    name: str, labels: str, prepare: Callable[[Path], object], data: str = "samples.npz"
) -> Case:
    def write(folder: Path) -> None:
        (folder / MODEL).write_bytes(digits().SerializeToString())
        body = np.zeros(SHAPE, np.float32).tobytes()
        (folder / "samples.npz").write_bytes(zipped(("x.npy", npy(SHAPE, body=body))))
        save_photos(folder / "photos")
        prepare(folder)

    options = {"calibration": data, "preprocess": {"preset": "unit", "color": "gray"}}
    return Case(f"labels/{name}", "labels", write, options=options, labels=labels,
                commands=("verify",))  # fmt: skip
