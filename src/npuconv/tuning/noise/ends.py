"""The outputs of a model as they are before a Softmax or Sigmoid saturates them.

Where a probability is nearly 0 or 1, noise is hidden, and where two classes are nearly even,
a little of it turns the answer round: on a few samples the error of probabilities is that of
the one which happened to be even. The error of what they are made from is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx

SATURATING = frozenset({"Softmax", "LogSoftmax", "Sigmoid", "HardSigmoid", "Tanh"})
# What hands numbers on as they are.
_MOVING = frozenset(
    {"Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Concat", "Cast"}
)


def before_saturation(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its outputs taken before what saturates them; others as they are.

    Args:
        model: not changed.
    """
    made = onnx.ModelProto()
    made.CopyFrom(model)
    makers = {name: node for node in made.graph.node for name in node.output if name}
    inputs = {info.name for info in made.graph.input}
    found = [e for output in made.graph.output for e in _ends(output.name, makers)]
    names = dict.fromkeys(name for name in found if name not in inputs)
    known = {output.name: output for output in model.graph.output}
    del made.graph.output[:]
    for name in names:
        made.graph.output.append(known.get(name, onnx.ValueInfoProto(name=name)))
    return made if names else model


def leaves(name: str, makers: Mapping[str, onnx.NodeProto]) -> Iterator[str]:
    """The tensors whose numbers an output shows, each once, in their order.

    Args:
        name: of the output.
        makers: by tensor, the node that makes it.
    """
    waiting, seen = [name], set[str]()
    while waiting:
        current = waiting.pop()
        node = makers.get(current)
        if current in seen:
            continue
        seen.add(current)
        if node is None or node.op_type not in _MOVING:
            yield current
            continue
        # The second input of a Reshape is a shape, all those of a Concat are numbers.
        given = node.input if node.op_type == "Concat" else node.input[:1]
        waiting.extend(reversed([one for one in given if one in makers]))


def _ends(name: str, makers: Mapping[str, onnx.NodeProto]) -> Iterator[str]:
    """The same before they are saturated."""
    for leaf in leaves(name, makers):
        node = makers.get(leaf)
        yield leaf if node is None or node.op_type not in SATURATING else node.input[0]
