"""Topics made of backups: what is there is what was there, under the same offsets, whatever dies in between."""

import os
import random
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from sparklog.backup.making import BackupOptions, make_backup
from sparklog.backup.manifest import Backups
from sparklog.backup.restoring import FOREIGN, RestoreOptions, _Note, restore
from sparklog.client import Admin, NewTopic, Producer
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.offsets import EARLIEST, LATEST, earliest_offsets, latest_offsets
from sparklog.client.consumer.fetch.range_reader import fetch_range
from sparklog.client.consumer.group.committed import OffsetAndMetadata
from sparklog.errors import ApiError, ConfigError, ConnectionFailed, StorageError
from sparklog.record.batch import RecordBatch, patch_producer
from sparklog.record.records import iter_records
from sparklog.storage.place import open_place
from sparklog.structs import IsolationLevel, TopicPartition
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration


@pytest.fixture
def send(cluster):
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:

        def sent(topic, count, partitions=2):
            for number in range(count):
                producer.send(topic, b"value %d" % number, key=b"%d" % number, partition=number % partitions)
            producer.flush()

        yield sent


@pytest.fixture
def back_up(config, place):
    def made(*topics, **more):
        return make_backup(config, place, BackupOptions(topics, **{"patience_s": 0.0} | more))

    return made


@pytest.fixture
def copy(config, place):
    """``copy(topic)``: the topic of the last backup, restored under another name, which is returned."""

    def restored(topic, name=None, **more):
        name = name or f"{topic}-copy"
        restore(config, place, RestoreOptions(topics=(topic,), names={topic: name}, **more))
        return name

    return restored


def log_bytes(cluster, tp):
    """The bytes of a partition's log, as its broker has them; but for who wrote them, in a restored one."""
    directory = cluster.directory.broker(0) / str(tp)
    data = bytearray(b"".join(path.read_bytes() for path in sorted(directory.glob("*.log"))))
    position = 0
    while position < len(data):
        batch = RecordBatch(data, position)
        if batch.producer_id >= FOREIGN:
            patch_producer(data, position, batch.producer_id - FOREIGN, batch.producer_epoch, batch.base_sequence)
        position += batch.size_in_bytes
    return bytes(data)


def offsets(admin, topic, at):
    tps = [TopicPartition(topic, each.partition) for each in admin.describe_topics([topic])[topic].partitions]
    found = admin.list_offsets(dict.fromkeys(tps, at), isolation=IsolationLevel.READ_COMMITTED)
    return [found[tp].offset for tp in tps]


def values(config, topic):
    """What read_committed readers see of the first partition: offset, key and value of each record."""
    tp = TopicPartition(topic, 0)
    with ClusterMetadata(config) as cluster:
        level = IsolationLevel.READ_COMMITTED
        start, end = earliest_offsets(cluster, [tp])[tp], latest_offsets(cluster, [tp], level)[tp]
        batches = fetch_range(cluster, tp, start, end, isolation=level)
        found = [(each.offset, each.key, each.value) for batch in batches for each in iter_records(batch)]
        return [each for each in found if start <= each[0] < end]


def test_a_restored_topic_is_what_it_was(cluster, admin, back_up, copy, make, send):
    name = make(segment_bytes=2000)
    for _ in range(10):
        send(name, 20)
    group, tps = f"{name}-group", [TopicPartition(name, number) for number in range(2)]
    admin.alter_group_offsets(group, {tps[0]: OffsetAndMetadata(17, metadata="of its own"), tps[1]: 100})
    back_up(name)
    send(name, 10)
    new = copy(name)
    assert (offsets(admin, new, EARLIEST), offsets(admin, new, LATEST)) == ([0, 0], [100, 100])
    for tp in tps:
        restored = log_bytes(cluster, tp._replace(topic=new))
        assert restored
        assert log_bytes(cluster, tp).startswith(restored)
    own = {each.name: each.value for each in admin.topic_configs(new) if each.source == 1}
    assert own == {"retention.ms": "-1", "segment.bytes": "2000"}
    found = admin.group_offsets(group)
    assert {tp: (at.offset, at.metadata) for tp, at in found.items() if tp.topic == new} == {
        tps[0]._replace(topic=new): (17, "of its own"),
        tps[1]._replace(topic=new): (100, ""),
    }


def test_records_that_are_older_than_the_topic_keeps_are_warned_of(config, cluster, place, back_up, make):
    """Brokers delete them when they look for old segments the next time."""
    old, kept = make(1, "-old", retention_ms=3_600_000), make(1, "-kept")
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for name in (old, kept):
            producer.send(name, b"x", timestamp=1000)
    back_up(old, kept)
    said = []
    restore(config, place, RestoreOptions(names={old: f"{old}-2", kept: f"{kept}-2"}), warn=said.append)
    (line,) = said
    assert line.startswith(
        f"topic {old}-2 keeps records for 1 hours (retention.ms), by their timestamps, and at least 1 of 1"
    )
    assert f"sparklog topic alter {old}-2 --config retention.ms=-1" in line


