"""Turn products with a constant matrix into 1x1 convolutions.

Gemm and MatMul with one constant operand, also where the target lists them: as a
convolution they have a scale for each output channel, and the device computes the same
sums. The rows of a matrix become the batch, the rows of ``N x T x K`` the width; in front and
behind stand only operators that move values. alpha, beta and an addend per output
channel, also of an Add that alone reads the product, go into weights and bias; any
other addend stays an Add. Where the target does not take so large a batch, the rows
become the width. ``--no-offload`` leaves all alone. A product of two computed
tensors, as in attention, is not rewritten.
"""

from __future__ import annotations

from npuconv.lazy import np
from npuconv.legalize.registry import Log, Phase, TargetDevice, register_pass
from npuconv.legalize.tools.conv_forms import (
    ConvForm,
    Layout,
    considered,
    convolve,
    obstacle,
    type_obstacle,
)
from npuconv.legalize.tools.layout import NEW, AxisMap
from npuconv.model import Model, Node, Tensor, edit, query
from npuconv.records import dataclass, replace


@dataclass(frozen=True)
class Product:
    """``weight`` applied to one axis of ``source``: all that a 1x1 convolution needs."""

    source: Tensor
    weight: np.ndarray  # float32, M x K
    channels: int  # the axis of the result that has M elements, counted from the end
    layouts: tuple[Layout, ...]  # layouts of the product as a convolution, the best first
    factor: float = 1.0  # factor of the addend
    addend: Tensor | None = None


@register_pass(Phase.LEGALIZE, "Gemm", "MatMul", infers=True)
def rewrite_matmul_as_conv(model: Model, device: TargetDevice, log: Log, node: Node) -> int:
    constants = [index for index in (0, 1) if query.constant_input(node, index) is not None]
    if len(constants) != 1 or not device.offloads(node, listed=True):
        return 0
    product = _product(node, constants[0])
    if isinstance(product, str):
        return log.refuse(model, node, product)
    if not product.weight.size:
        return 0
    form = _convolution(model, device, product)
    if isinstance(form, str):
        return log.refuse(model, node, form)
    rank = query.rank(product.source) or 0
    bias, addend, nodes = None, product.addend, [node]
    if addend is not None and (values := _bias(query.value(addend), product, rank)) is not None:
        bias, addend = values * product.factor, None
    if addend is None and (add := _add_behind(model, node, product, rank)) is not None:
        nodes.append(add[0])
        bias = add[1] if bias is None else bias + add[1]
    if bias is not None:
        form = replace(form, bias=bias.astype(product.weight.dtype))
    before = " + ".join(n.op for n in nodes)
    # A shorter K would not fit the weights, so the rewrite is measured at its own extents.
    with log.rewrite(model, nodes, before, form.text(), modulus=None):
        edit.inherit(model, node, *nodes[1:])
        result = convolve(model, node, form)
        if addend is not None:
            result = _add(model, node, result, product, addend)
        edit.replace(result, *nodes)
    return 1


def _product(node: Node, constant: int) -> Product | str:
    """Return the product of a node with a constant operand, or why it cannot be a Conv."""
    array, source = query.constant_input(node, constant), node.inputs[1 - constant]
    assert array is not None
    rank = query.rank(source)
    if rank is None:
        return "the rank of its input is not known"
    while array.ndim > 2 and array.shape[0] == 1 and array.ndim <= rank:
        array = array[0]
    if array.ndim > 2:
        return f"its constant of shape {array.shape} is a batch of matrices"
    if array.ndim < 2 or rank < 2:
        return "one of its operands is a vector"
    if node.op == "Gemm":
        return _gemm(node, constant, array, source)
    if rank > 4:
        return f"its input has rank {rank}"
    if constant == 1:
        return Product(source, array.T, -1, _RIGHT.get(rank) or _of_matrix(1, 1))
    return Product(source, array, -2, _LEFT.get(rank) or _of_matrix(0, 0))


# Layouts of a tensor of rank 3 or 4 whose product is with a constant on its right or left.
_RIGHT = {3: (Layout.from_axes(0, 2, NEW, 1),), 4: (Layout.from_axes(0, 3, 1, 2),)}
_LEFT = {3: (Layout.from_axes(0, 1, NEW, 2),), 4: (Layout.from_axes(0, 2, 1, 3),)}


