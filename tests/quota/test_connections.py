import pytest

from sparklog.quota.connections import ConnectionRates
from sparklog.quota.entity import DEFAULT
from sparklog.quota.rate import Windows


@pytest.fixture
def rates():
    rates = ConnectionRates(Windows(11, 1000))
    rates.set("10.0.0.1", 2.0)
    return rates


def test_so_many_come_in_as_the_windows_have_room_for(rates):
    assert [rates.record("10.0.0.1", 0) for _ in range(20)] == [0] * 20
    assert rates.record("10.0.0.1", 0) == 500


def test_what_is_too_many_does_not_count(rates):
    for _ in range(20):
        rates.record("10.0.0.1", 0)
    for _ in range(100):
        assert rates.record("10.0.0.1", 0) == 500
    assert rates.record("10.0.0.1", 500) == 0


def test_none_is_held_longer_than_a_window(rates):
    rates.set("10.0.0.1", 0.01)
    assert rates.record("10.0.0.1", 0) == 1000


def test_each_address_has_the_default_by_itself(rates):
    assert rates.record("10.0.0.2", 0) == 0
    rates.set(DEFAULT, 0.1)
    assert rates.record("10.0.0.2", 0) == 0
    assert rates.record("10.0.0.3", 0) == 0
    assert rates.record("10.0.0.3", 0) == 1000
    assert rates.record("10.0.0.1", 0) == 0


def test_it_is_set_while_an_address_has_a_bound(rates):
    assert rates.is_set
    rates.set("10.0.0.1", None)
    rates.set("10.0.0.9", None)
    assert not rates.is_set
    assert rates.record("10.0.0.1", 0) == 0


def test_where_none_is_allowed_none_comes_in(rates):
    rates.set("10.0.0.1", 0.0)
    assert rates.record("10.0.0.1", 0) == 1000
