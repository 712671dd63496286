"""Assertions about models: legal, equal, runnable."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

import npuconv
from npuconv import executor
from npuconv.config import Options
from npuconv.emit.emission import Emission
from npuconv.emit.write_model import form_findings
from npuconv.findings import Finding
from npuconv.legalize import manager as _manager
from npuconv.legalize.device import TargetDevice
from npuconv.legalize.legal import legalize
from npuconv.legalize.log import Log, RewriteRecord
from npuconv.legalize.registry import PASSES, Pass, Phase
from npuconv.model import load, save, shapes
from npuconv.model.core import Model
from npuconv.partition.placement import Plan, make_plan
from npuconv.rules import engine
from npuconv.rules.context import RuleContext
from npuconv.schemas.report import FindingInfo, Refusal
from npuconv.target import Target
from support.builders import Net


@cache
def builtin(name: str = "npu-int8") -> Target:
    """A built-in target; the result is cached, because targets are immutable."""
    return Target.load(name)


def read(proto: onnx.ModelProto) -> Model:
    """A Model with inferred shapes."""
    model = load.load(proto)
    shapes.infer(model)
    return model


class Passes:
    """TargetDevice, log and emission of the passes that a test runs."""

    def __init__(
        self, target: Target | None = None, options: Options | None = None, *, measures: bool = True
    ) -> None:
        self.device = TargetDevice(target or builtin(), options or Options())
        self.log = Log(measures)
        self.emission = Emission(Plan())
        self.results: dict[str, Any] = {}  # results of passes by name, of the last run of each

    @property
    def target(self) -> Target:
        """Target of the device."""
        return self.device.target

    @target.setter
    def target(self, target: Target) -> None:
        self.device = replace(self.device, target=target)

    @property
    def options(self) -> Options:
        """Options of the run."""
        return self.device.options

    @property
    def rewrites(self) -> list[RewriteRecord]:
        """Rewrites of all passes so far."""
        return self.log.rewrites

    @property
    def refusals(self) -> list[Refusal]:
        """Refusals of all passes so far."""
        return list(self.log.refusals)

    def run(self, model: Model, item: Pass) -> int:
        """Run one pass as the manager does; return how often it fired, or the number of values."""
        result = _manager.apply(model, item, self.device, self.log, emission=self.emission)
        self.results[item.name] = result
        return int(result) if isinstance(result, int) else len(result)

    def run_phase(self, model: Model, phase: Phase, *after_pass: Any) -> int:
        """Run the passes of a float phase to the end; return how often they fired."""
        if phase == Phase.SPLIT:  # its pass returns builders
            return sum(self.run(model, item) for item in _manager.order(phase))
        return _manager.run_phase(model, phase, self.device, self.log, *after_pass)


def context(**options: Any) -> Passes:
    """Passes of any phase for the target of the options, with verification on."""
    return Passes(builtin(Options(**options).target), Options(**options))


def run_pass(name: str, model: Model, passes: Passes | None = None) -> int:
    """Run one pass as the manager does: swept, checked, measured."""
    item = PASSES.get(name)
    assert item is not None, name
    return (passes or context()).run(model, item)


def refusals(
    name: str, model: onnx.ModelProto | Net, passes: Passes | None = None
) -> list[tuple[str, str]]:
    """Run a pass that must not fire; return node and reason of each of its refusals."""
    proto = model.model() if isinstance(model, Net) else model
    passes = passes or context()
    assert run_pass(name, read(proto), passes) == 0
    return [(r.node, r.reason) for r in passes.refusals]


def apply_pass(name: str, model: Model, passes: Passes, **inputs: Any) -> Any:
    """Run a pass with inputs by name; return its result."""
    item = PASSES.get(name)
    assert item is not None, name
    return _manager.apply(model, item, passes.device, passes.log, **inputs)


def unpack(example: Any) -> tuple[onnx.ModelProto, Target]:
    """The model and target of one entry of a test module's ``FIRES`` or ``SILENT``.

    An entry is a callable without arguments that returns a model, which is judged by the
    built-in target, or a pair of such a callable and the target to judge it by.
    """
    build, target = example if isinstance(example, tuple) else (example, "npu-int8")
    return build(), target if isinstance(target, Target) else builtin(target)


def findings(
    proto: onnx.ModelProto, code: str, target: str | Target = "npu-int8", **options: Any
) -> list[Any]:
    """Return the findings of one rule on a model, which is converted if the rule needs samples."""
    chip = target if isinstance(target, Target) else builtin(target)
    rule = next(r for r in engine.all_rules() if r.code == code)
    if rule.stage in ("calibrated", "measured"):
        return [f for f in calibrated(proto, **options) if f.code == code]
    if rule.stage == "form":
        legal = legalize(proto, Options(**{"format": "tflite", **options}))
        return [finding for finding in form_findings(legal) if finding.code == code]
    ctx = RuleContext(read(proto), chip, Options(**options))
    if rule.stage == "planned":
        ctx.plan = make_plan(ctx.model, chip, set())
    return engine.lint(ctx, stage=rule.stage, only=[code])


def calibrated(proto: onnx.ModelProto, samples: Any = None, **options: Any) -> list[FindingInfo]:
    """Return the findings of a model that was calibrated.

    Args:
        proto: the model.
        samples: arrays by input name; by default noise between 0 and 1.
        options: options of the conversion.
    """
    shapes = {item.name: _lengths(item) for item in proto.graph.input}
    feeds = samples or {name: _noise(shape) for name, shape in shapes.items()}
    all_options = {"method": "entropy", "verify": False, **options}
    try:
        found = npuconv.convert(proto, calibration=feeds, **all_options).report.findings
    except npuconv.UnsupportedModelError as error:
        found = error.report.findings
    return list(found)


def _lengths(item: onnx.ValueInfoProto) -> list[int]:
    """The shape of eight samples."""
    return [8, *(d.dim_value or 1 for d in item.type.tensor_type.shape.dim[1:])]


def _noise(shape: list[int]) -> np.ndarray:
    return np.random.default_rng(0).uniform(0, 1, shape).astype(np.float32)


def finding(
    proto: onnx.ModelProto, code: str, target: str | Target = "npu-int8", **options: Any
) -> Finding:
    """The only finding of a rule on a model."""
    (result,) = findings(proto, code, target, **options)
    return result


def session(
    model: onnx.ModelProto | Path, *, optimize: bool = False, threads: int = 1
) -> ort.InferenceSession:
    """Return a silent session of onnxruntime on the unchanged model."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    if not optimize:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def run(proto: onnx.ModelProto, seed: int = 0) -> list[np.ndarray]:
    """Outputs on random inputs; symbolic dimensions are 2."""
    rng = np.random.default_rng(seed)
    feeds = {}
    for info in proto.graph.input:
        dims = [d.dim_value or 2 for d in info.type.tensor_type.shape.dim]
        feeds[info.name] = rng.standard_normal(dims).astype(np.float32)
    return list(executor.Session(proto, threads=1, optimize=False).run(feeds).values())


def same_numbers(
    before: onnx.ModelProto, after: Model | onnx.ModelProto, rtol: float = 1e-4
) -> None:
    """Assert that two models have the same outputs on random inputs, and the second is valid."""
    proto = save.to_proto(after) if isinstance(after, Model) else after
    onnx.checker.check_model(proto)
    for old, new in zip(run(before), run(proto), strict=True):
        assert old.shape == new.shape
        scale = float(np.abs(old).max(initial=0.0)) or 1.0
        assert np.max(np.abs(old - new), initial=0.0) <= rtol * scale
