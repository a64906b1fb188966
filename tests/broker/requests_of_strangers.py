"""A request of every API, what is asked before it is served, and what a caller without any right is answered.

Requests are written as their fields; what is left out has its default.
"""

from types import SimpleNamespace
from typing import Any, NamedTuple
from uuid import UUID

from sparklog.config.security_protocol import SecurityProtocol
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
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    """By which the caller has come."""


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

READ_GROUP = "READ group g"
_OF_GROUP = {"group_id": "g"}
_OFFSETS = _partitions("partition_index", "name", "t", "u")
_COMMITTING = ("groups", "clock", "metadata", "turns")

METADATA += [
    Case(
        "Metadata-that-creates-what-cannot-be",
        ApiKey.METADATA,
        12,
        {"topics": [{"name": "no such name"}], "allow_auto_topic_creation": True},
        ["DESCRIBE topic no such name", f"(CREATE {ON_CLUSTER})", "CREATE topic no such name"],
        {TOPIC},
        allowed=("DESCRIBE topic no such name",),
        parts=("metadata", "cluster_id", "config", "turns"),
    ),
]

GROUPS = [
    Case(
        "OffsetCommit",
        ApiKey.OFFSET_COMMIT,
        8,
        _OF_GROUP | {"topics": _OFFSETS},
        [READ_GROUP],
        {GROUP},
        allowed=("READ topic t",),
        parts=("turns",),
    ),
    Case(
        "OffsetCommit-of-topics",
        ApiKey.OFFSET_COMMIT,
        8,
        _OF_GROUP | {"topics": _OFFSETS},
        [READ_GROUP, "READ topic t", "READ topic u"],
        {TOPIC},
        allowed=(READ_GROUP,),
        parts=_COMMITTING,
    ),
    Case(
        "OffsetFetch",
        ApiKey.OFFSET_FETCH,
        8,
        {"groups": [_OF_GROUP | {"topics": None}, {"group_id": "h", "topics": []}]},
        ["DESCRIBE group g", "DESCRIBE group h"],
        {GROUP},
    ),
    Case(
        "OffsetFetch-of-topics",
        ApiKey.OFFSET_FETCH,
        7,
        _OF_GROUP | {"topics": [{"name": "t", "partition_indexes": [0, 1]}, {"name": "u", "partition_indexes": [0]}]},
        ["DESCRIBE group g", "DESCRIBE topic t", "DESCRIBE topic u"],
        {TOPIC},
        allowed=("DESCRIBE group g",),
        parts=("groups",),
    ),
    Case(
        "OffsetFetch-of-all-topics",
        ApiKey.OFFSET_FETCH,
        7,
        _OF_GROUP | {"topics": None},
        ["DESCRIBE group g", "(DESCRIBE topic t)", "(DESCRIBE topic u)"],
        set(),
        allowed=("DESCRIBE group g",),
        parts=("groups",),
    ),
    Case("FindCoordinator", ApiKey.FIND_COORDINATOR, 3, {"key": "g", "key_type": 0}, ["DESCRIBE group g"], {GROUP}),
    Case(
        "FindCoordinator-of-several",
        ApiKey.FIND_COORDINATOR,
        4,
        {"key_type": 1, "coordinator_keys": ["x", "y"]},
        ["DESCRIBE transactional id x", "DESCRIBE transactional id y"],
        {TRANSACTIONAL_ID},
        parts=("turns",),
    ),
    Case("JoinGroup", ApiKey.JOIN_GROUP, 7, _OF_GROUP | {"protocols": []}, [READ_GROUP], {GROUP}),
    Case("SyncGroup", ApiKey.SYNC_GROUP, 4, _OF_GROUP, [READ_GROUP], {GROUP}),
    Case("Heartbeat", ApiKey.HEARTBEAT, 4, _OF_GROUP, [READ_GROUP], {GROUP}),
    Case("LeaveGroup", ApiKey.LEAVE_GROUP, 2, _OF_GROUP, [READ_GROUP], {GROUP}),
    Case(
        "LeaveGroup-of-several",
        ApiKey.LEAVE_GROUP,
        5,
        _OF_GROUP | {"members": [{"member_id": "m"}]},
        [READ_GROUP],
        {GROUP},
    ),
    Case(
        "DescribeGroups",
        ApiKey.DESCRIBE_GROUPS,
        5,
        {"groups": ["g", "h"], "include_authorized_operations": True},
        ["DESCRIBE group g", "DESCRIBE group h"],
        {GROUP},
    ),
    Case(
        "ListGroups",
        ApiKey.LIST_GROUPS,
        4,
        {},
        [f"(DESCRIBE {ON_CLUSTER})", "(DESCRIBE group g)"],
        set(),
        parts=("groups",),
    ),
    Case(
        "DeleteGroups",
        ApiKey.DELETE_GROUPS,
        2,
        {"groups_names": ["g", "h"]},
        ["DELETE group g", "DELETE group h"],
        {GROUP},
        parts=("turns",),
    ),
    Case("OffsetDelete", ApiKey.OFFSET_DELETE, 0, _OF_GROUP | {"topics": _OFFSETS}, ["DELETE group g"], {GROUP}),
    Case(
        "OffsetDelete-of-topics",
        ApiKey.OFFSET_DELETE,
        0,
        _OF_GROUP | {"topics": _OFFSETS},
        ["DELETE group g", "READ topic t", "READ topic u"],
        {TOPIC},
        allowed=("DELETE group g",),
        parts=("groups", "turns"),
    ),
    Case("ConsumerGroupHeartbeat", ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, _OF_GROUP, [READ_GROUP], {GROUP}),
    Case(
        "ConsumerGroupHeartbeat-of-topics",
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        0,
        _OF_GROUP | {"subscribed_topic_names": ["t", "u"]},
        [READ_GROUP, "DESCRIBE topic t", "DESCRIBE topic u"],
        {TOPIC},
        allowed=(READ_GROUP, "DESCRIBE topic t"),
    ),
    Case(
        "ConsumerGroupDescribe",
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        0,
        {"group_ids": ["g", "h"]},
        ["DESCRIBE group g", "DESCRIBE group h"],
        {GROUP},
    ),
]

