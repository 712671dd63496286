"""ONNX to int8 for accelerators: rewrites, checks, quantizes, and reports every change.

    import npuconv

    report = npuconv.check("model.onnx")
    result = npuconv.convert("model.onnx", calibration="images/", preprocess={"preset": "unit"})
    result.save("model.npu.onnx")

Slow modules are imported at their first use, so that ``import npuconv`` costs nothing.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from npuconv.errors import (
    CalibrationError,
    ConfigError,
    InternalError,
    ModelError,
    NpuconvError,
    OutputError,
    TargetError,
    UnsupportedModelError,
    UsageError,
)
from npuconv.version import __version__

# From 1.29 on, onnxruntime reports errors, with names of nodes, and facts of models and of the
# machine to its makers, unless this is set before it is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

if TYPE_CHECKING:
    from npuconv.batch.run_jobs import run_batch
    from npuconv.check_model import check
    from npuconv.conversion import Conversion
    from npuconv.convert_model import convert
    from npuconv.evaluate.verify import verify
    from npuconv.schemas.batch import BatchReport
    from npuconv.schemas.report import Report
    from npuconv.schemas.verify import VerifyReport
    from npuconv.target import Target


_HOME = {  # module of each name, imported at the first use of the name
    "BatchReport": "npuconv.schemas.batch",
    "Conversion": "npuconv.conversion",
    "check": "npuconv.check_model",
    "convert": "npuconv.convert_model",
    "Report": "npuconv.schemas.report",
    "run_batch": "npuconv.batch.run_jobs",
    "Target": "npuconv.target",
    "VerifyReport": "npuconv.schemas.verify",
    "verify": "npuconv.evaluate.verify",
}

__all__ = [
    "BatchReport", "CalibrationError", "ConfigError", "Conversion", "InternalError", "ModelError",
    "NpuconvError", "OutputError", "Report", "Target", "TargetError", "UnsupportedModelError",
    "UsageError", "VerifyReport", "__version__", "check", "convert", "run_batch", "verify",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'npuconv' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
