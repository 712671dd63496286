"""The roundings of a plan as terms of a budget: who makes each tensor, and who reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.model import query
from npuconv.tuning.precision.shop import Term

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from npuconv.model.core import Model
    from npuconv.model.types import Tensor
    from npuconv.plan import Plan
    from npuconv.tuning.noise.gated import Rounding


def terms_of(
    model: Model, plan: Plan, roundings: Sequence[Rounding], powers: NDArray[np.float64]
) -> list[Term]:
    """One term for each rounding.

    Args:
        model: the legal float model.
        plan: where every node runs.
        roundings: of inputs, weights and outputs.
        powers: noise of each, [number of roundings].
    """
    tensors = {t.name: t for node in model.nodes() for t in (*node.inputs, *node.outputs)}
    found = []
    for rounding, power in zip(roundings, powers, strict=True):
        gate = rounding.gate
        if gate.kind == "weights":
            found.append(Term(float(power), gate.layer))
            continue
        readers = _readers(plan, tensors[gate.tensor])
        maker = gate.layer if gate.kind == "output" else ""
        found.append(Term(float(power), maker, readers, gate.kind == "output"))
    return found


def _readers(plan: Plan, tensor: Tensor) -> tuple[str, ...]:
    """Convolutions of the device that read it, also behind what carries integers on."""
    found: dict[str, None] = {}
    waiting = [tensor]
    while waiting:
        for node in query.consumers(waiting.pop()):
            if plan.on_device(node):
                found[node.name] = None
            elif plan.is_carried(node):
                waiting.extend(node.outputs)
    return tuple(found)