WRITE_ID = "WRITE transactional id x"
_OF_ID = {"transactional_id": "x"}
_ADDED = {
    "v3_and_below_transactional_id": "x",
    "v3_and_below_topics": [
        {"name": "t", "partitions": [0, 1]},
        {"name": "u", "partitions": [0]},
        {"name": "__consumer_offsets", "partitions": [0]},
    ],
}

TRANSACTIONS = [
    Case("InitProducerId", ApiKey.INIT_PRODUCER_ID, 4, _OF_ID, [WRITE_ID], {TRANSACTIONAL_ID}),
    Case(
        "InitProducerId-without-id",
        ApiKey.INIT_PRODUCER_ID,
        4,
        {"transactional_id": None},
        [f"(IDEMPOTENT_WRITE {ON_CLUSTER})", "WRITE any topic"],
        {CLUSTER},
    ),
    Case(
        "AddPartitionsToTxn",
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        _ADDED,
        [WRITE_ID],
        {TRANSACTIONAL_ID},
        allowed=("WRITE topic t",),
        parts=("turns",),
    ),
    Case(
        "AddPartitionsToTxn-of-topics",
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        _ADDED,
        [WRITE_ID, "WRITE topic t", "WRITE topic u"],
        {TOPIC, NOT_ATTEMPTED},
        allowed=(WRITE_ID, "WRITE topic t"),
        parts=("metadata", "turns"),
    ),
    Case("AddOffsetsToTxn", ApiKey.ADD_OFFSETS_TO_TXN, 3, _OF_ID | _OF_GROUP, [WRITE_ID], {TRANSACTIONAL_ID}),
    Case(
        "AddOffsetsToTxn-of-group",
        ApiKey.ADD_OFFSETS_TO_TXN,
        3,
        _OF_ID | _OF_GROUP,
        [WRITE_ID, READ_GROUP],
        {GROUP},
        allowed=(WRITE_ID,),
    ),
    Case("EndTxn", ApiKey.END_TXN, 3, _OF_ID, [WRITE_ID], {TRANSACTIONAL_ID}),
    Case(
        "TxnOffsetCommit",
        ApiKey.TXN_OFFSET_COMMIT,
        3,
        _OF_ID | _OF_GROUP | {"topics": _OFFSETS},
        [WRITE_ID],
        {TRANSACTIONAL_ID},
        parts=("turns",),
    ),
    Case(
        "TxnOffsetCommit-of-group",
        ApiKey.TXN_OFFSET_COMMIT,
        3,
        _OF_ID | _OF_GROUP | {"topics": _OFFSETS},
        [WRITE_ID, READ_GROUP],
        {GROUP},
        allowed=(WRITE_ID,),
        parts=("turns",),
    ),
    Case(
        "TxnOffsetCommit-of-topics",
        ApiKey.TXN_OFFSET_COMMIT,
        3,
        _OF_ID | _OF_GROUP | {"topics": _OFFSETS},
        [WRITE_ID, READ_GROUP, "READ topic t", "READ topic u"],
        {TOPIC},
        allowed=(WRITE_ID, READ_GROUP),
        parts=_COMMITTING,
    ),
    Case(
        "DescribeTransactions",
        ApiKey.DESCRIBE_TRANSACTIONS,
        0,
        {"transactional_ids": ["x", "y"]},
        ["DESCRIBE transactional id x", "DESCRIBE transactional id y"],
        {TRANSACTIONAL_ID},
    ),
    Case(
        "DescribeTransactions-of-topics",
        ApiKey.DESCRIBE_TRANSACTIONS,
        0,
        {"transactional_ids": ["x"]},
        ["DESCRIBE transactional id x", "(DESCRIBE topic t)"],
        set(),
        allowed=("DESCRIBE transactional id x",),
        parts=("transactions",),
    ),
    Case(
        "ListTransactions",
        ApiKey.LIST_TRANSACTIONS,
        0,
        {"state_filters": [], "producer_id_filters": []},
        ["(DESCRIBE transactional id x)"],
        set(),
        parts=("transactions", "clock", "turns"),
    ),
]

