"""Kafka's own command-line tools, of its last release with ZooKeeper and of one after it, pointed at our broker."""

import csv
import io
import json

import pytest
from compat.kafka_tools import API_VERSIONS, CONFIGS, CONSOLE_CONSUMER, GROUPS, TOPICS, consumed, offsets, write

from sparklog.errors import SparklogError

pytestmark = [pytest.mark.peer, pytest.mark.slow]


def test_topics_creates_lists_describes_and_deletes(tool, made):
    assert made in tool(TOPICS, "--list").split()
    lines = tool(TOPICS, "--describe", "--topic", made).splitlines()
    fields = [dict(part.split(": ", 1) for part in line.strip().split("\t") if ": " in part) for line in lines if line]
    assert fields[0]["PartitionCount"] == "2"
    assert fields[0]["ReplicationFactor"] == "1"
    assert fields[0]["Configs"] == "segment.bytes=2000000"
    assert [(each["Partition"], each["Leader"], each["Isr"]) for each in fields[1:]] == [
        ("0", "0", "0"),
        ("1", "0", "0"),
    ]
    tool(TOPICS, "--delete", "--topic", made)
    assert made not in tool(TOPICS, "--list").split()


def test_topics_is_told_that_a_topic_exists(tool, made):
    with pytest.raises(SparklogError, match=f"topic '{made}' exists already"):
        tool(TOPICS, "--create", "--topic", made)


def test_topics_is_told_what_is_wrong_with_a_setting(tool, topic):
    with pytest.raises(SparklogError, match=r"segment\.bytes"):
        tool(TOPICS, "--create", "--topic", topic, "--config", "segment.bytes=many")


def test_configs_describes_a_topic(tool, made):
    said = tool(CONFIGS, "--describe", "--entity-type", "topics", "--entity-name", made, "--all")
    assert "segment.bytes=2000000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:segment.bytes=2000000" in said
    assert "retention.ms=604800000 sensitive=false synonyms={DEFAULT_CONFIG:log.retention.ms=604800000}" in said


def test_configs_describes_a_broker(tool):
    said = tool(CONFIGS, "--describe", "--entity-type", "brokers", "--entity-name", "0", "--all")
    assert "offsets.topic.num.partitions=4 sensitive=false synonyms={STATIC_BROKER_CONFIG:" in said


def test_the_console_producer_is_idempotent_by_default_and_the_consumer_reads_it(tool, made):
    write(tool, made, "k1:a", "k2:b", "k3:c")
    assert consumed(tool, made, 3) == {"k1\ta", "k2\tb", "k3\tc"}


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_the_console_producer_compresses(tool, made, compression):
    sent = [f"k{number}:value {number}" for number in range(50)]
    write(tool, made, *sent, settings=("enable.idempotence=false", f"compression.type={compression}"))
    assert consumed(tool, made, 50) == {each.replace(":", "\t") for each in sent}


def test_a_transactional_producer_commits(tool, java, bootstrap, made):
    """Several transactions of 20 ms, one after another, each over both partitions."""
    load = ("--topic", made, "--num-records", "300", "--record-size", "10", "--throughput", "500")
    transactional = ("--transactional-id", f"{made}-id", "--transaction-duration-ms", "20")
    settings = ("--producer-props", f"bootstrap.servers={bootstrap}", "max.block.ms=20000")
    told = java("org.apache.kafka.tools.ProducerPerformance", *load, *transactional, *settings)
    assert "300 records sent" in told
    committed = ("--isolation-level", "read_committed", "--from-beginning", "--max-messages", "300")
    read = tool(CONSOLE_CONSUMER, "--topic", made, *committed, "--timeout-ms", "30000").splitlines()
    assert [len(each) for each in read] == [10] * 300
    assert sum(offsets(tool, made, "latest").values()) > 302, "a marker ends each transaction in each partition"


