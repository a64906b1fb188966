"""The fields of every message. Made from the schemas: ``python -m sparklog.protocol.message_stubs``.

A field is None where a version may leave it out, or may say null: so is an id that is all zeros. What is not given to
a constructor is the schema's default. An array may be given as any sequence; one that was read is a list.
"""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar
from uuid import UUID

from sparklog.protocol.api_key import ApiKey

A = TypeVar("A", bound=Response)

class Struct:
    """A message, or a structure within one."""

    _struct: ClassVar[Any]

class Message(Struct):
    """A request or response."""

    API_KEY: ClassVar[int]
    name: ClassVar[str]
    max_version: ClassVar[int]
    @classmethod
    def flexible_version_q(cls, version: int) -> bool: ...
    def encode(self, version: int) -> bytes: ...

class Response(Message): ...

class Request(Message, Generic[A]):
    """What is answered with an ``A``."""

class Schema(NamedTuple):
    """The two classes of one API."""

    request: type[Request[Response]]
    response: type[Response]

SCHEMAS: dict[ApiKey, Schema]

class ProduceRequest(Request[ProduceResponse]):
    class TopicProduceData(Struct):
        class PartitionProduceData(Struct):
            index: int
            records: bytes | None
            def __init__(
                self,
                *,
                index: int = ...,
                records: bytes | None = ...,
                version: int | None = ...,
            ) -> None: ...

        name: str
        topic_id: UUID | None
        partition_data: list[PartitionProduceData]
        def __init__(
            self,
            *,
            name: str = ...,
            topic_id: UUID | None = ...,
            partition_data: Sequence[PartitionProduceData] = ...,
            version: int | None = ...,
        ) -> None: ...

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topic_data: list[TopicProduceData]
    def __init__(
        self,
        *,
        transactional_id: str | None = ...,
        acks: int = ...,
        timeout_ms: int = ...,
        topic_data: Sequence[TopicProduceData] = ...,
        version: int | None = ...,
    ) -> None: ...

class ProduceResponse(Response):
    class TopicProduceResponse(Struct):
        class PartitionProduceResponse(Struct):
            class BatchIndexAndErrorMessage(Struct):
                batch_index: int
                batch_index_error_message: str | None
                def __init__(
                    self,
                    *,
                    batch_index: int = ...,
                    batch_index_error_message: str | None = ...,
                    version: int | None = ...,
                ) -> None: ...

            class LeaderIdAndEpoch(Struct):
                leader_id: int
                leader_epoch: int
                def __init__(
                    self,
                    *,
                    leader_id: int = ...,
                    leader_epoch: int = ...,
                    version: int | None = ...,
                ) -> None: ...

            index: int
            error_code: int
            base_offset: int
            log_append_time_ms: int
            log_start_offset: int
            record_errors: list[BatchIndexAndErrorMessage]
            error_message: str | None
            current_leader: LeaderIdAndEpoch | None
            def __init__(
                self,
                *,
                index: int = ...,
                error_code: int = ...,
                base_offset: int = ...,
                log_append_time_ms: int = ...,
                log_start_offset: int = ...,
                record_errors: Sequence[BatchIndexAndErrorMessage] = ...,
                error_message: str | None = ...,
                current_leader: LeaderIdAndEpoch | None = ...,
                version: int | None = ...,
            ) -> None: ...

        name: str
        topic_id: UUID | None
        partition_responses: list[PartitionProduceResponse]
        def __init__(
            self,
            *,
            name: str = ...,
            topic_id: UUID | None = ...,
            partition_responses: Sequence[PartitionProduceResponse] = ...,
            version: int | None = ...,
        ) -> None: ...

    class NodeEndpoint(Struct):
        node_id: int
        host: str
        port: int
        rack: str | None
        def __init__(
            self,
            *,
            node_id: int = ...,
            host: str = ...,
            port: int = ...,
            rack: str | None = ...,
            version: int | None = ...,
        ) -> None: ...

    responses: list[TopicProduceResponse]
    throttle_time_ms: int
    node_endpoints: list[NodeEndpoint]
    def __init__(
        self,
        *,
        responses: Sequence[TopicProduceResponse] = ...,
        throttle_time_ms: int = ...,
        node_endpoints: Sequence[NodeEndpoint] = ...,
        version: int | None = ...,
    ) -> None: ...

class FetchRequest(Request[FetchResponse]):
    class ReplicaState(Struct):
        replica_id: int
        replica_epoch: int
        def __init__(
            self,
            *,
            replica_id: int = ...,
            replica_epoch: int = ...,
            version: int | None = ...,
        ) -> None: ...

    class FetchTopic(Struct):
        class FetchPartition(Struct):
            partition: int
            current_leader_epoch: int
            fetch_offset: int
            last_fetched_epoch: int
            log_start_offset: int
            partition_max_bytes: int
            replica_directory_id: UUID | None
            high_watermark: int
            def __init__(
                self,
                *,
                partition: int = ...,
                current_leader_epoch: int = ...,
                fetch_offset: int = ...,
                last_fetched_epoch: int = ...,
                log_start_offset: int = ...,
                partition_max_bytes: int = ...,
                replica_directory_id: UUID | None = ...,
                high_watermark: int = ...,
                version: int | None = ...,
            ) -> None: ...

        topic: str
        topic_id: UUID | None
        partitions: list[FetchPartition]
        def __init__(
            self,
            *,
            topic: str = ...,
            topic_id: UUID | None = ...,
            partitions: Sequence[FetchPartition] = ...,
            version: int | None = ...,
        ) -> None: ...

    class ForgottenTopic(Struct):
        topic: str
        topic_id: UUID | None
        partitions: list[int]
        def __init__(
            self,
            *,
            topic: str = ...,
            topic_id: UUID | None = ...,
            partitions: Sequence[int] = ...,
            version: int | None = ...,
        ) -> None: ...

    cluster_id: str | None
    replica_id: int
    replica_state: ReplicaState | None
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic]
    rack_id: str
    def __init__(
        self,
        *,
        cluster_id: str | None = ...,
        replica_id: int = ...,
        replica_state: ReplicaState | None = ...,
        max_wait_ms: int = ...,
        min_bytes: int = ...,
        max_bytes: int = ...,
        isolation_level: int = ...,
        session_id: int = ...,
        session_epoch: int = ...,
        topics: Sequence[FetchTopic] = ...,
        forgotten_topics_data: Sequence[ForgottenTopic] = ...,
        rack_id: str = ...,
        version: int | None = ...,
    ) -> None: ...

class FetchResponse(Response):
    class FetchableTopicResponse(Struct):
        class PartitionData(Struct):
            class EpochEndOffset(Struct):
                epoch: int
                end_offset: int
                def __init__(
                    self,
                    *,
                    epoch: int = ...,
                    end_offset: int = ...,
                    version: int | None = ...,
                ) -> None: ...

            class LeaderIdAndEpoch(Struct):
                leader_id: int
                leader_epoch: int
                def __init__(
                    self,
                    *,
                    leader_id: int = ...,
                    leader_epoch: int = ...,
                    version: int | None = ...,
                ) -> None: ...

            class SnapshotId(Struct):
                end_offset: int
                epoch: int
                def __init__(
                    self,
                    *,
                    end_offset: int = ...,
                    epoch: int = ...,
                    version: int | None = ...,
                ) -> None: ...

            class AbortedTransaction(Struct):
                producer_id: int
                first_offset: int
                def __init__(
                    self,
                    *,
                    producer_id: int = ...,
                    first_offset: int = ...,
                    version: int | None = ...,
                ) -> None: ...

            partition_index: int
            error_code: int
            high_watermark: int
            last_stable_offset: int
            log_start_offset: int
            diverging_epoch: EpochEndOffset | None
            current_leader: LeaderIdAndEpoch | None
            snapshot_id: SnapshotId | None
            aborted_transactions: list[AbortedTransaction] | None
            preferred_read_replica: int
            records: bytes | None
            def __init__(
                self,
                *,
                partition_index: int = ...,
                error_code: int = ...,
                high_watermark: int = ...,
                last_stable_offset: int = ...,
                log_start_offset: int = ...,
                diverging_epoch: EpochEndOffset | None = ...,
                current_leader: LeaderIdAndEpoch | None = ...,
                snapshot_id: SnapshotId | None = ...,
                aborted_transactions: Sequence[AbortedTransaction] | None = ...,
                preferred_read_replica: int = ...,
                records: bytes | None = ...,
                version: int | None = ...,
            ) -> None: ...

        topic: str
        topic_id: UUID | None
        partitions: list[PartitionData]
        def __init__(
            self,
            *,
            topic: str = ...,
            topic_id: UUID | None = ...,
            partitions: Sequence[PartitionData] = ...,
            version: int | None = ...,
        ) -> None: ...

    class NodeEndpoint(Struct):
        node_id: int
        host: str
        port: int
        rack: str | None
        def __init__(
            self,
            *,
            node_id: int = ...,
            host: str = ...,
            port: int = ...,
            rack: str | None = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    session_id: int
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        session_id: int = ...,
        responses: Sequence[FetchableTopicResponse] = ...,
        node_endpoints: Sequence[NodeEndpoint] = ...,
        version: int | None = ...,
    ) -> None: ...

class ListOffsetsRequest(Request[ListOffsetsResponse]):
    class ListOffsetsTopic(Struct):
        class ListOffsetsPartition(Struct):
            partition_index: int
            current_leader_epoch: int
            timestamp: int
            max_num_offsets: int
            def __init__(
                self,
                *,
                partition_index: int = ...,
                current_leader_epoch: int = ...,
                timestamp: int = ...,
                max_num_offsets: int = ...,
                version: int | None = ...,
            ) -> None: ...

        name: str
        partitions: list[ListOffsetsPartition]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: Sequence[ListOffsetsPartition] = ...,
            version: int | None = ...,
        ) -> None: ...

    replica_id: int
    isolation_level: int
    topics: list[ListOffsetsTopic]
    timeout_ms: int
    def __init__(
        self,
        *,
        replica_id: int = ...,
        isolation_level: int = ...,
        topics: Sequence[ListOffsetsTopic] = ...,
        timeout_ms: int = ...,
        version: int | None = ...,
    ) -> None: ...

class ListOffsetsResponse(Response):
    class ListOffsetsTopicResponse(Struct):
        class ListOffsetsPartitionResponse(Struct):
            partition_index: int
            error_code: int
            old_style_offsets: list[int]
            timestamp: int
            offset: int
            leader_epoch: int
            def __init__(
                self,
                *,
                partition_index: int = ...,
                error_code: int = ...,
                old_style_offsets: Sequence[int] = ...,
                timestamp: int = ...,
                offset: int = ...,
                leader_epoch: int = ...,
                version: int | None = ...,
            ) -> None: ...

        name: str
        partitions: list[ListOffsetsPartitionResponse]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: Sequence[ListOffsetsPartitionResponse] = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    topics: list[ListOffsetsTopicResponse]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: Sequence[ListOffsetsTopicResponse] = ...,
        version: int | None = ...,
    ) -> None: ...

class MetadataRequest(Request[MetadataResponse]):
    class MetadataRequestTopic(Struct):
        topic_id: UUID | None
        name: str | None
        def __init__(
            self,
            *,
            topic_id: UUID | None = ...,
            name: str | None = ...,
            version: int | None = ...,
        ) -> None: ...

    topics: list[MetadataRequestTopic] | None
    allow_auto_topic_creation: bool
    include_cluster_authorized_operations: bool
    include_topic_authorized_operations: bool
    def __init__(
        self,
        *,
        topics: Sequence[MetadataRequestTopic] | None = ...,
        allow_auto_topic_creation: bool = ...,
        include_cluster_authorized_operations: bool = ...,
        include_topic_authorized_operations: bool = ...,
        version: int | None = ...,
    ) -> None: ...

class MetadataResponse(Response):
    class MetadataResponseBroker(Struct):
        node_id: int
        host: str
        port: int
        rack: str | None
        def __init__(
            self,
            *,
            node_id: int = ...,
            host: str = ...,
            port: int = ...,
            rack: str | None = ...,
            version: int | None = ...,
        ) -> None: ...

    class MetadataResponseTopic(Struct):
        class MetadataResponsePartition(Struct):
            error_code: int
            partition_index: int
            leader_id: int
            leader_epoch: int
            replica_nodes: list[int]
            isr_nodes: list[int]
            offline_replicas: list[int]
            def __init__(
                self,
                *,
                error_code: int = ...,
                partition_index: int = ...,
                leader_id: int = ...,
                leader_epoch: int = ...,
                replica_nodes: Sequence[int] = ...,
                isr_nodes: Sequence[int] = ...,
                offline_replicas: Sequence[int] = ...,
                version: int | None = ...,
            ) -> None: ...

        error_code: int
        name: str | None
        topic_id: UUID | None
        is_internal: bool
        partitions: list[MetadataResponsePartition]
        authorized_operations: set[int] | None
        def __init__(
            self,
            *,
            error_code: int = ...,
            name: str | None = ...,
            topic_id: UUID | None = ...,
            is_internal: bool = ...,
            partitions: Sequence[MetadataResponsePartition] = ...,
            authorized_operations: Iterable[int] | None = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    brokers: list[MetadataResponseBroker]
    cluster_id: str | None
    controller_id: int
    topics: list[MetadataResponseTopic]
    authorized_operations: set[int] | None
    error_code: int
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        brokers: Sequence[MetadataResponseBroker] = ...,
        cluster_id: str | None = ...,
        controller_id: int = ...,
        topics: Sequence[MetadataResponseTopic] = ...,
        authorized_operations: Iterable[int] | None = ...,
        error_code: int = ...,
        version: int | None = ...,
    ) -> None: ...

