"""Channels of a convolution never leave one value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from npuconv.diagnostics import Severity
from npuconv.model import query
from npuconv.rules import Example, Violation
from npuconv.rules._calibrated import calibrated_rule

if TYPE_CHECKING:
    from npuconv.arithmetic.statistics import Statistics
    from npuconv.model.core import Model
    from npuconv.model.types import Node
    from npuconv.rules._seen import Seen

MANY = 0.5  # of the channels; below, training may have switched them off
LEAST = 0.1  # nobody acts on fewer


@calibrated_rule(
    "CAL003",
    message="{count} of {channels} channels ({share}) have one and the same value in all "
    "{samples} samples",
    example=Example(
        fires="""
            input x: float[N,1,8,8]
            weight w: float[3,1,1,1] = 1
            weight b: float[3] = 0, -5, -6
            a = Conv (x, w, b)
            y = Relu (a)
        """,
        silent="""
            input x: float[N,1,8,8]
            weight w: float[3,1,1,1] = 1
            weight b: float[3] = 0, 5, 0.1
            a = Conv (x, w, b)
            y = Relu (a)
        """,
    ),
)
def channel_dead(model: Model, seen: Seen) -> Iterator[Violation]:
    """Channels of a convolution never leave one value.

    What it checks:
        Whether a channel of what a convolution puts out, after its activation, changes
        at all in calibration. A tenth of the channels is a note, half of them a warning.

    Why it matters:
        Such channels cost time and tell nothing. Training may have switched them off. If
        they are many, rather the samples are not those of training: they are normalized
        in another way, or too much alike. Then their ranges are wrong.

    How to fix:
        Look at CAL001, and calibrate on samples that differ. If the channels are dead for
        good, prune them before export. Those that no input could wake up need not be: in
        their place others are made again where that makes these finer.
    """
    del model
    if seen.samples < 2:
        return
    for conv in seen.plan.device:
        stats = _after_activation(conv, seen)
        count = 0 if stats is None else int((stats.lows == stats.highs).sum())
        if stats is None or stats.channels < 2 or count < LEAST * stats.channels:
            continue
        share = count / stats.channels
        yield Violation(
            {
                "count": count,
                "channels": stats.channels,
                "share": f"{share:.0%}",
                "samples": seen.samples,
            },
            value=f"{count} of {stats.channels}",
            limit="0",
            node=conv,
            severity=None if share >= MANY else Severity.NOTE,
        )


def _after_activation(conv: Node, seen: Seen) -> Statistics | None:
    """Return statistics of the output, after a Relu or Clip if that is its only reader."""
    tensor = conv.outputs[0]
    readers = query.consumers(tensor)
    if len(readers) == 1 and readers[0].op in ("Relu", "Clip"):
        return seen.statistics.get(readers[0].outputs[0].name, seen.statistics.get(tensor.name))
    return seen.statistics.get(tensor.name)
