"""Relu and Clip by constants."""

from __future__ import annotations

import numpy as np

from npuconv.model import query
from npuconv.model.types import Node
from npuconv.ops.channels import same
from npuconv.ops.operator import Operator, always, register
from npuconv.ops.tape import pass_selected, pointwise


def _has_constant_bounds(node: Node) -> bool:
    return all(
        query.input_of(node, place) is None or query.scalar_input(node, place) is not None
        for place in (1, 2)
    )


register(
    Operator(
        name="Relu",
        adjoint=pointwise(lambda tape, at: tape.add("Sign", at.y)),
        passes=always,
        moves=always,
        follow=same,
        function=lambda x, **_: np.maximum(x, 0),
    ),
    Operator(
        name="Clip",
        adjoint=pass_selected,
        bounds=(1, 2),
        passes=_has_constant_bounds,
        moves=always,
        follow=same,
        function=lambda x, low=-np.inf, high=np.inf, **_: np.clip(x, low, high),
    ),
)
