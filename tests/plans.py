"""Plans and ranges for tests of passes that need them."""

from __future__ import annotations

import numpy as np
import onnx

from asserts import context, read, run_pass
from npuconv import calibration
from npuconv.model import save
from npuconv.model.core import Model
from npuconv.passes._context import PassContext
from npuconv.plan import make_plan


def prepare(model: Model, ctx: PassContext) -> None:
    """Fill ``ctx.plan`` and ``ctx.ranges``, calibrated on four random inputs."""
    ctx.plan = make_plan(model, ctx.target)
    groups = {group.name: group.ends for group in ctx.plan.groups}
    if not groups:
        return
    names = [name for group in ctx.plan.groups for name in group.tensors]
    rng = np.random.default_rng(0)
    shapes = {t.name: [d if isinstance(d, int) else 2 for d in t.shape] for t in model.graph.inputs}
    feeds = [
        {name: rng.standard_normal(dims).astype(np.float32) for name, dims in shapes.items()}
        for _ in range(4)
    ]
    observers = calibration.observe(save.to_proto(model), names, feeds)
    ctx.ranges = calibration.choose(observers, groups, "minmax")


def quantize(model: Model, ctx: PassContext) -> None:
    """Prepare, and run the quantize passes."""
    prepare(model, ctx)
    for name in ("quantize-activations", "quantize-weights"):
        run_pass(name, model, ctx)


def converted(
    proto: onnx.ModelProto, *passes: str, **options: object
) -> tuple[Model, PassContext, onnx.ModelProto]:
    """The model after quantization and these passes, and the form with conversions."""
    model, ctx = read(proto), context(**options)
    quantize(model, ctx)
    explicit = save.to_proto(model)
    for name in passes:
        run_pass(name, model, ctx)
    return model, ctx, explicit
