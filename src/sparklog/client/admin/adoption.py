"""Adoption: the leader of a partition takes over segment files that were written beside its log."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from sparklog.client.admin.base import AdminBase, raise_error
from sparklog.client.cluster.retry import retrying_async
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import AdoptSegmentsRequest, AdoptSegmentsResponse
from sparklog.structs import BrokerId, TopicPartition

_LANE = "adoption"
"""It may take long: nothing else is to wait behind that."""
_APPEND, _RESTORE = 0, 1


class OfferedSegments(NamedTuple):
    """Segment files in a partition's directory at its leader, as ``sparklog.log.adoption.offer_path`` names them.

    Only the ``.log`` files are wanted; the broker makes the indexes.
    """

    tp: TopicPartition
    broker: BrokerId
    """The leader, in whose log directory they are."""
    tag: str
    """Letters and digits, 64 at most, never used before."""
    bases: tuple[int, ...]
    """The offset in the name of each file, rising; from 0 where the log gives the offsets."""
    end_offset: int
    """One past the last offset."""


class AdoptedSegments(NamedTuple):
    """What became of them."""

    first_offset: int
    last_offset: int
    log_start_offset: int
    """Where the log begins."""


class AdoptionAdmin(AdminBase):
    """Each request is for one partition."""

    async def adopting_brokers(self) -> set[BrokerId]:
        """Those that can adopt segments; brokers of Kafka's cannot. Raises ConnectionFailed."""
        able = set()
        for broker in await self._every_broker():
            versions = await (await self._session.connection(broker, _LANE)).versions()
            if versions.serves(ApiKey.ADOPT_SEGMENTS):
                able.add(broker)
        return able

    async def adopt(self, offered: OfferedSegments, transactional_id: str) -> AdoptedSegments:
        """Have the segments appended to the partition: its log gives the offsets. They are seen when the transaction
        commits that their batches name (producer id, epoch, sequences), and which has the partition added.

        Raises ApiError, which names file and position where a batch is refused; nothing of the segments is left then.
        Where a leader died meanwhile it is not known whether they were adopted: abort the transaction.
        """
        return await self._adopt(offered, _APPEND, transactional_id, -1)

    async def restore(self, offered: OfferedSegments, log_start_offset: int | None = None) -> AdoptedSegments:
        """Have the segments adopted as they are: offsets, producers, markers, times. The partition has no records, or
        ends where they begin. The log is to begin at ``log_start_offset``, or where the first segment does.

        Leader epochs above the partition's own become that. All in-sync replicas have them on return. Raises ApiError.
        """
        return await self._adopt(offered, _RESTORE, None, -1 if log_start_offset is None else log_start_offset)

    async def _adopt(
        self, offered: OfferedSegments, mode: int, transactional_id: str | None, log_start_offset: int
    ) -> AdoptedSegments:
        """It is asked again, of the same broker, until there is an answer: under one tag it is done once.

        A broker that has asked for silence, because of a quota, is left alone for that time, whatever the limits of a
        call are: a quota makes it slow, and never ends it.
        """
        request = AdoptSegmentsRequest(
            topic=offered.tp.topic,
            partition_index=offered.tp.partition,
            current_leader_epoch=-1,
            mode=mode,
            transactional_id=transactional_id,
            tag=offered.tag,
            bases=[*offered.bases],
            end_offset=offered.end_offset,
            log_start_offset=log_start_offset,
            timeout_ms=self._timeout_ms,
        )
        answer = None
        while answer is None or answer.error_code == ErrorCode.REQUEST_TIMED_OUT:
            await self._keep_silent(offered.broker)
            answer = await self._ask_to_adopt(offered.broker, request)
        raise_error(answer, f"{offered.tp} at broker {offered.broker}")
        return AdoptedSegments(answer.first_offset, answer.last_offset, answer.log_start_offset)

    async def _keep_silent(self, broker: BrokerId) -> None:
        """Until the broker may be asked again."""

        async def left() -> float:
            await self._look_for(broker)
            return (await self._session.connection(broker, _LANE)).silent_seconds

        while seconds := await retrying_async(self._session.backoff(), left):
            await asyncio.sleep(seconds)

    async def _look_for(self, broker: BrokerId) -> None:
        """Raises ApiError where it is not in the cluster."""
        if broker not in self._session.leaders.brokers:
            await self._session.refresh([])
        if broker not in self._session.leaders.brokers:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker} is not in the cluster")

    async def _ask_to_adopt(self, broker: BrokerId, request: AdoptSegmentsRequest) -> AdoptSegmentsResponse:
        async def ask() -> AdoptSegmentsResponse:
            await self._look_for(broker)
            return await self._session.request(broker, ApiKey.ADOPT_SEGMENTS, lambda _: request, lane=_LANE)

        return await retrying_async(self._session.backoff(), ask)
