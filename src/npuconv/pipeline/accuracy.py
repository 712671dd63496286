"""How far the int8 model is from the float model: end to end, and layer by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def end_to_end(
    float_model: onnx.ModelProto,
    int8_model: onnx.ModelProto,
    samples: Samples,
    scales: Mapping[str, float],
    held_out: bool,
) -> schema.Accuracy:
    """Compare all outputs on all samples.

    Args:
        float_model: the legalized float model.
        int8_model: the converted model.
        samples: what to run.
        scales: of inputs and outputs of the converted model that are int8 themselves.
        held_out: whether these samples were kept from calibration.

    Raises:
        executor.RuntimeRefusedError: one of the models does not run.
    """
    before, after = executor.Session(float_model), executor.Session(int8_model)
    stats = {name: ErrorStats() for name in before.outputs}
    total = ErrorStats()
    for feed in samples:
        old = before.run(feed)
        new = _real(after.run(_stored(feed, scales)), scales)
        for name, values in old.items():
            stats[name].update(values, new[name])
        total.update(_joined(old.values()), _joined(new[name] for name in old))
    return _accuracy(stats, total, len(samples), held_out)


def _joined(arrays: object) -> np.ndarray:
    flat = [np.asarray(a, np.float64).reshape(-1) for a in arrays]  # type: ignore[attr-defined]
    return np.concatenate(flat) if flat else np.zeros(0)


def _stored(feed: Feed, scales: Mapping[str, float]) -> Feed:
    return {n: quantize(v, scales[n]) if n in scales else v for n, v in feed.items()}


def _real(values: Mapping[str, np.ndarray], scales: Mapping[str, float]) -> dict[str, np.ndarray]:
    return {n: dequantize(v, scales[n]) if n in scales else v for n, v in values.items()}


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


@dataclass(frozen=True)
class Layer:
    """Where to look for the output of one layer in both models."""

    name: str  # the user's own name of the convolution
    tensor: str  # its output in the float model
    stored: str  # the same, int8, in the converted model
    scale: float
    note: str = ""


def per_layer(
    float_model: onnx.ModelProto,
    int8_model: onnx.ModelProto,
    feed: Feed,
    layers: Sequence[Layer],
    scales: Mapping[str, float],
) -> tuple[schema.LayerQuant, ...]:
    """Compare the output of every layer on one sample; errors of earlier layers included."""
    made = {o for n in int8_model.graph.node for o in n.output}
    found = [layer for layer in layers if layer.stored in made]
    old = _watch(float_model, [layer.tensor for layer in found], feed)
    new = _watch(int8_model, [layer.stored for layer in found], _stored(feed, scales))
    rows = []
    for layer in found:
        stats = ErrorStats()
        stats.update(old[layer.tensor], dequantize(new[layer.stored], layer.scale))
        rows.append(
            schema.LayerQuant(
                name=layer.name,
                sqnr_db=rounded(stats.sqnr_db, 2),
                cosine=rounded(stats.cosine, 6),
                note=layer.note,
            )
        )
    return tuple(rows)


def _watch(model: onnx.ModelProto, tensors: Sequence[str], feed: Feed) -> dict[str, np.ndarray]:
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    del watched.graph.output[:]
    unique = list(dict.fromkeys(tensors))
    watched.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in unique)
    return executor.Session(watched).run(feed) if unique else {}
