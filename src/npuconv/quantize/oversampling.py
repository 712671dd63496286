"""Oversampling: layers and channels that are computed several times, each copy dithered.

Copy j of k has its input offset by part of a step, so that the k roundings of a value lie side
by side and their mean is a rounding to steps k times as fine. The weights of each copy compensate
the errors of those before it, and the outputs are offset like the inputs. The common error of all
copies is then 1/k of the error of one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from npuconv.arithmetic.encoding import Encoding
from npuconv.arithmetic.layer import RoundedWeights, per_weight, unfolded
from npuconv.data import Samples
from npuconv.legalize.legal import LegalModel
from npuconv.model import query
from npuconv.model.types import Node
from npuconv.partition.channel_paths import ChannelPath, parameters
from npuconv.quantize import hessian as hessians_of
from npuconv.quantize.hessian import Hessian
from npuconv.quantize.rewrites.repeat_channels import RepeatedChannels, repeat_channels
from npuconv.quantize.rewrites.repeat_convolution import LayerCopies, repeat_convolution
from npuconv.quantize.rounding import nearest, solve
from npuconv.quantize.settings import HESSIAN
from npuconv.quantize.state import QuantState

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]
_WHOLE = np.ones(1)  # of a step


@dataclass(frozen=True)
class Repeats:
    """Layers and channels that are repeated.

    Attributes:
        layers: number of runs by node, of nodes that run more than once.
        channels: source channel of each channel by tensor: first the channels that the tensor
            has, then their copies.
    """

    layers: Mapping[str, int] = field(default_factory=dict)
    channels: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Return whether anything is repeated."""
        return bool(self.layers or self.channels)


@dataclass(frozen=True)
class Oversampled:
    """A graph in which layers run several times, and channels are computed several times."""

    graph: LegalModel
    state: QuantState  # with the encodings and weights of all copies
    repeated: tuple[LayerCopies, ...] = ()
    duplicated: tuple[RepeatedChannels, ...] = ()

    @property
    def repeats_anything(self) -> bool:
        """Return whether the graph has copies of layers or channels."""
        return bool(self.repeated or self.duplicated)

    @property
    def copy_of(self) -> dict[str, str]:
        """Layer of each copy, by name of the copy."""
        return {
            name: layer.node
            for layer in self.repeated
            for name, _, is_conv in layer.copies
            if is_conv
        }


def oversample(
    graph: LegalModel,
    state: QuantState,
    hessians: Mapping[str, Hessian],
    repeats: Repeats,
    samples: Samples,
) -> Oversampled:
    """Compute channels and layers several times, and round every copy.

    ``samples`` are for the Hessians of layers that read more channels.

    Raises:
        CalibrationError: the model does not run on the samples.
    """
    graph, state, duplicated, hessians = _duplicate(
        graph, state, hessians, repeats.channels, samples
    )
    spaces: dict[str, Doubles] = {}  # distance between copies of channels, in steps
    for channels in duplicated:
        times = np.bincount(channels.index)[list(channels.index)]
        spaces |= dict.fromkeys(channels.path.tensors, 1.0 / times)
    graph, state, repeated = _repeat(graph, state, hessians, repeats.layers, spaces)
    return Oversampled(graph, state, tuple(repeated), tuple(duplicated))


def _repeat(
    graph: LegalModel,
    state: QuantState,
    hessians: Mapping[str, Hessian],
    counts: Mapping[str, int],
    spaces: Mapping[str, Doubles],
) -> tuple[LegalModel, QuantState, list[LayerCopies]]:
    if not counts:
        return graph, state, []
    originals = {c.name: _original(c, state) for c in graph.plan.convolutions if c.name in counts}
    graph, repeated = graph.rewritten(repeat_convolution, counts=counts)
    nodes = {node.name: node for node in graph.model.nodes()}
    encodings, weights = dict(state.encodings), dict(state.weights)
    for layer in repeated:
        source, result = encodings[layer.source], encodings[layer.output]
        for name, tensor, is_conv in layer.copies:
            encodings[tensor] = encodings[layer.output if is_conv else layer.result]
            if is_conv:
                encodings[nodes[name].inputs[0].name] = source
        input_space, output_space = (spaces.get(t, _WHOLE) for t in (layer.source, layer.output))
        for shift, offset in zip(layer.shifts, offsets(len(layer.shifts)), strict=True):
            values = offset * input_space * source.scales.astype(np.float64)
            dims = [1] * len(shift.shape)
            if len(values) > 1:
                dims[1 if source.axis is None else source.axis] = len(values)
            shift.values = values.reshape(dims).astype(np.float32)
        names = [name for name, _, is_conv in layer.copies if is_conv]
        weight, bias, group = originals[layer.node]
        first = state.weights.get(layer.node)
        roundings = copies(weight, bias, source, hessians[layer.node], len(names), first)
        for name, rounded, offset in zip(names, roundings, offsets(len(names)), strict=True):
            if layer.shifts:
                rounded = with_input_offset(rounded, source, group, offset * input_space)
            weights[name] = with_output_offset(rounded, result, -offset * output_space)
    return graph, replace(state, encodings=encodings, weights=weights), repeated


