"""Convolutions in parts, for a device that adds them in int32.

made = convert(tmp_path, two().model(), ADDS, {"in_c": {"max": 4}})
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import npuconv
from support.builders import Net
from support.target_files import NUMBERS, WEIGHTS

X = (1, 8, 12, 12)
ADDS = {"accumulate": "int32"}
SHIFTS = {"requantize": {"kind": "shift"}}


def two() -> Net:
    """Two convolutions; the first is padded."""
    return Net(x=X).conv("x", (6, 8, 3, 3), pads=[1] * 4).op("Relu").conv(None, (4, 6, 1, 1))


# Models, and limits that split them.
CASES: list[tuple[Net, dict[str, Any]]] = [
    (two(), {"in_c": {"max": 4}}),
    (Net(x=X).conv("x", (4, 8, 5, 5)), {"kernel_w": {"max": 2}, "in_c": {"max": 3}}),
    (Net(x=X).conv("x", (8, 1, 5, 5), group=8, bias=False), {"kernel_h": {"max": 3}}),
]


def chip_file(
    folder: Path, numbers: dict[str, Any], limits: dict[str, Any], **also: object
) -> Path:
    """The file of a device with these numbers and limits of Conv."""
    target = {
        "schema": 1, "name": "chip", "operators": {"Conv": {"limits": limits}},
        "weights": WEIGHTS, "activations": {**NUMBERS, **numbers}, **also,
    }  # fmt: skip
    path = folder / "chip.yaml"
    path.write_text(json.dumps(target))
    return path


def convert(
    folder: Path, proto: onnx.ModelProto, numbers: dict[str, Any], limits: dict[str, Any], **options
) -> npuconv.Conversion:
    """The model for a device with these numbers and limits of Conv."""
    path = chip_file(folder, numbers, limits)
    samples = np.random.default_rng(0).standard_normal((6, *X[1:])).astype(np.float32)
    return npuconv.convert(proto, str(path), calibration={"x": samples}, verify=False, **options)
