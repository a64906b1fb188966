"""One read over a table and a log, by a real broker; the table is written without a JVM (``delta_log``)."""

import json
import os
from datetime import UTC, datetime

import pytest
from deltalake import DeltaTable
from spark.lake.history.both_sides import SCHEMA, Query, Scene, compact, offsets
from spark.lake.history.delta_log import DeltaLog
from spark.lake.history.delta_log import rows as made
from spark.micro_batches import Query as LogQuery

from sparklog.client import Admin, NewTopic
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.errors import DataSourceError
from sparklog.spark.lake.history import union as module
from sparklog.spark.lake.history.snapshot import Snapshot
from sparklog.spark.lake.history.union import UnionReader
from sparklog.spark.read.options import ReadOptions
from sparklog.spark.read.resolver import OffsetResolver
from sparklog.spark.stream import truncation
from sparklog.structs import TopicPartition

pytestmark = pytest.mark.integration


@pytest.fixture
def scene(cluster, topic, tmp_path):
    found = Scene(cluster.bootstrap_servers, topic, tmp_path / "table")
    yield found
    found.close()


def full(scene):
    """0 to 9 are in the table alone, 10 to 19 in both, 20 to 29 in the log alone."""
    scene.send(20)
    scene.offload()
    scene.trim(10)
    scene.send(10)


def test_the_front_is_from_the_table_and_the_rest_from_the_log(scene):
    full(scene)
    assert scene.read() == list(range(30))
    assert scene.read(startingOffsets=json.dumps({scene.topic: {"0": 4}})) == list(range(4, 30))
    assert scene.read(endingOffsets=json.dumps({scene.topic: {"0": 4}})) == list(range(4))
    assert scene.read(startingOffsets=json.dumps({scene.topic: {"0": 25}})) == list(range(25, 30))


def test_the_border_is_the_offset_that_the_table_has_come_to(scene):
    scene.send(10)
    scene.offload()
    scene.trim(10)
    scene.send(2)
    for start in (9, 10, 11):
        assert scene.read(startingOffsets=json.dumps({scene.topic: {"0": start}})) == list(range(start, 12))


def test_a_time_is_looked_for_in_both(scene):
    full(scene)
    assert scene.read(startingTimestamp="3001") == list(range(4, 30))
    assert scene.read(startingTimestamp="24000") == list(range(24, 30))
    assert scene.read(startingTimestamp="3000", endingTimestamp="22000") == list(range(3, 22))
    late = {"startingOffsetsByTimestampStrategy": "latest"}
    assert scene.read(startingTimestamp="99000", **late) == []


def test_a_time_is_looked_for_in_the_log_where_that_alone_has_the_front(scene):
    """Somebody has deleted old rows of the table."""
    scene.send(20)
    scene.offload()
    DeltaTable(str(scene.table.path)).delete("offset < 10")
    scene.trim(2)
    assert scene.read(startingTimestamp="0") == list(range(2, 20))
    assert scene.read(startingTimestamp="3001") == list(range(4, 20))
    assert scene.read(startingTimestamp="3000", endingTimestamp="7000") == list(range(3, 7))
    assert scene.read(startingTimestamp="12000") == list(range(12, 20))


def test_tasks_divide_the_table_too(scene):
    full(scene)
    reader = scene.reader(minPartitions="5")
    tasks = reader.partitions()
    assert len(tasks) == 5
    assert [offset for task in tasks for offset in offsets(reader.read(task))] == list(range(30))


def test_what_expires_between_plan_and_read_is_in_the_table_by_then(scene):
    scene.send(20)
    scene.offload()
    scene.send(20)
    reader = scene.reader()
    (task,) = reader.partitions()
    scene.offload()
    scene.trim(35)
    scene.send(5)
    assert offsets(reader.read(task)) == list(range(40))
    assert scene.read() == list(range(45))


def test_a_file_that_goes_while_it_is_read_has_gone_into_another(scene, monkeypatch):
    monkeypatch.setattr("sparklog.spark.lake.history.table_rows.BATCH_BYTES", 1)
    for _ in range(4):
        scene.send(10)
        scene.offload()
    reader = scene.reader()
    (task,) = reader.partitions()
    batches = reader.read(task)
    found = offsets([next(batches)])
    compact(scene.table.path)
    assert found + offsets(batches) == list(range(40))


def test_what_is_in_neither_is_lost_and_both_are_named(scene):
    scene.send(20)
    scene.offload()
    scene.send(20)
    reader, lenient = scene.reader(), scene.reader(failOnDataLoss="false")
    (task,) = reader.partitions()
    scene.trim(30)
    message = r"SPARKLOG_DATA_LOSS_EXPIRED.*offsets 20 to 40 .* begins at 30.*version 1, has offsets 0 to 20"
    with pytest.raises(DataSourceError, match=message):
        offsets(reader.read(task))
    assert offsets(lenient.read(task)) == [*range(20), *range(30, 40)]


