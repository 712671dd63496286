"""Tensors that share one scale, because carried operators join them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from npuconv.partition.passthrough import data_inputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npuconv.model.core import Model
    from npuconv.model.types import Node, Tensor


@dataclass
class Group:
    """Tensors that share one scale."""

    name: str  # of the first tensor
    tensors: list[str] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)  # whose values decide the range


def groups(model: Model, device: Sequence[Node], carried: Sequence[Node]) -> list[Group]:
    """Tensors joined by carried operators, in the order in which they are made.

    Args:
        model: a legalized model.
        device: convolutions of the device.
        carried: operators that pass int8 values on.
    """
    sets = _Sets()
    tensors: dict[str, Tensor] = {}
    for node in device:
        for tensor in (node.inputs[0], node.outputs[0]):
            tensors.setdefault(tensor.name, tensor)
    for node in carried:
        for tensor in node.outputs:
            tensors.setdefault(tensor.name, tensor)
            for source in data_inputs(node):
                sets.join(source.name, tensor.name)
    found: dict[str, Group] = {}
    inner = {id(n) for n in carried}
    for name, tensor in tensors.items():
        group = found.setdefault(sets.find(name), Group(name))
        group.tensors.append(name)
        if model.is_output(tensor) or any(id(c) not in inner for c in tensor.outputs):
            group.ends.append(name)
    return list(found.values())


class _Sets:
    """Disjoint sets of tensor names."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def find(self, name: str) -> str:
        """The name that stands for all those it was joined with."""
        self._parent.setdefault(name, name)
        while self._parent[name] != name:
            self._parent[name] = self._parent[self._parent[name]]
            name = self._parent[name]
        return name

    def join(self, a: str, b: str) -> None:
        """Let both be in one set."""
        self._parent[self.find(b)] = self.find(a)
