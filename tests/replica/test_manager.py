"""All partitions of a broker: in by append, out by read, away by stop."""

import asyncio
import errno
import shutil
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest

from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, ErrorCode
from sparklog.log.checkpoints import LOG_START_OFFSETS, read_offsets
from sparklog.log.directories.manager import LogManager
from sparklog.record.builder import RecordBatchBuilder
from sparklog.replica.manager import ReplicaManager
from sparklog.structs import NO_LEADER, IsolationLevel, TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.testing.files import FaultyFiles
from sparklog.zk.znodes import PartitionState

TP, ELSEWHERE = TopicPartition("t", 0), TopicPartition("t", 1)
ID, OTHER_ID = UUID(int=1), UUID(int=2)
ME = 1
COMMITTED = IsolationLevel.READ_UNCOMMITTED


def batch(size=10):
    builder = RecordBatchBuilder()
    builder.append(1, None, b"v" * size)
    return memoryview(bytearray(builder.build()))


def lead(epoch=0):
    return PartitionState(ME, epoch, (ME,), 1)


@pytest.fixture
def disk():
    with ThreadPoolExecutor(1) as thread:
        yield thread


@pytest.fixture
def manager(tmp_path, disk):
    loop = asyncio.new_event_loop()
    logs = LogManager([tmp_path], TopicConfig(), ManualClock(), disk)
    yield ReplicaManager(ME, logs, loop)
    logs.close()
    loop.close()


def ask(manager, offset=0, max_bytes=1 << 20, epoch=-1, tp=TP, first=True):
    return manager.read(tp, ID, offset, max_bytes, COMMITTED, leader_epoch=epoch, min_one_batch=first)


def refusal(manager, **asked):
    with pytest.raises(ApiError) as caught:
        ask(manager, **asked)
    return caught.value.code


def bytes_of(read):
    piece = read.records
    return b"" if piece is None else bytes(piece.file.read(piece.position, piece.size))


def test_what_is_not_held_here_is_unknown(manager):
    with pytest.raises(ApiError) as caught:
        manager.append(TP, batch(), 1)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refusal(manager) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not manager.leads(TP)


def test_what_is_appended_is_read(manager):
    assert manager.apply(TP, lead(), TopicConfig(), ID) is ErrorCode.NONE
    sent = [batch(), batch()]
    for each in sent:
        manager.append(TP, each, 1)
    read = ask(manager, offset=1)
    assert bytes_of(read) == bytes(sent[1])
    assert (read.high_watermark, read.last_stable_offset, read.log_start_offset, read.aborted) == (2, 2, 0, None)
    assert read.bound.offset == 2
    assert manager.leader_count == 1


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"offset": 2}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"offset": -1}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"epoch": 2}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"tp": ELSEWHERE}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_a_read_that_cannot_be_says_why(manager, asked, error):
    manager.apply(TP, lead(1), TopicConfig(), ID)
    manager.append(TP, batch(), 1)
    assert refusal(manager, **asked) is error


def test_another_topics_partition_is_not_read(manager):
    manager.apply(TP, lead(), TopicConfig(), OTHER_ID)
    assert refusal(manager) is ErrorCode.INCONSISTENT_TOPIC_ID


@pytest.mark.parametrize(
    ("limit", "first", "expected"),
    [(10, True, 500), (10, False, 0), (0, False, 0), (-1, False, 0), (-(2**31), True, 500)],
)
def test_limits_of_a_read(manager, limit, first, expected):
    manager.apply(TP, lead(), TopicConfig(), ID)
    data = batch(500)
    manager.append(TP, data, 1)
    read = ask(manager, max_bytes=limit, first=first)
    size = len(bytes_of(read))
    assert size == (len(data) if expected == 500 else expected)
    assert (read.records is not None) == bool(size)


def test_an_append_wakes_whoever_waits_for_it(manager):
    manager.apply(TP, lead(), TopicConfig(), ID)
    bound = ask(manager).bound
    waiting = manager.fetch_purgatory.wait([TP], lambda _: manager.available(TP, bound, COMMITTED) >= 150, 60_000)
    manager.append(TP, batch(), 1)
    assert not waiting.done()
    manager.append(TP, batch(100), 1)
    assert waiting.result() is True


