"""What the stages of a job took for one log, task by task, beside Kafka's summary and in its words."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from sparklog.compaction.stats import in_mb, rate_of, share_of


class Stage(StrEnum):
    """In their order; each begins when the one before has ended, but segments are put in place wave by wave."""

    SCAN = "scan"
    """For what is said of transactions."""
    MAP = "map"
    """The keys are put into maps, which replicas may share."""
    REWRITE = "rewrite"
    SWAP = "swap"
    """The broker puts in place what one task wrote."""


_DONE = {Stage.SCAN: "Scanned", Stage.MAP: "Indexed", Stage.REWRITE: "Rewrote", Stage.SWAP: "Swapped in"}


class _Share(NamedTuple):
    """What one task did."""

    seconds: float
    size: int


class StageTimes:
    """Belongs to one cleaning of one log."""

    def __init__(self) -> None:
        self._shares: dict[Stage, list[_Share]] = {stage: [] for stage in Stage}

    def add(self, stage: Stage, seconds: float, size: int) -> None:
        """Count a task: the bytes that it read, or in the last stage those that it put in place."""
        self._shares[stage].append(_Share(seconds, size))

    def __str__(self) -> str:
        """The stages in a few words, those that took place."""
        return ", ".join(
            f"{stage} {sum(each.seconds for each in shares):.1f} s in {len(shares)}"
            for stage, shares in self._shares.items()
            if shares
        )

    def summary(self) -> tuple[str, ...]:
        """A line for each stage that took place, with the seconds of each of its tasks."""
        total = sum(each.seconds for shares in self._shares.values() for each in shares)
        return tuple(_line(stage, shares, total) for stage, shares in self._shares.items() if shares)


def _line(stage: Stage, shares: list[_Share], total: float) -> str:
    seconds, size = sum(each.seconds for each in shares), sum(each.size for each in shares)
    tasks = " ".join(f"{each.seconds:.1f}" for each in shares)
    return (
        f"{_DONE[stage]} {in_mb(size)} MB in {seconds:.1f} seconds ({rate_of(size, seconds)} Mb/sec,"
        f" {share_of(seconds, total):.1f}% of total time), tasks: {tasks}"
    )
