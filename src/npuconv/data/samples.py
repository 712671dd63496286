"""Samples: complete inputs of a model, produced when asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from npuconv.errors import CalibrationError
from npuconv.records import dataclass, replace

# One of the few seeds that leave every kind of sample on both sides where 2, 3 or 4 kinds
# alternate, for 9 to 128 samples, if there is room for two of each.
_SEED = 1166
HELD_OUT_LEAST = 8  # samples held out of calibration, if as many remain for it

Array = NDArray[Any]
Feed = dict[str, Array]


@dataclass(frozen=True)
class InputSpec:
    """One input of the model."""

    name: str
    dtype: np.dtype[Any]
    # Lengths; a name or None where the length is not fixed. None: unknown rank.
    shape: tuple[int | str | None, ...] | None
    array: str = ""  # name of its array in a source; empty: the name of the input
    # Whether the model computes with its integers (pixels) instead of using them as indices.
    is_quantity: bool = False

    @property
    def lengths(self) -> tuple[int | None, ...]:
        """Return the shape with None for every length that is not fixed; empty for unknown rank."""
        return tuple(n if isinstance(n, int) and n > 0 else None for n in self.shape or ())

    @property
    def batch(self) -> int:
        """Return the fixed length of the first axis, or 1."""
        return self.lengths[0] or 1 if self.lengths else 1

    @property
    def shape_text(self) -> str:
        """Return the shape for messages, as in ``[N, 3, 224, 224]``."""
        if self.shape is None:
            return "[...]"
        return "[" + ", ".join("?" if n is None else str(n) for n in self.shape) + "]"


@dataclass(frozen=True)
class Samples:
    """Samples that are read or generated at each access."""

    # Function to sample k of the source, as arrays by input name, batch axis included.
    load: Callable[[int], Feed]
    indices: tuple[int, ...]  # numbers of the samples in the source
    description: str  # source in one phrase, without directories, for the report
    synthetic: bool = False  # True if the numbers are made up
    builtin: bool = False  # True if they do not come from the user
    part: str = ""  # number of chosen samples, and of all; empty if all are chosen
    prepared: str = ""  # preparation of images, in one phrase; empty for arrays
    notes: tuple[str, ...] = ()  # sentences for the user on how the samples were read

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[Feed]:
        """Yield one sample after the other, each loaded when its turn comes."""
        return (self.load(k) for k in self.indices)

    @overload
    def __getitem__(self, item: int) -> Feed: ...
    @overload
    def __getitem__(self, item: slice) -> Samples: ...
    def __getitem__(self, item: int | slice) -> Feed | Samples:
        if isinstance(item, slice):
            return replace(self, indices=self.indices[item])
        return self.load(self.indices[item])

    def split(self, held_out: int) -> tuple[Samples, Samples]:
        """Split into the samples to calibrate on, and ``held_out`` others.

        Raises:
            CalibrationError: no samples would remain to calibrate on.
        """
        if not 0 <= held_out < len(self):
            raise CalibrationError(
                f"{self.description}: cannot hold out {held_out} of {len(self)} samples"
            )
        places = held_out_places(len(self), held_out)
        used = tuple(k for place, k in enumerate(self.indices) if place not in places)
        held_out_indices = tuple(self.indices[place] for place in places)
        return replace(self, indices=used), replace(self, indices=held_out_indices)


def held_out_places(total: int, count: int) -> tuple[int, ...]:
    """Return ``count`` of 0..total-1, ascending, drawn at random: always the same.

    If samples alternate, as left and right pictures, every second sample would be of one kind.
    """
    return tuple(sorted(np.random.default_rng(_SEED).permutation(total)[:count].tolist()))


def spread(total: int, count: int) -> tuple[int, ...]:
    """Return ``count`` numbers of 0..total-1, ascending; all if there are not more.

    One number is drawn at random from each of ``count`` equal ranges, so the choice covers all
    samples and does not follow their alternation. The same arguments give the same choice.
    """
    count = min(total, count)
    bounds = [k * total // count for k in range(count + 1)] if count else [0]
    return tuple(np.random.default_rng(_SEED).integers(bounds[:-1], bounds[1:]).tolist())


def choose(
    load: Callable[[int], Feed], total: int, limit: int, description: str, notes: Sequence[str]
) -> Samples:
    """Choose at most ``limit`` of ``total`` samples; the description states how many.

    They are spread (``spread``) because files are often sorted by class.
    """
    indices = spread(total, limit)
    part = f"{len(indices)} of {total}" if len(indices) < total else ""
    source = ", ".join(filter(None, (description, part)))
    return Samples(load, indices, source, part=part, notes=tuple(dict.fromkeys(notes)))


def matches(shape: tuple[int, ...], lengths: tuple[int | None, ...]) -> bool:
    """Return whether a shape has these lengths; None matches any length."""
    fits = (want in (None, have) for have, want in zip(shape, lengths, strict=False))
    return len(shape) == len(lengths) and all(fits)
