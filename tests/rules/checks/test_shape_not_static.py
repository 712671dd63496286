"""Tests of shape-not-static."""

from __future__ import annotations

from support.asserts import finding
from support.builders import Net
from support.target_files import chip

CODE = "SHP021"
STATIC = chip(also={"static": True})


def conv(*extents: int | str):
    return Net(x=extents or ("N", 3, 8, 8)).conv("x", (4, 3, 3, 3)).model()


FIRES = [(conv, STATIC), (lambda: conv(1, 3, "H", 8), STATIC)]
SILENT = [conv, (lambda: conv(1, 3, 8, 8), STATIC)]


def test_an_open_batch_is_one():
    """Any other extent is left to the user."""
    batch, height = finding(conv(), CODE, STATIC), finding(conv("N", 3, "H", 8), CODE, STATIC)
    assert batch.message == "input x is N x 3 x 8 x 8; the compiler for chip reads numbers only"
    assert batch.fix == "give --input-shape x=1,3,8,8"
    assert height.fix == "give --input-shape x=1,3,?,8 with numbers for every ?"
