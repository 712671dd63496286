"""The float model with the rounding of the int8 model simulated in it (fake quantization)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from npuconv import executor
from npuconv.arithmetic.encoding import Encoding, dequantize, quantize_weights
from npuconv.arithmetic.layer import RoundedWeights, folded, unfolded
from npuconv.data import Feed
from npuconv.data.workers import in_order
from npuconv.legalize.legal import LegalModel
from npuconv.model import Model, Node, query, store
from npuconv.ops.operator import values_of
from npuconv.partition.placement import Plan
from npuconv.quantize.state import QuantState
from npuconv.records import dataclass

_PREFIX = "npuconv/fake_quant"
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class QuantPoint:
    """A place where the int8 model rounds."""

    layer: str  # name of the convolution or operator
    # Rounded part of it: its input from the host, its weights or its output.
    kind: Literal["input", "weights", "output"]
    tensor: str  # the tensor that is rounded
    encoding: Encoding | None = None  # encoding of an activation; None for weights
    # Rounded values of the inputs of its node, by index.
    constants: Mapping[int, Floats] | None = None
    owner: store.Store | None = None  # owner of the files of large constants


def quant_points(graph: LegalModel, state: QuantState) -> list[QuantPoint]:
    """List every rounding of a conversion: inputs from the host, weights, outputs, layer by layer.

    Roundings of convolutions come first, then roundings of the other operators of the device.
    """
    plan, model = graph.plan, graph.model
    int8 = {t.name for n in plan.int8_nodes for t in n.outputs}
    owner = store.Store() if model.store is not None else None
    points: list[QuantPoint] = []
    host_inputs: set[str] = set()
    for node in (*plan.convolutions, *plan.operators):
        is_convolution = plan.is_convolution(node)
        sources = node.inputs[:1] if is_convolution else values_of(node)
        inputs = {t.name for t in sources} - int8 - host_inputs
        host_inputs |= inputs
        points += [QuantPoint(node.name, "input", t, state.encodings[t]) for t in sorted(inputs)]
        if is_convolution:
            encoding = state.encodings[node.inputs[0].name]
            weights = quantized_constants(node, encoding, state.weights.get(node.name))
            if owner is not None:
                weights = {index: owner.keep(array) for index, array in weights.items()}
            if weights:
                name = node.inputs[1].name
                points.append(QuantPoint(node.name, "weights", name, None, weights, owner))
        result = stored_output(model, plan, node)
        if result not in plan.fused:
            points.append(QuantPoint(node.name, "output", result, state.encodings[result]))
    return points


def stored_output(model: Model, plan: Plan, conv: Node) -> str:
    """Return the tensor that is stored: the output of the layer, after its Relu or Clip."""
    tensor = conv.outputs[0]
    reader = query.sole_consumer(model, tensor)
    if reader is not None and reader.op in ("Relu", "Clip") and plan.is_passthrough(reader):
        return str(reader.outputs[0].name)
    return str(tensor.name)


def quantized_constants(
    conv: Node, source: Encoding, rounded: RoundedWeights | None
) -> dict[int, Floats]:
    """Return the real values of the int8 weights, and of the bias where it was corrected.

    The scales of ``source`` are folded into the weights, which are rounded to nearest without
    ``rounded``.

    Returns:
        By index of the node's input; empty where the weights are not constant.
    """
    weight = query.constant_input(conv, 1)
    if weight is None:
        return {}
    group = int(query.attribute(conv, "group", 1))
    if rounded is not None:
        steps = rounded.weight * rounded.scales.reshape(-1, *[1] * (weight.ndim - 1))
        return {1: unfolded(steps, source, group), 2: rounded.bias}
    integers, scales = quantize_weights(folded(weight, source, group))
    return {1: unfolded(dequantize(integers, scales, axis=0), source, group)}


def fake_quantized(model: onnx.ModelProto, points: Sequence[QuantPoint]) -> onnx.ModelProto:
    """Return a copy of the model that rounds at every point.

    The model is not changed; no tensor has two points.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    by_name = {node.name: node for node in graph.node}
    inputs = {i.name for i in graph.input}
    roundings: dict[str, list[onnx.NodeProto]] = {}
    new_inputs: dict[str, str] = {}
    new_outputs: dict[str, str] = {}
    for number, point in enumerate(points):
        stem = f"{_PREFIX}/{number}"
        for index, array in (point.constants or {}).items():
            node = by_name[point.layer]
            node.input.extend([""] * (index + 1 - len(node.input)))
            node.input[index] = f"{stem}/{index}"
            add_constant(graph, node.input[index], np.asarray(array, np.float32))
        if point.encoding is None:
            continue
        if point.tensor in inputs:
            exact, rounded = point.tensor, f"{stem}/rounded"
            new_inputs[point.tensor] = rounded
        else:
            exact, rounded = f"{stem}/exact", point.tensor
            new_outputs[point.tensor] = exact
        roundings[point.tensor] = list(rounding_nodes(graph, point.encoding, exact, rounded, stem))
    # The rounding of every tensor comes right behind the node that makes it.
    nodes = [node for name in inputs for node in roundings.pop(name, [])]
    for node in list(graph.node):
        nodes.append(node)
        for index, name in enumerate(node.input):
            node.input[index] = new_inputs.get(name, name)
        for index, name in enumerate(node.output):
            node.output[index] = new_outputs.get(name, name)
            nodes += roundings.pop(name, [])
    del graph.node[:]
    graph.node.extend(nodes)
    return copy


