"""A local cluster, with a stand-in for the broker: ours has its own tests."""

import contextlib
import os
import queue
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from kazoo.security import Id, Permissions

from sparklog.config.properties import load_properties
from sparklog.config.zookeeper_security import ZooKeeperSecurity
from sparklog.errors import ConfigError, ConnectionFailed
from sparklog.local import broker as broker_module
from sparklog.local.cluster import LocalCluster, SecureCluster, watched
from sparklog.local.directory import ClusterDirectory
from sparklog.testing.eventually import eventually, wait_for_death
from sparklog.zk.acls import AclStore
from sparklog.zk.client import ZkClient

pytestmark = pytest.mark.integration

FAKE = (sys.executable, str(Path(__file__).with_name("fake_broker.py")))


class FakeCluster(LocalCluster):
    program = FAKE


class FakeSecureCluster(SecureCluster):
    program = FAKE


def names(directory, pattern):
    return sorted(path.name for path in directory.glob(pattern))


def next_event(events, text):
    """The next event that says ``text``."""
    while text not in (event := events.get(timeout=30)):
        pass
    return event


def test_it_starts_says_where_and_stops(tmp_path):
    cluster = FakeCluster(tmp_path, brokers=2, base_port=0)
    with cluster:
        assert names(tmp_path, "*.pid") == ["broker-0.pid", "broker-1.pid", "zookeeper.pid"]
        pids = [int((tmp_path / name).read_text()) for name in names(tmp_path, "*.pid")]
        for address in cluster.bootstrap_servers.split(","):
            host, port = address.split(":")
            socket.create_connection((host, int(port)), timeout=5).close()
        assert "listening on" in (tmp_path / "logs" / "broker-1.log").read_text()
    assert names(tmp_path, "*.pid") == []
    for pid in pids:
        wait_for_death(pid, 0)


def test_an_existing_directory_goes_on_where_it_was(tmp_path):
    first = FakeCluster(tmp_path, base_port=0)
    with first:
        pass
    second = FakeCluster(tmp_path, base_port=0)
    assert second.zookeeper.port == first.zookeeper.port
    assert second.bootstrap_servers == first.bootstrap_servers
    with second:
        starts = (tmp_path / "broker-0" / "starts").read_text().splitlines()
    assert [line.split()[0] for line in starts] == [first.zookeeper.connect_string] * 2


def test_a_remembered_port_that_is_taken_is_given_up(tmp_path):
    first = FakeCluster(tmp_path, base_port=0)
    with first:
        pass
    with socket.create_server(("127.0.0.1", first.zookeeper.port)):
        assert FakeCluster(tmp_path).zookeeper.port != first.zookeeper.port


def test_the_number_of_zookeepers_stays_as_it_was(tmp_path):
    assert len(FakeCluster(tmp_path / "one").zookeepers) == 1
    (tmp_path / "one" / "zookeeper").mkdir(parents=True)
    with pytest.raises(ConfigError, match="has 1 ZooKeeper, and cannot be made one with 3; leave --zookeepers out"):
        FakeCluster(tmp_path / "one", zookeepers=3)
    ClusterDirectory(tmp_path / "one").remember_ports({"zookeeper": 1234, "broker-0": 1235})
    assert len(FakeCluster(tmp_path / "one", zookeepers=1).zookeepers) == 1

    (tmp_path / "three").mkdir()
    ports = {f"zookeeper-{number}{role}": 0 for number in (1, 2, 3) for role in ("", "-peer", "-election")}
    ClusterDirectory(tmp_path / "three").remember_ports(ports)
    again = FakeCluster(tmp_path / "three")
    assert [each.name for each in again.zookeepers] == ["ZooKeeper 1", "ZooKeeper 2", "ZooKeeper 3"]
    assert again.brokers[0].spec.zookeeper == ",".join(each.connect_string for each in again.zookeepers)
    with pytest.raises(ConfigError, match="has 3 ZooKeepers, and cannot be made one with 5"):
        FakeCluster(tmp_path / "three", zookeepers=5)
    with pytest.raises(ConfigError, match="at least one ZooKeeper, not 0"):
        FakeCluster(tmp_path / "none", zookeepers=0)


def test_without_a_number_there_are_as_many_brokers_as_the_directory_has(tmp_path):
    assert len(FakeCluster(tmp_path).brokers) == 1
    for broker in (0, 2):  # the disk of broker 1 is gone
        ClusterDirectory(tmp_path).broker(broker).mkdir()
    again = FakeCluster(tmp_path)
    assert [each.spec.broker_id for each in again.brokers] == [0, 1, 2]
    assert again.left_out == []
    assert FakeCluster(tmp_path, brokers=1).left_out == [2]
    assert FakeCluster(tmp_path, brokers=4).left_out == []


