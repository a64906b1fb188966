import pytest

from sparklog.client.cluster.obstacles import INTERVAL, PATIENCE, Obstacles
from sparklog.testing.clock import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def obstacles(clock):
    return Obstacles(clock)


def test_what_passes_soon_is_not_told(obstacles, clock, caplog):
    for _ in range(3):
        obstacles.met("leaders", "no leader")
        clock.sleep(PATIENCE * 0.9)
        obstacles.met("leaders", "no leader")
        obstacles.over("leaders")
    assert caplog.messages == []


def test_what_lasts_is_told_once_an_interval(obstacles, clock, caplog):
    for _ in range(int(2 * INTERVAL)):
        obstacles.met("leaders", "no leader")
        clock.sleep(1.0)
    assert len(caplog.messages) == 2
    assert "no leader" in caplog.text


def test_what_took_long_to_fail_is_told_at_once_and_each_by_itself(obstacles, clock, caplog):
    before = clock.monotonic()
    clock.sleep(PATIENCE)
    for _ in range(2):
        obstacles.met("brokers", "refused", since=before)
        obstacles.met("group", "no coordinator", since=before)
        obstacles.met("leaders", "no leader")
    assert caplog.messages == ["still trying: refused", "still trying: no coordinator"]


def test_what_is_to_be_told_at_once_is_told_once_an_interval_too(obstacles, clock, caplog):
    for _ in range(int(INTERVAL)):
        obstacles.met("topic t", "there is no t", at_once=True)
        clock.sleep(1.0)
    assert caplog.messages == ["still trying: there is no t"]
