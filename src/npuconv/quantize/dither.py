"""Integer layers whose copies are dithered: their mean is finer than any of them.

Copy j of k sees its input moved by part of a step, so that the k roundings of a value lie side
by side and their mean is a rounding to steps k times as fine. The weights of each copy make up
for what those before it have lost, and the outputs are moved like the inputs. What all copies
get wrong together is then 1/k of what one of them gets wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from npuconv.arithmetic.layer import RoundedWeights, per_weight, unfolded
from npuconv.quantize.rounding import nearest, solve

if TYPE_CHECKING:
    from npuconv.arithmetic.encoding import Encoding
    from npuconv.quantize.hessian import Hessian

Doubles = NDArray[np.float64]


def offsets(count: int) -> Doubles:
    """Return where the copies lie within a step: float64 [count], evenly spread around 0."""
    return (2 * np.arange(count) + 1 - count) / (2 * count)


def places(index: Sequence[int]) -> Doubles:
    """Return where within a step each channel lies, so that copies lie apart: float64 [C].

    Args:
        index: the source channel of each.
    """
    found, which = np.zeros(len(index)), np.asarray(index)
    for channel in set(index):
        own = np.flatnonzero(which == channel)
        found[own] = offsets(len(own))
    return found


def with_input_moved(
    rounded: RoundedWeights, source: Encoding, group: int, by: float | Doubles
) -> RoundedWeights:
    """Return the layer for an input that is larger by some steps, the bias made up for it.

    Where the device pads with 0, a border of the result keeps the difference; that of the
    copies, which are moved both ways, goes with their mean.

    Args:
        rounded: the layer.
        source: encoding of its input.
        group: of the convolution.
        by: steps, one number or one for each channel.
    """
    weight = real_weights(rounded, source, group)
    steps = per_weight(source.scales.astype(np.float64) * by, weight.shape, group)
    return _with_bias(rounded, -(weight * steps).reshape(len(weight), -1).sum(axis=1))


def with_output_moved(
    rounded: RoundedWeights, result: Encoding, by: float | Doubles
) -> RoundedWeights:
    """Return the layer with an output that is larger by some of its steps."""
    steps = np.broadcast_to(result.scales.astype(np.float64), rounded.bias.shape)
    return _with_bias(rounded, by * steps)


def _with_bias(rounded: RoundedWeights, extra: Doubles) -> RoundedWeights:
    return replace(rounded, bias=np.asarray(rounded.bias + extra, np.float32))


def real_weights(rounded: RoundedWeights, source: Encoding, group: int) -> Doubles:
    """Return the numbers that integer weights stand for, in the shape of the weights."""
    scales = rounded.scales.astype(np.float64).reshape(-1, *[1] * (rounded.weight.ndim - 1))
    return unfolded(rounded.weight * scales, source, group).astype(np.float64)


def copies(
    weight: NDArray[np.float32],
    bias: NDArray[np.float32] | None,
    source: Encoding,
    hessian: Hessian,
    count: int,
    first: RoundedWeights | None = None,
) -> list[RoundedWeights]:
    """Return weights and biases of every copy; their sums are near ``count`` times the given ones.

    Args:
        weight: float [M,C/g,...].
        bias: float [M] or None.
        source: encoding of the input.
        hessian: of the windows of the input.
        count: how many copies.
        first: what the layer had when it was alone; None: rounded to nearest.
    """
    group, zeros = hessian.groups, np.zeros(len(weight), np.float32)
    own = zeros if bias is None else np.asarray(bias, np.float32)
    found = [first or nearest(weight, own, source, group)]
    for number in range(2, count + 1):
        lacking = number * weight - sum(real_weights(r, source, group) for r in found)
        rest = number * own - sum(r.bias for r in found)
        target = np.asarray(lacking, np.float32), np.asarray(rest, np.float32)
        solved, _ = solve(*target, source, hessian)
        found.append(solved or nearest(*target, source, group))
    return found