_MAY_CREATE = f"(CREATE {ON_CLUSTER})"

TOPICS = [
    Case(
        "CreateTopics",
        ApiKey.CREATE_TOPICS,
        7,
        {"topics": [{"name": name, "assignments": [], "configs": []} for name in ("t", "new")], "timeout_ms": 1000},
        [
            _MAY_CREATE,
            "CREATE topic t",
            "CREATE topic new",
            "(DESCRIBE_CONFIGS topic t)",
            "(DESCRIBE_CONFIGS topic new)",
        ],
        {TOPIC},
        parts=("controller", "turns", "settings"),
    ),
    Case(
        "DeleteTopics",
        ApiKey.DELETE_TOPICS,
        5,
        {"topic_names": ["t", "new"], "timeout_ms": 1000},
        ["DELETE topic t", "DELETE topic new"],
        {TOPIC},
        parts=("controller", "turns", "metadata"),
    ),
    Case(
        "DeleteTopics-by-id",
        ApiKey.DELETE_TOPICS,
        6,
        {"topics": [{"name": None, "topic_id": KNOWN_ID}, {"name": None, "topic_id": UNKNOWN_ID}], "timeout_ms": 1000},
        ["DESCRIBE topic t"],
        {TOPIC, ErrorCode.UNKNOWN_TOPIC_ID},
        allowed=("DELETE topic t",),
        parts=("controller", "turns", "metadata"),
    ),
    Case(
        "DeleteTopics-by-id-that-may-be-described",
        ApiKey.DELETE_TOPICS,
        6,
        {"topics": [{"name": None, "topic_id": KNOWN_ID}], "timeout_ms": 1000},
        ["DESCRIBE topic t", "DELETE topic t"],
        {TOPIC},
        allowed=("DESCRIBE topic t",),
        parts=("controller", "turns", "metadata"),
    ),
    Case(
        "DeleteRecords",
        ApiKey.DELETE_RECORDS,
        2,
        {"topics": _partitions("partition_index", "name", "t", "u")},
        ["DELETE topic t", "DELETE topic u"],
        {TOPIC},
    ),
    Case(
        "CreatePartitions",
        ApiKey.CREATE_PARTITIONS,
        3,
        {"topics": [{"name": name, "count": 5, "assignments": None} for name in ("t", "new")], "timeout_ms": 1000},
        ["ALTER topic t", "ALTER topic new"],
        {TOPIC},
        parts=("controller", "turns"),
    ),
    Case(
        "OffsetForLeaderEpoch",
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        4,
        {"topics": _partitions("partition", "topic", "t", "u")},
        [f"({CLUSTER_ACTION})", "DESCRIBE topic t", "DESCRIBE topic u"],
        {TOPIC},
    ),
    Case(
        "DescribeProducers",
        ApiKey.DESCRIBE_PRODUCERS,
        0,
        {"topics": [{"name": name, "partition_indexes": [0, 1]} for name in ("t", "u")]},
        ["READ topic t", "READ topic u"],
        {TOPIC},
    ),
    Case(
        "DescribeTopicPartitions",
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        {"topics": [{"name": "t"}, {"name": "u"}], "cursor": None},
        ["DESCRIBE topic t", "DESCRIBE topic u"],
        {TOPIC},
        parts=("config",),
    ),
    Case(
        "DescribeTopicPartitions-of-all",
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        {"topics": [], "cursor": None},
        ["(DESCRIBE topic t)"],
        set(),
        parts=("config", "metadata"),
    ),
]


