"""Whose requests come by a connection: what the listener and the authentication have found out."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Protocol

from sparklog.config.listeners import PLAINTEXT
from sparklog.config.security_protocol import SecurityProtocol
from sparklog.security.principal import ANONYMOUS, Principal

_MOST_THROTTLED = 100
"""Of so many requests of a connection it is remembered."""


class Gate(Protocol):
    """What stands before all requests of a connection, on a listener where peers must authenticate."""

    max_size: int
    """Bytes of a frame before it is passed."""

    def takes(self, frame: memoryview) -> bool:
        """Whether the frame is for the gate; else it is a request that may be served.

        Raises RemoteProtocolError where it may not be.
        """

    def serve(self, frame: memoryview) -> Any:
        """What the frame comes to, as ``net.answer.Served``. Raises RemoteProtocolError to have the peer hung up on."""


class Meter(Protocol):
    """What counts the requests of one API (``net/request_meter.py``)."""

    loop_s: float
    queued_s: float

    def answer(self, seconds: float) -> None:
        """A request has its answer so long after it was read."""


class Connection(Protocol):
    """What those who serve a connection's requests may have done with it."""

    def mute(self, seconds: float) -> None:
        """Read nothing more for so long; what is in hand is answered."""

    def admit(self) -> None:
        """The peer has authenticated: it may send what others may, and stay."""

    def refuse(self) -> None:
        """The peer has failed to authenticate."""

    def drain(self) -> None:
        """Read nothing more; hang up once what is in hand is answered."""


@dataclass
class Caller:
    """One connection's peer. ``principal`` is ``ANONYMOUS`` until it has authenticated, and where nobody has to."""

    host: str
    """Its address, without a port."""
    listener: str = PLAINTEXT
    """The name of the listener that it came by."""
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    principal: Principal = ANONYMOUS
    token_id: str | None = None
    """The delegation token by which it has authenticated."""
    api: IntEnum | None = None
    """The API of the request of this connection that was taken up last, for the audit log."""
    meter: Meter | None = None
    """Counts the same request; None where requests are not counted."""
    gate: Gate | None = None
    """None where nobody has to authenticate."""
    connection: Connection | None = None
    """None in tests of what is served."""
    busy_s: float = 0.0
    """Seconds that the loop has spent on its requests, up to the last turn."""
    client_id: str | None = None
    """Whose time its last request takes, by the name that it gave; None before the first, and of what a broker asks."""
    charged: tuple[int, float] = (0, 0.0)
    """Since which count of quotas of time, and up to which ``busy_s``, its time has been charged."""

    throttled: dict[int, int] = field(default_factory=dict)
    """How many ms the last requests were told to wait for quotas, by correlation id; only of those that were."""

    def throttle(self, correlation_id: int, wait_ms: int) -> None:
        """This request is told to wait so long."""
        if len(self.throttled) >= _MOST_THROTTLED:
            self.throttled.clear()
        self.throttled[correlation_id] = wait_ms

    def mute(self, seconds: float) -> None:
        """Read nothing more from the connection for so long; what is in hand is answered."""
        if self.connection is not None:
            self.connection.mute(seconds)
