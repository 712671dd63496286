"""Tests of pad-crops-away."""

from __future__ import annotations

from npuconv.cli import execute
from support.asserts import finding
from support.builders import Net

CODE = "SHP015"


def cropped(top: int, extent: int | str = 8):
    net = Net(x=(1, 3, extent, 8)).op("Identity", "x")
    return net.pad([0, 0, top, 0, 0, 0, 0, 0]).conv().model()


FIRES = [lambda: cropped(-8), lambda: cropped(-9)]
SILENT = [lambda: cropped(-5), lambda: cropped(2), lambda: cropped(-9, "H")]


def test_the_message_names_axis_and_extent():
    """The message has the extent and the number of cells cut."""
    found = finding(FIRES[1](), CODE)
    assert found.message == "axis 2 has 8 cells and is cropped by 9"
    assert (found.op_type, found.value) == ("Pad", "[-9, 0]")


def test_nothing_is_run(tmp_path, capfd):
    """The runtime would end the process: the model is refused before, even with ``--ignore``."""
    path = tmp_path / "model.onnx"
    path.write_bytes(FIRES[1]().SerializeToString())
    assert execute(["convert", str(path), "-q"]) == 1
    assert execute(["convert", str(path), "-q", "--ignore", "SHP015"]) == 1
    assert "Traceback" not in capfd.readouterr().err
