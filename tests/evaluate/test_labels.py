"""Labels: classes of samples from arrays and from tables of file names."""

from __future__ import annotations

import re

import numpy as np
import pytest
from PIL import Image

from npuconv.data.arrays import IGNORED
from npuconv.errors import CalibrationError
from npuconv.evaluate.labels import check_scores, count_right, notes_without_labels, read_labels


@pytest.fixture
def pictures(tmp_path):
    """Return a directory of three images, with classes against their alphabet."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    for name in ("b.png", "a.png", "c.jpg"):
        Image.new("RGB", (4, 4)).save(folder / name)
    return folder


def test_arrays(tmp_path):
    """Labels come from .npy, or .npz with either key, as a row or a column."""
    np.save(tmp_path / "l.npy", np.asarray([[3], [1]], np.uint8))
    assert read_labels(tmp_path / "l.npy", None).tolist() == [3, 1]
    for key in ("y", "labels"):
        np.savez(tmp_path / "l.npz", **{key: np.asarray([1, 2])})
        assert read_labels(tmp_path / "l.npz", None).tolist() == [1, 2]


@pytest.mark.parametrize(("suffix", "mark"), [("tsv", "\t"), ("csv", ",")])
def test_tables(tmp_path, pictures, suffix, mark):
    """Labels come in the order of the images, with a heading or without."""
    rows = [f"c.jpg{mark}7", f"pictures/a.png{mark}5", f"b.png{mark}6", f"other.png{mark}1"]
    for head in ([], [f"file{mark}class"], ["# a comment"]):
        path = tmp_path / f"l.{suffix}"
        path.write_text("\n".join([*head, *rows]) + "\n")
        assert read_labels(path, pictures).tolist() == [5, 6, 7]


def test_a_list_of_images(tmp_path, pictures):
    """Labels come in the order of a list of images; one image is a list of one."""
    (tmp_path / "l.tsv").write_text("a.png\t5\nb.png\t6\n")
    (pictures / "list.txt").write_text("b.png\na.png\n")
    assert read_labels(tmp_path / "l.tsv", pictures / "list.txt").tolist() == [6, 5]
    assert read_labels(tmp_path / "l.tsv", pictures / "a.png").tolist() == [5]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("l.tsv", "a.png\t1\nb.png\t2\n", "no class for 1 of 3 files: c.jpg"),
        ("l.tsv", "a.png\t1\nb.png two\n", "l.tsv:2: not FILE<TAB>CLASS: b.png two"),
        ("l.tsv", "a.png\t1\na.png\t2\n", "l.tsv:2: a.png is of class 2, and of class 1 before"),
        ("l.csv", "a.png,1\nb.png\n", "l.csv:2: not FILE,CLASS: b.png"),
        ("l.json", "{}", "not a file of labels"),
        ("l.npy", "text", "l.npy"),
        ("l.tsv", b"\xff\xfe\xff", "not a UTF-8 text file"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, pictures, name, content, message):
    """The error names the file, the line and the cause."""
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(CalibrationError, match=re.escape(message)):
        read_labels(path, pictures)


@pytest.fixture
def folders(tmp_path):
    """Return two folders with files of the same names, and a list of them."""
    for name in ("a/0.png", "b/0.png", "b/1.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (4, 4)).save(tmp_path / name)
    path = tmp_path / "list.txt"
    path.write_text("a/0.png\nb/0.png\nb/1.png\n")
    return path


@pytest.mark.parametrize("top", ["", "./", "../{0}/", "/elsewhere/"])
def test_files_of_the_same_name(tmp_path, folders, top):
    """Folders tell equal names apart, wherever the table was made."""
    lines = f"{top}b/0.png\t2\n{top}a/0.png\t1\n{top}b/1.png\t3\n".format(tmp_path.name)
    (tmp_path / "l.tsv").write_text(lines)
    assert read_labels(tmp_path / "l.tsv", folders).tolist() == [1, 2, 3]


def test_names_that_do_not_tell(tmp_path, folders):
    """The error has the names to give."""
    (tmp_path / "l.tsv").write_text("0.png\t1\nb/1.png\t3\n")
    message = r"no class for 2 of 3 files: a/0\.png, b/0\.png \(give these names"
    with pytest.raises(CalibrationError, match=message):
        read_labels(tmp_path / "l.tsv", folders)


def test_missing_files(tmp_path, pictures):
    """The error of a missing file is the system's."""
    for name in ("no.npy", "no.tsv"):
        with pytest.raises(CalibrationError, match="No such file"):
            read_labels(tmp_path / name, pictures)