def test_segments_are_as_large_as_the_topic_wants_them(config, cluster, admin, place, back_up, make, send):
    """A cluster may have another default than the one that the backup is of."""
    name = make(1, segment_bytes=100_000)
    for _ in range(20):
        send(name, 10, 1)
    made = back_up(name)
    smaller = made.backup.topics[name]._replace(settings={"segment.bytes": "1000"})
    backup = replace(made.backup, topics={name: smaller})
    Backups(place).put(1, backup)
    restore(config, place, RestoreOptions(names={name: f"{name}-copy"}))
    segments = [*cluster.directory.broker(0).glob(f"{name}-copy-0/*.log")]
    assert len(segments) > len(smaller.partitions[0].files)
    assert log_bytes(cluster, TopicPartition(f"{name}-copy", 0)) == log_bytes(cluster, TopicPartition(name, 0))


def test_one_that_was_restored_is_written_to_as_any_other(cluster, admin, back_up, copy, make):
    """Also by a producer whose id is in the backup: nothing of it is taken for what it wrote there."""
    name = make(1)
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send(name, b"one").result()
        back_up(name)
        new = copy(name)
        producer.send(new, b"two").result()
        assert producer.send(new, b"three").result().offset == 2


def test_transactions_are_as_they_ended(cluster, config, admin, back_up, copy, make):
    name = make(1)
    with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=name) as producer:
        producer.init_transactions()
        for commit in (True, False, True):
            producer.begin_transaction()
            producer.send(name, b"%d" % commit)
            producer.flush()
            (producer.commit_transaction if commit else producer.abort_transaction)()
        back_up(name)
        new = copy(name)
        assert offsets(admin, new, LATEST) == [6]
        producer.begin_transaction()
        producer.send(new, b"more")
        producer.commit_transaction()
    assert offsets(admin, new, LATEST) == [8]
    found = values(config, new)
    assert [(offset, value) for offset, _, value in found] == [(0, b"1"), (4, b"1"), (6, b"more")]


@pytest.mark.parametrize("deleted", [3, 10])
def test_the_first_offset_is_kept_even_of_an_empty_partition(config, admin, back_up, copy, make, send, deleted):
    name = make(1)
    send(name, 10, 1)
    admin.delete_records({TopicPartition(name, 0): deleted})
    back_up(name)
    new = copy(name)
    assert (offsets(admin, new, EARLIEST), offsets(admin, new, LATEST)) == ([deleted], [10])
    send(new, 1, 1)
    assert [offset for offset, _, _ in values(config, new)] == list(range(deleted, 11))


@pytest.fixture
def trimmed(cluster, admin, make):
    """A topic of one batch of ten records, of which the first three were deleted."""
    name = make(1)
    with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=3_600_000) as producer:
        for number in range(10):
            producer.send(name, b"%d" % number)
        producer.flush()
    admin.delete_records({TopicPartition(name, 0): 3})
    return name


@contextmanager
def a_broker_that_dies_before_it_has_the_start(monkeypatch, *, is_asked_again):
    """It has adopted the segments, and where the log begins was the next thing to write down."""
    adopt = Admin.restore

    def adopt_alone(self, offered, _log_start_offset):
        adopt(self, offered)
        if not is_asked_again:
            raise ConnectionFailed("the broker is gone")

    with monkeypatch.context() as patch, nullcontext() if is_asked_again else pytest.raises(ConnectionFailed):
        patch.setattr(Admin, "restore", adopt_alone)
        yield


@pytest.mark.parametrize("is_asked_again", [False, True])
def test_records_that_were_deleted_do_not_come_back_where_a_broker_dies(
    config, admin, back_up, copy, trimmed, monkeypatch, is_asked_again
):
    back_up(trimmed)
    with a_broker_that_dies_before_it_has_the_start(monkeypatch, is_asked_again=is_asked_again):
        copy(trimmed)
    new = f"{trimmed}-copy" if is_asked_again else copy(trimmed)
    assert (offsets(admin, new, EARLIEST), offsets(admin, new, LATEST)) == ([3], [10])
    assert [offset for offset, _, _ in values(config, new)] == list(range(3, 10))


