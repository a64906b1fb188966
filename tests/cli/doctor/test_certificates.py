"""Certificates that expire."""

from datetime import UTC, datetime, timedelta

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


@pytest.mark.integration
def test_what_a_real_broker_shows(secured):
    config = ClientConfig.from_properties(secured.client("operator"))
    (endpoint,) = parse_bootstrap(config.bootstrap_servers)
    shown = shown_certificate(endpoint, config.security, 60)
    assert "localhost" in shown.names or "127.0.0.1" in shown.names


def test_where_nobody_listens_there_is_none(issued):
    with pytest.raises(OSError, match="refused"):
        shown_certificate(parse_bootstrap("127.0.0.1:1")[0], {}, 60)
