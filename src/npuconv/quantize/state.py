"""Quantization of every tensor and every weight of a model, as one immutable value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property

import numpy as np
import onnx
from numpy.typing import NDArray

from npuconv.arithmetic.encoding import Encoding
from npuconv.arithmetic.layer import RoundedWeights
from npuconv.legalize.context import PassContext
from npuconv.legalize.legal import LegalModel
from npuconv.legalize.source import SourceScales
from npuconv.model import query, save
from npuconv.model.core import Model
from npuconv.model.types import Tensor
from npuconv.partition.channels import Channels, trace
from npuconv.quantize import kept

Offsets = NDArray[np.float64]  # one for each channel


@dataclass(frozen=True)
class QuantState:
    """Quantization of every tensor and every weight, and the methods that chose it.

    Attributes:
        encodings: scale and zero point of every int8 tensor, by tensor.
        methods: of the choice of ranges, by the name of the group of tensors.
        shares: of their largest value at which channels of one scale are clipped, by group.
        weights: integer weights and biases by node; the others are rounded to nearest.
        roundings: name of the rounding of the weights, by node.
        lost: reason why a layer does not keep the integer weights of a quantized model, by node.
        bias_offsets: added to a bias by oversampling, float64 [M], by node: it offsets outputs
            by part of a step, and is no error.
        tensor_offsets: offset of a tensor by that, float64 [C].
    """

    encodings: Mapping[str, Encoding] = field(default_factory=dict)
    methods: Mapping[str, str] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)
    weights: Mapping[str, RoundedWeights] = field(default_factory=dict)
    roundings: Mapping[str, str] = field(default_factory=dict)
    lost: Mapping[str, str] = field(default_factory=dict)
    bias_offsets: Mapping[str, Offsets] = field(default_factory=dict)
    tensor_offsets: Mapping[str, Offsets] = field(default_factory=dict)


class DeviceGraph(LegalModel):
    """A legal float model as the steps of quantization take it.

    Passes change its graph in place; every step that runs one returns a new value with a plan.
    """

    @classmethod
    def of(cls, legal: LegalModel) -> DeviceGraph:
        """Return the model with its plan."""
        return cls(**{field.name: getattr(legal, field.name) for field in fields(legal)})

    @property
    def has_host(self) -> bool:
        """Return whether the target has a host that computes in float."""
        return self.target.unlisted_operators != "error"

    @property
    def filled_tensors(self) -> set[str]:
        """Tensors that a passthrough Pad pads with one integer for all channels."""
        pads = [node for node in self.plan.passthrough if node.op == "Pad"]
        return {t.name for node in pads for t in (node.inputs[0], *node.outputs)}

    def comes_from_device(self, tensor: Tensor) -> bool:
        """Return whether the device makes a tensor."""
        maker = query.producer(tensor)
        if maker is None or self.plan.placement[id(maker)] == "device":
            return maker is not None
        fused = self.target.fused_activations
        names = fused.values if fused.known else fused.assume
        activation = self.plan.is_passthrough(maker) and maker.op in names
        return activation and self.comes_from_device(maker.inputs[0])

    @cached_property
    def channels(self) -> Channels:
        """Channels that share a scale, in tensors that are not uniform."""
        every = [name for group in self.plan.groups for name in group.tensors]
        layers = {conv.name: self.model.origin(conv) for conv in self.plan.device}
        if self.is_per_tensor:
            return trace(self.plan, every, layers)
        alike = kept.with_one_scale(self.model, self.plan, self.source_scales)
        return trace(self.plan, [*self.uniform_tensors, *alike], layers)

    @property
    def source_scales(self) -> SourceScales:
        """Return the scales that the model came with; none where they are not to be kept."""
        return self.ctx.source_scales if self.options.keep_scales else SourceScales()

    @property
    def is_per_tensor(self) -> bool:
        """Return whether the device has one weight scale per layer, and none per channel."""
        return self.target.weights.granularity == "tensor"

    def proto(self) -> onnx.ModelProto:
        """Return the model as ONNX."""
        return save.to_proto(self.model)

    def replanned(self, model: Model | None = None, ctx: PassContext | None = None) -> DeviceGraph:
        """Return the graph after its model was changed, or that of another model."""
        model, ctx = model or self.model, ctx or self.ctx
        return replace(self, model=model, ctx=ctx, plan=self.make_plan(model))
