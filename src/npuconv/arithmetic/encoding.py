"""Scale and zero point of every channel of a tensor, on a device that knows neither.

The device multiplies integers of one scale and of zero point 0. Channel c of a tensor may
still be ``scales[c] * (q - zeros[c])``: what reads the tensor has the scale in its weights
and the zero point in its bias, what makes it has the scale in the factor of its output
channel and the zero point in its bias. The device works with ``nominal``, one number for
all channels, of which only ratios matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from npuconv.arithmetic import qparams

LOWEST, HIGHEST = -128, 127
_TINY = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Encoding:
    """Int8 encoding of one tensor.

    Attributes:
        scales: float32 [C], above 0; C is 1 where all channels are alike.
        zeros: int32 [C], -128..127.
        nominal: the scale the device is told.
        axis: of the channels; None where C is 1.
    """

    scales: NDArray[np.float32]
    zeros: NDArray[np.int32]
    nominal: np.float32
    axis: int | None = None

    @classmethod
    def plain(cls, scale: float | np.float32) -> Encoding:
        """One scale, zero point 0."""
        value = np.float32(scale)
        return cls(np.full(1, value), np.zeros(1, np.int32), value)

    @property
    def is_plain(self) -> bool:
        """True if all channels have the nominal scale and zero point 0."""
        return bool(np.all(self.scales == self.nominal) and not self.zeros.any())

    def take(self, channels: Sequence[int]) -> Encoding:
        """Return the encoding of a tensor with these channels, in this order."""
        if self.axis is None:
            return self
        index = list(channels)
        return replace(self, scales=self.scales[index], zeros=self.zeros[index])

    def quantize(self, values: ArrayLike) -> NDArray[np.int8]:
        """The integers of a tensor."""
        return qparams.quantize(values, *self._arguments())

    def dequantize(self, stored: ArrayLike) -> NDArray[np.float32]:
        """The numbers that integers stand for."""
        return qparams.dequantize(stored, *self._arguments())

    def _arguments(self) -> tuple[NDArray[np.float32], NDArray[np.int32], int | None]:
        if self.axis is None:
            return self.scales[0], self.zeros[0], None
        return self.scales, self.zeros, self.axis


def scales_for(
    lows: ArrayLike, highs: ArrayLike, centred: ArrayLike
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Scales and zero points under which lows..highs, and 0, are stored without clipping.

    Args:
        lows: smallest values [C].
        highs: largest values [C].
        centred: where True [C], the zero point must be 0.

    Returns:
        float32 scales [C], never 0 or denormal, the smallest of the others where both ends
        are 0; int32 zeros [C].
    """
    low = np.minimum(np.asarray(lows, np.float64), 0)
    high = np.maximum(np.asarray(highs, np.float64), 0)
    fixed = np.asarray(centred, bool)
    spread = np.where(fixed, np.maximum(high / HIGHEST, low / LOWEST), (high - low) / 255)
    # A channel without values must not rule over the weights of the others.
    least = spread[spread > 0].min(initial=np.inf)
    idle = least if np.isfinite(least) else 1.0
    scales = np.maximum(np.where(spread > 0, spread, idle), _TINY).astype(np.float32)
    offsets = np.clip(np.rint(LOWEST - low / scales), LOWEST, HIGHEST)
    zeros = np.where(fixed, 0, offsets)
    return scales, zeros.astype(np.int32)
