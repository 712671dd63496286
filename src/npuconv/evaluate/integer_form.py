"""Models in the ``qdq`` form, read as the integer operators that a device computes."""

from __future__ import annotations

import numpy as np

from npuconv.config import Options
from npuconv.emit import int32_sums
from npuconv.emit.emission import Emission, dequantized, dequantizer, quantizer, same_scale
from npuconv.emit.int32_sums import Int32Sum
from npuconv.emit.lowering.lower_convolutions import lower_convolutions
from npuconv.emit.lowering.lower_passthrough import lower_passthrough
from npuconv.emit.lowering.split_accumulated import split_accumulated
from npuconv.evaluate.pairs import Opened
from npuconv.legalize import manager
from npuconv.legalize.device import TargetDevice
from npuconv.legalize.log import Log
from npuconv.model import Model, Node, edit, load, query, save
from npuconv.model.conv import SAME
from npuconv.model.core import sweep
from npuconv.ops.operator import data_inputs
from npuconv.partition.operators import passes_int8
from npuconv.partition.placement import Plan
from npuconv.records import replace
from npuconv.target import Target

_TYPES = ("int8", "int8", "int32")  # types of input, weights and bias of a QLinearConv
_ACTIVATIONS = ("Relu", "Clip")


def in_integers(opened: Opened) -> Opened:
    """Return the model with QLinearConv for each Conv between conversions of int8.

    Operators that move or compare integers of one scale run on int8, too. The integers are the
    same as with ``--format qoperator`` and after the fusions of onnxruntime. Other operators stay
    between their conversions. A model without such a Conv is returned unchanged.
    """
    ops = {node.op_type for node in opened.proto.graph.node}
    if not {"Conv", "QuantizeLinear"} <= ops:
        return opened
    model = load.load(opened.proto)
    sums = list(int32_sums.sums(model, "Conv"))
    terms = {name: layer.terms for layer in sums if (name := _join(model, layer))}
    sweep(model)
    for conv in model.nodes("Conv"):
        _round_before_activation(model, conv)
    plan = Plan(convolutions=[conv for conv in model.nodes("Conv") if _is_integer(model, conv)])
    if not plan.convolutions:
        return opened
    plan.passthrough = [node for node in model.nodes() if _only_moves(node)]
    options = Options()  # these passes ask for the format alone
    device, log = TargetDevice(Target.load(options.target), options), Log(measures=False)
    emission = Emission(plan, terms=terms)
    entries = manager.apply(model, split_accumulated, device, log, emission=emission)
    for item in (lower_convolutions, lower_passthrough):
        manager.apply(model, item, device, log, emission=emission)
    metadata = int32_sums.record(entry for _, entry in entries)
    return replace(opened, proto=save.to_proto(model, metadata))


def _join(model: Model, layer: Int32Sum) -> str:
    """Write a sum as one Conv; '' where its parts are not converted alike."""
    conversions = [[dequantizer(tensor) for tensor in list(c.inputs)[:2]] for c in layer.convs]
    inputs = [x for x, _ in conversions if x is not None]
    weights = [w for _, w in conversions if w is not None]
    biases = [tensor for c in layer.convs if (tensor := query.input_of(c, 2)) is not None]
    if min(len(inputs), len(weights)) < len(layer.convs) or len(biases) > 1 or layer.constants:
        return ""
    (x, *_), (w, *_) = inputs, weights
    alike = all(same_scale(node, x) for node in inputs)
    alike = alike and all(same_scale(node, w) for node in weights)
    sliced = layer.sliced([node.inputs[0] for node in inputs])
    joined = layer.joined([query.constant_input(node, 0) for node in weights])
    if sliced is None or joined is None or not alike:
        return ""
    source, convs, result = sliced[0], list(layer.convs), layer.total
    stored = edit.constant(model, f"{w.name}/joined", joined)
    terms = [dequantized(model, x, source, x), dequantized(model, w, stored, w), *biases]
    dims, attrs = query.shape(result), layer.entry.window.model_dump()
    output = edit.insert(model, "Conv", terms, origin=convs, shape=dims, attrs=attrs)
    output.dtype = result.dtype
    conv = query.producer(output)
    assert conv is not None, "it has just been inserted"
    edit.hand_over(output, result)
    return str(conv.name)


def _round_before_activation(model: Model, conv: Node) -> None:
    """Insert Q/DQ in front of a Relu or Clip between a Conv and its QuantizeLinear.

    Rounding keeps the order of numbers, so the integers are the same.
    """
    activation = query.sole_consumer(model, conv.outputs[0])
    if activation is None or activation.op not in _ACTIVATIONS:
        return
    consumer = quantizer(model, activation.outputs[0])
    if consumer is None or not _has_one_scale(consumer):
        return
    result, parameters = conv.outputs[0], list(consumer.inputs)[1:3]
    stored = edit.variable(model, f"{result.name}/int8", result, np.int8)
    edit.add_node(model, "QuantizeLinear", [result, *parameters], [stored], origin=[conv])
    rounded = edit.variable(model, f"{result.name}/dequantized", result)
    edit.add_node(model, "DequantizeLinear", [stored, *parameters], [rounded], origin=[conv])
    edit.set_input(activation, 0, rounded)


def _is_integer(model: Model, conv: Node) -> bool:
    """Return whether a Conv reads and makes int8, with a bias of the scale of its products."""
    makers = [dequantizer(tensor) for tensor in conv.inputs if tensor.name]
    conversions = [*makers[:1], quantizer(model, conv.outputs[0])]
    if not all(end is not None and _has_one_scale(end) for end in conversions):
        return False
    nodes = [node for node in makers if node is not None and len(node.inputs) == 3]
    dtypes = [query.dtype_name(node.inputs[2]) for node in nodes]
    if dtypes != [*_TYPES[: len(makers)]] or query.attribute(conv, "auto_pad", "") in SAME:
        return False
    scales = [query.constant_input(node, 1) for node in nodes]
    for node, scale in zip(nodes[1:], scales[1:], strict=True):
        along_first = scale is not None and (
            scale.size <= 1 or not query.attribute(node, "axis", 1)
        )
        if query.constant_input(node, 0) is None or not along_first:
            return False
    if len(nodes) < len(_TYPES):
        return True
    x, w, bias = (np.asarray(scale, np.float64) for scale in scales)
    zeros = query.constant_input(nodes[2], 2)
    return zeros is not None and not zeros.any() and bool(np.allclose(bias, x * w, rtol=1e-5))


def _only_moves(node: Node) -> bool:
    """Return whether a node passes on int8 of one scale, were it not for the conversions."""
    if not passes_int8(node, {id(tensor) for tensor in node.inputs}):
        return False
    sources = [dequantizer(tensor) for tensor in data_inputs(node)]
    return all(node is not None and _has_one_scale(node) for node in sources)


def _has_one_scale(conversion: Node) -> bool:
    """Return whether scale and zero point are constant scalars, the zero point int8."""
    scale, zero = (query.constant_input(conversion, index) for index in (1, 2))
    if scale is None or zero is None:
        return False
    return scale.size == zero.size == 1 and zero.dtype == np.int8
