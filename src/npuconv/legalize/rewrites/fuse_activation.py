"""Write an activation that is spelled out as the operator that the target lists.

HardSwish and HardSigmoid as Add, Clip, Mul and Div, GELU by an Erf or a Tanh, SiLU as
Sigmoid and Mul, Mish: operators of any spelling that together are a function
of one value are compared with these by their values. Only where the target lists the
whole operator, nothing else reads a value in between, and the opset has it. A GELU by
an Erf is written so for TFLite, too, which has no other operator for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from npuconv.lazy import np
from npuconv.legalize.registry import Log, Phase, TargetDevice, register_pass
from npuconv.model import Model, Node, Tensor, edit, facts, query
from npuconv.ops.operator import operator_of
from npuconv.records import dataclass, field

_LONGEST = 9  # most operators: GELU by a Tanh, its cube as two Mul
_DIFFERENCE = 1e-5  # tolerance relative to 1 + |x|: constants are rounded to a few digits
_LARGEST = 12.0  # largest compared input: beyond, every activation is 0, 1 or linear


@dataclass(frozen=True)
class SpelledActivation:
    """The activation that a region of nodes spells out."""

    op: str
    opset: int  # opset of the operator
    attributes: Mapping[str, float | str] = field(default_factory=dict)


_KNOWN = (
    SpelledActivation("HardSwish", 14),
    SpelledActivation("HardSigmoid", 6, {"alpha": 1 / 6, "beta": 0.5}),
    SpelledActivation("HardSigmoid", 6, {"alpha": 0.2, "beta": 0.5}),
    SpelledActivation("Gelu", 20),
    SpelledActivation("Gelu", 20, {"approximate": "tanh"}),
    SpelledActivation("Swish", 24),
    SpelledActivation("Mish", 18),
)


@register_pass(Phase.LEGALIZE, after=("write-opset",))
def fuse_activation(model: Model, device: TargetDevice, log: Log) -> int:
    listed = [item for item in _KNOWN if device.target.operator(item.op) is not None]
    if device.options.format == "tflite" and model.nodes("Erf"):
        listed.append(SpelledActivation("Gelu", 20))
    if not listed:
        return 0
    place, fired = {id(node): number for number, node in enumerate(model.nodes())}, 0
    for node in reversed(model.nodes()):
        if not len(node.outputs) or not _is_pointwise(node):
            continue
        for region, source in _growing(node, place):
            match = next((item for item in listed if _is_same(region, source, item)), None)
            if match is None:
                continue
            if reason := _obstacle(model, device, region, source, match):
                log.refuse(model, node, f"it is {match.op} spelled out{reason}")
                break
            before, dims = " + ".join(member.op for member in region), query.shape(source)
            with log.rewrite(model, region, before, match.op):
                attrs = dict(match.attributes)
                activation = edit.insert(
                    model, match.op, [source], origin=region, shape=dims, attrs=attrs
                )
                edit.replace(activation, *region)
            fired += 1
            break
    return fired


def _growing(node: Node, place: Mapping[int, int]) -> Iterator[tuple[list[Node], Tensor]]:
    """Yield growing regions that end in a node and read one tensor, in order, with that tensor.

    ``place`` is the position of every node in the order of the model, by id of the node.
    """
    region = [node]
    for _ in range(_LONGEST):
        internal = {id(member.outputs[0]) for member in region}
        read = {id(t): t for member in region for t in _values(member) if id(t) not in internal}
        if len(region) > 1 and len(read) == 1:
            yield list(region), next(iter(read.values()))
        producers = [query.producer(tensor) for tensor in read.values()]
        last = max(producers, key=lambda n: -1 if n is None else place.get(id(n), -1), default=None)
        if last is None or id(last) not in place or not _is_pointwise(last):
            return
        region.insert(0, last)
        region.sort(key=lambda member: place[id(member)])


def _values(node: Node) -> list[Tensor]:
    return [t for t in node.inputs if t.name and not query.is_constant(t)]


def _obstacle(
    model: Model,
    device: TargetDevice,
    region: list[Node],
    source: Tensor,
    activation: SpelledActivation,
) -> str:
    """Return why a region cannot become the activation, or ''."""
    inside, between = {id(node) for node in region}, [node.outputs[0] for node in region[:-1]]
    consumers = [consumer for tensor in between for consumer in query.consumers(tensor)]
    if any(map(model.is_output, between)) or any(
        id(consumer) not in inside for consumer in consumers
    ):
        return ", but a value in between is read elsewhere, too"
    if model.opset < activation.opset:
        return f", which opset {model.opset} does not have"
    operator = device.target.operator(activation.op)
    measured = facts.considered(source, activation.attributes)
    objections = [] if operator is None else operator.objections(measured)
    return f": {objections[0]}" if objections else ""


def _is_pointwise(node: Node) -> bool:
    """Return whether a node is elementwise, with constants that are single numbers."""
    operator = operator_of(node)
    constants = [query.value(t) for t in node.inputs if query.is_constant(t)]
    single = all(array is not None and array.size == 1 for array in constants)
    inputs = _values(node)
    floats = all(query.dtype_name(t) == "float32" for t in (*inputs, *node.outputs))
    is_function = operator is not None and operator.function is not None
    return is_function and single and bool(inputs) and floats and len(node.outputs) == 1


def _is_same(region: list[Node], source: Tensor, activation: SpelledActivation) -> bool:
    """Return whether a region has the values of an activation, near 0 and far from it."""
    from npuconv.ops.tables import SOURCE, TableStep, evaluate

    def read(tensor: Tensor) -> str | float:
        array = query.value(tensor)
        if array is not None:
            return float(array.reshape(-1)[0])
        return SOURCE if tensor is source else str(tensor.name)

    steps = []
    for node in region:
        operands = [read(t) for t in node.inputs if t.name or query.is_constant(t)]
        name = str(node.outputs[0].name)
        steps.append(TableStep(node.op, tuple(operands), name, node.attrs))
    far = np.geomspace(_LARGEST, 1e4, 16)
    x = np.concatenate([-far, np.linspace(-_LARGEST, _LARGEST, 1601), far])
    ours = evaluate(steps, x)
    theirs = evaluate([TableStep(activation.op, attributes=activation.attributes)], x)
    return bool((np.abs(ours - theirs) <= _DIFFERENCE * (1 + np.abs(x))).all())
