import tracemalloc
from math import inf

import pytest

from sparklog.quota.client_quota import ClientQuota
from sparklog.quota.entity import DEFAULT, Entity
from sparklog.quota.rate import Windows

WINDOWS = Windows(11, 1000)


@pytest.fixture
def quota():
    quota = ClientQuota(WINDOWS)
    quota.limits.set(Entity(client_id="c"), 1000.0)
    return quota


def test_who_is_within_the_bound_does_not_wait(quota):
    assert quota.record("u", "c", 10_000, 0) == 0
    assert quota.record("u", "c", 1, 0) == 1


def test_one_burst_counts_until_it_is_older_than_all_windows(quota):
    assert quota.record("u", "c", 20_000, 0) == 10_000
    assert quota.record("u", "c", 0, 10_999) > 0
    assert quota.record("u", "c", 0, 11_000) == 0


def test_a_steady_client_gets_what_it_may_have(quota):
    now = sent = 0
    while now < 60_000:
        sent += 500
        now += max(quota.record("u", "c", 500, now), 10)
    assert sent / 60 == pytest.approx(1000, rel=0.2)  # with the burst of ten windows at the start


def test_nobody_without_a_bound_waits(quota):
    assert quota.record("u", "d", 1 << 40, 0) == 0
    assert quota.most_at_once("u", "d", 0) == inf


def test_clients_of_one_id_share_its_bound(quota):
    quota.record("u", "c", 10_000, 0)
    assert quota.record("v", "c", 10_000, 0) == 10_000


def test_a_change_is_in_force_at_once_for_what_was_used_before(quota):
    assert quota.record("u", "c", 10_000, 0) == 0
    quota.limits.set(Entity(client_id="c"), 500.0)
    assert quota.record("u", "c", 0, 0) == 10_000
    quota.limits.set(Entity(client_id="c"), 2000.0)
    assert quota.record("u", "c", 0, 0) == 0
    quota.limits.set(Entity(client_id="c"), None)
    quota.limits.set(Entity(client_id=DEFAULT), 100.0)
    assert quota.record("u", "c", 0, 0) == 90_000


def test_what_was_not_used_after_all_is_taken_back(quota):
    for _ in range(10):
        assert quota.record("u", "c", 20_000, 0) == 10_000
        quota.take_back("u", "c", 20_000, 0)
    assert quota.record("u", "c", 10_000, 0) == 0


def test_a_wait_may_be_bounded():
    quota = ClientQuota(WINDOWS, longest_ms=1000)
    quota.limits.set(Entity("u"), 1.0)
    assert quota.record("u", "c", 1000, 0) == 1000


def test_with_nothing_allowed_every_use_waits_until_it_is_forgotten():
    quota = ClientQuota(WINDOWS)
    quota.limits.set(Entity("u"), 0.0)
    assert quota.record("u", "c", 1, 0) == WINDOWS.all_ms
    assert quota.record("u", "c", 0, WINDOWS.all_ms) == 0


def test_what_can_be_used_at_once_is_that_of_all_full_windows(quota):
    assert quota.most_at_once("u", "c", 0) == 10_000
    assert quota.record("u", "c", 10_000, 0) == 0


def test_it_is_set_while_anybody_has_a_bound(quota):
    assert quota.is_set
    quota.limits.set(Entity(client_id="c"), None)
    assert not quota.is_set


def test_what_is_too_much_is_not_taken(quota):
    assert quota.take("u", "c", 9_000, 0) == 0
    for _ in range(3):
        assert quota.take("u", "c", 2_000, 0) == 1_000
    assert quota.take("u", "c", 1_000, 0) == 0


def test_who_has_used_nothing_may_take_any_amount(quota):
    assert quota.take("u", "c", 1 << 30, 0) == 0
    assert quota.take("u", "c", 1, 0) > 0
    assert quota.take("u", "c", 1 << 30, 11_000) == 0


def test_where_nothing_is_allowed_nothing_is_taken(quota):
    quota.limits.set(Entity(client_id="c"), 0.0)
    assert quota.take("u", "c", 1, 0) == WINDOWS.all_ms


def test_a_client_that_gets_a_bound_of_its_own_leaves_the_one_it_shared(quota):
    quota.limits.set(Entity("u"), 1000.0)
    for client_id in ("a", "b"):
        quota.record("u", client_id, 4000, 0)
    quota.limits.set(Entity("u", "a"), 100.0)
    assert quota.record("u", "b", 0, 0) == 0
    assert quota.record("u", "a", 1000, 0) == 0
    assert quota.record("u", "a", 1, 0) > 0
    assert quota.record("u", "b", 2000, 0) == 0


def test_names_of_any_length_are_told_apart_and_none_that_is_long_is_kept(quota):
    """Whoever may send a request chooses its client id, which may have 32 KiB."""
    quota.limits.set(Entity(client_id=DEFAULT), 1000.0)
    quota.record("u", "x" * 30_000 + "a", 20_000, 0)
    assert quota.record("u", "x" * 30_000 + "a", 0, 0) == 10_000
    assert quota.record("u", "x" * 30_000 + "b", 0, 0) == 0
    tracemalloc.start()
    try:
        for number in range(200):
            quota.record("u", f"{number:030000}", 1, 0)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 200 * 10_000
