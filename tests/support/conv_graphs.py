"""Random graphs of one to four convolutions, and what they must become.

    case = Case(opset=9, number=17)
    case = Case(opset=9, number=17, faulty=True)

All can be made legal, or all have a fault that no rewrite can mend, in a node that is known.
The same opset and number give the same graph every time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
from onnx import helper

from support.conv_sketch import OPSETS, Sketch
from support.dice import Dice

__all__ = ["FAULTS", "OPSETS", "Case", "for_all"]

# What is wrong, and the code that must say so.
FAULTS = {"3d": "SHP001", "same-dynamic": "SHP012", "weights": "OPS003", "pads": "SHP004"}


class Case:
    """A model, inputs for it, and what to expect."""

    def __init__(self, opset: int, number: int, faulty: bool = False) -> None:
        sketch = _sketch(Dice(opset, number, faulty), opset, faulty)
        self.model, self.feeds = sketch.model(), sketch.feeds
        self.fault, self.node = sketch.fault, sketch.bad  # what is wrong with which node
        self.traits = sketch.traits | ({f"fault {self.fault}"} if self.fault else set())
        self.text = f"Case({opset}, {number}, {faulty})\n{_text(self.model, sketch)}"


def for_all(
    opset: int, count: int, law: Callable[[Case], None], faulty: bool = False
) -> dict[str, int]:
    """Try a law on this many graphs.

    Returns:
        How often each trait was among them.

    Raises:
        Exception: what the law raises, with a description of the graph.
    """
    seen: dict[str, int] = {}
    for number in range(count):
        case = Case(opset, number, faulty)
        for trait in case.traits:
            seen[trait] = seen.get(trait, 0) + 1
        try:
            law(case)
        except Exception as error:
            error.add_note(case.text)
            raise
    return seen


def _sketch(dice: Dice, opset: int, faulty: bool) -> Sketch:
    fault = dice.one_of(list(FAULTS)) if faulty else ""
    ranks = {"2": 9, "1": 6} | ({} if fault == "same-dynamic" else {"3": 5})
    rank = 3 if fault == "3d" else int(dice.weighted(**ranks))
    sketch = Sketch(dice, opset, rank, fault)
    count = dice.number(1, 4)
    # What stands before could make an axis removable, or its extent known; and behind pads
    # that contradict each other no shape means anything.
    where = {"3d": 0, "same-dynamic": 0, "pads": count - 1}.get(fault, dice.number(0, count - 1))
    if not fault and dice.chance(15):
        sketch.between()
    for number in range(count):
        sketch.convolution(fault if number == where else "")
        sketch.between()
    sketch.head()
    return sketch


def _text(model: onnx.ModelProto, sketch: Sketch) -> str:
    """The graph, one node a line, with everything that is needed to build it again."""
    shapes = {c.name: list(c.dims) for c in model.graph.initializer}
    shapes |= {name: list(array.shape) for name, array in sketch.feeds.items()}
    head = f"opset {sketch.opset}, ir {model.ir_version}, x={sketch.dims} run with {sketch.shape}"
    lines = [f"{head}, fault {sketch.fault or 'none'} {sketch.bad}"]
    for node in model.graph.node:
        attrs = ", ".join(
            f"{a.name}={_shown(helper.get_attribute_value(a))}" for a in node.attribute
        )
        read = ", ".join(f"{n}{shapes.get(n, '')}" for n in node.input)
        lines.append(f"  {node.output[0]} = {node.op_type}({read}) {attrs}  # {node.name!r}")
    return "\n".join([*lines, f"  outputs {[o.name for o in model.graph.output]}"])


def _shown(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
