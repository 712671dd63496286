"""Write out the attributes that ONNX lets a node leave to their defaults.

kernel_shape, strides, dilations, pads and group of convolutions and pools: a device
compiler then needs no knowledge of ONNX's defaults. An ``auto_pad`` keeps its say
over ``pads`` until it is resolved.
"""

from __future__ import annotations

from typing import Any

from npuconv.legalize.log import Log
from npuconv.legalize.registry import Phase, model_pass
from npuconv.model import query
from npuconv.model.conv import Window, flat_pads, window
from npuconv.model.core import Model


@model_pass(Phase.CANONICALIZE, after=("raise-opset",), rewires=False)
def write_default_attributes(model: Model, log: Log) -> int:
    fired = 0
    for node in model.nodes(*query.CONVOLUTIONS, *query.POOLS):
        win = window(node)
        if win is None or win.kernel is None:
            continue
        missing = {k: v for k, v in _defaults(win).items() if k not in node.attrs}
        if missing:
            with log.rewrite(model, [node], f"no {', '.join(missing)}", _text(missing)):
                node.attrs.update(missing)
            fired += 1
    return fired


def _defaults(win: Window) -> dict[str, Any]:
    assert win.kernel is not None
    values: dict[str, Any] = {"kernel_shape": list(win.kernel), "strides": list(win.strides)}
    if win.op in query.CONVOLUTIONS:
        values |= {"dilations": list(win.dilations), "group": win.group}
    if win.auto_pad == "NOTSET" and win.output_shape is None:
        values["pads"] = flat_pads(win.pads)
    return values


def _text(values: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())