@pytest.mark.parametrize(("port", "brokers"), [(65_535, 2), (65_536, 1), (-1, 1), (-1, 3)])
def test_brokers_without_ports_make_no_cluster(tmp_path, port, brokers):
    last = port + brokers - 1
    with pytest.raises(ConfigError, match=f"on the ports {port} to {last}, and ports are 1 to 65535"):
        FakeCluster(tmp_path, brokers=brokers, base_port=port)
    assert list(tmp_path.iterdir()) == []


def test_a_remembered_port_that_is_none_is_given_up(tmp_path):
    ClusterDirectory(tmp_path).remember_ports({"zookeeper": 65_536, "broker-0": -1})
    cluster = FakeCluster(tmp_path, base_port=0)
    assert 1 <= cluster.zookeeper.port <= 65_535
    assert 1 <= cluster.brokers[0].spec.port <= 65_535


def test_a_killed_broker_is_started_again(tmp_path):
    events = queue.Queue()
    with FakeCluster(tmp_path, base_port=0, on_event=events.put) as cluster:
        before = cluster.brokers[0].pid
        os.kill(int((tmp_path / "broker-0.pid").read_text()), signal.SIGKILL)
        assert "broker 0 was killed by SIGKILL" in next_event(events, "broker 0")
        assert next_event(events, "broker 0 is back") == f"broker 0 is back (process {cluster.brokers[0].pid})"
        assert cluster.brokers[0].pid != before
        assert int((tmp_path / "broker-0.pid").read_text()) == cluster.brokers[0].pid


def test_a_killed_zookeeper_is_started_again(tmp_path):
    events = queue.Queue()
    with FakeCluster(tmp_path, base_port=0, on_event=events.put) as cluster:
        os.kill(int((tmp_path / "zookeeper.pid").read_text()), signal.SIGKILL)
        next_event(events, "ZooKeeper is back")
        assert cluster.zookeeper.is_ready()


def test_a_directory_in_use_is_refused_and_left_alone(tmp_path):
    with FakeCluster(tmp_path, base_port=0) as cluster:
        second = FakeCluster(tmp_path, base_port=0)
        with pytest.raises(ConfigError, match="is in use by a running cluster"):
            second.start()
        second.stop()
        assert cluster.brokers[0].alive
        assert (tmp_path / "broker-0.pid").exists()