def _gemm(node: Node, constant: int, array: np.ndarray, source: Tensor) -> Product:
    """Return the product of ``alpha * A' * B' + beta * C``; a prime may be a transpose."""
    transposed = [bool(query.attribute(node, name, 0)) for name in ("transA", "transB")]
    # Weights are M x K: A unchanged, B transposed.
    weight = array.T if transposed[constant] != (constant == 1) else array
    alpha, beta = (float(query.attribute(node, name, 1.0)) for name in ("alpha", "beta"))
    reduced = int(transposed[1 - constant] != (constant == 1))
    return Product(
        source,
        weight if alpha == 1.0 else (weight.astype("float64") * alpha).astype(array.dtype),
        -1 if constant == 1 else -2,
        _of_matrix(reduced, constant),
        beta,
        query.input_of(node, 2) if beta else None,
    )


def _of_matrix(reduced: int, channels: int) -> tuple[Layout, ...]:
    """Return the layouts of a matrix, fewest Transposes first.

    Args:
        reduced: the axis of the source that is summed over.
        channels: the axis of the result that takes its place.
    """
    rows_as_batch = Layout(
        AxisMap((1 - reduced, reduced, NEW, NEW), 2), AxisMap((1 - channels, channels), 4)
    )
    rows_as_width = Layout(
        AxisMap((NEW, reduced, NEW, 1 - reduced), 2), AxisMap((3, 1) if channels else (1, 3), 4)
    )
    return tuple(sorted((rows_as_batch, rows_as_width), key=lambda layout: layout.transposes))


def _convolution(model: Model, device: TargetDevice, product: Product) -> ConvForm | str:
    """Return the convolution in the first layout that the target takes, or the first obstacle."""
    dims = query.shape(product.source)
    assert dims is not None
    reason = type_obstacle(product.weight)
    weight = np.ascontiguousarray(product.weight)[:, :, None, None]
    ways = [(layout, fits) for fits in (False, True) for layout in product.layouts]
    for layout, fits in [] if reason else ways:
        win = considered(weight.shape, layout.apply(dims))
        against = obstacle(model, device, layout, win, fits=fits)
        if not against:
            return ConvForm(product.source, layout, win, weight)
        reason = reason or against
    return reason


def _bias(array: np.ndarray | None, product: Product, rank: int) -> np.ndarray | None:
    """Return a constant as one value per output channel; None where it varies otherwise."""
    if array is None or array.ndim > rank or array.dtype != product.weight.dtype:
        return None
    aligned = (1,) * (rank - array.ndim) + array.shape
    count = product.weight.shape[0]
    extents = [d for axis, d in enumerate(aligned) if axis != rank + product.channels]
    if any(d != 1 for d in extents) or array.size not in (1, count):
        return None
    values = array.reshape(-1).astype("float64")
    return values if values.size == count else values.repeat(count)


def _add_behind(
    model: Model, node: Node, product: Product, rank: int
) -> tuple[Node, np.ndarray] | None:
    """Return an Add per output channel that alone reads the product, and its constant."""
    add = query.sole_consumer(model, node.outputs[0])
    if add is None or add.op != "Add" or not any(add is n for n in model.nodes("Add")):
        return None
    arrays = (query.constant_input(add, index) for index in (0, 1))
    bias = _bias(next((a for a in arrays if a is not None), None), product, rank)
    return None if bias is None else (add, bias)


def _add(model: Model, node: Node, result: Tensor, product: Product, addend: Tensor) -> Tensor:
    """Insert ``result + beta * rest``, on the host."""
    if product.factor != 1.0:
        array, stem = query.value(addend), f"{model.label(node)}/beta"
        factor = product.weight.dtype.type(product.factor)
        if array is not None:
            addend = edit.constant(model, stem, array * factor)
        else:
            beta, dims = edit.constant(model, stem, factor), query.shape(addend)
            addend = edit.insert(model, "Mul", [addend, beta], origin=[node], shape=dims)
    return edit.insert(model, "Add", [result, addend], origin=[node], shape=result.shape)
