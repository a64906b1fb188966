"""Kafka's Java clients with each protocol and mechanism, on Kafka 3.9.1 and on our broker: who is let in, and why not.

The words in which a broker refuses may differ, and so may the alert of TLS; the kind of error may not.
"""

import shutil
import time
from pathlib import Path

import pytest
from compat import secured

from sparklog.testing.kafka import run_kafka_tool

pytestmark = [pytest.mark.peer, pytest.mark.slow]
PROGRAM = Path(__file__).parent / "Clients.java"
DONE = ("ok", "50", "1")
IMPATIENT = {
    "enable.idempotence": "false",
    "reconnect.backoff.ms": "1000",
    "reconnect.backoff.max.ms": "1000",
    "max.block.ms": "6000",
    "default.api.timeout.ms": "6000",
    "socket.connection.setup.timeout.ms": "3000",
}
"""Of clients that are not let in: they would try for a minute."""
TOLD_AT_ONCE = {"ssl-to-plain": "SslAuthenticationException"}
"""Where our broker tells what Kafka has its client find out by waiting."""
BY_PASSWORD = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")


def served(broker):
    """By their names, the settings of clients that are let in."""
    stores = broker.stores
    store = {"ssl.truststore.type": "PKCS12", "ssl.truststore.location": stores["ca.p12"]}
    p12 = {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": stores["client.p12"]}
    secret = dict.fromkeys(("ssl.keystore.password", "ssl.key.password"), secured.STORE_PASSWORD)
    trusting = {**store, "ssl.truststore.password": secured.STORE_PASSWORD}
    found = {
        "ssl": broker.client("SSL"),
        "ssl-pkcs12": broker.client("SSL") | trusting,
        "mutual": broker.client("MUTUAL") | stores.own("client.pem"),
        "mutual-pkcs12-1.2": broker.client("MUTUAL") | trusting | p12 | secret | {"ssl.enabled.protocols": "TLSv1.2"},
        "signed": with_token(broker, stores.issuer, "good"),
    }
    for listener in ("SASL_PLAINTEXT", "SASL_SSL"):
        for mechanism in BY_PASSWORD:
            found[f"{listener}-{mechanism}"] = broker.with_password(listener, mechanism)
        found[f"{listener}-unsigned"] = with_claims(broker, listener, "alice")
    return found


def with_claims(broker, listener, subject):
    login = secured.jaas("OAUTHBEARER", unsecuredLoginStringClaim_sub=subject)
    return broker.client(listener) | {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": login}


def with_token(broker, key, name, **claims):
    path = broker.stores.directory / f"{name}.jwt"
    path.write_text(secured.token(key, int(time.time()), **claims))
    return broker.client("SIGNED") | {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": secured.jaas("OAUTHBEARER"),
        "sasl.login.callback.handler.class": secured.LOGIN_HANDLER,
        "sasl.oauthbearer.token.endpoint.url": path.as_uri(),
    }


def refused(broker):
    """By their names, the settings of clients that are not served, or may nothing."""
    stores = broker.stores
    found = {f"wrong-{each}": broker.with_password("SASL_PLAINTEXT", each, password="guess") for each in BY_PASSWORD}
    found |= {f"nobody-{each}": broker.with_password("SASL_SSL", each, "nobody", "x") for each in BY_PASSWORD}
    found |= {f"mallory-{each}": broker.with_password("SASL_SSL", each, "mallory") for each in BY_PASSWORD}
    of_stranger = secured.ec.generate_private_key(secured.ec.SECP256R1())
    found |= {
        "mallory-unsigned": with_claims(broker, "SASL_SSL", "mallory"),
        "mallory-mutual": broker.client("MUTUAL") | stores.own("mallory.pem"),
        "wrong-ca": broker.client("SSL") | stores.trust("other-ca.pem"),
        "wrong-ca-of-sasl": broker.with_password("SASL_SSL", "PLAIN") | stores.trust("other-ca.pem"),
        "wrong-host": broker.client("ELSEWHERE"),
        "no-certificate": broker.client("MUTUAL"),
        "no-certificate-1.2": broker.client("MUTUAL") | {"ssl.enabled.protocols": "TLSv1.2"},
        "certificate-of-a-stranger": broker.client("MUTUAL") | stores.own("stranger.pem"),
        "expired-certificate": broker.client("MUTUAL") | stores.own("expired.pem"),
        "mechanism-that-is-off": broker.with_password("SIGNED", "PLAIN"),
        "token-of-a-stranger": with_token(broker, of_stranger, "strange"),
        "token-for-others": with_token(broker, stores.issuer, "others", aud="elsewhere"),
        "token-of-yesterday": with_token(broker, stores.issuer, "old", exp=int(time.time()) - 86_400),
    }
    return {name: each | IMPATIENT for name, each in found.items()}


def lost(broker):
    """By their names, the settings of clients that speak another protocol than the listener."""
    plain = broker.with_password("SASL_PLAINTEXT", "PLAIN")
    address = {name: {"bootstrap.servers": f"127.0.0.1:{port}"} for name, port in broker.ports.items()}
    found = {
        "plain-to-ssl": broker.client("PLAINTEXT") | address["SSL"],
        "plain-to-sasl": broker.client("PLAINTEXT") | address["SASL_PLAINTEXT"],
        "ssl-to-plain": broker.client("SSL") | address["PLAINTEXT"],
        "sasl-to-plain": plain | address["PLAINTEXT"],
        "sasl-to-sasl-ssl": plain | address["SASL_SSL"],
    }
    return {name: each | IMPATIENT for name, each in found.items()}


@pytest.fixture(scope="module")
def told(secured_kafka, secured_ours, tmp_path_factory):
    """What each client was told, by Kafka and by ours."""
    if shutil.which("javac") is None:
        pytest.skip("a Java without a compiler cannot run a source file")
    found = []
    for broker in (secured_kafka, secured_ours):
        home = tmp_path_factory.mktemp("clients")
        with_settings = served(broker) | refused(broker) | lost(broker)
        files = [secured.write_properties(home / name, each) for name, each in with_settings.items()]
        lines = [line.split("\t") for line in run_kafka_tool(str(PROGRAM), *files).splitlines()]
        found.append({name: tuple(rest) for name, *rest in lines})
    return found


def test_whoever_has_what_the_listener_asks_for_writes_and_reads(told, secured_ours):
    names = list(served(secured_ours))
    for by_broker in told:
        assert {name: by_broker[name] for name in names} == dict.fromkeys(names, DONE)


def test_the_others_are_told_the_same_as_by_kafka(told, secured_ours):
    kafka, ours = told
    names = [*refused(secured_ours), *lost(secured_ours)]
    expected = {name: TOLD_AT_ONCE.get(name, kafka[name][0]) for name in names}
    assert {name: ours[name][0] for name in names} == expected
    assert ours["wrong-SCRAM-SHA-256"][0] == ours["token-for-others"][0] == "SaslAuthenticationException"
    assert ours["wrong-ca"] == kafka["wrong-ca"]
    assert ours["no-certificate"][0] == "SslAuthenticationException"
    assert ours["mallory-mutual"][0] == "TopicAuthorizationException"


def test_no_error_has_a_password(told):
    for by_broker in told:
        words = " ".join(word for each in by_broker.values() for word in each)
        assert not [each for each in (*secured.PASSWORDS.values(), secured.STORE_PASSWORD, "guess") if each in words]
