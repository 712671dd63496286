"""Plans and encodings for tests of passes that need them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import onnx

from asserts import context, read, run_pass
from npuconv.calibration.collect import collect
from npuconv.model import save
from npuconv.model.core import Model
from npuconv.passes._context import PassContext
from npuconv.plan import Plan, make_plan
from npuconv.plan.channels import Channels, trace
from npuconv.quant.encoding import Encoding
from npuconv.quant.statistics import Statistics
from npuconv.tuning.scales.bounds import uniform
from npuconv.tuning.scales.demands import demands
from npuconv.tuning.scales.encodings import encode

Feeds = list[dict[str, np.ndarray]]
SAMPLES = 4
QUANTIZE = (
    "drop-saturated",
    "fill-with-lowest",
    "quantize-activations",
    "quantize-weights",
    "separate-conversions",
)


def random_feeds(model: Model, count: int = SAMPLES) -> Feeds:
    """Random inputs, the same every time; symbolic dimensions are 2."""
    rng = np.random.default_rng(0)
    shapes = {t.name: [d if isinstance(d, int) else 2 for d in t.shape] for t in model.graph.inputs}
    return [
        {name: rng.standard_normal(dims).astype(np.float32) for name, dims in shapes.items()}
        for _ in range(count)
    ]


def watch(model: Model, plan: Plan, channels: Channels, feeds: Feeds) -> dict[str, Statistics]:
    """What the float model shows of every int8 tensor."""
    names = [name for group in plan.groups for name in group.tensors]
    return collect(save.to_proto(model), {name: channels.axis(name) for name in names}, feeds)


def prepare(
    model: Model, ctx: PassContext, plain: Mapping[str, float] = MappingProxyType({})
) -> None:
    """Fill ``ctx.plan``, ``ctx.encodings`` and ``ctx.ends``, calibrated on random inputs.

    Args:
        model: a legal float model.
        ctx: what is filled.
        plain: scales of tensors that are to have one, and zero point 0.
    """
    ctx.plan = make_plan(model, ctx.target)
    if not ctx.plan.groups:
        return
    whole = uniform(ctx.plan)
    if ctx.options.io == "int8":
        whole += [t.name for t in (*model.graph.inputs, *model.graph.outputs)]
    channels = trace(ctx.plan, whole)
    stats = watch(model, ctx.plan, channels, random_feeds(model))
    asked = demands(model, ctx.plan, channels, stats, whole)
    found = encode(ctx.plan, channels, asked, [("minmax", False)])[0].by_tensor
    ctx.encodings = {**found, **{name: Encoding.plain(scale) for name, scale in plain.items()}}
    ctx.ends = {
        conv.name: (ctx.encodings[conv.inputs[0].name], ctx.encodings[conv.outputs[0].name])
        for conv in ctx.plan.device
    }


def prepared(proto: onnx.ModelProto) -> tuple[Model, PassContext]:
    """A legal model that is planned and calibrated."""
    model, ctx = read(proto), context()
    prepare(model, ctx)
    return model, ctx


def quantize(
    model: Model, ctx: PassContext, plain: Mapping[str, float] = MappingProxyType({})
) -> None:
    """Prepare, and run the quantize passes."""
    prepare(model, ctx, plain)
    for name in QUANTIZE:
        run_pass(name, model, ctx)


def converted(
    proto: onnx.ModelProto,
    *passes: str,
    plain: Mapping[str, float] = MappingProxyType({}),
    **options: object,
) -> tuple[Model, PassContext, onnx.ModelProto]:
    """The model after quantization and these passes, and the form with conversions."""
    model, ctx = read(proto), context(**options)
    quantize(model, ctx, plain)
    explicit = save.to_proto(model)
    for name in passes:
        run_pass(name, model, ctx)
    return model, ctx, explicit


def largest_step(ctx: PassContext) -> float:
    """The largest scale of any channel of any tensor."""
    return max(float(encoding.scales.max()) for encoding in ctx.encodings.values())