class LeaderAndIsrRequest(Request[LeaderAndIsrResponse]):
    class LeaderAndIsrTopicState(Struct):
        class LeaderAndIsrPartitionState(Struct):
            partition_index: int
            controller_epoch: int
            leader: int
            leader_epoch: int
            isr: list[int]
            partition_epoch: int
            replicas: list[int]
            adding_replicas: list[int]
            removing_replicas: list[int]
            is_new: bool
            leader_recovery_state: int
            def __init__(
                self,
                *,
                partition_index: int = ...,
                controller_epoch: int = ...,
                leader: int = ...,
                leader_epoch: int = ...,
                isr: Sequence[int] = ...,
                partition_epoch: int = ...,
                replicas: Sequence[int] = ...,
                adding_replicas: Sequence[int] = ...,
                removing_replicas: Sequence[int] = ...,
                is_new: bool = ...,
                leader_recovery_state: int = ...,
                version: int | None = ...,
            ) -> None: ...

        topic_name: str
        topic_id: UUID | None
        partition_states: list[LeaderAndIsrPartitionState]
        def __init__(
            self,
            *,
            topic_name: str = ...,
            topic_id: UUID | None = ...,
            partition_states: Sequence[LeaderAndIsrPartitionState] = ...,
            version: int | None = ...,
        ) -> None: ...

    class LeaderAndIsrLiveLeader(Struct):
        broker_id: int
        host_name: str
        port: int
        def __init__(
            self,
            *,
            broker_id: int = ...,
            host_name: str = ...,
            port: int = ...,
            version: int | None = ...,
        ) -> None: ...

    controller_id: int
    is_k_raft_controller: bool
    controller_epoch: int
    broker_epoch: int
    type: int
    topic_states: list[LeaderAndIsrTopicState]
    live_leaders: list[LeaderAndIsrLiveLeader]
    def __init__(
        self,
        *,
        controller_id: int = ...,
        is_k_raft_controller: bool = ...,
        controller_epoch: int = ...,
        broker_epoch: int = ...,
        type: int = ...,
        topic_states: Sequence[LeaderAndIsrTopicState] = ...,
        live_leaders: Sequence[LeaderAndIsrLiveLeader] = ...,
        version: int | None = ...,
    ) -> None: ...

class LeaderAndIsrResponse(Response):
    class LeaderAndIsrTopicError(Struct):
        class LeaderAndIsrPartitionError(Struct):
            partition_index: int
            error_code: int
            def __init__(
                self,
                *,
                partition_index: int = ...,
                error_code: int = ...,
                version: int | None = ...,
            ) -> None: ...

        topic_id: UUID | None
        partition_errors: list[LeaderAndIsrPartitionError]
        def __init__(
            self,
            *,
            topic_id: UUID | None = ...,
            partition_errors: Sequence[LeaderAndIsrPartitionError] = ...,
            version: int | None = ...,
        ) -> None: ...

    error_code: int
    topics: list[LeaderAndIsrTopicError]
    def __init__(
        self,
        *,
        error_code: int = ...,
        topics: Sequence[LeaderAndIsrTopicError] = ...,
        version: int | None = ...,
    ) -> None: ...

class StopReplicaRequest(Request[StopReplicaResponse]):
    class StopReplicaTopicState(Struct):
        class StopReplicaPartitionState(Struct):
            partition_index: int
            leader_epoch: int
            delete_partition: bool
            def __init__(
                self,
                *,
                partition_index: int = ...,
                leader_epoch: int = ...,
                delete_partition: bool = ...,
                version: int | None = ...,
            ) -> None: ...

        topic_name: str
        partition_states: list[StopReplicaPartitionState]
        def __init__(
            self,
            *,
            topic_name: str = ...,
            partition_states: Sequence[StopReplicaPartitionState] = ...,
            version: int | None = ...,
        ) -> None: ...

    controller_id: int
    is_k_raft_controller: bool
    controller_epoch: int
    broker_epoch: int
    topic_states: list[StopReplicaTopicState]
    def __init__(
        self,
        *,
        controller_id: int = ...,
        is_k_raft_controller: bool = ...,
        controller_epoch: int = ...,
        broker_epoch: int = ...,
        topic_states: Sequence[StopReplicaTopicState] = ...,
        version: int | None = ...,
    ) -> None: ...

class StopReplicaResponse(Response):
    class StopReplicaPartitionError(Struct):
        topic_name: str
        partition_index: int
        error_code: int
        def __init__(
            self,
            *,
            topic_name: str = ...,
            partition_index: int = ...,
            error_code: int = ...,
            version: int | None = ...,
        ) -> None: ...

    error_code: int
    partition_errors: list[StopReplicaPartitionError]
    def __init__(
        self,
        *,
        error_code: int = ...,
        partition_errors: Sequence[StopReplicaPartitionError] = ...,
        version: int | None = ...,
    ) -> None: ...

class UpdateMetadataRequest(Request[UpdateMetadataResponse]):
    class UpdateMetadataTopicState(Struct):
        class UpdateMetadataPartitionState(Struct):
            partition_index: int
            controller_epoch: int
            leader: int
            leader_epoch: int
            isr: list[int]
            zk_version: int
            replicas: list[int]
            offline_replicas: list[int]
            def __init__(
                self,
                *,
                partition_index: int = ...,
                controller_epoch: int = ...,
                leader: int = ...,
                leader_epoch: int = ...,
                isr: Sequence[int] = ...,
                zk_version: int = ...,
                replicas: Sequence[int] = ...,
                offline_replicas: Sequence[int] = ...,
                version: int | None = ...,
            ) -> None: ...

        topic_name: str
        topic_id: UUID | None
        partition_states: list[UpdateMetadataPartitionState]
        def __init__(
            self,
            *,
            topic_name: str = ...,
            topic_id: UUID | None = ...,
            partition_states: Sequence[UpdateMetadataPartitionState] = ...,
            version: int | None = ...,
        ) -> None: ...

    class UpdateMetadataBroker(Struct):
        class UpdateMetadataEndpoint(Struct):
            port: int
            host: str
            listener: str
            security_protocol: int
            def __init__(
                self,
                *,
                port: int = ...,
                host: str = ...,
                listener: str = ...,
                security_protocol: int = ...,
                version: int | None = ...,
            ) -> None: ...

        id: int
        endpoints: list[UpdateMetadataEndpoint]
        rack: str | None
        def __init__(
            self,
            *,
            id: int = ...,
            endpoints: Sequence[UpdateMetadataEndpoint] = ...,
            rack: str | None = ...,
            version: int | None = ...,
        ) -> None: ...

    controller_id: int
    is_k_raft_controller: bool
    type: int
    controller_epoch: int
    broker_epoch: int
    topic_states: list[UpdateMetadataTopicState]
    live_brokers: list[UpdateMetadataBroker]
    def __init__(
        self,
        *,
        controller_id: int = ...,
        is_k_raft_controller: bool = ...,
        type: int = ...,
        controller_epoch: int = ...,
        broker_epoch: int = ...,
        topic_states: Sequence[UpdateMetadataTopicState] = ...,
        live_brokers: Sequence[UpdateMetadataBroker] = ...,
        version: int | None = ...,
    ) -> None: ...

class UpdateMetadataResponse(Response):
    error_code: int
    def __init__(
        self,
        *,
        error_code: int = ...,
        version: int | None = ...,
    ) -> None: ...

class ControlledShutdownRequest(Request[ControlledShutdownResponse]):
    broker_id: int
    broker_epoch: int
    def __init__(
        self,
        *,
        broker_id: int = ...,
        broker_epoch: int = ...,
        version: int | None = ...,
    ) -> None: ...

class ControlledShutdownResponse(Response):
    class RemainingPartition(Struct):
        topic_name: str
        partition_index: int
        def __init__(
            self,
            *,
            topic_name: str = ...,
            partition_index: int = ...,
            version: int | None = ...,
        ) -> None: ...

    error_code: int
    remaining_partitions: list[RemainingPartition]
    def __init__(
        self,
        *,
        error_code: int = ...,
        remaining_partitions: Sequence[RemainingPartition] = ...,
        version: int | None = ...,
    ) -> None: ...

class OffsetCommitRequest(Request[OffsetCommitResponse]):
    class OffsetCommitRequestTopic(Struct):
        class OffsetCommitRequestPartition(Struct):
            partition_index: int
            committed_offset: int
            committed_leader_epoch: int
            commit_timestamp: int
            committed_metadata: str | None
            def __init__(
                self,
                *,
                partition_index: int = ...,
                committed_offset: int = ...,
                committed_leader_epoch: int = ...,
                commit_timestamp: int = ...,
                committed_metadata: str | None = ...,
                version: int | None = ...,
            ) -> None: ...

        name: str
        topic_id: UUID | None
        partitions: list[OffsetCommitRequestPartition]
        def __init__(
            self,
            *,
            name: str = ...,
            topic_id: UUID | None = ...,
            partitions: Sequence[OffsetCommitRequestPartition] = ...,
            version: int | None = ...,
        ) -> None: ...

    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    retention_time_ms: int
    topics: list[OffsetCommitRequestTopic]
    def __init__(
        self,
        *,
        group_id: str = ...,
        generation_id_or_member_epoch: int = ...,
        member_id: str = ...,
        group_instance_id: str | None = ...,
        retention_time_ms: int = ...,
        topics: Sequence[OffsetCommitRequestTopic] = ...,
        version: int | None = ...,
    ) -> None: ...

class OffsetCommitResponse(Response):
    class OffsetCommitResponseTopic(Struct):
        class OffsetCommitResponsePartition(Struct):
            partition_index: int
            error_code: int
            def __init__(
                self,
                *,
                partition_index: int = ...,
                error_code: int = ...,
                version: int | None = ...,
            ) -> None: ...

        name: str
        topic_id: UUID | None
        partitions: list[OffsetCommitResponsePartition]
        def __init__(
            self,
            *,
            name: str = ...,
            topic_id: UUID | None = ...,
            partitions: Sequence[OffsetCommitResponsePartition] = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    topics: list[OffsetCommitResponseTopic]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: Sequence[OffsetCommitResponseTopic] = ...,
        version: int | None = ...,
    ) -> None: ...

class OffsetFetchRequest(Request[OffsetFetchResponse]):
    class OffsetFetchRequestTopic(Struct):
        name: str
        partition_indexes: list[int]
        def __init__(
            self,
            *,
            name: str = ...,
            partition_indexes: Sequence[int] = ...,
            version: int | None = ...,
        ) -> None: ...

    class OffsetFetchRequestGroup(Struct):
        class OffsetFetchRequestTopics(Struct):
            name: str
            topic_id: UUID | None
            partition_indexes: list[int]
            def __init__(
                self,
                *,
                name: str = ...,
                topic_id: UUID | None = ...,
                partition_indexes: Sequence[int] = ...,
                version: int | None = ...,
            ) -> None: ...

        group_id: str
        member_id: str | None
        member_epoch: int
        topics: list[OffsetFetchRequestTopics] | None
        def __init__(
            self,
            *,
            group_id: str = ...,
            member_id: str | None = ...,
            member_epoch: int = ...,
            topics: Sequence[OffsetFetchRequestTopics] | None = ...,
            version: int | None = ...,
        ) -> None: ...

    group_id: str
    topics: list[OffsetFetchRequestTopic] | None
    groups: list[OffsetFetchRequestGroup]
    require_stable: bool
    def __init__(
        self,
        *,
        group_id: str = ...,
        topics: Sequence[OffsetFetchRequestTopic] | None = ...,
        groups: Sequence[OffsetFetchRequestGroup] = ...,
        require_stable: bool = ...,
        version: int | None = ...,
    ) -> None: ...

class OffsetFetchResponse(Response):
    class OffsetFetchResponseTopic(Struct):
        class OffsetFetchResponsePartition(Struct):
            partition_index: int
            committed_offset: int
            committed_leader_epoch: int
            metadata: str | None
            error_code: int
            def __init__(
                self,
                *,
                partition_index: int = ...,
                committed_offset: int = ...,
                committed_leader_epoch: int = ...,
                metadata: str | None = ...,
                error_code: int = ...,
                version: int | None = ...,
            ) -> None: ...

        name: str
        partitions: list[OffsetFetchResponsePartition]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: Sequence[OffsetFetchResponsePartition] = ...,
            version: int | None = ...,
        ) -> None: ...

    class OffsetFetchResponseGroup(Struct):
        class OffsetFetchResponseTopics(Struct):
            class OffsetFetchResponsePartitions(Struct):
                partition_index: int
                committed_offset: int
                committed_leader_epoch: int
                metadata: str | None
                error_code: int
                def __init__(
                    self,
                    *,
                    partition_index: int = ...,
                    committed_offset: int = ...,
                    committed_leader_epoch: int = ...,
                    metadata: str | None = ...,
                    error_code: int = ...,
                    version: int | None = ...,
                ) -> None: ...

            name: str
            topic_id: UUID | None
            partitions: list[OffsetFetchResponsePartitions]
            def __init__(
                self,
                *,
                name: str = ...,
                topic_id: UUID | None = ...,
                partitions: Sequence[OffsetFetchResponsePartitions] = ...,
                version: int | None = ...,
            ) -> None: ...

        group_id: str
        topics: list[OffsetFetchResponseTopics]
        error_code: int
        def __init__(
            self,
            *,
            group_id: str = ...,
            topics: Sequence[OffsetFetchResponseTopics] = ...,
            error_code: int = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    topics: list[OffsetFetchResponseTopic]
    error_code: int
    groups: list[OffsetFetchResponseGroup]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: Sequence[OffsetFetchResponseTopic] = ...,
        error_code: int = ...,
        groups: Sequence[OffsetFetchResponseGroup] = ...,
        version: int | None = ...,
    ) -> None: ...

class FindCoordinatorRequest(Request[FindCoordinatorResponse]):
    key: str
    key_type: int
    coordinator_keys: list[str]
    def __init__(
        self,
        *,
        key: str = ...,
        key_type: int = ...,
        coordinator_keys: Sequence[str] = ...,
        version: int | None = ...,
    ) -> None: ...

class FindCoordinatorResponse(Response):
    class Coordinator(Struct):
        key: str
        node_id: int
        host: str
        port: int
        error_code: int
        error_message: str | None
        def __init__(
            self,
            *,
            key: str = ...,
            node_id: int = ...,
            host: str = ...,
            port: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    node_id: int
    host: str
    port: int
    coordinators: list[Coordinator]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        node_id: int = ...,
        host: str = ...,
        port: int = ...,
        coordinators: Sequence[Coordinator] = ...,
        version: int | None = ...,
    ) -> None: ...

