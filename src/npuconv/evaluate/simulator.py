"""Simulator: an int8 model whose convolutions are float arithmetic with the same integers.

A runtime's int8 convolutions for ordinary processors are slow, and on processors without the
right instructions even saturate on the way. Float32 holds every integer up to 2**24 exactly, so a
convolution of integers that stays below that gives the same sum in float in any order of
additions; the steps after it follow the definition of QLinearConv. If a sum could be larger, the
input channels are split into parts.

If the device requantizes by integers, convolutions and the other int8 operators of the device are
computed in int64, by the kernels in ``npuconv.ops``.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any, Self, cast, get_args

import numpy as np
import onnx
from numpy.typing import ArrayLike, NDArray
from onnx import TensorProto, helper, numpy_helper

from npuconv import executor
from npuconv.arithmetic import gemmlowp
from npuconv.arithmetic.device import MAX_SHIFT
from npuconv.arithmetic.rescaling import FLOAT, Rescaling
from npuconv.arithmetic.whole import Rounding, Whole
from npuconv.emit import keys
from npuconv.emit.int8_operators import Int8Operator, int8_operators
from npuconv.emit.int32_sums import with_layers
from npuconv.errors import ModelError
from npuconv.evaluate.subgraphs import EIGHT_BITS, element_types
from npuconv.model.graph_import import standard_opset
from npuconv.model.proto import Links, all_names, metadata_of
from npuconv.ops.qlinear_conv import IntegerConv
from npuconv.records import dataclass, replace

Array = NDArray[Any]
# Weights that float32 adds up exactly in any order, and first and last input channel; (): all.
_Summand = tuple[Array, tuple[int, ...]]
MAX_EXACT = 2**24  # float32 holds every integer up to this
LARGEST_BITS = 31  # bits of the widest multiplier
_OLDEST = 11  # opset that has Clip with its bounds as inputs
_TO_LAST, _TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
_AXES_ARE_INPUT = {"ReduceSum": 13, "ReduceMax": 18}  # opset from which axes are an input


def as_float(model: onnx.ModelProto, watch: Iterable[str] = ()) -> onnx.ModelProto:
    """Replace integer convolutions by float convolutions that make the same integers.

    If the device requantizes by integers, its kernels replace the other int8 operators, too.
    Tensors in ``watch`` become further outputs; a name that nothing makes is left out.

    Returns:
        A model with the same inputs and outputs, for running only, not for storage.
    """
    model = with_layers(model)
    graph, watched = _Simulation(model), list(dict.fromkeys(watch))
    kernels: dict[str, list[onnx.NodeProto]] = {}  # nodes of the kernels, by result

    def write(operator: Int8Operator) -> bool:
        """Write the kernel of an operator; return whether the device has one."""
        kernels[operator.result] = _kernel(graph, operator)
        return bool(kernels[operator.result])

    inside = int8_operators(model, write).inside.difference(watched)
    for node in model.graph.node:
        if kernels.get(node.output[0]):
            graph.nodes += kernels[node.output[0]]
        elif node.output[0] not in inside and not (
            _write_convolution(graph, node) or _write_pool(graph, node)
        ):
            graph.nodes.append(node)
    names = {name for node in graph.nodes for name in node.output}
    names.update(tensor.name for tensor in (*model.graph.input, *model.graph.initializer))
    result = executor.with_outputs(model, [name for name in watched if name in names])
    del result.graph.node[:]
    result.graph.node.extend(graph.nodes)
    result.graph.initializer.extend(graph.added)
    return result


def _requantization(words: str) -> Rescaling:
    """Return the requantization of a device; float for other words."""
    kind, *parts = words.split() or ["float"]
    if kind == "shift" and len(parts) == 3 and parts[2] in get_args(Rounding):
        bits, places = (int(part) if part.isdecimal() else -1 for part in parts[:2])
        if 2 <= bits <= LARGEST_BITS and 0 <= places <= MAX_SHIFT:
            return Rescaling("shift", bits, places, cast("Rounding", parts[2]))
    return Rescaling("gemmlowp") if kind == "gemmlowp" else FLOAT


class _Simulation:
    """A graph, appended node by node in the order of the model."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.added: list[onnx.TensorProto] = []
        self._model, self._names = model, set(all_names(model.graph))
        self.links = Links(model.graph)
        self.opset = standard_opset(model) or 1
        self.rescaling = _requantization(metadata_of(model).get(keys.REQUANTIZE, ""))

    def constant(self, name: str) -> Array | None:
        """Return the value of an initializer or of a Constant node; None for any other tensor."""
        node = self.links.producers.get(name)
        if node is not None and node.op_type == "Constant" and node.attribute[0].name == "value":
            return numpy_helper.to_array(node.attribute[0].t)
        return self.links.constant(name)

    @cached_property
    def _types(self) -> dict[str, onnx.TypeProto.Tensor]:
        return element_types(self._model)

    def dtype(self, name: str) -> int:
        """Return the element type; 0 if it is unknown."""
        return self._types[name].elem_type if name in self._types else 0

    def extents(self, name: str) -> tuple[int | None, ...]:
        """Return the extents, None for an unknown extent; four of these if the rank is unknown."""
        if name not in self._types or not self._types[name].HasField("shape"):
            return (None,) * 4
        dims = self._types[name].shape.dim
        return tuple(d.dim_value if d.HasField("dim_value") else None for d in dims)

    def add(self, stem: str, values: ArrayLike) -> str:
        """Add an initializer; return its name."""
        name = self.fresh(stem)
        self.added.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def emit(self, op: str, inputs: list[str], output: str, **attrs: Any) -> None:
        """Append a standard node."""
        self.nodes.append(helper.make_node(op, inputs, [output], **attrs))

    def step(self, op: str, inputs: list[str], stem: str, **attrs: Any) -> str:
        """Append a node with a new output; return its name."""
        name = self.fresh(stem)
        self.emit(op, inputs, name, **attrs)
        return name

    def fresh(self, stem: str) -> str:
        """Return a name that the model does not have, made from ``stem``."""
        name, number = stem, 0
        while name in self._names:
            number += 1
            name = f"{stem}_{number}"
        self._names.add(name)
        return name


