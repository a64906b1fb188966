"""The seam between the workload and a client library: what actors need of a producer and a consumer, no more.

``CLIENTS`` names the libraries; an actor is told which to use. Every failure of a library is a ``ClientFailed``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple, Protocol

Tp = tuple[str, int]
SESSION_TIMEOUT_MS = 2500
REQUEST_S = 10.0
UNKNOWN_OFFSET = -1


class ClientFailed(Exception):
    """``retriable``: the same call may succeed; ``abortable``: abort the transaction, and all is well."""

    def __init__(self, text: str, *, retriable: bool = False, abortable: bool = False) -> None:
        super().__init__(text)
        self.retriable = retriable
        self.abortable = abortable


class Received(NamedTuple):
    tp: Tp
    offset: int
    value: str


class AProducer(Protocol):
    """Idempotent, unless it is made with ``acks`` other than all, or ``plain``. With a transactional id it has taken
    over that id when it is made. Made with the cluster's settings, the transactional id or None, the longest that a
    transaction may take (ms), ``acks``, and ``plain``.
    """

    def produce(self, tp: Tp, value: str, told: Callable[[int], None]) -> bool: ...
    def poll(self, seconds: float) -> None: ...
    def flush(self, seconds: float) -> int: ...
    def begin(self) -> None: ...
    def send_offsets(self, offsets: Mapping[Tp, int], consumer: Any) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...


class Listener(Protocol):
    """Hears of a member's partitions, on the thread that receives."""

    def assigned(self, partitions: list[Tp]) -> dict[Tp, int]: ...
    def revoked(self, partitions: list[Tp]) -> None: ...
    def lost(self, partitions: list[Tp]) -> None: ...


class AConsumer(Protocol):
    """A member of a group; ``assigned`` says where each partition goes on. Made with the cluster's settings, the
    topic, the group, the listener, and the actor's role."""

    def receive(self, seconds: float) -> list[Received]: ...
    def committed(self, partitions: list[Tp]) -> dict[Tp, int]: ...
    def commit(self, offsets: Mapping[Tp, int]) -> None: ...
    def seek(self, offsets: Mapping[Tp, int]) -> None: ...
    def identity(self) -> tuple[str, int]: ...
    def close(self) -> None: ...


CONFLUENT, OWN = "confluent", "own"
CLIENTS = {CONFLUENT: "histories.confluent_client", OWN: "histories.own_client"}


def client(kind: str) -> tuple[Callable[..., AProducer], Callable[..., AConsumer]]:
    """Its producer, and its consumer; only this one is imported."""
    module = import_module(CLIENTS[kind])
    return module.PRODUCER, module.CONSUMER
