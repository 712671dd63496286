"""All roundings of a conversion at once, in the gated float model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from npuconv import executor
from npuconv.tuning.gated import GATES, gated

if TYPE_CHECKING:
    import onnx

    from npuconv.tuning.gated import Rounding
    from npuconv.tuning.probe import Feed


@dataclass(frozen=True)
class Noise:
    """Sums of squares over all outputs and samples.

    Attributes:
        noise: of the errors.
        signal: of the exact values.
        each: the noise of every sample.
    """

    noise: float
    signal: float
    each: tuple[float, ...] = ()

    @property
    def sqnr_db(self) -> float | None:
        """Signal to noise, dB; None where either is nothing."""
        if self.noise <= 0 or self.signal <= 0:
            return None
        return 10 * math.log10(self.signal / self.noise)

    def ratio(self, before: Noise) -> float:
        """What is left of the noise there was before, in most samples: a geometric mean.

        Where a class tips over in one sample, it decides the sum, and tells nothing.
        """
        pairs = [(a, b) for a, b in zip(self.each, before.each, strict=True) if a > 0 and b > 0]
        if not pairs:
            return self.noise / before.noise if before.noise else 1.0
        return math.exp(sum(math.log(a / b) for a, b in pairs) / len(pairs))


def whole_noise(
    model: onnx.ModelProto, roundings: Sequence[Rounding], feeds: Iterable[Feed]
) -> Noise:
    """What all roundings together do to the outputs.

    Args:
        model: the legal float model.
        roundings: all of them.
        feeds: complete inputs.
    """
    session = executor.Session(gated(model, roundings))
    closed, opened = (np.full(len(roundings), v, np.float32) for v in (0, 1))
    each = [
        _sums(session.run({**feed, GATES: closed}), session.run({**feed, GATES: opened}))
        for feed in feeds
    ]
    noises = tuple(noise for noise, _ in each)
    return Noise(sum(noises), sum(signal for _, signal in each), noises)


def _sums(exact: Mapping[str, object], rounded: Mapping[str, object]) -> tuple[float, float]:
    """Noise and signal of one sample."""
    noise = signal = 0.0
    for name, values in exact.items():
        old, new = _numbers(values), _numbers(rounded[name])
        if old.size == new.size:  # not as many boxes as each happens to find
            noise += float(np.square(new - old).sum())
            signal += float(np.square(old).sum())
    return noise, signal


def _numbers(values: object) -> np.ndarray:
    """Flat, with what is not finite as 0; nothing where it is no array of numbers."""
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "fiub":
        return np.zeros(0)
    flat = values.reshape(-1).astype(np.float64)
    return np.nan_to_num(flat, nan=0.0, posinf=0.0, neginf=0.0)
