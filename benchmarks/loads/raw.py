"""Produce and Fetch requests that were encoded beforehand, so that the broker is the bottleneck."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from benchmarks.loads.figures import Figures, latencies
from benchmarks.loads.records import batch_of
from sparklog.clock import SystemClock
from sparklog.config.security_protocol import SecurityProtocol
from sparklog.errors import ErrorCode
from sparklog.net.connection import BlockingConnection
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import fetch as fetch_wire
from sparklog.protocol.hot import produce as produce_wire
from sparklog.protocol.hot.fetch import FetchPartition, FetchRequest
from sparklog.protocol.messages import decode_response
from sparklog.security.connection_settings import connection_security
from sparklog.structs import Chunk, Endpoint, TopicPartition

TIMEOUT_S = 60
IN_FLIGHT = 5
"""As Kafka's producers have it by default (``max.in.flight.requests.per.connection``)."""
_NAMES_TOPICS = 12
"""The last Fetch version that names topics; later ones want their ids."""


def raw_produce(
    bootstrap: str,
    topic: str,
    size: int,
    acks: int,
    batch_bytes: int,
    requests: int,
    client: dict[str, str] | None = None,
) -> Figures:
    """Produce requests of one batch each, encoded beforehand, ``IN_FLIGHT`` of them under way.

    ``client`` are settings of how it connects.
    """
    batch, count = batch_of(size, batch_bytes)
    with connect(bootstrap, client) as connection:
        version, body = _produce_request(connection, topic, acks, batch)
        start = time.perf_counter()
        for sent in range(requests):
            connection.send(ApiKey.PRODUCE, version, body)
            if sent >= IN_FLIGHT:
                _check_produced(connection, (sent - IN_FLIGHT) * count)
        for answered in range(max(requests - IN_FLIGHT, 0), requests):
            _check_produced(connection, answered * count)
        seconds = time.perf_counter() - start
    return {
        "requests/s": requests / seconds,
        "records/s": requests * count / seconds,
        "MB/s": requests * len(batch) / seconds / 1e6,
    }


def raw_round_trip(bootstrap: str, topic: str, size: int, acks: int, requests: int) -> Figures:
    """Produce requests of one record, encoded beforehand, one at a time."""
    batch, _ = batch_of(size, 0)
    with connect(bootstrap) as connection:
        version, body = _produce_request(connection, topic, acks, batch)
        answered = iter(range(requests))

        def once() -> None:
            connection.send(ApiKey.PRODUCE, version, body)
            _check_produced(connection, next(answered))

        return latencies(once, requests)


def _produce_request(connection: BlockingConnection, topic: str, acks: int, batch: bytes) -> tuple[int, list[Chunk]]:
    version = connection.versions.best(ApiKey.PRODUCE)
    return version, produce_wire.encode_request(acks, TIMEOUT_S * 1000, {TopicPartition(topic, 0): [batch]}, version)


def _check_produced(connection: BlockingConnection, base_offset: int) -> None:
    api, version, body = connection.receive()
    answered: Any = decode_response(api, version, body)
    answer = answered.responses[0].partition_responses[0]
    if answer.error_code or answer.base_offset != base_offset:
        raise RuntimeError(
            f"offset {answer.base_offset}, {ErrorCode(answer.error_code).name}; not offset {base_offset}"
        )


def raw_fetch(
    bootstrap: str, topic: str, size: int, batch_bytes: int, requests: int, client: dict[str, str] | None = None
) -> Figures:
    """Fetch requests for one batch each of what ``raw_produce`` wrote, encoded beforehand, ``IN_FLIGHT`` under way."""
    batch, count = batch_of(size, batch_bytes)
    with connect(bootstrap, client) as connection:
        version = connection.versions.best(ApiKey.FETCH, _NAMES_TOPICS)
        bodies = list(_fetch_requests(topic, version, len(batch), count, requests))
        start = time.perf_counter()
        for sent, body in enumerate(bodies):
            connection.send(ApiKey.FETCH, version, body)
            if sent >= IN_FLIGHT:
                _check_fetched(connection, len(batch))
        for _ in range(min(requests, IN_FLIGHT)):
            _check_fetched(connection, len(batch))
        seconds = time.perf_counter() - start
    return {
        "requests/s": requests / seconds,
        "records/s": requests * count / seconds,
        "MB/s": requests * len(batch) / seconds / 1e6,
    }


def _fetch_requests(topic: str, version: int, size: int, count: int, requests: int) -> Iterator[list[Chunk]]:
    for number in range(requests):
        asked = FetchPartition(topic, UUID(int=0), 0, number * count, size)
        yield fetch_wire.encode_request(FetchRequest(500, 1, size, [asked]), version)


def _check_fetched(connection: BlockingConnection, size: int) -> None:
    _, version, body = connection.receive()
    error, (partition,) = fetch_wire.decode_response(body, version)
    got = sum(len(piece) for piece in partition.records if not isinstance(piece, tuple))
    if error or partition.error or got != size:
        raise RuntimeError(f"{got} bytes, {partition.error.name}; not {size} bytes")


def connect(bootstrap: str, client: dict[str, str] | None = None) -> BlockingConnection:
    host, _, port = bootstrap.rpartition(":")
    settings = client or {}
    protocol = SecurityProtocol[settings.get("security.protocol", "PLAINTEXT")]
    security = connection_security(protocol, settings.get("sasl.mechanism", ""), settings, SystemClock())
    return BlockingConnection(
        Endpoint(host, int(port)), client_id="benchmark", request_timeout=TIMEOUT_S, security=security
    )
