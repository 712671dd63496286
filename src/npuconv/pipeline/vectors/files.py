"""Files of vectors: safe names, and the same bytes for the same arrays."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from npuconv.pipeline.vectors.device_layers import DeviceLayer

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip file can say: no clock in the bytes


def file_names(layers: list[DeviceLayer]) -> Iterator[str]:
    """``003_features_dw.npz``: in order, and safe on any system."""
    for number, layer in enumerate(layers):
        stem = re.sub(r"[^\w.-]+", "_", layer.name, flags=re.ASCII).strip("._")[:80]
        yield f"{number:03}_{stem}.npz" if stem else f"{number:03}.npz"


def npz(arrays: dict[str, NDArray[Any]]) -> bytes:
    """As ``np.savez_compressed``, but the same arrays give the same bytes."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, array in sorted(arrays.items()):
            part = io.BytesIO()
            np.lib.format.write_array(part, np.ascontiguousarray(array).reshape(array.shape))
            entry = zipfile.ZipInfo(f"{key}.npy", _EPOCH)
            entry.compress_type, entry.create_system = zipfile.ZIP_DEFLATED, 3  # on any system
            archive.writestr(entry, part.getvalue())
    return stream.getvalue()
