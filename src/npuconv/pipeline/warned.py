"""Warnings to the user about a converted model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npuconv import emit
from npuconv.evaluate.interval import INTERVAL
from npuconv.legalize.registry import Phase
from npuconv.model import query

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npuconv.config import Options
    from npuconv.legalize.legal import LegalModel
    from npuconv.model.core import Model
    from npuconv.model.types import Node, Tensor
    from npuconv.pipeline.prepare import CalibrationData
    from npuconv.samples import Feed, Samples
    from npuconv.schemas import report as schema

_NEARLY = 1e-3  # of the spread of a sample: a distance of 30 dB, as that of two pressings
NOTHING_LEFT = "the device runs none of it: no convolution is left for the device, all stays float"


def about_samples(data: CalibrationData, found: schema.Accuracy) -> tuple[str, ...]:
    """Return warnings about what makes the measured numbers less reliable.

    Args:
        data: samples that were given, or made up.
        found: what was measured.
    """
    samples, chosen = data.samples, data.chosen
    warnings = []
    if chosen is not None and chosen.warning:
        warnings.append(f"{chosen.warning}; give --calibration with a handful of real inputs")
    if data.assumed:
        warnings.append(data.assumed)
    if found.cosine is None:
        warnings.append("an output is all zeros or not finite")
    if data.held_out is None and not samples.synthetic:
        warnings.append("too few samples to keep some apart: measured on those calibrated with")
    if not samples.builtin:
        warnings.extend(_alike(samples))
    warnings.extend(samples.notes)
    return tuple(warnings)


def unused(form: str, options: Options, *, samples: bool) -> tuple[str, ...]:
    """Return warnings about options that a form without int8 activations does not use.

    Args:
        form: its name.
        options: of the conversion.
        samples: whether some were given.
    """
    goals = {"--min-sqnr": options.min_sqnr, "--max-extra-macs": options.max_extra_macs}
    given = " and ".join(flag for flag, value in goals.items() if value)
    warnings = [f"--format {form} needs no samples: those given are not used"] if samples else []
    if given:
        told = "nothing is measured or bought for"
        warnings.append(f"--format {form} has float activations: {told} {given}")
    return tuple(warnings)


def doubt_db(data: CalibrationData) -> float:
    """Return by how much new samples may be worse for reasons that these do not show, in dB."""
    kinds = {
        "given": INTERVAL.inferred_db,
        "inferred": INTERVAL.inferred_db,
        "guessed": INTERVAL.guessed_db,
        "unknown": INTERVAL.made_up_db,
    }
    if data.chosen is not None:
        return kinds[data.chosen.certainty]
    alike = INTERVAL.alike_db if any(_alike(data.samples)) else 0.0
    return alike + (INTERVAL.calibrated_db if data.held_out is None else 0.0)


def _alike(samples: Samples) -> Iterator[str]:
    """Samples that show no more than one does, or nothing; most differ from the first at once."""
    first, count = samples[0], len(samples)
    distances = (_distance(first, samples[number]) for number in range(1, count))
    furthest = 0.0
    for distance in distances:
        furthest = max(furthest, distance)
        if furthest > _NEARLY:
            return
    if not any(np.any(array) for array in first.values()):
        yield "the samples hold nothing but zeros, so ranges mean nothing; give real inputs"
    elif count > 1:
        what = "nearly the same" if furthest else "the same"
        yield f"all {count} samples are {what}, and show no more than one; give others"


def _distance(one: Feed, other: Feed) -> float:
    """Return the largest of the inputs' distances, as a share of their spread."""
    return max((_apart(array, other[name]) for name, array in one.items()), default=0.0)


def _apart(one: np.ndarray, other: np.ndarray) -> float:
    if one.shape != other.shape or np.array_equal(one, other):
        return 0.0 if one.shape == other.shape else 1.0
    if one.dtype.kind not in "fiu":
        return 1.0
    difference = np.subtract(one, other, dtype=np.float64)
    spread = float(np.var(one, dtype=np.float64))
    return float(np.mean(difference**2)) / spread if spread else 1.0


def nothing_left(legal: LegalModel) -> tuple[str, ...]:
    """Return a warning if no convolution runs on the device: then nothing is rounded."""
    return () if legal.plan.device else (NOTHING_LEFT,)


def still_float(legal: LegalModel) -> tuple[str, ...]:
    """Return a warning that names what ``io=int8`` left in float, the nodes to blame and advice."""
    if legal.options.io != "int8":
        return ()
    named = [*_inputs_in_float(legal.model), *_outputs_in_float(legal.model)]
    if not named:
        return ()
    advice = "which work in float; run these nodes outside of the model, or leave --io int8 out"
    if Phase.LOWER not in emit.get(legal.options.format).phases:
        advice = f"as with any --format {legal.options.format}; --format qoperator makes them int8"
    return (f"some inputs or outputs stay float: {', '.join(named)}, {advice}",)


def _inputs_in_float(model: Model) -> Iterator[str]:
    for tensor in filter(_is_float, model.graph.inputs):
        reader = next((n for n in query.consumers(tensor) if n.op != "QuantizeLinear"), None)
        yield tensor.name if reader is None else f"{tensor.name} (read by {_named(model, reader)})"


def _outputs_in_float(model: Model) -> Iterator[str]:
    for tensor in filter(_is_float, model.graph.outputs):
        maker = query.producer(tensor)
        yield tensor.name if maker is None else f"{tensor.name} (made by {_named(model, maker)})"


def _is_float(tensor: Tensor) -> bool:
    return query.dtype_name(tensor).startswith("float")


def _named(model: Model, node: Node) -> str:
    return f"{query.qualified(node)} {model.label(node)!r}"
