"""The asking end of a connection on an event loop: what a broker asks other brokers with."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

from sparklog import __version__
from sparklog.errors import ConnectionFailed, ProtocolError, RemoteProtocolError
from sparklog.net.versions import API_VERSIONS_ASKED, PeerVersions, api_versions_request
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.connection import ClientConnection
from sparklog.protocol.messages import Message, decode_response, encode
from sparklog.structs import Endpoint, FileSlice

MAX_RESPONSE = 1 << 30


class AsyncConnection:
    """A connection to one broker, one request at a time.

    A failure raises ConnectionFailed or ProtocolError and closes it; open another.
    """

    def __init__(
        self, endpoint: Endpoint, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: str
    ) -> None:
        self.endpoint = endpoint
        self._reader = reader
        self._writer = writer
        self._protocol = ClientConnection(client_id)
        self._turn = asyncio.Lock()
        self._versions: PeerVersions | None = None

    @classmethod
    async def open(cls, endpoint: Endpoint, *, client_id: str = "sparklog", timeout: float = 10.0) -> AsyncConnection:
        """Connect. Raises ConnectionFailed if nobody answers within ``timeout`` seconds."""
        try:
            async with asyncio.timeout(timeout):  # wait_for may lose a cancellation in Python 3.11
                reader, writer = await asyncio.open_connection(*endpoint)
        except (OSError, TimeoutError) as error:
            raise ConnectionFailed(f"cannot reach a broker at {endpoint}: {str(error) or 'timed out'}") from error
        return cls(endpoint, reader, writer, client_id)

    async def request(self, api: ApiKey, build: Callable[[int], Message], *, timeout: float = 30.0) -> Message:
        """Ask and wait: ``build`` is handed the version agreed on and returns the request."""
        async with self._turn:
            try:
                async with asyncio.timeout(timeout):
                    return await self._exchange(api, build)
            except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
                self.close()
                raise ConnectionFailed(
                    f"broker {self.endpoint} did not answer {api.name}: {str(error) or 'timed out'}"
                ) from error
            except ProtocolError:
                self.close()  # what comes next on it would answer another request
                raise

    async def _exchange(self, api: ApiKey, build: Callable[[int], Message]) -> Message:
        if self._versions is None:
            hello = api_versions_request("sparklog", __version__)
            self._versions = PeerVersions(
                self.endpoint, await self._ask(ApiKey.API_VERSIONS, API_VERSIONS_ASKED, hello)
            )
        version = self._versions.best(api)
        return await self._ask(api, version, build(version))

    async def _ask(self, api: ApiKey, version: int, message: Message) -> Message:
        for chunk in self._protocol.request(api, version, [encode(message, version)]):
            if not isinstance(chunk, FileSlice):
                self._writer.write(chunk)
        await self._writer.drain()
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        if not 0 <= size <= MAX_RESPONSE:
            raise RemoteProtocolError(f"{self.endpoint} announces a response of {size} bytes; is it a Kafka listener?")
        _, version, body = self._protocol.response(memoryview(await self._reader.readexactly(size)))
        return decode_response(api, version, body)

    def close(self) -> None:
        self._writer.close()

    @property
    def closed(self) -> bool:
        return self._writer.is_closing()
