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
from npuconv.quantize.hessian import Hessian, gather, windows_of
from npuconv.quantize.rewrites.repeat_channels import RepeatedChannels, repeat_channels
from npuconv.quantize.rewrites.repeat_convolution import LayerCopies, repeat_convolution
from npuconv.quantize.rounding import nearest, solve
from npuconv.quantize.settings import HESSIAN
from npuconv.quantize.state import QuantState

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]
_ONE_STEP = np.ones(1)  # distance between the values of a tensor without copies, in steps


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
    state: QuantState  # encodings and weights, those of all copies included
    repeated: tuple[LayerCopies, ...] = ()
    duplicated: tuple[RepeatedChannels, ...] = ()

    @property
    def repeats_anything(self) -> bool:
        """Return whether the graph has copies of layers or channels."""
        return bool(self.repeated or self.duplicated)

    @property
    def copy_of(self) -> dict[str, str]:
        """Layer of each copy, by name of the copy."""
        return {name: layer.node for layer in self.repeated for name in layer.conv_names}


def oversample(
    graph: LegalModel,
    state: QuantState,
    hessians: Mapping[str, Hessian],
    repeats: Repeats,
    samples: Samples,
) -> Oversampled:
    """Compute channels and layers several times, and round every copy.

    ``samples`` are run for the Hessians of layers that read more channels.

    Raises:
        CalibrationError: the model does not run on the samples.
    """
    graph, state, duplicated, hessians = _duplicate(
        graph, state, hessians, repeats.channels, samples
    )
    distances: dict[str, Doubles] = {}  # distance between copies of each channel, in steps
    for channels in duplicated:
        copy_counts = np.bincount(channels.index)[list(channels.index)]  # [C], with the original
        distances |= dict.fromkeys(channels.path.tensors, 1.0 / copy_counts)
    graph, state, repeated = _repeat(graph, state, hessians, repeats.layers, distances)
    return Oversampled(graph, state, tuple(repeated), tuple(duplicated))


def _repeat(
    graph: LegalModel,
    state: QuantState,
    hessians: Mapping[str, Hessian],
    counts: Mapping[str, int],
    distances: Mapping[str, Doubles],
) -> tuple[LegalModel, QuantState, list[LayerCopies]]:
    """Run layers ``counts`` times; ``distances``: steps between copies of channels, by tensor."""
    if not counts:
        return graph, state, []
    originals = {c.name: _original(c, state) for c in graph.plan.convolutions if c.name in counts}
    graph, repeated = graph.rewritten(repeat_convolution, counts=counts)
    nodes = {node.name: node for node in graph.model.nodes()}
    encodings, weights = dict(state.encodings), dict(state.weights)
    for layer in repeated:
        source, result = encodings[layer.source], encodings[layer.output]
        for copy in layer.copies:
            encodings[copy.output] = encodings[layer.output if copy.is_conv else layer.result]
            if copy.is_conv:
                encodings[nodes[copy.name].inputs[0].name] = source
        input_distance = distances.get(layer.source, _ONE_STEP)
        output_distance = distances.get(layer.output, _ONE_STEP)
        for shift, offset in zip(layer.shifts, offsets(len(layer.shifts)), strict=True):
            values = offset * input_distance * source.scales.astype(np.float64)
            dims = [1] * len(shift.shape)
            if len(values) > 1:
                dims[1 if source.axis is None else source.axis] = len(values)
            shift.values = values.reshape(dims).astype(np.float32)
        names = layer.conv_names
        weight, bias, group = originals[layer.node]
        original = state.weights.get(layer.node)
        roundings = copies(weight, bias, source, hessians[layer.node], len(names), original)
        for name, rounded, offset in zip(names, roundings, offsets(len(names)), strict=True):
            if layer.shifts:
                rounded = with_input_offset(rounded, source, group, offset * input_distance)
            weights[name] = with_output_offset(rounded, result, -offset * output_distance)
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
    encodings, new_hessians = dict(state.encodings), dict(hessians)
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
                new_hessians[conv.name] = hessians[conv.name].take(index)
        count = max(index) + 1
        for conv in path.row_layers:  # they get rows for the copies, if they have none yet
            rounded, row_offsets = weights.get(conv.name), bias_offsets.get(conv.name)
            if rounded is not None and len(rounded.bias) == count:
                weights[conv.name] = RoundedWeights(
                    rounded.weight[index], rounded.scales[index], rounded.bias[index]
                )
            if row_offsets is not None and len(row_offsets) == count:
                bias_offsets[conv.name] = row_offsets[index]
    consumers = {conv.name: conv for channels in duplicated for conv in channels.path.readers}
    if windows := [w for conv in consumers.values() if (w := windows_of(conv))]:
        few = samples[: HESSIAN.samples]  # consumers have more input channels now
        new_hessians |= gather(graph.proto(), windows, few)
    state = replace(state, encodings=encodings, weights=weights, bias_offsets=bias_offsets)
    for channels in duplicated:  # in the order of the model
        state = _dither(channels.path, channels.index, new_hessians, state)
    return graph, state, duplicated, new_hessians


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
        sign = -1 if node.op == "Conv" else 1  # so that errors of two layers do not add up
        tensor_steps[node.outputs[0].name] = sign * tensor_steps[node.inputs[0].name]
    weights, bias_offsets = dict(state.weights), dict(state.bias_offsets)
    for conv in (*path.row_layers, *path.readers):
        source, result = conv.inputs[0].name, conv.outputs[0].name
        mixes, row_offsets = result not in tensor_steps, bias_offsets.get(conv.name, np.zeros(1))
        if not mixes and row_offsets.size > 1:
            row_offsets = row_offsets[list(index)]  # rows are in their new order
        weight, bias = parameters(conv)
        exact = weight.astype(np.float32), (bias + row_offsets).astype(np.float32)
        encoding, hessian = state.encodings[source], hessians[conv.name]
        if mixes:  # its weights are divided among the copies of each channel
            rounded = solve(*exact, encoding, hessian)[0] or nearest(*exact, encoding, 1)
        else:
            rounded = _rows_of_copies(*exact, encoding, hessian, index, weights.get(conv.name))
        dithered = rounded
        if source in tensor_steps:
            dithered = with_input_offset(dithered, encoding, hessian.groups, tensor_steps[source])
        if result in tensor_steps:
            dithered = with_output_offset(dithered, state.encodings[result], tensor_steps[result])
        weights[conv.name] = dithered
        bias_offsets[conv.name] = row_offsets + dithered.bias.astype(np.float64) - rounded.bias
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
    """Round the rows of each copied channel so that they compensate each other.

    ``index`` is the source channel of each row, ``rounded`` the rows so far; None: round them.
    """
    group, source_channels = hessian.groups, np.asarray(index)
    first = rounded or nearest(weight, bias, source, group)
    integers, scales, biases = first.weight.copy(), first.scales.copy(), first.bias.copy()
    by_count: dict[int, list[int]] = {}
    for channel, times in sorted(Counter(index).items()):
        if times > 1:
            by_count.setdefault(times, []).append(channel)
    for count, channels in by_count.items():
        rows = [np.flatnonzero(source_channels == channel) for channel in channels]
        originals = RoundedWeights(integers[channels], scales[channels], biases[channels])
        products, encoding = hessian, source
        if group > 1:
            products, encoding = hessian.take(channels), source.take(channels)
        roundings = copies(weight[channels], bias[channels], encoding, products, count, originals)
        for number, copy in enumerate(roundings):
            places = [row[number] for row in rows]
            integers[places], scales[places], biases[places] = copy.weight, copy.scales, copy.bias
    return RoundedWeights(integers, scales, biases)


