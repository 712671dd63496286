"""Take out Transposes that undo each other, also past what lies between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from npuconv.legalize import region as _region
from npuconv.legalize.registry import Phase, model_pass
from npuconv.legalize.tools.transposes import Settle, cancel

if TYPE_CHECKING:
    from npuconv.legalize.context import PassContext
    from npuconv.model.core import Model
    from npuconv.model.types import Node, Tensor


@model_pass(Phase.LEGALIZE, infers=True)
def cancel_transposes(model: Model, ctx: PassContext) -> int:
    """Take out Transposes that undo each other, also past what lies between them.

    Two in a row become one or none. Elementwise operators, Concat and Pad between a
    Transpose and one that undoes it compute on the tensor as it was before, their
    constants and axes in its order. Where other nodes read or feed them a Transpose is put
    in, and nothing is done if that would not make them fewer.
    """

    @contextmanager
    def measured(
        nodes: Sequence[Node], before: str, after: str, outputs: Sequence[Tensor]
    ) -> Iterator[Settle]:
        """Record and compare one rewrite."""
        # Constants have the real extents, so nothing may be made smaller.
        with ctx.rewrite(
            model, nodes, before, after, outputs=outputs, modulus=None
        ) as record:  # fmt: skip

            def settle(tensors: Sequence[Tensor]) -> None:
                if record.old is not None:
                    record.new = _region.trace(model, record.old, tensors)

            yield settle

    return cancel(model, measured)
