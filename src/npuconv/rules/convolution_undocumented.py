"""A kind of convolution that the target says nothing about."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from npuconv.rules import Violation, is_convolution, rule

if TYPE_CHECKING:
    from npuconv.model.types import Node
    from npuconv.rules._context import RuleContext


@rule(
    "OPS004",
    ops={"*"},
    message="{op} is a convolution that target {target} does not list",
)
def convolution_undocumented(node: Node, ctx: RuleContext) -> Iterator[Violation]:
    """A kind of convolution that the target says nothing about.

    What it checks:
        Every convolution that is not the plain one: ConvTranspose, DeformConv, and Conv of
        another operator domain.

    Why it matters:
        Convolutions are what the device is for. One that cannot run there is not quietly
        left to the host, where it would dominate the run time.

    How to fix:
        List the operator in the target file if the device has it, or replace the layer by
        a plain convolution (a ConvTranspose by Conv and DepthToSpace).
    """
    if not is_convolution(node) or node.op in _OTHERS or ctx.operator(node) is not None:
        return
    name = node.op if not node.domain else f"{node.domain}.{node.op}"
    yield Violation({"op": name, "target": ctx.target.name}, value=name, source=ctx.target.name)


# Integer convolutions belong to a model that is quantized already, which is its own finding.
_OTHERS = {"ConvInteger", "QLinearConv"}
