"""Limits without a socket."""

import pytest

from sparklog.config.broker import parse_overrides
from sparklog.errors import ConfigError
from sparklog.net.limits import UNLIMITED, AcceptRate, Limits, by_address


def test_overrides_are_read():
    assert parse_overrides("") == {}
    assert parse_overrides(" 10.0.0.1:5 , host : 0,[::1]:7") == {"10.0.0.1": 5, "host": 0, "[::1]": 7}


@pytest.mark.parametrize("text", ["host", "host:", ":5", "host:many", "host:-1", "a:1,,b"])
def test_what_is_no_override_is_refused(text):
    with pytest.raises(ConfigError, match="is not HOST:NUMBER"):
        parse_overrides(text)


def test_overrides_go_by_address():
    assert by_address({"[::1]": 7, "127.0.0.2": 1, "0::2": 3}) == {"::1": 7, "127.0.0.2": 1, "::2": 3}
    assert by_address({"localhost": 4})["127.0.0.1"] == 4


def test_a_host_that_nobody_knows_is_refused():
    with pytest.raises(ConfigError, match=r"max.connections.per.ip.overrides names an unknown host 'no such host'"):
        by_address({"no such host": 1})


def test_a_host_has_its_own_number_or_that_of_all():
    limits = Limits(1, 1, max_per_host=3, per_host_overrides={"a": 9})
    assert (limits.of_host("a"), limits.of_host("b")) == (9, 3)


def test_a_rate_lets_so_many_in_at_once_and_then_one_by_one():
    rate = AcceptRate(0.0)
    assert [rate.delay(4, 0.0) for _ in range(4)] == [0.0] * 4
    assert rate.delay(4, 0.0) == pytest.approx(0.25)
    assert rate.delay(4, 0.25) == 0.0
    assert rate.delay(4, 0.25) == pytest.approx(0.25)
    rate.give_back()
    assert rate.delay(4, 0.25) == 0.0
    assert [rate.delay(4, 100.0) for _ in range(5)] == [0.0] * 4 + [pytest.approx(0.25)]


def test_no_rate_and_none_at_all():
    rate = AcceptRate(0.0)
    assert all(rate.delay(UNLIMITED, 0.0) == 0.0 for _ in range(1000))
    assert rate.delay(0, 5.0) == 1.0
