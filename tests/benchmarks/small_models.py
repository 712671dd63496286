"""Models of a few nodes, and a converter that does nothing."""

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import parser

# Copies the model; its options are written beside it. An option --fail ends it.
CONVERTER = """
import pathlib, shutil, sys
if "--fail" in sys.argv:
    sys.exit("asked to fail")
target = sys.argv[sys.argv.index("-o") + 1]
shutil.copyfile(sys.argv[2], target)
log = pathlib.Path(__file__).parents[2] / "calls.txt"
log.write_text((log.read_text() if log.exists() else "") + " ".join(sys.argv[1:]) + "\\n")
"""


def parse(text: str) -> onnx.ModelProto:
    """Return a model from its text, with a version that every runtime reads."""
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')


def classifier(scale: float = 1.0) -> onnx.ModelProto:
    """Return y = Softmax(scale * x), of four classes."""
    return parse(
        f"""agraph (float[N, 4] x) => (float[N, 4] y) <float f = {{{scale}}}> {{
            z = Mul(x, f)
            y = Softmax<axis = 1>(z)
        }}"""
    )


def write_sets(folder: Path, model: Path, name: str = "tiny", *, held: bool = False) -> Path:
    """Write a folder of sample sets as ``ablation.py collect`` does, and return it."""
    place = folder / name
    place.mkdir(parents=True)
    draw = np.random.default_rng(0)
    for role in ("calib", "score", "foreign"):
        np.savez(place / f"{role}.npz", x=draw.normal(size=(5, 4)).astype(np.float32))
    meta = {"model": str(model), "arguments": [], "held": held, "source": "package"}
    (place / "meta.json").write_text(json.dumps(meta | {"top1": 1, "synthetic": False}))
    return place


def write_converter(folder: Path) -> Path:
    """Write a package npuconv that copies models, and return the folder to import it from."""
    package = folder / "npuconv"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(CONVERTER)
    return folder
