"""What is cut off of a sample where ranges are made of all the others.

As much will be cut off of samples that nobody has seen yet. It is leave-one-out
cross-validation (M. Stone, 1974), of ranges: the sample that has the largest value of a channel
is given the range that the second largest would have made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from npuconv.calibration.workers import in_order
from npuconv.quant.encoding import HIGHEST, LOWEST

if TYPE_CHECKING:
    from npuconv.calibration.reaches import Reach
    from npuconv.quant.encoding import Encoding
    from npuconv.samples import Feed
    from npuconv.tuning.noise.clipping import Bounds, Clipping
    from npuconv.tuning.noise.whole import Values

    Doubles = NDArray[np.float64]
    Floating = NDArray[np.floating]

_SAME = 1 - 1e-5  # of a value that was seen in two runs
_LEAST = 1e-4  # of a channel's range: what others show of it is no less


@dataclass(frozen=True)
class LeftOut:
    """Ranges of one tensor, as each of the samples would have them without its help.

    Attributes:
        encoding: of the tensor, made of all samples.
        reach: how far each of these reaches.
        lows: float [C], how far all samples reach that ranges were made of, not only these.
        highs: the same above.
        foreign: how much of a channel's range is not its own, but that of others of its family,
            0..1 [C]: that stays.
    """

    encoding: Encoding
    reach: Reach
    lows: Floating
    highs: Floating
    foreign: Doubles

    def bounds(self, sample: int, factor: float) -> Bounds:
        """Where the tensor of a sample is cut off, if all ranges are so many times as large."""
        scales = self.encoding.scales.astype(np.float64) * factor
        zeros = self.encoding.zeros
        below, above = (-self.reach.lows, -self.lows), (self.reach.highs, self.highs)
        # Of a zero point 0, either end makes the other.
        both = np.maximum(below[0], above[0]), np.maximum(below[1], above[1])
        either = self._share(*both, sample)
        shares = (np.where(zeros == 0, either, self._share(*own, sample)) for own in (below, above))
        ends = ((end - zeros) * scales for end in (LOWEST, HIGHEST))
        low, high = (np.asarray(e * s, np.float32) for e, s in zip(ends, shares, strict=True))
        return low, high

    def _share(self, reach: Floating, farthest: Floating, sample: int) -> Doubles:
        """What is left of a range [C] made of how far samples reach [samples, C]."""
        first, own = np.maximum(farthest, reach.max(axis=0)), reach[sample]
        others = np.delete(reach, sample, axis=0).max(axis=0, initial=0.0)
        is_farthest = (own > others) & (own >= first * _SAME)
        left = np.where(is_farthest, others / np.where(first > 0, first, 1.0), 1.0)
        return np.asarray(np.maximum(left, _LEAST) ** (1 - self.foreign), np.float64)


@dataclass
class Losses:
    """What samples lose by that, of any tensors together.

    Attributes:
        clipping: the model.
        feeds: complete inputs.
        exact: the outputs that they have.
        left_out: by tensor.
        parts: names of tensors, by number; what shares its scales is one part.
        some: numbers of the samples that are looked at.
    """

    clipping: Clipping
    feeds: Sequence[Feed]
    exact: Sequence[Values]
    left_out: Mapping[str, LeftOut]
    parts: Sequence[Sequence[str]]
    some: Sequence[int]

    def of(self, parts: Sequence[int | Sequence[int]], factor: float = 1.0) -> NDArray[np.float64]:
        """The noise of these in each of the samples, float64 [parts, samples].

        Args:
            parts: numbers; several at once where a sequence stands for one.
            factor: of their ranges.

        Raises:
            RuntimeRefusedError: a node fails.
        """
        names = [
            [
                name
                for number in ([one] if isinstance(one, int) else one)
                for name in self.parts[number]
            ]
            for one in parts
        ]
        columns = [self._of(sample, names, factor) for sample in self.some]
        return np.stack(columns, axis=1)

    def _of(self, sample: int, names: Sequence[Sequence[str]], factor: float) -> Doubles:
        bounds = (
            {name: self.left_out[name].bounds(sample, factor) for name in some} for some in names
        )
        noise = partial(self.clipping.noise, self.feeds[sample], self.exact[sample])
        return np.fromiter(in_order(noise, bounds), np.float64, len(names))
