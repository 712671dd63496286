"""A TFLite graph as plain values, by the names of TFLite's schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Quantization:
    """Scales and zero points of a tensor."""

    scales: NDArray[np.float32]  # float32 [1], or [C]
    zeros: NDArray[np.int64]  # int64, as many
    axis: int = 0  # that the scales run along

    @classmethod
    def of(cls, scale: float | np.float32, zero: int) -> Quantization:
        """Return one scale and zero point for a tensor."""
        return cls(np.full(1, scale, np.float32), np.full(1, zero, np.int64))

    @property
    def scale(self) -> np.float32:
        """The scale of a tensor that has one."""
        return np.float32(self.scales[0])

    @property
    def zero(self) -> int:
        """The zero point of a tensor that has one."""
        return int(self.zeros[0])


@dataclass
class Tensor:
    """A tensor."""

    name: str  # unique in the graph
    shape: tuple[int, ...]  # extents, in the order in which they are stored
    dtype: np.dtype[Any]
    values: Array | None = None  # of a constant; None for one that an operator makes
    quantization: Quantization | None = None


@dataclass(frozen=True)
class Operator:
    """An operator."""

    code: str  # name in ``BuiltinOperator``
    inputs: tuple[int, ...]  # numbers of tensors; -1 where an optional one is missing
    outputs: tuple[int, ...]  # numbers of tensors
    table: str = ""  # name of its table of options; empty where it has none
    options: Mapping[str, Any] = field(default_factory=dict)  # fields of that table


@dataclass
class Graph:
    """Tensors, operators in the order they run in, inputs and outputs by number of tensor."""

    tensors: list[Tensor] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    inputs: Sequence[int] = ()
    outputs: Sequence[int] = ()
