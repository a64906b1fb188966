"""The worst of what is asked about topics, their settings and their replicas."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial

from confluent_kafka.admin import ConfigResource, NewPartitions

from benchmarks.stalls.cluster import (
    MANY,
    NOW_MS,
    PARTITIONS,
    TIMEOUT_MS,
    Case,
    Cluster,
    frame,
    long_name,
    request,
    sockets,
)
from benchmarks.stalls.watched_broker import LOOKUP_S, SLOW_HOST
from sparklog.clock import SystemClock
from sparklog.errors import ErrorCode
from sparklog.protocol import messages
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import Message
from sparklog.record.builder import RecordBatchBuilder

_TOPIC, _BROKER, _NO_KIND, _MORE = 2, 4, 99, 200
_SET, _DELETE, _APPEND = 0, 1, 2
_WRITTEN = 100
_OVERRIDES = "max.connections.per.ip.overrides"
_ABSENT = f"{MANY} topics that are not there"


def making() -> Iterator[Case]:
    """A wide topic is made."""
    yield Case(ApiKey.CREATE_TOPICS, f"{PARTITIONS} partitions", lambda cluster: cluster.create("wide", PARTITIONS))
    validated = f"{MANY} topics of 1000 partitions, to be looked at only"
    yield request(ApiKey.CREATE_TOPICS, validated, _validated, 7)
    yield Case(ApiKey.CREATE_PARTITIONS, f"{_MORE} more", _create_partitions)
    yield request(ApiKey.CREATE_PARTITIONS, _ABSENT, _grown, 3)


def described() -> Iterator[Case]:
    """The wide topic is described, and the rest."""
    yield Case(ApiKey.METADATA, "of everything, from 200 clients 50 times", _metadata_flood)
    yield request(ApiKey.METADATA, f"{MANY} names", _named, 9)
    yield Case(ApiKey.DESCRIBE_CONFIGS, "a topic", _describe_configs)
    yield request(ApiKey.DESCRIBE_CONFIGS, _ABSENT, _described_configs, 4)
    yield request(ApiKey.DESCRIBE_LOG_DIRS, "all", partial(messages.DescribeLogDirsRequest, topics=None), 4)
    yield request(ApiKey.DESCRIBE_TOPIC_PARTITIONS, _ABSENT, _described_topics, 0)
    yield Case(ApiKey.DESCRIBE_TOPIC_PARTITIONS, f"{PARTITIONS + _MORE} partitions", _describe_partitions)


def altered() -> Iterator[Case]:
    """Settings, replicas and leaders are to be others."""
    yield request(ApiKey.ALTER_CONFIGS, f"{MANY} resources", _resources, 1)
    yield request(ApiKey.ALTER_CONFIGS, f"{MANY} settings of a topic", _settings, 1)
    yield request(ApiKey.INCREMENTAL_ALTER_CONFIGS, f"{MANY} resources", _resources_by_step, 1)
    yield request(ApiKey.INCREMENTAL_ALTER_CONFIGS, f"{MANY} settings of a topic", _settings_by_step, 1)
    slow = f"a connection override for a name that is looked up for {LOOKUP_S * 1000:.0f} ms"
    yield Case(ApiKey.INCREMENTAL_ALTER_CONFIGS, slow, _override)
    yield request(ApiKey.ALTER_PARTITION_REASSIGNMENTS, f"{MANY // 2} topics", _reassigned, 0)
    yield request(ApiKey.LIST_PARTITION_REASSIGNMENTS, f"{MANY} partitions", _reassignments, 0)
    yield request(ApiKey.ALTER_REPLICA_LOG_DIRS, f"{MANY} partitions", _moved, 2)
    yield request(ApiKey.ELECT_LEADERS, f"{MANY} partitions", _elected, 2)


def unmaking() -> Iterator[Case]:
    """The wide topic goes."""
    yield Case(ApiKey.DELETE_RECORDS, "100 partitions", partial(_delete_records, 100))
    yield Case(ApiKey.DELETE_RECORDS, f"{MANY} partitions, most not there", partial(_delete_records, MANY))
    yield Case(ApiKey.DELETE_TOPICS, f"{PARTITIONS + _MORE} partitions", partial(_delete_topic, "wide"))
    yield Case(ApiKey.DELETE_TOPICS, f"{_WRITTEN} MB just written", _delete_written)
    yield request(ApiKey.DELETE_TOPICS, _ABSENT, _deleted, 6)


def _validated() -> Message:
    """Names as long as may be, and more partitions than one request may make."""
    topic = messages.CreateTopicsRequest.CreatableTopic
    topics = [
        topic(name=long_name(n), num_partitions=1000, replication_factor=1, assignments=[], configs=[])
        for n in range(MANY)
    ]
    return messages.CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS, validate_only=True)


def _create_partitions(cluster: Cluster) -> None:
    admin, grown = cluster.admin(), NewPartitions(cluster.topic("wide"), PARTITIONS + _MORE)
    next(iter(admin.create_partitions([grown], request_timeout=60).values())).result(60)


def _grown() -> Message:
    topic = messages.CreatePartitionsRequest.CreatePartitionsTopic
    topics = [topic(name=f"nothing-{n}", count=2, assignments=None) for n in range(MANY)]
    return messages.CreatePartitionsRequest(topics=topics, timeout_ms=TIMEOUT_MS, validate_only=False)


def _metadata_flood(cluster: Cluster, connections: int = 200, pipelined: int = 50) -> None:
    """Many clients that ask for everything, read nothing, and are gone."""
    asked = frame(ApiKey.METADATA, 9, messages.MetadataRequest(topics=None, allow_auto_topic_creation=False))
    with sockets(cluster, connections) as opened:
        for each in opened:
            each.sendall(asked * pipelined)
        for each in opened[:3]:
            each.recv(1)


def _named() -> Message:
    topic = messages.MetadataRequest.MetadataRequestTopic
    topics = [topic(topic_id=None, name=f"nothing-{n}") for n in range(MANY)]
    return messages.MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def _describe_configs(cluster: Cluster) -> None:
    admin = cluster.admin()
    resources = [ConfigResource(ConfigResource.Type.TOPIC, cluster.topic("wide"))]
    for each in admin.describe_configs(resources, request_timeout=60).values():
        each.result(60)


def _described_configs() -> Message:
    resource = messages.DescribeConfigsRequest.DescribeConfigsResource
    resources = [
        resource(resource_type=_TOPIC, resource_name=f"nothing-{n}", configuration_keys=None) for n in range(MANY)
    ]
    return messages.DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)


def _described_topics() -> Message:
    topic = messages.DescribeTopicPartitionsRequest.TopicRequest
    topics = [topic(name=f"nothing-{n}") for n in range(MANY)]
    return messages.DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=2000, cursor=None)


def _describe_partitions(cluster: Cluster) -> None:
    topic = messages.DescribeTopicPartitionsRequest.TopicRequest(name=cluster.topic("wide"))
    message = messages.DescribeTopicPartitionsRequest(topics=[topic], response_partition_limit=2000, cursor=None)
    cluster.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, message, 0)


def _resources() -> Message:
    """Of what has no settings."""
    resource = messages.AlterConfigsRequest.AlterConfigsResource
    resources = [resource(resource_type=_NO_KIND, resource_name=f"nothing-{n}", configs=[]) for n in range(MANY)]
    return messages.AlterConfigsRequest(resources=resources, validate_only=False)


def _settings() -> Message:
    resource = messages.AlterConfigsRequest.AlterConfigsResource
    entries = [resource.AlterableConfig(name=f"nothing-{n}", value="") for n in range(MANY)]
    one = resource(resource_type=_TOPIC, resource_name="stalls", configs=entries)
    return messages.AlterConfigsRequest(resources=[one], validate_only=False)


def _resources_by_step() -> Message:
    resource = messages.IncrementalAlterConfigsRequest.AlterConfigsResource
    resources = [resource(resource_type=_NO_KIND, resource_name=f"nothing-{n}", configs=[]) for n in range(MANY)]
    return messages.IncrementalAlterConfigsRequest(resources=resources, validate_only=False)


def _settings_by_step() -> Message:
    resource = messages.IncrementalAlterConfigsRequest.AlterConfigsResource
    entries = [resource.AlterableConfig(name=f"nothing-{n}", config_operation=_APPEND, value="") for n in range(MANY)]
    one = resource(resource_type=_TOPIC, resource_name="stalls", configs=entries)
    return messages.IncrementalAlterConfigsRequest(resources=[one], validate_only=False)


def _override(cluster: Cluster) -> None:
    """It is taken back, so that the next round sets it again."""
    clock = SystemClock()
    for operation, value in ((_SET, f"{SLOW_HOST}:1000"), (_DELETE, None)):
        resource = messages.IncrementalAlterConfigsRequest.AlterConfigsResource
        entry = resource.AlterableConfig(name=_OVERRIDES, config_operation=operation, value=value)
        one = resource(resource_type=_BROKER, resource_name=str(cluster.epochs.broker), configs=[entry])
        message = messages.IncrementalAlterConfigsRequest(resources=[one], validate_only=False)
        (answer,) = cluster.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, message, 1).responses
        assert answer.error_code == ErrorCode.NONE
        clock.sleep(2 * LOOKUP_S)


def _reassigned() -> Message:
    topic = messages.AlterPartitionReassignmentsRequest.ReassignableTopic
    topics = [
        topic(name=f"nothing-{n}", partitions=[topic.ReassignablePartition(partition_index=0, replicas=[0])])
        for n in range(MANY // 2)
    ]
    return messages.AlterPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=topics)


def _reassignments() -> Message:
    topic = messages.ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    topics = [topic(name="stalls", partition_indexes=list(range(MANY)))]
    return messages.ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=topics)


def _moved() -> Message:
    directory = messages.AlterReplicaLogDirsRequest.AlterReplicaLogDir
    topic = directory.AlterReplicaLogDirTopic(name="stalls", partitions=list(range(MANY)))
    return messages.AlterReplicaLogDirsRequest(dirs=[directory(path="/nowhere", topics=[topic])])


def _elected() -> Message:
    topic = messages.ElectLeadersRequest.TopicPartitions(topic="stalls", partitions=list(range(MANY)))
    return messages.ElectLeadersRequest(election_type=0, topic_partitions=[topic], timeout_ms=TIMEOUT_MS)


def _delete_records(count: int, cluster: Cluster) -> None:
    topic = messages.DeleteRecordsRequest.DeleteRecordsTopic
    asked = [topic.DeleteRecordsPartition(partition_index=n, offset=-1) for n in range(count)]
    topics = [topic(name=cluster.topic("wide"), partitions=asked)]
    cluster.ask(ApiKey.DELETE_RECORDS, messages.DeleteRecordsRequest(topics=topics, timeout_ms=TIMEOUT_MS), 2)


def _delete_topic(name: str, cluster: Cluster) -> None:
    admin = cluster.admin()
    next(iter(admin.delete_topics([cluster.topic(name)], request_timeout=60).values())).result(60)


def _delete_written(cluster: Cluster, partitions: int = 10) -> None:
    """A topic whose records no disk has yet."""
    cluster.create("written", partitions, **{"max.message.bytes": "10000000"})
    builder = RecordBatchBuilder()
    builder.append(NOW_MS, None, os.urandom(1_000_000))
    batch = builder.build()
    for number in range(_WRITTEN):
        cluster.write("written", batch, number % partitions)
    _delete_topic("written", cluster)


def _deleted() -> Message:
    topic = messages.DeleteTopicsRequest.DeleteTopicState
    topics = [topic(name=f"nothing-{n}", topic_id=None) for n in range(MANY)]
    return messages.DeleteTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS)
