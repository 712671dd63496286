"""Sparse constants written out: ordinary initializers and Constant nodes."""

from __future__ import annotations

import numpy as np
import onnx


def dense(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model with dense initializers and Constants where it has sparse ones, else as it is.

    Args:
        proto: not changed; ``claims`` has seen to the size of what its tensors come to.
    """
    if not proto.graph.sparse_initializer and not any(map(_sparse, proto.graph.node)):
        return proto
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    del copy.graph.sparse_initializer[:]
    copy.graph.initializer.extend(map(_written_out, proto.graph.sparse_initializer))
    for node in filter(_sparse, copy.graph.node):
        value = _written_out(node.attribute[0].sparse_tensor)
        del node.attribute[:]
        node.attribute.append(onnx.helper.make_attribute("value", value))
    return copy


def _sparse(node: onnx.NodeProto) -> bool:
    """Return whether the node is a Constant of sparse values (then its only attribute)."""
    return node.op_type == "Constant" and any(a.name == "sparse_value" for a in node.attribute[:1])


def _written_out(sparse: onnx.SparseTensorProto) -> onnx.TensorProto:
    values = onnx.numpy_helper.to_array(sparse.values)
    where = onnx.numpy_helper.to_array(sparse.indices)
    array = np.zeros(tuple(sparse.dims), values.dtype)
    # Positions in the flat array, or one row of coordinates each.
    array[np.unravel_index(where, array.shape) if where.ndim == 1 else tuple(where.T)] = values
    return onnx.numpy_helper.from_array(array, sparse.values.name)
