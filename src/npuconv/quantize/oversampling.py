"""Oversampling: layers that run several times, each copy dithered.

Copy j of k has its input offset by part of a step, so that the k roundings of a value lie side
by side and their mean is a rounding to steps k times as fine. The weights of each copy compensate
the errors of those before it, and the outputs are offset like the inputs. The common error of all
copies is then 1/k of the error of one.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from npuconv.arithmetic.encoding import Encoding
from npuconv.arithmetic.layer import RoundedWeights, per_weight, unfolded
from npuconv.legalize.legal import LegalModel
from npuconv.model import query
from npuconv.quantize.hessian import Hessian
from npuconv.quantize.rewrites.repeat_convolution import LayerCopies, repeat_convolution
from npuconv.quantize.rounding import nearest, solve
from npuconv.quantize.state import QuantState
from npuconv.records import dataclass, replace

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]
Repeats = Mapping[str, int]  # number of runs of the layers that run more than once, by node


@dataclass(frozen=True)
class Oversampled:
    """A graph in which layers run several times."""

    graph: LegalModel
    state: QuantState  # encodings and weights, those of all copies included
    repeated: tuple[LayerCopies, ...] = ()

    @property
    def copy_of(self) -> dict[str, str]:
        """Layer of each copy, by name of the copy."""
        return {conv.name: layer.node for layer in self.repeated for conv in layer.convs}


def oversample(
    graph: LegalModel, state: QuantState, hessians: Mapping[str, Hessian], counts: Repeats
) -> Oversampled:
    """Run layers several times, and round every copy."""
    if not counts:
        return Oversampled(graph, state)
    originals = {conv.name: conv for conv in graph.plan.convolutions}  # layers before the rewrite
    graph, repeated = graph.rewritten(repeat_convolution, counts=counts)
    encodings, weights = dict(state.encodings), dict(state.weights)
    for layer in repeated:
        source, result = encodings[layer.source], encodings[layer.output]
        encodings |= {conv.inputs[0].name: source for conv in layer.convs}
        encodings |= {conv.outputs[0].name: result for conv in layer.convs}
        activated = encodings[layer.result]
        encodings |= {node.outputs[0].name: activated for node in layer.activations}
        for shift, offset in zip(layer.shifts, offsets(len(layer.shifts)), strict=True):
            values = offset * source.scales.astype(np.float64)
            dims = [1] * len(shift.shape)
            if len(values) > 1:
                dims[1 if source.axis is None else source.axis] = len(values)
            shift.values = values.reshape(dims).astype(np.float32)
        conv, count = originals[layer.node], len(layer.convs)
        weight, bias = (query.constant_input(conv, k) for k in (1, 2))
        assert weight is not None, "only layers with constant weights are repeated"
        group = int(query.attribute(conv, "group", 1))
        original = state.weights.get(layer.node)
        roundings = copies(weight, bias, source, hessians[layer.node], count, original)
        for copy, rounded, offset in zip(layer.convs, roundings, offsets(count), strict=True):
            if layer.shifts:
                rounded = with_input_offset(rounded, source, group, offset)
            weights[copy.name] = with_output_offset(rounded, result, -offset)
    return Oversampled(graph, replace(state, encodings=encodings, weights=weights), tuple(repeated))


def offsets(count: int) -> Doubles:
    """Return the offsets of copies within a step: float64 [count], evenly spread around 0."""
    return (2 * np.arange(count) + 1 - count) / (2 * count)


def with_input_offset(
    rounded: RoundedWeights, source: Encoding, group: int, offset: float
) -> RoundedWeights:
    """Return the layer with a bias that cancels an offset of its input.

    Pads of 0 have no offset, so the border of the output is wrong by a part of it. The offsets of
    all copies add up to 0: the mean of the copies is right.

    ``offset`` is in steps.
    """
    weight = real_weights(rounded, source, group)
    shifts = per_weight(source.scales.astype(np.float64) * offset, weight.shape, group)
    sums = (weight * shifts).reshape(len(weight), -1).sum(axis=1)
    return replace(rounded, bias=np.asarray(rounded.bias - sums, np.float32))


def with_output_offset(rounded: RoundedWeights, result: Encoding, offset: float) -> RoundedWeights:
    """Return the layer with an output that is larger by some of its steps."""
    scales = np.broadcast_to(result.scales.astype(np.float64), rounded.bias.shape)
    return replace(rounded, bias=np.asarray(rounded.bias + offset * scales, np.float32))


def real_weights(rounded: RoundedWeights, source: Encoding, group: int) -> Doubles:
    """Return the real numbers of integer weights, in the shape of the weights."""
    scales = rounded.scales.astype(np.float64).reshape(-1, *[1] * (rounded.weight.ndim - 1))
    return unfolded(rounded.weight * scales, source, group).astype(np.float64)


def copies(
    weight: Floats,
    bias: Floats | None,
    source: Encoding,
    hessian: Hessian,
    count: int,
    first: RoundedWeights | None = None,
) -> list[RoundedWeights]:
    """Return weights and biases of every copy; their sums are near ``count`` times the originals.

    Args:
        weight: float [M,C/g,...].
        bias: float [M] or None.
        source: encoding of the input.
        hessian: Hessian of the windows of the input.
        count: number of copies, the original included.
        first: weights of the original layer; None: rounded to nearest.
    """
    group = hessian.groups if weight[0].size == hessian.length else 1
    zeros = np.zeros(len(weight), np.float32)
    exact_bias = zeros if bias is None else np.asarray(bias, np.float32)
    results = [first or nearest(weight, exact_bias, source, group)]
    for number in range(2, count + 1):
        missing_weight = number * weight - sum(real_weights(r, source, group) for r in results)
        missing_bias = number * exact_bias - sum(r.bias for r in results)
        missing = np.asarray(missing_weight, np.float32), np.asarray(missing_bias, np.float32)
        solved, _ = solve(*missing, source, hessian)
        results.append(solved or nearest(*missing, source, group))
    return results
