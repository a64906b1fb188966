"""The worst of what brokers ask each other, by a stranger who bears what they bear."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.stalls.cluster import MANY, NO_TOPIC, Case, Cluster
from sparklog.protocol import messages
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.slices import MOST_OF_CONTROLLER

_TOLD = MOST_OF_CONTROLLER - 10
_UNNAMEABLE = "no/topic"


def cases() -> Iterator[Case]:
    """A controller's requests, of partitions that cannot be, and those of other brokers."""
    yield Case(ApiKey.LEADER_AND_ISR, f"{_TOLD} partitions", _leader_and_isr)
    yield Case(ApiKey.STOP_REPLICA, f"{_TOLD} partitions", _stop_replica)
    yield Case(ApiKey.UPDATE_METADATA, f"{_TOLD} partitions", _update_metadata)
    yield Case(ApiKey.GET_REPLICA_LOG_INFO, f"{MANY} partitions", _replica_log_info)
    yield Case(ApiKey.ALTER_PARTITION, f"{MANY} partitions, most not there", _alter_partition)


def _leader_and_isr(cluster: Cluster) -> None:
    epochs, topic = cluster.epochs, messages.LeaderAndIsrRequest.LeaderAndIsrTopicState
    states = [
        topic.LeaderAndIsrPartitionState(
            partition_index=n,
            controller_epoch=epochs.controller_epoch,
            leader=epochs.broker,
            leader_epoch=0,
            isr=[epochs.broker],
            partition_epoch=0,
            replicas=[epochs.broker],
            adding_replicas=[],
            removing_replicas=[],
            is_new=True,
            leader_recovery_state=0,
        )
        for n in range(_TOLD)
    ]
    message = messages.LeaderAndIsrRequest(
        controller_id=epochs.controller,
        is_k_raft_controller=False,
        controller_epoch=epochs.controller_epoch,
        broker_epoch=epochs.broker_epoch,
        type=0,
        topic_states=[topic(topic_name=_UNNAMEABLE, topic_id=NO_TOPIC, partition_states=states)],
        live_leaders=[],
    )
    cluster.ask(ApiKey.LEADER_AND_ISR, message, 7)


def _stop_replica(cluster: Cluster) -> None:
    epochs, topic = cluster.epochs, messages.StopReplicaRequest.StopReplicaTopicState
    states = [
        topic.StopReplicaPartitionState(partition_index=n, leader_epoch=0, delete_partition=True) for n in range(_TOLD)
    ]
    message = messages.StopReplicaRequest(
        controller_id=epochs.controller,
        is_k_raft_controller=False,
        controller_epoch=epochs.controller_epoch,
        broker_epoch=epochs.broker_epoch,
        topic_states=[topic(topic_name="stalls", partition_states=states)],
    )
    cluster.ask(ApiKey.STOP_REPLICA, message, 4)


def _update_metadata(cluster: Cluster) -> None:
    """Of a topic that cannot be, so that none of it is taken over."""
    epochs, topic = cluster.epochs, messages.UpdateMetadataRequest.UpdateMetadataTopicState
    states = [
        topic.UpdateMetadataPartitionState(
            partition_index=n,
            controller_epoch=epochs.controller_epoch,
            leader=epochs.broker,
            leader_epoch=0,
            isr=[epochs.broker],
            zk_version=0,
            replicas=[epochs.broker],
            offline_replicas=[],
        )
        for n in range(_TOLD)
    ]
    message = messages.UpdateMetadataRequest(
        controller_id=epochs.controller,
        is_k_raft_controller=False,
        controller_epoch=epochs.controller_epoch,
        broker_epoch=epochs.broker_epoch,
        topic_states=[topic(topic_name="stalls", topic_id=NO_TOPIC, partition_states=[*states, states[0]])],
        live_brokers=[],
    )
    cluster.ask(ApiKey.UPDATE_METADATA, message, 8)


def _replica_log_info(cluster: Cluster) -> None:
    asked = messages.GetReplicaLogInfoRequest.TopicLogs(name="stalls", topic_id=NO_TOPIC, partitions=list(range(MANY)))
    message = messages.GetReplicaLogInfoRequest(broker_id=0, topics=[asked])
    cluster.ask(ApiKey.GET_REPLICA_LOG_INFO, message, 0)


def _alter_partition(cluster: Cluster) -> None:
    epochs, topic = cluster.epochs, messages.AlterPartitionRequest.TopicData
    asked = [
        topic.PartitionData(
            partition_index=n, leader_epoch=0, new_isr_with_epochs=[], leader_recovery_state=0, partition_epoch=0
        )
        for n in range(MANY)
    ]
    topics = [topic(topic_id=cluster.id_of("polled"), partitions=asked)]
    message = messages.AlterPartitionRequest(broker_id=epochs.broker, broker_epoch=epochs.broker_epoch, topics=topics)
    cluster.ask(ApiKey.ALTER_PARTITION, message, 3)
