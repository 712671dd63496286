"""The choice of scale and zero point of every channel."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuconv.arithmetic.encoding import HIGHEST, LOWEST, Encoding, dequantize, quantize
from npuconv.quantize.calibrate import Calibration
from npuconv.quantize.ranges import choose, choose_encodings, entropy_limit, percentile_limit
from npuconv.quantize.scale_constraints import ScaleConstraints
from npuconv.quantize.state import QuantState
from support.asserts import Passes, context, read
from support.builders import Net
from support.plans import AS_SEEN, planned, prepare, random_feeds, watch, without
from support.target_files import NUMBERS, chip

METHODS = ("minmax", "percentile", "entropy", "mse")


def group(values: np.ndarray, **fixed: object) -> ScaleConstraints:
    """A group with these values [K,P], whose extremes are those of the values."""
    count = len(values)
    parts = {
        "slots": list(range(count)), "values": values.astype(np.float32),
        "lows": values.min(axis=1).astype(float), "highs": values.max(axis=1).astype(float),
        "centred": np.zeros(count, bool), "caps": np.full(count, np.inf),
        "computed": np.zeros(count, bool), "stored": np.zeros(count, bool), "stores_zeros": False,
    }  # fmt: skip
    return ScaleConstraints(**{**parts, **fixed})


def bulk(count: int = 3, width: int = 1000, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, width))


@st.composite
def groups(draw: st.DrawFn) -> ScaleConstraints:
    """Groups of any kind: dead channels, tails, caps, zero points that are fixed."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count = int(rng.integers(1, 6))
    values = rng.normal(size=(count, 64)) * 10.0 ** rng.integers(-3, 4, (count, 1))
    values[rng.random(count) < 0.2] = 0
    caps = np.full(count, np.inf)
    if rng.random() < 0.5:
        values, caps = np.clip(values, 0, 6), np.full(count, 6.0)
    centred, stored = rng.random(count) < 0.3, rng.random(count) < 0.5
    centred |= stored & np.any(stored & centred)
    return group(values, centred=centred, stored=stored, stores_zeros=bool(stored.any()), caps=caps)


@given(groups(), st.sampled_from(METHODS))
def test_every_choice_is_one_the_device_can_have(found: ScaleConstraints, method: str) -> None:
    """Scales above 0, zero points of 8 bits, 0 or alike where they must be, no range over a cap."""
    scales, zeros = choose(found, method)
    assert len(set(zeros[found.stored].tolist())) <= 1
    assert np.all(scales > 0)
    assert np.isfinite(scales).all()
    assert not zeros[found.centred].any()
    assert np.all(np.abs(zeros + 0.5) <= 127.5)
    capped = np.isfinite(found.caps)
    reach = (HIGHEST - zeros) * scales.astype(np.float64)
    assert np.all(reach[capped] <= found.caps[capped] * (1 + 1e-6))


def limits(found: ScaleConstraints, method: str) -> tuple[np.ndarray, np.ndarray]:
    """The numbers that the lowest and the highest integer of every slot stand for."""
    scales, zeros = choose(found, method)
    scales = scales.astype(np.float64)
    return scales * (LOWEST - zeros), scales * (HIGHEST - zeros)


@given(groups(), st.sampled_from(METHODS))
def test_ranges_are_no_larger_than_they_need_to_be(found: ScaleConstraints, method: str) -> None:
    """One end of a slot is within its values, to the step that 0 takes."""
    lows, highs = limits(found, method)
    live = np.maximum(found.highs, -found.lows) > 0
    step = (highs - lows) / 255
    below = lows >= np.minimum(found.lows, 0) - step
    above = highs <= np.maximum(found.highs, 0) + step
    assert (below | above)[live].all()
    assert (below & above)[live & ~found.centred & ~found.stored].all()


def test_pixels_half_a_step_from_0() -> None:
    """The host's tensors have the step that rounds their values best, within 2 %."""
    pixels = np.arange(256)[None] / 127.5 - 1
    errors = []
    for is_host_made in (False, True):
        scales, zeros = choose(group(pixels, is_host_made=is_host_made), "minmax")
        rounded = dequantize(quantize(pixels, scales[0], zeros[0]), scales[0], zeros[0])
        errors.append(np.square(rounded - pixels).mean() * 127.5**2)
    assert errors[0] == pytest.approx(1 / 4, rel=0.01)
    assert errors[1] < 1 / 10


