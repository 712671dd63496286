"""Transpose, Squeeze, Unsqueeze, Reshape, and nodes that let these pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from npuconv.lazy import np
from npuconv.model import Model, Node, Tensor, edit, query
from npuconv.model.conv import flat_pads
from npuconv.records import dataclass

Dims = Sequence[int | str | None]

# Elementwise operators with one data input; other inputs do not depend on positions.
UNARY = frozenset(
    {"Relu", "Clip", "LeakyRelu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Elu", "Selu"}
    | {"Celu", "Softplus", "Softsign", "ThresholdedRelu", "Gelu", "Mish", "Erf", "Swish"}
    | {"Neg", "Abs", "Sqrt", "Exp", "Log", "Reciprocal", "Floor", "Ceil", "Round", "Sign"}
    | {"Cast", "Identity", "Not", "IsNaN"}
)
# Inputs are matched position by position, after broadcasting from the right.
BROADCASTING = frozenset(
    {"Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Sum", "Mean", "PRelu", "Mod"}
    | {"Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "And", "Or", "Xor", "Where"}
)

T = TypeVar("T")
NEW = -1
TO_THE_END = 2**63 - 1  # the end of a Slice, whatever the extent
RESHAPES = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})
Perm = tuple[int, ...]
Axes = tuple[int, ...]
HEIGHT: Axes = (2,)  # the axis that a layer with only a width lacks
_CONVERSIONS = frozenset({"QuantizeLinear", "DequantizeLinear"})


@dataclass(frozen=True)
class AxisMap:
    """An order of axes, where axes of extent 1 may come or go: Transpose, Squeeze, Unsqueeze.

    Attributes:
        axes: source axis of every axis of the result; NEW for an axis of extent 1.
        rank: rank of the source.
    """

    axes: Axes
    rank: int

    @classmethod
    def from_node(cls, node: Node) -> AxisMap | None:
        """Return the axis map of a node; None if it has none, or it is not known."""
        if not query.is_standard(node) or not len(node.inputs) or len(node.outputs) != 1:
            return None
        if node.op == "Transpose":
            perm = perm_of(node)
            return None if perm is None else cls(perm, len(perm))
        source, dims = query.shape(node.inputs[0]), query.shape(node.outputs[0])
        if node.op not in RESHAPES or not source or not dims or None in source + dims:
            return None
        axes, axis = list[int](), 0
        for dim in dims:
            while dim != 1 and source[axis : axis + 1] == (1,):
                axis += 1
            if source[axis : axis + 1] == (dim,):
                axes.append(axis)
                axis += 1
            elif dim == 1:
                axes.append(NEW)
            else:
                return None
        return cls(tuple(axes), len(source)) if set(source[axis:]) <= {1} else None

    @property
    def is_identity(self) -> bool:
        """Return whether every axis stays in place."""
        return self.axes == tuple(range(self.rank))

    @property
    def inverse(self) -> AxisMap:
        """Return the map that undoes this one."""
        places = {axis: place for place, axis in enumerate(self.axes)}
        return AxisMap(tuple(places.get(axis, NEW) for axis in range(self.rank)), len(self.axes))

    @property
    def removed(self) -> Axes:
        """Return the axes of the source that the result lacks."""
        return tuple(axis for axis in range(self.rank) if axis not in self.axes)

    @property
    def old_axes(self) -> list[int]:
        """Return the axes of the source that the result has, in the order of the result."""
        return [axis for axis in self.axes if axis != NEW]

    @property
    def transposes(self) -> bool:
        """Return whether it takes a Transpose."""
        return self.old_axes != sorted(self.old_axes)

    def apply(self, values: Sequence[T], neutral: T) -> list[T]:
        """Return a value for each axis of the result; ``neutral`` for new axes."""
        return [neutral if axis == NEW else values[axis] for axis in self.axes]

    def insert(self, model: Model, node: Node, tensor: Tensor) -> Tensor:
        """Insert a Squeeze, Transpose and Unsqueeze in the place of ``node``; return the result."""
        if self.removed:
            wide, dims = tensor, query.shape(tensor)
            tensor = edit.variable(model, f"{model.label(node)}/Squeeze/out", dtype=wide.dtype)
            if dims is not None:
                tensor.shape = [dim for axis, dim in enumerate(dims) if axis not in self.removed]
            squeeze(model, node, wide, tensor, self.removed)
        perm = [sorted(self.old_axes).index(axis) for axis in self.old_axes]
        tensor = transpose(model, node, tensor, perm, query.shape(tensor))
        new = tuple(place for place, axis in enumerate(self.axes) if axis == NEW)
        return unsqueeze(model, node, tensor, new) if new else tensor


def reshape(model: Model, node: Node, source: Tensor, shape: Sequence[int]) -> Tensor:
    """Insert a Reshape in the place of ``node`` and return its result."""
    target = edit.integers(model, f"{node.name}/shape", shape)
    return edit.insert(model, "Reshape", [source, target], origin=[node])


def transpose(
    model: Model, node: Node, source: Tensor, perm: Sequence[int], dims: Dims | None = None
) -> Tensor:
    """Insert a Transpose in the place of ``node`` and return its result.

    None is inserted for the order 0, 1, 2... With ``dims``, extents of the source, the shape
    of the result is noted.
    """
    if list(perm) == sorted(perm):
        return source
    shape = None if dims is None else [dims[axis] for axis in perm]
    attrs = {"perm": list(perm)}
    return edit.insert(model, "Transpose", [source], origin=[node], shape=shape, attrs=attrs)


def perm_of(node: Node) -> Perm | None:
    """Return the perm of a Transpose; None for another node, or if its rank is not known."""
    if node.op != "Transpose" or not query.is_standard(node) or not len(node.inputs):
        return None
    written = query.attribute(node, "perm")
    rank = query.rank(node.inputs[0])
    if written:
        return tuple(int(axis) for axis in written)
    return None if rank is None else tuple(reversed(range(rank)))


def squeezed_axes(node: Node) -> Axes | None:
    """Return the axes of a Squeeze or Unsqueeze, from the front; None if not known."""
    axes = query.integers(node, 1)
    rank = query.rank(node.inputs[0] if node.op == "Squeeze" else node.outputs[0])
    return None if axes is None or rank is None else tuple(sorted(axis % rank for axis in axes))


def unsqueeze(model: Model, node: Node, tensor: Tensor, axes: Axes = HEIGHT) -> Tensor:
    """Return the tensor with these axes inserted: as a constant, else by an Unsqueeze.

    An Unsqueeze that is there already is shared.
    """
    array = query.value(tensor)
    if array is not None:
        return edit.constant(model, tensor.name, np.expand_dims(array, axes))
    for consumer in query.consumers(tensor):
        if (
            consumer.inputs[0] is tensor
            and consumer.op == "Unsqueeze"
            and squeezed_axes(consumer) == axes
            and model.is_top_level(consumer)
        ):
            edit.inherit(model, consumer, node)
            return consumer.outputs[0]
    dims = query.shape(tensor)
    shape = None if dims is None else widened(dims, axes)
    inputs = [tensor, _shared(model, axes)]
    return edit.insert(model, "Unsqueeze", inputs, origin=[node], shape=shape)


def squeeze(model: Model, node: Node, source: Tensor, result: Tensor, axes: Axes = HEIGHT) -> None:
    """Let a Squeeze of ``source`` make ``result``."""
    edit.add_node(model, "Squeeze", [source, _shared(model, axes)], [result], origin=[node])


def _shared(model: Model, axes: Axes) -> Tensor:
    name = "npuconv/axes_" + "_".join(map(str, axes))
    return edit.shared_constant(model, name, np.asarray(axes, np.int64))


def widened(dims: Dims, axes: Axes) -> list[int | str | None]:
    """Return a shape with extents of 1 inserted at these axes of the result."""
    result = list(dims)
    for axis in axes:
        result.insert(axis, 1)
    return result


def data_inputs(node: Node) -> list[Tensor]:
    """Return the inputs that have the axes of the output."""
    many = node.op in BROADCASTING or node.op == "Concat"
    return list(node.inputs)[: None if many else 1]


def variables(node: Node) -> list[Tensor]:
    """Return the data inputs of a node that are not constant."""
    return [t for t in data_inputs(node) if not query.is_constant(t)]


def is_movable(node: Node, order: AxisMap) -> bool:
    """Return whether the node computes the same on tensors in another order of axes."""
    if not query.is_standard(node) or any(not t.name for t in node.outputs):
        return False
    if len(node.outputs) != 1 and node.op != "Split":
        return False
    read, arrays = variables(node), [t for t in data_inputs(node) if query.is_constant(t)]
    if not read or any(not t.name for t in read):
        return False
    if any(query.rank(t) != order.rank for t in read):
        is_known = any(query.rank(t) is not None for t in read)
        return node.op in UNARY and not is_known and not order.removed and NEW not in order.axes
    if any(
        (query.shape(t) or ())[a : a + 1] != (1,)
        for t in (*read, *node.outputs)
        for a in order.removed
    ):
        return False  # broadcast along an axis that would be removed
    parameters = list(node.inputs)[len(data_inputs(node)) :]
    if node.op == "BatchNormalization":
        return order.axes[1:2] == (1,) and all(map(query.is_constant, parameters))
    if any(not query.is_constant(t) and t.name and query.rank(t) != 0 for t in parameters):
        return False
    if node.op in UNARY:
        return True
    ranks = [query.rank(t) or 0 for t in arrays]
    if node.op in BROADCASTING:
        # Until opset 7 a constant could be matched from the left.
        legacy = "axis" in node.attrs or node.attrs.get("broadcast")
        return not legacy and all(r <= order.rank for r in ranks)
    if node.op in _CONVERSIONS:
        axis = int(query.attribute(node, "axis", 1)) % order.rank
        return all(query.rank(t) in (0, 1) for t in parameters) and axis not in order.removed
    if node.op in ("Concat", "Split"):
        is_stated = "axis" in node.attrs or node.op == "Split"
        fits = is_stated and all(r == order.rank for r in ranks)
        return fits and int(query.attribute(node, "axis", 0)) % order.rank not in order.removed
    values = _BY_AXIS.get(node.op)
    old = None if values is None else values(node)
    if old is None or not order.removed:
        return old is not None
    removed = set(order.removed)
    if node.op == "Slice":
        return removed.isdisjoint(axis % order.rank for axis in old)
    return True  # an extent of 1 before and behind: neither padded nor resized


def move(model: Model, node: Node, order: AxisMap) -> None:
    """Adapt the constants and attributes of a movable node to inputs in another order of axes."""
    for index, tensor in enumerate(data_inputs(node)):
        array = query.value(tensor)
        if array is None or (array.size == 1 and node.op != "Concat"):
            continue
        full = array.reshape((1,) * (order.rank - array.ndim) + array.shape)
        moved = full.transpose([*order.old_axes, *order.removed])
        moved = moved.reshape(order.apply(full.shape, 1))
        node.inputs[index] = edit.constant(model, tensor.name, moved)
    per_channel = node.op in _CONVERSIONS and query.rank(node.inputs[1]) == 1
    if node.op in ("Concat", "Split") or per_channel:
        axis = int(query.attribute(node, "axis", 1 if per_channel else 0))
        node.attrs["axis"] = order.axes.index(axis % order.rank)
    elif node.op in _BY_AXIS:
        old = _BY_AXIS[node.op](node)
        assert old is not None, "ask is_movable first"
        if node.op == "Resize":
            new = np.asarray(order.apply(old, 1), node.inputs[-1].dtype)
            node.inputs[-1] = edit.constant(model, f"{node.name}/factors", new)
            return
        if node.op == "Pad":
            name, index = "pads", 1
            values = order.apply(old[: order.rank], 0) + order.apply(old[order.rank :], 0)
        else:
            name, index = "axes", 3
            values = [order.axes.index(axis % order.rank) for axis in old]
        if query.input_of(node, index) is None:
            node.attrs[name] = values
        else:
            node.inputs[index] = edit.integers(model, f"{node.name}/{name}", values)


def _pads(node: Node) -> list[int] | None:
    """Return the amounts of a Pad that names no axes, if they are constant."""
    if query.input_of(node, 3) is not None:
        return None
    pairs = query.pad_amounts(node)
    return None if pairs is None else flat_pads(pairs)


def _factors(node: Node) -> list[float] | None:
    """Return scales or sizes of a Resize that only repeats cells, by axis.

    They are its last input: sizes where there are any, else scales.
    """
    nearest = str(query.attribute(node, "mode", "nearest")) == "nearest"
    mode = str(query.attribute(node, "coordinate_transformation_mode", ""))
    if not nearest or "axes" in node.attrs or mode == "tf_crop_and_resize":
        return None
    array = query.constant_input(node, len(node.inputs) - 1)
    fits = array is not None and array.size == query.rank(node.inputs[0])
    return None if array is None or not fits else array.reshape(-1).tolist()


# Operators with axes, or a value for each axis, in an input or attribute; None if not known.
_BY_AXIS: dict[str, Callable[[Node], list[Any] | None]] = {
    "Pad": _pads,
    "Resize": _factors,
    "Slice": lambda node: query.integers(node, 3, "axes"),
}
