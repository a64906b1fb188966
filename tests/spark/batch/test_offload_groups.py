"""A real offload, and a broker whose retention waits for it."""

import logging
from uuid import UUID

import pytest

from sparklog.client import Admin, NewTopic, Producer
from sparklog.client.admin.admin import OffsetAndMetadata, Replica
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.cluster.offload_group import OffloadNote
from sparklog.spark.batch.offload import OffloadOptions, run
from sparklog.spark.lake.delta.raw_table import RawTable
from sparklog.structs import NO_LEADER, TopicPartition
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(600)]
WAITS = {
    "segment.bytes": "300",
    "retention.ms": "1000",
    "sparklog.offload.required": "true",
    "sparklog.offload.max.bytes": "1000000",
}


@pytest.fixture(autouse=True)
def _few_rows(interpreted, delta_jars):
    """The queries here are of a few rows, and need Delta."""


@pytest.fixture(scope="module")
def eager(tmp_path_factory):
    """A broker that looks for old segments all the time."""
    settings = {"log.retention.check.interval.ms": "50"}
    with ClusterHarness(tmp_path_factory.mktemp("eager"), settings=settings) as running:
        yield running


@pytest.fixture
def admin(eager):
    with Admin(bootstrap_servers=eager.bootstrap_servers) as found:
        yield found


def send(cluster, topic, count, partitions=2):
    """A record a segment, each of them old."""
    with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer:
        for number in range(count):
            producer.send(topic, b"%0200d" % number, partition=number % partitions, timestamp=1000 + number).result()


def starts(admin, topic):
    found = admin.list_offsets({TopicPartition(topic, number): -2 for number in range(2)})
    return [found[tp].offset for tp in sorted(found)]


def offload(spark, cluster, topic, table):
    return run(spark, OffloadOptions(cluster.bootstrap_servers, (topic,), RawTable(table)))


def test_records_stay_until_the_job_has_them_and_go_then(spark, eager, admin, topic, tmp_path, caplog):
    admin.create_topics([NewTopic(topic, 2, 1, WAITS)])
    send(eager, topic, 12)
    eventually(lambda: [each.held_records for each in admin.describe_retention([topic]).values()] == [6, 6])
    assert {each.offloaded for each in admin.describe_retention([topic]).values()} == {None}
    assert starts(admin, topic) == [0, 0]
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    (commit,) = offload(spark, eager, topic, first)
    assert commit.records == 12
    eventually(lambda: starts(admin, topic) == [6, 6])
    assert spark.read.format("delta").load(first).count() == 12
    send(eager, topic, 4)
    with caplog.at_level(logging.WARNING):
        offload(spark, eager, topic, second)  # of two places the log waits for one
    assert f"topic {topic} waits for its offload to table {first}" in caplog.text
    held = eventually(
        lambda: (
            (each := admin.describe_retention([topic])[Replica(TopicPartition(topic, 0), 0)]).held_records == 2 and each
        )
    )
    assert (held.offloaded, held.lost_records) == (6, 0)
    (commit,) = offload(spark, eager, topic, first)
    assert commit.records == 4
    eventually(lambda: starts(admin, topic) == [8, 8])


def test_a_table_of_the_same_name_may_be_another_one(spark, eager, admin, topic, tmp_path, caplog):
    """As on two machines, or in two catalogs. Brokers would delete what only one of them has."""
    admin.create_topics([NewTopic(topic, 2, 1, WAITS)])
    send(eager, topic, 2)
    here, elsewhere = tmp_path / "table", tmp_path / "elsewhere"
    offload(spark, eager, topic, str(here))
    here.rename(elsewhere)
    send(eager, topic, 2)
    with caplog.at_level(logging.WARNING):
        (commit,) = offload(spark, eager, topic, str(here))
    assert commit.records >= 2
    assert f"topic {topic} waits for its offload to table {here}, id " in caplog.text
    first = admin.describe_retention([topic])[Replica(TopicPartition(topic, 0), 0)]
    assert (first.offloaded, first.lost_records) == (1, 0)


def test_a_topic_that_does_not_wait_has_no_group(spark, eager, admin, topic, tmp_path):
    admin.create_topics([NewTopic(topic, 2, 1, {})])
    offload(spark, eager, topic, str(tmp_path / "table"))
    assert f"sparklog-offload.{topic}" not in {each.group_id for each in admin.list_groups()}


def test_a_note_of_a_former_topic_keeps_no_job_from_its_group(spark, eager, admin, topic, tmp_path):
    admin.create_topics([NewTopic(topic, 2, 1, WAITS | {"sparklog.offload.group": f"group-of-{topic}"})])
    send(eager, topic, 2)
    former = OffloadNote(UUID(int=7), "table /elsewhere")
    offsets = {TopicPartition(topic, 0): OffsetAndMetadata(1, metadata=former.to_metadata())}
    admin.alter_group_offsets(f"group-of-{topic}", offsets)
    offload(spark, eager, topic, str(tmp_path / "table"))
    eventually(lambda: starts(admin, topic) == [1, 1])


def leader(servers, topic):
    """Of its first partition."""
    with ClusterMetadata(ClientConfig(bootstrap_servers=servers)) as metadata:
        return metadata.fetch([topic]).topics[topic].partitions[0].leader


@pytest.mark.slow  # the session of a broker has to end
def test_what_a_log_got_after_it_was_cut_off_stays_until_the_job_has_it(spark, tmp_path, topic):
    """The offsets are those of the lost records, which the table has: the group's offset speaks of them."""
    eager = {"log.retention.check.interval.ms": "50"}
    with (
        ClusterHarness(tmp_path / "cluster", brokers=2, settings=eager) as cluster,
        Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
    ):
        servers, table = cluster.bootstrap_servers, str(tmp_path / "table")
        admin.create_topics([NewTopic(topic, 2, 1, WAITS | {"retention.ms": "-1"})])
        send(cluster, topic, 12)
        offload(spark, cluster, topic, table)
        leads = leader(servers, topic)
        cluster.kill_broker(leads)
        eventually(lambda: leader(servers, topic) == NO_LEADER, 60, "nobody leads")
        lost = [f"{offset:020}.*" for offset in (3, 4, 5)]
        for path in (each for name in lost for each in (cluster.directory.broker(leads) / f"{topic}-0").glob(name)):
            path.unlink()
        cluster.start_broker(leads)
        eventually(lambda: leader(servers, topic) == leads, 60, "it leads again")
        send(cluster, topic, 12)
        admin.alter_topic_configs(topic, {"retention.ms": "1000"})
        eventually(lambda: 0 not in starts(admin, topic))
        assert starts(admin, topic) == [3, 6]
        options = OffloadOptions(servers, (topic,), RawTable(table), fail_on_data_loss=False)
        (commit,) = run(spark, options)
        assert commit.records == 12
        eventually(lambda: starts(admin, topic) == [9, 12])
