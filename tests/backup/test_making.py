"""Backups of a real broker's topics: the files have the log's bytes, whatever dies in between."""

import errno
import itertools
import random
from contextlib import suppress

import pytest

from sparklog.backup.making import BackupOptions, make_backup
from sparklog.backup.manifest import Backups
from sparklog.backup.verifying import verify
from sparklog.client import Producer
from sparklog.errors import ConfigError, StorageError
from sparklog.log.stopped import stopped_partitions
from sparklog.storage.place import open_place
from sparklog.structs import TopicPartition
from sparklog.testing.files import Crash, FaultyFiles

pytestmark = pytest.mark.integration
ROOM = ("write", "pwrite", "mkdir", "open")
"""The steps that need some."""


@pytest.fixture
def send(cluster):
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:

        def sent(topic, count, partitions=2):
            for number in range(count):
                producer.send(topic, b"value %d" % number, partition=number % partitions)
            producer.flush()

        yield sent


@pytest.fixture
def back_up(config, place):
    def made(*topics, **more):
        return make_backup(config, more.pop("place", place), BackupOptions(topics, **{"patience_s": 0.0} | more))

    return made


def log_bytes(cluster, tp):
    """The bytes of a partition's log, as its broker has them."""
    directory = cluster.directory.broker(0) / str(tp)
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def saved_bytes(place, backup, tp):
    files = backup.topics[tp.topic].partitions[tp.partition].files
    return b"".join(place.read(each.path) for each in files)


def test_it_has_the_log_byte_for_byte(cluster, place, back_up, make, send):
    name = make(segment_bytes=1000)
    for _ in range(20):
        send(name, 10)
    made = back_up(name)
    assert made.number == 0
    assert verify(place, made.backup) == []
    for number in range(2):
        tp = TopicPartition(name, number)
        assert saved_bytes(place, made.backup, tp) == log_bytes(cluster, tp)
        assert made.backup.topics[name].partitions[number][:2] == (0, 100)
    assert made.backup.is_consistent
    assert Backups(place).read(0) == made.backup


def test_a_further_one_copies_what_is_new(cluster, place, back_up, make, send):
    name = make()
    send(name, 100)
    first = back_up(name)
    assert back_up(name).copied_bytes == 0
    send(name, 40)
    third = back_up(name)
    assert third.number == 2
    assert third.copied_bytes == third.backup.nbytes - first.backup.nbytes > 0
    for number in range(2):
        tp = TopicPartition(name, number)
        assert saved_bytes(place, third.backup, tp) == log_bytes(cluster, tp)
    assert Backups(place).read(0) == first.backup
    assert verify(place, first.backup) == []


def test_it_ends_before_an_open_transaction_and_has_the_markers_of_others(cluster, place, back_up, make):
    name = make(1)
    tp = TopicPartition(name, 0)
    with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=name) as producer:
        producer.init_transactions()
        for commit in (True, False):
            producer.begin_transaction()
            producer.send(name, b"%d" % commit)
            producer.flush()
            (producer.commit_transaction if commit else producer.abort_transaction)()
        decided = log_bytes(cluster, tp)
        producer.begin_transaction()
        producer.send(name, b"open")
        producer.flush()
        made = back_up(name)
        assert made.backup.topics[name].partitions[0][:2] == (0, 4)
        assert made.backup.topics[name].partitions[0].files[0].records == 2
        assert saved_bytes(place, made.backup, tp) == decided
        producer.commit_transaction()
    assert saved_bytes(place, back_up(name).backup, tp) == log_bytes(cluster, tp)


def test_groups_offsets_lie_within_it(cluster, admin, back_up, make, send):
    name = make(2)
    send(name, 20)
    admin.delete_records({TopicPartition(name, 1): 4})
    within, beyond, before = (f"{name}-{kind}" for kind in ("within", "beyond", "before"))
    tps = [TopicPartition(name, number) for number in range(2)]
    admin.alter_group_offsets(within, {tps[0]: 7, tps[1]: 5})
    admin.alter_group_offsets(beyond, {tps[0]: 100})
    admin.alter_group_offsets(before, {tps[1]: 2})
    groups = back_up(name).backup.groups
    found = {group: {tp: at.offset for tp, at in offsets.items()} for group, offsets in groups.items()}
    assert found == {within: {tps[0]: 7, tps[1]: 5}, beyond: {tps[0]: 10}, before: {tps[1]: 4}}


def test_settings_and_the_first_offset_are_kept(admin, back_up, make, send):
    name = make(1, segment_bytes=12345)
    send(name, 9, 1)
    admin.delete_records({TopicPartition(name, 0): 5})
    topic = back_up(name).backup.topics[name]
    assert topic.settings == {"retention.ms": "-1", "segment.bytes": "12345"}
    assert topic.partitions[0][:2] == (5, 9)
    assert topic.replication_factor == 1
    admin.delete_records({TopicPartition(name, 0): 9})
    assert back_up(name).backup.topics[name].partitions[0] == (9, 9, ())


def test_a_topic_that_was_made_again_is_another_one(admin, place, back_up, make, send):
    name = make(1)
    send(name, 10, 1)
    first = back_up(name)
    admin.delete_topics([name])
    make(1)
    send(name, 20, 1)
    second = back_up(name)
    assert second.backup.topics[name].partitions[0][:2] == (0, 20)
    assert second.copied_bytes == second.backup.nbytes
    assert second.backup.topics[name].topic_id != first.backup.topics[name].topic_id
    assert verify(place, first.backup) == verify(place, second.backup) == []


