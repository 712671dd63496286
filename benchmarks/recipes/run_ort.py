"""onnxruntime's quantize_static with the device's arithmetic: MODEL SAMPLES OUT METHOD SCOPE.

Arithmetic: int8 weights, symmetric, per channel; int8 activations with zero point 0.
METHOD is MinMax or Percentile; SCOPE is all (operators) or conv.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process

from recipes.feeds import Array, open_session, read_feeds

_DEVICE = {"ActivationSymmetric": True, "WeightSymmetric": True}


class _Reader(CalibrationDataReader):
    def __init__(self, feeds: Iterator[dict[str, Array]]) -> None:
        self._feeds = feeds

    def get_next(self) -> dict[str, Array] | None:
        return next(self._feeds, None)


def _prepare(source: Path, target: Path) -> None:
    """Their own preprocessing; without symbolic shapes where these fail."""
    try:
        quant_pre_process(str(source), str(target))
    except Exception:  # whatever it is, this is what their error message asks for
        quant_pre_process(str(source), str(target), skip_symbolic_shape=True)


def main() -> None:
    """Quantize."""
    model, samples, target = (Path(argument).resolve() for argument in sys.argv[1:4])
    method, scope = sys.argv[4:6]
    session = open_session(model)
    # Where symbolic shapes fail it leaves weights behind in the folder it is run in.
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        prepared = Path(folder) / "prepared.onnx"
        _prepare(model, prepared)
        quantize_static(
            str(prepared),
            str(target),
            _Reader(read_feeds(session, samples)),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=["Conv", "ConvTranspose"] if scope == "conv" else None,
            per_channel=True,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
            calibrate_method=CalibrationMethod[method],
            extra_options=_DEVICE,
        )


if __name__ == "__main__":
    main()
