"""Sizes that the benchmark of fitting reads off files."""

from __future__ import annotations

from pathlib import Path

import onnx
import targets
from targets import Row, Size, open_sizes, size_of

from npuconv.target import Target
from support.builders import Net

LIMITS = ("kernel_h=2", "kernel_w=2")


def test_sizes_are_those_of_the_file():
    """A convolution with 36 taps an output, and what its result is joined to."""
    net = Net(x=(1, 4, 6, 6)).conv("x", (8, 4, 3, 3))
    model = net.op("Concat", net.last, net.last, axis=1).model()
    assert size_of(model) == Size(convolutions=1, macs=8 * 4 * 4 * 36, moved=16 * 4 * 4)


def test_a_row_counts_what_a_device_adds(tmp_path: Path):
    """A window of 3x3 in parts of at most 2x2."""
    path = str(tmp_path / "model.onnx")
    onnx.save(Net(x=(1, 4, 6, 6)).conv("x", (8, 4, 3, 3)).model(), path)
    row = Row()
    row.take(path, open_sizes([path])[path], "npu-int8", LIMITS)
    assert (row.converted, row.refused, row.faulty) == (1, 0, 0)
    assert row.added.moved > 0
    assert row.text("small").startswith("| small | 1 | 0 | 0 | +")


def test_a_refused_model_is_counted(tmp_path: Path, capsys):
    """No part of a window is smaller than one tap."""
    path = str(tmp_path / "model.onnx")
    onnx.save(Net(x=(1, 4, 6, 6)).conv("x", (8, 4, 3, 3)).model(), path)
    row = Row()
    row.take(path, Size(), "npu-int8", ("in_h=0",))
    assert (row.converted, row.refused) == (0, 1)
    assert "refused" in capsys.readouterr().out


def test_every_set_of_limits_is_open_in_the_target():
    """One that is not would end a run in the middle of its table."""
    for assume in targets.LIMITS.values():
        Target.load("npu-int8").assuming(assume)
