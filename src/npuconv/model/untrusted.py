"""Checks on an untrusted model, before any later step reads it.

They cover sizes, nesting, text, tensors and attributes: everything that could make a later
step allocate, recurse or run without end. No check is quadratic, and none allocates a size
only because the model claims it. ``external_data`` checks the places of external data.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter

import onnx
from google.protobuf.message import Message
from onnx import TensorProto

from npuconv import limits
from npuconv.errors import ModelError
from npuconv.model.inference import MAX_SHAPE_VALUES
from npuconv.model.proto import all_graphs

MAX_AXES = 64  # largest number of axes of a numpy array
_WINDOW_ATTRIBUTES = frozenset(
    {"strides", "dilations", "kernel_shape", "pads", "output_padding", "output_shape", "group"}
)
_WINDOW_BOUND = 2**31  # bound of numbers whose sums and products fit into 64 bits
_MIB = 2**20
_COMPLEX = (TensorProto.COMPLEX64, TensorProto.COMPLEX128)
_PACKED: dict[int, int] = {  # elements in a byte
    **dict.fromkeys((TensorProto.UINT4, TensorProto.INT4, TensorProto.FLOAT4E2M1), 2),
    **dict.fromkeys((TensorProto.UINT2, TensorProto.INT2), 4),
}
# ONNX's shape inference computes the values of short lists, which may be shapes.
MAX_LIST = 1 << 20  # most elements of a list that inference may compute; shapes have ten
_OTHER_LIST = 64  # assumed elements of a result that inference does not compute
_COMPUTED = frozenset(
    {"Add", "Cast", "Concat", "Gather", "Identity", "Max", "Min", "Mul", "Reshape", "Slice"}
    | {"Squeeze", "Sub", "Transpose", "Unsqueeze"}
)

_Key = tuple[str, str]  # domain and name of a function
Nodes = Iterable[onnx.NodeProto]
Graphs = Sequence[tuple[onnx.GraphProto, int]]  # graphs with their depth of nesting


def check(proto: onnx.ModelProto, name: str) -> list[TensorProto]:
    """Refuse a model that exceeds a limit or contradicts itself.

    Returns:
        Every tensor of the model that may have its data in another file.

    Raises:
        ModelError: names the limit, or the contradiction.
    """
    graphs = list(all_graphs(proto.graph))
    tensors: list[TensorProto] = []
    try:
        limit = limits.present()
        deepest = max(depth for _, depth in graphs)
        if deepest > limit.depth:
            text = f"{name}: has subgraphs {deepest} deep, over {limit.depth}"
            raise ModelError(text, hint=limits.hint("depth"))
        _check_text(proto)
        count = sum(len(graph.node) for graph, _ in graphs)
        if proto.functions:
            count += _count_called_nodes(proto, graphs, name, limit.nodes)
        if count > limit.nodes:
            text = f"{name}: has {count} nodes, over {limit.nodes}"
            raise ModelError(text, hint=limits.hint("nodes"))
        for graph, depth in graphs:
            tensors += _check_graph(graph, name, inside=depth > 0)
        for function in proto.functions:
            tensors += (inner := list(_in_nodes(function.node)))
            for tensor in inner:
                check_tensor(tensor, name)
            _check_attributes(function.node, name, inside=True)
    except UnicodeDecodeError:
        raise ModelError(f"{name}: holds a name that is not UTF-8 text") from None
    check_concat_growth(proto, name)
    return tensors


def _check_text(message: Message) -> None:
    """Check all text of a message: later steps use it as text, but protobuf accepts any bytes.

    Raises:
        UnicodeDecodeError: a text is not UTF-8.
    """
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for part in [value] if isinstance(value, Message) else value:
                _check_text(part)
        elif field.type == field.TYPE_STRING:
            for text in [value] if isinstance(value, str | bytes) else value:
                if isinstance(text, bytes):  # protobuf gives bytes for text that it cannot decode
                    text.decode("utf-8")
                    raise UnicodeDecodeError("utf-8", text, 0, 1, "not text")


def _count_called_nodes(proto: onnx.ModelProto, graphs: Graphs, name: str, limit: int) -> int:
    """Return the number of nodes that all function calls expand to.

    Raises:
        ModelError: a function calls itself.
    """
    functions = {(f.domain, f.name): f.node for f in proto.functions}
    calls = {
        key: Counter(key for key in map(_key, n) if key in functions)
        for key, n in functions.items()
    }
    sizes: dict[_Key, int] = {}
    try:
        for key in TopologicalSorter(calls).static_order():
            inside = sum(times * sizes[called] for called, times in calls[key].items())
            sizes[key] = min(len(functions[key]) + inside, limit + 1)
    except CycleError as error:
        _, op = min(error.args[1])
        raise ModelError(f"{name}: function {op!r} calls itself") from None
    return sum(sizes.get(_key(node), 0) for graph, _ in graphs for node in graph.node)


def _key(node: onnx.NodeProto) -> _Key:
    return node.domain, node.op_type


def _check_graph(graph: onnx.GraphProto, name: str, inside: bool) -> list[TensorProto]:
    """Check everything in a graph but its subgraphs; return its tensors."""
    tensors = list(graph.initializer)
    for sparse in graph.sparse_initializer:
        tensors += (sparse.values, sparse.indices)
    tensors += _in_nodes(graph.node)
    for tensor in tensors:
        check_tensor(tensor, name)
    for sparse in graph.sparse_initializer:
        check_sparse(sparse, name)
    for info in (*graph.input, *graph.output, *graph.value_info):
        kind = info.type
        if kind.HasField("map_type") or kind.HasField("sparse_tensor_type"):
            raise ModelError(f"{name}: {info.name!r} is no tensor; only tensors are read")
        fixed = [d.dim_value for d in kind.tensor_type.shape.dim if d.dim_value > 0]
        check_shape(fixed, f"{name}: {info.name!r}", _size_of(kind.tensor_type.elem_type) or 1)
    _check_attributes(graph.node, name, inside)
    return tensors


def _in_nodes(nodes: Nodes) -> Iterator[TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors


def _check_attributes(nodes: Nodes, name: str, inside: bool) -> None:
    """Check the attributes of nodes; ``inside``: in a subgraph or function, never checked later."""
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("sparse_tensor"):
                check_sparse(attribute.sparse_tensor, name)
            values, fault = (attribute.i, *attribute.ints), ""
            if attribute.ref_attr_name:  # the call, which is checked, has the value
                fault = "" if inside else "refers to one of a function that is not there"
            elif attribute.name in _WINDOW_ATTRIBUTES and max(map(abs, values)) >= _WINDOW_BOUND:
                text = shape_text(attribute.ints or [attribute.i])
                fault = f"is {text}: over {_WINDOW_BOUND}, beyond any runtime"
            elif inside and attribute.type == onnx.AttributeProto.INTS and not attribute.ints:
                fault = "is an empty list"
            if fault:
                where = f"{name}: node {node.name or node.op_type!r}"
                raise ModelError(f"{where}: attribute {attribute.name!r} {fault}")


def check_tensor(tensor: TensorProto, name: str) -> None:
    """Refuse a tensor whose shape, type and values contradict each other.

    Raises:
        ModelError: names the claim and the content.
        UnicodeDecodeError: a string is not UTF-8.
    """
    where = f"{name}: tensor {tensor.name!r}"
    if tensor.HasField("segment"):
        raise ModelError(f"{where} is one segment of a tensor, which is not read")
    size = _item_size(tensor, where)
    count = check_shape(tensor.dims, where, size)
    if tensor.data_location == TensorProto.EXTERNAL:
        return
    if tensor.HasField("raw_data"):
        if tensor.data_type == TensorProto.STRING:
            raise ModelError(f"{where}: text cannot be given as bytes")
        needed, size_held = byte_size(tensor), len(tensor.raw_data)
        if needed != size_held:
            text = f"{where} says shape {shape_text(tensor.dims)} ({needed} bytes)"
            raise ModelError(f"{text} but holds {size_held} bytes")
        return
    values = getattr(tensor, onnx.helper.tensor_dtype_to_field(tensor.data_type))
    needed = 2 * count if tensor.data_type in _COMPLEX else count
    if tensor.data_type in _PACKED:
        needed = -(-count // _PACKED[tensor.data_type])
    if len(values) != needed:
        text = f"{where} says shape {shape_text(tensor.dims)} ({needed} values)"
        raise ModelError(f"{text} but holds {len(values)}")
    for string in tensor.string_data:
        string.decode("utf-8")


def byte_size(tensor: TensorProto) -> int:
    """Return the bytes of the values, by shape and type."""
    count = math.prod(tensor.dims)
    if tensor.data_type in _PACKED:
        return -(-count // _PACKED[tensor.data_type])
    return count * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize


def check_shape(dims: Iterable[int], where: str, size: int = 1) -> int:
    """Return the number of elements of a shape.

    ``size`` is the size of an element in bytes, ``where`` the start of the message.

    Raises:
        ModelError: the shape is impossible, or larger than a tensor may be.
    """
    shape = tuple(dims)
    fault, hint = _shape_fault(shape, size, limits.present().tensor_mib)
    if fault:
        raise ModelError(f"{where} {fault}", hint=hint)
    return math.prod(shape)


@lru_cache(maxsize=4096)  # a network has few different shapes
def _shape_fault(shape: tuple[int, ...], size: int, limit: int) -> tuple[str, str]:
    """Return the fault of a shape and a hint; empty strings if there is no fault."""
    if len(shape) > MAX_AXES:
        return f"has {len(shape)} axes, over {MAX_AXES}", ""
    if min(shape, default=0) < 0:
        return f"says shape {list(shape)}", ""
    # numpy limits the product of the non-zero extents even of an array without elements.
    total = math.prod(max(dim, 1) for dim in shape) * size
    if total > limit * _MIB:
        text = f"says shape {shape_text(shape)}: {total / _MIB:,.0f} MiB, over {limit}"
        return text, limits.hint("tensor_mib")
    return "", ""


def check_sparse(sparse: onnx.SparseTensorProto, name: str) -> None:
    """Refuse indices outside of the shape, and a shape that is too large when dense.

    Raises:
        ModelError: names the fault.
    """
    where = f"{name}: sparse tensor {sparse.values.name!r}"
    check_shape(sparse.dims, where, _item_size(sparse.values, where))
    check_tensor(sparse.values, name)
    check_tensor(sparse.indices, name)
    external = (sparse.values.data_location, sparse.indices.data_location)
    if TensorProto.EXTERNAL in external or sparse.indices.data_type != TensorProto.INT64:
        raise ModelError(f"{where}: its places are no integers, or lie in a file")
    places, shape = onnx.numpy_helper.to_array(sparse.indices), list(sparse.dims)
    flat = places.ndim == 1
    if not flat and (places.ndim != 2 or places.shape[1] != len(shape)):
        raise ModelError(f"{where}: its places have shape {list(places.shape)}")
    if len(places) != math.prod(sparse.values.dims):
        raise ModelError(f"{where}: {len(places)} places for {list(sparse.values.dims)} values")
    bounds = [math.prod(shape)] if flat else shape
    if places.size and (
        places.min() < 0 or (places.reshape(len(places), -1).max(0) >= bounds).any()
    ):
        raise ModelError(f"{where}: a place lies outside of shape {shape_text(shape)}")


def _item_size(tensor: TensorProto, where: str) -> int:
    size = _size_of(tensor.data_type)
    if not size:
        raise ModelError(f"{where} has unknown type {tensor.data_type}")
    return size


@lru_cache(maxsize=64)
def _size_of(kind: int) -> int:
    """Return the bytes of an element in memory; 0 for an unknown type."""
    if kind == TensorProto.STRING:
        return 8
    try:
        return int(onnx.helper.tensor_dtype_to_np_dtype(kind).itemsize)
    except (KeyError, ValueError, TypeError):
        return 0


def shape_text(shape: Iterable[int]) -> str:
    """Return a shape as text of at most 80 characters."""
    text = str(list(shape))
    return text if len(text) <= 80 else f"{text[:60]}...]"


def check_concat_growth(proto: onnx.ModelProto, name: str) -> None:
    """Refuse a model that concatenates a list with itself over and over.

    ONNX's shape inference would compute the list: sixty such nodes take it years.

    Raises:
        ModelError: names the node.
    """
    lengths = {t.name: min(math.prod(t.dims), MAX_SHAPE_VALUES) for t in proto.graph.initializer}
    for node in proto.graph.node:
        if node.op_type not in _COMPUTED:
            continue
        input_lengths = [lengths.get(name_of_input, _OTHER_LIST) for name_of_input in node.input]
        length = sum(input_lengths) if node.op_type == "Concat" else max(input_lengths, default=0)
        if length > MAX_LIST:
            where = f"{name}: node {node.name or node.op_type!r}"
            raise ModelError(f"{where} joins a list of up to {length} elements")
        lengths.update(dict.fromkeys(node.output, length))
