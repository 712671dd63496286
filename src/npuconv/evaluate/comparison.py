"""Error of the int8 model against the float model: end to end, and layer by layer."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from numpy.typing import ArrayLike, NDArray

from npuconv import executor
from npuconv.amounts import count
from npuconv.arithmetic.encoding import dequantize
from npuconv.arithmetic.metrics import ErrorStats, rounded
from npuconv.data import Feed, Samples
from npuconv.data.samples import spread
from npuconv.data.workers import in_order, start_work
from npuconv.emit.write_model import EmittedModel
from npuconv.errors import InternalError, ModelError
from npuconv.evaluate.interval import Powers, expected, pooled_db, sentences
from npuconv.evaluate.matching import LayerPair, layer_pairs, numbers, quantized
from npuconv.evaluate.simulator import as_float
from npuconv.model import store
from npuconv.model.graph_import import standard_opset
from npuconv.model.proto import Links, attributes_of
from npuconv.quantize.fake_quant import index_outputs, leaves, with_logit_outputs
from npuconv.quantize.quantization import Quantization
from npuconv.records import dataclass, field
from npuconv.schemas import quality

if TYPE_CHECKING:
    from npuconv.evaluate.litert import TfliteSession

Array = NDArray[Any]
_NORMALIZING = frozenset({"Softmax", "LogSoftmax"})
_PASSING = frozenset({"Identity", "Cast"})
_BY_AXIS = 13  # first opset in which these normalize along one axis
ONLY_INDICES = (
    "--min-sqnr is not judged: all outputs hold integers or booleans, compared by agreement"
)
MAX_PARTS = 16  # parts of an output, at most; rows of more, as one for every anchor, are of no use


class Stats(ErrorStats):
    """Error statistics with the largest absolute error, which is infinite if a value is NaN.

    Attributes:
        holds_indices: whether the values have no size, only equality, as classes.
        max_abs_error: the largest difference; None without values.
        ranges: lowest and highest finite value of each side, the reference first.
        uncompared: number of samples on which the two sides have different numbers of values.
    """

    def __init__(self, class_axis: int | None = None, *, holds_indices: bool = False) -> None:
        super().__init__(class_axis)
        self.holds_indices = holds_indices
        self.uncompared = self._equal = self._indices = 0
        self.max_abs_error: float | None = None
        self.ranges = [(math.inf, -math.inf), (math.inf, -math.inf)]

    def observe(self, reference: ArrayLike, result: ArrayLike) -> None:
        """Add one sample; see ``ErrorStats``."""
        if self.holds_indices:
            self._equal += int(np.sum(np.ravel(reference) == np.ravel(result)))
            self._indices += np.size(reference)
            return
        f, q, error = self.accumulate(reference, result)
        largest = max(float(error.max(initial=0.0)), -float(error.min(initial=0.0)))
        if math.isnan(largest):  # NaN counts as an infinite difference, but not equal infinities
            largest = float(np.nan_to_num(abs(error[f != q]), nan=math.inf).max(initial=0.0))
        self.max_abs_error = max(self.max_abs_error or 0.0, largest)
        for k, values in enumerate((f, q)):
            low, high = self.ranges[k]
            lowest, highest = float(values.min(initial=low)), float(values.max(initial=high))
            if not (math.isfinite(lowest) and math.isfinite(highest)):
                finite = values[np.isfinite(values)]
                lowest, highest = finite.min(initial=low), finite.max(initial=high)
            self.ranges[k] = float(lowest), float(highest)

    def include(self, tensor: Stats) -> None:
        """Add the samples of another tensor."""
        self.add_sums(tensor)
        if tensor.max_abs_error is not None:
            self.max_abs_error = max(self.max_abs_error or 0.0, tensor.max_abs_error)

    def observe_comparable(self, reference: object, result: object) -> None:
        """Add one sample if both are equally many numbers; otherwise count it."""
        if _comparable(reference, result):
            self.observe(reference, result)  # type: ignore[arg-type]
        else:
            self.uncompared += 1

    def errors(self) -> dict[str, Any]:
        """Return the fields of ``verify.Errors``."""
        largest = self.max_abs_error
        return {
            "sqnr_db": rounded(self.sqnr_db, 2),
            "cosine": rounded(self.cosine, 6),
            "max_abs_error": None if largest is None else rounded(float(f"{largest:.4g}"), 12),
        }

    def agreement(self) -> dict[str, Any]:
        """Return the fields of ``quality.Agreement``."""
        share = self._equal / self._indices if self._indices else None
        return {
            "holds_indices": self.holds_indices,
            "agreement": rounded(share, 4),
            "top1_agreement": rounded(self.top1_agreement, 4),
            "positions": self._indices if self.holds_indices else self.positions,
            "uncompared": self.uncompared,
        }


@dataclass
class Measured:
    """Errors over some samples: of outputs, of the parts concatenated to them, of layers."""

    outputs: dict[str, Stats]  # errors by name of the output
    total: Stats  # errors of all outputs together
    parts: dict[str, dict[str, Stats]]  # errors of the tensors that an output joins, by output
    layers: list[Stats]  # errors in the order of ``Comparison.layers``
    samples: int = 0  # number of samples
    sample_numbers: list[int] = field(default_factory=list)  # samples whose values are compared
    powers: list[Powers] = field(default_factory=list)  # powers of all outputs, by compared sample
    # Powers before a final Softmax, Sigmoid or the like; empty without one.
    unsaturated: list[Powers] = field(default_factory=list)
    refusal: str = ""  # why onnxruntime does not run the int8 model at its default settings

    @property
    def broken(self) -> tuple[str, ...]:
        """Outputs that are finite in the float model only."""
        stats = self.outputs.items()
        return tuple(name for name, errors in stats if errors.sqnr_db == -math.inf)

    @property
    def is_of_indices(self) -> bool:
        """True if no output holds values that have an SQNR."""
        stats = self.outputs.values()
        return bool(stats) and all(errors.holds_indices for errors in stats)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Sentences on outputs that are not compared on all samples."""
        names: dict[int, list[str]] = {}
        for name, stats in self.outputs.items():
            names.setdefault(stats.uncompared, []).append(repr(name))
        return tuple(
            f"{', '.join(outputs)}: compared on {self.samples - number} of "
            f"{count(self.samples, 'sample')}; on the others both models do not put out equally "
            "many numbers"
            for number, outputs in names.items()
            if number
        )


