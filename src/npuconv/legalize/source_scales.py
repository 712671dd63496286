"""Scales and zero points that a model brings along because it is quantized already."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from npuconv.arithmetic.encoding import Encoding


@dataclass(frozen=True)
class WeightScales:
    """Scales of the integer weights of one layer.

    Attributes:
        scales: float32 [1] or [M], one for each output channel.
        bits: width of the stored integers, for people.
    """

    scales: NDArray[np.float32]
    bits: str


@dataclass
class SourceScales:
    """Encodings of a model that was quantized before it came.

    Attributes:
        tensors: encoding by tensor of the float graph, in int8.
        made: name of such a tensor by label of the node that makes it, which outlives the name.
        weights: scales of weights, by label of the layer that reads them.
        lost: reason by name of the tensor or label of the layer whose scales cannot be kept.
    """

    tensors: dict[str, Encoding] = field(default_factory=dict)
    made: dict[str, str] = field(default_factory=dict)
    weights: dict[str, WeightScales] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Return whether the model was quantized in any part."""
        return bool(self.tensors or self.weights or self.lost)
