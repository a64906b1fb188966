"""The real Kafka broker and its tools, against one another: if this fails, no verdict of theirs on us counts."""

import subprocess

import pytest

from sparklog.errors import ConfigError, SparklogError
from sparklog.local.jars import jar_set
from sparklog.testing.kafka import KafkaBroker, dump_log_segments, run_kafka_tool, write_kafka_scripts

pytestmark = [pytest.mark.peer, pytest.mark.slow]


@pytest.fixture(scope="module", autouse=True)
def _kafka_jars():
    try:
        jar_set("kafka")
    except ConfigError as error:
        pytest.skip(str(error))


def test_a_broker_serves_stops_and_goes_on(tmp_path, zookeeper):
    broker = KafkaBroker(tmp_path, f"{zookeeper.connect_string}/kafka-{tmp_path.name}", broker_id=3)
    with broker:
        create = ("--create", "--topic", "t", "--partitions", "1", "--replication-factor", "1")
        run_kafka_tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", broker.bootstrap_servers, *create)
        produce = ("--bootstrap-server", broker.bootstrap_servers, "--topic", "t")
        run_kafka_tool("kafka.tools.ConsoleProducer", *produce, stdin="first\nsecond\n")
    (segment,) = (broker.log_dir / "t-0").glob("*.log")
    dumped = dump_log_segments([segment])
    assert "payload: first" in dumped
    assert "payload: second" in dumped
    with broker:
        listed = run_kafka_tool(
            "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", broker.bootstrap_servers, "--list"
        )
    assert "t" in listed.split()


def test_a_tool_that_fails_says_why():
    with pytest.raises(SparklogError, match=r"TopicCommand exited with status 1(.|\n)*bootstrap-server"):
        run_kafka_tool("org.apache.kafka.tools.TopicCommand", "--list")


def test_the_scripts_run_what_they_are_named_for(tmp_path):
    home = write_kafka_scripts(tmp_path / "kafka")
    done = subprocess.run([home / "bin" / "kafka-topics.sh", "--version"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.split()[0]) == (0, "3.9.1")
