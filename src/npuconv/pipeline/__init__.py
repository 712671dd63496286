"""The one way through the house: load, lint, rewrite, lint again, quantize, emit, report.

``entry``      check and convert, whole
``quantize``   from the legal float model to int8: every step of ``npuconv.quantize`` in order
``calibrated`` what calibration has shown, judged by rules
"""

from __future__ import annotations

from npuconv.pipeline.entry import Conversion, check, convert

__all__ = ["Conversion", "check", "convert"]
