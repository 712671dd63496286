"""Integer operators: tensors between device nodes are really int8."""

from __future__ import annotations

from npuconv.emit import Format

FORMAT = Format(
    name="qoperator",
    summary="QLinearConv and int8 operators; conversions only where the host begins",
    phases=("quantize", "lower"),
    calibrates=True,
)
