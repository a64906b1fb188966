"""Which segments a log may give up: policies, each a rule over the segments in order.

Invariants: segments go from the front and without gaps; none goes that holds an offset at or beyond the high watermark;
the newest segment goes only if another has taken its place. Source: Kafka 3.9, ``UnifiedLog.deleteOldSegments``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from sparklog.config.topic import TopicConfig


class SegmentView(NamedTuple):
    """What a policy is told of a segment."""

    base_offset: int
    next_base: int
    """The first offset of the segment behind it; of the last one, the end of the log."""
    size: int
    """Bytes of its ``.log`` file."""
    latest_timestamp: int
    """ms; of its newest record, or of the file's last change if no record has one."""


RetentionPolicy = Callable[[Sequence[SegmentView], int], int]
"""Given the segments and the time (ms): how many, from the front, may go."""


def by_age(retention_ms: int) -> RetentionPolicy:
    """Those whose newest record is older than ``retention_ms``."""

    def expired(segments: Sequence[SegmentView], now_ms: int) -> int:
        return _leading(segments, lambda each: now_ms - each.latest_timestamp > retention_ms)

    return expired


def by_bytes(retention_bytes: int) -> RetentionPolicy:
    """As many as can go with at least ``retention_bytes`` left."""

    def surplus(segments: Sequence[SegmentView], now_ms: int) -> int:  # noqa: ARG001 (every policy has the one signature)
        excess = sum(each.size for each in segments) - retention_bytes
        count = 0
        for each in segments:
            excess -= each.size
            if excess < 0:
                break
            count += 1
        return count

    return surplus


def by_log_start(log_start_offset: int) -> RetentionPolicy:
    """Those that lie wholly before the start of the log."""

    def passed(segments: Sequence[SegmentView], now_ms: int) -> int:  # noqa: ARG001 (every policy has the one signature)
        return _leading(segments, lambda each: each.next_base <= log_start_offset)

    return passed


def policies_of(config: TopicConfig, log_start_offset: int) -> list[RetentionPolicy]:
    """What the topic's settings ask for; a topic that is only compacted loses nothing to age or size."""
    policies = [by_log_start(log_start_offset)]
    if "delete" in config.cleanup_policy:
        if config.retention_ms >= 0:
            policies.append(by_age(config.retention_ms))
        if config.retention_bytes >= 0:
            policies.append(by_bytes(config.retention_bytes))
    return policies


def deletable(
    segments: Sequence[SegmentView], policies: Sequence[RetentionPolicy], high_watermark: int, now_ms: int
) -> int:
    """How many segments, from the front, some policy gives up and the high watermark allows to go."""
    wanted = max(policy(segments, now_ms) for policy in policies)
    return _leading(segments[:wanted], lambda each: each.next_base <= high_watermark)


def _leading(segments: Sequence[SegmentView], condition: Callable[[SegmentView], bool]) -> int:
    count = 0
    for each in segments:
        if not condition(each):
            break
        count += 1
    return count
