import pytest

from sparklog.quota.entity import Entity
from sparklog.quota.keys import CLIENT_KEYS
from sparklog.quota.quotas import Quotas, QuotaWindows
from sparklog.quota.rate import Windows


@pytest.fixture
def quotas():
    return Quotas(QuotaWindows(Windows(11, 1000), Windows(3, 2000)))


def test_each_type_is_held_by_itself(quotas):
    quotas.set(Entity("u"), {"producer_byte_rate": 100, "request_percentage": 10})
    assert quotas.produce.record("u", "c", 2000, 0) == 10_000
    assert quotas.fetch.record("u", "c", 2000, 0) == 0
    assert quotas.request.record("u", "c", 200, 0) == 1000  # no longer than a window
    assert quotas.mutations.begin("u", "c", 0, is_strict=True) is None


def test_what_an_entity_has_no_more_is_gone(quotas):
    assert not quotas.is_set
    quotas.set(Entity("u"), {"producer_byte_rate": 100})
    assert quotas.is_set
    quotas.set(Entity("u"), {"controller_mutation_rate": 1})
    assert not quotas.produce.is_set
    assert quotas.mutations.is_set
    quotas.set(Entity("u"), {})
    assert not quotas.is_set


@pytest.mark.parametrize("name", CLIENT_KEYS)
def test_each_that_may_be_set_is_held(quotas, name):
    quotas.set(Entity("u"), {name: 1})
    assert quotas.is_set


def test_changes_have_windows_of_their_own(quotas):
    quotas.set(Entity("u"), {"controller_mutation_rate": 1})
    assert quotas.mutations.begin("u", "c", 0, is_strict=False).take(7, 0)
    late = quotas.mutations.begin("u", "c", 0, is_strict=True)
    assert not late.take(1, 0)
    assert late.throttle_ms(0) == 1000
