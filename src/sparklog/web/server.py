"""The server of the page: HTTP on one port, for one cluster."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from aiohttp import web

from sparklog.clock import Clock, SystemClock
from sparklog.net.http_connections import HttpConnections, http_socket
from sparklog.structs import Endpoint
from sparklog.web.apis import (
    changes,
    cluster,
    disks,
    groups,
    jobs,
    rates,
    records,
    rights,
    session,
    topics,
    transactions,
)
from sparklog.web.context import CONTEXT, WebContext
from sparklog.web.decoding import Decoder, Decoding
from sparklog.web.protection import GuardedConnection, Handler, WithoutWords, add_headers, guarded
from sparklog.web.settings import WebSettings
from sparklog.web.throttle import LoginThrottle
from sparklog.web.visitors import Visitors

STATIC: Final = Path(__file__).with_name("static")
_READING: Final = (session, cluster, topics, rates, records, groups, disks, transactions, rights, jobs)
_BODY: Final = 1 << 20
"""Bytes of a request."""
_CONNECTIONS: Final = 512
_OF_ADDRESS: Final = 256
"""Behind a proxy all visitors have one address."""
_TYPES: Final = {".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".svg": "image/svg+xml"}


class WebServer:
    """``start`` it on the loop that it will use; ``address`` is known from then on.

    ``decoders`` of records are asked before those that there always are. ``listening`` is a socket that listens at the
    address of the settings; without one the server makes it.
    """

    def __init__(
        self,
        settings: WebSettings,
        clock: Clock | None = None,
        decoders: Sequence[Decoder] = (),
        listening: socket.socket | None = None,
    ) -> None:
        self._settings = settings
        self._socket = listening
        self._clock: Clock = clock or SystemClock()
        self._decoding = Decoding(decoders)
        self._visitors = Visitors(settings, self._clock)
        self._runner: web.AppRunner | None = None
        self._listening: asyncio.Server | None = None
        self.address: Endpoint

    @property
    def url(self) -> str:
        """What to type into a browser on this machine."""
        return self._settings.url(self.address.port)

    async def start(self) -> None:
        """Begin to answer. Raises ConfigError if the port or the certificate cannot be had."""
        tls = self._settings.tls_context()
        sock = self._socket or http_socket(self._settings.host, self._settings.port, f"--port {self._settings.port}")
        self.address = Endpoint(self._settings.host, sock.getsockname()[1])
        app = self._application()
        self._runner = web.AppRunner(app, handle_signals=False, handler_cancellation=True)
        await self._runner.setup()
        self._listening = await HttpConnections(self._connection, _CONNECTIONS, _OF_ADDRESS).listen(sock, tls)
        self._visitors.start()

    def _connection(self) -> GuardedConnection:
        assert self._runner is not None
        assert self._runner.server is not None
        loop = asyncio.get_running_loop()
        return GuardedConnection(self._runner.server, loop=loop, access_log=None, logger=_http_log())

    async def close(self) -> None:
        """Answer no more, and end all sessions."""
        if self._listening is not None:
            self._listening.close()
        await self._visitors.close()
        if self._runner is not None:
            await self._runner.cleanup()
        self._decoding.close()

    def _application(self) -> web.Application:
        origins = self._settings.origins(self.address.port)
        app = web.Application(middlewares=[guarded(origins)], client_max_size=_BODY)
        throttle = LoginThrottle(self._clock)
        app[CONTEXT] = WebContext(
            self._settings, self._clock, self._visitors, throttle, self.address.port, self._decoding
        )
        app.on_response_prepare.append(add_headers)
        for module in (*_READING, *((changes,) if self._settings.allow_changes else ())):
            app.router.add_routes(module.ROUTES)
        app.router.add_get("/", _page("index.html"))
        for path in sorted(STATIC.iterdir()):
            app.router.add_get(f"/static/{path.name}", _page(path.name))
        return app


def _page(name: str) -> Handler:
    path = STATIC / name

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=path.read_bytes(), content_type=_TYPES[path.suffix], charset="utf-8")

    return answer


def _http_log() -> logging.Logger:
    logger = logging.getLogger("sparklog.web.http")
    if not logger.filters:
        logger.addFilter(WithoutWords())
    return logger
