"""Samples through the float model -> what was seen of its tensors.

``collect`` is the one float pass; what it returns is immutable and void when the graph
changes.
"""

from npuconv.calibration.collect import collect

__all__ = ["collect"]
