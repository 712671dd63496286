"""auto_pad and explicit pads contradict each other.

What it checks:
    That no node has both an `auto_pad` other than NOTSET and non-zero `pads`.

Why it matters:
    ONNX forbids it and runtimes refuse it. Which of the two the exporter meant cannot
    be known, and a guess would be a silently wrong model. So no option ignores it.

How to fix:
    Remove `auto_pad` or `pads` in the exporter.
"""

from __future__ import annotations

from npuconv.model import Node, query, window
from npuconv.model.conv import flat_pads
from npuconv.rules import SLIDING, RuleContext, Violation, Violations, conv, rule


@rule(
    "SHP004",
    ops=SLIDING,
    malformed=True,
    message="auto_pad is {auto_pad} and pads is {pads}; ONNX forbids both",
    fires=conv('auto_pad = "SAME_UPPER", pads = [1, 0, 1, 2]'),
    silent=conv('auto_pad = "SAME_UPPER"'),
)
def auto_pad_with_pads(node: Node, _ctx: RuleContext) -> Violations:
    if not query.attribute(node, "auto_pad"):
        return  # nearly always: saves the slower query
    win = window(node)
    if win is None or win.auto_pad == "NOTSET" or all(pair == (0, 0) for pair in win.pads):
        return
    pads = flat_pads(win.pads)
    yield Violation(
        {"auto_pad": win.auto_pad, "pads": pads},
        value=f"auto_pad={win.auto_pad}, pads={pads}",
        limit="one of the two",
        source="ONNX Conv-11, attribute auto_pad",
    )
