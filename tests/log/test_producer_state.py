"""Idempotent producers: a retry adds nothing, a gap is refused, and neither is forgotten over a restart."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log.samples import marker_of, transactional

from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, CorruptRecord, DiskFull, ErrorCode
from sparklog.log.loader import Knowledge
from sparklog.log.log import Log
from sparklog.log.origin import AppendOrigin
from sparklog.log.producer_snapshot import (
    BatchMetadata,
    ProducerEntry,
    encode_snapshot,
    entries_before,
    read_entries,
    read_snapshot,
)
from sparklog.log.producer_state import EXPIRATION_MS, ProducerStateManager
from sparklog.record.batch import RecordBatch, patch_header, patch_producer
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.control import ControlType
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.testing.files import FaultyFiles

TP = TopicPartition("t", 0)


def batch(
    producer_id: int = 7, epoch: int = 0, sequence: int = 0, records: int = 2, timestamp: int = 1000
) -> memoryview:
    builder = RecordBatchBuilder(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    for number in range(records):
        builder.append(timestamp, None, b"%d" % number)
    return memoryview(bytearray(builder.build()))


def open_log(directory: Path, *, clean: bool = True, config: TopicConfig | None = None) -> Log:
    directory.mkdir(exist_ok=True)
    return Log(directory, TP, config or TopicConfig(), ManualClock(), lambda work: work(), Knowledge(clean=clean))


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return open_log(tmp_path / "t-0")


def refusal(log: Log, records: memoryview) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        log.append_as_leader(records, 0)
    return caught.value.code


def test_a_batch_sent_again_is_answered_with_its_first_offsets_and_not_written(log: Log) -> None:
    answers = [log.append_as_leader(batch(sequence=number * 2), 0) for number in range(5)]
    end, size = log.log_end_offset, log.size
    again = [log.append_as_leader(batch(sequence=number * 2), 0) for number in range(5)]
    assert again == answers
    assert (log.log_end_offset, log.size) == (end, size)


def test_the_sixth_last_batch_is_out_of_order(log: Log) -> None:
    for number in range(6):
        log.append_as_leader(batch(sequence=number * 2), 0)
    assert refusal(log, batch(sequence=0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_is_refused_and_loses_nothing(log: Log) -> None:
    log.append_as_leader(batch(sequence=0), 0)
    assert refusal(log, batch(sequence=4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append_as_leader(batch(sequence=2), 0).first_offset == 2


def test_an_old_epoch_is_fenced_and_a_new_one_starts_at_zero(log: Log) -> None:
    log.append_as_leader(batch(epoch=3, sequence=0), 0)
    assert refusal(log, batch(epoch=2, sequence=2)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(log, batch(epoch=4, sequence=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    for _ in range(2):  # sent again it is the same, and none of the epoch before
        assert log.append_as_leader(batch(epoch=4, sequence=0), 0).first_offset == 2


def test_a_producer_never_seen_may_begin_anywhere(log: Log) -> None:
    assert log.append_as_leader(batch(sequence=1234), 0).first_offset == 0


def test_sequences_wrap(log: Log) -> None:
    log.append_as_leader(batch(sequence=2**31 - 2, records=2), 0)
    assert log.append_as_leader(batch(sequence=0, records=2), 0).first_offset == 2


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "killed"])
def test_producers_are_known_again_after_a_restart(tmp_path: Path, clean: bool) -> None:
    log = open_log(tmp_path / "t-0")
    answers = [log.append_as_leader(batch(sequence=number * 2), 0) for number in range(6)]
    for _ in range(2):
        if clean:
            log.close()
        log = open_log(tmp_path / "t-0", clean=clean)
        assert [log.append_as_leader(batch(sequence=number * 2), 0) for number in range(1, 6)] == answers[1:]
        assert refusal(log, batch(sequence=0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert refusal(log, batch(sequence=14)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 12


def test_the_sixth_last_batch_is_out_of_order_also_where_the_first_of_them_is_from_before_a_restart(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path / "t-0")
    log.append_as_leader(batch(sequence=0), 0)
    log.close()
    log = open_log(tmp_path / "t-0")
    for number in range(1, 6):
        log.append_as_leader(batch(sequence=number * 2), 0)
    assert refusal(log, batch(sequence=0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "killed"])
def test_what_was_deleted_with_its_segments_is_known_after_a_restart(tmp_path: Path, clean: bool) -> None:
    log = open_log(tmp_path / "t-0")
    answers = [log.append_as_leader(batch(sequence=number * 2), 0) for number in range(4)]
    log.roll()
    log.advance_start(8)
    assert log.delete_old_segments(8)
    answers.append(log.append_as_leader(batch(sequence=8), 0))
    if clean:
        log.close()
    log = open_log(tmp_path / "t-0", clean=clean)
    repeated = [log.append_as_leader(batch(sequence=number * 2), 0) for number in range(5)]
    assert repeated == [each._replace(log_start_offset=8) for each in answers]
    assert refusal(log, batch(sequence=12)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "killed"])
def test_what_was_deleted_by_request_is_known_after_a_restart(tmp_path: Path, clean: bool) -> None:
    log = open_log(tmp_path / "t-0")
    answers = [log.append_as_leader(batch(sequence=number * 2), 0) for number in range(5)]
    log.advance_start(9)
    if clean:
        log.close()
        for path in (tmp_path / "t-0").glob("*.snapshot"):
            path.unlink()
    known = Knowledge(clean=clean, log_start_offset=9)
    log = Log(tmp_path / "t-0", TP, TopicConfig(), ManualClock(), lambda work: work(), known)
    assert log.log_start_offset == 9
    repeated = [log.append_as_leader(batch(sequence=number * 2), 0) for number in range(5)]
    assert repeated == [each._replace(log_start_offset=9) for each in answers]


def test_a_truncation_leaves_the_five_before_it(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", config=TopicConfig(segment_bytes=200))
    answers = [log.append_as_leader(batch(sequence=number * 2), 0) for number in range(9)]
    assert log.segment_count > 2
    log.truncate_to(14)
    assert [log.append_as_leader(batch(sequence=number * 2), 0) for number in range(2, 7)] == answers[2:7]
    assert refusal(log, batch(sequence=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_open_transaction_is_in_the_last_entry_alone(tmp_path: Path) -> None:
    producers = ProducerStateManager(tmp_path)
    builder = RecordBatchBuilder(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    builder.append(1, None, b"v")
    for number in range(3):
        data = memoryview(bytearray(builder.build()))
        patch_producer(data, 0, 7, 0, number)
        patch_header(data, 0, number, 0)
        producers.update(RecordBatch(data), 1000)
    producers.take_snapshot(1000, durable=False)
    (path,) = tmp_path.glob("*.snapshot")
    assert [(each.last_sequence, each.transaction_first_offset) for each in read_entries(path)] == [
        (0, -1),
        (1, -1),
        (2, 0),
    ]
    (restored,) = read_snapshot(path).values()
    assert restored.transaction_first_offset == 0
    assert [(each.first_sequence, each.last_sequence) for each in restored.batches] == [(0, 0), (1, 1), (2, 2)]


def test_a_later_epoch_stands_alone(tmp_path: Path) -> None:
    older = ProducerEntry(7, 3, (BatchMetadata(0, 1, 0, 1, 5), BatchMetadata(2, 3, 2, 3, 5)), 5)
    newer = ProducerEntry(7, 4, (BatchMetadata(0, 0, 4, 4, 6),), 6)
    path = tmp_path / f"{5:020d}.snapshot"
    path.write_bytes(encode_snapshot([older, newer]))
    (found,) = read_snapshot(path).values()
    assert (found.epoch, list(found.batches)) == (4, list(newer.batches))


def test_an_earlier_entry_is_never_younger_than_the_last(tmp_path: Path) -> None:
    entry = ProducerEntry(7, 0, (BatchMetadata(0, 1, 0, 1, 10**15), BatchMetadata(2, 3, 2, 3, 5)), 1000)
    path = tmp_path / f"{4:020d}.snapshot"
    path.write_bytes(encode_snapshot([entry]))
    assert [each.last_timestamp for each in read_entries(path)] == [1000, 1000]


def test_a_corrupt_snapshot_is_replaced_by_a_replay(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", config=TopicConfig(segment_bytes=200))
    answers = [log.append_as_leader(batch(sequence=number * 2), 0) for number in range(6)]
    log.close()
    for path in (tmp_path / "t-0").glob("*.snapshot"):
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    log = open_log(tmp_path / "t-0", clean=False, config=TopicConfig(segment_bytes=200))
    assert [log.append_as_leader(batch(sequence=number * 2), 0) for number in range(1, 6)] == answers[1:]


def test_a_truncation_to_where_the_first_segment_begins_leaves_what_came_before_it(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    first = log.append_as_leader(batch(sequence=0), 0)
    log.roll()
    log.advance_start(2)
    assert log.delete_old_segments(2)
    log.append_as_leader(batch(sequence=2), 0)
    log.truncate_to(2)
    assert log.append_as_leader(batch(sequence=0), 0) == first._replace(log_start_offset=2)
    assert refusal(log, batch(sequence=4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append_as_leader(batch(sequence=2), 0).first_offset == 2


def test_truncation_forgets_what_it_cut(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    log.append_as_leader(batch(sequence=0), 0)
    log.append_as_leader(batch(sequence=2), 0)
    log.truncate_to(2)
    assert refusal(log, batch(sequence=4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append_as_leader(batch(sequence=2), 0).first_offset == 2


def test_an_idle_producer_is_forgotten_at_the_next_snapshot(tmp_path: Path) -> None:
    producers = ProducerStateManager(tmp_path)
    producers.update(RecordBatch(batch()), 1000)
    producers.take_snapshot(1000 + EXPIRATION_MS, durable=True)
    assert len(producers) == 0


def placed(data: memoryview, offset: int) -> RecordBatch:
    """The batch as the log holds it."""
    patch_header(data, 0, offset, 0)
    return RecordBatch(data)


def names(directory: Path) -> list[int]:
    """The offsets of the snapshots that are there."""
    return sorted(int(path.stem) for path in directory.glob("*.snapshot"))


def test_a_silent_producer_is_remembered_up_to_its_time(tmp_path: Path) -> None:
    producers = ProducerStateManager(tmp_path, expiration_ms=100)
    producers.update(placed(batch(7), 0), 1000)
    producers.update(placed(batch(8), 2), 1050)
    producers.expire(1099)
    assert [entry.producer_id for entry in producers.entries] == [7, 8]
    producers.expire(1100)
    assert [entry.producer_id for entry in producers.entries] == [8]
    assert ProducerStateManager(tmp_path).expiration_ms == 86_400_000


def test_a_batch_without_a_producer_moves_the_end_alone(tmp_path: Path) -> None:
    producers = ProducerStateManager(tmp_path)
    data = placed(batch(-1, -1, -1), 4)
    assert producers.check(data, 1000) is None
    assert producers.update(data, 1000) is None
    assert (len(producers), producers.end_offset) == (0, 6)


def test_what_is_remembered_of_a_batch_is_where_it_lies_and_when_it_came(tmp_path: Path) -> None:
    producers = ProducerStateManager(tmp_path)
    producers.update(placed(batch(7, 2, 5, records=3, timestamp=900), 4), 1000)
    (entry,) = producers.entries
    assert list(entry.batches) == [BatchMetadata(5, 7, 4, 6, 900)]
    assert (entry.epoch, entry.last_timestamp, entry.last_sequence) == (2, 1000, 7)
    assert producers.check(placed(batch(7, 2, 5, records=3), 9), 1000) == BatchMetadata(5, 7, 4, 6, 900)
    assert producers.check(placed(batch(7, 2, 8), 9), 1000) is None
    with pytest.raises(ApiError) as caught:  # not the same records
        producers.check(placed(batch(7, 2, 5, records=2), 9), 1000)
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_what_a_leader_has_taken_a_follower_takes(tmp_path: Path) -> None:
    producers = ProducerStateManager(tmp_path)
    producers.update(placed(batch(7, 0, 0), 0), 1000)
    for sequence in (0, 2, 9):
        assert producers.check(placed(batch(7, 0, sequence), 2), 1000, AppendOrigin.REPLICATION) is None


def test_a_snapshot_is_written_once_for_an_end(tmp_path: Path) -> None:
    producers = ProducerStateManager(tmp_path)
    producers.take_snapshot(1000, durable=False)
    assert names(tmp_path) == []
    producers.update(placed(batch(7), 0), 1000)
    producers.take_snapshot(1000, durable=False)
    assert names(tmp_path) == [2]
    (tmp_path / f"{2:020d}.snapshot").unlink()
    producers.take_snapshot(1000, durable=False)
    assert names(tmp_path) == []
    producers.update(placed(batch(7, 0, 2, records=1), 2), 1000)
    producers.take_snapshot(1000, durable=True)
    assert names(tmp_path) == [3]


def with_snapshots(directory: Path, *offsets: int) -> ProducerStateManager:
    """A producer id a snapshot: each knows as many producers as there are before its offset."""
    producers = ProducerStateManager(directory)
    for number, offset in enumerate(offsets):
        producers.update(placed(batch(number, records=1), offset - 1), 1000)
        producers.take_snapshot(1000, durable=False)
    assert names(directory) == list(offsets)
    return producers


@pytest.mark.parametrize(
    ("first", "up_to", "end", "known"),
    [(0, 9, 9, 3), (0, 8, 5, 2), (5, 8, 5, 2), (6, 8, 6, 0), (2, 2, 2, 1), (0, 1, 0, 0), (9, 9, 9, 3), (10, 20, 10, 0)],
)
def test_the_newest_snapshot_of_a_range_is_taken(tmp_path: Path, first: int, up_to: int, end: int, known: int) -> None:
    with_snapshots(tmp_path, 2, 5, 9)
    producers = ProducerStateManager(tmp_path)
    producers.load(first, up_to)
    assert (producers.end_offset, len(producers)) == (end, known)
    producers.take_snapshot(1000, durable=False)  # it is there
    assert names(tmp_path) == [2, 5, 9]


def test_a_damaged_snapshot_goes_and_the_one_before_it_is_taken(tmp_path: Path) -> None:
    with_snapshots(tmp_path, 2, 5)
    (tmp_path / f"{5:020d}.snapshot").write_bytes(b"damaged")
    producers = ProducerStateManager(tmp_path)
    producers.load(0, 9)
    assert (producers.end_offset, len(producers), names(tmp_path)) == (2, 1, [2])


@pytest.mark.parametrize(("beyond", "left"), [(5, [2, 5]), (4, [2]), (9, [2, 5, 9])])
def test_snapshots_that_the_log_does_not_reach_go(tmp_path: Path, beyond: int, left: list[int]) -> None:
    with_snapshots(tmp_path, 2, 5, 9).discard_snapshots(beyond=beyond)
    assert names(tmp_path) == left


def test_the_snapshot_of_a_segment_that_is_deleted_goes(tmp_path: Path) -> None:
    producers = with_snapshots(tmp_path, 2, 5, 9)
    producers.discard_snapshot(2)
    producers.discard_snapshot(3)
    assert names(tmp_path) == [5, 9]


def test_a_snapshot_is_written_again_where_one_was_discarded(tmp_path: Path) -> None:
    producers = with_snapshots(tmp_path, 2, 5, 9)
    producers.discard_snapshots(beyond=5)
    producers.take_snapshot(1000, durable=False)
    assert names(tmp_path) == [2, 5, 9]


@pytest.mark.parametrize(
    ("bases", "left"),
    [([0, 5], [5, 9]), ([0, 2, 5], [2, 5, 9]), ([0], [9]), ([0, 9], [9]), ([0, 10], []), ([], [9])],
)
def test_a_snapshot_a_segment_is_kept_and_the_newest_beyond_them(
    tmp_path: Path, bases: list[int], left: list[int]
) -> None:
    with_snapshots(tmp_path, 2, 5, 9).discard_stray(bases)
    assert names(tmp_path) == left


def test_a_log_that_begins_anew_knows_no_producer(tmp_path: Path) -> None:
    producers = with_snapshots(tmp_path, 2, 5)
    producers.restart_at(3)
    assert (len(producers), producers.end_offset, names(tmp_path)) == (0, 3, [])
    producers.update(placed(batch(7), 3), 1000)
    producers.take_snapshot(1000, durable=False)
    assert names(tmp_path) == [5]


def test_a_log_that_begins_anew_keeps_no_snapshot_however_early(tmp_path: Path) -> None:
    with_snapshots(tmp_path, 1, 2).restart_at(7)
    assert names(tmp_path) == []


def test_where_a_transaction_began_comes_back_with_its_snapshot(tmp_path: Path) -> None:
    producers = ProducerStateManager(tmp_path)
    producers.update(placed(transactional(1, 0), 0), 1000)
    producers.update(placed(transactional(2, 0), 1), 1000)
    producers.update(placed(marker_of(1, ControlType.COMMIT, coordinator_epoch=3), 2), 1000)
    assert (producers.first_unstable_offset, producers.last_marker(1), producers.coordinator_epoch(1)) == (0, 2, 3)
    producers.take_snapshot(1000, durable=False)
    again = ProducerStateManager(tmp_path)
    again.load(0, 3)
    assert (again.first_unstable_offset, again.coordinator_epoch(1), again.last_marker(1)) == (1, 3, -1)
    assert again.has_open_transaction(2, 0)
    assert not any(again.has_open_transaction(*each) for each in ((2, 1), (1, 0), (3, 0)))
    assert (again.coordinator_epoch(3), again.last_marker(3)) == (-1, -1)
    again.disbelieve_coordinator(1)
    again.disbelieve_coordinator(3)
    assert again.coordinator_epoch(1) == -1
    aborted = again.update(placed(marker_of(2, ControlType.ABORT), 3), 1000)
    assert aborted == (2, 1, 3, 4)
    assert again.first_unstable_offset == 1
    again.on_high_watermark(3)
    assert again.first_unstable_offset == 1
    again.on_high_watermark(4)
    assert again.first_unstable_offset is None


def test_a_marker_without_a_transaction_ends_none(tmp_path: Path) -> None:
    producers = ProducerStateManager(tmp_path)
    assert producers.update(placed(marker_of(1, ControlType.ABORT, epoch=2, coordinator_epoch=5), 0), 1000) is None
    assert (producers.first_unstable_offset, producers.last_marker(1), producers.coordinator_epoch(1)) == (None, 0, 5)
    for coordinator_epoch in (5, 6):
        marker = placed(marker_of(1, ControlType.ABORT, epoch=2, coordinator_epoch=coordinator_epoch), 1)
        assert producers.check(marker, 1000) is None
    with pytest.raises(ApiError) as caught:
        producers.check(placed(marker_of(1, ControlType.ABORT, epoch=2, coordinator_epoch=4), 1), 1000)
    assert caught.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert producers.check(placed(transactional(1, 0, epoch=3), 1), 1000) is None
    assert producers.check(placed(transactional(1, 0, epoch=2), 1), 1000) is None  # the first of its epoch


def test_of_what_was_refused_the_first_of_the_newest_epoch_is_waited_for(tmp_path: Path) -> None:
    producers = ProducerStateManager(tmp_path)
    for epoch, sequence in ((1, 4), (1, 6), (0, 2), (1, 5)):
        producers.refused(placed(batch(7, epoch, sequence), 0), ErrorCode.NOT_ENOUGH_REPLICAS, 1000)
    with pytest.raises(ApiError) as caught:
        producers.check(placed(batch(7, 1, 5), 0), 1000)
    assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert producers.check(placed(batch(7, 1, 4), 0), 1000) is None
    assert producers.check(placed(batch(8, 1, 5), 0), 1000) is None


def answers(producers: ProducerStateManager, now_ms: int, *batches: tuple[int, int]) -> list[ErrorCode]:
    """To these epochs and sequences of one producer."""
    codes = []
    for epoch, sequence in batches:
        try:
            producers.check(placed(batch(7, epoch, sequence), 9), now_ms)
        except ApiError as error:
            codes.append(error.code)
        else:
            codes.append(ErrorCode.NONE)
    return codes


def test_a_log_that_begins_anew_waits_for_no_batch_that_it_refused_before(tmp_path: Path) -> None:
    """Another leader has written it, and it was deleted there before it came here."""
    producers = ProducerStateManager(tmp_path)
    producers.refused(placed(batch(7, 1, 2), 0), ErrorCode.NOT_ENOUGH_REPLICAS, 1000)
    producers.restart_at(50)
    assert answers(producers, 1000, (1, 40)) == [ErrorCode.NONE]


def test_what_was_in_flight_behind_a_refused_batch_is_refused_as_it_was(tmp_path: Path) -> None:
    """Else librdkafka raises its epoch, and sends again what other partitions may have already."""
    full, gap = ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    producers = ProducerStateManager(tmp_path)
    producers.update(placed(batch(7, 1, 0), 0), 1000)
    assert answers(producers, 1000, (1, 4), (1, 6)) == [gap, gap]
    producers.refused(placed(batch(7, 1, 2), 2), full, 1000)
    assert answers(producers, 1000, (1, 4), (1, 6), (2, 4), (1, 2)) == [full, full, gap, ErrorCode.NONE]
    producers.update(placed(batch(7, 1, 2), 2), 1001)
    assert answers(producers, 1001, (1, 6), (1, 4)) == [gap, ErrorCode.NONE]


@pytest.mark.parametrize("first", [2, 2**31 - 2, 2**31 - 1])
def test_what_was_in_flight_behind_a_refused_batch_is_behind_it_where_the_numbers_begin_again(
    tmp_path: Path, first: int
) -> None:
    full = ErrorCode.KAFKA_STORAGE_ERROR
    second, third = ((first + each) % 2**31 for each in (2, 4))
    producers = ProducerStateManager(tmp_path)
    for sequence in (second, first, third):
        producers.refused(placed(batch(7, 1, sequence), 0), full, 1000)
    assert answers(producers, 1000, (1, second), (1, third), (1, first)) == [full, full, ErrorCode.NONE]
    producers.update(placed(batch(7, 1, first), 0), 1000)
    producers.refused(placed(batch(7, 1, second), 2), full, 1000)
    assert answers(producers, 1000, (1, third), (1, second)) == [full, ErrorCode.NONE]


@pytest.mark.parametrize("first", [4, 2**31 - 2])
def test_a_transaction_begins_behind_no_repeated_batch_where_the_numbers_begin_again(
    tmp_path: Path, first: int
) -> None:
    second, third = ((first + each) % 2**31 for each in (1, 2))
    producers = ProducerStateManager(tmp_path)
    for offset, sequence in enumerate((first, second)):
        producers.update(placed(transactional(1, sequence), offset), 1000)
    producers.update(placed(marker_of(1, ControlType.ABORT), 2), 1000)
    for sequence in (second, first):
        assert producers.check(placed(transactional(1, sequence), 3), 1000) is not None
    with pytest.raises(ApiError, match=f"sequence {third}, and sent {first} for it"):
        producers.check(placed(transactional(1, third), 3), 1000)


def test_an_id_below_that_of_no_producer_is_none_either(log: Log, tmp_path: Path) -> None:
    for _ in range(2):
        log.append_as_leader(batch(producer_id=-2, sequence=-1), 0)
    assert log.log_end_offset == 4, "nothing is known to come again"
    assert refusal(log, transactional(-2, 0)) is ErrorCode.INVALID_RECORD
    log.append_as_leader(transactional(-2, 0), 0, AppendOrigin.REPLICATION)
    assert log.first_unstable_offset is None, "as after a recovery"


@pytest.mark.parametrize("known", [True, False])
def test_a_refused_batch_that_does_not_come_again_leaves_a_gap(tmp_path: Path, known: bool) -> None:
    full, gap = ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    producers = ProducerStateManager(tmp_path)
    if known:
        producers.update(placed(batch(7, 1, 0), 0), 1000)
    producers.refused(placed(batch(7, 1, 2), 2), full, 1000)
    assert answers(producers, 120_999, (1, 4)) == [full]
    assert answers(producers, 121_000, (1, 4)) == [gap]
    producers.refused(placed(batch(7, 1, 2), 2), full, 121_000)
    assert answers(producers, 121_000, (1, 4)) == [full]


@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 30_000), st.integers(0, 2**31 - 1)), max_size=20))
def test_a_snapshot_restores_what_was_written(tmp_path_factory: pytest.TempPathFactory, producers: list) -> None:  # type: ignore[type-arg]
    directory = tmp_path_factory.mktemp("snapshots")
    state = ProducerStateManager(directory)
    offset = 0
    for producer_id, epoch, sequence in producers:
        data = batch(producer_id, epoch, sequence)
        patch_header(data, 0, offset, 0)
        state.update(RecordBatch(data), 1000)
        offset += 2
    state.take_snapshot(1000, durable=False)
    restored = ProducerStateManager(directory)
    restored.load(0, offset)
    assert restored.end_offset == state.end_offset
    for producer_id, epoch, sequence in {each[0]: each for each in producers}.values():
        assert restored.check(RecordBatch(batch(producer_id, epoch, sequence)), 1000) is not None


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_no_snapshot(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("garbage") / f"{0:020d}.snapshot"
    path.write_bytes(data)
    with pytest.raises(CorruptRecord):
        read_snapshot(path)


# Of many producers, in the background


MANY = 1200


class Later:
    """A log of ``MANY`` producers, whose background work is done when it is told to."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.work: list[Callable[[], None]] = []
        directory.mkdir()
        self.log = Log(directory, TP, TopicConfig(), ManualClock(), self.work.append, Knowledge())
        self.answers = [self.log.append_as_leader(batch(number, records=1), 0) for number in range(MANY)]
        self.do()

    def do(self, pieces: int = 1 << 20) -> None:
        while self.work and pieces:
            self.work.pop(0)()
            pieces -= 1

    def repeated(self, log: Log) -> list[tuple[int, int]]:
        """What of the first batches the log knows."""
        again = (log.append_as_leader(batch(number, records=1), 0) for number in range(MANY))
        return [(each.first_offset, each.last_offset) for each in again]

    @property
    def offsets(self) -> list[tuple[int, int]]:
        return [(each.first_offset, each.last_offset) for each in self.answers]


