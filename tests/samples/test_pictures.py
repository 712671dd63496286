"""Pictures for models without data."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from npuconv.samples import pictures
from npuconv.samples.pictures import picture

has_photographs = pytest.mark.skipif(
    importlib.util.find_spec("skimage") is None, reason="npuconv[photos] is not installed"
)


@pytest.fixture(params=["photographs", "made"])
def either(request, monkeypatch):
    """Run with photographs, where they are installed, and without; nothing is kept."""
    monkeypatch.setattr(pictures, "MAX_KEPT_PIXELS", 0)
    if request.param == "made":
        monkeypatch.setattr(pictures, "folder", lambda: None)
    elif not pictures.are_photographs():
        pytest.skip("npuconv[photos] is not installed")
    return request.param


@pytest.mark.parametrize(("size", "channels"), [((40, 64), 3), ((32, 32), 1), ((24, 20), 4)])
@pytest.mark.usefixtures("either")
def test_pixels(size, channels):
    """Pictures have the size, are within 0..255, and depend on the number alone."""
    first, again, other = (picture(k, size, channels) for k in (0, 0, 1))
    assert first.shape == (*size, channels)
    assert first.dtype == np.float32
    assert 0 <= first.min() < 60 < 180 < first.max() <= 255
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_kept_picture_is_the_drawn_one(monkeypatch):
    """A caller that changes its picture changes no other."""
    kept = picture(1, (24, 32), 3)
    kept[:] = 0
    kept = picture(1, (24, 32), 3)
    monkeypatch.setattr(pictures, "MAX_KEPT_PIXELS", 0)
    np.testing.assert_array_equal(kept, picture(1, (24, 32), 3))


@pytest.mark.usefixtures("either")
def test_neighbours_are_alike():
    """Most steps between neighbours are small and some are large, as in photographs."""
    steps = np.concatenate(
        [np.abs(np.diff(picture(k, (96, 96), 1)[..., 0], axis=1)).ravel() for k in range(6)]
    )
    assert np.median(steps) < 12
    assert steps.max() > 100


@pytest.mark.usefixtures("either")
def test_text_is_in_wide_pictures(monkeypatch):
    """Wide pictures show text."""
    with_text = picture(0, (32, 256), 3)
    monkeypatch.setattr(pictures, "_write", lambda *_: None)
    assert not np.array_equal(picture(0, (32, 256), 3), with_text)


@pytest.mark.usefixtures("either")
def test_the_fourth_channel_is_brightness():
    """A fourth channel is brightness, which is not constant."""
    found = picture(2, (48, 48), 4)
    np.testing.assert_allclose(found[..., 3], picture(2, (48, 48), 1)[..., 0], atol=1)


@has_photographs
def test_photographs_are_files_of_the_package():
    """All files are in the package, which is not imported."""
    where = pictures.folder()
    assert where is not None
    assert all((where / name).exists() for name in pictures._FILES)


def test_without_the_package(monkeypatch):
    """No package means no photographs, and no error."""
    monkeypatch.setattr(pictures, "find_spec", lambda _: None)
    monkeypatch.setattr(pictures, "folder", pictures.folder.__wrapped__)  # nothing is kept
    assert pictures.folder() is None
    assert not pictures.are_photographs()
