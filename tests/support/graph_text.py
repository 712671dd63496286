"""Runs a model by ONNX's operator texts, in numpy and float64: convolutions and company.

    values = evaluate(model, {"x": array})

Knows the operators that stand between convolutions, at every opset. It shares nothing with
what it judges.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from support import conv_text
from support.conv_text import Slide

Operator = Callable[..., np.ndarray]


def evaluate(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs of a model, node by node.

    Raises:
        KeyError: an operator that is not described here.
    """
    opset = next(o.version for o in model.opset_import if o.domain == "")
    values = {t.name: _wide(numpy_helper.to_array(t)) for t in model.graph.initializer}
    values |= {name: _wide(array) for name, array in feeds.items()}
    for node in model.graph.node:
        read = [values[name] if name else None for name in node.input]
        attrs = attributes(node)
        values[node.output[0]] = OPERATORS[node.op_type](attrs, opset, *read)
    return {output.name: values[output.name] for output in model.graph.output}


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """Attribute values by name; text as str."""
    values = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    return {k: v.decode() if isinstance(v, bytes) else v for k, v in values.items()}


def slide_of(attrs: Mapping[str, Any], kernel: tuple[int, ...] = ()) -> Slide:
    """Return the path of a node's kernel, with defaults of the texts."""
    kernel = tuple(attrs.get("kernel_shape") or kernel)
    axes = len(kernel)
    return Slide(
        kernel,
        attrs.get("strides") or [1] * axes,
        attrs.get("dilations") or [1] * axes,
        attrs.get("pads") or [0] * (2 * axes),
        attrs.get("auto_pad") or "NOTSET",
        bool(attrs.get("ceil_mode", 0)),
    )


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def _conv(attrs: dict[str, Any], _opset: int, x: Any, w: Any, b: Any = None) -> np.ndarray:
    slide = slide_of(attrs, w.shape[2:])
    return conv_text.conv(x, w, b, slide, attrs.get("group", 1))


def _conv_transpose(
    attrs: dict[str, Any], _opset: int, x: Any, w: Any, b: Any = None
) -> np.ndarray:
    extra, wanted = attrs.get("output_padding", ()), attrs.get("output_shape", ())
    slide = slide_of(attrs, w.shape[2:])
    return conv_text.conv_transpose(x, w, b, slide, attrs.get("group", 1), extra, wanted)


def _max_pool(attrs: dict[str, Any], _opset: int, x: Any) -> np.ndarray:
    return conv_text.max_pool(x, slide_of(attrs))


def _average_pool(attrs: dict[str, Any], _opset: int, x: Any) -> np.ndarray:
    return conv_text.average_pool(x, slide_of(attrs), bool(attrs.get("count_include_pad", 0)))


def _global(reduce: Callable[..., np.ndarray]) -> Operator:
    return lambda _attrs, _opset, x: reduce(x, axis=tuple(range(2, x.ndim)), keepdims=True)


def _batch_normalization(
    attrs: dict[str, Any], _opset: int, x: Any, *stats: np.ndarray
) -> np.ndarray:
    """The inference form: with the statistics given."""
    scale, shift, mean, variance = (s.reshape(-1, *[1] * (x.ndim - 2)) for s in stats)
    return np.asarray((x - mean) / np.sqrt(variance + attrs.get("epsilon", 1e-5)) * scale + shift)


def _elementwise(function: Callable[..., np.ndarray]) -> Operator:
    """Before version 7 the second operand lies along the first from `axis` on."""

    def run(attrs: dict[str, Any], opset: int, a: Any, b: Any) -> np.ndarray:
        if opset < 7 and "axis" in attrs:
            b = b.reshape(*b.shape, *[1] * (a.ndim - attrs["axis"] - b.ndim))
        return function(a, b)

    return run


def _gemm(attrs: dict[str, Any], _opset: int, a: Any, b: Any, c: Any = None) -> np.ndarray:
    left, right = (a.T if attrs.get("transA") else a), (b.T if attrs.get("transB") else b)
    product = attrs.get("alpha", 1.0) * (left @ right)
    return np.asarray(product if c is None else product + attrs.get("beta", 1.0) * c)


def _pad(
    attrs: dict[str, Any], opset: int, x: Any, amounts: Any = None, fill: Any = None,
    axes: Any = None,
) -> np.ndarray:  # fmt: skip
    """Version 1 calls its amounts `paddings`, 2 `pads`; 11 makes them an input, 18 has axes."""
    if opset < 11:
        amounts, fill = attrs["paddings" if opset < 2 else "pads"], attrs.get("value", 0.0)
    named = range(x.ndim) if axes is None else [int(a) % x.ndim for a in axes]
    given = dict(zip(named, zip(*np.reshape(amounts, (2, -1)), strict=True), strict=True))
    sides = [given.get(axis, (0, 0)) for axis in range(x.ndim)]
    kept = (slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(x.shape, sides, strict=True))
    cut = x[tuple(kept)]
    grown = [(max(a, 0), max(b, 0)) for a, b in sides]
    mode = attrs.get("mode") or "constant"
    if mode != "constant":
        assert cut.shape == x.shape, "what a reflection of a cropped tensor is, no text says"
        return np.pad(x, grown, mode=mode)  # type: ignore[call-overload,no-any-return]
    return np.pad(cut, grown, constant_values=0.0 if fill is None else float(fill))


def _flatten(attrs: dict[str, Any], _opset: int, x: Any) -> np.ndarray:
    return np.asarray(x.reshape(math.prod(x.shape[: attrs.get("axis", 1)]), -1))


OPERATORS: dict[str, Operator] = {
    "Add": _elementwise(np.add),
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_normalization,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Flatten": _flatten,
    "Gemm": _gemm,
    "GlobalAveragePool": _global(np.mean),
    "GlobalMaxPool": _global(np.max),
    "MaxPool": _max_pool,
    "Mul": _elementwise(np.multiply),
    "Pad": _pad,
    "Relu": lambda _attrs, _opset, x: np.maximum(x, 0.0),
}
