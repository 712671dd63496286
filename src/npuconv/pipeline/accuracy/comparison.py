"""How far the int8 model is from the float model: end to end, and layer by layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from numpy.typing import NDArray

from npuconv import executor
from npuconv.arithmetic.qparams import dequantize, quantize
from npuconv.emulate import as_float
from npuconv.model import store
from npuconv.pipeline.accuracy.classes import class_axes
from npuconv.pipeline.accuracy.measured import Measured, Stats
from npuconv.pipeline.accuracy.parts import parts_of
from npuconv.pipeline.accuracy.stored import Layer, exact, numbers
from npuconv.pipeline.reporting.accuracy_rows import summed_up
from npuconv.pipeline.reporting.assemble import rounded
from npuconv.report import schema

if TYPE_CHECKING:
    from npuconv.samples import Feed, Samples

Array = NDArray[Any]


class Comparison:
    """Both models, loaded once, with the outputs of all layers to look at.

    The int8 model runs as float arithmetic that gives the same integers, which is faster;
    that the runtime takes it as it is, is tried on the first sample.

    Args:
        float_model: the legalized float model.
        int8_model: the converted model.
        scales: of inputs and outputs of the converted model that are int8 themselves.
        layers: what to compare besides the outputs.

    Attributes:
        broken: outputs that ``end_to_end`` has seen to be finite in the float model only.

    Raises:
        executor.RuntimeRefusedError: one of the models does not load.
    """

    def __init__(
        self,
        float_model: onnx.ModelProto,
        int8_model: onnx.ModelProto,
        scales: Mapping[str, float] | None = None,
        layers: Sequence[Layer] = (),
    ) -> None:
        made = {o for n in int8_model.graph.node for o in n.output}
        self.layers = [layer for layer in layers if layer.stored in made]
        self.broken: tuple[str, ...] = ()
        self._scales = dict(scales or {})
        self._outputs = [o.name for o in float_model.graph.output]
        self._axes = class_axes(float_model)
        self._written = executor.Session(int8_model)
        # The same integers as floats are four times as many bytes.
        as_it_is = store.has_stored(int8_model)
        self._parts = {} if as_it_is else parts_of(float_model, int8_model)
        self._within = _unique(name for names in self._parts.values() for name in names)
        self._tensors = _unique(layer.tensor for layer in self.layers)
        self._stored_as = _unique(layer.stored for layer in self.layers)
        watched = _unique((*self._within, *self._tensors))
        self._before = executor.Session(executor.with_outputs(float_model, watched))
        stored = _unique((*self._within, *self._stored_as))
        seen = executor.with_outputs if as_it_is else as_float
        self._after = executor.Session(seen(int8_model, stored))

    def end_to_end(self, samples: Samples, *, held_out: bool) -> schema.Accuracy:
        """Compare all outputs on all samples.

        Args:
            samples: what to run.
            held_out: whether these samples were kept from calibration.

        Raises:
            executor.RuntimeRefusedError: one of the models does not run.
        """
        found = self.measure(samples)
        stats = found.outputs.items()
        self.broken = tuple(name for name, one in stats if one.sqnr_db == -math.inf)
        return summed_up(found, len(samples), held_out)

    def measure(
        self, samples: Samples, see: Callable[[int, Feed, Feed], None] = lambda *_: None
    ) -> Measured:
        """Errors of all outputs on all samples.

        Args:
            samples: what to run.
            see: given the number of each sample and the outputs of both models.

        Raises:
            executor.RuntimeRefusedError: one of the models does not run.
        """
        outputs = {name: Stats(self._axes.get(name)) for name in self._outputs}
        found = Measured(outputs, Stats(), {name: {} for name in self._parts})
        for number, feed in enumerate(samples):
            old = self._before.run(feed, [*self._outputs, *self._within])
            new = self._run(feed, first=number == 0)
            same = [name for name in old if _comparable(old[name], new[name])]
            whole = [name for name in same if name in found.outputs]
            for name in whole:
                found.outputs[name].update(old[name], new[name])
            found.total.update(_joined(old[n] for n in whole), _joined(new[n] for n in whole))
            self._add_parts(found, old, new, set(same))
            see(number, old, new)
        return found

    def _add_parts(
        self, found: Measured, old: Mapping[str, Array], new: Mapping[str, Array], same: set[str]
    ) -> None:
        """Those that are float in both models: integers by the same name stand for others."""
        for output, parts in self._parts.items():
            for name in parts:
                if name in same and old[name].dtype == new[name].dtype:
                    found.parts[output].setdefault(name, Stats()).update(old[name], new[name])

    def _run(self, feed: Feed, *, first: bool) -> dict[str, Array]:
        """The converted model; at first as it is written, which shows no more than outputs."""
        stored = self._stored(feed)
        if not first:
            return self._real(self._after.run(stored, [*self._outputs, *self._within]))
        found = self._written.run(stored, self._outputs)
        if self._within:
            found |= self._after.run(stored, self._within)
        return self._real(found)

    def per_layer(self, feed: Feed) -> tuple[schema.LayerQuant, ...]:
        """Compare the output of every layer on one sample; earlier errors included."""
        return tuple(
            schema.LayerQuant(
                name=layer.name,
                sqnr_db=rounded(stats.sqnr_db, 2),
                cosine=rounded(stats.cosine, 6),
                note=layer.note,
            )
            for layer, stats in zip(self.layers, self.measure_layers([feed]), strict=True)
        )

    def measure_layers(self, feeds: Iterable[Feed]) -> list[Stats]:
        """Errors of every layer on all feeds, in the order of ``layers``.

        Raises:
            executor.RuntimeRefusedError: one of the models does not run.
        """
        stats = [Stats() for _ in self.layers]
        if not self.layers:
            return stats
        for feed in feeds:
            old = self._before.run(feed, self._tensors)
            new = self._after.run(self._stored(feed), self._stored_as)
            for layer, one in zip(self.layers, stats, strict=True):
                one.update(exact(layer, old[layer.tensor]), numbers(layer, new[layer.stored]))
        return stats

    def _stored(self, feed: Feed) -> Feed:
        scales = self._scales
        return {n: quantize(v, scales[n]) if n in scales else v for n, v in feed.items()}

    def _real(self, values: Mapping[str, Array]) -> dict[str, Array]:
        scales = self._scales
        return {n: dequantize(v, scales[n]) if n in scales else v for n, v in values.items()}


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _comparable(old: object, new: object) -> bool:
    """Numbers, and as many: not text, and not as many boxes as each model happens to find."""
    arrays = isinstance(old, np.ndarray) and isinstance(new, np.ndarray)
    return arrays and old.dtype.kind in "biuf" and old.size == new.size  # type: ignore[attr-defined]


def _joined(arrays: Iterable[Array]) -> Array:
    flat = [np.asarray(a, np.float64).reshape(-1) for a in arrays]
    return np.concatenate(flat) if flat else np.zeros(0)