def test_available_counts_what_has_become_visible(manager):
    manager.apply(TP, lead(), TopicConfig(), ID)
    since = ask(manager).bound
    assert manager.available(TP, since, COMMITTED) == 0
    manager.append(TP, batch(), 1)
    assert manager.available(TP, since, COMMITTED) == len(batch())
    manager.partition(TP).log.roll()
    manager.append(TP, batch(), 1)
    assert manager.available(TP, since, COMMITTED) > 1 << 20, "another segment is enough for anyone"


@pytest.mark.parametrize("delete", [False, True])
def test_a_stopped_partition_is_gone_and_wakes_its_waiters(manager, delete, tmp_path):
    manager.apply(TP, lead(), TopicConfig(), ID)
    manager.append(TP, batch(), 1)
    bound = ask(manager).bound
    waiting = manager.fetch_purgatory.wait([TP], lambda _: manager.available(TP, bound, COMMITTED) > 0, 60_000)
    manager.stop(TP, delete=delete)
    manager.stop(TP, delete=delete)
    assert waiting.result() is True
    assert not manager.leads(TP)
    assert (tmp_path / "t-0").exists() != delete
    assert manager.apply(TP, lead(), TopicConfig(), ID) is ErrorCode.NONE
    assert ask(manager).high_watermark == (0 if delete else 1)


@pytest.mark.parametrize("held", [True, False])
def test_another_topics_log_is_not_served(manager, held, tmp_path):
    manager.apply(TP, lead(), TopicConfig(), ID)
    manager.append(TP, batch(), 1)
    if not held:
        manager.stop(TP, delete=False)
    assert manager.apply(TP, lead(), TopicConfig(), OTHER_ID) is ErrorCode.INCONSISTENT_TOPIC_ID
    assert manager.topic_id(TP) == ID
    assert manager.strays([]) == {TP: ID}
    assert manager.set_aside(TP, "a test") is ErrorCode.NONE
    assert manager.strays([]) == {}
    assert manager.apply(TP, lead(), TopicConfig(), OTHER_ID) is ErrorCode.NONE
    assert manager.partition(TP).log.log_end_offset == 0
    assert len(list(tmp_path.glob("t-0.*-stray"))) == 1


def test_where_a_log_ends_is_told_of_the_right_topic_only(manager):
    """Also before the controller has said what the replica is to be."""
    with pytest.raises(ApiError) as caught:
        manager.log_end(TP, ID)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    manager.apply(TP, lead(3), TopicConfig(), ID)
    manager.append(TP, batch(), 1)
    manager.apply(TP, lead(5), TopicConfig(), ID)
    assert manager.log_end(TP, ID) == (3, 1), "nothing was written in the last epoch"
    manager.append(TP, batch(), 1)
    assert manager.log_end(TP, ID) == (5, 2)
    manager.delete_records(TP, 2)
    assert manager.log_end(TP, ID) == (5, 2), "of an empty log too"
    with pytest.raises(ApiError) as caught:
        manager.log_end(TP, OTHER_ID)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    manager.stop(TP, delete=False)
    assert manager.log_end(TP, ID) == (5, 2)


def test_a_log_that_may_be_on_a_disk_that_has_failed_is_not_said_to_be_none(tmp_path, disk):
    """It may be the longest, and have what was acknowledged: it is waited for."""
    (tmp_path / "there").mkdir()
    (tmp_path / "broken").write_bytes(b"no directory")
    logs = LogManager([tmp_path / "there", tmp_path / "broken"], TopicConfig(), ManualClock(), disk)
    logs.own("cluster", 1)
    logs.load({})
    assert len(logs.dirs.failed) == 1
    loop = asyncio.new_event_loop()
    manager = ReplicaManager(1, logs, loop)
    for held in (False, True):
        if held:
            manager.apply(TP, lead(3), TopicConfig(), OTHER_ID)
        with pytest.raises(ApiError) as caught:
            manager.log_end(TP, ID)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    logs.close()
    loop.close()


