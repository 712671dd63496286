"""The bytes of a file, as the schema reads them back."""

from __future__ import annotations

import numpy as np

from npuconv.tflite.flatbuffer import FileOperator, Graph, Tensor, TensorScales, to_bytes
from support.tflite_files import read


def doubled(dtype: str = "float32") -> Graph:
    """Return a graph that adds a constant twice."""
    kind = np.dtype(dtype)
    own = TensorScales.from_scale(0.5, 3) if dtype == "int8" else None
    ones = np.ones((2, 3), kind)
    tensors = [
        Tensor("x", (2, 3), kind, None, own),
        Tensor("one", (2, 3), kind, ones, own),
        Tensor("same", (2, 3), kind, ones.copy(), own),
        Tensor("y", (2, 3), kind, None, own),
        Tensor("z", (2, 3), kind, None, own),
    ]
    steps = [
        FileOperator("ADD", (0, 1), (3,), "AddOptions"),
        FileOperator("ADD", (3, 2), (4,), "AddOptions"),
    ]
    return Graph(tensors, steps, [0], [4])


def test_round_trip():
    """Names, shapes, types, quantization and metadata are read back."""
    found = read(to_bytes(doubled("int8"), "who", {"npuconv.format": "tflite"}))
    assert (found.operators, found.inputs, found.outputs) == (["ADD", "ADD"], ["x"], ["z"])
    assert found.metadata == {"npuconv.format": "tflite"}
    assert found.model.Description() == b"who"
    tensor = found.tensors["x"]
    assert tensor.ShapeAsNumpy().tolist() == [2, 3]
    assert tensor.Quantization().Scale(0) == 0.5
    assert tensor.Quantization().ZeroPoint(0) == 3
    np.testing.assert_array_equal(found.values("one", np.int8), np.ones((2, 3)))


def test_equal_constants_share_a_buffer():
    """The same graph gives the same bytes."""
    found = read(to_bytes(doubled(), "", {}))
    assert found.tensors["one"].Buffer() == found.tensors["same"].Buffer() > 0
    assert to_bytes(doubled(), "", {}) == to_bytes(doubled(), "", {})


def test_operators_on_int8_have_a_later_version():
    """Kernels are registered by version."""
    for dtype, version in (("float32", 1), ("int8", 2)):
        graph = doubled(dtype)
        graph.operators = [FileOperator("RELU", (0,), (4,))]
        assert read(to_bytes(graph, "", {})).versions == [version]
