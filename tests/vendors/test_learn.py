"""Limits of made-up compilers, which are asked in this process: every trap that real ones have."""

from __future__ import annotations

import sys

import pytest

from npuconv.errors import UsageError
from npuconv.vendors import learn
from npuconv.vendors.learn import Survey, Verdict, ask_command, ask_tool, learnables
from npuconv.vendors.tool import VENDORS, Answer, Reply
from support.target_files import described


def limits(text, op="Conv"):
    """Return the limits of an operator of a target file."""
    return learnables(described(f"  {op}: {{limits: {{{text}}}}}\n"))


def answer(rule, text="kernel_h: '?'", op="Conv"):
    """Ask a compiler that takes cases which follow a rule, until the first limit is known."""
    items = limits(text, op)
    compiler(rule).find_limits(items)
    return items[0]


def compiler(rule, reason="no", layers=lambda _: ""):
    """A compiler that takes cases by a rule, and makes layers of them by another."""

    def ask(models):
        return [
            Verdict(True, layers=layers(case)) if rule(case) else Verdict(False, reason)
            for _, case in models
        ]

    return Survey(ask, True, {})


@pytest.mark.parametrize(
    ("rule", "text", "predicate", "why"),
    [
        (lambda c: c["kernel_h"] <= 11, "kernel_h: '?'", {"range": [1, 11]}, "12: no"),
        (lambda _: True, "stride_h: '?'", {"min": 1}, "64 is the largest value asked"),
        (lambda _: True, "pad_top: '?'", {"min": 0}, "64 is the largest value asked"),
        (lambda c: c["pad_top"] < 1, "pad_top: '?'", {"range": [0, 0]}, "1: no"),
        (lambda c: c["in_c"] > 11, "in_c: '?'", {"range": [12, 8192]}, ""),
        (lambda c: c["in_c"] % 8 == 0, "in_c: '?'", {"multiple_of": 8}, ""),
        (lambda c: c["stride_h"] in (1, 2, 4, 8), "stride_h: '?'", {"one_of": [1, 2, 4, 8]}, ""),
        (lambda c: c["stride_h"] != 3, "stride_h: '?'",
         {"one_of": [1, 2, *range(4, 65)]}, ""),
        (lambda c: c["dilation_w"].bit_count() == 1, "dilation_w: '?'", {"power_of_two": True}, ""),
        (lambda _: False, "kernel_h: '?'", {}, "no value is accepted: no"),
        (lambda c: c["bias"] == 1, "bias: '?'", {"one_of": [True]}, ""),
        (lambda c: c["in_h"] <= 1000, "in_h: '?'", {"range": [1, 1000]}, "1001: no"),
        (lambda c: max(c["pad_top"], c["pad_right"]) < 7, "pad_max: '?'", {"range": [0, 6]}, "7"),
    ],
)  # fmt: skip
def test_limits_of_a_convolution(rule, text, predicate, why):
    item = answer(rule, text)
    if "range" in predicate and predicate["range"][1] == 8192:
        predicate = {"min": predicate["range"][0]}
    if predicate.get("one_of") == [1, 2, 4, 8]:
        assert item.levels["limit"].accepted == [1, 2, 4, 8]
    assert taken(item) == predicate
    assert item.levels["limit"].why().startswith(why)


def test_base_cases_that_differ():
    """A buffer that kernel and channels share: both base cases have to be taken."""
    item = answer(lambda c: c["kernel_h"] * c["in_c"] <= 256)
    assert taken(item) == {"range": [1, 4]}
    assert len(item.bases) == 2
    assert len(answer(lambda c: c["kernel_h"] <= 4).bases) == 1


def taken(item):
    """Return what the compiler takes, as a target file has it."""
    return item.levels["limit"].predicate()


