"""Take out Transposes that undo each other, also past what lies between them.

Two in a row become one or none. Elementwise operators, Concat and Pad between a
Transpose and one that undoes it compute on the tensor as it was before, their
constants and axes in its order. Where other nodes read or feed them a Transpose is put
in, and nothing is done if that would not make them fewer.
"""

from __future__ import annotations

from npuconv.legalize.log import Log
from npuconv.legalize.registry import Phase, model_pass
from npuconv.legalize.tools.transposes import cancel
from npuconv.model.core import Model


@model_pass(Phase.LEGALIZE, infers=True)
def cancel_transposes(model: Model, log: Log) -> int:
    return cancel(model, log)
