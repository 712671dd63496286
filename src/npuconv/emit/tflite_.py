"""A TFLite file of the integers that ``qoperator`` has; ``emit.tflite`` writes it."""

from __future__ import annotations

from npuconv.emit import Format

FORMAT = Format(
    name="tflite",
    summary="int8 TFLite file, channels last; float operators where the host computes",
    phases=("quantize", "lower"),
    calibrates=True,
)
