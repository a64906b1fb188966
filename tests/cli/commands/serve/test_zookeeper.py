"""``sparklog zookeeper``: a server in the foreground, and what is said of lists of servers that are wrong."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from sparklog.cli.commands.serve.zookeeper import zookeeper
from sparklog.local.ensemble import parse_ensemble
from sparklog.local.ports import free_port
from sparklog.local.zookeeper import EmbeddedZooKeeper, ZooKeeperTls
from sparklog.testing.eventually import eventually


def listed(*ids):
    return ",".join(f"{each}=127.0.0.1:{free_port()}:{free_port()}:{free_port()}" for each in ids)


class Foreground:
    """A running ``sparklog zookeeper``, and what it has said on both streams."""

    def __init__(self, spawn, directory, own, servers, *more):
        self.directory, self._output = directory, directory.with_suffix(".output")
        arguments = ("zookeeper", "--id", own, "--servers", servers, "--data", directory, "--tick", "500", *more)
        with self._output.open("wb") as file:
            self.process = spawn(*arguments, stdout=file, stderr=subprocess.STDOUT, environ={"PYTHONUNBUFFERED": "1"})

    @property
    def said(self):
        return self._output.read_text()

    def wait_for(self, pattern):
        eventually(lambda: re.search(pattern, self.said) or self.process.poll() is not None, 120, pattern)
        assert re.search(pattern, self.said), self.said

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@pytest.mark.integration
def test_one_server_serves_says_so_and_stops_when_told(spawn, run, tmp_path, processes_left):
    servers = listed(7)
    port = servers.rpartition(":")[2]
    server = Foreground(spawn, tmp_path / "seven", 7, servers)
    server.wait_for("sparklog zookeeper 7 serves alone\n")
    assert f"sparklog zookeeper 7 listening on 127.0.0.1:{port}\n" in server.said
    assert "note: one server that votes" in server.said
    assert "ERROR" not in server.said
    assert "majority" not in server.said
    refused = run("zookeeper", "--id", 7, "--servers", listed(7), "--data", server.directory)
    assert (refused.status, refused.out) == (1, "")
    assert f"is in use by a running ZooKeeper (process {server.process.pid})" in refused.err
    assert server.stop() == 0
    assert server.said.endswith("stopped\n")
    assert processes_left() == []

    other = run("zookeeper", "--id", 8, "--servers", listed(8), "--data", server.directory)
    assert (other.status, other.out) == (1, "")
    assert "is the directory of member '7', not of 8" in other.err


@pytest.mark.integration
def test_a_server_with_a_certificate_speaks_tls_alone(spawn, run, tmp_path):
    assert run("cert", "ca", tmp_path / "ca").status == 0
    issued = run("cert", "issue", "zk", "--ca", tmp_path / "ca", "--host", "127.0.0.1", "--out", tmp_path)
    assert issued.status == 0
    servers = listed(1)
    files = ZooKeeperTls(tmp_path / "zk.pem", tmp_path / "ca" / "ca.pem")
    server = Foreground(spawn, tmp_path / "one", 1, servers, "--tls", *files)
    server.wait_for("sparklog zookeeper 1 serves alone\n")
    client = EmbeddedZooKeeper(tmp_path, int(servers.rpartition(":")[2]))
    assert client.four_letter_word("srvr") == ""
    client.tls = files
    assert "Mode: standalone" in client.four_letter_word("srvr")
    assert server.stop() == 0


@pytest.mark.integration
def test_a_server_that_dies_ends_the_command_with_the_reason(spawn, tmp_path):
    (tmp_path / "bad" / "version-2").mkdir(parents=True)
    (tmp_path / "bad" / "myid").write_text("1\n")
    (tmp_path / "bad" / "version-2" / "log.1").write_bytes(b"not a log")
    server = Foreground(spawn, tmp_path / "bad", 1, listed(1, 2, 3))
    assert server.process.wait(120) == 1
    assert re.search(r"ERROR +zookeeper.QuorumPeer +Unable to load database on disk No snapshot found", server.said), (
        server.said
    )
    last = server.said.splitlines()[-1]
    assert re.match(r"sparklog: ZooKeeper 1 exited with status \d+, since its data cannot be read: move", last), last


@pytest.mark.slow
@pytest.mark.integration
def test_one_that_votes_may_have_an_observer(spawn, tmp_path):
    servers = f"{listed(1, 2)}:observer"
    one, other = (Foreground(spawn, tmp_path / str(each), each, servers) for each in (1, 2))
    one.wait_for("sparklog zookeeper 1 leads\n")
    other.wait_for("sparklog zookeeper 2 observes\n")


@pytest.mark.slow
@pytest.mark.integration
def test_three_and_an_observer_make_an_ensemble_that_outlives_one(spawn, tmp_path):
    servers = f"{listed(1, 2, 3, 4)}:observer"
    all_four = {each: Foreground(spawn, tmp_path / str(each), each, servers) for each in (1, 2, 3, 4)}
    all_four[4].wait_for("sparklog zookeeper 4 observes\n")
    for each in (1, 2, 3):
        all_four[each].wait_for(r"zookeeper \d (leads|follows)\n")
    leader = next(each for each in (1, 2, 3) if "leads\n" in all_four[each].said)
    client = KazooClient(",".join(f"127.0.0.1:{each.split(':')[3]}" for each in servers.split(",")))
    client.start(timeout=60)
    client.create("/kept", b"yes")
    os.kill(all_four[leader].process.pid, signal.SIGKILL)
    eventually(lambda: any(f"{each} leads\n" in all_four[each].said for each in {1, 2, 3} - {leader}), 120)
    assert client.retry(client.get, "/kept")[0] == b"yes"
    second = next(each for each in (1, 2, 3) if each != leader)
    assert all_four.pop(second).stop() == 0
    all_four[4].wait_for("waits for a majority")
    client.stop()
    client.close()


@pytest.mark.parametrize(
    ("own", "servers", "named"),
    [
        (1, "1=a:1:2:3,1=b:1:2:3", "two servers have the id 1"),
        (4, "1=a:1:2:3,2=b:1:2:3,3=c:1:2:3", "no server has the id 4; those named have 1, 2, 3"),
        (1, "a:1:2:3", "'a:1:2:3' is not ID=HOST:PEER-PORT"),
    ],
)
def test_a_list_that_makes_no_ensemble_is_misuse(run, tmp_path, own, servers, named):
    refused = run("zookeeper", "--id", own, "--servers", servers, "--data", tmp_path / "new")
    assert (refused.status, refused.out) == (2, "")
    assert named in refused.err
    assert not (tmp_path / "new").exists()


def test_the_unit_and_its_environment_name_servers_and_options_that_there_are():
    conf = Path(__file__).parents[4] / "conf"
    unit = (conf / "systemd" / "sparklog-zookeeper@.service").read_text()
    environment = (conf / "three-hosts" / "zookeeper.env").read_text()
    ensemble = parse_ensemble(re.search(r"^SERVERS=(.*)$", environment, re.MULTILINE)[1])
    command = re.search(r"^ExecStart=\S+/sparklog (.*)$", unit, re.MULTILINE)[1].split()
    assert (ensemble.voters, ensemble.warning) == (3, None)
    assert command[0] == "zookeeper"
    options = {name for option in zookeeper.params for name in option.opts}
    assert {each for each in command if each.startswith("--")} <= options
