"""What precision can be bought, what it costs, and what it would bring, tried in simulations."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from npuconv.model import load, save, shapes
from npuconv.passes._context import PassContext
from npuconv.pipeline import kept
from npuconv.pipeline.repeated import Numbers, repeat
from npuconv.pipeline.tune import MOST, VALUES
from npuconv.plan import macs, make_plan
from npuconv.samples.feeds import spread
from npuconv.tuning.alone import noise_powers
from npuconv.tuning.ends import before_saturation
from npuconv.tuning.terms import terms_of
from npuconv.tuning.twin import roundings
from npuconv.tuning.whole import Judge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx

    from npuconv.model.core import Model
    from npuconv.pipeline.legalize import Legalized
    from npuconv.pipeline.ranges import Calibrated
    from npuconv.plan import Plan
    from npuconv.samples import Feed, Samples
    from npuconv.tuning.budget import Term
    from npuconv.tuning.gated import Rounding
    from npuconv.tuning.whole import Noise

UNBOUNDED = 100.0  # percent of extra MACs, where only the accuracy is asked for
Counts = dict[str, int]  # how often layers run, where more than once


@dataclass
class Market:
    """What there is to buy: layers, their multiplications, and all noise.

    Attributes:
        work: a calibrated model, still in float.
        proto: the same model.
        numbers: its scales, weights and moments; keeps copies of layers once they are made.
        judges: samples that decide when it is good enough.
        macs: of each layer that may run several times.
        terms: all noise, by those who can make it less.
        total: multiplications of all layers of the device.
        counts: what is bought.
        after: noise in the outputs then.
        unsaturated: whether ``before`` and ``after`` are before anything saturates the outputs.
    """

    work: Legalized
    proto: onnx.ModelProto
    numbers: Numbers
    judges: Sequence[Feed]
    macs: dict[str, int]
    terms: list[Term]
    total: int
    counts: Counts = field(default_factory=dict)
    after: Noise | None = None
    unsaturated: bool = False

    @cached_property
    def before(self) -> Noise:
        """Noise in the outputs while nothing is bought."""
        return self.shown({})

    def limit(self) -> int:
        """Multiplications that may be added."""
        percent = self.work.options.max_extra_macs
        return int(self.total * (UNBOUNDED if percent is None else percent) / 100)

    def extra(self) -> int:
        """Multiplications that what is bought adds."""
        return sum((times - 1) * self.macs[name] for name, times in self.counts.items())

    def shown(self, counts: Mapping[str, int]) -> Noise:
        """Noise in the outputs if layers run that often."""
        return self._outputs.noise(*self._simulated(counts))

    def raw(self, counts: Mapping[str, int]) -> Noise:
        """The same before anything saturates it."""
        every, model = self._simulated(counts)
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

    def _simulated(self, counts: Mapping[str, int]) -> tuple[list[Rounding], onnx.ModelProto]:
        """A copy of the model with layers repeated, and all its roundings."""
        work, model = self.work, load.load(self.proto)
        ctx = PassContext(work.target, work.options, verify=False)
        ctx.plan = plan_of(work, model)
        found = repeat(model, ctx, self.numbers, counts)
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
    feeds = [used[k] for k in spread(len(used), MOST)]
    powers, _ = noise_powers(before_saturation(proto), every, feeds, enough=VALUES)
    sizes = macs_of(work, proto, used)
    free = {name: count for name, count in sizes.items() if name in found.moments}
    terms = terms_of(work.model, work.plan, every, powers)
    return Market(work, proto, numbers, judges, free, terms, sum(sizes.values()))


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
