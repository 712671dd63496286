"""Partial evaluation of shape arithmetic: what exporters write to compute an extent.

Starting at Shape and Size, every small tensor is followed element by element. An element
is a number, an extent that has a name but no number yet, or unknown. Values are held in
arrays of Python objects, so that numpy moves them about and ``_partial_scalars`` computes.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from npuconv.legalize.tools.partial_scalars import Element, Extent, Symbol
from npuconv.model import query
from npuconv.model.skeleton import MAX_SHAPE_VALUES

if TYPE_CHECKING:
    from npuconv.model.core import Model
    from npuconv.model.types import Node, Tensor

SOURCES = ("Shape", "Size")
# What exporters write for "any extent": the same word twice says nothing.
_NO_NAMES = frozenset({"none", "null", "unknown", "unk", "dynamic", "any", "nan"})


class UnknownError(Exception):
    """Signal for a result of which nothing is known; never leaves the evaluation."""


@dataclass(frozen=True)
class Partial:
    """A tensor of which some elements are known."""

    elements: np.ndarray  # of Element
    dtype: np.dtype[Any]

    @property
    def complete(self) -> bool:
        """Return whether every element is a number."""
        return all(isinstance(e, (bool, int, float)) for e in self.elements.flat)

    @property
    def blank(self) -> bool:
        """Return whether there are elements, and all of them are unknown."""
        return self.elements.size > 0 and all(e is None for e in self.elements.flat)

    def values(self) -> np.ndarray:
        """The numbers of a complete one."""
        return self.elements.astype(self.dtype)

    def integers(self) -> list[int]:
        """The numbers, in order.

        Raises:
            UnknownError: not all of them are known, or they are no integers.
        """
        if self.dtype.kind not in "iu" or not self.complete:
            raise UnknownError
        return [int(e) for e in self.elements.flat]


@dataclass
class Facts:
    """Known elements of the small tensors of a model. Void when the graph changes."""

    tensors: dict[int, tuple[Tensor, Partial]] = field(default_factory=dict)
    doubtful: frozenset[str] = frozenset()

    def of(self, tensor: Tensor | None) -> Partial | None:
        """Return the known elements of a tensor that is computed from shapes, if there are any."""
        entry = self.tensors.get(id(tensor))
        return entry[1] if entry else None

    def is_complete(self, tensor: Tensor) -> bool:
        """Return whether every element of a tensor that is computed from shapes is known."""
        partial = self.of(tensor)
        return partial is not None and partial.complete

    def operand(self, tensor: Tensor | None) -> Partial | None:
        """Return the known elements of any tensor, constants too.

        None where its extents are not known, or it is not a small tensor of numbers.
        """
        if tensor is None or id(tensor) in self.tensors:
            return self.of(tensor)
        constant = query.is_constant(tensor)
        dims = tuple(tensor.shape) if constant else query.static_shape(tensor)
        if dims is None or math.prod(dims) > MAX_SHAPE_VALUES or not _is_numeric(tensor.dtype):
            return None
        array = query.value(tensor)
        elements = np.full(dims, None) if array is None else array.astype(object)
        return Partial(elements, np.dtype(tensor.dtype))

    def extents(self, tensor: Tensor) -> tuple[Element, ...] | None:
        """The extents of a tensor: numbers, or what stands for them."""
        dims = query.shape(tensor)
        if dims is None:
            return None
        return tuple(self._extent(tensor, axis, dim) for axis, dim in enumerate(dims))

    def _extent(self, tensor: Tensor, axis: int, dim: int | str | None) -> Element:
        if isinstance(dim, int):
            return dim
        # Inference hands out names; it does not see those of tensors without a type.
        named = dim is not None and tensor.dtype is not None and dim not in self.doubtful
        symbol: Symbol = (dim, -1) if named and dim and _is_name(dim) else (tensor.name, axis)
        return Extent(symbol)


def evaluate(model: Model) -> Facts:
    """Follow what is computed from shapes, as far as it goes."""
    from npuconv.legalize.tools.partial_operators import OPERATORS

    facts = Facts(doubtful=_doubtful(model))
    for node in model.nodes():
        if not query.is_standard(node):
            continue
        if node.op in SOURCES:
            _note(facts, node, [_source(facts, node)])
        elif node.op in OPERATORS and any(id(t) in facts.tensors for t in node.inputs):
            _note(facts, node, _results(facts, node))
    return facts


def _results(facts: Facts, node: Node) -> list[Partial | None]:
    from npuconv.legalize.tools.partial_operators import OPERATORS

    operands = [facts.operand(query.input_of(node, i)) for i in range(len(node.inputs))]
    try:
        return list(OPERATORS[node.op](node, operands))
    except (UnknownError, ValueError, IndexError, OverflowError):  # numpy's: nothing fits
        return []


def _note(facts: Facts, node: Node, results: list[Partial | None]) -> None:
    for tensor, partial in zip(node.outputs, results, strict=False):
        if partial is not None and not partial.blank and partial.elements.size <= MAX_SHAPE_VALUES:
            facts.tensors[id(tensor)] = (tensor, partial)


def _source(facts: Facts, node: Node) -> Partial | None:
    dims = facts.extents(node.inputs[0])
    if dims is None:
        return None
    if node.op == "Size":
        return _size(dims)
    window = dims[slice(node.attrs.get("start", 0), node.attrs.get("end"))]
    return Partial(as_elements(window), np.dtype(np.int64))


def _size(dims: tuple[Element, ...]) -> Partial:
    from npuconv.legalize.tools.partial_scalars import multiply

    total: Element = 1
    for dim in dims:
        total = multiply(total, dim, np.dtype(np.int64))
    return Partial(as_elements([total]).reshape(()), np.dtype(np.int64))


def as_elements(elements: Any) -> np.ndarray:
    """Elements in a row."""
    row = list(elements)
    array = np.empty(len(row), dtype=object)
    array[:] = row
    return array


def wrapped(value: Any) -> np.ndarray:
    """An array; numpy hands a single object out of its own."""
    if isinstance(value, np.ndarray):
        return value
    array = np.empty((), dtype=object)
    array[()] = value
    return array


def _doubtful(model: Model) -> frozenset[str]:
    """Names that one input has twice: more likely a habit of the exporter than a square."""
    found: set[str] = set()
    for tensor in model.graph.inputs:
        counts = Counter(d for d in query.shape(tensor) or () if isinstance(d, str))
        found |= {name for name, count in counts.items() if count > 1}
    return frozenset(found)


def _is_name(dim: str) -> bool:
    return re.search(r"[A-Za-z]", dim) is not None and dim.lower() not in _NO_NAMES


def _is_numeric(dtype: Any) -> bool:
    if dtype is None or isinstance(dtype, int):  # a type numpy has no name for
        return False
    return np.dtype(dtype).kind in "iufb"