def _settings(name: str, **more: Any) -> dict[str, Any]:
    whose = ((2, "t"), (4, "0"), (8, "0"))
    return {"resources": [{"resource_type": kind, "resource_name": of} | more for kind, of in whose]} | (
        {"include_synonyms": False} if name == "describe" else {"validate_only": False}
    )


_ALTERS = ["ALTER_CONFIGS topic t", *[f"ALTER_CONFIGS {ON_CLUSTER}"] * 2]

ADMINISTRATION = [
    Case(
        "DescribeConfigs",
        ApiKey.DESCRIBE_CONFIGS,
        4,
        _settings("describe", configuration_keys=None),
        ["DESCRIBE_CONFIGS topic t", *[f"DESCRIBE_CONFIGS {ON_CLUSTER}"] * 2],
        {TOPIC, CLUSTER},
        parts=("turns",),
    ),
    Case(
        "AlterConfigs",
        ApiKey.ALTER_CONFIGS,
        2,
        _settings("alter", configs=[]),
        _ALTERS[:2],
        {TOPIC, CLUSTER, ErrorCode.INVALID_REQUEST},
        parts=("turns",),
    ),
    Case(
        "IncrementalAlterConfigs",
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        _settings("alter", configs=[]),
        _ALTERS,
        {TOPIC, CLUSTER},
        parts=("turns",),
    ),
    Case(
        "AlterReplicaLogDirs",
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        2,
        {"dirs": [{"path": "/x", "topics": [{"name": "t", "partitions": [0, 1]}]}]},
        [f"ALTER {ON_CLUSTER}"],
        {CLUSTER},
        parts=("turns",),
    ),
    Case("DescribeLogDirs", ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None}, [f"DESCRIBE {ON_CLUSTER}"], {CLUSTER}),
    Case(
        "ElectLeaders",
        ApiKey.ELECT_LEADERS,
        2,
        {"topic_partitions": [{"topic": "t", "partitions": [0, 1]}]},
        [f"ALTER {ON_CLUSTER}"],
        {CLUSTER},
    ),
    Case(
        "ElectLeaders-everywhere",
        ApiKey.ELECT_LEADERS,
        2,
        {"topic_partitions": None},
        [f"ALTER {ON_CLUSTER}"],
        {CLUSTER},
    ),
    Case(
        "AlterPartitionReassignments",
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        0,
        {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "replicas": [1]}]}]},
        [f"ALTER {ON_CLUSTER}"],
        {CLUSTER},
    ),
    Case(
        "ListPartitionReassignments",
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        0,
        {"topics": None},
        [f"DESCRIBE {ON_CLUSTER}"],
        {CLUSTER},
    ),
    Case(
        "DescribeCluster",
        ApiKey.DESCRIBE_CLUSTER,
        0,
        {"include_cluster_authorized_operations": True},
        [f"DESCRIBE {ON_CLUSTER}"],
        set(),
        parts=("metadata", "cluster_id"),
    ),
]

