"""Large values that the outputs do not hang on are clipped, others are not."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.executor import RuntimeRefusedError
from npuconv.legalize.legal import LegalModel
from npuconv.quantize import settings
from npuconv.quantize.calibrate import Calibration
from npuconv.quantize.clipping import clip_ranges
from npuconv.quantize.ranges import choose_encodings
from npuconv.quantize.state import QuantState
from support.asserts import context, read
from support.builders import Net
from support.plans import planned, random_feeds, watch, without
from support.target_files import NUMBERS, chip

LOUD = 40.0  # times as large as the others is one channel


def graph(weight_of_loud: float, *, op: str = "HardSwish", **options: object) -> LegalModel:
    """A layer with a loud channel, an operator of the device, and a layer that reads it.

    Args:
        weight_of_loud: what the last layer multiplies that channel by.
        op: of the device.
        options: of the conversion.
    """
    rng = np.random.default_rng(0)
    first, last = (rng.normal(size=shape).astype(np.float32) for shape in ((8, 4, 1, 1),) * 2)
    first[0] *= LOUD
    last = last.reshape(4, 8, 1, 1).copy()
    last[:, 0] = weight_of_loud
    net = Net(x=(1, 4, 8, 8))
    net.op("Conv", "x", net.constant(first), to="made").op(op, to="h")
    net.op("Conv", "h", net.constant(last), to="y")
    ctx = context(**options)
    numbers = {**NUMBERS, "zero_point": {"range": [-128, 127]}}
    operators = {"Conv": {}, "HardSwish": {}}
    ctx.target = chip("", also={"operators": operators, "activations": numbers})
    return planned(read(net.output("y").model()), ctx)


def states(one: LegalModel, steps: tuple[str, ...] = ()) -> tuple[QuantState, QuantState]:
    """Return the state before and after the step."""
    feeds = random_feeds(one.model, 8)
    seen = Calibration(watch(one, feeds), {})
    before = choose_encodings(one, seen)
    return before, clip_ranges(without(one, *steps), seen, before, feeds)  # type: ignore[arg-type]


def test_a_loud_channel_that_nothing_hangs_on():
    """Steps of its tensors become several times as small."""
    before, after = states(graph(0.0))
    for name in ("made", "h"):
        ratio = after.encodings[name].scales[0] / before.encodings[name].scales[0]
        assert ratio < 0.5
    assert set(after.shares.values()) <= set(settings.CLIPPING_SHARES)
    assert after.encodings["y"] == before.encodings["y"]


def test_a_loud_channel_that_the_outputs_hang_on():
    """The state stays: what that channel would lose is more than the others gain."""
    before, after = states(graph(3.0))
    assert after is before


@pytest.mark.parametrize(
    ("one", "steps"),
    [
        (graph(0.0), ("clipping",)),
        (graph(0.0, method="minmax"), ()),
        (graph(0.0, op="Softplus"), ()),
    ],
)
def test_left_out(one, steps):
    """The state stays as told, for another method, and without operators of the device."""
    before, after = states(one, steps)
    assert after is before


def test_a_graph_that_has_no_gradient(monkeypatch):
    """The ranges stay as they are."""
    monkeypatch.setattr("npuconv.quantize.clipping.measure", lambda *_: None)
    before, after = states(graph(0.0))
    assert after is before


def test_what_all_together_make_worse(monkeypatch):
    """The choice is dropped where the outputs err more than the estimate says."""
    monkeypatch.setattr("npuconv.quantize.fake_quant.SquaredErrors.ratio", lambda *_: 0.95)
    before, after = states(graph(0.0))
    assert after is before


def test_a_model_that_the_runtime_refuses(monkeypatch):
    """An estimate does not cost the conversion."""

    def refuse(*_: object) -> None:
        raise RuntimeRefusedError("too many axes")

    monkeypatch.setattr("npuconv.quantize.clipping.FakeQuantComparison", refuse)
    before, after = states(graph(0.0))
    assert after is before


@pytest.mark.parametrize(
    ("ratios", "taken"), [((0.5, 0.4), 0), ((0.7, 0.5), 1), ((0.7, 0.7), None)]
)
def test_the_first_choice_that_leaves_little_is_taken(monkeypatch, ratios, taken):
    """Each costs a pass over the samples."""
    left = iter(ratios)
    choices = [{"made": 0.5}, {"made": 0.35}]
    monkeypatch.setattr("npuconv.quantize.clipping._choices", lambda *_: choices)
    monkeypatch.setattr("npuconv.quantize.fake_quant.SquaredErrors.ratio", lambda *_: next(left))
    _, after = states(graph(0.0))
    assert after.shares == ({} if taken is None else choices[taken])
    assert len(list(left)) == (1 if taken == 0 else 0)
