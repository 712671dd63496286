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
from npuconv.model.types import Node, Tensor

_PART = "ConvInteger"


@dataclass(frozen=True)
class Accumulated:
    """A convolution in parts."""

    sum: PartialSum
    nodes: tuple[Node, ...]  # all of them, the QuantizeLinear last
    factor: np.ndarray  # float32, of each channel, or one

    @property
    def result(self) -> Tensor:
        """The int8 tensor that it makes."""
        return self.nodes[-1].outputs[0]


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
        if any(query.sole_consumer(model, one.outputs[0]) is None for one in inner):
            continue
        total = cast.inputs[0]
        found = partial_sum(model, total, _PART)
        if found is not None and _is_plain(found) and factor.size in (1, found.weight[0]):
            nodes = (*found.nodes(total), cast, scaled, node)
            yield Accumulated(found, nodes, factor.reshape(-1).astype(np.float32))


def _is_plain(found: PartialSum) -> bool:
    """Return whether all parts read with one zero point and constant weights without one."""
    zeros = [query.constant_input(conv, 2) for conv in found.convs]
    same = [z for z in zeros if z is not None and z.size == 1 and z == zeros[0]]
    weights = [query.constant_input(conv, 1) for conv in found.convs]
    types = {None if weight is None else weight.dtype.name for weight in weights}
    plain = all(query.input_of(conv, 3) is None for conv in found.convs)
    added = [constant.size == found.weight[0] for constant in found.constants]
    return (
        len(same) == len(zeros)
        and types in ({"int8"}, {"uint8"})
        and plain
        and added in ([], [True])
    )


def with_layers(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with a QLinearConv for each convolution in parts; any other as it is."""
    if not any(node.op_type == _PART for node in model.graph.node):
        return model
    graph = _opened(model)
    for one in list(accumulated(graph)):
        _join(graph, one)
    sweep(graph)
    return save.to_proto(graph)


def parts(model: onnx.ModelProto) -> frozenset[str]:
    """Return what the nodes of convolutions in parts make, and the slices that they alone read."""
    if not any(node.op_type == _PART for node in model.graph.node):
        return frozenset()
    graph = _opened(model)
    every = [node for one in accumulated(graph) for node in one.nodes]
    known = {id(node) for node in every}
    own = [
        node
        for node in every
        if node.op != "Slice" or all(id(n) in known for n in query.consumers(node.outputs[0]))
    ]
    return frozenset(node.outputs[0].name for node in own)


def _opened(model: onnx.ModelProto) -> Model:
    graph = load.load(model)
    shapes.infer_unknown(graph)
    return graph


def _join(model: Model, one: Accumulated) -> None:
    """Write a QLinearConv in the place of its parts."""
    found, last = one.sum, one.nodes[-1]
    conv, stem = found.convs[0], last.name
    weights = [query.constant_input(part, 1) for part in found.convs]
    weight = found.joined([each for each in weights if each is not None])
    unit = edit.constant(model, f"{stem}/unit", np.asarray(1, np.float32))
    scale = one.factor if one.factor.size > 1 else one.factor.reshape(())
    inputs = [
        found.source, unit, conv.inputs[2],
        edit.constant(model, f"{stem}/joined", weight),
        edit.constant(model, f"{stem}/factors", scale),
        edit.constant(model, f"{stem}/zeros", np.zeros(scale.shape, weight.dtype)),
        unit, last.inputs[2],
    ]  # fmt: skip
    inputs += [edit.constant(model, f"{stem}/bias", c.reshape(-1)) for c in found.constants]
    result = one.result
    edit.disconnect(last)
    made = edit.add_node(
        model, "QLinearConv", inputs, [result], origin=[conv], attrs=dict(found.attrs)
    )
    edit.keep_name(made, last)
