"""Ranges drawn in by what is measured."""

from __future__ import annotations

import numpy as np
import onnx

from asserts import read
from builders import Net
from npuconv.plan import Plan, make_plan
from npuconv.quant.encoding import Encoding
from npuconv.target import Target
from npuconv.tuning.gated import Gate, Rounding
from npuconv.tuning.refine import refine, shrunk

SHAPE = (1, 2, 24, 24)


def model() -> onnx.ModelProto:
    """One convolution that hands its input on."""
    net = Net(x=SHAPE)
    weight = net.constant(np.eye(2, dtype=np.float32).reshape(2, 2, 1, 1))
    return net.op("Conv", "x", weight, name="n", to="t").model()


def parts(proto: onnx.ModelProto, tensor: str, scale: float) -> tuple[Plan, dict, list[Rounding]]:
    plan = make_plan(read(proto), Target.load("npu-int8"))
    encodings = {name: Encoding.plain(scale) for name in plan.group_of()}
    gate = Gate("n", "output", tensor)
    return plan, encodings, [Rounding(gate, encodings[tensor])]


def feeds(reach: float, count: int = 4) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [{"x": (reach * rng.uniform(-1, 1, SHAPE)).astype(np.float32)} for _ in range(count)]


def test_a_range_too_wide_is_narrowed():
    """Values reach a third of what int8 could hold."""
    proto = model()
    plan, encodings, gates = parts(proto, "t", 3 / 127)
    found, factors = refine(proto, plan, encodings, gates, feeds(1.0))
    assert factors == {"t": 0.5}
    assert found["t"].scales == shrunk(encodings["t"], 0.5).scales
    assert found["x"].scales == encodings["x"].scales


def test_a_range_that_fits_stays():
    """Neither more steps nor more room would help."""
    proto = model()
    plan, encodings, gates = parts(proto, "t", 1 / 127)
    assert refine(proto, plan, encodings, gates, feeds(1.0))[1] == {}


def test_what_was_hardly_seen_is_not_narrowed():
    """However well it looks on these samples."""
    proto = model()
    plan, encodings, gates = parts(proto, "t", 3 / 127)
    assert refine(proto, plan, encodings, gates, feeds(1.0), {"t"})[1] == {}
