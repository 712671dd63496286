"""A calibrated model in which idle channels make others again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from npuconv.model import load, save
from npuconv.passes import Phase, _manager
from npuconv.passes._context import PassContext
from npuconv.pipeline.precision.market import plan_of
from npuconv.pipeline.ranges.calibrate import MANY
from npuconv.plan.strands import Strand, strand
from npuconv.tuning.noise.twin import roundings
from npuconv.tuning.precision.staggered import staggered
from npuconv.tuning.scales.encodings import Encodings
from npuconv.tuning.weights.patches import gather, layer_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from npuconv.model.core import Model
    from npuconv.pipeline.legalize import Legalized
    from npuconv.pipeline.ranges.calibrate import Calibrated
    from npuconv.plan import Plan
    from npuconv.quant.encoding import Encoding
    from npuconv.samples import Samples
    from npuconv.tuning.noise.gated import Rounding


def strand_of(model: Model, plan: Plan, maker: str) -> Strand:
    """The strand of a convolution that is known to have one, by the name of its node."""
    conv = next(node for node in plan.device if node.name == maker)
    found = strand(model, plan, conv)
    assert found is not None, "only where there is one can channels be idle"
    return found


def roundings_of(model: Model, plan: Plan, found: Calibrated) -> list[Rounding]:
    """Every rounding of a calibrated model."""
    return roundings(model, plan, found.encodings.by_tensor, found.chosen.rounded)


def changed(
    work: Legalized, found: Calibrated, used: Samples, maker: str, index: tuple[int, ...]
) -> tuple[Calibrated, list[Rounding]]:
    """What a model would be if a convolution made other channels.

    Args:
        work: a calibrated model, still in float; not changed.
        found: how its tensors are stored.
        used: samples that the windows of convolutions are seen in.
        maker: name of the convolution's node.
        index: the channel that each of its own is to be.

    Returns:
        How the tensors are stored then, with the model that has been changed so, and every
        rounding of it.

    Raises:
        CalibrationError: it does not run on the samples.
    """
    model = load.load(found.proto)
    ctx = PassContext(work.target, work.options, verify=False)
    ctx.plan, ctx.reuse = plan_of(work, model), {maker: index}
    _manager.run_phase(model, Phase.REPEAT, ctx)
    plan, proto = plan_of(work, model), save.to_proto(model)
    own = strand_of(model, plan, maker)
    encodings = _encodings(own, index, found.encodings.by_tensor)
    layers = [layer for conv in (*own.makers[1:], *own.readers) if (layer := layer_of(conv))]
    few = used[:MANY]
    moments = found.moments | gather(proto, layers, few, len(few))
    made = staggered(own, index, encodings, moments, found.staggered)
    chosen = replace(
        found.chosen,
        encodings=Encodings(encodings, found.encodings.methods),
        rounded=made.rounded,
    )
    new = replace(
        found, chosen=chosen, moments=moments, proto=proto, lifts=made.lifts, shifts=made.shifts
    )
    return new, roundings_of(model, plan, new)


def _encodings(
    own: Strand, index: Sequence[int], known: Mapping[str, Encoding]
) -> dict[str, Encoding]:
    """A copy is stored like what it is a copy of."""
    return dict(known) | {name: known[name].take(index) for name in own.tensors}