@pytest.fixture
def later(tmp_path: Path) -> Later:
    return Later(tmp_path / "t-0")


def test_a_snapshot_of_many_producers_is_written_behind_the_roll_and_says_what_was_known_at_it(later: Later) -> None:
    later.log.roll()
    assert names(later.directory) == []
    for number in range(MANY):
        later.log.append_as_leader(batch(number, sequence=1, records=1) if number % 2 else batch(MANY + number), 0)
        later.do(1)
    later.do()
    assert names(later.directory) == [MANY]
    known = read_snapshot(later.directory / f"{MANY:020d}.snapshot")
    assert list(known) == [*range(MANY)]
    assert [(each.batches[0].first_offset, len(each.batches)) for each in known.values()] == [
        (number, 1) for number in range(MANY)
    ]


def test_a_snapshot_is_awaited_from_the_roll_until_it_is_written(later: Later) -> None:
    awaited = [later.log.awaits_snapshot]
    later.log.roll()
    awaited.append(later.log.awaits_snapshot)
    later.do()
    awaited.append(later.log.awaits_snapshot)
    assert awaited == [False, True, False]


def test_it_is_written_in_steps_between_which_other_work_for_the_disk_is_done(later: Later) -> None:
    later.log.roll()
    steps = 0
    while not names(later.directory):
        assert len(later.work) <= 2  # of which one is the roll's flush
        later.do(1)
        steps += 1
    assert steps > MANY / 200


