"""Windows of a convolution, as numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray


def im2col(
    values: NDArray[Any],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
) -> NDArray[Any]:
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
    reaches = ((size - 1) * step for size, step in zip(kernel, dilations, strict=True))
    positions = [
        max(-(-(extent - reach) // stride), 0)
        for extent, reach, stride in zip(padded.shape[2:], reaches, strides, strict=True)
    ]
    bytes_by_axis = padded.strides[2:]
    steps = [n * step for n, step in zip(bytes_by_axis * 2, (*strides, *dilations), strict=True)]
    shape = (*values.shape[:2], *positions, *kernel)
    return as_strided(padded, shape, (*padded.strides[:2], *steps), writeable=False)
