"""A float model that gives statistics of its tensors instead of its outputs, and their layout.

Each tensor is reshaped to [samples, outer, channels, inner] and reduced where it lies, sample
by sample; the runtime returns one array per statistic, for all tensors together. The shapes are
an input, because some are known only after a run; the selection of the returned values is another.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from npuconv.arithmetic.statistics import Floats, Integers, Kept, quota, spread_order

PREFIX = "npuconv/calibration"
PLAN = f"{PREFIX}/plan"  # int64 [T * 8]: for each tensor shape [4], starts [2], steps [2]
PLAN_LENGTHS = (4, 2, 2)
LOWS, HIGHS, MEANS, VALUES = KINDS = tuple(
    f"{PREFIX}/{kind}" for kind in ("lows", "highs", "means", "values")
)
_INITIALIZERS_ARE_NO_INPUTS = 4  # since this version of the file format
_ALLOWS_ZERO = 14  # opset
_BEFORE, _BEHIND = 1, 3  # the channels
# Multiples of it, modulo 1, fill the unit interval evenly, however many there are.
_GOLDEN = 0.6180339887498949
_REDUCTIONS = {LOWS: "ReduceMin", HIGHS: "ReduceMax", MEANS: "ReduceMean"}


def shape_output(index: int) -> str:
    """Return the name of the output with the shape of a tensor."""
    return f"{PREFIX}/shape/{index}"


def insert_taps(model: onnx.ModelProto, tensors: Sequence[str]) -> onnx.ModelProto:
    """Copy the model with the outputs ``KINDS`` and the shapes of the tensors."""
    tapped = onnx.ModelProto()
    tapped.CopyFrom(model)
    graph = tapped.graph
    opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=1)
    taps = {name: _taps(name, index, opset) for index, name in enumerate(tensors)}
    nodes, count, lengths = list(_interleave(model, taps)), len(tensors), f"{PREFIX}/lengths"
    parts = [_name(part, k) for k in range(count) for part in ("form", "starts", "steps")]
    split = helper.make_node("Split", [PLAN, lengths], parts, axis=0)
    if opset < 13:
        amounts = list(PLAN_LENGTHS) * count
        split = helper.make_node("Split", [PLAN], parts, axis=0, split=amounts)
    joins = [
        helper.make_node("Concat", [_name(kind, k) for k in range(count)], [kind], axis=axis)
        for kind, axis in ((LOWS, 1), (HIGHS, 1), (MEANS, 1), (VALUES, 0))  # [samples, channels]
    ]
    constants = {
        f"{PREFIX}/before": [_BEFORE],
        f"{PREFIX}/behind": [_BEHIND],
        f"{PREFIX}/sliced": [_BEFORE, _BEHIND],
        f"{PREFIX}/ends": [2**62, 2**62],
        f"{PREFIX}/flat": [-1],
        lengths: list(PLAN_LENGTHS) * count,
    }
    tapped.ir_version = max(model.ir_version, _INITIALIZERS_ARE_NO_INPUTS)
    # onnxruntime answers Shape with what the model states, which a run may contradict.
    del graph.node[:], graph.output[:], graph.value_info[:]
    graph.node.extend([split, *nodes, *joins])
    graph.input.append(helper.make_tensor_value_info(PLAN, TensorProto.INT64, [None]))
    for name, values in constants.items():
        graph.initializer.append(numpy_helper.from_array(np.asarray(values, np.int64), name))
    outputs = [*KINDS, *(shape_output(index) for index in range(count))]
    graph.output.extend(helper.make_empty_tensor_value_info(name) for name in outputs)
    return tapped


def _name(kind: str, index: int) -> str:
    return f"{kind if kind.startswith(PREFIX) else f'{PREFIX}/{kind}'}/{index}"


def _interleave(
    model: onnx.ModelProto, taps: dict[str, list[onnx.NodeProto]]
) -> Iterator[onnx.NodeProto]:
    """Yield the nodes, every tap right behind its tensor: that is still in the cache then."""
    produced = {name for node in model.graph.node for name in node.output}
    for name, nodes in taps.items():
        if name not in produced:
            yield from nodes
    for node in model.graph.node:
        yield node
        for name in node.output:
            yield from taps.get(name, [])


def _taps(name: str, index: int, opset: int) -> list[onnx.NodeProto]:
    def node(op: str, inputs: list[str], kind: str, **attributes: Any) -> onnx.NodeProto:
        return helper.make_node(op, inputs, [_name(kind, index)], **attributes)

    grouped, form = _name("grouped", index), _name("form", index)
    starts, steps = _name("starts", index), _name("steps", index)
    selection = [grouped, starts, f"{PREFIX}/ends", f"{PREFIX}/sliced", steps]
    zeros = {"allowzero": 1} if opset >= _ALLOWS_ZERO else {}
    return [
        node("Shape", [name], "shape"),
        node("Cast", [name], "cast", to=TensorProto.FLOAT),
        # A 0 is an extent: a detector that found nothing has such outputs.
        node("Reshape", [_name("cast", index), form], "grouped", **zeros),
        *(part for kind in _REDUCTIONS for part in _reduce(kind, index, opset)),
        node("Slice", selection, "selected"),
        node("Reshape", [_name("selected", index), f"{PREFIX}/flat"], VALUES),
    ]


def _reduce(kind: str, index: int, opset: int) -> Iterator[onnx.NodeProto]:
    """Yield a reduction behind, then one before the channels: both at once take twice as long."""
    op, half, result = _REDUCTIONS[kind], _name(f"{kind}/half", index), _name(kind, index)
    steps = ((_name("grouped", index), half, "behind", _BEHIND), (half, result, "before", _BEFORE))
    for source, target, name, axis in steps:
        if opset < 18:
            yield helper.make_node(op, [source], [target], axes=[axis], keepdims=0)
        else:
            yield helper.make_node(op, [source, f"{PREFIX}/{name}"], [target], keepdims=0)


@dataclass(frozen=True)
class TapLayout:
    """Tensors as [samples, outer, channels, inner]: extents around the channel axis."""

    samples: int  # how many are stacked
    outer: Integers  # int64 [T], extent before the channel axis, per sample
    channels: Integers  # int64 [T]
    inner: Integers  # int64 [T]

    @property
    def counts(self) -> Integers:
        """int64 [T], values per channel of a sample."""
        return self.outer * self.inner

    @property
    def size(self) -> int:
        """Values of one sample, all tensors together."""
        return int(np.sum(self.outer * self.channels * self.inner))


def make_layout(
    shapes: Sequence[Sequence[int]], axes: Sequence[int | None], samples: int
) -> TapLayout | None:
    """Return the layout of tensors of these shapes; None if a tensor cannot be cut into samples."""
    rows = []
    for shape, axis in zip(map(list, shapes), axes, strict=True):
        size = math.prod(shape)
        if axis is not None:
            rows.append((math.prod(shape[:axis]), shape[axis], math.prod(shape[axis:][1:])))
        else:  # one channel, and samples in front of it all the same
            rows.append((size, 1, 1) if size % samples else (samples, 1, size // samples))
    if any(stacked % samples for stacked, _, _ in rows):
        return None
    outer, channels, inner = np.asarray(rows, np.int64).T
    return TapLayout(samples, outer // samples, channels, inner)


# Row of the plan that any tensor fits, while its shape is not known.
UNKNOWN_SHAPE = [1, 1, 1, -1, 0, 0, 2**62, 2**62]


@dataclass(frozen=True)
class TapSelection:
    """Selection of values of each tensor: every n-th, before and behind the channels.

    When samples are run together, the model returns all values, and they are picked
    afterwards: so the selection does not depend on how many samples were run at once.
    """

    layout: TapLayout
    number: int  # of the first sample
    starts: Integers  # int64 [samples, T, 2]
    steps: Integers  # int64 [T, 2], odd, so that they do not walk along one column of an image

    @property
    def plan(self) -> Integers:
        """Input of the tapped model that selects the values to return, int64 [T * 8]."""
        layout = self.layout
        stacked = np.full_like(layout.outer, layout.samples)
        form = np.stack([stacked, layout.outer, layout.channels, layout.inner], axis=1)
        starts, steps = self.starts[0], self.steps
        if layout.samples > 1:
            starts, steps = np.zeros_like(steps), np.ones_like(steps)
        return np.concatenate([form, starts, steps], axis=1).ravel()

    def cut(self, values: Floats) -> Iterator[Kept]:
        """Yield the selected values of each tensor, sample by sample."""
        layout, begin = self.layout, 0
        extents = np.stack([layout.outer, layout.inner], axis=1)
        if layout.samples == 1:
            extents = (extents - self.starts[0] + self.steps - 1) // self.steps
        for index, (outer, inner) in enumerate(extents.tolist()):
            form = (layout.samples, outer, int(layout.channels[index]), inner)
            end = begin + math.prod(form)
            block, rows = values[begin:end].reshape(form), []
            for sample, start in zip(block, self.starts[:, index].tolist(), strict=True):
                if len(block) > 1:
                    (first, second), (far, near) = start, self.steps[index].tolist()
                    sample = sample[first::far, :, second::near]
                row = sample.transpose(1, 0, 2).reshape(form[2], sample.shape[0] * sample.shape[2])
                rows.append(row.take(spread_order(row.shape[1]), axis=1))
            widths = np.asarray([row.shape[1] for row in rows], np.int64)
            numbers = np.arange(self.number, self.number + len(block))
            yield Kept(np.concatenate(rows, axis=1), numbers[widths > 0], widths[widths > 0])
            begin = end


def select(layout: TapLayout, number: int, samples: int) -> TapSelection:
    """Choose values, alike of every sample.

    Args:
        layout: of the tensors.
        number: of the first sample; each sample's decides where to start.
        samples: how many there are, or at least are; each contributes alike.
    """
    quotas = np.asarray([quota(c, samples) for c in layout.channels.tolist()], np.int64)
    outer = np.maximum(np.minimum(layout.outer, quotas), 1)
    inner = np.maximum(np.minimum(layout.inner, quotas // outer), 1)
    extents = np.stack([layout.outer, layout.inner], axis=1)
    steps = -(-extents // np.stack([outer, inner], axis=1)) | 1
    numbers = np.arange(number, number + layout.samples)[:, None, None]
    starts = (numbers * _GOLDEN % 1 * steps).astype(np.int64)
    return TapSelection(layout, number, np.clip(starts, 0, np.maximum(extents - 1, 0)), steps)
