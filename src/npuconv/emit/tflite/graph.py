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
    """Scales and zero points of a tensor.

    Attributes:
        scales: float32 [1], or [C].
        zeros: int64, as many.
        axis: that the scales run along.
    """

    scales: NDArray[np.float32]
    zeros: NDArray[np.int64]
    axis: int = 0

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
    """A tensor.

    Attributes:
        name: unique in the graph.
        shape: extents, in the order in which they are stored.
        dtype: of an element.
        values: of a constant; None for one that an operator makes.
        quantization: of integers.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    values: Array | None = None
    quantization: Quantization | None = None


@dataclass(frozen=True)
class Operator:
    """An operator.

    Attributes:
        code: name in ``BuiltinOperator``.
        inputs: numbers of tensors; -1 where an optional one is missing.
        outputs: numbers of tensors.
        table: name of its table of options; empty where it has none.
        options: fields of that table.
    """

    code: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    table: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Graph:
    """Tensors, operators in the order they run in, inputs and outputs by number of tensor."""

    tensors: list[Tensor] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    inputs: Sequence[int] = ()
    outputs: Sequence[int] = ()
