"""Samples of a check or a conversion: opened, and divided for calibration and measurement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

from npuconv import executor
from npuconv.data import Feed, Samples, Source, open_samples, preparation
from npuconv.data.builtin import BuiltinData, choose_builtin, open_builtin
from npuconv.data.model_inputs import check_types, sample_inputs
from npuconv.data.samples import HELD_OUT_LEAST, spread
from npuconv.errors import ModelError, NpuconvError, UsageError
from npuconv.legalize.legal import LegalModel
from npuconv.legalize.source_scales import is_complete
from npuconv.records import dataclass, replace
from npuconv.schemas import quality

_RUNS_ON = "models are measured on onnxruntime: export it with operators and types that it runs"
_IMPORTED = (
    "no calibration data: none is needed, all scales are kept from the model; figures are "
    "measured on built-in inputs"
)
HELD_OUT_SHARE, HELD_OUT_MAX = 4, 64  # a quarter of the samples is held out, at most 64


@dataclass(frozen=True)
class CalibrationData:
    """Samples that a model is calibrated on."""

    samples: Samples  # samples, checked against the inputs
    assumed: str  # extents that were assumed for made-up samples; may be empty
    builtin: BuiltinData | None  # choice of built-in samples; None if the user gives data
    preparation: str  # conversion of images to inputs, for the metadata; empty without images

    @property
    def is_normalized(self) -> bool:
        """True if the user has normalized the samples, or has given the normalization."""
        return self.builtin is None or self.builtin.certainty == "given"

    @property
    def row(self) -> quality.Assumed | None:
        """Row of the report on the built-in samples; None if the user gave samples."""
        return None if self.builtin is None else self.builtin.row

    @property
    def used(self) -> Samples:
        """Samples to calibrate with."""
        return self._parts[0]

    @property
    def held_out(self) -> Samples | None:
        """Samples that calibration does not see; None where there are too few."""
        return self._parts[1]

    def measured_on(self) -> Samples:
        """Return samples to measure the result on: those held out, or else all."""
        return (self.held_out or self.samples)[:HELD_OUT_MAX]

    def evaluation(self, count: int) -> list[Feed]:
        """Return samples to check a choice on: some held out, and others if these are few."""
        feeds = list((self.held_out or self.used)[:count])
        more = count - len(feeds) if self.held_out else 0
        return [*feeds, *(self.used[k] for k in (spread(len(self.used), more) if more > 0 else ()))]

    @cached_property
    def _parts(self) -> tuple[Samples, Samples | None]:
        spare = len(self.samples) - HELD_OUT_LEAST
        if spare < 0:
            return self.samples, None
        count = max(len(self.samples) // HELD_OUT_SHARE, min(spare, HELD_OUT_LEAST))
        return self.samples.split(min(count, HELD_OUT_MAX))


def open_calibration(legal: LegalModel, source: Source) -> CalibrationData:
    """Open the samples.

    Raises:
        CalibrationError: samples that are missing or do not fit, or that cannot be made up.
        UsageError: layers are to run several times, without a host or with one weight scale.
        ModelError: an input or output of a type that no sample can have.
    """
    options = legal.options
    if options.has_budget and (legal.is_per_tensor or not legal.has_host):
        obstacle = "one scale for all weights of a layer" if legal.has_host else "no host for means"
        raise UsageError(
            f"target {legal.target.name} has {obstacle}: "
            "running a layer several times is not supported there",
            hint="leave out --min-sqnr and --max-extra-macs",
        )
    check_types(legal.model)
    specs, assumed = sample_inputs(legal.model, legal.proto, source)
    if source is None:
        builtin = choose_builtin(legal.model, options.preprocess, specs)
        if is_complete(legal.model, legal.plan):
            builtin = replace(builtin, sentence=_IMPORTED, warning="")
        is_known = builtin.certainty != "unknown"
        record = (
            preparation.record(builtin.for_images(specs), builtin.certainty) if is_known else ""
        )
        return CalibrationData(open_builtin(options, builtin, specs), assumed, builtin, record)
    samples = open_samples(
        source,
        specs,
        options.preprocess,
        limit=options.max_samples,
        seed=options.seed,
        key=options.calibration_key,
    )
    record = preparation.record(options.preprocess, "given") if samples.prepared else ""
    return CalibrationData(samples, assumed, None, record)


@contextmanager
def explained(legal: LegalModel) -> Iterator[None]:
    """Load the float model where anything fails: that onnxruntime refuses it is the better reason.

    Raises:
        ModelError: onnxruntime does not load it.
    """
    try:
        yield
    except NpuconvError:
        load_float(legal)
        raise


def load_float(legal: LegalModel) -> None:
    """Load the float model, which finds operators and types that onnxruntime has no kernel for.

    Raises:
        ModelError: onnxruntime does not load it.
    """
    try:
        # More threads, or fusing nodes, take longer than loading.
        executor.Session(legal.proto, threads=1, optimize=False)
    except executor.RuntimeRefusedError as error:
        check_types(legal.model)  # says it better
        text = f"{legal.model.name}: onnxruntime does not load it: {error}"
        raise ModelError(text, hint=_RUNS_ON) from None
