"""Put activations right behind the convolution they belong to.

A rewritten convolution may end in a DepthToSpace, a Slice, a Squeeze or the Concat of
its groups, which stand between it and its Relu or Clip. The device can apply these
only to the output of a convolution, so they move in front of operators that only
move numbers, with a copy for each input of a Concat.
"""

from __future__ import annotations

from npuconv.legalize.registry import Log, Phase, TargetDevice, register_pass
from npuconv.legalize.tools.layout import data_inputs
from npuconv.model import Model, Node, Tensor, edit, query

_MOVING = frozenset(
    {"DepthToSpace", "SpaceToDepth", "Slice", "Reshape", "Flatten", "Transpose", "Squeeze"}
    | {"Unsqueeze", "Concat"}
)
ACTIVATIONS = ("Relu", "Clip")  # activations without a constant for each channel


@register_pass(
    Phase.LEGALIZE, *ACTIVATIONS, after=("rewrite-conv-transpose-as-conv", "move-layout")
)
def hoist_activations(model: Model, device: TargetDevice, log: Log, node: Node) -> int:
    if node.op not in device.target.fusible:
        return 0
    waiting, fired = [node], 0
    while waiting:
        current = waiting.pop()
        producer = query.producer(current.inputs[0]) if len(current.inputs) else None
        if producer is None or producer.op == "Conv":
            continue  # already behind the convolution
        if not _is_behind_convolutions(model, current.inputs[0]):
            continue
        before, after = f"{producer.op}, then {current.op}", f"{current.op}, then {producer.op}"
        modulus = None if producer.op in ("Reshape", "Slice") else 1
        with log.rewrite(model, [producer, current], before, after, modulus=modulus):
            for index, tensor in enumerate(data_inputs(producer)):
                inputs, attrs = [tensor, *list(current.inputs)[1:]], dict(current.attrs)
                activated = edit.insert(
                    model, current.op, inputs, origin=[current],
                    shape=query.shape(tensor), attrs=attrs, name=current.name,
                )  # fmt: skip
                producer.inputs[index] = activated
                waiting.append(activated.inputs[0])
            edit.take_over_outputs(current, producer)
            edit.disconnect(current)
        fired += 1
    return fired


def _is_behind_convolutions(model: Model, tensor: Tensor) -> bool:
    """Return whether only moving nodes lie between it and convolutions, with no other consumer."""
    stack, is_behind = [tensor], False
    while stack:
        current = stack.pop()
        producer = query.producer(current)
        if producer is None or query.sole_consumer(model, current) is None:
            return False
        if not query.is_standard(producer) or len(producer.outputs) != 1:
            return False
        if producer.op == "Conv":
            is_behind = True
        elif producer.op in _MOVING:
            stack += data_inputs(producer)
        else:
            return False
    return is_behind
