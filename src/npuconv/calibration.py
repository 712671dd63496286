"""Samples through the float model -> what every int8 tensor must be able to hold.

One pass. The model itself finds the exact extremes of each tensor and a bounded, evenly
spread sample of its values; only those leave onnxruntime, so memory depends neither on
the number of samples nor on the size of the tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper, numpy_helper

from npuconv import executor
from npuconv.errors import CalibrationError
from npuconv.quant.observers import Method, Observer
from npuconv.quant.qparams import QParams, symmetric_scale

SPREAD = 2048  # about so many values of one tensor and sample go into its histogram
_PREFIX = "npuconv/calibration"


@dataclass(frozen=True)
class Range:
    """What was seen of one group of tensors, and the scale chosen for it."""

    qparams: QParams
    minimum: float
    maximum: float
    clip_fraction: float  # share of the values that saturate


@dataclass
class Ranges:
    """Calibration results by tensor name. Immutable, and void when the graph changes."""

    samples: int
    by_tensor: Mapping[str, Range] = field(default_factory=dict)


def observe(
    model: onnx.ModelProto,
    tensors: Sequence[str],
    feeds: Iterable[Mapping[str, np.ndarray]],
    progress: Callable[[], None] = lambda: None,
) -> dict[str, Observer]:
    """Run the samples once and watch these tensors.

    Args:
        model: the legalized float model; not changed.
        tensors: names of float tensors, model inputs included.
        feeds: complete inputs, one dict per sample.
        progress: called after each sample.

    Returns:
        An observer per tensor.

    Raises:
        CalibrationError: onnxruntime refuses the model or a sample, a tensor holds values
            that are not finite, or there are no samples.
    """
    observers = {name: Observer(name) for name in tensors}
    try:
        session = executor.Session(_with_taps(model, tensors))
        for number, feed in enumerate(feeds):
            _watch(session.run(feed), observers, number)
            progress()
    except executor.RuntimeRefusedError as error:
        raise CalibrationError(f"the float model does not run on the samples: {error}") from None
    return observers


def _watch(
    values: Mapping[str, np.ndarray], observers: Mapping[str, Observer], number: int
) -> None:
    for index, observer in enumerate(observers.values()):
        lowest, highest, some = (values[_tap(kind, index)] for kind in ("min", "max", "some"))
        if not (np.isfinite(lowest) and np.isfinite(highest)):
            raise CalibrationError(
                f"sample {number}: the float model itself makes values that are not finite "
                f"(tensor {observer.name!r})",
                hint="check the weights, and the normalization of the samples",
            )
        observer.update_range(float(lowest), float(highest))
        observer.update(some)


def _tap(kind: str, index: int) -> str:
    return f"{_PREFIX}/{kind}/{index}"


def _with_taps(model: onnx.ModelProto, tensors: Sequence[str]) -> onnx.ModelProto:
    """The model with extremes and samples of the tensors as its only outputs."""
    tapped = onnx.ModelProto()
    tapped.CopyFrom(model)
    graph = tapped.graph
    del graph.output[:]
    shared = {"flat": -1, "zero": 0, "one": 1, "two": 2, "spread": 2 * SPREAD, "end": 2**62}
    for key, value in shared.items():
        array = np.asarray([value], np.int64)
        graph.initializer.append(numpy_helper.from_array(array, f"{_PREFIX}/{key}"))
    for index, name in enumerate(tensors):
        graph.node.extend(_taps(name, index))
        for kind in ("min", "max", "some"):
            graph.output.append(helper.make_empty_tensor_value_info(_tap(kind, index)))
    return tapped


def _taps(name: str, index: int) -> list[onnx.NodeProto]:
    """ReduceMin, ReduceMax, and every n-th value, n so that about SPREAD are left.

    n is odd, so that it does not walk along one column of an image of even width.
    """

    def shared(key: str) -> str:
        return f"{_PREFIX}/{key}"

    def own(key: str) -> str:
        return f"{_PREFIX}/{key}/{index}"

    return [
        helper.make_node("ReduceMin", [name], [own("min")], keepdims=0),
        helper.make_node("ReduceMax", [name], [own("max")], keepdims=0),
        helper.make_node("Reshape", [name, shared("flat")], [own("values")]),
        helper.make_node("Shape", [own("values")], [own("size")]),
        helper.make_node("Div", [own("size"), shared("spread")], [own("times")]),
        helper.make_node("Mul", [own("times"), shared("two")], [own("even")]),
        helper.make_node("Add", [own("even"), shared("one")], [own("step")]),
        helper.make_node(
            "Slice",
            [own("values"), shared("zero"), shared("end"), shared("zero"), own("step")],
            [own("some")],
        ),
    ]


def choose(
    observers: Mapping[str, Observer], groups: Mapping[str, Sequence[str]], method: Method
) -> dict[str, Range]:
    """A scale for every group of tensors that share one.

    Args:
        observers: what was seen, by tensor.
        groups: name of the group -> the tensors whose values decide its range.
        method: how the range is found; see ``Observer.absmax``.
    """
    ranges: dict[str, Range] = {}
    for name, members in groups.items():
        merged = Observer(name)
        for member in members:
            merged.merge(observers[member])
        absmax = merged.absmax(method)
        ranges[name] = Range(
            QParams(symmetric_scale(absmax)),
            merged.minimum,
            merged.maximum,
            merged.clip_fraction(absmax),
        )
    return ranges