@pytest.mark.parametrize(
    ("splits", "native"),
    [
        (lambda c: c["kernel_h"] > 16, {"range": [1, 16]}),
        (lambda c: c["kernel_h"] % 2 > 0, {"one_of": [*range(2, 31, 2)]}),
        (lambda c: c["kernel_h"] == 4, {"one_of": [1, 2, 3, *range(5, 32)]}),
        (lambda c: c["kernel_h"] * c["in_c"] > 256, {"range": [1, 4]}),  # base cases differ
        (lambda c: c["in_c"] == 64, None),
        (lambda _: True, None),
        (lambda _: False, None),
    ],
)
def test_limits_of_the_hardware(splits, native):
    """A compiler that takes a kernel of up to 31, and splits some."""
    (item,) = limits("kernel_h: '?'")
    compiler(
        lambda c: c["kernel_h"] <= 31, layers=lambda c: "2 Conv" if splits(c) else ""
    ).find_limits([item])
    entry = item.entry("probed")
    assert entry.pop("native", {"source": "probed"}).pop("source") == "probed"
    assert entry == {"range": [1, 31], "source": "probed", "why": "32: no"}
    if native is not None:
        assert item.levels["native"].predicate() == native
        assert item.levels["native"].why().endswith(": 2 Conv")


def test_contradictions_of_the_hardware():
    (item,) = limits("kernel_h: {min: 1, native: {range: [1, 8]}}")
    compiler(lambda _: True, layers=lambda c: "2 Conv" if c["kernel_h"] > 7 else "").find_limits(
        [item]
    )
    assert list(item.contradictions()) == [("Conv.kernel_h native", "1..8", [8], [])]


def test_modes_and_pools():
    """A depthwise convolution; a pad of a pool is smaller than its kernel."""
    target = described("  Conv: {modes: {depthwise: {channel_multiplier: '?'}}}\n")
    (item,) = learnables(target)
    rule = lambda c: c["group"] == c["in_c"] and c["out_c"] <= 4 * c["in_c"]  # noqa: E731
    compiler(rule, "").find_limits([item])
    assert taken(item) == {"range": [1, 4]}
    assert (
        answer(lambda _: True, "pad_top: '?'", "MaxPool").levels["limit"].why()
        == "2 is the largest value asked"
    )
    names = [item.fact for item in limits("kernel_h: '?', bias: '?', alpha: '?'", "MaxPool")]
    assert names == ["kernel_h"]


def test_contradictions():
    """Values around documented limits, of which nothing is changed."""
    item = answer(lambda c: c["kernel_h"] <= 9 or c["kernel_h"] == 16, "kernel_h: {range: [1, 11]}")
    assert list(item.contradictions()) == [("Conv.kernel_h", "1..11", [10, 11], [16])]
    item = answer(lambda _: True, "stride_h: [1, 2]")
    assert [values for *_, values in item.contradictions()] == [[3, 4, 8, 16, 32, 64]]
    assert limits("pad_left: {range: [0, kernel_w]}") == []
    assert list(answer(lambda _: True, "bias: [true, false]").contradictions()) == []
    (row,) = answer(lambda c: c["bias"] == 0, "bias: [true]").contradictions()
    assert row == ("Conv.bias", "true", [1], [0])


def test_largest_values_together():
    """Height and width that share a register."""
    items = limits("kernel_h: '?', kernel_w: '?', stride_h: '?', stride_w: '?'")
    rule = lambda c: c["kernel_h"] * c["kernel_w"] <= 49  # noqa: E731
    survey = compiler(rule, "area")
    survey.find_limits(items)
    assert survey.coupled(items) == [("Conv kernel_h 9, kernel_w 9", "area")]


