"""Part of a tensor's values lies beyond the range that int8 was given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from npuconv.model import query
from npuconv.rules import Example, Violation
from npuconv.rules._calibrated import calibrated_rule

if TYPE_CHECKING:
    from npuconv.model.core import Model
    from npuconv.model.types import Node
    from npuconv.rules._seen import Seen

LIMIT = 0.01


@calibrated_rule(
    "CAL002",
    message="{share} of the values of {tensor!r} are clipped: they lie in "
    "[{low}, {high}], and int8 holds [{least}, {most}]",
    example=Example(
        fires="""
            input x: float[N,1,8,8]
            weight e: float[] = 20
            weight nine: float[] = 9
            weight w: float[1,1,1,1] = 1
            a = Pow (x, e)
            b = Mul (a, nine)
            y = Conv (b, w)
        """,
        silent="""
            input x: float[N,1,8,8]
            weight e: float[] = 1
            weight nine: float[] = 9
            weight w: float[1,1,1,1] = 1
            a = Pow (x, e)
            b = Mul (a, nine)
            y = Conv (b, w)
        """,
    ),
)
def activation_clipped(model: Model, seen: Seen) -> Iterator[Violation]:
    """Part of a tensor's values lies beyond the range that int8 was given.

    What it checks:
        How many of the values seen in calibration are beyond the smallest and largest
        number that the tensor's scale and zero point can store. One in a hundred is the
        limit.

    Why it matters:
        The method that chooses ranges gives rare large values up, so that all others
        have finer steps. Where they are not rare, an object that makes them may be lost.

    How to fix:
        Take `--method minmax` if such values matter, or calibrate on more samples.
    """
    from npuconv.rules._reach import clipped_share, stored_range

    makers = _makers(model)
    for name in dict.fromkeys(end for group in seen.plan.groups for end in group.outputs):
        stats, encoding = seen.statistics.get(name), seen.encodings.get(name)
        share = clipped_share(stats, encoding) if stats and encoding else 0.0
        if stats is None or encoding is None or share <= LIMIT:
            continue
        least, most = stored_range(encoding)
        values = {
            "share": f"{share:.1%}",
            "tensor": name,
            "low": f"{stats.lows.min():.4g}",
            "high": f"{stats.highs.max():.4g}",
            "least": f"{least.min():.4g}",
            "most": f"{most.max():.4g}",
        }
        limit = f"at most {LIMIT:.0%} clipped"
        yield Violation(values, value=values["share"], limit=limit, node=makers.get(name))


def _makers(model: Model) -> dict[str, Node]:
    """Return, by tensor name, the node that makes it; for a model input, its first reader."""
    found: dict[str, Node] = {}
    for node in model.nodes():
        for tensor in node.inputs:
            if not query.is_constant(tensor):
                found.setdefault(tensor.name, node)
        for tensor in node.outputs:
            found[tensor.name] = node
    return found
