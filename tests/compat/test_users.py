"""Kafka's ConfigCommand and ours give users passwords, in one ZooKeeper: at either broker either's user is let in."""

import queue
from collections.abc import Callable
from typing import NamedTuple

import pytest
from compat.kafka_tools import CONFIGS

from sparklog.client.admin.admin import Admin, UserScramDeletion, UserScramUpsertion
from sparklog.errors import AuthenticationFailed
from sparklog.local.ports import free_port
from sparklog.security.sasl.scram_credential import ScramMechanism
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.eventually import eventually
from sparklog.testing.kafka import KafkaBroker, run_kafka_tool
from sparklog.zk.client import ZkClient
from sparklog.zk.users import delete_password, scram_users, set_password

pytestmark = [pytest.mark.peer, pytest.mark.slow]
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
SHA_256, SHA_512 = (each.title for each in ScramMechanism)
ODD = "d,=/ e+~*%<default>"
"""Of ASCII alone: at a login Kafka takes no other names."""


class Side(NamedTuple):
    """A broker with a listener for everybody and one for users of SCRAM, and its ZooKeeper."""

    connect: str
    bootstrap: str
    sasl_port: int
    zk: ZkClient

    def lets_in(self, user: str, password: str, mechanism: str = SHA_512) -> bool:
        settings = {
            "bootstrap.servers": f"127.0.0.1:{self.sasl_port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }
        try:
            with Admin(settings) as admin:
                admin.describe_cluster()
        except AuthenticationFailed:
            return False
        return True


@pytest.fixture(scope="module", params=["ours", "kafka"])
def side(request, zookeeper, tmp_path_factory):
    """The first user comes before the broker, by our command's way into ZooKeeper."""
    connect, port, sasl_port = f"{zookeeper.connect_string}/users-{request.param}", free_port(), free_port()
    listeners = f"PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{sasl_port}"
    settings = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "sasl.enabled.mechanisms": f"{SHA_256},{SHA_512}",
        **{f"listener.name.sasl_plaintext.{each.lower()}.sasl.jaas.config": MODULE for each in (SHA_256, SHA_512)},
    }
    zk = ZkClient(connect, session_timeout=10.0, on_session=queue.Queue[str]().put)
    set_password(zk, "first", "before", dict.fromkeys(ScramMechanism, 4096))
    directory = tmp_path_factory.mktemp(request.param)
    broker = (
        BrokerHarness(directory, connect, port=port, settings=settings)
        if request.param == "ours"
        else KafkaBroker(directory, connect, port=port, extra_props=settings)
    )
    with broker:
        yield Side(connect, f"127.0.0.1:{port}", sasl_port, zk)
    zk.close()


@pytest.fixture(params=["--bootstrap-server", "--zookeeper"])
def config_command(request, side) -> Callable[..., str]:
    where = side.bootstrap if request.param == "--bootstrap-server" else side.connect
    return lambda *arguments: run_kafka_tool(CONFIGS, request.param, where, "--entity-type", "users", *arguments)


def test_who_came_before_the_broker_is_let_in(side):
    assert all(side.lets_in("first", "before", each) for each in (SHA_256, SHA_512))
    assert not side.lets_in("first", "guess")


def test_whom_kafkas_command_adds_changes_and_deletes_we_know(side, config_command):
    named = ("--alter", "--entity-name", ODD)
    config_command(*named, "--add-config", f"{SHA_256}=[iterations=8192,password=one],{SHA_512}=[password=one]")
    eventually(lambda: all(side.lets_in(ODD, "one", each) for each in (SHA_256, SHA_512)))
    assert scram_users(side.zk)[ODD] == {SHA_256: 8192, SHA_512: 4096}
    with Admin(bootstrap_servers=side.bootstrap) as admin:
        assert admin.describe_user_scram_credentials([ODD]) == {ODD: {SHA_256: 8192, SHA_512: 4096}}
    config_command(*named, "--add-config", f"{SHA_512}=[password=two]")
    eventually(lambda: side.lets_in(ODD, "two"))
    assert not side.lets_in(ODD, "one")
    config_command(*named, "--delete-config", f"{SHA_256},{SHA_512}")
    eventually(lambda: not side.lets_in(ODD, "two"))
    assert ODD not in scram_users(side.zk)


def test_whom_we_add_change_and_delete_kafkas_command_knows(side, config_command):
    def described():
        return config_command("--describe", "--entity-name", "ours")

    with Admin(bootstrap_servers=side.bootstrap) as admin:
        admin.alter_user_scram_credentials([UserScramUpsertion("ours", SHA_256, "one", 5000)])
    eventually(lambda: side.lets_in("ours", "one", SHA_256))
    set_password(side.zk, "ours", "two", {ScramMechanism.SHA_512: 6000})
    eventually(lambda: side.lets_in("ours", "two", SHA_512))
    said = described()
    assert f"{SHA_256}=" in said
    assert "iterations=5000" in said
    assert "iterations=6000" in said
    with Admin(bootstrap_servers=side.bootstrap) as admin:
        admin.alter_user_scram_credentials([UserScramDeletion("ours", SHA_256)])
    assert SHA_256 not in described()
    delete_password(side.zk, "ours", [ScramMechanism.SHA_512])
    eventually(lambda: not side.lets_in("ours", "two", SHA_512))
