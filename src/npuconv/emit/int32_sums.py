"""Convolutions that are written as sums in int32, read back from the metadata of a model.

``lowering.split_accumulated`` writes ConvInteger, Add, Cast, Mul and a QuantizeLinear of scale 1:
together the QLinearConv of scales 1, factor and 1, with the same integers. With explicit
conversions each part is a Conv. An entry that does not fit the model is left out.
"""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

import numpy as np
import onnx

from npuconv.emit import keys
from npuconv.legalize.split.builder import SumTerm
from npuconv.model import Model, Node, Tensor, edit, load, query, save, shapes
from npuconv.model.core import sweep
from npuconv.model.proto import metadata_of
from npuconv.records import dataclass
from npuconv.validated import Bounded, Record, read_entries

_PART = "ConvInteger"
_Extent = Annotated[int, Bounded(ge=0, lt=2**31)]
_Bound = Annotated[int, Bounded(ge=-(2**63), lt=2**63)]
_Count = Annotated[int, Bounded(ge=1, lt=2**31)]
_Counts = Annotated[list[_Count], Bounded(min_length=1, max_length=16)]


class _Part(Record):
    """A convolution of a sum."""

    node: str
    bounds: list[tuple[_Bound, _Bound, _Bound, _Bound]]
    index: list[tuple[_Extent, _Extent, _Count]]
    strides: _Counts
    dilations: _Counts


class _Window(Record):
    """Attributes of the convolution of a layer."""

    kernel_shape: _Counts
    strides: _Counts
    dilations: _Counts
    pads: Annotated[list[_Extent], Bounded(max_length=32)]
    group: _Count


class SumEntry(Record):
    """A sum in int32: one entry of the metadata."""

    weight: _Counts  # shape of the weights of the layer
    window: _Window
    parts: Annotated[list[_Part], Bounded(min_length=2)]

    @property
    def is_consistent(self) -> bool:
        """Return whether the attributes have as many axes as the weights."""
        window, axes = self.window, len(self.weight) - 2
        counts = map(len, (window.kernel_shape, window.strides, window.dilations))
        return {*counts} == {axes} and len(window.pads) == 2 * axes

    @classmethod
    def from_conv(cls, conv: Node, weight: Sequence[int], terms: dict[str, SumTerm]) -> "SumEntry":
        """Return the entry of a convolution that is split into ``terms``, by name of the part."""
        window = _Window(**{name: conv.attrs[name] for name in _Window.model_fields})
        parts = [
            _Part.from_attributes(
                term,
                node=node,
                index=[s.indices(n) for s, n in zip(term.index, weight, strict=True)],
            )
            for node, term in terms.items()
        ]
        return cls(weight=list(weight), window=window, parts=parts)


def record(entries: Iterable[SumEntry]) -> dict[str, str]:
    """Return the entry of the metadata; nothing for a model without sums."""
    listed = [entry.model_dump() for entry in entries]
    text = json.dumps(listed, ensure_ascii=False, separators=(",", ":"))
    return {keys.INT32_SUMS: text} if listed else {}


@dataclass(frozen=True)
class Int32Sum:
    """A convolution of a model that is written as a sum."""

    entry: SumEntry
    convs: tuple[Node, ...]
    total: Tensor  # output of the last Add
    nodes: tuple[Node, ...]  # convolutions and Adds
    constants: tuple[np.ndarray, ...]  # summands of the Adds: the bias

    @property
    def terms(self) -> tuple[SumTerm, ...]:
        """Slices of input and weights, strides and dilations, of each convolution."""
        return tuple(
            SumTerm(
                tuple(part.bounds),
                tuple(slice(*numbers) for numbers in part.index),
                tuple(part.strides),
                tuple(part.dilations),
            )
            for part in self.entry.parts
        )

    def joined(self, arrays: Sequence[np.ndarray | None]) -> np.ndarray | None:
        """Return the weights of the layer; None unless the parts have each weight exactly once."""
        weight = tuple(self.entry.weight)
        if any(array is None for array in arrays):
            return None
        blocks = [array for array in arrays if array is not None]
        if len({a.dtype for a in blocks}) > 1 or sum(a.size for a in blocks) != math.prod(weight):
            return None
        whole, covered = np.zeros(weight, blocks[0].dtype), np.zeros(weight, np.int8)
        for term, array in zip(self.terms, blocks, strict=True):
            if len(term.index) != len(weight) or whole[term.index].shape != array.shape:
                return None
            whole[term.index] = array
            covered[term.index] += 1
        return whole if (covered == 1).all() else None

    def sliced(self, tensors: Sequence[Tensor]) -> tuple[Tensor, list[Node]] | None:
        """Return the common source of the parts' inputs and its Slices; None if there is none."""
        sources, slices = dict[int, Tensor](), list[Node]()
        for part, tensor in zip(self.entry.parts, tensors, strict=True):
            source = tensor
            if part.bounds:
                node = query.producer(tensor)
                if node is None or node.op != "Slice":
                    return None
                slices.append(node)
                source = node.inputs[0]
            sources[id(source)] = source
        return (next(iter(sources.values())), slices) if len(sources) == 1 else None


