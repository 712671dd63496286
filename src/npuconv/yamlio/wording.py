"""Plain words for the messages of PyYAML on invalid files."""

from __future__ import annotations

import re

_SAID = (
    (r"found character '\\t'", "a tab: YAML is indented with blanks only"),
    ("unexpected end of stream", "this quote is never closed"),
    ("found character '([@`%])'", r"text that begins with \1 needs quotes"),
    (
        "mapping values are not allowed here",
        "a colon that is not expected here: is the line indented as those around it, "
        "or does the text need quotes?",
    ),
    ("but got '<stream end>'", "a bracket is never closed"),
)


def plainly(problem: str) -> str:
    """The problem as people would say it; PyYAML's own words where there are none here."""
    for pattern, words in _SAID:
        if found := re.search(pattern, problem):
            return found.expand(words)
    return problem or "not valid YAML"
