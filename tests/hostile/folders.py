"""Folders that ``split`` has not written, or that somebody has changed since; for ``run``."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hostile.case import Case, Cases
from support.int8_pairs import integer_model

FOLDER = "parts"
_MANIFEST = "manifest.json"
_DEVICE = "001_device.onnx"

_TEXTS: dict[str, bytes] = {
    "empty": b"",
    "text": b"hello",
    "null": b"null",
    "nested": b"[" * 500_000,
    "objects-nested": b'{"parts":' * 200_000,
    "not-utf8": b'{"tool": "\xff\xfe"}',
    "huge-number": b'{"schema_version": ' + b"9" * 100_000 + b"}",
    "infinite": b'{"schema_version": 1e999999}',
    "forged": b'{"\x1b[31m::error::": 1}',
}


def _set(*path: str | int, to: Any) -> Callable[[dict[str, Any]], None]:
    """Return a change of one value of a manifest."""

    def change(manifest: dict[str, Any]) -> None:
        place: Any = manifest
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = to

    return change


_CHANGES: dict[str, Callable[[dict[str, Any]], None]] = {
    "file-outside": _set("parts", 0, "file", to="../secret.bin"),
    "file-absolute": _set("parts", 0, "file", to="/etc/passwd"),
    "file-device": _set("parts", 0, "file", to="/dev/zero"),
    "file-missing": _set("parts", 0, "file", to="none.onnx"),
    "file-nul": _set("parts", 0, "file", to="a\0.onnx"),
    "file-manifest": _set("parts", 0, "file", to=_MANIFEST),
    "digest": _set("parts", 1, "sha256", to="0" * 64),
    "no-parts": _set("parts", to=[]),
    "no-tensors": _set("tensors", to=[]),
    "order": lambda manifest: manifest["parts"].reverse(),
    "output-unknown": _set("outputs", to=["\x1b[31mnone"]),
    "input-unknown": _set("inputs", to=["x", "y"]),
    "shape-negative": _set("tensors", 0, "shape", to=[-1, 3, 6, 6]),
    "shape-huge": _set("tensors", 0, "shape", to=[1, 2**40, 2**40, 6]),
    "shape-rank-100": _set("tensors", 0, "shape", to=[1] * 100),
    "type-object": _set("tensors", 0, "dtype", to="object"),
    "type-text": _set("tensors", 0, "dtype", to="str"),
    "type-int8-of-float": _set("tensors", 0, "dtype", to="int8"),
    "scale-nan": _set("tensors", 1, "scale", to=float("nan")),
    "scale-on-input": _set("tensors", 0, "scale", to=0.0),
    "preprocess-text": _set("preprocess", to={"mean": "\x1b[31mnone"}),
    "preprocess-empty": _set("preprocess", to={}),
    "side": _set("parts", 0, "side", to="device"),
}


def cases() -> Cases:
    """Every folder."""
    for name, data in _TEXTS.items():
        yield _case(f"json-{name}", _bytes(_MANIFEST, data))
    for name, change in _CHANGES.items():
        yield _case(f"manifest-{name}", _changed(change))
    yield _case("json-pipe", _special(_MANIFEST, os.mkfifo))
    yield _case("part-pipe", _special(_DEVICE, os.mkfifo))
    yield _case("part-link-device", _special(_DEVICE, lambda path: path.symlink_to("/dev/zero")))
    yield _case("part-empty", _bytes(_DEVICE, b""))


def _bytes(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(data)


def _changed(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        manifest = json.loads((folder / _MANIFEST).read_text("utf-8"))
        change(manifest)
        (folder / _MANIFEST).write_text(json.dumps(manifest), "utf-8")

    return write


def _special(name: str, make: Callable[[Path], object]) -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        (folder / name).unlink()
        make(folder / name)

    return write


def _case(name: str, damage: Callable[[Path], object]) -> Case:
    def write(folder: Path) -> None:
        from npuconv.evaluate.split import split

        split(integer_model(), folder / FOLDER)
        damage(folder / FOLDER)

    return Case(f"folder/{name}", "folders of split", write, commands=("run",))
