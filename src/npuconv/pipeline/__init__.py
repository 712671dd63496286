"""The one way through the house: load, lint, rewrite, lint again, quantize, emit, report.

``legalize``  what check and convert share, so that neither can promise what the other
              does not do
``quantize``  from the legal float model to int8
``accuracy``  how far the result is from the float model
``assemble``  all of it as a Report
"""

from __future__ import annotations

from npuconv.pipeline.entry import Conversion, check, convert

__all__ = ["Conversion", "check", "convert"]
