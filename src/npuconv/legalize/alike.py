"""Rewrites that are alike: the same change, of the same attributes, around the same shapes.

Where the new piece reads the very constants that the old one read, whether the two are equal
does not depend on the values of these constants. So of such rewrites that are alike, one is
run for all: a large model has thousands of convolutions and a dozen kinds of them.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from npuconv.model import query

if TYPE_CHECKING:
    from npuconv.legalize.context import RewriteRecord
    from npuconv.legalize.region import Region
    from npuconv.model.types import Tensor


class _Numbers:
    """Names as numbers in the order of their first use: equal for graphs of one form."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {"": -1}

    def __call__(self, name: str) -> int:
        """The number of a name."""
        return self._known.setdefault(name, len(self._known))


def kind(record: RewriteRecord) -> Hashable | None:
    """Equal for rewrites that are alike; None for one that made constants of its own."""
    old, new = record.old, record.new
    if old is None or new is None:
        return None
    kept = {id(t) for t in old.constants.values()}
    if kept != {id(t) for t in new.constants.values()}:
        return None
    number = _Numbers()
    return (
        record.pass_name,
        record.modulus,
        record.exact,
        _form(old, number),
        _form(new, number),
    )


def _form(region: Region, number: _Numbers) -> Hashable:
    nodes = tuple(
        (
            node.op,
            node.domain,
            tuple(map(number, node.inputs)),
            tuple(map(number, node.outputs)),
            tuple([(name, *_said(value)) for name, value in sorted(node.attrs.items())]),
        )
        for node in region.nodes
    )
    inputs = tuple((number(name), t, dims) for name, (t, dims) in region.inputs.items())
    outputs = tuple((number(a), number(b)) for a, b in region.outputs.items())
    constants = tuple((number(name), *_constant(t)) for name, t in region.constants.items())
    return region.opset, region.kernel, nodes, inputs, outputs, constants


def _said(value: Any) -> tuple[Any, ...]:
    """The value of an attribute; 1 and 1.0 are equal, but no two attributes are."""
    if type(value) in (int, str, tuple):
        return type(value), value
    return "", repr(value) if type(value) is float else value.SerializeToString(deterministic=True)


def _constant(tensor: Tensor) -> tuple[Hashable, ...]:
    """Axes, shapes and bounds decide what is computed; weights do not."""
    array = query.value(tensor)
    assert array is not None
    decides = array.dtype.kind != "f" or array.size == 1
    return array.shape, array.dtype, array.tobytes() if decides else b""
