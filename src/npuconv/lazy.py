"""Libraries that are loaded at their first use.

Rules and passes take ``np`` and ``onnx`` from here: ``npuconv explain`` reads all of them, and
starts without either. Pillow is loaded where there are images.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__all__ = ["Image", "ImageDraw", "ImageFont", "ImageOps", "np", "onnx", "yaml"]

if TYPE_CHECKING:
    import numpy as np
    import onnx
    import yaml
    from PIL import Image, ImageDraw, ImageFont, ImageOps
else:

    class _Module:
        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, name: str) -> Any:
            setattr(self, name, value := getattr(importlib.import_module(self._name), name))
            return value

    np, onnx, yaml = _Module("numpy"), _Module("onnx"), _Module("yaml")
    Image, ImageDraw = _Module("PIL.Image"), _Module("PIL.ImageDraw")
    ImageFont, ImageOps = _Module("PIL.ImageFont"), _Module("PIL.ImageOps")
