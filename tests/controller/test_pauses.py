"""Pauses that grow, each key's on its own."""

import pytest

from sparklog.controller.pauses import Pauses
from sparklog.testing.clock import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def pauses(clock):
    return Pauses(clock)


def lengths(clock, pauses, key, count):
    """How long each of its next pauses is."""
    found = []
    for _ in range(count):
        pauses.postpone(key)
        found.append(pauses.left(1000.0))
        clock.advance(found[-1])
        assert pauses.take_due() == {key}
    return found


def test_each_pause_is_twice_the_last_up_to_half_a_minute(clock, pauses):
    assert lengths(clock, pauses, "a", 9) == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert lengths(clock, pauses, "b", 1) == [0.25]
    pauses.forget("a")
    assert lengths(clock, pauses, "a", 2) == [0.25, 0.5]


def test_a_pause_that_goes_on_is_neither_longer_nor_due(clock, pauses):
    pauses.postpone("a")
    clock.advance(0.2)
    pauses.postpone("a")
    assert pauses.is_paused("a")
    assert pauses.take_due() == set()
    clock.advance(0.1)
    assert pauses.left(5.0) == 0.0, "it has been due for a while"
    assert pauses.take_due() == {"a"}
    assert not pauses.is_paused("a")
    assert pauses.left(5.0) == 5.0
