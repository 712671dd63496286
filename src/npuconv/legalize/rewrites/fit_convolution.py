"""Rewrite convolutions that break a known limit, so that they keep it.

The cheapest sequence of ways to split is taken, by the ``costs`` of the target file. All are
exact in float; docs/fitting.md lists and draws them. An unknown limit triggers none.

In int8 all are exact but added sums and an added bias: each sum is rounded. So these are taken
only where the exact ways cost more than twice the MACs. If the target has ``accumulate: int32``,
sums are exact too, and are written after everything else. ``--no-fit`` refuses such convolutions
instead.

A layer that is split exactly is calibrated and quantized whole: its parts have its integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.legalize.registry import Log, Phase, TargetDevice, register_pass
from npuconv.legalize.split.layer import Layer, layer_of
from npuconv.model import Model, Node, edit, window
from npuconv.partition.costs import Form

if TYPE_CHECKING:
    from npuconv.legalize.split.builder import Builder, Mode
    from npuconv.legalize.split.planner import Search, SplitPlan

_SHOWN = 4  # number of forms that the report compares


@register_pass(Phase.SPLIT, infers=True)
def fit_convolution(
    model: Model, device: TargetDevice, log: Log, mode: Mode = "float"
) -> list[Builder]:
    if model.opset < 13 or not device.options.fit or device.target.operator("Conv") is None:
        return []
    # The layers of the unchanged graph: splits do not change where their sources come from.
    layers = [
        (node, layer_of(node, device.target))
        for node in model.nodes("Conv")
        if (win := window(node)) is not None
        if node.name not in device.keep_float and device.breaks(win, node)
    ]
    builders = (_fit(model, device, log, node, layer, mode) for node, layer in layers)
    return [builder for builder in builders if builder is not None]


def _fit(
    model: Model, device: TargetDevice, log: Log, node: Node, layer: Layer | str, mode: Mode
) -> Builder | None:
    from npuconv.legalize.split.planner import write

    planning = planned(model, device, log, node, layer)
    if planning is None or planning[0].proposal is None:
        return None
    plan, search = planning
    if mode == "rounding" and not plan.rounds:
        return None
    if mode == "exact":
        plan = device.planner.exact_plan(plan.layer) or plan
    demand, forms = device.planner.demand, dict[str, Form]()  # a form for each sequence of rewrites
    for alternative in search.alternatives:
        name = " + ".join(alternative.names)
        forms.setdefault(name, Form(name, alternative.cost, is_chosen=alternative is plan))
    faults = "; ".join(demand.objections(plan.layer)) if demand is not None else ""
    before, after = plan.layer.text(), " + ".join(plan.texts)
    with log.rewrite(model, [node], before, after, modulus=None) as record:
        result, builder = write(model, node, plan, mode)
        record.after = f"{builder.count} Conv: {after}"
        record.forms = tuple(forms.values())[:_SHOWN] if len(search.alternatives) > 1 else ()
        record.note = f"{faults}; the cheapest of {len(search.alternatives) or 1} forms that fit"
        record.note += f"; {plan.sums} partial sums are rounded to int8" if plan.sums else ""
        edit.replace(result, node)
    return builder


def planned(
    model: Model, device: TargetDevice, log: Log, node: Node, layer: Layer | str
) -> tuple[SplitPlan, Search] | None:
    """Plan the layer of a node; where there is no layer or no plan, note why."""
    if isinstance(layer, str):
        log.refuse(model, node, layer)
        return None
    plan, search = device.planner.plan(layer)
    if plan is not None:
        return plan, search
    demand = device.planner.demand_on(layer.op)
    if demand is not None and not demand.fits(layer):
        nearest = search.nearest or layer
        faults = "; ".join(demand.objections(nearest))
        reason = f"the nearest form is {nearest.text()}, where {faults}"
        reason = f"no rewrite changes this: {faults}" if nearest == layer else reason
        if search.too_many:
            reason = f"it would become {search.too_many} convolutions, which are too many"
        log.refuse(model, node, reason)
    return None
