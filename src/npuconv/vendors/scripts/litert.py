"""LiteRT on the processor of this machine, with its default kernels (XNNPACK)."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from ai_edge_litert.interpreter import Interpreter

VERSION = version("ai-edge-litert")


def ask(question: dict[str, Any], feeds: list[dict[str, Any]]) -> tuple[dict[str, Any], Any]:
    """Load and run."""
    outputs = []
    try:
        interpreter = Interpreter(model_path=question["model"], num_threads=1)
        interpreter.allocate_tensors()
        inputs, results = interpreter.get_input_details(), interpreter.get_output_details()
        for feed in feeds:
            for tensor, values in zip(inputs, feed.values(), strict=True):
                interpreter.set_tensor(tensor["index"], values)
            interpreter.invoke()
            outputs.append([interpreter.get_tensor(tensor["index"]) for tensor in results])
    except (ValueError, RuntimeError) as error:
        return {"accepted": False, "message": " ".join(str(error).split())[-400:]}, None
    return {"accepted": True}, outputs
