"""A calibrated model in which some channels are made several times."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from npuconv.model import save
from npuconv.passes import Phase, _manager
from npuconv.quant.layer import Rounded
from npuconv.tuning.precision.staggered import Staggered, places, staggered
from npuconv.tuning.weights.patches import gather, layer_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from npuconv.model.core import Model
    from npuconv.passes._context import PassContext, Widened
    from npuconv.pipeline.precision.repeated import Numbers
    from npuconv.quant.encoding import Encoding
    from npuconv.quant.moments import Moments
    from npuconv.samples import Samples


def widen(
    model: Model,
    ctx: PassContext,
    numbers: Numbers,
    wanted: Mapping[str, tuple[int, ...]],
    samples: Samples,
) -> Numbers:
    """Make channels several times, and round every copy as it should be.

    Args:
        model: a calibrated float model; changed, so its plan is void afterwards.
        ctx: with the plan; takes the rewrites, and notes what is made again.
        numbers: of the model.
        wanted: by tensor, the channel that each of those it is to have is.
        samples: that the windows of convolutions are seen in.

    Returns:
        The numbers with those of the copies.

    Raises:
        CalibrationError: the model does not run on the samples.
    """
    if not wanted:
        return numbers
    ctx.again, first = dict(wanted), len(ctx.widened)
    _manager.run_phase(model, Phase.REPEAT, ctx)
    made = ctx.widened[first:]
    encodings = dict(numbers.encodings)
    for one in made:
        encodings.update(_encodings(one, encodings))
    moments = _moments(model, made, numbers.moments, samples)
    known = Staggered(dict(numbers.rounded), dict(numbers.lifts))
    for one in made:
        known = _with_copies(known, one)
    for one in made:  # in the order of the model: a layer reads before it makes
        known = staggered(one.strand, one.index, encodings, moments, known)
        _shift(one, encodings)
    return replace(
        numbers, encodings=encodings, rounded=known.rounded, moments=moments, lifts=known.lifts,
        copies={}, spaces=_spaces(made),
    )  # fmt: skip


def _spaces(made: Sequence[Widened]) -> dict[str, NDArray[np.float64]]:
    """How far apart copies lie: what is moved besides moves that much less."""
    found: dict[str, NDArray[np.float64]] = {}
    for one in made:
        times = np.bincount(one.index)[list(one.index)]
        found |= dict.fromkeys(one.strand.tensors, 1.0 / times)
    return found


def _encodings(one: Widened, known: Mapping[str, Encoding]) -> dict[str, Encoding]:
    """A copy is stored like what it is a copy of."""
    found = {new: known[old].take(one.index) for new, old in one.old.items()}
    picks = ((pick, one.old[name]) for name, own in one.picks.items() for pick in own)
    return found | {pick: known[old] for pick, old in picks}


def _moments(
    model: Model, made: Sequence[Widened], known: Mapping[str, Moments], samples: Samples
) -> dict[str, Moments]:
    """Those of layers that read more channels now."""
    found = dict(known)
    for one in made:
        for conv in one.strand.between:
            if conv.op == "Conv":
                found[conv.name] = known[conv.name].take(one.index)
    readers = {conv.name: conv for one in made for conv in one.strand.readers}
    layers = [layer for conv in readers.values() if (layer := layer_of(conv))]
    if not layers:
        return found
    return found | gather(save.to_proto(model), layers, samples, len(samples))


def _with_copies(known: Staggered, one: Widened) -> Staggered:
    """Rows for the copies in what is known of layers, as far as they do not have them."""
    count, index = max(one.index) + 1, list(one.index)
    rounded, lifts = dict(known.rounded), dict(known.lifts)
    for conv in one.strand.makers:
        own, lift = rounded.get(conv.name), lifts.get(conv.name)
        if own is not None and len(own.bias) == count:
            rounded[conv.name] = Rounded(own.weight[index], own.scales[index], own.bias[index])
        if lift is not None and len(lift) == count:
            lifts[conv.name] = lift[index]
    return Staggered(rounded, lifts)


def _shift(one: Widened, encodings: Mapping[str, Encoding]) -> None:
    """Say by how much the host moves every channel."""
    if one.shift is not None:
        by = places(one.index) * encodings[one.strand.tensor.name].scales.astype(np.float64)
        one.shift.values = by.reshape(one.shift.shape).astype(np.float32)
