"""Quantization of every tensor and every weight of a model, as one immutable value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from npuconv.arithmetic.encoding import Encoding
from npuconv.arithmetic.layer import RoundedWeights

Offsets = NDArray[np.float64]  # offset of each channel


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
        bias_offsets: number that oversampling adds to a bias, float64 [M], by node: it offsets
            outputs by part of a step, and does not count as error.
        tensor_offsets: offset of a tensor by oversampling, float64 [C], by tensor.
    """

    encodings: Mapping[str, Encoding] = field(default_factory=dict)
    methods: Mapping[str, str] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)
    weights: Mapping[str, RoundedWeights] = field(default_factory=dict)
    roundings: Mapping[str, str] = field(default_factory=dict)
    lost: Mapping[str, str] = field(default_factory=dict)
    bias_offsets: Mapping[str, Offsets] = field(default_factory=dict)
    tensor_offsets: Mapping[str, Offsets] = field(default_factory=dict)
