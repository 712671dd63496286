"""Coverage of models by targets, with obstacles."""

from __future__ import annotations

import json

import onnx
import pytest

from npuconv.cli.coverage import cover
from npuconv.errors import TargetError, UsageError
from npuconv.target import builtin_names
from support.builders import Net, digits

X = (1, 4, 20, 20)


@pytest.fixture
def model(tmp_path):
    """A function that writes a model and returns its path."""

    def write(net, name="m.onnx"):
        path = tmp_path / name
        onnx.save(net if isinstance(net, onnx.ModelProto) else net.model(), path)
        return str(path)

    return write


def large_kernel():
    """Too large for Horizon's 7x7, not for RKNN's 31x31."""
    return Net(x=X).conv("x", (4, 4, 9, 9), name="wide").conv("", (4, 4, 9, 1), name="tall")


def volume():
    """Convolutions of three axes, none of which can go."""
    net = Net(x=(1, 4, 9, 9, 9)).conv("x", (4, 4, 3, 3, 3), name="deep")
    return net.conv("", (4, 4, 2, 2, 2), name="deeper")


def cells(found):
    return {cell.target: cell for cell in found.cells}


def test_every_built_in_target_is_asked(model):
    """All built-in targets are the default."""
    found = cover([model(digits(1))])
    assert tuple(cells(found)) == builtin_names() == tuple(found.targets)
    assert not found.refusals


def test_three_verdicts(model):
    """Taken, stopped, and open because of limits that are not known."""
    found = cells(cover([model(large_kernel())]))
    assert found["ethos-u55"].verdict == "takes"
    assert found["ethos-u55"].unknown_limits == ()
    assert found["horizon-x3"].verdict == "takes"
    assert found["horizon-x3"].obstacles == ()
    assert found["horizon-x3"].fitted == 2  # its kernels are rewritten
    assert (found["horizon-x3"].extra_macs or 0) > 0
    assert found["horizon-x3"].extra_share.startswith("+")
    assert (found["ethos-u55"].fitted, found["ethos-u55"].extra_macs) == (0, 0)
    assert cells(cover([model(volume())]))["rknn"].verdict == "refuses"
    assert found["npu-int8"].verdict == "open"
    assert "Conv.kernel_h" in found["npu-int8"].unknown_limits


def test_what_stops_a_model(model):
    """The rule, how often, one node, and who says so."""
    (cell,) = cover([model(volume())], ["horizon-x3"]).refusals
    (obstacle,) = cell.obstacles
    assert (obstacle.code, obstacle.name) == ("SHP001", "rank-unsupported")
    assert (obstacle.count, obstacle.node, obstacle.op_type) == (2, "deep", "Conv")
    assert obstacle.message.startswith("Conv of rank 5; the device takes rank 4")
    assert obstacle.limit == "4"
    assert obstacle.source.startswith("horizon-x3:")
    assert obstacle.source.endswith("operators.Conv.limits.rank (rdk/Conv)")
    assert (cell.device_macs, cell.device_share) == (0, "0.0 %")


def test_what_is_rewritten_stops_nothing(model):
    """auto_pad, as the built-in chip does not have it."""
    net = Net(x=X).conv("x", (4, 4, 3, 3), auto_pad="SAME_UPPER")
    (cell,) = cover([model(net)], ["npu-int8"]).cells
    assert cell.verdict == "open"
    assert (cell.device_macs, cell.total_macs) == (4 * 4 * 9 * 400, 4 * 4 * 9 * 400)


def test_a_dynamic_shape_has_no_share(model):
    """Missing numbers stay missing."""
    (cell,) = cover([model(Net(x=(1, 4, "h", "w")).conv("x", (4, 4, 3, 3)))], ["rknn"]).cells
    assert (cell.device_macs, cell.total_macs, cell.device_share) == (None, None, "unknown")
    fixed = cover([cell.model], ["rknn"], input_shape={"x": (1, 4, 8, 8)}).cells[0]
    assert fixed.total_macs == 4 * 4 * 9 * 36


def test_an_unreadable_model_does_not_stop_the_others(model, tmp_path):
    """The error of the model is printed."""
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(b"no model")
    good = model(digits(1))
    found = cover([str(bad), good], ["rknn"])
    assert list(found.unreadable) == [str(bad)]
    assert found.models == (good,)
    assert [cell.model for cell in found.cells] == [good]


def test_mistakes_of_the_user(model):
    """Are told before the first model is read."""
    with pytest.raises(TargetError, match="did you mean 'rknn'"):
        cover(["nowhere.onnx"], ["rkn"])
    with pytest.raises(UsageError):
        cover([model(digits(1))], ["rknn"], frobnicate=1)


def test_the_same_twice_is_asked_once(model):
    """Models and targets."""
    path = model(digits(1))
    assert len(cover([path, path], ["rknn", "rknn"]).cells) == 1


def test_progress(model):
    """A step for each model."""
    steps = []
    cover(
        [model(digits(1)), model(digits(2), "n.onnx")], ["rknn"], lambda *step: steps.append(step)
    )
    assert steps == [("checking", 1, 2), ("checking", 2, 2)]


def test_json(model):
    """Has everything, under the names of the code."""
    data = json.loads(cover([model(volume())], ["horizon-x3"]).as_json())
    assert data["schema_version"] == 1
    assert data["cells"][0]["verdict"] == "refuses"
    assert data["cells"][0]["obstacles"][0]["code"] == "SHP001"
    assert data["unreadable"] == {}


def test_tensors_that_cross(model):
    """An operator of the host between two convolutions; RKNN lists it."""
    path = model(Net(x=X).conv("x", (4, 4, 1, 1)).op("Sigmoid").conv("", (4, 4, 1, 1)))
    found = cells(cover([path], ["npu-int8", "rknn"]))
    assert (found["npu-int8"].crossings, found["npu-int8"].crossing_bytes) == (4, 4 * 1600)
    assert (found["rknn"].crossings, found["rknn"].crossing_bytes) == (2, 2 * 1600)


def test_a_shape_is_for_the_models_that_have_its_input(model):
    """The other model is covered as it is."""
    paths = [
        model(Net(x=X).conv("x", (4, 4, 1, 1)), "a.onnx"),
        model(Net(image=(1, 4, "h", "w")).conv("image", (4, 4, 1, 1)), "b.onnx"),
    ]
    found = cover(paths, ["npu-int8"], input_shape={"image": (1, 4, 16, 16)})
    assert found.models == tuple(paths)
    assert [cell.total_macs for cell in found.cells][1] == 16 * 16 * 16
