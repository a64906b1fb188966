"""A broker with listeners of every kind, attacked by clients that have no credentials, have some, or once had."""

import base64
import contextlib
import hmac
import json
import random
import select
import socket
import ssl
import struct
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
from broker.handling.test_authorization import codes_in
from broker.requests_of_strangers import BETWEEN_BROKERS, CASES, CLUSTER_ACTION, TOKENS, body_of
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from fuzz.hostile import HostileEncoder, HostileFill, framed, mutated
from integration import wire
from kazoo.client import KazooClient
from kazoo.security import make_acl
from protocol.schema_bytes import SchemaEncoder

from sparklog.broker.leases import LONGEST_S
from sparklog.broker.registry import HANDLERS
from sparklog.client.admin.admin import AclBinding, AclEntry, AclFilter, Admin, Operation, ResourcePattern, ResourceType
from sparklog.config.broker import ACL_AUTHORIZER
from sparklog.errors import AuthenticationFailed, ErrorCode, SparklogError
from sparklog.local.ports import free_port
from sparklog.net.connection import BlockingConnection
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import fetch as fetch_wire
from sparklog.protocol.hot.fetch import FetchPartition, FetchRequest
from sparklog.protocol.messages import (
    SCHEMAS,
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    LeaseSegmentsRequest,
    RenewDelegationTokenRequest,
    decode_response,
    is_flexible,
)
from sparklog.protocol.wire import ZERO_UUID
from sparklog.security.access import CLUSTER
from sparklog.security.acl.entry import Permission
from sparklog.security.connecting import ConnectionSecurity
from sparklog.security.sasl.plain import Plain
from sparklog.security.sasl.scram import Scram
from sparklog.security.sasl.scram_credential import ScramCredential, ScramMechanism
from sparklog.structs import Endpoint, TopicPartition
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.certificates import Authority, Certificates
from sparklog.testing.eventually import eventually
from sparklog.zk.client import ZkClient
from sparklog.zk.entities import user_entity

pytestmark = pytest.mark.integration

LISTENERS = ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL", "SSL")
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SECRETS = {user: f"{user}-has-a-secret" for user in ("admin", "eve", "mallory")}
KEY = "the-brokers-key-of-tokens"
ISSUER, AUDIENCE = "https://issuer.example", "kafka"
EXISTS, ABSENT = "leak-exists", "leak-absent"
SASL = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
LARGEST_OF_STRANGERS = 64 << 10
MOST_STRANGERS, CROWD = 1000, 1500
"""The broker keeps so many who are not known yet, and so many come."""


class Target(BrokerHarness):
    """Has ``ports`` by listener."""

    ports: dict[str, int]


@pytest.fixture(scope="module")
def zk(zookeeper):
    client = ZkClient(f"{zookeeper.connect_string}/attacks", session_timeout=10, on_session=lambda _: None)
    client.ensure_tree()
    yield client
    client.close()


@pytest.fixture(scope="module")
def certificates():
    return Certificates()


