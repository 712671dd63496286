"""Names from a model are untrusted: what must not reach a terminal, a log or a document."""

from __future__ import annotations

import re

# What CI systems read as commands: "::error::" where a line begins, "##[error]" and
# "##vso[...]" and "##teamcity[...]" anywhere.
_COMMAND = re.compile(r"(?<!\S)::|##(?=\w*\[)")


def is_hidden(char: str) -> bool:
    """True for a character that acts on the reader's screen, or shows as nothing.

    These are controls (ANSI sequences begin with one), bidi overrides, line separators, lone
    surrogates, which UTF-8 cannot hold, what XML forbids, and every blank but the space.
    """
    return not char.isprintable()


def visible(text: str) -> str:
    r"""The text on one line, with every control or invisible character as ``\xNN``."""
    if text.isprintable():
        return text
    return "".join(_code(char) if is_hidden(char) else char for char in text)


def plain(text: str) -> str:
    """Return ``visible`` text in which also the commands of CI systems are escaped."""
    return _COMMAND.sub(lambda hit: _code(hit[0][0]) + hit[0][1:], visible(text))


def shortened(text: str, most: int) -> str:
    """The text with its middle left out, where it is longer than anybody reads."""
    if len(text) <= most:
        return text
    return f"{text[: most * 2 // 3]} ... {text[-most // 3 :]}"


def _code(char: str) -> str:
    point = ord(char)
    if point <= 0xFF:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point <= 0xFFFF else f"\\U{point:08x}"
