"""Fold a Pad with zeros into the convolution or pool that reads it.

Only constant 0, only growing. A Conv takes the pads of spatial axes, also an
AveragePool that counts padded cells; MaxPool does not, since it pads with minus
infinity. Every consumer that can takes them, the Pad stays for the others. If batch or
channels are padded too, every consumer must take them, and a Pad of these is left.
"""

from __future__ import annotations

from npuconv.legalize.registry import Log, Phase, TargetDevice, register_pass
from npuconv.model import Model, Node, edit, query, window
from npuconv.model.conv import Pairs, flat_pads
from npuconv.records import replace

_AMOUNTS_AS_INPUT = 11  # first opset in which the amounts of a Pad are an input


@register_pass(Phase.LEGALIZE, "Pad", after=("resolve-auto-pad", "split-pad"))
def fold_pad(model: Model, device: TargetDevice, log: Log, node: Node) -> int:
    consumers = list({id(c): c for c in query.consumers(node.outputs[0])}.values())
    if not any(map(_takes_pads, consumers)):
        return 0
    amounts, mode = query.pad_amounts(node), query.pad_mode(node)
    if amounts is None:
        return log.refuse(model, node, "its amounts are computed at run time")
    if not query.pads_with_zero(node):
        filling = "another value" if mode == "constant" else f"mode {mode!r}"
        return log.refuse(model, node, f"it fills with {filling}, not with constant 0")
    is_divisible = any(map(any, amounts[2:])) and model.opset >= _AMOUNTS_AS_INPUT
    if any(map(any, amounts[:2])) and not is_divisible:
        return log.refuse(model, node, "it pads batch or channels")
    if any(min(pair) < 0 for pair in amounts):
        return log.refuse(model, node, "it crops (negative pads)")
    outside, around = amounts[:2], amounts[2:]
    obstacles = [_consumer_obstacle(node, consumer, around) for consumer in consumers]
    if any(map(any, outside)):
        named = zip(consumers, obstacles, strict=True)
        reasons = ["is an output of the model"] if model.is_output(node.outputs[0]) else []
        reasons += [f"{model.label(consumer)!r} {text}" for consumer, text in named if text]
        if reasons:
            return log.refuse(model, node, f"it pads batch or channels too, and {reasons[0]}")
    dims, padded = query.shape(node.inputs[0]), query.shape(node.outputs[0])
    inner = dims if dims is None or padded is None else (*padded[:2], *dims[2:])
    fired, source = 0, node.inputs[0]
    for consumer, obstacle in zip(consumers, obstacles, strict=True):
        label, win = model.label(consumer), window(consumer)
        if win is None or obstacle:
            log.refuse(model, node, f"{label!r} ({consumer.op}) {obstacle}")
            continue
        pads = _added(win.pads, around)
        wider = replace(win, pads=pads, input=inner)
        is_legal = consumer.op == "Conv" and not device.breaks(win, consumer)
        if is_legal and device.breaks(wider, consumer):
            log.refuse(model, node, f"{label!r} would then break a limit")
            continue
        if any(map(any, outside)) and not fired:
            flat = flat_pads((*outside, *((0, 0) for _ in around)))
            inputs = [edit.integers(model, f"{node.name}/pads", flat), *list(node.inputs)[2:3]]
            source = edit.insert(model, "Pad", [source, *inputs], origin=[node], shape=inner)
        before = f"Pad {flat_pads(around)} before pads={flat_pads(win.pads)}"
        after, outputs = f"pads={flat_pads(pads)}", list(consumer.outputs)
        with log.rewrite(model, [node, consumer], before, after, outputs=outputs):
            consumer.inputs[0] = source
            consumer.attrs["pads"] = flat_pads(pads)
            edit.inherit(model, consumer, node)
        fired += 1
    return fired


def _takes_pads(consumer: Node) -> bool:
    """Return whether a node can pad with zeros, along the axes from the third on."""
    return consumer.op in ("Conv", "AveragePool") and query.is_standard(consumer)


def _added(pads: Pairs, amounts: Pairs) -> Pairs:
    return tuple((a + c, b + d) for (a, b), (c, d) in zip(pads, amounts, strict=True))


def _consumer_obstacle(node: Node, consumer: Node, amounts: Pairs) -> str:
    """Return why ``consumer`` cannot pad its spatial axes by these amounts of zeros, or ''."""
    win = window(consumer)
    if not _takes_pads(consumer) or win is None or win.kernel is None:
        return "cannot take pads"
    if len(win.pads) != len(amounts):
        return "has another rank"
    if consumer.inputs[0] is not node.outputs[0]:
        return "reads it as a weight"
    if win.auto_pad != "NOTSET":
        return f"still has auto_pad={win.auto_pad}"
    padded = [k for k, pair in zip(win.kernel, amounts, strict=True) if any(pair)]
    if len(amounts) > 2 and 1 in padded:
        return "has kernel 1 along a padded axis, which could then not be removed"
    if consumer.op == "Conv":
        return ""
    if not query.attribute(consumer, "count_include_pad", 0):
        return "does not count padded cells"
    if query.attribute(consumer, "ceil_mode", 0):
        return "rounds its extent up"
    pairs = zip(_added(win.pads, amounts), win.kernel, strict=True)
    is_wide = any(max(pair) >= kernel for pair, kernel in pairs)
    return "would have pads as large as its kernel" if is_wide else ""
