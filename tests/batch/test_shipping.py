"""Files that travel: the same paths, the same bytes, nothing outside of the folder."""

from __future__ import annotations

import onnx
import pytest
from onnx.external_data_helper import convert_model_to_external_data

from batch.conftest import job, small
from npuconv.batch import remote
from npuconv.errors import UsageError


@pytest.fixture
def root(folder):
    """A folder of jobs whose files lie above, in and below it."""
    for path in ("data/a.png", "data/b.png", "data/.hidden", "jobs/list.txt", "jobs/chip.yaml"):
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text("../data/a.png\n")
    model = small()
    convert_model_to_external_data(model, location="m.bin", size_threshold=0)
    onnx.save(model, folder / "jobs" / "m.onnx")
    return folder / "jobs"


def test_there_and_back(root, tmp_path):
    """What is unpacked has the same paths, and does not leave its folder."""
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
    """A list and the images it names."""
    sets = remote.needs(job("m", calibration="list.txt"), root)
    assert sets[1] == ["list.txt", "../data/a.png"]


def test_a_file_that_is_missing(root):
    """The job will say that it misses it."""
    sets = remote.needs(job("gone", calibration="gone.npz"), root)
    assert sets == [["gone.onnx"], ["gone.npz"]]
    assert [remote.pack(paths, root) for paths in sets] == [{}, {}]


def test_absolute_paths_stay(root):
    """Elsewhere they mean other files."""
    with pytest.raises(UsageError, match="relative to the jobs file"):
        remote.pack([str(root / "m.onnx")], root)
