"""Write a LayerNormalization that is spelled out as the operator that the target lists.

Exporters write two means over the last axes, a difference, a square, a root, and a
quotient or a product, with factors and offsets in many orders. Whatever the spelling,
operators that read one tensor are compared with a LayerNormalization by their values;
factor, offset and epsilon follow from these. Only where the target lists the operator,
nothing else reads a value in between, the extents of the axes are known, and the opset
has it (17).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.legalize.device import TargetDevice
from npuconv.legalize.log import Log
from npuconv.legalize.registry import Phase, model_pass
from npuconv.legalize.tools.regions import SpelledOperator, growing, places, values, write
from npuconv.model import edit, query
from npuconv.model.core import Model
from npuconv.model.types import Node, Tensor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Doubles = NDArray[np.float64]

OP, OPSET = "LayerNormalization", 17
_POINTWISE = (
    "Add", "Sub", "Mul", "Div", "Pow", "Sqrt", "Reciprocal", "Relu", "Clip", "Max", "Min",
)  # fmt: skip
_LONGEST = 14  # most operators; the spelling of TensorFlow has 12
_DIFFERENCE = 1e-5  # tolerance relative to 1 + |y|: constants are float32
_LARGE, _SMALL = 1e6, 1e-8  # inputs far above epsilon, and far below it


@model_pass(Phase.LEGALIZE, after=("write-opset",))
def fuse_layer_normalization(model: Model, device: TargetDevice, log: Log) -> int:
    if device.target.operator(OP) is None or not any(model.nodes("ReduceMean")):
        return 0
    place, fused, fired = places(model), set[int](), 0
    for node in reversed(model.nodes("Add", "Sub", "Mul", "Div")):
        if id(node) in fused or not _is_member(node):
            continue
        for region, source in growing(node, place, _is_member, _LONGEST):
            axes = _normalized_axes(region, source)
            numbers = None if axes is None else _parameters(region, source, axes[1])
            if axes is None or numbers is None:
                continue
            (axis, shape), (scale, bias, epsilon) = axes, numbers
            stem, extents = f"{model.label(node)}/{OP}", shape[axis:]
            constants = [
                edit.constant(model, f"{stem}/{name}", array.reshape(extents))
                for name, array in (("scale", scale), ("bias", bias))
            ]
            operator = SpelledOperator(OP, OPSET, {"axis": axis, "epsilon": epsilon})
            fused.update(map(id, region))
            fired += write(model, device, log, region, [source, *constants], operator)
            break
    return fired


def _is_member(node: Node) -> bool:
    """Return whether a node computes value by value, or a mean that keeps its axes."""
    floats = all(query.dtype_name(t) == "float32" for t in (*values(node), *node.outputs))
    if not floats or not query.is_standard(node) or len(node.outputs) != 1 or not values(node):
        return False
    if node.op == "ReduceMean":
        return query.reduced_axes(node) is not None and bool(query.attribute(node, "keepdims", 1))
    return node.op in _POINTWISE


def _normalized_axes(region: list[Node], source: Tensor) -> tuple[int, list[int]] | None:
    """Return the first axis that a region normalizes, and a shape with 1 along those before it.

    None without two means over the same last axes, or where their extents are not known.
    """
    means = [node for node in region if node.op == "ReduceMean"]
    axes, dims = {query.reduced_axes(node) for node in means}, query.shape(source)
    (first, *more) = axes or {None}
    if len(means) != 2 or first is None or more or dims is None:
        return None
    axis = first[0]
    extents = [extent for extent in dims[axis:] if isinstance(extent, int)]
    if first != tuple(range(axis, len(dims))) or len(extents) < len(first):
        return None
    return axis, [1] * axis + extents


def _parameters(
    region: list[Node], source: Tensor, shape: list[int]
) -> tuple[Doubles, Doubles, float] | None:
    """Return scale and bias, float32, and epsilon; None where the region is something else.

    Args:
        region: nodes in order.
        source: their common input.
        shape: shape of an input, 1 along axes that are not normalized.
    """
    import numpy as np

    def outputs(x: Doubles) -> Doubles:
        result = _evaluate(region, source, x)
        return result if result.shape == x.shape else np.full(x.shape, np.nan)

    size, rng = int(np.prod(shape)), np.random.default_rng(0)
    # Inputs far from their mean, so that no divisor below is near 0.
    away = ((-1.0) ** np.arange(size) * (1 + np.arange(size) / size)).reshape(shape)
    with np.errstate(all="ignore"):
        above, below = outputs(away * _LARGE), outputs(-away * _LARGE)
        scale = (above - below) / 2 / _normal(away, 0.0)
        bias, has_scale = (above + below) / 2, scale != 0
        if not has_scale.any():
            return None
        ratios = (scale * (away - away.mean()) * _SMALL)[has_scale] / (
            outputs(away * _SMALL) - bias
        )[has_scale]
        epsilon = float(np.median(np.square(ratios))) - float((away * _SMALL).var())
        tried = [rng.normal(3, 1, shape) * spread for spread in (1e-3, 1e-2, 1.0, 100.0)]
        pairs = [(outputs(x), scale * _normal(x, epsilon) + bias) for x in tried]
        differences = [np.abs(ours - theirs) / (1 + np.abs(theirs)) for ours, theirs in pairs]
    if not (epsilon > 0 and all((d <= _DIFFERENCE).all() for d in differences)):
        return None
    return np.asarray(scale, np.float32), np.asarray(bias, np.float32), epsilon


def _normal(x: Doubles, epsilon: float) -> Doubles:
    import numpy as np

    return np.asarray((x - x.mean()) / np.sqrt(x.var() + epsilon))


def _evaluate(region: list[Node], source: Tensor, x: Doubles) -> Doubles:
    """Return the result of the region for one input, float64."""
    import numpy as np

    from npuconv.ops.operator import OPERATORS

    arrays = {id(source): x}
    for node in region:
        constants = [query.value(tensor) for tensor in node.inputs]
        operands = [
            arrays[id(t)] if c is None else np.asarray(c, np.float64)
            for t, c in zip(node.inputs, constants, strict=True)
            if t.name or c is not None
        ]
        if node.op == "ReduceMean":
            result = operands[0].mean(axis=query.reduced_axes(node), keepdims=True)
        else:
            operator = OPERATORS.get(node.op)
            function = None if operator is None else operator.function
            assert function is not None, "members of a region are pointwise"
            result = function(*operands, **node.attrs)
        arrays[id(node.outputs[0])] = np.asarray(result, np.float64)
    return arrays[id(region[-1].outputs[0])]
