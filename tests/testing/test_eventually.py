"""Waiting with a deadline."""

import subprocess
import sys

import pytest

from sparklog.testing.clock import ManualClock
from sparklog.testing.eventually import eventually, wait_for_death


def test_the_first_true_value_is_returned():
    values = iter([0, "", "there"])
    assert eventually(lambda: next(values), clock=ManualClock()) == "there"


def test_the_deadline_says_what_was_awaited():
    clock = ManualClock()
    with pytest.raises(AssertionError, match="not within 5 s: the leader; last value: None"):
        eventually(lambda: None, 5, "the leader", clock)
    assert 5 < clock.monotonic() < 5.1


def test_a_death_is_seen_and_a_life_too():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        with pytest.raises(AssertionError, match="still alive"):
            wait_for_death(process.pid, 0.01)
        process.kill()
        wait_for_death(process.pid)
    wait_for_death(process.pid)