def test_a_port_in_use_is_named_and_nothing_is_left_running(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        cluster = FakeCluster(tmp_path, base_port=port)
        with pytest.raises(ConfigError, match=f"port {port} on 127.0.0.1, wanted by broker 0, is in use.*--port"):
            cluster.start()
    assert not cluster.zookeeper.alive
    assert names(tmp_path, "*.pid") == []


@pytest.mark.parametrize("option", ["--port", "--metrics-port", "--web-port"])
def test_a_port_in_use_is_found_before_the_directory_is_a_clusters(tmp_path, option):
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        metrics_port, web_port = (port if option == each else -1 for each in ("--metrics-port", "--web-port"))
        kind = watched(FakeCluster, metrics_port, web_port)
        cluster = kind(tmp_path, brokers=1, base_port=port if option == "--port" else 0)
        with pytest.raises(ConfigError, match=f"port {port} on 127.0.0.1, wanted by .*, is in use.*{option}$"):
            cluster.start()
    assert names(tmp_path, "*") == ["lock"]
    LocalCluster(tmp_path, zookeepers=3)  # which another kind of cluster's directory would refuse


def test_a_broker_that_cannot_start_shows_its_log(tmp_path):
    cluster = FakeCluster(tmp_path, base_port=0, broker_args=["--fail", "the disk is full"])
    with pytest.raises(ConnectionFailed, match=r"broker 0 exited with status 3(.|\n)*the disk is full"):
        cluster.start()
    assert not cluster.zookeeper.alive


def test_a_broker_that_does_not_stop_is_killed(tmp_path, monkeypatch):
    cluster = FakeCluster(tmp_path, base_port=0, broker_args=["--ignore-sigterm"])
    monkeypatch.setattr(broker_module.BrokerProcess.reap, "__defaults__", (0.05,))
    with cluster:
        pass
    assert cluster.brokers[0].fate == "was killed by SIGKILL"


def test_no_brokers_make_no_cluster(tmp_path):
    with pytest.raises(ConfigError, match="at least one broker"):
        FakeCluster(tmp_path, brokers=0)


PARENT = """
import sys
from pathlib import Path
from sparklog.local.cluster import LocalCluster
from sparklog.local.directory import ClusterDirectory
LocalCluster.program = sys.argv[2:]
cluster = LocalCluster(Path(sys.argv[1]), base_port=0)
cluster.start()
print(cluster.zookeeper.pid, cluster.brokers[0].pid, flush=True)
sys.stdin.read()
"""


def test_everything_dies_with_its_parent_and_the_directory_is_free(tmp_path):
    command = [sys.executable, "-c", PARENT, str(tmp_path), *FAKE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        pids = [int(word) for word in parent.stdout.readline().split()]
        os.kill(parent.pid, signal.SIGKILL)
        for pid in pids:
            wait_for_death(pid)
    with FakeCluster(tmp_path, base_port=0) as again:
        eventually(lambda: again.brokers[0].is_ready())


@pytest.mark.parametrize("level", ["ERROR  ", "WARNING"])
def test_errors_of_a_broker_that_starts_all_the_same_are_reported(tmp_path, level):
    events = []
    line = f"2024-05-06 07:08:09,123 {level} sparklog.log  t-0 is damaged: an ERROR "
    cluster = FakeCluster(tmp_path, base_port=0, broker_args=["--log", line], on_event=events.append)
    with cluster:
        said = f"broker 0 reported errors while starting: see {tmp_path / 'logs' / 'broker-0.log'}"
        assert events == ([said] if level.startswith("ERROR") else [])


@pytest.mark.parametrize("module", ["cut", "directories.room"])
def test_what_a_broker_has_to_say_to_an_operator_is_passed_on(tmp_path, module):
    events = []
    line = f"2024-05-06 07:08:09,123 WARNING sparklog.log.{module}  t-0: it is so"
    with FakeCluster(tmp_path, base_port=0, broker_args=["--log", line], on_event=events.append):
        assert events == ["broker 0: t-0: it is so"]


def test_a_secure_cluster_has_its_users_before_its_brokers_and_stays_secure(tmp_path):
    with FakeSecureCluster(tmp_path, base_port=0) as first:
        (started,) = (tmp_path / "broker-0" / "starts").read_text().splitlines()
        port, inner = first.brokers[0].spec.port, first.brokers[0].spec.inner_port
        assert f"listeners=SASL_SSL://127.0.0.1:{port},SSL://127.0.0.1:{inner}" in started
        with zookeeper_of(first) as zk:
            assert {user: list(zk.configs.of(f"users/{user}")) for user in ("admin", "spark")} == {
                "admin": ["SCRAM-SHA-512"],
                "spark": ["SCRAM-SHA-512"],
            }
            zk.configs.update("users/spark", {"SCRAM-SHA-512": None})
            admin = zk.configs.of("users/admin")
            for owned in ("/", "/config/users", "/brokers"):
                (owner,) = {acl.id for acl in zk.kazoo.get_acls(owned)[0] if acl.perms == Permissions.ALL}
                assert owner == Id("x509", "CN=sparklog-broker")
            allowed = {str(entry) for entries in AclStore(zk).read_all().lists.values() for entry in entries}
        assert "User:spark may WRITE from *" in allowed
        assert not [each for each in allowed if "User:spark" not in each]
    with pytest.raises(ConfigError, match="is not started for everybody: add --secure"):
        FakeCluster(tmp_path, base_port=0)
    first.secured.client_settings("admin").unlink()
    with FakeSecureCluster(tmp_path, base_port=0) as second:
        assert second.brokers[0].spec.inner_port == inner
        assert second.zookeeper_connect == first.zookeeper_connect
        with zookeeper_of(second) as zk:
            assert zk.configs.of("users/spark") == {}
            assert zk.configs.of("users/admin").keys() == admin.keys()
            assert zk.configs.of("users/admin") != admin


def test_an_open_cluster_does_not_become_a_secure_one(tmp_path):
    ClusterDirectory(tmp_path).zookeeper().mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"was made for everybody.*Leave --secure out, or choose another directory"):
        FakeSecureCluster(tmp_path, base_port=0)


@contextlib.contextmanager
def zookeeper_of(cluster):
    """A secure cluster's ZooKeeper, as a broker sees it."""
    settings = load_properties(cluster.secured.broker_settings)
    zk = ZkClient(
        cluster.zookeeper_connect,
        session_timeout=10.0,
        on_session=lambda _: None,
        security=ZooKeeperSecurity.divide(settings)[0],
    )
    try:
        yield zk
    finally:
        zk.close()
