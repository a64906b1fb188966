"""What may come often is said now and then, and how often it came is not lost."""

import logging

import pytest

from sparklog import rate_limit
from sparklog.rate_limit import RateLimit, RateLimitedLogger
from sparklog.testing.clock import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


def test_one_passes_in_an_interval_and_the_next_says_how_many_did_not(clock):
    limit = RateLimit(clock.monotonic, 10.0)
    assert [limit.admit("a") for _ in range(4)] == [0, None, None, None]
    clock.advance(9.9)
    assert limit.admit("a") is None
    clock.advance(0.1)
    assert [limit.admit("a"), limit.admit("a")] == [4, None]
    clock.advance(100.0)
    assert limit.admit("a") == 1


def test_each_kind_has_intervals_of_its_own(clock):
    limit = RateLimit(clock.monotonic, 10.0)
    assert limit.admit("a") == 0
    clock.advance(5.0)
    assert [limit.admit("b"), limit.admit("a")] == [0, None]
    clock.advance(5.0)
    assert [limit.admit("b"), limit.admit("a")] == [None, 1]


def test_as_many_pass_as_may(clock):
    limit = RateLimit(clock.monotonic, 10.0)
    assert [limit.admit("a", 2) for _ in range(3)] == [0, 0, None]
    clock.advance(10.0)
    assert [limit.admit("a", 2) for _ in range(3)] == [1, 0, None]


def test_what_is_forgotten_begins_anew(clock):
    limit = RateLimit(clock.monotonic, 10.0)
    limit.forget("a")
    assert [limit.admit("a"), limit.admit("a")] == [0, None]
    limit.forget("a")
    assert limit.admit("a") == 0


def test_warnings_are_counted_when_they_are_too_many(clock, caplog, monkeypatch):
    monkeypatch.setattr(rate_limit, "_IN_AN_INTERVAL", 5)
    warnings = RateLimitedLogger(logging.getLogger("test"), clock.monotonic)
    with caplog.at_level(logging.WARNING):
        for number in range(20):
            warnings.warn("kind", f"warning {number}")
        warnings.warn("other", "another")
        clock.advance(10.0)
        warnings.warn("kind", "again")
        clock.advance(20.0)
        warnings.warn("kind", "once more")
    assert [each.getMessage() for each in caplog.records] == [
        *(f"warning {number}" for number in range(5)),
        "another",
        "again (and 15 more of this kind before)",
        "once more",
    ]


def test_what_nobody_has_to_look_after_is_no_warning(clock, caplog):
    told = RateLimitedLogger(logging.getLogger("test"), clock.monotonic)
    with caplog.at_level(logging.INFO):
        for number in range(5):
            told.inform("kind", f"{number}", most=2)
        clock.advance(10.0)
        told.inform("kind", "again", most=2)
    said = ["0", "1", "again (and 3 more of this kind before)"]
    assert caplog.record_tuples == [("test", logging.INFO, each) for each in said]


def test_what_is_tried_again_is_said_when_it_is_new_and_then_once_a_minute(clock, caplog):
    warnings = RateLimitedLogger(logging.getLogger("test"), clock.monotonic)
    with caplog.at_level(logging.WARNING):
        for second in range(121):
            warnings.repeat("expired", f"expired at {second}")
            if second == 30:
                warnings.repeat("refused", "refused")
            clock.advance(1.0)
    assert caplog.messages == [
        "expired at 0",
        "refused",
        "expired at 60 (and 59 more of this kind before)",
        "expired at 120 (and 59 more of this kind before)",
    ]


def test_kinds_that_a_peer_makes_up_are_few(clock, caplog, monkeypatch):
    monkeypatch.setattr(rate_limit, "_MOST_REPEATED", 3)
    warnings = RateLimitedLogger(logging.getLogger("test"), clock.monotonic)
    with caplog.at_level(logging.WARNING):
        for kind in range(10):
            warnings.repeat(f"kind {kind}", f"{kind}")
    assert caplog.messages == ["0", "1", "2", "3"]
    clock.advance(60.0)
    warnings.repeat("kind 10", "10")
    assert caplog.messages[4:] == ["10"]
