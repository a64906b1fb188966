import ssl

import pytest

from sparklog.errors import ConfigError
from sparklog.security.tls.contexts import client_context
from sparklog.security.tls.settings import TlsSettings
from sparklog.security.tls.suites import TLS_1_3


def context_of(suites: str, protocols: str = "TLSv1.2,TLSv1.3") -> ssl.SSLContext:
    said = {"ssl.cipher.suites": suites, "ssl.enabled.protocols": protocols}
    return client_context(TlsSettings.from_properties(said))


def before_tls_1_3(context: ssl.SSLContext) -> list[str]:
    return [each["name"] for each in context.get_ciphers() if each["name"] not in TLS_1_3]


@pytest.mark.parametrize(
    ("iana", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "ECDHE-RSA-AES256-SHA384"),
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA", "ECDHE-RSA-AES128-SHA"),
        ("TLS_DHE_RSA_WITH_AES_128_GCM_SHA256", "DHE-RSA-AES128-GCM-SHA256"),
        ("TLS_RSA_WITH_AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA256", "AES128-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
    ],
)
def test_names_of_iana_are_those_of_openssl(iana: str, openssl: str) -> None:
    assert before_tls_1_3(context_of(iana)) == [openssl]


@pytest.mark.parametrize(
    "name",
    [
        "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
        "TLS_RSA_WITH_NULL_SHA",
        "TLS_DHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "ECDHE-RSA-AES128-GCM-SHA256",
        "ALL:eNULL",
    ],
)
def test_what_is_not_known_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl.cipher.suites: '.*' is not known or not spoken"):
        context_of(name)


def test_without_suites_of_tls_1_3_it_is_not_spoken_and_with_them_alone_nothing_else_is() -> None:
    assert context_of("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256").maximum_version == ssl.TLSVersion.TLSv1_2
    assert context_of(",".join(TLS_1_3)).minimum_version == ssl.TLSVersion.TLSv1_3
    both = context_of(",".join((*TLS_1_3, "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")))
    assert (both.minimum_version, both.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


def test_some_suites_of_tls_1_3_cannot_be_chosen() -> None:
    with pytest.raises(ConfigError, match="name all of TLS_AES_256_GCM_SHA384"):
        context_of("TLS_AES_256_GCM_SHA384")


@pytest.mark.parametrize(
    ("suites", "protocols"),
    [(",".join(TLS_1_3), "TLSv1.2"), ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLSv1.3")],
)
def test_suites_of_a_version_that_is_not_spoken(suites: str, protocols: str) -> None:
    with pytest.raises(ConfigError, match=r"which ssl.enabled.protocols leaves out"):
        context_of(suites, protocols)
