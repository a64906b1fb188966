"""Builders of principals: found by name, and never trusted to be right."""

from types import SimpleNamespace

import pytest

from sparklog.config.security_protocol import SecurityProtocol
from sparklog.errors import AuthenticationFailed, ConfigError
from sparklog.security.principal import ANONYMOUS, Principal
from sparklog.security.principal_builder import Peer, find_installed, principal_builder

PEER = Peer("SSL", SecurityProtocol.SSL, "10.0.0.1", Principal("User", "CN=a"), b"der")


def _raise(error):
    raise error


def found(build):
    return lambda: [SimpleNamespace(name="mine", load=lambda: build)]


@pytest.mark.parametrize("name", ["", "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"])
def test_without_a_builder_it_is_who_it_is(name):
    assert principal_builder(name)(PEER) == PEER.principal


def test_a_builder_sees_what_is_known():
    build = principal_builder("mine", found(lambda peer: Principal("Team", f"{peer.host} {peer.certificate!r}")))
    assert build(PEER) == Principal("Team", "10.0.0.1 b'der'")


@pytest.mark.parametrize("build", [lambda _: "User:a", lambda _: None, lambda _: _raise(KeyError("no such team"))])
def test_one_that_fails_lets_nobody_in(build):
    with pytest.raises(AuthenticationFailed, match="the principal builder mine"):
        principal_builder("mine", found(build))(PEER._replace(principal=ANONYMOUS))


def test_a_class_of_java_is_refused_in_words():
    assert not [*find_installed()]
    with pytest.raises(ConfigError, match=r"this broker has mine\. Classes of Java cannot be run"):
        principal_builder("com.example.Builder", found(None))


def test_one_that_cannot_be_imported_is_told():
    broken = [SimpleNamespace(name="mine", load=lambda: _raise(ImportError("no module")))]
    with pytest.raises(ConfigError, match="cannot be loaded: ImportError"):
        principal_builder("mine", lambda: broken)
