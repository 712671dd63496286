"""check and convert, for Python and for the command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npuconv import emit, limits
from npuconv.config import Options, make_options
from npuconv.errors import InternalError, ModelError, UnsupportedModelError, UsageError
from npuconv.executor import RuntimeRefusedError
from npuconv.legalize.legal import Legalized, legalize
from npuconv.legalize.selection import fails, is_blocking, waived
from npuconv.model import save, store
from npuconv.partition.crossings import traffic
from npuconv.report.builder.assemble import NOTHING, Outcome, assemble
from npuconv.rules import engine
from npuconv.rules.context import RuleContext

if TYPE_CHECKING:
    import onnx

    from npuconv.model.store import Store
    from npuconv.samples import Source
    from npuconv.schemas.report import Report


@dataclass(frozen=True)
class Conversion:
    """A converted model and its report.

    Attributes:
        model: as ONNX. Weights of more than 2 GB are not in it: it refers to files that
            are there as long as the conversion is, and ``save`` writes them beside the model.
        report: what was found and done.
    """

    model: onnx.ModelProto
    report: Report
    _store: Store | None = field(default=None, repr=False)

    def save(self, path: str | Path) -> None:
        """Write the model whole or not at all.

        Raises:
            OutputError: the destination cannot be written.
        """
        save.save(self.model, path)


def check(
    model: str | Path | onnx.ModelProto,
    target: str = "npu-int8",
    *,
    calibration: Source = None,
    timings: bool = False,
    **options: Any,
) -> Report:
    """Check whether a model can be converted, and report why not.

    Args:
        model: a path, or a ModelProto, which is not changed.
        target: name of a built-in target, or path of a target file.
        calibration: as for ``convert``; the samples are opened, and the first is run.
        timings: whether the report says how long each stage took.
        **options: the keys of ``npuconv.config.Options``.

    Returns:
        The same findings that ``convert`` would have, but for those of its samples:
        ``summary.not_judged`` says where these count.

    Raises:
        NpuconvError: a model, target or option that cannot be used.
    """
    chosen = make_options({"target": str(target), **options})
    return check_with(model, chosen, calibration, timings=timings)


def check_with(
    model: str | Path | onnx.ModelProto,
    options: Options,
    calibration: Source = None,
    *,
    timings: bool = False,
    runs: bool = True,
) -> Report:
    """``check`` with options that have been validated.

    Args:
        model: as for ``check``; so are the others.
        options: of the run.
        calibration: samples; None for builtin pictures or numbers.
        timings: whether the report says how long each stage took.
        runs: whether the model is run, and the samples opened; False: only its nodes are judged.
    """
    _check_layout(options)
    with limits.applied(options.limits):
        work = legalize(model, options)
        stopped = _stopped(work)
        outcome = _outlook(work, calibration) if runs and not stopped else NOTHING
    return assemble(
        work,
        verdict="refused" if stopped else "convertible",
        failed=fails(work.findings, work.options),
        warnings=() if stopped else _unused(work, calibration),
        outcome=outcome,
        timings=timings,
    )


def _outlook(work: Legalized, calibration: Source) -> Outcome:
    """Fail as a conversion would; return what it would be calibrated on, and what is left open."""
    from npuconv.pipeline import preflight
    from npuconv.report.builder import notices

    proto = save.to_proto(work.model)
    with work.timed("load in onnxruntime"):
        preflight.load_float(work, proto)
    if not emit.get(work.options.format).calibrates:
        return NOTHING
    preflight.check_options(work)
    with work.timed("calibration data"):
        opened = preflight.open_calibration(work, proto, calibration)
    with work.timed("first sample"):
        preflight.try_sample(work, proto, opened.samples)
    row = opened.chosen.row if opened.chosen and work.plan.device else None
    crossing = traffic(work.model, work.plan)
    return Outcome(row, not_judged=notices.not_judged(work.options, crossing))


def _unused(work: Legalized, calibration: Source) -> tuple[str, ...]:
    """Return what was asked for that the form of the output has no use for."""
    from npuconv.report.builder import notices

    form = emit.get(work.options.format)
    given = calibration is not None
    return () if form.calibrates else notices.unused(form.name, work.options, samples=given)


def convert(
    model: str | Path | onnx.ModelProto,
    target: str = "npu-int8",
    *,
    calibration: Source = None,
    progress: Callable[[str, int, int], None] = lambda _stage, _done, _total: None,
    timings: bool = False,
    **options: Any,
) -> Conversion:
    """Convert a float model for the target.

    Args:
        model: a path, or a ModelProto, which is not changed.
        target: name of a built-in target, or path of a target file.
        calibration: a path, a dict of arrays whose first axis counts samples, or an
            iterable of dicts of complete inputs; None for builtin pictures or numbers.
        progress: called with a stage ("calibrating"), how much is done, and of how much; where
            there is no data once before with "assumed: " and what is taken instead.
        timings: whether the report says how long each stage took.
        **options: the keys of ``npuconv.config.Options``.

    Raises:
        UnsupportedModelError: findings stand against it; carries the report.
        NpuconvError: a model, target, option or sample that cannot be used.
    """
    chosen = make_options({"target": str(target), **options})
    return convert_with(model, chosen, calibration, progress, timings=timings)


def convert_with(
    model: str | Path | onnx.ModelProto,
    options: Options,
    calibration: Source,
    progress: Callable[[str, int, int], None] = lambda _stage, _done, _total: None,
    *,
    timings: bool = False,
) -> Conversion:
    """``convert`` with options that have been validated."""
    _check_layout(options)
    with limits.applied(options.limits):
        return _convert(model, options, calibration, progress, timings)


def _convert(
    model: str | Path | onnx.ModelProto,
    options: Options,
    calibration: Source,
    progress: Callable[[str, int, int], None],
    timings: bool,
) -> Conversion:
    work = legalize(model, options)
    if _stopped(work):
        report = assemble(work, verdict="refused", failed=True, timings=timings)
        raise UnsupportedModelError(f"{work.model.name}: {report.summary.headline}", report)
    from npuconv.pipeline.quantize import quantize

    try:
        result = quantize(work, calibration, progress)
    except RuntimeRefusedError as error:  # what no earlier run has shown: 2,000 axes, for one
        raise ModelError(f"{work.model.name}: cannot be run: {error}") from None
    _check_result(work)
    failed = _stopped(work)  # calibration may have shown something that fail_on is about
    report = assemble(
        work,
        verdict="refused" if failed else "converted",
        failed=failed,
        warnings=(*result.warnings, *waived(work.every, work.findings)),
        outcome=Outcome(result.assumed, result.quantization, result.accuracy),
        timings=timings,
    )
    if failed:
        raise UnsupportedModelError(f"{work.model.name}: {report.summary.headline}", report)
    return Conversion(store.whole(result.model), report, work.model.store)


def _check_layout(options: Options) -> None:
    """Only integer convolutions exist with the channels last: ONNX's own have them first."""
    if options.layout == "nhwc" and options.format != "qoperator":
        raise UsageError(
            f"--layout nhwc: --format {options.format} has no such layout, only qoperator has",
            hint="add --format qoperator, or leave the layout at nchw",
        )


def _stopped(work: Legalized) -> bool:
    """Findings at or above ``fail_on``, and errors always: no legal model can be made.

    A baseline is about what fails a check; it makes no model legal.
    """
    return any(map(is_blocking, work.findings)) or fails(work.findings, work.options)


def _check_result(work: Legalized) -> None:
    """The last look: what the device would refuse must not leave the house."""
    found = engine.lint(RuleContext(work.model, work.target, work.options), at="lowered")
    for finding in found:
        raise InternalError(
            f"{finding.node!r}: {finding.message}", where=f"postcondition {finding.name}"
        )
