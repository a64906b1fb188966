"""The worst of the APIs that are sparklog's own: segments, what is cleaned, retained and erased."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from uuid import uuid4

from benchmarks.stalls.cluster import MANY, NO_TOPIC, TIMEOUT_MS, Case, request
from sparklog.compaction.erased_keys import MOST_BYTES
from sparklog.protocol import messages
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import Message

_REPORT = 90 << 20


def described() -> Iterator[Case]:
    """What there is, while the wide topic is there."""
    yield request(ApiKey.DESCRIBE_COMPACTION, "all", partial(messages.DescribeCompactionRequest, topics=None), 0)
    yield request(ApiKey.DESCRIBE_RETENTION, "all", partial(messages.DescribeRetentionRequest, topics=None), 0)


def of_nothing() -> Iterator[Case]:
    """Of partitions, files and grants that are not there."""
    names = [f"nothing-{n}" for n in range(MANY)]
    yield request(ApiKey.DESCRIBE_LAG, f"{MANY} offsets", _lags, 0)
    yield request(
        ApiKey.DESCRIBE_COMPACTION, f"{MANY} names", partial(messages.DescribeCompactionRequest, topics=names), 0
    )
    yield request(
        ApiKey.DESCRIBE_RETENTION, f"{MANY} names", partial(messages.DescribeRetentionRequest, topics=names), 0
    )
    yield request(ApiKey.COMPACT_PARTITIONS, f"{MANY} partitions", _compacted, 0)
    yield request(ApiKey.BEGIN_COMPACTION, f"{MANY} partitions", _granted, 0)
    group = partial(_committed, 0, list(range(MANY)), 0)
    yield request(ApiKey.COMMIT_COMPACTION, f"{MANY} segments", group, 0)
    yield request(ApiKey.COMMIT_COMPACTION, f"a report of {_REPORT >> 20} MB", partial(_committed, 1, [], _REPORT), 0)
    yield request(ApiKey.LEASE_SEGMENTS, f"{MANY} ranges of a partition", _leased, 0)
    yield request(ApiKey.ERASE_RECORDS, f"{MANY} partitions, {MOST_BYTES >> 20} MB of keys", _erased, 0)
    yield request(ApiKey.ADOPT_SEGMENTS, f"{MANY} segments", _adopted, 0)


def _lags() -> Message:
    topic = messages.DescribeLagRequest.LagTopic
    asked = [topic.LagPartition(partition_index=0, offset=each) for each in range(MANY)]
    return messages.DescribeLagRequest(topics=[topic(name="stalls", partitions=asked)])


def _compacted() -> Message:
    topic = messages.CompactPartitionsRequest.CompactedTopic(name="stalls", partitions=list(range(MANY)))
    return messages.CompactPartitionsRequest(topics=[topic], timeout_ms=TIMEOUT_MS, since_ms=-1)


def _granted() -> Message:
    topic = messages.BeginCompactionRequest.GrantedTopic(name="stalls", partitions=list(range(MANY // 2)))
    return messages.BeginCompactionRequest(
        topics=[topic], rolls_active=False, duration_ms=TIMEOUT_MS, renewed=list(range(MANY // 2))
    )


def _committed(step: int, old: list[int], report: int) -> Message:
    return messages.CommitCompactionRequest(
        token=7, step=step, tag="", old=old, new=[], report=bytes(report), timeout_ms=TIMEOUT_MS
    )


def _leased() -> Message:
    topic = messages.LeaseSegmentsRequest.LeaseTopic
    partitions = [
        topic.LeasePartition(partition_index=0, start_offset=n, end_offset=n + 1, current_leader_epoch=-1)
        for n in range(MANY)
    ]
    return messages.LeaseSegmentsRequest(
        isolation_level=0,
        duration_ms=0,
        max_files=1000,
        topics=[topic(topic="stalls", topic_id=NO_TOPIC, partitions=partitions)],
        ended_leases=[],
    )


def _erased() -> Message:
    """As many keys as one erasure takes, and partitions that are not here."""
    asked = messages.EraseRecordsRequest.ErasedPartition
    return messages.EraseRecordsRequest(
        erasure_id=uuid4(),
        round=1,
        scan_only=True,
        keys=bytes(MOST_BYTES),
        topic="stalls",
        topic_id=uuid4(),
        partitions=[asked(partition_index=number, end_offset=1) for number in range(MANY)],
    )


def _adopted() -> Message:
    """Segments that are not there, as many as one request can name."""
    return messages.AdoptSegmentsRequest(
        topic="stalls",
        partition_index=0,
        current_leader_epoch=-1,
        mode=1,
        tag=uuid4().hex,
        bases=list(range(MANY)),
        end_offset=MANY,
        log_start_offset=-1,
        timeout_ms=TIMEOUT_MS,
    )