def test_a_controller_that_knows_no_topic_id_changes_none(manager):
    manager.apply(TP, lead(), TopicConfig(), ID)
    assert manager.apply(TP, lead(1), TopicConfig(), None) is ErrorCode.NONE
    manager.stop(TP, delete=False)
    assert manager.apply(TP, lead(2), TopicConfig(), None) is ErrorCode.NONE
    assert manager.topic_id(TP) == ID
    assert manager.apply(ELSEWHERE, lead(), TopicConfig(), None) is ErrorCode.NONE
    assert manager.topic_id(ELSEWHERE) is None


def test_a_deletion_that_the_disk_refuses_is_said_and_can_be_tried_again(manager, tmp_path, disk):
    manager.apply(TP, lead(), TopicConfig(), ID)
    manager.append(TP, batch(), 1)
    disk.submit(lambda: None).result()
    with FaultyFiles(tmp_path, fail_at=0, error=errno.ENOSPC, steps=["rename"]):
        assert manager.stop(TP, delete=True) is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(ApiError) as caught:
        manager.append(TP, batch(), 1)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert manager.apply(TP, lead(), TopicConfig(), OTHER_ID) is ErrorCode.KAFKA_STORAGE_ERROR
    assert manager.stop(TP, delete=True) is ErrorCode.NONE
    assert manager.stop(TP, delete=True) is ErrorCode.NONE
    assert manager.apply(TP, lead(), TopicConfig(), OTHER_ID) is ErrorCode.NONE
    assert manager.partition(TP).log.log_end_offset == 0


@pytest.mark.parametrize(
    ("tp", "code"),
    [
        (TopicPartition("/tmp/absolute", 0), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TopicPartition("../t", 0), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TopicPartition("t", -7), ErrorCode.INVALID_PARTITIONS),
    ],
)
def test_what_can_be_no_partition_is_not_made(manager, tp, code):
    assert manager.apply(tp, lead(), TopicConfig(), ID) is code
    assert refusal(manager, tp=tp) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_stale_decision_is_answered_with_its_code(manager):
    assert manager.apply(TP, lead(5), TopicConfig(), ID) is ErrorCode.NONE
    assert manager.apply(TP, lead(4), TopicConfig(), ID) is ErrorCode.STALE_CONTROLLER_EPOCH


