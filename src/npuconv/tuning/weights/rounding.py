"""Weights and bias of a layer, rounded with its data in view where that proves better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from npuconv.quant.layer import Rounded, folded, per_weight
from npuconv.quant.qparams import quantize_weights
from npuconv.quant.rounding import Compensation, compensation, damping
from npuconv.tuning.weights.step_sizes import best_steps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from npuconv.quant.encoding import Encoding
    from npuconv.quant.moments import Moments

    Doubles = NDArray[np.float64]


_AT_ONCE = 2**20  # weights that are solved at once, where they are many


@dataclass(frozen=True)
class Problem:
    """A layer in the integers of its input, by groups: G groups, M outputs, K inputs each.

    Attributes:
        weight: [G,M,K], for inputs counted in steps of the nominal scale.
        means: [G,K], of the inputs in such steps.
        units: [G,K], numbers that one step stands for.
        moments: of the windows, in the model's own numbers.
    """

    weight: Doubles
    means: Doubles
    units: Doubles
    moments: Moments


def solve(
    weight: NDArray[np.float32],
    bias: NDArray[np.float32] | None,
    source: Encoding,
    moments: Moments,
    by: list[Compensation] | None = None,
) -> tuple[Rounded | None, str]:
    """The weights and bias that err least on windows which were kept apart.

    Args:
        weight: float [M,C/g,...].
        bias: float [M] or None.
        source: encoding of the input.
        moments: of the windows of the input.
        by: what ``_compensations`` says of them, where that is known.

    Returns:
        None where rounding to the nearest is best; and what was chosen, in a word.
    """
    problem = _problem(weight, source, moments)
    windows = moments.apart
    if windows is None:
        return None, "nearest"
    exact = problem.weight @ (windows / problem.units[:, :, None])
    stored = _stored(windows, source, weight.shape, moments)
    best, label, least = None, "", np.inf
    for name, scales, steps in _candidates(problem, by or _compensations(problem)):
        rounded = steps * scales[:, :, None]
        lost = np.einsum("gmk,gk->gm", problem.weight - rounded, problem.means)
        for corrected in (False, True):
            made = rounded @ stored + (lost[:, :, None] if corrected else 0.0)
            error = float(np.square(made - exact).sum())
            if error < least * 0.995:
                best, least = (scales, steps, lost if corrected else 0 * lost), error
                label = f"{name}{', bias corrected' if corrected else ''}"
    if best is None or label == "nearest":
        return None, "nearest"
    return _rounded(weight, bias, source, *best), label


def solve_rows(
    weight: NDArray[np.float32],
    bias: NDArray[np.float32] | None,
    source: Encoding,
    moments: Moments,
) -> tuple[Rounded | None, str]:
    """The same for a large layer of one group, some of its output channels at a time."""
    step = max(1, _AT_ONCE // max(1, weight[0].size))
    by = _compensations(_problem(weight[:1], source, moments))
    parts, labels = [], []
    for start in range(0, len(weight), step):
        rows = np.ascontiguousarray(weight[start : start + step])
        own = np.zeros(len(rows), np.float32) if bias is None else bias[start : start + step]
        rounded, label = solve(rows, own, source, moments, by)
        parts.append(rounded or _nearest(rows, own, source))
        labels.append(label)
    if set(labels) == {"nearest"}:
        return None, "nearest"
    fields = zip(*((p.weight, p.scales, p.bias) for p in parts), strict=True)
    return Rounded(*map(np.concatenate, fields)), " / ".join(dict.fromkeys(labels))


def _nearest(weight: NDArray[np.float32], bias: NDArray[np.float32], source: Encoding) -> Rounded:
    return Rounded(*quantize_weights(folded(weight, source, 1)), np.asarray(bias, np.float32))


def _problem(weight: NDArray[np.float32], source: Encoding, moments: Moments) -> Problem:
    groups, length = moments.groups, moments.length
    units = np.broadcast_to(
        per_weight(source.scales, weight.shape, groups), (len(weight), *weight.shape[1:])
    ).reshape(groups, -1, length)[:, 0]
    rows = folded(weight, source, groups).astype(np.float64).reshape(groups, -1, length)
    rows = rows * float(source.nominal)
    return Problem(rows, moments.means / units, units, moments)


def _stored(
    windows: NDArray[np.float32], source: Encoding, shape: tuple[int, ...], moments: Moments
) -> Doubles:
    """Windows as the device sees them, zero points taken off, in steps."""

    def along(values: NDArray[np.generic]) -> Doubles:
        laid = np.broadcast_to(per_weight(values, shape, moments.groups), shape)
        return laid.reshape(moments.groups, -1, moments.length)[:, 0, :, None]

    steps = np.rint(windows / along(source.scales))
    zeros = along(source.zeros)
    return np.asarray(np.clip(steps, -128 - zeros, 127 - zeros), np.float64)


def _candidates(problem: Problem, by: list[Compensation]) -> Iterator[tuple[str, Doubles, Doubles]]:
    """Names, scales [G,M], steps [G,M,K]."""
    reach = np.abs(problem.weight).max(axis=2)
    full = np.where(reach > 0, reach / 127, 1.0)
    yield "nearest", full, np.clip(np.rint(problem.weight / full[:, :, None]), -127, 127)
    yield "compensated", *best_steps(problem.weight, full, problem.moments.blocks, by)


def _compensations(problem: Problem) -> list[Compensation]:
    parts = []
    for number, block in enumerate(problem.moments.blocks):
        units = problem.units[:, block]
        products = problem.moments.products(number) / (units[:, :, None] * units[:, None, :])
        products += np.eye(units.shape[1]) / 12
        parts.append(compensation(products, damping(units.shape[1], problem.moments.count)))
    return parts


def _rounded(
    weight: NDArray[np.float32],
    bias: NDArray[np.float32] | None,
    source: Encoding,
    scales: Doubles,
    steps: Doubles,
    lost: Doubles,
) -> Rounded:
    own = np.zeros(len(weight)) if bias is None else np.asarray(bias, np.float64)
    return Rounded(
        steps.reshape(weight.shape).astype(np.int8),
        np.asarray(scales.reshape(-1) / float(source.nominal), np.float32),
        np.asarray(own + lost.reshape(-1), np.float32),
    )
