"""A few large weights leave too few steps for all others of their channel.

What it checks:
    Output channels of which 99 of 100 weights round to -3..3 when the largest becomes
    127, with an SQNR below 36 dB. The whole layer counts as one channel where the target
    has one scale for it.

Why it matters:
    A scale is computed from the largest weight. If it is far larger than the other
    weights, these are rounded to a handful of numbers, and the channel is noise.

How to fix:
    Fold batch normalization before export, fine-tune with weight decay, or clip
    the outliers and measure the float model again.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from npuconv.lazy import np
from npuconv.model import Node, query
from npuconv.records import dataclass
from npuconv.rules import RuleContext, Severity, Violation, Violations, conv, rule

if TYPE_CHECKING:
    from numpy.typing import NDArray

STEPS = 3  # 99 of 100 weights within -3..3: 7 of 255 levels
POOR_DB = 36.0  # SQNR; rounding leaves 40 and more where there are no outliers
MAX_OUTLIER_SHARE = 0.01  # largest share of outliers in a channel
_INT8_MAX = 127


@dataclass(frozen=True)
class Outliers:
    """Outliers in the weights of one layer."""

    rows: int  # output channels with outliers
    ratio: float  # largest magnitude over rms, in the worst of these channels
    sqnr_db: float  # SQNR of the rounded weights, in the worst of these channels


@rule(
    "QNT004",
    ops={"Conv"},
    severity=Severity.WARNING,
    message="{rows} of {channels} channels have outlier weights, up to {times} times the rms: 99 % "
    "of their weights use at most {levels} int8 levels, and rounding leaves {sqnr} dB SQNR",
    fires=conv(x="1,16,8,8", w="4,16,3,3", weights="100, ..."),
    silent=conv(x="1,16,8,8", w="4,16,3,3"),
)
def weights_with_outliers(node: Node, ctx: RuleContext) -> Violations:
    weight = query.constant_input(node, 1)
    if weight is None or weight.dtype.kind != "f" or not weight.size:
        return
    outliers = find_outliers(weight, per_tensor=ctx.target.weights.granularity == "tensor")
    if outliers is not None:
        values = {
            "rows": outliers.rows,
            "channels": weight.shape[0],
            "levels": 2 * STEPS + 1,
            "times": f"{outliers.ratio:.0f}",
            "sqnr": f"{outliers.sqnr_db:.1f}",
        }
        limit = f"more than {2 * STEPS + 1} levels"
        yield Violation(values, value=f"{outliers.rows} channels", limit=limit)


def find_outliers(weight: NDArray[np.floating], *, per_tensor: bool = False) -> Outliers | None:
    """Find channels with outliers: all but a few weights round to ``-STEPS..STEPS``.

    Args:
        weight: float [M,...].
        per_tensor: True if all channels have one scale.

    Returns:
        None if there is no such channel whose SQNR is poor.
    """
    rows = np.abs(weight.reshape(1 if per_tensor else weight.shape[0], -1)).astype(np.float32)
    peak = rows.max(axis=1)
    if rows.shape[1] * MAX_OUTLIER_SHARE < 1 or not np.isfinite(peak).all():
        return None
    power = np.einsum("ij,ij->i", rows, rows, dtype=np.float64) / rows.shape[1]
    bound = (STEPS + 0.5) / _INT8_MAX
    # Only such channels can qualify, and they are rare: no need to sort or round all others.
    suspects = np.flatnonzero(
        (peak > 0) & (power <= (bound**2 + MAX_OUTLIER_SHARE) * peak.astype(float) ** 2)
    )
    sqnrs: dict[int, float] = {}  # SQNR of channels with outliers
    for channel in suspects.tolist():
        row, large = rows[channel], rows[channel] > bound * peak[channel]
        if large.sum() <= MAX_OUTLIER_SHARE * (row != 0).sum():  # zeros are exact
            sqnr = _sqnr_db(row / peak[channel] * _INT8_MAX)
            sqnrs |= {channel: sqnr} if sqnr < POOR_DB else {}
    if not sqnrs:
        return None
    ratio = float((peak[[*sqnrs]] / np.sqrt(power[[*sqnrs]])).max())
    return Outliers(weight.shape[0] if per_tensor else len(sqnrs), ratio, min(sqnrs.values()))


def _sqnr_db(scaled: NDArray[np.float32]) -> float:
    """Return the SQNR, in dB, of rounding weights whose step is 1."""
    noise = float(np.sum((scaled - np.rint(scaled)) ** 2))
    return 10 * math.log10(float(np.sum(scaled**2)) / noise) if noise else math.inf
