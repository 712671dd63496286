"""NNCF's quantize: MODEL SAMPLES OUT PRESET, where PRESET is performance or mixed.

Its arithmetic is not the device's: uint8 after a ReLU, in ``mixed`` zero points everywhere.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nncf  # type: ignore[import-not-found]
import onnx

from recipes.feeds import open_session, read_feeds


def main() -> None:
    """Quantize."""
    model, samples, target = map(Path, sys.argv[1:4])
    feeds = list(read_feeds(open_session(model), samples))
    quantized = nncf.quantize(
        onnx.load(model),
        nncf.Dataset(feeds),
        preset=nncf.QuantizationPreset[sys.argv[4].upper()],
        subset_size=len(feeds),
    )
    onnx.save(quantized, target)


if __name__ == "__main__":
    main()
