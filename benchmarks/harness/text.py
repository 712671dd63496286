"""Rendered lines of text, for models that read: photographs show them nothing they know."""

from __future__ import annotations

import random
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageColor, ImageDraw, ImageFilter, ImageFont

from harness.data import THIRDS, Pixels, Role, crop_photo, dice, in_order, third
from harness.feeds import Array

_WORDS = """
harbour ticket Winter menu North station Price lemon copper QUIET Museum street garden
Exit bakery river Grand open Monday chapter Silver delivery invoice island total Sugar
platform coffee market BRIDGE airport Theatre bottle window Receipt paper green Forest
number signal Engine welcome hospital School orange printer Planet keyboard MOUNTAIN
travel Battery danger summer Library closed parking Hotel fresh double Castle simple
ocean Please Kitchen metal SPECIAL balance doctor Village cheese Radio football yellow
"""
_BACKGROUNDS = ("white", "ivory", "lightgray", "navy", "darkgreen", "black", "gold", "maroon")


def words(role: Role) -> list[str]:
    """The words of a role: two thirds for calibration, the others for scoring."""
    numbered = enumerate(in_order(_WORDS.split()))
    return [word for k, word in numbered if (k % THIRDS == third()) != (role == "calib")]


def write_line(draw: random.Random, role: Role, longest: int = 3) -> str:
    """A few words, numbers, prices."""
    parts = draw.choices(words(role), k=draw.randint(1, longest))
    if draw.random() < 0.4:
        number = draw.randint(1, 99999)
        parts.append(draw.choice(("{}", "${}.99", "No. {}", "{}%", "+{}", "({})")).format(number))
    line = " ".join(parts)
    return line.upper() if draw.random() < 0.2 else line


@lru_cache(maxsize=128)
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def render(line: str, size: int, color: tuple[int, int, int], bold: bool) -> Image.Image:
    """A line on a transparent ground, cut to its ink and a margin."""
    font, stroke = _font(size), max(1, size // 24) if bold else 0
    left, top, right, bottom = ImageDraw.Draw(Image.new("L", (1, 1))).textbbox(
        (0, 0), line, font=font, stroke_width=stroke
    )
    margin = max(2, size // 6)
    box = (int(right - left) + 2 * margin, int(bottom - top) + 2 * margin)
    image = Image.new("RGBA", box, (*color, 0))
    place = (margin - left, margin - top)
    ImageDraw.Draw(image).text(place, line, (*color, 255), font, stroke_width=stroke)
    return image


def _ground(
    folder: Path, role: Role, k: int, size: tuple[int, int], draw: random.Random
) -> Image.Image:
    """A photograph, or every other time one colour."""
    if k % 2:
        return crop_photo(folder, role, k, size).copy()
    return Image.new("RGB", size[::-1], ImageColor.getrgb(draw.choice(_BACKGROUNDS)))


def _ink(ground: Image.Image, draw: random.Random) -> tuple[int, int, int]:
    """Return a colour that contrasts with the mean of its background."""
    brightness = float(np.asarray(ground.convert("L"), np.float32).mean())
    low, high = (150, 255) if brightness < 128 else (0, 100)
    return draw.randint(low, high), draw.randint(low, high), draw.randint(low, high)


def draw_page(folder: Path, role: Role, k: int, size: tuple[int, int]) -> Image.Image:
    """Some lines at different places, sizes, colours and angles: a picture for detection."""
    draw = dice("page", role, k)
    page = _ground(folder, role, k, size, draw)
    slant = draw.choice((0, 0, draw.uniform(-25, 25)))
    lines = draw.randint(2, 6)
    for number in range(lines):
        height = draw.randint(12, min(44, size[0] // lines))
        line = render(write_line(draw, role), height, _ink(page, draw), draw.random() < 0.4)
        line = line.rotate(slant, Image.Resampling.BICUBIC, expand=True)
        left = draw.randint(-line.width // 8, max(1, size[1] - line.width * 7 // 8))
        top = number * size[0] // lines + draw.randint(0, size[0] // lines // 3)
        page.paste(line, (left, top), line)
    return _blur(page, draw)


def draw_line(folder: Path, role: Role, k: int, height: int, longest: int) -> Image.Image:
    """One line that fills the height, as a detector cuts it out: a picture for recognition."""
    draw = dice("line", role, k)
    text = write_line(draw, role, longest)
    probe = render(text, draw.randint(18, 40), (0, 0, 0), draw.random() < 0.4)
    ground = _ground(folder, role, k, (probe.height, probe.width), draw)
    line = probe.rotate(draw.uniform(-2, 2), Image.Resampling.BICUBIC)
    ground.paste(Image.new("RGB", line.size, _ink(ground, draw)), (0, 0), line)
    width = max(1, round(ground.width * height / ground.height))
    return _blur(ground.resize((width, height), Image.Resampling.BICUBIC), draw)


def _blur(image: Image.Image, draw: random.Random) -> Image.Image:
    radius = draw.choice((0.0, 0.0, 0.5, 0.9))
    return image.filter(ImageFilter.GaussianBlur(radius)) if radius else image


def pad_line(image: Image.Image, width: int, pixels: Pixels) -> Array:
    """Return a line as input: a long line is squeezed, a short line is padded with zeros."""
    if image.width > width:
        image = image.resize((width, image.height), Image.Resampling.BICUBIC)
    values = pixels(image)
    return np.pad(values, ((0, 0), (0, 0), (0, width - image.width)))


def page_batch(
    folder: Path, role: Role, count: int, size: tuple[int, int], pixels: Pixels
) -> Array:
    """Pages as inputs, [count, C, H, W]."""
    return np.stack([pixels(draw_page(folder, role, k, size)) for k in range(count)])


def line_batch(
    folder: Path, role: Role, count: int, size: tuple[int, int], pixels: Pixels
) -> Array:
    """Lines as inputs, [count, C, H, W]."""
    lines = (draw_line(folder, role, k, size[0], 3) for k in range(count))
    return np.stack([pad_line(line, size[1], pixels) for line in lines])


def turned_batch(
    folder: Path, role: Role, count: int, size: tuple[int, int], pixels: Pixels
) -> Array:
    """Return lines as inputs; half of the lines of each kind of background are upside down."""
    lines = (draw_line(folder, role, k, size[0], 2) for k in range(count))
    turned = (line.rotate(180) if k // 2 % 2 else line for k, line in enumerate(lines))
    return np.stack([pad_line(line, size[1], pixels) for line in turned])
