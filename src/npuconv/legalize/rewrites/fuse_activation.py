"""Write an activation that is spelled out as the operator that the target lists.

HardSwish and HardSigmoid as Add, Clip, Mul and Div, GELU by an Erf or a Tanh, SiLU as
Sigmoid and Mul, Mish: whatever their spelling, operators that together are a function
of one value are compared with these by their values. Only where the target lists the
whole operator, nothing else reads a value in between, and the opset has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from npuconv.legalize.context import PassContext
from npuconv.legalize.registry import Phase, model_pass
from npuconv.model import edit, facts, query
from npuconv.model.core import Model
from npuconv.model.types import Node, Tensor

if TYPE_CHECKING:
    from npuconv.arithmetic.tables import Step

_LONGEST = 9  # operators: GELU by a Tanh, its cube as two Mul
_DIFFERENCE = 1e-5  # of 1 + |x|: what constants rounded to a few digits may make
_REACH = 12.0  # beyond, every activation here is 0, 1 or a line


@dataclass(frozen=True)
class _Activation:
    """An activation that exporters spell out."""

    op: str
    opset: int  # that has it
    attributes: Mapping[str, float | str] = field(default_factory=dict)


_KNOWN = (
    _Activation("HardSwish", 14),
    _Activation("HardSigmoid", 6, {"alpha": 1 / 6, "beta": 0.5}),
    _Activation("HardSigmoid", 6, {"alpha": 0.2, "beta": 0.5}),
    _Activation("Gelu", 20),
    _Activation("Gelu", 20, {"approximate": "tanh"}),
    _Activation("Swish", 24),
    _Activation("Mish", 18),
)


@model_pass(Phase.LEGALIZE, after=("write-opset",))
def fuse_activation(model: Model, ctx: PassContext) -> int:
    wanted = [one for one in _KNOWN if ctx.target.operator(one.op) is not None]
    if not wanted:
        return 0
    place = {id(node): number for number, node in enumerate(model.nodes())}
    ends = [node for node in reversed(model.nodes()) if _is_pointwise(node)]
    return sum(_fuse(model, ctx, node, place, wanted) for node in ends if len(node.outputs))


def _fuse(
    model: Model, ctx: PassContext, node: Node, place: dict[int, int], wanted: list[_Activation]
) -> int:
    for region, source in _regions(node, place):
        found = next((one for one in wanted if _is_same(region, source, one)), None)
        if found is None:
            continue
        if reason := _obstacle(model, ctx, region, source, found):
            ctx.refuse(model, node, reason)
            return 0
        before, after = " + ".join(one.op for one in region), found.op
        with ctx.rewrite(model, region, before, after):
            attrs, dims = dict(found.attributes), query.shape(source)
            made = edit.insert(model, found.op, [source], origin=region, shape=dims, attrs=attrs)
            edit.hand_over(made, node.outputs[0])
            for each in region:
                edit.disconnect(each)
        return 1
    return 0


def _regions(node: Node, place: dict[int, int]) -> Iterator[tuple[list[Node], Tensor]]:
    """Yield growing regions that end in a node and read one tensor, in order, with that tensor."""
    region = [node]
    for _ in range(_LONGEST):
        made = {id(one.outputs[0]) for one in region}
        read = {id(t): t for one in region for t in _values(one) if id(t) not in made}
        if len(region) > 1 and len(read) == 1:
            yield list(region), next(iter(read.values()))
        makers = [query.producer(tensor) for tensor in read.values()]
        last = max(makers, key=lambda n: -1 if n is None else place.get(id(n), -1), default=None)
        if last is None or id(last) not in place or not _is_pointwise(last):
            return
        region.insert(0, last)
        region.sort(key=lambda one: place[id(one)])


def _values(node: Node) -> list[Tensor]:
    return [t for t in node.inputs if t.name and not query.is_constant(t)]


def _is_pointwise(node: Node) -> bool:
    """Return whether each value follows from one of each input; constants are single numbers."""
    from npuconv.arithmetic.tables import ARITHMETIC, FUNCTIONS

    known = (node.op in FUNCTIONS or node.op in ARITHMETIC) and query.is_standard(node)
    constants = [query.value(t) for t in node.inputs if query.is_constant(t)]
    single = all(array is not None and array.size == 1 for array in constants)
    given = _values(node)
    floats = all(query.dtype_name(t) == "float32" for t in (*given, *node.outputs))
    return known and single and bool(given) and floats and len(node.outputs) == 1


def _steps(region: list[Node], source: Tensor) -> list[Step]:
    from npuconv.arithmetic.tables import SOURCE, Step

    def read(tensor: Tensor) -> str | float:
        array = query.value(tensor)
        if array is not None:
            return float(array.reshape(-1)[0])
        return SOURCE if tensor is source else str(tensor.name)

    def bounds(node: Node) -> list[Tensor]:
        return [t for t in node.inputs if t.name or query.is_constant(t)]

    return [
        Step(n.op, tuple(map(read, bounds(n))), str(n.outputs[0].name), n.attrs) for n in region
    ]


def _is_same(region: list[Node], source: Tensor, wanted: _Activation) -> bool:
    """Return whether a region has the values of an activation, near 0 and far from it."""
    import numpy as np

    from npuconv.arithmetic.tables import Step, evaluate

    far = np.geomspace(_REACH, 1e4, 16)
    x = np.concatenate([-far, np.linspace(-_REACH, _REACH, 1601), far])
    ours = evaluate(_steps(region, source), x)
    theirs = evaluate([Step(wanted.op, attributes=wanted.attributes)], x)
    return bool((np.abs(ours - theirs) <= _DIFFERENCE * (1 + np.abs(x))).all())


def _obstacle(
    model: Model, ctx: PassContext, region: list[Node], source: Tensor, found: _Activation
) -> str:
    """Return why a region cannot become the activation, or ''."""
    inside = {id(node) for node in region}
    for node in region[:-1]:
        readers = query.consumers(node.outputs[0])
        if model.is_output(node.outputs[0]) or any(id(one) not in inside for one in readers):
            return f"it is {found.op} spelled out, but a value in between is read elsewhere, too"
    if model.opset < found.opset:
        return f"it is {found.op} spelled out, which opset {model.opset} does not have"
    operator = ctx.target.operator(found.op)
    assert operator is not None, "only what is listed is wanted"
    objection = next(iter(operator.objections(facts.elementwise(source, found.attributes))), "")
    return f"it is {found.op} spelled out: {objection}" if objection else ""
