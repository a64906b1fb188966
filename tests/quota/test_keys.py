from math import inf, nan

import pytest

from sparklog.errors import ConfigError
from sparklog.quota.entity import DEFAULT, Entity, IpEntity
from sparklog.quota.keys import CLIENT_KEYS, IP_KEYS, keys_of, quotas_in


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("producer_byte_rate", 1000.0, "1000"),
        ("consumer_byte_rate", 0.0, "0"),
        ("producer_byte_rate", 999.9999999, "1000"),
        ("request_percentage", 12.5, "12.5"),
        ("controller_mutation_rate", 10, "10.0"),
    ],
)
def test_a_value_is_stored_as_kafka_stores_it(name, value, text):
    assert CLIENT_KEYS[name].text(value) == text
    assert CLIENT_KEYS[name].value(text) == pytest.approx(value)


@pytest.mark.parametrize("value", [-1.0, nan, inf, -inf])
@pytest.mark.parametrize("name", list(CLIENT_KEYS))
def test_what_is_no_amount_is_refused(name, value):
    with pytest.raises(ConfigError, match="no quota"):
        CLIENT_KEYS[name].text(value)


@pytest.mark.parametrize("value", [10.5, 1e30])
def test_what_is_no_whole_number_is_refused_where_one_is_needed(value):
    with pytest.raises(ConfigError, match="whole number"):
        CLIENT_KEYS["producer_byte_rate"].text(value)


def test_connections_are_counted_in_32_bits():
    assert IP_KEYS["connection_creation_rate"].text(2**31 - 1) == "2147483647"
    with pytest.raises(ConfigError, match="2147483647 at most"):
        IP_KEYS["connection_creation_rate"].text(2**31)


def test_what_is_stored_is_read_and_the_rest_left_out():
    stored = {"producer_byte_rate": "5", "request_percentage": "1.0E7", "SCRAM-SHA-256": "salt=..."}
    assert quotas_in(Entity("u"), stored) == {"producer_byte_rate": 5, "request_percentage": 1e7}
    assert quotas_in(IpEntity(DEFAULT), {"connection_creation_rate": "3", "producer_byte_rate": "5"}) == {
        "connection_creation_rate": 3
    }


def test_a_stored_value_that_is_no_number_is_named():
    with pytest.raises(ConfigError, match="producer_byte_rate: 'much' is no number"):
        quotas_in(Entity("u"), {"producer_byte_rate": "much"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("request_percentage", "nan"),
        ("controller_mutation_rate", "-NaN"),
        ("producer_byte_rate", "1" + "0" * 400),
        ("consumer_byte_rate", "9" * 5000),
        ("consumer_byte_rate", str(1 << 63)),
    ],
)
def test_a_stored_value_with_which_nothing_can_be_counted_is_refused(name, text):
    with pytest.raises(ConfigError, match=name) as caught:
        quotas_in(Entity("u"), {name: text})
    assert len(str(caught.value)) < 200


def test_addresses_have_other_quotas_than_clients():
    assert keys_of(Entity("u")) is CLIENT_KEYS
    assert keys_of(IpEntity("10.0.0.1")) is IP_KEYS
