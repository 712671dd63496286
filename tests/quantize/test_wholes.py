"""Convolutions that were fitted have the integers of the whole."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import npuconv
from npuconv import executor
from npuconv.arithmetic.encoding import Encoding
from npuconv.arithmetic.layer import RoundedWeights
from npuconv.legalize.fitting.builder import Fragment, Whole
from npuconv.legalize.fitting.layer import Layer
from npuconv.model import query
from npuconv.quantize.wholes import Assembly, assemblies
from support.asserts import context, read
from support.builders import Net
from support.plans import planned

SAMPLES = [
    {"x": x} for x in np.random.default_rng(7).normal(size=(4, 2, 6, 12, 12)).astype(np.float32)
]


def net(**attrs: object) -> onnx.ModelProto:
    """Two convolutions whose channels differ in size."""
    built = Net(x=SAMPLES[0]["x"].shape)
    weight = np.random.default_rng(1).normal(size=(8, 6, 3, 3))
    scaled = built.constant(weight * np.geomspace(1, 9, 8).reshape(8, 1, 1, 1))
    built.op("Conv", "x", scaled, built.random(8)).op("Relu")
    return built.conv("", (8, 8 // int(attrs.get("group", 1)), 3, 3), **attrs).model()


def made(
    model: onnx.ModelProto, *assume: str, samples: list[dict[str, np.ndarray]] = SAMPLES,
    **options: object,
) -> tuple[int, list[np.ndarray]]:  # fmt: skip
    """Return the number of convolutions of the int8 model, and its outputs."""
    result = npuconv.convert(
        model, calibration=samples, assume=list(assume), verify=False, **options
    ).model
    session = executor.Session(result)
    values = [next(iter(session.run(feed).values())) for feed in samples]
    return sum(node.op_type == "QLinearConv" for node in result.graph.node), values


@pytest.mark.parametrize(("limits", "attrs", "count"), [
    (["weight_n=4", "in_h=8", "in_n=1"], {}, 16),
    (["dilation_h=1", "dilation_w=1"], {"dilations": [2, 2]}, 5),
    (["in_c=6"], {"group": 8}, 3),
    (["stride_h=1", "stride_w=1"], {"strides": [2, 2]}, 2),
])  # fmt: skip
def test_exact_rewrites_have_the_same_integers(limits, attrs, count):
    """Channels, tiles, images, groups, phases: every output of every sample is the same."""
    model = net(**attrs)
    (_, wanted), (number, found) = made(model), made(model, *limits)
    assert number == count
    for a, b in zip(wanted, found, strict=True):  # float convolutions of other shapes differ
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("padding", ["never", "host"])
@pytest.mark.parametrize(("limits", "attrs"), [
    (["in_h=7", "in_w=7"], {}),
    (["pad_left=0"], {}),
    (["dilation_h=1", "dilation_w=1"], {"dilations": [2, 2]}),
    (["in_c=6"], {"group": 8}),
    (["stride_h=1", "stride_w=1"], {"strides": [2, 2]}),
])  # fmt: skip
def test_what_the_device_would_pad_has_zero_point_0(limits, attrs, padding):
    """The host pads what is fitted, and leaves the integers as the device would have them."""
    model = net(pads=[1, 1, 1, 2], **attrs)
    wanted, found = (made(model, *m, pad_on_host=padding)[1] for m in ([], limits))
    for a, b in zip(wanted, found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_zeros_behind_tiles_bind_no_zero_point():
    """A tensor that the device does not pad has a zero point for each channel, cut or not."""
    built = Net(x=SAMPLES[0]["x"].shape).conv("x", (8, 6, 3, 3))
    model = built.conv("", (8, 8, 3, 3)).model()
    wanted, found = (made(model, *m)[1] for m in ([], ["in_h=5"]))
    for a, b in zip(wanted, found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("pads", [[0] * 4, [1, 1, 1, 2]])
@pytest.mark.parametrize("limit", ["in_h=7", "weight_n=4", "stride_h=1", "in_n=1"])
def test_fragments_keep_the_grid_of_pixels(limit, pads):
    """The host moves and pads the whole image: every part of it is exact."""
    pixels = np.random.default_rng(2).integers(0, 256, (4, 2, 4, 12, 12)).astype(np.float32)
    samples = [{"x": one / np.float32(127.5) - np.float32(1)} for one in pixels]
    model = Net(x=pixels[0].shape).conv("x", (8, 4, 3, 3), pads=pads, strides=[2, 2]).model()
    wanted, found = (made(model, *m, samples=samples)[1] for m in ([], [limit]))
    for a, b in zip(wanted, found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_every_part_takes_back_what_its_channels_were_moved_by():
    """Parts of a sum have an offset each; only the first has the bias."""
    pixels = np.random.default_rng(2).integers(0, 256, (4, 1, 4, 6, 6)).astype(np.float32)
    samples = [{"x": one / np.float32(127.5) - np.float32(1)} for one in pixels]
    model = Net(x=pixels[0].shape).conv("x", (2, 4, 1, 1)).model()
    wanted, found = (made(model, *m, samples=samples)[1] for m in ([], ["in_c=2"]))
    assert abs(np.mean(np.subtract(wanted, found))) < 0.002 * np.abs(wanted).max()


def halves() -> tuple[Assembly, dict[str, Encoding]]:
    """A convolution of four channels in two, each of two of them; and their inputs."""
    built = Net(a=(1, 2, 4, 4), b=(1, 2, 4, 4))
    built.conv("a", (3, 2, 1, 1), bias=True, name="one").conv("b", (3, 2, 1, 1), bias=False)
    graph = planned(read(built.model()), context())
    layer = Layer((1, 4, 4, 4), (3, 4, 1, 1), (1, 1), (1, 1), ((0, 0), (0, 0)), bias=True)
    whole, places = Whole("whole", "x", layer), np.arange(12).reshape(3, 4, 1, 1)
    for number, conv in enumerate(graph.plan.device):
        own = places[:, 2 * number : 2 * number + 2]
        graph.splits.fragments[conv.name] = Fragment(whole, own, biased=number == 0)
    scales = np.float32([1, 2]), np.zeros(2, np.int32)
    encodings = {name: Encoding(*scales, np.float32(n + 2), 1) for n, name in enumerate("ab")}
    return assemblies(graph)[0], encodings


def test_a_whole_is_put_together_of_its_fragments():
    """Weights from where they are, the bias from the fragment that adds it."""
    one, encodings = halves()
    weight, bias = one.parameters()
    parts = [query.constant_input(conv, 1) for conv, _ in one.fragments]
    np.testing.assert_array_equal(weight, np.concatenate(parts, axis=1))
    np.testing.assert_array_equal(bias, query.constant_input(one.fragments[0][0], 2))
    (cluster,) = one.clusters(encodings)
    assert cluster.source.scales.tolist() == [1, 2, 1, 2]


def test_fragments_share_what_was_rounded():
    """Integers by place; scales for the input that each reads; one of them adds the bias."""
    one, encodings = halves()
    (cluster,) = one.clusters(encodings)
    steps = np.arange(12, dtype=np.int8).reshape(3, 4, 1, 1)
    rounded = RoundedWeights(steps, np.ones(3, np.float32), np.full(3, 5, np.float32))
    first, second = dict(cluster.shares(rounded, encodings)).values()
    np.testing.assert_array_equal(second.weight, steps[:, 2:])
    assert (first.bias.tolist(), second.bias.tolist()) == ([5] * 3, [0] * 3)
    assert first.scales[0] == 1
    assert second.scales[0] == np.float32(2 / 3)  # a step of its input is one of 3, not of 2


def test_inputs_of_other_scales_are_rounded_by_themselves():
    """Two tiles of one weight whose inputs differ: each has a whole of its own."""
    built = Net(a=(1, 2, 4, 4), b=(1, 2, 4, 4))
    built.conv("a", (3, 2, 1, 1), name="one")
    built.op("Conv", "b", *built.nodes[-1].input[1:])
    graph = planned(read(built.model()), context())
    layer = Layer((1, 2, 4, 8), (3, 2, 1, 1), (1, 1), (1, 1), ((0, 0), (0, 0)), bias=True)
    part = Fragment(Whole("whole", "x", layer), np.arange(6).reshape(3, 2, 1, 1), biased=True)
    graph.splits.fragments.update({conv.name: part for conv in graph.plan.device})
    (one,) = assemblies(graph)
    encodings = {name: Encoding.plain(n + 1) for n, name in enumerate("ab")}
    found = [cluster.source.scales.tolist() for cluster in one.clusters(encodings)]
    assert found == [[1, 1], [2, 2]]
    encodings["b"] = encodings["a"]
    assert [len(cluster.fragments) for cluster in one.clusters(encodings)] == [2]


def test_a_part_on_the_host_leaves_none():
    """A whole of which weights are missing is not rounded."""
    one, _ = halves()
    assert one.convs == {conv.name for conv, _ in one.fragments}
    built = Net(a=(1, 2, 4, 4)).conv("a", (3, 2, 1, 1), name="one")
    graph = planned(read(built.model()), context())
    graph.splits.fragments["one"] = one.fragments[0][1]
    assert assemblies(graph) == []


def test_the_host_pads_one_half():
    """The other half alone is cut into int8: only its channels have scales."""
    built = Net(x=SAMPLES[0]["x"].shape).conv("x", (6, 6, 3, 3), pads=[1] * 4, to="a")
    built.op("Softplus", "x", to="b").op("Concat", "a", "b", axis=1)
    model = built.conv("", (8, 12, 3, 3), pads=[1] * 4).model()
    (_, wanted), (number, found) = made(model), made(model, "in_c=6")
    assert number == 3
    assert np.abs(np.subtract(wanted, found)).max() < 0.1 * np.abs(wanted).max()
