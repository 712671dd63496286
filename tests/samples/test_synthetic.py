"""Samples made up from a seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuconv.config import Preprocess
from npuconv.errors import CalibrationError
from npuconv.samples import InputSpec, Samples, open_samples


def made(
    shape: Any, dtype: str = "float32", *, limit: int = 512, seed: int = 0, **keys: Any
) -> Samples:
    """Return synthetic samples for one input x."""
    spec = InputSpec("x", np.dtype(dtype), shape)
    return open_samples(None, [spec], Preprocess(**keys), limit=limit, seed=seed)


def test_same_seed_same_numbers() -> None:
    """The seed decides, whatever the order of reading."""
    one, two = made((1, 3, 32, 32)), made((1, 3, 32, 32))
    assert np.array_equal(one[5]["x"], list(two)[5]["x"])
    assert not np.array_equal(one[5]["x"], one[6]["x"])
    assert not np.array_equal(one[5]["x"], made((1, 3, 32, 32), seed=1)[5]["x"])


def test_description() -> None:
    """The description says synthetic; there are 32 samples, or the limit."""
    samples = made((1, 4))
    assert samples.synthetic
    assert samples.description == "synthetic, seed 0"
    assert (len(samples), len(made((1, 4), limit=3))) == (32, 3)
    assert samples.split(4)[1].synthetic


@pytest.mark.parametrize(
    ("shape", "expected"),
    [(("N", 3, 24, 40), (1, 3, 24, 40)), ((2, 24, 40, 1), (2, 24, 40, 1))],
)
def test_images_fill_their_range(shape: Any, expected: tuple[int, ...]) -> None:
    """Images are within -1..1, spread over it, and have flat areas."""
    values = np.stack([feed["x"] for feed in made(shape)])
    assert values.shape[1:] == expected
    assert values.dtype == np.float32
    assert -1 <= values.min() < -0.9
    assert 0.9 < values.max() <= 1
    assert 0.3 < values.std() < 0.9


def test_images_follow_the_preprocessing() -> None:
    """A normalization that is given is used; grey ones get the mean of three."""
    unit = made((1, 3, 32, 32), preset="unit")[0]["x"]
    assert 0 <= unit.min() < unit.max() <= 1
    gray = made((1, 1, 32, 32), preset="imagenet")[0]["x"]
    assert -2.2 < gray.min() < -1 < 1 < gray.max() < 2.7


@pytest.mark.parametrize("shape", [(1, 100), (1, 16, 8, 8), (1, 3, 4, 4), (100,)])
def test_other_floats_are_normal(shape: tuple[int, ...]) -> None:
    """Inputs that are no images get mean 0 and deviation 1."""
    values = np.stack([feed["x"] for feed in made(shape)])
    assert abs(values.mean()) < 0.15
    assert 0.9 < values.std() < 1.1


def test_scalars() -> None:
    """An input of rank 0 gets a scalar of its type."""
    assert made(())[0]["x"].shape == ()
    assert made((), "int64")[0]["x"].dtype == np.int64


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "bool"])
def test_integers_are_zero_or_one(dtype: str) -> None:
    """Token numbers and masks are in every range."""
    values = made(("batch", 20), dtype)[0]["x"]
    assert values.dtype == dtype
    assert set(values.ravel().tolist()) == {0, 1}


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (("N", 3, "h", 8), r"input 'x': dimension 2 of \[N, 3, h, 8\] .*x=1,3,\?,8"),
        ((1, None), r"dimension 1 of \[1, \?\]"),
        (None, r"its rank is not fixed.*--input-shape x=\.\.\."),
    ],
)
def test_open_shapes(shape: Any, message: str) -> None:
    """An open dimension is an error that names the option to give."""
    with pytest.raises(CalibrationError, match=message):
        made(shape)


def test_text_inputs() -> None:
    """Inputs that hold no numbers cannot be made up."""
    with pytest.raises(CalibrationError, match="cannot make up"):
        made((1,), "U4")
