"""What a request comes to: an answer at once, later, in steps, or none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from sparklog.security.caller import Caller
from sparklog.structs import Chunk

Answer = list[Chunk] | None
"""The chunks of a whole response frame, or None for a request that gets no answer."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ordered(Generic[T]):
    """The answer to a request that takes effect later: when there is an answer it has."""

    answer: asyncio.Future[T]
    placed: asyncio.Future[Any] | None = None
    """Done when the request has its place among those of its API; None where it has it already."""


@dataclass(frozen=True, slots=True)
class Waiting(Generic[T]):
    """The answer to a request that waits for what others do: the connection goes on meanwhile."""

    answer: Awaitable[T]


Served = Answer | Awaitable[Answer] | Ordered[Answer] | Waiting[Answer]
Work = Generator[None, None, Served]
"""Steps, between which others may be served; what they come to is the answer."""


class Dispatch(Protocol):
    """Serves one request frame of a client.

    With ``after`` it takes its place when that is done, behind requests of the same API and connection.
    Raises RemoteProtocolError to have the connection closed.
    """

    def __call__(
        self, frame: memoryview, caller: Caller, after: asyncio.Future[Any] | None = None, /
    ) -> Served | Work: ...
