"""Quantization of every tensor and every weight of a model, as one immutable value."""

from __future__ import annotations

from collections.abc import Mapping

from npuconv.arithmetic.encoding import Encoding
from npuconv.arithmetic.layer import RoundedWeights
from npuconv.records import dataclass, field, replace


@dataclass(frozen=True)
class QuantState:
    """Quantization of every tensor and every weight, and the methods that chose it.

    Attributes:
        encodings: scale and zero point of every int8 tensor, by tensor.
        methods: method that chose the range, by name of the group of tensors.
        shares: clipping limit of each group with one scale, as a share of its largest value.
        weights: integer weights and biases by node; other layers are rounded to nearest.
        roundings: name of the rounding of the weights, by node.
        lost: reason why a layer does not keep the integer weights of a quantized model, by node.
    """

    encodings: Mapping[str, Encoding] = field(default_factory=dict)
    methods: Mapping[str, str] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)
    weights: Mapping[str, RoundedWeights] = field(default_factory=dict)
    roundings: Mapping[str, str] = field(default_factory=dict)
    lost: Mapping[str, str] = field(default_factory=dict)

    def with_ranges(self, ranges: QuantState) -> QuantState:
        """Return the state with the encodings and methods of another choice, of some groups."""
        encodings = {**self.encodings, **ranges.encodings}
        methods = {**self.methods, **ranges.methods}
        return replace(self, encodings=encodings, methods=methods, shares=ranges.shares)
