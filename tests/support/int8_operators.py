"""Models of one int8 operator between conversions, which can be translated to TFLite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from npuconv.arithmetic.rescaling import TensorScale
from npuconv.emit import keys

IMAGE = (1, 3, 8, 6)
WIDE, FINE, MADE = TensorScale(0.05, -7), TensorScale(0.03125, 12), TensorScale(0.07, 3)


@dataclass(frozen=True)
class Case:
    """An operator with the scales of its inputs and its output, and with attributes.

    Attributes:
        op: name of the operator in ONNX.
        scales: scales of the inputs x0, x1, and of the output y.
        attrs: attributes of the node.
        rest: further inputs, constants.
        shapes: shapes of the inputs.
        constants: int8 values of constant inputs, by number.
    """

    op: str
    scales: Sequence[TensorScale]
    attrs: dict[str, Any] = field(default_factory=dict)
    rest: Sequence[np.ndarray] = ()
    shapes: Sequence[tuple[int, ...]] = (IMAGE, IMAGE)
    constants: dict[int, np.ndarray] = field(default_factory=dict)

    def model(self, requantize: str = "gemmlowp") -> onnx.ModelProto:
        """Return the model; its metadata name the operator."""
        count = len(self.scales) - 1
        nodes, constants = list[onnx.NodeProto](), dict[str, np.ndarray]()
        for k, scale in enumerate(self.scales):
            constants[f"s{k}"] = np.float32(scale.scale)
            constants[f"z{k}"] = np.int8(scale.zero)
        constants |= {f"x{k}": values for k, values in self.constants.items()}
        for k in range(count):
            triple = [f"x{k}", f"s{k}", f"z{k}"]
            nodes.append(helper.make_node("DequantizeLinear", triple, [f"d{k}"]))
        constants |= {f"r{k}": values for k, values in enumerate(self.rest) if values.size}
        names = [f"r{k}" if values.size else "" for k, values in enumerate(self.rest)]
        inputs = [*(f"d{k}" for k in range(count)), *names]
        nodes.append(helper.make_node(self.op, inputs, ["f"], name="op", **self.attrs))
        nodes.append(helper.make_node("QuantizeLinear", ["f", f"s{count}", f"z{count}"], ["y"]))
        input_infos = [
            helper.make_tensor_value_info(f"x{k}", TensorProto.INT8, self.shapes[k])
            for k in range(count)
            if k not in self.constants
        ]
        output_infos = [helper.make_tensor_value_info("y", TensorProto.INT8, None)]
        tensors = [numpy_helper.from_array(v, k) for k, v in constants.items()]
        graph = helper.make_graph(nodes, "one", input_infos, output_infos, tensors)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
        helper.set_model_props(model, {keys.OPERATORS: "op", keys.REQUANTIZE: requantize})
        return model

    def feeds(self, seed: int = 0) -> dict[str, np.ndarray]:
        """Return int8 values of the whole range."""
        rng = np.random.default_rng(seed)
        numbers = [k for k in range(len(self.scales) - 1) if k not in self.constants]
        return {f"x{k}": rng.integers(-128, 128, self.shapes[k]).astype(np.int8) for k in numbers}


_SLOPE = np.asarray([0.3], np.float32)
_SLOPES = np.asarray([[[0.31]], [[-0.07]], [[1.2]]], np.float32)
_POOL = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1], "count_include_pad": 1}
_TWO = np.asarray([[[[-100]], [[3]], [[127]]]], np.int8)
_DOUBLED = (np.zeros(0, np.float32), np.asarray([1, 1, 2, 2], np.float32))
_SIZES = (np.zeros(0, np.float32), np.zeros(0, np.float32), np.asarray([1, 3, 5, 12]))
CASES = {
    "add": Case("Add", (WIDE, FINE, MADE)),
    "add-constant": Case("Add", (WIDE, FINE, MADE), constants={1: _TWO}),
    "sub": Case("Sub", (WIDE, FINE, MADE)),
    "mul": Case("Mul", (WIDE, FINE, MADE)),
    "mul-column": Case("Mul", (WIDE, FINE, MADE), shapes=(IMAGE, (1, 3, 1, 1))),
    "matmul": Case("MatMul", (WIDE, FINE, MADE), shapes=((1, 2, 5, 7), (1, 2, 7, 4))),
    "average-pool": Case("AveragePool", (WIDE, WIDE), {"kernel_shape": [2, 3]}),
    "average-pool-padded": Case("AveragePool", (WIDE, WIDE), _POOL),
    "average-pool-rescaled": Case("AveragePool", (WIDE, FINE), {"kernel_shape": [2, 3]}),
    "global-average-pool": Case("GlobalAveragePool", (WIDE, FINE)),
    "mean": Case("ReduceMean", (WIDE, FINE), {"keepdims": 0}, [np.asarray([2, 3])]),
    "concat": Case("Concat", (WIDE, MADE, MADE), {"axis": 1}),
    "resize": Case("Resize", (WIDE, WIDE), {"mode": "linear"}, _DOUBLED),
    "resize-corners": Case(
        "Resize",
        (WIDE, FINE),
        {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
        _SIZES,
    ),
    "softmax": Case("Softmax", (WIDE, TensorScale(1 / 256, -128)), {"axis": -1}),
    "softmax-channels": Case("Softmax", (WIDE, FINE), {"axis": 1}),
    "sigmoid": Case("Sigmoid", (WIDE, TensorScale(1 / 256, -128))),
    "sigmoid-rescaled": Case("Sigmoid", (WIDE, TensorScale(0.0037, -128))),
    "tanh": Case("Tanh", (FINE, TensorScale(1 / 128, 0))),
    "leaky-relu": Case("LeakyRelu", (WIDE, MADE), {"alpha": 0.2}),
    "prelu": Case("PRelu", (WIDE, MADE), rest=[_SLOPE]),
    "prelu-channels": Case("PRelu", (WIDE, MADE), rest=[_SLOPES]),
    "hard-swish": Case("HardSwish", (WIDE, MADE)),
}
