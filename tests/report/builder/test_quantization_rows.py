"""Histograms over the int8 levels, ranges by channel, and rows of budgets."""

from __future__ import annotations

from functools import partial

import numpy as np

import npuconv
from npuconv import report
from npuconv.arithmetic.encoding import Encoding
from npuconv.config import Options
from npuconv.legalize.legal import legalize
from npuconv.quantize.budget import BudgetResult
from npuconv.quantize.fake_quant import QuantPoint, SquaredErrors
from npuconv.quantize.oversampling import Oversampled, Repeats
from npuconv.quantize.sensitivity import Sensitivity
from npuconv.report.builder.quantization_rows import (
    MAX_CHANNELS,
    MAX_VALUES,
    budget_report,
    channel_ranges,
    cost_of,
    level_histogram,
    tensor_levels,
)
from npuconv.schemas.quality import KeptScales
from support.builders import Net, images
from support.outlier_nets import loud
from support.quantized_nets import Quantized, operators


def encoding(scales, zeros=0):
    found = np.asarray(scales, np.float32)
    return Encoding(found, np.full(found.shape, zeros, np.int32), found.max(), axis=None)


def test_a_value_counts_where_it_rounds_to():
    """The ends of int8 are inside, what rounds beyond them is counted apart."""
    counts = level_histogram(np.asarray([-129, -128.4, -128, -120.6, -120.4, 127.4, 127.6, 900]))
    assert len(counts) == 34
    assert (counts[0], counts[1], counts[2], counts[32], counts[33]) == (1, 3, 1, 1, 2)


def test_values_that_are_not_finite_are_not_counted():
    """Infinity and NaN have no level."""
    assert sum(level_histogram(np.asarray([np.nan, np.inf, 0.0]))) == 1


def test_many_values_are_sampled():
    """A large tensor costs no more than a sample of it, spread over all of it."""
    counts = level_histogram(np.linspace(-128, 127, 3 * MAX_VALUES + 5))
    assert MAX_VALUES / 2 < sum(counts) <= MAX_VALUES
    assert max(counts[1:-1]) < 1.2 * min(counts[1:-1])


def test_levels_of_channels():
    """Every channel is divided by its own scale."""
    values = np.asarray([[1.0, 2.0], [10.0, 20.0]], np.float32)
    levels = tensor_levels(values, encoding([0.1, 1.0], zeros=-5))
    assert np.allclose(levels, [[5, 15], [5, 15]])


def test_the_widest_channel_is_first():
    """Both ends of many channels and those between them are listed."""
    highs = np.arange(1, 101, dtype=np.float32)
    rows = channel_ranges(-highs, highs, encoding([0.5]))
    assert len(rows) == MAX_CHANNELS
    assert (rows[0].channel, rows[-1].channel) == (99, 0)
    assert (rows[0].minimum, rows[0].lowest, rows[0].highest) == (-100.0, -64.0, 63.5)
    assert channel_ranges(highs[:1], highs[:1], encoding([0.5])) == ()


def test_a_conversion_reports_them():
    """Tensors and weights of a converted model have a histogram of their values."""
    model = Net(x=("N", 3, 8, 8)).conv("x", (4, 3, 3, 3)).model()
    quant = npuconv.convert(model, calibration={"x": images(4, 3, 8, 8)}).report.quantization
    assert quant is not None
    assert all(sum(one.histogram) > 0 for one in quant.tensors)
    assert {len(one.channel_ranges) for one in quant.tensors} == {3, 4}
    weights = quant.layers[0].weights
    assert weights is not None
    assert sum(weights.histogram) == 4 * 3 * 3 * 3


def split(**options):
    """A chain whose second layer reads twice the channels that are taken."""
    net = Net(x=("N", 4, 8, 8)).conv("x", (8, 4, 1, 1)).conv("", (4, 8, 1, 1))
    given = {"calibration": {"x": images(4, 4, 8, 8)}, "assume": ["in_c=4"], **options}
    return npuconv.convert(net.model(), **given).report


def test_partial_sums_are_named_with_their_cost():
    """All formats name the layer that is split, and by how much rounding its sums costs."""
    made = split()
    sums = made.quantization.partial_sums
    (layer,) = sums.layers
    assert layer.tensors == 2
    assert layer.cost_db == sums.cost_db > 0
    line = f"2 partial sums of 1 layer rounded to int8: about {sums.cost_db:.1f} dB"
    for kind in ("text", "markdown", "html"):
        shown = " ".join(report.render(made, kind).split())
        assert line in shown
        assert layer.node in shown


