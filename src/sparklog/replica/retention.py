"""What retention gives up of each partition, and what waits for the offload; the figures of that are here.

In rounds: ``begin`` with what has been offloaded, ``consult`` the policies of others, and then ``given_up`` of each
partition while its segments are deleted. Between ``begin`` and ``consult`` a policy of others counts as failed, so that
nothing is deleted on half an answer. What is found out in a round is of the topic, and of the leader epoch, that was
there when it began.
Invariants: ``docs/adr/0035-retention.md``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from sparklog.clock import Clock
from sparklog.log.retention import BUILT_IN, SegmentView, given_up, leading, policies_of
from sparklog.rate_limit import RateLimit
from sparklog.replica.partition import Partition
from sparklog.replica.policies import InstalledPolicies, PolicyFailed
from sparklog.structs import TopicPartition

_logger = logging.getLogger(__name__)
_TOLD_EVERY_S = 3600.0
_NEARLY_FULL = 0.8
"""Of the limit."""
UNKNOWN = -1


class Holding(NamedTuple):
    """What a partition holds back for the offload: its policies give it up, and it is not offloaded."""

    offloaded: int
    """All below is offloaded; UNKNOWN where the group has not said so, or cannot be asked."""
    bytes: int
    records: int
    """Offsets, counted as records."""
    limit_bytes: int
    """UNKNOWN without one."""
    lost_records: int
    """So many went before they were known to be offloaded, for the limit was reached, since this broker leads."""
    lost_until: int
    """The last of them was just below this offset; UNKNOWN where there were none."""
    checked_ms: int
    """When this was found out, in Unix time."""


class Retention:
    """Of one broker. Belongs to the loop's thread."""

    def __init__(self, clock: Clock, policies: InstalledPolicies | None = None) -> None:
        self._clock = clock
        self._policies = policies or InstalledPolicies()
        self._offloaded: Mapping[TopicPartition, int] = {}
        self._begun: dict[TopicPartition, tuple[UUID | None, int]] = {}  # what the round is about (``log_of``)
        self._answers: dict[TopicPartition, int] = {}
        self._told = RateLimit(clock.monotonic, _TOLD_EVERY_S)
        self._nearly_full: set[TopicPartition] = set()
        self._over: set[TopicPartition] = set()
        self.holdings: dict[TopicPartition, Holding] = {}
        """Of the partitions that wait and are led here, as of the last round."""
        self.refusals: dict[TopicPartition, str] = {}
        """Why the policies of a partition give up nothing."""

    # A round

    def begin(self, offloaded: Mapping[TopicPartition, int], served: Iterable[Partition]) -> None:
        """``offloaded``: up to where partitions have been offloaded; of the others it is not known."""
        here = {each.tp: each for each in served}
        self._offloaded = offloaded
        self._begun = {tp: log_of(each) for tp, each in here.items()}
        self._answers, self.refusals = {}, {}
        self._policies.retain(here)
        waiting = {tp for tp, each in here.items() if each.is_leader and waits(each)}
        self.holdings = {tp: each for tp, each in self.holdings.items() if tp in waiting}
        self._nearly_full &= waiting
        self._over &= waiting

    async def consult(self, partition: Partition) -> None:
        """Ask the policies of others what they give up of it."""
        names = _others(partition)
        if not names:
            return
        tp, segments = partition.tp, self._seen(partition, partition.log.segment_views())
        most = 0
        for name in names:
            try:
                count = await self._policies.give_up(name, tp, partition.config, segments, self._clock.now_ms())
            except PolicyFailed as error:
                self._refuse(tp, f"its policy {name!r} failed: {error}", (tp.topic, name))
                return
            most = max(most, count)
        self._answers[tp] = segments[most - 1].next_base if most else 0

    def _refuse(self, tp: TopicPartition, why: str, kind: tuple[str, str]) -> None:
        self.refusals[tp] = why
        if self._told.admit(kind) is not None:
            _logger.error("retention deletes nothing of %s: %s", tp, why)

    def given_up(self, partition: Partition) -> Callable[[Sequence[SegmentView], int], int]:
        """What the partition's policies give up, together, and the offload does not need."""

        def count(segments: Sequence[SegmentView], now_ms: int) -> int:
            wanted = self._wanted(partition, segments, now_ms)
            return self._without_waiting(partition, segments, wanted) if waits(partition) else wanted

        return count

    def _wanted(self, partition: Partition, segments: Sequence[SegmentView], now_ms: int) -> int:
        others = _others(partition)
        until = 0
        if others:
            until = self._answers.get(partition.tp, UNKNOWN) if self._is_same(partition) else UNKNOWN
        if until == UNKNOWN:
            return 0
        built_in = given_up(policies_of(partition.config), self._seen(partition, segments), now_ms)
        return max(built_in, leading(segments, lambda each: each.next_base <= until))

    def _seen(self, partition: Partition, segments: Sequence[SegmentView]) -> Sequence[SegmentView]:
        """As policies see them."""
        if not partition.config.asks_what_is_offloaded:
            return segments
        until = self._until(partition)
        return [each._replace(is_offloaded=each.next_base <= until) for each in segments]

    def _until(self, partition: Partition) -> int:
        """All below is offloaded."""
        is_known = partition.is_leader and self._is_same(partition)
        known = self._offloaded.get(partition.tp, UNKNOWN) if is_known else UNKNOWN
        return min(known, partition.high_watermark.offset)

    def _is_same(self, partition: Partition) -> bool:
        """Whether its offsets are those of when the round began."""
        return self._begun.get(partition.tp) == log_of(partition)

    # Waiting for the offload

    def _without_waiting(self, partition: Partition, segments: Sequence[SegmentView], wanted: int) -> int:
        if not partition.is_leader:
            return 0
        until, limit = self._until(partition), partition.config.offload_max_bytes
        committed = leading(segments[:wanted], lambda each: each.next_base <= partition.high_watermark.offset)
        may_go = leading(segments[:committed], lambda each: each.next_base <= until)
        held = sum(each.size for each in segments[may_go:committed])
        lost = may_go
        while 0 <= limit < held:
            held -= segments[lost].size
            lost += 1
        self._keep_account(partition, segments[may_go:lost], segments[lost:committed])
        return lost

    def _keep_account(self, partition: Partition, lost: Sequence[SegmentView], held: Sequence[SegmentView]) -> None:
        tp, until = partition.tp, max(self._until(partition), partition.log_start_offset)
        before = self.holdings.get(tp)
        lost_until, lost_records = (UNKNOWN, 0) if before is None else (before.lost_until, before.lost_records)
        if lost:  # maybe once more: segments go some at a time
            lost_records += max(lost[-1].next_base - max(lost[0].base_offset, until, lost_until), 0)
            lost_until = max(lost[-1].next_base, lost_until)
        holding = self.holdings[tp] = Holding(
            offloaded=self._until(partition),
            bytes=sum(each.size for each in held),
            records=held[-1].next_base - max(held[0].base_offset, until) if held else 0,
            limit_bytes=partition.config.offload_max_bytes,
            lost_records=lost_records,
            lost_until=lost_until,
            checked_ms=self._clock.now_ms(),
        )
        self._warn(tp, holding, lost, until)

    def _warn(self, tp: TopicPartition, holding: Holding, lost: Sequence[SegmentView], until: int) -> None:
        limit = holding.limit_bytes
        if lost and tp not in self._over:
            _logger.error(
                "%s loses records that are not known to be offloaded, from offset %d on, first those up to %d: what"
                " waits for its offload is more than sparklog.offload.max.bytes=%d. This is said once, until there is"
                " room again",
                tp,
                max(lost[0].base_offset, until),
                lost[-1].next_base,
                limit,
            )
            self._over.add(tp)
        is_nearly_full = bool(lost) or 0 <= limit * _NEARLY_FULL <= holding.bytes
        if is_nearly_full and tp not in self._nearly_full:
            _logger.warning(
                "%s holds back %d bytes (%d records) until they are offloaded, of %d that sparklog.offload.max.bytes"
                " allows: beyond that they are deleted. See to the offload, or raise the limit",
                tp,
                holding.bytes,
                holding.records,
                limit,
            )
            self._nearly_full.add(tp)
        if not is_nearly_full:
            self._nearly_full.discard(tp)
            self._over.discard(tp)


def _others(partition: Partition) -> list[str]:
    """The policies of a partition that are not built in."""
    config = partition.config
    return [each for each in config.retention_policies if each not in BUILT_IN] if _deletes(partition) else []


def _deletes(partition: Partition) -> bool:
    return "delete" in partition.config.cleanup_policy


def log_of(partition: Partition) -> tuple[UUID | None, int]:
    """What its offsets are of, its topic and its leader epoch: in another one the log may have been cut off, and have
    other records at the same offsets.
    """
    return partition.topic_id, partition.leader_epoch


def waits(partition: Partition) -> bool:
    """Whether its records stay until they are offloaded."""
    return partition.config.offload_required and _deletes(partition)