def test_minmax_clips_nothing() -> None:
    """The extremes are the ends, to the step that 0 takes."""
    values = bulk()
    lows, highs = limits(group(values), "minmax")
    step = (highs - lows) / 255
    assert (np.abs(lows - values.min(axis=1)) <= step).all()
    assert (np.abs(highs - values.max(axis=1)) <= step).all()


def test_percentile_pools_all_slots() -> None:
    """One share for all: what a slot has too few values to tell, all of them together show."""
    values = np.random.default_rng(0).uniform(0, 0.5, (40, 1000))
    values[:, 0] = 1.0  # one in a thousand of each, which counts
    values *= np.linspace(1, 1000, 40)[:, None]
    assert np.allclose(limits(group(values), "percentile")[1], values.max(axis=1), rtol=2e-3)
    values = np.random.default_rng(0).uniform(0, 0.5, (40, 1000))
    found = group(values, lows=np.zeros(40), highs=np.ones(40))
    values[:2, 0] = 1.0  # two in forty thousand, which do not
    lows, highs = limits(found, "percentile")
    assert np.allclose(highs, 0.5, atol=2e-3)
    assert len(set(highs.tolist())) == 1
    assert not lows.any()


def test_entropy_gives_up_an_outlier_and_keeps_a_plain_shape() -> None:
    """The method is TensorRT's, on the pooled histogram."""
    wild = np.clip(bulk(4, 50_000), -4, 4)
    wild[:, 0] = 30.0
    _, highs = limits(group(wild), "entropy")
    assert np.all(highs < 8)
    even = np.random.default_rng(0).uniform(-1, 1, (4, 50_000))
    lows, highs = limits(group(even), "entropy")
    assert np.all(highs > 0.95)
    assert np.all(lows < -0.95)


def squared_errors(found: ScaleConstraints, method: str) -> np.ndarray:
    """Return the squared error of every slot, as a method stores it."""
    scales, zeros = choose(found, method)
    stored = Encoding(scales, zeros, scales.max(), 0)
    lost = stored.dequantize(stored.quantize(found.values)) - found.values
    return np.square(lost.astype(np.float64)).mean(axis=1)


def test_mse_clips_each_slot_for_itself() -> None:
    """A long tail is cut off, on its own side; an even distribution is kept."""
    even = np.linspace(-1, 1, 20_000)
    values = np.stack([even, even, even])
    values[[0, 2], -1] = 3.0  # one of many
    found = group(values, centred=np.asarray([True, False, False]))
    lows, highs = limits(found, "mse")
    assert highs[0] < 0.98 * found.highs[0]
    assert highs[1] > 0.98
    assert highs[2] < 0.98 * found.highs[2]
    assert lows[2] == pytest.approx(found.lows[2], abs=0.02)
    old, new = squared_errors(found, "minmax"), squared_errors(found, "mse")
    assert np.all(new <= old)
    assert new[0] < 0.98 * old[0]


@pytest.mark.parametrize("method", METHODS)
def test_nothing_but_zeros(method: str) -> None:
    """No range at all is stored exactly."""
    scales, _ = choose(group(np.zeros((2, 10))), method)
    assert scales.tolist() == [1, 1]


# Encodings of a whole plan


def encoded(net: Net) -> Passes:
    model, ctx = read(net.model()), context()
    prepare(model, ctx)
    return ctx


def image() -> Net:
    return Net(x=(1, 3, 8, 8)).conv("x", to="a")


def test_every_int8_tensor_has_one():
    """Inputs and outputs of convolutions, and what is carried."""
    ctx = encoded(image().op("Relu", to="r").conv("r", (2, 4, 3, 3), to="y"))
    assert set(ctx.emission.encodings) == {"x", "a", "r", "y"}
    assert [ctx.emission.encodings[n].scales.size for n in ("x", "a", "r", "y")] == [3, 4, 4, 2]
    assert {e.axis for e in ctx.emission.encodings.values()} == {1}


