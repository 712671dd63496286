"""Value of an unquoted YAML word: stricter than YAML 1.1, and with ``1e-3``."""

from __future__ import annotations

import math
import re

Scalar = bool | int | float | str | None

_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_PADDED = re.compile(r"[-+]?0[0-9_]+")
_BASED = re.compile(r"0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_CONSTANTS: dict[str, Scalar] = {"true": True, "false": False}
_CONSTANTS |= dict.fromkeys(("", "~", "null", "Null", "NULL"))
_CONSTANTS |= {".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf, ".nan": math.nan}
_NOT_BOOLEANS = {"yes", "no", "on", "off", "true", "false"}  # in any other case than true, false


def plain(text: str) -> Scalar:
    """The value of an unquoted word.

    Raises:
        ValueError: it means different things to different readers of YAML.
    """
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text.lower() in _NOT_BOOLEANS:
        raise ValueError(f"write true or false, or quote {text!r} to mean the text")
    if _PADDED.fullmatch(text):
        raise ValueError(f"{text} has a leading zero; drop it, or quote it to mean the text")
    if _INT.fullmatch(text) or _BASED.fullmatch(text):
        return _integer(text)
    return _real(text) if _FLOAT.fullmatch(text) else text


def _integer(text: str) -> int:
    if len(text) > 40:  # int() refuses thousands of digits with a message of its own
        raise ValueError("the number is too large")
    return int(text, 0)


def _real(text: str) -> float:
    if math.isinf(value := float(text)):
        raise ValueError("the number is too large")
    return value
