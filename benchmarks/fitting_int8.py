"""Costs of fitting to limits in int8: SQNR of a model that is split, beside the same unsplit.

    python benchmarks/fitting_int8.py [--models NAME...] [--only "output channels" ...] [--fold K]

Each limit is half of what the model needs, so that its largest layers are split in two; or 1,
or 0. With ``--list Pad`` a bias that is not taken becomes channels of a constant. Models are
calibrated and scored on the samples of ``accuracy.py``.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import onnx
import yaml
from recipes.data import FOLDS, USUAL, use_fold
from recipes.models import Recipe, recipes
from recipes.scoring import Reference
from recipes.sets import Sets, prepare

import npuconv

ROOT = Path(__file__).resolve().parent.parent
CHIP = ROOT / "src" / "npuconv" / "targets" / "npu-int8.yaml"
MODELS = (
    "mlperf_tiny_kws_dscnn", "mlperf_tiny_ic_resnet8", "winml_imgclassifier", "superres_connxr",
    "yunet_n_320", "ultraface_rfb320",
)  # fmt: skip
HALVES = {
    "output channels": ("weight_n",),
    "tiles": ("in_h", "in_w"),
    "input channels": ("in_c",),
    "kernel": ("kernel_w",),
}
FIXED = {
    "stride 1": ("stride_h=1", "stride_w=1"),
    "no bias": ("bias=false",),
    "no pads": ("pad_top=0", "pad_bottom=0", "pad_left=0", "pad_right=0"),
}


def needs(model: onnx.ModelProto) -> dict[str, int]:
    """Return the largest values of the facts that are halved, of all convolutions of a file."""
    model = onnx.shape_inference.infer_shapes(model)
    values = (*model.graph.value_info, *model.graph.input, *model.graph.output)
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in values}
    shapes |= {t.name: list(t.dims) for t in model.graph.initializer}
    found: dict[str, int] = {}
    for node in model.graph.node:
        if node.op_type == "Conv":
            (_, channels, height, width), weight = shapes[node.input[0]], shapes[node.input[1]]
            each = {"weight_n": weight[0], "in_c": channels, "in_h": height, "in_w": width,
                    "kernel_w": weight[3]}  # fmt: skip
            found = {fact: max(value, found.get(fact, 1)) for fact, value in each.items()}
    return found


def limits_of(largest: dict[str, int]) -> dict[str, tuple[str, ...]]:
    """Return every kind of limit as assumptions."""
    halves = {
        kind: tuple(f"{fact}={-(-largest[fact] // 2)}" for fact in facts)
        for kind, facts in HALVES.items()
    }
    return halves | FIXED


def score(
    sets: Sets, recipe: Recipe, reference: Reference, assume: tuple[str, ...], padding: str,
    numbers: dict[str, str], listed: list[str],
) -> str:  # fmt: skip
    """Convert, and return the SQNR of the outputs with the number of convolutions."""
    options = {"assume": list(assume), "input_shape": recipe.shapes, "pad_on_host": padding}
    with tempfile.TemporaryDirectory() as folder:
        chip, path = Path(folder) / "chip.yaml", Path(folder) / "int8.onnx"
        described = yaml.safe_load(CHIP.read_text("utf-8"))
        described["activations"] |= numbers
        described["operators"] |= {op: {} for op in listed}
        chip.write_text(yaml.safe_dump(described, sort_keys=False), "utf-8")
        try:
            made = npuconv.convert(
                sets.model, str(chip), calibration=str(sets.calib), verify=False, **options
            ).model
        except npuconv.UnsupportedModelError:
            return "refused"
        onnx.save(made, path)
        whole = reference.score(path).whole
    count = sum("Conv" in node.op_type for node in made.graph.node)
    return f"{whole.sqnr:.2f} ({count})"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--only", nargs="+", default=[*HALVES, *FIXED])
    parser.add_argument("--pad-on-host", default="host", help="never: zero points stay alike")
    parser.add_argument(
        "--fold", type=int, choices=range(FOLDS), default=USUAL, help="which third is scored on"
    )
    parser.add_argument("--accumulate", action="store_true", help="the device adds in int32")
    parser.add_argument("--list", nargs="+", default=[], help="operators of the device beside Conv")
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "accuracy")
    given = parser.parse_args()
    use_fold(given.fold)
    print(f"| model | unsplit | {' | '.join(given.only)} |", flush=True)
    print("|---" * (2 + len(given.only)) + "|", flush=True)
    for name in given.models:
        recipe = recipes()[name]
        sets = prepare(name, recipe, given.shared, given.work)
        reference = Reference(sets.model, sets.score, None, None)
        options = {"input_shape": recipe.shapes, "format": "float", "verify": False}
        limits = limits_of(needs(npuconv.convert(sets.model, **options).model))
        every = [(), *(limits[kind] for kind in given.only)]
        numbers = {"accumulate": "int32"} if given.accumulate else {}
        rest = (given.pad_on_host, numbers, given.list)
        row = [score(sets, recipe, reference, one, *rest) for one in every]
        print(f"| {name} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
