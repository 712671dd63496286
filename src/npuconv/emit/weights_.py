"""int8 weights only; activations stay float."""

from __future__ import annotations

from npuconv.emit import Format

FORMAT = Format(
    name="weights",
    summary="int8 weights, float activations; needs no calibration",
    phases=("quantize",),
    calibrates=False,
)
