"""Attributes that mean nothing: negative, zero, overflowing, of a wrong length or type."""

from __future__ import annotations

from typing import Any

import numpy as np

from hostile.case import Case, Cases, model
from support.builders import Net

_MAX = 2**63 - 1
EMPTY = object()  # a list without elements, which ONNX's helper does not make
_LISTS: dict[str, Any] = {
    "zero": [0, 0],
    "negative": [-1, -1],
    "max": [_MAX, _MAX],
    "min": [-(2**63), 1],
    "short": [1],
    "long": [1, 1, 1],
    "empty": EMPTY,
    "thousand": [1] * 1000,
    "float": [1.5, 1.5],
    "text": "abc",
    "number": 3,
}
_GROUPS = {"zero": 0, "negative": -3, "not-dividing": 2, "max": _MAX, "list": [1], "three": 3}
_FEW = ("zero", "negative", "max", "short", "empty")
_PADS: dict[str, Any] = {
    "negative": [-1, -1, -1, -1],
    "crop-all": [-99, -99, -99, -99],
    "max": [_MAX] * 4,
    "sum-overflows": [2**62, 0, 2**62, 0],
    "short": [1, 1],
    "odd": [1, 1, 1],
    "empty": EMPTY,
    "float": [0.5] * 4,
    "large": [100_000] * 4,
}


def cases() -> Cases:
    """Every attribute that is wrong."""
    for op in ("Conv", "ConvTranspose", "MaxPool", "AveragePool"):
        for key in ("strides", "dilations", "kernel_shape"):
            if key == "dilations" and op == "AveragePool":
                continue
            for name in _LISTS if op == "Conv" else _FEW:
                yield _windowed(op, key, name, _LISTS[name])
        for name in _PADS if op == "Conv" else ("negative", "max", "short"):
            yield _windowed(op, "pads", name, _PADS[name])
        for name, value in {"unknown": "SAME", "number": 7, "empty": ""}.items():
            yield _windowed(op, "auto_pad", name, value)
    for op in ("Conv", "ConvTranspose"):
        for name, value in _GROUPS.items():
            yield _windowed(op, "group", name, value)
    for key, name, value in (
        ("output_padding", "negative", [-1, -1]),
        ("output_padding", "max", [_MAX, _MAX]),
        ("output_shape", "max", [_MAX, _MAX]),
        ("output_shape", "zero", [0, 0]),
        ("output_shape", "short", [9]),
    ):
        yield _windowed("ConvTranspose", key, name, value)
    yield from _others()


def _windowed(op: str, key: str, name: str, value: Any) -> Case:
    net = Net(x=(1, 3, 8, 8))
    attrs: dict[str, Any] = {"kernel_shape": [3, 3], key: [1] if value is EMPTY else value}
    if "Pool" in op:
        net.conv("x").op(op, **attrs)
    else:
        weight = (4, 3, 3, 3) if op == "Conv" else (3, 4, 3, 3)
        net.op(op, "x", net.random(*weight), **attrs)
    if value is EMPTY:
        next(one for one in net.nodes[-1].attribute if one.name == key).ClearField("ints")
    return Case(f"attribute/{op}-{key}-{name}", f"{key} of {op}", model(net.unchecked_model()))


def _others() -> Cases:
    def case(name: str, net: Net) -> Case:
        return Case(f"attribute/{name}", "attributes", model(net.unchecked_model()))

    def after(op: str, *constants: Any, **attrs: Any) -> Net:
        net = Net(x=(1, 3, 8, 8)).conv("x")
        last = net.last
        names = [net.constant(value) for value in constants]
        return net.op(op, last, *names, **attrs)

    yield case("concat-axis", after("Concat", np.ones((1, 4, 6, 6), np.float32), axis=2**62))
    yield case("softmax-axis", after("Softmax", axis=-(2**63)))
    yield case("flatten-axis", after("Flatten", axis=99))
    yield case("gather-axis", after("Gather", np.int64([0]), axis=77))
    yield case("gather-outside", after("Gather", np.int64([10**12, -(10**12)]), axis=1))
    yield case("transpose-alike", after("Transpose", perm=[0, 0, 0, 0]))
    yield case("transpose-outside", after("Transpose", perm=[9, 8, 7, 6]))
    yield case("transpose-short", after("Transpose", perm=[1, 0]))
    yield case("reshape-two-open", after("Reshape", np.int64([-1, -1])))
    yield case("reshape-negative", after("Reshape", np.int64([-7, 4])))
    yield case("reshape-overflow", after("Reshape", np.int64([2**62, 4, -1])))
    yield case("reshape-zero", after("Reshape", np.int64([0, 0, 0, 0, 0, 0])))
    yield case("slice-outside", after("Slice", np.int64([2**62]), np.int64([-(2**62)])))
    yield case("slice-still", after("Slice", *(np.int64([v]) for v in (0, 5, 1, 0))))
    yield case("split-wrong", after("Split", np.int64([1, 99])))
    yield case("squeeze-outside", after("Squeeze", np.int64([55])))
    yield case("unsqueeze-many", after("Unsqueeze", np.arange(2000)))
    yield case("reduce-outside", after("ReduceMean", axes=[17, -17]))
    yield case("pad-short", after("Pad", np.int64([1, 1])))
    yield case("pad-crops", after("Pad", np.int64([0, 0, -99, 0, 0, 0, -99, 0])))
    yield case("resize-zero", after("Resize", np.float32([]), np.float32([0, 0, 0, 0])))
    yield case("resize-nan", after("Resize", np.float32([]), np.float32([1, 1, np.nan, np.inf])))
    yield case("cast-unknown", after("Cast", to_=1))
    yield case("clip-text", after("Clip", np.array(["a"], object)))
    yield case("gemm-alpha", after("Gemm", np.ones((4, 4), np.float32), alpha=np.nan))
    yield case("lrn-size", after("LRN", size=-(2**62)))
    yield case("one-hot", after("OneHot", np.int64(-5), np.float32([0, 1])))
    yield case("top-k", after("TopK", np.int64([2**62])))
    yield case("space-to-depth", after("SpaceToDepth", blocksize=0))
    yield case("instance-norm", after("InstanceNormalization", np.float32([1]), np.float32([2])))
