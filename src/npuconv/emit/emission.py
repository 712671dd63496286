"""Input of the emission passes; conversions around a tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from npuconv.lazy import np
from npuconv.model import Model, Node, Tensor, edit, query
from npuconv.partition.placement import Plan
from npuconv.records import dataclass, field

if TYPE_CHECKING:
    from npuconv.arithmetic.encoding import Encoding
    from npuconv.arithmetic.layer import RoundedWeights
    from npuconv.legalize.split.builder import BiasChannels, SumTerm, WrittenConv

    LayerEncodings = tuple[Encoding, Encoding]


@dataclass(frozen=True)
class Emission:
    """Plan and quantization of a float model, for the passes in ``emit.lowering``.

    Attributes:
        plan: places of the nodes of the float model; passes may have removed some nodes.
        encodings: scale and zero point by tensor; empty if only weights are quantized.
        rounded: integer weights and biases by node; other weights are rounded to nearest.
        terms: parts of a convolution, whose results the device adds in int32, by node.
        bias_channels: constant input channels that make up the bias, by node.
        layer_encodings: encodings of the input and the output of a convolution, by its name.
    """

    plan: Plan
    encodings: Mapping[str, Encoding] = field(default_factory=dict)
    rounded: Mapping[str, RoundedWeights] = field(default_factory=dict)
    terms: Mapping[str, tuple[SumTerm, ...]] = field(default_factory=dict)
    bias_channels: Mapping[str, BiasChannels] = field(default_factory=dict)
    layer_encodings: Mapping[str, LayerEncodings] = field(default_factory=dict)

    @classmethod
    def from_plan(
        cls,
        plan: Plan,
        encodings: Mapping[str, Encoding],
        rounded: Mapping[str, RoundedWeights],
        convs: Sequence[WrittenConv] = (),
    ) -> Emission:
        """Return the input of the passes from integers, and from the parts of split layers.

        A tensor that is not stored has no encoding: its convolution makes real values.
        """
        from npuconv.arithmetic.encoding import Encoding

        encodings = {name: e for name, e in encodings.items() if name not in plan.fused}
        layers = {
            conv.name: (
                encodings[conv.inputs[0].name],
                encodings.get(conv.outputs[0].name) or Encoding.plain(1.0),
            )
            for conv in (plan.convolutions if encodings else ())
        }
        terms = {conv.node: conv.terms for conv in convs if conv.terms}
        channels = {c.node: c.bias_channels for c in convs if c.bias_channels is not None}
        return cls(plan, encodings, rounded, terms, channels, layers)


def dequantizer(tensor: Tensor) -> Node | None:
    """The producer of a tensor if it is a DequantizeLinear, else None."""
    producer = query.producer(tensor)
    return producer if producer is not None and producer.op == "DequantizeLinear" else None


def quantizer(model: Model, tensor: Tensor) -> Node | None:
    """The only consumer of a tensor if it is a QuantizeLinear, else None."""
    consumer = query.sole_consumer(model, tensor)
    return consumer if consumer is not None and consumer.op == "QuantizeLinear" else None


def dequantized(model: Model, like: Node, source: Tensor, origin: Node) -> Tensor:
    """Insert a DequantizeLinear with the parameters of another; return its output."""
    inputs, attrs, shape = [source, *list(like.inputs)[1:]], dict(like.attrs), query.shape(source)
    output = edit.insert(
        model, "DequantizeLinear", inputs, origin=[origin], shape=shape, attrs=attrs
    )
    output.dtype = np.dtype(np.float32)
    return output


def set_constant(
    model: Model, node: Node, index: int, stem: str,
    integers: np.ndarray, scales: np.ndarray, zero: int = 0,
) -> None:  # fmt: skip
    """Replace an input by a DequantizeLinear of constants, whose names begin with ``stem``.

    ``scales`` has a scale for each index of the first axis, or no axis and a single scale.
    """
    parts = [
        edit.constant(model, f"{stem}/{integers.dtype.name}", integers),
        edit.constant(model, f"{stem}/scale", scales),
        edit.constant(model, f"{stem}/zero_point", np.full(scales.shape, zero, integers.dtype)),
    ]
    result = edit.variable(model, f"{stem}/dequantized", dtype=np.float32)
    result.shape = list(integers.shape)
    attrs = {"axis": 0} if scales.ndim else {}
    edit.add_node(model, "DequantizeLinear", parts, [result], origin=[node], attrs=attrs)
    edit.set_input(node, index, result)


def same_scale(a: Node, b: Node) -> bool:
    """Return whether two conversions have the same scale and zero point."""
    pairs = [(query.constant_input(a, i), query.constant_input(b, i)) for i in (1, 2)]
    return all(x is not None and y is not None and np.array_equal(x, y) for x, y in pairs)
