"""Tests of files sent to workers."""

from __future__ import annotations

import onnx
import pytest
from onnx.external_data_helper import convert_model_to_external_data

from batch.conftest import job, small
from npuconv.batch import remote
from npuconv.errors import UsageError


@pytest.fixture
def root(folder):
    """Write jobs with files above, in and below their folder."""
    for path in ("data/a.png", "data/b.png", "data/.hidden", "jobs/list.txt", "jobs/chip.yaml"):
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text("../data/a.png\n")
    model = small()
    convert_model_to_external_data(model, location="m.bin", size_threshold=0)
    onnx.save(model, folder / "jobs" / "m.onnx")
    return folder / "jobs"


def test_there_and_back(root, tmp_path):
    """Unpacked files keep their paths and stay in the folder."""
    one = job("m", calibration="../data", target="chip.yaml")
    sets = remote.needs(one, root)
    assert sets == [["m.onnx", "m.bin"], ["chip.yaml"], ["../data/a.png", "../data/b.png"]]
    parcels = [remote.pack(paths, root) for paths in sets]
    there = tmp_path / "there"
    new = remote.unpack(parcels, there)
    for path in (path for paths in sets for path in paths):
        assert (new / path).read_bytes() == (root / path).read_bytes()
        assert (new / path).resolve().is_relative_to(there)


def test_lists(root):
    """A list is sent with the images it names."""
    sets = remote.needs(job("m", calibration="list.txt"), root)
    assert sets[1] == ["list.txt", "../data/a.png"]


def test_a_file_that_is_missing(root):
    """Missing files are left out; the job reports them."""
    sets = remote.needs(job("gone", calibration="gone.npz"), root)
    assert sets == [["gone.onnx"], ["gone.npz"]]
    assert [remote.pack(paths, root) for paths in sets] == [{}, {}]


def test_absolute_paths_stay(root):
    """Absolute paths are refused."""
    with pytest.raises(UsageError, match="relative to the jobs file"):
        remote.pack([str(root / "m.onnx")], root)
