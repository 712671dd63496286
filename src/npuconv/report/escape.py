"""Escaping of untrusted text, such as names in a model, for terminals, logs and documents."""

from __future__ import annotations

import re

from rich.cells import cell_len, set_cell_size

# Commands of CI systems: "::error::" at the beginning of a line, "##[error]", "##vso[...]" and
# "##teamcity[...]" anywhere.
_COMMAND = re.compile(r"(?<!\S)::|##(?=\w*\[)")


def is_hidden(char: str) -> bool:
    """Return True for a character that acts on a terminal, or that is invisible.

    These are control characters (as at the beginning of ANSI sequences), bidi overrides, line
    separators, lone surrogates, characters that XML forbids, and every blank but the space.
    """
    return not char.isprintable()


def visible(text: str) -> str:
    r"""Return the text on one line, with every control or invisible character as ``\xNN``."""
    if text.isprintable():
        return text
    return "".join(_code(char) if is_hidden(char) else char for char in text)


def plain(text: str) -> str:
    """Return ``visible`` text in which also the commands of CI systems are escaped."""
    return _COMMAND.sub(lambda hit: _code(hit[0][0]) + hit[0][1:], visible(text))


def shortened(text: str, length: int) -> str:
    """Return the text with its middle left out if it is longer than ``length`` characters."""
    if len(text) <= length:
        return text
    return f"{text[: length * 2 // 3]} ... {text[-length // 3 :]}"


def elide(text: str, width: int) -> str:
    """Return the text with its middle left out if it is too wide; at least 5 columns."""
    if cell_len(text) <= width:
        return text
    room = max(width - 3, 2)
    end = set_cell_size(text[::-1], room - room // 3).rstrip()[::-1]
    return f"{set_cell_size(text, room - cell_len(end)).rstrip()}...{end}"


def _code(char: str) -> str:
    point = ord(char)
    if point <= 0xFF:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point <= 0xFFFF else f"\\U{point:08x}"
