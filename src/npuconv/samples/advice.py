"""Hints for error messages about arrays that do not fit."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence

from npuconv.samples.feeds import InputSpec, matches

_TO_FIRST, _TO_LAST = (0, 3, 1, 2), (0, 2, 3, 1)


def on_shape(shape: tuple[int, ...], spec: InputSpec, *, complete: bool) -> str:
    """Return a hint on how to make an array of another shape fit.

    Args:
        shape: of the array.
        spec: the input it is for.
        complete: the array is to be one complete input, not samples one after the other.
    """
    lengths = spec.lengths
    for order in (_TO_FIRST, _TO_LAST):
        if len(shape) == len(lengths) == len(order) and matches(
            tuple(shape[k] for k in order)[1:], lengths[1:]
        ):
            last = "last" if order is _TO_FIRST else "first"
            axes = ", ".join(map(str, order))
            return f"its channels come {last}: give x.transpose({axes})"
    if len(shape) == len(lengths) - 1 and matches(shape, lengths[1:]):
        return "one sample without a batch axis: give x[None]"
    if complete:
        return "each dict is one complete input; many samples go into one dict of arrays"
    return _on_extents(shape, lengths)


def _on_extents(shape: tuple[int, ...], lengths: tuple[int | None, ...]) -> str:
    each = [n for n in lengths[1:] if n is not None]
    known = len(each) == len(lengths) - 1 and bool(each)
    deeper = len(shape) > len(lengths) and matches(shape[1 - len(lengths) :], lengths[1:])
    if known and (deeper or math.prod(shape[1:]) == math.prod(each)):
        return f"give x.reshape(-1, {', '.join(map(str, each))})"
    return "the first axis counts samples"


def on_name(missing: Sequence[str], found: Sequence[str], unnamed: str) -> str:
    """Return a hint on how to name the arrays that are there."""
    if list(found) == [unnamed]:
        each = ", ".join(f"{name}=..." for name in missing)
        kept = all(name.isidentifier() for name in missing)
        return f"save them by name: np.savez(file, {each if kept else '**{name: array}'})"
    close = difflib.get_close_matches(missing[0], found, n=1, cutoff=0.5)
    if close:
        return f"rename {close[0]!r} to {missing[0]!r}"
    return "name the arrays like the model's inputs"


def on_kind(value: object, names: Sequence[str]) -> str:
    """Return a hint on what to give in place of a value that is no dict of arrays."""
    if isinstance(value, str):
        return "paths of images go into a directory, or into a .txt file that lists them"
    shown = ", ".join(f"{name!r}: array" for name in names)
    return f"give {{{shown}}} for each sample, or one such dict of all samples"
