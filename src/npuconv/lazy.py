"""numpy, loaded at its first use.

Rules and passes take ``np`` from here: ``npuconv explain`` reads all of them, and starts without
numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["np"]

if TYPE_CHECKING:
    import numpy as np
else:

    class _Numpy:
        def __getattr__(self, name: str) -> Any:
            import numpy

            setattr(self, name, value := getattr(numpy, name))
            return value

    np = _Numpy()
