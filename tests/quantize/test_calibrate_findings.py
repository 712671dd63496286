"""Findings of calibration: shown, ignored, or a reason to stop, like any other."""

from __future__ import annotations

import numpy as np
import pytest

import npuconv
from npuconv.report import render
from support.builders import Net

X = ("N", 1, 8, 8)
SAMPLES = {"x": np.random.default_rng(0).uniform(0, 1, (8, 1, 8, 8)).astype(np.float32)}


def dead():
    """A convolution of which a Relu leaves one channel of three."""
    net = Net(x=X)
    weight, bias = net.constant(np.ones((3, 1, 1, 1))), net.constant(np.asarray([0.0, -5, -6]))
    return net.op("Conv", "x", weight, bias, name="conv").op("Relu").model()


def codes(report) -> list[str]:
    return [finding.code for finding in report.findings]


def convert(**options) -> npuconv.Conversion:
    return npuconv.convert(dead(), calibration=SAMPLES, **options)


def test_it_is_in_every_report():
    """Behind the findings of the graph, with all their parts."""
    report = convert().report
    assert "CAL003" in codes(report)
    assert report.summary.verdict == "converted"
    for form in ("text", "markdown", "html", "sarif", "json", "github"):
        assert "CAL003" in render(report, form)


def test_a_check_does_not_know():
    """A check has no statistics."""
    assert "CAL003" not in codes(npuconv.check(dead()))


def test_it_is_ignored_and_selected_like_others():
    """Code and prefix select such findings."""
    assert "CAL003" not in codes(convert(ignore=["CAL"]).report)
    assert codes(convert(select=["CAL003"]).report) == ["CAL003"]


def test_a_warning_stops_where_warnings_do():
    """No model then, but the report of what was found."""
    with pytest.raises(npuconv.UnsupportedModelError) as caught:
        convert(fail_on="warning", select=["CAL"])
    report = caught.value.report
    assert codes(report) == ["CAL003"]
    assert (report.summary.verdict, report.summary.exit_code) == ("refused", 1)
    assert convert(fail_on="warning", ignore=["CAL"], select=["QNT"]).model


def test_nothing_is_calibrated_nothing_is_said():
    """Weights alone need no samples."""
    assert "CAL003" not in codes(convert(format="weights").report)
