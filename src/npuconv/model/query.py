"""Questions about nodes and tensors. Imports neither onnx nor numpy, so rules may use it."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from npuconv import files

if TYPE_CHECKING:
    import numpy as np

    from npuconv.model.core import Model
    from npuconv.model.types import Node, Tensor

CONVOLUTIONS = ("Conv", "ConvTranspose")
POOLS = ("MaxPool", "AveragePool", "LpPool")
ALREADY_QUANTIZED = frozenset(
    {"QLinearConv", "ConvInteger", "QLinearMatMul", "MatMulInteger", "QuantizeLinear"}
)
STANDARD_DOMAINS = frozenset({"", "ai.onnx"})
_LARGE = 2**19  # bytes of a tensor that may lie in a file


def is_constant(tensor: Tensor) -> bool:
    """Return whether the tensor's values are known (graph-surgeon's Constant has ``values``)."""
    return hasattr(type(tensor), "values")


def value(tensor: Tensor | None) -> np.ndarray | None:
    """The values of a constant tensor, else None. Never write into the array."""
    if tensor is None or not is_constant(tensor):
        return None
    array: np.ndarray = tensor.values
    if array.nbytes > _LARGE:
        files.count_mapped(array.nbytes)
    return array


def input_of(node: Node, index: int) -> Tensor | None:
    """Input ``index``, or None where it is missing or empty (an omitted optional)."""
    if index >= len(node.inputs):
        return None
    tensor = node.inputs[index]
    return None if not is_constant(tensor) and not tensor.name else tensor


def constant_input(node: Node, index: int) -> np.ndarray | None:
    """Values of input ``index`` if it is there and constant."""
    return value(input_of(node, index))


def scalar_input(node: Node, index: int) -> float | None:
    """Input ``index`` as a number if it is a constant of one element."""
    array = constant_input(node, index)
    if array is None or array.size != 1 or array.dtype.kind not in "biuf":
        return None
    return float(array.reshape(-1)[0])


def producer(tensor: Tensor) -> Node | None:
    """The node that makes the tensor, or None for inputs and constants."""
    return tensor.inputs[0] if tensor.inputs else None


def consumers(tensor: Tensor) -> list[Node]:
    """Every node that reads the tensor, also from inside a subgraph."""
    return list(tensor.outputs)


def sole_consumer(model: Model, tensor: Tensor) -> Node | None:
    """The one node that reads the tensor, if no output of the model does, nor a subgraph."""
    if len(tensor.outputs) != 1 or model.is_output(tensor):
        return None
    # What a branch reads may not run at all: nothing of it can be taken out of it.
    return tensor.outputs[0] if model.is_top_level(tensor.outputs[0]) else None


def shape(tensor: Tensor | None) -> tuple[int | str | None, ...] | None:
    """The shape, with names for symbolic dimensions; None where the rank is unknown."""
    return dimensions(None if tensor is None else tensor.shape)


def dimensions(dims: Iterable[Any] | None) -> tuple[int | str | None, ...] | None:
    """Return a shape as numbers, names and None (not known); None if there is no shape."""
    if dims is None:
        return None
    # Nearly all are numbers, and every pass asks for shapes: a call for each would be felt.
    return tuple([d if type(d) is int and d > 0 else _dim(d) for d in dims])


def static_shape(tensor: Tensor | None) -> tuple[int, ...] | None:
    """The shape if every dimension is a known number, else None."""
    dims = shape(tensor)
    if dims is None or any(not isinstance(d, int) for d in dims):
        return None
    return tuple(d for d in dims if isinstance(d, int))


def rank(tensor: Tensor | None) -> int | None:
    """Number of dimensions, if known."""
    dims = shape(tensor)
    return None if dims is None else len(dims)


def attribute(node: Node, name: str, default: Any = None) -> Any:
    """An attribute as ONNX names it, or the default."""
    return node.attrs.get(name, default)


def is_standard(node: Node) -> bool:
    """Return whether the operator is of the ONNX standard domain."""
    return (node.domain or "") in STANDARD_DOMAINS


def qualified(node: Node) -> str:
    """Operator with its domain where that is not the standard one."""
    return node.op if is_standard(node) else f"{node.domain}.{node.op}"


def dtype_name(tensor: Tensor | None) -> str:
    """The element type as numpy calls it, or ''."""
    dtype = getattr(tensor, "dtype", None)
    return "" if dtype is None else _name_of(dtype)


@lru_cache(maxsize=64)  # numpy works a name out anew each time
def _name_of(dtype: Any) -> str:
    if isinstance(dtype, int):  # a type numpy has no name for stays ONNX's number
        from onnx import TensorProto

        return str(TensorProto.DataType.Name(dtype)).lower()
    # numpy.dtype has a name, a scalar type such as numpy.int8 has __name__.
    return str(getattr(dtype, "name", None) or getattr(dtype, "__name__", dtype))


def _dim(dim: Any) -> int | str | None:
    if isinstance(dim, str):
        return dim or None
    # Exporters write -1 or 0 for "unknown"; a real extent of 0 holds no data to convert.
    return int(dim) if dim is not None and int(dim) > 0 else None


def matches(name: str, pattern: str) -> bool:
    """Return whether a name equals a pattern, or matches it.

    Names may contain brackets, which a pattern reads as a set of letters.
    """
    return name == pattern or fnmatchcase(name, pattern)