class JoinGroupRequest(Request[JoinGroupResponse]):
    class JoinGroupRequestProtocol(Struct):
        name: str
        metadata: bytes
        def __init__(
            self,
            *,
            name: str = ...,
            metadata: bytes | bytearray | memoryview = ...,
            version: int | None = ...,
        ) -> None: ...

    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str
    protocols: list[JoinGroupRequestProtocol]
    reason: str | None
    def __init__(
        self,
        *,
        group_id: str = ...,
        session_timeout_ms: int = ...,
        rebalance_timeout_ms: int = ...,
        member_id: str = ...,
        group_instance_id: str | None = ...,
        protocol_type: str = ...,
        protocols: Sequence[JoinGroupRequestProtocol] = ...,
        reason: str | None = ...,
        version: int | None = ...,
    ) -> None: ...

class JoinGroupResponse(Response):
    class JoinGroupResponseMember(Struct):
        member_id: str
        group_instance_id: str | None
        metadata: bytes
        def __init__(
            self,
            *,
            member_id: str = ...,
            group_instance_id: str | None = ...,
            metadata: bytes | bytearray | memoryview = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str
    skip_assignment: bool
    member_id: str
    members: list[JoinGroupResponseMember]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        generation_id: int = ...,
        protocol_type: str | None = ...,
        protocol_name: str | None = ...,
        leader: str = ...,
        skip_assignment: bool = ...,
        member_id: str = ...,
        members: Sequence[JoinGroupResponseMember] = ...,
        version: int | None = ...,
    ) -> None: ...

class HeartbeatRequest(Request[HeartbeatResponse]):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    def __init__(
        self,
        *,
        group_id: str = ...,
        generation_id: int = ...,
        member_id: str = ...,
        group_instance_id: str | None = ...,
        version: int | None = ...,
    ) -> None: ...

class HeartbeatResponse(Response):
    throttle_time_ms: int
    error_code: int
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        version: int | None = ...,
    ) -> None: ...

class LeaveGroupRequest(Request[LeaveGroupResponse]):
    class MemberIdentity(Struct):
        member_id: str
        group_instance_id: str | None
        reason: str | None
        def __init__(
            self,
            *,
            member_id: str = ...,
            group_instance_id: str | None = ...,
            reason: str | None = ...,
            version: int | None = ...,
        ) -> None: ...

    group_id: str
    member_id: str
    members: list[MemberIdentity]
    def __init__(
        self,
        *,
        group_id: str = ...,
        member_id: str = ...,
        members: Sequence[MemberIdentity] = ...,
        version: int | None = ...,
    ) -> None: ...

class LeaveGroupResponse(Response):
    class MemberResponse(Struct):
        member_id: str
        group_instance_id: str | None
        error_code: int
        def __init__(
            self,
            *,
            member_id: str = ...,
            group_instance_id: str | None = ...,
            error_code: int = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    members: list[MemberResponse]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        members: Sequence[MemberResponse] = ...,
        version: int | None = ...,
    ) -> None: ...

class SyncGroupRequest(Request[SyncGroupResponse]):
    class SyncGroupRequestAssignment(Struct):
        member_id: str
        assignment: bytes
        def __init__(
            self,
            *,
            member_id: str = ...,
            assignment: bytes | bytearray | memoryview = ...,
            version: int | None = ...,
        ) -> None: ...

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: list[SyncGroupRequestAssignment]
    def __init__(
        self,
        *,
        group_id: str = ...,
        generation_id: int = ...,
        member_id: str = ...,
        group_instance_id: str | None = ...,
        protocol_type: str | None = ...,
        protocol_name: str | None = ...,
        assignments: Sequence[SyncGroupRequestAssignment] = ...,
        version: int | None = ...,
    ) -> None: ...

class SyncGroupResponse(Response):
    throttle_time_ms: int
    error_code: int
    protocol_type: str | None
    protocol_name: str | None
    assignment: bytes
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        protocol_type: str | None = ...,
        protocol_name: str | None = ...,
        assignment: bytes | bytearray | memoryview = ...,
        version: int | None = ...,
    ) -> None: ...

class DescribeGroupsRequest(Request[DescribeGroupsResponse]):
    groups: list[str]
    include_authorized_operations: bool
    def __init__(
        self,
        *,
        groups: Sequence[str] = ...,
        include_authorized_operations: bool = ...,
        version: int | None = ...,
    ) -> None: ...

class DescribeGroupsResponse(Response):
    class DescribedGroup(Struct):
        class DescribedGroupMember(Struct):
            member_id: str
            group_instance_id: str | None
            client_id: str
            client_host: str
            member_metadata: bytes
            member_assignment: bytes
            def __init__(
                self,
                *,
                member_id: str = ...,
                group_instance_id: str | None = ...,
                client_id: str = ...,
                client_host: str = ...,
                member_metadata: bytes | bytearray | memoryview = ...,
                member_assignment: bytes | bytearray | memoryview = ...,
                version: int | None = ...,
            ) -> None: ...

        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        protocol_type: str
        protocol_data: str
        members: list[DescribedGroupMember]
        authorized_operations: set[int] | None
        def __init__(
            self,
            *,
            error_code: int = ...,
            error_message: str | None = ...,
            group_id: str = ...,
            group_state: str = ...,
            protocol_type: str = ...,
            protocol_data: str = ...,
            members: Sequence[DescribedGroupMember] = ...,
            authorized_operations: Iterable[int] | None = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    groups: list[DescribedGroup]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        groups: Sequence[DescribedGroup] = ...,
        version: int | None = ...,
    ) -> None: ...

class ListGroupsRequest(Request[ListGroupsResponse]):
    states_filter: list[str]
    types_filter: list[str]
    def __init__(
        self,
        *,
        states_filter: Sequence[str] = ...,
        types_filter: Sequence[str] = ...,
        version: int | None = ...,
    ) -> None: ...

class ListGroupsResponse(Response):
    class ListedGroup(Struct):
        group_id: str
        protocol_type: str
        group_state: str
        group_type: str
        def __init__(
            self,
            *,
            group_id: str = ...,
            protocol_type: str = ...,
            group_state: str = ...,
            group_type: str = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    groups: list[ListedGroup]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        groups: Sequence[ListedGroup] = ...,
        version: int | None = ...,
    ) -> None: ...

class SaslHandshakeRequest(Request[SaslHandshakeResponse]):
    mechanism: str
    def __init__(
        self,
        *,
        mechanism: str = ...,
        version: int | None = ...,
    ) -> None: ...

class SaslHandshakeResponse(Response):
    error_code: int
    mechanisms: list[str]
    def __init__(
        self,
        *,
        error_code: int = ...,
        mechanisms: Sequence[str] = ...,
        version: int | None = ...,
    ) -> None: ...

class ApiVersionsRequest(Request[ApiVersionsResponse]):
    client_software_name: str
    client_software_version: str
    def __init__(
        self,
        *,
        client_software_name: str = ...,
        client_software_version: str = ...,
        version: int | None = ...,
    ) -> None: ...

class ApiVersionsResponse(Response):
    class ApiVersion(Struct):
        api_key: int
        min_version: int
        max_version: int
        def __init__(
            self,
            *,
            api_key: int = ...,
            min_version: int = ...,
            max_version: int = ...,
            version: int | None = ...,
        ) -> None: ...

    class SupportedFeatureKey(Struct):
        name: str
        min_version: int
        max_version: int
        def __init__(
            self,
            *,
            name: str = ...,
            min_version: int = ...,
            max_version: int = ...,
            version: int | None = ...,
        ) -> None: ...

    class FinalizedFeatureKey(Struct):
        name: str
        max_version_level: int
        min_version_level: int
        def __init__(
            self,
            *,
            name: str = ...,
            max_version_level: int = ...,
            min_version_level: int = ...,
            version: int | None = ...,
        ) -> None: ...

    error_code: int
    api_keys: list[ApiVersion]
    throttle_time_ms: int
    supported_features: list[SupportedFeatureKey]
    finalized_features_epoch: int
    finalized_features: list[FinalizedFeatureKey]
    zk_migration_ready: bool
    def __init__(
        self,
        *,
        error_code: int = ...,
        api_keys: Sequence[ApiVersion] = ...,
        throttle_time_ms: int = ...,
        supported_features: Sequence[SupportedFeatureKey] = ...,
        finalized_features_epoch: int = ...,
        finalized_features: Sequence[FinalizedFeatureKey] = ...,
        zk_migration_ready: bool = ...,
        version: int | None = ...,
    ) -> None: ...

class CreateTopicsRequest(Request[CreateTopicsResponse]):
    class CreatableTopic(Struct):
        class CreatableReplicaAssignment(Struct):
            partition_index: int
            broker_ids: list[int]
            def __init__(
                self,
                *,
                partition_index: int = ...,
                broker_ids: Sequence[int] = ...,
                version: int | None = ...,
            ) -> None: ...

        class CreatableTopicConfig(Struct):
            name: str
            value: str | None
            def __init__(
                self,
                *,
                name: str = ...,
                value: str | None = ...,
                version: int | None = ...,
            ) -> None: ...

        name: str
        num_partitions: int
        replication_factor: int
        assignments: list[CreatableReplicaAssignment]
        configs: list[CreatableTopicConfig]
        def __init__(
            self,
            *,
            name: str = ...,
            num_partitions: int = ...,
            replication_factor: int = ...,
            assignments: Sequence[CreatableReplicaAssignment] = ...,
            configs: Sequence[CreatableTopicConfig] = ...,
            version: int | None = ...,
        ) -> None: ...

    topics: list[CreatableTopic]
    timeout_ms: int
    validate_only: bool
    def __init__(
        self,
        *,
        topics: Sequence[CreatableTopic] = ...,
        timeout_ms: int = ...,
        validate_only: bool = ...,
        version: int | None = ...,
    ) -> None: ...

class CreateTopicsResponse(Response):
    class CreatableTopicResult(Struct):
        class CreatableTopicConfigs(Struct):
            name: str
            value: str | None
            read_only: bool
            config_source: int
            is_sensitive: bool
            def __init__(
                self,
                *,
                name: str = ...,
                value: str | None = ...,
                read_only: bool = ...,
                config_source: int = ...,
                is_sensitive: bool = ...,
                version: int | None = ...,
            ) -> None: ...

        name: str
        topic_id: UUID | None
        error_code: int
        error_message: str | None
        topic_config_error_code: int
        num_partitions: int
        replication_factor: int
        configs: list[CreatableTopicConfigs] | None
        def __init__(
            self,
            *,
            name: str = ...,
            topic_id: UUID | None = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            topic_config_error_code: int = ...,
            num_partitions: int = ...,
            replication_factor: int = ...,
            configs: Sequence[CreatableTopicConfigs] | None = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    topics: list[CreatableTopicResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: Sequence[CreatableTopicResult] = ...,
        version: int | None = ...,
    ) -> None: ...

class DeleteTopicsRequest(Request[DeleteTopicsResponse]):
    class DeleteTopicState(Struct):
        name: str | None
        topic_id: UUID | None
        def __init__(
            self,
            *,
            name: str | None = ...,
            topic_id: UUID | None = ...,
            version: int | None = ...,
        ) -> None: ...

    topics: list[DeleteTopicState]
    topic_names: list[str]
    timeout_ms: int
    def __init__(
        self,
        *,
        topics: Sequence[DeleteTopicState] = ...,
        topic_names: Sequence[str] = ...,
        timeout_ms: int = ...,
        version: int | None = ...,
    ) -> None: ...

class DeleteTopicsResponse(Response):
    class DeletableTopicResult(Struct):
        name: str | None
        topic_id: UUID | None
        error_code: int
        error_message: str | None
        def __init__(
            self,
            *,
            name: str | None = ...,
            topic_id: UUID | None = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    responses: list[DeletableTopicResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        responses: Sequence[DeletableTopicResult] = ...,
        version: int | None = ...,
    ) -> None: ...

class DeleteRecordsRequest(Request[DeleteRecordsResponse]):
    class DeleteRecordsTopic(Struct):
        class DeleteRecordsPartition(Struct):
            partition_index: int
            offset: int
            def __init__(
                self,
                *,
                partition_index: int = ...,
                offset: int = ...,
                version: int | None = ...,
            ) -> None: ...

        name: str
        partitions: list[DeleteRecordsPartition]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: Sequence[DeleteRecordsPartition] = ...,
            version: int | None = ...,
        ) -> None: ...

    topics: list[DeleteRecordsTopic]
    timeout_ms: int
    def __init__(
        self,
        *,
        topics: Sequence[DeleteRecordsTopic] = ...,
        timeout_ms: int = ...,
        version: int | None = ...,
    ) -> None: ...

class DeleteRecordsResponse(Response):
    class DeleteRecordsTopicResult(Struct):
        class DeleteRecordsPartitionResult(Struct):
            partition_index: int
            low_watermark: int
            error_code: int
            def __init__(
                self,
                *,
                partition_index: int = ...,
                low_watermark: int = ...,
                error_code: int = ...,
                version: int | None = ...,
            ) -> None: ...

        name: str
        partitions: list[DeleteRecordsPartitionResult]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: Sequence[DeleteRecordsPartitionResult] = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    topics: list[DeleteRecordsTopicResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: Sequence[DeleteRecordsTopicResult] = ...,
        version: int | None = ...,
    ) -> None: ...

class InitProducerIdRequest(Request[InitProducerIdResponse]):
    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: int
    producer_epoch: int
    enable2_pc: bool
    keep_prepared_txn: bool
    def __init__(
        self,
        *,
        transactional_id: str | None = ...,
        transaction_timeout_ms: int = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        enable2_pc: bool = ...,
        keep_prepared_txn: bool = ...,
        version: int | None = ...,
    ) -> None: ...

class InitProducerIdResponse(Response):
    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int
    ongoing_txn_producer_id: int
    ongoing_txn_producer_epoch: int
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        ongoing_txn_producer_id: int = ...,
        ongoing_txn_producer_epoch: int = ...,
        version: int | None = ...,
    ) -> None: ...

