"""Choosing between the forms of one convolution."""

from __future__ import annotations

from npuconv.legalize.forms import Form, choose, chosen
from npuconv.partition.costs import Cost
from support.asserts import context
from support.target_files import chip

SPLIT = Form("split", Cost(100, 100, 4), moved_bytes=50)
DENSE = Form("dense", Cost(400, 400, 1))


def pick(*forms: Form, costs: dict | None = None, **options) -> str:
    target = chip(also={"costs": costs} if costs else {})
    found = chosen(choose(target, context(**options).options, forms))
    return found.name if found else ""


def test_the_cheaper_form_is_taken():
    """The weights of the target decide the cheaper form."""
    assert pick(SPLIT, DENSE) == "split"
    assert pick(DENSE, SPLIT) == "split"
    assert pick(SPLIT, DENSE, costs={"convolution": 1000}) == "dense"
    assert pick(SPLIT, DENSE, costs={"moved_byte": 100}) == "dense"


def test_preferred_forms_win_if_they_are_legal():
    """Cost does not matter then, an obstacle does."""
    assert pick(SPLIT, DENSE, prefer=("dense",)) == "dense"
    assert pick(SPLIT, Form("dense", DENSE.cost, obstacle="no"), prefer=("dense",)) == "split"
    assert pick(SPLIT, DENSE, prefer=("zero-insertion",)) == "split"


def test_nothing_is_taken_where_nothing_is_legal():
    """All forms come back, none marked."""
    forms = [Form("split", SPLIT.cost, obstacle="no")]
    assert pick(*forms) == ""
    assert choose(chip(), context().options, forms) == tuple(forms)


def test_unknown_costs_leave_the_order():
    """A dynamic extent: nothing can be told, so the first is taken."""
    unknown = Cost(None, 1)
    assert pick(Form("split", unknown), Form("dense", unknown)) == "split"
    assert Form("split", unknown).total(chip()) is None
