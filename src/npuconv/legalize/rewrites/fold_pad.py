"""Fold a Pad with zeros into the convolution or pool that reads it.

Only constant 0, only spatial axes, only growing. A Conv takes it, also an
AveragePool that counts padded cells; MaxPool does not, since it pads with minus
infinity. Every consumer that can takes it, the Pad stays for the others.
"""

from __future__ import annotations

from npuconv.legalize.registry import Log, Phase, TargetDevice, register_pass
from npuconv.legalize.tools.layout import added_pads, pad_obstacle, takes_pads
from npuconv.model import Model, Node, edit, query, window
from npuconv.model.conv import Pairs, flat_pads
from npuconv.records import replace


@register_pass(Phase.LEGALIZE, "Pad", after=("resolve-auto-pad", "split-pad"))
def fold_pad(model: Model, device: TargetDevice, log: Log, node: Node) -> int:
    amounts = _spatial(model, log, node)
    if amounts is None:
        return 0
    consumers = {id(c): c for c in query.consumers(node.outputs[0])}.values()
    return sum(_fold(model, device, log, node, consumer, amounts) for consumer in consumers)


def _spatial(model: Model, log: Log, node: Node) -> Pairs | None:
    """Return the amounts of the spatial axes, if any consumer could take them."""
    if not any(map(takes_pads, query.consumers(node.outputs[0]))):
        return None
    amounts = query.pad_amounts(node)
    reason = ""
    if amounts is None:
        reason = "its amounts are computed at run time"
    elif not query.pads_with_zero(node):
        mode = query.pad_mode(node)
        filling = "another value" if mode == "constant" else f"mode {mode!r}"
        reason = f"it fills with {filling}, not with constant 0"
    elif any(a != (0, 0) for a in amounts[:2]):
        reason = "it pads batch or channels"
    elif any(min(a) < 0 for a in amounts):
        reason = "it crops (negative pads)"
    if reason or amounts is None:
        log.refuse(model, node, reason)
        return None
    return amounts[2:]


def _fold(
    model: Model, device: TargetDevice, log: Log, node: Node, consumer: Node, amounts: Pairs
) -> int:
    reason = pad_obstacle(node, consumer, amounts)
    if reason:
        return log.refuse(model, node, f"{model.label(consumer)!r} ({consumer.op}) {reason}")
    win = window(consumer)
    assert win is not None
    pads = added_pads(win.pads, amounts)
    wider = replace(win, pads=pads, input=query.shape(node.inputs[0]))
    if (
        consumer.op == "Conv"
        and not device.breaks(win, consumer)
        and device.breaks(wider, consumer)
    ):
        return log.refuse(model, node, f"{model.label(consumer)!r} would then break a limit")
    before = f"Pad {flat_pads(amounts)} before pads={flat_pads(win.pads)}"
    outputs = list(consumer.outputs)
    with log.rewrite(model, [node, consumer], before, f"pads={flat_pads(pads)}", outputs=outputs):
        consumer.inputs[0] = node.inputs[0]
        consumer.attrs["pads"] = flat_pads(pads)
        edit.inherit(model, consumer, node)
    return 1
