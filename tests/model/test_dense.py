"""Sparse constants are constants."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import npuconv
from npuconv.model.load import dense
from support.asserts import same_numbers
from support.builders import Net

FLAT, COORDINATES = [0, 5, 7], [[0, 0, 0, 0], [0, 0, 1, 2], [0, 0, 2, 1]]


def values(indices: list) -> onnx.SparseTensorProto:
    """Weights of which three are not zero."""
    numbers = numpy_helper.from_array(np.array([1, -2, 3], np.float32), "w")
    return helper.make_sparse_tensor(
        numbers, numpy_helper.from_array(np.array(indices, np.int64), "i"), [4, 3, 3, 3]
    )


def by_node(indices: list) -> onnx.ModelProto:
    """A Constant node with sparse values."""
    net = Net(x=(1, 3, 8, 8))
    net.nodes.append(helper.make_node("Constant", [], ["w"], sparse_value=values(indices)))
    return net.op("Conv", "x", "w").model()


def by_initializer(indices: list) -> onnx.ModelProto:
    """A sparse initializer."""
    proto = by_node(indices)
    del proto.graph.node[0]
    proto.graph.sparse_initializer.append(values(indices))
    return proto


@pytest.mark.parametrize("indices", [FLAT, COORDINATES])
@pytest.mark.parametrize("build", [by_node, by_initializer])
def test_they_are_written_out(build, indices):
    """The weights of a convolution may be sparse: it is converted, with the same numbers."""
    model = build(indices)
    before = model.SerializeToString(deterministic=True)
    same_numbers(model, npuconv.convert(model, format="float").model)
    assert model.SerializeToString(deterministic=True) == before


def test_nothing_to_write_out():
    """A model without them is not copied."""
    model = Net(x=(1, 3, 8, 8)).conv().model()
    assert dense(model) is model
