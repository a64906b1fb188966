"""What a server lets its clients have: sizes, numbers, and addresses that may connect.

A host has so many connections at most: its own number if ``per_host_overrides`` names it, else ``max_per_host``; one
more is hung up on. With ``max_connections`` in all, or when more come in a second than ``max_rate``, the next waits to
be accepted. Kafka's settings of the same meaning are named beside each.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

from sparklog.errors import ConfigError
from sparklog.security.address import plain_address

UNLIMITED = (1 << 31) - 1


@dataclass(frozen=True)
class Limits:
    """Immutable; a change makes new ones."""

    max_request_size: int
    """``socket.request.max.bytes``"""
    max_in_flight: int
    """Requests of a connection that are not answered: ``queued.max.requests``."""
    max_request_memory: int = -1
    """Bytes of all requests that are not answered, -1 for any: ``queued.max.request.bytes``."""
    max_answer_memory: int = 64 << 20
    """Bytes of all answers that are not sent; what is sent from a file is none of them. Kafka has no setting for it."""
    max_connections: int = UNLIMITED
    """``max.connections``"""
    max_per_host: int = UNLIMITED
    """``max.connections.per.ip``"""
    per_host_overrides: Mapping[str, int] = field(default_factory=dict)
    """``max.connections.per.ip.overrides``"""
    max_rate: int = UNLIMITED
    """New connections a second: ``max.connection.creation.rate``."""
    max_idle_s: float = -1
    """Below zero for ever: ``connections.max.idle.ms``."""
    slow_request_s: float = math.inf
    """What takes longer has a line in the log: ``sparklog.slow.request.log.ms``."""

    def of_host(self, host: str) -> int:
        """How many connections it may have."""
        return self.per_host_overrides.get(host, self.max_per_host)


def by_address(overrides: Mapping[str, int], setting: str = "max.connections.per.ip.overrides") -> dict[str, int]:
    """The same by the addresses that connections come from; names are looked up, which may take a while.

    Raises ConfigError with the ``setting`` for one that nobody knows.
    """
    found = {}
    for host, number in overrides.items():
        address = plain_address(host)
        if address is not None:
            found[address] = number
            continue
        try:
            addresses = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
        except OSError as error:
            raise ConfigError(f"{setting} names an unknown host {host!r}: {error}") from error
        found |= dict.fromkeys((plain_address(str(each)) or str(each) for each in addresses), number)
    return found


class AcceptRate:
    """So many in a second, all at once or one by one."""

    def __init__(self, now: float) -> None:
        self._since = now
        self._taken = 0.0

    def give_back(self) -> None:
        """None came."""
        self._taken = max(self._taken - 1, 0.0)

    def delay(self, rate: int, now: float) -> float:
        """Seconds until one more may come; 0: it came."""
        if rate >= UNLIMITED:
            return 0.0
        self._taken = max(self._taken - (now - self._since) * rate, 0.0)
        self._since = now
        if self._taken + 1 > rate:
            return max((self._taken + 1 - rate) / rate, 0.001) if rate else 1.0
        self._taken += 1
        return 0.0
