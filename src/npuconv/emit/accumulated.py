"""Convolutions in parts whose int32 sums are requantized once, read back from a written model.

``lowering.split_accumulated`` writes them: ConvInteger, Add, Cast, Mul and a QuantizeLinear of
scale 1. Each is the QLinearConv of scales 1, factor and 1, with the same integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx

from npuconv.model import edit, load, query, save, shapes
from npuconv.model.core import Model, sweep
from npuconv.model.partial_sums import PartialSum, partial_sum
from npuconv.model.types import Node

_PART = "ConvInteger"


@dataclass(frozen=True)
class Accumulated:
    """A convolution in parts."""

    sum: PartialSum
    nodes: tuple[Node, ...]  # all of them, the QuantizeLinear last
    factor: np.ndarray  # float32, of each channel, or one


def accumulated(model: Model) -> Iterator[Accumulated]:
    """Yield the convolutions of a model that are written in parts, in its order."""
    if not model.nodes(_PART):
        return
    for node in model.nodes("QuantizeLinear"):
        scale, scaled = query.constant_input(node, 1), query.producer(node.inputs[0])
        if scale is None or scale.size != 1 or scale != 1 or scaled is None or scaled.op != "Mul":
            continue
        factor, cast = query.constant_input(scaled, 1), query.producer(scaled.inputs[0])
        inner = [scaled, cast]
        if factor is None or cast is None or cast.op != "Cast":
            continue
        if any(query.sole_consumer(model, n.outputs[0]) is None for n in inner):
            continue
        total = cast.inputs[0]
        parts = partial_sum(model, total, _PART)
        if parts is not None and _is_plain(parts) and factor.size in (1, parts.weight[0]):
            nodes = (*parts.nodes(total), cast, scaled, node)
            yield Accumulated(parts, nodes, factor.reshape(-1).astype(np.float32))


def _is_plain(parts: PartialSum) -> bool:
    """Return whether all parts read with one zero point and constant weights without one."""
    zeros = [query.constant_input(conv, 2) for conv in parts.convs]
    weights = [query.constant_input(conv, 1) for conv in parts.convs]
    types = {None if weight is None else weight.dtype.name for weight in weights}
    biases = [constant.size == parts.weight[0] for constant in parts.constants]
    return (
        all(zero is not None and zero.size == 1 and zero == zeros[0] for zero in zeros)
        and types in ({"int8"}, {"uint8"})
        and all(query.input_of(conv, 3) is None for conv in parts.convs)
        and biases in ([], [True])
    )


def with_layers(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with a QLinearConv for each convolution in parts; any other as it is."""
    if not any(node.op_type == _PART for node in model.graph.node):
        return model
    graph = _load(model)
    for layer in list(accumulated(graph)):
        _join(graph, layer)
    sweep(graph)
    return save.to_proto(graph)


def parts(model: onnx.ModelProto) -> frozenset[str]:
    """Return the internal tensors of convolutions in parts, with slices that only they read."""
    if not any(node.op_type == _PART for node in model.graph.node):
        return frozenset()
    nodes = [node for layer in accumulated(_load(model)) for node in layer.nodes]
    ids = {id(node) for node in nodes}
    return frozenset(
        node.outputs[0].name
        for node in nodes
        if node.op != "Slice" or all(id(n) in ids for n in query.consumers(node.outputs[0]))
    )


def _load(model: onnx.ModelProto) -> Model:
    graph = load.load(model)
    shapes.infer_unknown(graph)
    return graph


def _join(model: Model, layer: Accumulated) -> None:
    """Write a QLinearConv in the place of its parts."""
    parts, last = layer.sum, layer.nodes[-1]
    conv, stem = parts.convs[0], last.name
    weights = [query.constant_input(part, 1) for part in parts.convs]
    weight = parts.joined([values for values in weights if values is not None])
    unit = edit.constant(model, f"{stem}/unit", np.asarray(1, np.float32))
    scale = layer.factor if layer.factor.size > 1 else layer.factor.reshape(())
    inputs = [
        parts.source, unit, conv.inputs[2],
        edit.constant(model, f"{stem}/joined", weight),
        edit.constant(model, f"{stem}/factors", scale),
        edit.constant(model, f"{stem}/zeros", np.zeros(scale.shape, weight.dtype)),
        unit, last.inputs[2],
    ]  # fmt: skip
    inputs += [edit.constant(model, f"{stem}/bias", c.reshape(-1)) for c in parts.constants]
    result, attrs = last.outputs[0], dict(parts.attrs)
    edit.disconnect(last)
    joined = edit.add_node(model, "QLinearConv", inputs, [result], origin=[conv], attrs=attrs)
    edit.keep_name(joined, last)
