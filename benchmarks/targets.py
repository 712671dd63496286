"""Costs of a device: its limits, its operators, and how other tools read the files.

    python benchmarks/targets.py limits MODEL...  # multiplications that limits add, for chips
    python benchmarks/targets.py splits           # dB that split layers lose in int8
    python benchmarks/targets.py operators        # crossings and dB with all operators listed
    python benchmarks/targets.py integers         # simulator and arithmetic / onnxruntime
    python benchmarks/targets.py runtimes         # layers on OpenVINO, tract, LiteRT
    python benchmarks/targets.py tflite           # TFLite files on LiteRT and Arm's Vela
    python benchmarks/targets.py vendors          # qdq files on QNN and RKNN-Toolkit2

Each command has --help. For ``limits`` every model is converted to its float form for every
device, without measuring rewrites, and the file is checked again for the same device. Printed is
a table with a row for each device: models converted and refused, files with an error, and the
costs that are added to the models on
``npu-int8`` with its limits left open. A model refused there is left out.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
from harness import (
    commands,
    exactness,
    listed_operators,
    runtimes,
    split_error,
    tflite_files,
    vendors,
)
from harness.models import recipes

import npuconv

CHIPS = ("mediatek-mdla2", "rknn", "ethos-u55", "horizon-x3")
LIMITS: dict[str, tuple[str, ...]] = {
    "kernel 3": ("kernel_h=3", "kernel_w=3"),
    "stride 1": ("stride_h=1", "stride_w=1"),
    "dilation 1": ("dilation_h=1", "dilation_w=1"),
    "no pads": ("pad_top=0", "pad_bottom=0", "pad_left=0", "pad_right=0"),
    "64 channels": ("in_c=64", "weight_n=64"),
    "128 x 128": ("in_h=128", "in_w=128"),
    "no bias": ("bias=false",),
    "kernel 5, stride 2, dilation 1, 256 channels": (
        "kernel_h=5", "kernel_w=5", "stride_h=1,2", "stride_w=1,2", "dilation_h=1",
        "dilation_w=1", "in_c=256", "weight_n=256",
    ),
}  # fmt: skip
MOVES = frozenset({"Pad", "Slice", "Concat", "SpaceToDepth", "DepthToSpace", "Transpose"})


@dataclass(frozen=True)
class Size:
    """Convolutions of a file, their multiply-accumulates, and elements that are moved."""

    convolutions: int = 0
    macs: int = 0
    moved: int = 0

    def plus(self, more: Size, sign: int = 1) -> Size:
        """Add, or subtract with a sign of -1."""
        return Size(
            self.convolutions + sign * more.convolutions,
            self.macs + sign * more.macs,
            self.moved + sign * more.moved,
        )


def size_of(model: onnx.ModelProto) -> Size:
    """Read the sizes off a file; an open extent counts as one."""
    model = onnx.shape_inference.infer_shapes(model)
    values = (*model.graph.value_info, *model.graph.input, *model.graph.output)
    shapes = {v.name: [d.dim_value or 1 for d in v.type.tensor_type.shape.dim] for v in values}
    weights = {t.name: list(t.dims) for t in model.graph.initializer}
    total = Size()
    for node in model.graph.node:
        shape = shapes.get(node.output[0], [])
        if node.op_type == "Conv" and shape and node.input[1] in weights:
            per_output = math.prod(weights[node.input[1]][1:])
            total = total.plus(Size(1, math.prod(shape) * per_output))
        elif node.op_type in MOVES:
            total = total.plus(Size(moved=math.prod(shape)))
    return total


def shapes_of(path: str) -> dict[str, tuple[int, ...]]:
    """Return the shapes that a shared model leaves open, as its recipe has them."""
    shapes = {recipe.model: recipe.shapes for recipe in recipes().values()}
    return shapes.get(Path(path).parent.name, {})


@dataclass
class Row:
    """One device: number of models that it takes, and added costs."""

    converted: int = 0
    refused: int = 0
    faulty: int = 0  # files that break a limit of the device they were made for
    added: Size = Size()
    base: Size = Size()

    def take(self, path: str, base: Size, target: str, assume: Sequence[str]) -> None:
        """Convert a model, check the file, and add its costs."""
        options = {"verify": False, "assume": list(assume), "input_shape": shapes_of(path)}
        try:
            converted = npuconv.convert(path, target, format="float", **options).model
        except npuconv.UnsupportedModelError as error:
            self.refused += 1
            print(f"  refused: {path}: {error}", flush=True)
            return
        self.converted += 1
        again = npuconv.check(converted, target, format="float", **options)
        if not again.ok:
            self.faulty += 1
            print(f"  faulty: {path}: {again.summary.headline}", flush=True)
        self.base = self.base.plus(base)
        self.added = self.added.plus(size_of(converted)).plus(base, -1)

    def text(self, name: str) -> str:
        """The row of the table."""
        share = self.added.macs / max(self.base.macs, 1)
        moved = self.added.moved / 2**20  # a byte each in int8
        return (
            f"| {name} | {self.converted} | {self.refused} | {self.faulty} | {share:+.1%} "
            f"| {moved:+.1f} | {self.added.convolutions:+d} |"
        )


def open_sizes(paths: Sequence[str]) -> dict[str, Size]:
    """Return what each model is while the limits stay open; models refused then are left out."""
    sizes = {}
    for path in paths:
        try:
            shapes = shapes_of(path)
            converted = npuconv.convert(
                path, format="float", verify=False, input_shape=shapes
            ).model
        except npuconv.NpuconvError as error:
            print(f"  left out: {path}: {error}", flush=True)
            continue
        sizes[path] = size_of(converted)
    return sizes


def limits(arguments: list[str]) -> None:
    """Convert models for each device, and print a row for it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="+")
    parser.add_argument("--only", nargs="+", help="names of chips and sets of limits")
    options = parser.parse_args(arguments)
    devices = {name: (name, ()) for name in CHIPS}
    devices |= {name: ("npu-int8", assume) for name, assume in LIMITS.items()}
    sizes = open_sizes(options.models)
    print("| device | converted | refused | faulty | MACs | MiB moved | convolutions |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for name, (target, assume) in devices.items():
        if options.only and name not in options.only:
            continue
        row = Row()
        for path, base in sizes.items():
            row.take(path, base, target, assume)
        print(row.text(name), flush=True)


if __name__ == "__main__":
    sys.exit(
        commands.run(
            __doc__,
            {
                "limits": limits,
                "splits": split_error.main,
                "operators": listed_operators.main,
                "integers": exactness.main,
                "runtimes": runtimes.main,
                "tflite": tflite_files.main,
                "vendors": vendors.main,
            },
        )
    )
