"""Writing the markers of transactions: into the partitions led here, and through WriteTxnMarkers at other brokers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine
from inspect import iscoroutine
from typing import Any

from sparklog.broker.metadata_cache import MetadataCache
from sparklog.broker.txn.coordinator_epochs import CoordinatorEpochs
from sparklog.clock import Clock
from sparklog.errors import ApiError, ErrorCode, MalformedZnode, SparklogError
from sparklog.log.origin import AppendOrigin
from sparklog.net.peers import Peers
from sparklog.net.tasks import begun_to_its_end, retrieve
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import WriteTxnMarkersRequest
from sparklog.rate_limit import RateLimitedLogger
from sparklog.record.control import ControlType, EndTransactionMarker, ProducerIdAndEpoch, build_marker
from sparklog.replica.manager import ReplicaManager
from sparklog.structs import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Endpoint, TopicPartition, by_topic
from sparklog.txn.markers import Marker
from sparklog.txn.state import ClientVersion
from sparklog.zk.client import ZkClient

_logger = logging.getLogger(__name__)
_LANE = "transaction markers"
_REPLICATION_TIMEOUT_MS = 5000
_IN_A_TURN = 50
"""Markers: to write so many takes some milliseconds."""
RAISING_VERSION = int(ClientVersion.EPOCH_A_TRANSACTION)
"""The transaction version of a marker whose epoch is raised, in WriteTxnMarkers (KIP-1228)."""

Codes = dict[TopicPartition, ErrorCode]
Begun = Coroutine[Any, Any, None] | asyncio.Future[None] | ErrorCode
"""What is to be awaited for the replicas of a marker that is in the log, or what became of it already."""
EndOffsets = Callable[[int, int, bool], None]
"""Told of each marker in ``__consumer_offsets``: partition, producer id, whether it commits."""


class TransactionMarkers:
    """The coordinator's ``MarkerWriter``."""

    def __init__(
        self,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        end_offsets: EndOffsets,
        clock: Clock,
        zk: ZkClient,
        run_zk: Callable[..., Awaitable[Any]],
        peers: Peers,
    ) -> None:
        self._replicas = replicas
        self._metadata = metadata
        self._end_offsets = end_offsets
        self._clock = clock
        self._zk = zk
        self._epochs = CoordinatorEpochs(metadata, zk, run_zk)
        self._run_zk = run_zk
        self._peers = peers
        self._warnings = RateLimitedLogger(_logger, clock.monotonic)

    async def write(self, marker: Marker, partitions: Collection[TopicPartition]) -> Codes:
        """A code for each partition; those led here first and, without followers, the first ``_IN_A_TURN`` within this
        turn of the loop.
        """
        here = [tp for tp in partitions if self._replicas.leads(tp)]
        codes = await self.append(marker, here)
        elsewhere: dict[Endpoint, list[TopicPartition]] = {}
        for tp in set(partitions).difference(here):
            leader = self._metadata.leader(tp)
            if leader is None or self._replicas.leads(tp):
                codes[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                elsewhere.setdefault(leader.endpoint, []).append(tp)
        for answered in await asyncio.gather(*(self._send(at, marker, tps) for at, tps in elsewhere.items())):
            codes.update(answered)
        return codes

    async def take(self, marker: Marker, partitions: Collection[TopicPartition]) -> Codes:
        """As ``append``, for a broker that claims to coordinate: not under an epoch that no coordinator can have.

        NOT_LEADER_OR_FOLLOWER then, after which a coordinator tries again.
        """
        producer_id, epoch = marker.producer.producer_id, marker.coordinator_epoch
        taken, refused = [], {}
        for tp in partitions:
            try:
                if epoch <= self._coordinator_epoch(tp, producer_id) or await self._epochs.can_be(epoch):
                    taken.append(tp)
                    continue
                refused[tp] = ErrorCode.NOT_LEADER_OR_FOLLOWER
                _logger.warning(
                    "%s: a marker for producer %d bears the coordinator epoch %d, which no leader of a partition of %s "
                    "has had; it is refused",
                    *(tp, producer_id, epoch, TRANSACTIONS_TOPIC),
                )
            except ApiError as error:
                refused[tp] = error.code
        return {**await self.append(marker, taken), **refused}

    async def append(self, marker: Marker, partitions: Collection[TopicPartition]) -> Codes:
        """Write the marker into partitions that this broker leads; returns once it is replicated.

        It is in all of them before the replicas of one are waited for, so they have one time together.
        """
        begun: dict[TopicPartition, Begun] = {}
        try:
            for number, tp in enumerate(partitions, 1):
                begun[tp] = await self._begin(marker, tp)
                if number % _IN_A_TURN == 0:
                    await asyncio.sleep(0)
            return {tp: await self._end(each) for tp, each in begun.items()}
        finally:
            for each in begun.values():  # where it was not awaited
                if iscoroutine(each):  # a compiled one may not be closed when it is done, and need not be before
                    each.close()
                elif isinstance(each, asyncio.Future):
                    each.cancel()

    def _coordinator_epoch(self, tp: TopicPartition, producer_id: int) -> int:
        """Of the producer's last marker. Raises ApiError."""
        return self._replicas.partition(tp).coordinator_epoch(producer_id)

    async def _begin(self, marker: Marker, tp: TopicPartition) -> Begun:
        """What is to be awaited for the replicas, or why the marker is not taken. A partition that was told of a
        coordinator that there cannot have been goes by what ZooKeeper says.
        """
        begun = await self._begin_once(marker, tp)
        if begun is not ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            return begun
        producer_id = marker.producer.producer_id
        try:
            highest = await self._epochs.highest()
            known = self._coordinator_epoch(tp, producer_id)
            if known <= highest or marker.coordinator_epoch > highest:
                return begun
            _logger.warning(
                "%s: the last marker of producer %d bears the coordinator epoch %d, and none above %d has been given: "
                "it does not count any more",
                *(tp, producer_id, known, highest),
            )
            self._replicas.partition(tp).disbelieve_coordinator(producer_id)
        except ApiError:
            return begun
        return await self._begin_once(marker, tp)

    async def _begin_once(self, marker: Marker, tp: TopicPartition) -> Begun:
        kind = ControlType.COMMIT if marker.commit else ControlType.ABORT
        batch = build_marker(
            EndTransactionMarker(kind, marker.coordinator_epoch),
            ProducerIdAndEpoch(marker.producer.producer_id, marker.producer.epoch),
            self._clock.now_ms(),
        )
        origin = AppendOrigin.RAISED_MARKER if marker.raises_epoch else AppendOrigin.COORDINATOR
        try:
            replicated = self._replicas.append_replicated(tp, batch, _REPLICATION_TIMEOUT_MS, origin)
            return replicated if tp.topic != OFFSETS_TOPIC else await self._tell_when(replicated, tp, marker)
        except ApiError as error:
            return error.code

    async def _end(self, begun: Begun) -> ErrorCode:
        if isinstance(begun, ErrorCode):
            return begun
        try:
            await begun
        except ApiError as error:
            return error.code
        return ErrorCode.NONE

    async def _tell_when(self, replicated: Coroutine[Any, Any, None], tp: TopicPartition, marker: Marker) -> Begun:
        """Tell of a marker in ``__consumer_offsets`` when all have it, though the asker has hung up: it is in the log.
        Raises ApiError, and so does what it returns, if that will not be, or not in time.
        """
        held = self._replicas.partition(tp)
        leader_epoch, offset = held.leader_epoch, held.log_end_offset - 1

        async def tell() -> None:
            try:
                await replicated
            except ApiError as error:
                if error.code is ErrorCode.REQUEST_TIMED_OUT:
                    asyncio.ensure_future(self._tell_late(tp, leader_epoch, offset, marker)).add_done_callback(retrieve)
                raise
            self._end_offsets(tp.partition, marker.producer.producer_id, marker.commit)

        if held.is_committed(offset):
            await tell()
            return ErrorCode.NONE
        return begun_to_its_end(tell())

    async def _tell_late(self, tp: TopicPartition, leader_epoch: int, offset: int, marker: Marker) -> None:
        """An administrator does not send the marker again, as a coordinator does, and it may be replicated yet."""
        while True:
            try:
                await self._replicas.replicated(tp, leader_epoch, offset, _REPLICATION_TIMEOUT_MS)
            except ApiError as error:
                if error.code is ErrorCode.REQUEST_TIMED_OUT:
                    continue
                return
            self._end_offsets(tp.partition, marker.producer.producer_id, marker.commit)
            return

    async def _send(self, endpoint: Endpoint, marker: Marker, partitions: list[TopicPartition]) -> Codes:
        try:
            answer = await self._peers.request(
                endpoint, _LANE, ApiKey.WRITE_TXN_MARKERS, lambda _version: markers_request(marker, partitions)
            )
        except SparklogError as error:
            self._warnings.warn("elsewhere", f"broker {endpoint} did not take markers: {error}")
            return dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)
        return {
            TopicPartition(topic.name, each.partition_index): ErrorCode(each.error_code)
            for result in answer.markers
            for topic in result.topics
            for each in topic.partitions
        }

    async def deleted(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """What ZooKeeper no longer knows; none if it does not answer.

        A topic that was deleted and made again may have fewer partitions. Of those that this broker has been told of
        ZooKeeper is asked by topic only.
        """
        doubtful = {tp for tp in partitions if not self._metadata.knows(tp)}
        try:
            return set(await self._run_zk(self._missing, partitions, doubtful))
        except ApiError:
            return set()

    def _missing(self, partitions: Collection[TopicPartition], doubtful: set[TopicPartition]) -> set[TopicPartition]:
        topics = set(self._zk.topics.names())
        gone = {tp for tp in partitions if tp.topic not in topics}
        for name, numbers in by_topic(doubtful - gone).items():
            try:
                assignment = self._zk.topics.assignment(name)
            except MalformedZnode:  # it does not say which partitions there are
                continue
            there = assignment.partitions if assignment else {}
            gone |= {TopicPartition(name, number) for number in numbers if number not in there}
        return gone


def markers_request(marker: Marker, partitions: Collection[TopicPartition]) -> WriteTxnMarkersRequest:
    """One marker for several partitions of one broker."""
    writable = WriteTxnMarkersRequest.WritableTxnMarker
    topics = [
        writable.WritableTxnMarkerTopic(name=name, partition_indexes=numbers)
        for name, numbers in by_topic(partitions).items()
    ]
    return WriteTxnMarkersRequest(
        markers=[
            writable(
                producer_id=marker.producer.producer_id,
                producer_epoch=marker.producer.epoch,
                transaction_result=marker.commit,
                topics=topics,
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=RAISING_VERSION if marker.raises_epoch else 0,
            )
        ]
    )
