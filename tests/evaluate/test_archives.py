"""Archives of arrays."""

from __future__ import annotations

import io

import numpy as np

from npuconv.evaluate.archives import npz


def test_what_is_written_is_read_back():
    """Scalars and arrays that do not lie in one piece included; the order does not matter."""
    wide = np.arange(12, dtype=np.int8).reshape(3, 4)
    arrays = {"b": wide.T, "a": np.asarray(0.5, np.float32)}
    data = npz(arrays)
    assert data == npz(dict(reversed(arrays.items())))
    with np.load(io.BytesIO(data)) as found:
        assert found.files == ["a", "b"]
        assert found["a"].shape == ()
        np.testing.assert_array_equal(found["b"], wide.T)
