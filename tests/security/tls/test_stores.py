import re
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from sparklog.errors import ConfigError
from sparklog.security.tls.settings import TlsSettings
from sparklog.security.tls.stores import read_identity, read_trusted
from sparklog.testing.certificates import Certificates


def identity(**said: object) -> tuple[bytes, ...]:
    found = read_identity(TlsSettings.from_properties(_names(said)))
    assert found is not None
    assert "PRIVATE" not in repr(found)
    return found.chain


def trusted(**said: object) -> tuple[bytes, ...] | None:
    return read_trusted(TlsSettings.from_properties(_names(said)))


def _names(said: dict[str, object]) -> dict[str, str]:
    return {"ssl." + name.replace("_", "."): str(value) for name, value in said.items()}


def test_nothing_is_configured() -> None:
    assert read_identity(TlsSettings()) is None
    assert read_trusted(TlsSettings()) is None


@pytest.mark.parametrize("kind", ["", "PEM"])
@pytest.mark.parametrize("password", ["", "secret"])
def test_a_pem_file_has_the_key_and_the_chain(
    certificates: Certificates, tmp_path: Path, kind: str, password: str
) -> None:
    path = certificates.server.write_pem(tmp_path / "server.pem", password)
    own = certificates.server
    expected = (own.certificate_der, own.issuer.public_bytes(Encoding.DER))
    assert identity(keystore_location=path, keystore_type=kind, key_password=password) == expected


@pytest.mark.parametrize("kind", ["", "PKCS12", "JKS"])
def test_a_pkcs12_file_has_the_key_and_the_chain(certificates: Certificates, tmp_path: Path, kind: str) -> None:
    path = certificates.server.write_pkcs12(tmp_path / "server.p12", "secret")
    found = identity(keystore_location=path, keystore_type=kind, keystore_password="secret")
    assert [ssl.DER_cert_to_PEM_cert(each) for each in found] == [
        certificates.server.certificate_pem,
        certificates.authority.pem,
    ]


def test_pem_in_the_settings_themselves_may_be_on_one_line(certificates: Certificates) -> None:
    own = certificates.server
    key, chain = (" ".join(each.split("\n")) for each in (own.key_pem("secret"), own.chain_pem))
    found = identity(keystore_key=key, keystore_certificate_chain=chain, key_password="secret")
    assert found[0] == own.certificate_der
    assert trusted(truststore_certificates=" ".join(certificates.authority.pem.split("\n"))) == found[1:]


def test_a_key_that_openssl_encrypted_in_its_old_form(certificates: Certificates, tmp_path: Path) -> None:
    own = certificates.server
    old = own.key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, BestAvailableEncryption(b"secret"))
    path = tmp_path / "server.pem"
    path.write_text(old.decode() + own.chain_pem)
    assert identity(keystore_location=path, key_password="secret")[0] == own.certificate_der
    with pytest.raises(ConfigError, match=r"encrypted: set ssl.key.password"):
        identity(keystore_location=path)


def test_trust_stores_of_both_kinds(certificates: Certificates, tmp_path: Path) -> None:
    pem = certificates.authority.write_pem(tmp_path / "ca.pem")
    pem.write_text(f"Subject: somebody\n{pem.read_text()}\ntext\n{certificates.stranger.certificate_pem}")
    p12 = certificates.authority.write_pkcs12(tmp_path / "ca.p12", "secret")
    own = certificates.authority.certificate.public_bytes(Encoding.DER)
    assert trusted(truststore_location=pem) == (own, certificates.stranger.certificate_der)
    assert trusted(truststore_location=p12, truststore_password="secret") == (own,)


def test_what_cannot_be_read_is_told_without_the_password(certificates: Certificates, tmp_path: Path) -> None:
    own = certificates.server
    locked, pem = own.write_pem(tmp_path / "locked.pem", "hidden-1"), own.write_pem(tmp_path / "open.pem")
    p12, jks, junk = own.write_pkcs12(tmp_path / "k.p12", "hidden-1"), tmp_path / "k.jks", tmp_path / "junk"
    jks.write_bytes(bytes.fromhex("feedfeed00000002"))
    junk.write_bytes(b"hello")
    (tmp_path / "key.pem").write_text(own.key_pem())
    (tmp_path / "two.pem").write_text(own.key_pem() + pem.read_text())
    (tmp_path / "bad.pem").write_text(own.key_pem().replace("\nM", "\nA", 1) + own.chain_pem)
    (tmp_path / "letters.pem").write_text("-----BEGIN PRIVATE KEY-----\n!\n-----END PRIVATE KEY-----\n")
    cases: list[tuple[dict[str, object], str]] = [
        ({"keystore_location": locked}, "encrypted: set ssl.key.password"),
        ({"keystore_location": locked, "key_password": "hidden-2"}, "ssl.key.password is wrong"),
        ({"keystore_location": p12, "keystore_password": "hidden-2"}, "ssl.keystore.password is wrong"),
        ({"keystore_location": p12, "keystore_type": "PEM"}, "set ssl.keystore.type=PKCS12"),
        ({"keystore_location": pem, "keystore_type": "PKCS12"}, "set ssl.keystore.type=PEM"),
        ({"keystore_location": pem, "keystore_password": "hidden-2"}, "the password of a key in PEM is"),
        ({"keystore_location": jks}, "keytool -importkeystore"),
        ({"keystore_location": junk}, "is neither PEM nor PKCS12"),
        ({"keystore_location": tmp_path / "none"}, "No such file"),
        ({"keystore_location": "a\0b"}, "null byte"),
        ({"keystore_location": tmp_path / "key.pem"}, "no PEM block 'BEGIN CERTIFICATE'"),
        ({"keystore_location": tmp_path / "two.pem"}, "there are 2"),
        ({"keystore_location": certificates.authority.write_pem(tmp_path / "ca.pem")}, "there are 0"),
        ({"keystore_location": tmp_path / "bad.pem"}, "damaged"),
        ({"keystore_location": tmp_path / "letters.pem"}, "is not base64"),
    ]
    for said, complaint in cases:
        with pytest.raises(ConfigError, match=re.escape(complaint)) as told:
            identity(**said)
        assert "hidden-" not in str(told.value)
    with pytest.raises(ConfigError, match="has no private key"):
        identity(keystore_location=certificates.authority.write_pkcs12(tmp_path / "t.p12", "p"), keystore_password="p")
    with pytest.raises(ConfigError, match=r"ssl.truststore.password is for PKCS12"):
        trusted(truststore_location=pem, truststore_password="hidden-2")
