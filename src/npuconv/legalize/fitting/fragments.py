"""Convolutions that have weights of one that was fitted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from npuconv.legalize.fitting.layer import Layer


@dataclass(frozen=True)
class Whole:
    """A convolution before it was fitted."""

    name: str  # of its node, which is gone
    source: str  # name of the tensor it read
    layer: Layer


@dataclass(frozen=True)
class Fragment:
    """A convolution that has weights of another one."""

    whole: Whole
    # In the shape of its own weights: where each of them is among those of the whole, counted
    # through all axes; -1 where there is a zero.
    places: NDArray[np.int64]
    biased: bool  # whether it adds the bias of the whole to the outputs that it makes
    summed: bool = False  # whether its outputs are added to those of others
    host_padded: bool = False  # whether the host pads what it reads, so that any zero point will do

    @property
    def needs_zero(self) -> bool:
        """Return whether it stands for a convolution that pads with stored zeros."""
        return self.whole.layer.padded and not self.host_padded

    def channels(self) -> NDArray[np.int64]:
        """Return the input channel of the whole that each weight reads; -1 for zeros between."""
        layer = self.whole.layer
        rows, inner = np.divmod(self.places, math.prod(layer.weight[1:]))
        column = inner // math.prod(layer.kernel)
        found = rows // (layer.weight[0] // layer.group) * layer.weight[1] + column
        return np.where(self.places < 0, -1, found)
