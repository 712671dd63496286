"""Text with code in backticks."""

from __future__ import annotations

import pytest

from npuconv.report.html_text import as_code


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("use `--unknown pass`", "use <code>--unknown pass</code>"),
        ("`a` and `b`", "<code>a</code> and <code>b</code>"),
        ("one ` alone", "one ` alone"),
        ("`<script>`", "<code>&lt;script&gt;</code>"),
        ("<b>`x`</b>", "&lt;b&gt;<code>x</code>&lt;/b&gt;"),
    ],
)
def test_backticks_are_code(text, wanted):
    """Text in backticks is code; all else is escaped."""
    assert str(as_code(text)) == wanted


def test_hidden_characters_are_visible():
    """A character that acts on the page becomes its escape."""
    assert "\u202e" not in as_code("`\u202eevil`")
