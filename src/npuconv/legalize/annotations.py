"""Annotations: facts that float passes find out and quantization needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from npuconv.lazy import np
from npuconv.legalize.source_scales import SourceScales

if TYPE_CHECKING:
    Expected = tuple[np.ndarray, np.ndarray]  # mean and standard deviation of every channel


@dataclass(frozen=True)
class Annotations:
    """Facts about tensors and layers of a model; passes that add facts return a new object.

    Attributes:
        expected: mean and standard deviation of a tensor's channels in training, by tensor.
        source_scales: encodings of a quantized source.
        opset_obstacle: node that keeps the model from an opset, with the reason; or ''.
    """

    expected: Mapping[str, Expected] = field(default_factory=dict)
    source_scales: SourceScales = field(default_factory=SourceScales)
    opset_obstacle: str = ""
