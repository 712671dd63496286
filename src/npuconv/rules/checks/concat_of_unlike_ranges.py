"""A Concat of int8 tensors whose ranges are unlike, in one scale.

What it checks:
    Inputs of a Concat of int8 tensors whose ranges differ by more than a factor of 4. It
    is only a note where scales per channel keep them apart, so
    that the smaller has 32 levels or more.

Why it matters:
    Tensors in one scale have the steps of the widest range. Boxes and scores of
    a detector are often joined: boxes reach hundreds and scores 1, so that scores are
    left with a step or two.

How to fix:
    Join them behind the model: make the inputs of the Concat outputs instead. Or
    make the ranges similar, for example by a Sigmoid before the Concat.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from npuconv.model import Node, Tensor, query
from npuconv.rules import RuleContext, Severity, Violation, Violations, rule
from npuconv.rules.context import CalibrationEvidence

MAX_RATIO = 4.0  # largest ratio of two input ranges
ENOUGH_LEVELS = 32  # out of 256; such a tensor has kept enough resolution
_LEVELS = 256
_SAME_EXTREMES = {"MaxPool", "Resize", "Pad", "Transpose", "Reshape", "Flatten", "Squeeze"}
_SAME_EXTREMES |= {"Unsqueeze", "DepthToSpace", "SpaceToDepth"}


class Range(NamedTuple):
    """Smallest and largest value seen."""

    low: float
    high: float

    @property
    def magnitude(self) -> float:
        """The largest magnitude."""
        return max(abs(self.low), abs(self.high))


@rule(
    "CAL004",
    ops={"Concat"},
    severity=Severity.WARNING,
    stage="calibrated",
    message="{wide!r} reaches {reach} and {narrow!r} only {small}, {ratio} times less: {left}",
    model="""
        input x: float[N,2,8,8]
        weight w: float[2,2,1,1] = {}
        weight v: float[2,2,1,1] = 1
        boxes = Conv (x, w)
        scores = Conv (x, v)
        y = Concat <axis = 2> (boxes, scores)
    """,
    fires="100",
    silent="3",
)
def concat_of_unlike_ranges(node: Node, ctx: RuleContext) -> Violations:
    if (evidence := ctx.evidence) is None or not evidence.plan.is_passthrough(node):
        return
    observed = [(tensor.name, range_of(tensor, evidence)) for tensor in node.inputs]
    ranges = {name: item for name, item in observed if item is not None and item.magnitude > 0}
    if len(ranges) < 2:
        return
    wide, narrow = (pick(ranges, key=lambda n: ranges[n].magnitude) for pick in (max, min))
    ratio = ranges[wide].magnitude / ranges[narrow].magnitude
    if ratio <= MAX_RATIO:
        return
    levels = _levels(evidence, narrow, ranges[narrow])
    enough = levels >= ENOUGH_LEVELS
    consequence = f"its scale leaves {levels} of 256 levels to it"
    if enough:  # scales per channel keep the resolution
        consequence = f"with {levels} of 256 levels it is kept apart all the same"
    values = {
        "wide": wide, "narrow": narrow, "reach": f"{ranges[wide].magnitude:.4g}",
        "small": f"{ranges[narrow].magnitude:.4g}", "ratio": f"{ratio:.3g}", "left": consequence,
    }  # fmt: skip
    severity = Severity.NOTE if enough else None
    yield Violation(values, f"x {ratio:.3g}", f"x {MAX_RATIO:g}", severity=severity)


def range_of(tensor: Tensor, evidence: CalibrationEvidence) -> Range | None:
    """Return the observed range of a tensor, its own or derived from its source.

    None where the source was not observed either, or a node on the way may give any range.
    """
    path: list[Tensor] = []  # no recursion: a path may exceed Python's limit
    while (stats := evidence.statistics.get(tensor.name)) is None:
        node = query.producer(tensor)
        if node is None or not len(node.inputs):
            return None
        path.append(tensor)
        tensor = node.inputs[0]
    observed: Range | None = Range(float(stats.lows.min()), float(stats.highs.max()))
    while path and observed is not None:
        observed = _range_after(query.producer(path.pop()), observed)
    return observed


def _range_after(node: Node | None, before: Range) -> Range | None:
    """Return the range of the output of a node; None where it may be any."""
    if node is None or node.op in _SAME_EXTREMES:
        return before
    low: float | None = 0.0
    high: float | None = None
    if node.op == "Clip":
        low, high = query.scalar_input(node, 1), query.scalar_input(node, 2)
    elif node.op != "Relu":
        return None
    low, high = (-math.inf if low is None else low), (math.inf if high is None else high)
    return Range(*(min(max(end, low), high) for end in before))


def _levels(evidence: CalibrationEvidence, name: str, values: Range) -> int:
    """Return the number of integers that a tensor's values are spread over."""
    encoding = evidence.encodings.get(name)
    if encoding is None:
        return _LEVELS
    return min(int((values.high - values.low) / float(encoding.scales.max())) + 1, _LEVELS)
