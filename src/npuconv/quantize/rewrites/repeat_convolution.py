"""Run a convolution several times and take the mean, where precision is bought.

The device knows int8 and nothing finer, but it may run a convolution twice. With
`--max-extra-macs` or `--min-sqnr` the layers where that pays are repeated: every copy
gets an input that the host has moved by a share of a step, and weights of its own that
make up for what the others lose in rounding. The host takes the mean, which is as if
input and weights had been rounded to steps k times as fine, and the output to steps of
half or less.

In float all copies compute the same. An activation that passes int8 on is repeated
with its convolution. A tensor that the device itself has made cannot be moved: there
the copies differ in weights and output only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from npuconv.legalize.log import Log
from npuconv.legalize.registry import Phase, model_pass
from npuconv.model import edit, query
from npuconv.model.core import Model
from npuconv.model.types import Node, Tensor
from npuconv.ops.operator import data_inputs
from npuconv.partition import Plan

Moved = dict[tuple[str, int], list[tuple[Tensor, Tensor]]]  # inputs and what is added to them


@dataclass
class Repeated:
    """A layer that runs several times."""

    node: str  # name of the convolution it was
    source: str  # the tensor it read
    output: str  # the tensor that the convolution made
    result: str  # the tensor that the layer made, and that the mean makes now
    # Constants that are added to the inputs of the copies, of value 0 and of the rank of the input;
    # empty where the device makes the input.
    shifts: list[Tensor] = field(default_factory=list)
    # Names of new nodes and of what they make, and whether it is the convolution.
    copies: list[tuple[str, str, bool]] = field(default_factory=list)


@model_pass(Phase.OVERSAMPLE)
def repeat_convolution(
    model: Model, log: Log, plan: Plan, counts: Mapping[str, int]
) -> list[Repeated]:
    inside = _stays_inside(model, plan, counts)
    moved: Moved = {}
    found = []
    for conv in [conv for conv in plan.device if counts.get(conv.name, 1) > 1]:
        free = conv.inputs[0].name not in inside
        found.append(_repeat(model, log, plan, conv, counts[conv.name], moved if free else None))
    return found


def _stays_inside(model: Model, plan: Plan, counts: Mapping[str, int]) -> set[str]:
    """Tensors that the device makes and the host does not, once means are taken."""
    inside: set[str] = set()
    for node in model.nodes():
        if plan.is_operator(node):
            makes = True
        elif plan.on_device(node):
            makes = counts.get(node.name, 1) == 1
        else:
            makes = plan.is_passthrough(node) and all(t.name in inside for t in data_inputs(node))
            layer = query.producer(node.inputs[0])
            if layer is not None and plan.on_device(layer) and counts.get(layer.name, 1) > 1:
                makes = False  # it is repeated with the convolution
        if makes:
            inside.update(t.name for t in node.outputs)
    return inside


def _repeat(
    model: Model, log: Log, plan: Plan, conv: Node, count: int, moved: Moved | None
) -> Repeated:
    chain, source = [conv], conv.inputs[0]
    reader = query.sole_consumer(model, conv.outputs[0])
    if reader is not None and reader.op in ("Relu", "Clip") and plan.is_passthrough(reader):
        chain.append(reader)  # the activation that ends the layer
    result = chain[-1].outputs[0]
    found = Repeated(conv.name, source.name, conv.outputs[0].name, result.name)
    before = " + ".join(node.op for node in chain)
    with log.rewrite(
        model, chain, before, f"the mean of {count} of it, each rounded otherwise", outputs=[result]
    ):
        if moved is None:
            inputs: list[Tensor] = [source] * count
        else:
            pairs = _moved(model, conv, source, count, moved)
            inputs, found.shifts = [t for t, _ in pairs], [shift for _, shift in pairs]
        made = [_copy(model, chain, own, number, found) for number, own in enumerate(inputs, 1)]
        edit.hand_over(_mean(model, conv, made), result)
    return found


def _moved(
    model: Model, conv: Node, source: Tensor, count: int, known: Moved
) -> list[tuple[Tensor, Tensor]]:
    """The input once for every copy, with something added to it, which is 0 as yet.

    Layers that read the same tensor, and repeat as often, share the results.
    """
    import numpy as np

    key = (source.name, count)
    if key not in known:
        pairs = []
        for number in range(1, count + 1):
            stem = f"{source.name}/moved_{number}_of_{count}"
            zero = np.zeros((1,) * (query.rank(source) or 4), np.float32)
            shift = edit.constant(model, f"{stem}/by", zero)
            given = [source, shift]
            shape = query.shape(source)
            made = edit.insert(model, "Add", given, origin=[conv], shape=shape, name=stem)
            pairs.append((made, shift))
        known[key] = pairs
    return known[key]


def _copy(model: Model, chain: list[Node], source: Tensor, number: int, found: Repeated) -> Tensor:
    """One copy of the layer; its last result."""
    for node in chain:
        made = edit.variable(model, f"{node.outputs[0].name}/copy_{number}", node.outputs[0])
        new = edit.add_node(
            model,
            node.op,
            [source, *node.inputs[1:]],
            [made],
            origin=[node],
            attrs=node.attrs,
            name=f"{node.name}/copy_{number}",
        )
        found.copies.append((new.name, made.name, node is chain[0]))
        source = made
    return source


def _mean(model: Model, conv: Node, parts: list[Tensor]) -> Tensor:
    import numpy as np

    share = np.asarray(1 / len(parts), np.float32)
    constant = edit.shared_constant(model, f"npuconv/share/{len(parts)}", share)
    shape = query.shape(parts[0])
    total = edit.insert(
        model, "Sum", parts, origin=[conv], shape=shape, name=f"{conv.name}/sum_of_copies"
    )
    return edit.insert(
        model, "Mul", [total, constant], origin=[conv], shape=shape, name=f"{conv.name}/mean"
    )
