"""Statistics as a few plain arrays, and back; what comes from a file is checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuconv.arithmetic.statistics import Statistics, capacity

Arrays = Mapping[str, NDArray[Any]]
_FLAT = {
    **dict.fromkeys(("lows", "highs", "second_lows", "second_highs"), np.float32),
    **dict.fromkeys(("means", "squares"), np.float64),
}
_OF_SAMPLES = ("numbers", "widths")
_LENGTHS = ("channels", "positions", "kept", "counts")  # int64, one for each tensor


def pack(found: Mapping[str, Statistics]) -> dict[str, NDArray[Any]]:
    """Statistics of the same samples as arrays by name."""
    all_of = list(found.values())
    flat = (*_FLAT, *_OF_SAMPLES)
    arrays = {key: np.concatenate([getattr(s, key) for s in all_of]) for key in flat}
    arrays["values"] = np.concatenate([s.values.ravel() for s in all_of])
    rows = [(s.channels, s.values.shape[1], s.numbers.size, s.count) for s in all_of]
    arrays |= dict(zip(_LENGTHS, np.asarray(rows, np.int64).T, strict=True))
    arrays["samples"] = np.asarray([all_of[0].first, all_of[0].samples], np.int64)
    return arrays


def unpack(arrays: Arrays, tensors: Mapping[str, int | None]) -> dict[str, Statistics]:
    """Statistics from arrays.

    Args:
        arrays: as ``pack`` makes them, but not to be trusted.
        tensors: name -> channel axis, in the order in which they were packed.

    Raises:
        ValueError: they are not of these tensors, or not statistics.
    """
    for key, kind in {**_FLAT, "values": np.float32}.items():
        _check(arrays[key].dtype == kind and arrays[key].ndim == 1, key)
    for key in (*_LENGTHS, *_OF_SAMPLES, "samples"):
        _check(arrays[key].dtype == np.int64 and arrays[key].ndim == 1, key)
        _check(bool((arrays[key] >= 0).all()), key)
    _check(all(arrays[key].size == len(tensors) for key in _LENGTHS), "tensors")
    _check(arrays["samples"].size == 2, "samples")
    found = {each.name: each for each in _cut(arrays, tensors)}
    _check_sums(arrays)
    return found


def _cut(arrays: Arrays, tensors: Mapping[str, int | None]) -> Iterator[Statistics]:
    first, samples = arrays["samples"].tolist()
    rows = zip(*(arrays[key].tolist() for key in _LENGTHS), strict=True)
    channel = value = number = 0
    for (name, axis), (channels, positions, kept, count) in zip(tensors.items(), rows, strict=True):
        own = slice(channel, channel + channels)
        size = channels * positions
        of_samples = slice(number, number + kept)
        _check(positions <= capacity(channels), "values")
        each = Statistics(
            name=name, axis=axis, samples=samples, count=count, first=first,
            values=arrays["values"][value : value + size].reshape(channels, positions),
            **{key: arrays[key][own] for key in _FLAT},
            **{key: arrays[key][of_samples] for key in _OF_SAMPLES},
        )  # fmt: skip
        _check_one(each)
        yield each
        channel, value, number = channel + channels, value + size, number + kept


def _check_one(each: Statistics) -> None:
    seconds = (each.second_lows, each.second_highs)
    finite = (each.lows, each.highs, *seconds, each.means, each.squares, each.values)
    _check(all(bool(np.isfinite(array).all()) for array in finite), "finite")
    _check(bool((each.lows <= each.highs).all()), "extremes")
    _check(int(each.widths.sum()) == each.values.shape[1], "widths")
    own = (each.numbers >= each.first) & (each.numbers < each.first + each.samples)
    _check(bool(own.all()), "numbers")


def _check_sums(arrays: Arrays) -> None:
    """Raise ValueError if the size of an array is not the sum over its tensors."""
    channels = int(arrays["channels"].sum())
    _check(all(arrays[key].size == channels for key in _FLAT), "channels")
    values = int((arrays["channels"] * arrays["positions"]).sum())
    _check(arrays["values"].size == values, "values")
    _check(all(arrays[key].size == int(arrays["kept"].sum()) for key in _OF_SAMPLES), "kept")


def _check(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(f"{what} are not what they should be")
