"""Quantizers of other projects, and the run of the float model by which costs are divided.

As a script it runs a quantizer in the environment that has it; packages of other quantizers are
not imported:

    python -m harness.quantizers float MODEL SAMPLES
    python -m harness.quantizers ort MODEL SAMPLES OUT MinMax|Percentile all|conv
    python -m harness.quantizers nncf MODEL SAMPLES OUT performance|mixed
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

INSTALL = "python -m venv DIR && DIR/bin/pip install onnx onnxruntime sympy nncf"


@dataclass(frozen=True)
class Peer:
    """A quantizer of another project.

    Attributes:
        name: heading of the column.
        python: interpreter that has it.
        words: its command here, and the settings after model, samples and result.
    """

    name: str
    python: Path
    words: tuple[str, ...]

    def line(self, model: Path, samples: Path, target: Path) -> list[str]:
        """Return the command line that makes ``target``."""
        command, *settings = self.words
        files = map(str, (model, samples, target))
        return [str(self.python), "-m", "harness.quantizers", command, *files, *settings]


def peers(python: Path) -> list[Peer]:
    """onnxruntime with the device's arithmetic, and NNCF.

    Args:
        python: interpreter of an environment that has them; those it lacks are left out.
    """
    available = []
    if _has(python, "onnxruntime", "sympy"):
        kinds = [(m, scope) for m in ("MinMax", "Percentile") for scope in ("all", "conv")]
        available += [Peer(f"ort {' '.join(kind)}", python, ("ort", *kind)) for kind in kinds]
    if _has(python, "onnxruntime", "nncf.onnx"):
        kinds_of_nncf = ("performance", "mixed")
        available += [Peer(f"NNCF {kind}", python, ("nncf", kind)) for kind in kinds_of_nncf]
    return available


def _has(python: Path, *modules: str) -> bool:
    probe = [str(python), "-c", f"import {', '.join(modules)}"]
    try:
        importable = subprocess.run(probe, capture_output=True, check=False).returncode == 0
    except OSError:
        importable = False
    if not importable:
        print(f"{python} has no {' or '.join(modules)}: left out; {INSTALL}", file=sys.stderr)
    return importable


def run_float(model: str, samples: str) -> None:
    """Run a float model on samples and nothing else."""
    from harness.feeds import open_session, read_feeds

    session = open_session(Path(model))
    for feed in read_feeds(session, Path(samples)):
        session.run(None, feed)


def run_ort(model: str, samples: str, target: str, method: str, scope: str) -> None:
    """onnxruntime's quantize_static with the device's arithmetic.

    That is: int8 weights, symmetric, per channel; int8 activations with zero point 0.
    """
    from onnxruntime.quantization import (
        CalibrationDataReader,
        CalibrationMethod,
        QuantFormat,
        QuantType,
        quantize_static,
    )
    from onnxruntime.quantization.shape_inference import quant_pre_process

    from harness.feeds import open_session, read_feeds

    source, out = Path(model).resolve(), Path(target).resolve()
    feeds = read_feeds(open_session(source), Path(samples).resolve())

    class Reader(CalibrationDataReader):
        def get_next(self) -> object:
            return next(feeds, None)

    # Where symbolic shapes fail it leaves weights behind in the folder it is run in.
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        prepared = str(Path(folder) / "prepared.onnx")
        try:
            quant_pre_process(str(source), prepared)
        except Exception:  # whatever it is, this is what their error message asks for
            quant_pre_process(str(source), prepared, skip_symbolic_shape=True)
        quantize_static(
            prepared,
            str(out),
            Reader(),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=["Conv", "ConvTranspose"] if scope == "conv" else None,
            per_channel=True,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
            calibrate_method=CalibrationMethod[method],
            extra_options={"ActivationSymmetric": True, "WeightSymmetric": True},
        )


def run_nncf(model: str, samples: str, target: str, preset: str) -> None:
    """Post-training quantization of NNCF."""
    import nncf  # type: ignore[import-not-found]
    import onnx

    from harness.feeds import open_session, read_feeds

    feeds = list(read_feeds(open_session(Path(model)), Path(samples)))
    quantized = nncf.quantize(
        onnx.load(model),
        nncf.Dataset(feeds),
        preset=nncf.QuantizationPreset[preset.upper()],
        subset_size=len(feeds),
    )
    onnx.save(quantized, target)


if __name__ == "__main__":
    {"float": run_float, "ort": run_ort, "nncf": run_nncf}[sys.argv[1]](*sys.argv[2:])
