"""Gradients of a model with respect to its tensors, as ordinary ONNX nodes.

Reverse-mode differentiation written into the graph: for every node between the watched
tensors and the outputs its adjoint is appended, made of operators that every runtime has
(the adjoint of a convolution is a ConvTranspose, or a convolution with the flipped kernel
where it is depthwise with stride 1). What an operator without an adjoint reads counts as an
output of its own. Shapes must be static.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from npuconv.model import store
from npuconv.model.proto import reads

OLDEST_OPSET = 13  # from here on ReduceSum takes its axes as an input
_REDUCE_AXES_AS_INPUT = 18
PREFIX = "npuconv/gradient"
_SHAPE_ONLY = frozenset({"Shape", "Size"})  # no value flows through them
Shape = tuple[int, ...]


class Tape:
    """A graph to which gradients are added.

    Args:
        graph: grows; its nodes must be in topological order.
        shapes: static shapes by tensor name.
        opset: of the standard domain, at least ``OLDEST_OPSET``.
    """

    def __init__(self, graph: onnx.GraphProto, shapes: Mapping[str, Shape], opset: int) -> None:
        self.graph, self.shapes, self.opset = graph, dict(shapes), opset
        self.constants = {t.name: t for t in graph.initializer}
        self._forward = list(graph.node)
        self._gradients: dict[str, list[str]] = {}
        self._seeds: dict[str, str] = {}
        self._floats: Collection[str] = ()
        self._count = 0

    def add(self, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Append a node and return the name of its output."""
        self._count += 1
        name = f"{PREFIX}/{self._count}"
        self.graph.node.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def constant(self, values: object, dtype: type = np.float32) -> str:
        """Append an initializer and return its name."""
        self._count += 1
        name = f"{PREFIX}/{self._count}"
        self.graph.initializer.append(store.initializer(name, np.asarray(values, dtype)))
        return name

    def value(self, name: str) -> NDArray[Any] | None:
        """Return the value of a constant, None for anything else."""
        tensor = self.constants.get(name)
        return None if tensor is None else store.array(tensor)

    def reduce(self, op: str, source: str, axes: Sequence[int], *, keepdims: bool) -> str:
        """Append ReduceSum or ReduceMean."""
        if op == "ReduceSum" or self.opset >= _REDUCE_AXES_AS_INPUT:
            given = [source, self.constant(list(axes), np.int64)]
            return self.add(op, given, keepdims=int(keepdims))
        return self.add(op, [source], axes=list(axes), keepdims=int(keepdims))

    def reshape(self, source: str, shape: Sequence[int]) -> str:
        """Append a Reshape to a static shape."""
        return self.add("Reshape", [source, self.constant(list(shape), np.int64)])

    def masked(self, source: str, condition: str) -> str:
        """Append a product with a bool tensor."""
        return self.add("Mul", [source, self.add("Cast", [condition], to=onnx.TensorProto.FLOAT)])

    def backward(
        self, outputs: Sequence[str], wanted: Iterable[str], floats: Collection[str]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Append the gradients of ``sum(seed * end)`` over all ends.

        Ends are the outputs, and what is read by an operator that no gradient passes.

        Args:
            outputs: of the graph.
            wanted: tensors whose gradients are needed.
            floats: tensors that are float32; no others are ends.

        Returns:
            By wanted tensor the name of its gradient, without those that no end depends on; and
            by end the name of its seed, a tensor of the same shape that nothing makes yet.
        """
        targets, self._floats = set(wanted), floats
        needed, reached = self._depending_on(targets), set(outputs)
        for name in outputs:
            self._end(name, needed)
        for node in reversed(self._forward):
            if not reached.isdisjoint(node.output) and node.op_type not in _SHAPE_ONLY:
                # A branch of an If reads tensors that are none of its inputs.
                reached.update(needed.intersection(reads(node)))
                self._pass(node, needed)
        gradients = {name: self._summed(name) for name in sorted(targets)}
        return {name: gradient for name, gradient in gradients.items() if gradient}, self._seeds

    def _pass(self, node: onnx.NodeProto, needed: Collection[str]) -> None:
        """Pass the gradients of what a node makes on to what it reads; else these are ends."""
        found = self._adjoint(node)
        passed = {index: node.input[index] for index in found if node.input[index] in needed}
        for index, name in passed.items():
            self._gradients.setdefault(name, []).append(found[index])
        for name in dict.fromkeys(reads(node)):
            if name not in passed.values():
                self._end(name, needed)

    def _end(self, name: str, needed: Collection[str]) -> None:
        """Let a float tensor of a known shape be an end, if any gradient is needed of it."""
        if (
            name in needed
            and name in self._floats
            and name in self.shapes
            and name not in self._seeds
        ):
            self._seeds[name] = f"{PREFIX}/seed/{name}"
            self._gradients.setdefault(name, []).append(self._seeds[name])

    def _adjoint(self, node: onnx.NodeProto) -> dict[int, str]:
        """Return the gradients of the inputs by index; without those that cannot be told."""
        arrived = [self._summed(name) for name in node.output]
        adjoint = None if node.domain not in ("", "ai.onnx") else ADJOINTS.get(node.op_type)
        static = all(name in self.shapes for name in (*node.input, *node.output) if name)
        numbers = node.output[0] in self._floats  # no double, no half
        if adjoint is None or not static or not numbers or not any(arrived):
            return {}
        return adjoint(self, node, arrived)

    def _summed(self, name: str) -> str:
        """Return the gradient of a tensor whose readers have all been passed; "" for none."""
        parts = self._gradients.get(name, [])
        if len(parts) > 1:
            self._gradients[name] = parts = [self.add("Sum", parts)]
        return parts[0] if parts else ""

    def _depending_on(self, targets: set[str]) -> set[str]:
        needed = set(targets)
        for node in self._forward:
            if any(name in needed for name in reads(node)):
                needed.update(node.output)
        return needed


Adjoint = Callable[[Tape, onnx.NodeProto, list[str]], dict[int, str]]
ADJOINTS: dict[str, Adjoint] = {}


def _adjoint(*ops: str) -> Callable[[Adjoint], Adjoint]:
    def register(function: Adjoint) -> Adjoint:
        ADJOINTS.update(dict.fromkeys(ops, function))
        return function

    return register


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def _unbroadcast(tape: Tape, gradient: str, shape: Shape, full: Shape) -> str:
    """Sum a gradient over the axes along which its tensor was broadcast."""
    if shape == full:
        return gradient
    padded = (1,) * (len(full) - len(shape)) + shape
    axes = [k for k, (a, b) in enumerate(zip(padded, full, strict=True)) if a != b]
    summed = tape.reduce("ReduceSum", gradient, axes, keepdims=True) if axes else gradient
    return tape.reshape(summed, shape)


def _elementwise(tape: Tape, node: onnx.NodeProto, parts: Mapping[int, str]) -> dict[int, str]:
    full = tape.shapes[node.output[0]]
    return {k: _unbroadcast(tape, g, tape.shapes[node.input[k]], full) for k, g in parts.items()}


@_adjoint("Conv")
def _conv(tape: Tape, node: onnx.NodeProto, dy: list[str]) -> dict[int, str]:
    given, kernel = _window(tape, node)
    dims, made = tape.shapes[node.input[0]][2:], tape.shapes[node.output[0]][2:]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, given["dilations"], strict=True)]
    half = len(kernel)
    channels, weight = tape.shapes[node.input[0]][1], tape.shapes[node.input[1]]
    around = [e - 1 - p for e, p in zip(reach * 2, given["pads"], strict=True)]
    depthwise = given["group"] == channels == weight[0] > 1 and max(given["strides"]) == 1
    if depthwise and min(around) >= 0 and (values := tape.value(node.input[1])) is not None:
        flipped = tape.constant(np.flip(values, tuple(range(2, values.ndim))))
        return {0: tape.add("Conv", [dy[0], flipped], **{**given, "pads": around})}
    rest = [
        n - ((m - 1) * s + e - given["pads"][k] - given["pads"][k + half])
        for k, (n, m, s, e) in enumerate(zip(dims, made, given["strides"], reach, strict=True))
    ]
    return {0: tape.add("ConvTranspose", [dy[0], node.input[1]], output_padding=rest, **given)}


def _window(tape: Tape, node: onnx.NodeProto) -> tuple[dict[str, Any], Shape]:
    own, kernel = _attributes(node), tape.shapes[node.input[1]][2:]
    ones = [1] * len(kernel)
    return {
        "strides": own.get("strides", ones),
        "dilations": own.get("dilations", ones),
        "pads": own.get("pads", [0, 0] * len(kernel)),
        "group": own.get("group", 1),
    }, kernel


@_adjoint("ConvTranspose")
def _conv_transpose(tape: Tape, node: onnx.NodeProto, dy: list[str]) -> dict[int, str]:
    return {0: tape.add("Conv", [dy[0], node.input[1]], **_window(tape, node)[0])}


@_adjoint("Relu")
def _relu(tape: Tape, node: onnx.NodeProto, dy: list[str]) -> dict[int, str]:
    return {0: tape.add("Mul", [dy[0], tape.add("Sign", [node.output[0]])])}


@_adjoint("Clip", "Max", "Min")
def _selected(tape: Tape, node: onnx.NodeProto, dy: list[str]) -> dict[int, str]:
    """Pass the gradient to the input that the output is equal to."""
    count = 1 if node.op_type == "Clip" else len(node.input)
    chosen = (tape.add("Equal", [node.input[k], node.output[0]]) for k in range(count))
    return _elementwise(tape, node, {k: tape.masked(dy[0], c) for k, c in enumerate(chosen)})


@_adjoint("LeakyRelu", "PRelu")
def _leaky(tape: Tape, node: onnx.NodeProto, dy: list[str]) -> dict[int, str]:
    slope = node.input[1] if node.op_type == "PRelu" else ""
    slope = slope or tape.constant(_attributes(node).get("alpha", 0.01))
    positive = tape.add("Greater", [node.input[0], tape.constant(0.0)])
    return {0: tape.add("Where", [positive, dy[0], tape.add("Mul", [dy[0], slope])])}


@_adjoint("Sigmoid", "Tanh", "Exp", "Sqrt", "HardSigmoid", "HardSwish", "Erf", "Neg")
def _pointwise(tape: Tape, node: onnx.NodeProto, dy: list[str]) -> dict[int, str]:
    return {0: tape.add("Mul", [dy[0], _SLOPES[node.op_type](tape, node)])}


def _sigmoid_slope(tape: Tape, node: onnx.NodeProto) -> str:
    y = node.output[0]
    return tape.add("Mul", [y, tape.add("Sub", [tape.constant(1.0), y])])


def _tanh_slope(tape: Tape, node: onnx.NodeProto) -> str:
    squared = tape.add("Mul", [node.output[0]] * 2)
    return tape.add("Sub", [tape.constant(1.0), squared])


def _hard_sigmoid_slope(tape: Tape, node: onnx.NodeProto) -> str:
    alpha, y = tape.constant(_attributes(node).get("alpha", 0.2)), node.output[0]
    above = tape.add("Greater", [y, tape.constant(0.0)])
    inside = tape.add("And", [above, tape.add("Less", [y, tape.constant(1.0)])])
    return tape.masked(alpha, inside)


def _hard_swish_slope(tape: Tape, node: onnx.NodeProto) -> str:
    x, three = node.input[0], tape.constant(3.0)
    inner = tape.add("Mul", [tape.add("Add", [x, tape.constant(1.5)]), tape.constant(1 / 3)])
    inside = tape.add("Less", [tape.add("Abs", [x]), three])
    beyond = tape.add("Cast", [tape.add("Greater", [x, three])], to=onnx.TensorProto.FLOAT)
    return tape.add("Where", [inside, inner, beyond])


def _erf_slope(tape: Tape, node: onnx.NodeProto) -> str:
    negated = tape.add("Neg", [tape.add("Mul", [node.input[0]] * 2)])
    return tape.add("Mul", [tape.add("Exp", [negated]), tape.constant(2 / math.sqrt(math.pi))])


_SLOPES: dict[str, Callable[[Tape, onnx.NodeProto], str]] = {
    "Sigmoid": _sigmoid_slope,
    "Tanh": _tanh_slope,
    "Exp": lambda _, node: str(node.output[0]),
    "Sqrt": lambda tape, node: tape.add("Div", [tape.constant(0.5), node.output[0]]),
    "HardSigmoid": _hard_sigmoid_slope,
    "HardSwish": _hard_swish_slope,
    "Erf": _erf_slope,
    "Neg": lambda tape, _: tape.constant(-1.0),
}


@_adjoint("Add", "Sum", "Sub")
def _add(tape: Tape, node: onnx.NodeProto, dy: list[str]) -> dict[int, str]:
    parts = dict.fromkeys(range(len(node.input)), dy[0])
    if node.op_type == "Sub":
        parts[1] = tape.add("Neg", [dy[0]])
    return _elementwise(tape, node, parts)


@_adjoint("Mul")
def _mul(tape: Tape, node: onnx.NodeProto, dy: list[str]) -> dict[int, str]:
    parts = {k: tape.add("Mul", [dy[0], node.input[1 - k]]) for k in (0, 1)}
    return _elementwise(tape, node, parts)


@_adjoint("Div")
def _div(tape: Tape, node: onnx.NodeProto, dy: list[str]) -> dict[int, str]:
    first = tape.add("Div", [dy[0], node.input[1]])
    second = tape.add("Neg", [tape.add("Mul", [first, node.output[0]])])
    return _elementwise(tape, node, {0: first, 1: second})


@_adjoint("Pow")
def _pow(tape: Tape, node: onnx.NodeProto, dy: list[str]) -> dict[int, str]:
    x, exponent = node.input
    less = tape.add("Pow", [x, tape.add("Sub", [exponent, tape.constant(1.0)])])
    slope = tape.add("Mul", [exponent, less])
    return _elementwise(tape, node, {0: tape.add("Mul", [dy[0], slope])})


@_adjoint("Softmax")
def _softmax(tape: Tape, node: onnx.NodeProto, dy: list[str]) -> dict[int, str]:
    axis, y = _attributes(node).get("axis", -1), node.output[0]
    weighed = tape.add("Mul", [dy[0], y])
    total = tape.reduce("ReduceSum", weighed, [axis], keepdims=True)
    return {0: tape.add("Sub", [weighed, tape.add("Mul", [y, total])])}


@_adjoint("MatMul")
def _matmul(tape: Tape, node: onnx.NodeProto, dy: list[str]) -> dict[int, str]:
    a, b = node.input
    full, rank = tape.shapes[node.output[0]], len(tape.shapes[node.output[0]])
    if min(len(tape.shapes[a]), len(tape.shapes[b])) < 2:
        return {}
    sides = {0: [dy[0], _turned(tape, b)], 1: [_turned(tape, a), dy[0]]}
    found = {}
    for k, pair in sides.items():
        own = tape.shapes[node.input[k]]
        product = tape.add("MatMul", pair)
        made = (*full[: rank - 2], *own[-2:])
        found[k] = _unbroadcast(tape, product, own, made)
    return found


def _turned(tape: Tape, name: str) -> str:
    axes = list(range(len(tape.shapes[name])))
    return tape.add("Transpose", [name], perm=[*axes[:-2], axes[-1], axes[-2]])


@_adjoint("Gemm")
def _gemm(tape: Tape, node: onnx.NodeProto, dy: list[str]) -> dict[int, str]:
    own = _attributes(node)
    if own.get("transA", 0):
        return {}
    alpha = own.get("alpha", 1.0)
    by = {"transB": 1 - own.get("transB", 0), "alpha": alpha}
    return {0: tape.add("Gemm", [dy[0], node.input[1]], **by)}


@_adjoint("BatchNormalization")
def _batch_norm(tape: Tape, node: onnx.NodeProto, dy: list[str]) -> dict[int, str]:
    scale, variance = tape.value(node.input[1]), tape.value(node.input[4])
    if scale is None or variance is None:
        return {}
    with np.errstate(all="ignore"):
        gain = scale / np.sqrt(variance + _attributes(node).get("epsilon", 1e-5))
    if not np.isfinite(gain).all():
        return {}
    along = gain.reshape(-1, *[1] * (len(tape.shapes[node.input[0]]) - 2))
    return {0: tape.add("Mul", [dy[0], tape.constant(along)])}


@_adjoint("InstanceNormalization")
def _instance_norm(tape: Tape, node: onnx.NodeProto, dy: list[str]) -> dict[int, str]:
    """``(dn - mean(dn) - n mean(dn n)) / deviation`` with n the normalized input."""
    shape = tape.shapes[node.input[0]]
    axes, x = list(range(2, len(shape))), node.input[0]
    centred = tape.add("Sub", [x, tape.reduce("ReduceMean", x, axes, keepdims=True)])
    variance = tape.reduce("ReduceMean", tape.add("Mul", [centred] * 2), axes, keepdims=True)
    epsilon = tape.constant(_attributes(node).get("epsilon", 1e-5))
    deviation = tape.add("Sqrt", [tape.add("Add", [variance, epsilon])])
    normal = tape.add("Div", [centred, deviation])
    scale = tape.reshape(node.input[1], (-1, *[1] * len(axes)))
    dn = tape.add("Mul", [dy[0], scale])
    along = tape.reduce("ReduceMean", tape.add("Mul", [dn, normal]), axes, keepdims=True)
    less = tape.add("Sub", [dn, tape.reduce("ReduceMean", dn, axes, keepdims=True)])
    rest = tape.add("Sub", [less, tape.add("Mul", [normal, along])])
    return {0: tape.add("Div", [rest, deviation])}


@_adjoint("GlobalAveragePool", "ReduceMean", "ReduceSum")
def _mean(tape: Tape, node: onnx.NodeProto, dy: list[str]) -> dict[int, str]:
    shape = tape.shapes[node.input[0]]
    axes = _reduced(tape, node, len(shape))
    kept = [1 if k in axes else n for k, n in enumerate(shape)]
    count = 1 if node.op_type == "ReduceSum" else math.prod(shape[k] for k in axes)
    share = tape.add("Mul", [tape.reshape(dy[0], kept), tape.constant(1 / max(count, 1))])
    return {0: tape.add("Expand", [share, tape.constant(list(shape), np.int64)])}


def _reduced(tape: Tape, node: onnx.NodeProto, rank: int) -> set[int]:
    if node.op_type == "GlobalAveragePool":
        return set(range(2, rank))
    axes = _attributes(node).get("axes")
    if axes is None and len(node.input) > 1:
        axes = tape.value(node.input[1])
    return {int(a) % rank for a in (range(rank) if axes is None else axes)}


@_adjoint("AveragePool")
def _average_pool(tape: Tape, node: onnx.NodeProto, dy: list[str]) -> dict[int, str]:
    """Spread each value over its window; pads count as in ``count_include_pad``."""
    own, shape = _attributes(node), tape.shapes[node.input[0]]
    kernel = own["kernel_shape"]
    ones = [1] * len(kernel)
    strides, pads = own.get("strides", ones), own.get("pads", [0, 0] * len(kernel))
    share = np.full((shape[1], 1, *kernel), 1 / math.prod(kernel))
    half, made = len(kernel), tape.shapes[node.output[0]][2:]
    reach = [(m - 1) * s + k for m, s, k in zip(made, strides, kernel, strict=True)]
    rest = [
        n - (r - pads[k] - pads[k + half])
        for k, (n, r) in enumerate(zip(shape[2:], reach, strict=True))
    ]
    given = {"strides": strides, "pads": pads, "group": shape[1], "output_padding": rest}
    if min(rest) < 0:
        return {}
    return {0: tape.add("ConvTranspose", [dy[0], tape.constant(share)], **given)}


@_adjoint("MaxPool")
def _max_pool(tape: Tape, node: onnx.NodeProto, dy: list[str]) -> dict[int, str]:
    """Put each value where its maximum was; windows that overlap are put there in turns."""
    if len(node.output) == 1:
        node.output.append(f"{PREFIX}/indices/{node.output[0]}")
    own = _attributes(node)
    kernel = own["kernel_shape"]
    ones = [1] * len(kernel)
    strides, dilations = own.get("strides", ones), own.get("dilations", ones)
    triples = zip(kernel, strides, dilations, strict=True)
    turns = [-(-((k - 1) * d + 1) // s) for k, s, d in triples]
    shape = tape.constant(list(tape.shapes[node.input[0]]), np.int64)
    made = tape.shapes[node.output[0]][2:]
    given = {"kernel_shape": ones, "strides": ones}  # the indices say where values go
    parts = []
    for place in np.ndindex(*turns):
        if all(start < n for start, n in zip(place, made, strict=True)):
            pair = [_every(tape, name, place, turns) for name in (dy[0], node.output[1])]
            parts.append(tape.add("MaxUnpool", [*pair, shape], **given))
    return {0: parts[0] if len(parts) == 1 else tape.add("Sum", parts)}


def _every(tape: Tape, source: str, starts: Sequence[int], steps: Sequence[int]) -> str:
    """Take every n-th value along the spatial axes."""
    if max(steps) == 1:
        return source
    axes = list(range(2, 2 + len(steps)))
    rows = (list(starts), [2**31 - 1] * len(steps), axes, list(steps))
    return tape.add("Slice", [source, *(tape.constant(row, np.int64) for row in rows)])


@_adjoint("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout", "Cast")
def _moved(tape: Tape, node: onnx.NodeProto, dy: list[str]) -> dict[int, str]:
    return {0: tape.reshape(dy[0], tape.shapes[node.input[0]])}


@_adjoint("Transpose")
def _transpose(tape: Tape, node: onnx.NodeProto, dy: list[str]) -> dict[int, str]:
    rank = len(tape.shapes[node.input[0]])
    perm = _attributes(node).get("perm", list(range(rank))[::-1])
    return {0: tape.add("Transpose", [dy[0]], perm=np.argsort(perm).tolist())}


@_adjoint("Concat")
def _concat(tape: Tape, node: onnx.NodeProto, dy: list[str]) -> dict[int, str]:
    axis, start, found = _attributes(node)["axis"], 0, {}
    for k, name in enumerate(node.input):
        stop = start + tape.shapes[name][axis]
        found[k], start = _cut(tape, dy[0], {axis: (start, stop)}), stop
    return found


def _cut(tape: Tape, source: str, spans: Mapping[int, tuple[int, int]]) -> str:
    rows = ([s for s, _ in spans.values()], [e for _, e in spans.values()], list(spans))
    return tape.add("Slice", [source, *(tape.constant(row, np.int64) for row in rows)])


@_adjoint("Split")
def _split(tape: Tape, node: onnx.NodeProto, dy: list[str]) -> dict[int, str]:
    parts = [
        own or tape.constant(np.zeros(tape.shapes[name]))
        for own, name in zip(dy, node.output, strict=True)
    ]
    return {0: tape.add("Concat", parts, axis=_attributes(node).get("axis", 0))}


@_adjoint("Slice")
def _slice(tape: Tape, node: onnx.NodeProto, dy: list[str]) -> dict[int, str]:
    values = [v for name in node.input[1:] if (v := tape.value(name)) is not None]
    shape, count = tape.shapes[node.input[0]], len(node.input) - 1
    if not 3 <= len(values) == count or (count > 3 and np.any(values[3] != 1)):
        return {}
    ends = np.zeros((2, len(shape)), np.int64)
    for start, axis in zip(values[0], values[2], strict=True):
        n, made = shape[axis], tape.shapes[node.output[0]][axis]
        first = min(max(int(start) + (n if start < 0 else 0), 0), n)
        ends[:, axis] = first, n - first - made
    return {0: _padded(tape, dy[0], ends.ravel())}


def _padded(tape: Tape, source: str, pads: NDArray[np.int64]) -> str:
    return tape.add("Pad", [source, tape.constant(pads, np.int64)])


@_adjoint("Pad")
def _pad(tape: Tape, node: onnx.NodeProto, dy: list[str]) -> dict[int, str]:
    pads, shape = tape.value(node.input[1]), tape.shapes[node.input[0]]
    if pads is None or pads.size != 2 * len(shape) or pads.min() < 0 or _is_mirrored(node):
        return {}
    spans = {k: (int(p), int(p) + n) for k, (p, n) in enumerate(zip(pads, shape, strict=False))}
    return {0: _cut(tape, dy[0], spans)}


def _is_mirrored(node: onnx.NodeProto) -> bool:
    return _attributes(node).get("mode", b"constant") != b"constant"


@_adjoint("Gather")
def _gather(tape: Tape, node: onnx.NodeProto, dy: list[str]) -> dict[int, str]:
    """Gather the copies of every entry, first those that come first, and add them up."""
    shape, index = tape.shapes[node.input[0]], tape.value(node.input[1])
    axis = _attributes(node).get("axis", 0) % max(len(shape), 1)
    if index is None or index.ndim != 1 or not index.size:
        return {}
    ends = np.zeros((2, len(shape)), np.int64)
    ends[1, axis] = 1  # an entry of zeros for what was not taken
    padded, parts = _padded(tape, dy[0], ends.ravel()), []
    left = dict(enumerate((index % shape[axis]).tolist()))
    while left:
        places = np.full(shape[axis], index.size)
        for at, entry in reversed(left.items()):
            places[entry] = at
        left = {at: entry for at, entry in left.items() if places[entry] != at}
        parts.append(tape.add("Gather", [padded, tape.constant(places, np.int64)], axis=axis))
    return {0: parts[0] if len(parts) == 1 else tape.add("Sum", parts)}


@_adjoint("Resize")
def _resize(tape: Tape, node: onnx.NodeProto, dy: list[str]) -> dict[int, str]:
    """Enlarging by whole factors: sums of the copies, which is near enough for linear ones."""
    small, large = tape.shapes[node.input[0]], tape.shapes[node.output[0]]
    if (
        len(small) != 4
        or small[:2] != large[:2]
        or any(b % a for a, b in zip(small, large, strict=True))
    ):
        return {}
    factors = [b // a for a, b in zip(small[2:], large[2:], strict=True)]
    mean = tape.add("AveragePool", [dy[0]], kernel_shape=factors, strides=factors)
    return {0: tape.add("Mul", [mean, tape.constant(float(math.prod(factors)))])}


@_adjoint("DepthToSpace")
def _depth_to_space(tape: Tape, node: onnx.NodeProto, dy: list[str]) -> dict[int, str]:
    own, shape = _attributes(node), tape.shapes[node.input[0]]
    size, (n, c, h, w) = own["blocksize"], shape
    apart = tape.reshape(dy[0], (n, c // size**2, h, size, w, size))
    first = own.get("mode", b"DCR") == b"CRD"
    perm = [0, 1, 3, 5, 2, 4] if first else [0, 3, 5, 1, 2, 4]
    return {0: tape.reshape(tape.add("Transpose", [apart], perm=perm), shape)}