def test_what_is_written_in_steps_waits_for_no_disk(later: Later, monkeypatch: pytest.MonkeyPatch) -> None:
    later.log.flush()
    synced: list[int] = []
    for call in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, call, synced.append)
    later.log._producers.begin_snapshot(1000)
    while later.log._producers.write_some():
        pass
    assert (names(later.directory), synced) == ([MANY], [])


@pytest.mark.parametrize("written", [False, True])
def test_no_segment_goes_before_its_producers_are_written_down(later: Later, written: bool) -> None:
    later.log.roll()
    later.log.advance_start(MANY)
    if written:
        later.do()
    assert bool(later.log.delete_old_segments(MANY)) is written
    assert later.log.log_start_offset == MANY
    again = open_log(later.directory, clean=False)  # as after a crash
    assert later.repeated(again) == later.offsets


def test_segments_before_those_that_the_unwritten_needs_go(later: Later) -> None:
    later.log.roll()
    later.do()
    later.log.append_as_leader(batch(0, sequence=1), 0)
    later.log.roll()
    later.log.append_as_leader(batch(0, sequence=3), 0)
    later.log.advance_start(MANY + 4)
    assert later.log.delete_old_segments(MANY + 4)
    assert [each.base_offset for each in later.log._segments] == [MANY, MANY + 2, MANY + 4]
    assert later.log.delete_old_segments(MANY + 4) == []
    later.do()
    assert later.log.delete_old_segments(MANY + 4)


