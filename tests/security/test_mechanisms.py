"""Mechanisms made from Kafka's settings: each client gets into each broker of the same settings."""

import json
import sys

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from sparklog.errors import AuthenticationFailed, ConfigError
from sparklog.security.mechanisms import (
    MECHANISMS,
    check_mechanism,
    client_mechanism,
    server_mechanism,
    settings_of,
    token_id_of,
)
from sparklog.security.sasl.jaas import LOGIN_MODULES
from sparklog.security.sasl.scram import ScramSource
from sparklog.security.sasl.scram_credential import SCRAM_MECHANISMS, ScramCredential
from sparklog.testing.clock import ManualClock

CLOCK = ManualClock(1_500_000)


def jaas(mechanism, **options):
    told = " ".join(f'{name}="{value}"' for name, value in options.items())
    return {"sasl.jaas.config": f"{LOGIN_MODULES[mechanism]} required {told};"}


def talk(client, server):
    conversation, broker = client.begin("log1"), server.begin()
    message = conversation.first()
    while message is not None:
        message = conversation.respond(broker.respond(message))
    return broker.authenticated


def scram(mechanism, user):
    return ScramCredential.of_password(SCRAM_MECHANISMS[mechanism], "secret") if user == "alice" else None


SOURCE = ScramSource(scram)


@pytest.mark.parametrize("name", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
def test_name_and_password(name):
    users = {"username": "alice", "user_alice": "secret"}
    server = server_mechanism(name, jaas(name, **users), SOURCE, CLOCK)
    client = client_mechanism(name, jaas(name, username="alice", password="secret"), CLOCK)
    assert (client.name, server.name) == (name, name)
    assert talk(client, server).principal.name == "alice"
    with pytest.raises(AuthenticationFailed):
        talk(client_mechanism(name, jaas(name, username="alice", password="wrong"), CLOCK), server)
    for lacking in ({"username": "alice"}, {"password": "hidden"}, {}):
        with pytest.raises(ConfigError, match="needs") as caught:
            client_mechanism(name, jaas(name, **lacking), CLOCK)
        assert "hidden" not in str(caught.value)
    server.close()


def test_scram_takes_a_delegation_token():
    settings = jaas("SCRAM-SHA-256", username="id", password="h", tokenauth="true")
    client = client_mechanism("SCRAM-SHA-256", settings, CLOCK)
    assert client.token_id == token_id_of("SCRAM-SHA-256", settings) == "id"
    user = jaas("SCRAM-SHA-256", username="id", password="h")
    assert client_mechanism("SCRAM-SHA-256", user, CLOCK).token_id is None
    assert token_id_of("SCRAM-SHA-256", user) is None
    assert token_id_of("PLAIN", jaas("PLAIN", username="id", password="h", tokenauth="true")) is None
    assert client.begin("log1").first().endswith(b",tokenauth=true")


@pytest.mark.parametrize("option", ["unsecuredValidatorPrincipalClaimName", "unsecuredLoginStringClaim_sub"])
def test_unsigned_tokens_if_the_options_say_so(option):
    server = server_mechanism("OAUTHBEARER", jaas("OAUTHBEARER", **{option: "sub"}), SOURCE, CLOCK)
    options = jaas("OAUTHBEARER", unsecuredLoginStringClaim_sub="alice", unsecuredLoginExtension_a="b")
    client = client_mechanism("OAUTHBEARER", options, CLOCK)
    assert talk(client, server).principal.name == "alice"
    assert b"\x01a=b\x01" in client.begin("log1").first()


@pytest.mark.parametrize("settings", [{}, jaas("OAUTHBEARER")])
def test_nobody_takes_unsigned_tokens_by_oversight(settings):
    with pytest.raises(ConfigError, match="jwks"):
        server_mechanism("OAUTHBEARER", settings, SOURCE, CLOCK)


@pytest.fixture
def issuer(tmp_path):
    """Settings of a broker that reads keys from a file, and of a client that reads a token from one."""
    key = rsa.generate_private_key(65537, 2048)
    keys, token = tmp_path / "keys.json", tmp_path / "a token"
    keys.write_text(json.dumps({"keys": [RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)]}))
    token.write_text(jwt.encode({"mail": "alice", "iat": 1000, "exp": 1490, "aud": "b", "iss": "i"}, key, "RS256"))
    broker = {
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.audience": "a, b",
        "sasl.oauthbearer.expected.issuer": "i",
        "sasl.oauthbearer.sub.claim.name": "mail",
        "sasl.server.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler"
        ),
    }
    client = jaas("OAUTHBEARER", extension_a="b") | {
        "sasl.oauthbearer.token.endpoint.url": token.as_uri(),
        "sasl.login.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
        ),
    }
    return broker, client


