"""A request of every API, what is asked before it is served, and what a caller without any right is answered.

Requests are written as their fields; what is left out has its default.
"""

from types import SimpleNamespace
from typing import Any, NamedTuple
from uuid import UUID

from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import SCHEMAS, encode
from sparklog.record.builder import RecordBatchBuilder

TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TRANSACTIONAL_ID = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
NONE, NOT_ATTEMPTED = ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED
KNOWN_ID, UNKNOWN_ID = UUID(int=7), UUID(int=8)
"""Topic ``t`` has the first."""
ON_CLUSTER = "cluster kafka-cluster"
CLUSTER_ACTION = f"CLUSTER_ACTION {ON_CLUSTER}"


class Case(NamedTuple):
    """One request of a caller that may do what is in ``allowed`` and nothing else."""

    name: str
    api: ApiKey
    version: int
    fields: dict[str, Any]
    asks: list[str]
    """In this order; a name between parentheses is asked for quietly."""
    codes: set[ErrorCode]
    """All error codes of the answer but NONE where something is refused."""
    allowed: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    """What of the broker may be touched before it has asked."""


def body_of(api: ApiKey, version: int, fields: dict[str, Any]) -> memoryview:
    """The request as it comes by the wire."""
    schema = SCHEMAS[api].request
    filled = vars(_filled(schema._struct, fields))
    known = {each.name for each in schema._struct._fields}
    return memoryview(encode(schema(**{name: value for name, value in filled.items() if name in known}), version))


def _filled(struct: Any, fields: dict[str, Any]) -> SimpleNamespace:
    unknown = fields.keys() - {each.name for each in struct._fields}
    assert not unknown, f"{struct.name} has no {unknown}"
    made = SimpleNamespace(tags=None, unknown_tags=None)
    for each in struct._fields:
        setattr(made, each.name, _value(each, fields[each.name]) if each.name in fields else each.default)
    return made


def _value(field: Any, value: Any) -> Any:
    if value is None:
        return None
    if field.is_struct_array():
        return [_filled(field.array_of, each) for each in value]
    return _filled(field, value) if field.is_struct() else value


def _records(*, is_transactional: bool) -> bytes:
    producer = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0} if is_transactional else {}
    builder = RecordBatchBuilder(is_transactional=is_transactional, **producer)
    builder.append(0, b"k", b"v")
    return bytes(builder.build())


_PLAIN, _TRANSACTIONAL = _records(is_transactional=False), _records(is_transactional=True)


def _produced(records: bytes, *topics: str) -> list[dict[str, Any]]:
    partitions = [{"index": number, "records": records} for number in range(2)]
    return [{"name": topic, "partition_data": partitions} for topic in topics]


def _fetched(**topic: Any) -> list[dict[str, Any]]:
    partitions = [{"partition": number, "partition_max_bytes": 100} for number in range(2)]
    return [topic | {"partitions": partitions}]


def _partitions(key: str, name: str, *topics: str, **partition: Any) -> list[dict[str, Any]]:
    """Two partitions each; ``key`` is what the message calls a partition's number."""
    return [{name: topic, "partitions": [{key: number} | partition for number in range(2)]} for topic in topics]


_STATE = {"topic_name": "t", "topic_id": KNOWN_ID, "partition_states": [{"partition_index": 0}]}

BETWEEN_BROKERS = [
    Case("LeaderAndIsr", ApiKey.LEADER_AND_ISR, 7, {"topic_states": [_STATE]}, [CLUSTER_ACTION], {CLUSTER}),
    Case(
        "StopReplica",
        ApiKey.STOP_REPLICA,
        4,
        {"topic_states": [{"topic_name": "t", "partition_states": [{"partition_index": 0, "delete_partition": True}]}]},
        [CLUSTER_ACTION],
        {CLUSTER},
    ),
    Case("UpdateMetadata", ApiKey.UPDATE_METADATA, 8, {"topic_states": [_STATE]}, [CLUSTER_ACTION], {CLUSTER}),
    Case("ControlledShutdown", ApiKey.CONTROLLED_SHUTDOWN, 3, {"broker_id": 1}, [CLUSTER_ACTION], {CLUSTER}),
    Case(
        "AlterPartition",
        ApiKey.ALTER_PARTITION,
        3,
        {"broker_id": 1, "topics": [{"topic_id": KNOWN_ID, "partitions": [{"partition_index": 0}]}]},
        [CLUSTER_ACTION],
        {CLUSTER},
    ),
    Case("AllocateProducerIds", ApiKey.ALLOCATE_PRODUCER_IDS, 0, {"broker_id": 1}, [CLUSTER_ACTION], {CLUSTER}),
    Case(
        "AddPartitionsToTxn-of-leader",
        ApiKey.ADD_PARTITIONS_TO_TXN,
        4,
        {"transactions": [{"transactional_id": "x", "topics": [{"name": "t", "partitions": [0]}]}]},
        [CLUSTER_ACTION],
        {CLUSTER},
    ),
    Case(
        "WriteTxnMarkers",
        ApiKey.WRITE_TXN_MARKERS,
        1,
        {"markers": [{"producer_id": 5, "topics": [{"name": "t", "partition_indexes": [0, 1]}]}]},
        [f"(ALTER {ON_CLUSTER})", CLUSTER_ACTION],
        {CLUSTER},
        parts=("turns",),
    ),
    Case("ProbeBroker", ApiKey.PROBE_BROKER, 0, {"broker_id": 1, "host": "h"}, [CLUSTER_ACTION], {CLUSTER}),
    Case(
        "GetReplicaLogInfo",
        ApiKey.GET_REPLICA_LOG_INFO,
        0,
        {"topics": [{"name": "t", "topic_id": KNOWN_ID, "partitions": [0]}]},
        [CLUSTER_ACTION],
        {CLUSTER},
    ),
]
"""What only brokers ask of each other."""

