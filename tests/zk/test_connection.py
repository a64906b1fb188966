"""TLS to a real ZooKeeper, and whose the znodes are that a broker makes there."""

import queue
import threading
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import NoAuthError
from kazoo.security import ANYONE_ID_UNSAFE, Permissions

from sparklog.cli.connection import in_zookeeper
from sparklog.config.zookeeper_security import ZooKeeperSecurity
from sparklog.errors import ConfigError, CoordinationError
from sparklog.local.zookeeper import MODULES, NETTY, EmbeddedZooKeeper, ZooKeeperTls
from sparklog.security.certificates import CertificateAuthority
from sparklog.security.sasl.scram_credential import ScramMechanism
from sparklog.structs import Endpoint
from sparklog.zk import connection
from sparklog.zk.client import ZkClient
from sparklog.zk.users import scram_users, set_password
from sparklog.zk.znodes import BrokerInfo, TopicAssignment

pytestmark = pytest.mark.integration

NOW = datetime.now(UTC)
PASSWORD = "of-the-key-store"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Key stores of a ZooKeeper, of brokers and of a stranger, by one authority, and its certificate."""
    root = tmp_path_factory.mktemp("tls")
    authority = CertificateAuthority.make("test CA", NOW)
    (root / "ca.pem").write_bytes(authority.credential.certificate)
    (root / "other.pem").write_bytes(CertificateAuthority.make("test CA", NOW).credential.certificate)
    (root / "zookeeper.pem").write_bytes(authority.issue_broker("zookeeper", ["127.0.0.1"], NOW).key_store)
    broker = authority.issue_broker("broker", ["127.0.0.1"], NOW)
    (root / "broker.pem").write_bytes(broker.key_store)
    (root / "broker.p12").write_bytes(_pkcs12(broker))
    (root / "stranger.pem").write_bytes(authority.issue_client("stranger", NOW).key_store)
    return root


def _pkcs12(credential):
    key = serialization.load_pem_private_key(credential.key, None)
    certificate = x509.load_pem_x509_certificate(credential.certificate)
    cipher = serialization.BestAvailableEncryption(PASSWORD.encode())
    return pkcs12.serialize_key_and_certificates(b"broker", key, certificate, None, cipher)


@pytest.fixture(scope="module")
def secured(tmp_path_factory, files):
    directory = tmp_path_factory.mktemp("zookeeper")
    server = EmbeddedZooKeeper(directory, tick_time_ms=500, fsync=False)
    server.tls = ZooKeeperTls(files / "zookeeper.pem", files / "ca.pem")
    with server:
        yield server


@pytest.fixture
def connect(secured, files):
    """Opens sessions: the name of a key store, and more settings of a broker."""
    sessions = []

    def open_session(own="broker.pem", where="/cluster", connect_timeout=15.0, **more):
        settings = {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.truststore.location": str(files / "ca.pem"),
            **({"zookeeper.ssl.keystore.location": str(files / own), "zookeeper.set.acl": "true"} if own else {}),
            **more,
        }
        client = ZkClient(
            f"{secured.connect_string}{where}",
            session_timeout=6.0,
            connect_timeout=connect_timeout,
            on_session=queue.Queue().put,
            security=ZooKeeperSecurity.divide(settings)[0],
        )
        sessions.append(client)
        return client

    yield open_session
    for client in sessions:
        client.close()


def _may(zk, path):
    """Who may do what with a znode: everybody's letters, and the subjects that have all rights."""
    acls, _ = zk.kazoo.get_acls(path)
    world = [acl.perms for acl in acls if acl.id == ANYONE_ID_UNSAFE]
    owners = [acl.id for acl in acls if acl.id.scheme == "x509" and acl.perms == Permissions.ALL]
    return sum(world), [each.id for each in owners]


