"""Ranges that lose nothing."""

from __future__ import annotations

import numpy as np
import pytest

from asserts import builtin, read
from builders import Net
from npuconv.plan import make_plan
from npuconv.plan.channels import trace
from npuconv.quant.encoding import scales_for
from npuconv.quant.grid import Grid
from npuconv.tuning.scales.demands import demands
from npuconv.tuning.scales.search import choose
from plans import watch

X = np.random.default_rng(2).integers(-40, 200, (40, 1, 3, 8, 8)).astype(np.float32)


def of(grid: Grid | None, x=X, **attrs):
    """The demand of the input, given its grid."""
    model = read(Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3), to="a", **attrs).model())
    plan = make_plan(model, builtin())
    channels = trace(plan, ())
    stats = watch(model, plan, channels, [{"x": one} for one in x])
    grids = {} if grid is None else {"x": grid}
    return next(d for d in demands(model, plan, channels, stats, grids=grids) if d.name == "x")


def grid(*steps: float) -> Grid:
    return Grid(np.asarray(steps), np.zeros(3))


def test_channels_on_a_grid():
    """Their range has 256 levels, one to a step; the others keep theirs."""
    found = of(grid(1, 0, 1))
    assert found.exact is not None
    lows, highs = found.exact
    np.testing.assert_allclose((highs - lows)[[0, 2]], 255)
    assert (lows[1], highs[1]) == (found.lows[1], found.highs[1])
    scales, zeros = scales_for(lows, highs, np.zeros(3, bool))
    assert scales[[0, 2]].tolist() == [1, 1]
    assert np.all(-128 - zeros[[0, 2]] <= -40)


def test_it_is_chosen():
    """It makes no error, so nothing is better."""
    found = of(grid(1, 1, 1))
    choice = choose(found, "auto")
    assert choice.method == "exact"
    np.testing.assert_array_equal(choice.scales, 1)


@pytest.mark.parametrize("method", ["minmax", "percentile", "entropy", "mse"])
def test_a_method_that_was_asked_for_stays(method):
    """It chooses all ranges."""
    assert choose(of(grid(1, 1, 1)), method).method.startswith(method)


@pytest.mark.parametrize(
    ("one", "x", "attrs"),
    [
        (None, X, {}),
        (grid(1, 1, 1), X, {"pads": [1] * 4}),
        (grid(1, 1, 1), X + 0.3, {}),
        (grid(1, 1, 1), 2 * X, {}),
        (grid(0, 0, 0), X, {}),
        (Grid(np.ones(1), np.zeros(1)), X, {}),
    ],
    ids=["none", "padded", "off", "too-many-levels", "no-step", "other-channels"],
)
def test_none(one, x, attrs):
    """Nothing is promised that does not hold."""
    assert of(one, x, **attrs).exact is None
