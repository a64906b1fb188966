"""The network between brokers, their clients and ZooKeeper, which a test cuts, slows and breaks, each way by itself.

Before every server stands a relay, whose address the others are told. Who asks is known by the address that it asks
from: each broker has one of its own (``faulty_broker``), clients have the machine's.

A server that is gone is one of two things to the others. Where its host is gone with it, nobody answers for it: the
relay goes on taking connections, and hangs up. Where the host is there, its kernel refuses connections, and so does the
relay: it listens on its port only while the server does (``refuses``). Also on a way that is cut.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from sparklog.local.ports import free_port

T = TypeVar("T")
HOST = "127.0.0.1"
CLIENTS, ZOOKEEPER = "clients", "zookeeper"
_BLOCK = 1 << 16
_WAIT_S = 30.0
_LOOK_EVERY_S = 0.02
_LOOK_S = 1.0


def broker_name(broker_id: int) -> str:
    return f"broker-{broker_id}"


def broker_source(broker_id: int) -> str:
    """The address from which the broker asks others."""
    return f"127.0.1.{broker_id + 1}"


@dataclass
class _Relay:
    """Before the server of a name, which listens on ``served``; ``listener`` is None while it is not there. With
    ``asker`` it is known who asks there, and nobody else does.
    """

    name: str
    served: int
    asker: str = ""
    listener: asyncio.Server | None = None

    @property
    def port(self) -> int:
        assert self.listener is not None
        return int(self.listener.sockets[0].getsockname()[1])


class Network:
    """A way is a pair of names, from whom and to whom. What is sent on a way that is cut waits until it is healed, as
    with TCP; a connection that is opened meanwhile waits too. With ``refuses`` nobody listens for a server that is
    gone.
    """

    def __init__(self, brokers: int, *, refuses: bool = False) -> None:
        self._refuses = refuses
        self._names = {broker_source(number): broker_name(number) for number in range(brokers)}
        self._loop = asyncio.new_event_loop()
        self._cut: set[tuple[str, str]] = set()
        self._delays: dict[tuple[str, str], float] = {}
        self._healed = asyncio.Event()
        self._lines: dict[asyncio.Task[None], tuple[str, str]] = {}
        self._relays: list[_Relay] = []
        self._returns: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Hang up, and relay nothing any more."""
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_WAIT_S)
        self._loop.close()

    def relay(self, name: str, port: int, asker: str = "") -> int:
        """Stand before the server of this name, on this port of the machine; returns the port of the relay. With the
        name of an ``asker`` it is for that one alone, wherever it asks from.
        """
        return self._do(self._stand_before(_Relay(name, port, asker)))

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
        for relay in self._relays:
            if relay.listener is not None:
                _listen_no_more(relay.listener)
        await asyncio.sleep(0)
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for each in (*self._lines, *self._returns):
                each.cancel()
            await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(0)  # sockets are closed a turn later

    async def _stand_before(self, relay: _Relay) -> int:
        self._relays.append(relay)
        if not self._refuses:
            await self._listen(relay, 0)
            return relay.port
        port = free_port(HOST)  # this process keeps it: nobody else is given it while nobody listens
        self._await_server(relay, port)
        return port

    async def _listen(self, relay: _Relay, port: int) -> None:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asker = relay.asker or self._names.get(writer.get_extra_info("peername")[0], CLIENTS)
            line = asyncio.ensure_future(self._hold(asker, relay, reader, writer))
            self._lines[line] = asker, relay.name

            def hang_up(_: asyncio.Task[None]) -> None:
                """Also where the line was cancelled before it had begun."""
                self._lines.pop(line, None)
                writer.transport.abort()

            line.add_done_callback(hang_up)

        relay.listener = await asyncio.start_server(accept, HOST, port)

    def _await_server(self, relay: _Relay, port: int) -> None:
        """Listen on the port when the server is there."""

        async def listen() -> None:
            while await _is_refused(relay.served):
                await asyncio.sleep(_LOOK_EVERY_S)
            await self._listen(relay, port)

        waiting = asyncio.ensure_future(listen())
        self._returns.add(waiting)
        waiting.add_done_callback(self._returns.discard)

    async def _look_at(self, relay: _Relay) -> None:
        """A connection to the server has ended, or could not be made: nobody may listen for it any more."""
        if not self._refuses or not await _is_refused(relay.served) or relay.listener is None:
            return
        port = relay.port
        _listen_no_more(relay.listener)
        relay.listener = None
        self._await_server(relay, port)

    async def _hold(
        self, asker: str, relay: _Relay, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError, asyncio.CancelledError):
            await self._join(asker, relay, reader, writer)

    async def _join(
        self, asker: str, relay: _Relay, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        name = relay.name
        await self._pass(asker, name)
        await self._pass(name, asker)
        try:
            answers, requests = await asyncio.open_connection(HOST, relay.served)
        except ConnectionRefusedError:
            await self._look_at(relay)
            raise

        pumps = [
            asyncio.ensure_future(self._pump((asker, name), reader, requests)),
            asyncio.ensure_future(self._pump((name, asker), answers, writer, relay)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            requests.transport.abort()
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(
        self,
        way: tuple[str, str],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        relay: _Relay | None = None,
    ) -> None:
        """With the ``relay`` of the server that is read from: who reads on learns of its end after the relay."""
        try:
            while data := await reader.read(_BLOCK):
                await self._pass(*way)
                writer.write(data)
                await writer.drain()
        finally:
            if relay is not None and (reader.at_eof() or reader.exception() is not None):
                await self._look_at(relay)
        await self._pass(*way)

    async def _pass(self, source: str, target: str) -> None:
        await asyncio.sleep(self._delays.get((source, target), 0.0))
        while (source, target) in self._cut:
            self._healed.clear()
            await self._healed.wait()


def _listen_no_more(listener: asyncio.Server) -> None:
    """What was accepted last begins before it is closed: else asyncio forgets it, open as it is (Python 3.11)."""
    loop = asyncio.get_running_loop()
    for each in listener.sockets:
        loop.remove_reader(each.fileno())
    loop.call_soon(listener.close)


async def _is_refused(port: int) -> bool:
    """Whether the machine refuses connections to the port. A process that does not take them does not refuse them."""
    try:
        async with asyncio.timeout(_LOOK_S):
            _, writer = await asyncio.open_connection(HOST, port)
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False
    writer.transport.abort()
    return False
