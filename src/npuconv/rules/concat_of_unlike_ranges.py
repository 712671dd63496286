"""A Concat of int8 tensors whose ranges are unlike, in one scale."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from npuconv.diagnostics import Severity
from npuconv.rules import Example, Violation
from npuconv.rules._calibrated import calibrated_rule

if TYPE_CHECKING:
    from npuconv.model.types import Node
    from npuconv.rules._reach import Range
    from npuconv.rules._seen import Seen

LIMIT = 4.0
ENOUGH = 32  # levels: an own scale keeps the tensor apart, whatever its neighbour needs
_ALL = 256


@calibrated_rule(
    "CAL004",
    ops={"Concat"},
    message="{wide!r} reaches {reach} and {narrow!r} only {small}, {ratio} times less: {left}",
    example=Example(
        fires="""
            input x: float[N,2,8,8]
            weight w: float[2,2,1,1] = 100
            weight v: float[2,2,1,1] = 1
            boxes = Conv (x, w)
            scores = Conv (x, v)
            y = Concat <axis = 2> (boxes, scores)
        """,
        silent="""
            input x: float[N,2,8,8]
            weight w: float[2,2,1,1] = 3
            weight v: float[2,2,1,1] = 1
            boxes = Conv (x, w)
            scores = Conv (x, v)
            y = Concat <axis = 2> (boxes, scores)
        """,
    ),
)
def concat_of_unlike_ranges(node: Node, seen: Seen) -> Iterator[Violation]:
    """A Concat of int8 tensors whose ranges are unlike, in one scale.

    What it checks:
        Whether inputs of a Concat that joins int8 tensors have ranges that differ by more
        than a factor of 4. It is only a note where scales per channel keep them apart, so
        that the smaller has 32 levels or more.

    Why it matters:
        What is stored in one scale has the steps of the widest range. Boxes and scores of
        a detector are often joined: boxes reach hundreds and scores 1, so that scores are
        left with a step or two.

    How to fix:
        Join them behind the model: make the inputs of the Concat outputs instead. Or
        bring the ranges closer, for example by a Sigmoid before the Concat.
    """
    if not seen.plan.is_passthrough(node):
        return
    found = {name: item for name, item in _ranges(node, seen).items() if item.reach > 0}
    if len(found) < 2:
        return
    wide, narrow = (pick(found, key=lambda n: found[n].reach) for pick in (max, min))
    ratio = found[wide].reach / found[narrow].reach
    if ratio <= LIMIT:
        return
    levels = _levels(seen, narrow, found[narrow])
    enough = levels >= ENOUGH
    left = f"its scale leaves {levels} of 256 levels to it"
    if enough:  # as channels have scales of their own
        left = f"with {levels} of 256 levels it is kept apart all the same"
    values = {
        "wide": wide, "narrow": narrow, "reach": f"{found[wide].reach:.4g}",
        "small": f"{found[narrow].reach:.4g}", "ratio": f"{ratio:.3g}", "left": left,
    }  # fmt: skip
    severity = Severity.NOTE if enough else None
    yield Violation(values, f"x {ratio:.3g}", f"x {LIMIT:g}", severity=severity)


def _ranges(node: Node, seen: Seen) -> dict[str, Range]:
    from npuconv.rules._reach import range_of

    ranges = {tensor.name: range_of(tensor, seen) for tensor in node.inputs}
    return {name: item for name, item in ranges.items() if item is not None}


def _levels(seen: Seen, name: str, values: Range) -> int:
    """Return the number of integers that a tensor's values are spread over."""
    encoding = seen.encodings.get(name)
    if encoding is None:
        return _ALL
    return min(int((values.high - values.low) / float(encoding.scales.max())) + 1, _ALL)
