"""The worst of what is asked about transactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.loads.raw import connect
from benchmarks.stalls.cluster import MANY, PARTITIONS, TIMEOUT_MS, Case, Cluster, request
from sparklog.errors import ErrorCode
from sparklog.protocol import messages
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import Message, decode_response, encode

_IDS = 2000


def of_what_exists() -> Iterator[Case]:
    """A transaction of the wide topic, which is there, and many others."""
    yield Case(ApiKey.END_TXN, f"a transaction of {PARTITIONS} partitions", _end)
    yield Case(ApiKey.LIST_TRANSACTIONS, f"{_IDS} transactional ids", _list)


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


def _end(cluster: Cluster) -> None:
    """All partitions are added, and each is told of the end."""
    name = cluster.topic("t")
    producer = cluster.ask(ApiKey.INIT_PRODUCER_ID, _init(name), 4)
    added = messages.AddPartitionsToTxnRequest
    topic = added.AddPartitionsToTxnTopic(name=cluster.topic("wide"), partitions=list(range(PARTITIONS)))
    adding = added(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[topic],
    )
    cluster.ask(ApiKey.ADD_PARTITIONS_TO_TXN, adding, 3)
    ending = messages.EndTxnRequest(
        transactional_id=name,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=True,
    )
    ended = cluster.ask(ApiKey.END_TXN, ending, 3)
    assert ended.error_code == ErrorCode.NONE


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