def test_of_rolls_that_come_faster_than_it_is_written_the_first_and_the_last_count(later: Later) -> None:
    for number in range(4):
        later.log.roll()
        later.log.append_as_leader(batch(0, sequence=1 + 2 * number), 0)
    later.do()
    assert names(later.directory) == [MANY, MANY + 6]
    assert later.log._producers.first_unwritten is None


def test_what_a_truncation_cut_off_is_not_written_behind_it(later: Later) -> None:
    later.log.append_as_leader(batch(0, sequence=1), 0)
    later.log.roll()
    later.do(3)
    later.log.truncate_to(MANY)
    later.do()
    assert names(later.directory) == []
    assert later.repeated(later.log) == later.offsets
    assert later.log.append_as_leader(batch(0, sequence=1), 0).first_offset == MANY
    later.log.roll()
    later.do()
    assert names(later.directory) == [MANY + 2], "the next is"


def test_a_stop_waits_for_none_and_writes_the_last(later: Later) -> None:
    later.log.roll()
    later.do(3)
    later.log.append_as_leader(batch(0, sequence=1), 0)
    later.log.close()
    later.do()
    assert names(later.directory) == [MANY + 2]
    assert later.repeated(open_log(later.directory)) == later.offsets


def test_an_abandoned_log_has_none_written(later: Later) -> None:
    later.log.roll()
    later.do(3)
    later.log.abandon()
    later.do()
    assert names(later.directory) == []


