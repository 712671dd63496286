"""Wrapping, eliding and tables of the text output."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies
from rich.cells import cell_len

from npuconv.report.escape import elide
from npuconv.report.sections import Item, Note, Section, Table
from npuconv.report.terminal import hang, render


def lines_of(*parts, width=60, **section):
    """Return the lines of one section."""
    return render([Section("", parts, **section)], width=width).splitlines()


@pytest.mark.parametrize("width", [5, 6, 10, 11])
def test_elide_keeps_both_ends(width: int) -> None:
    """An elided name fits, and keeps its first and last characters, wide ones too."""
    for name in ("abcdefghijklmnop", "层" * 20):
        short = elide(name, width)
        assert cell_len(short) <= width
        assert "..." in short
        assert short.endswith(name[-1])


@given(strategies.text(max_size=60), strategies.integers(5, 30))
def test_any_text_fits_and_is_harmless(name: str, width: int) -> None:
    """Whatever a name holds, its lines fit, show every character, and begin no command."""
    lines = hang(name, width)
    assert all(cell_len(line) <= width and line.isprintable() for line in lines)
    assert not [line for line in lines if line.startswith("::")]


@given(strategies.text(max_size=99), strategies.sampled_from([(), (0,), (1,)]))
def test_any_table_fits_and_is_harmless(name: str, columns: tuple[int, ...]) -> None:
    """The same for the cells of a table, whether names or texts."""
    lines = lines_of(Table(("a", "b"), [(name, name)], names=columns))
    assert all(cell_len(line) <= 60 and line.isprintable() for line in lines)
    assert not [line for line in lines if line.strip().startswith("::")]


def test_wrap_of_nothing() -> None:
    """A blank text takes no line."""
    assert hang("  ", 10) == []
    assert render([Section("")]) == ""


def test_a_long_name_loses_its_middle_and_a_long_text_is_wrapped() -> None:
    """A name takes one line of a table; a text as many as it needs."""
    long = "/".join(["block"] * 9)
    lines = lines_of(Table(("node", "text"), [(f"{long}/conv", "many words " * 5)], names=(0,)))
    assert lines[1].startswith("  block/bl")
    assert "/conv" in lines[1]
    assert " ".join(lines[1:]).count("many") == 5
    assert max(map(cell_len, lines)) <= 60


def test_numbers_are_flush_right_and_whole() -> None:
    """A column of numbers is not wrapped."""
    head, row = ("name", "MACs"), ("name" * 30, "1,000,000 unknown")
    lines = lines_of(Table(head, [row], (1,)))
    assert [line[-4:] for line in lines] == ["MACs", "nown"]


def test_colour_of_a_cell() -> None:
    """The first word of a cell decides its colour."""
    table = Table(("", "verdict"), [("a", "open 3"), ("b", "takes")], styles={"open": "yellow"})
    shown = render([Section("", [table])], color=True)
    assert "\x1b[33mopen 3\x1b[0m" in shown
    assert "\x1b[33mtakes" not in shown


def test_labels_are_aligned() -> None:
    """The texts behind all labels of a section begin in one column."""
    shown = lines_of(Note("fix:", ["a", "b"]), Note("source:", ["c"]))
    assert shown == ["  fix:    a", "          b", "  source: c"]


def test_texts_on_nodes() -> None:
    """One text stands behind its node, several below it; several nodes stand below their text."""
    assert lines_of(Item(["a"], ["x"], "Conv")) == ["  a (Conv): x"]
    assert lines_of(Item([""], ["x"])) == ["  the model: x"]
    assert lines_of(Item(["a"], ["x", "y"])) == ["  a:", "    x", "    y"]
    assert lines_of(Item(["a", "b"], ["x"], "Conv")) == [
        "  Conv: x (x 2)",
        "    a",
        "    b",
    ]
