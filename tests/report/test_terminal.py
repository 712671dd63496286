"""Wrapping, eliding and tables of the text output."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies

from npuconv.report.escape import plain
from npuconv.report.terminal import View, cells, elide, wrap


@pytest.mark.parametrize("width", [5, 6, 10, 11])
def test_elide_keeps_both_ends(width: int) -> None:
    """An elided name fits, and keeps its first and last characters, wide ones too."""
    for name in ("abcdefghijklmnop", "层" * 20):
        short = elide(name, width)
        assert cells(short) <= width
        assert "..." in short
        assert short.endswith(name[-1])


@given(strategies.text(max_size=60), strategies.integers(5, 30))
def test_any_text_fits_and_is_harmless(name: str, width: int) -> None:
    """Whatever a name holds, its lines fit, show every character, and begin no command."""
    lines = wrap(plain(name), width)
    assert all(cells(line) <= width and line.isprintable() for line in lines)
    assert not [line for line in lines if line.startswith("::")]


def test_wrap_of_nothing() -> None:
    """A blank text takes no line."""
    assert wrap("  ", 10) == []


def test_narrow_table_does_not_loop() -> None:
    """A table that cannot fit is still written."""
    assert len(View(False, 8).table(("a", "b"), [("x" * 9, "y" * 9)])) > 1


def test_whole_columns_are_not_shortened_first() -> None:
    """The words of a whole column are not elided while others can wrap."""
    lines = View(False, 50).table(
        ("pass", "text"), [("rewrite-conv-transpose", "many words " * 5)], whole=(0,)
    )
    assert "rewrite-conv-transpose" in lines[1]
    assert max(map(cells, lines)) <= 50
    narrow = View(False, 30).table(("pass", "text"), [("x" * 60, "many words")], whole=(0,))
    assert max(map(cells, narrow)) <= 30