class OffsetForLeaderEpochRequest(Request[OffsetForLeaderEpochResponse]):
    class OffsetForLeaderTopic(Struct):
        class OffsetForLeaderPartition(Struct):
            partition: int
            current_leader_epoch: int
            leader_epoch: int
            def __init__(
                self,
                *,
                partition: int = ...,
                current_leader_epoch: int = ...,
                leader_epoch: int = ...,
                version: int | None = ...,
            ) -> None: ...

        topic: str
        partitions: list[OffsetForLeaderPartition]
        def __init__(
            self,
            *,
            topic: str = ...,
            partitions: Sequence[OffsetForLeaderPartition] = ...,
            version: int | None = ...,
        ) -> None: ...

    replica_id: int
    topics: list[OffsetForLeaderTopic]
    def __init__(
        self,
        *,
        replica_id: int = ...,
        topics: Sequence[OffsetForLeaderTopic] = ...,
        version: int | None = ...,
    ) -> None: ...

class OffsetForLeaderEpochResponse(Response):
    class OffsetForLeaderTopicResult(Struct):
        class EpochEndOffset(Struct):
            error_code: int
            partition: int
            leader_epoch: int
            end_offset: int
            def __init__(
                self,
                *,
                error_code: int = ...,
                partition: int = ...,
                leader_epoch: int = ...,
                end_offset: int = ...,
                version: int | None = ...,
            ) -> None: ...

        topic: str
        partitions: list[EpochEndOffset]
        def __init__(
            self,
            *,
            topic: str = ...,
            partitions: Sequence[EpochEndOffset] = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    topics: list[OffsetForLeaderTopicResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: Sequence[OffsetForLeaderTopicResult] = ...,
        version: int | None = ...,
    ) -> None: ...

class AddPartitionsToTxnRequest(Request[AddPartitionsToTxnResponse]):
    class AddPartitionsToTxnTransaction(Struct):
        class AddPartitionsToTxnTopic(Struct):
            name: str
            partitions: list[int]
            def __init__(
                self,
                *,
                name: str = ...,
                partitions: Sequence[int] = ...,
                version: int | None = ...,
            ) -> None: ...

        transactional_id: str
        producer_id: int
        producer_epoch: int
        verify_only: bool
        topics: list[AddPartitionsToTxnTopic]
        def __init__(
            self,
            *,
            transactional_id: str = ...,
            producer_id: int = ...,
            producer_epoch: int = ...,
            verify_only: bool = ...,
            topics: Sequence[AddPartitionsToTxnTopic] = ...,
            version: int | None = ...,
        ) -> None: ...

    class AddPartitionsToTxnTopic(Struct):
        name: str
        partitions: list[int]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: Sequence[int] = ...,
            version: int | None = ...,
        ) -> None: ...

    transactions: list[AddPartitionsToTxnTransaction]
    v3_and_below_transactional_id: str
    v3_and_below_producer_id: int
    v3_and_below_producer_epoch: int
    v3_and_below_topics: list[AddPartitionsToTxnTopic]
    def __init__(
        self,
        *,
        transactions: Sequence[AddPartitionsToTxnTransaction] = ...,
        v3_and_below_transactional_id: str = ...,
        v3_and_below_producer_id: int = ...,
        v3_and_below_producer_epoch: int = ...,
        v3_and_below_topics: Sequence[AddPartitionsToTxnTopic] = ...,
        version: int | None = ...,
    ) -> None: ...

class AddPartitionsToTxnResponse(Response):
    class AddPartitionsToTxnResult(Struct):
        class AddPartitionsToTxnTopicResult(Struct):
            class AddPartitionsToTxnPartitionResult(Struct):
                partition_index: int
                partition_error_code: int
                def __init__(
                    self,
                    *,
                    partition_index: int = ...,
                    partition_error_code: int = ...,
                    version: int | None = ...,
                ) -> None: ...

            name: str
            results_by_partition: list[AddPartitionsToTxnPartitionResult]
            def __init__(
                self,
                *,
                name: str = ...,
                results_by_partition: Sequence[AddPartitionsToTxnPartitionResult] = ...,
                version: int | None = ...,
            ) -> None: ...

        transactional_id: str
        topic_results: list[AddPartitionsToTxnTopicResult]
        def __init__(
            self,
            *,
            transactional_id: str = ...,
            topic_results: Sequence[AddPartitionsToTxnTopicResult] = ...,
            version: int | None = ...,
        ) -> None: ...

    class AddPartitionsToTxnTopicResult(Struct):
        class AddPartitionsToTxnPartitionResult(Struct):
            partition_index: int
            partition_error_code: int
            def __init__(
                self,
                *,
                partition_index: int = ...,
                partition_error_code: int = ...,
                version: int | None = ...,
            ) -> None: ...

        name: str
        results_by_partition: list[AddPartitionsToTxnPartitionResult]
        def __init__(
            self,
            *,
            name: str = ...,
            results_by_partition: Sequence[AddPartitionsToTxnPartitionResult] = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    results_by_transaction: list[AddPartitionsToTxnResult]
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        results_by_transaction: Sequence[AddPartitionsToTxnResult] = ...,
        results_by_topic_v3_and_below: Sequence[AddPartitionsToTxnTopicResult] = ...,
        version: int | None = ...,
    ) -> None: ...

class AddOffsetsToTxnRequest(Request[AddOffsetsToTxnResponse]):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str
    def __init__(
        self,
        *,
        transactional_id: str = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        group_id: str = ...,
        version: int | None = ...,
    ) -> None: ...

class AddOffsetsToTxnResponse(Response):
    throttle_time_ms: int
    error_code: int
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        version: int | None = ...,
    ) -> None: ...

class EndTxnRequest(Request[EndTxnResponse]):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    def __init__(
        self,
        *,
        transactional_id: str = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        committed: bool = ...,
        version: int | None = ...,
    ) -> None: ...

class EndTxnResponse(Response):
    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        version: int | None = ...,
    ) -> None: ...

class WriteTxnMarkersRequest(Request[WriteTxnMarkersResponse]):
    class WritableTxnMarker(Struct):
        class WritableTxnMarkerTopic(Struct):
            name: str
            partition_indexes: list[int]
            def __init__(
                self,
                *,
                name: str = ...,
                partition_indexes: Sequence[int] = ...,
                version: int | None = ...,
            ) -> None: ...

        producer_id: int
        producer_epoch: int
        transaction_result: bool
        topics: list[WritableTxnMarkerTopic]
        coordinator_epoch: int
        transaction_version: int
        def __init__(
            self,
            *,
            producer_id: int = ...,
            producer_epoch: int = ...,
            transaction_result: bool = ...,
            topics: Sequence[WritableTxnMarkerTopic] = ...,
            coordinator_epoch: int = ...,
            transaction_version: int = ...,
            version: int | None = ...,
        ) -> None: ...

    markers: list[WritableTxnMarker]
    def __init__(
        self,
        *,
        markers: Sequence[WritableTxnMarker] = ...,
        version: int | None = ...,
    ) -> None: ...

class WriteTxnMarkersResponse(Response):
    class WritableTxnMarkerResult(Struct):
        class WritableTxnMarkerTopicResult(Struct):
            class WritableTxnMarkerPartitionResult(Struct):
                partition_index: int
                error_code: int
                def __init__(
                    self,
                    *,
                    partition_index: int = ...,
                    error_code: int = ...,
                    version: int | None = ...,
                ) -> None: ...

            name: str
            partitions: list[WritableTxnMarkerPartitionResult]
            def __init__(
                self,
                *,
                name: str = ...,
                partitions: Sequence[WritableTxnMarkerPartitionResult] = ...,
                version: int | None = ...,
            ) -> None: ...

        producer_id: int
        topics: list[WritableTxnMarkerTopicResult]
        def __init__(
            self,
            *,
            producer_id: int = ...,
            topics: Sequence[WritableTxnMarkerTopicResult] = ...,
            version: int | None = ...,
        ) -> None: ...

    markers: list[WritableTxnMarkerResult]
    def __init__(
        self,
        *,
        markers: Sequence[WritableTxnMarkerResult] = ...,
        version: int | None = ...,
    ) -> None: ...

class TxnOffsetCommitRequest(Request[TxnOffsetCommitResponse]):
    class TxnOffsetCommitRequestTopic(Struct):
        class TxnOffsetCommitRequestPartition(Struct):
            partition_index: int
            committed_offset: int
            committed_leader_epoch: int
            committed_metadata: str | None
            def __init__(
                self,
                *,
                partition_index: int = ...,
                committed_offset: int = ...,
                committed_leader_epoch: int = ...,
                committed_metadata: str | None = ...,
                version: int | None = ...,
            ) -> None: ...

        name: str
        partitions: list[TxnOffsetCommitRequestPartition]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: Sequence[TxnOffsetCommitRequestPartition] = ...,
            version: int | None = ...,
        ) -> None: ...

    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    generation_id: int
    member_id: str
    group_instance_id: str | None
    topics: list[TxnOffsetCommitRequestTopic]
    def __init__(
        self,
        *,
        transactional_id: str = ...,
        group_id: str = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        generation_id: int = ...,
        member_id: str = ...,
        group_instance_id: str | None = ...,
        topics: Sequence[TxnOffsetCommitRequestTopic] = ...,
        version: int | None = ...,
    ) -> None: ...

class TxnOffsetCommitResponse(Response):
    class TxnOffsetCommitResponseTopic(Struct):
        class TxnOffsetCommitResponsePartition(Struct):
            partition_index: int
            error_code: int
            def __init__(
                self,
                *,
                partition_index: int = ...,
                error_code: int = ...,
                version: int | None = ...,
            ) -> None: ...

        name: str
        partitions: list[TxnOffsetCommitResponsePartition]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: Sequence[TxnOffsetCommitResponsePartition] = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    topics: list[TxnOffsetCommitResponseTopic]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: Sequence[TxnOffsetCommitResponseTopic] = ...,
        version: int | None = ...,
    ) -> None: ...

class DescribeAclsRequest(Request[DescribeAclsResponse]):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int
    def __init__(
        self,
        *,
        resource_type_filter: int = ...,
        resource_name_filter: str | None = ...,
        pattern_type_filter: int = ...,
        principal_filter: str | None = ...,
        host_filter: str | None = ...,
        operation: int = ...,
        permission_type: int = ...,
        version: int | None = ...,
    ) -> None: ...

class DescribeAclsResponse(Response):
    class DescribeAclsResource(Struct):
        class AclDescription(Struct):
            principal: str
            host: str
            operation: int
            permission_type: int
            def __init__(
                self,
                *,
                principal: str = ...,
                host: str = ...,
                operation: int = ...,
                permission_type: int = ...,
                version: int | None = ...,
            ) -> None: ...

        resource_type: int
        resource_name: str
        pattern_type: int
        acls: list[AclDescription]
        def __init__(
            self,
            *,
            resource_type: int = ...,
            resource_name: str = ...,
            pattern_type: int = ...,
            acls: Sequence[AclDescription] = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    resources: list[DescribeAclsResource]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        resources: Sequence[DescribeAclsResource] = ...,
        version: int | None = ...,
    ) -> None: ...

class CreateAclsRequest(Request[CreateAclsResponse]):
    class AclCreation(Struct):
        resource_type: int
        resource_name: str
        resource_pattern_type: int
        principal: str
        host: str
        operation: int
        permission_type: int
        def __init__(
            self,
            *,
            resource_type: int = ...,
            resource_name: str = ...,
            resource_pattern_type: int = ...,
            principal: str = ...,
            host: str = ...,
            operation: int = ...,
            permission_type: int = ...,
            version: int | None = ...,
        ) -> None: ...

    creations: list[AclCreation]
    def __init__(
        self,
        *,
        creations: Sequence[AclCreation] = ...,
        version: int | None = ...,
    ) -> None: ...

