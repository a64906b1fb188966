"""The embedded ZooKeeper."""

import os
import signal
import socket
import struct
import subprocess
import sys

import pytest
from kazoo.client import KazooClient

from sparklog.errors import ConfigError, ConnectionFailed
from sparklog.local import zookeeper as module
from sparklog.local.zookeeper import EmbeddedZooKeeper
from sparklog.testing.eventually import wait_for_death

pytestmark = pytest.mark.integration


def session(server):
    client = KazooClient(server.connect_string)
    client.start(timeout=20)
    return client


def granted_timeout(server, wanted):
    """Milliseconds that the server grants to a session which asks for ``wanted``, by ZooKeeper's first exchange."""
    request = struct.pack(">iqiqi16sb", 0, 0, wanted, 0, 16, b"", 0)
    with socket.create_connection((server.host, server.port), timeout=10) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        answer = connection.makefile("rb").read(12)
    return struct.unpack(">iii", answer)[2]


def close(client):
    client.stop()
    client.close()


def test_data_and_port_survive_a_restart(tmp_path):
    server = EmbeddedZooKeeper(tmp_path)
    port = server.port
    with server:
        client = session(server)
        client.create("/kept/here", b"value", makepath=True)
        close(client)
    assert not server.alive
    with server:
        assert server.port == port
        client = session(server)
        assert client.get("/kept/here")[0] == b"value"
        close(client)


def test_its_data_is_in_its_directory_whatever_that_is_called(tmp_path):
    directory = tmp_path / "dätä \\u0041 日本 🎉"
    with EmbeddedZooKeeper(directory, fsync=False):
        assert (directory / "version-2").is_dir()
    assert list(tmp_path.iterdir()) == [directory]


def test_data_survives_a_crash(tmp_path):
    server = EmbeddedZooKeeper(tmp_path)
    server.start()
    client = session(server)
    client.create("/kept", b"value")
    close(client)
    server.kill()
    with EmbeddedZooKeeper(tmp_path, server.port) as again:
        client = session(again)
        assert client.get("/kept")[0] == b"value"
        close(client)


def test_the_tick_bounds_the_session_timeout(tmp_path):
    with EmbeddedZooKeeper(tmp_path, tick_time_ms=200, fsync=False) as server:
        assert [granted_timeout(server, wanted) for wanted in (1, 30_000)] == [400, 30_000]


def test_a_port_in_use_is_named(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} on 127.0.0.1, wanted by ZooKeeper, is in use"):
            EmbeddedZooKeeper(tmp_path, port).start()


def test_a_server_that_cannot_start_shows_its_log(tmp_path):
    (tmp_path / "version-2").write_text("a file where a directory must be")
    server = EmbeddedZooKeeper(tmp_path)
    with pytest.raises(ConnectionFailed, match=r"ZooKeeper exited with status \d+ before(.|\n)*version-2"):
        server.start()
    assert not server.alive


def test_no_java_is_said(tmp_path, monkeypatch):
    def none():
        raise ConfigError("no Java")

    monkeypatch.setattr(module, "find_java", none)
    with pytest.raises(ConfigError, match="no Java"):
        EmbeddedZooKeeper(tmp_path).start()


PARENT = """
import sys
from pathlib import Path
from sparklog.local.zookeeper import EmbeddedZooKeeper
server = EmbeddedZooKeeper(Path(sys.argv[1]))
server.start()
print(server.pid, flush=True)
sys.stdin.read()
"""


def test_it_dies_with_its_parent(tmp_path):
    command = [sys.executable, "-c", PARENT, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        os.kill(parent.pid, signal.SIGKILL)
        wait_for_death(pid)
