"""A convolution on the device has a type that the device does not take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from npuconv.rules import Example, Violation, rule
from npuconv.rules._lowered import INTEGER_CONVOLUTIONS, device_facts, device_limits

if TYPE_CHECKING:
    from npuconv.model.types import Node
    from npuconv.rules._context import RuleContext


LIMITS = ("dtype", "weight_dtype", "bias_dtype")


@rule(
    "DTY001",
    ops=INTEGER_CONVOLUTIONS,
    limits=LIMITS,
    at="lowered",
    message="{fact} is {value}; the device takes {limit}",
    example=Example(
        fires="""
            input x: float[1,1,4,4]
            weight s: float[] = 0.1
            weight z: uint8[] = 0
            weight w: int8[1,1,3,3] = 1
            weight zw: int8[] = 0
            q = QuantizeLinear (x, s, z)
            c = QLinearConv (q, s, z, w, s, zw, s, z)
            y = DequantizeLinear (c, s, z)
        """,
        silent="""
            input x: float[1,1,4,4]
            weight s: float[] = 0.1
            weight z: int8[] = 0
            weight w: int8[1,1,3,3] = 1
            weight zw: int8[] = 0
            q = QuantizeLinear (x, s, z)
            c = QLinearConv (q, s, z, w, s, zw, s, z)
            y = DequantizeLinear (c, s, z)
        """,
    ),
)
def dtype_unsupported(node: Node, ctx: RuleContext) -> Iterator[Violation]:
    """A convolution on the device has a type that the device does not take.

    What it checks:
        Element types of activations, weights and bias of every integer convolution that
        was written, against the target's.

    Why it matters:
        It is the last look before a model is written: what the device would refuse must
        not leave the house.

    How to fix:
        This is a bug in npuconv unless the target asks for a type it cannot make.
    """
    facts = device_facts(node)
    for name in LIMITS:
        limit = device_limits(node, ctx).get(name)
        if limit is not None and limit.allows(facts[name], facts) is False:
            yield Violation(
                {"fact": name, "value": facts[name], "limit": limit.text(facts)},
                value=str(facts[name]),
                limit=limit.text(facts),
                source=limit.cite(),
            )
