"""What is committed, and when auto-commit does it: positions, every ``auto.commit.interval.ms``. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sparklog.client.consumer.subscription import Position
from sparklog.structs import NO_EPOCH, TopicPartition


class OffsetAndMetadata(NamedTuple):
    """A committed offset: the next to read; ``leader_epoch`` is that of the record before it, NO_EPOCH if not known."""

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""


Offsets = dict[TopicPartition, OffsetAndMetadata]


def to_commit(positions: Mapping[TopicPartition, Position]) -> Offsets:
    """The positions as offsets to be committed."""
    return {tp: OffsetAndMetadata(at.offset, at.epoch) for tp, at in positions.items()}


class AutoCommit:
    """The schedule. Times are seconds on a clock that never goes back; None for an interval: never."""

    def __init__(self, interval: float | None, now: float) -> None:
        self._interval = interval
        self._due_at = now + (interval or 0)

    @property
    def enabled(self) -> bool:
        return self._interval is not None

    def due(self, now: float) -> bool:
        """Whether it is time; if so the next is an interval away."""
        if self._interval is None or now < self._due_at:
            return False
        self._due_at = now + self._interval
        return True

    def seconds_left(self, now: float) -> float:
        """How long until it is due."""
        return max(0.0, self._due_at - now) if self.enabled else float("inf")

    def postpone(self, now: float, seconds: float | None = None) -> None:
        """Count the interval (or these seconds, after a failure that passes) from now."""
        if self._interval is not None:
            self._due_at = now + (self._interval if seconds is None else seconds)
