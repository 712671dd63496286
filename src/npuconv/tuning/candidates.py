"""Ways to choose all ranges, and which of them is best on samples that were kept apart.

Clipping a few values for the sake of finer steps pays in some models and ruins others, and
so does leaving room for what the samples have not shown. Nothing local tells which.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from npuconv.tuning.ends import before_saturation
from npuconv.tuning.twin import roundings
from npuconv.tuning.whole import Judge, Noise

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import onnx

    from npuconv.model.core import Model
    from npuconv.plan import Plan
    from npuconv.quant.layer import Rounded
    from npuconv.tuning.probe import Feed
    from npuconv.tuning.scales import Encodings


class Candidate(NamedTuple):
    """A way to choose ranges.

    Attributes:
        method: as ``scales.encode`` takes it.
        roomy: whether there is room for what more samples would show.
    """

    method: str
    roomy: bool


# The first is taken unless another is clearly better.
CANDIDATES = (
    Candidate("auto", roomy=False),
    Candidate("auto", roomy=True),
    Candidate("percentile", roomy=False),
)
_CLEARLY = 0.8  # of its noise, or less, is left: 1 dB, which chance alone rarely brings
# Room costs a dB or two where it is not needed, and saves up to 20 where it is: on samples
# unlike all that are there, which those kept apart mostly are not. So it is taken where it
# does no harm to these, and where so little noise is left that nobody would miss the steps:
# it has an amplitude of 1/80 of that of the outputs.
_NO_HARM = 1.0
_PLENTY = 38.0  # dB


@dataclass(frozen=True)
class Tried:
    """What a candidate comes to.

    Attributes:
        encodings: of every int8 tensor.
        rounded: weights for them, by node name, where they are not just the nearest.
        labels: how the weights were rounded, by node name.
        roomy: whether it has room beyond the extremes.
    """

    encodings: Encodings
    rounded: Mapping[str, Rounded] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    roomy: bool = False


def best(
    model: Model,
    proto: onnx.ModelProto,
    plan: Plan,
    found: Iterable[Tried],
    judges: Sequence[Feed],
    unseen: int,
) -> Tried:
    """What puts least noise into the outputs, before anything saturates them.

    It takes the weights as they will be: ranges that look best with weights rounded to the
    nearest are often not those that are best once weights make up for each other.

    Args:
        model: the legal float model.
        proto: the same.
        plan: where every node runs.
        found: to choose from; the first is the one that others must beat.
        judges: complete inputs.
        unseen: how many of them, from the first, no range was made from. Only these can tell
            whether room is needed.
    """
    judge = Judge(before_saturation(proto), judges)
    chosen: Tried | None = None
    first: Noise | None = None
    least = math.inf
    for one in found:
        noise = judge.noise(roundings(model, plan, one.encodings.by_tensor, one.rounded))
        if chosen is None or first is None:
            chosen, first = one, noise
            continue
        ratio = noise.first(unseen).left(first.first(unseen)) if one.roomy else noise.left(first)
        if one.roomy and (noise.sqnr_db or math.inf) >= _PLENTY:
            ratio = 0.0
        if ratio < min(least, _NO_HARM if one.roomy else _CLEARLY):
            chosen, least = one, ratio
    assert chosen is not None, "there is always a first"
    return chosen
