"""The worst of what is asked about transactions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

from benchmarks.loads.raw import connect
from benchmarks.stalls.cluster import MANY, PARTITIONS, TIMEOUT_MS, Case, Cluster, request
from sparklog.clock import SystemClock
from sparklog.errors import ErrorCode
from sparklog.net.connection import BlockingConnection
from sparklog.protocol import messages
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import fetch as fetch_wire
from sparklog.protocol.messages import Message, decode_response, encode
from sparklog.protocol.wire import ZERO_UUID
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.records import iter_batches
from sparklog.structs import IsolationLevel

_IDS = 2000
_ABORTS = 10_000
_TOGETHER = 50
_READINGS = 3
_PRODUCE_VERSION, _MARKERS_VERSION = 9, 1
_WHOLE = 50_000_000


def of_what_exists() -> Iterator[Case]:
    """A transaction of the wide topic, which is there, and many others."""
    yield Case(ApiKey.END_TXN, f"a transaction of {PARTITIONS} partitions", _end)
    yield Case(ApiKey.LIST_TRANSACTIONS, f"{_IDS} transactional ids", _list)


def aborted() -> Iterator[Case]:
    """A segment with many of them."""
    yield Case(ApiKey.FETCH, f"read_committed over {_ABORTS} aborts in a segment", _fetch_aborted)


def of_nothing() -> Iterator[Case]:
    """Of a topic that nobody knows, so that all of it is refused."""
    yield request(ApiKey.ADD_PARTITIONS_TO_TXN, f"{MANY} partitions", _added, 3)
    yield request(ApiKey.ADD_PARTITIONS_TO_TXN, f"{MANY // 3} transactions", _verified, 4)
    yield Case(ApiKey.WRITE_TXN_MARKERS, f"{MANY // 3} of one partition", _write_markers)
    yield request(ApiKey.TXN_OFFSET_COMMIT, f"{MANY} partitions", _committed, 3)
    yield request(ApiKey.DESCRIBE_TRANSACTIONS, f"{MANY} transactional ids", _described, 0)


def _added() -> Message:
    asked = messages.AddPartitionsToTxnRequest
    return asked(
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[asked.AddPartitionsToTxnTopic(name="stalls", partitions=list(range(MANY)))],
    )


def _verified() -> Message:
    asked = messages.AddPartitionsToTxnRequest
    transaction = asked.AddPartitionsToTxnTransaction
    topics = [transaction.AddPartitionsToTxnTopic(name="stalls", partitions=[0])]
    return asked(
        transactions=[
            transaction(transactional_id=f"t{n}", producer_id=n, producer_epoch=0, verify_only=True, topics=topics)
            for n in range(MANY // 3)
        ]
    )


def _described() -> Message:
    return messages.DescribeTransactionsRequest(transactional_ids=[f"t{n}" for n in range(MANY)])


def _write_markers(cluster: Cluster) -> None:
    """One partition, and as many producers as may be."""
    marker = messages.WriteTxnMarkersRequest.WritableTxnMarker
    topics = [marker.WritableTxnMarkerTopic(name=cluster.topic("gzip"), partition_indexes=[0])]
    markers = [
        marker(producer_id=n, producer_epoch=0, transaction_result=False, topics=topics, coordinator_epoch=0)
        for n in range(MANY // 3)
    ]
    cluster.ask(ApiKey.WRITE_TXN_MARKERS, messages.WriteTxnMarkersRequest(markers=markers), 1)


def _committed() -> Message:
    topic = messages.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    asked = [
        topic.TxnOffsetCommitRequestPartition(
            partition_index=n, committed_offset=1, committed_leader_epoch=-1, committed_metadata=""
        )
        for n in range(MANY)
    ]
    return messages.TxnOffsetCommitRequest(
        transactional_id="t",
        group_id="g",
        producer_id=1,
        producer_epoch=0,
        generation_id=-1,
        member_id="",
        group_instance_id=None,
        topics=[topic(name="stalls", partitions=asked)],
    )


def _init(transactional_id: str) -> Message:
    return messages.InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=TIMEOUT_MS, producer_id=-1, producer_epoch=-1
    )


def _begin(cluster: Cluster, name: str, topic: str, partitions: int) -> Any:
    """A producer whose transaction has these partitions."""
    producer = cluster.ask(ApiKey.INIT_PRODUCER_ID, _init(name), 4)
    added = messages.AddPartitionsToTxnRequest
    adding = added(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[added.AddPartitionsToTxnTopic(name=topic, partitions=list(range(partitions)))],
    )
    cluster.ask(ApiKey.ADD_PARTITIONS_TO_TXN, adding, 3)
    return producer


def _finish(cluster: Cluster, name: str, producer: Any, *, commit: bool) -> None:
    ending = messages.EndTxnRequest(
        transactional_id=name,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=commit,
    )
    ended = cluster.ask(ApiKey.END_TXN, ending, 3)
    assert ended.error_code == ErrorCode.NONE


def _end(cluster: Cluster) -> None:
    """All partitions are added, and each is told of the end."""
    name = cluster.topic("t")
    producer = _begin(cluster, name, cluster.topic("wide"), PARTITIONS)
    _finish(cluster, name, producer, commit=True)


def _fetch_aborted(cluster: Cluster) -> None:
    """All of the segment, again and again.

    Of each producer the coordinator knows one transaction; that it is aborted the partition is told of every record.
    """
    cluster.create("aborted", 1)
    topic = cluster.topic("aborted")
    names = [f"{cluster.topic('aborting')}-{number}" for number in range(_TOGETHER)]
    producers = {name: _begin(cluster, name, topic, 1) for name in names}
    markers = encode(_aborts(topic, producers.values()), _MARKERS_VERSION)
    with connect(cluster.bootstrap) as connection:
        for sequence in range(_ABORTS // _TOGETHER):
            for name, producer in producers.items():
                batch = encode(_one_record(name, topic, producer, sequence), _PRODUCE_VERSION)
                connection.send(ApiKey.PRODUCE, _PRODUCE_VERSION, [batch])
            for _ in producers:
                connection.receive()
            connection.send(ApiKey.WRITE_TXN_MARKERS, _MARKERS_VERSION, [markers])
            connection.receive()
        told = [sum(_told(connection, topic)) for _ in range(_READINGS)]
    assert min(told) >= _ABORTS
    for name, producer in producers.items():
        _finish(cluster, name, producer, commit=False)


def _one_record(name: str, topic: str, producer: Any, sequence: int) -> Message:
    builder = RecordBatchBuilder(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    builder.append(SystemClock().now_ms(), None, b"v")  # as its marker, or a new segment would begin there
    data = messages.ProduceRequest.TopicProduceData
    written = data.PartitionProduceData(index=0, records=builder.build())
    return messages.ProduceRequest(
        transactional_id=name, acks=1, timeout_ms=TIMEOUT_MS, topic_data=[data(name=topic, partition_data=[written])]
    )


def _aborts(topic: str, producers: Iterable[Any]) -> Message:
    marker = messages.WriteTxnMarkersRequest.WritableTxnMarker
    topics = [marker.WritableTxnMarkerTopic(name=topic, partition_indexes=[0])]
    return messages.WriteTxnMarkersRequest(
        markers=[
            marker(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                transaction_result=False,
                topics=topics,
                coordinator_epoch=0,
            )
            for producer in producers
        ]
    )


def _told(connection: BlockingConnection, topic: str) -> Iterator[int]:
    """Of how many aborted transactions each answer tells a reader that goes from the start to the end."""
    version, offset = fetch_wire.TOPIC_ID_VERSION - 1, 0
    while True:
        asked = fetch_wire.FetchPartition(topic, ZERO_UUID, 0, offset, _WHOLE)
        request = fetch_wire.FetchRequest(0, 1, _WHOLE, [asked], IsolationLevel.READ_COMMITTED)
        connection.send(ApiKey.FETCH, version, fetch_wire.encode_request(request, version))
        _, answered, body = connection.receive()
        _, (partition,) = fetch_wire.decode_response(body, answered)
        ends = [batch.last_offset for chunk in partition.records for batch in iter_batches(cast(memoryview, chunk))]
        if not ends:
            return
        yield len(partition.aborted or ())
        offset = ends[-1] + 1


def _list(cluster: Cluster) -> None:
    with connect(cluster.bootstrap) as connection:
        for number in range(_IDS):
            connection.send(ApiKey.INIT_PRODUCER_ID, 4, [encode(_init(f"{cluster.topic('listed')}-{number}"), 4)])
            begun: Any = decode_response(*connection.receive())
            assert begun.error_code == ErrorCode.NONE
    message = messages.ListTransactionsRequest(
        state_filters=[],
        producer_id_filters=list(range(MANY)),
        duration_filter=-1,
        transactional_id_pattern="(a|b|.)*listed.*",
    )
    cluster.ask(ApiKey.LIST_TRANSACTIONS, message, 2)
