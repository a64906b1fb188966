"""Which offsets a partition has: ListOffsets, for many partitions at once, each asked of its leader."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.retry import raise_worst
from sparklog.errors import ApiError, ErrorCode, SparklogError
from sparklog.net.connection import BlockingConnection
from sparklog.net.versions import PeerVersions
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import ListOffsetsRequest, ListOffsetsResponse
from sparklog.structs import NO_EPOCH, Endpoint, IsolationLevel, LeaderEpoch, TopicPartition

T = TypeVar("T")

LATEST = -1
EARLIEST = -2
_EARLIEST_LOCAL = -4
_FIRST_WITH_LOCAL = 8
"""The version of ListOffsets from which on brokers may know it."""
_Topic = ListOffsetsRequest.ListOffsetsTopic
_Partition = _Topic.ListOffsetsPartition


class OffsetAndTimestamp(NamedTuple):
    """An offset, and the timestamp (ms) of the record there where a timestamp was asked for, else -1.

    ``leader_epoch`` is that of the record, or for LATEST the leader's own; NO_EPOCH where the broker does not tell.
    """

    offset: int
    timestamp: int
    leader_epoch: LeaderEpoch = NO_EPOCH


def list_offsets(
    cluster: ClusterMetadata, wanted: Mapping[TopicPartition, int], isolation: IsolationLevel | None = None
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """The offset each partition has for EARLIEST, LATEST, or the first record at or after a timestamp (ms).

    None where no record is that young. LATEST is the high watermark, or the last stable offset for read_committed.
    Retries moved leaders; raises ApiError naming the partition otherwise.
    """
    level = cluster.config.isolation_level if isolation is None else isolation
    found: dict[TopicPartition, OffsetAndTimestamp | None] = {}

    def ask(endpoint: Endpoint, partitions: list[TopicPartition]) -> None:
        _ask(cluster, endpoint, {tp: wanted[tp] for tp in partitions}, level, found)

    ask_leaders(cluster, wanted, found, ask)
    return found


def ask_leaders(
    cluster: ClusterMetadata,
    wanted: Iterable[TopicPartition],
    found: Container[TopicPartition],
    ask: Callable[[Endpoint, list[TopicPartition]], None],
) -> None:
    """Have ``ask`` put into ``found`` what each leader says of its partitions, until all that is ``wanted`` is there.

    What one leader refuses does not keep the others from being asked. Retries what may pass.
    """
    left = list(wanted)

    def ask_what_is_left() -> None:
        failures = []
        for endpoint, partitions in cluster.by_leader(tp for tp in left if tp not in found).items():
            try:
                ask(endpoint, partitions)
            except SparklogError as error:
                failures.append(error)
        raise_worst(failures)

    def forget_leaders() -> None:
        for topic in {tp.topic for tp in left if tp not in found}:
            cluster.invalidate(topic)

    cluster.retrying(ask_what_is_left, between=forget_leaders)


def earliest_offsets(cluster: ClusterMetadata, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The first offset that each partition still has."""
    return plain_offsets(list_offsets(cluster, dict.fromkeys(partitions, EARLIEST)))


def local_starts_request(
    partitions: Iterable[TopicPartition], versions: PeerVersions, timeout_ms: int
) -> Callable[[int], ListOffsetsRequest] | None:
    """Ask a leader for the first offset in its own log of each: what it has before is in remote storage (KIP-405).

    None for a broker of a version that knows no such storage.
    """
    if versions.highest(ApiKey.LIST_OFFSETS) < _FIRST_WITH_LOCAL:
        return None
    return list_offsets_request(dict.fromkeys(partitions, _EARLIEST_LOCAL), IsolationLevel.READ_UNCOMMITTED, timeout_ms)


def remote(wanted: Mapping[TopicPartition, int], answer: ListOffsetsResponse) -> set[TopicPartition]:
    """The partitions whose offset in ``wanted`` comes before the leader's own log, or may do so, by its answer."""
    starts = {tp: at.offset for tp, code, at in listed_offsets(answer) if code is ErrorCode.NONE and at is not None}
    return {tp for tp, offset in wanted.items() if tp not in starts or offset < starts[tp]}


def remote_at(
    connection: BlockingConnection, wanted: Mapping[TopicPartition, int], timeout_ms: int
) -> set[TopicPartition]:
    """``remote``, asked on a connection to the leader. Raises ApiError, ConnectionFailed."""
    request = local_starts_request(wanted, connection.versions, timeout_ms) if wanted else None
    return set() if request is None else remote(wanted, connection.request(ApiKey.LIST_OFFSETS, request))


def latest_offsets(
    cluster: ClusterMetadata, partitions: Iterable[TopicPartition], isolation: IsolationLevel | None = None
) -> dict[TopicPartition, int]:
    """The offset after the last record that a reader of this isolation may see."""
    return plain_offsets(list_offsets(cluster, dict.fromkeys(partitions, LATEST), isolation))


def _ask(
    cluster: ClusterMetadata,
    endpoint: Endpoint,
    wanted: Mapping[TopicPartition, int],
    isolation: IsolationLevel,
    found: dict[TopicPartition, OffsetAndTimestamp | None],
) -> None:
    request = list_offsets_request(wanted, isolation, cluster.config.request_timeout_ms)
    answers = listed_offsets(cluster.request(endpoint, ApiKey.LIST_OFFSETS, request))
    keep_found(found, answers, f"offsets of partition {{}} from broker {endpoint}")


def keep_found(
    found: dict[TopicPartition, T], answers: Iterable[tuple[TopicPartition, ErrorCode, T]], what: str
) -> None:
    """Put what a broker answers into ``found``, then raise ApiError saying ``what`` it has refused, if anything.

    ``{}`` in it stands for the partition.
    """
    failures = []
    for tp, code, answer in answers:
        if code is ErrorCode.NONE:
            found[tp] = answer
        else:
            failures.append(ApiError(code, f"{what.format(tp)}: {code.name}"))
    raise_worst(failures)


def list_offsets_request(
    wanted: Mapping[TopicPartition, int], isolation: IsolationLevel, timeout_ms: int
) -> Callable[[int], ListOffsetsRequest]:
    """Ask a leader for the offsets at these timestamps (ms, EARLIEST or LATEST).

    ``timeout_ms`` is how long a broker may look in its remote storage.
    """
    topics: dict[str, list[_Partition]] = {}
    for tp, timestamp in wanted.items():
        asked = _Partition(partition_index=tp.partition, current_leader_epoch=-1, timestamp=timestamp)
        topics.setdefault(tp.topic, []).append(asked)
    return lambda version: ListOffsetsRequest(
        version=version,
        replica_id=-1,
        isolation_level=int(isolation),
        topics=[_Topic(name=name, partitions=partitions) for name, partitions in topics.items()],
        timeout_ms=timeout_ms,
    )


def listed_offsets(
    answer: ListOffsetsResponse,
) -> Iterator[tuple[TopicPartition, ErrorCode, OffsetAndTimestamp | None]]:
    """For each partition the error, and what was found; None where no record is that young."""
    for topic in answer.topics:
        for each in topic.partitions:
            at = None
            if each.offset >= 0:
                at = OffsetAndTimestamp(each.offset, each.timestamp, LeaderEpoch(each.leader_epoch))
            yield TopicPartition(topic.name, each.partition_index), ErrorCode(each.error_code), at


def plain_offsets(found: Mapping[TopicPartition, OffsetAndTimestamp | None]) -> dict[TopicPartition, int]:
    """The offsets alone, 0 where there is none."""
    return {tp: 0 if each is None else each.offset for tp, each in found.items()}