def test_transactions_are_listed_described_and_their_producers_shown(java, bootstrap, made):
    load = ("--topic", made, "--num-records", "5", "--record-size", "10", "--throughput", "-1")
    transactional = ("--transactional-id", f"{made}-id", "--transaction-duration-ms", "10000")
    settings = ("--producer-props", f"bootstrap.servers={bootstrap}", "max.block.ms=20000")
    java("org.apache.kafka.tools.ProducerPerformance", *load, *transactional, *settings)
    command = ("org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", bootstrap)
    listed = next(line.split() for line in java(*command, "list").splitlines() if f"{made}-id" in line)
    assert listed[0] == f"{made}-id"
    assert listed[-1] == "CompleteCommit"
    described = java(*command, "describe", "--transactional-id", f"{made}-id").splitlines()[-1].split()
    assert (described[1], described[4]) == (f"{made}-id", "CompleteCommit")
    producers = java(*command, "describe-producers", "--topic", made, "--partition", "0").splitlines()
    assert len(producers) <= 2
    assert all(line.split()[0] == described[2] for line in producers[1:])


def test_get_offsets_sees_ends_starts_and_times(tool, made):
    write(tool, made, *(f"k{number}:{number}" for number in range(20)))
    ends = offsets(tool, made, "latest")
    assert set(ends) == {0, 1}
    assert sum(ends.values()) == 20
    assert offsets(tool, made, "earliest") == {0: 0, 1: 0}
    assert offsets(tool, made, "1") == {0: 0, 1: 0}
    newest = offsets(tool, made, "max-timestamp")
    assert all(newest[number] < ends[number] for number in newest)


def test_the_performance_tools_move_every_record(tool, java, bootstrap, made):
    load = ("--topic", made, "--num-records", "20000", "--record-size", "500", "--throughput", "-1")
    settings = ("--producer-props", f"bootstrap.servers={bootstrap}", "acks=all")
    assert "20000 records sent" in java("org.apache.kafka.tools.ProducerPerformance", *load, *settings)
    said = tool("org.apache.kafka.tools.ConsumerPerformance", "--topic", made, "--messages", "20000")
    (row,) = csv.DictReader(io.StringIO(said), skipinitialspace=True)
    assert int(row["data.consumed.in.nMsg"]) == 20000


def test_the_verifiable_producer_hears_of_every_record(tool, made):
    said = tool("org.apache.kafka.tools.VerifiableProducer", "--topic", made, "--max-messages", "25")
    events = [json.loads(line) for line in said.splitlines()]
    assert [event["acked"] for event in events if event["name"] == "tool_data"] == [25]
    assert len({(event["partition"], event["offset"]) for event in events if "offset" in event}) == 25


def test_consumer_groups_lists_and_describes(tool, made):
    write(tool, made, "k1:a", "k2:b")
    read = ("--from-beginning", "--max-messages", "2", "--timeout-ms", "30000", "--group", f"group-of-{made}")
    tool(CONSOLE_CONSUMER, "--topic", made, *read)
    assert f"group-of-{made}" in tool(GROUPS, "--list").split()
    lines = tool(GROUPS, "--describe", "--group", f"group-of-{made}").splitlines()
    rows = [line.split() for line in lines if line.startswith("group-of-") and made in line]
    assert sum(int(row[3]) for row in rows if row[3] != "-") == 2


def test_broker_api_versions_names_the_broker(tool):
    said = tool(API_VERSIONS)
    assert "(id: 0 rack: null" in said
    assert "Produce(0): 0 to 12 [usable: 1" in said


def test_cluster_id_is_printed(java, bootstrap):
    said = java("org.apache.kafka.tools.ClusterTool", "cluster-id", "--bootstrap-server", bootstrap)
    assert len(said.removeprefix("Cluster ID: ").strip()) == 22


