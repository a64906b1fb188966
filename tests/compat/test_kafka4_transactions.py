"""Kafka 4.1's client and tools against our broker: the second version of transactions, spoken by who knows it best."""

import shutil
from pathlib import Path

import pytest
from integration import wire
from integration.raw_producer import RawProducer
from integration.test_transactions import describe, read, settled, state_of

from sparklog.errors import ConfigError, ErrorCode
from sparklog.local.jars import jar_set
from sparklog.structs import TopicPartition
from sparklog.testing.kafka import run_kafka_tool

pytestmark = [pytest.mark.peer, pytest.mark.slow]
PROGRAM = Path(__file__).parent / "Transactions.java"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"


@pytest.fixture(scope="module", autouse=True)
def _kafka_4():
    try:
        jar_set("kafka-4")
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture
def make_topic(bootstrap, topic):
    """Creates the test's topic."""

    def make(partitions=1):
        with wire.connect(bootstrap) as connection:
            assert wire.create_topic(connection, topic, partitions)[0] is ErrorCode.NONE

    return make


def run(main_class, *arguments):
    return run_kafka_tool(main_class, *arguments, jars="kafka-4")


def test_its_client_commits_aborts_and_is_fenced(bootstrap, make_topic, topic):
    if shutil.which("javac") is None:
        pytest.skip("a Java without a compiler cannot run a source file")
    make_topic(partitions=2)
    told = run(str(PROGRAM), bootstrap, topic).splitlines()
    both = [f"committed {number}" for number in (0, 2, 3, 5)]
    assert told[:2] == ["zombie fenced", "offset 105"]
    assert [line for line in told if line[0] == "1"] == [f"1 {each}" for each in both]
    assert [line for line in told if line[0] == "0"] == [f"0 {each}" for each in [*both, "committed by the successor"]]
    with wire.connect(bootstrap) as connection:
        epoch = describe(connection, topic).producer_epoch
    assert epoch >= 9, "an end raises the epoch in the second version only"


def test_its_performance_tool_commits(bootstrap, make_topic, topic):
    make_topic(partitions=2)
    load = ("--topic", topic, "--num-records", "300", "--record-size", "10", "--throughput", "500")
    transactional = ("--transactional-id", topic, "--transaction-duration-ms", "20")
    told = run(
        "org.apache.kafka.tools.ProducerPerformance",
        *load,
        *transactional,
        *("--producer-props", f"bootstrap.servers={bootstrap}", "max.block.ms=20000"),
    )
    assert "300 records sent" in told
    settled(bootstrap, topic)
    assert len(read(bootstrap, topic) + read(bootstrap, topic, partition=1)) == 300


@pytest.mark.parametrize("jars", ["kafka", "kafka-4"])
def test_a_transaction_is_aborted_from_outside(bootstrap, make_topic, topic, jars):
    """By its partition and offset; the producer's coordinator is not asked."""
    make_topic()
    tp = TopicPartition(topic, 0)
    producer = RawProducer(bootstrap, topic)
    producer.init(two_phase=True)
    assert producer.write(tp, b"value") is ErrorCode.NONE
    command = (TRANSACTIONS, "--bootstrap-server", bootstrap)
    listed = run_kafka_tool(*command, "list", jars=jars)
    assert [topic, "Ongoing"] in [[line.split()[0], line.split()[-1]] for line in listed.splitlines()]
    described = run_kafka_tool(*command, "describe", "--transactional-id", topic, jars=jars).splitlines()[-1].split()
    assert topic in described
    assert "Ongoing" in described
    assert f"{topic}-0" in described[-1]
    hanging = run_kafka_tool(*command, "find-hanging", "--topic", topic, "--partition", "0", jars=jars)
    assert not [line for line in hanging.splitlines() if line.startswith(topic)]
    run_kafka_tool(*command, "abort", "--topic", topic, "--partition", "0", "--start-offset", "0", jars=jars)
    assert state_of(bootstrap, topic) == "Ongoing"
    assert read(bootstrap, topic) == []
    assert len(read(bootstrap, topic, **{"isolation.level": "read_uncommitted"})) == 1
    assert producer.end(commit=False) is ErrorCode.NONE
