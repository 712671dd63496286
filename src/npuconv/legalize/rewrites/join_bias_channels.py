"""Give convolutions back the bias that input channels of a constant stand for.

In int8 such a convolution is quantized as the one that it was: its input has the scale that
it would have, and its bias is an int32 number. The written model has the channels again, with
integers and weights that make up that number.
"""

from __future__ import annotations

from dataclasses import replace

from npuconv.legalize.annotations import Annotations, Splits
from npuconv.legalize.log import Log
from npuconv.legalize.registry import Phase, model_pass
from npuconv.model import edit, query
from npuconv.model.core import Model
from npuconv.model.types import Node


@model_pass(Phase.ACCUMULATE)
def join_bias_channels(model: Model, log: Log, annotations: Annotations) -> tuple[int, Annotations]:
    splits = annotations.splits
    widened = [conv for conv in model.nodes("Conv") if conv.name in splits.bias_channels]
    biasless = [conv for conv in widened if query.input_of(conv, 2) is None]
    for conv in biasless:
        splits = _join(model, log, splits, conv)
    return len(biasless), replace(annotations, splits=splits)


def _join(model: Model, log: Log, splits: Splits, conv: Node) -> Splits:
    fragments, bias_channels = dict(splits.fragments), dict(splits.bias_channels)
    channels, result = bias_channels.pop(conv.name), conv.outputs[0]
    concat = query.producer(conv.inputs[0])
    assert concat is not None, "fit-convolution has made it"
    before, after = f"Conv of {channels.count} channels more", "Conv with a bias"
    with log.rewrite(model, [concat, conv], before, after, outputs=[result], modulus=None):
        inputs = [
            concat.inputs[0],
            edit.constant(model, f"{conv.name}/weight", channels.weight),
            edit.constant(model, f"{conv.name}/bias", channels.bias),
        ]
        joined = edit.insert(
            model, "Conv", inputs, origin=[conv], shape=query.shape(result), attrs=dict(conv.attrs)
        )
        maker = query.producer(joined)
        assert maker is not None, "it has just been made"
        bias_channels[maker.name] = channels
        if (fragment := fragments.pop(conv.name, None)) is not None:
            fragments[maker.name] = fragment
        edit.hand_over(joined, result)
        edit.disconnect(conv)
    return replace(splits, fragments=fragments, bias_channels=bias_channels)
