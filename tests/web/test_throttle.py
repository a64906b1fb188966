import pytest

from sparklog.testing.clock import ManualClock
from sparklog.web.throttle import LoginThrottle


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def throttle(clock):
    return LoginThrottle(clock)


def fail(throttle, times, user="alice", address="10.0.0.1"):
    for _ in range(times):
        throttle.failed(user, address)


def test_two_wrong_passwords_are_free_and_each_further_one_doubles_the_wait(throttle):
    waits = []
    for _ in range(5):
        fail(throttle, 1)
        waits.append(throttle.wait_s("alice", "10.0.0.1"))
    assert waits == [0, 0, 1, 2, 4]


def test_nobody_waits_for_more_than_five_minutes(throttle):
    fail(throttle, 2000)
    assert throttle.wait_s("alice", "10.0.0.1") == 300


def test_others_are_not_kept_waiting(throttle):
    fail(throttle, 10)
    assert throttle.wait_s("bob", "10.0.0.1") == 0
    assert throttle.wait_s("alice", "10.0.0.2") == 0


def test_an_address_that_tries_many_users_waits_with_all(throttle):
    for number in range(20):
        throttle.failed(f"user-{number}", "10.0.0.1")
    assert throttle.wait_s("bob", "10.0.0.1") == 1


def test_the_addresses_of_one_v6_network_are_one(throttle):
    fail(throttle, 3, address="2001:db8::1")
    assert throttle.wait_s("alice", "2001:db8::2") == 1
    assert throttle.wait_s("alice", "2001:db8:0:1::2") == 0


def test_a_right_password_forgets_wrong_ones(throttle):
    fail(throttle, 2)
    throttle.succeeded("alice", "10.0.0.1")
    fail(throttle, 2)
    assert throttle.wait_s("alice", "10.0.0.1") == 0


def test_time_forgets_them_too(throttle, clock):
    fail(throttle, 4)
    clock.advance(1000)
    assert throttle.wait_s("alice", "10.0.0.1") == 0
    fail(throttle, 1)
    assert throttle.wait_s("alice", "10.0.0.1") == 0


def test_what_is_remembered_is_bounded(throttle):
    for number in range(12_000):
        throttle.failed(f"user-{number}", f"10.0.{number // 250}.{number % 250}")
    assert len(throttle._failures) == 10_000


def test_addresses_of_ipv4_are_told_apart_on_a_port_for_all_addresses(throttle):
    fail(throttle, 3, address="::ffff:10.0.0.1")
    assert throttle.wait_s("alice", "10.0.0.1") == 1
    assert throttle.wait_s("alice", "::ffff:10.0.0.2") == 0
