"""External data that lies elsewhere, or nowhere, or without end."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import onnx
from onnx.external_data_helper import set_external_data

from hostile.case import MODEL, Case, Cases
from support.builders import Net

SIZE = 4 * 3 * 3 * 3 * 4  # bytes of the weights


def cases() -> Cases:
    """Every wrong place of weights."""
    for name, location in {
        "parent": "../secret.bin",
        "far-parent": "../" * 30 + "etc/passwd",
        "hidden-parent": "a/../../secret.bin",
        "absolute": "/etc/passwd",
        "zero-device": "/dev/zero",
        "device-by-parents": "../" * 30 + "dev/zero",
        "proc": "/proc/self/mem",
        "stdin": "/dev/stdin",
        "empty": "",
        "dot": ".",
        "itself": MODEL,
        "missing": "gone.bin",
        "missing-folder": "gone/gone.bin",
        "long": "n" * 5000,
        "nul": "a\0b",
        "newline": "a\n::error::b",
        "ansi": "\x1b[2Jbin",
        "backslashes": "..\\..\\secret.bin",
        "drive": "C:\\secret.bin",
        "url": "https://localhost/weights.bin",
        "home": "~/weights.bin",
        "variable": "$HOME/weights.bin",
    }.items():
        yield _case(f"at-{name}", {"location": location})
    yield from _links()
    yield from _extents()


def _links() -> Cases:
    def link(to: str) -> Callable[[Path], None]:
        return lambda folder: (folder / "weights.bin").symlink_to(to)

    for name, to in {
        "out": "/etc/passwd",
        "device": "/dev/zero",
        "itself": "weights.bin",
        "parent": "../../../../../etc/hostname",
        "nowhere": "gone",
    }.items():
        yield _case(f"link-to-{name}", {"location": "weights.bin"}, link(to))

    def folder_link(folder: Path) -> None:
        (folder / "sub").symlink_to("/etc")

    yield _case("link-of-a-folder", {"location": "sub/passwd"}, folder_link)
    yield _case("pipe", {"location": "pipe"}, lambda folder: os.mkfifo(folder / "pipe"))
    yield _case("folder", {"location": "sub"}, lambda folder: (folder / "sub").mkdir())


def _extents() -> Cases:
    def data(folder: Path) -> None:
        (folder / "weights.bin").write_bytes(bytes(4096))

    def sparse(folder: Path) -> None:
        with (folder / "weights.bin").open("wb") as stream:
            stream.truncate(10**13)

    here = {"location": "weights.bin"}
    for name, entries in {
        "past-the-end": {"offset": "8192", "length": str(SIZE)},
        "over-the-end": {"offset": "4000", "length": str(SIZE)},
        "negative-offset": {"offset": "-4", "length": str(SIZE)},
        "negative-length": {"offset": "0", "length": "-1"},
        "huge-offset": {"offset": str(2**70), "length": str(SIZE)},
        "huge-length": {"offset": "0", "length": str(2**62)},
        "short": {"offset": "0", "length": "5"},
        "not-a-number": {"offset": "zero", "length": "0x10"},
        "many-digits": {"offset": "9" * 6000, "length": "1"},
        "no-length": {"offset": "0"},
        "unknown-key": {"offset": "0", "length": str(SIZE), "exec": "id"},
        "unaligned": {"offset": "3", "length": str(SIZE)},
    }.items():
        yield _case(f"extent-{name}", here | entries, data)
    yield _case("extent-of-10-tb", {**here, "offset": "0"}, sparse)
    yield _case("extent-end-of-10-tb", {**here, "offset": str(10**13 - SIZE)}, sparse)
    yield _case("extent-overlapping", {**here, "offset": "0", "length": str(SIZE)}, data, both=True)
    yield _case("extent-empty-file", here, lambda folder: (folder / "weights.bin").touch())


def _case(
    name: str,
    entries: dict[str, str],
    prepare: Callable[[Path], None] = lambda _: None,
    *,
    both: bool = False,
) -> Case:
    def write(folder: Path) -> None:
        prepare(folder)
        (folder / MODEL).write_bytes(_model(entries, both).SerializeToString())

    return Case(f"external/{name}", "external data", write)


def _model(entries: dict[str, str], both: bool) -> onnx.ModelProto:
    proto = Net(x=(1, 3, 8, 8)).conv("x").conv(weight=(4, 4, 1, 1), bias=False).model()
    for tensor in proto.graph.initializer[: 3 if both else 1]:
        if len(tensor.dims) == 4:
            set_external_data(tensor, "x")
            tensor.ClearField("raw_data")
            del tensor.external_data[:]
            for key, value in entries.items():
                tensor.external_data.add(key=key, value=value)
    if both:
        last = proto.graph.initializer[2].external_data
        next(entry for entry in last if entry.key == "length").value = "64"
    return proto
