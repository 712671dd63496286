"""Error of one tensor against another."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from npuconv.errors import ModelError

Doubles = NDArray[np.float64]


class ErrorStats:
    """Error of a tensor over many samples, accumulated in float64 sums.

    Args:
        class_axis: axis along which the largest value is the class, where that is known.

    Attributes:
        positions: number of positions that ``top1_agreement`` is a share of.
    """

    def __init__(self, class_axis: int | None = None) -> None:
        self._class_axis = class_axis
        # Sums of the squares of the reference, of the error, of the result; of reference x result.
        self._sums = np.zeros(4)
        self._samples = self._agreed = self.positions = 0

    def accumulate(self, reference: ArrayLike, result: ArrayLike) -> tuple[Doubles, ...]:
        """Add one sample: two numeric arrays of the same size; ``reference`` gives the shape.

        Returns:
            Both arrays and their difference, float64 [N].

        Raises:
            ModelError: the sizes differ.
        """
        f = np.asarray(reference, np.float64)
        q = np.asarray(result, np.float64)
        if f.size != q.size:
            raise ModelError(f"tensors of shapes {f.shape} and {q.shape} cannot be compared")
        self._samples += 1
        classes, answers = self._classes_last(f), self._classes_last(q.reshape(f.shape))
        if classes.ndim and classes.size and classes.shape[-1] > 1:
            agreement = classes.argmax(-1) == answers.argmax(-1)
            self._agreed += int(np.sum(agreement))
            self.positions += int(np.size(agreement))
        f, q = f.reshape(-1), q.reshape(-1)
        with np.errstate(invalid="ignore", over="ignore"):
            error = f - q
            pairs = ((f, f), (error, error), (q, q), (f, q))
            # The sum of products of BLAS would depend on the number of threads.
            self._sums += [np.einsum("i,i->", a, b) for a, b in pairs]
        return f, q, error

    def add_sums(self, tensor: ErrorStats) -> None:
        """Add the errors of another tensor, without its classes."""
        self._samples += tensor._samples
        self._sums += tensor._sums

    @property
    def sqnr_db(self) -> float | None:
        """Signal to noise ratio of all samples, ``10 log10(sum f^2 / sum (f - q)^2)``, in decibels.

        ``math.inf`` if both are equal, ``-math.inf`` if only the results are not finite, None
        without samples and where the ratio means nothing: the reference is all zeros (and the
        result is not), or is not finite itself.
        """
        signal, noise, *_ = self._sums.tolist()
        if not self._samples or not math.isfinite(signal):
            return None
        if noise == 0:
            return math.inf
        if not math.isfinite(noise):
            return -math.inf
        return 10 * math.log10(signal / noise) if signal else None

    @property
    def cosine(self) -> float | None:
        """Cosine of the angle between both; None if a tensor is all zeros or not finite."""
        signal, _, power, dot = self._sums.tolist()
        norm = math.sqrt(signal) * math.sqrt(power)
        return dot / norm if norm > 0 and math.isfinite(norm) else None

    @property
    def top1_agreement(self) -> float | None:
        """Share of positions where the largest class is the same.

        Without a given class axis it is axis 1 of [N,C] and [N,C,1,1]. None for
        anything else, such as the boxes of a detector or the scores [N,boxes,1] of one class,
        and where the axis has length 1.
        """
        return self._agreed / self.positions if self.positions else None

    def _classes_last(self, values: Doubles) -> Doubles:
        """Return the values with the class axis last; no values where that axis is not known."""
        axis = self._class_axis
        if axis is not None:
            fits = -values.ndim <= axis < values.ndim
            return np.moveaxis(values, axis, -1) if fits else np.zeros(0)
        if values.ndim == 4 and values.shape[2:] == (1, 1):
            values = values[..., 0, 0]
        return values if values.ndim <= 2 else np.zeros(0)


def rounded(value: float | None, digits: int) -> float | None:
    """Round a number for the report; None where it is not finite."""
    return None if value is None or not math.isfinite(value) else round(value, digits)
