"""Samples: what a model is calibrated on is never what it is scored on."""

from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from harness import data, text
from harness.data import SIGNED_BGR, Pixels
from harness.samples import prepare
from numpy.typing import NDArray
from PIL import Image

ROLES: tuple[data.Role, ...] = ("calib", "score", "others")
Batch = Callable[[Path, data.Role, int, tuple[int, int], Pixels], NDArray[Any]]
SHARED = Path(__file__).parents[3] / "shared"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six photographs of one colour each, and nine rows of numbers."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "photos").mkdir()
    for k in range(6):
        Image.new("RGB", (60, 40), (40 * k, 0, 0)).save(folder / "photos" / f"{k}.jpg")
    np.savez(folder / "rows.npz", x=np.arange(100))
    return folder


def test_photographs_are_never_shared(folder: Path) -> None:
    calib, score = (set(data.photos(folder, role)) for role in ("calib", "score"))
    assert len(calib) == 4
    assert len(score) == 2
    assert not calib & score
    assert set(data.photos(folder, "others")) == score


def test_rows_are_never_shared(folder: Path) -> None:
    parts = [
        data.rows(folder, "rows.npz", role, n) for role, n in zip(ROLES, (32, 16, 50), strict=True)
    ]
    assert all(not set(a) & set(b) for a, b in combinations(parts, 2))


@pytest.fixture
def usual() -> Iterator[None]:
    """Whatever a test chooses, the fold is the usual one again."""
    yield
    data.use_fold(data.USUAL)


@pytest.mark.usefixtures("usual")
@pytest.mark.parametrize("folds", [(0, 1, 2), (3, 4, 5)])
def test_every_third_is_scored_once(folder: Path, folds: tuple[int, ...]) -> None:
    """No fold scores a sample that it is calibrated on."""
    seen: list[Path] = []
    rows: list[NDArray[Any]] = []
    for number in folds:
        data.use_fold(number)
        calib, score = (data.photos(folder, role) for role in ("calib", "score"))
        assert not set(calib) & set(score)
        assert not set(text.words("calib")) & set(text.words("score"))
        seen += score
        rows.append(data.rows(folder, "rows.npz", "score", 8))
    assert len(set(seen)) == len(seen) == 6
    assert len({row.tobytes() for row in rows}) == data.THIRDS


@pytest.mark.usefixtures("usual")
def test_the_other_folds_are_in_another_order(folder: Path) -> None:
    """Each fold has another order than before."""
    found = []
    for number in range(data.FOLDS):
        data.use_fold(number)
        found.append((*data.photos(folder, "score"), *text.words("score")))
    assert len(set(found)) == data.FOLDS


def test_words_are_never_shared() -> None:
    assert not set(text.words("calib")) & set(text.words("score"))
    assert text.words("others") == text.words("score")


@pytest.mark.parametrize("batch", [text.page_batch, text.line_batch, text.turned_batch])
def test_rendered_text_is_the_same_every_time(folder: Path, batch: Batch) -> None:
    first, again = (batch(folder, "calib", 4, (160, 96), SIGNED_BGR) for _ in range(2))
    other = batch(folder, "score", 4, (160, 96), SIGNED_BGR)
    assert first.shape == (4, 3, 160, 96)
    assert first.dtype == np.float32
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_half_of_the_lines_are_upside_down(folder: Path) -> None:
    lines = [text.draw_line(folder, "calib", k, 48, 2) for k in range(4)]
    straight = [text.pad_line(line, 400, SIGNED_BGR) for line in lines]
    turned = text.turned_batch(folder, "calib", 4, (48, 400), SIGNED_BGR)
    same = [np.array_equal(a, b) for a, b in zip(straight, turned, strict=True)]
    assert same == [True, True, False, False]


def test_crops_of_a_photograph_differ(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    ramp = np.arange(2400).reshape(40, 60).astype(np.uint8)
    Image.fromarray(ramp).save(tmp_path / "photos" / "0.jpg")
    whole, part = (np.asarray(data.crop_photo(tmp_path, "calib", k, (20, 30))) for k in (0, 1))
    assert whole.shape == (20, 30, 3)
    assert not np.array_equal(whole, part)


def test_pixels_follow_order_and_layout() -> None:
    image = Image.new("RGB", (3, 2), (255, 0, 51))
    assert Pixels()(image)[:, 0, 0] == pytest.approx([1, 0, 0.2])
    assert Pixels(color="bgr", layout="nhwc")(image)[0, 0] == pytest.approx([0.2, 0, 1])
    assert SIGNED_BGR(image)[:, 0, 0] == pytest.approx([-0.6, -1, 1])
    assert Pixels(color="gray")(image).shape == (1, 2, 3)


@pytest.mark.e2e
@pytest.mark.skipif(not SHARED.is_dir(), reason="no shared models")
@pytest.mark.parametrize("name", ["gtcrn_simple", "ppocr_cls_v2", "silero_vad_op15"])
def test_sets_feed_every_input(name: str, tmp_path: Path) -> None:
    sets = prepare(name, SHARED, tmp_path)
    proto = onnx.load(sets.model, load_external_data=False)
    wanted = {i.name for i in proto.graph.input} - {t.name for t in proto.graph.initializer}
    for path, count in ((sets.calib, 32), (sets.scored["score"], 16)):
        with np.load(path) as arrays:
            assert set(arrays) == wanted
            assert {len(arrays[name]) for name in arrays} == {count}
    stamps = sets.calib.stat().st_mtime_ns
    assert prepare(name, SHARED, tmp_path).calib.stat().st_mtime_ns == stamps
