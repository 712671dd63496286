"""Which line of a table of classes is about which image."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath

from npuconv.errors import CalibrationError


class Names:
    """The file names of a table: paths as far as they go, else names that are there once.

    Args:
        file: the table, for messages; what it names may be relative to it.
        names: what its lines begin with.
        images: all that classes are wanted for.
    """

    def __init__(self, file: Path, names: Iterable[str], images: Sequence[Path]) -> None:
        self._file = file
        self._lines: dict[str, list[str]] = {}
        for name in names:
            self._lines.setdefault(PurePath(name).name, []).append(name)
        self._images: dict[str, set[Path]] = {}
        for image in images:
            self._images.setdefault(image.name, set()).add(image.absolute())

    def of(self, image: Path) -> str | None:
        """The line about an image; None where there is none.

        Raises:
            CalibrationError: several files have this name, and the table does not say which.
        """
        lines, images = self._lines.get(image.name, []), self._images[image.name]
        fitting = [line for line in lines if self._fits(line, image)]
        if not fitting and len(lines) < 2 and len(images) == 1:
            return lines[0] if lines else None  # a table that was made in another place
        longest = max(fitting, key=lambda line: len(PurePath(line).parts), default="")
        alike = [other for other in images if self._fits(longest, other)] if fitting else []
        if lines and len(alike) != 1:
            raise CalibrationError(
                f"{self._file}: several files are called {image.name}, and it does not say "
                f"which class is that of {image}",
                hint="write the path in each line, from the first folder that differs",
            )
        return longest or None

    def _fits(self, line: str, image: Path) -> bool:
        """Whether the path of the image ends like this."""
        parts = PurePath(line).parts
        if parts[:1] == ("..",):
            return (self._file.parent / line).resolve() == image.resolve()
        return image.absolute().parts[-len(parts) :] == parts
