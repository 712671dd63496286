"""What an output is put together from: boxes and scores, say, in one tensor.

Boxes in pixels are a thousand times as large as scores, so the error of the whole is that of
the boxes, and nobody would see that the scores are gone.
"""

from __future__ import annotations

import onnx

from npuconv.quantize.output_error import leaves

MOST = 16  # of an output; of what has more, such as every anchor by itself, nobody reads them


def parts_of(before: onnx.ModelProto, after: onnx.ModelProto) -> dict[str, tuple[str, ...]]:
    """By output the tensors that a Concat, or several, put it together from.

    Args:
        before: the float model.
        after: the same, converted; what is not by the same name in there is left out.
    """
    makers = {name: node for node in before.graph.node for name in node.output if name}
    there = {name for node in after.graph.node for name in node.output}
    found = {}
    for output in before.graph.output:
        names = tuple(name for name in leaves(output.name, makers) if name in there)
        if 1 < len(names) <= MOST:
            found[output.name] = names
    return found