class CreateAclsResponse(Response):
    class AclCreationResult(Struct):
        error_code: int
        error_message: str | None
        def __init__(
            self,
            *,
            error_code: int = ...,
            error_message: str | None = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    results: list[AclCreationResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        results: Sequence[AclCreationResult] = ...,
        version: int | None = ...,
    ) -> None: ...

class DeleteAclsRequest(Request[DeleteAclsResponse]):
    class DeleteAclsFilter(Struct):
        resource_type_filter: int
        resource_name_filter: str | None
        pattern_type_filter: int
        principal_filter: str | None
        host_filter: str | None
        operation: int
        permission_type: int
        def __init__(
            self,
            *,
            resource_type_filter: int = ...,
            resource_name_filter: str | None = ...,
            pattern_type_filter: int = ...,
            principal_filter: str | None = ...,
            host_filter: str | None = ...,
            operation: int = ...,
            permission_type: int = ...,
            version: int | None = ...,
        ) -> None: ...

    filters: list[DeleteAclsFilter]
    def __init__(
        self,
        *,
        filters: Sequence[DeleteAclsFilter] = ...,
        version: int | None = ...,
    ) -> None: ...

class DeleteAclsResponse(Response):
    class DeleteAclsFilterResult(Struct):
        class DeleteAclsMatchingAcl(Struct):
            error_code: int
            error_message: str | None
            resource_type: int
            resource_name: str
            pattern_type: int
            principal: str
            host: str
            operation: int
            permission_type: int
            def __init__(
                self,
                *,
                error_code: int = ...,
                error_message: str | None = ...,
                resource_type: int = ...,
                resource_name: str = ...,
                pattern_type: int = ...,
                principal: str = ...,
                host: str = ...,
                operation: int = ...,
                permission_type: int = ...,
                version: int | None = ...,
            ) -> None: ...

        error_code: int
        error_message: str | None
        matching_acls: list[DeleteAclsMatchingAcl]
        def __init__(
            self,
            *,
            error_code: int = ...,
            error_message: str | None = ...,
            matching_acls: Sequence[DeleteAclsMatchingAcl] = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    filter_results: list[DeleteAclsFilterResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        filter_results: Sequence[DeleteAclsFilterResult] = ...,
        version: int | None = ...,
    ) -> None: ...

class DescribeConfigsRequest(Request[DescribeConfigsResponse]):
    class DescribeConfigsResource(Struct):
        resource_type: int
        resource_name: str
        configuration_keys: list[str] | None
        def __init__(
            self,
            *,
            resource_type: int = ...,
            resource_name: str = ...,
            configuration_keys: Sequence[str] | None = ...,
            version: int | None = ...,
        ) -> None: ...

    resources: list[DescribeConfigsResource]
    include_synonyms: bool
    include_documentation: bool
    def __init__(
        self,
        *,
        resources: Sequence[DescribeConfigsResource] = ...,
        include_synonyms: bool = ...,
        include_documentation: bool = ...,
        version: int | None = ...,
    ) -> None: ...

class DescribeConfigsResponse(Response):
    class DescribeConfigsResult(Struct):
        class DescribeConfigsResourceResult(Struct):
            class DescribeConfigsSynonym(Struct):
                name: str
                value: str | None
                source: int
                def __init__(
                    self,
                    *,
                    name: str = ...,
                    value: str | None = ...,
                    source: int = ...,
                    version: int | None = ...,
                ) -> None: ...

            name: str
            value: str | None
            read_only: bool
            config_source: int
            is_default: bool
            is_sensitive: bool
            synonyms: list[DescribeConfigsSynonym]
            config_type: int
            documentation: str | None
            def __init__(
                self,
                *,
                name: str = ...,
                value: str | None = ...,
                read_only: bool = ...,
                config_source: int = ...,
                is_default: bool = ...,
                is_sensitive: bool = ...,
                synonyms: Sequence[DescribeConfigsSynonym] = ...,
                config_type: int = ...,
                documentation: str | None = ...,
                version: int | None = ...,
            ) -> None: ...

        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        configs: list[DescribeConfigsResourceResult]
        def __init__(
            self,
            *,
            error_code: int = ...,
            error_message: str | None = ...,
            resource_type: int = ...,
            resource_name: str = ...,
            configs: Sequence[DescribeConfigsResourceResult] = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    results: list[DescribeConfigsResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        results: Sequence[DescribeConfigsResult] = ...,
        version: int | None = ...,
    ) -> None: ...

class AlterConfigsRequest(Request[AlterConfigsResponse]):
    class AlterConfigsResource(Struct):
        class AlterableConfig(Struct):
            name: str
            value: str | None
            def __init__(
                self,
                *,
                name: str = ...,
                value: str | None = ...,
                version: int | None = ...,
            ) -> None: ...

        resource_type: int
        resource_name: str
        configs: list[AlterableConfig]
        def __init__(
            self,
            *,
            resource_type: int = ...,
            resource_name: str = ...,
            configs: Sequence[AlterableConfig] = ...,
            version: int | None = ...,
        ) -> None: ...

    resources: list[AlterConfigsResource]
    validate_only: bool
    def __init__(
        self,
        *,
        resources: Sequence[AlterConfigsResource] = ...,
        validate_only: bool = ...,
        version: int | None = ...,
    ) -> None: ...

class AlterConfigsResponse(Response):
    class AlterConfigsResourceResponse(Struct):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        def __init__(
            self,
            *,
            error_code: int = ...,
            error_message: str | None = ...,
            resource_type: int = ...,
            resource_name: str = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    responses: list[AlterConfigsResourceResponse]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        responses: Sequence[AlterConfigsResourceResponse] = ...,
        version: int | None = ...,
    ) -> None: ...

class AlterReplicaLogDirsRequest(Request[AlterReplicaLogDirsResponse]):
    class AlterReplicaLogDir(Struct):
        class AlterReplicaLogDirTopic(Struct):
            name: str
            partitions: list[int]
            def __init__(
                self,
                *,
                name: str = ...,
                partitions: Sequence[int] = ...,
                version: int | None = ...,
            ) -> None: ...

        path: str
        topics: list[AlterReplicaLogDirTopic]
        def __init__(
            self,
            *,
            path: str = ...,
            topics: Sequence[AlterReplicaLogDirTopic] = ...,
            version: int | None = ...,
        ) -> None: ...

    dirs: list[AlterReplicaLogDir]
    def __init__(
        self,
        *,
        dirs: Sequence[AlterReplicaLogDir] = ...,
        version: int | None = ...,
    ) -> None: ...

class AlterReplicaLogDirsResponse(Response):
    class AlterReplicaLogDirTopicResult(Struct):
        class AlterReplicaLogDirPartitionResult(Struct):
            partition_index: int
            error_code: int
            def __init__(
                self,
                *,
                partition_index: int = ...,
                error_code: int = ...,
                version: int | None = ...,
            ) -> None: ...

        topic_name: str
        partitions: list[AlterReplicaLogDirPartitionResult]
        def __init__(
            self,
            *,
            topic_name: str = ...,
            partitions: Sequence[AlterReplicaLogDirPartitionResult] = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    results: list[AlterReplicaLogDirTopicResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        results: Sequence[AlterReplicaLogDirTopicResult] = ...,
        version: int | None = ...,
    ) -> None: ...

class DescribeLogDirsRequest(Request[DescribeLogDirsResponse]):
    class DescribableLogDirTopic(Struct):
        topic: str
        partitions: list[int]
        def __init__(
            self,
            *,
            topic: str = ...,
            partitions: Sequence[int] = ...,
            version: int | None = ...,
        ) -> None: ...

    topics: list[DescribableLogDirTopic] | None
    def __init__(
        self,
        *,
        topics: Sequence[DescribableLogDirTopic] | None = ...,
        version: int | None = ...,
    ) -> None: ...

class DescribeLogDirsResponse(Response):
    class DescribeLogDirsResult(Struct):
        class DescribeLogDirsTopic(Struct):
            class DescribeLogDirsPartition(Struct):
                partition_index: int
                partition_size: int
                offset_lag: int
                is_future_key: bool
                def __init__(
                    self,
                    *,
                    partition_index: int = ...,
                    partition_size: int = ...,
                    offset_lag: int = ...,
                    is_future_key: bool = ...,
                    version: int | None = ...,
                ) -> None: ...

            name: str
            partitions: list[DescribeLogDirsPartition]
            def __init__(
                self,
                *,
                name: str = ...,
                partitions: Sequence[DescribeLogDirsPartition] = ...,
                version: int | None = ...,
            ) -> None: ...

        error_code: int
        log_dir: str
        topics: list[DescribeLogDirsTopic]
        total_bytes: int
        usable_bytes: int
        is_cordoned: bool
        def __init__(
            self,
            *,
            error_code: int = ...,
            log_dir: str = ...,
            topics: Sequence[DescribeLogDirsTopic] = ...,
            total_bytes: int = ...,
            usable_bytes: int = ...,
            is_cordoned: bool = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    results: list[DescribeLogDirsResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        results: Sequence[DescribeLogDirsResult] = ...,
        version: int | None = ...,
    ) -> None: ...

class SaslAuthenticateRequest(Request[SaslAuthenticateResponse]):
    auth_bytes: bytes
    def __init__(
        self,
        *,
        auth_bytes: bytes | bytearray | memoryview = ...,
        version: int | None = ...,
    ) -> None: ...

class SaslAuthenticateResponse(Response):
    error_code: int
    error_message: str | None
    auth_bytes: bytes
    session_lifetime_ms: int
    def __init__(
        self,
        *,
        error_code: int = ...,
        error_message: str | None = ...,
        auth_bytes: bytes | bytearray | memoryview = ...,
        session_lifetime_ms: int = ...,
        version: int | None = ...,
    ) -> None: ...

class CreatePartitionsRequest(Request[CreatePartitionsResponse]):
    class CreatePartitionsTopic(Struct):
        class CreatePartitionsAssignment(Struct):
            broker_ids: list[int]
            def __init__(
                self,
                *,
                broker_ids: Sequence[int] = ...,
                version: int | None = ...,
            ) -> None: ...

        name: str
        count: int
        assignments: list[CreatePartitionsAssignment] | None
        def __init__(
            self,
            *,
            name: str = ...,
            count: int = ...,
            assignments: Sequence[CreatePartitionsAssignment] | None = ...,
            version: int | None = ...,
        ) -> None: ...

    topics: list[CreatePartitionsTopic]
    timeout_ms: int
    validate_only: bool
    def __init__(
        self,
        *,
        topics: Sequence[CreatePartitionsTopic] = ...,
        timeout_ms: int = ...,
        validate_only: bool = ...,
        version: int | None = ...,
    ) -> None: ...

class CreatePartitionsResponse(Response):
    class CreatePartitionsTopicResult(Struct):
        name: str
        error_code: int
        error_message: str | None
        def __init__(
            self,
            *,
            name: str = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    results: list[CreatePartitionsTopicResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        results: Sequence[CreatePartitionsTopicResult] = ...,
        version: int | None = ...,
    ) -> None: ...

class CreateDelegationTokenRequest(Request[CreateDelegationTokenResponse]):
    class CreatableRenewers(Struct):
        principal_type: str
        principal_name: str
        def __init__(
            self,
            *,
            principal_type: str = ...,
            principal_name: str = ...,
            version: int | None = ...,
        ) -> None: ...

    owner_principal_type: str | None
    owner_principal_name: str | None
    renewers: list[CreatableRenewers]
    max_lifetime_ms: int
    def __init__(
        self,
        *,
        owner_principal_type: str | None = ...,
        owner_principal_name: str | None = ...,
        renewers: Sequence[CreatableRenewers] = ...,
        max_lifetime_ms: int = ...,
        version: int | None = ...,
    ) -> None: ...

class CreateDelegationTokenResponse(Response):
    error_code: int
    principal_type: str
    principal_name: str
    token_requester_principal_type: str
    token_requester_principal_name: str
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int
    token_id: str
    hmac: bytes
    throttle_time_ms: int
    def __init__(
        self,
        *,
        error_code: int = ...,
        principal_type: str = ...,
        principal_name: str = ...,
        token_requester_principal_type: str = ...,
        token_requester_principal_name: str = ...,
        issue_timestamp_ms: int = ...,
        expiry_timestamp_ms: int = ...,
        max_timestamp_ms: int = ...,
        token_id: str = ...,
        hmac: bytes | bytearray | memoryview = ...,
        throttle_time_ms: int = ...,
        version: int | None = ...,
    ) -> None: ...

class RenewDelegationTokenRequest(Request[RenewDelegationTokenResponse]):
    hmac: bytes
    renew_period_ms: int
    def __init__(
        self,
        *,
        hmac: bytes | bytearray | memoryview = ...,
        renew_period_ms: int = ...,
        version: int | None = ...,
    ) -> None: ...

class RenewDelegationTokenResponse(Response):
    error_code: int
    expiry_timestamp_ms: int
    throttle_time_ms: int
    def __init__(
        self,
        *,
        error_code: int = ...,
        expiry_timestamp_ms: int = ...,
        throttle_time_ms: int = ...,
        version: int | None = ...,
    ) -> None: ...

class ExpireDelegationTokenRequest(Request[ExpireDelegationTokenResponse]):
    hmac: bytes
    expiry_time_period_ms: int
    def __init__(
        self,
        *,
        hmac: bytes | bytearray | memoryview = ...,
        expiry_time_period_ms: int = ...,
        version: int | None = ...,
    ) -> None: ...

class ExpireDelegationTokenResponse(Response):
    error_code: int
    expiry_timestamp_ms: int
    throttle_time_ms: int
    def __init__(
        self,
        *,
        error_code: int = ...,
        expiry_timestamp_ms: int = ...,
        throttle_time_ms: int = ...,
        version: int | None = ...,
    ) -> None: ...

class DescribeDelegationTokenRequest(Request[DescribeDelegationTokenResponse]):
    class DescribeDelegationTokenOwner(Struct):
        principal_type: str
        principal_name: str
        def __init__(
            self,
            *,
            principal_type: str = ...,
            principal_name: str = ...,
            version: int | None = ...,
        ) -> None: ...

    owners: list[DescribeDelegationTokenOwner] | None
    def __init__(
        self,
        *,
        owners: Sequence[DescribeDelegationTokenOwner] | None = ...,
        version: int | None = ...,
    ) -> None: ...

class DescribeDelegationTokenResponse(Response):
    class DescribedDelegationToken(Struct):
        class DescribedDelegationTokenRenewer(Struct):
            principal_type: str
            principal_name: str
            def __init__(
                self,
                *,
                principal_type: str = ...,
                principal_name: str = ...,
                version: int | None = ...,
            ) -> None: ...

        principal_type: str
        principal_name: str
        token_requester_principal_type: str
        token_requester_principal_name: str
        issue_timestamp: int
        expiry_timestamp: int
        max_timestamp: int
        token_id: str
        hmac: bytes
        renewers: list[DescribedDelegationTokenRenewer]
        def __init__(
            self,
            *,
            principal_type: str = ...,
            principal_name: str = ...,
            token_requester_principal_type: str = ...,
            token_requester_principal_name: str = ...,
            issue_timestamp: int = ...,
            expiry_timestamp: int = ...,
            max_timestamp: int = ...,
            token_id: str = ...,
            hmac: bytes | bytearray | memoryview = ...,
            renewers: Sequence[DescribedDelegationTokenRenewer] = ...,
            version: int | None = ...,
        ) -> None: ...

    error_code: int
    tokens: list[DescribedDelegationToken]
    throttle_time_ms: int
    def __init__(
        self,
        *,
        error_code: int = ...,
        tokens: Sequence[DescribedDelegationToken] = ...,
        throttle_time_ms: int = ...,
        version: int | None = ...,
    ) -> None: ...

class DeleteGroupsRequest(Request[DeleteGroupsResponse]):
    groups_names: list[str]
    def __init__(
        self,
        *,
        groups_names: Sequence[str] = ...,
        version: int | None = ...,
    ) -> None: ...

class DeleteGroupsResponse(Response):
    class DeletableGroupResult(Struct):
        group_id: str
        error_code: int
        def __init__(
            self,
            *,
            group_id: str = ...,
            error_code: int = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    results: list[DeletableGroupResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        results: Sequence[DeletableGroupResult] = ...,
        version: int | None = ...,
    ) -> None: ...

class ElectLeadersRequest(Request[ElectLeadersResponse]):
    class TopicPartitions(Struct):
        topic: str
        partitions: list[int]
        def __init__(
            self,
            *,
            topic: str = ...,
            partitions: Sequence[int] = ...,
            version: int | None = ...,
        ) -> None: ...

    election_type: int
    topic_partitions: list[TopicPartitions] | None
    timeout_ms: int
    def __init__(
        self,
        *,
        election_type: int = ...,
        topic_partitions: Sequence[TopicPartitions] | None = ...,
        timeout_ms: int = ...,
        version: int | None = ...,
    ) -> None: ...

class ElectLeadersResponse(Response):
    class ReplicaElectionResult(Struct):
        class PartitionResult(Struct):
            partition_id: int
            error_code: int
            error_message: str | None
            def __init__(
                self,
                *,
                partition_id: int = ...,
                error_code: int = ...,
                error_message: str | None = ...,
                version: int | None = ...,
            ) -> None: ...

        topic: str
        partition_result: list[PartitionResult]
        def __init__(
            self,
            *,
            topic: str = ...,
            partition_result: Sequence[PartitionResult] = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    replica_election_results: list[ReplicaElectionResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        replica_election_results: Sequence[ReplicaElectionResult] = ...,
        version: int | None = ...,
    ) -> None: ...

class IncrementalAlterConfigsRequest(Request[IncrementalAlterConfigsResponse]):
    class AlterConfigsResource(Struct):
        class AlterableConfig(Struct):
            name: str
            config_operation: int
            value: str | None
            def __init__(
                self,
                *,
                name: str = ...,
                config_operation: int = ...,
                value: str | None = ...,
                version: int | None = ...,
            ) -> None: ...

        resource_type: int
        resource_name: str
        configs: list[AlterableConfig]
        def __init__(
            self,
            *,
            resource_type: int = ...,
            resource_name: str = ...,
            configs: Sequence[AlterableConfig] = ...,
            version: int | None = ...,
        ) -> None: ...

    resources: list[AlterConfigsResource]
    validate_only: bool
    def __init__(
        self,
        *,
        resources: Sequence[AlterConfigsResource] = ...,
        validate_only: bool = ...,
        version: int | None = ...,
    ) -> None: ...

class IncrementalAlterConfigsResponse(Response):
    class AlterConfigsResourceResponse(Struct):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        def __init__(
            self,
            *,
            error_code: int = ...,
            error_message: str | None = ...,
            resource_type: int = ...,
            resource_name: str = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    responses: list[AlterConfigsResourceResponse]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        responses: Sequence[AlterConfigsResourceResponse] = ...,
        version: int | None = ...,
    ) -> None: ...

class AlterPartitionReassignmentsRequest(Request[AlterPartitionReassignmentsResponse]):
    class ReassignableTopic(Struct):
        class ReassignablePartition(Struct):
            partition_index: int
            replicas: list[int] | None
            def __init__(
                self,
                *,
                partition_index: int = ...,
                replicas: Sequence[int] | None = ...,
                version: int | None = ...,
            ) -> None: ...

        name: str
        partitions: list[ReassignablePartition]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: Sequence[ReassignablePartition] = ...,
            version: int | None = ...,
        ) -> None: ...

    timeout_ms: int
    allow_replication_factor_change: bool
    topics: list[ReassignableTopic]
    def __init__(
        self,
        *,
        timeout_ms: int = ...,
        allow_replication_factor_change: bool = ...,
        topics: Sequence[ReassignableTopic] = ...,
        version: int | None = ...,
    ) -> None: ...

class AlterPartitionReassignmentsResponse(Response):
    class ReassignableTopicResponse(Struct):
        class ReassignablePartitionResponse(Struct):
            partition_index: int
            error_code: int
            error_message: str | None
            def __init__(
                self,
                *,
                partition_index: int = ...,
                error_code: int = ...,
                error_message: str | None = ...,
                version: int | None = ...,
            ) -> None: ...

        name: str
        partitions: list[ReassignablePartitionResponse]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: Sequence[ReassignablePartitionResponse] = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    allow_replication_factor_change: bool
    error_code: int
    error_message: str | None
    responses: list[ReassignableTopicResponse]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        allow_replication_factor_change: bool = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        responses: Sequence[ReassignableTopicResponse] = ...,
        version: int | None = ...,
    ) -> None: ...

class ListPartitionReassignmentsRequest(Request[ListPartitionReassignmentsResponse]):
    class ListPartitionReassignmentsTopics(Struct):
        name: str
        partition_indexes: list[int]
        def __init__(
            self,
            *,
            name: str = ...,
            partition_indexes: Sequence[int] = ...,
            version: int | None = ...,
        ) -> None: ...

    timeout_ms: int
    topics: list[ListPartitionReassignmentsTopics] | None
    def __init__(
        self,
        *,
        timeout_ms: int = ...,
        topics: Sequence[ListPartitionReassignmentsTopics] | None = ...,
        version: int | None = ...,
    ) -> None: ...

class ListPartitionReassignmentsResponse(Response):
    class OngoingTopicReassignment(Struct):
        class OngoingPartitionReassignment(Struct):
            partition_index: int
            replicas: list[int]
            adding_replicas: list[int]
            removing_replicas: list[int]
            def __init__(
                self,
                *,
                partition_index: int = ...,
                replicas: Sequence[int] = ...,
                adding_replicas: Sequence[int] = ...,
                removing_replicas: Sequence[int] = ...,
                version: int | None = ...,
            ) -> None: ...

        name: str
        partitions: list[OngoingPartitionReassignment]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: Sequence[OngoingPartitionReassignment] = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    topics: list[OngoingTopicReassignment]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        topics: Sequence[OngoingTopicReassignment] = ...,
        version: int | None = ...,
    ) -> None: ...

class OffsetDeleteRequest(Request[OffsetDeleteResponse]):
    class OffsetDeleteRequestTopic(Struct):
        class OffsetDeleteRequestPartition(Struct):
            partition_index: int
            def __init__(
                self,
                *,
                partition_index: int = ...,
                version: int | None = ...,
            ) -> None: ...

        name: str
        partitions: list[OffsetDeleteRequestPartition]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: Sequence[OffsetDeleteRequestPartition] = ...,
            version: int | None = ...,
        ) -> None: ...

    group_id: str
    topics: list[OffsetDeleteRequestTopic]
    def __init__(
        self,
        *,
        group_id: str = ...,
        topics: Sequence[OffsetDeleteRequestTopic] = ...,
        version: int | None = ...,
    ) -> None: ...

class OffsetDeleteResponse(Response):
    class OffsetDeleteResponseTopic(Struct):
        class OffsetDeleteResponsePartition(Struct):
            partition_index: int
            error_code: int
            def __init__(
                self,
                *,
                partition_index: int = ...,
                error_code: int = ...,
                version: int | None = ...,
            ) -> None: ...

        name: str
        partitions: list[OffsetDeleteResponsePartition]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: Sequence[OffsetDeleteResponsePartition] = ...,
            version: int | None = ...,
        ) -> None: ...

    error_code: int
    throttle_time_ms: int
    topics: list[OffsetDeleteResponseTopic]
    def __init__(
        self,
        *,
        error_code: int = ...,
        throttle_time_ms: int = ...,
        topics: Sequence[OffsetDeleteResponseTopic] = ...,
        version: int | None = ...,
    ) -> None: ...

class DescribeClientQuotasRequest(Request[DescribeClientQuotasResponse]):
    class ComponentData(Struct):
        entity_type: str
        match_type: int
        match: str | None
        def __init__(
            self,
            *,
            entity_type: str = ...,
            match_type: int = ...,
            match: str | None = ...,
            version: int | None = ...,
        ) -> None: ...

    components: list[ComponentData]
    strict: bool
    def __init__(
        self,
        *,
        components: Sequence[ComponentData] = ...,
        strict: bool = ...,
        version: int | None = ...,
    ) -> None: ...

class DescribeClientQuotasResponse(Response):
    class EntryData(Struct):
        class EntityData(Struct):
            entity_type: str
            entity_name: str | None
            def __init__(
                self,
                *,
                entity_type: str = ...,
                entity_name: str | None = ...,
                version: int | None = ...,
            ) -> None: ...

        class ValueData(Struct):
            key: str
            value: float
            def __init__(
                self,
                *,
                key: str = ...,
                value: float = ...,
                version: int | None = ...,
            ) -> None: ...

        entity: list[EntityData]
        values: list[ValueData]
        def __init__(
            self,
            *,
            entity: Sequence[EntityData] = ...,
            values: Sequence[ValueData] = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    entries: list[EntryData] | None
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        entries: Sequence[EntryData] | None = ...,
        version: int | None = ...,
    ) -> None: ...

class AlterClientQuotasRequest(Request[AlterClientQuotasResponse]):
    class EntryData(Struct):
        class EntityData(Struct):
            entity_type: str
            entity_name: str | None
            def __init__(
                self,
                *,
                entity_type: str = ...,
                entity_name: str | None = ...,
                version: int | None = ...,
            ) -> None: ...

        class OpData(Struct):
            key: str
            value: float
            remove: bool
            def __init__(
                self,
                *,
                key: str = ...,
                value: float = ...,
                remove: bool = ...,
                version: int | None = ...,
            ) -> None: ...

        entity: list[EntityData]
        ops: list[OpData]
        def __init__(
            self,
            *,
            entity: Sequence[EntityData] = ...,
            ops: Sequence[OpData] = ...,
            version: int | None = ...,
        ) -> None: ...

    entries: list[EntryData]
    validate_only: bool
    def __init__(
        self,
        *,
        entries: Sequence[EntryData] = ...,
        validate_only: bool = ...,
        version: int | None = ...,
    ) -> None: ...

class AlterClientQuotasResponse(Response):
    class EntryData(Struct):
        class EntityData(Struct):
            entity_type: str
            entity_name: str | None
            def __init__(
                self,
                *,
                entity_type: str = ...,
                entity_name: str | None = ...,
                version: int | None = ...,
            ) -> None: ...

        error_code: int
        error_message: str | None
        entity: list[EntityData]
        def __init__(
            self,
            *,
            error_code: int = ...,
            error_message: str | None = ...,
            entity: Sequence[EntityData] = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    entries: list[EntryData]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        entries: Sequence[EntryData] = ...,
        version: int | None = ...,
    ) -> None: ...

class DescribeUserScramCredentialsRequest(Request[DescribeUserScramCredentialsResponse]):
    class UserName(Struct):
        name: str
        def __init__(
            self,
            *,
            name: str = ...,
            version: int | None = ...,
        ) -> None: ...

    users: list[UserName] | None
    def __init__(
        self,
        *,
        users: Sequence[UserName] | None = ...,
        version: int | None = ...,
    ) -> None: ...

class DescribeUserScramCredentialsResponse(Response):
    class DescribeUserScramCredentialsResult(Struct):
        class CredentialInfo(Struct):
            mechanism: int
            iterations: int
            def __init__(
                self,
                *,
                mechanism: int = ...,
                iterations: int = ...,
                version: int | None = ...,
            ) -> None: ...

        user: str
        error_code: int
        error_message: str | None
        credential_infos: list[CredentialInfo]
        def __init__(
            self,
            *,
            user: str = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            credential_infos: Sequence[CredentialInfo] = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: list[DescribeUserScramCredentialsResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        results: Sequence[DescribeUserScramCredentialsResult] = ...,
        version: int | None = ...,
    ) -> None: ...

class AlterUserScramCredentialsRequest(Request[AlterUserScramCredentialsResponse]):
    class ScramCredentialDeletion(Struct):
        name: str
        mechanism: int
        def __init__(
            self,
            *,
            name: str = ...,
            mechanism: int = ...,
            version: int | None = ...,
        ) -> None: ...

    class ScramCredentialUpsertion(Struct):
        name: str
        mechanism: int
        iterations: int
        salt: bytes
        salted_password: bytes
        def __init__(
            self,
            *,
            name: str = ...,
            mechanism: int = ...,
            iterations: int = ...,
            salt: bytes | bytearray | memoryview = ...,
            salted_password: bytes | bytearray | memoryview = ...,
            version: int | None = ...,
        ) -> None: ...

    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]
    def __init__(
        self,
        *,
        deletions: Sequence[ScramCredentialDeletion] = ...,
        upsertions: Sequence[ScramCredentialUpsertion] = ...,
        version: int | None = ...,
    ) -> None: ...

class AlterUserScramCredentialsResponse(Response):
    class AlterUserScramCredentialsResult(Struct):
        user: str
        error_code: int
        error_message: str | None
        def __init__(
            self,
            *,
            user: str = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    results: list[AlterUserScramCredentialsResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        results: Sequence[AlterUserScramCredentialsResult] = ...,
        version: int | None = ...,
    ) -> None: ...

class AlterPartitionRequest(Request[AlterPartitionResponse]):
    class TopicData(Struct):
        class PartitionData(Struct):
            class BrokerState(Struct):
                broker_id: int
                broker_epoch: int
                def __init__(
                    self,
                    *,
                    broker_id: int = ...,
                    broker_epoch: int = ...,
                    version: int | None = ...,
                ) -> None: ...

            partition_index: int
            leader_epoch: int
            new_isr: list[int]
            new_isr_with_epochs: list[BrokerState]
            leader_recovery_state: int
            partition_epoch: int
            def __init__(
                self,
                *,
                partition_index: int = ...,
                leader_epoch: int = ...,
                new_isr: Sequence[int] = ...,
                new_isr_with_epochs: Sequence[BrokerState] = ...,
                leader_recovery_state: int = ...,
                partition_epoch: int = ...,
                version: int | None = ...,
            ) -> None: ...

        topic_id: UUID | None
        partitions: list[PartitionData]
        def __init__(
            self,
            *,
            topic_id: UUID | None = ...,
            partitions: Sequence[PartitionData] = ...,
            version: int | None = ...,
        ) -> None: ...

    broker_id: int
    broker_epoch: int
    topics: list[TopicData]
    def __init__(
        self,
        *,
        broker_id: int = ...,
        broker_epoch: int = ...,
        topics: Sequence[TopicData] = ...,
        version: int | None = ...,
    ) -> None: ...

class AlterPartitionResponse(Response):
    class TopicData(Struct):
        class PartitionData(Struct):
            partition_index: int
            error_code: int
            leader_id: int
            leader_epoch: int
            isr: list[int]
            leader_recovery_state: int
            partition_epoch: int
            def __init__(
                self,
                *,
                partition_index: int = ...,
                error_code: int = ...,
                leader_id: int = ...,
                leader_epoch: int = ...,
                isr: Sequence[int] = ...,
                leader_recovery_state: int = ...,
                partition_epoch: int = ...,
                version: int | None = ...,
            ) -> None: ...

        topic_id: UUID | None
        partitions: list[PartitionData]
        def __init__(
            self,
            *,
            topic_id: UUID | None = ...,
            partitions: Sequence[PartitionData] = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    topics: list[TopicData]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        topics: Sequence[TopicData] = ...,
        version: int | None = ...,
    ) -> None: ...

class DescribeClusterRequest(Request[DescribeClusterResponse]):
    include_cluster_authorized_operations: bool
    endpoint_type: int
    include_fenced_brokers: bool
    def __init__(
        self,
        *,
        include_cluster_authorized_operations: bool = ...,
        endpoint_type: int = ...,
        include_fenced_brokers: bool = ...,
        version: int | None = ...,
    ) -> None: ...

class DescribeClusterResponse(Response):
    class DescribeClusterBroker(Struct):
        broker_id: int
        host: str
        port: int
        rack: str | None
        is_fenced: bool
        def __init__(
            self,
            *,
            broker_id: int = ...,
            host: str = ...,
            port: int = ...,
            rack: str | None = ...,
            is_fenced: bool = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    endpoint_type: int
    cluster_id: str
    controller_id: int
    brokers: list[DescribeClusterBroker]
    authorized_operations: set[int] | None
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        endpoint_type: int = ...,
        cluster_id: str = ...,
        controller_id: int = ...,
        brokers: Sequence[DescribeClusterBroker] = ...,
        authorized_operations: Iterable[int] | None = ...,
        version: int | None = ...,
    ) -> None: ...

class DescribeProducersRequest(Request[DescribeProducersResponse]):
    class TopicRequest(Struct):
        name: str
        partition_indexes: list[int]
        def __init__(
            self,
            *,
            name: str = ...,
            partition_indexes: Sequence[int] = ...,
            version: int | None = ...,
        ) -> None: ...

    topics: list[TopicRequest]
    def __init__(
        self,
        *,
        topics: Sequence[TopicRequest] = ...,
        version: int | None = ...,
    ) -> None: ...

class DescribeProducersResponse(Response):
    class TopicResponse(Struct):
        class PartitionResponse(Struct):
            class ProducerState(Struct):
                producer_id: int
                producer_epoch: int
                last_sequence: int
                last_timestamp: int
                coordinator_epoch: int
                current_txn_start_offset: int
                def __init__(
                    self,
                    *,
                    producer_id: int = ...,
                    producer_epoch: int = ...,
                    last_sequence: int = ...,
                    last_timestamp: int = ...,
                    coordinator_epoch: int = ...,
                    current_txn_start_offset: int = ...,
                    version: int | None = ...,
                ) -> None: ...

            partition_index: int
            error_code: int
            error_message: str | None
            active_producers: list[ProducerState]
            def __init__(
                self,
                *,
                partition_index: int = ...,
                error_code: int = ...,
                error_message: str | None = ...,
                active_producers: Sequence[ProducerState] = ...,
                version: int | None = ...,
            ) -> None: ...

        name: str
        partitions: list[PartitionResponse]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: Sequence[PartitionResponse] = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    topics: list[TopicResponse]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: Sequence[TopicResponse] = ...,
        version: int | None = ...,
    ) -> None: ...

class DescribeTransactionsRequest(Request[DescribeTransactionsResponse]):
    transactional_ids: list[str]
    def __init__(
        self,
        *,
        transactional_ids: Sequence[str] = ...,
        version: int | None = ...,
    ) -> None: ...

class DescribeTransactionsResponse(Response):
    class TransactionState(Struct):
        class TopicData(Struct):
            topic: str
            partitions: list[int]
            def __init__(
                self,
                *,
                topic: str = ...,
                partitions: Sequence[int] = ...,
                version: int | None = ...,
            ) -> None: ...

        error_code: int
        transactional_id: str
        transaction_state: str
        transaction_timeout_ms: int
        transaction_start_time_ms: int
        producer_id: int
        producer_epoch: int
        topics: list[TopicData]
        def __init__(
            self,
            *,
            error_code: int = ...,
            transactional_id: str = ...,
            transaction_state: str = ...,
            transaction_timeout_ms: int = ...,
            transaction_start_time_ms: int = ...,
            producer_id: int = ...,
            producer_epoch: int = ...,
            topics: Sequence[TopicData] = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    transaction_states: list[TransactionState]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        transaction_states: Sequence[TransactionState] = ...,
        version: int | None = ...,
    ) -> None: ...

class ListTransactionsRequest(Request[ListTransactionsResponse]):
    state_filters: list[str]
    producer_id_filters: list[int]
    duration_filter: int
    transactional_id_pattern: str | None
    def __init__(
        self,
        *,
        state_filters: Sequence[str] = ...,
        producer_id_filters: Sequence[int] = ...,
        duration_filter: int = ...,
        transactional_id_pattern: str | None = ...,
        version: int | None = ...,
    ) -> None: ...

class ListTransactionsResponse(Response):
    class TransactionState(Struct):
        transactional_id: str
        producer_id: int
        transaction_state: str
        def __init__(
            self,
            *,
            transactional_id: str = ...,
            producer_id: int = ...,
            transaction_state: str = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    unknown_state_filters: list[str]
    transaction_states: list[TransactionState]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        unknown_state_filters: Sequence[str] = ...,
        transaction_states: Sequence[TransactionState] = ...,
        version: int | None = ...,
    ) -> None: ...

class AllocateProducerIdsRequest(Request[AllocateProducerIdsResponse]):
    broker_id: int
    broker_epoch: int
    def __init__(
        self,
        *,
        broker_id: int = ...,
        broker_epoch: int = ...,
        version: int | None = ...,
    ) -> None: ...

class AllocateProducerIdsResponse(Response):
    throttle_time_ms: int
    error_code: int
    producer_id_start: int
    producer_id_len: int
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        producer_id_start: int = ...,
        producer_id_len: int = ...,
        version: int | None = ...,
    ) -> None: ...

class ConsumerGroupHeartbeatRequest(Request[ConsumerGroupHeartbeatResponse]):
    class TopicPartitions(Struct):
        topic_id: UUID | None
        partitions: list[int]
        def __init__(
            self,
            *,
            topic_id: UUID | None = ...,
            partitions: Sequence[int] = ...,
            version: int | None = ...,
        ) -> None: ...

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    subscribed_topic_names: list[str] | None
    subscribed_topic_regex: str | None
    server_assignor: str | None
    topic_partitions: list[TopicPartitions] | None
    def __init__(
        self,
        *,
        group_id: str = ...,
        member_id: str = ...,
        member_epoch: int = ...,
        instance_id: str | None = ...,
        rack_id: str | None = ...,
        rebalance_timeout_ms: int = ...,
        subscribed_topic_names: Sequence[str] | None = ...,
        subscribed_topic_regex: str | None = ...,
        server_assignor: str | None = ...,
        topic_partitions: Sequence[TopicPartitions] | None = ...,
        version: int | None = ...,
    ) -> None: ...

class ConsumerGroupHeartbeatResponse(Response):
    class Assignment(Struct):
        class TopicPartitions(Struct):
            topic_id: UUID | None
            partitions: list[int]
            def __init__(
                self,
                *,
                topic_id: UUID | None = ...,
                partitions: Sequence[int] = ...,
                version: int | None = ...,
            ) -> None: ...

        topic_partitions: list[TopicPartitions]
        def __init__(
            self,
            *,
            topic_partitions: Sequence[TopicPartitions] = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Assignment | None
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        member_id: str | None = ...,
        member_epoch: int = ...,
        heartbeat_interval_ms: int = ...,
        assignment: Assignment | None = ...,
        version: int | None = ...,
    ) -> None: ...

class ConsumerGroupDescribeRequest(Request[ConsumerGroupDescribeResponse]):
    group_ids: list[str]
    include_authorized_operations: bool
    def __init__(
        self,
        *,
        group_ids: Sequence[str] = ...,
        include_authorized_operations: bool = ...,
        version: int | None = ...,
    ) -> None: ...

class ConsumerGroupDescribeResponse(Response):
    class DescribedGroup(Struct):
        class Member(Struct):
            class Assignment(Struct):
                class TopicPartitions(Struct):
                    topic_id: UUID | None
                    topic_name: str
                    partitions: list[int]
                    def __init__(
                        self,
                        *,
                        topic_id: UUID | None = ...,
                        topic_name: str = ...,
                        partitions: Sequence[int] = ...,
                        version: int | None = ...,
                    ) -> None: ...

                topic_partitions: list[TopicPartitions]
                def __init__(
                    self,
                    *,
                    topic_partitions: Sequence[TopicPartitions] = ...,
                    version: int | None = ...,
                ) -> None: ...

            member_id: str
            instance_id: str | None
            rack_id: str | None
            member_epoch: int
            client_id: str
            client_host: str
            subscribed_topic_names: list[str]
            subscribed_topic_regex: str | None
            assignment: Assignment
            target_assignment: Assignment
            member_type: int
            def __init__(
                self,
                *,
                member_id: str = ...,
                instance_id: str | None = ...,
                rack_id: str | None = ...,
                member_epoch: int = ...,
                client_id: str = ...,
                client_host: str = ...,
                subscribed_topic_names: Sequence[str] = ...,
                subscribed_topic_regex: str | None = ...,
                assignment: Assignment,
                target_assignment: Assignment,
                member_type: int = ...,
                version: int | None = ...,
            ) -> None: ...

        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        group_epoch: int
        assignment_epoch: int
        assignor_name: str
        members: list[Member]
        authorized_operations: set[int] | None
        def __init__(
            self,
            *,
            error_code: int = ...,
            error_message: str | None = ...,
            group_id: str = ...,
            group_state: str = ...,
            group_epoch: int = ...,
            assignment_epoch: int = ...,
            assignor_name: str = ...,
            members: Sequence[Member] = ...,
            authorized_operations: Iterable[int] | None = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    groups: list[DescribedGroup]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        groups: Sequence[DescribedGroup] = ...,
        version: int | None = ...,
    ) -> None: ...

class DescribeTopicPartitionsRequest(Request[DescribeTopicPartitionsResponse]):
    class TopicRequest(Struct):
        name: str
        def __init__(
            self,
            *,
            name: str = ...,
            version: int | None = ...,
        ) -> None: ...

    class Cursor(Struct):
        topic_name: str
        partition_index: int
        def __init__(
            self,
            *,
            topic_name: str = ...,
            partition_index: int = ...,
            version: int | None = ...,
        ) -> None: ...

    topics: list[TopicRequest]
    response_partition_limit: int
    cursor: Cursor | None
    def __init__(
        self,
        *,
        topics: Sequence[TopicRequest] = ...,
        response_partition_limit: int = ...,
        cursor: Cursor | None = ...,
        version: int | None = ...,
    ) -> None: ...

class DescribeTopicPartitionsResponse(Response):
    class DescribeTopicPartitionsResponseTopic(Struct):
        class DescribeTopicPartitionsResponsePartition(Struct):
            error_code: int
            partition_index: int
            leader_id: int
            leader_epoch: int
            replica_nodes: list[int]
            isr_nodes: list[int]
            eligible_leader_replicas: list[int] | None
            last_known_elr: list[int] | None
            offline_replicas: list[int]
            def __init__(
                self,
                *,
                error_code: int = ...,
                partition_index: int = ...,
                leader_id: int = ...,
                leader_epoch: int = ...,
                replica_nodes: Sequence[int] = ...,
                isr_nodes: Sequence[int] = ...,
                eligible_leader_replicas: Sequence[int] | None = ...,
                last_known_elr: Sequence[int] | None = ...,
                offline_replicas: Sequence[int] = ...,
                version: int | None = ...,
            ) -> None: ...

        error_code: int
        name: str | None
        topic_id: UUID | None
        is_internal: bool
        partitions: list[DescribeTopicPartitionsResponsePartition]
        topic_authorized_operations: int
        def __init__(
            self,
            *,
            error_code: int = ...,
            name: str | None = ...,
            topic_id: UUID | None = ...,
            is_internal: bool = ...,
            partitions: Sequence[DescribeTopicPartitionsResponsePartition] = ...,
            topic_authorized_operations: int = ...,
            version: int | None = ...,
        ) -> None: ...

    class Cursor(Struct):
        topic_name: str
        partition_index: int
        def __init__(
            self,
            *,
            topic_name: str = ...,
            partition_index: int = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    topics: list[DescribeTopicPartitionsResponseTopic]
    next_cursor: Cursor | None
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: Sequence[DescribeTopicPartitionsResponseTopic] = ...,
        next_cursor: Cursor | None = ...,
        version: int | None = ...,
    ) -> None: ...

class LeaseSegmentsRequest(Request[LeaseSegmentsResponse]):
    class LeaseTopic(Struct):
        class LeasePartition(Struct):
            partition_index: int
            start_offset: int
            end_offset: int
            current_leader_epoch: int
            def __init__(
                self,
                *,
                partition_index: int = ...,
                start_offset: int = ...,
                end_offset: int = ...,
                current_leader_epoch: int = ...,
                version: int | None = ...,
            ) -> None: ...

        topic: str
        topic_id: UUID | None
        partitions: list[LeasePartition]
        def __init__(
            self,
            *,
            topic: str = ...,
            topic_id: UUID | None = ...,
            partitions: Sequence[LeasePartition] = ...,
            version: int | None = ...,
        ) -> None: ...

    isolation_level: int
    duration_ms: int
    max_files: int
    topics: list[LeaseTopic]
    ended_leases: list[int]
    def __init__(
        self,
        *,
        isolation_level: int = ...,
        duration_ms: int = ...,
        max_files: int = ...,
        topics: Sequence[LeaseTopic] = ...,
        ended_leases: Sequence[int] = ...,
        version: int | None = ...,
    ) -> None: ...

class LeaseSegmentsResponse(Response):
    class LeasedTopic(Struct):
        class LeasedPartition(Struct):
            class LeasedFile(Struct):
                path: str
                device: int
                inode: int
                start_position: int
                end_position: int
                first_offset: int
                first_crc: int
                def __init__(
                    self,
                    *,
                    path: str = ...,
                    device: int = ...,
                    inode: int = ...,
                    start_position: int = ...,
                    end_position: int = ...,
                    first_offset: int = ...,
                    first_crc: int = ...,
                    version: int | None = ...,
                ) -> None: ...

            class LeasedAbortedTransaction(Struct):
                producer_id: int
                first_offset: int
                def __init__(
                    self,
                    *,
                    producer_id: int = ...,
                    first_offset: int = ...,
                    version: int | None = ...,
                ) -> None: ...

            partition_index: int
            error_code: int
            log_start_offset: int
            end_offset: int
            files: list[LeasedFile]
            aborted_transactions: list[LeasedAbortedTransaction]
            def __init__(
                self,
                *,
                partition_index: int = ...,
                error_code: int = ...,
                log_start_offset: int = ...,
                end_offset: int = ...,
                files: Sequence[LeasedFile] = ...,
                aborted_transactions: Sequence[LeasedAbortedTransaction] = ...,
                version: int | None = ...,
            ) -> None: ...

        topic: str
        topic_id: UUID | None
        partitions: list[LeasedPartition]
        def __init__(
            self,
            *,
            topic: str = ...,
            topic_id: UUID | None = ...,
            partitions: Sequence[LeasedPartition] = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    lease_id: int
    duration_ms: int
    topics: list[LeasedTopic]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        lease_id: int = ...,
        duration_ms: int = ...,
        topics: Sequence[LeasedTopic] = ...,
        version: int | None = ...,
    ) -> None: ...

class ProbeBrokerRequest(Request[ProbeBrokerResponse]):
    broker_id: int
    host: str
    port: int
    def __init__(
        self,
        *,
        broker_id: int = ...,
        host: str = ...,
        port: int = ...,
        version: int | None = ...,
    ) -> None: ...

class ProbeBrokerResponse(Response):
    throttle_time_ms: int
    error_code: int
    sight: int
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        sight: int = ...,
        version: int | None = ...,
    ) -> None: ...

class GetReplicaLogInfoRequest(Request[GetReplicaLogInfoResponse]):
    class TopicLogs(Struct):
        name: str
        topic_id: UUID | None
        partitions: list[int]
        def __init__(
            self,
            *,
            name: str = ...,
            topic_id: UUID | None = ...,
            partitions: Sequence[int] = ...,
            version: int | None = ...,
        ) -> None: ...

    broker_id: int
    topics: list[TopicLogs]
    def __init__(
        self,
        *,
        broker_id: int = ...,
        topics: Sequence[TopicLogs] = ...,
        version: int | None = ...,
    ) -> None: ...

class GetReplicaLogInfoResponse(Response):
    class TopicLogInfo(Struct):
        class PartitionLogInfo(Struct):
            partition: int
            last_written_leader_epoch: int
            log_end_offset: int
            error_code: int
            def __init__(
                self,
                *,
                partition: int = ...,
                last_written_leader_epoch: int = ...,
                log_end_offset: int = ...,
                error_code: int = ...,
                version: int | None = ...,
            ) -> None: ...

        name: str
        partitions: list[PartitionLogInfo]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: Sequence[PartitionLogInfo] = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    broker_epoch: int
    topics: list[TopicLogInfo]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        broker_epoch: int = ...,
        topics: Sequence[TopicLogInfo] = ...,
        version: int | None = ...,
    ) -> None: ...

