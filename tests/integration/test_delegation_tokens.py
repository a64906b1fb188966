"""Delegation tokens on a cluster of two: created, used, renewed, ended, and known to every broker over restarts."""

import json
from base64 import b64encode
from typing import NamedTuple

import pytest
from integration.test_sasl import SCRAM, set_password

from sparklog.client import Admin, Consumer, Producer
from sparklog.client.admin.admin import AclBinding, AclEntry, NewTopic, Operation, ResourcePattern, ResourceType
from sparklog.config.broker import ACL_AUTHORIZER
from sparklog.errors import ApiError, AuthenticationFailed, ErrorCode, SparklogError
from sparklog.local.ports import free_port
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.eventually import eventually
from sparklog.zk.client import ZkClient
from sparklog.zk.tokens import TOKENS

pytestmark = pytest.mark.integration
KEY = "the-key-of-all-brokers"
PASSWORDS = {each: f"{each}-secret" for each in ("alice", "bob", "carol")}


class Secured(NamedTuple):
    """A broker, and where clients with credentials find it."""

    broker: BrokerHarness
    sasl: str


@pytest.fixture(scope="module")
def zk(zookeeper):
    client = ZkClient(f"{zookeeper.connect_string}/tokens", session_timeout=10, on_session=lambda _: None)
    client.ensure_tree()
    for user, password in PASSWORDS.items():
        set_password(client, user, password)
    yield client
    client.close()


@pytest.fixture(scope="module")
def brokers(tmp_path_factory, zookeeper, zk):
    """Two, with a listener for each other and one for clients; ``User:alice`` may do everything."""
    started = []
    for number in range(2):
        plain, sasl = free_port(), free_port()
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl}",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
            "authorizer.class.name": ACL_AUTHORIZER,
            "super.users": "User:ANONYMOUS;User:alice",
            "delegation.token.secret.key": KEY,
            "delegation.token.expiry.check.interval.ms": 300,
        }
        connect = f"{zookeeper.connect_string}/tokens"
        harness = BrokerHarness(tmp_path_factory.mktemp("broker"), connect, number, plain, settings)
        harness.start()
        started.append(Secured(harness, f"127.0.0.1:{sasl}"))
    yield started
    for each in started:
        each.broker.stop()


def named(brokers, jaas, number=None):
    chosen = brokers if number is None else [brokers[number]]
    return {
        "bootstrap.servers": ",".join(each.sasl for each in chosen),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": jaas,
        "default.api.timeout.ms": 60_000,
    }


def by_password(brokers, user):
    return named(brokers, f'{SCRAM} username="{user}" password="{PASSWORDS[user]}";')


def by_token(brokers, token, number=None):
    return named(brokers, token.jaas_config(), number)


def code_of(attempt, *asked, **more):
    with pytest.raises(ApiError) as refused:
        attempt(*asked, **more)
    return refused.value.code


def comes_in(settings):
    try:
        with Admin(settings) as admin:
            admin.list_topics()
    except AuthenticationFailed:
        return False
    return True


def known_to_all(brokers, token):
    eventually(lambda: all(comes_in(by_token(brokers, token, number)) for number in range(len(brokers))))


@pytest.fixture
def alice(brokers):
    with Admin(by_password(brokers, "alice")) as admin:
        yield admin


@pytest.fixture
def bob(brokers):
    with Admin(by_password(brokers, "bob")) as admin:
        yield admin


def test_a_token_stands_for_its_owner_and_for_nothing_more(brokers, alice, bob):
    token = bob.create_delegation_token()
    alice.create_topics([NewTopic("of-bob", 1), NewTopic("of-alice", 1)])
    topic = ResourcePattern(ResourceType.TOPIC, "of-bob")
    alice.create_acls(
        [AclBinding(topic, AclEntry("User:bob", "*", each)) for each in (Operation.READ, Operation.WRITE)]
    )
    alice.create_acls([AclBinding(ResourcePattern(ResourceType.GROUP, "g"), AclEntry("User:bob", "*", Operation.READ))])
    known_to_all(brokers, token)
    settings = by_token(brokers, token)
    with Producer({**settings, "enable.idempotence": "false"}) as producer:
        producer.send("of-bob", b"value").result(60)
        with pytest.raises(ApiError) as refused:
            producer.send("of-alice", b"value").result(60)
    assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["of-bob"])
        found = []
        eventually(lambda: found.extend(each.value for each in consumer.poll(1.0)) or found)
    assert found == [b"value"]


