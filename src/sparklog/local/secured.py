"""What makes a cluster on this machine a secure one: ``secure/`` in its directory, and what is in ZooKeeper at first.

Invariants:

- The directory is its owner's alone before anything is written into it. So are those of ZooKeeper, which has what the
  passwords are checked with, and of the logs.
- What is there is kept: a start makes what is missing, so one that died is completed by the next. Only a certificate
  that ends soon, or lacks a name, is replaced, for which alone the authority's key is read, and the addresses in the
  clients' files follow the cluster's.
- A password stands in one client's file, and nowhere else: in no argument, log or znode.
- Users and their rights are in ZooKeeper before the first broker starts, and before their files are there. A user that
  has a file is left alone, so what an administrator has changed or taken away stays so. One whose file is lost has the
  password of the new one.
"""

from __future__ import annotations

import re
import secrets
import socket
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from sparklog.clock import Clock, SystemClock
from sparklog.config.properties import format_properties, load_properties
from sparklog.config.zookeeper_security import ZooKeeperSecurity
from sparklog.errors import ConfigError
from sparklog.local.private_files import PUBLIC, make_private_directory, read_private, write_file
from sparklog.local.zookeeper import ZooKeeperTls
from sparklog.security.access import Operation, ResourceType
from sparklog.security.acl.entry import AclEntry
from sparklog.security.acl.pattern import WILDCARD, PatternType, ResourcePattern
from sparklog.security.certificates import CertificateAuthority, Credential, Description, describe, utc_now
from sparklog.security.principal import USER, Principal
from sparklog.security.sasl.scram_credential import ScramCredential, ScramMechanism
from sparklog.zk.acls import AclStore
from sparklog.zk.client import ZkClient
from sparklog.zk.entities import user_entity

ADMIN, SPARK = "admin", "spark"
BROKER = "sparklog-broker"
"""The common name of the brokers' certificate."""
CLIENTS, BROKERS = "SASL_SSL", "SSL"
"""The names of a broker's listeners."""
_MECHANISM = ScramMechanism.SHA_512
_PASSWORD_BYTES = 24
_TOKEN_KEY = "delegation.token.secret.key"
_RENEWED_BEFORE = timedelta(days=30)
_RIGHTS = {
    SPARK: {
        ResourceType.TOPIC: (Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DESCRIBE_CONFIGS),
        ResourceType.GROUP: (Operation.READ,),
        ResourceType.TRANSACTIONAL_ID: (Operation.WRITE,),
    }
}
"""Of a user that is no super user: to read and write every topic, exactly once too, and no more."""
_SESSION_TIMEOUT_S = 10.0
_PASSWORD = re.compile(r'^sasl\.jaas\.config=.*\spassword="(?P<password>[^"]+)";$', re.MULTILINE)