def test_a_snapshot_that_the_disk_refuses_is_tried_again_before_its_segment_goes(later: Later) -> None:
    later.log.roll()
    later.log.advance_start(MANY)
    refusals = 0
    with FaultyFiles(later.directory, error=errno.ENOSPC, lasting=True, fail_at=0, steps=("open",)):
        while later.work:
            try:
                later.do(1)
            except DiskFull:
                refusals += 1
    assert (names(later.directory), refusals) == ([], 3)  # of the leader epochs and of the flush too
    assert later.log.delete_old_segments(MANY) == []
    later.do()
    assert names(later.directory) == [MANY]
    assert later.log.delete_old_segments(MANY)


def test_of_many_who_would_write_a_snapshot_one_does(later: Later) -> None:
    known = later.log._producers
    assert not known.is_writer_wanted(), "there is nothing to write"
    known.end_offset += 1
    known.begin_snapshot(0)
    assert [known.is_writer_wanted() for _ in range(3)] == [True, False, False]
    while known.write_some():
        pass
    assert not known.is_writer_wanted()
    known.end_offset += 1
    known.begin_snapshot(0)
    assert known.is_writer_wanted(), "the one before has finished"


def test_who_could_not_write_is_followed_by_another(later: Later) -> None:
    known = later.log._producers
    known.end_offset += 1
    known.begin_snapshot(0)
    assert known.is_writer_wanted()

    def write() -> None:
        while known.write_some():
            pass

    with FaultyFiles(later.directory, error=errno.EIO, fail_at=0), pytest.raises(OSError, match="Input/output"):
        write()
    assert [known.is_writer_wanted() for _ in range(2)] == [True, False]


