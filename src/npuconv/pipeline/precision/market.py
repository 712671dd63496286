"""What precision can be bought, what it costs, and what it would bring, tried in simulations."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from npuconv.model import load, save, shapes
from npuconv.passes._context import PassContext
from npuconv.pipeline import kept
from npuconv.pipeline.precision.offers import Seller, has_host, limits
from npuconv.pipeline.precision.repeated import Numbers, repeat
from npuconv.pipeline.precision.widened import widen
from npuconv.pipeline.ranges.calibrate import MANY
from npuconv.plan import macs, make_plan
from npuconv.samples.feeds import spread
from npuconv.tuning.noise.alone import noise_by_feed
from npuconv.tuning.noise.ends import before_saturation
from npuconv.tuning.noise.twin import roundings
from npuconv.tuning.noise.whole import Judge
from npuconv.tuning.precision.shop import Bought, Shop
from npuconv.tuning.precision.terms import terms_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx

    from npuconv.model.core import Model
    from npuconv.pipeline.legalize import Legalized
    from npuconv.pipeline.ranges.calibrate import Calibrated
    from npuconv.plan import Plan
    from npuconv.samples import Feed, Samples
    from npuconv.tuning.noise.gated import Rounding
    from npuconv.tuning.noise.whole import Noise

UNBOUNDED = 100.0  # percent of extra MACs, where only the accuracy is asked for
FEW = 4  # samples that noise is measured on


@dataclass
class Market:
    """What there is to buy: layers, their multiplications, and all noise.

    Attributes:
        work: a calibrated model, still in float.
        proto: the same model.
        numbers: its scales, weights and moments; keeps copies of layers once they are made.
        judges: samples that decide when it is good enough.
        used: samples that the windows of convolutions are seen in.
        shop: all noise, by those who can make it less, and what that costs.
        total: multiplications of all layers of the device.
        bought: so far.
        after: noise in the outputs then.
        unsaturated: whether ``before`` and ``after`` are before anything saturates the outputs.
    """

    work: Legalized
    proto: onnx.ModelProto
    numbers: Numbers
    judges: Sequence[Feed]
    used: Samples
    shop: Shop
    total: int
    bought: Bought = field(default_factory=Bought)
    after: Noise | None = None
    unsaturated: bool = False

    @cached_property
    def before(self) -> Noise:
        """Noise in the outputs while nothing is bought."""
        return self.shown(Bought())

    def limit(self) -> int:
        """Multiplications that may be added."""
        percent = self.work.options.max_extra_macs
        return int(self.total * (UNBOUNDED if percent is None else percent) / 100)

    def shown(self, bought: Bought) -> Noise:
        """Noise in the outputs if this is bought."""
        return self._outputs.noise(*self._simulated(bought))

    def raw(self, bought: Bought) -> Noise:
        """The same before anything saturates it."""
        every, model = self._simulated(bought)
        return self._ends.noise(every, before_saturation(model))

    @property
    def saturates(self) -> bool:
        """Whether outputs are saturated by something, and are not what they show."""
        ends = before_saturation(self.proto)
        return [o.name for o in ends.graph.output] != [o.name for o in self.proto.graph.output]

    @cached_property
    def _outputs(self) -> Judge:
        return Judge(self.proto, self.judges)

    @cached_property
    def _ends(self) -> Judge:
        return Judge(before_saturation(self.proto), self.judges)

    def apply(self, model: Model, ctx: PassContext, bought: Bought) -> Numbers:
        """Change a model into what is bought.

        Args:
            model: as the market's; its plan is void afterwards.
            ctx: takes the rewrites, and notes what is made again.
            bought: of this market.

        Returns:
            The numbers of all that is in it then.
        """
        ctx.plan = plan_of(self.work, model)
        numbers = widen(model, ctx, self.numbers, bought.channels, self.used[:MANY])
        ctx.plan = plan_of(self.work, model)
        return repeat(model, ctx, numbers, bought.layers)

    def _simulated(self, bought: Bought) -> tuple[list[Rounding], onnx.ModelProto]:
        """A copy of the model with all that is bought, and all its roundings."""
        work, model = self.work, load.load(self.proto)
        ctx = PassContext(work.target, work.options, verify=False)
        found = self.apply(model, ctx, bought)
        every = roundings(model, plan_of(work, model), found.encodings, found.rounded)
        return every, save.to_proto(model)


def open_market(
    work: Legalized,
    proto: onnx.ModelProto,
    found: Calibrated,
    used: Samples,
    judges: Sequence[Feed],
) -> Market:
    """All noise there is, measured before anything saturates it, and what layers cost.

    Args:
        work: a calibrated model, still in float; the rounded weights are in its context.
        proto: the same model.
        found: how its tensors are stored.
        used: samples that the noise of every rounding is measured on.
        judges: samples that decide when it is good enough.
    """
    numbers = Numbers(found.encodings.by_tensor, work.ctx.rounded, found.moments, found.lifts)
    every = roundings(work.model, work.plan, numbers.encodings, numbers.rounded)
    feeds, ends = [used[k] for k in spread(len(used), FEW)], before_saturation(proto)
    noise = noise_by_feed(ends, found.staggered.one_by_one(every), feeds)
    heard = np.flatnonzero(noise.sum(axis=0))
    noise, feeds = noise[:, heard], [feeds[k] for k in heard]
    # What is odd about one sample must not decide: each of them counts alike.
    powers = (noise / noise.sum(axis=0)).sum(axis=1)
    sizes = macs_of(work, proto, used)
    free = {name: count for name, count in sizes.items() if name in found.moments}
    terms = terms_of(work.model, work.plan, every, powers)
    offers = Seller(work, ends, every, terms, noise, free, feeds).offers()
    shop = Shop(terms, free, offers, limits(work, work.plan.device), has_host(work))
    return Market(work, proto, numbers, judges, used, shop, sum(sizes.values()))


def macs_of(work: Legalized, proto: onnx.ModelProto, samples: Samples) -> dict[str, int]:
    """Multiply-accumulates of every device convolution; dynamic sizes as the samples have them."""
    known = {conv.name: macs(conv) for conv in work.plan.device}
    if None in known.values():
        model = load.load(proto)
        feed = next(iter(samples[:1]))
        shapes.fix_inputs(model, {name: array.shape for name, array in feed.items()})
        shapes.infer(model)
        sized = {node.name: macs(node) for node in model.nodes("Conv")}
        known = {name: sized.get(name) for name in known}
    return {name: count for name, count in known.items() if count}


def plan_of(work: Legalized, model: Model) -> Plan:
    """Where every node of a changed model runs."""
    names = kept.names(work.model, work.kept)
    return make_plan(model, work.target, work.blocked, kept=names)
