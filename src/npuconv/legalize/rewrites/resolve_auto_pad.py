"""Turn auto_pad into explicit pads.

For Conv, ConvTranspose, MaxPool, AveragePool and LpPool of every version and any
number of axes. With ``e = (k - 1) * d + 1``: VALID pads nothing; SAME pads
``max((ceil(in / s) - 1) * s + e - in, 0)`` in all, the odd cell at the end
(SAME_UPPER) or at the beginning (SAME_LOWER). With stride 1 that is ``e - 1`` for
every ``in``, so an unknown extent does not matter.

Refuses ``auto_pad`` together with non-zero ``pads``, which ONNX forbids, and an
unknown extent where the stride makes it matter.
"""

from __future__ import annotations

import math

from npuconv.legalize.region import shorter_output
from npuconv.legalize.registry import Log, Phase, register_pass
from npuconv.model import Model, Node, Window, query, window
from npuconv.model.conv import SAME, effective_kernel, flat_pads, resolved_pads


@register_pass(Phase.LEGALIZE, *query.CONVOLUTIONS, *query.POOLS)
def resolve_auto_pad(model: Model, log: Log, node: Node) -> int:
    if not (query.attribute(node, "auto_pad") or query.attribute(node, "output_shape")):
        return 0
    win = window(node)
    if win is None or win.kernel is None or (win.auto_pad, win.output_shape) == ("NOTSET", None):
        return 0
    # output_shape overrides pads, as ONNX defines it.
    if win.auto_pad != "NOTSET" and any(pair != (0, 0) for pair in win.pads):
        return log.refuse(model, node, f"auto_pad={win.auto_pad} together with non-zero pads")
    resolved = resolved_pads(win)
    if isinstance(resolved, int):
        return log.refuse(model, node, f"the extent of spatial axis {resolved} is not known")
    if win.op == "ConvTranspose" and not any(map(any, win.pads)):
        node.attrs.pop("pads", None)  # no runtime takes zeros with auto_pad
    pads, extra = resolved
    before, after = f"auto_pad={win.auto_pad}", f"pads={flat_pads(pads)}"
    after += f", output_padding={list(extra)}" if any(extra) else ""
    if win.output_shape:
        before += f", output_shape={list(win.output_shape)}"
    reason = _why_not_measurable(win)
    shorter = shorter_output(win)
    # Pads depend on the extent of the input modulo the stride; output_shape fits a single extent.
    modulus = None if win.output_shape else math.lcm(*win.strides)
    modulus = modulus if shorter is None else 1
    with log.rewrite(model, [node], before, after, modulus=modulus, unmeasured=reason) as record:
        node.attrs |= {"auto_pad": "NOTSET", "pads": flat_pads(pads)}
        node.attrs.pop("output_shape", None)
        if any(extra):
            node.attrs["output_padding"] = list(extra)
        # SAME fixes the cells; ceil_mode would add a cell if the stride exceeds the kernel.
        if win.auto_pad in SAME and node.attrs.get("ceil_mode"):
            node.attrs["ceil_mode"] = 0
        if shorter is not None and record.old is not None:
            attrs = record.old.nodes[0].attrs
            attrs["output_shape"] = (*attrs["output_shape"][: -len(shorter)], *shorter)
    return 1


def _why_not_measurable(win: Window) -> str:
    """Return why no runtime computes the original as ONNX defines it, or ''."""
    if win.auto_pad not in SAME or win.kernel is None:
        return ""
    if win.op in query.POOLS and any(d > 1 for d in win.dilations):
        return "onnxruntime and onnx.reference pad a dilated pool for its kernel without dilation"
    reach = map(effective_kernel, win.kernel, win.dilations)
    slack = max(s - e for s, e in zip(win.strides, reach, strict=True))
    # A Conv with total padding -1 gets no pads, as in ONNX; a smaller total shifts the windows.
    if slack > (1 if win.op == "Conv" else 0):
        return "onnxruntime pads by less than nothing where a stride is larger than its kernel"
    return ""
