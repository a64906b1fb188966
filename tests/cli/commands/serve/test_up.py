"""``sparklog up``: a cluster that runs until it is told to stop."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from local.test_member import has_ipv6

from sparklog.local.directory import ClusterDirectory
from sparklog.testing.eventually import eventually, wait_for_death

pytestmark = pytest.mark.integration

READY = "Ctrl-C stops the cluster"


class Up:
    """A running ``sparklog up`` and what it has said."""

    def __init__(self, spawn, directory, output, more):
        self.directory = directory
        self._output = output
        with output.open("wb") as file:
            arguments = ("up", "--data", directory, "--port", "0", *more)
            self.process = spawn(*arguments, stdout=file, stderr=subprocess.STDOUT)
        self.wait_for(READY)

    @property
    def said(self):
        return self._output.read_text()

    @property
    def bootstrap(self):
        return re.search(r"^broker 0 +(\S+)", self.said, re.MULTILINE)[1]

    def wait_for(self, text):
        eventually(lambda: text in self.said or self.process.poll() is not None, 60, text)
        assert text in self.said, self.said

    def pid(self, name):
        return int((self.directory / f"{name}.pid").read_text())

    def stop(self, number):
        self.process.send_signal(number)
        return self.process.wait(60)


@pytest.fixture
def start(spawn, tmp_path):
    """Starts a cluster in this test's directory."""
    runs = iter(range(10))
    return lambda *more: Up(spawn, tmp_path / "cluster", tmp_path / f"output-{next(runs)}", more)


def test_it_ends_when_told_leaves_nothing_and_goes_on_with_its_data(start, run, topic, processes_left):
    first = start("--web-port", "0")
    zookeeper, broker = first.pid("zookeeper"), first.pid("broker-0")
    assert re.search(rf"^ZooKeeper .* process {zookeeper}$", first.said, re.MULTILINE)
    assert re.search(rf"^broker 0 .* process {broker}$", first.said, re.MULTILINE)
    assert f"sparklog consume greetings --bootstrap {first.bootstrap}\n" in first.said
    metrics = re.search(r"^broker 0 +metrics at (http://127\.0\.0\.1:\d+)/metrics$", first.said, re.MULTILINE)[1]
    with urllib.request.urlopen(f"{metrics}/ready", timeout=60) as answer:
        assert answer.status == 200
    page = re.search(r"^broker 0 +web page at (http://127\.0\.0\.1:\d+/)$", first.said, re.MULTILINE)[1]
    with urllib.request.urlopen(page, timeout=60) as answer:
        assert b"<title>sparklog</title>" in answer.read()
    bootstrap = first.bootstrap
    assert run("produce", topic, "-b", bootstrap, stdin=b"kept\n").status == 0
    assert len(processes_left()) >= 3

    assert first.stop(signal.SIGTERM) == 0
    assert first.said.endswith("\nstopped\n")
    assert processes_left() == []
    assert list(first.directory.glob("*.pid")) == []
    assert run("topic", "list", "-b", bootstrap).status == 1

    second = start()
    assert second.bootstrap == bootstrap
    assert f"{metrics}/metrics" in second.said
    assert run("consume", topic, "-b", bootstrap).out == "kept\n"
    assert second.stop(signal.SIGINT) == 0
    assert processes_left() == []


def test_a_killed_broker_is_back_and_a_second_up_is_refused(start, run, topic):
    up = start()
    assert run("produce", topic, "-b", up.bootstrap, stdin=b"before\n").status == 0
    killed = up.pid("broker-0")
    os.kill(killed, signal.SIGKILL)
    wait_for_death(killed)
    up.wait_for("broker 0 is back")
    assert "broker 0 was killed by SIGKILL" in up.said
    again = up.pid("broker-0")
    assert again != killed
    assert f"broker 0 is back (process {again})" in up.said
    assert run("consume", topic, "-b", up.bootstrap).out == "before\n"

    refused = run("up", "--data", up.directory, "--port", "0")
    assert (refused.status, refused.out, refused.err.count("\n")) == (1, "", 1)
    assert f"{up.directory} is in use by a running cluster (process {up.process.pid})" in refused.err
    assert up.pid("broker-0") == again
    assert run("produce", topic, "-b", up.bootstrap, stdin=b"after\n").status == 0
    assert up.stop(signal.SIGTERM) == 0


