"""Which segments a log may give up: policies, each a rule over the segments in order.

Invariants: segments go from the front and without gaps; none goes that holds an offset at or beyond the high watermark;
the newest segment goes only if another has taken its place; what lies before the log's start goes whatever policies
say. The whole: ``docs/adr/0035-retention.md``. Source: Kafka 3.9, ``UnifiedLog.deleteOldSegments``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from sparklog.config.topic import TopicConfig
from sparklog.structs import TopicPartition


class SegmentView(NamedTuple):
    """What a policy is told of a segment."""

    base_offset: int
    next_base: int
    """The first offset of the segment behind it; of the last one, the end of the log."""
    size: int
    """Bytes of its ``.log`` file."""
    latest_timestamp: int
    """ms; of its newest record, or of the file's last change if no record has one."""
    is_offloaded: bool = False
    """Whether all of it is known to be in the place that the topic is offloaded to."""


class RetentionPolicy(Protocol):
    """One rule of one partition. It is made anew when the topic's settings change."""

    @property
    def name(self) -> str:
        """By which ``sparklog.retention.policies`` names it."""

    def give_up(self, segments: Sequence[SegmentView], now_ms: int) -> int:
        """How many of the segments may go, counted from the front: 0 to ``len(segments)``. ``now_ms`` is Unix time.

        What a follower does not have yet stays, whatever the answer is.
        """


PolicyFactory = Callable[[TopicPartition, Mapping[str, str]], RetentionPolicy]
"""Makes the policy of a partition whose topic has these settings, all of them, by their names. An entry point of the
group ``sparklog.retention`` names one, such as a class."""

GivenUp = Callable[[Sequence[SegmentView], int], int]
"""As ``RetentionPolicy.give_up``, for all policies of a partition together."""


class Age:
    """Those whose newest record is older than ``retention.ms``."""

    name = "age"

    def __init__(self, config: TopicConfig) -> None:
        self._retention_ms = config.retention_ms

    def give_up(self, segments: Sequence[SegmentView], now_ms: int) -> int:
        if self._retention_ms < 0:
            return 0
        return leading(segments, lambda each: now_ms - each.latest_timestamp > self._retention_ms)


class Size:
    """As many as can go with at least ``retention.bytes`` left."""

    name = "size"

    def __init__(self, config: TopicConfig) -> None:
        self._retention_bytes = config.retention_bytes

    def give_up(self, segments: Sequence[SegmentView], now_ms: int) -> int:  # noqa: ARG002 (the interface's)
        if self._retention_bytes < 0:
            return 0
        excess = sum(each.size for each in segments) - self._retention_bytes
        count = 0
        for each in segments:
            excess -= each.size
            if excess < 0:
                break
            count += 1
        return count


class Offloaded:
    """Those that have been offloaded, however young they are."""

    name = "offload"

    def __init__(self, _config: TopicConfig) -> None:
        pass

    def give_up(self, segments: Sequence[SegmentView], now_ms: int) -> int:  # noqa: ARG002 (the interface's)
        return leading(segments, lambda each: each.is_offloaded)


BUILT_IN: dict[str, Callable[[TopicConfig], RetentionPolicy]] = {each.name: each for each in (Age, Size, Offloaded)}


def policies_of(config: TopicConfig) -> list[RetentionPolicy]:
    """The built-in policies that count for a topic; one that is only compacted loses nothing to any."""
    if "delete" not in config.cleanup_policy:
        return []
    return [BUILT_IN[name](config) for name in config.retention_policies if name in BUILT_IN]


def given_up(policies: Sequence[RetentionPolicy], segments: Sequence[SegmentView], now_ms: int) -> int:
    """How many segments, from the front, some policy gives up."""
    return max((policy.give_up(segments, now_ms) for policy in policies), default=0)


def deletable(segments: Sequence[SegmentView], wanted: int, log_start_offset: int, high_watermark: int) -> int:
    """How many segments, from the front, may go where policies give up ``wanted``: those too that lie wholly before the
    start of the log, and none that the high watermark does not allow to go.
    """
    passed = leading(segments, lambda each: each.next_base <= log_start_offset)
    return leading(segments[: max(wanted, passed)], lambda each: each.next_base <= high_watermark)


def leading(segments: Sequence[SegmentView], condition: Callable[[SegmentView], bool]) -> int:
    """How many segments, from the front, are so."""
    count = 0
    for each in segments:
        if not condition(each):
            break
        count += 1
    return count
