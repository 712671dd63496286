"""Archives of arrays: the same bytes for the same arrays, whatever the clock says."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip file can say


def npz(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return what ``np.savez_compressed`` writes, but always the same bytes for the same arrays."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, array in sorted(arrays.items()):
            part = io.BytesIO()
            np.lib.format.write_array(part, np.ascontiguousarray(array).reshape(array.shape))
            entry = zipfile.ZipInfo(f"{key}.npy", _EPOCH)
            entry.compress_type, entry.create_system = zipfile.ZIP_DEFLATED, 3  # on any system
            archive.writestr(entry, part.getvalue())
    return stream.getvalue()
