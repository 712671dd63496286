"""Integer models whose metadata says of images what nobody can do; for ``verify``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hostile.case import MODEL, Case, Cases
from hostile.pictures import save_photos
from npuconv.data.preparation import KEY
from support.builders import digits

_NAME = "int8.onnx"
_GOOD = {"certainty": "given", "mean": [0], "std": [255], "color": "gray", "layout": "nchw"}
_RECORDS: dict[str, str] = {
    "text": "hello",
    "null": "null",
    "nested": "[" * 100_000,
    "huge-number": f'{{"mean": [{"9" * 5000}]}}',
    "forged": '{"\\u001b[31m::error::": 1}',
}
_CHANGES: dict[str, dict[str, Any]] = {
    "mean-infinite": {"mean": [1e999]},
    "mean-many": {"mean": [0] * 100_000},
    "std-zero": {"std": [0]},
    "std-denormal": {"std": [1e-320]},
    "std-five": {"std": [1] * 5},
    "resize-huge": {"resize": [2**40, 2**40]},
    "resize-large": {"resize": [2**13]},
    "crop-negative": {"crop": [-1, -1]},
    "color": {"color": "ultraviolet"},
    "other-layout": {"layout": "nhwc"},
    "preset": {"preset": "unit"},
}


def cases() -> Cases:
    """Every record."""
    for name, record in _RECORDS.items():
        yield _case(name, record)
    for name, change in _CHANGES.items():
        yield _case(name, json.dumps(_GOOD | change))


def _case(name: str, record: str) -> Case:
    def write(folder: Path) -> None:
        model = digits()
        (folder / MODEL).write_bytes(model.SerializeToString())
        model.metadata_props.add(key=KEY, value=record)
        (folder / _NAME).write_bytes(model.SerializeToString())
        save_photos(folder / "photos")

    return Case(f"preparation/{name}", "preprocessing kept in a model", write, int8=_NAME,
                options={"calibration": "photos"}, commands=("verify",))  # fmt: skip