def sums(model: Model, op: str) -> Iterator[Int32Sum]:
    """Yield the sums of a model whose convolutions are this operator."""
    entries = read_entries(SumEntry, dict(model.header.metadata).get(keys.INT32_SUMS, "[]"))
    nodes = {node.name: node for node in model.nodes(op)}
    for entry in entries:
        convs = [nodes[part.node] for part in entry.parts if part.node in nodes]
        if entry.is_consistent and len({id(conv) for conv in convs}) == len(entry.parts):
            layer = _follow(model, entry, convs)
            if layer is not None:
                yield layer


def _follow(model: Model, entry: SumEntry, convs: Sequence[Node]) -> Int32Sum | None:
    """Follow the Adds behind the first convolution; None if they do not add all convolutions."""
    waiting = {id(conv) for conv in convs[1:]}
    total, nodes, constants = convs[0].outputs[0], [*convs], list[np.ndarray]()
    while (add := query.sole_consumer(model, total)) is not None and add.op == "Add":
        terms = [tensor for tensor in add.inputs if tensor is not total]
        producer, value = (f(terms[0]) if terms else None for f in (query.producer, query.value))
        if value is None and (producer is None or id(producer) not in waiting):
            break
        if value is not None:
            constants.append(value)
        waiting.discard(id(producer))
        nodes.append(add)
        total = add.outputs[0]
    return None if waiting else Int32Sum(entry, tuple(convs), total, tuple(nodes), tuple(constants))


@dataclass(frozen=True)
class _IntegerLayer:
    """A sum of ConvInteger with its requantization."""

    sum: Int32Sum
    source: Tensor
    weight: np.ndarray
    factor: np.ndarray  # float32 [C], or [1] for all channels
    nodes: tuple[Node, ...]  # all nodes of the layer, the QuantizeLinear last


def _integer_layers(model: Model) -> Iterator[_IntegerLayer]:
    for layer in sums(model, _PART):
        cast = query.sole_consumer(model, layer.total)
        scaled = query.sole_consumer(model, cast.outputs[0]) if cast is not None else None
        last = query.sole_consumer(model, scaled.outputs[0]) if scaled is not None else None
        if [node and node.op for node in (cast, scaled, last)] != ["Cast", "Mul", "QuantizeLinear"]:
            continue
        scale, factor = query.constant_input(last, 1), query.constant_input(scaled, 1)
        zeros = [query.constant_input(conv, 2) for conv in layer.convs]
        weight = layer.joined([query.constant_input(conv, 1) for conv in layer.convs])
        sliced = layer.sliced([conv.inputs[0] for conv in layer.convs])
        plain = (
            scale is not None
            and scale.size == 1
            and scale == 1
            and all(zero is not None and zero.size == 1 and zero == zeros[0] for zero in zeros)
            and all(query.input_of(conv, 3) is None for conv in layer.convs)
        )
        if weight is None or factor is None or sliced is None or not plain:
            continue
        if weight.dtype.name not in ("int8", "uint8") or factor.size not in (1, len(weight)):
            continue
        if [constant.size for constant in layer.constants] not in ([], [len(weight)]):
            continue
        source, slices = sliced
        nodes = {id(n): n for n in (*slices, *layer.nodes, cast, scaled, last)}
        factors = factor.reshape(-1).astype(np.float32)
        yield _IntegerLayer(layer, source, weight, factors, tuple(nodes.values()))


def with_layers(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with a QLinearConv for each sum in int32; without sums the model itself."""
    graph = _load(model)
    if graph is None:
        return model
    for layer in list(_integer_layers(graph)):
        _join(graph, layer)
    sweep(graph)
    return save.to_proto(graph)


def internal_tensors(model: onnx.ModelProto) -> frozenset[str]:
    """Return the internal tensors of sums in int32, with slices that only they read."""
    graph = _load(model)
    nodes = [n for layer in (_integer_layers(graph) if graph else ()) for n in layer.nodes]
    ids = {id(node) for node in nodes}
    return frozenset(
        node.outputs[0].name
        for node in nodes
        if node.op != "Slice" or all(id(n) in ids for n in query.consumers(node.outputs[0]))
    )


def _load(model: onnx.ModelProto) -> Model | None:
    """Return the graph of a model with sums in int32; None for others."""
    if keys.INT32_SUMS not in metadata_of(model):
        return None
    graph = load.load(model)
    shapes.infer_unknown(graph)
    return graph


def _join(model: Model, layer: _IntegerLayer) -> None:
    """Replace the parts by one QLinearConv."""
    last, conv, weight = layer.nodes[-1], layer.sum.convs[0], layer.weight
    stem, unit = last.name, edit.constant(model, f"{last.name}/unit", np.asarray(1, np.float32))
    scale = layer.factor if layer.factor.size > 1 else layer.factor.reshape(())
    inputs = [
        layer.source, unit, conv.inputs[2],
        edit.constant(model, f"{stem}/joined", weight),
        edit.constant(model, f"{stem}/factors", scale),
        edit.constant(model, f"{stem}/zeros", np.zeros(scale.shape, weight.dtype)),
        unit, last.inputs[2],
    ]  # fmt: skip
    inputs += [edit.constant(model, f"{stem}/bias", c.reshape(-1)) for c in layer.sum.constants]
    result, attrs = last.outputs[0], layer.sum.entry.window.model_dump()
    edit.disconnect(last)
    joined = edit.add_node(model, "QLinearConv", inputs, [result], origin=[conv], attrs=attrs)
    edit.keep_name(joined, last)
