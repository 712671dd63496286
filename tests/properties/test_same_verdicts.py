"""check and convert are one engine: a few of the cases of ``benchmarks/robustness.py models``."""

from __future__ import annotations

from collections import Counter
from typing import Any

import onnx
import pytest

from support.builders import Net, images
from support.odd_models import OddCase, odd_case
from support.verdicts import disagreement

pytestmark = pytest.mark.e2e

CASES = 24


def test_odd_models_with_odd_options() -> None:
    """Both end alike, or check has said what only data can tell; all codes are met."""
    codes: Counter[int] = Counter()
    for number in range(CASES):
        end, text = disagreement(odd_case(number))
        assert not text, f"case {number}: {text}"
        codes[end.code] += 1
    assert set(codes) == {0, 1, 2}
    assert min(codes.values()) > 1


def test_a_case_is_its_number() -> None:
    """The same model and the same options every time."""
    first, again = odd_case(7), odd_case(7)
    assert first.model.SerializeToString() == again.model.SerializeToString()
    assert first.options.keys() == again.options.keys()
    assert odd_case(8).model.SerializeToString() != first.model.SerializeToString()


MODEL = Net(x=(1, 3, 8, 8)).conv().model()


@pytest.mark.parametrize(
    ("options", "code"), [({}, 0), ({"fail_on": "unknown"}, 1), ({"input_shape": {"y": (1,)}}, 2)]
)
def test_how_it_ends(options: dict[str, Any], code: int) -> None:
    """Codes are those of the command line."""
    end, text = disagreement(OddCase(MODEL, options))
    assert (end.code, text) == (code, "")


def test_a_promise_that_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison sees it."""
    monkeypatch.setattr("npuconv.check_model.try_sample", lambda *_: None)
    model = Net(x=(1, 3, 8, 8)).conv().op("Log").conv("", (4, 4, 1, 1)).model()
    _, text = disagreement(OddCase(model, {"calibration": {"x": images(2, 3, 8, 8)}}))
    assert text.startswith("check 0 ")
    assert ", convert 2 " in text


def test_a_bug_is_one_on_both_sides() -> None:
    """Agreeing is no excuse."""
    _, text = disagreement(OddCase(onnx.ModelProto, {}))  # type: ignore[arg-type]
    assert text.startswith("a bug: ")
