"""Key stores and trust stores as they lie on a disk, and what comes of them in a handshake in memory."""

import os
import ssl
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from sparklog.errors import ConfigError
from sparklog.security.certificates import CertificateAuthority
from sparklog.security.stores import Store, TlsSettings, client_context, openssl_name

NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def authority():
    return CertificateAuthority.make("test CA", NOW)


@pytest.fixture(scope="module")
def alice(authority):
    return authority.issue_client("alice", NOW)


@pytest.fixture
def trusted(tmp_path, authority):
    path = tmp_path / "ca.pem"
    path.write_bytes(authority.credential.certificate)
    return Store(str(path))


def _named(name):
    """A subject, as the ssl module gives it."""
    return ((("commonName", name),),)


def _pem_with_password(credential, password):
    key = serialization.load_pem_private_key(credential.key, None)
    cipher = serialization.BestAvailableEncryption(password)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, cipher) + (
        credential.certificate
    )


def _pkcs12(credential, password):
    key = serialization.load_pem_private_key(credential.key, None)
    cipher = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    certificate = x509.load_pem_x509_certificate(credential.certificate)
    return pkcs12.serialize_key_and_certificates(b"alice", key, certificate, None, cipher)


def _pkcs12_of_authority(authority, password):
    certificate = x509.load_pem_x509_certificate(authority.credential.certificate)
    cipher = serialization.BestAvailableEncryption(password)
    return pkcs12.serialize_key_and_certificates(None, None, None, [certificate], cipher)


def _seen_by_a_broker(tmp_path, authority, settings):
    """The subject of the client, after a handshake with a broker that asks for it; None for none."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    path = tmp_path / "broker.pem"
    path.write_bytes(authority.issue_broker("broker", ["log1"], NOW).key_store)
    server.load_cert_chain(path)
    server.load_verify_locations(cadata=authority.credential.certificate.decode())
    server.verify_mode = ssl.CERT_OPTIONAL
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client_context(settings).wrap_bio(to_client, to_server, server_hostname="log1")
    far = server.wrap_bio(to_server, to_client, server_side=True)
    for each in (near, far, near, far):
        try:
            each.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return (far.getpeercert() or {}).get("subject")


@pytest.mark.parametrize(
    ("content", "password"),
    [
        (lambda credential: credential.key_store, ""),
        (lambda credential: credential.certificate + credential.key, ""),
        (lambda credential: _pem_with_password(credential, b"secret"), "secret"),
        (lambda credential: _pkcs12(credential, b"secret"), "secret"),
        (lambda credential: _pkcs12(credential, b""), ""),
    ],
    ids=["pem", "certificate first", "pem with a password", "pkcs12", "pkcs12 without a password"],
)
def test_a_key_store_says_who_we_are(tmp_path, authority, alice, trusted, content, password):
    path = tmp_path / "alice"
    path.write_bytes(content(alice))
    settings = TlsSettings(Store(str(path), password), trusted)
    assert _seen_by_a_broker(tmp_path, authority, settings) == _named("alice")


def test_without_a_key_store_we_are_nobody(tmp_path, authority, trusted):
    assert _seen_by_a_broker(tmp_path, authority, TlsSettings(None, trusted)) is None


def test_a_trust_store_of_pkcs12(tmp_path, authority):
    path = tmp_path / "trust.p12"
    path.write_bytes(_pkcs12_of_authority(authority, b"secret"))
    assert _seen_by_a_broker(tmp_path, authority, TlsSettings(None, Store(str(path), "secret"))) is None


def test_where_a_trust_store_is_given_it_alone_is_trusted(trusted):
    (found,) = client_context(TlsSettings(None, trusted)).get_ca_certs()
    assert found["subject"] == _named("test CA")


def test_what_was_unpacked_stays_nowhere(tmp_path, alice):
    path = tmp_path / "alice.p12"
    path.write_bytes(_pkcs12(alice, b"secret"))
    before = os.listdir("/proc/self/fd")
    client_context(TlsSettings(Store(str(path), "secret")))
    assert os.listdir("/proc/self/fd") == before
    assert os.listdir(tmp_path) == ["alice.p12"]


@pytest.mark.parametrize(
    ("content", "password", "said"),
    [
        (lambda credential: _pkcs12(credential, b"secret"), "other", "its password is another one"),
        (lambda credential: _pem_with_password(credential, b"secret"), "other", "the password of the key"),
        (lambda credential: _pem_with_password(credential, b"secret"), "", "the password of the key"),
        (lambda credential: b"\xfe\xed\xfe\xed\0\0\0\2", "", "keytool -importkeystore"),
        (lambda credential: b"", "", "neither PEM nor PKCS12"),
        (lambda credential: credential.certificate, "", "needs a private key"),
        (lambda credential: credential.key, "", "needs a private key"),
    ],
    ids=["pkcs12 password", "pem password", "no pem password", "jks", "empty", "no key", "no certificate"],
)
def test_a_key_store_that_cannot_be_used_is_refused_in_words(tmp_path, alice, content, password, said):
    path = tmp_path / "alice"
    path.write_bytes(content(alice))
    with pytest.raises(ConfigError, match=said) as refused:
        client_context(TlsSettings(Store(str(path), password)))
    assert str(path) in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"\xfe\xed\xfe\xed", "keytool"), (b"-----BEGIN \n", "no certificate"), (b"x", "neither PEM nor PKCS12")],
)
def test_a_trust_store_that_cannot_be_used_is_refused_in_words(tmp_path, content, said):
    path = tmp_path / "trust"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        client_context(TlsSettings(None, Store(str(path))))
    with pytest.raises(ConfigError, match="cannot read"):
        client_context(TlsSettings(None, Store(str(tmp_path / "none"))))


def test_a_store_shows_no_password():
    assert "secret" not in repr(TlsSettings(Store("a.p12", "secret"), Store("b.p12", "secret")))


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "ECDHE-RSA-AES256-SHA384"),
        ("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", "DHE-RSA-AES256-GCM-SHA384"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_cipher_suites_by_their_names_in_java(java, openssl):
    assert openssl_name(java) == openssl
    context = client_context(TlsSettings(cipher_suites=(java,)))
    older = [each["name"] for each in context.get_ciphers() if each["protocol"] != "TLSv1.3"]
    assert older == [openssl]
    assert context.maximum_version == ssl.TLSVersion.TLSv1_2


def test_cipher_suites_of_one_protocol_leave_that_protocol():
    context = client_context(TlsSettings(cipher_suites=("TLS_AES_128_GCM_SHA256",)))
    assert context.minimum_version == ssl.TLSVersion.TLSv1_3
    with pytest.raises(ConfigError, match="none of the cipher suites"):
        client_context(TlsSettings(protocols=("TLSv1.2",), cipher_suites=("TLS_AES_128_GCM_SHA256",)))
    with pytest.raises(ConfigError, match="no cipher suite TLS_X_WITH_Y"):
        client_context(TlsSettings(cipher_suites=("TLS_X_WITH_Y",)))


@pytest.mark.parametrize("protocols", [(), ("TLSv1.1",), ("TLSv1.2", "SSLv3")])
def test_nothing_older_than_tls_1_2_is_spoken(protocols):
    with pytest.raises(ConfigError, match="nothing older"):
        client_context(TlsSettings(protocols=protocols))
    context = client_context(TlsSettings())
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
