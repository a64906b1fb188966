"""Connections by listener, and the memory that requests and answers hold."""

from __future__ import annotations

from sparklog.metrics import families
from sparklog.metrics.exposition import Exposition
from sparklog.net.server import SocketServer
from sparklog.protocol.slices import Steps

_PROCESSOR = "0"
"""One loop serves all; Kafka's have several threads for it."""


class ConnectionCollector:
    """Kafka's ``SocketServer``."""

    def __init__(self, server: SocketServer) -> None:
        self._server = server

    def collect(self, page: Exposition) -> Steps[None]:
        server = self._server
        now = server.open_by_listener()
        for listener, opened in sorted(server.opened.items()):
            page.add(families.CONNECTIONS, now[listener], listener, _PROCESSOR)
            page.add(families.CONNECTIONS_BY_STRIMZI, now[listener], listener, _PROCESSOR)
            page.add(families.CONNECTIONS_OPENED, opened, listener, _PROCESSOR)
            page.add(families.CONNECTIONS_CLOSED, opened - now[listener], listener, _PROCESSOR)
        for family, counted in (
            (families.AUTHENTICATED, server.authenticated),
            (families.NOT_AUTHENTICATED, server.refused),
        ):
            page.lines(family)
            for listener, count in sorted(counted.items()):
                page.add(family, count, listener, _PROCESSOR)
        page.add(families.STRANGERS, server.strangers)
        page.add(families.TURNED_AWAY, server.turned_away)
        page.add(families.REQUEST_MEMORY, server.request_bytes)
        page.add(families.ANSWER_MEMORY, server.answer_bytes)
        page.add(families.WAITING_TURNS, server.turns.waiting)
        yield
