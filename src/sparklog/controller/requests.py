"""The messages that a controller sends, built from its context, and what the answers refuse.

They are built in steps, a partition a step: between two of them the loop may serve others. What brokers answer may be
taken note of meanwhile; the states are the controller's own to change, which waits for the message.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from uuid import UUID

from sparklog.controller.context import ControllerContext
from sparklog.errors import ErrorCode
from sparklog.protocol.messages import (
    FULL,
    INCREMENTAL,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
)
from sparklog.protocol.slices import Steps, each_of
from sparklog.protocol.wire import ZERO_UUID
from sparklog.structs import NO_LEADER, TopicPartition
from sparklog.zk.znodes import BrokerInfo

LEADER_DURING_DELETE = -2
"""The leader that UpdateMetadata gives a partition that is going away."""
_HELD = frozenset({ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH})
"""Of one partition: the broker holds it."""
_LedState = LeaderAndIsrRequest.LeaderAndIsrTopicState.LeaderAndIsrPartitionState
_MetadataState = UpdateMetadataRequest.UpdateMetadataTopicState.UpdateMetadataPartitionState


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    topics: dict[str, list[TopicPartition]] = defaultdict(list)
    for tp in partitions:
        topics[tp.topic].append(tp)
    return topics


def leader_and_isr(
    context: ControllerContext,
    controller_id: int,
    broker: BrokerInfo,
    partitions: Iterable[TopicPartition],
    *,
    full: bool,
) -> Steps[LeaderAndIsrRequest]:
    """Tells one broker to lead or follow ``partitions``; ``full`` says that it holds no others.

    A replica is new to it also where the partition is not, if it is being added and has never been in sync.
    """
    request = LeaderAndIsrRequest
    topic_states = []
    for topic, group in _by_topic(partitions).items():
        states = []
        for tp in group:
            states.append(_led_state(context, broker, tp))
            yield
        topic_states.append(
            request.LeaderAndIsrTopicState(
                topic_name=topic,
                topic_id=context.assignments[topic].topic_id or ZERO_UUID,
                partition_states=states,
            )
        )
    live = [
        request.LeaderAndIsrLiveLeader(broker_id=b.id, host_name=b.endpoint.host, port=b.endpoint.port)
        for b in context.brokers.values()
    ]
    return request(
        controller_id=controller_id,
        controller_epoch=context.epoch,
        broker_epoch=broker.epoch,
        type=FULL if full else INCREMENTAL,
        topic_states=topic_states,
        live_leaders=live,
    )


def _led_state(context: ControllerContext, broker: BrokerInfo, tp: TopicPartition) -> _LedState:
    state, assignment = context.states[tp], context.assignment_of(tp)
    is_added = broker.id in assignment.adding and broker.id not in state.isr
    return _LedState(
        partition_index=tp.partition,
        controller_epoch=state.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        partition_epoch=state.version,
        replicas=list(assignment.replicas),
        adding_replicas=list(assignment.adding),
        removing_replicas=list(assignment.removing),
        is_new=tp in context.new or is_added,
        leader_recovery_state=0,
    )


def refused_replicas(request: LeaderAndIsrRequest, answer: LeaderAndIsrResponse) -> dict[TopicPartition, ErrorCode]:
    """The partitions of a LeaderAndIsr request that the broker does not hold, and why not.

    Topics without an id are known by their place, which the answer keeps. A broker of Kafka's that holds a partition
    under the same leader epoch already says STALE_CONTROLLER_EPOCH of it (Kafka 3.9, ``becomeLeaderOrFollower``).
    """
    names: dict[UUID | None, str] = {
        topic.topic_id: topic.topic_name for topic in request.topic_states if topic.topic_id
    }
    refused = {}
    for place, topic in enumerate(answer.topics):
        name = names.get(topic.topic_id)
        if name is None and place < len(request.topic_states):
            name = request.topic_states[place].topic_name
        for each in topic.partition_errors:
            if each.error_code not in _HELD and name is not None:
                refused[TopicPartition(name, each.partition_index)] = ErrorCode(each.error_code)
    return refused


def update_metadata(
    context: ControllerContext,
    controller_id: int,
    broker_epoch: int,
    partitions: Iterable[TopicPartition],
    *,
    full: bool,
) -> Steps[UpdateMetadataRequest]:
    """Tells one broker which brokers live, and the state of ``partitions``; ``full`` says that there are no others."""
    request = UpdateMetadataRequest
    topic_states = []
    for topic, group in _by_topic(partitions).items():
        known = (tp for tp in group if tp in context.states)
        states = yield from each_of(partial(_metadata_state, context), known)
        topic_id = context.assignments[topic].topic_id or ZERO_UUID
        topic_states.append(
            request.UpdateMetadataTopicState(topic_name=topic, topic_id=topic_id, partition_states=states)
        )
    brokers = [
        request.UpdateMetadataBroker(
            id=b.id,
            endpoints=[
                request.UpdateMetadataBroker.UpdateMetadataEndpoint(
                    port=each.endpoint.port,
                    host=each.endpoint.host,
                    listener=each.name,
                    security_protocol=each.protocol.value,
                )
                for each in b.all_listeners
            ],
            rack=b.rack,
        )
        for b in context.brokers.values()
    ]
    return request(
        controller_id=controller_id,
        controller_epoch=context.epoch,
        broker_epoch=broker_epoch,
        type=FULL if full else INCREMENTAL,
        topic_states=topic_states,
        live_brokers=brokers,
    )


def _metadata_state(context: ControllerContext, tp: TopicPartition) -> _MetadataState:
    state = context.states[tp]
    replicas = context.replicas(tp)
    leader = LEADER_DURING_DELETE if tp.topic in context.deleting else context.announced_leader(tp)
    online = context.online(tp)
    return _MetadataState(
        partition_index=tp.partition,
        controller_epoch=context.epoch,
        leader=leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        zk_version=state.version,
        replicas=list(replicas),
        offline_replicas=[replica for replica in replicas if replica not in online],
    )


def stop_replicas(
    context: ControllerContext, controller_id: int, broker_epoch: int, partitions: Iterable[TopicPartition]
) -> Steps[StopReplicaRequest]:
    """Tells one broker to stop and delete its replicas of ``partitions``."""
    request = StopReplicaRequest
    topic_states = []
    for topic, group in _by_topic(partitions).items():
        states = []
        for tp in group:
            epoch = context.states[tp].leader_epoch if tp in context.states else NO_LEADER
            states.append(
                request.StopReplicaTopicState.StopReplicaPartitionState(
                    partition_index=tp.partition, leader_epoch=epoch, delete_partition=True
                )
            )
            yield
        topic_states.append(request.StopReplicaTopicState(topic_name=topic, partition_states=states))
    return request(
        controller_id=controller_id,
        controller_epoch=context.epoch,
        broker_epoch=broker_epoch,
        topic_states=topic_states,
    )


def has_stopped(answer: StopReplicaResponse) -> bool:
    """Whether a broker did all that a StopReplica request asked of it."""
    return answer.error_code == ErrorCode.NONE and all(
        each.error_code == ErrorCode.NONE for each in answer.partition_errors
    )
