"""Tests of files sent to workers."""

from __future__ import annotations

import onnx
import pytest
from onnx.external_data_helper import convert_model_to_external_data

from batch.conftest import job, small
from npuconv.batch.cluster import read_files, required_files, write_files
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
    """Written files keep their paths and stay in the folder."""
    sets = required_files(job("m", calibration="../data", target="chip.yaml"), root)
    assert sets == [["m.onnx", "m.bin"], ["chip.yaml"], ["../data/a.png", "../data/b.png"]]
    paths = [path for paths in sets for path in paths]
    folder = tmp_path / "worker"
    new_root = write_files(read_files(paths, root), folder)
    for path in paths:
        assert (new_root / path).read_bytes() == (root / path).read_bytes()
        assert (new_root / path).resolve().is_relative_to(folder)


def test_lists(root):
    """A list is sent with the images it names."""
    sets = required_files(job("m", calibration="list.txt"), root)
    assert sets[1] == ["list.txt", "../data/a.png"]


@pytest.mark.parametrize(
    ("calibration", "files"),
    [
        ("./list.txt", ["list.txt", "../data/a.png"]),
        (".", ["chip.yaml", "list.txt", "m.bin", "m.onnx"]),
        ("../jobs/../data", ["../jobs/../data/a.png", "../jobs/../data/b.png"]),
    ],
)
def test_names_of_the_same_files(root, calibration, files):
    """Files have the paths by which the job opens them."""
    assert required_files(job("m", calibration=calibration), root)[1] == files


def test_a_file_that_is_missing(root):
    """Missing files are left out; the job reports them."""
    sets = required_files(job("gone", calibration="gone.npz"), root)
    assert sets == [["gone.onnx"], ["gone.npz"]]
    assert [read_files(paths, root) for paths in sets] == [{}, {}]


def test_absolute_paths(root):
    """Absolute paths are refused."""
    (root / "other.txt").write_text("/elsewhere/a.png\n")
    for calibration in (str(root / "list.txt"), "other.txt"):
        with pytest.raises(UsageError, match="relative to the jobs file"):
            required_files(job("m", calibration=calibration), root)
