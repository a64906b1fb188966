"""The clock that tests move."""

import pytest

from sparklog.testing.clock import ManualClock


def test_it_stands_still_until_told():
    clock = ManualClock(1000)
    assert (clock.now_ms(), clock.monotonic()) == (1000, 0.0)
    clock.advance(1.5)
    assert (clock.now_ms(), clock.monotonic()) == (2500, 1.5)


def test_sleeping_is_advancing():
    clock = ManualClock(0)
    clock.sleep(2)
    assert clock.now_ms() == 2000


def test_the_wall_clock_may_be_set_back_but_time_goes_on():
    clock = ManualClock(1000)
    clock.advance(1)
    clock.set_wall(500)
    assert (clock.now_ms(), clock.monotonic()) == (500, 1.0)
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(-1)
