"""Certificates of a broker that are replaced while it runs: for who comes, and for the brokers that it goes to."""

import asyncio
import ssl
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from security.tls.handshake import shake_hands

from sparklog.broker.lifecycle.listening import ListeningEnds, security_between_brokers
from sparklog.config.broker import parse_broker_config
from sparklog.errors import ConfigError
from sparklog.net.limits import Limits
from sparklog.net.server import SocketServer
from sparklog.security import principal_builder
from sparklog.security.principal import ANONYMOUS, Principal
from sparklog.security.principal_builder import principal_builder as builder
from sparklog.security.tls.contexts import server_context
from sparklog.security.tls.settings import TlsSettings
from sparklog.testing.certificates import Authority
from sparklog.testing.clock import ManualClock

KAFKAS_OWN = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"


@pytest.fixture
def files(tmp_path):
    """Writes a key store and a trust store of an authority; gives the settings that name them."""
    names = {each: str(tmp_path / f"{each}.pem") for each in ("keystore", "truststore")}

    def write(authority):
        authority.issue("broker").write_pem(tmp_path / "keystore.pem")
        authority.write_pem(tmp_path / "truststore.pem")
        return {f"ssl.{each}.location": path for each, path in names.items()}

    return write


def trusts(security, other):
    """Whether a connection by this security agrees with a broker whose certificate, and trust, are of ``other``."""
    stores = {
        "ssl.keystore.key": (issued := other.issue("another")).key_pem(),
        "ssl.keystore.certificate.chain": issued.chain_pem,
        "ssl.truststore.certificates": other.pem,
        "ssl.client.auth": "required",
    }
    try:
        shake_hands(security.tls, server_context(TlsSettings.from_properties(stores)))
    except ssl.SSLError:
        return False
    return True


@asynccontextmanager
async def listening(files, tmp_path, authority):
    """The ends of a broker with this authority's files, and what it speaks with to other brokers."""
    settings = {"listeners": "SSL://127.0.0.1:0", "security.inter.broker.protocol": "SSL", **files(authority)}
    config = parse_broker_config({"broker.id": "1", "log.dirs": str(tmp_path), **settings})
    security = security_between_brokers(config, ManualClock())
    server = SocketServer(asyncio.get_running_loop(), lambda *_: None, Limits(1 << 20, 1))
    try:
        yield ListeningEnds(config, server, lambda *_: None, to_brokers=security), security
    finally:
        server.close()


def test_certificates_for_other_brokers_are_taken_over_too(files, tmp_path):
    async def main():
        old, new = Authority("old"), Authority("new")
        async with listening(files, tmp_path, old) as (ends, security):
            assert (trusts(security, old), trusts(security, new)) == (True, False)
            files(new)
            ends.look_at_certificates()
            assert (trusts(security, old), trusts(security, new)) == (False, True)
            (tmp_path / "keystore.pem").write_text("damaged")
            ends.look_at_certificates()
            assert trusts(security, new)

    asyncio.run(main())


def test_a_certificate_that_could_not_be_read_is_tried_again_though_its_file_is_the_same(
    files, tmp_path, monkeypatch, caplog
):
    """The owner or the permissions may have been mended, or there are descriptors again."""

    async def main():
        old, new = Authority("old"), Authority("new")
        async with listening(files, tmp_path, old) as (ends, security):
            files(new)
            (certificates,) = [each for each in ends._kept if each._holder is security]
            with monkeypatch.context() as refusing:
                refusing.setattr(certificates, "_make", refuse)
                for _ in range(3):
                    ends.look_at_certificates()
            assert (trusts(security, old), trusts(security, new)) == (True, False)
            ends.look_at_certificates()
            assert (trusts(security, old), trusts(security, new)) == (False, True)

    def refuse(_):
        raise ConfigError("keystore.pem cannot be read: too many open files")

    asyncio.run(main())
    assert caplog.text.count("too many open files") == 1


class Noting(SocketServer):
    """Knows what each listener is told to ask for."""

    def __init__(self, loop):
        super().__init__(loop, lambda *_: None, Limits(1 << 20, 1))
        self.entrances = {}

    def bind(self, host, port, entrance=None):
        self.entrances[entrance.listener] = entrance
        return super().bind(host, port, entrance)


def test_a_listener_may_have_a_principal_builder_of_its_own(monkeypatch, tmp_path):
    built = {
        each: SimpleNamespace(name=each, load=lambda name=each: lambda _: Principal("Team", name)) for each in "ab"
    }
    monkeypatch.setattr(principal_builder, "entry_points", lambda group: built.values())
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,B://127.0.0.1:0,KAFKAS://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,B:PLAINTEXT,KAFKAS:PLAINTEXT",
        "listener.name.b.principal.builder.class": "b",
        "listener.name.kafkas.principal.builder.class": KAFKAS_OWN,
    }

    async def main():
        config = parse_broker_config({"broker.id": "1", "log.dirs": str(tmp_path), **settings})
        server = Noting(asyncio.get_running_loop())
        try:
            ListeningEnds(config, server, lambda *_: None, builder("a"))
        finally:
            server.close()
        return {name: entrance.principal_of("10.0.0.1", None) for name, entrance in server.entrances.items()}

    assert asyncio.run(main()) == {
        "PLAINTEXT": Principal("Team", "a"),
        "B": Principal("Team", "b"),
        "KAFKAS": ANONYMOUS,
    }
