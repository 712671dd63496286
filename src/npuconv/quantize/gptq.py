"""GPTQ rounding: errors of weights are compensated by the weights that are rounded after them.

As far as their inputs are correlated: E. Frantar et al., "GPTQ", ICLR 2023. With ``H = U U'``,
``U`` upper triangular, and ``d`` the errors of a row, ``d' H d`` is ``|U' d|^2``: each weight in
turn makes its own summand small. These are the integers of GPTQ, without an inverse of ``H``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from npuconv.errors import InternalError
from npuconv.quantize import settings
from npuconv.records import dataclass

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]
_UNCERTAINTY = 1e-6  # error of a product in float32, as a share of the largest product


def damping(length: int, count: int) -> float:
    """Return the share of the mean square to add, larger for few windows.

    Args:
        length: values of a window.
        count: number of windows.
    """
    return min(max(0.25 * length / max(count, 1), settings.ROUNDING_DAMPING), 1.0)


@dataclass(frozen=True)
class Factor:
    """Factor of the products of the inputs."""

    order: NDArray[np.int64]  # [G,K], inputs in the order of rounding
    upper: Doubles  # [G,K,K], upper triangular; ``U U'`` are the damped products in that order


def factorize(products: Doubles, damp: float) -> Factor:
    """Factorize the mean products of the inputs, those with the largest squares first.

    Args:
        products: [G,K,K], symmetric, not negative definite; finite.
        damp: share of the mean of the diagonal that is added to it.
    """
    diagonal = np.diagonal(products, axis1=1, axis2=2)
    order = np.argsort(-diagonal, axis=1, kind="stable")
    group = np.arange(len(products))[:, None, None]
    ordered = products[group, order[:, :, None], order[:, None, :]]
    # The unit is the mean square of a group; inputs that are always 0 have none, and pass 0 on.
    mean = diagonal.mean(axis=1)
    unit = np.where(mean > 0, mean, 1.0)[:, None, None]
    # An upper triangular factor is a Cholesky decomposition in reverse order.
    turned = _cholesky(ordered[:, ::-1, ::-1] / unit, np.full(len(unit), damp))
    return Factor(order, turned[:, ::-1, ::-1] * np.sqrt(unit))


def _cholesky(products: Doubles, extra: Doubles) -> Doubles:
    """Decompose the products with at least ``extra`` [G] on the diagonal.

    Raises:
        InternalError: the products are not finite, so that no ``extra`` is enough.
    """
    if not np.isfinite(products).all():
        raise InternalError("the products of inputs are not finite", where="rounding")
    index, start = np.arange(products.shape[1]), np.abs(products).max(axis=(1, 2)) * _UNCERTAINTY
    while True:
        damped = products.copy()
        damped[:, index, index] += extra[:, None]
        try:
            return np.asarray(np.linalg.cholesky(damped), np.float64)
        except np.linalg.LinAlgError:
            # Six rounds exceed any product; products of 0 start at the uncertainty itself.
            extra = np.maximum(10 * np.abs(extra), np.where(start > 0, start, _UNCERTAINTY))


def gptq(weight: Doubles, scales: Doubles, factor: Factor) -> tuple[Floats, Doubles]:
    """Round weights to integers -127..127, each after it took up the errors of those before it.

    Args:
        weight: [G,M,K], M outputs of each of G groups.
        scales: [G,M], the size of a step.
        factor: factor of the inputs.

    Returns:
        Integers, float32 [G,M,K], and the mean squared error of each output under the damped
        products, [G,M].
    """
    ordered = np.arange(len(weight))[:, None], factor.order
    exact = np.asarray((weight / scales[:, :, None]).transpose(0, 2, 1), np.float32)[ordered]
    diagonal = np.diagonal(factor.upper, axis1=1, axis2=2)
    shares = (factor.upper / diagonal[:, None]).transpose(0, 2, 1).astype(np.float32, order="C")
    integers, lost, remainders = (np.empty_like(exact) for _ in range(3))
    for k in range(exact.shape[1]):
        weights = exact[:, k] + (shares[:, k, None, :k] @ lost[:, :k])[:, 0]
        steps = np.rint(weights, out=integers[:, k])
        np.minimum(np.maximum(steps, -127, out=steps), 127, out=steps)
        np.subtract(exact[:, k], steps, out=lost[:, k])
        np.subtract(weights, steps, out=remainders[:, k])
    errors = np.einsum("gkm,gk->gm", np.square(remainders), np.square(diagonal))
    result = np.empty_like(integers)
    result[ordered] = integers
    return result.transpose(0, 2, 1), errors * np.square(scales)


def gptq_with_best_steps(
    weight: Doubles, smallest: Doubles, blocks: Sequence[slice], factors: Sequence[Factor]
) -> tuple[Doubles, Floats]:
    """Round weights with the step size, for every row, that gives the least error.

    The smallest step that reaches the largest weight is seldom the best for the other weights.
    In rows of few weights, as in depthwise convolutions, a step some percent larger often leaves
    a fraction of the error; rows of many weights are rounded with one size.

    Args:
        weight: [G,M,K], M outputs of each of G groups.
        smallest: [G,M], size of the smallest step that reaches the largest weight.
        blocks: ranges of the K inputs within which products are known.
        factors: factor of the inputs of each block.

    Returns:
        Scales [G,M], and integers -127..127, float32 [G,M,K].
    """
    groups, outputs, _ = weight.shape
    scales, integers = smallest, np.zeros(weight.shape, np.float32)
    lowest = np.full(smallest.shape, np.inf)
    sizes = np.asarray(settings.ROUNDING_STEPS)
    if weight.shape[2] > settings.ROUNDING_FEW_WEIGHTS:
        sizes = sizes[:1]
    # The number of sizes at a time bounds the working memory.
    count = max(1, settings.ROUNDING_WEIGHTS_AT_ONCE // max(weight.size, 1))
    for start in range(0, len(sizes), count):
        candidates = smallest[None] * sizes[start : start + count, None, None]  # [F,G,M]
        tries = len(candidates)
        step_sizes = candidates.transpose(1, 0, 2).reshape(groups, -1)  # F times M outputs
        parts = [
            gptq(np.tile(weight[:, :, block], (1, tries, 1)), step_sizes, factor)
            for block, factor in zip(blocks, factors, strict=True)
        ]
        rounded = np.concatenate([steps for steps, _ in parts], axis=2)
        rounded = rounded.reshape(groups, tries, outputs, -1).transpose(1, 0, 2, 3)
        errors = np.sum([squares for _, squares in parts], axis=0)
        errors = errors.reshape(groups, tries, outputs).transpose(1, 0, 2)
        best = errors.argmin(axis=0)[None]
        wins = np.take_along_axis(errors, best, axis=0)[0] < lowest
        scales = np.where(wins, np.take_along_axis(candidates, best, axis=0)[0], scales)
        best_integers = np.take_along_axis(rounded, best[..., None], axis=0)[0]
        integers = np.where(wins[..., None], best_integers, integers)
        lowest = np.minimum(errors.min(axis=0), lowest)
    return scales, integers
