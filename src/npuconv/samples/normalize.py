"""Mean and standard deviation that turn pixels into what a model was trained on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from npuconv.config import Preprocess
from npuconv.errors import CalibrationError

Floats = NDArray[np.float32]

# Mean and std in pixel units, in the order red, green, blue. ImageNet's are those of
# torchvision, times 255.
PRESETS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "unit": ((0.0,), (255.0,)),
    "signed": ((127.5,), (127.5,)),
    "imagenet": ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375)),
    "raw": ((0.0,), (1.0,)),
}


def normalization(label: str, keys: Preprocess, channels: int) -> tuple[Floats, Floats]:
    """Mean and std, float32 of length 1 or ``channels``, in the order of the input's channels.

    Raises:
        CalibrationError: neither a preset nor both values, or lengths that do not fit.
    """
    given = [name for name in ("mean", "std") if getattr(keys, name) is not None]
    if keys.preset is None and len(given) == 1:
        other = "std" if given == ["mean"] else "mean"
        raise CalibrationError(f"{label}: --{given[0]} without --{other}", hint="give both")
    if keys.preset in (None, "none") and (keys.mean is None or keys.std is None):
        raise CalibrationError(
            f"{label}: how pixels become inputs is not known, and a wrong guess is as bad"
            " as no data",
            hint=f"give --preprocess {'|'.join(PRESETS)}, or --mean and --std",
        )
    mean, std = PRESETS.get(keys.preset or "", ((), ()))
    if keys.color == "bgr":
        mean, std = mean[::-1], std[::-1]
    pair = (keys.mean or mean, keys.std or std)
    for name, values in zip(("mean", "std"), pair, strict=True):
        if len(values) not in (1, channels):
            own = getattr(keys, name) is not None
            of = "" if own else f" of --preprocess {keys.preset}"
            raise CalibrationError(
                f"{label}: {name}{of} has {len(values)} values for {channels} channel(s)",
                hint="give --mean and --std with one value, or one per channel",
            )
    return np.array(pair[0], np.float32), np.array(pair[1], np.float32)
