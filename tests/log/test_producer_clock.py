"""A broker's clock is set while producers are idle: whoever was heard of just now is still known."""

import pytest
from log.samples import abandon, open_log

from sparklog.errors import ApiError, ErrorCode
from sparklog.log.origin import AppendOrigin
from sparklog.record.builder import RecordBatchBuilder
from sparklog.testing.clock import ManualClock

_DAY_S = 86_400
_NOW_MS = 1_700_000_000_000
_YEARS_MS = 10 * 365 * _DAY_S * 1000


def idempotent(sequence, producer_id=7):
    builder = RecordBatchBuilder(producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    builder.append(_NOW_MS, None, b"once")
    return memoryview(bytearray(builder.build()))


@pytest.fixture
def clock():
    return ManualClock(_NOW_MS)


@pytest.fixture(params=[_YEARS_MS, -_YEARS_MS], ids=["was-ahead", "was-behind"])
def wrong(request, clock):
    """Boot with a clock that is wrong by so many milliseconds."""
    clock.set_wall(_NOW_MS + request.param)
    return request.param


def set_right(clock):
    clock.set_wall(_NOW_MS)


def forget_the_idle(log):
    log.expire_producers()


def roll(log):
    log.roll()


@pytest.mark.parametrize("look", [forget_the_idle, roll])
def test_a_batch_that_comes_again_behind_the_step_is_not_written_twice(tmp_path, clock, wrong, look):
    log = open_log(tmp_path / "t-0", clock=clock)
    log.append_as_leader(idempotent(0), 0)
    set_right(clock)
    look(log)
    assert log.append_as_leader(idempotent(0), 0).first_offset == 0
    assert log.log_end_offset == 1


def test_what_a_clean_stop_remembers_is_told_by_the_right_clock(tmp_path, clock, wrong):
    log = open_log(tmp_path / "t-0", clock=clock)
    log.append_as_leader(idempotent(0), 0)
    set_right(clock)
    log.close()
    again = open_log(tmp_path / "t-0", clock=clock, clean=True)
    again.expire_producers()
    assert again.producer_count == 1
    clock.advance(_DAY_S)
    again.expire_producers()
    assert again.producer_count == 0


def test_a_producer_that_was_heard_of_behind_the_step_is_known_as_long_as_others(tmp_path, clock, wrong):
    log = open_log(tmp_path / "t-0", clock=clock)
    log.append_as_leader(idempotent(0), 0)
    set_right(clock)
    log.append_as_leader(idempotent(0, producer_id=8), 0)
    log.expire_producers()  # as a broker does every ten minutes
    clock.advance(_DAY_S - 1)
    log.expire_producers()
    assert log.producer_count == 2
    clock.advance(1)
    log.expire_producers()
    assert log.producer_count == 0


def test_one_that_was_idle_for_long_is_not_known_for_ever(tmp_path, clock):
    log = open_log(tmp_path / "t-0", clock=clock)
    log.append_as_leader(idempotent(0), 0)
    clock.advance(_DAY_S - 10)
    clock.set_wall(_NOW_MS + _YEARS_MS)
    log.expire_producers()
    assert log.producer_count == 1
    clock.advance(10)
    log.expire_producers()
    assert log.producer_count == 0


def test_a_stop_while_the_clock_is_wrong_costs_nothing_once_it_is_right(tmp_path, clock):
    """The clock of a machine without one of its own begins years ago, and is set soon after."""
    log = open_log(tmp_path / "t-0", clock=clock)
    log.append_as_leader(idempotent(0), 0)
    log.close()
    clock.set_wall(_NOW_MS - _YEARS_MS)
    again = open_log(tmp_path / "t-0", clock=clock, clean=True)
    again.roll()
    abandon(again)
    third = open_log(tmp_path / "t-0", clock=clock)
    set_right(clock)
    third.expire_producers()
    assert third.append_as_leader(idempotent(0), 0).first_offset == 0


def test_a_clock_that_is_set_back_does_not_have_a_gap_answered_as_one_to_come(tmp_path, clock):
    """A producer that gave up a batch is told so, not to try again until the clock has caught up."""
    log = open_log(tmp_path / "t-0", clock=clock)
    log.refused_for_now(idempotent(1), ErrorCode.NOT_ENOUGH_REPLICAS, AppendOrigin.CLIENT)
    with pytest.raises(ApiError) as refused:
        log.append_as_leader(idempotent(2), 0)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    clock.set_wall(_NOW_MS - _YEARS_MS)
    clock.advance(_DAY_S)
    with pytest.raises(ApiError) as refused:
        log.append_as_leader(idempotent(2), 0)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
