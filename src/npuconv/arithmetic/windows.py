"""Windows of a convolution, as numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def im2col(
    values: NDArray[np.float32],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
) -> NDArray[np.float32]:
    """Return a view of all windows of a convolution.

    Args:
        values: [N,C,...].
        kernel: extents of the kernel by spatial axis, as are strides and dilations.
        strides: steps between positions.
        dilations: steps between values of a window.
        pads: zeros before all spatial axes, then behind them.

    Returns:
        [N,C,*positions,*kernel]; no positions where the kernel is larger than the padded values.
    """
    rank = len(kernel)
    padded = values
    if any(pads):  # np.pad takes twice as long
        sides = list(zip(values.shape[2:], pads[:rank], pads[rank:], strict=True))
        padded = np.zeros((*values.shape[:2], *map(sum, sides)), values.dtype)
        inside = (slice(first, first + n) for n, first, _ in sides)
        padded[(slice(None), slice(None), *inside)] = values
    reaches = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]
    if any(n < reach for n, reach in zip(padded.shape[2:], reaches, strict=True)):
        return np.zeros((*values.shape[:2], *[0] * rank, *kernel), np.float32)
    spatial = tuple(range(2, 2 + rank))
    views = np.lib.stride_tricks.sliding_window_view(padded, reaches, axis=spatial)
    everything = slice(None)
    steps = (slice(None, None, step) for step in (*strides, *dilations))
    return views[(everything, everything, *steps)]
