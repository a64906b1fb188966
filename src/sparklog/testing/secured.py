"""A broker that lets nobody in without TLS and a password (SCRAM), and lets nobody do what no list allows."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from sparklog.security.sasl.scram_credential import ScramCredential, ScramMechanism
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.certificates import Certificates
from sparklog.zk.client import ZkClient
from sparklog.zk.entities import user_entity

ADMIN: Final = "admin"
"""The user that may do everything; the broker is this user to itself, too."""
_MECHANISM: Final = "SCRAM-SHA-512"
_LOGIN: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required"


class SecuredBroker(BrokerHarness):
    """``users``: their passwords by their names; ADMIN is among them.

    No password is an argument of its process: it reads them in a file.
    """

    def __init__(self, directory: Path, zookeeper: str, users: Mapping[str, str]) -> None:
        super().__init__(directory, zookeeper)
        self._directory = directory
        self.users = dict(users)
        self.token_secret = secrets.token_urlsafe(32)
        """By which delegation tokens are made."""
        certificates = Certificates()
        certificates.server.write_pem(directory / "server.pem")
        certificates.authority.write_pem(directory / "ca.pem")
        _write(directory / "server.properties", self._settings())
        file = ("--config", str(directory / "server.properties"))
        self.spec = replace(self.spec, arguments=(*file, *self.spec.arguments))

    def start(self) -> None:
        zk = ZkClient(self.spec.zookeeper, session_timeout=10, on_session=lambda _: None)
        try:
            zk.ensure_tree()
            for user, password in self.users.items():
                credential = ScramCredential.of_password(ScramMechanism.SHA_512, password).format()
                zk.configs.update(user_entity(user), {_MECHANISM: credential})
        finally:
            zk.close()
        super().start()

    def client(self, user: str, password: str | None = None) -> dict[str, str]:
        """The settings of this user's clients, by Kafka's names; ``password`` in the place of the right one."""
        return {
            "bootstrap.servers": self.address,
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._directory / "ca.pem"),
            "sasl.mechanism": _MECHANISM,
            "sasl.jaas.config": _login(user, self.users[user] if password is None else password),
        }

    def client_file(self, user: str) -> Path:
        """A file with these, as ``--command-config`` takes it."""
        return _write(self._directory / f"{user}.properties", self.client(user))

    def _settings(self) -> dict[str, str]:
        return {
            "listeners": f"SASL_SSL://127.0.0.1:{self.spec.port}",
            "security.inter.broker.protocol": "SASL_SSL",
            "sasl.mechanism.inter.broker.protocol": _MECHANISM,
            "sasl.enabled.mechanisms": _MECHANISM,
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": _login(ADMIN, self.users[ADMIN]),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._directory / "server.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._directory / "ca.pem"),
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": f"User:{ADMIN}",
            "delegation.token.secret.key": self.token_secret,
        }


def _login(user: str, password: str) -> str:
    return f'{_LOGIN} username="{user}" password="{password}";'


def _write(path: Path, settings: Mapping[str, str]) -> Path:
    path.touch(0o600)
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path
