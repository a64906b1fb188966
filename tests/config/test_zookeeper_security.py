import re

import pytest

from sparklog.config.broker import parse_broker_config
from sparklog.config.zookeeper_security import OPEN, ZooKeeperSecurity
from sparklog.errors import ConfigError

_WHOLE = {
    "zookeeper.set.acl": "true",
    "zookeeper.ssl.client.enable": "true",
    "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
    "zookeeper.ssl.keystore.location": "/etc/broker.p12",
    "zookeeper.ssl.keystore.type": "PKCS12",
    "zookeeper.ssl.keystore.password": "hidden-1",
    "zookeeper.ssl.truststore.location": "/etc/ca.pem",
    "zookeeper.ssl.truststore.password": "hidden-2",
    "zookeeper.ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
    "zookeeper.ssl.cipher.suites": "TLS_AES_128_GCM_SHA256",
    "zookeeper.ssl.endpoint.identification.algorithm": "",
    "zookeeper.ssl.crl.enable": "false",
}


def test_a_whole_file_of_kafkas():
    found = parse_broker_config(_WHOLE).zookeeper_security
    assert (found.set_acl, found.tls, found.key_store, found.trust_store) == (
        True,
        True,
        "/etc/broker.p12",
        "/etc/ca.pem",
    )
    assert (found.key_store_password, found.trust_store_password) == ("hidden-1", "hidden-2")
    assert found.protocols == ("TLSv1.2", "TLSv1.3")
    assert found.endpoint_identification == ""


def test_passwords_are_not_shown():
    assert "hidden" not in repr(parse_broker_config(_WHOLE))


def test_defaults():
    found, others = ZooKeeperSecurity.divide({"zookeeper.connect": "zk:2181"})
    assert (found, others) == (OPEN, {"zookeeper.connect": "zk:2181"})
    assert (OPEN.protocols, OPEN.endpoint_identification, OPEN.tls, OPEN.set_acl) == (
        ("TLSv1.2", "TLSv1.3"),
        "HTTPS",
        False,
        False,
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"zookeeper.set.acl": "true"}, "zookeeper.ssl.keystore.location"),
        ({"zookeeper.set.acl": "true", "zookeeper.ssl.client.enable": "true"}, "zookeeper.ssl.keystore.location"),
        ({"zookeeper.ssl.truststore.location": "ca.pem"}, "zookeeper.ssl.client.enable=true does not"),
        ({"zookeeper.ssl.ocsp.enable": "true"}, "zookeeper.ssl.ocsp.enable"),
        ({"zookeeper.ssl.crl.enable": "true"}, "zookeeper.ssl.crl.enable"),
        ({"zookeeper.ssl.keystore.type": "BCFKS"}, "must be one of"),
        ({"zookeeper.ssl.enabled.protocols": "TLSv1.1"}, "must list only"),
        ({"zookeeper.ssl.protocol": "TLSv1.1"}, "must be one of"),
        ({"zookeeper.ssl.endpoint.identification.algorithm": "LDAPS"}, "neither HTTPS nor empty"),
        ({"zookeeper.ssl.keystore.file": "x"}, "did you mean"),
    ],
)
def test_what_does_not_fit_is_refused(settings, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        parse_broker_config(settings)
