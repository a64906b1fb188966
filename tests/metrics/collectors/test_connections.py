"""Connections of a real listening end, as they are told."""

from metrics.pages import collected
from net.listening import Server

from sparklog.metrics.collectors.connections import ConnectionCollector
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
