"""Tests of fit-convolution."""

from __future__ import annotations

import json

import onnx

import npuconv
from npuconv.config import Options
from npuconv.legalize.split.planner import Planner
from support.asserts import Passes, context, read, run_pass
from support.builders import Net
from support.fits import fit, layer
from support.target_files import chip

NAME = "fit-convolution"
X = (1, 8, 12, 12)
TIGHT = chip(
    kernel_h={"max": 2}, kernel_w={"max": 2}, stride_h={"max": 1}, stride_w={"max": 1},
    dilation_h={"max": 1}, dilation_w={"max": 1}, pad_max={"max": 0}, in_h={"max": 8},
    in_w={"max": 8}, in_c={"max": 4}, out_c={"max": 2}, in_n={"max": 1}, bias={"equals": True},
)  # fmt: skip


def conv(weight=(4, 8, 3, 3), x=X, **attrs) -> Net:
    return Net(x=x).conv("x", weight, **attrs)


FIRES = [
    (lambda: conv().model(), chip(in_c={"max": 4})),
    (lambda: conv(bias=False).model(), chip(bias={"equals": True})),
    (lambda: conv(pads=[1, 1, 2, 2]).model(), chip(pad_max={"max": 1})),
    (lambda: conv(x=(2, 8, 12, 12), strides=[2, 1], pads=[1, 1, 1, 1]).model(), TIGHT),
    (lambda: conv((8, 1, 3, 3), group=8, dilations=[2, 2]).model(), TIGHT),
    (
        lambda: conv(x=("N", 8, "H", "W"), dilations=[2, 1], pads=[2] * 4).model(),
        chip(dilation_h={"max": 1}),
    ),
]
SILENT = [
    lambda: conv().model(),
    (lambda: conv().model(), chip(in_c="?", kernel_h="?", bias="?")),
    (lambda: conv().model(), chip(in_c={"max": 8})),
    (lambda: Net(x=X, w=(4, 8, 3, 3)).op("Conv", "x", "w").model(), chip(in_c={"max": 4})),
    (lambda: conv().model(), chip(dtype={"equals": "int4"}, layout={"equals": "nhwc"})),
    (lambda: conv().model(), chip("")),
]


def test_all_limits_at_once():
    """A sequence of rewrites keeps all limits where no single one does; the note says why."""
    net = conv((6, 8, 5, 5), x=(2, 8, 14, 14), strides=[2, 2], dilations=[1, 2], pads=[2, 2, 2, 2])
    model, ctx = read(net.model()), Passes(TIGHT, Options())
    assert run_pass(NAME, model, ctx) == 1
    record = ctx.rewrites[0]
    assert "kernel_h is 5, the device takes at most 2" in record.note
    assert "forms that fit" in record.note
    assert "partial sums are rounded to int8" in record.note
    assert record.max_abs_difference is not None


def test_what_cannot_be_fitted_says_what_was_tried():
    """The limit, the value, and the nearest form."""
    found = fit(conv(), in_c={"max": 4}, kernel_h={"min": 99})
    assert found.fired == 0
    (reason,) = found.refusals
    assert "the nearest form is Conv" in reason
    assert "kernel_h is" in reason


def test_a_layer_does_not_become_more_convolutions_than_it_may():
    """The refusal says how many it would be: who reads it can judge the limit."""
    model = read(conv((1, 1, 1, 3), x=(1, 1, 1, 10002)).model())
    ctx = Passes(chip(in_w={"max": 4}), Options())
    assert run_pass(NAME, model, ctx) == 0
    (reason,) = [found.reason for found in ctx.refusals]
    assert reason == "it would become 5000 convolutions, which are too many"


def test_the_finding_names_the_nearest_form():
    """Beside the limit and the value."""
    report = npuconv.check(conv().model(), assume=["in_c=4", "kernel_h=98,99"], verify=False)
    (message, *_) = [f.message for f in report.findings if "in_c is 8" in f.message]
    assert "the device takes at most 4; not rewritten: the nearest form is Conv" in message


def test_weights_that_are_fed_are_refused():
    """Unknown weights cannot be cut."""
    proto = Net(x=X, w=(4, 8, 3, 3)).op("Conv", "x", "w").model()
    model, ctx = read(proto), Passes(chip(in_c={"max": 4}), Options())
    assert run_pass(NAME, model, ctx) == 0
    assert [r.reason for r in ctx.refusals] == ["its weights are not constant"]


def test_the_costs_of_the_target_decide():
    """Dear weights make phases not worth their zeros."""
    net = conv((4, 8, 3, 3), strides=[2, 2])
    limits = {"stride_h": {"max": 1}, "stride_w": {"max": 1}}
    assert fit(net, **limits).ops["SpaceToDepth"] == 1
    dear = fit(net, costs={"weight_byte": 1e6}, **limits)
    assert dear.ops["SpaceToDepth"] == 0


def test_only_where_it_may():
    """The limits are refused if --no-fit is given."""
    model, ctx = read(conv().model()), Passes(TIGHT, Options(fit=False))
    assert run_pass(NAME, model, ctx) == 0
    assert not ctx.refusals


def test_a_layer_is_planned_once():
    """Layers of a network repeat."""
    planner = Planner(TIGHT)
    assert planner.plan(layer()) is planner.plan(layer())


def test_convert_and_check_agree(tmp_path):
    """Findings are rewritten for both commands, and the result passes again."""
    target = tmp_path / "tight.json"
    target.write_text(json.dumps(TIGHT.model_dump(by_alias=True, exclude_unset=True, mode="json")))
    path = target.rename(tmp_path / "tight.yaml")
    proto = conv(pads=[1, 1, 1, 1]).op("Relu").model()
    report = npuconv.check(proto, target=str(path))
    assert report.ok
    assert {f.status for f in report.findings if f.severity == "error"} == {"rewritten"}
    result = npuconv.convert(proto, target=str(path), format="float")
    assert npuconv.check(result.model, target=str(path)).ok
    onnx.checker.check_model(result.model)


def test_a_grouped_transposed_convolution_under_limits(tmp_path):
    """Passes before this one count on it."""
    net = Net(x=(1, 4, 6, 6)).conv(
        "x", (4, 3, 5, 5), op="ConvTranspose", group=2, strides=[2, 2], pads=[1, 1, 1, 1]
    )
    path = tmp_path / "tight.yaml"
    path.write_text(json.dumps(TIGHT.model_dump(by_alias=True, exclude_unset=True, mode="json")))
    assert npuconv.check(net.model(), target=str(path)).ok


def test_a_context_without_such_limits_plans_nothing():
    """The built-in target leaves these limits open."""
    ctx = context()
    assert run_pass(NAME, read(conv().model()), ctx) == 0
    assert "planner" not in vars(ctx)
