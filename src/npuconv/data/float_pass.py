"""One float pass over the samples: statistics of tensors, channel by channel.

The result depends on the samples alone, not on the number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import onnx

from npuconv import executor
from npuconv.arithmetic.statistics import Accumulator, Observation, Statistics, observe
from npuconv.data.samples import Feed, Samples
from npuconv.data.workers import in_order
from npuconv.errors import CalibrationError


def collect(
    model: onnx.ModelProto,
    tensors: Mapping[str, int | None],
    feeds: Samples | Sequence[Feed],
    *,
    progress: Callable[[], None] = lambda: None,
    optimize: bool = True,
    further: Collection[str] = (),
    read: Callable[[int, Feed], Callable[[], None]] = lambda _number, _arrays: lambda: None,
) -> dict[str, Statistics]:
    """Run the samples once through the float model and observe tensors.

    The samples are read while the model runs, and dropped after it: memory does not grow with
    them. The result is the same to the bit for the same samples.

    Args:
        model: the legalized float model; not changed.
        tensors: name -> channel axis, None: all channels together. Model inputs included.
        feeds: complete inputs, one dict per sample.
        progress: called after each sample.
        optimize: whether onnxruntime optimizes the model, which takes longer than a single run.
        further: names of tensors that only ``read`` needs.
        read: called on a worker with the number of a sample and its arrays; the function that it
            returns is called in the order of the samples.

    Raises:
        CalibrationError: onnxruntime refuses the model or a sample, a tensor holds values
            that are not finite, or there are no samples.
    """
    if not tensors and not further:
        return {}
    inputs = {i.name for i in model.graph.input}
    names = [name for name in dict.fromkeys((*tensors, *further)) if name not in inputs]

    def observe_sample(item: tuple[int, Feed]) -> tuple[dict[str, Observation], Callable[[], None]]:
        number, feed = item
        arrays = {**feed, **session.run(feed, draw=number)}
        observations = {
            name: observe(arrays[name], axis, number, len(feeds)) for name, axis in tensors.items()
        }
        return observations, read(number, arrays)

    totals: dict[str, Accumulator] = {}
    try:
        observed = executor.with_outputs(model, names)
        session = executor.Session(observed, threads=1, optimize=optimize)
        for number, (sample, add) in enumerate(in_order(observe_sample, enumerate(feeds))):
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
            add()
            progress()
    except executor.RuntimeRefusedError as error:
        text = f"the float model does not run on the samples: {error}"
        raise CalibrationError(text) from None
    if tensors and not totals:
        raise CalibrationError("there are no samples to calibrate on")
    return {name: total.statistics(name, tensors[name]) for name, total in totals.items()}
