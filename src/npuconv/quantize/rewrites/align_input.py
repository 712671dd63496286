"""Move an input of the device by part of a step, so that int8 holds its values exactly.

Pixels that were normalized are whole steps apart, but 0 is often between two of them:
with ``pixel / 127.5 - 1`` it is half a step from both, and a zero point, which is an
integer, rounds every second pair of neighbours to the same integer. So the host takes
the part of a step off before it rounds, and the biases of the convolutions that read
the tensor make up for it. That is done where calibration samples lie on such a grid, and
for convolutions that do not pad: a pad is 0, and not 0 less than that.
"""

from __future__ import annotations

from collections.abc import Mapping

from npuconv.lazy import np
from npuconv.legalize.device import TargetDevice
from npuconv.legalize.log import Log
from npuconv.legalize.region import between
from npuconv.legalize.registry import Phase, model_pass
from npuconv.model import edit, query
from npuconv.model.core import Model
from npuconv.model.types import Node, Tensor
from npuconv.ops.channels import extent
from npuconv.partition.channels import CHANNELS
from npuconv.partition.placement import PIECES, Plan


@model_pass(Phase.HOST_PREP, after=("pad-on-host",))
def align_input(
    model: Model,
    device: TargetDevice,
    log: Log,
    plan: Plan,
    offsets: Mapping[str, np.ndarray],
) -> int:
    convs = shifted_together(plan)
    return sum(
        _align(model, device, log, plan, convs[name], shift) for name, shift in offsets.items()
    )


def shifted_together(plan: Plan) -> dict[str, list[Node]]:
    """Return the convolutions of the device by the tensor that is offset for them."""
    convs_of_tensor: dict[str, list[Node]] = {}
    for conv in plan.convolutions:
        convs_of_tensor.setdefault(shifted_tensor(plan, conv).name, []).append(conv)
    return convs_of_tensor


def shifted_tensor(plan: Plan, conv: Node) -> Tensor:
    """Return the input of a convolution, or the tensor it is cut from with all of its channels."""
    tensor, whole = conv.inputs[0], plan.uncut(conv.inputs[0], PIECES)
    return whole if extent(whole, CHANNELS) == extent(tensor, CHANNELS) else tensor


def _align(
    model: Model,
    device: TargetDevice,
    log: Log,
    plan: Plan,
    convs: list[Node],
    offsets: np.ndarray,
) -> int:
    weights = [query.constant_input(conv, 1) for conv in convs]
    if any(weight is None or weight.ndim != 4 for weight in weights):
        return 0
    if any(map(device.is_biasless, convs)):
        log.refuse(model, convs[0], "the device adds no bias to it")
        return 0
    source = shifted_tensor(plan, convs[0])
    reading = {id(node): node for node in (*convs, *plan.cuts) if node.inputs[0] is source}
    replaced = between({source.name}, [conv.outputs[0] for conv in convs])
    whole = len(replaced) == len(convs)  # else places of cuts are those of one extent only
    numbers = list(dict.fromkeys(f"{value:.4g}" for value in offsets))
    listed = ", ".join([*numbers[:4], *(["..."] if len(numbers) > 4 else [])])
    after = f"Sub of {listed} on the host + Conv with another bias"
    with log.rewrite(model, replaced, "Conv", after, modulus=1 if whole else None) as record:
        values = np.asarray(offsets, weights[0].dtype).reshape(1, -1, 1, 1)  # type: ignore[union-attr]
        constant = edit.constant(model, f"{source.name}/offset", values)
        moved = edit.insert(
            model, "Sub", [source, constant], origin=convs, shape=query.shape(source)
        )
        for conv, weight in zip(convs, weights, strict=True):
            assert weight is not None
            bias = query.constant_input(conv, 2)
            new_bias = _added(conv, weight, offsets) + (0.0 if bias is None else bias)
            label = f"{model.label(conv)}/bias"
            edit.set_input(conv, 2, edit.constant(model, label, new_bias.astype(weight.dtype)))
        for node in reading.values():
            edit.set_input(node, 0, moved)
        record.note = "int8 holds the values that samples showed exactly"
    return 1


def _added(conv: Node, weight: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the sum that the input offsets add to every output channel, float64 [M]."""
    from npuconv.arithmetic.layer import per_weight

    products = weight * per_weight(offsets, weight.shape, int(query.attribute(conv, "group", 1)))
    return products.reshape(len(weight), -1).sum(axis=1)
