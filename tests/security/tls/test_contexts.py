"""What the contexts of both ends allow and refuse, by handshakes in memory."""

import os
import ssl
from pathlib import Path

import pytest
from security.tls.handshake import shake_hands

from sparklog.errors import ConfigError
from sparklog.security.tls.contexts import client_context, server_context
from sparklog.security.tls.settings import TlsSettings
from sparklog.testing.certificates import Authority, Certificates, Certified


def server_of(tmp_path: Path, certified: Certified, **settings: str) -> ssl.SSLContext:
    said = {name.replace("_", "."): value for name, value in settings.items()}
    said["ssl.keystore.location"] = str(certified.write_pem(tmp_path / "server.pem"))
    return server_context(TlsSettings.from_properties(said))


def client_of(certificates: Certificates, **settings: str) -> ssl.SSLContext:
    said = {name.replace("_", "."): value for name, value in settings.items()}
    return client_context(
        TlsSettings.from_properties({"ssl.truststore.certificates": certificates.authority.pem} | said)
    )


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_each_version_is_spoken_alone_and_the_newest_otherwise(
    certificates: Certificates, tmp_path: Path, version: str
) -> None:
    server = server_of(tmp_path, certificates.server)
    assert shake_hands(client_of(certificates), server).version() == "TLSv1.3"
    assert shake_hands(client_of(certificates, ssl_enabled_protocols=version), server).version() == version
    only = server_of(tmp_path, certificates.server, ssl_enabled_protocols=version)
    assert shake_hands(client_of(certificates), only).version() == version


def test_ends_without_a_common_version_do_not_meet(certificates: Certificates, tmp_path: Path) -> None:
    server = server_of(tmp_path, certificates.server, ssl_enabled_protocols="TLSv1.3")
    with pytest.raises(ssl.SSLError):
        shake_hands(client_of(certificates, ssl_enabled_protocols="TLSv1.2"), server)


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1"])
def test_a_server_has_the_name_that_it_is_reached_by(certificates: Certificates, tmp_path: Path, name: str) -> None:
    shake_hands(client_of(certificates), server_of(tmp_path, certificates.server), name)


def test_a_wrong_name_is_refused_unless_names_are_not_checked(certificates: Certificates, tmp_path: Path) -> None:
    server = server_of(tmp_path, certificates.elsewhere)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(client_of(certificates), server)
    shake_hands(client_of(certificates, ssl_endpoint_identification_algorithm=""), server)


@pytest.mark.parametrize("identification", ["https", ""])
def test_expired_and_foreign_certificates_are_refused_whether_names_are_checked_or_not(
    certificates: Certificates, tmp_path: Path, identification: str
) -> None:
    client = client_of(certificates, ssl_endpoint_identification_algorithm=identification)
    for certified, reason in ((certificates.expired, "expired"), (certificates.stranger, "unable to get|self-signed")):
        with pytest.raises(ssl.SSLCertVerificationError, match=reason):
            shake_hands(client, server_of(tmp_path, certified))


def test_a_certificate_in_the_trust_store_is_trusted_by_itself(certificates: Certificates, tmp_path: Path) -> None:
    pinned = client_context(
        TlsSettings.from_properties({"ssl.truststore.certificates": certificates.server.certificate_pem})
    )
    shake_hands(pinned, server_of(tmp_path, certificates.server))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(pinned, server_of(tmp_path, certificates.client))


def test_without_a_trust_store_the_systems_is_used(certificates: Certificates, tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(client_context(TlsSettings()), server_of(tmp_path, certificates.server))


@pytest.mark.parametrize(
    ("asked", "shown", "served"),
    [
        ("none", "client", True),
        ("none", None, True),
        ("requested", "client", True),
        ("requested", None, True),
        ("requested", "stranger", False),
        ("required", "client", True),
        ("required", None, False),
        ("required", "stranger", False),
        ("required", "expired", False),
    ],
)
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_client_certificates(
    certificates: Certificates, tmp_path: Path, asked: str, shown: str | None, served: bool, version: str
) -> None:
    trusted = certificates.authority.write_pem(tmp_path / "ca.pem")
    server = server_of(tmp_path, certificates.server, ssl_client_auth=asked, ssl_truststore_location=str(trusted))
    said = {"ssl_enabled_protocols": version}
    if shown:
        said["ssl_keystore_location"] = str(getattr(certificates, shown).write_pem(tmp_path / "client.pem"))
    if not served:
        with pytest.raises(ssl.SSLError):
            shake_hands(client_of(certificates, **said), server)
        return
    told = shake_hands(client_of(certificates, **said), server).getpeercert(binary_form=True)
    assert told == (certificates.client.certificate_der if shown and asked != "none" else None)


def test_a_listener_that_asks_for_certificates_must_say_whose(certificates: Certificates, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ssl.client.auth=required needs ssl.truststore.location"):
        server_of(tmp_path, certificates.server, ssl_client_auth="required")


def test_a_listener_needs_a_certificate() -> None:
    with pytest.raises(ConfigError, match="needs a key and a certificate"):
        server_context(TlsSettings())


def test_a_context_made_anew_has_the_certificates_of_then(certificates: Certificates, tmp_path: Path) -> None:
    path = certificates.server.write_pem(tmp_path / "server.pem")
    settings = TlsSettings.from_properties({"ssl.keystore.location": str(path)})
    assert settings.files == (path,)
    before = server_context(settings)
    other = Authority("another").issue("broker")
    other.write_pem(path)
    client = client_context(TlsSettings.from_properties({"ssl.truststore.certificates": other.chain_pem}))
    shake_hands(client_of(certificates), before)
    shake_hands(client, server_context(settings))


def test_no_private_key_is_left_behind_nor_a_descriptor(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    path = certificates.server.write_pem(tmp_path / "server.pem", "secret")
    settings = TlsSettings.from_properties({"ssl.keystore.location": str(path), "ssl.key.password": "secret"})
    server_context(settings)
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    server_context(settings)
    monkeypatch.setattr("sys.platform", "darwin")
    shake_hands(client_of(certificates), server_context(settings))
    assert not list((tmp_path / "tmp").iterdir())
    if before:
        assert len(os.listdir("/proc/self/fd")) == before


def test_a_key_of_another_certificate_is_told(certificates: Certificates, tmp_path: Path) -> None:
    path = tmp_path / "mixed.pem"
    path.write_text(certificates.server.key_pem() + certificates.client.certificate_pem)
    with pytest.raises(ConfigError, match="not that of the first certificate"):
        server_context(TlsSettings.from_properties({"ssl.keystore.location": str(path)}))


def test_bytes_that_are_no_certificate_are_told() -> None:
    settings = TlsSettings.from_properties(
        {"ssl.truststore.certificates": "-----BEGIN CERTIFICATE----- AAAA -----END CERTIFICATE-----"}
    )
    with pytest.raises(ConfigError, match=r"ssl.truststore: a certificate in it cannot be read"):
        client_context(settings)
