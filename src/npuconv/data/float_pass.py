"""One float pass over the samples: statistics of tensors, channel by channel.

The result depends on the samples alone, not on the number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import onnx

from npuconv import executor
from npuconv.arithmetic.statistics import Accumulator, Observation, Statistics, observe
from npuconv.data.samples import Feed, Samples
from npuconv.data.workers import in_order
from npuconv.errors import CalibrationError


class Reader(Protocol):
    """A reader of tensors during a float pass, beside their statistics."""

    tensors: Collection[str]  # names of the tensors to read

    def read(self, number: int, arrays: Feed) -> Any:
        """Return the part of a sample to keep; called on a worker."""

    def add(self, number: int, part: Any) -> None:
        """Take the parts of the samples, in their order."""


def open_session(
    model: onnx.ModelProto, tensors: Iterable[str], *, optimize: bool = True
) -> executor.Session:
    """Load a float model that returns these tensors besides its outputs.

    Raises:
        CalibrationError: onnxruntime refuses the model.
    """
    inputs = {i.name for i in model.graph.input}
    observed = executor.with_outputs(model, [name for name in tensors if name not in inputs])
    try:
        return executor.Session(observed, threads=1, optimize=optimize, eager=True)
    except executor.RuntimeRefusedError as error:
        raise _refused(error) from None


def collect(
    model: onnx.ModelProto,
    tensors: Mapping[str, int | None],
    feeds: Samples | Sequence[Feed],
    *,
    progress: Callable[[], None] = lambda: None,
    session: executor.Session | None = None,
    reader: Reader | None = None,
) -> dict[str, Statistics]:
    """Run the samples once through the float model and observe tensors.

    The samples are read while the model runs, and dropped after it: memory does not grow with
    them. The result is the same to the bit for the same samples.

    Args:
        model: the legalized float model; not changed.
        tensors: name -> channel axis, None: all channels together. Model inputs included.
        feeds: complete inputs, one dict per sample.
        progress: called after each sample.
        session: result of ``open_session`` for the same model and tensors; None: load the model.
        reader: gets further tensors of every sample.

    Raises:
        CalibrationError: onnxruntime refuses the model or a sample, a tensor holds values
            that are not finite, or there are no samples.
    """
    if not tensors and reader is None:
        return {}
    names = dict.fromkeys((*tensors, *(reader.tensors if reader else ())))
    loaded = session or open_session(model, names)

    def observe_sample(item: tuple[int, Feed]) -> tuple[dict[str, Observation], Any]:
        number, feed = item
        arrays = {**feed, **loaded.run(feed, draw=number)}
        observations = {
            name: observe(arrays[name], axis, number, len(feeds)) for name, axis in tensors.items()
        }
        return observations, reader.read(number, arrays) if reader else None

    totals: dict[str, Accumulator] = {}
    try:
        for number, (sample, part) in enumerate(in_order(observe_sample, enumerate(feeds))):
            for name, observation in sample.items():
                if not observation.is_finite:
                    raise CalibrationError(
                        f"sample {number}: the float model itself makes values that are not "
                        f"finite (tensor {name!r})",
                        hint="check the weights, and the normalization of the samples; "
                        "--keep-float leaves nodes that need such values to the host",
                    )
                if name not in totals:
                    totals[name] = Accumulator(len(observation.lows))
                if len(totals[name].lows) != len(observation.lows):
                    raise CalibrationError(
                        f"tensor {name!r} has not as many channels in every sample",
                        hint="give samples of one shape, or fix it with --input-shape",
                    )
                totals[name].add(observation)
            if reader:
                reader.add(number, part)
            progress()
    except executor.RuntimeRefusedError as error:
        raise _refused(error) from None
    if tensors and not totals:
        raise CalibrationError("there are no samples to calibrate on")
    return {name: total.statistics(name, tensors[name]) for name, total in totals.items()}


def _refused(error: executor.RuntimeRefusedError) -> CalibrationError:
    """Return the error for a model or a sample that onnxruntime refuses."""
    return CalibrationError(f"the float model does not run on the samples: {error}")
