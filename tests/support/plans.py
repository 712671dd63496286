"""Plans and encodings for tests of passes that need them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import onnx

from npuconv.arithmetic.encoding import Encoding
from npuconv.arithmetic.statistics import Statistics
from npuconv.emit.emission import Emission
from npuconv.legalize.legal import LegalModel
from npuconv.legalize.selection import Findings
from npuconv.legalize.source_model import SourceModel
from npuconv.model import save
from npuconv.model.core import Model
from npuconv.partition.placement import Group, Plan
from npuconv.quantize.calibrate import Calibration, collect, watched
from npuconv.quantize.fake_quant import QuantPoint, quant_points
from npuconv.quantize.hessian import Hessian, HessianReader, WindowedConv, windows_of
from npuconv.quantize.ranges import choose_encodings
from npuconv.quantize.rounding import round_weights
from npuconv.quantize.state import QuantState
from support.asserts import Passes, context, read, run_pass

Feeds = list[dict[str, np.ndarray]]
SAMPLES = 4
AS_SEEN = ("range-margin",)  # steps to leave out, so that ranges are as observed
QUANTIZE = (
    "drop-saturated",
    "fill-with-lowest",
    "quantize-activations",
    "quantize-weights",
)


def random_feeds(model: Model, count: int = SAMPLES) -> Feeds:
    """Random inputs, the same every time; symbolic dimensions are 2."""
    rng = np.random.default_rng(0)
    shapes = {t.name: [d if isinstance(d, int) else 2 for d in t.shape] for t in model.graph.inputs}
    return [
        {name: rng.standard_normal(dims).astype(np.float32) for name, dims in shapes.items()}
        for _ in range(count)
    ]


def planned(model: Model, ctx: Passes | None = None) -> LegalModel:
    """Return a float model, with its plan, as the input of quantization."""
    ctx = ctx or context()
    source, findings = SourceModel.from_model(model), Findings(ctx.options)
    return LegalModel(model, ctx.device, source, ctx.log, findings).replanned()


def without(graph: LegalModel, *steps: str) -> LegalModel:
    """The model under options that leave steps out."""
    options = graph.options.model_copy(update={"without": steps})
    return replace(graph, device=replace(graph.device, options=options))


def watch(graph: LegalModel, feeds: Feeds) -> dict[str, Statistics]:
    """Return the float model's statistics of int8 tensors."""
    return collect(graph.proto, watched(graph), feeds)


def windows(graph: LegalModel, feeds: Feeds) -> dict[str, Hessian]:
    """The Hessians of all convolutions."""
    layers = [layer for conv in graph.plan.convolutions if (layer := windows_of(conv))]
    return gather(graph.proto, layers, feeds)


def gather(
    proto: onnx.ModelProto, layers: Sequence[WindowedConv], feeds: Feeds
) -> dict[str, Hessian]:
    """The Hessian of each of these layers, by name."""
    reader = HessianReader(layers, len(feeds))
    collect(proto, {}, feeds, further=reader.tensors, read=reader.read)
    return reader.hessians


def calibrated(graph: LegalModel, feeds: Feeds) -> Calibration:
    """Return statistics and Hessians on samples."""
    return Calibration(watch(graph, feeds), windows(graph, feeds))


def prepare(
    model: Model, ctx: Passes, plain: Mapping[str, float] = MappingProxyType({})
) -> LegalModel:
    """Set the plan and the encodings of ``ctx``, calibrated on random inputs.

    Ranges are the observed ranges, without margins.

    Args:
        model: a legal float model.
        ctx: receives the emission.
        plain: scales of tensors that get one scale and zero point 0, by name.
    """
    graph = planned(model, ctx)
    encodings: dict[str, Encoding] = {}
    if graph.plan.groups:
        calibration = Calibration(watch(graph, random_feeds(model)), {})
        encodings = dict(choose_encodings(without(graph, *AS_SEEN), calibration).encodings)
        encodings |= {name: Encoding.plain(scale) for name, scale in plain.items()}
    ctx.emission = Emission.from_plan(graph.plan, encodings, {})
    return graph


@dataclass(frozen=True)
class Quantized:
    """A graph with ranges and rounded weights, and its calibration."""

    graph: LegalModel
    state: QuantState
    hessians: dict[str, Hessian]
    feeds: Feeds

    @property
    def points(self) -> list[QuantPoint]:
        """All tensors and weights that are rounded."""
        return quant_points(self.graph, self.state)


def quantized(proto: onnx.ModelProto, feeds: Feeds = (), **options: object) -> Quantized:
    """Quantize a legal model on ``feeds``, by default on eight random samples."""
    model = read(proto)
    graph, feeds = planned(model, context(**options)), list(feeds) or random_feeds(model, 8)
    calibration = calibrated(graph, feeds)
    state = round_weights(graph, calibration.hessians, choose_encodings(graph, calibration))
    return Quantized(graph, state, calibration.hessians, feeds)


def prepared(proto: onnx.ModelProto) -> tuple[Model, Passes]:
    """A legal model that is planned and calibrated."""
    model, ctx = read(proto), context()
    prepare(model, ctx)
    return model, ctx


def quantize(model: Model, ctx: Passes, plain: Mapping[str, float] = MappingProxyType({})) -> None:
    """Prepare, and run the quantize passes."""
    prepare(model, ctx, plain)
    for name in QUANTIZE:
        run_pass(name, model, ctx)


def converted(
    proto: onnx.ModelProto,
    *passes: str,
    plain: Mapping[str, float] = MappingProxyType({}),
    **options: object,
) -> tuple[Model, Passes, onnx.ModelProto]:
    """The model after quantization and these passes, and the model with explicit conversions."""
    model, ctx = read(proto), context(**options)
    quantize(model, ctx, plain)
    explicit = save.to_proto(model)
    for name in passes:
        run_pass(name, model, ctx)
    return model, ctx, explicit


def largest_step(ctx: Passes) -> float:
    """The largest scale of any channel of any tensor."""
    return max(float(encoding.scales.max()) for encoding in ctx.emission.encodings.values())


def groups_of(plan: Plan) -> dict[str, Group]:
    """Return the group of every int8 tensor, by tensor name."""
    return {name: group for group in plan.groups for name in group.tensors}
