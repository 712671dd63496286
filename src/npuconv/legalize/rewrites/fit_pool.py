"""Rewrite pools that break a known limit, so that they keep it.

If the target lists the pool and the operators around its parts, the cheapest sequence of ways to
split is taken; docs/fitting.md lists them. All are exact, in int8 as well. An unknown limit
triggers none.

An AveragePool that a depthwise convolution can replace becomes one before. GlobalMaxPool of an
image is a MaxPool of all cells, also where the target lists both: only a MaxPool has an int8 form.
Refuses ``ceil_mode``, which is left where the extents are not known. ``--no-fit`` leaves all alone.
"""

from __future__ import annotations

from npuconv.legalize.registry import Log, Phase, TargetDevice, register_pass
from npuconv.legalize.rewrites.fit_convolution import planned
from npuconv.legalize.split.layer import Layer
from npuconv.model import Model, Node, edit, query, window
from npuconv.partition.operators import takes_as

GLOBAL = "GlobalMaxPool"
IMAGE = 2  # spatial axes of an image


@register_pass(
    Phase.LEGALIZE,
    "MaxPool",
    "AveragePool",
    GLOBAL,
    after=("fold-pad", "resolve-auto-pad", "rewrite-average-pool-as-conv"),
    infers=True,
    least_opset=13,
)
def fit_pool(model: Model, device: TargetDevice, log: Log, node: Node) -> int:
    from npuconv.legalize.split.planner import write

    if not device.options.fit:
        return 0
    op = "MaxPool" if node.op == GLOBAL else node.op
    fits = node.op != GLOBAL and takes_as(node.op, node, device.target)
    if fits or node.name in device.keep_float or device.planner.demand_on(op) is None:
        return 0
    planning = planned(model, device, log, node, layer_of(node))
    if planning is None:
        return 0
    plan, _ = planning
    if plan.proposal is None and node.op != GLOBAL:
        return 0
    around = {op for split in plan.splits for op in split.inserts}
    if missing := sorted(op for op in around if device.target.operator(op) is None):
        text = f"{' and '.join(missing)}, which the target does not list, would surround its parts"
        return log.refuse(model, node, text)
    before, after = plan.layer.text(), " + ".join(plan.texts) or plan.layer.text()
    before = node.op if plan.proposal is None else before
    # A form with a Slice or Concat, or of the whole image, holds for these extents only.
    modulus = 1 if plan.splits and not around and node.op != GLOBAL else None
    with log.rewrite(model, [node], before, after, modulus=modulus) as record:
        result, builder = write(model, node, plan)
        record.after = f"{builder.count} {plan.layer.op}: {after}"
        edit.replace(result, node)
    return 1


def layer_of(node: Node) -> Layer | str:
    """Return the layer of a pool, or why it cannot be rewritten."""
    dims, win = query.shape(node.inputs[0]), window(node)
    if dims is None or not isinstance(dims[1], int):
        return "the number of its channels is not known"
    shape = tuple(d if isinstance(d, int) else None for d in dims)
    channels, axes = dims[1], len(dims) - 2
    if node.op == GLOBAL:
        if axes > IMAGE:
            return "it is a pool of volumes"
        kernel = tuple(n for n in shape[2:] if n is not None)
        if len(kernel) < axes:
            return "its extents are not known"
        ones, pads = (1,) * axes, ((0, 0),) * axes
        return Layer(shape, (channels, 1, *kernel), ones, ones, pads, group=channels, op="MaxPool")
    if win is None or win.kernel is None or not win.is_consistent or len(win.kernel) != axes:
        return "its kernel does not fit its input"
    if query.attribute(node, "ceil_mode", 0):
        return "ceil_mode adds cells at the end"
    if len(node.outputs) > 1:
        return "the places of the largest are read as well"
    if win.auto_pad != "NOTSET":
        return f"it still has auto_pad={win.auto_pad}"
    return Layer(
        shape, (channels, 1, *win.kernel), win.strides, win.dilations, win.pads, group=channels,
        op=node.op, counted=bool(query.attribute(node, "count_include_pad", 0)),
    )  # fmt: skip
