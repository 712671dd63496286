"""Unknown limits of a model that has changed since it was checked."""

from __future__ import annotations

from loud_nets import CHANNELS, loud
from npuconv.config import Options
from npuconv.diagnostics import Status
from npuconv.model import query
from npuconv.passes import Phase, _manager
from npuconv.pipeline.legalize import Legalized, legalize
from npuconv.pipeline.precision.renewed import CODE, renew_needs
from npuconv.rules import RULES

AGAIN = (*range(CHANNELS), 5, 5)


def widened(options: Options | None = None) -> Legalized:
    work = legalize(loud("Relu"), options or Options())
    work.ctx.plan, work.ctx.again = work.plan, {"made": AGAIN}
    _manager.run_phase(work.model, Phase.REPEAT, work.ctx)
    return work


def needed(work: Legalized, name: str) -> tuple[int, ...]:
    return next(need.values for need in work.needs if need.name == name)


def test_the_values_are_those_of_the_model_as_it_is():
    """In the list, and in the findings; nothing else is lost or there twice."""
    work = widened()
    before = [(f.code, f.status) for f in work.findings]
    assert needed(work, "Conv.in_c") == (3, 32)
    renew_needs(work)
    assert needed(work, "Conv.in_c") == (3, 34)
    assert [(f.code, f.status) for f in work.findings] == before
    texts = [f.value for f in work.every if f.code == CODE and "Conv.in_c" in f.message]
    assert texts == ["3, 34"]
    assert {query.shape(t)[1] for n in work.model.nodes("Relu") for t in n.outputs} == {34}


def test_as_the_user_has_it():
    """Unknown limits that pass are not mentioned, and those that fail are errors, as before."""
    for unknown in ("pass", "fail"):
        work = widened(Options(unknown=unknown))
        before = [(f.code, f.severity) for f in work.findings]
        renew_needs(work)
        assert [(f.code, f.severity) for f in work.findings] == before


def test_the_code_is_that_of_the_rule():
    """And all that it says is unknown."""
    assert next(rule.name for rule in RULES if rule.code == CODE) == "limit-unknown"
    found = [f for f in legalize(loud("Relu"), Options()).every if f.code == CODE]
    assert found
    assert all(f.status == Status.UNKNOWN for f in found)