def test_more_of_the_error_costs_more():
    """The cost is of the error that is there without them: halves of it are 3 dB."""
    point = partial(QuantPoint, tensor="t")
    points = (point("a", "weights"), point("a", "output"), point("b", "output"))
    errors = Sensitivity(points, tuple(np.asarray([power]) for power in (1.0, 2.0, 1.0)))
    assert [cost_of(errors, names) for names in ("a", "b", "")] == [3.01, 1.25, 0.0]
    assert cost_of(None, "a") is None


def test_what_is_not_rounded_is_no_partial_sum():
    """Other layers in parts have none."""
    assert split(assume=["weight_n=4"]).quantization.partial_sums is None


def padded(count: int = 1):
    """Convolutions on the device that pad one-sided tensors of the device."""
    net = Quantized(x=(1, 3, 8, 8)).fake(0.03)
    net.qdq_conv((4, 3, 1, 1), 0.002).fake(0.02, -128)
    for _ in range(count):
        net.qdq_conv((4, 4, 3, 3), 0.002, pads=[1] * 4).fake(0.02, -128)
    return net.model()


def found(proto, **options) -> KeptScales | None:
    made = npuconv.convert(proto, verify=False, without=["host-padding"], **options).report
    return made.quantization.source_scales


def test_a_float_model_has_none():
    """A float model brings no scales to keep."""
    assert found(Net(x=(1, 3, 8, 8)).conv("x").model()) is None


def test_a_padded_tensor_is_named_with_its_step():
    """The row says how much coarser the scale is, and why."""
    rows = found(padded())
    assert rows is not None
    (changed,) = rows.changed
    assert changed.reason == (
        "the device pads it with the integer 0: zero point -128 becomes 0, "
        "steps are 2.01 times as large"
    )
    assert (rows.layers, rows.all_layers) == (2, 2)
    assert 0 < rows.tensors < rows.all_tensors


def test_every_format_shows_it():
    """Each names all tensors and layers whose integers change."""
    made = npuconv.convert(padded(10), verify=False, without=["host-padding"]).report
    counted = made.quantization.source_scales
    assert len(counted.changed) == 10
    line = f"scales kept of {counted.tensors} of {counted.all_tensors} tensors"
    shown = {kind: report.render(made, kind) for kind in ("text", "markdown", "html")}
    assert all(line in " ".join(text.split()) for text in shown.values())
    counts = {kind: shown[kind].count("the device pads it") for kind in ("text", "markdown")}
    assert counts == {"text": 10, "markdown": 10}


def test_a_whole_model_needs_no_list():
    """Only the counts."""
    text = report.render(npuconv.convert(operators(), verify=False).report, "text")
    assert "scales kept of 8 of 8 tensors" in " ".join(text.split())


def test_a_moved_zero_point_is_named_with_what_is_not_cut_off():
    """Steps stay; the range of the source ended earlier."""
    net = Quantized(x=(1, 3, 8, 8)).fake(0.03)
    net.qdq_conv((4, 3, 1, 1), 0.002).op("Relu")
    rows = found(net.fake(0.02, -28).model())
    assert rows is not None
    (changed,) = rows.changed
    assert changed.reason.endswith(
        "zero point -28 becomes -128, and values above 3.1 are no longer cut off"
    )


def rows(repeats: Repeats, after: float = 0.5, **options: object):
    """Return the rows of a network of two layers."""
    legal = legalize(loud("HardSwish"), Options(**options))
    noise = SquaredErrors((1.0,), (100.0,)), SquaredErrors((after,), (100.0,))
    costs = dict.fromkeys(repeats, 700)
    return budget_report(
        legal, BudgetResult(Oversampled(None, None), repeats, costs, 2000, *noise, True)
    )


def test_what_was_bought_by_the_users_names():
    """Layers in the order of the model."""
    found = rows({"mixed": 2, "first": 3}, max_extra_macs=80)
    assert [(r.node, r.times, r.extra_macs) for r in found.repeated] == [
        ("first", 3, 700), ("mixed", 2, 700),
    ]  # fmt: skip
    assert (found.extra_macs, found.extra_percent) == (1400, 70)
    assert (found.before_db, found.simulated_db) == (20.0, 23.01)
    assert found.unsaturated
    assert (found.max_extra_percent, found.min_sqnr_db) == (80, None)


def test_nothing_bought():
    """The cost stays as it was, under the limit that goes with a goal."""
    found = rows({}, after=1.0, min_sqnr=12.5)
    assert (found.repeated, found.extra_percent) == ((), 0)
    assert (found.max_extra_percent, found.min_sqnr_db) == (100, 12.5)
    assert found.before_db == found.simulated_db


def test_no_noise_is_no_number():
    """Infinitely many dB are not written."""
    assert rows({}, after=0.0).simulated_db is None