def test_damage_and_loss_are_told(tmp_path, place, back_up, make, send):
    name = make(2)
    send(name, 10)
    backup = back_up(name).backup
    one, other = (tmp_path / "dest" / partition.files[0].path for _, partition in backup.partitions())
    one.write_bytes(one.read_bytes()[:-1] + b"?")
    other.unlink()
    damaged, missing = verify(place, backup)
    assert "is damaged: batch at offset 0 has CRC" in damaged
    assert f"{other.name} is missing" in missing


def test_of_two_at_a_time_one_counts(place, back_up, make, send, monkeypatch):
    name = make(1)
    send(name, 10, 1)
    put, rival = Backups.put, []

    def overtaken(backups, number, backup):
        if not rival:
            rival.append(None)
            rival.append(back_up(name))
        put(backups, number, backup)

    monkeypatch.setattr(Backups, "put", overtaken)
    with pytest.raises(StorageError, match="another backup was made"):
        back_up(name)
    assert Backups(place).read(0) == rival[1].backup


@pytest.mark.parametrize("seed", [0, *(pytest.param(each, marks=pytest.mark.slow) for each in range(1, 50))])
def test_one_that_dies_at_any_step_is_gone_on_with(cluster, tmp_path, back_up, make, send, seed):
    """Killed again and again, each time a little later, while records come: what counts is always whole."""
    chance = random.Random(seed)
    name, root = make(2), tmp_path / "dest"
    root.mkdir()
    place, expected, step = open_place(str(root)), 0, 0
    tps = [TopicPartition(name, number) for number in range(2)]
    while True:
        send(name, chance.randrange(2, 20))
        made = None
        with FaultyFiles(root, crash_at=step, half=bool(chance.randrange(2))), suppress(Crash):
            made = back_up(name, file_bytes=chance.choice([200, 500, 5000]), place=place)
        numbers = Backups(place).numbers()
        assert len(numbers) >= expected
        for number in numbers[expected:]:
            backup = Backups(place).read(number)
            assert verify(place, backup) == []
            for tp in tps:
                assert log_bytes(cluster, tp).startswith(saved_bytes(place, backup, tp))
        expected = len(numbers)
        if made is not None:
            break
        step += chance.randrange(1, 6)
    for tp in tps:
        assert saved_bytes(place, made.backup, tp) == log_bytes(cluster, tp)


def test_a_place_without_room(cluster, tmp_path, back_up, make, send):
    """Whatever there is no room for, the backup before stays, and the next one is whole when there is room."""
    name, root = make(2), tmp_path / "dest"
    root.mkdir()
    place = open_place(str(root))
    send(name, 20)
    first, failures = back_up(name, place=place).backup, []
    send(name, 20)
    for step in itertools.count():
        with FaultyFiles(root, fail_at=step, error=errno.ENOSPC, lasting=True, half=True, steps=ROOM):
            try:
                made = back_up(name, place=place, file_bytes=300)
                break
            except (StorageError, OSError) as error:
                failures.append(str(error))
        assert [*Backups(place).numbers()] == [0]
        assert Backups(place).read(0) == first
        assert verify(place, first) == []
    assert step > 5
    assert [each for each in failures if "No space left on device" not in each] == []
    assert Backups(place).read(1) == made.backup
    assert verify(place, made.backup) == []
    for number in range(2):
        tp = TopicPartition(name, number)
        assert saved_bytes(place, made.backup, tp) == log_bytes(cluster, tp)


def test_what_a_killed_run_left_is_not_copied_again(tmp_path, back_up, make, send, monkeypatch):
    name = make(2)
    for _ in range(10):
        send(name, 10)

    def killed(*_):
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(Backups, "put", killed)
        with pytest.raises(Crash):
            back_up(name, file_bytes=500)
    left = sorted((tmp_path / "dest").rglob("*.log"))
    damaged = left[2]
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    made = back_up(name, file_bytes=500)
    used = {file.path for _, partition in made.backup.partitions() for file in partition.files}
    assert 0 < made.copied_bytes < made.backup.nbytes
    assert str(left[0].relative_to(tmp_path / "dest")) in used
    assert str(damaged.relative_to(tmp_path / "dest")) not in used


def test_a_log_that_was_cut_off_is_copied_anew(place, back_up, make, send, monkeypatch):
    """What the leader says of the last epoch decides. An unclean election cannot be had with one broker."""
    name = make(1)
    send(name, 10, 1)
    back_up(name)
    monkeypatch.setattr("sparklog.backup.making.ends_of_epochs", lambda _, wanted: dict.fromkeys(wanted, 5))
    made = back_up(name)
    assert made.copied_bytes == made.backup.nbytes
    assert verify(place, made.backup) == []


def test_no_topic_and_those_of_the_brokers_are_refused(admin, back_up, make):
    with pytest.raises(ConfigError, match="name the topics"):
        BackupOptions(())
    admin.alter_group_offsets("some-group", {TopicPartition(make(1), 0): 0})
    with pytest.raises(ConfigError, match="the brokers' own"):
        back_up("__consumer_offsets")


def test_what_a_run_wrote_can_be_read_as_a_log_directory(tmp_path, back_up, make, send):
    name = make(2)
    send(name, 20)
    made = back_up(name)
    found = stopped_partitions(tmp_path / "dest" / "segments" / made.backup.run)
    assert {str(tp): (each.start_offset, each.end_offset, each.topic_id) for tp, each in found.items()} == {
        f"{name}-{number}": (0, 10, made.backup.topics[name].topic_id) for number in range(2)
    }