class DescribeCompactionRequest(Request[DescribeCompactionResponse]):
    topics: list[str] | None
    def __init__(
        self,
        *,
        topics: Sequence[str] | None = ...,
        version: int | None = ...,
    ) -> None: ...

class DescribeCompactionResponse(Response):
    class DescribedTopic(Struct):
        class DescribedPartition(Struct):
            partition_index: int
            error_code: int
            error_message: str | None
            first_dirty_offset: int
            first_uncleanable_offset: int
            clean_bytes: int
            cleanable_bytes: int
            delay_ms: int
            is_due: bool
            is_under_way: bool
            cleaned_by: str | None
            uncleanable_reason: str | None
            uncleanable_bytes: int
            last_ended_ms: int
            last_seconds: float
            last_bytes_before: int
            last_bytes_after: int
            last_messages_before: int
            last_messages_after: int
            def __init__(
                self,
                *,
                partition_index: int = ...,
                error_code: int = ...,
                error_message: str | None = ...,
                first_dirty_offset: int = ...,
                first_uncleanable_offset: int = ...,
                clean_bytes: int = ...,
                cleanable_bytes: int = ...,
                delay_ms: int = ...,
                is_due: bool = ...,
                is_under_way: bool = ...,
                cleaned_by: str | None = ...,
                uncleanable_reason: str | None = ...,
                uncleanable_bytes: int = ...,
                last_ended_ms: int = ...,
                last_seconds: float = ...,
                last_bytes_before: int = ...,
                last_bytes_after: int = ...,
                last_messages_before: int = ...,
                last_messages_after: int = ...,
                version: int | None = ...,
            ) -> None: ...

        name: str
        partitions: list[DescribedPartition]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: Sequence[DescribedPartition] = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    is_enabled: bool
    threads: int
    max_clean_time_secs: int
    max_buffer_utilization_percent: int
    max_dirty_percent: int
    max_compaction_delay_secs: int
    topics: list[DescribedTopic]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        is_enabled: bool = ...,
        threads: int = ...,
        max_clean_time_secs: int = ...,
        max_buffer_utilization_percent: int = ...,
        max_dirty_percent: int = ...,
        max_compaction_delay_secs: int = ...,
        topics: Sequence[DescribedTopic] = ...,
        version: int | None = ...,
    ) -> None: ...