def test_a_directory_that_cannot_be_is_one_line_that_says_what_to_do(run, tmp_path):
    (tmp_path / "file").touch()
    refused = run("up", "--data", tmp_path / "file" / "below", "--port", "0")
    assert (refused.status, refused.out, refused.err.count("\n")) == (1, "", 1)
    assert refused.err.startswith(f"sparklog: no cluster can be kept in {tmp_path}/file/below: ")
    assert "Not a directory; choose a directory (--data)" in refused.err
    refused = run("up", "--data", tmp_path / "file")
    assert refused.status == 2
    assert f"'--data': Directory '{tmp_path}/file' is a file." in refused.err


def test_a_directory_with_a_comma_is_refused_and_nothing_made(run, tmp_path):
    refused = run("up", "--data", tmp_path / "acme,inc", "--port", "0")
    assert (refused.status, refused.out) == (1, "")
    assert "choose a directory (--data) without a comma" in refused.err
    assert not [*tmp_path.glob("acme*")]


@pytest.mark.parametrize("pages", [0, 1, 2, pytest.param(3, marks=pytest.mark.slow)])
def test_a_disk_that_is_full_is_named_with_what_to_do(run, disk_of, pages):
    """Whether there is no room for the lock, the ports, the settings of ZooKeeper, or what that writes itself."""
    disk = disk_of("3m")
    with (disk / "ballast").open("wb", buffering=0) as ballast:
        with contextlib.suppress(OSError):
            while True:
                ballast.write(bytes(4096))
        ballast.truncate(ballast.tell() - pages * 4096)
    refused = run("up", "--data", disk, "--port", "0")
    assert (refused.status, refused.out) == (1, "")
    first = refused.err.splitlines()[0]
    assert first.startswith("sparklog: ")
    assert "the disk is full: " in first
    assert f" are free in {disk}" in first
    assert "; free some space there" in first
    assert "Traceback" not in refused.err


def test_a_port_that_is_taken_is_named(run, tmp_path, bootstrap):
    port = bootstrap.rpartition(":")[2]
    refused = run("up", "--data", tmp_path / "cluster", "--port", port)
    assert refused.status == 1
    assert f"port {port} on 127.0.0.1, wanted by broker 0, is in use" in refused.err
    assert list((tmp_path / "cluster").glob("*.pid")) == []


@pytest.fixture
def three_brokers(tmp_path):
    """A directory with data of three brokers, which somebody else holds: no cluster gets so far as to start."""
    directory = ClusterDirectory(tmp_path / "cluster of 3")
    directory.lock()
    for broker in range(3):
        directory.broker(broker).mkdir()
    yield directory.root
    directory.unlock()


def test_without_brokers_there_are_as_many_as_the_directory_has(run, three_brokers):
    refused = run("up", "--data", three_brokers, "--port", "65535")
    assert "the brokers would listen on the ports 65535 to 65537" in refused.err


def test_fewer_brokers_than_there_are_is_said_with_what_to_type(run, three_brokers):
    warning, in_use = run("up", "--data", three_brokers, "--port", "0", "--brokers", "1").err.splitlines()
    assert warning.startswith(f"WARNING: not started: broker 1, broker 2. Their data in {three_brokers} is left lying")
    assert f"sparklog up --brokers 3 --data '{three_brokers}' and your other options" in warning
    assert "in use by a running cluster" in in_use
    (in_use,) = run("up", "--data", three_brokers, "--port", "0", "--brokers", "3").err.splitlines()
    assert "in use by a running cluster" in in_use


def is_open(host, port):
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except ConnectionRefusedError:
        return False
    return True


def test_an_address_of_another_machine_is_said_to_be_one(run, tmp_path):
    refused = run("up", "--data", tmp_path / "cluster", "--host", "192.0.2.1")
    assert (refused.status, refused.out, refused.err.count("\n")) == (1, "", 1)
    assert "192.0.2.1 is not an address of this machine" in refused.err
    assert "port" not in refused.err


def test_every_address_needs_one_that_clients_can_be_told(run, tmp_path):
    refused = run("up", "--data", tmp_path / "cluster", "--host", "0.0.0.0")
    assert (refused.status, refused.out, refused.err.count("\n")) == (1, "", 1)
    assert "name it with --advertised-host" in refused.err


def test_brokers_listen_everywhere_where_that_is_asked_and_zookeeper_never(start, run, topic):
    up = start("--host", "0.0.0.0", "--advertised-host", "127.0.0.2")
    host, _, port = up.bootstrap.rpartition(":")
    assert host == "127.0.0.2"
    assert run("produce", topic, "-b", f"127.0.0.1:{port}", stdin=b"told\n").status == 0
    assert run("consume", topic, "-b", up.bootstrap).out == "told\n"
    zookeeper = re.search(r"^ZooKeeper +(\S+):(\d+)", up.said, re.MULTILINE)
    assert zookeeper[1] == "127.0.0.1"
    assert is_open("127.0.0.2", port)
    assert not is_open("127.0.0.2", zookeeper[2])
    assert up.stop(signal.SIGTERM) == 0


