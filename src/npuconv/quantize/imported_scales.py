"""Imported scales and integer weights of a quantized source, adapted to the device.

A tensor keeps its scale and zero point where the device has no demand on them. A padded
convolution fills with the stored integer 0, and some activations are exact with zero point 0
only: there the same range is covered from zero point 0. Weights keep their integers; those with
a zero point become symmetric.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from npuconv.arithmetic.encoding import HIGHEST, LOWEST, Encoding, scales_for
from npuconv.arithmetic.layer import RoundedWeights, per_weight
from npuconv.legalize.source_scales import SourceScales
from npuconv.model import query
from npuconv.model.core import Model
from npuconv.model.types import Node

METHOD, CENTRED = "kept", "kept range, zero point 0"
MOVED, NARROWED = "kept scale, zero point -128", "kept range, zero point -128"
METHODS = (METHOD, CENTRED, MOVED, NARROWED)  # methods of tensors with a range of the source
OFF_GRID = 0.01  # steps; float32 keeps integers times a scale nearer than this
DEPTHWISE = 1  # input channels of each group: their scales move into the weights' scales

Doubles = NDArray[np.float64]


def adapt_encoding(
    encoding: Encoding, *, centred: bool, cut: bool, cap: float
) -> tuple[Encoding, str]:
    """Return an encoding that the device can use, close to the encoding of the source.

    Args:
        encoding: scale and zero point of the source.
        centred: whether a convolution pads the tensor with the stored integer 0.
        cut: whether a Relu or Clip at 0 is in the group, which saturation replaces only where
            the lowest integer represents 0.
        cap: upper bound of such a Clip.

    Returns:
        The encoding, and how it was kept, for people.
    """
    scale, zero = float(encoding.nominal), int(encoding.zeros[0])
    low, high = scale * (LOWEST - zero), scale * (HIGHEST - zero)
    bounded = cut and (zero != LOWEST or cap < high - scale / 2)
    if zero == 0 or not (centred or bounded):
        return encoding, METHOD
    if not centred and cap >= scale * (HIGHEST - LOWEST - 0.5):
        return replace(encoding, zeros=np.full(1, LOWEST, np.int32)), MOVED
    lows, highs = np.asarray([0.0 if cut else low]), np.asarray([min(high, cap)])
    scales, zeros = scales_for(lows, highs, np.full(1, centred))
    return Encoding(scales, zeros, np.float32(scales[0])), CENTRED if centred else NARROWED


def import_weights(
    model: Model,
    convs: Sequence[Node],
    encodings: Mapping[str, Encoding],
    source: SourceScales,
    *,
    per_tensor: bool = False,
) -> tuple[dict[str, RoundedWeights], dict[str, str]]:
    """Return integer weights of the source for the layers that have kept them.

    Returns:
        Weights, and how they were rounded: ``METHOD``, with what symmetry costs, or a reason
        why they were not kept; both by node.
    """
    weights, notes = dict[str, RoundedWeights](), dict[str, str]()
    for conv in convs:
        stored_weights, values = source.weights_of(model, conv), query.constant_input(conv, 1)
        if stored_weights is None or values is None or not values.size:
            continue
        result = _integers(
            np.asarray(values, np.float64), stored_weights.scales.astype(np.float64), per_tensor
        )
        if isinstance(result, str):
            notes[conv.name] = result
            continue
        steps, scales, lost = result
        folded = scales * _ratios(conv, encodings, values.shape)
        bias = query.constant_input(conv, 2)
        own_bias = np.zeros(len(values)) if bias is None else bias
        weights[conv.name] = RoundedWeights(
            steps, np.asarray(folded, np.float32), np.asarray(own_bias, np.float32)
        )
        notes[conv.name] = METHOD if not lost else f"{METHOD}, {lost}"
    return weights, notes


def _ratios(
    conv: Node, encodings: Mapping[str, Encoding], shape: tuple[int, ...]
) -> float | Doubles:
    """Return the ratios of a depthwise layer's input scales, factors of its weight scales."""
    source = encodings.get(conv.inputs[0].name)
    if source is None or source.axis is None:
        return 1.0
    ratios = source.scales.astype(np.float64) / float(source.nominal)
    row_ratios = per_weight(ratios, shape, int(query.attribute(conv, "group", 1)))
    return row_ratios.reshape(-1)


def _integers(
    values: Doubles, scales: Doubles, per_tensor: bool
) -> tuple[NDArray[np.int8], Doubles, str] | str:
    """Return symmetric integers, their scales, and what symmetry cost; or why there are none."""
    if per_tensor and np.unique(scales).size > 1:
        return "not kept: the target has one weight scale for a layer"
    rows = values.reshape(len(values), -1)
    fitting = []
    for sizes in _by_row(scales, len(rows)):
        steps = rows / sizes[:, None]
        if np.abs(steps - np.rint(steps)).max(initial=0.0) <= OFF_GRID:
            fitting.append(sizes)
    if not fitting:
        return "not kept: a rewrite has changed these weights"
    sizes = min(fitting, key=lambda candidate: np.abs(rows / candidate[:, None]).max(initial=0.0))
    steps = np.rint(rows / sizes[:, None])
    wide = np.abs(steps).max(axis=1, initial=0.0) > HIGHEST
    if not wide.any():
        return steps.astype(np.int8).reshape(values.shape), sizes, ""
    reach = np.abs(steps).max() if per_tensor else np.abs(steps).max(axis=1, initial=0.0)
    growth = np.broadcast_to(np.where(reach > HIGHEST, reach / HIGHEST, 1.0), len(rows))
    symmetric, factors = _less_wrong(steps, np.asarray(growth, np.float64), whole=per_tensor)
    error = np.square((steps - symmetric * factors[:, None]) * sizes[:, None]).sum()
    loss = 10 * np.log10(np.square(rows).sum() / max(error, 1e-300))
    text = f"made symmetric: {wide.sum()} of {len(rows)} channels, {loss:.1f} dB"
    return symmetric.astype(np.int8).reshape(values.shape), sizes * factors, text


def _by_row(scales: Doubles, rows: int) -> Iterator[Doubles]:
    """Yield the scales that the rows of a layer may have; the weights show which they have.

    A layer may be a piece of the source's, with some of its channels, or have each of them
    several times in a row, as a ConvTranspose by pieces of its kernel.
    """
    if rows % scales.size == 0:
        yield np.repeat(scales, rows // scales.size)
    for start in range(scales.size - rows + 1):
        yield scales[start : start + rows]


def _less_wrong(steps: Doubles, growth: Doubles, *, whole: bool) -> tuple[Doubles, Doubles]:
    """Clip wide integers, or make the step larger: whichever has less squared error.

    Args:
        steps: integers [M,K], some beyond 127.
        growth: factors [M] of steps under which none is clipped.
        whole: decide for all rows at once.

    Returns:
        Integers [M,K] within 127, and the factors [M].
    """
    clipped = np.clip(steps, -HIGHEST, HIGHEST)
    wider = np.clip(np.rint(steps / growth[:, None]), -HIGHEST, HIGHEST)
    first = np.square(steps - clipped).sum(axis=1)
    second = np.square(steps - wider * growth[:, None]).sum(axis=1)
    better = second < first
    if whole:
        better = np.full(len(steps), second.sum() < first.sum())
    return np.where(better[:, None], wider, clipped), np.where(better, growth, 1.0)
