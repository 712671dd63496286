"""Evaluator of com.ms.internal.nhwc in numpy: no runtime on a CPU has it.

Written from the operator texts, with the channels last throughout: it transposes nothing and
uses no other evaluator, so that it can check a rewrite that does both.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from onnx import helper
from onnx.reference.op_run import OpRun

from npuconv.model import conv
from npuconv.model.nhwc import DOMAIN

Attrs = dict[str, Any]
Pairs = list[tuple[int, int]]


def evaluate(op: str, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> np.ndarray:
    """Return the result of one operator of the domain.

    The inputs are X, and W and B of a convolution; None for one that is omitted.

    Raises:
        ValueError: an activation that the domain does not have.
    """
    compute = _OPERATORS[op]
    x = inputs[0]
    assert x is not None, "X is required"
    # Sums in double precision: the comparison shows the error of the other side only.
    wide = [None if i is None else i.astype(np.float64) for i in inputs]
    return _activate(compute(wide, attrs), attrs).astype(x.dtype)


def _activate(y: np.ndarray, attrs: Attrs) -> np.ndarray:
    name, params = _text(attrs.get("activation")), [*attrs.get("activation_params", ())]
    if not name:
        return y
    if name not in _ACTIVATIONS:
        raise ValueError(f"activation {name!r} is not one of {', '.join(_ACTIVATIONS)}")
    result: np.ndarray = _ACTIVATIONS[name](y, *params)
    return result


_ACTIVATIONS: dict[str, Callable[..., np.ndarray]] = {
    "Relu": lambda y: np.maximum(y, 0),
    "Sigmoid": lambda y: 1 / (1 + np.exp(-y)),
    "Tanh": np.tanh,
    "LeakyRelu": lambda y, alpha: np.where(y < 0, alpha * y, y),
    # The lower bound first: with crossed bounds ONNX's Clip gives the upper one.
    "Clip": lambda y, low, high: np.minimum(np.maximum(y, low), high),
    "HardSigmoid": lambda y, alpha, beta: np.clip(alpha * y + beta, 0, 1),
}


def _conv(inputs: list[Any], attrs: Attrs) -> np.ndarray:
    x, w, bias = (*inputs, None)[:3]
    group, axes = int(attrs.get("group", 1)), w.ndim - 2
    cells = _windows(x, w.shape[2:], attrs, 0.0)
    parts = zip(np.split(cells, group, axis=axes + 1), np.split(w, group), strict=True)
    inner = range(axes + 1, 2 * axes + 2)  # channels and kernel of a window
    y = np.concatenate([np.tensordot(c, k, (inner, range(1, axes + 2))) for c, k in parts], -1)
    return y if bias is None else y + bias


def _conv_transpose(inputs: list[Any], attrs: Attrs) -> np.ndarray:
    """Add the multiple of the kernel by every input cell to the output."""
    x, w, bias = (*inputs, None)[:3]
    axes, kernel = w.ndim - 2, w.shape[2:]
    strides, dilations = _steps(attrs, axes)
    pads, extra = _transposed_pads(x.shape[1:-1], kernel, attrs)
    extents = zip(x.shape[1:-1], strides, kernel, dilations, extra, strict=True)
    full = [(n - 1) * s + (k - 1) * d + 1 + o for n, s, k, d, o in extents]
    maps = w.shape[1] * int(attrs.get("group", 1))
    y = np.zeros((x.shape[0], *full, maps))
    for offset in itertools.product(*map(range, kernel)):
        place = zip(offset, dilations, strides, x.shape[1:-1], strict=True)
        where = tuple(slice(o * d, o * d + (n - 1) * s + 1, s) for o, d, s, n in place)
        y[(slice(None), *where)] += _multiply_channels(
            x, w[(slice(None), slice(None), *offset)], maps
        )
    ends = zip(pads, full, strict=True)
    y = y[(slice(None), *(slice(begin, n - end) for (begin, end), n in ends))]
    return y if bias is None else y + bias


def _multiply_channels(x: np.ndarray, w: np.ndarray, maps: int) -> np.ndarray:
    """Multiply the channels of every group by its weights, C x M/group."""
    group = maps // w.shape[1]
    parts = zip(np.split(x, group, axis=-1), np.split(w, group), strict=True)
    return np.concatenate([a @ b for a, b in parts], axis=-1)


def _max_pool(inputs: list[Any], attrs: Attrs) -> np.ndarray:
    x = inputs[0]
    kernel = attrs["kernel_shape"]
    cells = _windows(x, kernel, attrs, -np.inf)
    result: np.ndarray = cells.max(axis=tuple(range(x.ndim, cells.ndim)))
    return result


def _average_pool(inputs: list[Any], attrs: Attrs) -> np.ndarray:
    """Average without cells that only ceil_mode reaches; pads count with count_include_pad."""
    x, kernel = inputs[0], attrs["kernel_shape"]
    inner = tuple(range(x.ndim, x.ndim + len(kernel)))
    total = _windows(x, kernel, attrs, 0.0).sum(axis=inner)
    border = 1.0 if attrs.get("count_include_pad", 0) else 0.0
    counts = _windows(np.ones_like(x), kernel, attrs, border).sum(axis=inner)
    result: np.ndarray = total / counts
    return result


def _windows(x: np.ndarray, kernel: Sequence[int], attrs: Attrs, fill: float) -> np.ndarray:
    """Return the input window of every kernel position: N x out... x C x kernel..."""
    axes = len(kernel)
    strides, dilations = _steps(attrs, axes)
    pads = _pads(x.shape[1:-1], kernel, attrs)
    padded = np.pad(x, [(0, 0), *pads, (0, 0)], constant_values=fill)
    reach = [conv.effective_kernel(k, d) for k, d in zip(kernel, dilations, strict=True)]
    beyond = [0] * axes
    if attrs.get("ceil_mode", 0):
        extents = zip(x.shape[1:-1], reach, strides, pads, strict=True)
        beyond = [_count_cells_of_ceil_mode(n, e, s, pair) for n, e, s, pair in extents]
    # Neither data nor padding: no effect on a maximum, and no cell of a mean.
    empty = -np.inf if fill == -np.inf else 0.0
    ends = [(0, 0), *((0, more) for more in beyond), (0, 0)]
    padded = np.pad(padded, ends, constant_values=empty)
    cells = sliding_window_view(padded, reach, axis=tuple(range(1, axes + 1)))
    steps = (slice(None), *(slice(None, None, s) for s in strides), slice(None))
    return cells[(*steps, *(slice(None, None, d) for d in dilations))]


def _count_cells_of_ceil_mode(extent: int, reach: int, stride: int, pads: tuple[int, int]) -> int:
    """Return the cells that ceil_mode adds; a window must begin before the end padding."""
    count = -(-(extent + sum(pads) - reach) // stride)
    if count * stride >= extent + pads[0]:
        count -= 1
    return max(count * stride + reach - extent - sum(pads), 0)


def _pads(extents: Sequence[int], kernel: Sequence[int], attrs: Attrs) -> Pairs:
    mode, axes = _text(attrs.get("auto_pad")), len(kernel)
    if mode in ("", "NOTSET"):
        return _explicit(attrs, axes)
    rows = zip(extents, kernel, *_steps(attrs, axes), strict=True)
    pairs = [conv.conv_pads(mode, n, k, s, d) for n, k, s, d in rows]
    return [pair for pair in pairs if pair is not None]


def _transposed_pads(
    extents: Sequence[int], kernel: Sequence[int], attrs: Attrs
) -> tuple[Pairs, list[int]]:
    mode, axes = _text(attrs.get("auto_pad")) or "NOTSET", len(kernel)
    extra = list(attrs.get("output_padding") or [0] * axes)
    wanted = list(attrs.get("output_shape") or [])[-axes:]
    if mode == "NOTSET" and not wanted:
        return _explicit(attrs, axes), extra
    steps = _steps(attrs, axes)
    rows = zip(extents, kernel, *steps, extra, wanted or [None] * axes, strict=True)
    found = [conv.transpose_pads(mode, n, k, s, d, o, out) for n, k, s, d, o, out in rows]
    known = [triple for triple in found if triple is not None]
    return [(begin, end) for begin, end, _ in known], [more for *_, more in known]


def _explicit(attrs: Attrs, axes: int) -> Pairs:
    flat = list(attrs.get("pads") or [0] * (2 * axes))
    return list(zip(flat[:axes], flat[axes:], strict=True))


def _steps(attrs: Attrs, axes: int) -> tuple[list[int], list[int]]:
    strides, dilations = (attrs.get(name) or [1] * axes for name in ("strides", "dilations"))
    return list(map(int, strides)), list(map(int, dilations))


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")


def _over_all(reduce: Callable[..., np.ndarray]) -> Callable[[list[Any], Attrs], np.ndarray]:
    def pool(inputs: list[Any], attrs: Attrs) -> np.ndarray:
        del attrs
        x = inputs[0]
        return reduce(x, axis=tuple(range(1, x.ndim - 1)), keepdims=True)

    return pool


_OPERATORS: dict[str, Callable[[list[Any], Attrs], np.ndarray]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "GlobalMaxPool": _over_all(np.max),
    "GlobalAveragePool": _over_all(np.mean),
}


def _run(self: OpRun, *inputs: np.ndarray | None, **_attributes: Any) -> tuple[np.ndarray]:
    attrs = {a.name: helper.get_attribute_value(a) for a in self.onnx_node.attribute}
    return (evaluate(self.onnx_node.op_type, inputs, attrs),)


# ONNX's reference evaluator finds an operator by the name of its class.
EVALUATORS: list[type[OpRun]] = [
    type(op, (OpRun,), {"op_domain": DOMAIN, "_run": _run}) for op in _OPERATORS
]
