"""Write out the attributes that ONNX lets a node leave to their defaults.

kernel_shape, strides, dilations, pads and group of convolutions and pools: a device
compiler then needs no knowledge of ONNX's defaults. An ``auto_pad`` overrides
``pads`` until it is resolved.
"""

from __future__ import annotations

from typing import Any

from npuconv.legalize.registry import Log, Phase, register_pass
from npuconv.model import Model, Node, query, window
from npuconv.model.conv import flat_pads


@register_pass(Phase.CANONICALIZE, *query.CONVOLUTIONS, *query.POOLS, after=("raise-opset",))
def write_default_attributes(model: Model, log: Log, node: Node) -> int:
    win = window(node)
    if win is None or win.kernel is None:
        return 0
    values: dict[str, Any] = {"kernel_shape": list(win.kernel), "strides": list(win.strides)}
    if win.op in query.CONVOLUTIONS:
        values |= {"dilations": list(win.dilations), "group": win.group}
    if win.auto_pad == "NOTSET" and win.output_shape is None:
        values["pads"] = flat_pads(win.pads)
    missing = {name: value for name, value in values.items() if name not in node.attrs}
    if not missing:
        return 0
    after = ", ".join(f"{name}={value}" for name, value in missing.items())
    with log.rewrite(model, [node], f"no {', '.join(missing)}", after):
        node.attrs.update(missing)
    return 1