def test_a_snapshot_of_the_same_offset_is_noted_once(later: Later) -> None:
    known = later.log._producers
    known.end_offset += 1
    for _ in range(2):
        known.begin_snapshot(0)
    assert len(known._unwritten) == 1
    assert known.first_unwritten == known.end_offset


def test_what_knows_the_same_follows_the_clock_from_there(tmp_path: Path) -> None:
    known = ProducerStateManager(tmp_path, expiration_ms=100)
    known.follow_clock(1000, 0)
    known.update(placed(batch(7), 0), 1000)
    other = known.copy()
    other.follow_clock(5_000_000, 10)  # the wall clock was set
    other.expire(5_000_000)
    assert len(other) == 1


def test_what_knows_the_same_goes_its_own_way(tmp_path: Path) -> None:
    """A copy, which is brought further by itself, and taken over."""
    known = ProducerStateManager(tmp_path, expiration_ms=77)
    for number, records in enumerate((transactional(1, 0), transactional(2, 0), marker_of(2, ControlType.ABORT))):
        each = RecordBatch(records)
        each.assign(number, 0)
        known.update(each, 5)
    before = known.first_unstable_offset, list(known.entries), known.end_offset
    other = known.copy()
    assert (other.first_unstable_offset, list(other.entries), other.end_offset) == before == (0, before[1], 3)
    assert other.expiration_ms == 77
    each = RecordBatch(marker_of(1, ControlType.COMMIT))
    each.assign(3, 0)
    other.update(each, 6)
    other.on_high_watermark(4)
    assert (known.first_unstable_offset, list(known.entries), known.end_offset) == before
    assert (other.first_unstable_offset, other.end_offset) == (None, 4)
    assert (known.last_marker(1), other.last_marker(1)) == (-1, 3)
    known.take_over(other)
    assert (known.first_unstable_offset, known.last_marker(1), len(known)) == (None, 3, 2)
    each = RecordBatch(transactional(3, 0))
    each.assign(4, 0)
    known.update(each, 7)
    assert known.first_unstable_offset == 4