_READING = ("fetch_sessions", "clock", "config", "metadata", "replicas")

RECORDS = [
    Case(
        "Produce",
        ApiKey.PRODUCE,
        9,
        {"acks": 1, "topic_data": _produced(_PLAIN, "t", "u")},
        ["WRITE topic t", "WRITE topic u"],
        {TOPIC},
        parts=("preparation", "txn_entry", "replicas"),
    ),
    Case(
        "Produce-with-wrong-acks",
        ApiKey.PRODUCE,
        9,
        {"acks": 5, "topic_data": _produced(_PLAIN, "t", "u")},
        ["WRITE topic t", "WRITE topic u"],
        {TOPIC, ErrorCode.INVALID_REQUIRED_ACKS},
        allowed=("WRITE topic u",),
    ),
    Case(
        "Produce-in-a-transaction",
        ApiKey.PRODUCE,
        9,
        {"acks": 1, "transactional_id": "x", "topic_data": _produced(_TRANSACTIONAL, "t")},
        ["WRITE transactional id x"],
        {TRANSACTIONAL_ID},
        allowed=("WRITE topic t",),
        parts=("preparation", "txn_entry", "replicas"),
    ),
    Case(
        "Produce-in-a-transaction-without-id",
        ApiKey.PRODUCE,
        9,
        {"acks": 1, "transactional_id": None, "topic_data": _produced(_TRANSACTIONAL, "t")},
        [],
        {TRANSACTIONAL_ID},
        allowed=("WRITE topic t",),
        parts=("preparation", "txn_entry", "replicas"),
    ),
    Case(
        "Fetch",
        ApiKey.FETCH,
        12,
        {"topics": _fetched(topic="t") + _fetched(topic="u")},
        ["READ topic t", "READ topic u"],
        {TOPIC},
        parts=_READING,
    ),
    Case(
        "Fetch-by-id",
        ApiKey.FETCH,
        15,
        {"topics": _fetched(topic_id=KNOWN_ID) + _fetched(topic_id=UNKNOWN_ID)},
        ["READ topic t"],
        {TOPIC, ErrorCode.UNKNOWN_TOPIC_ID},
        parts=_READING,
    ),
    Case(
        "Fetch-of-follower",
        ApiKey.FETCH,
        15,
        {
            "replica_state": {"replica_id": 2, "replica_epoch": 1},
            "topics": _fetched(topic_id=KNOWN_ID) + _fetched(topic_id=UNKNOWN_ID),
        },
        [CLUSTER_ACTION],
        {TOPIC},
        allowed=("READ topic t",),
        parts=_READING,
    ),
    Case(
        "ListOffsets",
        ApiKey.LIST_OFFSETS,
        9,
        {"topics": _partitions("partition_index", "name", "t", "u", timestamp=-1)},
        ["DESCRIBE topic t", "DESCRIBE topic u"],
        {TOPIC},
    ),
]

METADATA = [
    Case(
        "Metadata",
        ApiKey.METADATA,
        12,
        {"topics": [{"name": "t"}, {"name": "there is no such topic"}], "allow_auto_topic_creation": True},
        ["DESCRIBE topic t", "DESCRIBE topic there is no such topic"],
        {TOPIC},
        parts=("metadata", "cluster_id", "config"),
    ),
    Case(
        "Metadata-by-id",
        ApiKey.METADATA,
        12,
        {"topics": [{"name": None, "topic_id": KNOWN_ID}, {"name": None, "topic_id": UNKNOWN_ID}]},
        ["DESCRIBE topic t"],
        {TOPIC, ErrorCode.UNKNOWN_TOPIC_ID},
        parts=("metadata", "cluster_id", "config"),
    ),
    Case(
        "Metadata-of-all",
        ApiKey.METADATA,
        10,
        {"topics": None, "include_cluster_authorized_operations": True},
        ["(DESCRIBE topic t)", f"DESCRIBE {ON_CLUSTER}"],
        set(),
        parts=("metadata", "cluster_id", "config"),
    ),
    Case(
        "Metadata-that-creates",
        ApiKey.METADATA,
        12,
        {"topics": [{"name": "new"}], "allow_auto_topic_creation": True},
        ["DESCRIBE topic new", f"(CREATE {ON_CLUSTER})", "CREATE topic new"],
        {TOPIC},
        allowed=("DESCRIBE topic new",),
        parts=("metadata", "cluster_id", "config", "turns"),
    ),
]

_FINDING = {"resource_type_filter": 1, "operation": 1, "permission_type": 1}
LISTS = [
    Case("DescribeAcls", ApiKey.DESCRIBE_ACLS, 3, _FINDING, [f"DESCRIBE {ON_CLUSTER}"], {CLUSTER}),
    Case(
        "CreateAcls",
        ApiKey.CREATE_ACLS,
        3,
        {"creations": [{"resource_type": 2, "resource_name": "t", "operation": 3, "permission_type": 3}]},
        [f"ALTER {ON_CLUSTER}"],
        {CLUSTER},
        parts=("turns",),
    ),
    Case(
        "DeleteAcls",
        ApiKey.DELETE_ACLS,
        3,
        {"filters": [_FINDING]},
        [f"ALTER {ON_CLUSTER}"],
        {CLUSTER},
        parts=("turns",),
    ),
]
CASES = [*BETWEEN_BROKERS, *RECORDS, *METADATA, *LISTS]
