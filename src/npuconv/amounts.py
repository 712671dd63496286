"""Numbers with their nouns and units, the same in every message."""

from __future__ import annotations

from collections.abc import Iterable


def count(number: int, noun: str) -> str:
    """Return number and noun: ``1 node``, ``3 nodes``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def total(numbers: Iterable[int | None]) -> int | None:
    """Return the sum; ``None`` if any number is unknown."""
    listed = list(numbers)
    return None if None in listed else sum(number or 0 for number in listed)


def size(number: int | None) -> str:
    """Return a number of bytes with its unit: ``4.6 KiB``."""
    if number is None:
        return "unknown"
    value, units = float(number), [" B", " KiB", " MiB", " GiB"]
    while value >= 1023.95 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{number} B" if units[0] == " B" else f"{value:.1f}{units[0]}"
