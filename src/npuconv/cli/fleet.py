"""Shapes of inputs that only some of many models have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from npuconv.errors import UnknownInputError

Shapes = dict[str, tuple[int, ...]]
_Result = TypeVar("_Result")


class FleetShapes:
    """Each shape for the models that have its input, and an error where none has."""

    def __init__(self, shapes: Mapping[str, Sequence[int]]) -> None:
        self._shapes: Shapes = {name: tuple(dims) for name, dims in shapes.items()}
        self._refusals: dict[str, UnknownInputError] = {}  # the last one by name of the input
        self._accepted: set[str] = set()

    def apply(self, read: Callable[[Shapes], _Result]) -> _Result:
        """Read a model with the shapes of its inputs.

        A model that cannot be read may have had any of the inputs.
        """
        shapes = dict(self._shapes)
        try:
            while True:
                try:
                    return read(shapes)
                except UnknownInputError as error:
                    self._refusals[error.name] = error
                    del shapes[error.name]
        finally:
            self._accepted |= shapes.keys()

    def check(self) -> None:
        """Refuse a shape whose input none of the models has.

        Raises:
            UnknownInputError: as the last model was refused for it.
        """
        for name, error in self._refusals.items():
            if name not in self._accepted:
                raise error
