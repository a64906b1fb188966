"""Requests and responses by name, for every version of each.

The classes come from ``kafka-python``'s schema-driven codec: one class per message whatever the version, built from
Kafka's own schema files. A field that a version does not carry reads as its default and is left out when written, so
a handler is written once. Messages that the library lacks (those between brokers) are described in ``schemas``.

Only this module and its siblings in this package import the library.
"""

from __future__ import annotations

import io
import re
import struct
from functools import lru_cache
from typing import Any, NamedTuple

import kafka.protocol.admin as _admin
import kafka.protocol.consumer as _consumer
import kafka.protocol.metadata as _metadata
import kafka.protocol.producer as _producer
import kafka.protocol.sasl as _sasl
from kafka.protocol.api_message import ApiMessage

from sparklog.errors import LocalProtocolError, RemoteProtocolError
from sparklog.protocol import schemas
from sparklog.protocol.api_key import ApiKey

Message = Any
"""A request or response of the schema library; fields by their snake-case names."""


class Encoded(NamedTuple):
    """An answer that is encoded already, in the version asked for."""

    body: bytes


class ConsumerGroupDescribeRequest(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
    """Describe groups of the consumer protocol."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
    """Their epochs, members and assignments; an error for each that is not one."""


class ConsumerGroupHeartbeatRequest(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
    """A member of a group of the consumer protocol joins, stays or leaves."""


class ConsumerGroupHeartbeatResponse(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
    """The member's epoch, and its partitions if they changed."""


class LeaderAndIsrRequest(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
    """Controller to broker: lead or follow these partitions."""


class LeaderAndIsrResponse(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
    """The broker's answer, an error code a partition."""


class LeaseSegmentsRequest(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
    """Which files hold these ranges of offsets, and may they stay for a while? Sparklog's own."""


class LeaseSegmentsResponse(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
    """The files, the bytes of them that may be read, and what a read_committed reader leaves out."""


class OffsetDeleteRequest(ApiMessage):  # type: ignore[misc]
    """Forget a group's offsets in these partitions."""


class OffsetDeleteResponse(ApiMessage):  # type: ignore[misc]
    """An error for the group, or one a partition."""


class StopReplicaRequest(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
    """Controller to broker: stop (and delete) these partitions."""


class StopReplicaResponse(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
    """The broker's answer, an error code a partition."""


class UpdateMetadataRequest(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
    """Controller to broker: the brokers alive, and the partitions that changed."""


class UpdateMetadataResponse(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
    """The broker's answer."""


AddOffsetsToTxnRequest = _producer.AddOffsetsToTxnRequest
AddOffsetsToTxnResponse = _producer.AddOffsetsToTxnResponse
AddPartitionsToTxnRequest = _producer.AddPartitionsToTxnRequest
AddPartitionsToTxnResponse = _producer.AddPartitionsToTxnResponse
AlterConfigsRequest = _admin.AlterConfigsRequest
AlterConfigsResponse = _admin.AlterConfigsResponse
AlterPartitionReassignmentsRequest = _admin.AlterPartitionReassignmentsRequest
AlterPartitionReassignmentsResponse = _admin.AlterPartitionReassignmentsResponse
ApiVersionsRequest = _metadata.ApiVersionsRequest
ApiVersionsResponse = _metadata.ApiVersionsResponse
CreatePartitionsRequest = _admin.CreatePartitionsRequest
CreatePartitionsResponse = _admin.CreatePartitionsResponse
CreateTopicsRequest = _admin.CreateTopicsRequest
CreateTopicsResponse = _admin.CreateTopicsResponse
DeleteRecordsRequest = _admin.DeleteRecordsRequest
DeleteRecordsResponse = _admin.DeleteRecordsResponse
DeleteGroupsRequest = _admin.DeleteGroupsRequest
DeleteGroupsResponse = _admin.DeleteGroupsResponse
DeleteTopicsRequest = _admin.DeleteTopicsRequest
DeleteTopicsResponse = _admin.DeleteTopicsResponse
DescribeClusterRequest = _admin.DescribeClusterRequest
DescribeClusterResponse = _admin.DescribeClusterResponse
DescribeConfigsRequest = _admin.DescribeConfigsRequest
DescribeConfigsResponse = _admin.DescribeConfigsResponse
DescribeGroupsRequest = _admin.DescribeGroupsRequest
DescribeGroupsResponse = _admin.DescribeGroupsResponse
DescribeLogDirsRequest = _admin.DescribeLogDirsRequest
DescribeLogDirsResponse = _admin.DescribeLogDirsResponse
DescribeProducersRequest = _admin.DescribeProducersRequest
DescribeProducersResponse = _admin.DescribeProducersResponse
DescribeTopicPartitionsRequest = _admin.DescribeTopicPartitionsRequest
DescribeTopicPartitionsResponse = _admin.DescribeTopicPartitionsResponse
DescribeTransactionsRequest = _admin.DescribeTransactionsRequest
DescribeTransactionsResponse = _admin.DescribeTransactionsResponse
ElectLeadersRequest = _admin.ElectLeadersRequest
ElectLeadersResponse = _admin.ElectLeadersResponse
EndTxnRequest = _producer.EndTxnRequest
EndTxnResponse = _producer.EndTxnResponse
FetchRequest = _consumer.FetchRequest
FetchResponse = _consumer.FetchResponse
FindCoordinatorRequest = _metadata.FindCoordinatorRequest
FindCoordinatorResponse = _metadata.FindCoordinatorResponse
HeartbeatRequest = _consumer.HeartbeatRequest
HeartbeatResponse = _consumer.HeartbeatResponse
IncrementalAlterConfigsRequest = _admin.IncrementalAlterConfigsRequest
IncrementalAlterConfigsResponse = _admin.IncrementalAlterConfigsResponse
InitProducerIdRequest = _producer.InitProducerIdRequest
InitProducerIdResponse = _producer.InitProducerIdResponse
JoinGroupRequest = _consumer.JoinGroupRequest
JoinGroupResponse = _consumer.JoinGroupResponse
LeaveGroupRequest = _consumer.LeaveGroupRequest
LeaveGroupResponse = _consumer.LeaveGroupResponse
ListGroupsRequest = _admin.ListGroupsRequest
ListGroupsResponse = _admin.ListGroupsResponse
ListOffsetsRequest = _consumer.ListOffsetsRequest
ListOffsetsResponse = _consumer.ListOffsetsResponse
ListPartitionReassignmentsRequest = _admin.ListPartitionReassignmentsRequest
ListPartitionReassignmentsResponse = _admin.ListPartitionReassignmentsResponse
ListTransactionsRequest = _admin.ListTransactionsRequest
ListTransactionsResponse = _admin.ListTransactionsResponse
MetadataRequest = _metadata.MetadataRequest
MetadataResponse = _metadata.MetadataResponse
OffsetCommitRequest = _consumer.OffsetCommitRequest
OffsetCommitResponse = _consumer.OffsetCommitResponse
OffsetFetchRequest = _consumer.OffsetFetchRequest
OffsetFetchResponse = _consumer.OffsetFetchResponse
OffsetForLeaderEpochRequest = _consumer.OffsetForLeaderEpochRequest
OffsetForLeaderEpochResponse = _consumer.OffsetForLeaderEpochResponse
ProduceRequest = _producer.ProduceRequest
ProduceResponse = _producer.ProduceResponse
SaslHandshakeRequest = _sasl.SaslHandshakeRequest
SaslHandshakeResponse = _sasl.SaslHandshakeResponse
SyncGroupRequest = _consumer.SyncGroupRequest
SyncGroupResponse = _consumer.SyncGroupResponse
TxnOffsetCommitRequest = _producer.TxnOffsetCommitRequest
TxnOffsetCommitResponse = _producer.TxnOffsetCommitResponse
WriteTxnMarkersRequest = _producer.WriteTxnMarkersRequest
WriteTxnMarkersResponse = _producer.WriteTxnMarkersResponse


class Schema(NamedTuple):
    """The two classes of one API."""

    request: Message
    response: Message


SCHEMAS: dict[ApiKey, Schema] = {
    ApiKey.ADD_OFFSETS_TO_TXN: Schema(AddOffsetsToTxnRequest, AddOffsetsToTxnResponse),
    ApiKey.ADD_PARTITIONS_TO_TXN: Schema(AddPartitionsToTxnRequest, AddPartitionsToTxnResponse),
    ApiKey.ALTER_CONFIGS: Schema(AlterConfigsRequest, AlterConfigsResponse),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Schema(
        AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse
    ),
    ApiKey.API_VERSIONS: Schema(ApiVersionsRequest, ApiVersionsResponse),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Schema(ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Schema(ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse),
    ApiKey.CREATE_PARTITIONS: Schema(CreatePartitionsRequest, CreatePartitionsResponse),
    ApiKey.CREATE_TOPICS: Schema(CreateTopicsRequest, CreateTopicsResponse),
    ApiKey.DELETE_RECORDS: Schema(DeleteRecordsRequest, DeleteRecordsResponse),
    ApiKey.DELETE_GROUPS: Schema(DeleteGroupsRequest, DeleteGroupsResponse),
    ApiKey.DELETE_TOPICS: Schema(DeleteTopicsRequest, DeleteTopicsResponse),
    ApiKey.DESCRIBE_CLUSTER: Schema(DescribeClusterRequest, DescribeClusterResponse),
    ApiKey.DESCRIBE_CONFIGS: Schema(DescribeConfigsRequest, DescribeConfigsResponse),
    ApiKey.DESCRIBE_GROUPS: Schema(DescribeGroupsRequest, DescribeGroupsResponse),
    ApiKey.DESCRIBE_LOG_DIRS: Schema(DescribeLogDirsRequest, DescribeLogDirsResponse),
    ApiKey.DESCRIBE_PRODUCERS: Schema(DescribeProducersRequest, DescribeProducersResponse),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Schema(DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse),
    ApiKey.DESCRIBE_TRANSACTIONS: Schema(DescribeTransactionsRequest, DescribeTransactionsResponse),
    ApiKey.ELECT_LEADERS: Schema(ElectLeadersRequest, ElectLeadersResponse),
    ApiKey.END_TXN: Schema(EndTxnRequest, EndTxnResponse),
    ApiKey.FETCH: Schema(FetchRequest, FetchResponse),
    ApiKey.FIND_COORDINATOR: Schema(FindCoordinatorRequest, FindCoordinatorResponse),
    ApiKey.HEARTBEAT: Schema(HeartbeatRequest, HeartbeatResponse),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Schema(IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse),
    ApiKey.INIT_PRODUCER_ID: Schema(InitProducerIdRequest, InitProducerIdResponse),
    ApiKey.JOIN_GROUP: Schema(JoinGroupRequest, JoinGroupResponse),
    ApiKey.LEADER_AND_ISR: Schema(LeaderAndIsrRequest, LeaderAndIsrResponse),
    ApiKey.LEASE_SEGMENTS: Schema(LeaseSegmentsRequest, LeaseSegmentsResponse),
    ApiKey.LEAVE_GROUP: Schema(LeaveGroupRequest, LeaveGroupResponse),
    ApiKey.LIST_GROUPS: Schema(ListGroupsRequest, ListGroupsResponse),
    ApiKey.LIST_OFFSETS: Schema(ListOffsetsRequest, ListOffsetsResponse),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Schema(ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse),
    ApiKey.LIST_TRANSACTIONS: Schema(ListTransactionsRequest, ListTransactionsResponse),
    ApiKey.METADATA: Schema(MetadataRequest, MetadataResponse),
    ApiKey.OFFSET_COMMIT: Schema(OffsetCommitRequest, OffsetCommitResponse),
    ApiKey.OFFSET_DELETE: Schema(OffsetDeleteRequest, OffsetDeleteResponse),
    ApiKey.OFFSET_FETCH: Schema(OffsetFetchRequest, OffsetFetchResponse),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Schema(OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
    ApiKey.PRODUCE: Schema(ProduceRequest, ProduceResponse),
    ApiKey.SASL_HANDSHAKE: Schema(SaslHandshakeRequest, SaslHandshakeResponse),
    ApiKey.STOP_REPLICA: Schema(StopReplicaRequest, StopReplicaResponse),
    ApiKey.SYNC_GROUP: Schema(SyncGroupRequest, SyncGroupResponse),
    ApiKey.TXN_OFFSET_COMMIT: Schema(TxnOffsetCommitRequest, TxnOffsetCommitResponse),
    ApiKey.UPDATE_METADATA: Schema(UpdateMetadataRequest, UpdateMetadataResponse),
    ApiKey.WRITE_TXN_MARKERS: Schema(WriteTxnMarkersRequest, WriteTxnMarkersResponse),
}


@lru_cache(maxsize=1024)
def is_flexible(api: ApiKey, version: int) -> bool:
    """Whether this version of the API uses compact lengths and tagged fields."""
    return bool(SCHEMAS[api].request.flexible_version_q(version))


def has_flexible_response_header(api: ApiKey, version: int) -> bool:
    """Whether the response header carries tagged fields; ApiVersions never does, so that any client can read it."""
    return api is not ApiKey.API_VERSIONS and is_flexible(api, version)


def highest_version(api: ApiKey) -> int:
    """The newest version that the schema describes."""
    return int(SCHEMAS[api].request.max_version)


def decode_request(api: ApiKey, version: int, body: memoryview) -> Message:
    """The request in ``body`` (what follows the header). Raises RemoteProtocolError if it is malformed."""
    schema = SCHEMAS[api].request
    message = _decode(schema, version, body)
    reject_nulls(schema._struct, message, version)
    return message


def reject_nulls(schema: Any, message: Message, version: int) -> None:
    """Raises RemoteProtocolError where a field is null that may not be; the library lets it pass."""
    for field in schema.untagged_fields(version):
        value = getattr(message, field.name)
        if value is None:
            reject_null(field, type(message).__name__, version)
        elif field.is_struct():
            reject_nulls(field, value, version)
        elif field.is_struct_array():
            for each in value:
                reject_nulls(field.array_of, each, version)
        elif field.is_array() and None in value:
            raise RemoteProtocolError(f"malformed {type(message).__name__} version {version}: null in {field.name}")


def reject_null(field: Any, kind: str, version: int) -> None:
    """Raises RemoteProtocolError unless the ``field`` of a message of this ``kind`` may be null."""
    null = field.is_array() or field.type_str in ("string", "bytes")
    if null and not field.nullable_for_version_q(version):
        raise RemoteProtocolError(f"malformed {kind} version {version}: {field.name} is null")


def decode_response(api: ApiKey, version: int, body: memoryview) -> Message:
    """The response in ``body`` (what follows the header). Raises RemoteProtocolError if it is malformed."""
    return _decode(SCHEMAS[api].response, version, body)


DECODE_ERRORS = (ValueError, IndexError, struct.error, TypeError, OverflowError, MemoryError, AssertionError)
"""What the library raises where a message is malformed."""
ENCODE_ERRORS = (ValueError, TypeError, AttributeError, struct.error)
"""What the library raises where a field does not fit its type."""
ENDLESS_VARINT = re.compile(rb"[\x80-\xff]{5}")
"""Where a varint may be longer than five bytes; the library's fast decoder would follow it however long it is."""


def _decode(schema: Message, version: int, body: memoryview) -> Message:
    flexible = schema.flexible_version_q(version)
    form = {"version": version, "compact": flexible, "tagged": flexible, "data_class": schema}
    try:
        if flexible and ENDLESS_VARINT.search(body):
            return schema._struct.decode(io.BytesIO(body), **form)  # the slow decoder, which checks each length
        message, end = schema._struct.compiled_decode_from(**form)(body, 0)
    except DECODE_ERRORS as error:
        raise RemoteProtocolError(f"malformed {schema.name} version {version}: {error}") from error
    if end > len(body):
        raise RemoteProtocolError(f"malformed {schema.name} version {version}: it ends in the middle of a field")
    return message


def encode(message: Message, version: int) -> bytes:
    """The message's body in ``version``. Raises LocalProtocolError if a field does not fit its type."""
    try:
        return bytes(message.encode(version=version))
    except ENCODE_ERRORS as error:
        raise LocalProtocolError(f"cannot encode {message.name} version {version}: {error}") from error
