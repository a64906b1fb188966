"""Connections of a real listening end, as they are told."""

from metrics.pages import collected
from net.listening import Server, answer, framed, read_frame

from sparklog.metrics.collectors.connections import ConnectionCollector
from sparklog.net.server import Entrance
from sparklog.testing.eventually import eventually

NAME = "kafka_server_socketservermetrics_connection_"


def test_connections_that_are_open_and_those_that_were():
    server = Server()
    labels = {"listener": "PLAINTEXT", "network_processor": "0"}
    try:
        with server.connect():
            eventually(lambda: server.call(lambda: server.server.connections) == 1)
            with server.connect():
                eventually(lambda: server.call(lambda: server.server.connections) == 2)
            eventually(lambda: server.call(lambda: server.server.connections) == 1)
            page = server.call(collected, ConnectionCollector(server.server))
        assert page.value(NAME + "count", **labels) == 1
        by_strimzi = {"listener": "PLAINTEXT", "networkProcessor": "0"}
        assert page.value("kafka_server_socket_server_metrics_connection_count", **by_strimzi) == 1
        assert page.value(NAME + "creation_total", **labels) == 2
        assert page.value(NAME + "close_total", **labels) == 1
        assert page.value("sparklog_connections_turned_away_total") == 0
    finally:
        server.stop()


def test_those_that_are_too_many_of_a_host_are_turned_away():
    from sparklog.net.limits import Limits

    server = Server(Limits(1 << 20, 4, max_per_host=1))
    try:
        with server.connect():
            eventually(lambda: server.call(lambda: server.server.connections) == 1)
            with server.connect() as other:
                assert other.recv(1) == b""
        page = server.call(collected, ConnectionCollector(server.server))
        assert page.value("sparklog_connections_turned_away_total") == 1
    finally:
        server.stop()


class Word:
    """A gate that a peer passes by one word."""

    max_size = 1 << 10

    def __init__(self, caller):
        self._caller = caller
        self._is_passed = False

    def takes(self, _):
        return not self._is_passed

    def serve(self, frame):
        self._is_passed = bytes(frame) == b"sesame"
        if self._is_passed:
            self._caller.connection.admit()
        else:
            self._caller.connection.refuse()
        return answer(bytes(frame))


def test_peers_that_authenticate_and_those_that_fail_to_are_counted_by_listener():
    server = Server(entrance=Entrance("CLIENTS", gate=Word))
    server.dispatch = lambda frame, caller: caller.gate.serve(frame)
    labels = {"listener": "CLIENTS", "network_processor": "0"}
    name = "kafka_server_socketservermetrics_{}_authentication_total"
    try:
        for word in (b"sesame", b"barley", b"wheat"):
            with server.connect() as client:
                client.sendall(framed(word))
                assert read_frame(client) == word
        page = server.call(collected, ConnectionCollector(server.server))
    finally:
        server.stop()
    assert page.value(name.format("successful"), **labels) == 1
    assert page.value(name.format("failed"), **labels) == 2
