"""Which channels are offered one by one."""

from __future__ import annotations

import numpy as np
import pytest

import npuconv
from asserts import builtin, context, read
from builders import Net
from loud_nets import CHANNELS, LOUD, loud, pictures
from npuconv.pipeline.precision import budget
from npuconv.pipeline.precision.market import Market
from npuconv.pipeline.precision.offers import limits
from npuconv.plan import make_plan


def opened(proto, **options) -> Market:
    """What there is to buy of a model."""
    found: list[Market] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "spend_most", found.append)
        npuconv.convert(proto, calibration={"x": pictures()}, max_extra_macs=10, **options)
    return found[0]


@pytest.mark.parametrize("between", ["Relu", "HardSwish"])
def test_the_loud_one_is_worth_most(between):
    """Of what the first layer makes; what the image is stored with is no noise at all."""
    offers = {one.tensor: one for one in opened(loud(between)).shop.offers}
    assert "x" not in offers
    shares = [share for _, share in offers["made"].noise]
    assert all(int(share.argmax()) == LOUD for share in shares)
    assert all(0.2 < share[LOUD] <= 1 for share in shares)
    assert all(0 <= share.sum() <= 1 + 1e-9 for share in shares)


def test_who_makes_and_who_reads():
    """On the device both; where the host is between, each of them has its own tensor."""
    (inner,) = opened(loud("Relu")).shop.offers
    assert (inner.channels, inner.rows, inner.columns) == (CHANNELS, ("first",), ("mixed",))
    parts = {one.tensor: one for one in opened(loud("HardSwish")).shop.offers}
    assert parts["made"].rows == ("first",)
    assert parts["made"].columns == ()
    (read,) = (one for one in parts.values() if one.columns)
    assert (read.rows, read.columns) == ((), ("mixed",))


def test_what_stays_float_is_not_offered():
    """Nor are channels that it would have to have."""
    for one in opened(loud("Relu"), keep_float=("mixed",)).shop.offers:
        assert "mixed" not in (*one.rows, *one.columns)


def test_a_model_without_noise_offers_nothing():
    """Where all numbers are whole steps."""
    proto = loud("Relu")
    for tensor in proto.graph.initializer:
        values = np.zeros(tuple(tensor.dims), np.float32)
        tensor.raw_data = values.tobytes()
    assert opened(proto).shop.offers == []


def test_the_target_says_how_large_layers_may_be(tmp_path):
    """Rows and columns are those beyond what there is."""
    path = tmp_path / "chip.yaml"
    path.write_text(
        "schema: 1\nname: narrow\nunlisted_operators: host\n"
        "operators: {Conv: {limits: {in_c: {max: 34}, weight_n: {max: 33}}}}\n"
        "activations: {dtype: int8, zero_point: [0], granularity: tensor}\n"
        "weights: {dtype: int8, symmetric: true, granularity: channel}\n"
    )
    fits = opened(loud("Relu"), target=str(path)).shop.fits
    assert [fits("first", rows, 0) for rows in (0, 1, 2)] == [True, True, False]
    assert [fits("mixed", 0, columns) for columns in (1, 2, 3)] == [True, True, False]


def test_layers_that_read_one_by_one_grow_in_both():
    """A depthwise convolution has as many groups as channels."""
    net = Net(x=(1, 8, 6, 6)).conv("x", (8, 1, 3, 3), group=8, name="deep")
    model, ctx = read(net.model()), context()
    plan = make_plan(model, builtin())

    class Work:
        """As much of it as is asked for."""

    work = Work()
    work.ctx, seen = ctx, []
    ctx.objections = lambda win: seen.append(win) or []
    assert limits(work, plan.device)("deep", 2, 0)
    (win,) = seen
    assert (win.in_channels, win.out_channels, win.group, win.mode) == (10, 10, 10, "depthwise")
    assert win.input[1] == win.output[1] == 10