def test_signed_tokens_by_a_file_of_keys(issuer):
    told = []
    broker, client = issuer
    server = server_mechanism("OAUTHBEARER", broker, SOURCE, CLOCK, told.append)
    late = server_mechanism(
        "OAUTHBEARER", broker | {"sasl.oauthbearer.clock.skew.seconds": "10"}, SOURCE, CLOCK, told.append
    )
    try:
        found = talk(client_mechanism("OAUTHBEARER", client, CLOCK), server)
        assert (found.principal.name, found.expires_ms) == ("alice", 1_490_000)
        told_by_file = client_mechanism("OAUTHBEARER", client, CLOCK).begin("log1").first().decode()
        static = jaas("OAUTHBEARER", token=told_by_file.split("\x01")[1].removeprefix("auth=Bearer "))
        assert talk(client_mechanism("OAUTHBEARER", static, CLOCK), server) == found
        assert told == []
        with pytest.raises(AuthenticationFailed):
            talk(client_mechanism("OAUTHBEARER", client, CLOCK), late)
        assert told == ["the token has expired"]
    finally:
        server.close()
        late.close()


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"sasl.oauthbearer.jwks.endpoint.url": "file:///not/there"}, "No such file"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "not/there"}, "must be an http or https URL"),
        ({"sasl.oauthbearer.clock.skew.seconds": "soon"}, "clock.skew.seconds must be a whole number"),
        ({"sasl.server.callback.handler.class": "a.B"}, "no Java"),
    ],
)
def test_settings_of_a_broker_that_make_no_sense(issuer, settings, complaint):
    with pytest.raises(ConfigError, match=complaint):
        server_mechanism("OAUTHBEARER", issuer[0] | settings, SOURCE, CLOCK)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (jaas("OAUTHBEARER"), "token.endpoint.url"),
        ({}, "sasl.jaas.config must be given"),
        (jaas("PLAIN"), "must have"),
        (jaas("OAUTHBEARER") | {"sasl.login.callback.handler.class": "a.B"}, "no Java"),
        (jaas("OAUTHBEARER", clientId="i") | {"sasl.oauthbearer.token.endpoint.url": "https://i"}, "clientSecret"),
        (jaas("OAUTHBEARER") | {"sasl.oauthbearer.token.endpoint.url": "i"}, "must be an http"),
        (
            jaas("OAUTHBEARER", **{"ssl.truststore.location": "/not/there"})
            | {"sasl.oauthbearer.token.endpoint.url": "https://i"},
            "PEM",
        ),
        (
            jaas("OAUTHBEARER", **{"ssl.truststore.location": "/not/there", "ssl.truststore.type": "PEM"})
            | {"sasl.oauthbearer.token.endpoint.url": "https://i"},
            "names no file",
        ),
    ],
)
def test_settings_of_a_client_that_make_no_sense(settings, complaint):
    with pytest.raises(ConfigError, match=complaint):
        client_mechanism("OAUTHBEARER", settings, CLOCK)


def test_a_client_of_an_endpoint_asks_for_nothing_before_it_begins():
    options = jaas("OAUTHBEARER", clientId="i", clientSecret="hidden")
    client = client_mechanism("OAUTHBEARER", options | {"sasl.oauthbearer.token.endpoint.url": "https://i"}, CLOCK)
    assert "hidden" not in repr(client)


def test_mechanisms_that_there_are_not_are_named():
    for name in MECHANISMS:
        check_mechanism(name)
    for make in (lambda: client_mechanism("NONE", {}, CLOCK), lambda: server_mechanism("NONE", {}, SOURCE, CLOCK)):
        with pytest.raises(ConfigError, match="there is no SASL mechanism 'NONE'; there are SCRAM-SHA-256"):
            make()


def test_kerberos_without_its_package_says_what_to_type(monkeypatch):
    monkeypatch.setitem(sys.modules, "gssapi", None)
    keytab = jaas("GSSAPI", useKeyTab="true", keyTab="hidden", principal="kafka/log1@R")
    service = {"sasl.kerberos.service.name": "kafka"}
    for make in (
        lambda: client_mechanism("GSSAPI", keytab | service, CLOCK),
        lambda: server_mechanism("GSSAPI", keytab, SOURCE, CLOCK),
    ):
        with pytest.raises(ConfigError, match=r"pip install gssapi.*libkrb5-dev") as caught:
            make()
        assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "settings", "said"),
    [
        ({}, {}, "GSSAPI needs sasl.kerberos.service.name"),
        ({"serviceName": "logs"}, {"sasl.kerberos.service.name": "kafka"}, "are not the same"),
    ],
)
def test_a_client_of_kerberos_must_know_the_service(options, settings, said):
    cache = jaas("GSSAPI", useTicketCache="true", **options)
    with pytest.raises(ConfigError, match=said):
        client_mechanism("GSSAPI", cache | settings, CLOCK)


def test_kerberos_needs_a_login_module():
    for make in (lambda: client_mechanism("GSSAPI", {}, CLOCK), lambda: server_mechanism("GSSAPI", {}, SOURCE, CLOCK)):
        with pytest.raises(ConfigError, match=r"sasl\.jaas\.config must be given for mechanism GSSAPI"):
            make()


def test_what_a_listener_says_of_a_mechanism_counts_first():
    settings = {"sasl.jaas.config": "1", "x": "2", "scram-sha-256.sasl.jaas.config": "3"}
    found = settings_of(settings, "SCRAM-SHA-256")
    assert (found["sasl.jaas.config"], found["x"]) == ("3", "2")
    assert settings_of(settings, "PLAIN")["sasl.jaas.config"] == "1"