class CompactPartitionsRequest(Request[CompactPartitionsResponse]):
    class CompactedTopic(Struct):
        name: str
        partitions: list[int]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: Sequence[int] = ...,
            version: int | None = ...,
        ) -> None: ...

    topics: list[CompactedTopic]
    timeout_ms: int
    since_ms: int
    def __init__(
        self,
        *,
        topics: Sequence[CompactedTopic] = ...,
        timeout_ms: int = ...,
        since_ms: int = ...,
        version: int | None = ...,
    ) -> None: ...

class CompactPartitionsResponse(Response):
    class CompactedTopicResult(Struct):
        class CompactedPartition(Struct):
            partition_index: int
            error_code: int
            error_message: str | None
            ended_ms: int
            seconds: float
            bytes_before: int
            bytes_after: int
            messages_before: int
            messages_after: int
            def __init__(
                self,
                *,
                partition_index: int = ...,
                error_code: int = ...,
                error_message: str | None = ...,
                ended_ms: int = ...,
                seconds: float = ...,
                bytes_before: int = ...,
                bytes_after: int = ...,
                messages_before: int = ...,
                messages_after: int = ...,
                version: int | None = ...,
            ) -> None: ...

        name: str
        partitions: list[CompactedPartition]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: Sequence[CompactedPartition] = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    since_ms: int
    topics: list[CompactedTopicResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        since_ms: int = ...,
        topics: Sequence[CompactedTopicResult] = ...,
        version: int | None = ...,
    ) -> None: ...

