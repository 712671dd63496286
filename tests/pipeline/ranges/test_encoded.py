"""How every int8 tensor is stored, and what larger ranges change of that."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from npuconv.config import Options
from npuconv.pipeline.ranges.encoded import encoded, enlarged, per_tensor, shared
from uneven_samples import CHANNELS, pictures, prepared


@pytest.fixture(scope="module")
def case() -> SimpleNamespace:
    return prepared(pictures(4, 0))


def larger(case: SimpleNamespace, factor: float):
    name = next(group.name for group in case.work.plan.groups if "x" in group.tensors)
    return enlarged(case.work, case.stats, case.moments, {name: factor}, "minmax").by_tensor


def test_every_tensor_in_every_way(case):
    ways = [("minmax", False), ("minmax", True)]
    bare, roomy = encoded(case.work, case.stats, case.moments, ways)
    names = {name for group in case.work.plan.groups for name in group.tensors}
    assert set(bare.by_tensor) == set(roomy.by_tensor) == names
    for name in names:
        assert (roomy.by_tensor[name].scales >= bare.by_tensor[name].scales).all()


def test_only_what_is_enlarged_is_encoded(case):
    """By the factor that was asked for, of the range that the method chooses."""
    before = encoded(case.work, case.stats, case.moments, [("minmax", False)])[0].by_tensor["x"]
    after = larger(case, 1.5)
    assert set(after) == {"x"}
    assert after["x"].scales == pytest.approx(1.5 * before.scales, rel=1e-5)


def test_scales_of_channels(case):
    """One for all where the device takes one for all weights, and where io is int8."""
    work = case.work
    assert not per_tensor(work)
    assert len(set(shared(work)[1].slots("x"))) == CHANNELS
    whole = SimpleNamespace(**{**vars(work), "options": Options(io="int8")})
    assert len(set(shared(whole)[1].slots("x"))) == 1
    weights = work.target.weights.model_copy(update={"granularity": "tensor"})
    target = work.target.model_copy(update={"weights": weights})
    coarse = SimpleNamespace(**{**vars(work), "target": target})
    assert per_tensor(coarse)
