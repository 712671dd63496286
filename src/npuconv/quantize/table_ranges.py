"""Ranges of tensors that only tables read: they end where the tables no longer change.

HardSwish is 0 for all numbers below -3. What saturates there loses nothing, and the step is that of
a smaller range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from npuconv.arithmetic.tables import ARITHMETIC, FUNCTIONS, SOURCE, Step, evaluate
from npuconv.model import query
from npuconv.model.core import Model
from npuconv.model.types import Node
from npuconv.partition import Plan
from npuconv.partition.operators import values_of
from npuconv.quantize.settings import RANGES

Functions = Mapping[str, Sequence[Sequence[Step]]]


def functions_of(model: Model, plan: Plan) -> Functions:
    """Return the functions of every tensor that nothing but tables read, by tensor."""
    steps: dict[str, list[Step]] = {}
    root: dict[str, str] = {}  # of what a table makes: what it is a function of
    read: dict[str, set[int]] = {}
    for node in plan.operators:
        sources = {root.get(t.name, t.name) for t in values_of(node)}
        if len(sources) != 1 or (step := _step(node, *sources)) is None:
            continue
        (source,) = sources
        steps.setdefault(source, []).append(step)
        read.setdefault(source, set()).update(id(node) for t in values_of(node) if t.name == source)
        if node.outputs[0].name in plan.fused:
            root[node.outputs[0].name] = source
    tensors = {t.name: t for node in plan.operators for t in values_of(node)}
    return {
        source: [own[: k + 1] for k, step in enumerate(own) if step.output not in plan.fused]
        for source, own in steps.items()
        if not model.is_output(tensors[source])
        and read[source] == {id(reader) for reader in query.consumers(tensors[source])}
    }


def _step(node: Node, source: str) -> Step | None:
    """Return the operator as a step of a function; None where it has other operands."""
    constants = [query.value(t) for t in node.inputs if query.is_constant(t)]
    if any(c is None or c.size != 1 for c in constants):
        return None
    if node.op not in {*FUNCTIONS, *ARITHMETIC}:
        return None
    given: list[str | float] = []
    for tensor in node.inputs:
        value = query.value(tensor) if query.is_constant(tensor) else None
        name = SOURCE if tensor.name == source else str(tensor.name)
        given.append(name if value is None else float(value.reshape(-1)[0]))
    attributes = dict(node.attrs)
    if node.op == "PRelu":
        given, attributes = given[:1], {"slope": given[1]}
    return Step(node.op, tuple(given), str(node.outputs[0].name), attributes)


def within_tables(
    functions: Sequence[Sequence[Step]], low: float, high: float
) -> tuple[float, float]:
    """Return the part of a range outside of which no function changes by much of its own step."""
    values = np.linspace(low, high, RANGES.table_values)
    first, last = len(values) - 1, 0
    for steps in functions:
        made = evaluate(steps, values)
        if not np.isfinite(made).all():
            return low, high
        allowed = RANGES.table_share * (max(made.max(), 0.0) - min(made.min(), 0.0)) / 255
        first = min(first, int(np.argmax(np.abs(made - made[0]) > allowed)) - 1)
        last = max(last, len(made) - int(np.argmax(np.abs(made - made[-1])[::-1] > allowed)))
    return float(values[max(first, 0)]), float(values[min(last, len(values) - 1)])
