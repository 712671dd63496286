"""Sizes and durations as people write them: ``4GiB``, ``512MB``, ``90``, ``10m``."""

from __future__ import annotations

import math
import re

_SIZES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_SIZES |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_SECONDS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)")


def size(text: object) -> int:
    """Bytes of ``4GiB`` or ``512MB``; a bare number is bytes.

    Raises:
        ValueError: it is no size, or not above 0.
    """
    return max(1, round(_quantity(text, _SIZES, "a size such as 512MiB or 4GiB")))


def seconds(text: object) -> float:
    """Seconds of ``90``, ``90s``, ``10m`` or ``2h``.

    Raises:
        ValueError: it is no duration, or not above 0.
    """
    return _quantity(text, _SECONDS, "a duration such as 90, 10m or 2h")


def shown_size(number: int) -> str:
    """Bytes for people, in the largest unit that leaves a number above 1."""
    value, unit = float(number), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.4g} {unit}"


def shown_seconds(number: float) -> str:
    """A duration for people."""
    return f"{number:g} s"


def _quantity(given: object, units: dict[str, int], wanted: str) -> float:
    # True is a number to Python, and no size to anybody.
    text = "" if isinstance(given, bool) else str(given).strip().lower()
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2] not in units:
        raise ValueError(f"{given!r} is not {wanted}")
    value = float(match[1]) * units[match[2]]
    if not 0 < value < math.inf:
        raise ValueError(f"{given!r} must be above 0")
    return value
