"""Replace the experimental operators of early ONNX by standard operators.

ImageScaler (``scale * x + bias[c]``), Affine (``alpha * x + beta``) and Crop were
never part of a released opset, so no opset can be raised over them.
"""

from __future__ import annotations

from npuconv.lazy import np
from npuconv.legalize.registry import Log, Phase, register_pass
from npuconv.legalize.tools.layout import TO_THE_END
from npuconv.model import Model, Node, Tensor, edit

# Mul and Add broadcast as numpy does from here on.
_BROADCASTING = 7


@register_pass(
    Phase.CANONICALIZE, "Affine", "Crop", "ImageScaler",
    after=("name-nodes",), infers=True, least_opset=_BROADCASTING,
)  # fmt: skip
def replace_experimental_ops(model: Model, log: Log, node: Node) -> int:
    crops = node.op == "Crop"
    with log.rewrite(model, [node], node.op, "Slice" if crops else "Mul + Add", modulus=None):
        (_crop if crops else _scale_and_shift)(model, node)
    return 1


def _scale_and_shift(model: Model, node: Node) -> None:
    by_channel = node.op == "ImageScaler"
    scale = node.attrs.get("scale" if by_channel else "alpha", 1.0)
    shift = np.asarray(node.attrs.get("bias" if by_channel else "beta", 0.0), np.float32)
    shift = shift.reshape(-1, 1, 1) if by_channel else shift
    factor = edit.constant(model, f"{node.name}/scale", np.asarray(scale, np.float32))
    offset = edit.constant(model, f"{node.name}/shift", shift)
    scaled = edit.variable(model, f"{node.name}/scaled", node.inputs[0])
    source, result = node.inputs[0], node.outputs[0]
    edit.disconnect(node)
    edit.add_node(model, "Mul", [source, factor], [scaled], origin=[node])
    edit.add_node(model, "Add", [scaled, offset], [result], origin=[node])


def _crop(model: Model, node: Node) -> None:
    """Slice: ``border`` is left, top, right, bottom; ``scale``, if there, height and width."""
    west, north, east, south = node.attrs.get("border", [0, 0, 0, 0])
    size = node.attrs.get("scale")
    stops = [-south or TO_THE_END, -east or TO_THE_END]
    if size:
        stops = [north + size[0], west + size[1]]
    values = {"starts": [north, west], "ends": stops, "axes": [2, 3]}
    inputs: list[Tensor] = [node.inputs[0]]
    attrs = values if model.opset < 10 else {}  # Slice-10 turned its attributes into inputs
    if not attrs:
        inputs += [edit.integers(model, f"{node.name}/{k}", v) for k, v in values.items()]
    result = node.outputs[0]
    edit.disconnect(node)
    edit.add_node(model, "Slice", inputs, [result], origin=[node], attrs=attrs)
