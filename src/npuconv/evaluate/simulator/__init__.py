"""Simulator: an int8 model as float arithmetic with the same integers, several times as fast.

A runtime's int8 kernels for ordinary processors are slow, and on processors without the right
instructions even saturate on the way. Float32 holds every integer up to 2**24 exactly, so a
convolution of integers that stays below that gives the same sum in float in any order of
additions; the steps after it follow the definition of the int8 operators. If a sum could be
larger, the input channels are split into parts.

``float_carriers``  every 8-bit tensor and the float tensor that holds the same integers
``convolution``     QLinearConv
``operators``       QuantizeLinear and DequantizeLinear; operators that only move or compare
                    integers; others with TFLite's integers, where the device has these
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import onnx

from npuconv.emit.int32_sums import with_layers
from npuconv.evaluate.simulator import convolution, operators
from npuconv.evaluate.simulator.float_carriers import FloatCarriers
from npuconv.evaluate.simulator.operators import Operators

__all__ = ["as_float"]

_OLDEST = 11  # has Round, and Clip with its bounds as inputs
_STANDARD = ("", "ai.onnx")

# Rewrites a node, or returns False where it cannot.
Handler = Callable[[FloatCarriers, onnx.NodeProto], bool]
_HANDLERS: dict[tuple[str, str], Handler] = {
    ("", "QLinearConv"): convolution.rewrite,
    ("com.microsoft", "QLinearConv"): convolution.rewrite,
    ("", "QuantizeLinear"): operators.quantize,
    ("", "DequantizeLinear"): operators.dequantize,
    ("com.microsoft", "NhwcMaxPool"): operators.pool_channels_last,
}


def as_float(model: onnx.ModelProto, watch: Iterable[str] = ()) -> onnx.ModelProto:
    """Replace the 8-bit tensors of a model by float tensors that hold the same integers.

    Other operators stay unchanged, between casts. A model without 8-bit tensors is returned
    unchanged. Tensors in ``watch`` become further outputs, with the type
    they have in ``model``; a name that nothing makes is left out.

    Returns:
        A model with the same inputs and outputs, for running only, not for storage.
    """
    model, watch = with_layers(model), list(watch)
    carriers = FloatCarriers(model)
    integers = Operators(carriers, model, watch)
    for node in model.graph.node:
        if integers.rewrite(node):
            continue
        domain = "" if node.domain in _STANDARD else node.domain
        handler = _HANDLERS.get((domain, node.op_type), None if domain else operators.pass_on)
        if handler is None or carriers.opset < _OLDEST or not handler(carriers, node):
            carriers.keep(node)
    return carriers.finish(watch)