WRITES = st.lists(
    st.tuples(st.sampled_from(["plain", "open", "commit", "abort"]), st.integers(1, 3), st.integers(0, 1)), max_size=40
)


@given(WRITES, st.integers(0, 40))
def test_what_is_still_to_be_known_at_an_offset_is_enough_for_the_end(
    tmp_path_factory: pytest.TempPathFactory, writes: list[tuple[str, int, int]], at: int
) -> None:
    home = tmp_path_factory.mktemp("state")
    (home / "all").mkdir()
    (home / "rest").mkdir()
    producers, rest = ProducerStateManager(home / "all"), ProducerStateManager(home / "rest")
    epochs, batches = {1: 0, 2: 0, 3: 0}, []
    for offset, (what, producer, raised) in enumerate(writes):
        epoch = epochs[producer] = epochs[producer] + raised
        if what in ("plain", "open"):
            data = (
                batch(producer, epoch, offset, 1) if what == "plain" else transactional(producer, offset, epoch=epoch)
            )
        else:
            data = marker_of(producer, ControlType[what.upper()], epoch=epoch)
        patch_header(data, 0, offset, 0)
        batches.append(RecordBatch(data))
        producers.update(batches[-1], 1000)
    (home / "rest" / f"{at:020d}.snapshot").write_bytes(encode_snapshot(entries_before(producers.entries, at)))
    rest.load(at, at)
    for each in batches[at:]:
        rest.update(each, 1000)

    def facts(state: ProducerStateManager) -> list[tuple[object, ...]]:
        return sorted((*each[:2], [written[:4] for written in each.batches], *each[4:6]) for each in state.entries)

    assert facts(rest) == facts(producers)


