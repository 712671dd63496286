"""Numbers with their nouns and units, the same in every message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def count(number: int, noun: str) -> str:
    """Return number and noun: ``1 node``, ``3 nodes``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def total(numbers: Iterable[int | None]) -> int | None:
    """Return the sum; ``None`` if any number is unknown."""
    listed = list(numbers)
    return None if None in listed else sum(number or 0 for number in listed)


def size(number: int | None) -> str:
    """Return a number of bytes with its unit: ``4.6 KiB``."""
    return "unknown" if number is None else in_units(number, 1024, (" B", " KiB", " MiB", " GiB"))


def in_units(number: int, step: int, units: Sequence[str]) -> str:
    """Return a number in the first unit in which it is below ``step``, else in the last."""
    value, power = float(number), 0
    while value >= step - 0.05 and power < len(units) - 1:
        value, power = value / step, power + 1
    return f"{value:.1f}{units[power]}" if power else f"{number}{units[0]}"
