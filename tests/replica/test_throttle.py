"""Bytes of throttled replicas a second, on a clock that the test sets."""

import pytest

from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.errors import ConfigError
from sparklog.replica.throttle import ReplicationThrottle, SimpleRate, names_replica
from sparklog.testing.clock import ManualClock


def test_without_a_limit_nothing_is_held_back():
    throttle = ReplicationThrottle(ManualClock())
    throttle.record(1 << 40)
    assert not throttle.is_exceeded()
    assert not throttle.is_limited


def test_what_goes_beyond_the_limit_is_waited_for():
    """Kafka's ``ReplicationQuotaManagerTest.shouldExceedQuotaThenReturnBackBelowBoundAsTimePasses`` does the same."""
    clock = ManualClock()
    throttle = ReplicationThrottle(clock, samples=10, window_ms=1000)
    throttle.limit = 100
    throttle.record(1)
    assert not throttle.is_exceeded()
    throttle.record(110)
    assert throttle.is_exceeded(), "the first window counts as a whole one"
    clock.advance(0.5)
    throttle.record(10)
    assert throttle.is_exceeded()
    clock.advance(1.0)
    assert not throttle.is_exceeded(), "121 in 1.5 s"
    throttle.record(100)
    assert throttle.is_exceeded()
    clock.advance(1.0)
    assert not throttle.is_exceeded()


def test_exactly_the_limit_is_allowed():
    throttle = ReplicationThrottle(ManualClock())
    throttle.limit = 100
    throttle.record(100)
    assert not throttle.is_exceeded()
    throttle.record(1)
    assert throttle.is_exceeded()


def test_what_is_older_than_all_windows_counts_no_more():
    rate = SimpleRate(samples=3, window_ms=1000)
    rate.record(300, 0)
    assert rate.measure(500) == 300
    assert rate.measure(2000) == 150
    assert rate.measure(3000) == 0
    for second in range(10):
        rate.record(7, 1000 * second)
    assert rate.measure(9999) == pytest.approx(7, rel=0.4)


@pytest.mark.parametrize(
    ("text", "named"),
    [("*", True), ("0:1", True), ("3:2,0:1", True), ("0:2", False), ("1:1", False), ("", False), ("10:1,0:11", False)],
)
def test_a_list_names_replicas(text, named):
    config = parse(TopicConfig, {"leader.replication.throttled.replicas": text})
    assert names_replica(config.leader_replication_throttled_replicas, 0, 1) is named


@pytest.mark.parametrize("text", ["0", "0:", ":1", "*:1", "0:*", "*,0:1", "a:b", "0:1:2", "-1:1"])
def test_what_is_no_list_of_replicas_is_refused(text):
    for name in ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas"):
        with pytest.raises(ConfigError, match="PARTITION:BROKER"):
            parse(TopicConfig, {name: text})
