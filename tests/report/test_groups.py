"""Groups and rows that several formats show."""

from __future__ import annotations

from collections.abc import Callable

from npuconv.report.groups import plan
from npuconv.schemas.report import Report
from report.plan_factory import choice, planned

Make = Callable[..., Report]


def test_one_form_is_no_choice(make: Make) -> None:
    """A node with a single form has no choices."""
    only = choice("split").model_copy(update={"alternatives": choice("split").alternatives[:1]})
    (group,) = plan(make(plan=(planned("a", choices=(only,)),)))
    assert group.choices == ()


def test_different_choices_are_distinguished(make: Make) -> None:
    """Nodes that become the same for different reasons show each reason."""
    rows = (planned("a"), planned("b", choices=(choice("split", obstacle="too wide"),)))
    (group,) = plan(make(plan=rows))
    assert [len(forms) for forms in group.choices] == [2, 2]


def test_unknown_macs_of_a_form(make: Make) -> None:
    """Unknown MACs of a form are shown as unknown."""
    forms = [a.model_copy(update={"macs": None}) for a in choice("dense").alternatives]
    one = choice("dense").model_copy(update={"alternatives": tuple(forms)})
    (group,) = plan(make(plan=(planned("a", choices=(one,)),)))
    assert group.choices[0][1] == "dense (chosen): MACs unknown, 37.0 KiB"