@dataclass(frozen=True)
class _WholeNode(Whole):
    """Whole numbers that the graph computes in int64."""

    graph: _Simulation
    name: str
    stem: str  # prefix of the names of results
    extents: tuple[int | None, ...] = ()  # extents of the input of an operator; None if unknown

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Extents of the input of an operator."""
        return self.extents

    def apply(self, op: str, *operands: Self | ArrayLike, **attributes: Any) -> Self:
        """Append an operator on int64, or on float between casts if ONNX has no int64 for it."""
        if op in ("Sqrt", "MatMul"):  # float64 is exact below 2**53
            names = [self._in_double(x) for x in (self, *operands)]
            real = self._step(op, names[::-1] if attributes.get("reverse") else names)
            return self._step("Cast", [real.name], to=TensorProto.INT64)
        if op == "AveragePool":  # the sum of a window is its float32 mean times its size
            high, wide = attributes["kernel_shape"]
            real = self._step("Cast", [self.name], to=TensorProto.FLOAT)
            means = self._step(op, [real.name], count_include_pad=1, **attributes)
            size = self.graph.add(f"{self.stem}/size", np.float32(high * wide))
            rounded = self._step("Round", [self._step("Mul", [means.name, size]).name])
            return self._step("Cast", [rounded.name], to=TensorProto.INT64)
        names = [self.name, *map(self._number, operands)]
        if op == "Gather":
            names.reverse()
        if op in _AXES_ARE_INPUT:
            attributes["keepdims"] = int(attributes["keepdims"])
            if self.graph.opset >= _AXES_ARE_INPUT[op]:
                names.append(self._number(attributes.pop("axes")))
        return self._step(op, names, **attributes)

    def _step(self, op: str, names: list[str], **attributes: Any) -> Self:
        name = self.graph.step(op, names, f"{self.stem}/{op.lower()}", **attributes)
        return replace(self, name=name, extents=())

    def _number(self, values: Self | ArrayLike) -> str:
        if isinstance(values, _WholeNode):
            return values.name
        return self.graph.add(f"{self.stem}/number", np.asarray(values, np.int64))

    def _in_double(self, values: Self | ArrayLike) -> str:
        if isinstance(values, _WholeNode):
            return self._step("Cast", [values.name], to=TensorProto.DOUBLE).name
        return self.graph.add(f"{self.stem}/matrix", np.asarray(values, np.float64))


def _kernel(graph: _Simulation, operator: Int8Operator) -> list[onnx.NodeProto]:
    """Return the nodes of the device kernel of an operator; none if it runs as written.

    A table holds the results of the float operator between conversions, except in TFLite.
    """
    description, kind = operator.operator, graph.rescaling.kind
    if kind == "float" or description is None:
        return []
    is_table = description.is_table
    if operator.op == "Div":
        is_table = operator.attributes["divisor"].size == 1
    if description.in_tflite is None if kind == "gemmlowp" else is_table:
        return []
    start, inputs = len(graph.nodes), []
    try:
        for name in operator.sources:
            whole = graph.step("Cast", [name], f"{name}/whole", to=TensorProto.INT64)
            inputs.append(_WholeNode(graph, whole, f"{name}/whole", graph.extents(name)))
        output = operator.compute(inputs, graph.rescaling)
        graph.emit("Cast", [output.name], operator.result, to=TensorProto.INT8)
    except ModelError:  # an extent that is not known, a divisor of 0
        del graph.nodes[start:]
    nodes = graph.nodes[start:]
    del graph.nodes[start:]
    return nodes


def _write_pool(graph: _Simulation, node: onnx.NodeProto) -> bool:
    """Find the largest integers of windows in float, which is much faster.

    Returns:
        False unless the node is a MaxPool of 8 bits.
    """
    if node.op_type != "MaxPool" or graph.dtype(node.input[0]) not in EIGHT_BITS:
        return False
    pool = onnx.NodeProto()
    pool.CopyFrom(node)
    pool.input[0] = graph.step(
        "Cast", [node.input[0]], f"{node.output[0]}/float", to=TensorProto.FLOAT
    )
    pool.output[0] = graph.fresh(f"{node.output[0]}/largest")
    graph.nodes.append(pool)
    graph.emit("Cast", [pool.output[0]], node.output[0], to=graph.dtype(node.input[0]))
    return True


def _write_convolution(graph: _Simulation, node: onnx.NodeProto) -> bool:
    """Convolve floats that hold integers, multiply by the factor, round, saturate.

    Returns:
        False unless the node is a QLinearConv of 8 bits with constant parameters.
    """
    if node.op_type != "QLinearConv" or graph.opset < _OLDEST:
        return False
    layer = IntegerConv.read(node, graph.constant)
    if layer is None or layer.x_scale.size != 1 or layer.y_scale.size != 1:
        return False
    if any(a.dtype not in ("int8", "uint8") for a in (layer.x_zero, layer.weight, layer.y_zero)):
        return False
    source, stem = layer.source, layer.result
    if layer.channels_last:
        source = graph.step("Transpose", [source], f"{stem}/first", perm=_TO_FIRST)
    result = graph.fresh(f"{stem}/channels") if layer.channels_last else stem
    unit, y_zero = graph.add(f"{stem}/unit", np.float32(1)), layer.y_zero.reshape(())
    parameters = [unit, graph.add(f"{stem}/x_zero", layer.x_zero.reshape(()))]
    x = graph.step("DequantizeLinear", [source, *parameters], f"{stem}/centred")
    total, rescaling = _accumulate(graph, layer, x), graph.rescaling
    if rescaling.kind == "float":
        factors = graph.add(f"{stem}/factors", layer.factors.reshape(_column(layer)))
        scaled = graph.step("Mul", [total, factors], f"{stem}/scaled")
        parameters = [unit, graph.add(f"{stem}/y_zero", y_zero)]
        graph.emit("QuantizeLinear", [scaled, *parameters], result)
    else:
        whole = _WholeNode(graph, total, stem)
        if rescaling.kind == "gemmlowp":
            pair = gemmlowp.multipliers(*layer.scales)
            columns = (part.reshape(_column(layer)) for part in (pair.multiplier, pair.exponent))
            whole = gemmlowp.scaled(whole, gemmlowp.Multipliers(*columns))
        else:
            whole = rescaling.rescaled((whole, layer.factors.reshape(_column(layer))))
        limits = np.iinfo(y_zero.dtype)
        stored = whole.plus(y_zero).clipped(limits.min, limits.max)
        dtype = helper.np_dtype_to_tensor_dtype(y_zero.dtype)
        graph.emit("Cast", [stored.name], result, to=dtype)
    if layer.channels_last:
        graph.emit("Transpose", [result], stem, perm=_TO_LAST)
    return True


def _column(layer: IntegerConv) -> tuple[int, ...]:
    """Return the shape of one number for each output channel."""
    return (-1, *[1] * layer.axes)


def _accumulate(graph: _Simulation, layer: IntegerConv, x: str) -> str:
    """Return the accumulator with the bias: float32 that holds integers, or int64."""
    stem, attributes = layer.result, dict(layer.attributes)
    attributes.pop("channels_last", None)
    zeros = layer.w_zero.astype(np.int64).reshape(-1, *[1] * (layer.axes + 1))
    weight = layer.weight.astype(np.int64) - zeros
    limits, x_zero = np.iinfo(layer.x_zero.dtype), int(layer.x_zero.item())
    producer = graph.links.producers.get(layer.source)
    low = 0 if producer is not None and producer.op_type == "Relu" else limits.min
    # Padding is 0.
    parts = _exact_parts(layer, weight, min(low - x_zero, 0), max(limits.max - x_zero, 0))
    if not parts:
        inputs = [x, graph.add(f"{stem}/weight", weight.astype(np.float32))]
        if layer.bias is not None:
            inputs.append(graph.add(f"{stem}/bias", layer.bias.astype(np.float32)))
        total = graph.step("Conv", inputs, f"{stem}/sum", **attributes)
        # It clips no value, but keeps onnxruntime from multiplying the factor into the weights.
        bounds = [graph.add(f"{stem}/bound", np.float32(n)) for n in (-MAX_EXACT, MAX_EXACT)]
        total = graph.step("Clip", [total, *bounds], f"{stem}/accumulator")
        if graph.rescaling.kind == "float":
            return total
        return graph.step("Cast", [total], f"{stem}/int64", to=TensorProto.INT64)
    total = graph.add(f"{stem}/bias", layer.offsets.astype(np.int32).reshape(_column(layer)))
    for part, channels in parts:
        source = x
        if len(parts) > 1 and channels:
            numbers = [np.asarray([n], np.int64) for n in (*channels, 1)]
            bounds = [graph.add(f"{stem}/channel", number) for number in numbers]
            source = graph.step("Slice", [x, *bounds], f"{stem}/source")
        values = graph.add(f"{stem}/weight", part.astype(np.float32))
        products = graph.step("Conv", [source, values], f"{stem}/part", **attributes)
        integers = graph.step("Cast", [products], f"{stem}/int32", to=TensorProto.INT32)
        total = graph.step("Add", [integers, total], f"{stem}/sum")
    to = TensorProto.FLOAT if graph.rescaling.kind == "float" else TensorProto.INT64
    return graph.step("Cast", [total], f"{stem}/accumulator", to=to)


def _exact_parts(layer: IntegerConv, weight: Array, low: int, high: int) -> list[_Summand]:
    """Return the summands of a layer: input channels, or else weights with zeros between them.

    Every partial sum lies between the sum of all negative and the sum of all positive products.

    Returns:
        Nothing if float32 can add up all products and the bias at once.
    """
    reach = np.abs(weight.reshape(len(weight), -1)).sum(1) * max(-low, high) + np.abs(layer.offsets)
    if reach.max() <= MAX_EXACT:
        return []
    spatial = tuple(range(2, weight.ndim))
    up, down = np.maximum(weight * high, weight * low), -np.minimum(weight * high, weight * low)
    inner_axes = tuple(range(1, weight.ndim))
    highest = up.sum(inner_axes) + np.maximum(layer.offsets, 0)
    lowest = down.sum(inner_axes) + np.maximum(-layer.offsets, 0)
    if max(highest.max(), lowest.max()) <= MAX_EXACT:
        return []
    is_dense = layer.group == 1
    if is_dense and (ranges := _ranges(up.sum(spatial), down.sum(spatial))):
        return [(weight[:, start:stop], (start, stop)) for start, stop in ranges]
    summands: list[_Summand] = []
    rows = weight.reshape(len(weight), -1)
    for start, stop in _ranges(up.reshape(rows.shape), down.reshape(rows.shape)):
        masked = np.zeros_like(rows)
        masked[:, start:stop] = rows[:, start:stop]
        summands.append((masked.reshape(weight.shape), ()))
    return summands


def _ranges(up: Array, down: Array) -> list[tuple[int, int]]:
    """Return ranges of columns whose sums are exact in float32; [] if a column is too large."""
    totals, ranges, start = [np.cumsum(up, 1), np.cumsum(down, 1)], [], 0
    while start < up.shape[1]:
        before = [total[:, start - 1 : start] if start else 0 for total in totals]
        loads = [total[:, start:] - b for total, b in zip(totals, before, strict=True)]
        largest = np.maximum(*loads).max(axis=0)
        stop = start + int(np.searchsorted(largest, MAX_EXACT, side="right"))
        if stop == start:
            return []
        ranges.append((start, stop))
        start = stop
    return ranges