def test_where_they_cannot_be_deleted_again_what_to_do_is_said(config, admin, back_up, copy, trimmed, monkeypatch):
    """A compacted topic gives up no records for being asked."""
    admin.alter_topic_configs(trimmed, {"cleanup.policy": "compact"})
    back_up(trimmed)
    with a_broker_that_dies_before_it_has_the_start(monkeypatch, is_asked_again=False):
        copy(trimmed)
    new = f"{trimmed}-copy"
    with pytest.raises(ApiError, match=f"{new}-0 begins at offset 0, not at 3: .*sparklog topic delete {new},"):
        copy(trimmed)
    admin.delete_topics([new])
    assert offsets(admin, copy(trimmed), EARLIEST) == [3]


def test_a_compacted_topic_keeps_its_gaps(cluster, config, admin, back_up, copy, make):
    name = make(1, cleanup_policy="compact", segment_bytes=500)
    with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer:
        for number in range(60):
            producer.send(name, b"%d" % number, key=b"%d" % (number % 3)).result()
    admin.compact([name])
    back_up(name)
    new = copy(name)
    found = values(config, name)
    assert found[0][0] > 0
    assert values(config, new) == found
    assert (offsets(admin, new, EARLIEST), offsets(admin, new, LATEST)) == ([0], [60])


def test_what_compaction_and_erasure_removed_does_not_come_back(cluster, config, admin, place, back_up, copy, make):
    """Though an earlier backup in the same place has it."""
    name = make(1, cleanup_policy="compact", segment_bytes=500, delete_retention_ms=0)
    tp = TopicPartition(name, 0)
    with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer:
        for number in range(10):
            producer.send(name, b"old", key=b"%d" % number).result()
        back_up(name)
        for number in range(10):
            producer.send(name, None, key=b"%d" % number).result()

        def is_gone():
            producer.send(name, b"new" * 20, key=b"other").result()
            admin.compact([name])
            return not {b"%d" % number for number in range(10)} & {key for _, key, _ in values(config, name)}

        eventually(is_gone)
    back_up(name)
    assert values(config, copy(name)) == values(config, name)
    admin.alter_topic_configs(name, {"cleanup.policy": "delete"})
    back_up(name)
    assert values(config, copy(name, f"{name}-once-compacted")) == values(config, name)
    admin.erase(name, [b"other"])
    back_up(name, anew=True)
    assert b"other" not in log_bytes(cluster, TopicPartition(copy(name, f"{name}-erased"), tp.partition))


def test_a_topic_that_is_compacted_no_longer(cluster, config, admin, back_up, copy, make):
    """It has holes between segments, which a log that is not compacted must not have."""
    name = make(1, cleanup_policy="compact", segment_bytes=500)
    with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer:
        for number in range(100):
            producer.send(name, b"%d" % number * 20, key=b"%d" % (number if number % 7 == 0 else number % 3)).result()
    admin.compact([name])
    admin.alter_topic_configs(name, {"cleanup.policy": "delete"})
    back_up(name)
    new = copy(name)
    assert values(config, new) == values(config, name)
    assert offsets(admin, new, LATEST) == [100]


def test_what_stands_in_the_way_is_refused(tmp_path, config, admin, place, back_up, copy, make, send):
    name = make(1)
    send(name, 10, 1)
    back_up(name)
    with pytest.raises(StorageError, match="is there already: delete it first"):
        restore(config, place, RestoreOptions())
    new = copy(name)
    with pytest.raises(StorageError, match="is there already"):
        copy(name)
    with pytest.raises(ConfigError, match="topic nope is not in the backup"):
        restore(config, place, RestoreOptions(topics=("nope",)))
    with pytest.raises(StorageError, match="there is no backup 7"):
        restore(config, place, RestoreOptions(number=7))
    with pytest.raises(StorageError, match="no backup in"):
        restore(config, open_place(str(tmp_path / "nothing")), RestoreOptions())
    assert new in {each.name for each in admin.list_topics()}


@pytest.mark.parametrize("name", ["bad/name", "../../../../evil/x", "..", ""])
def test_a_name_that_cannot_be_a_topics_leaves_nothing_behind(tmp_path, config, place, back_up, make, send, name):
    source = make(1)
    send(source, 1, 1)
    back_up(source)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ApiError, match="cannot be a topic's name"):
        restore(config, place, RestoreOptions(names={source: name}))
    assert sorted(tmp_path.rglob("*")) == before


def test_a_damaged_backup_restores_nothing(tmp_path, admin, back_up, copy, make, send):
    name = make(2)
    send(name, 10)
    made = back_up(name)
    damaged = tmp_path / "dest" / made.backup.topics[name].partitions[1].files[0].path
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    with pytest.raises(StorageError, match="is damaged, and nothing of it is restored"):
        copy(name)
    assert f"{name}-copy" not in {each.name for each in admin.list_topics()}


