"""Hessians: second moments of the windows of convolutions."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from npuconv import executor
from npuconv.errors import CalibrationError
from npuconv.quantize import settings
from npuconv.quantize.hessian import Hessian, WindowedConv, windows_of
from support.asserts import read
from support.builders import Net
from support.plans import Feeds, gather, planned, random_feeds


def windows(groups: int = 2, length: int = 5, count: int = 40, seed: int = 0) -> np.ndarray:
    """Values with a mean that is not 0."""
    rng = np.random.default_rng(seed)
    return rng.normal(1.5, 2.0, (groups, length, count)).astype(np.float32)


def test_means_and_products_are_those_of_all_windows() -> None:
    """However they were split into parts; means in double, products uncentred."""
    seen = windows()
    hessian = Hessian(2, 5)
    for part in np.split(seen, [7, 30], axis=2):
        hessian.add(part)
    assert hessian.count == 40
    assert np.allclose(hessian.means, seen.mean(axis=2))
    assert np.allclose(hessian.products(0), seen @ seen.transpose(0, 2, 1) / 40, rtol=1e-4)


@pytest.mark.parametrize("size", [1e-25, 1e25])
def test_huge_and_tiny_values(size: float) -> None:
    """Their squares fit into float32 in a unit of their own."""
    seen = windows()
    hessian = Hessian(2, 5)
    hessian.add(seen * np.float32(size))
    wanted = (seen @ seen.transpose(0, 2, 1) / 40).astype(np.float64) * float(size) ** 2
    assert np.allclose(hessian.products(0) / float(size) ** 2, wanted / float(size) ** 2, rtol=1e-3)


def test_values_that_become_huge() -> None:
    """The unit of the first windows is too small for those of a later sample."""
    few, many = windows(seed=1), windows(seed=2) * np.float32(1e25)
    hessian = Hessian(2, 5)
    hessian.add(few)
    hessian.add(many)
    wanted = many.astype(np.float64) @ many.transpose(0, 2, 1).astype(np.float64) / 80
    assert np.allclose(hessian.products(0) / 1e50, wanted / 1e50, rtol=1e-3)


def test_some_are_kept_apart() -> None:
    """Windows held out are not in the Hessian; the very first ones always are."""
    hessian = Hessian(2, 5)
    hessian.add(windows(seed=1), held_out=True)
    assert hessian.held_out is None
    hessian.add(windows(seed=2), held_out=True)
    assert hessian.count == 40
    assert hessian.held_out.shape[:2] == (2, 5)
    assert np.array_equal(hessian.held_out[:, :, 0], windows(seed=2)[:, :, 0])
    assert np.allclose(hessian.means, windows(seed=1).mean(axis=2))


def test_what_is_kept_apart_is_spread_and_bounded() -> None:
    """A quarter of the room for each sample, from all over it."""
    hessian = Hessian(1, 1)
    hessian.add(np.zeros((1, 1, 3), np.float32))
    hessian.add(np.arange(10_000, dtype=np.float32).reshape(1, 1, -1), held_out=True)
    kept = hessian.held_out.reshape(-1)
    assert len(kept) == settings.HESSIAN_HELD_OUT_WINDOWS
    assert kept[-1] > 9000


def test_long_windows_are_cut_into_equal_blocks() -> None:
    """Products of different blocks are not kept."""
    hessian = Hessian(1, settings.HESSIAN_BLOCK + 100)
    assert [b.stop - b.start for b in hessian.blocks] == [(settings.HESSIAN_BLOCK + 100) // 2] * 2
    seen = windows(1, settings.HESSIAN_BLOCK + 100, 3)
    hessian.add(seen)
    last = seen[:, hessian.blocks[1]]
    assert np.allclose(hessian.products(1), last @ last.transpose(0, 2, 1) / 3, atol=1e-4)
    assert sum(b.stop - b.start for b in Hessian(1, 2500).blocks) == 2500


def test_nothing_seen() -> None:
    """Zeros, not a division by zero."""
    hessian = Hessian(1, 2)
    assert not hessian.means.any()
    assert not hessian.products(0).any()


# Windows of convolutions, gathered in the model


def gathered(
    proto: onnx.ModelProto, count: int = 3
) -> tuple[dict[str, Hessian], list[WindowedConv], Feeds]:
    """Hessians by layer name, the layers, and the samples."""
    graph = planned(read(proto))
    layers = [layer for conv in graph.plan.convolutions if (layer := windows_of(conv))]
    feeds = random_feeds(graph.model, count)
    return gather(graph.proto, layers, feeds), layers, feeds


FORMS = {
    "dense": {"weight": (4, 6, 3, 3)},
    "padded": {"weight": (4, 6, 3, 2), "pads": [1, 0, 2, 1]},
    "strided": {"weight": (4, 6, 3, 3), "strides": [2, 1], "dilations": [1, 2]},
    "depthwise": {"weight": (6, 1, 3, 3), "group": 6, "pads": [1, 1, 1, 1]},
    "doubled": {"weight": (12, 1, 3, 3), "group": 6},
    "point": {"weight": (4, 6, 1, 1)},
}


@pytest.mark.parametrize("form", FORMS)
def test_means_are_those_of_what_the_weights_meet(form: str):
    """Weights times mean windows is the mean output, where all windows are taken."""
    net = Net(x=(1, 6, 7, 6))
    proto = net.conv("x", **FORMS[form], bias=False, to="y", name="conv").model()
    found, (layer,), feeds = gathered(proto)
    (weight,) = (onnx.numpy_helper.to_array(t) for t in proto.graph.initializer)
    rows = weight.reshape(layer.group, -1, layer.length).astype(np.float64)
    made = np.einsum("gmk,gk->gm", rows, found["conv"].means).reshape(-1)
    outputs = np.concatenate([next(iter(executor.Session(proto).run(f).values())) for f in feeds])
    assert layer.length == weight[0].size
    assert np.allclose(made, outputs.mean(axis=(0, 2, 3)), atol=1e-4)


@pytest.mark.parametrize("form", FORMS)
def test_products_are_the_power_of_the_outputs(form: str):
    """Products give the error of any rounding."""
    net = Net(x=(1, 6, 7, 6))
    proto = net.conv("x", **FORMS[form], bias=False, to="y", name="conv").model()
    found, (layer,), feeds = gathered(proto)
    (weight,) = (onnx.numpy_helper.to_array(t) for t in proto.graph.initializer)
    rows = weight.reshape(layer.group, -1, layer.length).astype(np.float64)
    made = np.einsum("gmk,gkl,gml->gm", rows, found["conv"].products(0), rows).reshape(-1)
    outputs = np.concatenate([next(iter(executor.Session(proto).run(f).values())) for f in feeds])
    assert np.allclose(made, np.square(outputs).mean(axis=(0, 2, 3)), rtol=1e-3)


def test_every_fourth_sample_is_kept_apart():
    """A held-out sample takes no part in the Hessian."""
    net = Net(x=(1, 3, 6, 6)).conv("x", to="y", name="conv")
    seven, _, _ = gathered(net.model(), 7)
    three, _, _ = gathered(net.model(), 3)
    assert three["conv"].held_out is None
    assert seven["conv"].held_out.shape == (1, 27, 16)
    assert seven["conv"].count == 6 * 16
    eight, _, _ = gathered(net.model(), 8)
    assert eight["conv"].held_out.shape[2] == 2 * 16


def test_large_maps_are_seen_on_a_grid():
    """Some thousand windows of a layer are enough."""
    net = Net(x=(1, 3, 200, 200)).conv("x", (2, 3, 3, 3), to="y", name="conv")
    found, _, _ = gathered(net.model(), 2)
    assert 1000 <= found["conv"].count <= 2 * 4096


def test_a_grid_does_not_fall_in_with_a_pattern():
    """The grid hits both kinds of stripes."""
    model = read(Net(x=(1, 1, 200, 200)).conv("x", (2, 1, 1, 1), name="conv").model())
    graph = planned(model)
    stripes = np.tile(np.float32([0, 1]), (1, 1, 200, 100))
    found = gather(graph.proto, [windows_of(graph.plan.convolutions[0])], [{"x": stripes}] * 2)
    assert found["conv"].count < 40_000
    assert found["conv"].means[0, 0] == pytest.approx(0.5, abs=0.05)


def test_the_layer_as_it_stands():
    """Attributes that are left out have their defaults; without constant weights there is none."""
    model = read(Net(x=(1, 3, 6, 6)).conv("x", name="conv").model())
    (conv,) = model.nodes("Conv")
    assert windows_of(conv) == WindowedConv(
        "conv", "x", 1, 27, (3, 3), (1, 1), (1, 1), (0, 0, 0, 0), (4, 4)
    )
    model = read(Net(x=(1, 3, 6, 6), w=(4, 3, 3, 3)).op("Conv", "x", "w").model())
    assert windows_of(model.nodes("Conv")[0]) is None


def test_an_open_batch_leaves_the_extents_known():
    """The grid of windows is that of a batch of one."""
    layers = [windows_of(read(Net(x=(n, 4, 9, 9)).conv("x", (4, 4, 3, 3)).model()).nodes()[0])
              for n in (1, "N")]  # fmt: skip
    assert layers[0] == layers[1]
    assert layers[1] is not None
    assert layers[1].output == (7, 7)


@pytest.mark.parametrize(("size", "is_seen"), [(11, True), (12, False)])
def test_a_kernel_that_is_as_large_as_a_map(size: int, is_seen: bool):
    """Such a kernel takes a mean, and its weights are rounded as they are."""
    model = read(Net(x=(1, 3, 16, 16)).conv("x", (4, 3, size, size)).model())
    assert (windows_of(model.nodes("Conv")[0]) is not None) == is_seen


def test_a_batch_of_any_size():
    """The windows of all of it are taken."""
    net = Net(x=("N", 3, "H", 6)).conv("x", (2, 3, 1, 1), to="y", name="conv")
    found, (layer,), _ = gathered(net.model())
    assert layer.output is None
    assert found["conv"].count > 0


def test_samples_that_do_not_fit():
    """The user's matter."""
    model = read(Net(x=(1, 3, 6, 6)).conv("x", name="conv").model())
    layers = [windows_of(conv) for conv in model.nodes("Conv")]
    with pytest.raises(CalibrationError, match="does not run on the samples"):
        gather(planned(model).proto, layers, [{"x": np.zeros((1, 2, 6, 6), np.float32)}])


def test_a_mean_has_no_windows():
    """Its weights are one number, which rounds exactly; with other weights it has some."""
    for weight, found in ((np.full((3, 1, 4, 4), 1 / 16), False), (np.arange(48.0) / 48, True)):
        net = Net(x=(1, 3, 8, 8))
        constant = net.constant(np.float32(np.reshape(weight, (3, 1, 4, 4))))
        net.op("Conv", "x", constant, name="conv", group=3, to="y")
        (conv,) = read(net.model()).nodes("Conv")
        assert (windows_of(conv) is not None) == found


@pytest.mark.parametrize("size", [1e-12, 1.0, 1e12])
def test_values_of_any_size(size):
    """Their squares fit float32, whatever the size."""
    seen = windows(seed=2)
    one, other = Hessian(*seen.shape[:2]), Hessian(*seen.shape[:2])
    one.add(seen)
    other.add((seen * size).astype(np.float32))
    np.testing.assert_allclose(other.products(0), one.products(0) * size**2, rtol=1e-3)
