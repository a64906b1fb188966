"""Brokers that answer as a test tells them: for the errors and the timing that real ones cannot be made to show.

They live on the test's own event loop. Each connection's requests are handed to their handlers as they arrive and
answered in order, as Kafka does; a handler that is a coroutine holds its answer, and those behind it, back.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple, Self

from sparklog.client.cluster.session import CoordinatorKind
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.connection import frame_response, parse_request
from sparklog.protocol.hot import fetch, produce
from sparklog.protocol.messages import (
    ApiVersionsResponse,
    FindCoordinatorResponse,
    Message,
    MetadataResponse,
    decode_request,
    encode,
    highest_version,
)
from sparklog.protocol.wire import ZERO_UUID
from sparklog.structs import Chunk, Endpoint


class Asked(NamedTuple):
    """A request that came: ``message`` is decoded (for Produce and Fetch by the codecs of ``protocol.hot``)."""

    broker: int
    api: ApiKey
    version: int
    message: Any


class HangUp(Exception):
    """Raised by a handler: close the connection instead of answering."""


Answer = Message | list[Chunk] | None
"""A response message, an encoded body, or nothing at all for a request that is not answered."""
Handler = Callable[[Asked], Answer | Awaitable[Answer]]


class ScriptedBroker:
    """One listener. ``on[api]`` answers, and the cluster's handlers where it has none for an API."""

    def __init__(self, cluster: ScriptedCluster, broker_id: int) -> None:
        self.broker_id = broker_id
        self.on: dict[ApiKey, Handler] = {}
        self.asked: list[Asked] = []
        self.connections = 0
        """How many were made, ever."""
        self._cluster = cluster
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self.endpoint = Endpoint("127.0.0.1", 0)

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, *self.endpoint)
        self.endpoint = Endpoint(*self._server.sockets[0].getsockname())

    async def stop(self) -> None:
        """Close the listener and every connection, in a handshake of TLS too; ``start`` opens the same port again."""
        if self._server is not None:
            self._server.close()
            await _settled()
        for task, writer in self._open.items():
            task.cancel()
            writer.transport.abort()
        await asyncio.gather(*self._open, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._open[task] = writer
        task.add_done_callback(lambda _: self._open.pop(task))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self._cluster.tls is not None:
            try:
                await writer.start_tls(self._cluster.tls)
            except OSError:  # the client does not trust us, or we do not trust it
                writer.transport.abort()
                return
        answers: asyncio.Queue[Awaitable[list[Chunk]]] = asyncio.Queue()
        answering = asyncio.create_task(self._write_answers(answers, writer))
        reading = asyncio.create_task(self._read_requests(reader, answers))
        try:
            await asyncio.wait([answering, reading], return_when=asyncio.FIRST_COMPLETED)
        finally:
            answering.cancel()
            reading.cancel()
            await asyncio.gather(answering, reading, return_exceptions=True)
            writer.transport.abort()

    async def _read_requests(
        self, reader: asyncio.StreamReader, answers: asyncio.Queue[Awaitable[list[Chunk]]]
    ) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                answers.put_nowait(self._answer(await reader.readexactly(size)))

    async def _write_answers(
        self, answers: asyncio.Queue[Awaitable[list[Chunk]]], writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(HangUp, ConnectionError):
            while True:
                for chunk in await (await answers.get()):
                    writer.write(chunk)  # type: ignore[arg-type]
                await writer.drain()

    def _answer(self, data: bytes) -> Awaitable[list[Chunk]]:
        request = parse_request(memoryview(data))
        api = ApiKey(request.api)
        asked = Asked(self.broker_id, api, request.version, _decoded(api, request.version, request.body))
        self.asked.append(asked)
        return asyncio.ensure_future(self._respond(asked, request.correlation_id))

    async def _respond(self, asked: Asked, correlation_id: int) -> list[Chunk]:
        answer = (self.on.get(asked.api) or self._cluster.on[asked.api])(asked)
        if isinstance(answer, Awaitable):
            answer = await answer
        if answer is None:
            return []
        body: list[Chunk] = answer if isinstance(answer, list) else [encode(answer, asked.version)]
        return frame_response(asked.api, asked.version, correlation_id, body)


class ScriptedCluster:
    """Some brokers that know of one another: ``topics`` is the leader of each partition, by topic.

    ``on`` holds handlers for all of them; those for ApiVersions, Metadata and FindCoordinator are there already.
    With ``tls`` they speak that. Use it in an ``async with``.
    """

    def __init__(self, brokers: int = 1, tls: ssl.SSLContext | None = None) -> None:
        self.tls = tls
        self.brokers = [ScriptedBroker(self, number) for number in range(brokers)]
        self.topics: dict[str, list[int]] = {}
        self.leader_epoch = 0
        self.controller = 0
        self.coordinators: dict[CoordinatorKind, int] = dict.fromkeys(CoordinatorKind, 0)
        self.ceilings: dict[ApiKey, int] = {}
        self.features: dict[str, int] = {}
        self.on: dict[ApiKey, Handler] = {
            ApiKey.API_VERSIONS: lambda _asked: self._versions(),
            ApiKey.METADATA: self._metadata,
            ApiKey.FIND_COORDINATOR: self._coordinator,
        }

    async def __aenter__(self) -> Self:
        for broker in self.brokers:
            await broker.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for broker in self.brokers:
            await broker.stop()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(str(broker.endpoint) for broker in self.brokers)

    def asked(self, api: ApiKey) -> list[Asked]:
        """Every request of this kind, broker after broker."""
        return [asked for broker in self.brokers for asked in broker.asked if asked.api is api]

    def _versions(self) -> ApiVersionsResponse:
        apis = [*self.on, *(api for broker in self.brokers for api in broker.on)]
        key = ApiVersionsResponse.ApiVersion
        feature = ApiVersionsResponse.FinalizedFeatureKey
        return ApiVersionsResponse(
            error_code=0,
            api_keys=[
                key(api_key=api, min_version=0, max_version=self.ceilings.get(api, highest_version(api)))
                for api in dict.fromkeys(apis)
            ],
            throttle_time_ms=0,
            supported_features=[],
            finalized_features_epoch=1 if self.features else -1,
            finalized_features=[
                feature(name=name, max_version_level=level, min_version_level=level)
                for name, level in self.features.items()
            ],
        )

    def _metadata(self, asked: Asked) -> MetadataResponse:
        names = asked.message.topics
        wanted = self.topics if names is None else [each.name for each in names]
        return MetadataResponse(
            version=asked.version,
            throttle_time_ms=0,
            brokers=[
                MetadataResponse.MetadataResponseBroker(
                    node_id=broker.broker_id, host=broker.endpoint.host, port=broker.endpoint.port, rack=None
                )
                for broker in self.brokers
            ],
            cluster_id="scripted",
            controller_id=self.controller,
            topics=[self._topic(name) for name in wanted],
            error_code=0,
        )

    def _topic(self, name: str) -> MetadataResponse.MetadataResponseTopic:
        form = MetadataResponse.MetadataResponseTopic
        leaders = self.topics.get(name)
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if leaders is None else ErrorCode.NONE
        partitions = [
            form.MetadataResponsePartition(
                error_code=0,
                partition_index=number,
                leader_id=leader,
                leader_epoch=self.leader_epoch,
                replica_nodes=[leader],
                isr_nodes=[leader],
                offline_replicas=[],
            )
            for number, leader in enumerate(leaders or [])
        ]
        return form(error_code=int(error), name=name, topic_id=ZERO_UUID, is_internal=False, partitions=partitions)

    def _coordinator(self, asked: Asked) -> FindCoordinatorResponse:
        broker = self.brokers[self.coordinators[CoordinatorKind(asked.message.key_type)]]
        where: dict[str, Any] = {
            "node_id": broker.broker_id,
            "host": broker.endpoint.host,
            "port": broker.endpoint.port,
        }
        if asked.version < 4:
            return FindCoordinatorResponse(throttle_time_ms=0, error_code=0, error_message=None, **where)
        found = [
            FindCoordinatorResponse.Coordinator(key=key, error_code=0, error_message=None, **where)
            for key in asked.message.coordinator_keys
        ]
        return FindCoordinatorResponse(throttle_time_ms=0, coordinators=found)


@contextlib.asynccontextmanager
async def no_kafka() -> AsyncIterator[Endpoint]:
    """Where something listens that answers whatever it is sent as a web server would."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield Endpoint(*server.sockets[0].getsockname())
    finally:
        server.close()


async def _settled() -> None:
    """Until a connection that was accepted in this turn of the loop has its transport: asyncio takes three turns."""
    for _ in range(5):
        await asyncio.sleep(0)


def _decoded(api: ApiKey, version: int, body: memoryview) -> Any:
    if api is ApiKey.PRODUCE:
        return produce.decode_request(body, version)
    if api is ApiKey.FETCH:
        return fetch.decode_request(body, version)
    return decode_request(api, version, body)