def test_what_was_gone_before_the_first_offload_is_lost(scene):
    scene.send(20)
    scene.trim(10)
    scene.offload()
    assert scene.read() == list(range(10, 20))
    start = json.dumps({scene.topic: {"0": 3}})
    with pytest.raises(DataSourceError, match=r"SPARKLOG_DATA_LOSS_EXPIRED.*holds the offsets 10 to 20 \(table"):
        scene.read(startingOffsets=start)
    assert scene.read(startingOffsets=start, failOnDataLoss="false") == list(range(10, 20))


def test_a_version_is_read_without_the_log(scene):
    scene.send(10)
    scene.offload()
    scene.send(10)
    scene.offload()
    scene.send(10)
    assert scene.read(historyAsOf="1") == list(range(10))
    assert scene.read(historyAsOf="2", startingTimestamp="5000") == list(range(5, 20))
    assert scene.read(historyAsOf="0") == []
    reader = scene.reader(historyAsOf="1")
    (task,) = reader.partitions()
    compact(scene.table.path)
    with pytest.raises(DataSourceError, match=r"SPARKLOG_HISTORY_GONE.*version 1 .*VACUUM"):
        offsets(reader.read(task))


def test_a_time_is_that_of_a_version(scene):
    """UTC's where it names no zone."""
    for _ in range(2):
        scene.send(10)
        scene.offload()
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp()
    for version in range(3):
        path = scene.table.path / "_delta_log" / f"{version:020d}.json"
        os.utime(path, (noon, noon + 60 * version))
    for time, count in (
        ("2026-01-31T12:00:00", 0),
        ("2026-01-31T12:01:59", 10),
        ("2026-01-31T12:02:00", 20),
        ("2026-01-31T12:01:59Z", 10),
        ("2026-01-31T14:01:59+02:00", 10),
        ("2026-01-31T11:02:00-01:00", 20),
    ):
        assert scene.read(historyAsOf=time) == list(range(count)), time
    with pytest.raises(DataSourceError, match=r"no version as of 2026-01-31T12:00:00\+01:00"):
        scene.read(historyAsOf="2026-01-31T12:00:00+01:00")


def test_another_topic_and_another_cluster(scene, tmp_path):
    full(scene)
    with Admin(bootstrap_servers=scene.servers) as admin:
        admin.create_topics([NewTopic(scene.topic + "-other", 1, 1)])
    with pytest.raises(
        DataSourceError, match=f"nothing of topic {scene.topic}-other .* but rows of {scene.topic} with"
    ):
        scene.read(subscribe=scene.topic + "-other")
    foreign = DeltaLog(tmp_path / "foreign")
    foreign.append(made(range(5), topic=scene.topic), ends={0: 5})
    with pytest.raises(
        DataSourceError, match=f"nothing of topic {scene.topic} .* of cluster .* but rows of clicks .* of cluster"
    ):
        scene.read(history=str(foreign.path))


def test_a_topic_that_was_made_again(scene):
    full(scene)
    scene.admin.delete_topics([scene.topic])
    scene.admin.create_topics([NewTopic(scene.topic, 1, 1)])
    with pytest.raises(DataSourceError, match=f"nothing of topic {scene.topic} with id .* deleted and made again"):
        scene.read()


def test_a_topic_that_was_made_again_with_fewer_partitions_while_a_query_runs(cluster, topic, tmp_path):
    scene = Scene(cluster.bootstrap_servers, topic, tmp_path / "table", partitions=2)
    for partition in (0, 1):
        scene.send(3, partition)
    scene.offload()
    query = Query(scene, failOnDataLoss="false")
    assert query.batch() == [0, 1, 2] * 2
    scene.admin.delete_topics([topic])
    scene.admin.create_topics([NewTopic(topic, 1, 1)])
    with pytest.raises(DataSourceError, match=f"nothing of topic {topic} with id .* deleted and made again"):
        query.batch()
    query.stop()
    scene.close()


def test_a_partition_or_topic_that_is_not_offloaded_yet_is_read_from_the_log(scene):
    full(scene)
    with Admin(bootstrap_servers=scene.servers) as admin:
        admin.create_partitions({scene.topic: 2})
        admin.create_topics([NewTopic(scene.topic + "-new", 1, 1)])
    scene.sent.append(0)
    scene.send(3, partition=1)
    assert sorted(scene.read(subscribe=f"{scene.topic},{scene.topic}-new")) == sorted([*range(30), 0, 1, 2])


def test_rows_that_are_deleted_from_the_table_are_not_there(scene):
    from deltalake import DeltaTable

    full(scene)
    DeltaTable(str(scene.table.path)).delete("offset in (0, 1, 5)")
    assert scene.read() == [2, 3, 4, *range(6, 30)]


