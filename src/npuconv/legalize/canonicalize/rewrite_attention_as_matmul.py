"""Write an Attention as MatMul, Softmax and MatMul.

The queries are multiplied by the scale, a mask is added to the scores, and a causal mask is a
constant. Inputs of rank 3 get an axis of heads. An Attention stays if it has a cache, fewer heads
of keys than of queries, a soft cap, another output than the values, a mask of booleans that is not
constant, or a query that no key answers (its result is 0, and a Softmax has none).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from npuconv.lazy import np
from npuconv.legalize.registry import Log, Phase, register_pass
from npuconv.legalize.tools.layout import reshape, transpose
from npuconv.model import Model, Node, Tensor, edit, query

if TYPE_CHECKING:
    from numpy.typing import NDArray

_HEADS_SECOND = (0, 2, 1, 3)
_KEYS_LAST = (0, 1, 3, 2)
_MASK, _FURTHER = 3, (4, 5, 6)  # indices of inputs: the mask; the cache, and lengths of keys


@register_pass(Phase.CANONICALIZE, "Attention", infers=True)
def rewrite_attention_as_matmul(model: Model, log: Log, node: Node) -> int:
    if reason := _obstacle(node):
        return log.refuse(model, node, reason)
    queries, _, values = (_extents(tensor) for tensor in node.inputs[:3])
    heads = query.attribute(node, "q_num_heads") if len(queries) == 2 else None
    depth = queries[-1] // heads if heads else queries[-1]
    scale = float(query.attribute(node, "scale", 1 / math.sqrt(depth)))
    with log.rewrite(model, [node], "Attention", "MatMul, Softmax, MatMul", modulus=None):
        q, k, v = (
            tensor if heads is None else _with_heads(model, node, tensor, heads)
            for tensor in node.inputs[:3]
        )
        if scale != 1:
            factor = edit.constant(model, f"{node.name}/scale", np.asarray(scale, np.float32))
            q = edit.insert(model, "Mul", [q, factor], origin=[node], shape=q.shape)
        scores = edit.insert(
            model, "MatMul", [q, transpose(model, node, k, _KEYS_LAST, k.shape)], origin=[node]
        )
        allowed, mask = _allowed(node), query.input_of(node, _MASK)
        if allowed is not None:
            numbers = np.where(allowed, np.float32(0), np.float32(-np.inf))
            constant = edit.constant(model, f"{node.name}/mask", numbers)
            scores = edit.insert(model, "Add", [scores, constant], origin=[node])
        if mask is not None and query.dtype_name(mask) != "bool":
            scores = edit.insert(model, "Add", [scores, mask], origin=[node])
        attrs = {"axis": -1}
        weights = edit.insert(model, "Softmax", [scores], origin=[node], attrs=attrs)
        result = edit.insert(model, "MatMul", [weights, v], origin=[node])
        if heads is not None:
            result = transpose(model, node, result, _HEADS_SECOND)
            result = reshape(model, node, result, [0, queries[0], values[-1]])
        edit.replace(result, node)
    return 1


def _obstacle(node: Node) -> str:
    """Return why an Attention is more than two products and a Softmax, or ''."""
    mask = query.input_of(node, _MASK)
    if any(query.input_of(node, index) is not None for index in _FURTHER):
        return "it has a cache"
    if any(tensor.name for tensor in node.outputs[1:]):
        return "it returns more than the values"
    if query.attribute(node, "softcap", 0.0):
        return "it has a soft cap"
    if query.dtype_name(node.inputs[0]) != "float32":
        return "it does not compute in float32"
    if mask is not None and query.dtype_name(mask) == "bool" and not query.is_constant(mask):
        return "its mask of booleans is not constant"
    if any(not query.rank(t) or len(_extents(t)) + 1 != query.rank(t) for t in node.inputs[:3]):
        return "an extent is not known"
    allowed = _allowed(node)
    if allowed is not None and not allowed.any(axis=-1).all():
        return "no key answers a query"
    ranks = {query.rank(tensor) for tensor in node.inputs[:3]}
    names = ("q_num_heads", "kv_num_heads")
    counts = [query.attribute(node, name) for name in names]
    if ranks == {4}:
        counts = [_extents(tensor)[0] for tensor in node.inputs[:3]]
    return "" if len({*counts}) == 1 and len(ranks) == 1 else "keys have other heads than queries"


def _extents(tensor: Tensor) -> tuple[int, ...]:
    """Return the known extents behind the batch."""
    return tuple(dim for dim in (query.shape(tensor) or ())[1:] if isinstance(dim, int))


def _with_heads(model: Model, node: Node, tensor: Tensor, heads: int) -> Tensor:
    """Return a tensor [N, length, heads * depth] as [N, heads, length, depth]."""
    length, width = _extents(tensor)
    split = reshape(model, node, tensor, [0, length, heads, width // heads])
    return transpose(model, node, split, _HEADS_SECOND)


def _allowed(node: Node) -> NDArray[np.bool_] | None:
    """Return the constant mask [..., queries, keys]; None if there is none."""
    mask = query.constant_input(node, _MASK)
    allowed = mask if mask is not None and mask.dtype.kind == "b" else None
    if query.attribute(node, "is_causal", 0):
        queries, keys = (tensor.shape for tensor in node.inputs[:2])
        causal = np.tri(queries[-2], keys[-2], dtype=bool)
        allowed = causal if allowed is None else allowed & causal
    return allowed
