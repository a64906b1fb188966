"""Certificates as OpenSSL takes them: handshakes in memory, without a socket."""

import ssl
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from cryptography import x509

from sparklog.errors import ConfigError
from sparklog.security.certificates import CertificateAuthority, Credential, describe, utc_now

NOW = datetime.now(UTC).replace(microsecond=0)
_numbers = count()


@pytest.fixture(scope="module")
def authority():
    return CertificateAuthority.make("test CA", NOW)


@pytest.fixture(scope="module")
def broker(authority):
    return authority.issue_broker("broker-0", ["log1.example.org", "127.0.0.1", "::1"], NOW)


def _context(tmp_path, side, own, trusted):
    context = ssl.SSLContext(side)
    if own is not None:
        path = tmp_path / f"{next(_numbers)}.pem"
        path.write_bytes(own.key_store)
        context.load_cert_chain(path)
    context.load_verify_locations(cadata=trusted.credential.certificate.decode())
    return context


def _shake_hands(client, server, host):
    """Both ends' objects after the handshake; raises what either end raises."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname=host)
    far = server.wrap_bio(to_server, to_client, server_side=True)
    waiting = [near, far]
    for _ in range(10):
        for each in list(waiting):
            try:
                each.do_handshake()
                waiting.remove(each)
            except ssl.SSLWantReadError:
                pass
        if not waiting:
            return near, far
    raise AssertionError("the handshake does not end")


@pytest.mark.parametrize("host", ["log1.example.org", "127.0.0.1", "::1"])
def test_a_client_finds_a_broker_by_each_of_its_names(tmp_path, authority, broker, host):
    client = _context(tmp_path, ssl.PROTOCOL_TLS_CLIENT, None, authority)
    server = _context(tmp_path, ssl.PROTOCOL_TLS_SERVER, broker, authority)
    near, _ = _shake_hands(client, server, host)
    assert dict(each[0] for each in near.getpeercert()["subject"]) == {"commonName": "broker-0"}


def test_another_name_and_another_authority_are_refused(tmp_path, authority, broker):
    server = _context(tmp_path, ssl.PROTOCOL_TLS_SERVER, broker, authority)
    client = _context(tmp_path, ssl.PROTOCOL_TLS_CLIENT, None, authority)
    with pytest.raises(ssl.SSLCertVerificationError, match="not valid for"):
        _shake_hands(client, server, "log2.example.org")
    stranger = _context(tmp_path, ssl.PROTOCOL_TLS_CLIENT, None, CertificateAuthority.make("test CA", NOW))
    with pytest.raises(ssl.SSLCertVerificationError):
        _shake_hands(stranger, server, "log1.example.org")


def test_a_client_proves_who_it_is_and_cannot_stand_in_for_a_broker(tmp_path, authority, broker):
    alice = authority.issue_client("alice", NOW)
    server = _context(tmp_path, ssl.PROTOCOL_TLS_SERVER, broker, authority)
    server.verify_mode = ssl.CERT_REQUIRED
    client = _context(tmp_path, ssl.PROTOCOL_TLS_CLIENT, alice, authority)
    client.maximum_version = ssl.TLSVersion.TLSv1_2  # so that the client's certificate is part of the handshake
    _, far = _shake_hands(client, server, "log1.example.org")
    assert dict(each[0] for each in far.getpeercert()["subject"]) == {"commonName": "alice"}
    posing = _context(tmp_path, ssl.PROTOCOL_TLS_SERVER, alice, authority)
    trusting = _context(tmp_path, ssl.PROTOCOL_TLS_CLIENT, None, authority)
    trusting.check_hostname = False
    with pytest.raises(ssl.SSLCertVerificationError, match="purpose"):
        _shake_hands(trusting, posing, "log1.example.org")


def test_strict_checks_find_nothing_to_complain_of(tmp_path, authority, broker):
    """Python 3.13 has them by default: key usage, and who signed, in each certificate."""
    client = _context(tmp_path, ssl.PROTOCOL_TLS_CLIENT, None, authority)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    server = _context(tmp_path, ssl.PROTOCOL_TLS_SERVER, broker, authority)
    _shake_hands(client, server, "127.0.0.1")


def test_what_a_certificate_says(authority, broker):
    (found,) = describe(broker.key_store)
    assert (found.subject, found.issuer) == ("CN=broker-0", "CN=test CA")
    assert found.names == ("log1.example.org", "127.0.0.1", "::1")
    assert found.usages == ("server", "client")
    assert found.not_before < NOW < found.not_after == NOW + timedelta(days=397)
    (own,) = describe(authority.credential.certificate)
    assert (own.is_authority, found.is_authority) == (True, False)
    assert own.not_after == NOW + timedelta(days=3650)


def test_a_certificate_says_what_its_key_is_for(authority, broker):
    certificate = x509.load_pem_x509_certificate(broker.certificate)
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage)
    assert usage.critical
    assert usage.value.digital_signature
    assert not usage.value.key_cert_sign
    own = x509.load_pem_x509_certificate(authority.credential.certificate)
    signer = own.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    issued_by = certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    assert issued_by.key_identifier == signer.key_identifier
    assert own.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length == 0


def test_a_renewed_certificate_is_for_the_same_with_another_key(authority, broker):
    later = NOW + timedelta(days=300)
    renewed = authority.renew(broker.key_store, later)
    old, new = describe(broker.certificate)[0], describe(renewed.certificate)[0]
    assert (new.subject, new.names, new.usages) == (old.subject, old.names, old.usages)
    assert new.not_after == later + timedelta(days=397)
    assert new.serial != old.serial
    assert renewed.key != broker.key
    assert authority.has_signed(renewed.certificate)


def test_only_the_authority_that_signed_renews(broker):
    other = CertificateAuthority.make("test CA", NOW)
    assert not other.has_signed(broker.certificate)
    with pytest.raises(ConfigError, match="was not signed by CN=test CA"):
        other.renew(broker.certificate, NOW)


def test_nothing_outlives_the_authority():
    brief = CertificateAuthority.make("brief", NOW, days=10)
    assert describe(brief.issue_client("alice", NOW).certificate)[0].not_after == NOW + timedelta(days=10)
    with pytest.raises(ConfigError, match="has ended"):
        brief.issue_client("alice", NOW + timedelta(days=11))


def test_an_authority_needs_its_own_key_and_the_right_to_sign(authority, broker):
    with pytest.raises(ConfigError, match="not the key"):
        CertificateAuthority(Credential(broker.key, authority.credential.certificate))
    with pytest.raises(ConfigError, match="not one of an authority"):
        CertificateAuthority(broker)


@pytest.mark.parametrize("host", ["", "a b", "log 1", "bücher.example", "a..b", "-a-", "*.*.example.org"])
def test_what_is_no_host_is_refused(authority, host):
    with pytest.raises(ConfigError, match="host"):
        authority.issue_broker("broker", [host], NOW)


@pytest.mark.parametrize("name", ["", "x" * 65, "a\nb"])
def test_what_is_no_common_name_is_refused(authority, name):
    with pytest.raises(ConfigError, match="no name for a certificate"):
        authority.issue_client(name, NOW)


def test_a_broker_without_names_is_refused(authority):
    with pytest.raises(ConfigError, match="by which clients reach it"):
        authority.issue_broker("broker", [], NOW)


@pytest.mark.parametrize("pem", [b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", b"\xff\x00"])
def test_what_is_no_certificate_is_refused_in_words(pem):
    with pytest.raises(ConfigError, match="BEGIN CERTIFICATE"):
        describe(pem)


def test_a_credential_does_not_show_its_key(broker):
    assert "PRIVATE" not in repr(broker)
    assert "CN=broker-0" in repr(broker)


def test_the_time_of_a_clock_in_whole_seconds():
    assert utc_now(1_700_000_000_123) == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
