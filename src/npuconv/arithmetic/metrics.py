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
        self._samples = 0
        self._signal = 0.0
        self._noise = 0.0
        self._power = 0.0
        self._dot = 0.0
        self._agreed = 0
        self.positions = 0

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
            self._signal += _product(f, f)
            self._noise += _product(error, error)
            self._power += _product(q, q)
            self._dot += _product(f, q)
        return f, q, error

    def add_sums(self, tensor: ErrorStats) -> None:
        """Add the errors of another tensor, without its classes."""
        self._samples += tensor._samples
        self._signal += tensor._signal
        self._noise += tensor._noise
        self._power += tensor._power
        self._dot += tensor._dot

    @property
    def sqnr_db(self) -> float | None:
        """Signal to noise ratio of all samples, ``10 log10(sum f^2 / sum (f - q)^2)``, in decibels.

        ``math.inf`` if both are equal, ``-math.inf`` if only the results are not finite, None
        without samples and where the ratio means nothing: the reference is all zeros (and the
        result is not), or is not finite itself.
        """
        if not self._samples or not math.isfinite(self._signal):
            return None
        if self._noise == 0:
            return math.inf
        if not math.isfinite(self._noise):
            return -math.inf
        return 10 * math.log10(self._signal / self._noise) if self._signal else None

    @property
    def cosine(self) -> float | None:
        """Cosine of the angle between both; None if a tensor is all zeros or not finite."""
        norm = math.sqrt(self._signal) * math.sqrt(self._power)
        return self._dot / norm if norm > 0 and math.isfinite(norm) else None

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


def _product(a: Doubles, b: Doubles) -> float:
    """Return the sum of products; a product of BLAS would depend on the number of threads."""
    return float(np.einsum("i,i->", a, b))


def rounded(value: float | None, digits: int) -> float | None:
    """Round a number for the report; None where it is not finite."""
    return None if value is None or not math.isfinite(value) else round(value, digits)
