"""Every rounding of a conversion, for the gated float model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npuconv.model import query, store
from npuconv.quant.layer import unfolded
from npuconv.tuning.noise.gated import Gate, Rounding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npuconv.model.types import Node
    from npuconv.plan import Plan
    from npuconv.quant.encoding import Encoding
    from npuconv.quant.layer import Rounded


def roundings(
    model: object,
    plan: Plan,
    encodings: Mapping[str, Encoding],
    rounded: Mapping[str, Rounded] | None,
) -> list[Rounding]:
    """Inputs that the host makes, weights, and outputs, of every layer in its order.

    Args:
        model: the legal float model, asked for its outputs.
        plan: where every node runs.
        encodings: of every int8 tensor.
        rounded: weights that were rounded with their data in view, by node name; None leaves
            all weights as they are.
    """
    made = {t.name for n in (*plan.device, *plan.carried) for t in n.outputs}
    own = store.Store() if getattr(model, "store", None) is not None else None
    found: list[Rounding] = []
    seen: set[str] = set()
    for conv in plan.device:
        source = conv.inputs[0].name
        if source not in made and source not in seen:
            seen.add(source)
            found.append(Rounding(Gate(conv.name, "input", source), encodings[source]))
        weights = {}
        if rounded is not None:
            weights = _weights(conv, encodings[source], rounded.get(conv.name))
        if weights:
            gate = Gate(conv.name, "weights", conv.inputs[1].name)
            if own is not None:
                weights = {index: own.keep(array) for index, array in weights.items()}
            found.append(Rounding(gate, constants=weights, owner=own))
        result = settled(model, plan, conv)
        found.append(Rounding(Gate(conv.name, "output", result), encodings[result]))
    return found


def settled(model: object, plan: Plan, conv: Node) -> str:
    """The tensor behind the layer's Relu or Clip, which is what is stored."""
    tensor = conv.outputs[0]
    reader = query.sole_consumer(model, tensor)  # type: ignore[arg-type]
    if reader is not None and reader.op in ("Relu", "Clip") and plan.is_carried(reader):
        return str(reader.outputs[0].name)
    return str(tensor.name)


def _weights(conv: Node, source: Encoding, rounded: Rounded | None) -> dict[int, np.ndarray]:
    weight = query.constant_input(conv, 1)
    if weight is None:
        return {}
    group = int(query.attribute(conv, "group", 1))
    if rounded is not None:
        steps = rounded.weight * rounded.scales.reshape(-1, *[1] * (weight.ndim - 1))
        return {1: unfolded(steps, source, group), 2: rounded.bias}
    return {1: unfolded(nearest(weight, source, group), source, group)}


def nearest(weight: np.ndarray, source: Encoding, group: int) -> np.ndarray:
    """Folded weights rounded to the nearest step of each output channel."""
    from npuconv.quant.layer import folded
    from npuconv.quant.qparams import dequantize, quantize_weights

    steps, scales = quantize_weights(folded(weight, source, group))
    return dequantize(steps, scales, axis=0)
