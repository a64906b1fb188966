"""The fields of requests that sequences ask again and again, and what is done before one can ask at all."""

from __future__ import annotations

from typing import Any

from differential.pair import Both, Client, Pair

from sparklog.clock import SystemClock
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.record.builder import RecordBatchBuilder

LOW, BY_ID = 4, 13
T0 = int(SystemClock().now_ms()) - 3_600_000
"""An hour ago: records that are older than ``segment.ms`` would each begin a segment."""
WAIT_MS = 30_000
NOT_YET = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
"""What an answer says while something else has to end first."""


def batch(*values: bytes | None, key: bytes | None = b"k", time: int = T0, **header: Any) -> bytes:
    """One batch, a record for each value, a millisecond apart."""
    builder = RecordBatchBuilder(**header)
    for number, value in enumerate(values):
        builder.append(time + number, key, value)
    return builder.build()


def batch_of(producer: Both, sequence: int, *values: bytes, epoch: int | None = None, **header: Any) -> Both:
    """A batch of an idempotent producer, whose id either side gave."""

    def made(given: Any) -> bytes:
        return batch(
            *values,
            producer_id=given.producer_id,
            producer_epoch=given.producer_epoch if epoch is None else epoch,
            base_sequence=sequence,
            **header,
        )

    return producer.map(made)


def make_topic(pair: Pair, kind: str = "t", partitions: int = 1, **configs: str) -> str:
    """A topic of this run; its settings with underscores for dots."""
    name = pair.name(kind)
    settings = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    pair.ask(
        f"make topic {kind}",
        ApiKey.CREATE_TOPICS,
        version=LOW,
        topics=[{"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": settings}],
        timeout_ms=WAIT_MS,
    )
    return name


def topic_id_of(pair: Pair, topic: str) -> Both:
    answer = pair.ask(f"id of {topic}", ApiKey.METADATA, version=12, topics=[{"name": topic}])
    return answer.topics[0].topic_id


def records_of(topic: str, records: Any, partition: int = 0) -> list[dict[str, Any]]:
    """One partition's part of a Produce."""
    return [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]


def produce(pair: Pair, step: str, topic: str, records: Any, *, acks: int = -1, partition: int = 0, **how: Any) -> Both:
    return pair.ask(
        step,
        ApiKey.PRODUCE,
        acks=acks,
        timeout_ms=WAIT_MS,
        topic_data=records_of(topic, records, partition),
        **how,
    )


def fetch(pair: Pair, step: str, topic: str, offset: int, *, partition: int = 0, **how: Any) -> Both:
    """One partition; what is asked of it may be overridden by name, as may what is asked of all."""
    version = how.get("version", pair.version(ApiKey.FETCH))
    asked = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    asked |= {name: how.pop(name) for name in ("partition_max_bytes", "current_leader_epoch") if name in how}
    named = {"topic_id": topic_id_of(pair, topic)} if version >= BY_ID else {"topic": topic}
    limits = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1, "replica_id": -1}
    return pair.ask(step, ApiKey.FETCH, topics=[{**named, "partitions": [asked]}], **{**limits, **how})


def read_back(pair: Pair, topic: str, partition: int = 0) -> None:
    """Everything that is there, to either isolation level."""
    for level in (0, 1):
        fetch(pair, f"read back, isolation {level}", topic, 0, partition=partition, version=11, isolation_level=level)


def list_offset(pair: Pair, step: str, topic: str, timestamp: int, **how: Any) -> Both:
    asked = {"partition_index": how.pop("partition", 0), "timestamp": timestamp}
    if "current_leader_epoch" in how:
        asked["current_leader_epoch"] = how.pop("current_leader_epoch")
    how.setdefault("replica_id", -1)
    return pair.ask(step, ApiKey.LIST_OFFSETS, topics=[{"name": topic, "partitions": [asked]}], **how)


def settle(answer: Any) -> bool:
    """Whether nothing has to end before the answer counts."""
    return not isinstance(answer, str) and answer.error_code not in NOT_YET


