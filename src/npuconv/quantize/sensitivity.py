"""Sensitivity: the error that the rounding of each layer and channel puts into the outputs.

One backward pass a sample instead of one forward pass a layer. With v a vector of random signs
over the outputs, J the Jacobian of the outputs with respect to a tensor and e the rounding error
of that tensor, ``E[(v' J e)^2] = |J e|^2``. The products are summed within each channel and
squared, channel by channel, so that errors shared by all positions of a channel count as such.

The gradients are ordinary ONNX nodes: for every node between the points and the outputs its adjoint
is appended to the graph. Inputs of an operator without an adjoint count as outputs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from npuconv import executor
from npuconv.arithmetic.encoding import Encoding
from npuconv.data import Feed, Samples
from npuconv.data.samples import spread
from npuconv.data.workers import in_order
from npuconv.model import query
from npuconv.model.graph_import import standard_opset
from npuconv.model.inference import typed_values
from npuconv.model.proto import reads
from npuconv.ops.operator import OPERATORS
from npuconv.ops.tape import OLDEST_OPSET, PREFIX, Shape, Tape, Visit
from npuconv.quantize.fake_quant import QuantPoint, add_constant, rounding_nodes
from npuconv.records import dataclass, replace
from npuconv.timings import Step

Doubles = NDArray[np.float64]
_SIGNS = np.asarray([-1.0, 1.0], np.float32)
_PREFIX = "npuconv/sensitivity"
_RESULT, _SIGNAL = f"{_PREFIX}/result", f"{_PREFIX}/signal"
_SHAPE_ONLY = frozenset({"Shape", "Size"})  # operators whose output depends on no value


@dataclass(frozen=True)
class Sensitivity:
    """Error power in the outputs over their own power, mean of samples, by point."""

    points: tuple[QuantPoint, ...]  # all roundings, without the constants of their layers
    channels: tuple[Doubles, ...]  # error power by channel of each point, float64 [C]

    @property
    def powers(self) -> Doubles:
        """float64 [number of points]."""
        return np.asarray([power.sum() for power in self.channels])

    @property
    def activations(self) -> dict[str, float]:
        """Error power of each activation, by tensor."""
        pairs = zip(self.points, self.powers.tolist(), strict=True)
        return {point.tensor: power for point, power in pairs if point.kind != "weights"}

    def restepped(self, encodings: Mapping[str, Encoding]) -> Sensitivity:
        """Return the sensitivity under other scales: noise grows with the square of a step."""
        points, channels = [], []
        for point, power in zip(self.points, self.channels, strict=True):
            encoding = encodings.get(point.tensor)
            if encoding is not None and point.encoding is not None:
                ratio = encoding.scales / point.encoding.scales.astype(np.float64)
                power = np.asarray(power * ratio**2)
            points.append(replace(point, encoding=encoding or point.encoding))
            channels.append(power)
        return Sensitivity(tuple(points), tuple(channels))

    def layers(self, copy_of: Mapping[str, str]) -> dict[str, float]:
        """Return the error power that each layer adds, by node name.

        ``copy_of`` gives the layer that a copy is counted with, by node name.
        """
        powers: dict[str, float] = {}
        for point, power in zip(self.points, self.powers.tolist(), strict=True):
            name = copy_of.get(point.layer, point.layer)
            powers[name] = powers.get(name, 0.0) + power
        return powers


def measure(
    model: onnx.ModelProto,
    points: Sequence[QuantPoint],
    samples: Samples,
    probes: int,
    step: Step = lambda _done, _total: None,
) -> Sensitivity | None:
    """Measure the error that each point adds to the outputs.

    Args:
        model: the legal float model, its outputs before a Softmax or the like.
        points: all roundings.
        samples: one or more samples; only samples of the shapes of the first are used.
        probes: number of random vectors, and of the samples they are spread over.
        step: called after each vector.

    Returns:
        None where the graph cannot be differentiated: an old opset, shapes that are unknown even
        with complete inputs, or a graph that the runtime refuses.
    """
    feeds = [samples[k] for k in spread(len(samples), probes)]
    first = feeds[0]
    alike = [f for f in feeds if all(f[n].shape == a.shape for n, a in first.items())]
    graph = _build(model, points, first)
    if graph is None:
        return None
    rows = ((alike[k % len(alike)], k) for k in range(probes))
    totals = np.zeros(sum(graph.widths))
    try:
        session = executor.Session(graph.model, threads=1, optimize=False)
        powers = in_order(lambda row: graph.powers(session, *row), rows)
        for number, point_powers in enumerate(powers, 1):
            totals += point_powers / probes
            step(number, probes)
    except executor.RuntimeRefusedError:  # an estimate must not cost a conversion
        return None
    bare = tuple(replace(point, constants=None, owner=None) for point in points)
    return Sensitivity(bare, tuple(np.split(totals, np.cumsum(graph.widths)[:-1])))


@dataclass(frozen=True)
class _GradientModel:
    """The differentiated model."""

    model: onnx.ModelProto  # model from inputs and random signs to ``_RESULT`` and ``_SIGNAL``
    # Shapes of the outputs, and of inputs of operators without an adjoint, by name.
    end_shapes: Mapping[str, Shape]
    widths: tuple[int, ...]  # number of channels of every point

    def powers(self, session: executor.Session, feed: Feed, seed: int) -> Doubles:
        """Return the error power by channel of every point, for one random vector."""
        random = np.random.default_rng(seed)
        pairs = self.end_shapes.items()
        signs = {_signs(name): np.asarray(random.choice(_SIGNS, shape)) for name, shape in pairs}
        results = session.run({**feed, **signs}, [_RESULT, _SIGNAL])
        products = np.nan_to_num(results[_RESULT].astype(np.float64), posinf=0.0, neginf=0.0)
        power = float(np.nan_to_num(results[_SIGNAL].sum(dtype=np.float64), posinf=0.0))
        return np.square(products) / max(power, 1e-30)


def _signs(end: str) -> str:
    return f"{_PREFIX}/signs/{end}"


def _build(
    model: onnx.ModelProto, points: Sequence[QuantPoint], feed: Feed
) -> _GradientModel | None:
    opset = standard_opset(model) or 1
    if opset < OLDEST_OPSET:
        return None
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    shapes, floats = _static_shapes(copy, feed)
    outputs = [o.name for o in model.graph.output]
    tape = Tape(copy.graph, shapes, opset)
    makers = {node.name: node for node in copy.graph.node}
    stems = (f"{_PREFIX}/{k}" for k in range(len(points)))
    errors = [_error(tape, makers, *pair) for pair in zip(points, stems, strict=True)]
    if any(tensor not in shapes for tensor, _ in errors):
        return None
    first = len(copy.graph.node)
    gradients, seeds = backward(tape, outputs, [tensor for tensor, _ in errors], floats)
    adjoint_nodes = list(copy.graph.node)[first:]
    del copy.graph.node[first:]
    signal = [
        _weigh(tape, *pair, normalized=not set(seeds) <= set(outputs)) for pair in seeds.items()
    ]
    copy.graph.node.extend(adjoint_nodes)
    products = [_product(tape, gradients.get(tensor), tensor, error) for tensor, error in errors]
    if not seeds or not products:
        return None
    tape.graph.node.append(helper.make_node("Concat", products, [_RESULT], axis=0))
    tape.graph.node.append(helper.make_node("Sum", signal, [_SIGNAL]))
    end_shapes = {name: shapes[name] for name in seeds}
    declare = helper.make_tensor_value_info
    copy.graph.input.extend(declare(_signs(n), TensorProto.FLOAT, s) for n, s in end_shapes.items())
    del copy.graph.output[:]
    copy.graph.output.extend(declare(n, TensorProto.FLOAT, [None]) for n in (_RESULT, _SIGNAL))
    return _GradientModel(
        copy, end_shapes, tuple(_channels(shapes[tensor]) for tensor, _ in errors)
    )


def _static_shapes(model: onnx.ModelProto, feed: Feed) -> tuple[dict[str, Shape], set[str]]:
    """Return all shapes that follow from the shapes of a sample, and the names of float tensors."""
    for value in model.graph.input:
        if value.name in feed:
            kind = helper.np_dtype_to_tensor_dtype(feed[value.name].dtype)
            value.CopyFrom(helper.make_tensor_value_info(value.name, kind, feed[value.name].shape))
    del model.graph.value_info[:]
    shapes = {t.name: tuple(t.dims) for t in model.graph.initializer}
    floats = {t.name for t in model.graph.initializer if t.data_type == TensorProto.FLOAT}
    for value in typed_values(model):
        kind = value.type.tensor_type
        dims = [d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim]
        if kind.HasField("shape") and None not in dims:
            shapes[value.name] = tuple(d for d in dims if d is not None)
        if kind.elem_type == TensorProto.FLOAT:
            floats.add(value.name)
    names = [name for n in model.graph.node for name in n.output if name and name not in shapes]
    if names:  # a run shows the other shapes; some types cannot be outputs
        with contextlib.suppress(executor.RuntimeRefusedError):
            arrays = executor.Session(executor.with_outputs(model, names)).run(feed, names)
            for name, array in arrays.items():
                if isinstance(array, np.ndarray):
                    shapes[name] = array.shape
                    if array.dtype == np.float32:
                        floats.add(name)
    return shapes, floats


def _error(
    tape: Tape, makers: Mapping[str, onnx.NodeProto], point: QuantPoint, stem: str
) -> tuple[str, str]:
    """Append the error of a point; return the tensor that it is added to, and its own name."""
    if point.constants is not None:
        return _weight_error(tape, makers[point.layer], point, stem)
    assert point.encoding is not None, "it is that of an activation"
    source, rounded = point.tensor, f"{stem}/rounded"
    tape.graph.node.extend(rounding_nodes(tape.graph, point.encoding, source, rounded, stem))
    return source, tape.add("Sub", rounded, source)


def _weight_error(
    tape: Tape, conv: onnx.NodeProto, point: QuantPoint, stem: str
) -> tuple[str, str]:
    """Convolve the input with the errors of the weights, and add the error of the bias."""
    exact = tape.value(conv.input[1])
    assert exact is not None, "weights that are rounded are constant"
    assert point.constants is not None
    bias = tape.value(conv.input[2]) if len(conv.input) > 2 and conv.input[2] else None
    inputs = [conv.input[0], f"{stem}/weight"]
    add_constant(tape.graph, inputs[1], point.constants[1] - exact)
    if 2 in point.constants:
        stored = 0.0 if bias is None else bias.astype(np.float64)
        inputs.append(f"{stem}/bias")
        add_constant(tape.graph, inputs[2], np.asarray(point.constants[2] - stored, np.float32))
    node = onnx.NodeProto()
    node.CopyFrom(conv)
    node.input[:], node.output[:], node.name = inputs, [f"{stem}/error"], f"{stem}/error"
    tape.graph.node.append(node)
    return conv.output[0], node.output[0]


def _weigh(tape: Tape, end: str, seed: str, *, normalized: bool) -> str:
    """Make the seed of an end from random signs; return the power that the end counts."""
    squares, axes = tape.add("Mul", end, end), list(range(len(tape.shapes[end])))
    power = tape.reshape(tape.reduce("ReduceSum", squares, axes, keepdims=False), [1])
    if not normalized:
        tape.graph.node.append(helper.make_node("Identity", [_signs(end)], [seed]))
        return power
    length = tape.add("Sqrt", tape.add("Max", power, tape.constant([1e-30])))
    tape.graph.node.append(helper.make_node("Div", [_signs(end), length], [seed]))
    return tape.constant([1.0])


def _product(tape: Tape, gradient: str | None, tensor: str, error: str) -> str:
    """Append the sums over each channel of gradient times error, [C]."""
    shape = tape.shapes[tensor]
    if gradient is None:
        return tape.constant(np.zeros(_channels(shape)))
    axes = [k for k in range(len(shape)) if k != 1 or len(shape) < 2]
    product = tape.add("Mul", gradient, error)
    summed = tape.reduce("ReduceSum", product, axes, keepdims=False)
    return summed if len(shape) > 1 else tape.reshape(summed, [1])


def _channels(shape: Shape) -> int:
    return shape[1] if len(shape) > 1 else 1


def backward(
    tape: Tape, outputs: Sequence[str], tensors: Iterable[str], floats: Collection[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Append the gradients of ``sum(seed * end)`` over all ends.

    Ends are the outputs, and inputs of operators that no gradient passes. Only float32 tensors,
    ``floats``, are ends.

    Returns:
        The name of the gradient by tensor of ``tensors``, if any end depends on it; and the name
        of the seed by end, a tensor of the same shape that has no producer yet.
    """
    nodes, tensor_names = list(tape.graph.node), set(tensors)
    needed, reached = set(tensor_names), set(outputs)
    for node in nodes:
        if not needed.isdisjoint(reads(node)):
            needed.update(node.output)
    seeds: dict[str, str] = {}
    parts: dict[str, list[str]] = {}  # gradients by consumer, for each tensor

    def make_end(name: str) -> None:
        """Make a float tensor of a known shape an end, if its gradient is needed."""
        if name in needed and name in floats and name in tape.shapes and name not in seeds:
            seeds[name] = f"{PREFIX}/seed/{name}"
            parts.setdefault(name, []).append(seeds[name])

    def summed(name: str) -> str:
        """Return the gradient of a tensor after all its consumers were visited; "" without one."""
        if len(parts.get(name, ())) > 1:
            parts[name] = [tape.total(parts[name])]
        return parts[name][0] if name in parts else ""

    for name in outputs:
        make_end(name)
    for node in reversed(nodes):
        if reached.isdisjoint(node.output) or node.op_type in _SHAPE_ONLY:
            continue
        # A branch of an If reads tensors that are none of its inputs.
        inputs = dict.fromkeys(reads(node))
        reached.update(needed.intersection(inputs))
        gradients = _differentiate(tape, node, [summed(name) for name in node.output], floats)
        passed = {k: node.input[k] for k in gradients if node.input[k] in needed}
        for index, name in passed.items():
            parts.setdefault(name, []).append(gradients[index])
        for name in inputs:
            if name not in passed.values():
                make_end(name)
    return {name: gradient for name in sorted(tensor_names) if (gradient := summed(name))}, seeds


def _differentiate(
    tape: Tape, node: onnx.NodeProto, arrived: list[str], floats: Collection[str]
) -> dict[int, str]:
    """Return the gradients of the inputs by index, if the node can be differentiated."""
    operator = OPERATORS.get(node.op_type) if node.domain in query.STANDARD_DOMAINS else None
    adjoint = None if operator is None else operator.adjoint
    static = all(name in tape.shapes for name in (*node.input, *node.output) if name)
    if adjoint is None or not static or node.output[0] not in floats or not any(arrived):
        return {}
    return adjoint(tape, Visit(tape, node, arrived))
