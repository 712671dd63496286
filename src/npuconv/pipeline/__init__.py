"""The one way through the house: load, lint, rewrite, lint again, quantize, emit, report.

``entry``      check and convert, whole
``legalize``   what check and convert share, so that neither can promise what the other
               does not do
``quantize``   from the legal float model to int8, with the help of
  ``host``       what the host does for the device: pads, aligned inputs, tensors handed over
  ``ranges``     how every int8 tensor is stored, and how weights are rounded
  ``precision``  what is made several times: in place of idle channels, or for a budget
``accuracy``   how far the result is from the float model; verify
``vectors``    integers in and out of every layer
``reporting``  all of it as a Report
"""

from __future__ import annotations

from npuconv.pipeline.entry import Conversion, check, convert

__all__ = ["Conversion", "check", "convert"]
