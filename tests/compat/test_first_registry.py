"""The first design's topic registry beside Kafka's tree, where a controller and tools of Kafka's work on that tree."""

import pytest
from compat.mixed import MixedCluster

from sparklog.errors import ConfigError
from sparklog.local.jars import jar_set
from sparklog.testing.eventually import eventually
from sparklog.testing.kafka import run_kafka_tool
from sparklog.zk.client import ZkClient

pytestmark = pytest.mark.peer
TOPICS = "org.apache.kafka.tools.TopicCommand"
OLD_TOPICS = "kafka.admin.TopicCommand"
ONE = {"offsets.topic.replication.factor": "1", "transaction.state.log.replication.factor": "1"}


def test_kafka_does_not_stumble_over_it(tmp_path):
    try:
        jar_set("kafka-1.1")
    except ConfigError as error:
        pytest.skip(str(error))
    with MixedCluster(tmp_path, ONE) as cluster:
        kafka = cluster.kafka(1)
        cluster.ours(2, **{"sparklog.first.registry": "beside"})
        zk = ZkClient(cluster.zookeeper, session_timeout=6.0, on_session=lambda _: None)
        assert zk.office.holder() == 1

        def new(*arguments):
            return run_kafka_tool(TOPICS, "--bootstrap-server", kafka.bootstrap_servers, *arguments)

        def old(*arguments):
            return run_kafka_tool(OLD_TOPICS, "--zookeeper", cluster.zookeeper, *arguments, jars="kafka-1.1")

        new("--create", "--topic", "a", "--partitions", "4", "--replication-factor", "2")
        eventually(lambda: zk.data("/brokers/topics/a/2") == b"2", what="a new topic")
        new("--alter", "--topic", "a", "--partitions", "8")
        eventually(lambda: zk.data("/brokers/topics/a/2") == b"4", what="new partitions")
        assert "PartitionCount: 8" in new("--describe", "--topic", "a")
        assert "PartitionCount:8" in old("--describe")
        assert old("--list").split() == ["a"]
        new("--delete", "--topic", "a")
        eventually(lambda: "a" not in zk.topics.names(), what="its end")
        new("--create", "--topic", "a", "--partitions", "1", "--replication-factor", "2")
        eventually(
            lambda: "a" in zk.topics.names() and "partitions" in zk.names("/brokers/topics/a"), what="it is back"
        )
        zk.close()
