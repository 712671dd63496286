"""Second-order rounding of weights (GPTQ).

Rounding a weight down is made up for by the weights that are rounded after it, as far as
their inputs go along with its input: E. Frantar et al., "GPTQ", ICLR 2023. The products of
the inputs are uncentred, so that an offset by rounding counts as the error it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from npuconv.errors import InternalError
from npuconv.quantize.settings import ROUNDING

Doubles = NDArray[np.float64]
_UNCERTAIN = 1e-6  # of the largest product, what float32 leaves uncertain


def damping(length: int, count: int) -> float:
    """Return the share of the mean square to add: few windows promise more than they hold.

    Args:
        length: values of a window.
        count: windows that were seen.
    """
    return min(max(0.25 * length / max(count, 1), ROUNDING.damping), 1.0)


@dataclass(frozen=True)
class Factor:
    """Factor that passes the error of one weight on to those that are rounded after it.

    Attributes:
        order: [G,K], the inputs in the order of rounding.
        upper: [G,K,K], upper triangular, ``U' U`` the inverse of the products in that order.
    """

    order: NDArray[np.int64]
    upper: Doubles


def factorize(products: Doubles, damp: float) -> Factor:
    """Factorize the mean products of the inputs, those with the largest squares first.

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
    # H = V V' with V upper triangular is Cholesky's from the last row up; then U is 1/V.
    turned = _cholesky(ordered[:, ::-1, ::-1] / unit, np.full(len(unit), damp))
    upper = np.triu(np.linalg.inv(turned[:, ::-1, ::-1]))
    return Factor(order, upper / np.sqrt(unit))


def _cholesky(products: Doubles, extra: Doubles) -> Doubles:
    """Decompose the products with ``extra`` [G] on the diagonal, more where that is too little.

    Raises:
        InternalError: the products are not finite, so that no more is ever enough.
    """
    if not np.isfinite(products).all():
        raise InternalError("the products of inputs are not finite", where="rounding")
    index, more = np.arange(products.shape[1]), np.abs(products).max(axis=(1, 2)) * _UNCERTAIN
    while True:
        damped = products.copy()
        damped[:, index, index] += extra[:, None]
        try:
            return np.asarray(np.linalg.cholesky(damped), np.float64)
        except np.linalg.LinAlgError:
            # Six times ten outweigh all there is; products of 0 have none to outweigh.
            extra = np.maximum(10 * np.abs(extra), np.where(more > 0, more, _UNCERTAIN))


def rounded(weight: Doubles, scales: Doubles, by: Factor) -> tuple[Doubles, Doubles]:
    """Round weights to integers -127..127, each error passed on to the weights that follow.

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
    for start in range(0, rows.shape[1], ROUNDING.panel):
        stop = min(start + ROUNDING.panel, rows.shape[1])
        lost += _panel(rows, steps, by.upper, start, stop)
    result = np.empty_like(steps)
    np.put_along_axis(result, np.broadcast_to(order, steps.shape), steps, axis=1)
    return result.transpose(0, 2, 1), lost * np.square(scales)


def _panel(rows: Doubles, steps: Doubles, upper: Doubles, start: int, stop: int) -> Doubles:
    """Round the inputs [G,K,M] of a panel one by one, then update the rest at once.

    Returns:
        [G,M], squares of what could not be made up for, in steps.
    """
    errors = np.empty((len(rows), stop - start, rows.shape[2]))
    for k in range(start, stop):
        here = rows[:, k]
        np.rint(here, out=steps[:, k]).clip(-127, 127, out=steps[:, k])
        error = np.divide(here - steps[:, k], upper[:, k, k, None], out=errors[:, k - start])
        rows[:, k + 1 : stop] -= upper[:, k, k + 1 : stop, None] * error[:, None, :]
    if stop < rows.shape[1]:
        rows[:, stop:] -= upper[:, start:stop, stop:].transpose(0, 2, 1) @ errors
    return np.einsum("gkm,gkm->gm", errors, errors)


def rounded_to_best_steps(
    weight: Doubles, smallest: Doubles, blocks: Sequence[slice], by: Sequence[Factor]
) -> tuple[Doubles, Doubles]:
    """Round weights with the size of a step, for every row, that loses least.

    The smallest step that reaches the largest weight is seldom the one that the other weights
    fit best. Of few weights, as in depthwise convolutions, a step some percent larger often
    leaves a fraction of the error; of many some always fit badly, and one size is tried.

    Args:
        weight: [G,M,K], M outputs of each of G groups.
        smallest: [G,M], the size of a step that reaches the largest weight.
        blocks: of the K inputs, those whose products are known.
        by: of the inputs of each block.

    Returns:
        Scales [G,M], and whole numbers -127..127 [G,M,K].
    """
    scales, steps = smallest, np.zeros_like(weight)
    least = np.full(smallest.shape, np.inf)
    for sizes in _some_sizes(weight):
        tried = smallest[None] * sizes[:, None, None]
        found, lost = _rounded_to(weight, tried, blocks, by)
        best = lost.argmin(axis=0)[None]
        wins = np.take_along_axis(lost, best, axis=0)[0] < least
        scales = np.where(wins, np.take_along_axis(tried, best, axis=0)[0], scales)
        chosen = np.take_along_axis(found, best[..., None], axis=0)[0]
        steps = np.where(wins[..., None], chosen, steps)
        least = np.minimum(lost.min(axis=0), least)
    return scales, steps


def _some_sizes(weight: Doubles) -> Iterator[Doubles]:
    """Yield the sizes, as many at once as there is room for."""
    sizes = np.asarray(ROUNDING.steps)
    sizes = sizes if weight.shape[2] <= ROUNDING.few_weights else sizes[:1]
    step = max(1, ROUNDING.weights_at_once // max(weight.size, 1))
    for start in range(0, len(sizes), step):
        yield sizes[start : start + step]


def _rounded_to(
    weight: Doubles, scales: Doubles, blocks: Sequence[slice], by: Sequence[Factor]
) -> tuple[Doubles, Doubles]:
    """Return integers [F,G,M,K] and what they lose [F,G,M], with F sizes [F,G,M] of a step."""
    tries, groups, outputs = scales.shape
    laid = scales.transpose(1, 0, 2).reshape(groups, -1)  # as if there were F times M outputs
    parts = [
        rounded(np.tile(weight[:, :, block], (1, tries, 1)), laid, one)
        for block, one in zip(blocks, by, strict=True)
    ]
    steps = np.concatenate([found for found, _ in parts], axis=2)
    lost = np.sum([lost for _, lost in parts], axis=0)
    return (
        steps.reshape(groups, tries, outputs, -1).transpose(1, 0, 2, 3),
        lost.reshape(groups, tries, outputs).transpose(1, 0, 2),
    )
