"""Tensors whose shape, type or bytes do not belong together."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

from hostile.case import Case, Cases, model
from support.builders import Net

X = (1, 3, 8, 8)
_DIMS = {
    "10-to-15": [10**15],
    "10-to-15-in-parts": [10**5, 10**5, 10**5, 1],
    "product-overflows": [2**32, 2**32, 1, 1],
    "product-overflows-to-right": [2**62 + 27, 4, 1, 1],
    "max": [2**63 - 1, 3, 3, 3],
    "negative": [-4, 3, 3, 3],
    "two-negative": [-4, -3, 3, 3],
    "zero": [4, 3, 0, 3],
    "zero-and-huge": [0, 2**62, 2**62, 4],
    "none": [],
    "rank-64": [1] * 61 + [4, 3, 9],
    "rank-500": [1] * 500,
    "one-too-many": [4, 3, 3, 4],
    "one-too-few": [4, 3, 3, 2],
}
_KINDS = {"undefined": 0, "string": 8, "bool": 9, "complex": 14, "float8": 17, "int4": 22,
          "float4": 23, "unknown": 99, "negative": -1, "huge": 2**31 - 1}  # fmt: skip


def cases() -> Cases:
    """Every tensor that lies."""
    yield from _shapes()
    yield from _types()
    yield from _contents()
    yield from _sparse()
    yield from _infos()


def _net() -> onnx.ModelProto:
    return Net(x=X).conv("x").op("Relu").model()


def _shapes() -> Cases:
    for name, dims in _DIMS.items():
        for place in ("raw", "floats"):
            proto = _net()
            weight = proto.graph.initializer[0]
            _refill(weight, place)
            del weight.dims[:]
            weight.dims.extend(dims)
            yield Case(f"tensor/{name}-{place}", "declared shape", model(proto))


def _refill(tensor: onnx.TensorProto, place: str) -> None:
    values = np.frombuffer(tensor.raw_data, np.float32)
    if place != "raw":
        tensor.ClearField("raw_data")
    if place == "floats":
        tensor.float_data.extend(values.tolist())


def _types() -> Cases:
    for name, kind in _KINDS.items():
        proto = _net()
        proto.graph.initializer[0].data_type = kind
        yield Case(f"tensor/type-{name}", "element type", model(proto))
        proto = _net()
        proto.graph.input[0].type.tensor_type.elem_type = kind
        yield Case(f"tensor/input-type-{name}", "element type", model(proto))


def _contents() -> Cases:
    def changed(name: str) -> onnx.TensorProto:
        made.append((name, _net()))
        return made[-1][1].graph.initializer[0]

    made: list[tuple[str, onnx.ModelProto]] = []
    changed("both").float_data.extend([1.0] * 108)
    _refill(tensor := changed("ints-for-floats"), "nothing")
    tensor.int32_data.extend([2**31 - 1] * 108)
    changed("segment").segment.end = 2**62
    changed("named-twice").name = "c1"
    changed("unnamed").name = ""
    changed("named-as-input").name = "x"
    changed("named-as-result").name = "t0"
    changed("raw-of-odd-length").raw_data += b"\x01"
    changed("location-without-data").data_location = TensorProto.EXTERNAL
    for name, proto in made:
        yield Case(f"tensor/{name}", "contents", model(proto))
    many = Net(x=X)
    for number in range(20_000):
        many.constant(np.float32(number))
    yield Case("tensor/20000-unused", "contents", model(many.conv("x").model()))
    text = helper.make_tensor("c0", TensorProto.STRING, [2], [b"\xff\xfe", b"::error::"])
    proto = _net()
    proto.graph.initializer[0].CopyFrom(text)
    yield Case("tensor/text-as-weights", "contents", model(proto))


def _sparse() -> Cases:
    shapes = {"huge": [10**5, 10**5, 10**5, 1], "max": [2**62, 4, 3, 3], "negative": [-4, 3, 3, 3],
              "none": [], "right": [4, 3, 3, 3]}  # fmt: skip
    places = {"first": [0, 1], "outside": [0, 10**9], "negative": [-1, -(2**60)],
              "alike": [3, 3], "floats": [0.5, 1.5]}  # fmt: skip
    for shape, dims in shapes.items():
        for place, where in places.items():
            if shape != "right" and place != "first":
                continue
            proto = _net()
            values = onnx.numpy_helper.from_array(np.ones(2, np.float32), "c0")
            indices = onnx.numpy_helper.from_array(np.array(where))
            del proto.graph.initializer[0]
            sparse = proto.graph.sparse_initializer.add()
            sparse.values.CopyFrom(values)
            sparse.indices.CopyFrom(indices)
            sparse.dims.extend(dims)
            yield Case(f"tensor/sparse-{shape}-{place}", "sparse", model(proto))


def _infos() -> Cases:
    for name, dims in {**_DIMS, "named-huge": ["N" * 100_000, 3, 8, 8]}.items():
        proto = _net()
        shape = helper.make_tensor_type_proto(1, dims)
        proto.graph.input[0].type.CopyFrom(shape)
        yield Case(f"tensor/input-{name}", "shape of the input", model(proto))
        proto = _net()
        proto.graph.output[0].type.CopyFrom(shape)
        yield Case(f"tensor/output-{name}", "shape of the output", model(proto))
    image = _net()
    image.graph.input[0].type.CopyFrom(helper.make_tensor_type_proto(1, [1, 3, 100_000, 100_000]))
    yield Case("tensor/input-120-gb", "memory of a run", model(image))
    for name, kind in {
        "sequence": helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, X)),
        "optional": helper.make_optional_type_proto(helper.make_tensor_type_proto(1, X)),
        "map": helper.make_map_type_proto(7, helper.make_tensor_type_proto(1, X)),
        "sparse": helper.make_sparse_tensor_type_proto(1, X),
        "nothing": onnx.TypeProto(),
    }.items():
        proto = _net()
        proto.graph.input[0].type.CopyFrom(kind)
        yield Case(f"tensor/input-is-{name}", "type of the input", model(proto))
