"""Listeners by Kafka's rules: names, protocols, who is told what."""

import re

import pytest

from sparklog.config.broker import parse_broker_config
from sparklog.config.definition import definitions
from sparklog.config.security import OF_TLS, SecuritySettings
from sparklog.config.security_protocol import SecurityProtocol
from sparklog.errors import ConfigError
from sparklog.security.mechanisms import MECHANISMS, settings_of
from sparklog.security.tls.settings import TlsSettings

OF_ONE_MECHANISM = (
    "connections.max.reauth.ms",
    "sasl.jaas.config",
    "sasl.kerberos.principal.to.local.rules",
    "sasl.login.class",
    "sasl.login.refresh.window.factor",
    "sasl.oauthbearer.expected.audience",
    "sasl.server.callback.handler.class",
)
KAFKAS = (
    *OF_ONE_MECHANISM,
    "connection.failed.authentication.delay.ms",
    "sasl.enabled.mechanisms",
    "sasl.mechanism.controller.protocol",
    "sasl.mechanism.inter.broker.protocol",
    "sasl.server.max.receive.size",
    "ssl.allow.dn.changes",
    "ssl.engine.factory.class",
    "ssl.keymanager.algorithm",
    "ssl.provider",
    "ssl.secure.random.implementation",
)
"""Some of what Kafka 3.9's broker has of TLS and SASL; many of them ask for nothing here."""
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


FOUR = {"listeners": "PLAINTEXT://a:1,CLIENTS://a:2,INSIDE.A://a:3,SSL://a:4"} | {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_SSL,INSIDE.A:SSL,SSL:SSL"
}


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("ssl.clinet.auth", "did you mean ssl.client.auth?"),
        ("sasl.enabled.mechansims", "did you mean sasl.enabled.mechanisms?"),
        ("sasl.server.max.recieve.size", "did you mean sasl.server.max.receive.size?"),
        ("sasl.username", "unknown setting 'sasl.username'"),
        ("ssl.ca.location", "librdkafka's name; set ssl.truststore.location"),
        ("listener.name.ssl.ssl.client.aut", "did you mean listener.name.ssl.ssl.client.auth?"),
        ("listener.name.ssl.client.auth", "did you mean listener.name.ssl.ssl.client.auth?"),
        ("listener.name.inside.a.ssl.client", "did you mean listener.name.inside.a.ssl.client.auth?"),
        ("listener.name.clients.conections.max.reauth.ms", "mean listener.name.clients.connections.max.reauth.ms?"),
        ("listener.name.clients.auto.create.topics.enable", "unknown setting 'listener.name.clients.auto."),
        ("listener.name.clients.scram-sha512.sasl.jaas.config", "name.clients.scram-sha-512.sasl.jaas.config?"),
        ("listener.name.clients.PLAIN.sasl.jaas.config", "mean listener.name.clients.plain.sasl.jaas.config?"),
        ("listener.name.clients.plain.sasl.enabled.mechanisms", "mean listener.name.clients.sasl.enabled.mechanisms?"),
        ("listener.name.clients.oauthbearer.ssl.client.auth", "mean listener.name.clients.ssl.client.auth?"),
        ("listener.name.CLIENTS.ssl.client.auth", "mean listener.name.clients.ssl.client.auth?"),
        ("listener.name.sssl.ssl.client.auth", "in small letters there are plaintext, clients, inside.a, ssl: unknown"),
        ("listener.name.sasl_ssl.ssl.provider", "no listener has this name; in small letters there are plaintext,"),
        ("listener.name.", "no listener has this name"),
    ],
)
def test_a_setting_that_nobody_reads_is_refused(name, complaint):
    with pytest.raises(ConfigError, match=re.escape(complaint)) as caught:
        parse_broker_config(FOUR | {name: "hidden"})
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("prefix", ["", "listener.name.clients.", "listener.name.inside.a."])
@pytest.mark.parametrize("name", KAFKAS)
def test_kafkas_names_are_known_for_all_listeners_and_for_one(prefix, name, caplog):
    settings = parse_broker_config(FOUR | {prefix + name: "text"}).security
    assert settings.of_listener("INSIDE.A").get(name) == (None if "clients" in prefix else "text")
    assert caplog.text == ""


@pytest.mark.parametrize("mechanism", [each.lower() for each in MECHANISMS])
@pytest.mark.parametrize("name", OF_ONE_MECHANISM)
def test_kafkas_names_are_known_for_a_mechanism_of_a_listener(mechanism, name):
    settings = parse_broker_config(FOUR | {f"listener.name.clients.{mechanism}.{name}": "text"}).security
    assert settings_of(settings.of_listener("CLIENTS"), mechanism)[name] == "text"


def test_what_is_read_of_tls_is_known():
    assert definitions(TlsSettings).keys() <= OF_TLS


def test_what_kafka_has_for_one_listener_and_is_for_all_here_is_told(caplog):
    of_one = {"listener.name.ssl.max.connections": "1", "listener.name.clients.max.connection.creation.rate": "1"}
    config = parse_broker_config(FOUR | of_one | {"listener.name.ssl.num.network.threads": "1"})
    assert (config.max_connections, config.max_connection_creation_rate) == (2**31 - 1, 2**31 - 1)
    (record,) = caplog.records
    assert record.message == (
        "these settings are for all listeners here, or mean nothing, and are left out:"
        " listener.name.clients.max.connection.creation.rate, listener.name.ssl.max.connections,"
        " listener.name.ssl.num.network.threads"
    )
