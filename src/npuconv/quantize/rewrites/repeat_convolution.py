"""Run a convolution several times and take the mean, where precision is bought.

The device knows int8 and nothing finer, but it may run a convolution twice. With
`--max-extra-macs` or `--min-sqnr` the layers where that pays are repeated: every copy
gets an input that the host has moved by a share of a step, and weights of its own that
make up for the rounding errors of the others. The host takes the mean, which is as if
input and weights had been rounded to steps k times as fine, and the output to steps of
half or less.

In float all copies compute the same. An activation that passes int8 on is repeated
with its convolution. A tensor that the device itself has made cannot be moved: there
the copies differ in weights and output only.
"""

from __future__ import annotations

from collections.abc import Mapping

from npuconv.lazy import np
from npuconv.legalize.registry import Log, Phase, register_pass
from npuconv.model import Model, Node, Tensor, edit, query
from npuconv.ops.operator import data_inputs
from npuconv.partition.placement import Plan
from npuconv.records import dataclass, field

# Shifted inputs and their shifts, by name of the input and number of copies.
ShiftedInputs = dict[tuple[str, int], list[tuple[Tensor, Tensor]]]


@dataclass
class LayerCopies:
    """A layer that runs several times."""

    node: str  # name of the original convolution
    source: str  # name of its input
    output: str  # name of its output
    result: str  # name of the output of the layer, now the mean of the copies
    # Constants that are added to the inputs of the copies, of value 0 and of the rank of the input;
    # empty where the device makes the input.
    shifts: list[Tensor] = field(default_factory=list)
    convs: list[Node] = field(default_factory=list)  # copies of the convolution
    activations: list[Node] = field(default_factory=list)  # copies of its activation


@register_pass(Phase.OVERSAMPLE)
def repeat_convolution(
    model: Model, log: Log, plan: Plan, counts: Mapping[str, int]
) -> list[LayerCopies]:
    inside = _inside_device(model, plan, counts)
    shifted: ShiftedInputs = {}
    return [
        _repeat(model, log, plan, conv, counts[conv.name], shifted, conv.inputs[0].name in inside)
        for conv in [conv for conv in plan.convolutions if counts.get(conv.name, 1) > 1]
    ]


def _inside_device(model: Model, plan: Plan, counts: Mapping[str, int]) -> set[str]:
    """Return the tensors that the device computes, and not the host as a mean of copies."""
    inside: set[str] = set()
    for node in model.nodes():
        if plan.is_operator(node):
            on_device = True
        elif plan.is_convolution(node):
            on_device = counts.get(node.name, 1) == 1
        else:
            passes = plan.is_passthrough(node)
            on_device = passes and all(t.name in inside for t in data_inputs(node))
            layer = query.producer(node.inputs[0])
            if layer is not None and plan.is_convolution(layer) and counts.get(layer.name, 1) > 1:
                on_device = False  # it is repeated with the convolution
        if on_device:
            inside.update(t.name for t in node.outputs)
    return inside


def _repeat(
    model: Model,
    log: Log,
    plan: Plan,
    conv: Node,
    count: int,
    shifted: ShiftedInputs,
    is_inside: bool,
) -> LayerCopies:
    chain, source = [conv], conv.inputs[0]
    activation = query.sole_consumer(model, conv.outputs[0])
    if activation is not None and activation.op in ("Relu", "Clip"):
        chain += [activation] if plan.is_passthrough(activation) else []
    result = chain[-1].outputs[0]
    layer = LayerCopies(conv.name, source.name, conv.outputs[0].name, result.name)
    before = " + ".join(node.op for node in chain)
    after = f"the mean of {count} of it, each rounded otherwise"
    with log.rewrite(model, chain, before, after, outputs=[result]):
        inputs = [source] * count
        if not is_inside:
            # Layers that read the same tensor, and repeat as often, share the shifted inputs.
            key = (source.name, count)
            if key not in shifted:
                shifted[key] = [
                    _shift_input(model, conv, source, f"{source.name}/moved_{number}_of_{count}")
                    for number in range(1, count + 1)
                ]
            inputs = [tensor for tensor, _ in shifted[key]]
            layer.shifts = [shift for _, shift in shifted[key]]
        results = []
        for number, tensor in enumerate(inputs, 1):
            for node in chain:
                output = edit.variable(
                    model, f"{node.outputs[0].name}/copy_{number}", node.outputs[0]
                )
                name, operands = f"{node.name}/copy_{number}", [tensor, *node.inputs[1:]]
                copy = edit.add_node(
                    model, node.op, operands, [output], origin=[node], attrs=node.attrs, name=name
                )
                (layer.convs if node is conv else layer.activations).append(copy)
                tensor = output
            results.append(tensor)
        share = np.asarray(1 / count, np.float32)
        factor = edit.shared_constant(model, f"npuconv/share/{count}", share)
        shape, stem = query.shape(results[0]), conv.name
        total = edit.insert(
            model, "Sum", results, origin=[conv], shape=shape, name=f"{stem}/sum_of_copies"
        )
        mean = edit.insert(
            model, "Mul", [total, factor], origin=[conv], shape=shape, name=f"{stem}/mean"
        )
        edit.hand_over(mean, result)
    return layer


def _shift_input(model: Model, conv: Node, source: Tensor, stem: str) -> tuple[Tensor, Tensor]:
    """Return the sum of an input and a constant, and the constant, which is still 0."""
    zero = np.zeros((1,) * (query.rank(source) or 4), np.float32)
    shift, shape = edit.constant(model, f"{stem}/by", zero), query.shape(source)
    total = edit.insert(model, "Add", [source, shift], origin=[conv], shape=shape, name=stem)
    return total, shift