def test_who_came_by_a_token_or_plainly_may_not_ask_for_tokens(brokers, bob):
    token = bob.create_delegation_token()
    known_to_all(brokers, token)
    plainly = {"bootstrap.servers": brokers[0].broker.address}
    for settings in (by_token(brokers, token), plainly):
        with Admin(settings) as admin:
            for attempt in (
                admin.create_delegation_token,
                admin.describe_delegation_tokens,
                lambda admin=admin: admin.renew_delegation_token(token.hmac),
                lambda admin=admin: admin.expire_delegation_token(token.hmac),
            ):
                assert code_of(attempt) is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_a_token_of_another_needs_a_right_and_is_seen_by_whom_it_concerns(brokers, alice, bob):
    token = alice.create_delegation_token(owner="User:carol", renewers=["User:bob"], max_lifetime_ms=3_600_000)
    assert (token.owner, token.requester, token.renewers) == ("User:carol", "User:alice", ("User:bob",))
    assert token.max_ms == token.expires_ms == token.issued_ms + 3_600_000
    refused = code_of(bob.create_delegation_token, owner="User:carol")
    assert refused is ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    with Admin(by_password(brokers, "carol")) as carol:
        eventually(lambda: token in carol.describe_delegation_tokens())
        eventually(lambda: token in bob.describe_delegation_tokens(["User:carol"]))
        assert code_of(alice.renew_delegation_token, token.hmac) is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert bob.renew_delegation_token(token.hmac, 1_800_000) < token.expires_ms
        mine = carol.create_delegation_token()
        eventually(lambda: mine.token_id in {each.token_id for each in carol.describe_delegation_tokens()})
        assert mine.token_id not in {each.token_id for each in bob.describe_delegation_tokens()}


def test_a_token_that_is_ended_lets_nobody_in_and_nobody_stay(brokers, bob):
    token = bob.create_delegation_token()
    known_to_all(brokers, token)
    with Admin(by_token(brokers, token)) as admin:
        admin.list_topics()
        bob.expire_delegation_token(token.hmac)
        assert code_of(bob.expire_delegation_token, token.hmac) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND

        def is_refused():
            try:
                admin.list_topics()
            except SparklogError:
                return True
            return False

        eventually(is_refused)
    for number in range(2):
        eventually(lambda number=number: not comes_in(by_token(brokers, token, number)))


def test_a_token_ends_by_itself_and_its_znode_goes(brokers, bob, zk):
    token = bob.create_delegation_token(max_lifetime_ms=2000)
    eventually(lambda: not comes_in(by_token(brokers, token)))
    eventually(lambda: token.token_id not in zk.names(TOKENS))
    eventually(lambda: token.token_id not in {each.token_id for each in bob.describe_delegation_tokens()})


def test_a_wrong_hmac_is_none(brokers, bob):
    token = bob.create_delegation_token()
    known_to_all(brokers, token)
    wrong = token.jaas_config().replace(b64encode(token.hmac).decode(), b64encode(bytes(64)).decode())
    assert not comes_in(named(brokers, wrong))
    assert code_of(bob.renew_delegation_token, bytes(64)) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_tokens_outlive_brokers_and_are_written_as_kafka_does_without_their_secrets(brokers, bob, zk):
    token = bob.create_delegation_token()
    written = json.loads(zk.data(f"{TOKENS}/{token.token_id}"))
    assert (written["owner"], written["version"]) == ("User%3Abob", 3)
    for each in brokers:
        each.broker.stop()
    for each in brokers:
        each.broker.start()
    known_to_all(brokers, token)


def test_no_secret_is_told_or_logged(brokers, bob, alice):
    token = bob.create_delegation_token()
    bob.renew_delegation_token(token.hmac)
    password = b64encode(token.hmac).decode()
    (told,) = [each for each in alice.broker_configs(0) if each.name == "delegation.token.secret.key"]
    assert (told.value, told.sensitive) == (None, True)
    assert password not in repr(token)
    for each in brokers:
        assert KEY not in each.broker.output()
        assert password not in each.broker.output()
    assert any(f"created: 'delegation token {token.token_id} of User:bob" in each.broker.output() for each in brokers)
