"""The same numbers, as QuantizeLinear and DequantizeLinear pairs around float operators."""

from __future__ import annotations

from npuconv.emit import Format

FORMAT = Format(
    name="qdq",
    summary="QuantizeLinear / DequantizeLinear pairs around float operators",
    phases=("quantize",),
    calibrates=True,
)