_ENTRY = {
    "resource_type": 2,
    "resource_name": "t",
    "principal": "User:a",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
_FILTER = {"resource_type_filter": 2, "resource_name_filter": None, "operation": 1, "permission_type": 1}

LISTS = [
    Case("DescribeAcls", ApiKey.DESCRIBE_ACLS, 1, _FILTER, [f"DESCRIBE {ON_CLUSTER}"], {CLUSTER}, parts=("acls",)),
    Case(
        "CreateAcls",
        ApiKey.CREATE_ACLS,
        1,
        {"creations": [_ENTRY]},
        [f"ALTER {ON_CLUSTER}"],
        {CLUSTER},
        parts=("acls", "turns"),
    ),
    Case(
        "DeleteAcls",
        ApiKey.DELETE_ACLS,
        1,
        {"filters": [_FILTER]},
        [f"ALTER {ON_CLUSTER}"],
        {CLUSTER},
        parts=("acls", "turns"),
    ),
]
"""Of the access control lists themselves."""

QUOTAS = [
    Case(
        "DescribeClientQuotas",
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        1,
        {"components": [{"entity_type": "user", "match_type": 0, "match": "a"}]},
        [f"DESCRIBE_CONFIGS {ON_CLUSTER}"],
        {CLUSTER},
    ),
    Case(
        "AlterClientQuotas",
        ApiKey.ALTER_CLIENT_QUOTAS,
        1,
        {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "a"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}],
                }
            ]
        },
        [f"ALTER_CONFIGS {ON_CLUSTER}"],
        {CLUSTER},
        parts=("turns",),
    ),
]
"""Of the quotas."""

USERS = [
    Case(
        "DescribeUserScramCredentials",
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        0,
        {"users": [{"name": "alice"}]},
        [f"DESCRIBE {ON_CLUSTER}"],
        {CLUSTER},
    ),
    Case(
        "AlterUserScramCredentials",
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        {"deletions": [{"name": "alice", "mechanism": 1}], "upsertions": [{"name": "bob", "mechanism": 2}]},
        [f"ALTER {ON_CLUSTER}"],
        {CLUSTER},
        parts=("controller", "turns"),
    ),
]
"""Of the users that authenticate by SCRAM."""

_FOR_BOB = {"owner_principal_type": "User", "owner_principal_name": "bob", "renewers": [], "max_lifetime_ms": -1}
_BY_SASL, _BY_TLS = SecurityProtocol.SASL_SSL, SecurityProtocol.SSL
_NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
_CREATE, _DESCRIBE = ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN
_RENEWAL, _END = {"hmac": b"h", "renew_period_ms": -1}, {"hmac": b"h", "expiry_time_period_ms": -1}

TOKENS = [
    Case(
        "CreateDelegationToken",
        _CREATE,
        3,
        _FOR_BOB,
        ["CREATE_TOKENS user User:bob"],
        {ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED},
        protocol=_BY_SASL,
    ),
    Case("CreateDelegationToken-plainly", _CREATE, 3, _FOR_BOB, [], {_NOT_ALLOWED}),
    Case("CreateDelegationToken-of-nobody", _CREATE, 3, _FOR_BOB, [], {_NOT_ALLOWED}, protocol=_BY_TLS),
    Case("RenewDelegationToken-plainly", ApiKey.RENEW_DELEGATION_TOKEN, 2, _RENEWAL, [], {_NOT_ALLOWED}),
    Case(
        "RenewDelegationToken",
        ApiKey.RENEW_DELEGATION_TOKEN,
        2,
        _RENEWAL,
        [],
        {ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH},
        parts=("tokens",),
        protocol=_BY_SASL,
    ),
    Case("ExpireDelegationToken-plainly", ApiKey.EXPIRE_DELEGATION_TOKEN, 2, _END, [], {_NOT_ALLOWED}),
    Case(
        "ExpireDelegationToken",
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        2,
        _END,
        [],
        {ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH},
        parts=("tokens",),
        protocol=_BY_SASL,
    ),
    Case("DescribeDelegationToken-plainly", _DESCRIBE, 3, {"owners": None}, [], {_NOT_ALLOWED}),
    Case(
        "DescribeDelegationToken",
        _DESCRIBE,
        3,
        {"owners": None},
        ["(DESCRIBE delegation token a)", "(DESCRIBE_TOKENS user User:alice)"],
        set(),
        parts=("tokens",),
        protocol=_BY_SASL,
    ),
]
"""Of delegation tokens. There is one, ``a``, which is ``User:alice``'s."""

_ADOPTION = {"topic": "t", "topic_id": KNOWN_ID, "tag": "tag", "bases": [0], "timeout_ms": 1000}