def test_arrays_that_are_no_labels(tmp_path):
    """Probabilities, tables, and archives without labels are refused."""
    np.save(tmp_path / "p.npy", np.asarray([0.1, 0.9]))
    with pytest.raises(CalibrationError, match="one integer for each sample, not float64"):
        read_labels(tmp_path / "p.npy", None)
    np.save(tmp_path / "t.npy", np.zeros((3, 10), np.int64))
    with pytest.raises(CalibrationError, match=r"of shape \[3, 10\]"):
        read_labels(tmp_path / "t.npy", None)
    np.savez(tmp_path / "n.npz", x=np.zeros(3))
    with pytest.raises(CalibrationError, match="no array named 'y' or 'labels', but x"):
        read_labels(tmp_path / "n.npz", None)


@pytest.mark.parametrize("data", [None, "x.npz"])
def test_file_names_for_arrays(tmp_path, data):
    """A table of file names is refused for arrays."""
    (tmp_path / "l.tsv").write_text("a.png\t1\n")
    with pytest.raises(CalibrationError, match=r"names image files.*give \.npy"):
        read_labels(tmp_path / "l.tsv", data)


def test_score():
    """Every row of a batch is counted, for both models."""
    scores = np.asarray([[9, 1, 1], [1, 9, 1]], np.float32)
    outputs = (scores, scores[::-1].reshape(2, 3, 1, 1))
    assert count_right(np.asarray([0, 1]), outputs) == [2, 0]


@pytest.mark.parametrize("label", [3, -1])
def test_a_label_that_is_no_class(label):
    """A label outside the classes of the model is an error."""
    with pytest.raises(CalibrationError, match=f"label {label} is no class.*has 3"):
        count_right(np.asarray([label]), [np.zeros((1, 3))] * 2)


@pytest.mark.parametrize(
    ("values", "what"),
    [
        (np.zeros(10), r"of shape \[10\]"),
        (np.zeros((1, 10)), r"of shape \[1, 10\]"),
        (np.zeros(()), r"of shape \[\]"),
        (np.asarray([["a"], ["b"]]), "no array of numbers"),
        ([np.zeros((2, 10))], "no array of numbers"),
    ],
)
def test_an_output_without_a_batch(values, what):
    """An output without the batch in front is refused."""
    check_scores("y", np.zeros((2, 10)), 2)
    with pytest.raises(CalibrationError, match=f"output 'y' is {what} for a batch of 2.*classes"):
        check_scores("y", values, 2)


@pytest.mark.parametrize(
    ("note", "left"),
    [
        (f"{IGNORED}'y'", []),
        (f"{IGNORED}'id', 'labels'", [f"{IGNORED}'id'"]),
        (f"{IGNORED}'labels', 'y'", [f"{IGNORED}'labels'"]),
        ("x is float64, read as float32", ["x is float64, read as float32"]),
    ],
)
def test_labels_beside_the_samples(tmp_path, note, left):
    """An array of labels in the file of the samples is not listed as ignored."""
    assert notes_without_labels([note], tmp_path / "a.npz", f"{tmp_path}/./a.npz") == left
    assert notes_without_labels([note], tmp_path / "b.npz", tmp_path / "a.npz") == [note]
    assert notes_without_labels([note], None, tmp_path / "a.npz") == [note]
