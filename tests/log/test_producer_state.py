"""Idempotent producers: a retry adds nothing, a gap is refused, and neither is forgotten over a restart."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, CorruptRecord, ErrorCode
from sparklog.log.loader import Knowledge
from sparklog.log.log import Log
from sparklog.log.producer_snapshot import read_snapshot
from sparklog.log.producer_state import EXPIRATION_MS, ProducerStateManager
from sparklog.record.batch import RecordBatch, patch_header
from sparklog.record.builder import RecordBatchBuilder
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock

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
    assert log.append_as_leader(batch(epoch=4, sequence=0), 0).first_offset == 2


def test_a_producer_never_seen_may_begin_anywhere(log: Log) -> None:
    assert log.append_as_leader(batch(sequence=1234), 0).first_offset == 0


def test_sequences_wrap(log: Log) -> None:
    log.append_as_leader(batch(sequence=2**31 - 2, records=2), 0)
    assert log.append_as_leader(batch(sequence=0, records=2), 0).first_offset == 2


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "killed"])
def test_producers_are_known_again_after_a_restart(tmp_path: Path, clean: bool) -> None:
    log = open_log(tmp_path / "t-0")
    first = log.append_as_leader(batch(sequence=0), 0)
    last = log.append_as_leader(batch(sequence=2), 0)
    if clean:
        log.close()
    log = open_log(tmp_path / "t-0", clean=clean)
    assert log.append_as_leader(batch(sequence=2), 0) == last
    assert refusal(log, batch(sequence=6)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    if not clean:
        assert log.append_as_leader(batch(sequence=0), 0) == first


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
        assert restored.check(RecordBatch(batch(producer_id, epoch, sequence))) is not None


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_no_snapshot(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("garbage") / f"{0:020d}.snapshot"
    path.write_bytes(data)
    with pytest.raises(CorruptRecord):
        read_snapshot(path)
