"""Kafka and a broker of ours have the same lists and are asked for delegation tokens: they give and refuse the same.

Each seed is a user with rights of its own, who asks for tokens and is a renewer of some. Root, a super user, has made
one for ``alice`` and one for ``bob`` before.
"""

import random
from typing import Any, NamedTuple

import pytest
from broker.requests_of_strangers import body_of
from differential.test_authorization import Asking

from sparklog.client import Admin
from sparklog.client.admin.admin import AclBinding, AclEntry, Operation, Permission, ResourcePattern, ResourceType
from sparklog.errors import ErrorCode
from sparklog.local.ports import free_port
from sparklog.protocol.api_key import ApiKey
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.kafka import KafkaBroker

pytestmark = pytest.mark.peer

SEEDS = range(16)
HOST, ROOT = "127.0.0.1", "root"
OWNERS = ("alice", "bob")
USERS = (ROOT, *OWNERS, *(f"user-{seed}" for seed in SEEDS))
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
CREATE, RENEW = ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN
EXPIRE, DESCRIBE = ApiKey.EXPIRE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN
VERSIONS = {CREATE: 3, RENEW: 2, EXPIRE: 2, DESCRIBE: 3}
FIRST_VERSIONS = dict.fromkeys(VERSIONS, 0)
NOBODYS = b"n" * 64
HOUR_MS, DAY_MS = 3_600_000, 86_400_000


