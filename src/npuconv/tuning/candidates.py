"""Ways to choose all ranges, and which of them is best on samples that were kept apart.

Clipping a few values for the sake of finer steps pays in some models and ruins others, and
so does leaving room for what the samples have not shown. Nothing local tells which.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from npuconv.tuning.twin import roundings
from npuconv.tuning.whole import Noise, whole_noise

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import onnx

    from npuconv.model.core import Model
    from npuconv.plan import Plan
    from npuconv.tuning.probe import Feed
    from npuconv.tuning.scales import Encodings


class Candidate(NamedTuple):
    """A way to choose ranges.

    Attributes:
        method: as ``scales.encode`` takes it.
        room: what the extremes are multiplied with.
    """

    method: str
    room: float


# The first is taken unless another is clearly better.
CANDIDATES = (Candidate("auto", 1.0), Candidate("mse", 1.0), Candidate("auto", 1.25))
_CLEARLY = 0.9  # of its noise, or less, is left


def best(
    model: Model,
    proto: onnx.ModelProto,
    plan: Plan,
    found: Iterable[Encodings],
    judges: Sequence[Feed],
) -> Encodings:
    """The encodings that put least noise into the outputs.

    Args:
        model: the legal float model.
        proto: the same.
        plan: where every node runs.
        found: encodings to choose from; the first is the one that others must beat.
        judges: complete inputs that no range was made from, where there are enough samples.
    """
    chosen: Encodings | None = None
    first: Noise | None = None
    least = _CLEARLY
    for encodings in found:
        every = roundings(model, plan, encodings.by_tensor, {})
        noise = whole_noise(proto, every, judges)
        if chosen is None or first is None:
            chosen, first = encodings, noise
        elif (ratio := _ratio(noise, first)) < least:
            chosen, least = encodings, ratio
    assert chosen is not None, "there is always a first"
    return chosen


def _ratio(noise: Noise, first: Noise) -> float:
    """What is left of the noise: in most samples, and in all of them together."""
    if not first.noise:
        return 1.0
    return math.sqrt(noise.ratio(first) * noise.noise / first.noise)