def rounding_nodes(
    graph: onnx.GraphProto, encoding: Encoding, source: str, result: str, stem: str
) -> Iterator[onnx.NodeProto]:
    """Yield QuantizeLinear and DequantizeLinear; their constants are added to the graph.

    ``result`` is the name of the rounded tensor, ``stem`` the beginning of all other names.
    """
    single, zeros = encoding.axis is None, encoding.zeros.astype(np.int8)
    parameters = [f"{stem}/scale", f"{stem}/zero"]
    add_constant(graph, parameters[0], encoding.scales[0] if single else encoding.scales)
    add_constant(graph, parameters[1], zeros[0] if single else zeros)
    attrs: dict[str, Any] = {} if single else {"axis": encoding.axis}
    yield helper.make_node("QuantizeLinear", [source, *parameters], [f"{stem}/q"], **attrs)
    yield helper.make_node("DequantizeLinear", [f"{stem}/q", *parameters], [result], **attrs)


def add_constant(graph: onnx.GraphProto, name: str, values: NDArray[np.generic]) -> None:
    """Add an initializer."""
    graph.initializer.append(store.initializer(name, np.asarray(values)))


Values = Mapping[str, object]  # values of one sample, by output

SATURATING = frozenset({"Softmax", "LogSoftmax", "Sigmoid", "HardSigmoid", "Tanh"})
# Operators that move values, and those that put out places, classes or truth values, with the
# number of inputs that these come from: the second input of a Reshape is a shape.
_MOVING = {
    **dict.fromkeys(("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose"), 1),
    "Cast": 1,
    "Concat": None,
}
_DECIDING = {
    **dict.fromkeys(("ArgMax", "ArgMin", "NonZero", "TopK", "Not", "IsNaN", "IsInf"), 1),
    **dict.fromkeys(("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"), 2),
    **dict.fromkeys(("And", "Or", "Xor", "NonMaxSuppression"), 2),
}
_WIDE = frozenset({"INT32", "INT64", "UINT32", "UINT64", "BOOL"})


@dataclass(frozen=True)
class SquaredErrors:
    """Sums of squares over all outputs."""

    noise: tuple[float, ...]  # sum of the squared errors, by sample
    signal: tuple[float, ...]  # sum of the squared exact values, by sample

    @property
    def sqnr_db(self) -> float | None:
        """Signal to noise of all samples together, dB; None where either is 0."""
        noise, signal = sum(self.noise), sum(self.signal)
        return 10 * math.log10(signal / noise) if noise > 0 and signal > 0 else None

    def ratio(self, before: SquaredErrors) -> float:
        """Return the ratio to an earlier error, as the geometric mean over samples.

        A single sample whose class changes would dominate the sum.
        """
        pairs = [(a, b) for a, b in zip(self.noise, before.noise, strict=True) if a > 0 and b > 0]
        return math.exp(sum(math.log(a / b) for a, b in pairs) / len(pairs)) if pairs else 1.0