def init_producer(pair: Pair, step: str, transactional_id: str | None = None, **how: Any) -> Both:
    how = {"transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1, **how}
    return pair.ask(step, ApiKey.INIT_PRODUCER_ID, transactional_id=transactional_id, until=settle, **how)


def add_partitions(pair: Pair, step: str, who: str, producer: Any, topic: str, *partitions: int, **how: Any) -> Both:
    """AddPartitionsToTxn as a client asks, up to version 3; an answer of CONCURRENT_TRANSACTIONS is asked again."""

    def settled(answer: Any) -> bool:
        results = answer.results_by_topic_v3_and_below
        return all(part.partition_error_code not in NOT_YET for each in results for part in each.results_by_partition)

    fields = {
        "v3_and_below_transactional_id": who,
        "v3_and_below_producer_id": producer.producer_id,
        "v3_and_below_producer_epoch": how.pop("epoch", producer.producer_epoch),
        "v3_and_below_topics": [{"name": topic, "partitions": list(partitions or (0,))}],
    }
    return pair.ask(step, ApiKey.ADD_PARTITIONS_TO_TXN, until=settled, **fields, **how)


def end(pair: Pair, step: str, who: str, producer: Any, committed: bool, **how: Any) -> Both:
    fields = {
        "transactional_id": who,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "committed": committed,
    }
    return pair.ask(step, ApiKey.END_TXN, until=settle, **{**fields, **how})


def await_end(pair: Pair, step: str, who: str) -> Both:
    """Return when the transaction's markers are written."""

    def ended(answer: Any) -> bool:
        return answer.transaction_states[0].transaction_state in ("CompleteCommit", "CompleteAbort", "Empty")

    return pair.ask(step, ApiKey.DESCRIBE_TRANSACTIONS, version=0, transactional_ids=[who], until=ended)


def commit_offset(client: Client | Pair, step: str, group: str, topic: str, offset: int, **how: Any) -> Both:
    place = {"partition_index": how.pop("partition", 0), "committed_offset": offset, "committed_metadata": ""}
    for name in ("committed_metadata", "committed_leader_epoch"):
        if name in how:
            place[name] = how.pop(name)
    asked = {"generation_id_or_member_epoch": -1, "member_id": "", "retention_time_ms": -1, **how}
    return client.ask(
        step, ApiKey.OFFSET_COMMIT, group_id=group, topics=[{"name": topic, "partitions": [place]}], **asked
    )


def fetch_offsets(pair: Pair, step: str, group: str, topics: list[tuple[str, list[int]]] | None, **how: Any) -> Both:
    """OffsetFetch in the form of its version: one group, or from version 8 on a list of them."""
    asked = None if topics is None else [{"name": name, "partition_indexes": indexes} for name, indexes in topics]
    groups = [{"group_id": group, "topics": asked}]
    if pair.version(ApiKey.OFFSET_FETCH) < 8:
        return pair.ask(step, ApiKey.OFFSET_FETCH, group_id=group, topics=asked, **how)
    return pair.ask(step, ApiKey.OFFSET_FETCH, groups=groups, **how)


PROTOCOLS = [{"name": "range", "metadata": b"one"}, {"name": "roundrobin", "metadata": b"two"}]


def join_fields(group: str, member: Any = "", **how: Any) -> dict[str, Any]:
    asked = {"session_timeout_ms": 20_000, "rebalance_timeout_ms": 60_000, "protocol_type": "consumer"}
    return {"group_id": group, "member_id": member, "protocols": PROTOCOLS, **asked, **how}


def join(client: Client | Pair, step: str, group: str, member: Any = "", **how: Any) -> Both:
    """JoinGroup, and again with the id that is given where the version asks for one first."""
    answer = client.ask(step, ApiKey.JOIN_GROUP, **join_fields(group, member, **how))
    if answer.values[0].error_code == ErrorCode.MEMBER_ID_REQUIRED:
        return client.ask(f"{step}, with its id", ApiKey.JOIN_GROUP, **join_fields(group, answer.member_id, **how))
    return answer


def sync(client: Client | Pair, step: str, group: str, joined: Any, given: dict[int, bytes] | None = None, **how: Any):
    """SyncGroup; ``given`` by the place of the member among those that the leader was told of, in their order."""
    fields = sync_fields(group, joined, **how)
    if given is not None:
        fields["assignments"] = [
            {"member_id": joined.map(lambda answer, at=at: sorted(answer.members, key=_metadata)[at].member_id),
             "assignment": data}
            for at, data in given.items()
        ]  # fmt: skip
    return client.ask(step, ApiKey.SYNC_GROUP, **fields)


def sync_fields(group: str, joined: Any, **how: Any) -> dict[str, Any]:
    names = {"protocol_type": "consumer", "protocol_name": "range", "assignments": []}
    who = {"generation_id": joined.generation_id, "member_id": joined.member_id}
    return {"group_id": group, **who, **names, **how}


def _metadata(member: Any) -> bytes:
    return bytes(member.metadata)