@pytest.mark.slow  # integration/test_ensemble.py has an ensemble that loses a member under a broker
@pytest.mark.skipif(not has_ipv6(), reason="there is no IPv6 here")
def test_what_is_said_of_a_broker_with_an_ipv6_address_can_be_typed(start, run, topic):
    up = start("--host", "::1")
    assert up.bootstrap.startswith("[::1]:")
    assert run("produce", topic, "-b", up.bootstrap, stdin=b"told\n").status == 0
    assert run("consume", topic, "-b", up.bootstrap).out == "told\n"
    assert up.stop(signal.SIGTERM) == 0


def test_an_ensemble_goes_on_without_a_member_that_comes_back(start, run, topic, processes_left):
    up = start("--zookeepers", "3")
    assert re.findall(r"^ZooKeeper (\d) +\S+:\d+ +process", up.said, re.MULTILINE) == ["1", "2", "3"]
    os.kill(up.pid("zookeeper-2"), signal.SIGKILL)
    up.wait_for("ZooKeeper 2 was killed by SIGKILL; starting it again")
    assert run("topic", "create", topic, "-b", up.bootstrap).status == 0
    up.wait_for("ZooKeeper 2 is back")
    assert run("produce", topic, "-b", up.bootstrap, stdin=b"kept\n").status == 0
    assert up.stop(signal.SIGTERM) == 0
    assert processes_left() == []

    refused = run("up", "--data", up.directory, "--zookeepers", "1")
    assert (refused.status, refused.out, refused.err.count("\n")) == (1, "", 1)
    assert "has 3 ZooKeepers, and cannot be made one with 1" in refused.err
    again = start()
    assert run("consume", topic, "-b", again.bootstrap).out == "kept\n"
    assert again.stop(signal.SIGTERM) == 0


def next_lines(said, title):
    """What is to be typed below one of the titles."""
    return textwrap.dedent(re.search(rf"^{re.escape(title)}\n\n(.*?)\n\n", said, re.MULTILINE | re.DOTALL)[1])


def test_a_secure_cluster_says_what_to_type(start, run, monkeypatch):
    up = start("--secure")
    export, create, produce, consume = next_lines(up.said, "Next, in another terminal:").splitlines()
    assert run("topic", "list", "-b", up.bootstrap).status == 1
    name, file = re.fullmatch(r"export (\w+)=(.*)", export).groups()
    monkeypatch.setenv(name, file)
    said, _, command = produce.partition(" | ")
    results = [
        run(*words[1:], stdin=text)
        for words, text in [
            (create.split(), b""),
            (command.split(), said.removeprefix("echo ").encode() + b"\n"),
            (consume.split(), b""),
        ]
    ]
    assert [each.status for each in results] == [0, 0, 0], results
    assert results[-1].out == "hello\n"
    metrics, token = re.search(r"metrics at (http\S+) by the token in (.+)", up.said).groups()
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(metrics, timeout=60)
    asked = urllib.request.Request(metrics, headers={"Authorization": f"Bearer {Path(token).read_text().strip()}"})
    with urllib.request.urlopen(asked, timeout=60) as answer:
        assert b"greetings" in answer.read()
    assert up.stop(signal.SIGTERM) == 0
    refused = run("up", "--data", up.directory, "--port", "0")
    assert (refused.status, refused.err.count("\n")) == (1, 1)
    assert "add --secure, or choose another directory" in refused.err


@pytest.mark.slow
def test_what_is_said_of_spark_is_a_program(start, run, quick_spark):
    up = start("--secure", "--brokers", "3", "--zookeepers", "3")
    admin = ("--command-config", up.directory / "secure" / "admin.properties")
    assert run("topic", "create", "greetings", "--replication", "3", *admin).status == 0
    assert run("produce", "greetings", *admin, stdin=b"hello\n").status == 0
    session = "from pyspark.sql import SparkSession\nspark = SparkSession.builder.master('local[1]').getOrCreate()\n"
    program = session + next_lines(up.said, "or in PySpark:")
    environ = {**os.environ, **quick_spark, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "|[68 65 6C 6C 6F]|" in done.stdout
