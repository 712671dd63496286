"""Split of layers beyond a limit into parts that have the quantization of the whole layer.

The last step before emission: the weights of a part are weights of the layer taken at places, and
slices of its input and output have the scales of their channels.
"""

from __future__ import annotations

import math

import numpy as np

from npuconv.arithmetic.encoding import Encoding
from npuconv.arithmetic.layer import RoundedWeights
from npuconv.legalize.legal import LegalModel
from npuconv.legalize.log import Log
from npuconv.legalize.split.builder import TensorPart, WrittenConv
from npuconv.legalize.split.planner import split_layers
from npuconv.legalize.tools.compose import compose
from npuconv.model import core, shapes
from npuconv.quantize.state import QuantState
from npuconv.records import dataclass, replace


@dataclass(frozen=True)
class SplitGraph:
    """A graph with exactly the convolutions that the device runs."""

    graph: LegalModel
    state: QuantState  # encodings and integer weights, those of the parts included
    convs: tuple[WrittenConv, ...] = ()  # parts of layers, as the device runs them


def split_quantized(graph: LegalModel, state: QuantState) -> SplitGraph:
    """Write the layers that are beyond a limit in parts."""
    if not any(graph.plan.is_convolution(c) for c, _ in graph.device.split_plans(graph.model)):
        return SplitGraph(graph, state)
    graph = graph.copied()
    plans = graph.device.split_plans(graph.model)
    plans = [(conv, plan) for conv, plan in plans if graph.plan.is_convolution(conv)]
    ports = {conv.name: (conv.inputs[0].name, conv.outputs[0].name) for conv, _ in plans}
    encodings, weights = dict(state.encodings), dict(state.weights)
    convs = list[WrittenConv]()
    for builder in split_layers(graph.model, plans):
        source, result = (state.encodings[name] for name in ports[builder.node.name])
        for name, part in builder.tensors.items():
            encodings[name] = _encoding_of(part, source if part.of_input else result)
        rounded = weights.pop(builder.node.name, None)
        if rounded is not None:
            size = math.prod(builder.whole.weight[1:])
            weights |= {conv.node: _weights_of(conv, rounded, size) for conv in builder.convs}
        convs += builder.convs
    core.sweep(graph.model)
    shapes.infer_unknown(graph.model)
    # Replacements have one operator: a tensor between two operators would have no encoding.
    if compose(graph.model, graph.device, Log(measures=False), longest=1):
        core.sweep(graph.model)
    state = replace(state, encodings=encodings, weights=weights)
    return SplitGraph(graph.replanned(), state, tuple(convs))


def _encoding_of(part: TensorPart, whole: Encoding) -> Encoding:
    """Return the encoding of some channels; channels of zeros have the nominal scale."""
    if whole.axis is None:
        return whole
    zeros = part.channels < 0
    return replace(
        whole,
        scales=np.where(zeros, whole.nominal, whole.scales[part.channels]).astype(np.float32),
        zeros=np.where(zeros, whole.nominal_zero, whole.zeros[part.channels]).astype(np.int32),
        axis=part.axis,
    )


def _weights_of(conv: WrittenConv, rounded: RoundedWeights, size: int) -> RoundedWeights:
    """Return the integer weights of a part; ``size``: weights of one output channel."""
    weight = np.where(conv.places < 0, 0, rounded.weight.reshape(-1)[conv.places])
    rows = conv.places.reshape(len(conv.places), -1).max(axis=1) // size
    filled = rows < 0  # rows of zeros, whose outputs are cut off
    return RoundedWeights(
        weight.astype(np.int8),
        np.where(filled, rounded.scales.max(), rounded.scales[rows]).astype(np.float32),
        np.where(filled, 0, rounded.bias[rows]).astype(np.float32),
    )
