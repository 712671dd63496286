"""The legalized float model."""

from __future__ import annotations

from npuconv.emit import Format

FORMAT = Format(
    name="float",
    summary="the legalized float model, no quantization",
    phases=(),
    calibrates=False,
)