def _original(conv: Node, state: QuantState) -> tuple[Floats, Floats | None, int]:
    """Return weight, bias and group count of a convolution before its node is replaced."""
    weight, bias = (query.constant_input(conv, k) for k in (1, 2))
    assert weight is not None, "only layers with constant weights are repeated"
    offset = state.bias_offsets.get(conv.name)
    if offset is not None:
        bias = np.asarray(offset if bias is None else bias + offset, np.float32)
    return weight, bias, int(query.attribute(conv, "group", 1))


def _duplicate(
    graph: LegalModel,
    state: QuantState,
    hessians: Mapping[str, Hessian],
    indices: Mapping[str, tuple[int, ...]],
    samples: Samples,
) -> tuple[LegalModel, QuantState, list[RepeatedChannels], Mapping[str, Hessian]]:
    if not indices:
        return graph, state, [], hessians
    graph, duplicated = graph.rewritten(repeat_channels, indices=indices)
    encodings, moments = dict(state.encodings), dict(hessians)
    weights, bias_offsets = dict(state.weights), dict(state.bias_offsets)
    for channels in duplicated:
        path, index = channels.path, list(channels.index)
        encodings |= {new: encodings[old].take(index) for new, old in channels.old_names.items()}
        for name, picks in channels.picks.items():
            encodings |= dict.fromkeys(picks, encodings[channels.old_names[name]])
        if channels.shift is not None:
            offset = offsets_of(index) * encodings[path.tensor.name].scales.astype(np.float64)
            channels.shift.values = offset.reshape(channels.shift.shape).astype(np.float32)
        for conv in path.between:
            if conv.op == "Conv":
                moments[conv.name] = hessians[conv.name].take(index)
        count = max(index) + 1
        for conv in path.row_layers:  # rows for the copies, if there are none yet
            rounded, offsets = weights.get(conv.name), bias_offsets.get(conv.name)
            if rounded is not None and len(rounded.bias) == count:
                weights[conv.name] = RoundedWeights(
                    rounded.weight[index], rounded.scales[index], rounded.bias[index]
                )
            if offsets is not None and len(offsets) == count:
                bias_offsets[conv.name] = offsets[index]
    consumers = {conv.name: conv for channels in duplicated for conv in channels.path.readers}
    if windows := [w for conv in consumers.values() if (w := hessians_of.windows_of(conv))]:
        few = samples[: HESSIAN.samples]  # consumers have more input channels now
        moments |= hessians_of.gather(graph.proto(), windows, few)
    state = replace(state, encodings=encodings, weights=weights, bias_offsets=bias_offsets)
    for channels in duplicated:  # in the order of the model
        state = _dither(channels.path, channels.index, moments, state)
    return graph, state, duplicated, moments


def _dither(
    path: ChannelPath, index: Sequence[int], hessians: Mapping[str, Hessian], state: QuantState
) -> QuantState:
    """Round the convolutions along channels some of which are copies.

    The bias of a layer offsets the copies that it makes; the bias of their consumer compensates
    the offset. Weights of channels without copies stay.

    ``index`` is the source channel of each channel, [C].
    """
    tensor_steps = {path.tensor.name: offsets_of(index)}  # offset of each channel within a step
    for node in path.between:
        turn = -1 if node.op == "Conv" else 1  # so that errors of two layers do not add up
        tensor_steps[node.outputs[0].name] = turn * tensor_steps[node.inputs[0].name]
    weights, bias_offsets = dict(state.weights), dict(state.bias_offsets)
    for conv in (*path.row_layers, *path.readers):
        source, result = conv.inputs[0].name, conv.outputs[0].name
        mixes, offset = result not in tensor_steps, bias_offsets.get(conv.name, np.zeros(1))
        if not mixes and offset.size > 1:
            offset = offset[list(index)]  # rows are in their new order
        weight, bias = parameters(conv)
        target = weight.astype(np.float32), (bias + offset).astype(np.float32)
        encoding, hessian = state.encodings[source], hessians[conv.name]
        if mixes:  # all of its weights are shared among copies now
            rounded = solve(*target, encoding, hessian)[0] or nearest(*target, encoding, 1)
        else:
            rounded = _rows_of_copies(*target, encoding, hessian, index, weights.get(conv.name))
        dithered = rounded
        if source in tensor_steps:
            dithered = with_input_offset(dithered, encoding, hessian.groups, tensor_steps[source])
        if result in tensor_steps:
            dithered = with_output_offset(dithered, state.encodings[result], tensor_steps[result])
        weights[conv.name] = dithered
        bias_offsets[conv.name] = offset + dithered.bias.astype(np.float64) - rounded.bias
    shifts = {
        tensor: steps * state.encodings[tensor].scales.astype(np.float64)
        for tensor, steps in tensor_steps.items()
    }
    return replace(
        state,
        weights=weights,
        bias_offsets=bias_offsets,
        tensor_offsets={**state.tensor_offsets, **shifts},
    )


