"""How a registry is reached: what is said by Kafka's names, and what shows no password."""

import pytest

from sparklog.errors import ConfigError
from sparklog.registry.settings import RegistrySettings

_URL = "schema.registry.url"


def test_a_programs_whole_settings_may_be_given():
    found = RegistrySettings.of(
        {
            "bootstrap.servers": "h:1",
            "ssl.truststore.location": "kafka.pem",
            _URL: "http://one:8081, https://two/apis/ccompat/v7/",
            "basic.auth.user.info": "ann:secret",
            "schema.registry.ssl.truststore.location": "registry.pem",
        }
    )
    assert list(map(str, found.addresses())) == ["http://one:8081", "https://two:443/apis/ccompat/v7"]
    assert found.tls == {"ssl.truststore.location": "registry.pem"}
    assert found.authorization(found.addresses()[0]) == "Basic YW5uOnNlY3JldA=="


def test_a_user_may_stand_in_the_address_and_is_not_shown():
    found = RegistrySettings.of(schema_registry_url="http://ann:p%40ss@one:8081")
    assert found.authorization(found.addresses()[0]) == "Basic YW5uOnBAc3M="
    assert repr(found) == "RegistrySettings(http://one:8081)"


def test_a_token_is_sent_as_it_is():
    found = RegistrySettings.of({_URL: "http://one", "bearer.auth.token": "T"})
    assert found.authorization(found.addresses()[0]) == "Bearer T"


def test_settings_go_to_another_process_and_back():
    found = RegistrySettings.of(
        {_URL: "http://one,http://two", "basic.auth.user.info": "a:b", "schema.registry.ssl.key.password": "k"}
    )
    assert RegistrySettings.of(found.properties()) == found


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({}, "schema.registry.url is not set"),
        ({_URL: "one:8081"}, "is not http://host:port"),
        ({_URL: "http://one:port"}, "is no address"),
        ({_URL: "ftp://ann:secret@one"}, "'one' is not http://host:port"),
        ({_URL: "http://one", "schema.registry.urls": "x"}, "did you mean schema.registry.url"),
        ({_URL: "http://one", "basic.auth.user.info": "ann"}, "not user:password"),
        ({_URL: "http://one", "basic.auth.user.info": "a:b", "bearer.auth.token": "T"}, "both set"),
        ({_URL: "http://one", "basic.auth.credentials.source": "USER_INFO"}, "is not set"),
        ({_URL: "http://one", "basic.auth.credentials.source": "SASL_INHERIT"}, "must be one of URL, USER_INFO"),
    ],
)
def test_what_cannot_be_is_refused_without_a_password(given, complaint):
    with pytest.raises(ConfigError, match=complaint) as caught:
        RegistrySettings.of(given)
    assert "secret" not in str(caught.value)
