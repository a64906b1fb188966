"""Kafka's DelegationTokenCommand and Java clients by our broker, and tokens in a tree that changes hands."""

import queue
import re
from contextlib import contextmanager
from typing import NamedTuple

import pytest
from compat.kafka_tools import CONSOLE_PRODUCER, MOVED
from integration.test_sasl import SCRAM, set_password

from sparklog.client import Admin, Consumer
from sparklog.client.admin.admin import NewTopic
from sparklog.errors import AuthenticationFailed, SparklogError
from sparklog.local.ports import free_port
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.eventually import eventually
from sparklog.testing.kafka import KafkaBroker, run_kafka_tool
from sparklog.zk.client import ZkClient
from sparklog.zk.tokens import TokenStore

pytestmark = [pytest.mark.peer, pytest.mark.slow]
TOOL = "org.apache.kafka.tools.DelegationTokenCommand"
ALICE = f'{SCRAM} username="alice" password="alice-secret";'
MECHANISM = "SCRAM-SHA-256"
KEY = "the-key-of-all-brokers"
OF_ALICE = ("--owner-principal", "User:alice")
"""Without it the command names no owner, and is told of no token, by Kafka either."""


class Ends(NamedTuple):
    """Ports of a broker: for brokers, and for clients with credentials."""

    plain: int
    sasl: int

    @property
    def listeners(self):
        return f"PLAINTEXT://127.0.0.1:{self.plain},SASL_PLAINTEXT://127.0.0.1:{self.sasl}"

    def settings(self, jaas):
        return {
            "bootstrap.servers": f"127.0.0.1:{self.sasl}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": jaas,
        }


@pytest.fixture(scope="module")
def ends():
    return Ends(free_port(), free_port())


@pytest.fixture
def connect(zookeeper, tmp_path):
    found = f"{zookeeper.connect_string}/{tmp_path.name}"
    zk = ZkClient(found, session_timeout=10, on_session=queue.Queue().put)
    zk.ensure_tree()
    set_password(zk, "alice", "alice-secret")
    zk.close()
    return found


@pytest.fixture
def ours(tmp_path_factory, connect, ends):
    """Our broker, as a context."""

    @contextmanager
    def running():
        settings = {
            "listeners": ends.listeners,
            "sasl.enabled.mechanisms": MECHANISM,
            "delegation.token.secret.key": KEY,
        }
        broker = BrokerHarness(tmp_path_factory.mktemp("ours"), connect, 1, ends.plain, settings)
        broker.start()
        try:
            yield broker
        finally:
            broker.stop()

    return running


@pytest.fixture
def tool(tmp_path, ends):
    path = tmp_path / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in ends.settings(ALICE).items()))

    def run(*arguments):
        return run_kafka_tool(
            TOOL, "--bootstrap-server", f"127.0.0.1:{ends.sasl}", "--command-config", str(path), *arguments
        )

    return run


def created(told):
    """The id and the HMAC that the command tells."""
    found = re.search(r"^([\w-]{22}) +(\S{88}) +User:alice +User:alice", told, re.MULTILINE)
    assert found, told
    return found.groups()


def jaas_of(token_id, password):
    return f'{SCRAM} username="{token_id}" password="{password}" tokenauth="true";'


def comes_in(ends, jaas):
    try:
        with Admin(ends.settings(jaas)) as admin:
            admin.list_topics()
    except AuthenticationFailed:
        return False
    return True


def test_its_command_makes_renews_shows_and_ends_tokens(ours, ends, tool):
    with ours():
        token_id, password = created(
            tool("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
        )
        assert comes_in(ends, jaas_of(token_id, password))
        shown = tool("--describe", *OF_ALICE)
        assert "Total number of tokens : 1" in shown
        assert created(shown) == (token_id, password)
        assert "[User:bob]" in shown
        assert "Total number of tokens : 0" in tool("--describe", "--owner-principal", "User:carol")
        assert "New expiry date" in tool("--renew", "--renew-time-period", "-1", "--hmac", password)
        assert "New expiry date" in tool("--expire", "--expiry-time-period", "-1", "--hmac", password)
        with pytest.raises(SparklogError, match="Delegation Token is not found on server"):
            tool("--renew", "--renew-time-period", "-1", "--hmac", password)
        assert not comes_in(ends, jaas_of(token_id, password))


def test_a_java_client_comes_by_a_token(ours, ends, tmp_path):
    with ours(), Admin(ends.settings(ALICE)) as alice:
        alice.create_topics([NewTopic("by-token", 1)])
        token = alice.create_delegation_token()
        path = tmp_path / "token.properties"
        path.write_text("".join(f"{n}={v}\n" for n, v in ends.settings(token.jaas_config(MECHANISM)).items()))
        where = ("--bootstrap-server", f"127.0.0.1:{ends.sasl}", "--topic", "by-token")
        run_kafka_tool(MOVED["kafka"][CONSOLE_PRODUCER], *where, "--producer.config", str(path), stdin="one\ntwo\n")
        with Consumer({**ends.settings(ALICE), "group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
            consumer.subscribe(["by-token"])
            found = []
            eventually(lambda: found.extend(each.value for each in consumer.poll(1.0)) or len(found) >= 2)
        assert found == [b"one", b"two"]


def test_tokens_hold_where_the_tree_changes_hands(ours, ends, tool, connect, tmp_path):
    settings = {
        "listeners": ends.listeners,
        "advertised.listeners": ends.listeners,
        "sasl.enabled.mechanisms": MECHANISM,
        "delegation.token.secret.key": KEY,
        f"listener.name.sasl_plaintext.{MECHANISM.lower()}.sasl.jaas.config": f"{SCRAM};",
    }
    kafka = KafkaBroker(tmp_path / "kafka", connect, ends.plain, 5, settings)
    kafka.start()
    theirs = created(tool("--create", "--max-life-time-period", "-1"))
    kafka.stop()
    with ours():
        eventually(lambda: comes_in(ends, jaas_of(*theirs)))
        with Admin(ends.settings(ALICE)) as alice:
            token = alice.create_delegation_token(renewers=["User:CN=bob, O=ö"])
            assert theirs[0] in {each.token_id for each in alice.describe_delegation_tokens()}
    kafka.start()
    try:
        shown = tool("--describe", *OF_ALICE)
        assert token.token_id in shown
        assert theirs[0] in shown
        assert comes_in(ends, token.jaas_config(MECHANISM))
        tool("--expire", "--expiry-time-period", "-1", "--hmac", theirs[1])
    finally:
        kafka.stop()
    zk = ZkClient(connect, session_timeout=10, on_session=queue.Queue().put)
    try:
        assert theirs[0] not in TokenStore(zk).read_all().tokens
    finally:
        zk.close()
