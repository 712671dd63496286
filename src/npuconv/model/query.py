"""Queries on nodes and tensors. Imports neither onnx nor numpy, so that rules load fast."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from npuconv import files
from npuconv.lazy import np, onnx
from npuconv.model.core import Graph, Model, Node, Tensor, with_inner

Pairs = tuple[tuple[int, int], ...]  # (begin, end) of every axis

CONVOLUTIONS = ("Conv", "ConvTranspose")
POOLS = ("MaxPool", "AveragePool", "LpPool")
ALREADY_QUANTIZED = frozenset(
    {"QLinearConv", "ConvInteger", "QLinearMatMul", "MatMulInteger", "QuantizeLinear"}
)
RANDOM = frozenset({
    *("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike"),
    *("Multinomial", "Bernoulli", "Dropout"),
})  # fmt: skip
STANDARD_DOMAINS = frozenset({"", "ai.onnx"})
_MAY_BE_MAPPED = 2**19  # least bytes of a tensor that may lie in a file


def is_constant(tensor: Tensor) -> bool:
    """Return whether the tensor's values are known (graph-surgeon's Constant has ``values``)."""
    return hasattr(type(tensor), "values")


def value(tensor: Tensor | None) -> np.ndarray | None:
    """Return the values of a constant tensor, else None. Never write into the array."""
    if tensor is None or not is_constant(tensor):
        return None
    array: np.ndarray = tensor.values
    if array.nbytes > _MAY_BE_MAPPED:
        files.count_mapped(array.nbytes)
    return array


def constants(nodes: Iterable[Node]) -> list[Tensor]:
    """Return every constant that the nodes read, also inside subgraphs, once."""
    by_name: dict[str, Tensor] = {}
    for node in nodes:
        for inner in with_inner(node):
            for tensor in inner.inputs:
                if is_constant(tensor):
                    by_name.setdefault(tensor.name, tensor)
    return list(by_name.values())


def typed_results(graph: Graph, nodes: Iterable[Node]) -> list[Tensor]:
    """Return results of known type and shape, without outputs of the graph."""
    outputs = {id(t) for t in graph.outputs}
    results = (t for node in nodes for t in node.outputs if t.name and id(t) not in outputs)
    return [t for t in results if t.dtype is not None and t.shape is not None]


def input_of(node: Node, index: int) -> Tensor | None:
    """Return input ``index``, or None if it is missing or empty (an omitted optional)."""
    if index >= len(node.inputs):
        return None
    tensor = node.inputs[index]
    return None if not is_constant(tensor) and not tensor.name else tensor


def constant_input(node: Node, index: int) -> np.ndarray | None:
    """Return the values of input ``index`` if it exists and is constant."""
    return value(input_of(node, index))


def constant_of(node: Node) -> np.ndarray | None:
    """Return the numbers of a Constant node; None for strings and sparse values."""
    if "value" in node.attrs:
        return np.asarray(node.attrs["value"].values)
    for name, dtype in (("float", np.float32), ("int", np.int64)):
        for key in (f"value_{name}", f"value_{name}s"):
            if key in node.attrs:
                return np.asarray(node.attrs[key], dtype)
    return None


def scalar_input(node: Node, index: int) -> float | None:
    """Return input ``index`` as a number if it is a constant of one element."""
    array = constant_input(node, index)
    if array is None or array.size != 1 or array.dtype.kind not in "biuf":
        return None
    return float(array.reshape(-1)[0])


def integers(node: Node, index: int, *names: str) -> list[int] | None:
    """Return the integers of an attribute by its names, else of constant input ``index``.

    None if there is neither.
    """
    written = next((v for name in names if (v := attribute(node, name)) is not None), None)
    array = constant_input(node, index) if written is None else np.asarray(written)
    return None if array is None else [int(v) for v in array.reshape(-1)]


def producer(tensor: Tensor) -> Node | None:
    """Return the node that produces the tensor, or None for inputs and constants."""
    return tensor.inputs[0] if tensor.inputs else None


def upstream_tensors(node: Node) -> list[Tensor]:
    """Return all tensors that the node depends on, each once."""
    tensors: dict[int, Tensor] = {}
    waiting = list(node.inputs)
    while waiting:
        tensor = waiting.pop()
        if id(tensor) not in tensors:
            tensors[id(tensor)] = tensor
            node_before = producer(tensor)
            waiting += list(node_before.inputs) if node_before is not None else []
    return list(tensors.values())


def consumers(tensor: Tensor) -> list[Node]:
    """Return every node that reads the tensor, also inside subgraphs."""
    return list(tensor.outputs)


def sole_consumer(model: Model, tensor: Tensor) -> Node | None:
    """Return the sole consumer of a tensor that is not an output; None inside a subgraph."""
    if len(tensor.outputs) != 1 or model.is_output(tensor):
        return None
    # A branch may not run, so its nodes must stay in it.
    return tensor.outputs[0] if model.is_top_level(tensor.outputs[0]) else None


def shape(tensor: Tensor | None) -> tuple[int | str | None, ...] | None:
    """Return the shape, with names for symbolic dimensions; None if the rank is unknown."""
    return dimensions(None if tensor is None else tensor.shape)


def dimensions(dims: Iterable[Any] | None) -> tuple[int | str | None, ...] | None:
    """Return a shape as numbers, names and None (not known); None if there is no shape."""
    if dims is None:
        return None
    # Nearly all are numbers: a call for each would slow down every pass.
    return tuple([d if type(d) is int and d > 0 else _dim(d) for d in dims])


def static_shape(tensor: Tensor | None) -> tuple[int, ...] | None:
    """Return the shape if every dimension is a known number, else None."""
    dims = shape(tensor)
    if dims is None or any(not isinstance(d, int) for d in dims):
        return None
    return tuple(d for d in dims if isinstance(d, int))


def rank(tensor: Tensor | None) -> int | None:
    """Return the number of dimensions, if known."""
    dims = shape(tensor)
    return None if dims is None else len(dims)


def attribute(node: Node, name: str, default: Any = None) -> Any:
    """Return an attribute by ONNX's name, or the default."""
    return node.attrs.get(name, default)


