"""Output formats, by the names of ``--format``."""

from __future__ import annotations

from dataclasses import dataclass

from npuconv.config import Options
from npuconv.errors import UsageError
from npuconv.target import Target


@dataclass(frozen=True)
class OutputFormat:
    """Output format: the steps after the float model is legal."""

    name: str  # value of ``--format``
    phases: tuple[str, ...]  # values of ``npuconv.legalize.registry.Phase``, in this order
    calibrates: bool  # whether activations become int8, which needs samples


_FORMATS = (
    OutputFormat("qoperator", ("quantize", "lower"), calibrates=True),
    OutputFormat("qdq", ("quantize",), calibrates=True),
    OutputFormat("tflite", ("quantize", "lower"), calibrates=True),  # then ``emit.tflite``
    OutputFormat("weights", ("quantize",), calibrates=False),
    OutputFormat("float", (), calibrates=False),
)


def format_named(name: str) -> OutputFormat:
    """The format of a valid name; ``Options`` refuses other names."""
    return next(item for item in _FORMATS if item.name == name)


def with_target_defaults(options: Options) -> Options:
    """Return the options with format and opset of the target where the user gave none.

    Raises:
        TargetError: not a valid target description.
        UsageError: a layout that the format does not have.
    """
    target = Target.load(options.target)
    options = options.for_target(target.format, target.opset)
    if options.layout == "nhwc" and options.format != "qoperator":
        raise UsageError(
            f"--layout nhwc: --format {options.format} has no such layout, only qoperator has",
            hint="add --format qoperator, or leave the layout at nchw",
        )
    return options
