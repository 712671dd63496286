"""All roundings of a conversion at once, in the float model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from npuconv import executor
from npuconv.calibration.workers import in_order
from npuconv.tuning.noise.gated import rounded

if TYPE_CHECKING:
    import onnx

    from npuconv.samples import Feed
    from npuconv.tuning.noise.gated import Rounding

Values = Mapping[str, object]  # of one sample, by output


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

    def first(self, count: int) -> Noise:
        """Of the first samples only, without the signal, which is not known of each."""
        return Noise(sum(self.each[:count]), 0.0, self.each[:count])

    def plus(self, more: Noise, less: Noise) -> Noise:
        """With what there is more of in ``more`` than in ``less``, sample by sample."""
        parts = zip(self.each, more.each, less.each, strict=True)
        each = tuple(own + max(a - b, 0.0) for own, a, b in parts)
        return Noise(sum(each), self.signal, each)

    def left(self, before: Noise) -> float:
        """What is left of the noise: in most samples, and in all of them together."""
        if not before.noise:
            return 1.0
        return math.sqrt(self.ratio(before) * self.noise / before.noise)

    def is_mostly_less(self, before: Noise) -> bool:
        """Whether there is less of it in more than half of the samples."""
        less = sum(own < old for own, old in zip(self.each, before.each, strict=True))
        return 2 * less > len(self.each)

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


class Judge:
    """Says what roundings do to the outputs; the exact ones are worked out once.

    Args:
        model: the legal float model.
        feeds: complete inputs.

    Attributes:
        model: as given.
        feeds: as given.
    """

    def __init__(self, model: onnx.ModelProto, feeds: Iterable[Feed]) -> None:
        self.model, self.feeds = model, list(feeds)
        self._exact: list[Values] = []

    def of(self, model: onnx.ModelProto) -> Judge:
        """The same of a model that computes the same, with the same outputs."""
        other = Judge(model, self.feeds)
        other._exact = self._exact  # what is known of it now
        return other

    def exact(self) -> list[Values]:
        """The outputs of every feed, nothing rounded."""
        self._exact = self._exact or list(self._run(self.model))
        return self._exact

    def noise(self, roundings: Sequence[Rounding], model: onnx.ModelProto | None = None) -> Noise:
        """What these do together.

        Args:
            roundings: all of a conversion.
            model: what they are done in, where it computes the same otherwise; with the same
                outputs.
        """
        twin = rounded(self.model if model is None else model, roundings)
        each = [sums(*pair) for pair in zip(self.exact(), self._run(twin), strict=True)]
        noises = tuple(noise for noise, _ in each)
        return Noise(sum(noises), sum(signal for _, signal in each), noises)

    def _run(self, model: onnx.ModelProto) -> Iterator[Values]:
        session = executor.Session(model, threads=1, fuse_int8=False)
        return in_order(session.run, self.feeds)


def sums(exact: Values, rounded: Values) -> tuple[float, float]:
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