def test_a_group_has_one_nominal_scale():
    """The largest of all its channels: ratios are at most 1."""
    net = image().conv("x", (2, 3, 3, 3), to="b").op("Concat", "a", "b", axis=1, to="y")
    ctx = encoded(net)
    parts = [ctx.emission.encodings[name] for name in ("a", "b", "y")]
    assert len({e.nominal for e in parts}) == 1
    assert parts[2].nominal == parts[2].scales.max()
    assert np.array_equal(parts[2].scales, np.concatenate([parts[0].scales, parts[1].scales]))
    assert np.array_equal(parts[2].zeros, np.concatenate([parts[0].zeros, parts[1].zeros]))


def test_scales_follow_their_channels():
    """Along another axis, and in another order."""
    net = image().op("Transpose", perm=[0, 2, 3, 1], to="t")
    ctx = encoded(net.op("Gather", "t", net.constant(np.asarray([2, 0])), axis=3, to="y"))
    assert [ctx.emission.encodings[n].axis for n in ("a", "t", "y")] == [1, 3, 3]
    assert np.array_equal(
        ctx.emission.encodings["y"].scales, ctx.emission.encodings["a"].scales[[2, 0]]
    )


def test_channels_that_are_alike_are_one():
    """Equal channels have no axis, and nothing to write for each."""
    ctx = encoded(image().op("DepthToSpace", blocksize=2, to="y"))
    for name in ("a", "y"):
        assert (ctx.emission.encodings[name].axis, ctx.emission.encodings[name].scales.shape) == (
            None,
            (1,),
        )


def chosen(**options: object) -> QuantState:
    """Return the encoding of a layer of integers between -40 and 199."""
    model = read(image().model())
    graph = planned(model, context(**options))
    rng = np.random.default_rng(2)
    pixels = [{"x": rng.integers(-40, 200, (1, 3, 8, 8)).astype(np.float32)} for _ in range(40)]
    return choose_encodings(graph, Calibration(watch(graph, pixels), {}))


def test_how_it_was_chosen():
    """Groups have the method of the options."""
    assert chosen().methods == {"x": "minmax", "a": "minmax"}
    assert set(chosen(method="mse").methods.values()) == {"mse"}


def test_a_file_says_one_zero_point_for_what_shares_integers():
    """A part of the channels has a zero point of its own, but is read as the whole is."""
    net = Net(x=(1, 3, 8, 8))
    weight, bias = net.random(4, 3, 1, 1), net.constant(np.asarray([-3, 0, 3, 6], np.float32))
    net.op("Conv", "x", weight, bias, to="a")
    net.op("Split", "a", net.constant(np.asarray([1, 3])), axis=1, outputs=2, to="b")
    net.conv("b", (2, 1, 1, 1), to="y").conv("b_1", (2, 3, 1, 1), to="z").output("y", "z")
    graph = planned(read(net.model()), context(format="tflite"))
    stats = watch(graph, random_feeds(graph.model))
    found = choose_encodings(graph, Calibration(stats, {})).encodings
    assert len({int(zero) for zero in found["a"].zeros}) > 1
    assert found["b"].zeros[0] != 0
    assert [found[name].nominal_zero for name in ("a", "b", "b_1")] == [0, 0, 0]
    assert found["y"].nominal_zero == found["y"].zeros[0]


@pytest.mark.parametrize("bias", [(-1, -1, -1, -1), (-3, 0, 3, 6)])
def test_no_zero_point_is_0_for_a_compiler_that_rescales_it(bias: tuple[int, ...]):
    """The file has -1; channels with zero points of their own keep these and their integers."""
    net, x = Net(x=(1, 1, 8, 8)), np.linspace(-1.005, 1, 64, dtype=np.float32)
    weight = net.constant(np.ones((4, 1, 1, 1), np.float32))
    net.op("Conv", "x", weight, net.constant(np.asarray(bias, np.float32)), to="y")
    found = []
    for rescales in (False, True):
        ctx = context(format="qdq")
        ctx.target = chip("", also={
            "operators": {"Conv": {}}, "rescales_symmetric": rescales,
            "activations": {**NUMBERS, "zero_point": {"range": [-128, 127]}},
        })  # fmt: skip
        graph = planned(read(net.model()), ctx)
        stats = watch(graph, [{"x": x.reshape(1, 1, 8, 8)}])
        found.append(choose_encodings(graph, Calibration(stats, {})).encodings)
    before, after = found
    assert [before["x"].nominal_zero, after["x"].nominal_zero] == [0, -1]
    assert [before["x"].zeros.tolist(), after["x"].zeros.tolist()] == [[0], [-1]]
    assert after["y"].nominal_zero == (before["y"].nominal_zero or -1)
    assert np.array_equal(after["y"].zeros, before["y"].zeros)


