"""Numbers that break arithmetic: NaN, infinity, denormal, zero, huge."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

from hostile.case import Case, Cases, model
from support.builders import Net

_TINY, _HUGE = np.float32(1e-45), np.finfo(np.float32).max
_VALUES = {
    "nan": np.nan,
    "inf": np.inf,
    "minus-inf": -np.inf,
    "denormal": _TINY,
    "zero": 0.0,
    "huge": _HUGE,
    "1e-30": 1e-30,
}
# Which initializer of the model, in the order in which it is built.
_PLACES = {"weight": 0, "bias": 1, "scale": 2, "mean": 4, "variance": 5, "last": 6}


def cases() -> Cases:
    """Every odd number in every place."""
    for where, index in _PLACES.items():
        for name, value in _VALUES.items():
            yield Case(f"weights/{where}-{name}", "arithmetic", model(_filled(index, value)))
    for name, pair in {
        "huge-and-tiny": (_HUGE, _TINY),
        "inf-and-minus-inf": (np.inf, -np.inf),
        "one-nan": (np.nan, 0.1),
        "huge-and-minus-huge": (_HUGE, -_HUGE),
    }.items():
        proto = _filled(0, pair[1])
        values = numpy_helper.to_array(proto.graph.initializer[0]).copy()
        values[::2] = pair[0]
        _set(proto, 0, values)
        yield Case(f"weights/weight-{name}", "arithmetic", model(proto))
    for name, value in {"nan": np.nan, "inf": np.inf, "negative": -1.0, "huge": 3e38}.items():
        net = Net(x=(1, 3, 8, 8)).conv("x").batchnorm(4, epsilon=value).op("Relu")
        yield Case(f"weights/epsilon-{name}", "arithmetic", model(net.model()))
    for name, ends in {"crossed": (6.0, -6.0), "nan": (np.nan, np.nan), "inf": (-np.inf, np.inf),
                       "alike": (0.0, 0.0)}.items():  # fmt: skip
        net = Net(x=(1, 3, 8, 8)).conv("x")
        low, high = (net.constant(np.float32(end)) for end in ends)
        yield Case(
            f"weights/clip-{name}", "ranges", model(net.op("Clip", net.last, low, high).model())
        )


def _model() -> onnx.ModelProto:
    net = Net(x=(1, 3, 8, 8)).conv("x").batchnorm(4).op("Relu")
    return net.conv(net.last, (4, 4, 1, 1), bias=False).op("Flatten").model()


def _filled(index: int, value: float) -> onnx.ModelProto:
    proto = _model()
    dims = tuple(proto.graph.initializer[index].dims)
    _set(proto, index, np.full(dims, value, np.float32))
    return proto


def _set(proto: onnx.ModelProto, index: int, values: np.ndarray) -> None:
    tensor = proto.graph.initializer[index]
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
