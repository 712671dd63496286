"""An axis of extent 1 that is put in and taken out again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from npuconv.legalize.tools.match import BROADCASTING, UNARY
from npuconv.model import edit, pad, query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npuconv.model.core import Model
    from npuconv.model.types import Node, Tensor

AXIS = 2  # height, of a layer that has only a width


def axes_of(node: Node) -> tuple[int, ...] | None:
    """The axes of a Squeeze or Unsqueeze, counted from the front; None if not known."""
    array = query.constant_input(node, 1)
    inner = node.inputs[0] if node.op == "Squeeze" else node.outputs[0]
    rank = query.rank(inner)
    if array is None or rank is None:
        return None
    return tuple(sorted(int(axis) % rank for axis in array.reshape(-1)))


def is_squeeze(node: Node, axes: tuple[int, ...] = (AXIS,)) -> bool:
    """Return whether the node is a Squeeze of exactly these axes."""
    return node.op == "Squeeze" and query.is_standard(node) and axes_of(node) == axes


def is_unsqueeze(node: Node, axes: tuple[int, ...] = (AXIS,)) -> bool:
    """Return whether the node is an Unsqueeze of exactly these axes."""
    return node.op == "Unsqueeze" and query.is_standard(node) and axes_of(node) == axes


def unsqueeze(model: Model, node: Node, tensor: Tensor, axes: tuple[int, ...] = (AXIS,)) -> Tensor:
    """The tensor with these axes put in: of a constant now, else by an Unsqueeze.

    One that is there already is shared.
    """
    import numpy as np

    array = query.value(tensor)
    if array is not None:
        return edit.constant(model, tensor.name, np.expand_dims(array, axes))
    for reader in query.consumers(tensor):
        if reader.inputs[0] is tensor and is_unsqueeze(reader, axes) and model.is_top_level(reader):
            edit.inherit(model, reader, node)
            return reader.outputs[0]
    wanted = edit.shared_constant(model, _name(axes), np.asarray(axes, np.int64))
    dims = query.shape(tensor)
    shape = None if dims is None else widened(dims, axes)
    return edit.insert(model, "Unsqueeze", [tensor, wanted], origin=[node], shape=shape)


def squeeze(
    model: Model, node: Node, source: Tensor, result: Tensor, axes: tuple[int, ...] = (AXIS,)
) -> None:
    """Let a Squeeze of ``source`` make ``result``."""
    import numpy as np

    wanted = edit.shared_constant(model, _name(axes), np.asarray(axes, np.int64))
    edit.add_node(model, "Squeeze", [source, wanted], [result], origin=[node])


def widened(dims: Sequence[int | str | None], axes: tuple[int, ...]) -> list[int | str | None]:
    """A shape with extents of 1 put in at these axes of the result."""
    result = list(dims)
    for axis in axes:
        result.insert(axis, 1)
    return result


def _name(axes: tuple[int, ...]) -> str:
    return "npuconv/axes_" + "_".join(map(str, axes))


Perm = tuple[int, ...]

_CONVERSIONS = frozenset({"QuantizeLinear", "DequantizeLinear"})


def perm_of(node: Node) -> Perm | None:
    """The perm of a Transpose; None where it is not one, or its rank is not known."""
    if node.op != "Transpose" or not query.is_standard(node) or not len(node.inputs):
        return None
    written = query.attribute(node, "perm")
    rank = query.rank(node.inputs[0])
    if written:
        return tuple(int(axis) for axis in written)
    return None if rank is None else tuple(reversed(range(rank)))


def inverse(perm: Perm) -> Perm:
    """The perm that undoes another."""
    return tuple(perm.index(axis) for axis in range(len(perm)))


def composed(first: Perm, second: Perm) -> Perm:
    """The one perm that two in a row are."""
    return tuple(first[axis] for axis in second)


def is_identity(perm: Perm) -> bool:
    """Return whether a permutation leaves every axis in place."""
    return perm == tuple(range(len(perm)))


def data_inputs(node: Node) -> list[Tensor]:
    """The inputs whose axes are those of the output."""
    many = node.op in BROADCASTING or node.op == "Concat"
    return list(node.inputs)[: None if many else 1]


def variables(node: Node) -> list[Tensor]:
    """Its data inputs that are not constant."""
    return [t for t in data_inputs(node) if not query.is_constant(t)]


def is_movable(node: Node, rank: int) -> bool:
    """Return whether the node computes the same on permuted tensors of this rank."""
    if not query.is_standard(node) or any(not t.name for t in node.outputs):
        return False
    if len(node.outputs) != 1 and node.op != "Split":
        return False
    read = data_inputs(node)
    if all(query.is_constant(t) for t in read) or any(not t.name for t in read):
        return False
    return _has_no_other_tensor(node) and _fits(node, rank)


def _has_no_other_tensor(node: Node) -> bool:
    """Return whether all inputs besides the data are constant, omitted or scalar."""
    others = list(node.inputs)[len(data_inputs(node)) :]
    return all(query.is_constant(t) or not t.name or query.rank(t) == 0 for t in others)


def _fits(node: Node, rank: int) -> bool:
    if node.op in UNARY:
        return query.rank(node.inputs[0]) in (None, rank)
    if any(query.rank(t) != rank for t in variables(node)):
        return False
    arrays = [t for t in data_inputs(node) if query.is_constant(t)]
    if node.op in BROADCASTING:
        # Until opset 7 a constant could be matched from the left.
        legacy = "axis" in node.attrs or node.attrs.get("broadcast")
        return not legacy and all((query.rank(t) or 0) <= rank for t in arrays)
    if node.op == "Concat":
        return "axis" in node.attrs and all(query.rank(t) == rank for t in arrays)
    if node.op in _CONVERSIONS:
        return all(query.rank(t) in (0, 1) for t in list(node.inputs)[1:])
    reads = _POSITIONS.get(node.op)
    return reads is not None and reads(node) is not None


def _pads(node: Node) -> list[int] | None:
    """The amounts of a Pad that names no axes, where they are constant."""
    if query.input_of(node, 3) is not None:
        return None
    pairs = pad.amounts(node)
    return None if pairs is None else [b for b, _ in pairs] + [e for _, e in pairs]


def _sliced_axes(node: Node) -> list[int] | None:
    """The axes of a Slice, where it names them."""
    written = query.attribute(node, "axes")
    array = query.constant_input(node, 3)
    if written is None and array is None:
        return None
    return [int(v) for v in (written if array is None else array.reshape(-1))]


def _factors(node: Node) -> list[float] | None:
    """Scales or sizes of a Resize that only repeats cells, one for each axis."""
    nearest = str(query.attribute(node, "mode", "nearest")) == "nearest"
    mode = str(query.attribute(node, "coordinate_transformation_mode", ""))
    if not nearest or "axes" in node.attrs or mode == "tf_crop_and_resize":
        return None
    array = query.constant_input(node, _factor_index(node))
    fits = array is not None and array.size == query.rank(node.inputs[0])
    return None if array is None or not fits else array.reshape(-1).tolist()


def _factor_index(node: Node) -> int:
    """Scales come last but for sizes; Resize-10 has no others."""
    return len(node.inputs) - 1


# What of an operator names axes or has a value for each; None where it is not known.
_POSITIONS: dict[str, Callable[[Node], list[Any] | None]] = {
    "Pad": _pads,
    "Resize": _factors,
    "Slice": _sliced_axes,
    "Split": lambda node: [int(query.attribute(node, "axis", 0))],
}


def permute(model: Model, node: Node, perm: Perm) -> None:
    """Make the constants and attributes of a node fit inputs that are permuted."""
    for index, tensor in enumerate(data_inputs(node)):
        array = query.value(tensor)
        if array is None or (array.size == 1 and node.op != "Concat"):
            continue
        full = array.reshape((1,) * (len(perm) - array.ndim) + array.shape)
        node.inputs[index] = edit.constant(model, tensor.name, full.transpose(perm))
    change = _CHANGES.get(node.op)
    if change is not None:
        change(model, node, perm)


def _change_axis(model: Model, node: Node, perm: Perm) -> None:
    del model
    node.attrs["axis"] = perm.index(int(query.attribute(node, "axis", 0)) % len(perm))


def _change_scales(model: Model, node: Node, perm: Perm) -> None:
    """The scales of a conversion lie along an axis, where there are several."""
    del model
    if query.rank(node.inputs[1]) == 1:
        node.attrs["axis"] = perm.index(int(query.attribute(node, "axis", 1)) % len(perm))


def _change_pads(model: Model, node: Node, perm: Perm) -> None:
    old = _pads(node) or []
    new = [old[axis] for axis in perm] + [old[len(perm) + axis] for axis in perm]
    _write(model, node, "pads", 1, new)


def _change_axes(model: Model, node: Node, perm: Perm) -> None:
    old = _sliced_axes(node) or []
    _write(model, node, "axes", 3, [perm.index(axis % len(perm)) for axis in old])


def _change_factors(model: Model, node: Node, perm: Perm) -> None:
    index = _factor_index(node)
    array = query.constant_input(node, index)
    assert array is not None, "ask is_movable first"
    new = array.reshape(-1)[list(perm)]
    node.inputs[index] = edit.constant(model, f"{node.name}/factors", new)


def _write(model: Model, node: Node, name: str, index: int, values: list[int]) -> None:
    """Write values to the input of that index if the node has it, else to the attribute."""
    if query.input_of(node, index) is None:
        node.attrs[name] = values
    else:
        node.inputs[index] = edit.integers(model, f"{node.name}/{name}", values)


_CHANGES: dict[str, Callable[[Model, Node, Perm], None]] = {
    "Concat": _change_axis,
    "DequantizeLinear": _change_scales,
    "Pad": _change_pads,
    "QuantizeLinear": _change_scales,
    "Resize": _change_factors,
    "Slice": _change_axes,
    "Split": _change_axis,
}


def permuted_dims(
    dims: Sequence[int | str | None] | None, perm: Perm
) -> list[int | str | None] | None:
    """The extents of a tensor after a Transpose."""
    return None if dims is None else [dims[axis] for axis in perm]