OWN = [
    Case(
        "LeaseSegments",
        ApiKey.LEASE_SEGMENTS,
        1,
        {
            "topics": [
                {"topic": name, "topic_id": KNOWN_ID, "partitions": [{"partition_index": 0}]} for name in ("t", "u")
            ]
        },
        ["READ topic t", "READ topic u"],
        {TOPIC},
        parts=("leases",),
    ),
    Case(
        "DescribeCompaction",
        ApiKey.DESCRIBE_COMPACTION,
        0,
        {"topics": ["u", "t"]},
        ["DESCRIBE topic t"],
        {TOPIC},
        parts=("cleaner", "config"),
    ),
    Case(
        "DescribeCompaction-of-all",
        ApiKey.DESCRIBE_COMPACTION,
        0,
        {"topics": None},
        ["(DESCRIBE topic t)"],
        set(),
        parts=("cleaner", "config"),
    ),
    Case(
        "CompactPartitions",
        ApiKey.COMPACT_PARTITIONS,
        0,
        {"topics": [{"name": "t", "partitions": [0, 1]}], "since_ms": 7, "timeout_ms": 1000},
        ["ALTER topic t"],
        {TOPIC},
        parts=("turns", "loop"),
    ),
    Case(
        "BeginCompaction",
        ApiKey.BEGIN_COMPACTION,
        0,
        {"topics": [{"name": "t", "partitions": [0, 1]}], "renewed": []},
        ["ALTER topic t"],
        {TOPIC},
        parts=("turns", "cleaning_grants"),
    ),
    Case(
        "CommitCompaction",
        ApiKey.COMMIT_COMPACTION,
        0,
        {"token": 42, "tag": "tag", "report": b"", "old": [], "new": []},
        ["ALTER topic t"],
        {TOPIC},
        parts=("cleaning_grants",),
    ),
    Case(
        "EraseRecords",
        ApiKey.ERASE_RECORDS,
        0,
        {"topic": "t", "keys": b"keys", "partitions": []},
        ["DELETE topic t"],
        {TOPIC},
    ),
    Case(
        "AdoptSegments",
        ApiKey.ADOPT_SEGMENTS,
        0,
        _ADOPTION | {"transactional_id": "x", "mode": 0},
        ["WRITE topic t"],
        {TOPIC},
    ),
    Case(
        "AdoptSegments-of-id",
        ApiKey.ADOPT_SEGMENTS,
        0,
        _ADOPTION | {"transactional_id": "x", "mode": 0},
        ["WRITE topic t", WRITE_ID],
        {TRANSACTIONAL_ID},
        allowed=("WRITE topic t",),
    ),
    Case(
        "AdoptSegments-without-id",
        ApiKey.ADOPT_SEGMENTS,
        0,
        _ADOPTION | {"transactional_id": None, "mode": 0},
        ["WRITE topic t"],
        {TRANSACTIONAL_ID},
        allowed=("WRITE topic t",),
    ),
    Case(
        "AdoptSegments-that-restores",
        ApiKey.ADOPT_SEGMENTS,
        0,
        _ADOPTION | {"transactional_id": None, "mode": 1},
        ["WRITE topic t", "ALTER topic t"],
        {TOPIC},
        allowed=("WRITE topic t",),
    ),
    Case(
        "DescribeLag",
        ApiKey.DESCRIBE_LAG,
        0,
        {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "offset": 5}]}]},
        ["DESCRIBE topic t"],
        {TOPIC},
    ),
    Case("DescribeRetention", ApiKey.DESCRIBE_RETENTION, 0, {"topics": ["u", "t"]}, ["DESCRIBE topic t"], {TOPIC}),
    Case(
        "DescribeRetention-of-all",
        ApiKey.DESCRIBE_RETENTION,
        0,
        {"topics": None},
        ["(DESCRIBE topic t)"],
        set(),
        parts=("replicas",),
    ),
]
"""Sparklog's own APIs."""

CASES = [
    *BETWEEN_BROKERS,
    *RECORDS,
    *METADATA,
    *GROUPS,
    *TRANSACTIONS,
    *TOPICS,
    *ADMINISTRATION,
    *LISTS,
    *QUOTAS,
    *USERS,
    *TOKENS,
    *OWN,
]
