"""Let the host pad, so that the device need not fill with its stored 0.

A device that fills with the stored integer 0 asks for zero point 0 of the input of a
padded convolution, and where values are nearly all positive that leaves half of the
levels unused. If the host makes such a tensor, it can put the zeros around it before
they are integers: the convolutions have no pads any more, and any zero point will do.
The host can also pad a tensor of the device on its way, as integers, where the lowest
integer represents 0.
That is done where calibration samples show that it gains levels, and where all
convolutions of the device that pad the tensor pad it alike.
"""

from __future__ import annotations

from collections.abc import Collection

from npuconv.legalize.registry import Log, Phase, TargetDevice, register_pass
from npuconv.model import Model, Node, Tensor, Window, edit, query, window
from npuconv.model.conv import Pairs, flat_pads
from npuconv.partition.crossings import readers
from npuconv.partition.placement import Plan
from npuconv.records import replace

_ZEROS = "the zeros cross to the device, too"
_ROUND_TRIP = "it crosses to the host, and back with the zeros"
OPSET = 11  # first opset in which the amounts of a Pad are an input


@register_pass(Phase.HOST_PREP)
def pad_on_host(
    model: Model, device: TargetDevice, log: Log, plan: Plan, tensors: Collection[str]
) -> int:
    if model.opset < OPSET:
        return 0
    convs_of_tensor: dict[str, list[Node]] = {}
    for name, convs in readers(plan).items():
        if name in tensors:
            convs_of_tensor.setdefault(_uncut(plan, convs[0].inputs[0]).name, []).extend(convs)
    return sum(_pad(model, device, log, plan, convs) for convs in convs_of_tensor.values())


def _cuts(plan: Plan, tensor: Tensor) -> list[Node]:
    """Return the nodes that cut images or channels of a tensor out of another, padded once."""
    cuts: list[Node] = []
    maker = query.producer(tensor)
    while maker is not None and plan.is_cut(maker) and maker.op == "Slice":
        before, after = query.shape(maker.inputs[0]), query.shape(maker.outputs[0])
        if before is None or after is None or before[2:] != after[2:]:
            break
        cuts.insert(0, maker)
        maker = query.producer(maker.inputs[0])
    return cuts


def _uncut(plan: Plan, tensor: Tensor) -> Tensor:
    """Return the tensor that the images or channels of a tensor are cut from."""
    cuts = _cuts(plan, tensor)
    return cuts[0].inputs[0] if cuts else tensor


def _pad(model: Model, device: TargetDevice, log: Log, plan: Plan, convs: list[Node]) -> int:
    convs = [conv for conv in convs if any(query.attribute(conv, "pads", ()) or ())]
    if not convs:
        return 0
    source, win = _uncut(plan, convs[0].inputs[0]), window(convs[0])
    alike = {tuple(query.attribute(conv, "pads", ()) or ()) for conv in convs}
    if win is None or len(alike) > 1:
        return 0
    for conv in convs:
        layer = window(conv)
        assert layer is not None
        larger = None if layer.input is None else _padded(layer.input, layer.pads)
        without_pads = replace(layer, pads=tuple((0, 0) for _ in layer.pads), input=larger)
        if objections := device.change_objections(conv, without_pads):
            log.refuse(model, convs[0], objections[0])
            return 0
    cuts = {id(cut): cut for conv in convs for cut in _cuts(plan, conv.inputs[0])}
    amounts = ((0, 0), (0, 0), *win.pads)
    none = [0] * len(flat_pads(win.pads))
    before = f"Conv, pads={flat_pads(win.pads)}"
    after = f"Pad {flat_pads(win.pads)} on the host + Conv without pads"
    with log.rewrite(model, [*cuts.values(), *convs], before, after) as record:
        inputs = [source, edit.integers(model, f"{source.name}/pads", flat_pads(amounts))]
        dims = query.shape(source)
        shape = None if dims is None else _padded(dims, win.pads)
        padded = edit.insert(model, "Pad", inputs, origin=convs, shape=shape)
        for conv in convs:
            _read(conv, source, padded, win.pads)
            conv.attrs["pads"] = list(none)
        record.note = _more(win, plan, source)
    return 1


def _read(node: Node, source: Tensor, padded: Tensor, pads: Pairs) -> None:
    """Connect a node to the padded tensor, or cut its input from the padded tensor."""
    if node.inputs[0] is source:
        edit.set_input(node, 0, padded)
    elif (maker := query.producer(node.inputs[0])) is not None and maker.inputs[0] is not padded:
        _read(maker, source, padded, pads)
        cut = maker.outputs[0]
        cut.shape = list(_padded(query.shape(cut) or (), pads))


def _padded(dims: tuple[int | str | None, ...], pads: Pairs) -> tuple[int | str | None, ...]:
    """Return the shape of the tensor with its pads; named extents become unknown."""
    spatial = [
        length + sum(pair) if isinstance(length, int) else (None if any(pair) else length)
        for length, pair in zip(dims[2:], pads, strict=True)
    ]
    return (*dims[:2], *spatial)


def _more(win: Window, plan: Plan, source: Tensor) -> str:
    """Describe the extra traffic to the device, and from the device if it computes the tensor."""
    maker = query.producer(source)
    round_trip = maker is not None and plan.placement.get(id(maker)) == "device"
    if win.input is None or any(not isinstance(d, int) for d in win.input[1:]):
        return _ROUND_TRIP if round_trip else _ZEROS
    before, after = 1, 1
    for old, new in zip(win.input[1:], _padded(win.input, win.pads)[1:], strict=True):
        before, after = before * int(old or 0), after * int(new or 0)
    if round_trip:
        return f"{before} bytes cross to the host, {after} back to the device"
    # If other nodes read the tensor without pads, both tensors cross.
    crosses_unpadded = any(plan.is_convolution(node) for node in query.consumers(source))
    return f"{after if crosses_unpadded else after - before} bytes more cross to the device"