class SecureDirectory:
    """``root`` is ``secure/`` of a cluster's directory."""

    def __init__(self, root: Path, clock: Clock | None = None) -> None:
        self.root = root
        self._clock = clock or SystemClock()

    @property
    def exists(self) -> bool:
        """Whether a cluster was made secure here."""
        return self.root.exists()

    @property
    def broker_settings(self) -> Path:
        """What every broker is started with."""
        return self.root / "broker.properties"

    @property
    def zookeeper_tls(self) -> ZooKeeperTls:
        """The files of ZooKeeper's port, which are the brokers'."""
        return ZooKeeperTls(self._key_store, self._authority)

    def client_settings(self, user: str) -> Path:
        """The file for one of the users."""
        return self.root / f"{user}.properties"

    @property
    def metrics_token(self) -> Path:
        """The file with the token that Prometheus shows."""
        return self.root / "metrics.token"

    @property
    def _key_store(self) -> Path:
        return self.root / "broker.pem"

    @property
    def _authority(self) -> Path:
        return self.root / "ca.pem"

    def prepare(self, hosts: Iterable[str], private: Iterable[Path] = ()) -> None:
        """Have what servers need, for brokers that are reached by these names, and directories that are ``private``.

        Raises ConfigError.
        """
        for directory in (self.root, *private):
            make_private_directory(directory)
        self._certify(hosts)
        if not self.metrics_token.exists():
            write_file(self.metrics_token, f"{secrets.token_urlsafe(_PASSWORD_BYTES)}\n".encode())
        _write(self.broker_settings, _BROKER_HEADER, self._broker_settings())

    def admit(self, zookeeper: str, bootstrap: str) -> None:
        """Have the users in ZooKeeper, and their files. Raises CoordinationError and ConfigError."""
        zk = ZkClient(
            zookeeper,
            session_timeout=_SESSION_TIMEOUT_S,
            on_session=lambda _: None,
            security=ZooKeeperSecurity.divide(self._zookeeper_settings())[0],
        )
        try:
            zk.lasting(zk.own_root)
            zk.lasting(zk.ensure_tree)
            self.hand_out(bootstrap, partial(_enter, zk))
        finally:
            zk.close()

    def hand_out(self, bootstrap: str, enter: Callable[[str, str], None]) -> None:
        """Have the clients' files. A user that has none is entered before, with its password. Raises ConfigError."""
        for user, header in _CLIENT_HEADERS.items():
            password = self._password(user)
            if password is None:
                password = secrets.token_urlsafe(_PASSWORD_BYTES)
                enter(user, password)
            _write(self.client_settings(user), header, self._client_settings(user, password, bootstrap))

    def _certify(self, hosts: Iterable[str]) -> None:
        wanted = {*_LOCAL_NAMES, socket.gethostname(), *hosts}
        now = utc_now(self._clock.now_ms())
        why = "is not there"
        if self._key_store.exists():
            found = describe(read_private(self._key_store))[0]
            why = _why_renewed(found, wanted, now)
            if not why and self._authority.exists():
                return
            wanted |= set(found.names)
        made = self._certificate_authority(why).issue_broker(BROKER, sorted(wanted), now)
        write_file(self._key_store, made.key_store, force=True)

    def _certificate_authority(self, why: str) -> CertificateAuthority:
        """``why``: what the brokers' file needs it for. Raises ConfigError where its key is kept elsewhere."""
        key = self.root / "ca.key"
        if self._authority.exists():
            if not key.exists():
                raise ConfigError(
                    f"{self._key_store} {why}, so sparklog must make a new one; put the authority's key back for"
                    f" this start, as {key}"
                )
            return CertificateAuthority(Credential(read_private(key), self._authority.read_bytes()))
        name = f"sparklog {socket.gethostname()[:40]}"
        made = CertificateAuthority.make(name, utc_now(self._clock.now_ms()))
        write_file(key, made.credential.key, force=True)  # without its certificate a key that is there signs nothing
        write_file(self._authority, made.credential.certificate, mode=PUBLIC)
        return made

    def _broker_settings(self) -> dict[str, str]:
        return {
            "inter.broker.listener.name": BROKERS,
            f"listener.name.{BROKERS.lower()}.ssl.client.auth": "required",
            **self._stores("ssl"),
            "sasl.enabled.mechanisms": _MECHANISM.title,
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": f"User:{ADMIN};User:CN={BROKER}",
            "allow.everyone.if.no.acl.found": "false",
            _TOKEN_KEY: self._token_key(),
            "sparklog.metrics.token.file": str(self.metrics_token),
            **self._zookeeper_settings(),
        }

    def _token_key(self) -> str:
        """The one in the brokers' file, for the tokens that there are are good by it alone; a new one where none is."""
        known = load_properties(self.broker_settings) if self.broker_settings.exists() else {}
        return known.get(_TOKEN_KEY) or secrets.token_urlsafe(_PASSWORD_BYTES)

    def _zookeeper_settings(self) -> dict[str, str]:
        return {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",  # for Kafka's tools
            **self._stores("zookeeper.ssl"),
            "zookeeper.set.acl": "true",
        }

    def _stores(self, prefix: str) -> dict[str, str]:
        return {
            f"{prefix}.keystore.type": "PEM",
            f"{prefix}.keystore.location": str(self._key_store),
            **self._trust_store(prefix),
        }

    def _trust_store(self, prefix: str) -> dict[str, str]:
        return {f"{prefix}.truststore.type": "PEM", f"{prefix}.truststore.location": str(self._authority)}

    def _client_settings(self, user: str, password: str, bootstrap: str) -> dict[str, str]:
        return {
            "bootstrap.servers": bootstrap,
            "security.protocol": CLIENTS,
            "sasl.mechanism": _MECHANISM.title,
            "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required"
            f' username="{user}" password="{password}";',
            **self._trust_store("ssl"),
        }

    def _password(self, user: str) -> str | None:
        """The one in the user's file; None where there is no file. Raises ConfigError for a file without one."""
        path = self.client_settings(user)
        if not path.exists():
            return None
        found = _PASSWORD.search(read_private(path).decode(errors="replace"))
        if found is None:
            raise ConfigError(f"{path} has no password of {user}; delete it, and {user} is given a new one")
        return found["password"]


def _why_renewed(found: Description, wanted: Collection[str], now: datetime) -> str:
    """What the brokers' certificate lacks; nothing where it will do."""
    lacks = sorted({*wanted} - {*found.names})
    if lacks:
        return f"has not the name{'s' if len(lacks) > 1 else ''} {', '.join(lacks)}"
    return "" if found.not_after - now > _RENEWED_BEFORE else f"ends on {found.not_after:%Y-%m-%d}"


def _enter(zk: ZkClient, user: str, password: str) -> None:
    store = AclStore(zk)
    zk.guarded(store.ensure_tree)
    for kind, operations in _RIGHTS.get(user, {}).items():
        entries = frozenset(AclEntry(str(Principal(USER, user)), operation=each) for each in operations)
        zk.guarded(store.change, ResourcePattern(kind, WILDCARD, PatternType.LITERAL), entries.union)
    credential = ScramCredential.of_password(_MECHANISM, password).format()
    zk.guarded(zk.configs.update, user_entity(user), {_MECHANISM.title: credential})


_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
_BROKER_HEADER = "What the brokers of this cluster are started with. It is written by each start of the cluster."
_CLIENT_HEADERS = {
    ADMIN: "User admin, who may do everything. A program that can read this file is admin.",
    SPARK: "User spark, who may read and write every topic. A program that can read this file is spark.",
}


def _write(path: Path, header: str, settings: Mapping[str, str]) -> None:
    text = f"# {header}\n{format_properties(settings)}"
    if not path.exists() or read_private(path).decode() != text:
        write_file(path, text.encode(), force=True)
