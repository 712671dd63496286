"""Context of a pass that makes int8 operators, and the conversions around a tensor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from npuconv.legalize.context import PassContext
from npuconv.model import query
from npuconv.model.core import Model
from npuconv.model.types import Node, Tensor
from npuconv.partition import Plan

if TYPE_CHECKING:
    from npuconv.arithmetic.encoding import Encoding
    from npuconv.arithmetic.layer import RoundedWeights
    from npuconv.diagnostics import Finding
    from npuconv.legalize.fitting.builder import BiasChannels
    from npuconv.model.partial_sums import Part

    LayerEncodings = tuple[Encoding, Encoding]


@dataclass
class EmitContext(PassContext):
    """Context of the passes in ``emit.lowering``.

    Attributes:
        plan: of the float model; nodes that are taken out leave it.
        encodings: by tensor; empty where only weights are quantized.
        rounded: integer weights and biases by node; the others are rounded to nearest.
        terms: in which the device runs a convolution, adding them in int32, by its name.
        bias_channels: with which the device runs a convolution that adds no bias, by its name.
        layer_encodings: of the input and the output of a convolution, by its name.
        stored: name of the int8 tensor, by the float tensor that it stands for.
        notes: what the report says of a layer, by node label.
        broken: limits of the target that rounded weights break.
    """

    plan: Plan = field(default_factory=Plan)
    encodings: Mapping[str, Encoding] = field(default_factory=dict)
    rounded: Mapping[str, RoundedWeights] = field(default_factory=dict)
    terms: Mapping[str, tuple[Part, ...]] = field(default_factory=dict)
    bias_channels: Mapping[str, BiasChannels] = field(default_factory=dict)
    layer_encodings: Mapping[str, LayerEncodings] = field(default_factory=dict)
    stored: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    broken: tuple[Finding, ...] = ()

    def use(
        self, plan: Plan, encodings: Mapping[str, Encoding], rounded: Mapping[str, RoundedWeights]
    ) -> None:
        """Set the plan and the quantization of a float model."""
        self.plan, self.encodings, self.rounded = plan, dict(encodings), dict(rounded)
        self.layer_encodings = {
            conv.name: (encodings[conv.inputs[0].name], encodings[conv.outputs[0].name])
            for conv in (plan.device if encodings else ())
        }


def dequantizer(tensor: Tensor) -> Node | None:
    """The DequantizeLinear that makes a tensor, if one does."""
    maker = query.producer(tensor)
    return maker if maker is not None and maker.op == "DequantizeLinear" else None


def quantizer(model: Model, tensor: Tensor) -> Node | None:
    """The QuantizeLinear that alone reads a tensor, if one does."""
    reader = query.sole_consumer(model, tensor)
    return reader if reader is not None and reader.op == "QuantizeLinear" else None


def same_scale(a: Node, b: Node) -> bool:
    """Return whether two conversions have the same scale and zero point."""
    import numpy as np

    pairs = [(query.constant_input(a, i), query.constant_input(b, i)) for i in (1, 2)]
    return all(x is not None and y is not None and np.array_equal(x, y) for x, y in pairs)
