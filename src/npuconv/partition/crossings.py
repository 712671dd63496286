"""Tensors that cross between device and host, and their bytes.

Every tensor that crosses is int8: the host quantizes the inputs of the device, and gets back
the int8 results. A symbolic batch counts as one sample.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from npuconv.model import query

if TYPE_CHECKING:
    from npuconv.model.core import Model
    from npuconv.model.types import Node, Tensor
    from npuconv.partition.placement import Plan


@dataclass(frozen=True)
class Port:
    """A tensor on its way in or out; ``bytes`` is None where a dimension is not known."""

    name: str
    bytes: int | None


@dataclass(frozen=True)
class Crossings:
    """The tensors that cross in one inference, each once for each direction."""

    to_device: tuple[Port, ...]
    to_host: tuple[Port, ...]


def crossings(model: Model, plan: Plan) -> Crossings:
    """Return the tensors that the device is given, and those that it gives back."""
    nodes = [node for node in model.nodes() if plan.placement[id(node)] == "device"]
    given, made = ports(model, nodes)
    return Crossings(given, made)


def transitions(model: Model, plan: Plan) -> int:
    """Tensors that cross between device and host, each counted once per direction."""
    found = crossings(model, plan)
    return len(found.to_device) + len(found.to_host)


def traffic(model: Model, plan: Plan) -> int | None:
    """Bytes that cross in one inference; None where those of one tensor are not known."""
    found = crossings(model, plan)
    return bytes_of((*found.to_device, *found.to_host))


def ports(model: Model, nodes: Iterable[Node]) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
    """Return the tensors these nodes read of others, and those others or the user read of them."""
    listed = list(nodes)
    inside = {id(node) for node in listed}
    outputs = {id(tensor) for tensor in model.graph.outputs}
    given: dict[str, Port] = {}
    made: dict[str, Port] = {}
    for node in listed:
        for tensor in node.inputs:
            if _comes_from_outside(tensor, inside):
                given.setdefault(tensor.name, _port(tensor))
        for tensor in node.outputs:
            # A branch of an If reads it too, without being listed at the top level.
            if id(tensor) in outputs or any(id(n) not in inside for n in tensor.outputs):
                made.setdefault(tensor.name, _port(tensor))
    return tuple(given.values()), tuple(made.values())


def readers(plan: Plan) -> dict[str, list[Node]]:
    """The convolutions of the device by the tensor that they read."""
    found: dict[str, list[Node]] = {}
    for conv in plan.device:
        found.setdefault(conv.inputs[0].name, []).append(conv)
    return found


def bytes_of(found: Iterable[Port]) -> int | None:
    """Bytes of all of them; None where those of one are not known."""
    sizes = [port.bytes for port in found]
    return None if None in sizes else sum(size or 0 for size in sizes)


def _comes_from_outside(tensor: Tensor, inside: set[int]) -> bool:
    if query.is_constant(tensor) or not tensor.name:
        return False
    maker = query.producer(tensor)
    return maker is None or id(maker) not in inside


def _port(tensor: Tensor) -> Port:
    return Port(tensor.name, int8_bytes(tensor))


def int8_bytes(tensor: Tensor) -> int | None:
    """Bytes of a tensor in int8; None where a dimension is not known."""
    dims = query.shape(tensor)
    if dims is None:
        return None
    # As for multiply-accumulates: a symbolic batch counts as one.
    cells = [1 if axis == 0 and not isinstance(d, int) else d for axis, d in enumerate(dims)]
    extents = [d for d in cells if isinstance(d, int)]
    return math.prod(extents) if len(extents) == len(dims) else None
