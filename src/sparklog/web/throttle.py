"""How soon a login may be tried again after wrong passwords.

The third wrong password of a user from an address makes it wait a second, and each further one twice as long, five
minutes at most; an address as a whole has twenty before it waits. A right password forgets the user's. Attempts that
come too early are not tried. What is remembered is bounded: the oldest is forgotten.
"""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

from sparklog.clock import Clock
from sparklog.security.address import plain_address

_FREE_OF_USER = 3
_FREE_OF_ADDRESS = 20
_LONGEST_S = 300.0
_REMEMBERED = 10_000
_V6_NETWORK = 64
"""One customer has so many bits of an address at least: all of its addresses count as one."""


class _Failures(NamedTuple):
    times: int
    until: float


class LoginThrottle:
    """Of one server, by the clock's monotonic seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: dict[tuple[str, str], _Failures] = {}

    def wait_s(self, user: str, address: str) -> float:
        """How long to wait before the next attempt counts; 0 for now."""
        now = self._clock.monotonic()
        known = (self._failures.get(key) for key in _keys(user, address))
        return max(0.0, *(each.until - now for each in known if each is not None), 0.0)

    def failed(self, user: str, address: str) -> None:
        """A password was wrong."""
        of_user, of_address = _keys(user, address)
        self._count(of_user, _FREE_OF_USER)
        self._count(of_address, _FREE_OF_ADDRESS)

    def succeeded(self, user: str, address: str) -> None:
        """The password was right."""
        self._failures.pop(_keys(user, address)[0], None)

    def _count(self, key: tuple[str, str], free: int) -> None:
        now = self._clock.monotonic()
        known = self._failures.pop(key, None)
        count = 1 if known is None or now - known.until > _LONGEST_S else known.times + 1
        pause = 0.0 if count < free else min(2.0 ** min(count - free, 16), _LONGEST_S)
        self._failures[key] = _Failures(count, now + pause)
        if len(self._failures) > _REMEMBERED:
            del self._failures[next(iter(self._failures))]


def _keys(user: str, address: str) -> tuple[tuple[str, str], tuple[str, str]]:
    network = _network(address)
    return (f"user {user}", network), ("", network)


def _network(address: str) -> str:
    plain = plain_address(address.partition("%")[0])
    if plain is None:
        return address
    parsed = ipaddress.ip_address(plain)
    if parsed.version == 4:
        return str(parsed)
    return str(ipaddress.ip_network((parsed, _V6_NETWORK), strict=False))