def test_steps_that_are_left_out():
    """No margins."""
    full, bare = chosen(), chosen(without=("range-margin",))
    assert (bare.encodings["a"].scales <= full.encodings["a"].scales).all()
    assert (bare.encodings["a"].scales < full.encodings["a"].scales).any()


def test_a_device_with_one_scale_for_all_weights():
    """Such a device has no activation scales per channel either."""
    model = read(image().model())
    target = context().target
    weights = target.weights.model_copy(update={"granularity": "tensor"})
    ctx = context()
    ctx.target = target.model_copy(update={"weights": weights})
    found = prepare(model, ctx)
    assert found.is_per_tensor
    assert {e.scales.size for e in ctx.emission.encodings.values()} == {1}


@pytest.mark.parametrize("zero_points", [[-128, 127], [0, 0]])
def test_tensors_of_a_sum_have_one_scale_each(zero_points: list[int]):
    """Their channels differ by a factor of 1,000; the widest decides, and the device has it."""
    unlike = np.geomspace(1, 1000, 4).reshape(4, 1, 1, 1).astype(np.float32)
    net = Net(x=(1, 4, 8, 8))
    for name in ("a", "b"):
        weight = net.constant(unlike * np.random.default_rng(3).normal(size=(4, 4, 1, 1)), name)
        net.op("Conv", "x", weight, to=f"{name}_made")
    net.op("Add", "a_made", "b_made", to="sum").conv("", (4, 4, 1, 1), to="y")
    numbers = {**NUMBERS, "zero_point": {"range": zero_points}}
    ctx = context()
    ctx.target = chip("", also={"operators": {"Conv": {}, "Add": {}}, "activations": numbers})
    model = read(net.model())
    stats = watch(graph := planned(model, ctx), random_feeds(model))
    encodings = choose_encodings(without(graph, *AS_SEEN), Calibration(stats, {})).encodings
    for name in ("a_made", "b_made", "sum"):
        encoding, largest = encodings[name], np.abs([stats[name].lows, stats[name].highs]).max()
        assert encoding.axis is None
        assert encoding.scales.tolist() == [encoding.nominal]
        assert largest / 256 < encoding.nominal < largest / 127 * 1.01
        assert zero_points[0] <= encoding.zeros[0] <= zero_points[1]
    assert encodings["y"].axis == 1


def histogram(values: np.ndarray, bins: int = 2048) -> tuple[np.ndarray, float]:
    """Return a histogram of magnitudes other than 0, up to the largest."""
    magnitudes = np.abs(values[values != 0])
    counts, _ = np.histogram(magnitudes, bins, (0, magnitudes.max()))
    return counts, float(magnitudes.max()) / bins


@pytest.mark.parametrize(("percentile", "limit"), [(99.99, 99.99), (50, 50), (100, 100)])
def test_percentile(percentile: float, limit: float) -> None:
    """The percentile is right to within a bin."""
    counts, width = histogram(np.linspace(-100, 100, 20_001))
    assert percentile_limit(counts, width, percentile) == pytest.approx(limit, abs=0.07)


def test_a_percentile_within_a_bin_is_linear() -> None:
    """Half of what is in the bin."""
    assert percentile_limit(np.asarray([0, 4]), 1.0, 50) == 1.5


def test_entropy_ignores_an_outlier_and_keeps_a_plain_shape() -> None:
    """One value far outside is given up; an even distribution is kept whole."""
    rng = np.random.default_rng(0)
    bulk = rng.normal(0, 1, 100_000)
    assert entropy_limit(*histogram(np.append(bulk, 30.0))) < 6
    assert entropy_limit(*histogram(rng.uniform(-1, 1, 200_000))) > 0.95


def test_entropy_of_few_bins_is_exact() -> None:
    """No value is clipped if every bin has a level of its own."""
    assert entropy_limit(np.asarray([0, 1, 0, 3]), 0.25) == 1.0
