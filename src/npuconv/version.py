"""Version of npuconv, and the operator sets of ONNX and the forms that it writes."""

from typing import Literal

__version__ = "0.1.0"

# Relu, the last of the operators that are used on int8 tensors, takes them from 14 on. ONNX's
# reference evaluator dequantizes int8 from 19 on, runtimes of 2024 end at 21, and onnxruntime
# 1.28 at 26.
OLDEST_OPSET, DEFAULT_OPSET, NEWEST_OPSET = 14, 21, 26

Format = Literal["qoperator", "qdq", "weights", "float", "tflite"]
