"""Kafka 3.9.1 and a broker of ours with the same security: listeners, certificates, credentials, lists.

Both have the same settings and the same znodes, so that what a client meets at one of them it should meet at the other.

- Users ``alice`` and ``mallory`` have a password each (``PASSWORDS``), for SCRAM and PLAIN; ``alice`` may do
  everything, ``mallory`` nothing. By a certificate they are ``alice@tls`` and ``mallory@tls``, of whom the same holds.
- A listener has the name of its protocol, but for these: ``MUTUAL`` asks for certificates, ``ELSEWHERE`` has one of
  another host, ``SIGNED`` takes tokens of one issuer alone.
"""

import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from sparklog.local.ports import free_port
from sparklog.security.sasl.scram_credential import ScramCredential, ScramMechanism
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.certificates import Authority, Certificates
from sparklog.testing.kafka import KafkaBroker
from sparklog.zk.client import ZkClient
from sparklog.zk.entities import user_entity

PASSWORDS = {"alice": "alice-secret", "mallory": "mallory-secret"}
STORE_PASSWORD = "store-secret"
PROTOCOLS = {
    "PLAINTEXT": "PLAINTEXT",
    "SSL": "SSL",
    "MUTUAL": "SSL",
    "ELSEWHERE": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "SIGNED": "SASL_SSL",
}
"""The protocol of each listener."""
RULES = r"RULE:^CN=([A-Za-z]+),O=sparklog$/$1@tls/L,DEFAULT"
MODULES = {
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
_HANDLERS = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearer{}CallbackHandler"
LOGIN_HANDLER, _VALIDATOR = _HANDLERS.format("Login"), _HANDLERS.format("Validator")
AUDIENCE = "logs"
_AS_A_CLIENT = {"unsecuredLoginStringClaim_sub": "broker"}
"""Kafka's broker gets a token as a client would, whether or not it needs one."""


def jaas(mechanism, **options):
    told = "".join(f' {name}="{value}"' for name, value in options.items())
    return f"{MODULES[mechanism]} required{told};"


def key_set(key):
    """What an issuer publishes: its one key."""
    public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))
    return json.dumps({"keys": [{**public, "kid": "1", "use": "sig", "alg": "ES256"}]})


def token(key, now_s, **claims):
    """A signed one for ``alice``, good for an hour."""
    told = {"sub": "alice", "scope": "logs", "aud": AUDIENCE, "iat": now_s, "exp": now_s + 3600, **claims}
    return jwt.encode(told, key, "ES256", headers={"kid": "1"})


@dataclass
class Stores:
    """The files of keys and certificates in ``directory``."""

    directory: Path
    certificates: Certificates = field(default_factory=Certificates)
    issuer: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def __post_init__(self):
        made = self.certificates
        mallory = made.authority.issue("mallory", ())
        for name in ("server", "client", "expired", "elsewhere", "stranger"):
            getattr(made, name).write_pem(self.directory / f"{name}.pem")
        mallory.write_pem(self.directory / "mallory.pem")
        made.client.write_pkcs12(self.directory / "client.p12", STORE_PASSWORD)
        made.authority.write_pem(self.directory / "ca.pem")
        made.authority.write_pkcs12(self.directory / "ca.p12", STORE_PASSWORD)
        Authority("somebody").write_pem(self.directory / "other-ca.pem")
        (self.directory / "keys.json").write_text(key_set(self.issuer))

    def __getitem__(self, name):
        return str(self.directory / name)

    def trust(self, name="ca.pem"):
        return {"ssl.truststore.type": "PEM", "ssl.truststore.location": self[name]}

    def own(self, name):
        return {"ssl.keystore.type": "PEM", "ssl.keystore.location": self[name]}


def broker_settings(stores, ports):
    """What both brokers are told; each has ports of its own."""
    of_sasl = {}
    for listener in ("sasl_plaintext", "sasl_ssl"):
        for mechanism in MODULES:
            options = {f"user_{name}": password for name, password in PASSWORDS.items()} if mechanism == "PLAIN" else {}
            if mechanism == "OAUTHBEARER":
                options = _AS_A_CLIENT
            of_sasl[f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"] = jaas(mechanism, **options)
    signed = "listener.name.signed."
    return {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "advertised.listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in PROTOCOLS.items()),
        "inter.broker.listener.name": "PLAINTEXT",
        **stores.own("server.pem"),
        **stores.trust(),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.principal.mapping.rules": RULES,
        "listener.name.elsewhere.ssl.keystore.type": "PEM",
        "listener.name.elsewhere.ssl.keystore.location": stores["elsewhere.pem"],
        "sasl.enabled.mechanisms": ",".join(MODULES),
        **of_sasl,
        f"{signed}sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{signed}oauthbearer.sasl.jaas.config": jaas("OAUTHBEARER", **_AS_A_CLIENT),
        f"{signed}oauthbearer.sasl.server.callback.handler.class": _VALIDATOR,
        f"{signed}sasl.oauthbearer.jwks.endpoint.url": Path(stores["keys.json"]).as_uri(),
        f"{signed}sasl.oauthbearer.expected.audience": AUDIENCE,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS;User:alice;User:alice@tls",
        "group.initial.rebalance.delay.ms": 0,
        "connection.failed.authentication.delay.ms": 100,
    }


def add_users(zookeeper):
    """Write the credentials of SCRAM below ``zookeeper``, a connect string with its chroot."""
    zk = ZkClient(zookeeper, session_timeout=10, on_session=lambda _: None)
    try:
        zk.ensure_tree()
        for user, password in PASSWORDS.items():
            made = {each.title: ScramCredential.of_password(each, password).format() for each in ScramMechanism}
            zk.configs.update(user_entity(user), made)
    finally:
        zk.close()


@dataclass
class Secured:
    """A running broker, Kafka's or ours, and what clients of it are told."""

    broker: KafkaBroker | BrokerHarness
    ports: dict[str, int]
    stores: Stores

    def client(self, listener, **more):
        """A client's settings, in Kafka's words, with the right certificates to trust."""
        protocol = PROTOCOLS[listener]
        trusted = self.stores.trust() if protocol.endswith("SSL") else {}
        return {
            "bootstrap.servers": f"127.0.0.1:{self.ports[listener]}",
            "security.protocol": protocol,
            **trusted,
            **more,
        }

    def with_password(self, listener, mechanism, user="alice", password=None):
        login = jaas(mechanism, username=user, password=PASSWORDS.get(user) if password is None else password)
        return {**self.client(listener), "sasl.mechanism": mechanism, "sasl.jaas.config": login}


@contextmanager
def ours(home, zookeeper, stores, **more):
    """A broker of ours; ``more`` settings count before the common ones."""
    ports = _prepared(zookeeper)
    settings = broker_settings(stores, ports) | more
    with BrokerHarness(home, zookeeper, port=ports["PLAINTEXT"], settings=settings) as broker:
        yield Secured(broker, ports, stores)


@contextmanager
def kafka(home, zookeeper, stores, **more):
    """Kafka 3.9.1 likewise."""
    ports = _prepared(zookeeper)
    settings = broker_settings(stores, ports) | more
    with KafkaBroker(home, zookeeper, port=ports["PLAINTEXT"], extra_props=settings) as broker:
        yield Secured(broker, ports, stores)


def _prepared(zookeeper):
    add_users(zookeeper)
    return {name: free_port() for name in PROTOCOLS}


def write_properties(path, settings):
    """A file as Java's tools take it."""
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)