class BeginCompactionRequest(Request[BeginCompactionResponse]):
    class GrantedTopic(Struct):
        name: str
        partitions: list[int]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: Sequence[int] = ...,
            version: int | None = ...,
        ) -> None: ...

    topics: list[GrantedTopic]
    rolls_active: bool
    duration_ms: int
    renewed: list[int]
    def __init__(
        self,
        *,
        topics: Sequence[GrantedTopic] = ...,
        rolls_active: bool = ...,
        duration_ms: int = ...,
        renewed: Sequence[int] = ...,
        version: int | None = ...,
    ) -> None: ...

class BeginCompactionResponse(Response):
    class GrantedTopicResult(Struct):
        class GrantedPartition(Struct):
            partition_index: int
            error_code: int
            error_message: str | None
            token: int
            target: bytes
            def __init__(
                self,
                *,
                partition_index: int = ...,
                error_code: int = ...,
                error_message: str | None = ...,
                token: int = ...,
                target: bytes | bytearray | memoryview = ...,
                version: int | None = ...,
            ) -> None: ...

        name: str
        partitions: list[GrantedPartition]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: Sequence[GrantedPartition] = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    topics: list[GrantedTopicResult]
    lapsed: list[int]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        topics: Sequence[GrantedTopicResult] = ...,
        lapsed: Sequence[int] = ...,
        version: int | None = ...,
    ) -> None: ...

class CommitCompactionRequest(Request[CommitCompactionResponse]):
    token: int
    step: int
    tag: str
    old: list[int]
    new: list[int]
    report: bytes
    timeout_ms: int
    def __init__(
        self,
        *,
        token: int = ...,
        step: int = ...,
        tag: str = ...,
        old: Sequence[int] = ...,
        new: Sequence[int] = ...,
        report: bytes | bytearray | memoryview = ...,
        timeout_ms: int = ...,
        version: int | None = ...,
    ) -> None: ...

class CommitCompactionResponse(Response):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        version: int | None = ...,
    ) -> None: ...

class EraseRecordsRequest(Request[EraseRecordsResponse]):
    class ErasedPartition(Struct):
        partition_index: int
        end_offset: int
        def __init__(
            self,
            *,
            partition_index: int = ...,
            end_offset: int = ...,
            version: int | None = ...,
        ) -> None: ...

    erasure_id: UUID | None
    round: int
    scan_only: bool
    keys: bytes | None
    topic: str
    topic_id: UUID | None
    partitions: list[ErasedPartition]
    def __init__(
        self,
        *,
        erasure_id: UUID | None = ...,
        round: int = ...,
        scan_only: bool = ...,
        keys: bytes | bytearray | memoryview | None = ...,
        topic: str = ...,
        topic_id: UUID | None = ...,
        partitions: Sequence[ErasedPartition] = ...,
        version: int | None = ...,
    ) -> None: ...

class EraseRecordsResponse(Response):
    class ErasedPartitionResult(Struct):
        class ScannedSegment(Struct):
            base_offset: int
            size: int
            sha256: bytes
            def __init__(
                self,
                *,
                base_offset: int = ...,
                size: int = ...,
                sha256: bytes | bytearray | memoryview = ...,
                version: int | None = ...,
            ) -> None: ...

        partition_index: int
        error_code: int
        error_message: str | None
        state: int
        end_offset: int
        log_start_offset: int
        segments_done: int
        segments_total: int
        records_scanned: int
        bytes_scanned: int
        records_found: int
        segments_rewritten: int
        segments: list[ScannedSegment]
        def __init__(
            self,
            *,
            partition_index: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            state: int = ...,
            end_offset: int = ...,
            log_start_offset: int = ...,
            segments_done: int = ...,
            segments_total: int = ...,
            records_scanned: int = ...,
            bytes_scanned: int = ...,
            records_found: int = ...,
            segments_rewritten: int = ...,
            segments: Sequence[ScannedSegment] = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    needs_keys: bool
    partitions: list[ErasedPartitionResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        needs_keys: bool = ...,
        partitions: Sequence[ErasedPartitionResult] = ...,
        version: int | None = ...,
    ) -> None: ...

class AdoptSegmentsRequest(Request[AdoptSegmentsResponse]):
    topic: str
    topic_id: UUID | None
    partition_index: int
    current_leader_epoch: int
    mode: int
    transactional_id: str | None
    tag: str
    bases: list[int]
    end_offset: int
    log_start_offset: int
    timeout_ms: int
    def __init__(
        self,
        *,
        topic: str = ...,
        topic_id: UUID | None = ...,
        partition_index: int = ...,
        current_leader_epoch: int = ...,
        mode: int = ...,
        transactional_id: str | None = ...,
        tag: str = ...,
        bases: Sequence[int] = ...,
        end_offset: int = ...,
        log_start_offset: int = ...,
        timeout_ms: int = ...,
        version: int | None = ...,
    ) -> None: ...

class AdoptSegmentsResponse(Response):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    first_offset: int
    last_offset: int
    log_start_offset: int
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        first_offset: int = ...,
        last_offset: int = ...,
        log_start_offset: int = ...,
        version: int | None = ...,
    ) -> None: ...

class DescribeRetentionRequest(Request[DescribeRetentionResponse]):
    topics: list[str] | None
    def __init__(
        self,
        *,
        topics: Sequence[str] | None = ...,
        version: int | None = ...,
    ) -> None: ...

class DescribeRetentionResponse(Response):
    class DescribedTopic(Struct):
        class DescribedPartition(Struct):
            partition_index: int
            offload_group: str | None
            offloaded_offset: int
            held_bytes: int
            held_records: int
            limit_bytes: int
            lost_records: int
            lost_until: int
            checked_ms: int
            refusal: str | None
            def __init__(
                self,
                *,
                partition_index: int = ...,
                offload_group: str | None = ...,
                offloaded_offset: int = ...,
                held_bytes: int = ...,
                held_records: int = ...,
                limit_bytes: int = ...,
                lost_records: int = ...,
                lost_until: int = ...,
                checked_ms: int = ...,
                refusal: str | None = ...,
                version: int | None = ...,
            ) -> None: ...

        name: str
        partitions: list[DescribedPartition]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: Sequence[DescribedPartition] = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    topics: list[DescribedTopic]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        topics: Sequence[DescribedTopic] = ...,
        version: int | None = ...,
    ) -> None: ...

class DescribeLagRequest(Request[DescribeLagResponse]):
    class LagTopic(Struct):
        class LagPartition(Struct):
            partition_index: int
            offset: int
            def __init__(
                self,
                *,
                partition_index: int = ...,
                offset: int = ...,
                version: int | None = ...,
            ) -> None: ...

        name: str
        partitions: list[LagPartition]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: Sequence[LagPartition] = ...,
            version: int | None = ...,
        ) -> None: ...

    topics: list[LagTopic]
    def __init__(
        self,
        *,
        topics: Sequence[LagTopic] = ...,
        version: int | None = ...,
    ) -> None: ...

class DescribeLagResponse(Response):
    class DescribedTopic(Struct):
        class DescribedPartition(Struct):
            partition_index: int
            error_code: int
            offset: int
            high_watermark: int
            bytes: int
            def __init__(
                self,
                *,
                partition_index: int = ...,
                error_code: int = ...,
                offset: int = ...,
                high_watermark: int = ...,
                bytes: int = ...,
                version: int | None = ...,
            ) -> None: ...

        name: str
        partitions: list[DescribedPartition]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: Sequence[DescribedPartition] = ...,
            version: int | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    topics: list[DescribedTopic]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: Sequence[DescribedTopic] = ...,
        version: int | None = ...,
    ) -> None: ...
