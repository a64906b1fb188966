"""A broker's round of retention: ask what has been offloaded, ask the policies of others, delete old segments.

What has been offloaded is asked of the coordinators of the offloads' groups, as any client asks. A coordinator that
does not answer costs one round: what it would have told is not known then, so what waits for it stays.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sparklog.broker.metadata_cache import MetadataCache
from sparklog.client.consumer.group.offset_messages import fetch_request, fetched_offsets
from sparklog.clock import Clock
from sparklog.cluster.offload_group import OffloadNote, group_of
from sparklog.errors import ApiError, ErrorCode, SparklogError
from sparklog.group.runtime import GroupCoordinator
from sparklog.net.peers import Peers
from sparklog.net.turns import Turns
from sparklog.protocol.api_key import ApiKey
from sparklog.rate_limit import RateLimitedLogger
from sparklog.replica.manager import ReplicaManager
from sparklog.replica.partition import Partition
from sparklog.replica.retention import log_of
from sparklog.structs import NO_EPOCH, OFFSETS_TOPIC, TopicPartition

_logger = logging.getLogger(__name__)
_LANE = "retention"
_TIMEOUT_S = 10.0


class _Committed(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str


class RetentionRounds:
    """Of one broker. Belongs to the loop's thread."""

    def __init__(
        self,
        replicas: ReplicaManager,
        groups: GroupCoordinator,
        metadata: MetadataCache,
        peers: Peers,
        turns: Turns,
        clock: Clock,
    ) -> None:
        self._replicas = replicas
        self._groups = groups
        self._metadata = metadata
        self._peers = peers
        self._turns = turns
        self._warnings = RateLimitedLogger(_logger, clock.monotonic)

    async def run(self) -> None:
        """One round."""
        retention = self._replicas.retention
        retention.begin(await self._offloaded(), self._replicas.served)
        async for partition in self._turns.paced(self._replicas.served):
            await retention.consult(partition)
        await self._turns.drive(self._replicas.apply_retention(), lambda: "retention")

    async def _offloaded(self) -> dict[TopicPartition, int]:
        """Up to where the partitions that are led here have been offloaded, as far as it is asked and answered."""
        by_group: defaultdict[str, list[Partition]] = defaultdict(list)
        async for each in self._turns.paced(self._replicas.served):
            if each.is_leader and each.config.asks_what_is_offloaded:
                by_group[group_of(each.tp.topic, each.config.offload_group)].append(each)
        asked = {each.tp: log_of(each) for some in by_group.values() for each in some}
        found: dict[TopicPartition, int] = {}
        for answer in await asyncio.gather(*(self._ask(group, some) for group, some in by_group.items())):
            found |= answer
        here = {each.tp: log_of(each) for each in self._replicas.served}  # it may be another one by now
        return {tp: at for tp, at in found.items() if tp in here and here[tp] == asked[tp]}

    async def _ask(self, group: str, partitions: list[Partition]) -> dict[TopicPartition, int]:
        try:
            committed = await self._committed(group, [each.tp for each in partitions])
        except SparklogError as error:
            self._warnings.warn("silent", f"what is offloaded is not known now: group {group!r}: {error}", most=10)
            return {}
        return dict(self._of_topics(group, partitions, committed))

    def _of_topics(
        self, group: str, partitions: list[Partition], committed: Mapping[TopicPartition, _Committed]
    ) -> Iterable[tuple[TopicPartition, int]]:
        """What is committed for these topics, and not for former ones of their names, as far as the logs have it."""
        for each in partitions:
            known = committed.get(each.tp)
            if known is None:
                continue
            note = OffloadNote.from_metadata(known.metadata)
            if note is not None and note.topic_id == each.topic_id:
                until = _until(each, known)
                if until is not None:
                    yield each.tp, until
            else:
                self._warnings.warn(
                    "foreign",
                    f"group {group!r} has an offset of {each.tp} that counts for nothing: its metadata does not name"
                    f" topic id {each.topic_id}",
                    most=10,
                )

    async def _committed(self, group: str, partitions: list[TopicPartition]) -> dict[TopicPartition, _Committed]:
        """Raises SparklogError where the coordinator does not tell."""
        home = TopicPartition(OFFSETS_TOPIC, self._groups.partition_for(group))
        coordinator = self._metadata.leader(home)
        if coordinator is None:
            if self._metadata.topic(OFFSETS_TOPIC) is None:
                return {}  # no group has ever committed
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{home} has no leader")
        if coordinator.id == self._replicas.broker_id:
            return self._committed_here(group, partitions)
        answer = await self._peers.request(
            coordinator.endpoint,
            _LANE,
            ApiKey.OFFSET_FETCH,
            fetch_request(group, partitions, {}, require_stable=False),
            timeout=_TIMEOUT_S,
        )
        return {
            tp: _Committed(at.offset, at.leader_epoch, at.metadata)
            for tp, at in fetched_offsets(answer, {}).items()
            if at is not None
        }

    def _committed_here(self, group: str, partitions: list[TopicPartition]) -> dict[TopicPartition, _Committed]:
        error, offsets = self._groups.fetch_offsets(group, partitions)
        if error is not ErrorCode.NONE:
            raise ApiError(error, error.name)
        return {tp: _Committed(at.offset, at.leader_epoch, at.metadata) for tp, at in offsets.items() if at is not None}


def _until(partition: Partition, committed: _Committed) -> int | None:
    """Up to where the log has what was offloaded: it may have been cut off since, and have grown again.

    None while the leader epoch of the offset is not known here, since another has led.
    """
    if committed.leader_epoch == NO_EPOCH:
        return committed.offset
    end = partition.end_offset_for_epoch(committed.leader_epoch)
    return None if end is None else min(committed.offset, end.offset)