class FakeQuantComparison:
    """Comparison of fake-quantized models with one float model, whose outputs are kept."""

    def __init__(self, model: onnx.ModelProto, feeds: Iterable[Feed]) -> None:
        self.model, self._feeds = model, list(feeds)
        self._indices = index_outputs(model)
        self._exact = list(_run(model, self._feeds))

    def is_of_outputs(self, model: onnx.ModelProto) -> bool:
        """Return whether a model has the same outputs as the float model."""
        names = [o.name for o in self.model.graph.output]
        return names == [o.name for o in model.graph.output]

    def measure(
        self, points: Sequence[QuantPoint], model: onnx.ModelProto | None = None
    ) -> SquaredErrors:
        """Return the error of all these roundings together.

        The points are points of ``model``; without it, of the float model.
        """
        simulation = fake_quantized(self.model if model is None else model, points)
        noises, signals = [], []
        for exact, result in zip(self._exact, _run(simulation, self._feeds), strict=True):
            noise = signal = 0.0
            for name in exact.keys() - self._indices:
                x, rounded_x = _numbers(exact[name]), _numbers(result[name])
                if x.size == rounded_x.size:  # sizes differ if the models find other boxes
                    noise += float(np.square(rounded_x - x).sum())
                    signal += float(np.square(x).sum())
            noises.append(noise)
            signals.append(signal)
        return SquaredErrors(tuple(noises), tuple(signals))


def _run(model: onnx.ModelProto, feeds: Sequence[Feed]) -> Iterator[Values]:
    session = executor.Session(model, threads=1)
    return in_order(session.run, feeds)


def _numbers(values: object) -> np.ndarray:
    """Flatten to float64, values that are not finite as 0; empty for other than numbers."""
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "fiu":
        return np.zeros(0)
    flat = values.reshape(-1).astype(np.float64)
    return np.nan_to_num(flat, nan=0.0, posinf=0.0, neginf=0.0)


def with_logit_outputs(
    model: onnx.ModelProto, *, before_decisions: bool = False
) -> onnx.ModelProto:
    """Return the model with its outputs taken before a final Softmax, Sigmoid or the like.

    A probability near 0 or 1 hides noise, and where two classes are nearly equal a little noise
    changes the answer: among few samples a single sample dominates the error of probabilities.
    With ``before_decisions`` also before an ArgMax, a comparison or another choice of indices.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    makers = {name: node for node in copy.graph.node for name in node.output if name}
    inputs = {info.name for info in copy.graph.input}
    through = {**_MOVING, **_DECIDING} if before_decisions else _MOVING
    leaf_names = [e for output in copy.graph.output for e in leaves(output.name, makers, through)]
    producers = [makers.get(end) for end in leaf_names]
    tensors = [
        end if node is None or node.op_type not in SATURATING else node.input[0]
        for end, node in zip(leaf_names, producers, strict=True)
    ]
    names = dict.fromkeys(name for name in tensors if name not in inputs)
    infos = {output.name: output for output in model.graph.output}
    del copy.graph.output[:]
    for name in names:
        copy.graph.output.append(infos.get(name, onnx.ValueInfoProto(name=name)))
    return copy if names else model


def leaves(
    name: str, makers: Mapping[str, onnx.NodeProto], through: Mapping[str, int | None] = _MOVING
) -> Iterator[str]:
    """Yield the tensors whose values an output contains, each once, in their order.

    ``through`` are the operators that are followed, with the number of their inputs that count.
    """
    waiting, visited = [name], set[str]()
    while waiting:
        current = waiting.pop()
        if current in visited:
            continue
        visited.add(current)
        node = makers.get(current)
        if node is None or node.op_type not in through or _is_top_value(current, node):
            yield current
            continue
        operands = node.input[: through[node.op_type]]
        waiting.extend(reversed([operand for operand in operands if operand in makers]))


def _is_top_value(tensor: str, node: onnx.NodeProto) -> bool:
    return node.op_type == "TopK" and tensor == node.output[0]


def index_outputs(model: onnx.ModelProto) -> frozenset[str]:
    """Return the outputs that hold places, classes or truth values, by agreement to be compared.

    These are integers of 32 bits and more, and booleans. Narrower integers are quantized values or
    pixels, unless a choice such as ArgMax is converted to them, as it may be to float.
    """
    makers = {name: node for node in model.graph.node for name in node.output if name}
    indices = set()
    for output in model.graph.output:
        leaf_producers = [(end, makers.get(end)) for end in leaves(output.name, makers)]
        is_decided = all(
            node is not None and node.op_type in _DECIDING and not _is_top_value(end, node)
            for end, node in leaf_producers
        )
        kind = onnx.TensorProto.DataType.Name(output.type.tensor_type.elem_type)
        if kind in _WIDE or is_decided:
            indices.add(output.name)
    return frozenset(indices)
