"""A convolution as several, whose mean is finer than any of them.

Copy j of k sees its input moved by a share of a step, so that the k roundings of a value
lie side by side and their mean is a rounding to steps k times as fine. The weights of each
copy make up for what those before it have lost, and the outputs are moved like the inputs.
What all copies get wrong together is then 1/k of what one of them gets wrong.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from npuconv.quant.layer import Rounded, folded, per_weight, unfolded
from npuconv.quant.qparams import quantize_weights
from npuconv.tuning.weights.rounding import solve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from npuconv.quant.encoding import Encoding
    from npuconv.quant.moments import Moments

    Doubles = NDArray[np.float64]


def offsets(count: int) -> Doubles:
    """Where the copies lie within a step: float64 [count], evenly spread around 0."""
    return (2 * np.arange(count) + 1 - count) / (2 * count)


def shifted(rounded: Rounded, source: Encoding, group: int, by: float | Doubles) -> Rounded:
    """The same layer for an input that is larger by some of its steps, bias made up for it.

    All channels by as much, or each by its own.

    Where the device pads with 0, a border of the result keeps the difference; that of the
    copies, which are shifted both ways, goes with their mean.
    """
    weight = real(rounded, source, group)
    steps = per_weight(source.scales.astype(np.float64) * by, weight.shape, group)
    return _with_bias(rounded, -(weight * steps).reshape(len(weight), -1).sum(axis=1))


def lifted(rounded: Rounded, result: Encoding, by: float | Doubles) -> Rounded:
    """The same layer with an output that is larger by some of its steps."""
    steps = np.broadcast_to(result.scales.astype(np.float64), rounded.bias.shape)
    return _with_bias(rounded, by * steps)


def _with_bias(rounded: Rounded, extra: Doubles) -> Rounded:
    return replace(rounded, bias=np.asarray(rounded.bias + extra, np.float32))


def real(rounded: Rounded, source: Encoding, group: int) -> Doubles:
    """The numbers that rounded weights stand for, in the shape of the weights."""
    scales = rounded.scales.astype(np.float64).reshape(-1, *[1] * (rounded.weight.ndim - 1))
    return unfolded(rounded.weight * scales, source, group).astype(np.float64)


def copies(
    weight: NDArray[np.float32],
    bias: NDArray[np.float32] | None,
    source: Encoding,
    moments: Moments,
    group: int,
    count: int,
    known: Sequence[Rounded] = (),
) -> list[Rounded]:
    """Weights and biases of every copy; their sums are near ``count`` times the given ones.

    Args:
        weight: float [M,C/g,...].
        bias: float [M] or None.
        source: encoding of the input.
        moments: of the windows of the input.
        group: of the convolution.
        count: how many copies.
        known: the first of them: what the layer had when it was alone, and copies made before,
            which do not depend on how many follow.
    """
    zeros = np.zeros(len(weight), np.float32)
    own = zeros if bias is None else np.asarray(bias, np.float32)
    found = list(known[:count]) or [nearest(weight, own, source, group)]
    for number in range(len(found) + 1, count + 1):
        lacking = number * weight - sum(real(r, source, group) for r in found)
        rest = number * own - sum(r.bias for r in found)
        target = np.asarray(lacking, np.float32), np.asarray(rest, np.float32)
        solved, _ = solve(*target, source, moments)
        found.append(solved or nearest(*target, source, group))
    return found


def nearest(
    weight: NDArray[np.float32], bias: NDArray[np.float32], source: Encoding, group: int
) -> Rounded:
    """Weights rounded to the nearest step of each output channel."""
    steps, scales = quantize_weights(folded(weight, source, group))
    return Rounded(steps, scales, bias)