def test_every_znode_is_its_makers(connect):
    zk = connect(where="/owned")
    zk.ensure_tree()
    zk.topics.create(TopicAssignment("t", {0: (0,)}), {})
    zk.brokers.register(BrokerInfo(0, Endpoint("127.0.0.1", 9092)), 0)
    zk.office.take(0, 0)
    readable = ("/brokers/ids/0", "/brokers/topics/t", "/config/topics/t", "/controller", "/controller_epoch", "/")
    assert {path: _may(zk, path) for path in readable} == dict.fromkeys(readable, (Permissions.READ, ["CN=broker"]))
    secret = ("/config/users", "/config/brokers")
    assert {path: _may(zk, path) for path in secret} == dict.fromkeys(secret, (0, ["CN=broker"]))
    assert _may(zk, "/consumers") == (Permissions.ALL, [])


def test_what_is_a_brokers_another_broker_changes_and_a_stranger_does_not(connect):
    zk, other, stranger = connect(), connect("broker.p12", **_with_password()), connect("stranger.pem")
    zk.ensure_tree()
    other.configs.change("topics/t", lambda _: {"retention.ms": "1"})
    assert zk.configs.of("topics/t") == {"retention.ms": "1"}
    assert stranger.configs.of("topics/t") == {"retention.ms": "1"}
    with pytest.raises(NoAuthError):
        stranger.configs.change("topics/t", lambda _: {"retention.ms": "2"})
    with pytest.raises(CoordinationError, match="of the same subject"):
        stranger.guarded(stranger.data, "/config/users")
    assert zk.configs.of("topics/t") == {"retention.ms": "1"}


def test_where_the_root_is_owned_a_stranger_cannot_become_the_controller(connect):
    zk = connect(where="/alone")
    zk.own_root()
    stranger = connect("stranger.pem", where="/alone", **{"zookeeper.set.acl": "false"})
    with pytest.raises(CoordinationError, match="of the same subject"):
        stranger.guarded(stranger.office.take, 9, 0)
    assert zk.office.holder() is None


def test_the_first_administrator_is_written_by_tls_and_is_the_brokers(secured, files, connect):
    settings = files / "server.properties"
    stores = {"keystore": "broker.pem", "truststore": "ca.pem"}
    lines = [f"zookeeper.ssl.{name}.location={files / each}" for name, each in stores.items()]
    settings.write_text("\n".join(["broker.id=1", "zookeeper.ssl.client.enable=true", *lines]))
    with in_zookeeper(f"{secured.connect_string}/first", settings) as zk:
        set_password(zk, "admin", "secret", {ScramMechanism.SHA_512: 4096})
    broker, stranger = connect(where="/first"), connect("stranger.pem", where="/first")
    assert scram_users(broker) == {"admin": {"SCRAM-SHA-512": 4096}}
    assert _may(broker, "/config/users/admin") == (0, ["CN=broker"])
    with pytest.raises(CoordinationError, match="of the same subject"):
        stranger.guarded(scram_users, stranger)
    broker.ensure_tree()


def _with_password():
    return {"zookeeper.ssl.keystore.password": PASSWORD, "zookeeper.ssl.enabled.protocols": "TLSv1.3"}


def test_a_session_of_the_dead_is_ended_over_tls(connect):
    zk, dead = connect(), connect()
    zk.ensure_tree()
    dead.brokers.register(BrokerInfo(7, Endpoint("127.0.0.1", 9092)), 0)
    zk.end_session(dead.session)
    assert zk.brokers.owner(7) is None


@pytest.mark.parametrize(
    ("own", "more", "said"),
    [
        ("broker.pem", {"zookeeper.ssl.truststore.location": "other.pem"}, "certificate"),
        ("broker.pem", {"zookeeper.ssl.truststore.location": ""}, "certificate"),
        ("", {}, "BAD_CERTIFICATE"),
    ],
    ids=["another authority", "none of the system's", "no certificate of ours"],
)
def test_why_zookeeper_is_not_spoken_to_is_said(connect, files, own, more, said):
    more = {name: str(files / text) if text else "" for name, text in more.items()}
    with pytest.raises(CoordinationError, match=rf"zookeeper\.ssl\.\*\): TLS with 127\.0\.0\.1:.*{said}"):
        connect(own, connect_timeout=1.0, **more)


