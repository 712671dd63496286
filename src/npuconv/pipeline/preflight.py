"""What check and convert ask of the legal float model before anything is quantized."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv import executor
from npuconv.errors import ModelError

if TYPE_CHECKING:
    import onnx

    from npuconv.legalize.legal import Legalized

_RUNS_ON = "models are measured on onnxruntime: export it with operators and types that it runs"


def load_float(work: Legalized, proto: onnx.ModelProto) -> executor.Session:
    """Load the float model, which finds operators and types that onnxruntime has no kernel for.

    Args:
        work: a legalized model without blocking findings.
        proto: the same.

    Raises:
        ModelError: onnxruntime does not load it.
    """
    try:
        return executor.Session(proto)
    except executor.RuntimeRefusedError as error:
        text = f"{work.model.name}: onnxruntime does not load it: {error}"
        raise ModelError(text, hint=_RUNS_ON) from None
