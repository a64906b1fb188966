"""Names as Java prints them. The JVM itself is asked in ``tests/compat/test_java_names.py``."""

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import AuthenticationFailed
from sparklog.security.tls.distinguished_name import subject_name
from sparklog.testing.certificates import Certificates


def name(*attributes: x509.NameAttribute[str]) -> x509.Name:
    return x509.Name(attributes)


@pytest.mark.parametrize(
    ("subject", "printed"),
    [
        (name(), ""),
        (
            name(
                x509.NameAttribute(NameOID.COUNTRY_NAME, "DE"),
                x509.NameAttribute(NameOID.STATE_OR_PROVINCE_NAME, "BE"),
                x509.NameAttribute(NameOID.LOCALITY_NAME, "Berlin"),
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Example"),
                x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "readers"),
                x509.NameAttribute(NameOID.COMMON_NAME, "Anna"),
            ),
            "CN=Anna,OU=readers,O=Example,L=Berlin,ST=BE,C=DE",
        ),
        (
            name(
                x509.NameAttribute(NameOID.DOMAIN_COMPONENT, "example"),
                x509.NameAttribute(NameOID.STREET_ADDRESS, "Weg 1"),
                x509.NameAttribute(NameOID.USER_ID, "anna"),
            ),
            "UID=anna,STREET=Weg 1,DC=example",
        ),
        (
            name(x509.NameAttribute(NameOID.COMMON_NAME, 'a,b=c+d<e>f#g;h"i\\j')),
            r"CN=a\,b\=c\+d\<e\>f\#g\;h\"i\\j",
        ),
        (name(x509.NameAttribute(NameOID.COMMON_NAME, "  Jörg \r")), "CN=\\ \\ Jörg\\ \\\r"),
        (name(x509.NameAttribute(NameOID.COMMON_NAME, " ")), "CN=\\ "),
        (name(x509.NameAttribute(NameOID.EMAIL_ADDRESS, "a@b.de")), "1.2.840.113549.1.9.1=#16066140622e6465"),
        (name(x509.NameAttribute(NameOID.SERIAL_NUMBER, "7")), "2.5.4.5=#130137"),
        (
            name(x509.NameAttribute(NameOID.ORGANIZATION_NAME, "12", _ASN1Type.NumericString)),
            "O=#12023132",
        ),
        (
            name(x509.NameAttribute(NameOID.ORGANIZATION_NAME, "a", _ASN1Type.UniversalString)),
            "O=#1c0400000061",
        ),
        (
            x509.Name(
                [
                    x509.RelativeDistinguishedName(
                        [
                            x509.NameAttribute(NameOID.COMMON_NAME, "Anna"),
                            x509.NameAttribute(NameOID.USER_ID, "7"),
                        ]
                    ),
                    x509.RelativeDistinguishedName([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Example")]),
                ]
            ),
            "O=Example,CN=Anna+UID=7",
        ),
    ],
)
def test_names_are_printed_as_java_does(certificates: Certificates, subject: x509.Name, printed: str) -> None:
    assert subject_name(certificates.authority.issue(subject, ()).certificate_der) == printed


@given(st.binary(max_size=60))
def test_bytes_that_are_no_certificate_are_refused(data: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        subject_name(data)


def test_a_certificate_that_is_cut_anywhere_is_refused_or_has_its_name(certificates: Certificates) -> None:
    whole = certificates.client.certificate_der
    for end in range(len(whole)):
        with pytest.raises(AuthenticationFailed):
            subject_name(whole[:end])
