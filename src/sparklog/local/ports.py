"""TCP ports of this machine: find a free one, or say clearly that a wanted one is taken."""

from __future__ import annotations

import errno
import socket

from sparklog.errors import ConfigError


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens on now. It is not held: another process may still be faster."""
    with socket.socket(_family(host)) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def require_free(host: str, port: int, owner: str, remedy: str) -> None:
    """Raise ConfigError naming ``owner``, the port and the ``remedy`` unless ``host:port`` can be listened on."""
    with socket.socket(_family(host)) as probe:
        # As a server binds: connections of a dead predecessor in TIME_WAIT are no obstacle, a live listener is.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            reason = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
            raise ConfigError(f"port {port} on {host}, wanted by {owner}, {reason}; {remedy}") from None


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
