"""Certificates that expire."""

import json
import socket
import ssl
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from threading import Thread

import pytest

from sparklog.cli.doctor.certificates import certificate_findings, own_certificates, shown_certificate
from sparklog.cli.doctor.finding import Severity
from sparklog.client.cluster.config import ClientConfig, parse_bootstrap
from sparklog.security.certificates import CertificateAuthority, describe

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def issued():
    return CertificateAuthority.make("an authority", NOW).issue_client("alice", NOW, 100)


@pytest.mark.parametrize(
    ("days", "severity"),
    [
        (0, None),
        (69, None),
        (71, Severity.WARNING),
        (92, Severity.WARNING),
        (94, Severity.ERROR),
        (100, Severity.ERROR),
    ],
)
def test_how_soon_is_too_soon(issued, days, severity):
    (found,) = describe(issued.certificate)
    findings = list(certificate_findings({"here": found}, NOW + timedelta(days, hours=1), 30))
    assert [each.severity for each in findings] == ([] if severity is None else [severity])
    if days == 100:
        assert findings[0].what.startswith("a certificate has expired")


def test_the_clients_own_files(issued, tmp_path):
    path, other = tmp_path / "alice.pem", tmp_path / "store.jks"
    path.write_bytes(issued.key_store)
    other.write_bytes(b"\xfe\xed\xfe\xed")
    settings = {"ssl.keystore.location": str(path), "ssl.truststore.location": str(other)}
    found = own_certificates(settings)
    assert list(found) == [str(path)]
    assert found[str(path)].not_after == describe(issued.certificate)[0].not_after


@contextmanager
def shown_by_a_server(credential, path):
    """The address of a server that shows this certificate, and closes each connection behind the handshake."""
    path.write_bytes(credential.key_store)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, suppress(OSError), context.wrap_socket(connection, server_side=True) as tls:
                tls.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.fixture
def client_file(tmp_path):
    def write(authority):
        (tmp_path / "ca.pem").write_bytes(authority.credential.certificate)
        path = tmp_path / "client.properties"
        path.write_text(f"security.protocol=SSL\nssl.truststore.location={tmp_path}/ca.pem\nssl.truststore.type=PEM\n")
        return path

    return write


def test_where_every_broker_has_an_expired_certificate_the_doctor_says_so(run, client_file, tmp_path):
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    authority = CertificateAuthority.make("an authority", long_ago, 36500)
    expired = authority.issue_broker("log1", ["127.0.0.1"], long_ago, 30)
    with shown_by_a_server(expired, tmp_path / "broker.pem") as address:
        options = ("--bootstrap", address, "--command-config", str(client_file(authority)), "--output", "json")
        done = run("doctor", *options)
    assert done.status == 1
    first, second = json.loads(done.out)["findings"]
    assert (first["severity"], first["where"]) == ("error", [f"broker at {address}"])
    assert first["what"] == "a certificate has expired (CN=log1)"
    assert "sparklog cert renew FILE --ca DIRECTORY" in first["advice"]
    assert (second["severity"], second["where"]) == ("note", ["the cluster"])


def test_a_certificate_that_is_refused_for_something_else_is_no_finding(run, client_file, tmp_path):
    other = CertificateAuthority.make("another authority", datetime.now(UTC))
    authority = CertificateAuthority.make("an authority", datetime.now(UTC))
    shown = authority.issue_broker("log1", ["127.0.0.1"], datetime.now(UTC), 3)
    with shown_by_a_server(shown, tmp_path / "broker.pem") as address:
        done = run("doctor", "--bootstrap", address, "--command-config", str(client_file(other)))
    assert (done.status, done.out) == (1, "")
    assert "ssl.truststore.location must hold the certificate of the authority" in done.err


def test_what_is_to_be_typed_depends_on_whose_certificate_it_is():
    authority = CertificateAuthority.make("an authority", NOW, 1)
    (ca,) = describe(authority.credential.certificate)
    (own,) = describe(authority.issue_client("alice", NOW, 1).certificate)
    later = NOW + timedelta(2)
    advice = {
        each.where[0]: each.advice
        for each in certificate_findings({"broker 1 at a:9093": own, "my own.pem": own, "ca.pem": ca}, later, 30)
    }
    assert advice["broker 1 at a:9093"].startswith("on its host: ")
    assert advice["my own.pem"] == "sparklog cert renew 'my own.pem' --ca DIRECTORY"
    assert advice["ca.pem"].startswith("sparklog cert ca DIRECTORY makes a new authority; ")


@pytest.mark.integration
def test_what_a_real_broker_shows(secured):
    config = ClientConfig.from_properties(secured.client("operator"))
    (endpoint,) = parse_bootstrap(config.bootstrap_servers)
    shown = shown_certificate(endpoint, config.security, 60)
    assert "localhost" in shown.names or "127.0.0.1" in shown.names


def test_where_nobody_listens_there_is_none(issued):
    with pytest.raises(OSError, match="refused"):
        shown_certificate(parse_bootstrap("127.0.0.1:1")[0], {}, 60)
