"""Imported scales and integer weights of a quantized source, adapted to the device.

A tensor keeps its scale and zero point where the device has no demand on them. A padded
convolution may fill with the stored integer 0, and some activations are exact with zero point 0
only: there the same range is covered from zero point 0. Weights keep their integers; those with
a zero point become symmetric.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from npuconv.arithmetic.encoding import HIGHEST, LOWEST, Encoding, scales_for
from npuconv.arithmetic.layer import RoundedWeights, input_ratios
from npuconv.model import Model, Node, query
from npuconv.records import replace

METHOD, CENTRED = "kept", "kept range, zero point 0"
MOVED, NARROWED = "kept scale, zero point -128", "kept range, zero point -128"
METHODS = (METHOD, CENTRED, MOVED, NARROWED)  # methods of tensors with a range of the source
OFF_GRID = 0.01  # steps; float32 keeps integers times a scale nearer than this

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
    *,
    per_tensor: bool = False,
) -> tuple[dict[str, RoundedWeights], dict[str, str]]:
    """Return integer weights of the source for the layers that have kept them.

    Returns:
        Weights, and how they were rounded: ``METHOD``, with what symmetry costs, or a reason
        why they were not kept; both by node.
    """
    weights, notes = dict[str, RoundedWeights](), dict[str, str]()
    scales_of = model.source_scales.weights_of
    for conv in convs:
        stored_weights, values = scales_of(model.origin(conv)), query.constant_input(conv, 1)
        if stored_weights is None or values is None or not values.size:
            continue
        result = _integers(
            np.asarray(values, np.float64), stored_weights.astype(np.float64), per_tensor
        )
        if isinstance(result, str):
            notes[conv.name] = result
            continue
        integers, scales, loss = result
        source = encodings.get(conv.inputs[0].name)
        if source is not None and source.axis is not None:  # scales of a depthwise layer's inputs
            group = int(query.attribute(conv, "group", 1))
            scales = scales * input_ratios(source, values.shape, group).reshape(-1)
        bias = query.constant_input(conv, 2)
        real_bias = np.zeros(len(values)) if bias is None else bias
        numbers = (np.asarray(array, np.float32) for array in (scales, real_bias))
        weights[conv.name] = RoundedWeights(integers, *numbers)
        notes[conv.name] = METHOD if not loss else f"{METHOD}, {loss}"
    return weights, notes


def _integers(
    values: Doubles, scales: Doubles, per_tensor: bool
) -> tuple[NDArray[np.int8], Doubles, str] | str:
    """Return symmetric integers, their scales and the loss by symmetry, or the reason for none."""
    if per_tensor and np.unique(scales).size > 1:
        return "not kept: the target has one weight scale for a layer"
    rows = values.reshape(len(values), -1)
    fitting = []
    for sizes in _row_scales(scales, len(rows)):
        multiples = rows / sizes[:, None]
        if np.abs(multiples - np.rint(multiples)).max(initial=0.0) <= OFF_GRID:
            fitting.append(sizes)
    if not fitting:
        return "not kept: a rewrite has changed these weights"
    sizes = min(fitting, key=lambda candidate: np.abs(rows / candidate[:, None]).max(initial=0.0))
    integers = np.rint(rows / sizes[:, None])
    largest = np.abs(integers).max(axis=1, initial=0.0)
    wide = largest > HIGHEST
    if not wide.any():
        return integers.astype(np.int8).reshape(values.shape), sizes, ""
    growth = np.maximum((largest.max() if per_tensor else largest) / HIGHEST, 1.0)
    growth = np.broadcast_to(growth, len(rows)).astype(np.float64)
    symmetric, factors = _clip_or_widen(integers, growth, per_tensor=per_tensor)
    error = np.square((integers - symmetric * factors[:, None]) * sizes[:, None]).sum()
    loss = 10 * np.log10(np.square(rows).sum() / max(error, 1e-300))
    text = f"made symmetric: {wide.sum()} of {len(rows)} channels, {loss:.1f} dB"
    return symmetric.astype(np.int8).reshape(values.shape), sizes * factors, text


def _row_scales(scales: Doubles, rows: int) -> Iterator[Doubles]:
    """Yield the scales that the rows of a layer may have; only the weights show which.

    A layer may have some channels of the source's layer, or each channel several times in a row,
    as a ConvTranspose that is split by its kernel.
    """
    if rows % scales.size == 0:
        yield np.repeat(scales, rows // scales.size)
    for start in range(scales.size - rows + 1):
        yield scales[start : start + rows]


def _clip_or_widen(
    integers: Doubles, growth: Doubles, *, per_tensor: bool
) -> tuple[Doubles, Doubles]:
    """Clip wide integers, or make the step larger if that has less squared error.

    Args:
        integers: [M,K], some beyond 127.
        growth: factors [M] of the steps with which no integer is clipped.
        per_tensor: make one decision for all rows.

    Returns:
        Integers [M,K] within 127, and the factors [M].
    """
    clipped = np.clip(integers, -HIGHEST, HIGHEST)
    wider = np.clip(np.rint(integers / growth[:, None]), -HIGHEST, HIGHEST)
    clip_errors = np.square(integers - clipped).sum(axis=1)
    widen_errors = np.square(integers - wider * growth[:, None]).sum(axis=1)
    widens = widen_errors < clip_errors
    if per_tensor:
        widens = np.full(len(integers), widen_errors.sum() < clip_errors.sum())
    return np.where(widens[:, None], wider, clipped), np.where(widens, growth, 1.0)
