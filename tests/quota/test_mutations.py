import pytest

from sparklog.quota.entity import Entity
from sparklog.quota.mutations import MutationQuota
from sparklog.quota.rate import Windows


@pytest.fixture
def quota():
    quota = MutationQuota(Windows(11, 1000))
    quota.limits.set(Entity("u"), 1.0)
    return quota


def begin(quota, now=0, user="u", *, is_strict=True):
    return quota.begin(user, "c", now, is_strict=is_strict)


def test_a_strict_request_may_overdraw_once_and_does_not_wait(quota):
    request = begin(quota)
    assert request.take(20, 0)
    assert request.throttle_ms(0) == 0


def test_a_strict_request_is_refused_while_it_is_overdrawn(quota):
    begin(quota).take(20, 0)
    request = begin(quota)
    assert not request.take(1, 0)
    assert request.throttle_ms(0) == 9_000
    assert request.throttle_ms(4_000) == 5_000
    assert request.throttle_ms(10_000) == 0
    assert not request.take(1, 8_999)
    assert request.take(1, 9_000)


def test_what_is_refused_does_not_count(quota):
    begin(quota).take(12, 0)
    for _ in range(100):
        assert not begin(quota).take(1000, 0)
    assert begin(quota, 1_000).take(1, 1_000)


def test_a_permissive_request_is_made_and_waits(quota):
    request = begin(quota, is_strict=False)
    assert request.take(11, 0)
    assert request.throttle_ms(0) == 0
    assert request.take(9, 0)
    assert request.throttle_ms(0) == 9_000
    assert request.take(1, 0)
    assert request.throttle_ms(0) == 10_000


def test_who_has_no_bound_has_no_bucket(quota):
    assert begin(quota, user="v") is None
    assert quota.is_set
    quota.limits.set(Entity("u"), None)
    assert not quota.is_set


def test_where_nothing_is_allowed_one_request_is_made_and_the_next_refused(quota):
    quota.limits.set(Entity("u"), 0.0)
    assert begin(quota).take(1, 0)
    request = begin(quota)
    assert not request.take(1, 0)
    assert request.throttle_ms(0) == 11_000