def test_no_model_is_asked_twice():
    """Answers are stored by model; equal models of two limits are one."""
    asked, stored, written = [], {}, []

    def ask(models):
        asked.extend(case["kernel_h"] for _, case in models)
        return [Verdict(case["kernel_h"] <= 20, "no") for _, case in models]

    items = limits("kernel_h: '?', weight_h: '?'")
    Survey(ask, True, stored, lambda: written.append(len(stored))).find_limits(items)
    assert [taken(item) for item in items] == [{"range": [1, 20]}] * 2
    assert len(asked) == len(stored) == written[-1]
    number = len(asked)
    again = limits("kernel_h: '?'")
    Survey(ask, True, stored).find_limits(again)
    assert (taken(again[0]), len(asked)) == ({"range": [1, 20]}, number)


@pytest.mark.e2e
def test_a_command():
    """Exit code 0 takes the model; a signal and a hang do not; the reason is the last line."""
    command = f"{sys.executable} -c 'print(1); print(2); exit(1)' {{model}}"
    verdicts = list(ask_command(command, [(b"", {})]))
    assert verdicts == [Verdict(False, "2")]
    assert list(ask_command("test -f {model}", [(b"m", {})] * 2)) == [Verdict(True)] * 2
    assert list(ask_command("sh -c 'kill -9 $$' {model}", [(b"", {})])) == [
        Verdict(False, "signal 9")
    ]


@pytest.mark.e2e
def test_a_command_that_hangs(monkeypatch):
    monkeypatch.setattr(learn, "SECONDS", 0.2)
    assert list(ask_command("sh -c 'sleep 60; true' {model}", [(b"", {})])) == [
        Verdict(False, "took over 0.2 s")
    ]


@pytest.mark.parametrize(
    ("command", "message"),
    [("compile", "has no {model}"), ("absent-compiler {model}", "absent-compiler: No such file")],
)
def test_a_command_that_cannot_run(command, message):
    with pytest.raises(UsageError) as caught:
        list(ask_command(command, [(b"", {})]))
    assert message in caught.value.message


class StandIn:
    """A tool that gives one reply, and remembers the question."""

    vendor = VENDORS["rknn"]

    def __init__(self, accepted, *layers):
        rows = [(f"layer {number}", *layer) for number, layer in enumerate(layers)]
        verdict = "accepted" if accepted else "refused"
        self.reply = Reply(verdict, Answer(accepted=accepted, layers=rows))

    def ask(self, questions):
        """Return the reply, as ``VendorTool.ask``."""
        (self.question,) = questions
        return "1", [self.reply]


@pytest.mark.parametrize(
    ("accepted", "layers", "verdict"),
    [
        (True, [], Verdict(True)),
        (True, [("Conv", "NPU", ""), ("exDataConvert", "NPU", "")], Verdict(True)),
        (True, [("Slice", "NPU", "")] * 2 + [("Conv", "NPU", "")],
         Verdict(True, layers="2 Slice, Conv")),
        (True, [("Conv", "NPU", ""), ("Pad", "CPU", "")], Verdict(False, "Pad on the CPU")),
        (False, [("Conv", "NPU", ""), ("Conv", "CPU", "too wide")], Verdict(False, "too wide")),
        (False, [], Verdict(False)),
    ],
)  # fmt: skip
def test_layers_of_a_tool(accepted, layers, verdict):
    """Several layers on the device are a split; a layer on the processor is a refusal."""
    case = answer(lambda _: True).case("16 channels, 3x3", 3)
    tool = StandIn(accepted, *layers)
    assert list(ask_tool(tool, [(b"", case)], is_quantized=True)) == [verdict]


@pytest.mark.parametrize("is_quantized", [True, False])
def test_a_tool_quantizes_float_models(is_quantized):
    """A float model comes with a sample; a tool that quantizes refuses a quantized model."""
    tool, case = StandIn(True), answer(lambda _: True).case("16 channels, 3x3", 3)
    list(ask_tool(tool, [(b"", case)], is_quantized=is_quantized))
    assert [f["x"].shape for f in tool.question.feeds] == [(1, 16, 16, 16)] * (not is_quantized)
    assert tool.question.calibrates is not is_quantized