def offsets(count: int) -> Doubles:
    """Return the offsets of copies within a step: float64 [count], evenly spread around 0."""
    return (2 * np.arange(count) + 1 - count) / (2 * count)


def offsets_of(index: Sequence[int]) -> Doubles:
    """Return the offset of each channel within a step, different for copies: float64 [C]."""
    result, source_channels = np.zeros(len(index)), np.asarray(index)
    for channel in set(index):
        places = np.flatnonzero(source_channels == channel)
        result[places] = offsets(len(places))
    return result


def with_input_offset(
    rounded: RoundedWeights, source: Encoding, group: int, offset: float | Doubles
) -> RoundedWeights:
    """Return the layer with a bias that cancels an offset of its input.

    Pads of 0 have no offset, so the border of the output is wrong by a part of it. The offsets of
    all copies add up to 0: the mean of the copies is right.

    ``offset`` is in steps, a number or [C].
    """
    weight = real_weights(rounded, source, group)
    shifts = per_weight(source.scales.astype(np.float64) * offset, weight.shape, group)
    sums = (weight * shifts).reshape(len(weight), -1).sum(axis=1)
    return replace(rounded, bias=np.asarray(rounded.bias - sums, np.float32))


def with_output_offset(
    rounded: RoundedWeights, result: Encoding, offset: float | Doubles
) -> RoundedWeights:
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
    group, zeros = hessian.groups, np.zeros(len(weight), np.float32)
    exact_bias = zeros if bias is None else np.asarray(bias, np.float32)
    results = [first or nearest(weight, exact_bias, source, group)]
    for number in range(2, count + 1):
        missing_weight = number * weight - sum(real_weights(r, source, group) for r in results)
        missing_bias = number * exact_bias - sum(r.bias for r in results)
        missing = np.asarray(missing_weight, np.float32), np.asarray(missing_bias, np.float32)
        solved, _ = solve(*missing, source, hessian)
        results.append(solved or nearest(*missing, source, group))
    return results
