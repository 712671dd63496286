"""Run convolutions in parts whose sums the device adds in its accumulator.

Each part reads a slice of the integers and has a slice of the weights. It becomes a
ConvInteger, the int32 results and the bias are added, and a Mul and a QuantizeLinear of
scale 1 make of the sum the integers that one QLinearConv would. With explicit conversions
each part is a Conv, and no conversion is between it and the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from npuconv.emit.context import EmitContext, dequantizer, quantizer
from npuconv.errors import InternalError
from npuconv.legalize.registry import Phase, model_pass
from npuconv.model import edit, query
from npuconv.model.core import Model
from npuconv.model.partial_sums import Part
from npuconv.model.types import Node, Tensor

_FLOAT = 1  # TensorProto.FLOAT, without importing onnx


@model_pass(Phase.QUANTIZE, after=("quantize-weights",))
def split_accumulated(model: Model, ctx: EmitContext) -> int:
    found = [c for c in ctx.plan.device if c.name in ctx.parts and len(c.outputs)]
    writer = _Writer(model, integers=ctx.options.format != "qdq")
    for conv in found:
        parts = ctx.parts[conv.name]
        writer.split(conv, parts)
        ctx.notes.setdefault(model.label(conv), f"{len(parts)} parts, added in int32")
    return len(found)


@dataclass
class _Writer:
    """Writes parts; what several of them read is sliced once."""

    model: Model
    integers: bool
    _slices: dict[tuple[Any, ...], Tensor] = field(default_factory=dict)

    def split(self, conv: Node, parts: Sequence[Part]) -> None:
        """Replace a convolution between conversions."""
        result, behind = conv.outputs[0], quantizer(self.model, conv.outputs[0])
        made = [dequantizer(tensor) for tensor in conv.inputs if tensor.name]
        ends = [one for one in made if one is not None]
        if len(ends) < len(made) or (self.integers and behind is None):
            raise InternalError(f"{conv.name!r} is not between conversions", where="partial sums")
        terms = [self._part(conv, part, ends, first=not k) for k, part in enumerate(parts)]
        if self.integers and len(ends) > 2:
            terms.append(self._bias(conv, ends[2]))
        total = terms[0]
        for term in terms[1:]:
            total = self._insert(conv, "Add", [total, term], total)
        if self.integers:
            self._requantize(conv, total, ends, behind)
        edit.disconnect(conv)
        if not self.integers:
            edit.hand_over(total, result)

    def _part(self, conv: Node, part: Part, ends: Sequence[Node], *, first: bool) -> Tensor:
        """Return the result of one part; with explicit conversions the first adds the bias."""
        x, w, *bias = ends
        weight = query.constant_input(w, 0)
        assert weight is not None, "weights are constant"
        own = weight[part.index]
        attrs = {
            **conv.attrs, "kernel_shape": list(own.shape[2:]), "strides": list(part.strides),
            "dilations": list(part.dilations),
        }  # fmt: skip
        stored = edit.constant(self.model, f"{w.inputs[0].name}/part", own)
        source, like = self._slice(conv, part, x.inputs[0]), conv.outputs[0]
        if self.integers:
            read = [source, stored, x.inputs[2]]
            return self._insert(conv, "ConvInteger", read, like, dtype="int32", **attrs)
        read = [self._numbers(conv, x, source), self._numbers(conv, w, stored)]
        read += [one.outputs[0] for one in bias if first]
        return self._insert(conv, "Conv", read, like, **attrs)

    def _slice(self, conv: Node, part: Part, source: Tensor) -> Tensor:
        """Return the integers that a part reads."""
        bounds = part.bounds()
        key = (source.name, *bounds)
        if not bounds:
            return source
        if key not in self._slices:
            axes, starts, stops, steps = (
                edit.integers(self.model, f"{conv.name}/bounds", list(one))
                for one in zip(*bounds, strict=True)
            )
            made = self._insert(conv, "Slice", [source, starts, stops, axes, steps], source)
            for axis, *cells in bounds if made.shape is not None else ():
                made.shape[axis] = len(range(*cells))
            self._slices[key] = made
        return self._slices[key]

    def _numbers(self, conv: Node, conversion: Node, source: Tensor) -> Tensor:
        """Return integers dequantized as others are."""
        if source is conversion.inputs[0]:
            return conversion.outputs[0]
        key = (source.name, "numbers")
        if key not in self._slices:
            read, attrs = [source, *list(conversion.inputs)[1:]], dict(conversion.attrs)
            made = self._insert(conv, "DequantizeLinear", read, source, dtype="float32", **attrs)
            self._slices[key] = made
        return self._slices[key]

    def _bias(self, conv: Node, bias: Node) -> Tensor:
        """Return the int32 bias in the shape that meets the channels."""
        values = query.constant_input(bias, 0)
        assert values is not None, "a bias is constant"
        return edit.constant(self.model, f"{conv.name}/bias", values.reshape(1, *_column(conv)))

    def _requantize(self, conv: Node, total: Tensor, ends: Sequence[Node], behind: Node) -> None:
        """Multiply the sum by the factor of each channel, and round it once."""
        import numpy as np

        from npuconv.arithmetic.device import float_factors

        scales = [query.constant_input(one, 1) for one in (*ends[:2], behind)]
        factors = float_factors(*(scale for scale in scales if scale is not None))
        shape = _column(conv) if factors.ndim else ()
        factor = edit.constant(self.model, f"{conv.name}/factor", factors.reshape(shape))
        cast = self._insert(conv, "Cast", [total], total, dtype="float32", to=_FLOAT)
        scaled = self._insert(conv, "Mul", [cast, factor], cast)
        one = edit.shared_constant(self.model, "npuconv/scale/1.0", np.asarray(1, np.float32))
        inputs, result = [scaled, one, behind.inputs[2]], behind.outputs[0]
        edit.disconnect(behind)
        made = edit.add_node(self.model, "QuantizeLinear", inputs, [result], origin=[conv])
        edit.keep_name(made, conv)

    def _insert(
        self, conv: Node, op: str, inputs: Sequence[Tensor], like: Tensor, dtype: str = "",
        **attrs: Any,
    ) -> Tensor:  # fmt: skip
        """Return the result of a new node, of the shape of another tensor."""
        import numpy as np

        shape = query.shape(like)
        made = edit.insert(self.model, op, inputs, origin=[conv], shape=shape, attrs=attrs)
        if dtype:
            made.dtype = np.dtype(dtype)
        return made


def _column(conv: Node) -> tuple[int, ...]:
    """Return the shape of one number for each output channel."""
    return (-1, *[1] * len(conv.attrs["kernel_shape"]))