def _rows_of_copies(
    weight: Floats,
    bias: Floats,
    source: Encoding,
    hessian: Hessian,
    index: Sequence[int],
    rounded: RoundedWeights | None,
) -> RoundedWeights:
    """Round the rows of each copied channel so that they compensate each other."""
    group, which = hessian.groups, np.asarray(index)
    first = rounded or nearest(weight, bias, source, group)
    steps, scales, biases = first.weight.copy(), first.scales.copy(), first.bias.copy()
    by_count: dict[int, list[int]] = {}
    for channel, times in sorted(Counter(index).items()):
        if times > 1:
            by_count.setdefault(times, []).append(channel)
    for count, channels in by_count.items():
        rows = [np.flatnonzero(which == channel) for channel in channels]
        alone = RoundedWeights(steps[channels], scales[channels], biases[channels])
        moments, encoding = hessian, source
        if group > 1:
            moments, encoding = hessian.take(channels), source.take(channels)
        roundings = copies(weight[channels], bias[channels], encoding, moments, count, alone)
        for number, copy in enumerate(roundings):
            places = [row[number] for row in rows]
            steps[places], scales[places], biases[places] = copy.weight, copy.scales, copy.bias
    return RoundedWeights(steps, scales, biases)


def offsets(count: int) -> Doubles:
    """Return the offsets of copies within a step: float64 [count], evenly spread around 0."""
    return (2 * np.arange(count) + 1 - count) / (2 * count)


def offsets_of(index: Sequence[int]) -> Doubles:
    """Return the offset of each channel within a step, different for copies: float64 [C]."""
    result, which = np.zeros(len(index)), np.asarray(index)
    for channel in set(index):
        places = np.flatnonzero(which == channel)
        result[places] = offsets(len(places))
    return result


def with_input_offset(
    rounded: RoundedWeights, source: Encoding, group: int, offset: float | Doubles
) -> RoundedWeights:
    """Return the layer for an input that is larger by some steps, with a bias to match.

    Where the device pads with 0, a border of the result keeps the difference; the mean of the
    copies, whose offsets add up to 0, does not.

    ``offset`` is in steps, a number or [C].
    """
    weight = real_weights(rounded, source, group)
    steps = per_weight(source.scales.astype(np.float64) * offset, weight.shape, group)
    sums = (weight * steps).reshape(len(weight), -1).sum(axis=1)
    return replace(rounded, bias=np.asarray(rounded.bias - sums, np.float32))


def with_output_offset(
    rounded: RoundedWeights, result: Encoding, offset: float | Doubles
) -> RoundedWeights:
    """Return the layer with an output that is larger by some of its steps."""
    steps = np.broadcast_to(result.scales.astype(np.float64), rounded.bias.shape)
    return replace(rounded, bias=np.asarray(rounded.bias + offset * steps, np.float32))


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
        count: how many copies.
        first: weights of the original layer; None: rounded to nearest.
    """
    group, zeros = hessian.groups, np.zeros(len(weight), np.float32)
    offsets_of_rows = zeros if bias is None else np.asarray(bias, np.float32)
    results = [first or nearest(weight, offsets_of_rows, source, group)]
    for number in range(2, count + 1):
        lacking = number * weight - sum(real_weights(r, source, group) for r in results)
        lacking_bias = number * offsets_of_rows - sum(r.bias for r in results)
        target = np.asarray(lacking, np.float32), np.asarray(lacking_bias, np.float32)
        solved, _ = solve(*target, source, hessian)
        results.append(solved or nearest(*target, source, group))
    return results
