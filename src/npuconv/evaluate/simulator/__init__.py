"""An int8 model as float arithmetic that gives the same integers, several times as fast.

A runtime's int8 kernels for ordinary processors are slow, and those of processors without
the right instructions even saturate on the way. Float32 holds every integer up to 2**24
exactly, so a convolution of integers that stays below that gives the same sum in float,
whatever the order it is added up in; the steps after it are spelled out, as the int8
operators are defined. Where a sum could be larger, the input channels are taken in parts.

``twins``        every 8-bit tensor and the float tensor that holds the same integers
``convolution``  QLinearConv
``conversions``  QuantizeLinear and DequantizeLinear
``carried``      operators that only move or compare integers
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import onnx

from npuconv.evaluate.simulator import conversions, convolution
from npuconv.evaluate.simulator import passthrough as carried
from npuconv.evaluate.simulator.float_carriers import Twins

__all__ = ["as_float"]

_OLDEST = 11  # has Round, and Clip with its bounds as inputs
_STANDARD = ("", "ai.onnx")

# Each writes a node anew, or says that it cannot.
Handler = Callable[[Twins, onnx.NodeProto], bool]
_HANDLERS: dict[tuple[str, str], Handler] = {
    ("", "QLinearConv"): convolution.rewrite,
    ("com.microsoft", "QLinearConv"): convolution.rewrite,
    ("", "QuantizeLinear"): conversions.quantize,
    ("", "DequantizeLinear"): conversions.dequantize,
    ("com.microsoft", "NhwcMaxPool"): carried.pool_channels_last,
    **{("", op): carried.rewrite for op in carried.DATA_INPUTS},
}


def as_float(model: onnx.ModelProto, watch: Iterable[str] = ()) -> onnx.ModelProto:
    """The model with float tensors that hold the integers in place of its 8-bit tensors.

    What is not known here stays as it is, between casts.

    Args:
        model: a quantized model; not changed. Any other comes back as it is.
        watch: names of tensors that become further outputs, with the type they have in
            ``model``; a name that nothing makes is left out.

    Returns:
        A model with the same inputs and outputs, for running only: it is no smaller.
    """
    twins = Twins(model)
    handlers = _HANDLERS if _opset(model) >= _OLDEST else {}
    for node in model.graph.node:
        domain = "" if node.domain in _STANDARD else node.domain
        handler = handlers.get((domain, node.op_type))
        if handler is None or not handler(twins, node):
            twins.keep(node)
    return twins.finish(watch)


def _opset(model: onnx.ModelProto) -> int:
    return max((o.version for o in model.opset_import if o.domain in _STANDARD), default=1)
