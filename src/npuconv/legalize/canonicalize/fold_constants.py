"""Compute now what depends on constants only.

Constant nodes become initializers; shapes of tensors whose extents are all known,
ConstantOfShape, DequantizeLinear of a weight and every other node whose value depends
on constants only is run once, on onnxruntime, and checked against ONNX's reference.
CastLike depends on the type of its second input only, so it becomes a Cast; EyeLike
depends on the extents of its input.

A tensor that would be larger than ``max_folded_mib`` stays computed, and so do random
numbers, nodes with a subgraph, and outputs of the model that no node reads.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from npuconv.legalize.context import PassContext, RewriteRecord
from npuconv.legalize.region import Region, capture
from npuconv.legalize.registry import Phase, model_pass
from npuconv.model import edit, query
from npuconv.model.core import Model, subgraphs, sweep
from npuconv.model.types import Node, Tensor

if TYPE_CHECKING:
    import numpy as np

CHECKED_ELEMENTS = 1 << 20  # results up to this size are checked against the reference
# Their output can be larger than all they read, so its size must be known before they run.
_EXPANDING = frozenset(
    {"ConstantOfShape", "Expand", "Tile", "Range", "Pad", "Resize", "Upsample", "OneHot"}
    | {"EyeLike", "Gather", "MatMul", "Gemm", "Conv", "ConvTranspose"}
)


@model_pass(Phase.CANONICALIZE, after=("unpack-weights",), infers=True)
def fold_constants(model: Model, ctx: PassContext) -> int:
    # graph-surgeon's fold_constants checks its results against no reference, and gives no
    # reason where it leaves a node.
    fired = sum(_fold(model, node, _constant(node)) for node in model.nodes("Constant"))
    limit = ctx.options.max_folded_mib * 2**20
    extents = [n for n in model.nodes("Shape", "Size", "EyeLike") if not _size_obstacle(n, limit)]
    fired += sum(_fold(model, node, _of_extents(node)) for node in extents)
    if casts := sum(_as_cast(model, node) for node in model.nodes("CastLike")):
        sweep(model)  # sorts them in
    nodes = _foldable(model, ctx)
    if nodes:
        counts = sorted(Counter(node.op for node in nodes).items())
        histogram = ", ".join(f"{op} x {n}" for op, n in counts)
        before = f"{len(nodes)} nodes on constants ({histogram})"
        with ctx.rewrite(model, nodes[:1], before, "initializers", measure=False) as record:
            folded = _compute(model, ctx, nodes, record)
        if folded < len(nodes):
            record.before = f"{folded} of {before}"
        if not folded:
            ctx.rewrites.pop()
        fired += folded
    return fired + casts


def _fold(model: Model, node: Node, array: np.ndarray | None) -> int:
    result = node.outputs[0]
    if array is None or not len(result.outputs):
        return 0
    edit.replace_by_constant(model, result, array)
    return 1


def _constant(node: Node) -> np.ndarray | None:
    import numpy as np

    if "value" in node.attrs:
        return np.asarray(node.attrs["value"].values)
    for name, dtype in (("float", np.float32), ("int", np.int64)):
        for key in (f"value_{name}", f"value_{name}s"):
            if key in node.attrs:
                return np.asarray(node.attrs[key], dtype)
    return None  # strings: nothing a convolution reads


def _of_extents(node: Node) -> np.ndarray | None:
    """Return the result of Shape, Size or EyeLike where all extents are known."""
    import numpy as np

    dims = query.static_shape(node.inputs[0])
    if dims is None or query.is_constant(node.inputs[0]):
        return None
    if node.op == "Size":
        return np.asarray(math.prod(dims), np.int64)
    if node.op == "EyeLike":
        diagonal = np.eye(dims[0], dims[1], node.attrs.get("k", 0))
        return diagonal.astype(node.outputs[0].dtype)
    return np.asarray(dims[node.attrs.get("start", 0) : node.attrs.get("end")], np.int64)


def _as_cast(model: Model, node: Node) -> int:
    """Replace a CastLike by a Cast to the type of its second input."""
    import numpy as np
    import onnx

    dtype = node.inputs[1].dtype
    if dtype is None:
        return 0
    if not isinstance(dtype, int):  # graph-surgeon has integers for types that numpy lacks
        dtype = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    cast = edit.add_node(
        model, "Cast", node.inputs[:1], [], origin=[node], attrs={**node.attrs, "to": dtype}
    )
    edit.keep_name(cast, node)
    edit.take_over_outputs(node, cast)
    return 1


def _foldable(model: Model, ctx: PassContext) -> list[Node]:
    """Return nodes that read constants, or each other, in topological order."""
    known: set[int] = set()
    found: list[Node] = []
    for node in model.nodes():
        if not _reads_constants(node, known) or not _is_pure(node):
            continue
        if not any(len(t.outputs) for t in node.outputs):  # an output of the model
            continue
        reason = _size_obstacle(node, ctx.options.max_folded_mib * 2**20)
        if reason:
            ctx.refuse(model, node, reason)
            continue
        found.append(node)
        known.update(id(t) for t in node.outputs)
    return found


def _reads_constants(node: Node, known: set[int]) -> bool:
    tensors = [t for t in node.inputs if t.name or query.is_constant(t)]
    return bool(tensors) and all(query.is_constant(t) or id(t) in known for t in tensors)


def _is_pure(node: Node) -> bool:
    """Return whether a node may be run once instead of every time."""
    if not query.is_standard(node) or node.op in query.RANDOM or any(subgraphs(node)):
        return False
    return node.op not in ("Constant", "QuantizeLinear") and "Sequence" not in node.op


def _size_obstacle(node: Node, limit: int) -> str:
    """Return why the result of a node is too large to compute, or ''."""
    for tensor in node.outputs:
        dims = query.static_shape(tensor)
        if dims is None and node.op in _EXPANDING:
            return "the size of its result is not known before it runs"
        size = math.prod(dims or (0,)) * _element_size(tensor)
        if size > limit:
            return f"its result has {size / 2**20:,.0f} MiB, over max_folded_mib"
    return ""


def _element_size(tensor: Tensor) -> int:
    """Return bytes; a type numpy has no name for (bfloat16) has two at most."""
    import numpy as np

    dtype = tensor.dtype
    return 2 if isinstance(dtype, int) else int(np.dtype(dtype or np.float32).itemsize)


def _compute(model: Model, ctx: PassContext, nodes: Sequence[Node], record: RewriteRecord) -> int:
    """Run the nodes once and put constants in the place of what others read of them."""
    from npuconv import executor
    from npuconv.legalize import measure

    inside = {id(n) for n in nodes}
    border = [t for n in nodes for t in n.outputs if any(id(c) not in inside for c in t.outputs)]
    region = capture(model, nodes, border)
    try:
        (values,) = measure.run([region], [{}])
    except executor.RuntimeRefusedError as error:
        return _one_by_one(model, ctx, nodes, record, str(error))
    record.reference, record.difference = _check(region, values)
    for tensor in border:
        edit.replace_by_constant(model, tensor, values[tensor.name])
    return len(nodes)


def _one_by_one(
    model: Model, ctx: PassContext, nodes: Sequence[Node], record: RewriteRecord, reason: str
) -> int:
    """Fold each node alone, where onnxruntime refuses one of them."""
    if len(nodes) == 1:
        ctx.refuse(model, nodes[0], f"onnxruntime does not compute it: {reason}")
        return 0
    ready = [n for n in nodes if all(query.is_constant(t) or not t.name for t in n.inputs)]
    return sum(_compute(model, ctx, [node], record) for node in ready)


def _check(region: Region, values: Mapping[str, np.ndarray]) -> tuple[str, float | None]:
    """Compare with ONNX's reference where that is affordable: its name and the difference."""
    from npuconv import executor
    from npuconv.legalize import measure

    if sum(v.size for v in values.values()) > CHECKED_ELEMENTS:
        return "computed by onnxruntime, too large to check", None
    try:
        (reference,) = measure.run([region], [{}], executor.run_reference)
    except executor.RuntimeRefusedError as error:
        return f"computed by onnxruntime; onnx.reference: {error}", None
    gaps = [_gap(values[name], reference[name]) for name in values]
    return "onnx.reference", max(gaps, default=0.0)


def _gap(a: np.ndarray, b: np.ndarray) -> float:
    import numpy as np

    if not a.size or a.dtype.kind not in "fiub":
        return 0.0
    with np.errstate(all="ignore"):
        gap = np.abs(a.astype(np.float64) - b.astype(np.float64))
    return float(np.nan_to_num(gap, nan=0.0).max())
