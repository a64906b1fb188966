import pytest

from sparklog.client.troubles import INTERVAL, PATIENCE, Troubles
from sparklog.testing.clock import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def troubles(clock):
    return Troubles(clock)


def test_what_passes_soon_is_not_told(troubles, clock, caplog):
    for _ in range(3):
        troubles.met("leaders", "no leader")
        clock.sleep(PATIENCE * 0.9)
        troubles.met("leaders", "no leader")
        troubles.over("leaders")
    assert caplog.messages == []


def test_what_lasts_is_told_once_an_interval(troubles, clock, caplog):
    for _ in range(int(2 * INTERVAL)):
        troubles.met("leaders", "no leader")
        clock.sleep(1.0)
    assert len(caplog.messages) == 2
    assert "no leader" in caplog.text


def test_what_took_long_to_fail_is_told_at_once_and_each_by_itself(troubles, clock, caplog):
    before = clock.monotonic()
    clock.sleep(PATIENCE)
    for _ in range(2):
        troubles.met("brokers", "refused", since=before)
        troubles.met("group", "no coordinator", since=before)
        troubles.met("leaders", "no leader")
    assert caplog.messages == ["still trying: refused", "still trying: no coordinator"]


def test_what_is_to_be_told_at_once_is_told_once_an_interval_too(troubles, clock, caplog):
    for _ in range(int(INTERVAL)):
        troubles.met("topic t", "there is no t", at_once=True)
        clock.sleep(1.0)
    assert caplog.messages == ["still trying: there is no t"]
