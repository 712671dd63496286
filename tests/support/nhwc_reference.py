"""Evaluator of com.ms.internal.nhwc, which no runtime on a CPU has: it judges the rewrites.

It follows the definition of the domain: the operator of ONNX on transposed tensors, and the
activation behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from npuconv.model import conv
from npuconv.model.nhwc import ACTIVATIONS, DOMAIN, OPERATORS, to_first, to_last

_OPSET, _IR = 21, 10
_SILENT = 4  # log level for fatal errors only: refusals are exceptions


def evaluate(
    op: str, inputs: Sequence[np.ndarray | None], attributes: dict[str, Any]
) -> np.ndarray:
    """Return the result of one operator of the domain, computed in float32.

    The inputs are X, and W and B of a convolution; None for an omitted input.

    Raises:
        ValueError: an activation that the domain does not have.
    """
    import onnxruntime as ort

    x, weight = (*inputs, None)[:2]
    assert x is not None, "X is required"
    attrs = dict(attributes)
    activation, parameters = _text(attrs.pop("activation", "")), attrs.pop("activation_params", ())
    if activation and activation not in ACTIVATIONS:
        raise ValueError(f"activation {activation!r} is not one of {', '.join(ACTIVATIONS)}")
    if op != "ConvTranspose" and _text(attrs.get("auto_pad", "")).startswith("SAME"):
        # onnxruntime refuses SAME beside a dilation: state the pads.
        kernel = weight.shape[2:] if weight is not None else attrs["kernel_shape"]
        ones = [1] * len(kernel)
        steps = (attrs.get("strides") or ones, attrs.get("dilations") or ones)
        mode, rows = _text(attrs.pop("auto_pad")), zip(x.shape[1:-1], kernel, *steps, strict=True)
        pads = [conv.conv_pads(mode, *row) or (0, 0) for row in rows]
        attrs["pads"] = [begin for begin, _ in pads] + [end for _, end in pads]
    arrays = {
        f"input{k}": np.ascontiguousarray(array, np.float32)
        for k, array in enumerate([x.transpose(to_first(x.ndim)), *inputs[1:]])
        if array is not None
    }
    names = [f"input{k}" if f"input{k}" in arrays else "" for k in range(len(inputs))]
    nodes = [helper.make_node(op, names, ["result"], **attrs)]
    if activation:
        numbers = dict(zip(ACTIVATIONS[activation], parameters, strict=True))
        operands = ["result"]
        if activation == "Clip":  # the bounds of a Clip are inputs
            arrays |= {name: np.array(number, np.float32) for name, number in numbers.items()}
            operands, numbers = ["result", *numbers], {}
        nodes.append(helper.make_node(activation, operands, ["activated"], **numbers))
    graph = helper.make_graph(
        nodes,
        "nhwc",
        [helper.make_tensor_value_info(k, TensorProto.FLOAT, a.shape) for k, a in arrays.items()],
        [helper.make_empty_tensor_value_info(nodes[-1].output[0])],
    )
    imports = [helper.make_opsetid("", _OPSET)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=_IR)
    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = _SILENT, 1
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    (result,) = session.run(None, arrays)
    return np.asarray(result.transpose(to_last(result.ndim)), x.dtype)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")


def _run(self: OpRun, *inputs: np.ndarray | None, **_attributes: Any) -> tuple[np.ndarray]:
    attrs = {a.name: helper.get_attribute_value(a) for a in self.onnx_node.attribute}
    return (evaluate(self.onnx_node.op_type, inputs, attrs),)


# ONNX's reference evaluator finds an operator by the name of its class.
EVALUATORS: list[type[OpRun]] = [
    type(op, (OpRun,), {"op_domain": DOMAIN, "_run": _run}) for op in OPERATORS
]


def run_reference(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Run a model with operators of the domain on ONNX's reference evaluator."""
    values = ReferenceEvaluator(model, new_ops=EVALUATORS).run(None, feeds)
    return dict(zip([output.name for output in model.graph.output], values, strict=True))
