"""Statistics of a float model on samples that a wrong normalization changes.

After training every channel has values on both sides of 0, by about its own spread: batch
normalization causes this, and without it a channel that never changes sign learns nothing.
The bias of the first layer is about as large as the output of the layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from npuconv.arithmetic.statistics import Statistics

_TINY = 1e-9


@dataclass(frozen=True)
class Behaviour:
    """Statistics of the outputs of all convolutions on the same samples.

    Attributes:
        balance: mean entropy, in bits, of whether values are above 0; layers count alike.
        offset: mean of ``log(1 + (mean / standard deviation) ** 2)``; likewise.
        level: rms of the means of the channels of the first layer.
        bias: rms of the first layer's biases, over the median standard deviation of what
            it puts out.
    """

    balance: float
    offset: float
    level: float
    bias: float


def behaviour(
    layers: Sequence[Statistics], first: Statistics, biases: NDArray[np.generic] | None
) -> Behaviour:
    """Compute the statistics of the outputs of the convolutions.

    Args:
        layers: what convolutions put out.
        first: that of the first of them.
        biases: of the first; None: it has none.
    """
    return Behaviour(
        balance=float(np.mean([_balance(layer) for layer in layers])),
        offset=float(np.mean([_offset(layer) for layer in layers])),
        level=_rms(first.means),
        bias=relative_bias(first, biases),
    )


def relative_bias(first: Statistics, biases: NDArray[np.generic] | None) -> float:
    """Rms of a layer's biases, over the median standard deviation of what it puts out."""
    spread = float(np.median(np.sqrt(first.variances)))
    return 0.0 if biases is None else _rms(biases) / max(spread, _TINY)


def _balance(layer: Statistics) -> float:
    share = np.clip((layer.values > 0).mean(axis=1), _TINY, 1 - _TINY)
    bits = -(share * np.log2(share) + (1 - share) * np.log2(1 - share))
    return float(bits.mean())


def _offset(layer: Statistics) -> float:
    variance = np.maximum(layer.variances, _TINY * np.maximum(layer.squares, _TINY))
    return float(np.mean(np.log1p(layer.means**2 / variance)))


def _rms(values: NDArray[np.generic]) -> float:
    return float(np.sqrt(np.mean(np.square(np.asarray(values, np.float64)))))
