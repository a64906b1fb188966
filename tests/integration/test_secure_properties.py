"""``conf/secure.properties`` with the certificates and the administrator that docs/security.md tells to make."""

import subprocess
import sys
from pathlib import Path

import pytest

from sparklog.client.admin.admin import Admin
from sparklog.config.properties import load_properties
from sparklog.errors import AuthenticationFailed
from sparklog.local.ports import free_port
from sparklog.local.process import ChildProcess
from sparklog.local.zookeeper import EmbeddedZooKeeper, ZooKeeperTls

pytestmark = pytest.mark.integration
FILE = Path(__file__).parents[2] / "conf" / "secure.properties"
PROGRAM = [sys.executable, "-m", "sparklog.cli.main"]
PASSWORD = "of the administrator"


def sparklog(*arguments, stdin=""):
    subprocess.run([*PROGRAM, *map(str, arguments)], input=stdin, text=True, check=True, capture_output=True)


@pytest.fixture
def keys(tmp_path):
    """What is to be in /etc/sparklog of the first broker."""
    sparklog("cert", "ca", tmp_path / "ca")
    for name in ("log1", "broker"):
        sparklog("cert", "issue", name, "--ca", tmp_path / "ca", "--host", "127.0.0.1", "--out", tmp_path / "etc")
    (tmp_path / "etc" / "ca.pem").write_bytes((tmp_path / "ca" / "ca.pem").read_bytes())
    return tmp_path / "etc"


@pytest.fixture
def zookeeper(tmp_path, keys):
    server = EmbeddedZooKeeper(tmp_path / "zookeeper", tick_time_ms=500, fsync=False)
    server.tls = ZooKeeperTls(keys / "broker.pem", keys / "ca.pem")
    with server:
        yield server


@pytest.fixture
def ports():
    return {"9092": str(free_port()), "9093": str(free_port())}


@pytest.fixture
def properties(tmp_path, keys, zookeeper, ports):
    """The file, with the names of this machine in it."""
    text = FILE.read_text().replace(load_properties(FILE)["zookeeper.connect"], zookeeper.connect_string)
    here = {
        "/etc/sparklog": str(keys),
        "/var/lib/sparklog": str(tmp_path / "logs"),
        "log1.example.org": "127.0.0.1",
        "0.0.0.0": "127.0.0.1",
        **{f":{port}": f":{own}" for port, own in ports.items()},
    }
    for name, own in here.items():
        text = text.replace(name, own)
    (tmp_path / "server.properties").write_text(text)
    return tmp_path / "server.properties"


def test_it_starts_a_broker_that_lets_the_administrator_in(tmp_path, keys, zookeeper, properties, ports):
    to_zookeeper = ("--zookeeper", zookeeper.connect_string, "--zk-tls-config-file", properties)
    (tmp_path / "password").write_text(PASSWORD)
    (tmp_path / "password").chmod(0o600)
    sparklog("user", "add", "admin", "--password-file", tmp_path / "password", *to_zookeeper)
    broker = ChildProcess("broker", tmp_path / "broker.log")
    broker.spawn([*PROGRAM, "broker", "--config", str(properties)])
    try:
        broker.wait_until(lambda: "sparklog broker 1 listening on" in broker.output(), 60)
        client = {
            "bootstrap.servers": f"127.0.0.1:{ports['9092']}",
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(keys / "ca.pem"),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "admin",
        }
        with Admin({**client, "sasl.password": PASSWORD}) as admin:
            assert list(admin.describe_cluster().brokers) == [1]
        with pytest.raises(AuthenticationFailed), Admin({**client, "sasl.password": "another"}) as stranger:
            stranger.list_topics()
    finally:
        broker.stop(20)
