"""Run convolutions in parts whose sums the device adds in its accumulator.

Each part reads a slice of the integers and has a slice of the weights. It becomes a
ConvInteger, the int32 results and the bias are added, and a Mul and a QuantizeLinear of
scale 1 make of the sum the integers that one QLinearConv would. With explicit conversions
each part is a Conv, and no conversion is between it and the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from npuconv.emit.emission import Emission, dequantized, dequantizer, quantizer
from npuconv.errors import InternalError
from npuconv.lazy import np
from npuconv.legalize.registry import Phase, TargetDevice, register_pass
from npuconv.model import Model, Node, Tensor, edit, query
from npuconv.records import dataclass, field

if TYPE_CHECKING:
    from npuconv.emit.int32_sums import SumEntry
    from npuconv.legalize.split.builder import SumTerm

_FLOAT = 1  # TensorProto.FLOAT, without importing onnx


@register_pass(Phase.QUANTIZE, after=("quantize-weights",))
def split_accumulated(
    model: Model, device: TargetDevice, emission: Emission
) -> list[tuple[str, SumEntry]]:
    # Returns the entries of the metadata, each with the label of its layer.
    writer = _Writer(model, integers=device.options.format != "qdq")
    convs = [conv for conv in emission.plan.convolutions if conv.name in emission.terms]
    return [(model.label(c), writer.split(c, emission.terms[c.name])) for c in convs]


@dataclass
class _Writer:
    """Writer of parts; parts that read the same channels share a Slice."""

    model: Model
    integers: bool
    _slices: dict[tuple[Any, ...], Tensor] = field(default_factory=dict)

    def split(self, conv: Node, parts: Sequence[SumTerm]) -> SumEntry:
        """Replace a convolution between conversions; return its entry in the metadata."""
        from npuconv.emit.int32_sums import SumEntry

        result, consumer = conv.outputs[0], quantizer(self.model, conv.outputs[0])
        producers = [dequantizer(tensor) for tensor in conv.inputs if tensor.name]
        sources = [node for node in producers if node is not None]
        if len(sources) < len(producers) or (self.integers and consumer is None):
            raise InternalError(f"{conv.name!r} is not between conversions", where="partial sums")
        terms = [self._part(conv, part, sources, first=not k) for k, part in enumerate(parts)]
        nodes = [node for term in terms if (node := query.producer(term)) is not None]
        named = {str(node.name): part for node, part in zip(nodes, parts, strict=True)}
        entry = SumEntry.from_conv(conv, conv.inputs[1].shape, named)
        if self.integers and len(sources) > 2:
            bias = query.constant_input(sources[2], 0)
            assert bias is not None, "a bias is constant"
            column = bias.reshape(1, *_column(conv))  # meets the channels
            terms.append(edit.constant(self.model, f"{conv.name}/bias", column))
        total = terms[0]
        for term in terms[1:]:
            total = self._insert(conv, "Add", [total, term], total)
        if self.integers:
            self._requantize(conv, total, sources, consumer)
        edit.disconnect(conv)
        if not self.integers:
            edit.hand_over(total, result)
        return entry

    def _part(self, conv: Node, part: SumTerm, sources: Sequence[Node], *, first: bool) -> Tensor:
        """Return the result of one part; with explicit conversions the first adds the bias."""
        x, w, *bias = sources
        weight = query.constant_input(w, 0)
        assert weight is not None, "weights are constant"
        weight = weight[part.index]
        attrs = {
            **conv.attrs, "kernel_shape": list(weight.shape[2:]), "strides": list(part.strides),
            "dilations": list(part.dilations),
        }  # fmt: skip
        stored = edit.constant(self.model, f"{w.inputs[0].name}/part", weight)
        source, like = self._slice(conv, part, x.inputs[0]), conv.outputs[0]
        if self.integers:
            inputs = [source, stored, x.inputs[2]]
            return self._insert(conv, "ConvInteger", inputs, like, dtype="int32", **attrs)
        inputs = [self._dequantize(conv, x, source), self._dequantize(conv, w, stored)]
        inputs += [node.outputs[0] for node in bias if first]
        return self._insert(conv, "Conv", inputs, like, **attrs)

    def _slice(self, conv: Node, part: SumTerm, source: Tensor) -> Tensor:
        bounds = part.bounds
        key = (source.name, *bounds)
        if not bounds:
            return source
        if key not in self._slices:
            axes, starts, stops, steps = (
                edit.integers(self.model, f"{conv.name}/bounds", list(numbers))
                for numbers in zip(*bounds, strict=True)
            )
            inner = self._insert(conv, "Slice", [source, starts, stops, axes, steps], source)
            for axis, *cells in bounds if inner.shape is not None else ():
                extent = inner.shape[axis]
                length = len(range(extent)[slice(*cells)]) if isinstance(extent, int) else None
                inner.shape[axis] = length
            self._slices[key] = inner
        return self._slices[key]

    def _dequantize(self, conv: Node, conversion: Node, source: Tensor) -> Tensor:
        if source is conversion.inputs[0]:
            return conversion.outputs[0]
        key = (source.name, "numbers")
        if key not in self._slices:
            self._slices[key] = dequantized(self.model, conversion, source, conv)
        return self._slices[key]

    def _requantize(
        self, conv: Node, total: Tensor, sources: Sequence[Node], consumer: Node
    ) -> None:
        """Multiply the sum by the factor of each channel, and round it once."""
        from npuconv.arithmetic.device import float_factors

        scales = [query.constant_input(node, 1) for node in (*sources[:2], consumer)]
        factors = float_factors(*(scale for scale in scales if scale is not None))
        shape = _column(conv) if factors.ndim else ()
        factor = edit.constant(self.model, f"{conv.name}/factor", factors.reshape(shape))
        cast = self._insert(conv, "Cast", [total], total, dtype="float32", to=_FLOAT)
        scaled = self._insert(conv, "Mul", [cast, factor], cast)
        unit = edit.shared_constant(self.model, "npuconv/scale/1.0", np.asarray(1, np.float32))
        inputs, result = [scaled, unit, consumer.inputs[2]], consumer.outputs[0]
        edit.disconnect(consumer)
        node = edit.add_node(self.model, "QuantizeLinear", inputs, [result], origin=[conv])
        edit.keep_name(node, conv)

    def _insert(
        self, conv: Node, op: str, inputs: Sequence[Tensor], like: Tensor, dtype: str = "",
        **attrs: Any,
    ) -> Tensor:  # fmt: skip
        """Return the result of a new node, of the shape of another tensor."""
        shape = query.shape(like)
        result = edit.insert(self.model, op, inputs, origin=[conv], shape=shape, attrs=attrs)
        if dtype:
            result.dtype = np.dtype(dtype)
        return result


def _column(conv: Node) -> tuple[int, ...]:
    """Return the shape in which one number per output channel is broadcast."""
    return (-1, *[1] * len(conv.attrs["kernel_shape"]))