class Side(NamedTuple):
    """One of the brokers, and the tokens there of the owners."""

    plain: int
    sasl: int
    tokens: dict[str, Any]

    def login(self, user):
        asking = Asking((HOST, self.sasl), HOST)
        handshake = body_of(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
        assert asking.ask(ApiKey.SASL_HANDSHAKE, 1, handshake)["error_code"] == 0
        proof = {"auth_bytes": f"\0{user}\0secret".encode()}
        told = asking.ask(ApiKey.SASL_AUTHENTICATE, 2, body_of(ApiKey.SASL_AUTHENTICATE, 2, proof))
        assert told["error_code"] == 0, told
        return asking

    def ask(self, asking, api, fields, versions=VERSIONS):
        return asking.ask(api, versions[api], body_of(api, versions[api], fields))


def principals(*users):
    return [{"principal_type": "User", "principal_name": user} for user in users]


def creation(owner=None, renewers=(), lifetime_ms=-1, kind="User"):
    owned = {"owner_principal_type": kind, "owner_principal_name": owner} if owner else {}
    fields = {
        "renewers": principals(*renewers),
        "max_lifetime_ms": lifetime_ms,
        "owner_principal_type": None,
        "owner_principal_name": None,
    }
    return fields | owned


def drawn(chance, user, tokens):
    """What the user may and may not; ``tokens`` are ids."""
    principal = f"User:{user}"
    asked = {
        ResourceType.USER: ([*(f"User:{each}" for each in (*OWNERS, user)), "*"], ["CREATE_TOKENS", "DESCRIBE_TOKENS"]),
        ResourceType.DELEGATION_TOKEN: ([*tokens, "*"], ["DESCRIBE"]),
    }
    for kind, (names, operations) in asked.items():
        for name in names:
            for operation in operations:
                permission = chance.choice([None, None, Permission.ALLOW, Permission.ALLOW, Permission.DENY])
                if permission is not None:
                    entry = AclEntry(principal, "*", Operation[operation], permission)
                    yield AclBinding(ResourcePattern(kind, name), entry)


def settings(ports):
    listeners = f"PLAINTEXT://{HOST}:{ports[0]},SASL_PLAINTEXT://{HOST}:{ports[1]}"
    users = " ".join(f'user_{user}="secret"' for user in USERS)
    return {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{PLAIN} required {users};",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": f"User:ANONYMOUS;User:{ROOT}",
        "delegation.token.secret.key": "the-key",
    }


@pytest.fixture(scope="module")
def sides(zookeeper, tmp_path_factory):
    home = tmp_path_factory.mktemp("token-rights")
    kafkas, own = (Side(free_port(), free_port(), {}) for _ in range(2))
    connect = f"{zookeeper.connect_string}/tokens-of"
    kafka = KafkaBroker(home / "kafka", f"{connect}-kafka", kafkas.plain, extra_props=settings(kafkas[:2]))
    ours = BrokerHarness(home / "ours", f"{connect}-ours", 0, own.plain, settings(own[:2]))
    with kafka, ours:
        for side in (kafkas, own):
            _prepare(side)
        yield kafkas, own


def _prepare(side):
    asking = side.login(ROOT)
    for owner in OWNERS:
        renewers = [f"user-{seed}" for seed in SEEDS if (seed + (owner == "bob")) % 3 == 0]
        told = side.ask(asking, CREATE, creation(owner, renewers))
        assert told["error_code"] == 0, told
        side.tokens[owner] = told
    asking.close()
    with Admin(bootstrap_servers=f"{HOST}:{side.plain}") as admin:
        ids = [side.tokens[owner]["token_id"] for owner in OWNERS]
        admin.create_acls([each for seed in SEEDS for each in drawn(random.Random(seed), f"user-{seed}", ids)])


def first_requests(tokens):
    """What can be said in the first versions, which know no owner but the caller."""
    made = {
        name: value for name, value in creation(renewers=["alice"], lifetime_ms=DAY_MS).items() if "owner" not in name
    }
    yield CREATE, made
    yield CREATE, made | {"renewers": [{"principal_type": "Group", "principal_name": "all"}]}
    yield from uses(tokens)
    yield DESCRIBE, {"owners": principals("alice")}


def requests(user, tokens):
    """In this order: what is made for the user itself is renewed and ended, too."""
    for owners in (None, [], ["alice"], ["alice", "bob"], [user]):
        yield DESCRIBE, {"owners": None if owners is None else principals(*owners)}
    yield CREATE, creation(kind="Group", owner="alice")
    yield CREATE, creation("alice", ["carol"], HOUR_MS)
    yield CREATE, creation("bob")
    yield CREATE, creation(user, lifetime_ms=DAY_MS)
    yield CREATE, creation(renewers=["alice"])
    yield from uses(tokens)


def uses(tokens):
    """Tokens that there are and one that is nobody's, renewed and ended; and all described."""
    for hmac in (NOBODYS, *(tokens[owner]["hmac"] for owner in OWNERS)):
        yield RENEW, {"hmac": hmac, "renew_period_ms": HOUR_MS}
        yield EXPIRE, {"hmac": hmac, "expiry_time_period_ms": DAY_MS}
    yield DESCRIBE, {"owners": None}


def told_to(side, user, asked, versions=VERSIONS):
    """What the user is answered, without what is drawn by lot or by a clock."""
    asking = side.login(user)
    answers = []
    for api, fields in asked:
        told = side.ask(asking, api, fields, versions)
        owner = (told.get("principal_type"), told.get("principal_name"), told.get("token_requester_principal_name"))
        answers.append((api.name, ErrorCode(told["error_code"]).name, owner, shown(told)))
    asking.close()
    return answers


def shown(told):
    """The tokens that a description shows: whose, asked for by whom, renewed by whom."""
    return sorted(
        (
            each["principal_name"],
            each.get("token_requester_principal_name"),
            sorted(of["principal_name"] for of in each["renewers"]),
        )
        for each in told.get("tokens") or ()
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_both_give_and_show_the_same_tokens(sides, seed):
    user = f"user-{seed}"
    kafkas, ours = (told_to(side, user, requests(user, side.tokens)) for side in sides)
    assert ours == kafkas


@pytest.mark.parametrize("user", ["user-0", "user-1", "alice"])
def test_both_say_the_same_in_the_first_versions(sides, user):
    kafkas, ours = (told_to(side, user, first_requests(side.tokens), FIRST_VERSIONS) for side in sides)
    assert ours == kafkas
