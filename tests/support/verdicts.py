"""Verdicts on random models: exit codes of check and convert, and faults of converted models."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import npuconv
from npuconv.errors import NpuconvError, UnsupportedModelError
from npuconv.evaluate.run_parts import run_parts
from npuconv.evaluate.split import split
from npuconv.executor import Session
from npuconv.report.builder.notices import LATER
from support.odd_models import OddCase
from support.odd_networks import PASSED_ON, OddNetwork
from support.tflite_files import differing_layers

BUG = 70


@dataclass(frozen=True)
class End:
    """Exit of a command.

    Attributes:
        code: exit code.
        ok: whether the model can be converted.
        said: the verdict, or the error.
        left: sentences on options and samples that were not judged.
    """

    code: int
    ok: bool
    said: str
    left: tuple[str, ...] = ()


def _failed(error: Exception) -> End:
    if isinstance(error, NpuconvError):
        return End(error.exit_code, False, str(error))
    return End(BUG, False, f"{type(error).__name__}: {error}")


def of_check(case: OddCase) -> End:
    """Run check."""
    try:
        summary = npuconv.check(case.model, **case.options).summary
    except Exception as error:  # as on the command line, any other exception is a bug
        return _failed(error)
    ok = summary.verdict == "convertible"
    return End(summary.exit_code, ok, summary.headline, summary.not_judged)


def of_convert(case: OddCase) -> End:
    """Run convert."""
    try:
        summary = npuconv.convert(case.model, **case.options).report.summary
    except UnsupportedModelError as error:
        return End(1, False, error.report.summary.headline)
    except Exception as error:
        return _failed(error)
    return End(0, True, summary.headline)


def _named(checked: End, converted: End) -> bool:
    """Return whether check announced the cause of a failed conversion as not judged."""
    later = [text for text in checked.left if text.startswith(LATER)]
    if converted.code == 1:
        return len(checked.left) > len(later)
    sample = re.search(r"sample (\d+)", converted.said)
    return bool(later) and converted.code == 2 and sample is not None and int(sample[1]) > 0


def disagreement(case: OddCase) -> tuple[End, str]:
    """Run check and convert.

    Returns:
        Exit of the conversion, and a text if check promised another exit, or on a bug.
    """
    checked, converted = of_check(case), of_convert(case)
    exits = f"check {checked.code} {checked.said!r}, convert {converted.code} {converted.said!r}"
    if BUG in (checked.code, converted.code):
        return converted, f"a bug: {exits}"
    if _named(checked, converted):  # check announced that only a conversion can judge it
        return converted, ""
    never = case.options.get("fail_on") == "never" and not checked.ok and checked.code == 0
    agrees = checked.ok == converted.ok and (checked.code == converted.code or never)
    return converted, "" if agrees else exits


FLOAT_DB = 70.0  # least SQNR of float32 sums in another order
LOW_DB = 20.0  # SQNR above which int8 is as expected for random weights
FORM_DB = 3.0  # largest difference between two forms of one network
LIMIT_DB = 40.0  # SQNR above which forms are not compared: few values are rounded at all
LOST_DB = 10.0  # largest loss from operators in int8, compared with convolutions alone


def faults(case: OddNetwork, folder: Path) -> tuple[str, list[str]]:
    """Convert a network in a folder, and check the written model and its parts.

    Returns:
        ``converted``, ``refused`` or ``different``, and a sentence for each fault.
    """
    options = case.given(folder)
    end, text = disagreement(OddCase(case.model, options))
    if text or not end.ok:
        return ("different" if text else "refused"), [text] if text else []
    model = npuconv.convert(case.model, **options).model
    sentences = [] if options.get("io") == "int8" else _of_outputs(case, model, folder)
    if not sentences and options["format"] == "qoperator":
        sentences += _of_parts(model, options, folder) + _of_forms(case, model, options)
    if not sentences and options.get("io") != "int8":
        npuconv.verify(case.model, model, samples=2, input_shape=options.get("input_shape", {}))
    if _computes_as_litert(case) and find_spec("ai_edge_litert"):
        _, differing = differing_layers(model, case.feeds)
        sentences += [f"{name}: other integers in LiteRT" for name in differing]
    return "converted", sentences


def _computes_as_litert(case: OddNetwork) -> bool:
    target = case.options["target"]
    arithmetic = target["activations"].get("requantize") if isinstance(target, dict) else ""
    is_gemmlowp = case.options["format"] == "tflite" and arithmetic == "gemmlowp"
    return is_gemmlowp and case.options.get("io") != "int8"


def _of_outputs(case: OddNetwork, model: onnx.ModelProto, folder: Path) -> list[str]:
    expected, outputs = Session(case.model).run(case.feeds), Session(model).run(case.feeds)
    if list(expected) != list(outputs):
        return [f"outputs {list(outputs)} are to be {list(expected)}"]
    for name, values in expected.items():
        if outputs[name].shape != values.shape:
            return [f"{name}: {outputs[name].shape} is to be {values.shape}"]
        if np.isfinite(values).all() and not np.isfinite(outputs[name]).all():
            return [f"{name} is not finite"]
    reached = worst_sqnr(expected, outputs)
    if case.options["format"] == "float":
        return [f"float: {reached:.1f} dB"] if reached < FLOAT_DB else []
    if reached >= LOW_DB or not isinstance(case.options["target"], dict):
        return []
    alone = _sqnr_of_convolutions(case, expected, folder)
    return (
        [f"{reached:.1f} dB, convolutions alone {alone:.1f}"] if alone > reached + LOST_DB else []
    )


def worst_sqnr(expected: dict[str, np.ndarray], outputs: dict[str, np.ndarray]) -> float:
    """Return the SQNR of the worst output, in dB, without outputs that are all zeros."""
    decibels = []
    for name, values in expected.items():
        power = float(np.square(values, dtype=np.float64).sum())
        noise = float(np.square(outputs[name].astype(np.float64) - values).sum())
        if power > 1e-12:
            decibels.append(10 * np.log10(power / (noise + 1e-30)))
    return min(decibels, default=np.inf)


def _sqnr_of_convolutions(case: OddNetwork, expected: dict[str, np.ndarray], folder: Path) -> float:
    """Return the SQNR on the same device if it computes only convolutions and moves data."""
    target = case.options["target"]
    operators = {op: v for op, v in target["operators"].items() if op in ("Conv", *PASSED_ON)}
    # A Concat stays on the device: its loss of accuracy does not depend on other operators.
    device = target | {"operators": operators, "unlisted_operators": "host"}
    form = {"format": "qdq" if case.options["format"] == "tflite" else case.options["format"]}
    options = replace(case, options=case.options | {"target": device} | form).given(folder)
    try:
        model = npuconv.convert(case.model, **options).model
    except UnsupportedModelError:
        return -np.inf
    return worst_sqnr(expected, Session(model).run(case.feeds))


def _of_forms(case: OddNetwork, model: onnx.ModelProto, options: dict[str, Any]) -> list[str]:
    """Compare the file with the same layers in two other forms, whose plans may differ."""
    if options.get("io") == "int8" or options.get("layout") == "nhwc":
        return []
    expected = Session(case.model).run(case.feeds)
    reached = worst_sqnr(expected, Session(model).run(case.feeds))
    sentences = []
    for change in ({"format": "qdq"}, {"layout": "nhwc"}):
        try:
            again = npuconv.convert(case.model, **options | change).model
        except UnsupportedModelError:
            continue  # the target does not take this layout
        other = worst_sqnr(expected, Session(again).run(case.feeds))
        if abs(min(reached, LIMIT_DB) - min(other, LIMIT_DB)) > FORM_DB:
            sentences.append(f"{reached:.1f} dB, with {change} {other:.1f}")
    return sentences


def _of_parts(model: onnx.ModelProto, options: dict[str, Any], folder: Path) -> list[str]:
    """Compare the run of the parts, in simulator and onnxruntime, with the whole model."""
    if not any(node.op_type == "QLinearConv" for node in model.graph.node):
        return []
    split(model, folder / "parts", target=options["target"])
    ran = run_parts(folder / "parts", samples=1, whole=model)
    differing = {name: count for name, count in (ran.differing or {}).items() if count}
    return [f"parts differ from the whole: {differing}"] if differing else []
