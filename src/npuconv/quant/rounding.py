"""Rounding weights with what they multiply in view.

Rounding a weight down is made up for by the weights that are rounded after it, as far as
their inputs go along with its input: E. Frantar et al., "GPTQ", ICLR 2023. The products
are uncentred, or partly so, so that an offset by rounding counts as the error it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from npuconv.errors import InternalError

Doubles = NDArray[np.float64]

LEAST_DAMP = 0.01  # of the mean square, added to all
_PANEL = 32  # columns after whose rounding those behind them hear of it
_NOISE = 1e-6  # of the largest product, what float32 leaves uncertain


def damping(length: int, count: int) -> float:
    """Share of the mean square to add: few windows promise more than they hold.

    Args:
        length: values of a window.
        count: windows that were seen.
    """
    return min(max(0.25 * length / max(count, 1), LEAST_DAMP), 1.0)


@dataclass(frozen=True)
class Compensation:
    """How the error of one weight is made up for by those that are rounded after it.

    Attributes:
        order: [G,K], the inputs in the order of rounding.
        factor: [G,K,K], upper triangular, ``U^T U`` the inverse of the products in that order.
    """

    order: NDArray[np.int64]
    factor: Doubles

    @property
    def left(self) -> Doubles:
        """[G,K], what of each input's square those after it cannot make up for."""
        ordered = 1.0 / np.square(np.diagonal(self.factor, axis1=1, axis2=2))
        result = np.empty_like(ordered)
        np.put_along_axis(result, self.order, ordered, axis=1)
        return result


def compensation(products: Doubles, damp: float) -> Compensation:
    """From the mean products of the inputs, those with the largest squares first.

    Args:
        products: [G,K,K], symmetric, not negative definite; finite.
        damp: share of the mean of the diagonal that is added to it.
    """
    diagonal = np.diagonal(products, axis1=1, axis2=2)
    order = np.argsort(-diagonal, axis=1, kind="stable")
    ordered = np.take_along_axis(products, order[:, :, None], axis=1)
    ordered = np.take_along_axis(ordered, order[:, None, :], axis=2)
    # In units of their own mean square: what is dead has none, and passes nothing on.
    mean = diagonal.mean(axis=1)
    unit = np.where(mean > 0, mean, 1.0)[:, None, None]
    # H = V V^T with V upper triangular is Cholesky's from the last row up; then U is 1/V.
    turned = _cholesky(ordered[:, ::-1, ::-1] / unit, np.full(len(unit), damp))
    factor = np.triu(np.linalg.inv(turned[:, ::-1, ::-1]))
    return Compensation(order, factor / np.sqrt(unit))


def _cholesky(products: Doubles, extra: Doubles) -> Doubles:
    """Of the products with ``extra`` [G] on the diagonal; more of it where that is too little.

    Of inputs that hardly change nothing but the noise of float32 may be left once the mean
    is taken off, and that can be negative.

    Raises:
        InternalError: the products are not finite, so that no more is ever enough.
    """
    if not np.isfinite(products).all():
        raise InternalError("the products of inputs are not finite", where="rounding")
    index, more = np.arange(products.shape[1]), np.abs(products).max(axis=(1, 2)) * _NOISE
    while True:
        damped = products.copy()
        damped[:, index, index] += extra[:, None]
        try:
            return np.asarray(np.linalg.cholesky(damped), np.float64)
        except np.linalg.LinAlgError:
            # Six times ten outweigh all there is; products of 0 have none to outweigh.
            extra = np.maximum(10 * np.abs(extra), np.where(more > 0, more, _NOISE))


def compensated(weight: Doubles, scales: Doubles, by: Compensation) -> tuple[Doubles, Doubles]:
    """Integers -127..127 for weights, each error passed on to the weights that follow.

    Args:
        weight: [G,M,K], M outputs of each of G groups.
        scales: [G,M], the size of a step.
        by: of the inputs.

    Returns:
        [G,M,K], whole numbers; and [G,M], the mean square of what each output loses by them,
        what was added to the products included.
    """
    order = by.order[:, :, None]
    laid = np.ascontiguousarray((weight / scales[:, :, None]).transpose(0, 2, 1))
    rows = np.take_along_axis(laid, order, axis=1)
    steps, lost = np.empty_like(rows), np.zeros(scales.shape)
    for start in range(0, rows.shape[1], _PANEL):
        lost += _panel(rows, steps, by.factor, start, min(start + _PANEL, rows.shape[1]))
    result = np.empty_like(steps)
    np.put_along_axis(result, np.broadcast_to(order, steps.shape), steps, axis=1)
    return result.transpose(0, 2, 1), lost * np.square(scales)


def _panel(rows: Doubles, steps: Doubles, factor: Doubles, start: int, stop: int) -> Doubles:
    """Round the inputs [G,K,M] of a panel one by one; then the rest hears of it at once.

    Returns:
        [G,M], squares of what could not be made up for, in steps.
    """
    errors = np.empty((len(rows), stop - start, rows.shape[2]))
    for k in range(start, stop):
        here = rows[:, k]
        np.rint(here, out=steps[:, k]).clip(-127, 127, out=steps[:, k])
        error = np.divide(here - steps[:, k], factor[:, k, k, None], out=errors[:, k - start])
        rows[:, k + 1 : stop] -= factor[:, k, k + 1 : stop, None] * error[:, None, :]
    if stop < rows.shape[1]:
        rows[:, stop:] -= factor[:, start:stop, stop:].transpose(0, 2, 1) @ errors
    return np.einsum("gkm,gkm->gm", errors, errors)