def test_a_name_that_is_not_in_the_certificate_is_refused(secured, files):
    settings = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": str(files / "ca.pem"),
        "zookeeper.ssl.keystore.location": str(files / "broker.pem"),
    }
    with pytest.raises(CoordinationError, match="localhost"):
        _connect_by_name(secured, settings)
    _connect_by_name(secured, settings | {"zookeeper.ssl.endpoint.identification.algorithm": ""}).close()


def _connect_by_name(server, settings):
    return ZkClient(
        f"localhost:{server.port}",
        session_timeout=6.0,
        connect_timeout=3.0,
        on_session=queue.Queue().put,
        security=ZooKeeperSecurity.divide(settings)[0],
    )


class _ZooKeeperWithUsers(EmbeddedZooKeeper):
    """Knows its clients by SASL, for which it loads what it needs for TLS too."""

    def modules(self):
        return (*MODULES, *NETTY)

    def options(self):
        users = self.data_dir / "jaas.conf"
        users.write_text('Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_broker="pw"; };')
        return [*super().options(), f"-Djava.security.auth.login.config={users}"]

    def settings(self):
        provider = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
        return {**super().settings(), "authProvider.sasl": provider}


def _by_sasl(server, password, **more):
    module = "org.apache.zookeeper.server.auth.DigestLoginModule"
    jaas = f'{module} required username="broker" password="{password}";'
    settings = {"zookeeper.set.acl": "true", "sparklog.zookeeper.sasl.jaas.config": jaas}
    return ZkClient(
        server.connect_string,
        session_timeout=6.0,
        connect_timeout=5.0,
        on_session=queue.Queue().put,
        security=ZooKeeperSecurity.divide(settings)[0],
    )


def test_znodes_are_those_of_a_user_that_sasl_knows(tmp_path, monkeypatch):
    pytest.importorskip("puresasl")
    with _ZooKeeperWithUsers(tmp_path, tick_time_ms=500, fsync=False) as server:
        zk = _by_sasl(server, "pw")
        zk.ensure_tree()
        acls, _ = zk.kazoo.get_acls("/config/users")
        zk.close()
        assert [(acl.perms, acl.id.scheme, acl.id.id) for acl in acls] == [(Permissions.ALL, "sasl", "broker")]
        with pytest.raises(CoordinationError, match="took neither user nor password") as refused:
            _by_sasl(server, "hidden")
        assert "hidden" not in str(refused.value)
        monkeypatch.setattr(KazooClient, "start_async", _slow_to_look(KazooClient.start_async))
        with pytest.raises(CoordinationError, match="took neither user nor password"):
            _by_sasl(server, "hidden")


def _slow_to_look(start_async):
    """Looks whether it is connected only after the login, which follows the connection, has been refused."""

    def start(kazoo):
        refused = threading.Event()
        kazoo.add_listener(lambda state: refused.set() if state == KazooState.LOST else None)
        live = start_async(kazoo)
        assert refused.wait(30)
        return live

    return start


@pytest.mark.parametrize(
    ("package", "module", "said"),
    [
        (None, "org.apache.zookeeper.server.auth.DigestLoginModule", "type: pip install pure-sasl$"),
        (connection, "com.sun.security.auth.module.Krb5LoginModule", "no other login module is known"),
    ],
    ids=["no package", "Kerberos"],
)
def test_what_sasl_lacks_is_said(monkeypatch, package, module, said):
    monkeypatch.setattr(connection, "find_spec", lambda _: package)
    jaas = {"sparklog.zookeeper.sasl.jaas.config": f'{module} required username="u" password="hidden";'}
    with pytest.raises(ConfigError, match=said) as refused:
        connection.kazoo_client([Endpoint("127.0.0.1", 1)], 6.0, security=ZooKeeperSecurity.divide(jaas)[0])
    assert "hidden" not in str(refused.value)
