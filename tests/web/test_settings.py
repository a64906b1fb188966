import pytest

from sparklog.errors import ConfigError
from sparklog.web.settings import WebSettings

PLAIN = {"bootstrap.servers": "127.0.0.1:9092"}
SASL = PLAIN | {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512"}


def test_credentials_of_the_file_are_not_used():
    login = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="root" password="secret";'
    for more in ({"sasl.jaas.config": login}, {"sasl.username": "root", "sasl.password": "secret"}):
        settings = WebSettings.of(SASL | more)
        assert "secret" not in str(settings.client.security)
        assert "root" not in str(settings.client.security)


def test_brokers_know_the_page_by_its_name():
    assert WebSettings.of(PLAIN | {"client.id": "other"}).client.client_id == "sparklog-web"


@pytest.mark.parametrize(
    ("properties", "more", "said"),
    [
        (SASL, {"host": "0.0.0.0", "origin": "http://log.example"}, "in the clear"),
        (SASL, {"host": "10.1.2.3"}, "in the clear"),
        (PLAIN, {"host": "0.0.0.0"}, "--origin"),
        (PLAIN, {"host": "::"}, "--origin"),
        (PLAIN, {"origin": "log.example"}, "https://NAME"),
        (PLAIN, {"origin": "https://log.example/path"}, "https://NAME"),
        (SASL | {"sasl.mechanism": "OAUTHBEARER"}, {}, "log in with a password"),
        ({name: text for name, text in SASL.items() if name != "sasl.mechanism"}, {}, "not set"),
        (PLAIN | {"security.protocol": "SSL", "ssl.keystore.location": "x.pem"}, {}, "every visitor"),
    ],
)
def test_what_would_show_or_send_too_much_is_refused(properties, more, said):
    with pytest.raises(ConfigError, match=said):
        WebSettings.of(properties, **more)


def test_a_server_knows_its_own_names():
    assert WebSettings.of(PLAIN).names(80) >= {"localhost", "127.0.0.1:80", "[::1]"}
    assert WebSettings.of(PLAIN).names(8080) == {"localhost:8080", "127.0.0.1:8080", "[::1]:8080"}
    elsewhere = WebSettings.of(PLAIN, host="10.1.2.3", origin="http://log.example:8080")
    assert elsewhere.names(8080) == {"10.1.2.3:8080", "log.example:8080"}


def test_a_server_knows_its_own_origins(tmp_path):
    proxied = WebSettings.of(PLAIN, host="10.1.2.3", origin="https://Log.example/")
    assert proxied.origins(80) == {"http://10.1.2.3", "http://10.1.2.3:80", "https://log.example"}
    secured = WebSettings.of(PLAIN, host="10.1.2.3", certificate=tmp_path / "web.pem")
    assert secured.origins(443) == {"https://10.1.2.3", "https://10.1.2.3:443"}
    assert secured.origins(80) == {"https://10.1.2.3:80"}


def test_a_file_without_a_certificate_is_named(tmp_path):
    file = tmp_path / "web.pem"
    file.write_text("nothing")
    with pytest.raises(ConfigError, match=r"web\.pem has no certificate"):
        WebSettings.of(PLAIN, certificate=file).tls_context()
