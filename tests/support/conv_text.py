"""ONNX's texts of Conv, ConvTranspose and the pools, in numpy.

An evaluation that shares no code with npuconv: written from the texts of all versions (1, 11
and 22 of the convolutions), for any number of spatial axes, summed in float64, with one matrix
product for each cell of the kernel. If all runtimes differ from a text, this follows the
runtimes: Conv-1 has the SAME of Conv-11, and ConvTranspose-1 has the two halves of padding of
ConvTranspose-11. If only onnxruntime differs (SAME with dilation, padding below zero), this
follows the text.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Pads = list[tuple[int, int]]
SAME = ("SAME_UPPER", "SAME_LOWER")


def halves(total: int, auto_pad: str) -> tuple[int, int]:
    """Begin and end: the odd cell is at the end for SAME_UPPER, else at the beginning."""
    small, large = total // 2, total - total // 2
    return (small, large) if auto_pad == "SAME_UPPER" else (large, small)


@dataclass(frozen=True)
class Slide:
    """Path of a kernel: one entry for each spatial axis."""

    kernel: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]
    pads: Sequence[int]  # all begins, then all ends
    auto_pad: str = "NOTSET"
    ceil: bool = False

    @property
    def reaches(self) -> list[int]:
        """Cells the dilated kernel covers: ``(k - 1) * d + 1``."""
        return [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]

    @property
    def explicit(self) -> Pads:
        """The pads as written."""
        axes = len(self.kernel)
        return list(zip(self.pads[:axes], self.pads[axes:], strict=True))

    def pads_of(self, extents: Sequence[int]) -> Pads:
        """Begin and end of every axis of a convolution or pool."""
        if self.auto_pad == "NOTSET":
            return self.explicit
        if self.auto_pad == "VALID":
            return [(0, 0)] * len(self.kernel)
        totals = (
            max((-(-extent // s) - 1) * s + reach - extent, 0)
            for extent, s, reach in zip(extents, self.strides, self.reaches, strict=True)
        )
        return [halves(total, self.auto_pad) for total in totals]

    def counts(self, extents: Sequence[int]) -> list[int]:
        """Output extent of every axis of a convolution or pool."""
        return [self._count(axis, n, pads) for axis, (n, pads) in
                enumerate(zip(extents, self.pads_of(extents), strict=True))]  # fmt: skip

    def _count(self, axis: int, extent: int, pads: tuple[int, int]) -> int:
        stride = self.strides[axis]
        if self.auto_pad in SAME:
            return -(-extent // stride)
        room = extent + sum(pads) - self.reaches[axis]
        if not self.ceil:
            return room // stride + 1
        count = -(-room // stride) + 1
        # A window that would start in the padding at the end does not count.
        return count - ((count - 1) * stride >= extent + pads[0])

    def taps(self) -> Iterator[tuple[int, ...]]:
        """Every cell of the kernel."""
        return itertools.product(*map(range, self.kernel))

    def met(self, tap: Sequence[int], counts: Sequence[int]) -> tuple[object, ...]:
        """The index of the cells that one cell of the kernel meets in all windows together."""
        steps = zip(tap, self.dilations, self.strides, counts, strict=True)
        return (..., *(slice(k * d, k * d + (n - 1) * s + 1, s) for k, d, s, n in steps))


def framed(x: np.ndarray, slide: Slide, fill: float) -> np.ndarray:
    """The input with its pads, and with fill up to the end of the last window."""
    extents = x.shape[2:]
    frame = [(0, 0), (0, 0)]
    for n, (begin, end), count, s, reach in zip(
        extents, slide.pads_of(extents), slide.counts(extents), slide.strides, slide.reaches,
        strict=True,
    ):  # fmt: skip
        frame.append((begin, max(end, (count - 1) * s + reach - n - begin)))
    return np.pad(x.astype(np.float64), frame, constant_values=fill)


def conv(
    x: np.ndarray, w: np.ndarray, b: np.ndarray | None, slide: Slide, group: int = 1
) -> np.ndarray:
    """Conv: N x C x ... and M x C/group x ... give N x M x ..."""
    counts, cells = slide.counts(x.shape[2:]), framed(x, slide, 0.0)
    batch, channels, outputs = x.shape[0], x.shape[1] // group, w.shape[0]
    total = np.zeros((batch, group, outputs // group, math.prod(counts)))
    for tap in slide.taps():
        met = cells[slide.met(tap, counts)].reshape(batch, group, channels, -1)
        total += w[(..., *tap)].reshape(group, outputs // group, channels) @ met
    return _biased(total.reshape(batch, outputs, *counts), b)


def conv_transpose(
    x: np.ndarray, w: np.ndarray, b: np.ndarray | None, slide: Slide, group: int = 1,
    output_padding: Sequence[int] = (), output_shape: Sequence[int] = (),
) -> np.ndarray:  # fmt: skip
    """ConvTranspose: N x C x ... and C x M/group x ... give N x M x ..."""
    extents = x.shape[2:]
    whole = transpose_extents(slide, extents, output_padding)
    crops, appended = transpose_crops(slide, extents, whole, output_shape)
    batch, channels, outputs = x.shape[0], x.shape[1] // group, w.shape[1]
    room = [n + more for n, more in zip(whole, appended, strict=True)]
    total, flat = np.zeros((batch, group * outputs, *room)), x.reshape(batch, group, channels, -1)
    for tap in slide.taps():
        kernel = w[(..., *tap)].reshape(group, channels, outputs).swapaxes(1, 2)
        total[slide.met(tap, extents)] += (kernel @ flat).reshape(batch, -1, *extents)
    cells = (slice(begin, n - end) for n, (begin, end) in zip(room, crops, strict=True))
    return _biased(total[(..., *cells)], b)


def transpose_extents(
    slide: Slide, extents: Sequence[int], output_padding: Sequence[int] = ()
) -> list[int]:
    """Output extents before anything is cut off: ``s * (n - 1) + reach + output_padding``."""
    extra = list(output_padding) or [0] * len(extents)
    sizes = zip(slide.strides, extents, slide.reaches, extra, strict=True)
    return [s * (n - 1) + reach + e for s, n, reach, e in sizes]


def transpose_crops(
    slide: Slide, extents: Sequence[int], whole: Sequence[int], output_shape: Sequence[int]
) -> tuple[Pads, list[int]]:
    """Return the cells cut off at both ends of every axis, and those appended first."""
    final_extents = list(output_shape)[-len(extents) :]  # some write batch and channels too
    if not final_extents and slide.auto_pad not in SAME:
        pads = slide.explicit if slide.auto_pad == "NOTSET" else [(0, 0)] * len(extents)
        return pads, [0] * len(extents)
    if not final_extents:
        final_extents = [n * s for n, s in zip(extents, slide.strides, strict=True)]
    totals = [n - want for n, want in zip(whole, final_extents, strict=True)]
    return [halves(max(t, 0), slide.auto_pad) for t in totals], [max(-t, 0) for t in totals]


def _biased(y: np.ndarray, b: np.ndarray | None) -> np.ndarray:
    return y if b is None else y + b.reshape(-1, *[1] * (y.ndim - 2))


def max_pool(x: np.ndarray, slide: Slide) -> np.ndarray:
    """The largest cell of each window; padding never wins."""
    counts, cells = slide.counts(x.shape[2:]), framed(x, slide, -np.inf)
    return np.max([cells[slide.met(tap, counts)] for tap in slide.taps()], axis=0)


def average_pool(x: np.ndarray, slide: Slide, count_include_pad: bool = False) -> np.ndarray:
    """Mean of each window over the cells of the input, or of input and pads."""
    counts, ones = slide.counts(x.shape[2:]), np.ones((1, 1, *x.shape[2:]))
    members = framed(ones, slide, 0.0)
    if count_include_pad:  # without cells beyond the pads, which a rounded-up window may cover
        members = np.zeros_like(members)
        sides = zip(x.shape[2:], slide.pads_of(x.shape[2:]), strict=True)
        members[(..., *(slice(0, n + begin + end) for n, (begin, end) in sides))] = 1.0
    sums, sizes = (
        np.sum([array[slide.met(tap, counts)] for tap in slide.taps()], axis=0)
        for array in (framed(x, slide, 0.0), members)
    )
    return np.asarray(sums / sizes)


Operator = Callable[..., np.ndarray]


def evaluate(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs of a model, node by node.

    Raises:
        KeyError: this module has no evaluator for an operator.
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
    return conv(x, w, b, slide, attrs.get("group", 1))


def _conv_transpose(
    attrs: dict[str, Any], _opset: int, x: Any, w: Any, b: Any = None
) -> np.ndarray:
    extra, output_shape = attrs.get("output_padding", ()), attrs.get("output_shape", ())
    slide = slide_of(attrs, w.shape[2:])
    return conv_transpose(x, w, b, slide, attrs.get("group", 1), extra, output_shape)


def _max_pool(attrs: dict[str, Any], _opset: int, x: Any) -> np.ndarray:
    return max_pool(x, slide_of(attrs))


def _average_pool(attrs: dict[str, Any], _opset: int, x: Any) -> np.ndarray:
    return average_pool(x, slide_of(attrs), bool(attrs.get("count_include_pad", 0)))


def _global(reduce: Callable[..., np.ndarray]) -> Operator:
    return lambda _attrs, _opset, x: reduce(x, axis=tuple(range(2, x.ndim)), keepdims=True)


def _batch_normalization(
    attrs: dict[str, Any], _opset: int, x: Any, *stats: np.ndarray
) -> np.ndarray:
    """BatchNormalization in inference, with constant statistics."""
    scale, shift, mean, variance = (s.reshape(-1, *[1] * (x.ndim - 2)) for s in stats)
    return np.asarray((x - mean) / np.sqrt(variance + attrs.get("epsilon", 1e-5)) * scale + shift)


def _elementwise(function: Callable[..., np.ndarray]) -> Operator:
    """Return an evaluator; before version 7, `axis` is the first axis of the second operand."""

    def run(attrs: dict[str, Any], opset: int, a: Any, b: Any) -> np.ndarray:
        if opset < 7 and "axis" in attrs:
            b = b.reshape(*b.shape, *[1] * (a.ndim - attrs["axis"] - b.ndim))
        return function(a, b)

    return run


def _gemm(attrs: dict[str, Any], _opset: int, a: Any, b: Any, c: Any = None) -> np.ndarray:
    a_matrix, b_matrix = (a.T if attrs.get("transA") else a), (b.T if attrs.get("transB") else b)
    product = attrs.get("alpha", 1.0) * (a_matrix @ b_matrix)
    return np.asarray(product if c is None else product + attrs.get("beta", 1.0) * c)


def _pad(
    attrs: dict[str, Any], opset: int, x: Any, amounts: Any = None, fill: Any = None,
    axes: Any = None,
) -> np.ndarray:  # fmt: skip
    """Pad: the amounts are `paddings` in version 1, `pads` in 2, an input in 11; 18 has axes."""
    if opset < 11:
        amounts, fill = attrs["paddings" if opset < 2 else "pads"], attrs.get("value", 0.0)
    named = range(x.ndim) if axes is None else [int(a) % x.ndim for a in axes]
    sides_by_axis = dict(zip(named, zip(*np.reshape(amounts, (2, -1)), strict=True), strict=True))
    sides = [sides_by_axis.get(axis, (0, 0)) for axis in range(x.ndim)]
    inner = (slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(x.shape, sides, strict=True))
    cut = x[tuple(inner)]
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
