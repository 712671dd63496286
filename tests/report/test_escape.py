"""Escaping of untrusted text."""

from __future__ import annotations

from npuconv.report.escape import plain, shortened, visible


def test_hidden_characters_become_visible() -> None:
    """Controls, bidi overrides, line separators and noncharacters are escaped."""
    assert visible("a\x1b\u202e\U000e0001\ufffe") == r"a\x1b\u202e\U000e0001\ufffe"
    assert visible("层/卷积 é") == "层/卷积 é"


def test_ci_commands_are_defused() -> None:
    """Commands of CI systems are escaped; a C++ name is not."""
    assert plain("::error::x ##[group] aten::conv") == r"\x3a:error::x \x23#[group] aten::conv"


def test_shortened() -> None:
    """A shortened text keeps both ends."""
    assert shortened("abc", 3) == "abc"
    assert shortened("a" * 50 + "b" * 50, 12) == "aaaaaaaa ... bbbb"
