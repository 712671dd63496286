"""Raise an old model to the opset that int8 operators need.

Node by node: if the operator only gained types and optional attributes, the node is not
changed; any other node is converted alone and compared with the original. If a node cannot
be converted, its name is reported, and nothing is changed. Operators that were
deprecated with their first version (GroupNormalization-18) are replaced in any opset.
"""

from __future__ import annotations

from npuconv.legalize.registry import Log, Phase, register_pass
from npuconv.legalize.tools.opset import raise_to
from npuconv.model import Model
from npuconv.version import OLDEST_OPSET


@register_pass(
    Phase.CANONICALIZE, after=("fold-constants", "replace-experimental-ops"), infers=True
)
def raise_opset(model: Model, log: Log) -> int:
    opset = max(model.opset, OLDEST_OPSET)
    return raise_to(model, log, opset, least=opset)
