"""Write the bias of convolutions as weights of constant input channels.

The device adds no bias to these convolutions. A Concat (a Pad if batch or extents are open)
appends channels of constant integers to the input. The weights of one tap on these channels
make up the int32 bias: the sums are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.amounts import count
from npuconv.emit.emission import Emission, dequantized, dequantizer
from npuconv.errors import InternalError
from npuconv.lazy import np
from npuconv.legalize.registry import Phase, register_pass
from npuconv.model import Model, Node, Tensor, edit, query

if TYPE_CHECKING:
    from npuconv.legalize.split.builder import BiasChannels

_LARGEST = 127  # largest weight, and largest constant whose zero point is 0


@register_pass(Phase.QUANTIZE, after=("quantize-weights", "split-accumulated"))
def write_bias_channels(model: Model, emission: Emission) -> list[tuple[str, str]]:
    # Returns notes for the report, each with the label of its layer.
    notes = list[tuple[str, str]]()
    for conv in emission.plan.convolutions:
        channels = emission.bias_channels.get(conv.name)
        if channels is not None and query.input_of(conv, 2) is not None:
            _write(model, conv, channels)
            number = count(channels.count, "input channel")
            notes.append((model.label(conv), f"bias as {number} of a constant"))
    return notes


def _write(model: Model, conv: Node, channels: BiasChannels) -> None:
    x, w, bias = [node for node in map(dequantizer, conv.inputs) if node is not None]
    weight, steps = query.constant_input(w, 0), query.constant_input(bias, 0)
    if weight is None or steps is None:
        raise InternalError(f"{conv.name!r} is not between conversions", where="bias channels")
    constants, taps = columns(steps, channels.count)
    added = np.zeros((len(weight), channels.count, int(np.prod(weight.shape[2:]))), np.int8)
    added[:, :, channels.tap] = taps
    added = added.reshape(len(weight), channels.count, *weight.shape[2:])
    append = _append_with_pad if channels.padded else _append_with_concat
    source = append(model, conv, x.inputs[0], constants)
    wide = np.concatenate([weight, added], 1)
    stored = edit.constant(model, f"{conv.name}/constant/weight", wide)
    edit.set_input(conv, 0, dequantized(model, x, source, conv))
    edit.set_input(conv, 1, dequantized(model, w, stored, conv))
    edit.drop_inputs(conv, 2)


def _append_with_concat(model: Model, conv: Node, source: Tensor, constants: np.ndarray) -> Tensor:
    dims = tuple(d for d in query.shape(source) or () if isinstance(d, int))
    column = constants.reshape(1, -1, *[1] * (len(dims) - 2))
    values = np.ascontiguousarray(np.broadcast_to(column, (dims[0], len(constants), *dims[2:])))
    pair = [source, edit.constant(model, f"{conv.name}/constant/channels", values)]
    shape = (dims[0], dims[1] + len(constants), *dims[2:])
    return edit.insert(model, "Concat", pair, origin=[conv], shape=shape, attrs={"axis": 1})


def _append_with_pad(model: Model, conv: Node, source: Tensor, constants: np.ndarray) -> Tensor:
    """Append the channels with one Pad for each different value."""
    for value in dict.fromkeys(constants.tolist()):
        dims, count = query.shape(source), constants.tolist().count(value)
        rank = len(dims or ()) or len(conv.attrs["kernel_shape"]) + 2
        pads = [0] * (2 * rank)
        pads[rank + 1] = count
        amounts = edit.integers(model, f"{conv.name}/constant/pads", pads)
        fill = edit.constant(model, f"{conv.name}/constant/value", np.asarray(value, np.int8))
        inner = dims[1] if dims and isinstance(dims[1], int) else None
        shape = None if inner is None or dims is None else (dims[0], inner + count, *dims[2:])
        source = edit.insert(model, "Pad", [source, amounts, fill], origin=[conv], shape=shape)
    return source


def largest_bias(count: int) -> int:
    """Return the largest bias that so many constants hold, with room for its own rounding."""
    return _LARGEST * (_LARGEST * max(count - 1, 1) - (count == 1))


def columns(bias: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return constants and weights that make up a bias.

    All but the last of the constants are 127, the last is 1: with two of them every bias up to
    127 * 127 is exact. A single constant is as small as the largest bias allows, and the other
    biases are rounded.

    Args:
        bias: int32 [M], at most ``largest_bias(count)`` each.
        count: number of constants.

    Returns:
        int8 constants [count] and int8 weights [M, count].
    """
    constants = np.full(count, _LARGEST)
    largest = int(np.abs(bias).max(initial=1))
    constants[-1] = 1 if count > 1 else max(-(-largest // _LARGEST), 1)
    remainder, weights = bias.astype(np.int64), np.zeros((len(bias), count), np.int64)
    for place, constant in enumerate(constants):
        steps = np.rint(remainder / float(constant))
        weights[:, place] = np.clip(steps, -_LARGEST, _LARGEST)
        remainder = remainder - weights[:, place] * constant
    return constants.astype(np.int8), weights.astype(np.int8)