def test_a_transaction_does_not_begin_behind_a_batch_of_one_that_was_aborted(log: Log) -> None:
    """The producer takes what was answered as written for a part of its new transaction."""
    first = [log.append_as_leader(transactional(7, sequence), 0, verification=_allow) for sequence in range(3)]
    log.append_as_leader(marker_of(7, ControlType.ABORT), 0, AppendOrigin.COORDINATOR)
    assert log.append_as_leader(transactional(7, 2), 0, verification=_allow) == first[2]
    for _ in range(2):
        with pytest.raises(ApiError, match="begins a transaction with sequence 3, and sent 2 for it") as caught:
            log.append_as_leader(transactional(7, 3), 0, verification=_allow)
        assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.append_as_leader(transactional(7, 0, epoch=1), 0, verification=_allow)
    log.append_as_leader(marker_of(7, ControlType.COMMIT, epoch=1), 0, AppendOrigin.COORDINATOR)
    log.append_as_leader(transactional(7, 1, epoch=1), 0, verification=_allow)


def test_nor_in_the_copy_that_takes_over_in_another_directory(tmp_path: Path) -> None:
    log, copy = open_log(tmp_path / "t-0"), open_log(tmp_path / "copy")
    log.append_as_leader(transactional(7, 0), 0, verification=_allow)
    log.append_as_leader(marker_of(7, ControlType.ABORT), 0, AppendOrigin.COORDINATOR)
    log.append_as_leader(transactional(7, 0), 0, verification=_allow)
    for data in log.read_all(1 << 20):
        copy.append_as_follower(memoryview(bytearray(data)))
    copy.take_over(log)
    with pytest.raises(ApiError, match="begins a transaction with sequence 1, and sent 0 for it"):
        copy.append_as_leader(transactional(7, 1), 0, verification=_allow)


def test_what_came_again_is_known_to_a_copy_of_what_is_known(tmp_path: Path) -> None:
    known = ProducerStateManager(tmp_path)
    for number, records in enumerate((transactional(7, 0), marker_of(7, ControlType.ABORT))):
        each = RecordBatch(records)
        each.assign(number, 0)
        known.update(each, 5)
    assert known.check(RecordBatch(transactional(7, 0)), 5) is not None, "it came again"
    for other in (known.copy(), known):
        with pytest.raises(ApiError, match="begins a transaction with sequence 1, and sent 0 for it"):
            other.check(RecordBatch(transactional(7, 1)), 5)
        known.take_over(other)


def test_a_batch_that_comes_again_within_its_transaction_or_after_a_commit_keeps_nothing_back(log: Log) -> None:
    for sequence in (0, 1, 0, 1, 2):
        log.append_as_leader(transactional(7, sequence), 0, verification=_allow)
    log.append_as_leader(marker_of(7, ControlType.COMMIT), 0, AppendOrigin.COORDINATOR)
    log.append_as_leader(transactional(7, 2), 0, verification=_allow)  # comes late
    log.append_as_leader(marker_of(7, ControlType.COMMIT), 0, AppendOrigin.COORDINATOR)
    log.append_as_leader(transactional(7, 3), 0, verification=_allow)


@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
def test_how_a_transaction_ended_is_known_of_a_producer_that_is_not_idle(log: Log, kind: ControlType) -> None:
    """Also when others have been looked through for those that are."""
    first = log.append_as_leader(transactional(7, 0), 0, verification=_allow)
    log.append_as_leader(marker_of(7, kind), 0, AppendOrigin.COORDINATOR)
    log.expire_producers()
    assert log.append_as_leader(transactional(7, 0), 0, verification=_allow) == first
    log.expire_producers()
    if kind is ControlType.COMMIT:
        assert log.append_as_leader(transactional(7, 1), 0, verification=_allow).first_offset == 2
    else:
        assert refusal(log, transactional(7, 1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        log.append_as_leader(marker_of(7, kind), 0, AppendOrigin.COORDINATOR)  # of the one that would have begun
        assert log.append_as_leader(transactional(7, 1), 0, verification=_allow).first_offset == 3


def _allow(producer_id: int, epoch: int) -> None:
    """The transaction may begin."""