class Comparison:
    """Both models, loaded once, with the outputs of all layers.

    The int8 model runs as float arithmetic that gives the same integers, which is faster.

    ``layers`` are tensors to compare besides the outputs, on ``layer_samples`` of the samples;
    ``scales`` are the scales of int8 inputs and outputs; ``tflite`` is the file whose inputs and
    outputs ``int8_model`` has.

    Raises:
        executor.RuntimeRefusedError: a model does not load.
    """

    def __init__(
        self,
        float_model: onnx.ModelProto,
        int8_model: onnx.ModelProto,
        scales: Mapping[str, float] | None = None,
        layers: Sequence[LayerPair] = (),
        tflite: TfliteSession | None = None,
        *,
        layer_samples: int = 0,
    ) -> None:
        tensors = {o for n in int8_model.graph.node for o in n.output}
        self.layers = [layer for layer in layers if layer.stored in tensors]
        self._layer_samples = layer_samples if self.layers else 0
        self.scales = dict(scales or {})
        self._outputs = [o.name for o in float_model.graph.output]
        self._axes, self._indices = class_axes(float_model), index_outputs(float_model)
        self._zeros = zero_points(float_model)
        # A large model keeps its int8 weights: as floats they are four times as many bytes.
        is_large = store.has_stored(int8_model)
        self._parts = {} if is_large else parts_of(float_model, int8_model)
        self._unsaturated = [] if is_large else before_saturation(float_model, int8_model)
        parts = [name for names in self._parts.values() for name in names]
        inner = _unique((*self._outputs, *parts, *self._unsaturated))  # tensors of both models
        float_names = _unique((*inner, *(layer.tensor for layer in self.layers)))
        int8_names = _unique((*inner, *(layer.stored for layer in self.layers)))
        self._names = {False: (inner, inner), True: (float_names, int8_names)}  # with layers
        with_outputs = executor.with_outputs if is_large else as_float
        # Several samples run at a time, each on one core.
        observed = executor.with_outputs(float_model, float_names)
        float_session = start_work(partial(executor.Session, observed, threads=1))
        self._int8_model = None if tflite else int8_model
        self._int8_session = tflite or executor.Session(
            with_outputs(int8_model, int8_names), threads=1
        )
        self._float_session = float_session()

    def measure(
        self,
        samples: Samples | Sequence[Feed],
        on_sample: Callable[[int, Feed, Feed], None] = lambda *_: None,
    ) -> Measured:
        """Measure errors of all outputs on all samples, and of layers on some of them.

        ``on_sample`` gets the number of each sample and the outputs of both models.

        Raises:
            executor.RuntimeRefusedError: a model does not run.
        """
        outputs = {
            name: Stats(self._axes.get(name), holds_indices=name in self._indices)
            for name in self._outputs
        }
        parts: dict[str, dict[str, Stats]] = {name: {} for name in self._parts}
        measured = Measured(outputs, Stats(), parts, [Stats() for _ in self.layers], len(samples))
        with_layers = set(spread(len(samples), self._layer_samples))
        refusal: Callable[[], str] = str  # returns "": no file is loaded
        if self._int8_model is not None and len(samples):
            feed = quantized(samples[0], self.scales)
            refusal = start_work(partial(executor.refusal, self._int8_model, feed))

        def run(item: tuple[int, Feed]) -> tuple[dict[str, Array], dict[str, Array]]:
            number, feed = item
            names, int8_names = self._names[number in with_layers]
            reference = self._float_session.run(feed, names, number)
            inputs = quantized(feed, self.scales)
            return reference, self._int8_session.run(inputs, int8_names, number)

        for number, (floats, stored) in enumerate(in_order(run, enumerate(samples))):
            reference, result = self._centre(floats), self.dequantized(stored)
            self._add(measured, number, reference, result)
            if number in with_layers:
                for layer, stats in zip(self.layers, measured.layers, strict=True):
                    values = numbers(layer, stored[layer.stored])
                    stats.observe_comparable(reference[layer.tensor], values)
            on_sample(number, reference, result)
        for stats in outputs.values():
            if not stats.holds_indices:
                measured.total.include(stats)
        measured.refusal = refusal()
        return measured

    def dequantized(self, stored: Mapping[str, Array]) -> dict[str, Array]:
        """Return outputs of the int8 model as numbers that compare with the float model."""
        scales = self.scales
        real = {n: dequantize(v, scales[n]) if n in scales else v for n, v in stored.items()}
        return self._centre(real)

    def _add(self, measured: Measured, number: int, reference: Feed, result: Feed) -> None:
        """Add one sample; a part counts if it has the same type in both models."""
        for name, stats in measured.outputs.items():
            stats.observe_comparable(reference[name], result[name])
        values = [
            (reference[name], result[name])
            for name in measured.outputs
            if name not in self._indices and _comparable(reference[name], result[name])
        ]
        if any(f.size for f, _ in values):
            measured.sample_numbers.append(number)
            measured.powers.append(powers_of(values))
        pairs = [(reference[n], result[n]) for n in self._unsaturated]
        if pairs and all(_comparable(f, q) and f.dtype == q.dtype for f, q in pairs):
            measured.unsaturated.append(powers_of(p for p in pairs if p[0].dtype.kind == "f"))
        for output, parts in self._parts.items():
            for name in parts:
                f, q = reference[name], result[name]
                # The int8 model may have integers under the same name.
                if _comparable(f, q) and f.dtype == q.dtype:
                    measured.parts[output].setdefault(name, Stats()).observe(f, q)

    def _centre(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """Subtract the zero point from outputs that the float model itself quantizes."""
        zeros = self._zeros
        return {n: v.astype(np.float64) - zeros[n] if n in zeros else v for n, v in values.items()}


def zero_points(model: onnx.ModelProto) -> dict[str, int]:
    """Return the zero points of outputs of a QuantizeLinear with one zero point."""
    links, points = Links(model.graph), dict[str, int]()
    for output in model.graph.output:
        node = links.producers.get(output.name)
        if node is not None and node.op_type == "QuantizeLinear" and len(node.input) > 2:
            zero = links.constant(node.input[2])
            if zero is not None and zero.size == 1:
                points[output.name] = int(zero.item())
    return points


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _comparable(reference: object, result: object) -> bool:
    """Return whether both are equally many numbers: no text, no lists of detected boxes."""
    if not (isinstance(reference, np.ndarray) and isinstance(result, np.ndarray)):
        return False
    return reference.dtype.kind in "biuf" and reference.size == result.size


def powers_of(pairs: Iterable[tuple[Array, Array]]) -> Powers:
    """Return the power of all exact tensors and of the errors of the inexact tensors."""
    signal = noise = 0.0
    for pair in pairs:
        f, q = (np.asarray(array, np.float64).reshape(-1) for array in pair)
        with np.errstate(invalid="ignore", over="ignore"):
            signal, noise = signal + float(f @ f), noise + float((f - q) @ (f - q))
    return Powers(signal, noise)


def parts_of(
    float_model: onnx.ModelProto, int8_model: onnx.ModelProto
) -> dict[str, tuple[str, ...]]:
    """Return, by output, the tensors of both models that Concat nodes join into it.

    Boxes in pixels are a thousand times as large as scores: the boxes determine the
    error of the whole output and hide the error of the scores.
    """
    producers = Links(float_model.graph).producers
    tensors = {name for node in int8_model.graph.node for name in node.output}
    parts = {}
    for output in float_model.graph.output:
        names = tuple(name for name in leaves(output.name, producers) if name in tensors)
        if 1 < len(names) <= MAX_PARTS:
            parts[output.name] = names
    return parts


def before_saturation(float_model: onnx.ModelProto, int8_model: onnx.ModelProto) -> list[str]:
    """Return the input of the final Softmax, Sigmoid, ArgMax or the like of every output.

    Returns:
        Names of tensors; an output that does not saturate is in the list itself. Empty if no
        output saturates, or if the int8 model does not have all tensors.
    """
    logits = with_logit_outputs(float_model, before_decisions=True).graph.output
    names, producers = [output.name for output in logits], Links(float_model.graph).producers
    outputs = {n for output in float_model.graph.output for n in leaves(output.name, producers)}
    tensors = {name for node in int8_model.graph.node for name in node.output}
    saturates = not outputs.issuperset(names)
    return names if saturates and tensors.issuperset(names) else []


def class_axes(model: onnx.ModelProto) -> dict[str, int]:
    """Return, by output, the axis of the classes: the axis of a final Softmax.

    Before opset 13 a Softmax normalized its axis and all later axes together, by default from
    axis 1 on: its axis is the axis of the classes only if it is the last.
    """
    opset, producers = standard_opset(model) or 1, Links(model.graph).producers
    axes = {}
    for output in model.graph.output:
        node = producers.get(output.name)
        while node is not None and node.op_type in _PASSING:
            node = producers.get(node.input[0])
        if node is None or node.op_type not in _NORMALIZING:
            continue
        axis = int(attributes_of(node).get("axis", -1 if opset >= _BY_AXIS else 1))
        rank = len(output.type.tensor_type.shape.dim)
        if opset >= _BY_AXIS or axis in (-1, rank - 1):
            axes[output.name] = axis
    return axes


def summarize(
    measured: Measured, held_out: bool, sample_numbers: Sequence[int] = (), doubt_db: float = 0.0
) -> quality.Accuracy:
    """Return the accuracy of outputs, of their parts, and of all together.

    ``sample_numbers`` are the numbers of the samples in the data, by default 0, 1 and so on;
    ``doubt_db`` is the possible loss on new samples for reasons that these samples do not show.
    """
    outputs = tuple(
        quality.OutputAccuracy(
            name=name,
            sqnr_db=rounded(stats.sqnr_db, 2),
            cosine=rounded(stats.cosine, 6),
            **stats.agreement(),
            parts=tuple(
                quality.PartAccuracy(
                    name=part, sqnr_db=rounded(errors.sqnr_db, 2), cosine=rounded(errors.cosine, 6)
                )
                for part, errors in measured.parts.get(name, {}).items()
            ),
        )
        for name, stats in measured.outputs.items()
    )
    single = outputs[0].top1_agreement if len(outputs) == 1 else None
    interval = expected(measured.powers, measured.unsaturated, doubt_db)
    pairs = zip(measured.powers, measured.sample_numbers, strict=True)
    samples = [(powers.db, k) for powers, k in pairs if powers.db is not None]
    worst = None
    if samples:
        lowest, place = min(samples)
        number = sample_numbers[place] if sample_numbers else place
        worst = quality.WorstSample(number=number, sqnr_db=round(lowest, 2))
    rows = [(row.sqnr_db, row.name) for row in outputs if row.sqnr_db is not None]
    return quality.Accuracy(
        samples=measured.samples,
        uncompared=measured.samples - len(measured.sample_numbers),
        held_out=held_out,
        sqnr_db=rounded(measured.total.sqnr_db, 2),
        cosine=rounded(measured.total.cosine, 6),
        top1_agreement=single,
        outputs=outputs,
        interval_db=None if interval is None else (round(interval[0], 1), round(interval[1], 1)),
        median_db=rounded(statistics.median(db for db, _ in samples), 2) if samples else None,
        worst_sample=worst,
        worst_output=min(rows)[1] if rows and len(outputs) > 1 else None,
        unsaturated_db=rounded(pooled_db(measured.unsaturated), 2)
        if measured.unsaturated
        else None,
        notes=(*sentences(measured.powers, measured.unsaturated), *measured.left_out),
    )


@dataclass(frozen=True)
class MeasuredConversion:
    """Error of a conversion against its float model."""

    pairs: list[LayerPair]  # tensors of the layers in both models
    measured: Measured  # errors on the samples held out
    compared: list[LayerPair]  # pairs whose tensors are in the model, in the order of the errors


def compare_conversion(
    quantization: Quantization, emitted: EmittedModel, step: Callable[[int, int], None]
) -> MeasuredConversion:
    """Measure the errors of outputs and layers on the samples held out.

    ``step`` is called after each sample.

    Raises:
        ModelError: the float model does not run.
        InternalError: the int8 model does not run.
    """
    graph, samples = quantization.padded.graph, quantization.data.measured_on()
    pairs = layer_pairs(graph, quantization.oversampled, emitted)
    try:
        comparison = Comparison(graph.proto, emitted.proto, emitted.scales, pairs, layer_samples=1)
        measured = comparison.measure(samples, lambda number, *_: step(number + 1, len(samples)))
    except executor.RuntimeRefusedError as error:
        try:
            executor.Session(graph.proto).run(samples[0])
        except executor.RuntimeRefusedError as reason:
            text = f"{graph.model.name}: onnxruntime does not run it: {reason}"
            raise ModelError(text) from None
        raise InternalError(f"the result does not run: {error}", where="emit") from None
    return MeasuredConversion(pairs, measured, comparison.layers)


def check_loads(model: onnx.ModelProto) -> str:
    """Load a result that is not measured; return why onnxruntime refuses its default settings.

    Raises:
        InternalError: onnxruntime does not load it.
    """
    try:
        return executor.refusal(model)
    except executor.RuntimeRefusedError as error:
        raise InternalError(f"the result does not load: {error}", where="emit") from None