def is_standard(node: Node) -> bool:
    """Return whether the operator is of the ONNX standard domain."""
    return (node.domain or "") in STANDARD_DOMAINS


def qualified(node: Node) -> str:
    """Return the operator, with its domain if that is not the standard one."""
    return node.op if is_standard(node) else f"{node.domain}.{node.op}"


def dtype_name(tensor: Tensor | None) -> str:
    """Return numpy's name of the element type, or ''."""
    dtype = getattr(tensor, "dtype", None)
    return "" if dtype is None else _name_of(dtype)


@lru_cache(maxsize=64)  # numpy computes the name at each call
def _name_of(dtype: Any) -> str:
    if isinstance(dtype, int):  # a type that numpy lacks stays ONNX's number
        return str(onnx.TensorProto.DataType.Name(dtype)).lower()
    # numpy.dtype has a name, a scalar type such as numpy.int8 has __name__.
    return str(getattr(dtype, "name", None) or getattr(dtype, "__name__", dtype))


def _dim(dim: Any) -> int | str | None:
    if isinstance(dim, str):
        return dim or None
    # Exporters write -1 or 0 for "unknown"; a real extent of 0 holds no data to convert.
    return int(dim) if dim is not None and int(dim) > 0 else None


def matches(name: str, pattern: str) -> bool:
    """Return whether a name equals a pattern, or matches it.

    Names may contain brackets, which a pattern reads as a set of characters.
    """
    return name == pattern or fnmatchcase(name, pattern)


def pad_amounts(node: Node) -> Pairs | None:
    """Return (begin, end) of every axis of a Pad node, or None if they are not constant.

    Pad-1 calls them ``paddings``, Pad-2 has an attribute, Pad-11 an input, Pad-18 ``axes``.
    """
    flat = integers(node, 1, "pads", "paddings")
    if flat is None or len(flat) % 2:
        return None
    half = len(flat) // 2
    pairs = tuple(zip(flat[:half], flat[half:], strict=True))
    if input_of(node, 3) is None:
        return pairs
    axes, count = constant_input(node, 3), rank(node.inputs[0])
    if axes is None or count is None or axes.size != len(pairs):
        return None
    places = [int(axis) for axis in axes.reshape(-1)]
    if any(not -count <= axis < count for axis in places):
        return None
    result = [(0, 0)] * count
    for axis, pair in zip(places, pairs, strict=True):
        result[axis] = pair
    return tuple(result)


def pad_fill(node: Node) -> float | None:
    """Return the fill value of a Pad node in mode ``constant``; None if it is computed."""
    if input_of(node, 2) is not None:
        return scalar_input(node, 2)
    return float(attribute(node, "value", 0.0))


def pad_mode(node: Node) -> str:
    """Return the mode of a Pad node: constant, reflect, edge or wrap."""
    return str(attribute(node, "mode", "constant"))


def pads_with_zero(node: Node) -> bool:
    """Return whether a Pad node pads with the constant 0."""
    return pad_mode(node) == "constant" and pad_fill(node) == 0


def reduced_axes(node: Node) -> tuple[int, ...] | None:
    """Return the axes of a reduction, counted from the front and sorted.

    Returns:
        None where all are meant, or where they or the rank are not known.
    """
    axes, count = integers(node, 1, "axes"), rank(node.inputs[0])
    return tuple(sorted(axis % count for axis in axes)) if axes is not None and count else None


def is_normalizing(mean: Node) -> bool:
    """Return whether a mean is subtracted from its input, or is a mean of squares."""
    source, square = mean.inputs[0], producer(mean.inputs[0])
    differences = [n for n in consumers(mean.outputs[0]) if n.op == "Sub"]
    if any(tensor is source for n in differences for tensor in n.inputs):
        return True
    if square is None or square.op != "Mul":
        return square is not None and square.op == "Pow"
    return square.inputs[0] is square.inputs[1]