@pytest.fixture(scope="module")
def issuer():
    """The key that signs tokens."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.fixture(scope="module")
def directory(tmp_path_factory, certificates, issuer):
    found = tmp_path_factory.mktemp("attacked")
    certificates.server.write_pem(found / "server.pem")
    certificates.authority.write_pem(found / "ca.pem")
    public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(issuer.public_key()))
    (found / "keys.json").write_text(json.dumps({"keys": [public | {"kid": "one"}]}))
    return found


@pytest.fixture(scope="module")
def target(zookeeper, zk, directory):
    """The broker, with a topic; ``ports`` by listener."""
    ports = {name: free_port() for name in LISTENERS}
    for user, password in SECRETS.items():
        set_password(zk, user, password)
    users = " ".join(f'user_{user}="{password}"' for user, password in SECRETS.items())
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{PLAIN_MODULE} {users};",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{PLAIN_MODULE} {users};",
        "sasl.oauthbearer.jwks.endpoint.url": (directory / "keys.json").as_uri(),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.server.max.receive.size": LARGEST_OF_STRANGERS,
        "connection.failed.authentication.delay.ms": 10,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": directory / "server.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": directory / "ca.pem",
        "listener.name.ssl.ssl.client.auth": "required",
        "authorizer.class.name": ACL_AUTHORIZER,
        "super.users": "User:admin;User:ANONYMOUS",
        "auto.create.topics.enable": "false",
        "log.retention.ms": "-1",  # what a test writes is of the year 1970
        "log.retention.check.interval.ms": "50",
        "log.segment.delete.delay.ms": "0",
        "delegation.token.secret.key": KEY,
    }
    harness = Target(directory, f"{zookeeper.connect_string}/attacks", port=ports["PLAINTEXT"], settings=settings)
    harness.ports = ports
    harness.start()
    with wire.connect(harness.address) as connection:
        assert wire.create_topic(connection, EXISTS, 2)[0] is ErrorCode.NONE
        assert wire.produce(connection, TopicPartition(EXISTS, 0), wire.batch_of(b"v"))[0] is ErrorCode.NONE
    yield harness
    assert harness.alive
    said = harness.output()
    harness.stop()
    assert "Traceback" not in said
    assert not [secret for secret in (*SECRETS.values(), KEY) if secret in said]


def set_password(zk, user, password):
    credential = password and ScramCredential.of_password(ScramMechanism.SHA_256, password).format()
    zk.configs.update(user_entity(user), {ScramMechanism.SHA_256.title: credential})


@pytest.fixture
def administrator(target):
    with Admin(bootstrap_servers=target.address) as found:
        yield found
        found.delete_acls([AclFilter()])


def reading(topic=EXISTS, principal="User:eve"):
    return AclBinding(ResourcePattern(ResourceType.TOPIC, topic), AclEntry(principal, "*", Operation.READ))


def as_user(target, user="eve", mechanism=None):
    security = ConnectionSecurity(mechanism=mechanism or Plain(user, SECRETS[user]))
    return BlockingConnection(Endpoint("127.0.0.1", target.ports["SASL_PLAINTEXT"]), security=security)


def dial(target, listener="SASL_PLAINTEXT"):
    return contextlib.closing(socket.create_connection(("127.0.0.1", target.ports[listener]), 60))


def handshake(mechanism=b"PLAIN", version=1):
    return wire.request_bytes(17, version, struct.pack(">h", len(mechanism)) + mechanism)


def showing(token, version=0):
    return wire.request_bytes(36, version, struct.pack(">i", len(token)) + token)


def plain_token(user="eve"):
    return f"\0{user}\0{SECRETS[user]}".encode()


def read_answer(sock):
    """One answer without its length; None where the broker hangs up."""
    with contextlib.suppress(ConnectionResetError):
        head = exactly(sock, 4)
        if len(head) == 4:
            return exactly(sock, int.from_bytes(head, "big"))
    return None


def exactly(sock, size):
    found = b""
    while len(found) < size and (piece := sock.recv(size - len(found))):
        found += piece
    return found


def code_of(answer):
    """The error code of SaslHandshake and SaslAuthenticate."""
    return ErrorCode(int.from_bytes(answer[4:6], "big"))


def authenticated(sock, user="eve"):
    sock.sendall(handshake())
    assert code_of(read_answer(sock)) is ErrorCode.NONE
    sock.sendall(showing(plain_token(user)))
    assert code_of(read_answer(sock)) is ErrorCode.NONE
    return sock


# Before anybody is known


def test_what_is_sent_behind_a_wrong_password_tells_nothing_sooner(target):
    with dial(target) as sock:
        sock.sendall(handshake())
        read_answer(sock)
        sock.sendall(showing(b"\0eve\0guess") + wire.request_bytes(18, 0) * 50 + showing(plain_token()))
        assert code_of(read_answer(sock)) is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert wire.receive_until_closed(sock) == b""


@pytest.mark.parametrize(
    "opening",
    [
        b"\x7f\xff\xff\xff",
        b"\xff\xff\xff\xff",
        (LARGEST_OF_STRANGERS + 1).to_bytes(4, "big"),
        wire.request_bytes(18, 99) * 2 + wire.request_bytes(3, 1),
        handshake(b"GSSAPI"),
        handshake() + handshake(),
        handshake() + wire.request_bytes(18, 0),
        handshake(version=0) + b"\0\0\0\0",
        showing(plain_token()),
        handshake(version=9),
        framed(b""),
        framed(b"\0\x24"),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=str,
)
@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SSL", "SASL_SSL"])
def test_no_other_beginning_leads_in(target, opening, listener):
    with dial(target, listener) as sock:
        with contextlib.suppress(OSError):
            sock.sendall(opening + wire.request_bytes(3, 1, b"\xff\xff\xff\xff"))
            sock.shutdown(socket.SHUT_WR)
        assert EXISTS.encode() not in wire.receive_until_closed(sock)


def test_a_connection_stays_its_first_principals(target):
    with dial(target) as sock:
        authenticated(sock)
        sock.sendall(handshake())
        assert code_of(read_answer(sock)) is ErrorCode.ILLEGAL_SASL_STATE
        sock.sendall(showing(plain_token("admin")))
        assert code_of(read_answer(sock)) is ErrorCode.ILLEGAL_SASL_STATE
        sock.sendall(wire.request_bytes(3, 1, b"\xff\xff\xff\xff"))
        assert EXISTS.encode() not in read_answer(sock)


def test_what_scram_said_once_is_good_for_nothing_again(target):
    conversation, said = Scram(ScramMechanism.SHA_256, "eve", SECRETS["eve"]).begin("log1"), []
    with dial(target) as sock:
        sock.sendall(handshake(b"SCRAM-SHA-256"))
        read_answer(sock)
        token = conversation.first()
        while token is not None:
            said.append(token)
            sock.sendall(showing(token))
            token = conversation.respond(read_answer(sock)[12:])
    with dial(target) as sock:
        sock.sendall(handshake(b"SCRAM-SHA-256"))
        read_answer(sock)
        codes = []
        for token in said:
            sock.sendall(showing(token))
            codes.append(code_of(read_answer(sock)))
    assert codes == [ErrorCode.NONE, ErrorCode.SASL_AUTHENTICATION_FAILED]


@pytest.mark.parametrize(
    ("mechanism", "tokens"),
    [
        ("SCRAM-SHA-256", [b"y,,n=eve,r=abc"]),
        ("SCRAM-SHA-256", [b"p=tls-unique,,n=eve,r=abc"]),
        ("SCRAM-SHA-256", [b"n,a=admin,n=eve,r=abc"]),
        ("SCRAM-SHA-256", [b"n,,n=eve,r="]),
        ("SCRAM-SHA-256", [b"n,,m=x,n=eve,r=abc"]),
        ("SCRAM-SHA-256", [b"n,,n=eve,r=abc", b"c=biws,r=abc,p="]),
        ("SCRAM-SHA-256", [b"n,,n=eve,r=abc", b""]),
        ("SCRAM-SHA-256", [b"n,,n=eve,r=abc,tokenauth=true", b"c=biws,r=abc,p=AAAA"]),
        ("SCRAM-SHA-256", [b"n,,n=" + b"x" * 60_000 + b",r=abc"]),
        ("SCRAM-SHA-256", [b"n,,n=" + b"x" * 15_000 + b",r=abc", b"c=biws,r=abc,p=AAAA"]),
        ("SCRAM-SHA-256", [b"\xff" * 1000]),
        ("PLAIN", [b"\0eve\0"]),
        ("PLAIN", [b"\0\0" + SECRETS["eve"].encode()]),
        ("PLAIN", [b"admin\0eve\0" + SECRETS["eve"].encode()]),
        ("PLAIN", [b"\0eve\0" + SECRETS["eve"].encode() + b"\0"]),
        ("PLAIN", [b"\0ev\xff\0x"]),
        ("PLAIN", [b""]),
    ],
)
def test_no_such_token_is_believed(target, mechanism, tokens):
    with dial(target) as sock:
        sock.sendall(handshake(mechanism.encode()))
        read_answer(sock)
        for token in tokens:
            sock.sendall(showing(token))
            code = code_of(read_answer(sock))
        assert code is ErrorCode.SASL_AUTHENTICATION_FAILED
        sock.sendall(wire.request_bytes(3, 1, b"\xff\xff\xff\xff"))
        assert wire.receive_until_closed(sock) == b""


def claims(**other):
    now = int(time.time())
    found = {"sub": "eve", "iat": now, "exp": now + 600, "iss": ISSUER, "aud": AUDIENCE} | other
    return {name: value for name, value in found.items() if value is not None}


def segment(value):
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def forged_tokens(key):
    """Tokens that nobody may believe, by what is wrong with them."""
    now, other = int(time.time()), rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def signed(by=key, headers=None, algorithm="RS256", **changed):
        return jwt.encode(claims(**changed), by, algorithm, headers={"kid": "one"} | (headers or {})).encode()

    def unsigned(header, body=None):
        return segment(header) + b"." + segment(claims() if body is None else body) + b"."

    def by_secret(secret):
        head = segment({"alg": "HS256", "kid": "one"}) + b"." + segment(claims())
        return head + b"." + segment(hmac.digest(secret, head, "sha256"))

    good = signed()
    head, body, signature = good.split(b".")
    return {
        "alg none": unsigned({"alg": "none"}),
        "alg none by kid": unsigned({"alg": "none", "kid": "one"}),
        "alg None": unsigned({"alg": "nOnE", "kid": "one"}),
        "HS256 by the public key": by_secret(public),
        "HS256 by nothing": by_secret(b""),
        "another's key": signed(by=other),
        "another's key in the header": signed(
            by=other, headers={"jwk": json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(other.public_key()))}
        ),
        "kid is a path": signed(by=other, headers={"kid": "../../keys.json"}),
        "kid is a number": segment({"alg": "RS256", "kid": 7}) + b"." + body + b"." + signature,
        "kid is a list": segment({"alg": "RS256", "kid": ["one"]}) + b"." + body + b"." + signature,
        "another alg": segment({"alg": "PS256", "kid": "one"}) + b"." + body + b"." + signature,
        "critical": signed(headers={"crit": ["mine"], "mine": 1}),
        "not encoded": signed(headers={"b64": False, "crit": ["b64"]}),
        "claims changed": head + b"." + segment(claims(sub="admin")) + b"." + signature,
        "without a signature": head + b"." + body + b".",
        "expired": signed(exp=now - 60, iat=now - 600),
        "not yet": signed(nbf=now + 600),
        "issued later": signed(iat=now + 600, exp=now + 1200),
        "endless": signed(exp=1e30),
        "without an end": signed(exp=None),
        "for ever": segment({"alg": "RS256", "kid": "one"}) + b"." + segment(b'{"exp":Infinity}') + b"." + signature,
        "another audience": signed(aud="others"),
        "no audience": signed(aud=None),
        "another issuer": signed(iss="https://evil.example"),
        "no issuer": signed(iss=None),
        "nobody": signed(sub=""),
        "many": signed(sub=["admin"]),
        "deep": segment(b"[" * 30_000) + b"." + body + b"." + signature,
        "deep in it": segment(b'{"alg":"RS256","a":' + b"[" * 30_000) + b"." + body + b"." + signature,
        "huge number": segment(b'{"alg":"RS256","a":' + b"9" * 30_000 + b"}") + b"." + body + b"." + signature,
        "five parts": b".".join([head, body, signature, signature, signature]),
        "dots": b"." * 1000,
    }


def test_a_token_is_believed_only_as_the_issuer_has_made_it(target, issuer):
    def outcome(token):
        with dial(target) as sock:
            sock.sendall(handshake(b"OAUTHBEARER"))
            read_answer(sock)
            sock.sendall(showing(b"n,,\x01auth=Bearer " + token + b"\x01\x01"))
            answer = read_answer(sock)
            if code_of(answer) is not ErrorCode.NONE or b"invalid_token" in answer:
                sock.sendall(showing(b"\x01"))
                assert code_of(read_answer(sock) or answer) is ErrorCode.SASL_AUTHENTICATION_FAILED
                return "refused"
            sock.sendall(wire.request_bytes(3, 1, b"\xff\xff\xff\xff"))
            return "served" if read_answer(sock) is not None else "closed"

    assert outcome(jwt.encode(claims(), issuer, "RS256", headers={"kid": "one"}).encode()) == "served"
    forged = forged_tokens(issuer)
    assert {why: outcome(token) for why, token in forged.items()} == dict.fromkeys(forged, "refused")


def token_of(target, user="eve", **asked):
    """A delegation token, its id and its HMAC, made by the user."""
    message = CreateDelegationTokenRequest(
        **{"owner_principal_type": None, "owner_principal_name": None, "renewers": [], "max_lifetime_ms": -1} | asked
    )
    with as_user(target, user) as connection:
        answer = wire.ask(connection, ApiKey.CREATE_DELEGATION_TOKEN, 3, message)
    return ErrorCode(answer.error_code), answer.token_id, bytes(answer.hmac)


def by_token(token_id, secret, is_token=True):
    return Scram(ScramMechanism.SHA_256, token_id, base64.b64encode(secret).decode(), is_token=is_token)


def test_a_token_is_its_owners_and_ends_when_that_says_so(target):
    code, token_id, secret = token_of(target)
    assert code is ErrorCode.NONE
    refused, *_ = token_of(target, owner_principal_type="User", owner_principal_name="admin")
    assert refused is not ErrorCode.NONE
    for wrong in (
        by_token(token_id, b"guess"),
        by_token(token_id, secret, is_token=False),
        by_token("eve", SECRETS["eve"].encode()),
        Scram(ScramMechanism.SHA_256, "eve", SECRETS["eve"], is_token=True),
    ):
        with pytest.raises(AuthenticationFailed):
            as_user(target, mechanism=wrong)
    with as_user(target, mechanism=by_token(token_id, secret)) as bearer, as_user(target, "mallory") as mallory:
        for connection, owners in ((bearer, None), (mallory, None)):
            seen = wire.ask(
                connection, ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, DescribeDelegationTokenRequest(owners=owners)
            )
            assert seen.tokens == []
        for version, api, message in (
            (2, ApiKey.RENEW_DELEGATION_TOKEN, RenewDelegationTokenRequest(hmac=secret, renew_period_ms=1)),
            (2, ApiKey.EXPIRE_DELEGATION_TOKEN, ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=-1)),
        ):
            assert wire.ask(mallory, api, version, message).error_code != ErrorCode.NONE
            assert wire.ask(bearer, api, version, message).error_code != ErrorCode.NONE
        assert wire.topic_names(bearer) == set()
        with as_user(target) as eve:
            ended = ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=-1)
            assert wire.ask(eve, ApiKey.EXPIRE_DELEGATION_TOKEN, 2, ended).error_code == ErrorCode.NONE
        with pytest.raises(SparklogError):
            wire.topic_names(bearer)
    with pytest.raises(AuthenticationFailed):
        as_user(target, mechanism=by_token(token_id, secret))
    assert base64.b64encode(secret).decode() not in target.output()


# Every API


@pytest.fixture
def strangers(target, directory, certificates, tmp_path):
    """A connection of each kind of client that no list says anything of."""
    code, token_id, secret = token_of(target)
    assert code is ErrorCode.NONE
    certified = trusting(directory, certificates.client, tmp_path / "alice.pem")
    by_certificate = ConnectionSecurity(tls=certified)
    with (
        as_user(target) as by_password,
        as_user(target, mechanism=by_token(token_id, secret)) as bearer,
        BlockingConnection(Endpoint("localhost", target.ports["SSL"]), security=by_certificate) as alice,
    ):
        yield {"password": by_password, "token": bearer, "certificate": alice}


NOT_HERE = ("Metadata-by-id", "Fetch-by-id", "CommitCompaction")
"""They name a topic by an id, or a grant, that this broker does not have."""


def codes_of(connection, case):
    """The codes of an answer, but NONE."""
    connection.send(case.api, case.version, [body_of(case.api, case.version, case.fields)])
    answer: Any = decode_response(case.api, case.version, connection.receive()[2])
    return codes_in(answer.to_dict()) - {ErrorCode.NONE}


@pytest.mark.parametrize("kind", ["password", "token", "certificate"])
def test_every_api_refuses_every_kind_of_stranger(strangers, kind):
    """As it refuses the one that is asked for in ``test_authorization``, which says what a request needs."""
    asked = [case for case in CASES if not case.allowed and case not in TOKENS and case.name not in NOT_HERE]
    assert {case.name: codes_of(strangers[kind], case) for case in asked} == {case.name: case.codes for case in asked}
    if kind == "token":
        found = set().union(*(codes_of(strangers[kind], case) for case in TOKENS))
        assert found == {ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED}


def test_every_api_of_brokers_refuses_who_may_everything_else(target, administrator):
    everything = [
        AclBinding(ResourcePattern(kind, name), AclEntry("User:mallory", "*"))
        for kind, name in (
            (ResourceType.TOPIC, "*"),
            (ResourceType.GROUP, "*"),
            (ResourceType.TRANSACTIONAL_ID, "*"),
            (ResourceType.CLUSTER, CLUSTER.name),
        )
    ]
    no_broker = AclEntry("User:mallory", "*", Operation.CLUSTER_ACTION, Permission.DENY)
    administrator.create_acls([*everything, AclBinding(everything[-1].pattern, no_broker)])
    asked = [case for case in CASES if CLUSTER_ACTION in case.asks]
    assert len(asked) > len(BETWEEN_BROKERS), "the Fetch of a follower is among them"
    with as_user(target, "mallory") as mallory:
        found = {case.name: codes_of(mallory, case) for case in asked}
    altered = found.pop("WriteTxnMarkers")
    assert ErrorCode.CLUSTER_AUTHORIZATION_FAILED not in altered, "for it Alter suffices, as in Kafka"
    assert found == {case.name: case.codes for case in asked if case.name in found}


# TLS


def speaks(target, listener, context):
    """Whether a client with this context is served."""
    try:
        with dial(target, listener) as plain, context.wrap_socket(plain, server_hostname="localhost") as sock:
            sock.sendall(wire.request_bytes(18, 0))
            return read_answer(sock) is not None
    except OSError:
        return False


def trusting(directory, certified=None, path=None):
    context = ssl.create_default_context(cafile=directory / "ca.pem")
    if certified is not None:
        context.load_cert_chain(certified.write_pem(path))
    return context


def test_only_certificates_that_are_good_now_and_of_the_authority_are_taken(target, directory, certificates, tmp_path):
    authority, path = certificates.authority, tmp_path / "client.pem"
    assert speaks(target, "SSL", trusting(directory, certificates.client, path))
    pretender = Authority("test authority")  # of the same name as the authority that is trusted
    shown = {
        "none": None,
        "expired": certificates.expired,
        "not yet valid": authority.issue("tomorrow", (), begins=timedelta(days=1)),
        "another authority's": certificates.stranger,
        "of a pretender": pretender.issue("admin", ()),
        "issued by no authority": issued_by_a_client(certificates),
    }
    served = {why: speaks(target, "SSL", trusting(directory, each, path)) for why, each in shown.items()}
    assert served == dict.fromkeys(shown, False)


def issued_by_a_client(certificates):
    """By who has a good certificate, and is no authority."""
    forger = Authority.__new__(Authority)
    forger.name, forger._key = certificates.client.certificate.subject, certificates.client.key
    forger.certificate = certificates.client.certificate
    return forger.issue("admin", ())


@pytest.mark.parametrize("listener", ["SSL", "SASL_SSL"])
def test_no_older_tls_and_no_weak_suite_is_agreed_on(target, listener):
    for weaken in (
        lambda each: setattr(each, "maximum_version", ssl.TLSVersion.TLSv1_1),
        lambda each: (setattr(each, "maximum_version", ssl.TLSVersion.TLSv1_2), each.set_ciphers("aNULL:eNULL")),
    ):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_ciphers("ALL:@SECLEVEL=0")
        with contextlib.suppress(DeprecationWarning, ssl.SSLError):
            weaken(context)
            assert not speaks(target, listener, context)


def test_an_authority_that_is_trusted_no_more_lets_nobody_in(target, directory, certificates, tmp_path):
    """There are no lists of revoked certificates: this is how those that an authority has signed are revoked."""
    other, path = Certificates(), tmp_path / "client.pem"
    try:
        other.authority.write_pem(directory / "ca.pem")
        mine = ssl.create_default_context(cadata=certificates.authority.pem)
        mine.load_cert_chain(other.client.write_pem(path))
        eventually(lambda: speaks(target, "SSL", mine), what="the new authority to be trusted")
        mine.load_cert_chain(certificates.client.write_pem(path))
        assert not speaks(target, "SSL", mine)
    finally:
        certificates.authority.write_pem(directory / "ca.pem")
        mine.load_cert_chain(certificates.client.write_pem(path))
        eventually(lambda: speaks(target, "SSL", mine), what="the former authority to be trusted")


def test_slow_handshakes_by_the_thousand_keep_nobody_out(target, directory, certificates, tmp_path):
    """Of TLS and of SASL, a byte at a time: the first ones give way, whoever is known goes on, and others come in."""
    context = trusting(directory, certificates.client, tmp_path / "client.pem")
    with as_user(target, "admin") as known, contextlib.ExitStack() as stack:
        assert wire.topic_names(known) >= {EXISTS}
        crowd = [stack.enter_context(dial(target, ("SSL", "SASL_PLAINTEXT")[each % 2])) for each in range(CROWD)]
        for byte in (b"\x16", b"\x03", b"\x01"):
            for each in crowd:
                with contextlib.suppress(OSError):  # it has given way
                    each.sendall(byte)
            assert wire.topic_names(known) >= {EXISTS}
            assert speaks(target, "SSL", context)
            assert_serves(target)
        eventually(lambda: _hung_up_on(crowd) >= CROWD - MOST_STRANGERS, what="the first to give way")


def _hung_up_on(crowd):
    """How many of them: none is answered anything else."""
    poll = select.poll()
    for each in crowd:
        poll.register(each, select.POLLIN)
    return len(poll.poll(0))


@pytest.mark.parametrize("certified", [False, True])
def test_a_client_that_wants_tls_says_nothing_in_the_clear(certificates, tmp_path, certified):
    """Whoever stands between answers plainly what a listener without TLS would, or with a certificate of their own."""
    heard = bytearray()

    def serve(listening):
        with contextlib.suppress(OSError), listening.accept()[0] as met:
            if certified:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(certificates.stranger.write_pem(tmp_path / "stranger.pem"))
                with context.wrap_socket(met, server_side=True) as secured:
                    heard.extend(secured.recv(1 << 16))
            else:
                while data := met.recv(1 << 16):
                    heard.extend(data)
                    met.sendall(framed(data[8:12] + b"\0\0\0\0\0\1\0\5PLAIN"))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        context = ssl.create_default_context(cadata=certificates.authority.pem)
        security = ConnectionSecurity(context, Plain("eve", SECRETS["eve"]))
        with pytest.raises(SparklogError):
            BlockingConnection(Endpoint("localhost", listening.getsockname()[1]), security=security)
        thread.join(60)
    assert SECRETS["eve"].encode() not in heard
    assert b"eve" not in heard


# What was known once


def test_a_right_that_is_taken_away_ends_sessions_and_long_polls(target, administrator):
    administrator.create_acls([reading()])
    version, tp = wire.BY_NAME, TopicPartition(EXISTS, 1)

    def fetching(session_id, epoch, partitions, wait_ms=0):
        return fetch_wire.encode_request(
            FetchRequest(wait_ms, 1, 1 << 20, partitions, session_id=session_id, session_epoch=epoch), version
        )

    asked = [FetchPartition(EXISTS, ZERO_UUID, 1, 0, 1 << 20)]
    with as_user(target) as eve, as_user(target) as waiting, wire.connect(target.address) as owner:
        eve.send(ApiKey.FETCH, version, fetching(0, 0, asked))
        session_id = int.from_bytes(bytes(eve.receive()[2])[6:10], "big")
        assert session_id > 0
        waiting.send(ApiKey.FETCH, version, fetching(0, -1, asked, wait_ms=60_000))
        administrator.delete_acls([AclFilter()])
        assert wire.produce(owner, tp, wire.batch_of(b"not for eve"))[0] is ErrorCode.NONE
        eve.send(ApiKey.FETCH, version, fetching(session_id, 1, []))
        for connection in (eve, waiting):
            body = bytes(connection.receive()[2])
            assert b"not for eve" not in body
            assert b"\0\x1d" in body, "TOPIC_AUTHORIZATION_FAILED"


LEASED = LeaseSegmentsRequest.LeaseTopic


def lease(connection, topic=None, topic_id=ZERO_UUID, duration_ms=2**31 - 1, ended=()):
    """What LeaseSegments answers who asks for the first ten offsets of partition 0."""
    asked = LEASED.LeasePartition(partition_index=0, start_offset=0, end_offset=10)
    topics = [] if topic is None else [LEASED(topic=topic, topic_id=topic_id, partitions=[asked])]
    request = LeaseSegmentsRequest(
        isolation_level=0, duration_ms=duration_ms, max_files=-1, topics=topics, ended_leases=[*ended]
    )
    return connection.request(ApiKey.LEASE_SEGMENTS, lambda _: request)


def told_of(answer):
    """The error, and the files."""
    (partition,) = answer.topics[0].partitions
    return ErrorCode(partition.error_code), [Path(each.path) for each in partition.files]


def test_leases_are_neither_forged_nor_outlive_the_right_to_read(target, administrator):
    names = ("leased", "leased-for-a-moment", "leased-by-nobody")
    with as_user(target) as eve, as_user(target, "mallory") as mallory, wire.connect(target.address) as owner:
        for name in names:
            assert wire.create_topic(owner, name, configs={"segment.bytes": "1000"})[0] is ErrorCode.NONE
            for _ in range(3):
                wire.produce(owner, TopicPartition(name, 0), wire.batch_of(b"v" * 600))
        administrator.create_acls([reading(name) for name in names])
        ids = {each.name: each.topic_id for each in wire.metadata(owner, *names).topics}
        granted, short, known = (
            lease(eve, name, ids[name], duration_ms) for name, duration_ms in zip(names, (2**31 - 1, 1, 0), strict=True)
        )
        (held, *_), (brief, *_), (free, *_) = (told_of(each)[1] for each in (granted, short, known))
        assert granted.duration_ms == LONGEST_S * 1000, "however long was asked for"

        for name in ("leased", "../attacks/leased", "leased-0/..", str(held), str(held.parent)):
            assert told_of(lease(mallory, name, ids["leased"])) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
        guesses = range(granted.lease_id - 100, granted.lease_id + 100)
        lease(mallory, ended=[*guesses, 0, -1, 2**63 - 1])

        administrator.delete_acls([AclFilter()])
        assert told_of(lease(eve, "leased", ids["leased"])) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
        administrator.delete_records({TopicPartition(name, 0): 3 for name in names})
        eventually(lambda: not free.exists() and not brief.exists(), 60, "what nobody leases any more is gone")
        assert held.exists(), "another's guesses end no lease"
        lease(eve, ended=[granted.lease_id])
        eventually(lambda: not held.exists(), 60, "its holder gives it back, whatever the holder may read by then")


# Names


class Same:
    """Fills requests so that two of them differ in one name alone."""

    def __init__(self, name, seed):
        self._name, self._chance = name, random.Random(seed)

    def length(self):
        return 1

    def number(self, bits):
        return self._chance.choice((0, 1, 1, 2, 3, 4))

    def text(self):
        return self._name


NUMBERED = (ApiKey.LEASE_SEGMENTS, ApiKey.FETCH)
SERVED = [(each.api, version) for each in HANDLERS.values() for version in each.versions if each.api not in SASL]


def differences(target, seed, served):
    """The requests by whose answers somebody without rights could tell a name that exists from one that does not."""
    found, sock = [], None
    with contextlib.ExitStack() as stack:
        for api, version in served:
            answers = []
            for name in (EXISTS, ABSENT):
                body = SchemaEncoder(SCHEMAS[api].request, version, Same(name, seed)).encode()
                sock = sock or authenticated(stack.enter_context(dial(target)))
                sock.sendall(wire.request_bytes(api, version, body, flexible=is_flexible(api, version)))
                answer = read_answer(sock)
                sock = None if answer is None else sock
                answers.append(answer and answer.replace(EXISTS.encode(), ABSENT.encode()))
            if api in NUMBERED:  # the number of a lease is a counter's, that of a session is drawn
                answers = [each and each[:10] + each[20:] for each in answers]
            if answers[0] != answers[1]:
                found.append((api.name, version, answers))
    return found


def test_no_answer_tells_whether_a_name_exists(target):
    newest = dict(SERVED)
    assert differences(target, 1, newest.items()) == differences(target, 3, newest.items()) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_no_answer_in_any_version_tells_whether_a_name_exists(target, seed):
    assert differences(target, seed, SERVED) == []


def test_a_name_makes_up_no_line_in_the_log(target):
    with as_user(target) as eve:
        for acks in (0, 1):
            wire.send_produce(eve, TopicPartition("t\nmade up\x1b[31m", 0), wire.batch_of(b"v"), acks)
    eventually(lambda: "produce with acks=0 to t" in target.output())
    assert not [line for line in target.output().splitlines() if line.startswith("made up") or "\x1b" in line]


# Fuzz


def fuzz(target, seed, rounds):
    """Random, mutated and well-formed requests before and after the authentication of somebody without rights."""
    chance = random.Random(seed)
    for _ in range(rounds):
        with dial(target) as sock:
            if chance.random() < 0.5:
                authenticated(sock)
            elif chance.random() < 0.5:
                sock.sendall(
                    handshake(chance.choice((b"PLAIN", b"SCRAM-SHA-256", b"OAUTHBEARER")), chance.randrange(2))
                )
                read_answer(sock)
            with contextlib.suppress(OSError):
                for _ in range(chance.randrange(1, 8)):
                    api, version = chance.choice((*SERVED, *((each, 1) for each in SASL * 20)))
                    body = HostileEncoder(SCHEMAS[api].request, version, HostileFill(chance)).encode()
                    data = wire.request_bytes(api, version, body, flexible=is_flexible(api, version))
                    if chance.random() < 0.5:
                        data = framed(data[4:8] + mutated(data[8:], chance))
                    sock.sendall(data if chance.random() < 0.9 else chance.randbytes(chance.randrange(200)))


def assert_serves(target):
    with as_user(target, "admin") as admin:
        assert wire.topic_names(admin) >= {EXISTS}
        assert wire.fetch(admin, TopicPartition(EXISTS, 0), 0).error is ErrorCode.NONE
        assert wire.values_in(wire.fetch(admin, TopicPartition(EXISTS, 0), 0)) == [b"v"]


def test_the_broker_outlives_whatever_strangers_send(target):
    fuzz(target, 1, 150)
    assert_serves(target)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 110))
def test_the_broker_outlives_whatever_strangers_send_for_long(target, seed):
    fuzz(target, seed, 3000)
    assert_serves(target)


# ZooKeeper


DENYING = "/kafka-acl-extended/prefixed/Topic/lea"
STRANGE = [
    ("/config/changes/garbage", b""),
    ("/config/changes/config_change_2147483647", b'{"version":2,"entity_path":"users/eve"}'),
    ("/config/changes/config_change_", b'{"version":2,"entity_path":"users/../../x"}'),
    ("/config/changes/config_change_", b'{"version":2,"entity_path":"users/\\ud800"}'),
    ("/config/changes/config_change_", b'{"version":2,"entity_path":"users"}'),
    ("/config/changes/config_change_", b"[" * 50_000),
    ("/config/users/..%2F..", b"{"),
    ("/config/users/mallory/clients/x", b"\xff"),
    ("/config/clients/%zz", b'{"version":1,"config":{"request_percentage":"nan"}}'),
    ("/kafka-acl-changes/garbage", b""),
    ("/kafka-acl-changes/acl_changes_2147483647", b"Topic:t"),
    ("/kafka-acl-changes/acl_changes_", b"Topic:../../x"),
    ("/kafka-acl-changes/acl_changes_", b"\xff"),
    ("/kafka-acl-extended-changes/acl_changes_", b'{"version":1,"resourceType":"TOPIC","name":"\\ud800"}'),
    ("/kafka-acl-changes/acl_changes_", b"Topic:nobodys"),
    ("/config/changes/config_change_", b'{"version":2,"entity_path":"users/nobody"}'),
    ("/delegation_token/token_changes/token_change_", b".."),
    ("/delegation_token/token_changes/token_change_2147483647", b"id"),
    ("/delegation_token/tokens/id", b"[" * 50_000),
    ("/kafka-acl/Topic/other", b"[" * 50_000),
    ("/kafka-acl/Thing/other", b"{"),
    (DENYING, b'{"version":1,"acls":[{"principal":"User:eve"}]}'),
]


def test_what_a_stranger_writes_in_zookeeper_neither_opens_up_nor_hides_a_revocation(
    target, zookeeper, zk, administrator
):
    administrator.create_acls([reading()])
    client, made = KazooClient(f"{zookeeper.connect_string}/attacks"), []
    client.start()

    def may_read():
        with as_user(target) as eve:
            return wire.fetch(eve, TopicPartition(EXISTS, 0), 0).error is ErrorCode.NONE

    def comes_in(password):
        try:
            as_user(target, mechanism=Scram(ScramMechanism.SHA_256, "mallory", password)).close()
        except AuthenticationFailed:
            return False
        return True

    try:
        assert may_read()
        nobodys = [make_acl("ip", "192.0.2.1", all=True)]
        made.append(client.create("/kafka-acl/Topic/nobodys", b"{}", nobodys))
        made.append(client.create("/config/users/nobody", b"{}", nobodys))
        for path, data in sorted(STRANGE, key=lambda each: "change" in each[0]):  # brokers hear of what is there
            made.append(client.create(path, data, sequence=path.endswith("_"), makepath=True))
        eventually(lambda: not may_read())  # what cannot be read denies
        made.remove(DENYING)
        client.delete(DENYING)
        client.create("/kafka-acl-extended-changes/acl_changes_", STRANGER_IS_GONE, sequence=True)
        eventually(may_read)
        client.delete("/kafka-acl/Topic/leak-exists")
        client.create("/kafka-acl-changes/acl_changes_", b"Topic:leak-exists", sequence=True)
        eventually(lambda: not may_read())
        assert comes_in(SECRETS["mallory"])
        set_password(zk, "mallory", None)
        eventually(lambda: not comes_in(SECRETS["mallory"]))
        target.restart()
        assert not may_read()
        assert not comes_in(SECRETS["mallory"])
    finally:
        for path in made:
            client.delete(path)
        client.stop()
        client.close()


STRANGER_IS_GONE = b'{"version":1,"resourceType":"TOPIC","name":"lea","patternType":"PREFIXED"}'
