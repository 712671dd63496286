"""Histograms and channels of the page."""

from __future__ import annotations

from npuconv.report import html
from npuconv.report.html_ranges import Histogram, tensor_ranges
from npuconv.schemas.quality import ChannelRange, QuantizationInfo, TensorQuant
from report.graphs import report_of


def quantized(**more):
    values = {"scale": 0.5, "zero_point": 0, "minimum": -1.0, "maximum": 3.0, "clip_fraction": 0.0}
    quant = QuantizationInfo(
        format="qdq", method="mse", samples=1, source="x", synthetic=False,
        tensors=(TensorQuant(name="t", **(values | more)),),
    )  # fmt: skip
    return report_of([], quantization=quant)


COUNTS = (2, *(0 for _ in range(15)), 100, *(0 for _ in range(16)), 1)


def test_a_histogram_is_drawn_to_scale():
    """The fullest bin has the whole height; empty bins are not drawn; clipped ones are apart."""
    drawn = Histogram(COUNTS, ("a", "b", "c"))
    assert drawn.inside == "M161 60v-60h8v60z"
    assert drawn.outside.count("M") == 2
    assert drawn.grid.count("M") == len(COUNTS) - 1
    assert "values in 1 of 32 bins of 8 levels; 2 of 103 values below, 1 above" in drawn.text


def test_levels_of_one_scale_have_values():
    """One scale gives the axis real values."""
    (bar,) = tensor_ranges(quantized(histogram=COUNTS, lowest=-64.0, highest=63.5))
    assert bar.histogram is not None
    assert bar.histogram.labels == ("-64", "0", "63.5")
    (bar,) = tensor_ranges(quantized(histogram=COUNTS, lowest=-64.0, highest=63.5, channels=4))
    assert bar.histogram is not None
    assert bar.histogram.labels == ("-128", "0", "127")


def test_channels_share_a_track():
    """The widest channel fills the track, and another is drawn in proportion."""
    rows = (
        ChannelRange(channel=7, minimum=-4, maximum=4, lowest=-4, highest=4),
        ChannelRange(channel=2, minimum=0, maximum=2, lowest=-2, highest=2),
    )
    (bar,) = tensor_ranges(quantized(channel_ranges=rows))
    first, second = bar.channels
    assert first.int8 == "left:0.0%;width:100.0%"
    assert second.int8 == "left:25.0%;width:50.0%"
    assert second.observed == "left:50.0%;width:25.0%"
    assert "channel 7: -4 to 4" in html.render(quantized(channel_ranges=rows))


def test_a_tensor_without_values():
    """A tensor that was not observed has neither."""
    (bar,) = tensor_ranges(quantized())
    assert (bar.histogram, bar.channels) == (None, ())
