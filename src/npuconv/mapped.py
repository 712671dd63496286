"""Files as memory: pages come when they are looked at, and go when others need the room.

What has been looked at counts as memory of the process until it is let go, although the
system may take it back at any time. So that a whole model is never counted, everything is
let go each time that so many bytes have been asked for.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from weakref import WeakSet

BUDGET = 64 * 2**20  # bytes looked at between two times of letting go
_maps: WeakSet[Map] = WeakSet()
_seen = 0


class Map:
    """A file, or its first part, to be read.

    Args:
        path: the file.
        length: how much of it; 0 for all.
    """

    def __init__(self, path: str | Path, length: int = 0) -> None:
        self.path = Path(path).absolute()
        with self.path.open("rb") as stream:
            self.memory = mmap.mmap(stream.fileno(), length, access=mmap.ACCESS_READ)
        _maps.add(self)

    def let_go(self) -> None:
        """Give its pages back; they come again when they are looked at."""
        if hasattr(self.memory, "madvise"):
            self.memory.madvise(mmap.MADV_DONTNEED)


def look(size: int) -> None:
    """Say that so many bytes are about to be looked at."""
    global _seen
    _seen += size
    if _seen > BUDGET:
        let_go()
        _seen = size


def let_go() -> None:
    """Give the pages of all files back."""
    for one in list(_maps):
        one.let_go()