def test_a_disk_that_refuses_is_a_storage_error(manager, tmp_path):
    shutil.rmtree(tmp_path)
    assert manager.apply(TP, lead(), TopicConfig(), ID) is ErrorCode.KAFKA_STORAGE_ERROR
    tmp_path.mkdir()  # a directory that came back is not what it was: it is in service again after a restart
    assert manager.apply(TP, lead(), TopicConfig(), ID) is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_write_that_fails_is_a_storage_error_and_the_next_goes_on(manager, monkeypatch):
    manager.apply(TP, lead(), TopicConfig(), ID)
    manager.append(TP, batch(), 1)

    def fail(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.pwrite", fail)
        with pytest.raises(ApiError, match="No space left") as caught:
            manager.append(TP, batch(), 1)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert manager.append(TP, batch(), 1).first_offset == 1


def test_damage_found_while_reading_is_a_storage_error(manager, tmp_path):
    manager.apply(TP, lead(), TopicConfig(), ID)
    for _ in range(3):
        manager.append(TP, batch(), 1)
    (path,) = (tmp_path / "t-0").glob("*.log")
    with open(path, "rb+") as file:
        file.seek(len(batch()) + 8)
        file.write(b"\xff\xff\xff\xff")
    assert refusal(manager, offset=2) is ErrorCode.KAFKA_STORAGE_ERROR
    assert bytes_of(ask(manager, offset=0, max_bytes=10))


def test_deleted_records_are_gone_at_once_and_after_a_crash(manager, tmp_path):
    manager.apply(TP, lead(), TopicConfig(), ID)
    for _ in range(5):
        manager.append(TP, batch(), 1)
    assert manager.delete_records(TP, 3) == 3
    assert manager.delete_records(TP, 2) == 3
    assert refusal(manager, offset=2) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert bytes_of(ask(manager, offset=3))
    for _, write, _ in manager.start_checkpoints():
        write()
    assert read_offsets(tmp_path / LOG_START_OFFSETS) == {TP: 3}
    assert manager.delete_records(TP, -1) == 5


@pytest.mark.parametrize(
    ("state", "policy", "before", "code"),
    [
        (lead(), "delete", 6, ErrorCode.OFFSET_OUT_OF_RANGE),
        (lead(), "delete", -2, ErrorCode.OFFSET_OUT_OF_RANGE),
        (lead(), "compact", 3, ErrorCode.POLICY_VIOLATION),
        (PartitionState(ME + 1, 1, (ME + 1,), 1), "delete", 3, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_records_that_may_not_be_deleted(manager, state, policy, before, code):
    manager.apply(TP, lead(), TopicConfig(), ID)
    for _ in range(5):
        manager.append(TP, batch(), 1)
    manager.apply(TP, state, TopicConfig(), ID)
    manager.configure("t", TopicConfig(cleanup_policy=(policy,)))
    with pytest.raises(ApiError) as caught:
        manager.delete_records(TP, before)
    assert caught.value.code is code
    assert manager.partition(TP).log.log_start_offset == 0


def test_uncommitted_records_are_not_deleted(manager):
    manager.apply(TP, lead(), TopicConfig(), ID)
    manager.append(TP, batch(), 1)
    manager.apply(TP, PartitionState(ME, 1, (ME, ME + 1), 1), TopicConfig(), ID)
    manager.append(TP, batch(), 1)
    assert manager.delete_records(TP, -1) == 1
    with pytest.raises(ApiError, match="committed up to 1"):
        manager.delete_records(TP, 2)


def test_other_settings_are_in_force_for_every_partition_of_the_topic(manager):
    for tp in (TP, ELSEWHERE, TopicPartition("u", 0)):
        manager.apply(tp, lead(), TopicConfig(), ID)
    assert manager.topics() == {"t", "u"}
    manager.configure("t", TopicConfig(max_message_bytes=10))
    for tp in (TP, ELSEWHERE):
        with pytest.raises(ApiError) as caught:
            manager.append(tp, batch(), 1)
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    manager.append(TopicPartition("u", 0), batch(), 1)


def test_what_fewer_replicas_may_show_is_shown_with_the_settings_that_say_so(manager):
    two = TopicConfig(min_insync_replicas=2)
    manager.apply(TP, lead(), two, ID, replicas=(ME, ME + 1))
    manager.append(TP, batch(), 1)
    reader = manager.fetch_purgatory.wait([TP], lambda _: ask(manager).records is not None, 60_000)
    manager.configure("t", TopicConfig(min_insync_replicas=1))
    assert (manager.shows_until(TP), reader.done()) == (1, True)


@pytest.mark.parametrize("leader", [ME, ME + 1, NO_LEADER])
def test_a_reader_is_at_the_end_of_no_partition_that_is_here_no_more(manager, leader):
    manager.apply(TP, PartitionState(leader, 3, (ME,), 1), TopicConfig(), ID)
    caught_up = manager.caught_up(TP, manager.partition(TP).high_watermark)
    assert caught_up.holds()
    manager.stop(TP, delete=True)
    assert not caught_up.holds()
    manager.apply(TP, PartitionState(leader, 3, (ME,), 1), TopicConfig(), ID)
    assert not caught_up.holds()


def test_an_epoch_that_is_yet_to_come_has_no_end(manager):
    manager.apply(TP, lead(2), TopicConfig(), ID)
    manager.append(TP, batch(), 1)
    manager.apply(TP, lead(5), TopicConfig(), ID)
    manager.append(TP, batch(), 1)
    ends = {epoch: manager.partition(TP).end_offset_for_epoch(epoch) for epoch in (-1, 1, 2, 4, 5, 6)}
    assert ends == {-1: None, 1: (0, 1), 2: (1, 2), 4: (1, 2), 5: (2, 5), 6: None}
