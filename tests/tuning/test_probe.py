"""How much noise each of many roundings makes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import pytest

from builders import Net
from npuconv.quant.encoding import Encoding
from npuconv.tuning.gated import Gate, Rounding
from npuconv.tuning.probe import noise_powers

SHAPE = (1, 4, 16, 16)
LAYERS = 40


def chain() -> onnx.ModelProto:
    """Forty convolutions of one tensor, all of them outputs: their noise never meets."""
    net = Net(x=SHAPE)
    for number in range(LAYERS):
        net.conv("x", (4, 4, 3, 3), pads=[1, 1, 1, 1], name=f"n{number}", to=f"t{number}")
    return net.output(*(f"t{number}" for number in range(LAYERS))).model()


def roundings() -> list[Rounding]:
    """Steps of many sizes."""
    sizes = np.geomspace(0.01, 0.1, LAYERS)
    return [
        Rounding(Gate(f"n{k}", "output", f"t{k}"), Encoding.plain(size))
        for k, size in enumerate(sizes)
    ]


def feeds(count: int = 2) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(3)
    return [{"x": rng.standard_normal(SHAPE).astype(np.float32)} for _ in range(count)]


def alone() -> np.ndarray:
    """What each rounding costs, measured by itself."""
    return np.asarray([noise_powers(chain(), [r], feeds())[0][0] for r in roundings()])


def test_few_runs_tell_what_each_rounding_costs():
    """Far fewer probes than roundings, and the largest are found with their size."""
    powers, signal = noise_powers(chain(), roundings(), feeds())
    exact = alone()
    assert signal > 0
    assert powers.sum() == pytest.approx(exact.sum(), rel=0.1)
    largest = np.argsort(exact)[-10:]
    assert powers[largest] == pytest.approx(exact[largest], rel=0.4)


def test_roundings_can_be_measured_together():
    """Those of one layer are one unknown."""
    together = [k // 20 for k in range(LAYERS)]
    powers, _ = noise_powers(chain(), roundings(), feeds(), together)
    exact = alone()
    assert powers == pytest.approx([exact[:20].sum(), exact[20:].sum()], rel=0.2)


def test_nothing_to_round_makes_no_noise():
    """A model without layers on the device."""
    assert noise_powers(chain(), [], feeds())[0].size == 0


def test_no_more_is_looked_at_than_it_takes():
    """Feeds after that are not even asked for; four are, as one may be odd."""

    def four() -> Iterator[dict[str, np.ndarray]]:
        yield from feeds(4)
        pytest.fail("looked at the fifth")

    few, _ = noise_powers(chain(), roundings()[:1], four(), enough=1)
    every, _ = noise_powers(chain(), roundings()[:1], feeds(4))
    assert few == pytest.approx(every)


def meeting() -> onnx.ModelProto:
    """The same forty, of which one output shows a few sums: their noise meets."""
    net = Net(x=SHAPE)
    for number in range(LAYERS):
        net.conv("x", (4, 4, 3, 3), pads=[1, 1, 1, 1], name=f"n{number}", to=f"t{number}")
    net.op("Sum", *(f"t{number}" for number in range(LAYERS)), to="sum")
    return net.op("ReduceSum", "sum", net.constant(np.asarray([2, 3])), to="y").output("y").model()


def test_outputs_of_few_values():
    """What probes cannot tell apart is measured one by one, on a pair of feeds."""

    def pair() -> Iterator[dict[str, np.ndarray]]:
        yield from feeds()
        pytest.fail("looked at the third")

    powers, _ = noise_powers(meeting(), roundings(), pair(), enough=2048)
    each = [noise_powers(meeting(), [r], feeds())[0][0] for r in roundings()]
    assert powers == pytest.approx(np.asarray(each), rel=1e-3)
