"""The network between brokers, their clients and ZooKeeper, which a test cuts, slows and breaks, each way by itself.

Before every server stands a relay, whose address the others are told. Who asks is known by the address that it asks
from: each broker has one of its own (``faulty_broker``), clients have the machine's.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
HOST = "127.0.0.1"
CLIENTS, ZOOKEEPER = "clients", "zookeeper"
_BLOCK = 1 << 16
_WAIT_S = 30.0


def broker_name(broker_id: int) -> str:
    return f"broker-{broker_id}"


def broker_source(broker_id: int) -> str:
    """The address from which the broker asks others."""
    return f"127.0.1.{broker_id + 1}"


class Network:
    """A way is a pair of names, from whom and to whom. What is sent on a way that is cut waits until it is healed, as
    with TCP; a connection that is opened meanwhile waits too.
    """

    def __init__(self, brokers: int) -> None:
        self._names = {broker_source(number): broker_name(number) for number in range(brokers)}
        self._loop = asyncio.new_event_loop()
        self._cut: set[tuple[str, str]] = set()
        self._delays: dict[tuple[str, str], float] = {}
        self._healed = asyncio.Event()
        self._lines: dict[asyncio.Task[None], tuple[str, str]] = {}
        self._servers: list[asyncio.Server] = []
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Hang up, and relay nothing any more."""
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_WAIT_S)
        self._loop.close()

    def relay(self, name: str, port: int) -> int:
        """Stand before the server of this name, on this port of the machine; returns the port of the relay."""
        return self._do(self._listen(name, port))

    def cut(self, *ways: tuple[str, str]) -> None:
        """Let nothing through on these ways."""
        self._change(lambda: self._cut.update(ways))

    def slow(self, seconds: float, *ways: tuple[str, str]) -> None:
        """Let everything come later by so much."""
        self._change(lambda: self._delays.update(dict.fromkeys(ways, seconds)))

    def heal(self) -> None:
        """Let everything through at once, what has waited too."""

        def mend() -> None:
            self._cut.clear()
            self._delays.clear()
            self._healed.set()

        self._change(mend)

    def reset(self, *ways: tuple[str, str]) -> None:
        """Break the connections that were opened on these ways; all, if none is named."""

        def hang_up() -> None:
            for line, way in self._lines.items():
                if not ways or way in ways:
                    line.cancel()

        self._change(hang_up)

    def _change(self, change: Callable[[], object]) -> None:
        async def run() -> None:
            change()

        self._do(run())

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_WAIT_S)

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        await asyncio.sleep(0)  # what was accepted last begins
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for other in others:
                other.cancel()
            await asyncio.wait(others)
        await asyncio.sleep(0)  # sockets are closed a turn later

    async def _listen(self, name: str, port: int) -> int:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            line = asyncio.current_task()
            assert line is not None
            asker = self._names.get(writer.get_extra_info("peername")[0], CLIENTS)
            self._lines[line] = asker, name
            try:
                await self._join(asker, name, port, reader, writer)
            except (OSError, asyncio.CancelledError):
                pass
            finally:
                self._lines.pop(line, None)
                writer.transport.abort()

        server = await asyncio.start_server(accept, HOST, 0)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _join(
        self, asker: str, name: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await self._pass(asker, name)
        await self._pass(name, asker)
        answers, requests = await asyncio.open_connection(HOST, port)
        pumps = [
            asyncio.ensure_future(self._pump((asker, name), reader, requests)),
            asyncio.ensure_future(self._pump((name, asker), answers, writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            requests.transport.abort()
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(self, way: tuple[str, str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_BLOCK):
            await self._pass(*way)
            writer.write(data)
            await writer.drain()
        await self._pass(*way)

    async def _pass(self, source: str, target: str) -> None:
        await asyncio.sleep(self._delays.get((source, target), 0.0))
        while (source, target) in self._cut:
            self._healed.clear()
            await self._healed.wait()
