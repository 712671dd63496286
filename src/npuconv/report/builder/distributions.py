"""Distributions of values over the int8 levels, and ranges by channel, for the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npuconv.arithmetic.encoding import HIGHEST, LOWEST
from npuconv.schemas import report as schema

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npuconv.arithmetic.encoding import Encoding

LEVELS_PER_BIN = schema.LEVELS_PER_BIN
MAX_VALUES = 2**16  # of a tensor that are counted; a picture of 32 bins needs no more
MAX_CHANNELS = 16  # of a tensor whose ranges are listed
_DIGITS = 4  # of a range that is only drawn


def level_histogram(levels: NDArray[np.float32]) -> tuple[int, ...]:
    """Count values by the int8 level that they round to.

    Args:
        levels: values in steps of int8, zero point added, before rounding; any shape.

    Returns:
        34 counts: values below -128, then of 8 levels each from -128 to 127, then above 127.
        At most ``MAX_VALUES`` evenly spaced values are counted; those not finite are not.
    """
    flat = levels.reshape(-1)
    some = flat[:: max(1, -(-flat.size // MAX_VALUES))]
    rounded = np.rint(some[np.isfinite(some)]).clip(LOWEST - 1, HIGHEST + 1)
    bins = (HIGHEST - LOWEST + 1) // LEVELS_PER_BIN
    at = np.floor((rounded - LOWEST) / LEVELS_PER_BIN).astype(np.int64) + 1
    return tuple(int(n) for n in np.bincount(at.clip(0, bins + 1), minlength=bins + 2))


def tensor_levels(values: NDArray[np.float32], encoding: Encoding) -> NDArray[np.float32]:
    """Return values [C, P] in steps of int8, zero point added, before rounding."""
    step = max(1, -(-values.size // MAX_VALUES))
    scales, zeros = encoding.scales.reshape(-1, 1), encoding.zeros.reshape(-1, 1)
    return np.asarray(values[:, ::step] / scales + zeros, np.float32)


def channel_ranges(
    lows: NDArray[np.float32], highs: NDArray[np.float32], encoding: Encoding
) -> tuple[schema.ChannelRange, ...]:
    """List the ranges of channels, the widest first.

    Args:
        lows: float32 [C], smallest value observed.
        highs: float32 [C], largest value observed.
        encoding: of the tensor, with one scale or C.

    Returns:
        At most ``MAX_CHANNELS`` channels, evenly spaced in the order of their width; the
        widest and the narrowest are among them. Empty for a tensor of one channel.
    """
    if len(lows) < 2:
        return ()
    order = np.argsort(lows - highs, kind="stable")
    places = np.linspace(0, len(order) - 1, min(len(order), MAX_CHANNELS))
    lowest = np.broadcast_to(encoding.scales * (LOWEST - encoding.zeros), lows.shape)
    highest = np.broadcast_to(encoding.scales * (HIGHEST - encoding.zeros), lows.shape)
    return tuple(
        schema.ChannelRange(
            channel=int(at),
            minimum=_rounded(lows[at]),
            maximum=_rounded(highs[at]),
            lowest=_rounded(lowest[at]),
            highest=_rounded(highest[at]),
        )
        for at in order[np.rint(places).astype(np.int64)]
    )


def _rounded(value: np.float32) -> float:
    return float(f"{float(value):.{_DIGITS}g}")
