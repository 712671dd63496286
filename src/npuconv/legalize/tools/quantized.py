"""Reading of QuantizeLinear, DequantizeLinear and the operators built of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from npuconv.lazy import np
from npuconv.model import Model, Node, Tensor, edit, query
from npuconv.records import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npuconv.arithmetic.encoding import Encoding

CONTRIB = "com.microsoft"
_UNSIGNED = 128  # offset between uint8 and int8


def is_quantize(node: Node | None) -> bool:
    """Return whether a node is a QuantizeLinear of ONNX or of onnxruntime."""
    return node is not None and node.op == "QuantizeLinear" and is_known(node)


def is_dequantize(node: Node | None) -> bool:
    """Return whether a node is a DequantizeLinear of ONNX or of onnxruntime."""
    return node is not None and node.op == "DequantizeLinear" and is_known(node)


def is_known(node: Node) -> bool:
    """Return whether ONNX or onnxruntime defines the operator."""
    return query.is_standard(node) or node.domain == CONTRIB


def conversions(model: Model, op: str) -> list[Node]:
    """Return the QuantizeLinear or DequantizeLinear of a model, of ONNX and of onnxruntime."""
    return [*model.nodes(op), *model.nodes(op, domain=CONTRIB)]


def constant(tensor: Tensor | None) -> NDArray[Any] | None:
    """Return the values of a constant tensor, also behind simple nodes; None if not constant."""
    if tensor is None or query.is_constant(tensor):
        return query.value(tensor)
    producer = query.producer(tensor)
    if producer is None:
        return None
    if producer.op == "Constant":
        return query.constant_of(producer)
    if producer.op not in _COMPUTED:
        return None
    count, compute = _COMPUTED[producer.op]
    operands = [constant(query.input_of(producer, index)) for index in range(count)]
    return None if any(x is None for x in operands) else compute(producer, *operands)


def _reshape(node: Node, values: NDArray[Any]) -> NDArray[Any] | None:
    dims = query.static_shape(node.outputs[0])
    return values.reshape(dims) if dims is not None else values if values.size == 1 else None


# By operator, the number of inputs that decide its result, and the function of these.
_COMPUTED: dict[str, tuple[int, Callable[..., NDArray[Any] | None]]] = {
    **dict.fromkeys(("Flatten", "Reshape", "Squeeze", "Unsqueeze"), (1, _reshape)),
    "Identity": (1, lambda _, x: x),
    "Transpose": (1, lambda node, x: np.transpose(x, query.attribute(node, "perm", None))),
    "Mul": (2, lambda _, a, b: np.asarray(a * b) if a.dtype.kind == b.dtype.kind == "f" else None),
    "Clip": (3, lambda _, x, low, high: np.asarray(np.clip(x, low, high))),
}


@dataclass(frozen=True)
class Parameters:
    """Scale, zero point and integer type of a conversion."""

    scale: NDArray[np.float32]  # float32 [] or [C]
    zero: NDArray[np.int64]  # int64 [] or [C]
    dtype: np.dtype[Any]
    axis: int | None  # axis of the scales; None for a single scale

    def equals(self, parameters: Parameters) -> bool:
        """Return whether both conversions are inverse to each other."""
        return (
            np.array_equal(self.scale, parameters.scale)
            and np.array_equal(self.zero, parameters.zero)
            and self.dtype == parameters.dtype
            and self.axis == parameters.axis
        )

    @property
    def bounds(self) -> tuple[int, int]:
        """The lowest and the highest integer."""
        name = self.dtype.name  # numpy knows none of 4 bits
        bits = int(name.removeprefix("u").removeprefix("int"))
        return (0, 2**bits - 1) if name[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)

    @property
    def encoding(self) -> Encoding | str:
        """The same numbers as an int8 encoding, or a reason why there is none.

        uint8 becomes int8: stored integers and zero point are 128 less.
        """
        from npuconv.arithmetic.encoding import Encoding

        if self.dtype not in (np.dtype(np.int8), np.dtype(np.uint8)):
            return f"it is {self.dtype.name}, not 8 bits"
        if self.axis is not None:
            return "its activations have a scale for each channel"
        zero = self.zero.reshape(1) - (_UNSIGNED if self.dtype == np.uint8 else 0)
        scale = self.scale.reshape(1).astype(np.float32)
        return Encoding(scale, zero.astype(np.int32), np.float32(scale[0]))

    def aligned(self, rank: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return scale and zero point in a shape that broadcasts to a tensor of that rank."""
        if self.axis is None:
            return self.scale.reshape(()), self.zero.reshape(())
        shape = [-1 if k == self.axis % rank else 1 for k in range(rank)]
        return self.scale.reshape(shape), self.zero.reshape(shape)

    def dequantize(self, stored: NDArray[Any]) -> NDArray[np.float32]:
        """Return integers as float32 numbers."""
        scale, zero = self.aligned(stored.ndim)
        with np.errstate(over="ignore"):  # weights that are not finite are a finding
            return np.asarray(
                (stored.astype(np.int64) - zero).astype(np.float32) * scale, np.float32
            )

    def quantize(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the integers of float numbers, rounded half to even and saturated."""
        scale, zero = self.aligned(values.ndim)
        steps = np.rint(np.asarray(values, np.float32) / scale) + zero
        return np.asarray(np.clip(steps, *self.bounds)).astype(self.dtype)


def parameters(node: Node) -> Parameters | str:
    """Read scale and zero point of a QuantizeLinear or DequantizeLinear.

    Returns:
        The parameters, or a reason for people why they cannot be used.
    """
    from npuconv.arithmetic.encoding import SMALLEST_SCALE

    stored = node.outputs[0] if is_quantize(node) else node.inputs[0]
    scale, zero = (query.input_of(node, index) for index in (1, 2))
    scales, zeros = constant(scale), constant(zero)
    if scales is None or (zeros is None and zero is not None):
        return "its scale or zero point is computed"
    scales = np.squeeze(np.asarray(scales, np.float32)) if scales.size == 1 else scales
    if not scales.size or not np.isfinite(scales).all() or (scales < SMALLEST_SCALE).any():
        bad = scales[~(np.isfinite(scales) & (scales >= SMALLEST_SCALE))].reshape(-1)
        value = f" {float(bad[0]):g}" if bad.size else ""
        return f"its scale{value} is no positive number that float32 holds in full"
    named = stored.dtype
    kind = None if named is None or isinstance(named, int) else np.dtype(named)
    kind = kind if kind is not None and is_integer(kind) else None
    if zeros is not None and not is_integer(zeros.dtype):
        return f"its zero point is {zeros.dtype.name}, no integer"
    if zeros is not None and kind is not None and kind != zeros.dtype:
        return "its zero point is no integer of the type that is stored"
    dtype = zeros.dtype if zeros is not None else np.dtype(np.uint8) if kind is None else kind
    zero_points = np.zeros(1, np.int64) if zeros is None else zeros.astype(np.int64)
    zero_points = zero_points.reshape(()) if zero_points.size == 1 else zero_points.reshape(-1)
    if scales.size == 1:
        if zero_points.ndim:
            return f"it has {zero_points.size} zero points for one scale"
        return Parameters(scales.reshape(()).astype(np.float32), zero_points, dtype, None)
    dims, axis = query.shape(node.inputs[0]), int(query.attribute(node, "axis", 1))
    if scales.ndim > 1 and max(scales.shape) != scales.size:
        return "its scales are of blocks"
    if dims is None or not -len(dims) <= axis < len(dims):
        return f"its scales run along axis {axis}, which its tensor does not have"
    extent = dims[axis]
    if extent != scales.size or zero_points.size not in (1, scales.size):
        text = f"it has {scales.size} scales and {zero_points.size} zero points"
        return f"{text} for {extent} channels (axis {axis})"
    zero_points = np.broadcast_to(zero_points.reshape(-1), (scales.size,))
    return Parameters(scales.reshape(-1).astype(np.float32), zero_points, dtype, axis % len(dims))


def is_integer(dtype: Any) -> bool:
    """Return whether a type of elements is an integer, of 4 bits or fewer included."""
    return dtype.kind in "iu" or dtype.name.removeprefix("u")[:3] == "int"


def dequantized(
    model: Model,
    node: Node,
    tensor: Tensor,
    scale: Tensor | None,
    zero: Tensor | None,
    axis: int | None = None,
) -> Tensor:
    """Add a DequantizeLinear for ``node``; return its float result."""
    assert scale is not None, "operators were checked for it"
    result = edit.variable(model, f"{tensor.name}/float", tensor, np.float32)
    inputs = [tensor, scale, *([zero] if zero is not None else [])]
    values = constant(scale)
    several = axis is not None and values is not None and values.size > 1
    attrs = {"axis": axis} if several else {}
    edit.add_node(model, "DequantizeLinear", inputs, [result], origin=[node], attrs=attrs)
    return result
