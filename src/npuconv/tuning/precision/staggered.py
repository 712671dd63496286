"""Weights of a strand some of whose channels are made several times.

The copies of a channel lie a share of a step apart, so that their roundings do too, and their
mean is as fine as smaller steps. The bias of what makes them moves them there, that of what
reads them takes it back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from npuconv.plan.levels import parameters
from npuconv.quant.layer import Rounded
from npuconv.tuning.precision.copies import copies, lifted, nearest, offsets, shifted
from npuconv.tuning.weights.rounding import solve

if TYPE_CHECKING:
    from npuconv.model.types import Node
    from npuconv.plan.strands import Strand
    from npuconv.quant.encoding import Encoding
    from npuconv.quant.moments import Moments
    from npuconv.tuning.noise.gated import Rounding

    Doubles = NDArray[np.float64]

Lift = NDArray[np.float64]  # of every channel


@dataclass(frozen=True)
class Staggered:
    """A strand in integers.

    Attributes:
        rounded: weights and bias of its convolutions, by node name.
        lifts: what that adds to the bias of each, beside making up for rounding, float64 [M].
        shifts: by tensor, how much more its channels are than in float, float64 [C].
    """

    rounded: Mapping[str, Rounded] = field(default_factory=dict)
    lifts: Mapping[str, Lift] = field(default_factory=dict)
    shifts: Mapping[str, Doubles] = field(default_factory=dict)

    def one_by_one(self, every: Sequence[Rounding]) -> list[Rounding]:
        """The same roundings, each as it is where all others are left out.

        The bias of a layer moves what another rounding rounds. Without the one the other
        would round all copies of a channel alike.
        """
        return [self._alone(rounding) for rounding in every]

    def _alone(self, rounding: Rounding) -> Rounding:
        layer, tensor = rounding.gate.layer, rounding.gate.tensor
        if rounding.gate.kind != "weights" and tensor in self.shifts:
            return replace(rounding, shift=self.shifts[tensor].astype(np.float32))
        if rounding.constants is not None and layer in self.lifts:
            bias = (rounding.constants[2] - self.lifts[layer]).astype(np.float32)
            return replace(rounding, constants={**rounding.constants, 2: bias})
        return rounding


def staggered(
    strand: Strand,
    index: Sequence[int],
    encodings: Mapping[str, Encoding],
    moments: Mapping[str, Moments],
    known: Staggered,
) -> Staggered:
    """Round the convolutions of a strand.

    Args:
        strand: of the model in which its channels are what the index says.
        index: the channel that each of them is, [C]; its own, or another that is made again.
        encodings: of every tensor there.
        moments: of the windows of every convolution there.
        known: what there was before; weights of channels that are not copies stay.

    Returns:
        All of ``known``, with what is new.
    """
    apart, rounded, lifts = _apart(strand, index), dict(known.rounded), dict(known.lifts)
    shifts = {t: by * encodings[t].scales.astype(np.float64) for t, by in apart.items()}
    for conv in (*strand.makers, *strand.readers):
        source, result = conv.inputs[0].name, conv.outputs[0].name
        mixes, lift = result not in apart, lifts.get(conv.name, np.zeros(1))
        if not mixes and lift.size > 1:
            lift = lift[list(index)]  # rows are in their new order
        layer = _layer(conv, lift, encodings[source], moments[conv.name])
        own = layer.mixed() if mixes else layer.repeated(index, rounded.get(conv.name))
        moved = own
        if source in apart:
            moved = shifted(moved, encodings[source], layer.moments.groups, apart[source])
        if result in apart:
            moved = lifted(moved, encodings[result], apart[result])
        rounded[conv.name] = moved
        lifts[conv.name] = lift + moved.bias.astype(np.float64) - own.bias
    return Staggered(rounded, lifts, {**known.shifts, **shifts})


def _layer(conv: Node, lift: Lift, source: Encoding, moments: Moments) -> _Layer:
    weight, bias = parameters(conv)
    return _Layer(weight.astype(np.float32), (bias + lift).astype(np.float32), source, moments)


def places(index: Sequence[int]) -> Doubles:
    """Where within a step each of these channels lies, so that copies lie apart: float64 [C]."""
    found, which = np.zeros(len(index)), np.asarray(index)
    for channel in set(index):
        own = np.flatnonzero(which == channel)
        found[own] = offsets(len(own))
    return found


def _apart(strand: Strand, index: Sequence[int]) -> dict[str, Doubles]:
    """Where the channels of each tensor lie within a step."""
    found = {strand.tensor.name: places(index)}
    for node in strand.between:
        turn = -1 if node.op == "Conv" else 1  # so that errors of two layers do not add up
        found[node.outputs[0].name] = turn * found[node.inputs[0].name]
    return found


@dataclass(frozen=True)
class _Layer:
    """A convolution of a strand."""

    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    source: Encoding
    moments: Moments

    def mixed(self) -> Rounded:
        """It reads copies, which is news to all of its weights."""
        solved, _ = solve(self.weight, self.bias, self.source, self.moments)
        return solved or nearest(self.weight, self.bias, self.source, 1)

    def repeated(self, index: Sequence[int], known: Rounded | None) -> Rounded:
        """The rows of a channel make up for what each of them loses in rounding."""
        group, which = self.moments.groups, np.asarray(index)
        first = known or nearest(self.weight, self.bias, self.source, group)
        weight, scales, bias = first.weight.copy(), first.scales.copy(), first.bias.copy()
        for count, channels in _by_count(index).items():
            rows = [np.flatnonzero(which == channel) for channel in channels]
            alone = Rounded(weight[channels], scales[channels], bias[channels])
            for number, one in enumerate(self._copies(channels, count, alone)):
                own = [row[number] for row in rows]
                weight[own], scales[own], bias[own] = one.weight, one.scales, one.bias
        return Rounded(weight, scales, bias)

    def _copies(self, channels: list[int], count: int, first: Rounded) -> list[Rounded]:
        weight, bias = self.weight[channels], self.bias[channels]
        if self.moments.groups == 1:
            return copies(weight, bias, self.source, self.moments, 1, count, [first])
        seen, source = self.moments.take(channels), self.source.take(channels)
        return copies(weight, bias, source, seen, len(channels), count, [first])


def _by_count(index: Sequence[int]) -> dict[int, list[int]]:
    """Channels that are made several times, by how often."""
    found: dict[int, list[int]] = {}
    for channel, times in sorted(Counter(index).items()):
        if times > 1:
            found.setdefault(times, []).append(channel)
    return found
