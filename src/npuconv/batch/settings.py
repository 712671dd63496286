"""Settings of a batch run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npuconv.batch import local, units
from npuconv.batch.job import Limits
from npuconv.errors import UsageError


@dataclass(frozen=True)
class Settings:
    """Settings of a batch run; of these, only ``threads`` changes what jobs produce.

    Attributes:
        jobs: how many at once; None: as many as there are cores for.
        threads: of each job. The last digits of measured numbers depend on it.
        limits: of jobs that do not say otherwise.
        resume: whether what has been done and has not changed is left as it is.
        cache: folder of decoded samples, which jobs share; None: in that of the results.
        scheduler: address of a Dask scheduler; None: this machine alone.
        local_cluster: workers of a Dask cluster that is started for this batch; 0: none.
        ship: whether workers get files by the network, and not by a path they share.
        split_calibration: whether the workers of a cluster calibrate for one job together;
            None: where they are more than the jobs that are to be done.
    """

    jobs: int | None = None
    threads: int = 1
    limits: Limits = field(default_factory=Limits)
    resume: bool = True
    cache: Path | None = None
    scheduler: str | None = None
    local_cluster: int = 0
    ship: bool = False
    split_calibration: bool | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            UsageError: naming the setting.
        """
        for name in ("jobs", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} must be at least 1, not {value}")
        if self.scheduler and self.local_cluster:
            raise UsageError("a scheduler and a local cluster exclude each other")
        if self.ship and not (self.scheduler or self.local_cluster):
            raise UsageError("only a cluster is shipped to: give a scheduler")
        if self.split_calibration and not (self.scheduler or self.local_cluster):
            raise UsageError("only a cluster splits a calibration: give a scheduler")

    @property
    def at_once(self) -> int:
        """Number of jobs that run at the same time on this machine."""
        return self.jobs or max(1, local.cores() // self.threads)


def settings(
    *,
    timeout: float | str | None = None,
    memory: int | str | None = None,
    cache: str | Path | None = None,
    **others: Any,
) -> Settings:
    """Settings with quantities as people write them.

    Raises:
        UsageError: one of them cannot be used; named.
    """
    limits = Limits(_limit("timeout", timeout), _limit("memory", memory))
    return Settings(limits=limits, cache=Path(cache) if cache else None, **others)


# What reads the text of each.
LIMITS: dict[str, Callable[[object], Any]] = {"timeout": units.seconds, "memory": units.size}


def _limit(name: str, given: object) -> Any:
    try:
        return None if given is None else LIMITS[name](given)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None
