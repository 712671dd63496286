"""Part of a tensor's values lies beyond the range that int8 was given.

What it checks:
    The share of the values seen in calibration that lie beyond the smallest and largest
    number that the tensor's scale and zero point can store: at most 1 %.

Why it matters:
    The method that chooses ranges gives rare large values up, so that all others
    have finer steps. Where they are not rare, an object that makes them may be lost.

How to fix:
    Take `--method minmax` if such values matter, or calibrate on more samples. Neither
    changes a range that is imported from a quantized model: add `--requantize` for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.lazy import np
from npuconv.model import Model
from npuconv.rules import RuleContext, Severity, Violation, Violations, rule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npuconv.arithmetic.encoding import Encoding
    from npuconv.arithmetic.statistics import Statistics

MAX_CLIPPED = 0.01  # share of the values of a tensor
INT8_MIN, INT8_MAX = -128, 127
_KEPT = (
    "The range is that of the quantized model: take `--requantize` to choose ranges from "
    "samples, if such values matter."
)


@rule(
    "CAL002",
    severity=Severity.WARNING,
    stage="calibrated",
    message="{share} of the values of {tensor!r} are clipped: they lie in "
    "[{low}, {high}], and int8 holds [{least}, {most}]",
    model="""
        input x: float[N,1,8,8]
        weight e: float[] = {}
        weight nine: float[] = 9
        weight w: float[1,1,1,1] = 1
        a = Pow (x, e)
        b = Mul (a, nine)
        y = Conv (b, w)
    """,
    fires="20",
    silent="1",
)
def activation_clipped(model: Model, ctx: RuleContext) -> Violations:
    if (evidence := ctx.evidence) is None:
        return
    nodes = model.nodes()
    # An input of the model has no producer; its finding is that of its first consumer.
    places = {tensor.name: node for node in reversed(nodes) for tensor in node.inputs}
    places |= {tensor.name: node for node in nodes for tensor in node.outputs}
    for name in dict.fromkeys(end for group in evidence.plan.groups for end in group.outputs):
        stats, encoding = evidence.statistics.get(name), evidence.encodings.get(name)
        share = clipped_share(stats, encoding) if stats and encoding else 0.0
        if stats is None or encoding is None or share <= MAX_CLIPPED:
            continue
        least, most = stored_range(encoding)
        values = {
            "share": f"{100 * share:.1f} %",
            "tensor": name,
            "low": f"{stats.lows.min():.4g}",
            "high": f"{stats.highs.max():.4g}",
            "least": f"{least.min():.4g}",
            "most": f"{most.max():.4g}",
        }
        limit = f"at most {100 * MAX_CLIPPED:.0f} % clipped"
        fix = _KEPT if name in evidence.imported_ranges else ""
        yield Violation(values, value=values["share"], limit=limit, fix=fix, node=places.get(name))


def stored_range(encoding: Encoding) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the smallest and the largest number of every channel that int8 holds, [C] each."""
    scales, zeros = encoding.scales.astype("float64"), encoding.zeros.astype("float64")
    return scales * (INT8_MIN - zeros), scales * (INT8_MAX - zeros)


def clipped_share(stats: Statistics, encoding: Encoding) -> float:
    """Return the share of observed values beyond the range of int8 by more than half a step."""
    if encoding.scales.size not in (1, stats.channels) or not stats.values.size:
        return 0.0
    least, most = stored_range(encoding)
    slack = encoding.scales.astype("float64") / 2
    low, high = least - slack, most + slack
    if np.all(stats.lows >= low) and np.all(stats.highs <= high):
        return 0.0
    return float(((stats.values < low[:, None]) | (stats.values > high[:, None])).mean())
