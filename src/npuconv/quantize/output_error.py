"""Output error of a fake-quantized model on evaluation samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx

from npuconv import executor
from npuconv.calibration.workers import in_order
from npuconv.quantize.fake_quant import fake_quantized

if TYPE_CHECKING:
    from npuconv.quantize.fake_quant import QuantPoint
    from npuconv.samples import Feed

Values = Mapping[str, object]  # of one sample, by output

SATURATING = frozenset({"Softmax", "LogSoftmax", "Sigmoid", "HardSigmoid", "Tanh"})
_MOVING = frozenset(
    {"Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Concat", "Cast"}
)


@dataclass(frozen=True)
class Error:
    """Sums of squares over all outputs.

    Attributes:
        noise: of the errors, by sample.
        signal: of the exact values, by sample.
    """

    noise: tuple[float, ...]
    signal: tuple[float, ...]

    @property
    def sqnr_db(self) -> float | None:
        """Signal to noise of all samples together, dB; None where either is 0."""
        noise, signal = sum(self.noise), sum(self.signal)
        return 10 * math.log10(signal / noise) if noise > 0 and signal > 0 else None

    def ratio(self, before: Error) -> float:
        """Return what is left of an earlier error, as the geometric mean over samples.

        A sample in which a class tips over would decide the sum, and tells nothing.
        """
        pairs = [(a, b) for a, b in zip(self.noise, before.noise, strict=True) if a > 0 and b > 0]
        return math.exp(sum(math.log(a / b) for a, b in pairs) / len(pairs)) if pairs else 1.0


class OutputError:
    """Error of fake-quantized models against one float model, whose outputs are kept.

    Args:
        model: the legal float model.
        feeds: evaluation samples.
    """

    def __init__(self, model: onnx.ModelProto, feeds: Iterable[Feed]) -> None:
        self.model, self._feeds = model, list(feeds)
        self._exact = list(_run(model, self._feeds))

    def is_of_outputs(self, model: onnx.ModelProto) -> bool:
        """Return whether what is compared are the outputs of a model as they are."""
        names = [o.name for o in self.model.graph.output]
        return names == [o.name for o in model.graph.output]

    def of(self, points: Sequence[QuantPoint], model: onnx.ModelProto | None = None) -> Error:
        """Return the error of all these roundings together.

        Args:
            points: of a conversion.
            model: where they are, if the float model was changed into an equal one.
        """
        made = _run(fake_quantized(self.model if model is None else model, points), self._feeds)
        noise, signal = zip(
            *(_sums(*pair) for pair in zip(self._exact, made, strict=True)), strict=True
        )
        return Error(noise, signal)


def _run(model: onnx.ModelProto, feeds: Sequence[Feed]) -> Iterator[Values]:
    session = executor.Session(model, threads=1, fuse_int8=False)
    return in_order(session.run, feeds)


def _sums(exact: Values, rounded: Values) -> tuple[float, float]:
    noise = signal = 0.0
    for name, values in exact.items():
        old, new = _numbers(values), _numbers(rounded[name])
        if old.size == new.size:  # not as many boxes as each happens to find
            noise += float(np.square(new - old).sum())
            signal += float(np.square(old).sum())
    return noise, signal


def _numbers(values: object) -> np.ndarray:
    """Flatten; what is not finite becomes 0, and what is no array of numbers is left out."""
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "fiub":
        return np.zeros(0)
    flat = values.reshape(-1).astype(np.float64)
    return np.nan_to_num(flat, nan=0.0, posinf=0.0, neginf=0.0)


def logits(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with its outputs taken before a final Softmax, Sigmoid or the like.

    A probability near 0 or 1 hides noise, and where two classes are nearly even a little of it
    turns the answer round: on few samples the error of probabilities is that of the one that
    happened to be even.

    Args:
        model: not changed.
    """
    made = onnx.ModelProto()
    made.CopyFrom(model)
    makers = {name: node for node in made.graph.node for name in node.output if name}
    inputs = {info.name for info in made.graph.input}
    found = [e for output in made.graph.output for e in _before(output.name, makers)]
    names = dict.fromkeys(name for name in found if name not in inputs)
    known = {output.name: output for output in model.graph.output}
    del made.graph.output[:]
    for name in names:
        made.graph.output.append(known.get(name, onnx.ValueInfoProto(name=name)))
    return made if names else model


def leaves(name: str, makers: Mapping[str, onnx.NodeProto]) -> Iterator[str]:
    """Yield the tensors whose values an output shows, each once, in their order.

    Args:
        name: of the output.
        makers: by tensor, the node that makes it.
    """
    waiting, seen = [name], set[str]()
    while waiting:
        current = waiting.pop()
        node = makers.get(current)
        if current in seen:
            continue
        seen.add(current)
        if node is None or node.op_type not in _MOVING:
            yield current
            continue
        # The second input of a Reshape is a shape, all those of a Concat are values.
        given = node.input if node.op_type == "Concat" else node.input[:1]
        waiting.extend(reversed([one for one in given if one in makers]))


def _before(name: str, makers: Mapping[str, onnx.NodeProto]) -> Iterator[str]:
    for leaf in leaves(name, makers):
        node = makers.get(leaf)
        yield leaf if node is None or node.op_type not in SATURATING else node.input[0]
