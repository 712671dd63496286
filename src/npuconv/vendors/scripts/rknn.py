"""Rockchip RKNN-Toolkit2: compiles QDQ ONNX, or quantizes float ONNX, and simulates the chip."""

from __future__ import annotations

import ctypes
import os
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np
from rknn.api import RKNN

VERSION = version("rknn-toolkit2")
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
# A row of the table of layers: number, operator, type, device, shapes, cycles, KB, name.
_ROW = re.compile(
    r"D RKNN: \[[^\]]*\] \d+ +(\S+) +\S+ +(NPU|CPU|GPU) +\S+ +\S+ +\S+ +\S+ +[^:\s]+:(\S+)"
)
_FUNCTION = re.compile(r'File "rknn.*, in (?:rknn\.api\.)?((?!rknn_log)\S+)')
_EDGES = ("InputOperator", "OutputOperator")


def ask(question: dict[str, Any], feeds: list[dict[str, Any]]) -> tuple[dict[str, Any], Any]:
    """Load, build and simulate; a refusal is an exception, or a code other than 0."""
    rknn, level = RKNN(verbose=True), 3 if question["calibrates"] else 2  # 3 changes given scales
    rknn.config(target_platform=question["chip"] or "rk3588", optimization_level=level)
    stage, reason = "load_onnx", ""
    try:
        is_refused = rknn.load_onnx(model=question["model"]) != 0
        if not is_refused:
            stage = "build"
            dataset = write_dataset(feeds) if question["calibrates"] else None
            is_refused = rknn.build(do_quantization=dataset is not None, dataset=dataset) != 0
    except Exception as error:
        lines = str(error).strip().splitlines() or [repr(error)]
        functions = [match[1] for match in map(_FUNCTION.search, lines) if match]
        is_refused, reason = True, " in ".join([lines[-1].strip(), *functions[-1:]])
    ctypes.CDLL(None).fflush(None)  # the table of layers is printed in C
    log = Path("log").read_text("utf-8", "replace")
    lines = [_COLOUR.sub("", line) for line in log.replace("\r", "\n").splitlines()]
    if is_refused:
        errors = [li[2:] for li in lines if li.startswith("E ") and "op target: 0" not in li]
        reason = reason or (errors or ["no reason"])[-1]
        return {"accepted": False, "message": f"{stage}: {reason}"}, None
    rows = [match.groups() for match in map(_ROW.match, lines) if match]
    layers = [[name, op, device, ""] for op, device, name in rows if op not in _EDGES]
    outputs = None
    if question["outputs"]:
        rknn.init_runtime()
        names = question["inputs"]
        layouts = ["nchw"] * len(names)
        outputs = [
            rknn.inference(inputs=[feed[name] for name in names], data_format=layouts)
            for feed in feeds
        ]
    return {"accepted": True, "layers": layers}, outputs


def write_dataset(feeds: list[dict[str, Any]]) -> str:
    """Write the samples for the quantizer of the tool; return the path of their list."""
    lines = []
    for sample, feed in enumerate(feeds):
        files = [Path(f"{sample}_{number}.npy").absolute() for number in range(len(feed))]
        for file, values in zip(files, feed.values(), strict=True):
            np.save(file, values)
        lines.append(" ".join(map(str, files)) + "\n")
    Path("dataset.txt").write_text("".join(lines), "utf-8")
    return "dataset.txt"
