"""Commands that ``convert`` prints: each is pasted, and does what it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from npuconv.target import builtin_names
from support.builders import images

CHIP = Path(__file__).parents[2] / "configs" / "targets" / "my_chip.yaml"


@pytest.fixture
def data(folder):
    """Samples for the model."""
    np.savez(folder / "samples.npz", x=images(8, 1, 8, 8))
    return "samples.npz"


def printed(done) -> list[list[str]]:
    """Return the words of every command that a run names, of the runs of those as well."""
    text = f"{done.out}\n{done.err}".replace(" \\\n", "")
    found = re.findall(r"^next: (.*)$|^npuconv: \w+ it .*with: (.*)$", text, re.MULTILINE)
    return [shlex.split(one or other) for one, other in found]


def pasted(cli, commands: list[list[str]]) -> list[str]:
    """Run commands of npuconv, and what they name next; return their names."""
    names = []
    for program, *words in commands:
        names.append(words[0] if program == "npuconv" else program)
        if program == "npuconv":
            done = cli(*("samples.npz" if word == "SAMPLES" else word for word in words))
            assert done.code == 0, done.err
            names += pasted(cli, printed(done))
    return names


@pytest.mark.parametrize("form", ["qoperator", "qdq"])
@pytest.mark.parametrize("target", [*builtin_names(), str(CHIP)], ids=lambda t: Path(t).stem)
def test_onnx(cli, model, data, target, form):
    """The result is verified or compiled, and split: for a target file of one's own as well."""
    given = ("--calibration", data, "--target", target, "--format", form)
    commands = printed(cli("convert", model, *given))
    is_compiled = form == "qdq" and target in ("qnn-htp", "rknn")
    assert pasted(cli, commands) == ["python" if is_compiled else "verify", "split", "run"]


@pytest.mark.parametrize(("target", "names"), [("ethos-u55", ["vela"]), ("npu-int8", ["verify"])])
def test_tflite(cli, model, data, target, names):
    """Only ONNX is split."""
    pytest.importorskip("ai_edge_litert", reason="verify of TFLite needs LiteRT")
    done = cli("convert", model, "--calibration", data, "--target", target, "--format", "tflite")
    assert pasted(cli, printed(done)) == names


def test_nothing_to_split(cli, model, data):
    """Weights in int8 alone have no part that works in int8."""
    assert printed(cli("convert", model, "--format", "weights")) == []
    assert printed(cli("convert", model, "--calibration", data, "--format", "float")) == []
