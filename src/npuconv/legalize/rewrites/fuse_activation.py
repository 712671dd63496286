"""Write an activation that is spelled out as the operator that the target lists.

HardSwish and HardSigmoid as Add, Clip, Mul and Div, GELU by an Erf or a Tanh, SiLU as
Sigmoid and Mul, Mish: operators of any spelling that together are a function
of one value are compared with these by their values. Only where the target lists the
whole operator, nothing else reads a value in between, and the opset has it. A GELU by
an Erf is written so for TFLite, too, which has no other operator for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.legalize.device import TargetDevice
from npuconv.legalize.log import Log
from npuconv.legalize.registry import Phase, model_pass
from npuconv.legalize.tools.regions import SpelledOperator, growing, places, values, write
from npuconv.model import query
from npuconv.model.core import Model
from npuconv.model.types import Node, Tensor
from npuconv.ops.operator import operator_of

if TYPE_CHECKING:
    from npuconv.ops.tables import TableStep

_LONGEST = 9  # most operators: GELU by a Tanh, its cube as two Mul
_DIFFERENCE = 1e-5  # tolerance relative to 1 + |x|: constants are rounded to a few digits
_LARGEST = 12.0  # largest compared input: beyond, every activation is 0, 1 or linear

_KNOWN = (
    SpelledOperator("HardSwish", 14),
    SpelledOperator("HardSigmoid", 6, {"alpha": 1 / 6, "beta": 0.5}),
    SpelledOperator("HardSigmoid", 6, {"alpha": 0.2, "beta": 0.5}),
    SpelledOperator("Gelu", 20),
    SpelledOperator("Gelu", 20, {"approximate": "tanh"}),
    SpelledOperator("Swish", 24),
    SpelledOperator("Mish", 18),
)


@model_pass(Phase.LEGALIZE, after=("write-opset",))
def fuse_activation(model: Model, device: TargetDevice, log: Log) -> int:
    listed = [item for item in _KNOWN if device.target.operator(item.op) is not None]
    if device.options.format == "tflite" and model.nodes("Erf"):
        listed.append(SpelledOperator("Gelu", 20))
    if not listed:
        return 0
    place, fired = places(model), 0
    for node in reversed(model.nodes()):
        if not len(node.outputs) or not _is_pointwise(node):
            continue
        for region, source in growing(node, place, _is_pointwise, _LONGEST):
            match = next((item for item in listed if _is_same(region, source, item)), None)
            if match is not None:
                fired += write(model, device, log, region, [source], match)
                break
    return fired


def _is_pointwise(node: Node) -> bool:
    """Return whether a node is elementwise, with constants that are single numbers."""
    operator = operator_of(node)
    constants = [query.value(t) for t in node.inputs if query.is_constant(t)]
    single = all(array is not None and array.size == 1 for array in constants)
    inputs = values(node)
    floats = all(query.dtype_name(t) == "float32" for t in (*inputs, *node.outputs))
    is_function = operator is not None and operator.function is not None
    return is_function and single and bool(inputs) and floats and len(node.outputs) == 1


def _steps(region: list[Node], source: Tensor) -> list[TableStep]:
    from npuconv.ops.tables import SOURCE, TableStep

    def read(tensor: Tensor) -> str | float:
        array = query.value(tensor)
        if array is not None:
            return float(array.reshape(-1)[0])
        return SOURCE if tensor is source else str(tensor.name)

    def bounds(node: Node) -> list[Tensor]:
        return [t for t in node.inputs if t.name or query.is_constant(t)]

    return [
        TableStep(n.op, tuple(map(read, bounds(n))), str(n.outputs[0].name), n.attrs)
        for n in region
    ]


def _is_same(region: list[Node], source: Tensor, activation: SpelledOperator) -> bool:
    """Return whether a region has the values of an activation, near 0 and far from it."""
    import numpy as np

    from npuconv.ops.tables import TableStep, evaluate

    far = np.geomspace(_LARGEST, 1e4, 16)
    x = np.concatenate([-far, np.linspace(-_LARGEST, _LARGEST, 1601), far])
    ours = evaluate(_steps(region, source), x)
    theirs = evaluate([TableStep(activation.op, attributes=activation.attributes)], x)
    return bool((np.abs(ours - theirs) <= _DIFFERENCE * (1 + np.abs(x))).all())
