"""Seconds of stages, and the share of a run that is done."""

import pytest

from npuconv.timings import WHOLE, Timings


def test_seconds_add_up():
    """A stage that runs twice has the seconds of both."""
    clock = Timings()
    with clock.measured("load"):
        pass
    first = clock.seconds["load"]
    with clock.measured("load"):
        pass
    clock.add("pass", 2.0)
    assert list(clock.seconds) == ["load", "pass"]
    assert clock.seconds["load"] > first
    assert clock.seconds["pass"] == 2.0


def test_shares():
    """Shares are those of the expected costs; they never shrink, and need no expectation."""
    said = []
    clock = Timings(lambda *step: said.append(step))
    with clock.measured("load"):
        clock.expect({"calibrate": 3, "skipped": 0, "compare": 1})
    for stage in ("calibrate", "notes", "compare", "calibrate"):
        with clock.measured(stage):
            clock.step(1, 3)
    assert said == [
        ("load", 0, 0),
        ("calibrate", 0, WHOLE),
        ("calibrate 1/3", 250, WHOLE),
        ("notes", 750, WHOLE),
        ("notes 1/3", 750, WHOLE),
        ("compare", 750, WHOLE),
        ("compare 1/3", 833, WHOLE),
        ("calibrate", WHOLE, WHOLE),  # again, beyond what was expected
        ("calibrate 1/3", WHOLE, WHOLE),
    ]


def test_an_error_is_no_finished_stage():
    """A stage that fails takes no seconds."""
    clock = Timings()
    with pytest.raises(ValueError, match="no"), clock.measured("load"):
        raise ValueError("no")
    assert clock.seconds == {}
