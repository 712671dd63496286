"""Tests of scales and weights that a quantized model brings along."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.arithmetic.encoding import Encoding
from npuconv.config import Options
from npuconv.legalize.legal import LegalModel, legalize
from npuconv.legalize.source_scales import is_complete, match_groups
from npuconv.model.source_scales import SourceScales
from npuconv.quantize import imported_scales
from support.asserts import read
from support.builders import Net
from support.quantized_nets import Quantized, operators, trained


def encoding(scale: float, zero: int) -> Encoding:
    return Encoding(np.full(1, scale, np.float32), np.full(1, zero, np.int32), np.float32(scale))


def matched(legal: LegalModel) -> dict[str, tuple[float, int]]:
    found = match_groups(legal.model, legal.plan).groups
    return {name: (round(float(e.nominal), 6), int(e.zeros[0])) for name, e in found.items()}


@pytest.mark.parametrize("zero", [-128, -7, 0, 100])
def test_a_tensor_without_demands_stays_as_it_is(zero):
    """The device folds any zero point into biases."""
    own = encoding(0.03, zero)
    assert imported_scales.adapt_encoding(own, centred=False, cut=False, cap=np.inf) == (
        own,
        imported_scales.METHOD,
    )


def test_what_the_device_pads_has_zero_point_zero():
    """The same range from there: a step of 255/127 where it was one-sided."""
    found, how = imported_scales.adapt_encoding(
        encoding(0.1, -128), centred=True, cut=False, cap=np.inf
    )
    assert how == imported_scales.CENTRED
    assert found.zeros.tolist() == [0]
    assert found.nominal == pytest.approx(0.1 * 255 / 127)
    found, how = imported_scales.adapt_encoding(
        encoding(0.1, 0), centred=True, cut=True, cap=np.inf
    )
    assert (found.nominal, how) == (np.float32(0.1), imported_scales.METHOD)


def test_behind_a_relu_the_lowest_integer_is_zero():
    """Steps are those of the source, integers are offset by a constant."""
    found, how = imported_scales.adapt_encoding(
        encoding(0.1, -15), centred=False, cut=True, cap=np.inf
    )
    assert (found.nominal, found.zeros.tolist(), how) == (
        np.float32(0.1),
        [-128],
        imported_scales.MOVED,
    )


def test_a_clip_ends_where_int8_does():
    """Saturation stands for its upper bound."""
    found, how = imported_scales.adapt_encoding(
        encoding(0.1, -128), centred=False, cut=True, cap=6.0
    )
    assert (found.zeros.tolist(), how) == ([-128], imported_scales.NARROWED)
    assert found.nominal == pytest.approx(6.0 / 255)
    same, how = imported_scales.adapt_encoding(
        encoding(0.1, -128), centred=False, cut=True, cap=25.5
    )
    assert (same.nominal, how) == (np.float32(0.1), imported_scales.METHOD)


def test_every_tensor_of_a_trained_model_is_matched():
    """Scales are found by the tensor that others read; the output by its own name."""
    legal = legalize(trained(), Options())
    assert list(matched(legal).values()) == [(0.0317, -7), (0.0173, -128), (0.0291, 11)]
    assert is_complete(legal.model, legal.plan)


def test_a_renamed_tensor_is_known_by_its_node():
    """A product that became a convolution makes tensors of other names and ranks."""
    legal = legalize(operators(), Options())
    assert list(matched(legal).values()) == [(0.031, -3), (0.0173, -128), (0.071, -3)]


def test_tensors_of_one_group_share_a_scale():
    """The last rounding counts; the report names the other."""
    net = Quantized(x=(1, 3, 8, 8)).fake(0.03).qdq_conv((4, 3, 1, 1), 0.002).fake(0.05, 3)
    legal = legalize(net.op("Relu").fake(0.02, -128).model(), Options())  # type: ignore[attr-defined]
    found = match_groups(legal.model, legal.plan)
    assert [round(float(e.nominal), 6) for e in found.groups.values()] == [0.03, 0.02]
    assert list(found.changed.values()) == ["it shares the scale of 't8' on the device"]


def test_a_tensor_of_the_host_is_named():
    """Tensors that the host computes are not rounded there."""
    net = Quantized(x=(1, 3, 8, 8)).fake(0.03).qdq_conv((4, 3, 1, 1), 0.002).fake(0.05, 3)
    legal = legalize(net.op("Softmax").fake(0.004, -128).model(), Options())  # type: ignore[attr-defined]
    found = match_groups(legal.model, legal.plan)
    assert list(found.changed.values()) == ["the host computes it in float, or it is merged with "
                                            "another"]  # fmt: skip


def weights(values: np.ndarray, scales: object, *, per_tensor: bool = False):
    """Return the kept weights of a 1x1 convolution."""
    net = Net(x=(1, values.shape[1], 4, 4))
    weight = net.constant(np.asarray(values, np.float32).reshape(*values.shape, 1, 1))
    model = read(net.op("Conv", "x", weight, name="conv").model())
    stored = np.ravel(scales).astype(np.float32)
    model.source_scales = SourceScales(weights={"conv": stored})
    found, notes = imported_scales.import_weights(
        model, list(model.nodes()), {}, per_tensor=per_tensor
    )
    return found.get("conv"), notes["conv"]


def test_integers_are_recovered_from_float_weights():
    """Exactly, with the scale of each channel."""
    steps = np.random.default_rng(0).integers(-127, 128, (5, 40))
    scales = np.asarray([0.1, 0.003, 7.0, 1e-6, 0.02], np.float32)
    found, how = weights(steps * scales[:, None], scales)
    assert how == imported_scales.METHOD
    assert np.array_equal(found.weight[:, :, 0, 0], steps)
    assert np.array_equal(found.scales, scales)


@pytest.mark.parametrize("rows", [slice(1, 4), slice(3, 5)])
def test_a_piece_of_a_layer_finds_its_scales(rows):
    """Scales under which its weights are the integers of the source, not multiples of them."""
    steps = np.random.default_rng(0).integers(-127, 128, (5, 40))
    scales = np.asarray([0.1, 0.2, 0.3, 0.1, 0.2], np.float32)
    found, how = weights((steps * scales[:, None])[rows], scales)
    assert how == imported_scales.METHOD
    assert np.array_equal(found.weight[:, :, 0, 0], steps[rows])


def test_a_channel_several_times_has_its_scale_each_time():
    """A ConvTranspose becomes pieces of its kernel."""
    steps = np.random.default_rng(0).integers(-127, 128, (6, 40))
    scales = np.asarray([0.1, 0.003, 7.0], np.float32)
    found, how = weights(steps * np.repeat(scales, 2)[:, None], scales)
    assert how == imported_scales.METHOD
    assert found.scales.tolist() == np.repeat(scales, 2).tolist()


def test_one_scale_stays_one():
    """Per-tensor weights stay per-tensor."""
    steps = np.asarray([[127, 3], [-4, 5]])
    found, _ = weights(steps * 0.02, 0.02, per_tensor=True)
    assert found.scales.tolist() == [np.float32(0.02)] * 2


@pytest.mark.parametrize(
    ("values", "scales", "per_tensor", "reason"),
    [
        ([[0.5, 0.25]], [0.1], False, "not kept: a rewrite has changed these weights"),
        (
            [[0.5], [0.25], [0.3]],
            [0.1, 0.2],
            False,
            "not kept: a rewrite has changed these weights",
        ),
        ([[1.0], [1.0]], [1, 0.5], True, "not kept: the target has one weight scale for a layer"),
    ],
)
def test_what_is_not_kept_is_named(values, scales, per_tensor, reason):
    """The report shows the reason."""
    found, how = weights(np.asarray(values), scales, per_tensor=per_tensor)
    assert (found, how) == (None, reason)


def test_wide_integers_become_symmetric():
    """One step is clipped away, a long reach makes the step larger: whichever loses less."""
    steps = np.tile(np.arange(-100, 101, 10), 4).reshape(2, -1).astype(float)
    steps[0, 0], steps[1, 0] = -128, 250
    found, how = weights(steps * 0.1, 0.1)
    assert how.startswith("kept, made symmetric: 2 of 2 channels, ")
    assert found.weight[0, 0, 0, 0] == -127
    assert found.scales[0] == np.float32(0.1)
    assert found.scales[1] == pytest.approx(0.1 * 250 / 127)
    assert found.weight[1, 0, 0, 0] == 127


def test_depthwise_weights_stay_whatever_the_input_scales_are():
    """Its scale of each channel moves into the scale of that channel's weights."""
    net = Net(x=(1, 2, 4, 4))
    steps = np.asarray([[3, -127], [8, 127]], np.float32).reshape(2, 1, 1, 2)
    net.op("Conv", "x", net.constant(steps * 0.01), group=2, name="conv")
    model = read(net.model())
    stored = np.full(1, 0.01, np.float32)
    model.source_scales = SourceScales(weights={"conv": stored})
    own = Encoding(np.asarray([0.5, 0.25], np.float32), np.zeros(2, np.int32), np.float32(0.5), 1)
    found, _ = imported_scales.import_weights(model, list(model.nodes()), {"x": own})
    assert np.array_equal(found["conv"].weight, steps)
    assert found["conv"].scales.tolist() == [np.float32(0.01), np.float32(0.005)]
