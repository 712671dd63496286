"""Write the bias of convolutions as weights of constant input channels.

The device adds no bias to these. A Concat puts constant integers beside those of the input,
and the weights of one tap make up the int32 bias with them: the sums are the same.
"""

from __future__ import annotations

from npuconv.emit.context import EmitContext, dequantizer
from npuconv.errors import InternalError
from npuconv.legalize.registry import Phase, model_pass
from npuconv.model import edit, query
from npuconv.model.core import Model
from npuconv.model.types import Node, Tensor


@model_pass(Phase.QUANTIZE, after=("quantize-weights", "split-accumulated"))
def write_bias_channels(model: Model, ctx: EmitContext) -> int:
    known = [c for c in ctx.plan.device if c.name in ctx.bias_channels and len(c.outputs)]
    found = [conv for conv in known if query.input_of(conv, 2) is not None]  # written once
    for conv in found:
        _write(model, ctx, conv)
    return len(found)


def _write(model: Model, ctx: EmitContext, conv: Node) -> None:
    import numpy as np

    from npuconv.arithmetic.bias_channels import columns

    own, ends = ctx.bias_channels[conv.name], [dequantizer(tensor) for tensor in conv.inputs]
    x, w, bias = [one for one in ends if one is not None]
    weight, steps = query.constant_input(w, 0), query.constant_input(bias, 0)
    dims = tuple(d for d in query.shape(conv.inputs[0]) or () if isinstance(d, int))
    if weight is None or len(dims) != weight.ndim or steps is None:
        raise InternalError(f"{conv.name!r} is not between conversions", where="bias channels")
    constants, made = columns(steps, own.count)
    more = np.zeros((len(weight), own.count, int(np.prod(weight.shape[2:]))), np.int8)
    more[:, :, own.tap] = made
    wide = np.concatenate([weight, more.reshape(len(weight), own.count, *weight.shape[2:])], 1)
    beside = np.broadcast_to(
        constants.reshape(1, -1, *[1] * (len(dims) - 2)), (dims[0], own.count, *dims[2:])
    )
    stem = f"{conv.name}/constant"
    pair = [x.inputs[0], edit.constant(model, f"{stem}/channels", np.ascontiguousarray(beside))]
    shape = (dims[0], wide.shape[1], *dims[2:])
    source = edit.insert(model, "Concat", pair, origin=[conv], shape=shape, attrs={"axis": 1})
    source.dtype = np.dtype(np.int8)
    stored = edit.constant(model, f"{stem}/weight", wide)
    edit.set_input(conv, 0, _numbers(model, conv, x, source))
    edit.set_input(conv, 1, _numbers(model, conv, w, stored))
    edit.drop_inputs(conv, 2)
    several = "channel" if own.count == 1 else "channels"
    note = f"bias as {own.count} input {several} of a constant"
    before = ctx.notes.get(model.label(conv), note)  # of another part of the same layer, perhaps
    ctx.notes[model.label(conv)] = before if note in before else f"{note}; {before}"


def _numbers(model: Model, conv: Node, conversion: Node, stored: Tensor) -> Tensor:
    """Return integers dequantized as others are."""
    import numpy as np

    inputs, attrs = [stored, *list(conversion.inputs)[1:]], dict(conversion.attrs)
    made = edit.insert(
        model, "DequantizeLinear", inputs, origin=[conv], shape=query.shape(stored), attrs=attrs
    )
    made.dtype = np.dtype(np.float32)
    return made
