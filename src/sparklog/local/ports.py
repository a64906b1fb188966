"""TCP ports of this machine: find a free one, or say clearly that a wanted one is taken."""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections import deque
from typing import Final

from sparklog.errors import ConfigError

LOOPBACK: Final = "127.0.0.1"
HIGHEST_PORT: Final = 65_535
_HOLDS_MOST: Final = 200
_held: Final[deque[int]] = deque()
"""Descriptors of sockets that are bound and never listen, one a port that is kept: the latest of them."""


def free_port(host: str = "127.0.0.1") -> int:
    """A port that no process listens on now, and that the system gives to none by itself from now on.

    On Linux this process keeps it until it ends or has chosen 200 more: the port is neither chosen for another's
    connection nor by a second ``free_port``, while a process that names it, as a server does that is told its port, can
    listen on it (``SO_REUSEADDR`` on both sides). Elsewhere another process may be faster.
    """
    return keep_port(0, host)


def keep_port(port: int, host: str = "127.0.0.1") -> int:
    """``free_port`` of this very port, if it is not 0. Raises OSError where it is in use."""
    chosen = socket.socket(_family(host))
    try:
        chosen.bind((host, port))
        chosen.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # later, or two could keep the same
    except OSError:
        chosen.close()
        raise
    port = int(chosen.getsockname()[1])
    if sys.platform != "linux":
        chosen.close()
        return port
    _held.append(chosen.detach())
    if len(_held) > _HOLDS_MOST:
        os.close(_held.popleft())
    return port


def require_free(host: str, port: int, owner: str, remedy: str) -> None:
    """Raise ConfigError naming ``owner``, the port and the ``remedy`` unless ``host:port`` can be listened on."""
    if not 1 <= port <= HIGHEST_PORT:
        raise ConfigError(f"port {port}, wanted by {owner}, is not one of 1 to {HIGHEST_PORT}; {remedy}")
    with socket.socket(_family(host)) as probe:
        # As a server binds: connections of a dead predecessor in TIME_WAIT are no obstacle, a live listener is.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise _not_ours(host) from None
            reason = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
            raise ConfigError(f"port {port} on {host}, wanted by {owner}, {reason}; {remedy}") from None


def require_own(host: str) -> None:
    """Raise ConfigError unless ``host`` is an address of this machine."""
    try:
        with socket.socket(_family(host)) as probe:
            probe.bind((host, 0))
    except OSError as error:
        raise (
            _not_ours(host)
            if error.errno == errno.EADDRNOTAVAIL
            else ConfigError(f"cannot listen on {host}: {error.strerror}")
        ) from None


def _not_ours(host: str) -> ConfigError:
    return ConfigError(
        f"{host} is not an address of this machine, so nothing can listen there; listen on one that is (127.0.0.1, or"
        " 0.0.0.0 for all) and advertise the other"
    )


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
