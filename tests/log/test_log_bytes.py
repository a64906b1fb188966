"""How many bytes a log has from an offset on, from its index and its sizes, against its batches."""

import pytest
from log.samples import SMALL, batch_of, open_log

from sparklog.record.records import iter_batches
from sparklog.testing.clock import ManualClock

INTERVAL = 400


@pytest.fixture
def log(tmp_path):
    """Several segments, with entries in their indexes."""
    clock = ManualClock()
    settings = SMALL | {"index.interval.bytes": str(INTERVAL), "segment.bytes": "5000"}
    log = open_log(tmp_path / "t-0", settings, clock=clock)
    while log.segment_count < 4:
        log.append_as_leader(batch_of(*[clock.now_ms()] * 3, size=30), 0)
    return log


def batches_of(log):
    """(first offset, last offset, size) of each."""
    return [
        (batch.base_offset, batch.last_offset, len(batch.buffer))
        for block in log.read_all(1 << 20)
        for batch in iter_batches(block)
    ]


@pytest.mark.parametrize("until", ["end", "middle"])
def test_it_is_at_most_an_interval_and_a_batch_too_much(log, until):
    batches = batches_of(log)
    largest = max(size for *_, size in batches)
    end = log.end if until == "end" else log.position_of(log.log_end_offset // 2)
    for offset in range(end.offset):
        true = sum(size for first, last, size in batches if last >= offset and first < end.offset)
        assert true <= log.bytes_between(offset, end) <= true + INTERVAL + largest


def test_what_is_deleted_does_not_count(log):
    log.advance_start(log.log_end_offset // 2)
    assert log.bytes_between(0, log.end) == log.bytes_between(log.log_start_offset, log.end) < log.size


def test_from_the_beginning_it_is_the_size(log):
    assert log.bytes_between(0, log.end) == log.size == sum(size for *_, size in batches_of(log))
