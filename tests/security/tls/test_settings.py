import re

import pytest

from sparklog.config.definition import describe
from sparklog.errors import ConfigError
from sparklog.security.tls.settings import TlsSettings

SECRETS = {
    "ssl.keystore.password": "hidden-1",
    "ssl.key.password": "hidden-2",
    "ssl.truststore.password": "hidden-3",
    "ssl.keystore.location": "/etc/broker.p12",
    "ssl.truststore.location": "/etc/ca.p12",
}


def test_no_secret_is_shown() -> None:
    settings = TlsSettings.from_properties(SECRETS)
    inline = TlsSettings.from_properties({"ssl.keystore.key": "hidden-4", "ssl.keystore.certificate.chain": "c"})
    for shown in (repr(settings), str(settings), repr(inline), str(describe(settings)), str(describe(inline))):
        assert "hidden-" not in shown
    assert "/etc/broker.p12" in repr(settings)
    assert settings.key_password == "hidden-2"


def test_settings_of_others_are_passed_over_and_those_of_java_too() -> None:
    said = {"bootstrap.servers": "h:1", "sasl.mechanism": "PLAIN", "ssl.provider": "SunJSSE"}
    assert TlsSettings.from_properties(said) == TlsSettings()


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ({"ssl.keystore.loction": "x"}, "did you mean ssl.keystore.location"),
        ({"ssl.ca.location": "x"}, "librdkafka's name; set ssl.truststore.location"),
        ({"ssl.engine.factory.class": "x"}, "classes of Java"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "must list only TLSv1.2, TLSv1.3"),
        ({"ssl.enabled.protocols": ""}, "must list only TLSv1.2, TLSv1.3"),
        ({"ssl.protocol": "TLSv1"}, "must be one of TLS, TLSv1.2, TLSv1.3"),
        ({"ssl.protocol": "SSLv3"}, "must be one of"),
        ({"ssl.client.auth": "maybe"}, "must be one of none, requested, required"),
        ({"ssl.endpoint.identification.algorithm": "ldaps"}, "must be https, or empty"),
        ({"ssl.keystore.type": "BKS"}, "must be one of"),
        ({"ssl.keystore.key": "k"}, "go together"),
        ({"ssl.keystore.certificate.chain": "c"}, "go together"),
        ({"ssl.keystore.key": "k", "ssl.keystore.certificate.chain": "c", "ssl.keystore.type": "PKCS12"}, "type=PEM"),
        (
            {"ssl.keystore.key": "k", "ssl.keystore.certificate.chain": "c", "ssl.keystore.location": "l"},
            "both set",
        ),
        (
            {"ssl.keystore.key": "k", "ssl.keystore.certificate.chain": "c", "ssl.keystore.password": "p"},
            "ssl.keystore.password is for PKCS12",
        ),
        ({"ssl.keystore.password": "p"}, "ssl.keystore.location is not"),
        ({"ssl.truststore.password": "p"}, "ssl.truststore.location is not"),
        ({"ssl.truststore.certificates": "c", "ssl.truststore.location": "l"}, "both set"),
        ({"ssl.truststore.certificates": "c", "ssl.truststore.type": "JKS"}, "ssl.truststore.type=PEM"),
    ],
)
def test_what_cannot_be_is_told_in_words(said: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        TlsSettings.from_properties(said)
