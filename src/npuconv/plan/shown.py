"""Int8 tensors whose numbers the outputs of the model show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.model import query

if TYPE_CHECKING:
    from npuconv.model.core import Model
    from npuconv.plan.groups import Group
    from npuconv.plan.placement import Plan


def shown(model: Model, plan: Plan) -> list[Group]:
    """The groups of tensors behind which nothing of the device comes before an output.

    Nothing makes up there for what int8 cuts off.
    """
    known, seen = plan.group_of(), set[int]()
    found: dict[str, Group] = {}
    waiting = list(model.graph.outputs)
    while waiting:
        tensor = waiting.pop()
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        maker = query.producer(tensor)
        if maker is None:
            continue
        if plan.on_device(maker) or plan.is_carried(maker):
            if (group := known.get(tensor.name)) is not None:
                found[group.name] = group
        else:
            waiting.extend(maker.inputs)
    return list(found.values())
