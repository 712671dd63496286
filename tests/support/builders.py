"""Models in one to three lines, for every test and for the examples of ``explain``.

    net = Net(x=(1, 3, 8, 8))
    net.conv("x", (4, 3, 3, 3), auto_pad="SAME_UPPER").op("Relu").model()

Weights are random; their seed depends on the calls before, so a model is the same
every time. Each call appends a node that reads the last result by default.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Shape = tuple[int | str | None, ...]


class Net:
    """A graph under construction.

    Args:
        opset: version of the standard domain.
        ir_version: IR version of the file.
        prefix: prefix of generated names; branches of one model need different prefixes.
        inputs: name=shape of the float inputs.
    """

    def __init__(
        self, *, opset: int = 17, ir_version: int = 8, prefix: str = "", **inputs: Shape
    ) -> None:
        self.opset, self.ir_version, self.prefix = opset, ir_version, prefix
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.inputs = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in inputs.items()
        ]
        self.last = next(iter(inputs), "")
        self.outputs: list[onnx.ValueInfoProto] = []
        self.domains: dict[str, int] = {}

    def constant(self, values: Any, name: str = "") -> str:
        """An initializer; returns its name."""
        name = name or f"{self.prefix}c{len(self.initializers)}"
        array = np.asarray(values)
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        self.initializers.append(numpy_helper.from_array(array, name))
        return name

    def random(self, *shape: int, low: float = -0.5, high: float = 0.5, name: str = "") -> str:
        """An initializer of random numbers; returns its name."""
        rng = np.random.default_rng([len(self.initializers), *shape])
        return self.constant(rng.uniform(low, high, shape).astype(np.float32), name)

    def op(
        self, op: str, *inputs: str, name: str | None = None, domain: str = "", outputs: int = 1,
        to: str = "", **attrs: Any,
    ) -> Net:  # fmt: skip
        """Append a node that reads ``inputs``, by default the last result."""
        read = list(inputs) if inputs else [self.last]
        stem = to or f"{self.prefix}t{len(self.nodes)}"
        results = [stem + (f"_{i}" if i else "") for i in range(outputs)]
        label = name if name is not None else f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, read, results, name=label, domain=domain, **attrs))
        if domain:
            self.domains[domain] = 1
        self.last = results[0]
        return self

    def conv(
        self, source: str = "", weight: tuple[int, ...] = (4, 3, 3, 3), *, bias: bool = True,
        op: str = "Conv", **attrs: Any,
    ) -> Net:  # fmt: skip
        """Append a convolution with random weights of this shape."""
        names = [source or self.last, self.random(*weight)]
        if bias:
            group = attrs.get("group", 1)
            names.append(self.random(weight[1] * group if op == "ConvTranspose" else weight[0]))
        return self.op(op, *names, **attrs)

    def batchnorm(self, channels: int, source: str = "", **attrs: Any) -> Net:
        """Append a BatchNormalization with random statistics."""
        names = [source or self.last, self.random(channels, low=0.5, high=1.5)]
        names += [self.random(channels), self.random(channels)]
        names.append(self.random(channels, low=0.1, high=2.0))
        return self.op("BatchNormalization", *names, **attrs)

    def pad(self, pads: list[int], value: float | None = 0.0, **attrs: Any) -> Net:
        """Append a Pad in the form of opset 11 and later."""
        names = [self.last, self.constant(np.asarray(pads, np.int64))]
        if value is not None:
            names.append(self.constant(np.asarray(value, np.float32)))
        return self.op("Pad", *names, **attrs)

    def reshape(self, shape: list[int]) -> Net:
        """Append a Reshape."""
        return self.op("Reshape", self.last, self.constant(np.asarray(shape, np.int64)))

    def branch(self, then: Net, otherwise: Net) -> Net:
        """Append an If on the last result's sum; branches read tensors of this graph by name."""
        self.op("ReduceSum", keepdims=0).op("Greater", self.last, self.constant(0.0))
        return self.op("If", name="if", then_branch=then.body(), else_branch=otherwise.body())

    def body(self) -> onnx.GraphProto:
        """The graph as a branch of an If."""
        result = helper.make_tensor_value_info(self.last, TensorProto.FLOAT, None)
        return helper.make_graph(self.nodes, "branch", [], [result], self.initializers)

    def output(self, *names: str) -> Net:
        """Make these tensors outputs of the model; by default only the last result is."""
        for name in names or (self.last,):
            self.outputs.append(helper.make_empty_tensor_value_info(name))
        return self

    def model(self, **header: Any) -> onnx.ModelProto:
        """The finished model; its outputs get their types by inference."""
        if not self.outputs:
            self.output()
        return _with_output_types(self._proto(self.outputs, **header))

    def unchecked_model(self) -> onnx.ModelProto:
        """The model without shape inference, for hostile graphs; its one output is float."""
        return self._proto([helper.make_tensor_value_info(self.last, TensorProto.FLOAT, None)])

    def _proto(self, outputs: list[onnx.ValueInfoProto], **header: Any) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, "test", self.inputs, outputs, self.initializers)
        imports = [helper.make_opsetid("", self.opset)]
        imports += [helper.make_opsetid(d, v) for d, v in self.domains.items()]
        return helper.make_model(graph, opset_imports=imports, ir_version=self.ir_version, **header)


