"""What samples foretell of new ones, each by the ranges that all others would have made."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from npuconv.calibration.reaches import reaches
from npuconv.pipeline.ranges import foresight
from npuconv.pipeline.ranges.foresight import Foresight
from npuconv.samples import Samples
from uneven_samples import COUNT, pictures, prepared


def foresee(case: SimpleNamespace, samples, stats=None) -> Foresight:
    given = Samples(samples.__getitem__, tuple(range(len(samples))), "made")
    return Foresight(
        case.work, case.chosen, case.proto, case.stats if stats is None else stats, given
    )


@pytest.fixture(scope="module")
def uneven() -> SimpleNamespace:
    return prepared(pictures(COUNT, 0))


def test_ranges_that_new_samples_would_exceed(uneven):
    """The input whose channels differ by sample, and what is made of it; not the even one."""
    found = foresee(uneven, pictures(COUNT, 0)).rooms()
    groups = {name: group.name for group in uneven.work.plan.groups for name in group.tensors}
    assert set(found) & {groups["x"], groups["made"]}
    assert groups["other"] not in found
    assert all(one.factor > 1 and one.saved > 0 for one in found.values())


def test_nothing_is_lost(uneven):
    """All samples are the same one: each range is made by others as well."""
    assert foresee(uneven, pictures(1, 0) * COUNT).rooms() == {}


def without(stats):
    return {name: one for name, one in stats.items() if name != "made"}


def of_all_channels_together(stats):
    one = stats["made"]
    return stats | {"made": replace(one, lows=one.lows[:1], highs=one.highs[:1])}


@pytest.mark.parametrize("change", [without, of_all_channels_together])
def test_channels_that_no_statistics_tell_of(uneven, change, monkeypatch):
    """What these samples show of them counts, and nothing of a range is others' doing."""
    samples = pictures(COUNT, 0)
    monkeypatch.setattr(foresight, "SAVED", 0.0)
    found = foresee(uneven, samples, change(uneven.stats)).rooms()
    assert found["made"].factor >= foresee(uneven, samples).rooms()["made"].factor


def test_large_inputs(uneven, monkeypatch):
    """Fewer samples are held at once; those that are not still have made the ranges."""
    monkeypatch.setattr(foresight, "VALUES", 1)
    seen = []

    def counted(model, axes, feeds):
        seen.append(len(feeds))
        return reaches(model, axes, feeds)

    monkeypatch.setattr(foresight, "reaches", counted)
    foresee(uneven, pictures(COUNT, 0)).rooms()
    assert seen == [foresight.FEWEST]


def test_little_that_could_be_saved(uneven, monkeypatch):
    """Ranges are not changed for it."""
    monkeypatch.setattr(foresight, "SAVED", 1.0)
    assert foresee(uneven, pictures(COUNT, 0)).rooms() == {}
