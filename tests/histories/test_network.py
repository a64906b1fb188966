"""The network that a test may harm: what a relay passes on, and what it does when its server is gone."""

import gc
import socket

import pytest
from histories.network import CLIENTS, HOST, Network

from sparklog.local.ports import free_port
from sparklog.testing.eventually import eventually


class Echo:
    """A server that answers with what it is sent, and is gone at a word."""

    def __init__(self, port=None):
        self.port = port or free_port(HOST)
        self._server = socket.create_server((HOST, self.port))
        self._lines = []

    def take(self):
        line, _ = self._server.accept()
        self._lines.append(line)
        return line

    def die(self):
        """As a process does: it listens no more, and its connections break."""
        self._server.close()
        for line in self._lines:
            line.close()


@pytest.fixture
def network_of():
    networks = []

    def make(**how):
        networks.append(Network(1, **how))
        return networks[-1]

    yield make
    for each in networks:
        each.close()


def connect(port):
    line = socket.create_connection((HOST, port), timeout=60)
    line.settimeout(60)
    return line


def is_refused(port):
    try:
        connect(port).close()
    except ConnectionRefusedError:
        return True
    return False


def through(port, server):
    """A connection by the relay, at both ends; the server may have been looked at first."""
    asker = connect(port)
    asker.sendall(b"x")
    while True:
        line = server.take()
        line.settimeout(60)
        if line.recv(1) == b"x":
            return asker, line


def test_what_is_gone_refuses_connections_until_it_is_back_on_the_same_port(network_of):
    server = Echo()
    relay = network_of(refuses=True).relay("broker-0", server.port)
    eventually(lambda: not is_refused(relay), what="the relay to listen")
    asker, line = through(relay, server)
    line.sendall(b"y")
    assert asker.recv(1) == b"y"
    server.die()
    assert asker.recv(1) == b""
    assert is_refused(relay), "who has lost a connection finds nobody there"
    back = Echo(server.port)
    eventually(lambda: not is_refused(relay), what="the relay to listen again")
    for end in (asker, *through(relay, back)):
        end.close()
    back.die()


def test_what_is_gone_refuses_connections_also_where_the_way_to_it_is_cut(network_of):
    server, network = Echo(), network_of(refuses=True)
    relay = network.relay("broker-0", server.port)
    eventually(lambda: not is_refused(relay), what="the relay to listen")
    asker, _ = through(relay, server)
    network.cut(("broker-0", CLIENTS))
    server.die()
    eventually(lambda: is_refused(relay), what="the relay to listen no more")
    asker.settimeout(0)
    with pytest.raises(BlockingIOError):
        asker.recv(1)
    asker.settimeout(60)
    network.heal()
    assert asker.recv(1) == b"", "what was cut off learns of the end now"
    asker.close()


def test_a_host_that_is_gone_refuses_nothing(network_of):
    server = Echo()
    relay = network_of().relay("broker-0", server.port)
    asker, _ = through(relay, server)
    server.die()
    assert asker.recv(1) == b""
    with connect(relay) as again:
        assert again.recv(1) == b""
    asker.close()


def test_nothing_stays_open_of_connections_that_come_as_the_network_is_closed():
    server = Echo()
    for _ in range(20):
        network = Network(1)
        port = network.relay(CLIENTS, server.port)
        lines = [connect(port) for _ in range(30)]
        network.close()
        for line in lines:
            line.close()
    server.die()
    gc.collect()  # what is open is a ResourceWarning, and fails the test