def _with_output_types(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Infer the outputs; an unknown type is float, an unknown shape has the first input's rank."""
    inferred = onnx.shape_inference.infer_shapes(proto)
    types = {o.name: o for o in inferred.graph.output}
    inputs = proto.graph.input
    rank = len(inputs[0].type.tensor_type.shape.dim) if inputs else 0
    for output in proto.graph.output:
        output_type = types[output.name].type
        kind = output_type.tensor_type.elem_type or TensorProto.FLOAT
        if not output_type.tensor_type.HasField("shape"):
            dims = [f"{output.name}_{axis}" for axis in range(rank)]
            output_type = helper.make_tensor_type_proto(kind, dims)
        output.type.CopyFrom(output_type)
    return proto


def digits(batch: int | str = "N") -> onnx.ModelProto:
    """A small classifier with auto_pad, BatchNormalization, Relu and Gemm, as in real models."""
    net = Net(x=(batch, 1, 8, 8))
    net.conv("x", (4, 1, 3, 3), auto_pad="SAME_UPPER", bias=False).batchnorm(4).op("Relu")
    net.op("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
    net.conv(net.last, (4, 1, 3, 3), group=4, pads=[1, 1, 1, 1]).op("Relu")
    net.conv(net.last, (8, 4, 1, 1)).op("Relu").op("Flatten")
    return net.op("Gemm", net.last, net.random(128, 10), net.random(10)).model()


def integer_conv(
    weight: np.ndarray, *, zero: int = 0, dtype: type = np.int8, bias: Any = np.int32, **attrs: Any
) -> onnx.ModelProto:
    """A QLinearConv between its two conversions, as npuconv writes it.

    Args:
        weight: integers, O x I/group x kH x kW.
        zero: zero point of input and output.
        dtype: element type of input and output.
        bias: element type of the bias; None: no bias.
        attrs: attributes of the convolution.
    """
    net = Net(x=(1, weight.shape[1] * attrs.get("group", 1), 8, 8))
    scale, point = net.constant(np.float32(0.1)), net.constant(dtype(zero))
    inputs = [scale, point, net.constant(weight), scale, net.constant(weight.dtype.type(0))]
    inputs += [scale, point]
    if bias is not None:
        inputs.append(net.constant(np.zeros(weight.shape[0], bias)))
    net.op("QuantizeLinear", "x", scale, point)
    net.op("QLinearConv", net.last, *inputs, name="conv", **attrs)
    return net.op("DequantizeLinear", net.last, scale, point).model()


def images(*shape: int, seed: int = 0) -> np.ndarray:
    """Random float32 inputs between -1 and 1."""
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, shape).astype(np.float32)
