"""Adjoints: for each operator the nodes that compute the gradients of its inputs.

They are made of operators that every runtime has: the adjoint of a convolution is a
ConvTranspose, or a convolution with the flipped kernel where it is depthwise with stride 1.
An adjoint returns gradients by the index of the input; none where it cannot be told.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from npuconv.quantize.gradients import PREFIX, Adjoint, Gradients, Shape, Tape, Visit

ADJOINTS: dict[str, Adjoint] = {}


def _adjoint(*ops: str) -> Callable[[Adjoint], Adjoint]:
    def register(function: Adjoint) -> Adjoint:
        ADJOINTS.update(dict.fromkeys(ops, function))
        return function

    return register


def _unbroadcast(tape: Tape, gradient: str, shape: Shape, full: Shape) -> str:
    """Sum a gradient over the axes along which its tensor was broadcast."""
    if shape == full:
        return gradient
    padded = (1,) * (len(full) - len(shape)) + shape
    axes = [k for k, (a, b) in enumerate(zip(padded, full, strict=True)) if a != b]
    summed = tape.reduce("ReduceSum", gradient, axes, keepdims=True) if axes else gradient
    return tape.reshape(summed, shape)


def _elementwise(tape: Tape, at: Visit, parts: Mapping[int, str]) -> Gradients:
    return {k: _unbroadcast(tape, g, at.shape(k), at.output_shape) for k, g in parts.items()}


@_adjoint("Conv")
def _conv(tape: Tape, at: Visit) -> Gradients:
    attributes, weight = _window(at), at.shape(1)
    reach = [(k - 1) * d + 1 for k, d in zip(weight[2:], attributes["dilations"], strict=True)]
    pads = [e - 1 - p for e, p in zip(reach * 2, attributes["pads"], strict=True)]
    depthwise = (
        attributes["group"] == at.shape()[1] == weight[0] > 1 and max(attributes["strides"]) == 1
    )
    if depthwise and min(pads) >= 0 and (values := tape.value(at.inputs[1])) is not None:
        flipped = tape.constant(np.flip(values, tuple(range(2, values.ndim))))
        return {0: tape.add("Conv", at.dy, flipped, **{**attributes, "pads": pads})}
    padding = _unread(at, attributes["strides"], reach, attributes["pads"])
    return {0: tape.add("ConvTranspose", at.dy, at.inputs[1], output_padding=padding, **attributes)}


def _unread(at: Visit, strides: list[int], reach: list[int], pads: list[int]) -> list[int]:
    """Return the cells behind the last window, by axis; negative where it ends beyond the pads."""
    rows = zip(at.shape()[2:], at.output_shape[2:], strides, reach, strict=True)
    read = zip(rows, pads, pads[len(reach) :], strict=False)
    return [n + first + last - (m - 1) * s - e for (n, m, s, e), first, last in read]


def _window(at: Visit) -> dict[str, Any]:
    ones = [1] * (len(at.shape(1)) - 2)
    default = {"strides": ones, "dilations": ones, "pads": [0, 0] * len(ones), "group": 1}
    return {name: at.attributes.get(name, value) for name, value in default.items()}


@_adjoint("ConvTranspose")
def _conv_transpose(tape: Tape, at: Visit) -> Gradients:
    return {0: tape.add("Conv", at.dy, at.inputs[1], **_window(at))}


@_adjoint("Clip", "Max", "Min")
def _selected(tape: Tape, at: Visit) -> Gradients:
    """Pass the gradient to the input that the output is equal to."""
    values = at.inputs[:1] if at.op == "Clip" else at.inputs
    chosen = (tape.add("Equal", name, at.y) for name in values)
    return _elementwise(tape, at, {k: tape.masked(at.dy, c) for k, c in enumerate(chosen)})


@_adjoint("LeakyRelu", "PRelu")
def _leaky(tape: Tape, at: Visit) -> Gradients:
    slope = at.inputs[1] if at.op == "PRelu" else ""
    slope = slope or tape.constant(at.attributes.get("alpha", 0.01))
    positive = tape.add("Greater", at.x, tape.constant(0.0))
    return {0: tape.add("Where", positive, at.dy, tape.add("Mul", at.dy, slope))}


@_adjoint("Abs", "Relu", "Sigmoid", "Tanh", "Exp", "Sqrt", "HardSigmoid", "HardSwish", "Erf", "Neg")
def _pointwise(tape: Tape, at: Visit) -> Gradients:
    return {0: tape.add("Mul", at.dy, _SLOPES[at.op](tape, at))}


def _hard_sigmoid_slope(tape: Tape, at: Visit) -> str:
    alpha = tape.constant(at.attributes.get("alpha", 0.2))
    above = tape.add("Greater", at.y, tape.constant(0.0))
    inside = tape.add("And", above, tape.add("Less", at.y, tape.constant(1.0)))
    return tape.masked(alpha, inside)


def _hard_swish_slope(tape: Tape, at: Visit) -> str:
    three = tape.constant(3.0)
    inner = tape.add("Mul", tape.add("Add", at.x, tape.constant(1.5)), tape.constant(1 / 3))
    inside = tape.add("Less", tape.add("Abs", at.x), three)
    beyond = tape.add("Cast", tape.add("Greater", at.x, three), to=onnx.TensorProto.FLOAT)
    return tape.add("Where", inside, inner, beyond)


def _erf_slope(tape: Tape, at: Visit) -> str:
    negated = tape.add("Neg", tape.add("Mul", at.x, at.x))
    return tape.add("Mul", tape.add("Exp", negated), tape.constant(2 / math.sqrt(math.pi)))


_SLOPES: dict[str, Callable[[Tape, Visit], str]] = {
    "Abs": lambda tape, at: tape.add("Sign", at.x),
    "Relu": lambda tape, at: tape.add("Sign", at.y),
    "Sigmoid": lambda tape, at: tape.add("Mul", at.y, tape.add("Sub", tape.constant(1.0), at.y)),
    "Tanh": lambda tape, at: tape.add("Sub", tape.constant(1.0), tape.add("Mul", at.y, at.y)),
    "Exp": lambda _, at: at.y,
    "Sqrt": lambda tape, at: tape.add("Div", tape.constant(0.5), at.y),
    "HardSigmoid": _hard_sigmoid_slope,
    "HardSwish": _hard_swish_slope,
    "Erf": _erf_slope,
    "Neg": lambda tape, _: tape.constant(-1.0),
}


@_adjoint("Add", "Sum", "Sub")
def _add(tape: Tape, at: Visit) -> Gradients:
    parts = dict.fromkeys(range(len(at.inputs)), at.dy)
    if at.op == "Sub":
        parts[1] = tape.add("Neg", at.dy)
    return _elementwise(tape, at, parts)


@_adjoint("Mul")
def _mul(tape: Tape, at: Visit) -> Gradients:
    return _elementwise(tape, at, {k: tape.add("Mul", at.dy, at.inputs[1 - k]) for k in (0, 1)})


@_adjoint("Div")
def _div(tape: Tape, at: Visit) -> Gradients:
    first = tape.add("Div", at.dy, at.inputs[1])
    return _elementwise(tape, at, {0: first, 1: tape.add("Neg", tape.add("Mul", first, at.y))})


@_adjoint("Pow")
def _pow(tape: Tape, at: Visit) -> Gradients:
    exponent = at.inputs[1]
    less = tape.add("Pow", at.x, tape.add("Sub", exponent, tape.constant(1.0)))
    slope = tape.add("Mul", exponent, less)
    return _elementwise(tape, at, {0: tape.add("Mul", at.dy, slope)})


@_adjoint("Softmax")
def _softmax(tape: Tape, at: Visit) -> Gradients:
    weighed = tape.add("Mul", at.dy, at.y)
    axis = at.attributes.get("axis", -1)
    total = tape.reduce("ReduceSum", weighed, [axis], keepdims=True)
    return {0: tape.add("Sub", weighed, tape.add("Mul", at.y, total))}


@_adjoint("LayerNormalization")
def _layer_normalization(tape: Tape, at: Visit) -> Gradients:
    """Project out the mean and the normalized output."""
    rank = len(at.shape())
    axes = list(range(at.attributes.get("axis", -1) % rank, rank))
    centred = tape.add("Sub", at.x, tape.reduce("ReduceMean", at.x, axes, keepdims=True))
    variance = tape.reduce("ReduceMean", tape.add("Mul", centred, centred), axes, keepdims=True)
    epsilon = tape.constant(at.attributes.get("epsilon", 1e-5))
    root = tape.add("Sqrt", tape.add("Add", variance, epsilon))
    normal, gradient = tape.add("Div", centred, root), tape.add("Mul", at.dy, at.inputs[1])
    mean = tape.reduce("ReduceMean", gradient, axes, keepdims=True)
    along = tape.reduce("ReduceMean", tape.add("Mul", gradient, normal), axes, keepdims=True)
    projected = tape.add("Sub", gradient, tape.add("Add", mean, tape.add("Mul", normal, along)))
    return {0: tape.add("Div", projected, root)}


@_adjoint("MatMul")
def _matmul(tape: Tape, at: Visit) -> Gradients:
    if min(len(at.shape(0)), len(at.shape(1))) < 2:
        return {}

    def transposed(index: int) -> str:
        axes = list(range(len(at.shape(index))))
        return tape.add("Transpose", at.inputs[index], perm=[*axes[:-2], axes[-1], axes[-2]])

    gradients = {}
    for k, pair in {0: (at.dy, transposed(1)), 1: (transposed(0), at.dy)}.items():
        full = (*at.output_shape[:-2], *at.shape(k)[-2:])
        gradients[k] = _unbroadcast(tape, tape.add("MatMul", *pair), at.shape(k), full)
    return gradients


@_adjoint("Gemm")
def _gemm(tape: Tape, at: Visit) -> Gradients:
    attributes = at.attributes
    if attributes.get("transA", 0):
        return {}
    options = {"transB": 1 - attributes.get("transB", 0), "alpha": attributes.get("alpha", 1.0)}
    return {0: tape.add("Gemm", at.dy, at.inputs[1], **options)}


@_adjoint("BatchNormalization")
def _batch_norm(tape: Tape, at: Visit) -> Gradients:
    scale, variance = tape.value(at.inputs[1]), tape.value(at.inputs[4])
    if scale is None or variance is None:
        return {}
    with np.errstate(all="ignore"):
        gain = scale / np.sqrt(variance + at.attributes.get("epsilon", 1e-5))
    if not np.isfinite(gain).all():
        return {}
    along = gain.reshape(-1, *[1] * (len(at.shape()) - 2))
    return {0: tape.add("Mul", at.dy, tape.constant(along))}


@_adjoint("InstanceNormalization")
def _instance_norm(tape: Tape, at: Visit) -> Gradients:
    """``(dn - mean(dn) - n mean(dn n)) / deviation`` with n the normalized input."""
    axes = list(range(2, len(at.shape())))

    def mean(name: str) -> str:
        return tape.reduce("ReduceMean", name, axes, keepdims=True)

    centred = tape.add("Sub", at.x, mean(at.x))
    variance = mean(tape.add("Mul", centred, centred))
    epsilon = tape.constant(at.attributes.get("epsilon", 1e-5))
    deviation = tape.add("Sqrt", tape.add("Add", variance, epsilon))
    normal = tape.add("Div", centred, deviation)
    scale = tape.reshape(at.inputs[1], (-1, *[1] * len(axes)))
    dn = tape.add("Mul", at.dy, scale)
    along = mean(tape.add("Mul", dn, normal))
    less = tape.add("Sub", dn, mean(dn))
    projected = tape.add("Sub", less, tape.add("Mul", normal, along))
    return {0: tape.add("Div", projected, deviation)}


@_adjoint("GlobalAveragePool", "ReduceMean", "ReduceSum")
def _mean(tape: Tape, at: Visit) -> Gradients:
    shape = at.shape()
    axes = _reduced_axes(tape, at)
    dims = [1 if k in axes else n for k, n in enumerate(shape)]
    count = 1 if at.op == "ReduceSum" else math.prod(shape[k] for k in axes)
    share = tape.add("Mul", tape.reshape(at.dy, dims), tape.constant(1 / max(count, 1)))
    return {0: tape.add("Expand", share, tape.integers(shape))}


def _reduced_axes(tape: Tape, at: Visit) -> set[int]:
    rank = len(at.shape())
    if at.op == "GlobalAveragePool":
        return set(range(2, rank))
    axes = at.attributes.get("axes")
    if axes is None and len(at.inputs) > 1:
        axes = tape.value(at.inputs[1])
    return {int(a) % rank for a in (range(rank) if axes is None else axes)}


@_adjoint("AveragePool")
def _average_pool(tape: Tape, at: Visit) -> Gradients:
    """Spread each value over its window; pads count as in ``count_include_pad``."""
    shape, kernel = at.shape(), at.attributes["kernel_shape"]
    strides = at.attributes.get("strides", [1] * len(kernel))
    pads = at.attributes.get("pads", [0, 0] * len(kernel))
    share = np.full((shape[1], 1, *kernel), 1 / math.prod(kernel))
    padding = _unread(at, strides, kernel, pads)
    if min(padding) < 0:
        return {}
    attributes = {"strides": strides, "pads": pads, "group": shape[1], "output_padding": padding}
    return {0: tape.add("ConvTranspose", at.dy, tape.constant(share), **attributes)}


@_adjoint("MaxPool")
def _max_pool(tape: Tape, at: Visit) -> Gradients:
    """Put each value where its maximum was; windows that overlap are put there in turns."""
    if len(at.node.output) == 1:
        at.node.output.append(f"{PREFIX}/indices/{at.y}")
    kernel = at.attributes["kernel_shape"]
    ones = [1] * len(kernel)
    strides, dilations = (at.attributes.get(name, ones) for name in ("strides", "dilations"))
    triples = zip(kernel, strides, dilations, strict=True)
    turns = [-(-((k - 1) * d + 1) // s) for k, s, d in triples]
    shape = tape.integers(at.shape())
    attributes = {"kernel_shape": ones, "strides": ones}  # the indices say where values go
    parts = []
    for place in np.ndindex(*turns):
        if all(start < n for start, n in zip(place, at.output_shape[2:], strict=True)):
            pair = [_every(tape, name, place, turns) for name in (at.dy, at.node.output[1])]
            parts.append(tape.add("MaxUnpool", *pair, shape, **attributes))
    return {0: tape.total(parts)}


def _every(tape: Tape, source: str, starts: Sequence[int], steps: Sequence[int]) -> str:
    """Take every n-th value along the spatial axes."""
    if max(steps) == 1:
        return source
    rows = (starts, [2**31 - 1] * len(steps), range(2, 2 + len(steps)), steps)
    return tape.add("Slice", source, *(tape.integers(list(row)) for row in rows))


@_adjoint("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout", "Cast")
def _moved(tape: Tape, at: Visit) -> Gradients:
    return {0: tape.reshape(at.dy, at.shape())}


@_adjoint("Transpose")
def _transpose(tape: Tape, at: Visit) -> Gradients:
    perm = at.attributes.get("perm", list(range(len(at.shape())))[::-1])
    return {0: tape.add("Transpose", at.dy, perm=np.argsort(perm).tolist())}


@_adjoint("Concat")
def _concat(tape: Tape, at: Visit) -> Gradients:
    axis, start, found = at.attributes["axis"], 0, {}
    for k in range(len(at.inputs)):
        stop = start + at.shape(k)[axis]
        found[k], start = _sliced(tape, at.dy, {axis: (start, stop)}), stop
    return found


def _sliced(tape: Tape, source: str, spans: Mapping[int, tuple[int, int]]) -> str:
    rows = ([s for s, _ in spans.values()], [e for _, e in spans.values()], list(spans))
    return tape.add("Slice", source, *map(tape.integers, rows))


@_adjoint("Split")
def _split(tape: Tape, at: Visit) -> Gradients:
    parts = [
        own or tape.constant(np.zeros(tape.shapes[name]))
        for own, name in zip(at.gradients, at.node.output, strict=True)
    ]
    return {0: tape.add("Concat", *parts, axis=at.attributes.get("axis", 0))}


@_adjoint("Slice")
def _slice(tape: Tape, at: Visit) -> Gradients:
    values = [v for name in at.inputs[1:] if (v := tape.value(name)) is not None]
    shape, count = at.shape(), len(at.inputs) - 1
    if not 3 <= len(values) == count or (count > 3 and np.any(values[3] != 1)):
        return {}
    pads = np.zeros((2, len(shape)), np.int64)
    for start, axis in zip(values[0], values[2], strict=True):
        n = shape[axis]
        first = min(max(int(start) + (n if start < 0 else 0), 0), n)
        pads[:, axis] = first, n - first - at.output_shape[axis]
    return {0: tape.add("Pad", at.dy, tape.integers(pads.ravel()))}


@_adjoint("Pad")
def _pad(tape: Tape, at: Visit) -> Gradients:
    pads, shape = tape.value(at.inputs[1]), at.shape()
    mirrored = at.attributes.get("mode", b"constant") != b"constant"
    if pads is None or pads.size != 2 * len(shape) or pads.min() < 0 or mirrored:
        return {}
    spans = {k: (int(p), int(p) + n) for k, (p, n) in enumerate(zip(pads, shape, strict=False))}
    return {0: _sliced(tape, at.dy, spans)}


@_adjoint("Gather")
def _gather(tape: Tape, at: Visit) -> Gradients:
    """Gather the copies of every entry, first those that come first, and add them up."""
    shape, index = at.shape(), tape.value(at.inputs[1])
    axis = at.attributes.get("axis", 0) % max(len(shape), 1)
    if index is None or index.ndim != 1 or not index.size:
        return {}
    pads = np.zeros((2, len(shape)), np.int64)
    pads[1, axis] = 1  # an entry of zeros for what was not taken
    padded, parts = tape.add("Pad", at.dy, tape.integers(pads.ravel())), []
    left = dict(enumerate((index % shape[axis]).tolist()))
    while left:
        places = np.full(shape[axis], index.size)
        for number, entry in reversed(left.items()):
            places[entry] = number
        left = {number: entry for number, entry in left.items() if places[entry] != number}
        parts.append(tape.add("Gather", padded, tape.integers(places), axis=axis))
    return {0: tape.total(parts)}


@_adjoint("Resize")
def _resize(tape: Tape, at: Visit) -> Gradients:
    """Sum the copies of an enlargement by whole factors; approximate for linear ones."""
    small, large = at.shape(), at.output_shape
    if len(small) != 4 or small[:2] != large[:2] or 0 in (*small, *large):
        return {}
    if any(b % a for a, b in zip(small, large, strict=True)):
        return {}
    factors = [b // a for a, b in zip(small[2:], large[2:], strict=True)]
    mean = tape.add("AveragePool", at.dy, kernel_shape=factors, strides=factors)
    return {0: tape.add("Mul", mean, tape.constant(float(math.prod(factors))))}


@_adjoint("DepthToSpace")
def _depth_to_space(tape: Tape, at: Visit) -> Gradients:
    size, (n, c, h, w) = at.attributes["blocksize"], at.shape()
    apart = tape.reshape(at.dy, (n, c // size**2, h, size, w, size))
    channels_first = at.attributes.get("mode", b"DCR") == b"CRD"
    perm = [0, 1, 3, 5, 2, 4] if channels_first else [0, 3, 5, 1, 2, 4]
    return {0: tape.reshape(tape.add("Transpose", apart, perm=perm), at.shape())}
