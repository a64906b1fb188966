"""Writing the markers of transactions: into the partitions led here, and through WriteTxnMarkers at other brokers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from sparklog.broker.metadata_cache import MetadataCache
from sparklog.broker.topics import OFFSETS_TOPIC
from sparklog.clock import Clock
from sparklog.errors import ApiError, ErrorCode, SparklogError
from sparklog.log.origin import AppendOrigin
from sparklog.net.async_connection import AsyncConnection
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import Message, WriteTxnMarkersRequest
from sparklog.record.control import ControlType, EndTransactionMarker, ProducerIdAndEpoch, build_marker
from sparklog.replica.manager import ReplicaManager
from sparklog.structs import Endpoint, TopicPartition, by_topic
from sparklog.txn.markers import Marker
from sparklog.txn.state import ClientVersion
from sparklog.zk.client import ZkClient

_logger = logging.getLogger(__name__)
_REPLICATION_TIMEOUT_MS = 5000
RAISING_VERSION = int(ClientVersion.EPOCH_A_TRANSACTION)
"""The transaction version of a marker whose epoch is raised, in WriteTxnMarkers (KIP-1228)."""

Codes = dict[TopicPartition, ErrorCode]
EndOffsets = Callable[[int, int, bool], None]
"""Told of each marker in ``__consumer_offsets``: partition, producer id, whether it commits."""


class TransactionMarkers:
    """The coordinator's ``MarkerWriter``; a connection to a broker is kept until it fails."""

    def __init__(
        self,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        end_offsets: EndOffsets,
        clock: Clock,
        zk: ZkClient,
        run_zk: Callable[..., Awaitable[Any]],
    ) -> None:
        self._replicas = replicas
        self._metadata = metadata
        self._end_offsets = end_offsets
        self._clock = clock
        self._zk = zk
        self._run_zk = run_zk
        self._connections: dict[Endpoint, AsyncConnection] = {}

    async def write(self, marker: Marker, partitions: Collection[TopicPartition]) -> Codes:
        """A code for each partition; those led here first and, without followers, within this turn of the loop."""
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

    async def append(self, marker: Marker, partitions: Collection[TopicPartition]) -> Codes:
        """Write the marker into partitions that this broker leads; returns once it is replicated."""
        return {tp: await self._append(marker, tp) for tp in partitions}

    async def _append(self, marker: Marker, tp: TopicPartition) -> ErrorCode:
        kind = ControlType.COMMIT if marker.commit else ControlType.ABORT
        batch = build_marker(
            EndTransactionMarker(kind, marker.coordinator_epoch),
            ProducerIdAndEpoch(marker.producer.producer_id, marker.producer.epoch),
            self._clock.now_ms(),
        )
        origin = AppendOrigin.RAISED_MARKER if marker.raises_epoch else AppendOrigin.COORDINATOR
        try:
            await self._replicas.append_replicated(tp, batch, _REPLICATION_TIMEOUT_MS, origin)
        except ApiError as error:
            return error.code
        if tp.topic == OFFSETS_TOPIC:
            self._end_offsets(tp.partition, marker.producer.producer_id, marker.commit)
        return ErrorCode.NONE

    async def _send(self, endpoint: Endpoint, marker: Marker, partitions: list[TopicPartition]) -> Codes:
        try:
            connection = self._connections.get(endpoint)
            if connection is None or connection.closed:
                connection = self._connections[endpoint] = await AsyncConnection.open(endpoint)
            answer = await connection.request(
                ApiKey.WRITE_TXN_MARKERS, lambda _version: markers_request(marker, partitions)
            )
        except SparklogError as error:
            _logger.warning("broker %s did not take markers: %s", endpoint, error)
            return dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)
        return {
            TopicPartition(topic.name, each.partition_index): ErrorCode(each.error_code)
            for result in answer.markers
            for topic in result.topics
            for each in topic.partitions
        }

    async def deleted(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """What ZooKeeper no longer knows; none if it does not answer."""
        try:
            topics = set(await self._run_zk(self._zk.topics))
        except ApiError:
            return set()
        return {tp for tp in partitions if tp.topic not in topics}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()


def markers_request(marker: Marker, partitions: Collection[TopicPartition]) -> Message:
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
