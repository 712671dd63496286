"""Output format and opset of a run, by its options and its target."""

from __future__ import annotations

from npuconv.config import Options
from npuconv.errors import UsageError
from npuconv.target import Target


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
