"""What a user is told beside a converted model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.model import query

if TYPE_CHECKING:
    from npuconv.config import Options
    from npuconv.pipeline.legalize import Legalized
    from npuconv.report import schema
    from npuconv.samples import Samples

SYNTHETIC = (
    "accuracy is unproven, calibrated on synthetic inputs: 10 to 30 dB are usually lost; "
    "give --calibration with a handful of real inputs"
)
NOTHING_LEFT = "the device runs none of it: no convolution is left for the device, all stays float"


def about_samples(
    samples: Samples, assumed: str, found: schema.Accuracy, held_out: bool
) -> tuple[str, ...]:
    """What makes the measured numbers worth less.

    Args:
        samples: those that were given, or made up.
        assumed: what was assumed to make them; may be empty.
        found: what was measured.
        held_out: whether it was measured on samples kept from calibration.
    """
    warnings = []
    if samples.synthetic:
        warnings.append(SYNTHETIC)
    if assumed:
        warnings.append(assumed)
    if found.cosine is None:
        warnings.append("an output is all zeros or not finite")
    if not held_out and not samples.synthetic:
        warnings.append("too few samples to keep some apart: measured on those calibrated with")
    warnings.extend(samples.notes)
    return tuple(warnings)


def unused(form: str, options: Options, *, samples: bool) -> tuple[str, ...]:
    """What was asked for that a form without int8 activations has no use for.

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


def nothing_left(work: Legalized) -> tuple[str, ...]:
    """Where nothing is rounded, it does not matter how good the samples are."""
    return () if work.plan.device else (NOTHING_LEFT,)


def still_float(work: Legalized) -> tuple[str, ...]:
    """What ``io=int8`` could not make int8: the host reads or makes it."""
    tensors = [*work.model.graph.inputs, *work.model.graph.outputs]
    names = [t.name for t in tensors if query.dtype_name(t).startswith("float")]
    if work.options.io != "int8" or not names:
        return ()
    return (f"some inputs or outputs stay float: {', '.join(names)}",)
