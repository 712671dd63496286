"""How far the int8 model is from the float model: end to end, and layer by layer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper

from npuconv import executor
from npuconv.pipeline.assemble import rounded
from npuconv.quant.metrics import ErrorStats
from npuconv.quant.qparams import dequantize, quantize
from npuconv.report import schema

if TYPE_CHECKING:
    from npuconv.samples import Feed, Samples

POOR_DB = 15.0  # below this, what comes out is mostly noise to a user


@dataclass(frozen=True)
class Layer:
    """Where to look for the output of one layer in both models."""

    name: str  # the user's own name of the convolution
    tensor: str  # its output in the float model
    stored: str  # the same, int8, in the converted model
    scale: float
    note: str = ""
    channels_last: bool = False  # in the converted model


class Comparison:
    """Both models, loaded once, with the outputs of all layers to look at.

    Args:
        float_model: the legalized float model.
        int8_model: the converted model.
        scales: of inputs and outputs of the converted model that are int8 themselves.
        layers: what to compare besides the outputs.

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
        self._layers = [layer for layer in layers if layer.stored in made]
        self._scales = dict(scales or {})
        self._outputs = [o.name for o in float_model.graph.output]
        self._before = _session(float_model, [layer.tensor for layer in self._layers])
        self._after = _session(int8_model, [layer.stored for layer in self._layers])

    def end_to_end(self, samples: Samples, *, held_out: bool) -> schema.Accuracy:
        """Compare all outputs on all samples.

        Args:
            samples: what to run.
            held_out: whether these samples were kept from calibration.

        Raises:
            executor.RuntimeRefusedError: one of the models does not run.
        """
        stats = {name: ErrorStats() for name in self._outputs}
        total = ErrorStats()
        for feed in samples:
            old = self._before.run(feed, self._outputs)
            new = self._real(self._after.run(self._stored(feed), self._outputs))
            same = [name for name in old if _comparable(old[name], new[name])]
            for name in same:
                stats[name].update(old[name], new[name])
            total.update(_joined(old[n] for n in same), _joined(new[n] for n in same))
        return _accuracy(stats, total, len(samples), held_out)

    def per_layer(self, feed: Feed) -> tuple[schema.LayerQuant, ...]:
        """Compare the output of every layer on one sample; earlier errors included."""
        if not self._layers:
            return ()
        old = self._before.run(feed, _unique(layer.tensor for layer in self._layers))
        stored = _unique(layer.stored for layer in self._layers)
        new = self._after.run(self._stored(feed), stored)
        return tuple(_row(layer, old[layer.tensor], new[layer.stored]) for layer in self._layers)

    def _stored(self, feed: Feed) -> Feed:
        scales = self._scales
        return {n: quantize(v, scales[n]) if n in scales else v for n, v in feed.items()}

    def _real(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        scales = self._scales
        return {n: dequantize(v, scales[n]) if n in scales else v for n, v in values.items()}


def _session(model: onnx.ModelProto, tensors: Iterable[str]) -> executor.Session:
    """The model with these tensors as further outputs."""
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    there = {o.name for o in model.graph.output}
    extra = [name for name in _unique(tensors) if name not in there]
    watched.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in extra)
    return executor.Session(watched)


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _row(layer: Layer, old: np.ndarray, new: np.ndarray) -> schema.LayerQuant:
    stats = ErrorStats()
    if layer.channels_last:
        new = np.moveaxis(new, -1, 1)
    stats.update(old, dequantize(new, layer.scale))
    return schema.LayerQuant(
        name=layer.name,
        sqnr_db=rounded(stats.sqnr_db, 2),
        cosine=rounded(stats.cosine, 6),
        note=layer.note,
    )


def _comparable(old: object, new: object) -> bool:
    """Numbers, and as many: not text, and not as many boxes as each model happens to find."""
    arrays = isinstance(old, np.ndarray) and isinstance(new, np.ndarray)
    return arrays and old.dtype.kind in "biuf" and old.size == new.size  # type: ignore[attr-defined]


def _joined(arrays: Iterable[np.ndarray]) -> np.ndarray:
    flat = [np.asarray(a, np.float64).reshape(-1) for a in arrays]
    return np.concatenate(flat) if flat else np.zeros(0)


def _accuracy(
    stats: Mapping[str, ErrorStats], total: ErrorStats, count: int, held_out: bool
) -> schema.Accuracy:
    outputs = tuple(
        schema.OutputAccuracy(
            name=name,
            sqnr_db=rounded(s.sqnr_db, 2),
            cosine=rounded(s.cosine, 6),
            top1_agreement=rounded(s.top1_agreement, 4),
        )
        for name, s in stats.items()
    )
    single = outputs[0].top1_agreement if len(outputs) == 1 else None
    return schema.Accuracy(
        samples=count,
        held_out=held_out,
        sqnr_db=rounded(total.sqnr_db, 2),
        cosine=rounded(total.cosine, 6),
        top1_agreement=single,
        outputs=outputs,
    )
