"""A model of which nothing is left for the device is converted, and says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import npuconv
from npuconv.pipeline.warned import NOTHING_LEFT
from support.builders import Net

FLAT = Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3)).op("Relu").model()
VOLUME = Net(x=(1, 4, 8, 8, 8)).conv("x", (4, 4, 3, 3, 3)).model()
WAYS = [(VOLUME, {"ignore": ["SHP001"]}), (FLAT, {"keep_float": ["*"]})]


def samples(model: Any) -> np.ndarray:
    """Enough that some are kept apart."""
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    return np.random.default_rng(0).normal(size=(16, *shape[1:])).astype(np.float32)


@pytest.mark.parametrize(("model", "options"), WAYS)
@pytest.mark.parametrize(
    "more", [{}, {"method": "mse"}, {"io": "int8"}, {"max_extra_macs": 50}, {"min_sqnr": 30}]
)
def test_it_stays_float(model: Any, options: dict[str, Any], more: dict[str, Any]) -> None:
    """The reader is not told to give better samples for it."""
    for source in (samples(model), None):
        done = npuconv.convert(model, calibration=source, **options, **more)
        assert done.report.summary.warnings[0] == NOTHING_LEFT
        assert not any("synthetic" in one for one in done.report.summary.warnings)
        assert done.report.accuracy.cosine == pytest.approx(1)
        assert not any(
            "Quantize" in n.op_type or "QLinear" in n.op_type for n in done.model.graph.node
        )


@pytest.mark.parametrize("form", ["qdq", "weights"])
def test_in_other_forms(form: str) -> None:
    """Also where no samples are needed."""
    done = npuconv.convert(VOLUME, ignore=["SHP001"], format=form)
    assert done.report.summary.warnings[0] == NOTHING_LEFT


def test_where_something_is_left() -> None:
    """Nothing of the kind is said."""
    done = npuconv.convert(FLAT, calibration=samples(FLAT))
    assert NOTHING_LEFT not in done.report.summary.warnings
