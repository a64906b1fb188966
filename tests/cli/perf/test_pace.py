"""Rates and lines, on a clock that is given."""

from sparklog.cli.perf.pace import Meter, Pace
from sparklog.testing.clock import ManualClock


def test_records_wait_until_their_time():
    clock = ManualClock()
    pace = Pace(clock, 50)
    for sent, at in ((0, 0), (100, 2), (50, 2), (125, 2.5)):
        pace.wait(sent)
        assert clock.monotonic() == at


def test_without_a_limit_nothing_waits():
    clock = ManualClock()
    Pace(clock, None).wait(10**9)
    assert clock.monotonic() == 0


def test_what_came_since_the_last_time_is_told():
    clock, told = ManualClock(), []
    meter = Meter(clock, 5, lambda *line: told.append(line))
    for seconds in (2, 2, 2, 1, 5):
        clock.advance(seconds)
        meter.add(10, 100)
    assert told == [(30, 300, 6.0), (20, 200, 6.0)]
    assert (meter.records, meter.bytes, meter.seconds) == (50, 500, 12.0)