def test_configs_changes_levels_of_loggers(tool):
    whose = ("--entity-type", "broker-loggers", "--entity-name", "0")
    name = "sparklog.replica.cleaning"
    tool(CONFIGS, "--alter", *whose, "--add-config", f"{name}=ERROR")
    assert f"{name}=ERROR" in tool(CONFIGS, "--describe", *whose)
    tool(CONFIGS, "--alter", *whose, "--delete-config", name)
    assert f"{name}=INFO" in tool(CONFIGS, "--describe", *whose)


def test_configs_alters_a_topic(tool, made):
    entity = ("--entity-type", "topics", "--entity-name", made)
    tool(CONFIGS, "--alter", *entity, "--add-config", "retention.ms=1000")
    assert "retention.ms=1000" in tool(CONFIGS, "--describe", *entity)


@pytest.mark.parametrize("whose", [("--entity-name", "0"), ("--entity-default",)], ids=["one", "all"])
def test_configs_alters_brokers(tool, whose):
    entity = ("--entity-type", "brokers", *whose)
    tool(CONFIGS, "--alter", *entity, "--add-config", "log.cleaner.delete.retention.ms=77777")
    said = tool(CONFIGS, "--describe", *entity)
    tool(CONFIGS, "--alter", *entity, "--delete-config", "log.cleaner.delete.retention.ms")
    source = "DYNAMIC_BROKER_CONFIG" if "0" in whose else "DYNAMIC_DEFAULT_BROKER_CONFIG"
    value = "log.cleaner.delete.retention.ms=77777"
    assert f"{value} sensitive=false synonyms={{{source}:{value}" in said
    assert "77777" not in tool(CONFIGS, "--describe", *entity)


def test_configs_is_told_what_a_broker_reads_at_its_start_only(tool):
    with pytest.raises(SparklogError, match=r"num\.partitions.* is read when a broker starts"):
        tool(CONFIGS, "--alter", "--entity-type", "brokers", "--entity-name", "0", "--add-config", "num.partitions=3")


def test_reassignments_are_none(tool):
    assert "No partition reassignments found" in tool(
        "org.apache.kafka.tools.reassign.ReassignPartitionsCommand", "--list"
    )


def test_topics_adds_partitions(tool, made):
    tool(TOPICS, "--alter", "--topic", made, "--partitions", "4")
    assert set(offsets(tool, made, "latest")) == {0, 1, 2, 3}


def test_leader_election_runs(tool):
    tool("org.apache.kafka.tools.LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions")


def test_log_dirs_describes_sizes(tool, made):
    assert made in tool("org.apache.kafka.tools.LogDirsCommand", "--describe", "--topic-list", made)


def test_delete_records_moves_the_start(tool, made, tmp_path):
    write(tool, made, "k:a", "k:b")
    path = tmp_path / "offsets.json"
    wanted = [{"topic": made, "partition": number, "offset": -1} for number in (0, 1)]
    path.write_text(json.dumps({"version": 1, "partitions": wanted}))
    tool("org.apache.kafka.tools.DeleteRecordsCommand", "--offset-json-file", str(path))
    assert offsets(tool, made, "earliest") == offsets(tool, made, "latest")


def test_consumer_groups_deletes_a_group(tool, made):
    write(tool, made, "k:a")
    read = ("--from-beginning", "--max-messages", "1", "--timeout-ms", "30000", "--group", f"doomed-{made}")
    tool(CONSOLE_CONSUMER, "--topic", made, *read)
    tool(GROUPS, "--delete", "--group", f"doomed-{made}")
    assert f"doomed-{made}" not in tool(GROUPS, "--list").split()


def test_consumer_groups_deletes_offsets(tool, made):
    write(tool, made, "k:a")
    group = f"forgetful-{made}"
    read = ("--from-beginning", "--max-messages", "1", "--timeout-ms", "30000", "--group", group)
    tool(CONSOLE_CONSUMER, "--topic", made, *read)
    assert made in tool(GROUPS, "--describe", "--group", group)
    said = tool(GROUPS, "--delete-offsets", "--group", group, "--topic", made)
    assert "Successful" in said
    assert group not in tool(GROUPS, "--list").split(), "a group without members and offsets is none"