def test_where_a_brokers_directory_is_not_visible_is_said_and_gone_on_with(
    cluster, admin, back_up, copy, make, send, monkeypatch
):
    name = make(2)
    send(name, 10)
    back_up(name)
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda *_: False)
        with pytest.raises(StorageError, match=r"led by broker 0, whose directory .* cannot be written here"):
            copy(name)
    assert offsets(admin, copy(name), LATEST) == [5, 5]


@pytest.mark.slow
def test_followers_have_what_was_restored_and_one_can_take_over(tmp_path):
    """Two brokers, for one test: too dear for every run."""
    with ClusterHarness(tmp_path / "cluster", brokers=2) as cluster:
        config = ClientConfig.from_properties({"bootstrap.servers": cluster.bootstrap_servers})
        place = open_place(str(tmp_path / "dest"))
        with Admin(config) as admin, Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            admin.create_topics([NewTopic("clicks", 2, 2, {"min.insync.replicas": "2"})])
            for number in range(200):
                producer.send("clicks", b"%d" % number, partition=number % 2)
            producer.flush()
            admin.delete_records({TopicPartition("clicks", 1): 30})  # in the middle of a batch
            make_backup(config, place, BackupOptions(("clicks",)))
            restore(config, place, RestoreOptions(names={"clicks": "copy"}))
            for number in range(2):
                directories = [cluster.directory.broker(each) / f"copy-{number}" for each in range(2)]
                one, other = (b"".join(map(Path.read_bytes, sorted(each.glob("*.log")))) for each in directories)
                assert one == other
            admin.alter_topic_configs("copy", {"min.insync.replicas": "1"})
        cluster.kill_broker(0)
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            assert [producer.send("copy", b"", partition=each).result().offset for each in range(2)] == [100, 100]


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("seed", [0, *(pytest.param(each, marks=pytest.mark.slow) for each in range(1, 50))])
def test_one_that_dies_at_any_step_is_gone_on_with(cluster, admin, back_up, copy, make, send, monkeypatch, seed):
    """Killed before and after each thing that it does to the cluster or to the place, one later each time."""
    chance = random.Random(seed)
    name = make(2, segment_bytes=chance.choice([300, 10_000]))
    for _ in range(4):
        send(name, chance.randrange(2, 30))
    tps = [TopicPartition(name, number) for number in range(2)]
    admin.alter_group_offsets(f"{name}-group", {tps[0]: 1})
    back_up(name)
    expected = offsets(admin, name, LATEST)
    for step in range(100):
        with monkeypatch.context() as patch, suppress(Killed):
            _kill_at(patch, step)
            copy(name)
            break
    else:
        pytest.fail("it never ended")
    new = f"{name}-copy"
    assert offsets(admin, new, LATEST) == expected
    for tp in tps:
        assert log_bytes(cluster, tp._replace(topic=new)) == log_bytes(cluster, tp)
    assert admin.group_offsets(f"{name}-group")[tps[0]._replace(topic=new)].offset == 1
    assert [*cluster.directory.broker(0).glob(f"{new}-*/*.tmp")] == []


def _kill_at(patch, step):
    """Let the ``step``-th of the acts of a restore be its last, before it or after it."""
    count = 0

    def counted(act):
        def call(*arguments, **more):
            nonlocal count
            count += 1
            if count == step:
                raise Killed
            result = act(*arguments, **more)
            count += 1
            if count == step:
                raise Killed
            return result

        return call

    for owner, names in (
        (_Note, ("intend", "begin", "end")),
        (Admin, ("create_topics", "restore", "alter_group_offsets")),
    ):
        for each in names:
            patch.setattr(owner, each, counted(getattr(owner, each)))


@pytest.mark.peer
def test_a_backup_may_lie_in_hdfs(config, cluster, admin, hdfs, make, send):
    """Tried on a real one. Its JVM takes too long to start for every run of the tests."""
    name = make()
    send(name, 100)
    place = open_place(f"{hdfs.uri}/backups/a b")
    for _ in range(2):
        make_backup(config, place, BackupOptions((name,), patience_s=0.0, file_bytes=2000))
        send(name, 20)
    restore(config, place, RestoreOptions(names={name: f"{name}-copy"}))
    assert offsets(admin, f"{name}-copy", LATEST) == [60, 60]
    for tp in (TopicPartition(name, number) for number in range(2)):
        assert log_bytes(cluster, tp).startswith(log_bytes(cluster, tp._replace(topic=f"{name}-copy")))
    with pytest.raises(StorageError, match="is there already"):
        restore(config, place, RestoreOptions(names={name: f"{name}-copy"}))