def test_a_topic_whose_name_is_longer_than_the_statistics_of_a_file(cluster, topic, tmp_path):
    """Its rows are compared one by one, in files of a writer that keeps texts as views."""
    from deltalake import DeltaTable

    scene = Scene(cluster.bootstrap_servers, topic.ljust(100, "x"), tmp_path / "table")
    full(scene)
    DeltaTable(str(scene.table.path)).delete("offset in (0, 1, 5)")
    assert scene.read() == [2, 3, 4, *range(6, 30)]
    scene.close()


def test_a_log_that_ends_before_the_table_does(scene):
    scene.send(10)
    scene.offload()
    with ClusterMetadata(ReadOptions.for_batch(scene.options()).client) as cluster:
        resolver = module.UnionResolver(cluster, ReadOptions.for_batch(scene.options()))
        (tp,) = resolver.partitions()
        progress = resolver.side.progress(resolver._range(tp))
    scene.table._commit({"txn": {"appId": progress.to_application(), "version": 15}})
    quick = {"fetchOffset.numRetries": "1", "fetchOffset.retryIntervalMs": "0"}
    with pytest.raises(DataSourceError, match=r"SPARKLOG_DATA_LOSS_TRUNCATED.*ends at offset 10, but table .* to 15"):
        scene.read(**quick)
    assert scene.read(**quick, failOnDataLoss="false") == list(range(10))


def test_a_stream_begins_in_the_table_and_goes_on_live(scene):
    full(scene)
    query = Query(scene, maxOffsetsPerTrigger="8")
    found = [query.batch() for _ in range(4)]
    assert [len(each) for each in found] == [8, 8, 8, 6]
    assert [offset for each in found for offset in each] == list(range(30))
    scene.send(5)
    assert query.batch() == list(range(30, 35))
    assert query.batch() == []
    query.stop()


def test_a_query_of_the_log_goes_on_with_history_and_its_last_batch_is_the_same(scene):
    scene.send(20)
    query = LogQuery(scene.servers, subscribe=scene.topic)
    start = json.loads(query.checkpoint)
    assert query.batch() == [b"%d" % each for each in range(20)]
    query.stop()
    scene.offload()
    scene.trim(20)
    scene.send(5)
    again = Query(scene, query.checkpoint)
    assert again.rows(start, json.loads(query.checkpoint)) == list(range(20))
    assert again.batch() == list(range(20, 25))
    again.stop()


def test_a_pattern_chooses_topics_whose_history_is_in_one_table(scene):
    full(scene)
    options = scene.options(subscribePattern=f"^{scene.topic}$")
    del options["subscribe"]
    reader = UnionReader(ReadOptions.for_batch(options), SCHEMA)
    (task,) = reader.partitions()
    assert offsets(reader.read(task)) == list(range(30))


def test_a_stream_takes_so_many_bytes_of_the_table(scene):
    full(scene)
    size = sum(each.size for each in Snapshot.open(str(scene.table.path)).files)
    query = Query(scene, maxBytesPerTrigger=str(size // 4))
    assert 3 <= len(query.batch()) <= 8
    query.stop()


def test_a_log_that_was_cut_off_and_has_grown_again(scene, monkeypatch):
    """The leader of a later epoch says that the epoch of the table's offsets ended below them."""
    scene.send(10)
    scene.offload()
    scene.send(10)
    tp, asked = TopicPartition(scene.topic, 0), []
    monkeypatch.setattr(truncation, "ends_of_epochs", lambda _, epochs: asked.append(dict(epochs)) or {tp: 6})
    assert scene.read() == list(range(20))
    monkeypatch.setattr(OffsetResolver, "ends_and_epochs", lambda *_: ({tp: 20}, {tp: 7}))
    with pytest.raises(
        DataSourceError, match=r"TRUNCATED.*cut off at offset 6 .* has offsets 0 to 10, of leader epoch 0"
    ):
        scene.read()
    assert asked == [{tp: 0}]
    assert scene.read(failOnDataLoss="false") == list(range(20))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"history": "clicks"}, "SPARKLOG_INVALID_OPTION.*a slash"),
        ({"historyAsOf": "tomorrow"}, "SPARKLOG_INVALID_OPTION.*a version, or a time"),
        ({"historyAsOf": "3", "endingTimestamp": "5"}, "SPARKLOG_CONFLICTING_OPTIONS.*'endingTimestamp'"),
        ({"kafka.isolation.level": "read_uncommitted"}, "SPARKLOG_UNSUPPORTED_OPTION.*committed records only"),
    ],
)
def test_options_that_cannot_be(options, message):
    given = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", "history": "/t", **options}
    with pytest.raises(DataSourceError, match=message):
        ReadOptions.for_batch(given)
