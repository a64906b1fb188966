"""The HTTP port of a broker: ``/metrics``, ``/health``, ``/ready``.

It is on the broker's own loop, so that ``/health`` says whether that answers. A scrape is collected in steps among the
connections' turns, and scrapes that come meanwhile get its result.
"""

from __future__ import annotations

import asyncio
import hmac
from pathlib import Path

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from sparklog.broker.server import Broker
from sparklog.config.broker import BrokerConfig
from sparklog.errors import ConfigError
from sparklog.metrics.collectors.loop import LoopLag
from sparklog.metrics.exposition import CONTENT_TYPE
from sparklog.metrics.scrape import Scrape
from sparklog.net.http_connections import HttpConnections, http_socket
from sparklog.structs import Endpoint

_STARTING = "the broker is starting"
_KEEP_ALIVE_S = 75.0
_CONNECTIONS = 64
_OF_ADDRESS = 16
"""One client must not keep out Prometheus, nor what looks whether the broker lives and is ready."""
_OF_LOOPBACK = 16


class MetricsEndpoint:
    """Of one broker; ``address`` is known from ``start`` on."""

    def __init__(self, broker: Broker, config: BrokerConfig) -> None:
        """Raises ConfigError if the token cannot be read."""
        self._broker = broker
        self._config = config
        self._token = _token_in(config.metrics_token_file)
        self._runner: web.AppRunner | None = None
        self._listening: asyncio.Server | None = None
        self._scrape: Scrape | None = None
        self._loop_lag = LoopLag()
        self._under_way: asyncio.Task[bytes] | None = None
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        PlatformCollector(registry=self._process)
        GCCollector(registry=self._process)
        self.address: Endpoint

    async def start(self) -> None:
        """Begin to answer. Raises ConfigError if the port cannot be had."""
        host, port = self._config.metrics_host, self._config.metrics_port
        sock = http_socket(host, port, f"sparklog.metrics.port={port}")
        self.address = Endpoint(self._config.metrics_host, sock.getsockname()[1])
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/health", self._health)
        app.router.add_get("/ready", self._ready)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, keepalive_timeout=_KEEP_ALIVE_S)
        await self._runner.setup()
        assert self._runner.server is not None
        connections = HttpConnections(self._runner.server, _CONNECTIONS, _OF_ADDRESS, _OF_LOOPBACK)
        self._listening = await connections.listen(sock)
        self._loop_lag.start()

    async def close(self) -> None:
        """Answer no more; a scrape under way is given up."""
        self._loop_lag.close()
        if self._under_way is not None:
            self._under_way.cancel()
            await asyncio.gather(self._under_way, return_exceptions=True)
        if self._listening is not None:
            self._listening.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _ready(self, _: web.Request) -> web.Response:
        why = self._broker.why_not_ready()
        return web.Response(text="ready\n") if why is None else web.Response(status=503, text=f"{why}\n")

    async def _metrics(self, request: web.Request) -> web.Response:
        if not self._may_read(request.headers.get("Authorization", "")):
            return web.Response(status=401, text="a bearer token is needed\n", headers={"WWW-Authenticate": "Bearer"})
        if not self._broker.is_assembled:
            return web.Response(status=503, text=f"{_STARTING}\n")
        if self._under_way is None or self._under_way.done():
            self._under_way = asyncio.ensure_future(self._page())
        page = await asyncio.shield(self._under_way)
        return web.Response(body=page, headers={"Content-Type": CONTENT_TYPE})

    def _may_read(self, authorization: str) -> bool:
        if self._token is None:
            return True
        scheme, _, token = authorization.partition(" ")
        told = token.strip().encode("utf-8", "surrogateescape")  # as the header's bytes were
        return scheme.lower() == "bearer" and hmac.compare_digest(told, self._token.encode())

    async def _page(self) -> bytes:
        if self._scrape is None:
            self._scrape = Scrape(self._broker, self._config, self._loop_lag)
        page = await self._broker.sockets.turns.drive(self._scrape.steps(), lambda: "a scrape of the metrics")
        loop = asyncio.get_running_loop()  # the files of the process are counted by a thread: there may be many
        process: bytes = await loop.run_in_executor(None, generate_latest, self._process)
        return page + process


def _token_in(path: str) -> str | None:
    """Raises ConfigError."""
    if not path:
        return None
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read sparklog.metrics.token.file={path}: {error}") from error
    if not token:
        raise ConfigError(f"sparklog.metrics.token.file={path} is empty: write the token into it")
    return token
