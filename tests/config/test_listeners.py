"""Listeners by Kafka's rules: names, protocols, who is told what."""

import pytest

from sparklog.config.broker import parse_broker_config
from sparklog.config.security import SecuritySettings
from sparklog.config.security_protocol import SecurityProtocol

THREE = {
    "listeners": "CLIENTS://0.0.0.0:9093, inside://10.0.0.1:9092,SSL://[::1]:0",
    "listener.security.protocol.map": "clients:SASL_SSL,INSIDE:PLAINTEXT,SSL:SSL",
    "advertised.listeners": "CLIENTS://broker.example:19093,INSIDE://10.0.0.1:9092",
    "inter.broker.listener.name": "inside",
}


def test_each_listener_has_its_protocol_and_its_address():
    ends = parse_broker_config(THREE).ends
    assert [(each.name, each.protocol, *each.endpoint) for each in ends.bound] == [
        ("CLIENTS", SecurityProtocol.SASL_SSL, "0.0.0.0", 9093),
        ("INSIDE", SecurityProtocol.PLAINTEXT, "10.0.0.1", 9092),
        ("SSL", SecurityProtocol.SSL, "::1", 0),
    ]
    assert [str(each) for each in ends.advertised] == ["CLIENTS://broker.example:19093", "INSIDE://10.0.0.1:9092"]
    assert ends.between_brokers == "INSIDE"


def test_brokers_use_the_listener_of_the_protocol_they_are_told():
    ends = parse_broker_config({"listeners": "SSL://a:1,PLAINTEXT://a:2", "security.inter.broker.protocol": "SSL"}).ends
    assert ends.between_brokers == "SSL"


@pytest.mark.parametrize(("protocol", "tls", "sasl"), [("SSL", True, False), ("SASL_PLAINTEXT", False, True)])
def test_a_protocol_says_what_it_asks_for(protocol, tls, sasl):
    assert (SecurityProtocol[protocol].has_tls, SecurityProtocol[protocol].has_sasl) == (tls, sasl)


def test_what_is_said_of_a_listener_stands_before_what_is_said_of_all():
    settings, others = SecuritySettings.divide(
        {
            "ssl.client.auth": "none",
            "listener.name.clients.ssl.client.auth": "required",
            "listener.name.clients.scram-sha-256.sasl.jaas.config": "secret",
            "listener.name.inside.ssl.client.auth": "requested",
            "broker.id": "1",
        }
    )
    assert others == {"broker.id": "1"}
    assert settings.of_listener("CLIENTS") == {
        "ssl.client.auth": "required",
        "scram-sha-256.sasl.jaas.config": "secret",
    }
    assert settings.of_listener("OTHER") == {"ssl.client.auth": "none"}
    assert "secret" not in repr(settings)
