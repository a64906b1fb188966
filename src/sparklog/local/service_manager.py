"""What a service tells systemd of itself: that it serves, how it does, that it stops.

systemd hands a service of ``Type=notify`` the name of a datagram socket in ``NOTIFY_SOCKET``, and takes lines of
``NAME=VALUE`` there (sd_notify(3)). Where there is no such name nothing is told. A service never fails because nobody
listens.
"""

from __future__ import annotations

import logging
import os
import socket
from typing import Final

VARIABLE: Final = "NOTIFY_SOCKET"
READY: Final = "READY=1"
"""Clients are served."""
STOPPING: Final = "STOPPING=1"

_log = logging.getLogger(__name__)


def status(text: str) -> str:
    """The line that ``systemctl status`` shows."""
    return f"STATUS={' '.join(text.split())}"


def tell(*lines: str) -> bool:
    """Tell it ``lines``, each ``NAME=VALUE``; whether it was told."""
    address = os.environ.get(VARIABLE, "")
    if not address:
        return False
    name = f"\0{address[1:]}" if address.startswith("@") else address  # an abstract one
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as service_manager:
            service_manager.connect(name)
            service_manager.send("\n".join(lines).encode())
    except OSError as error:
        _log.warning("systemd cannot be told %s: %s (%s=%s)", lines[0], error, VARIABLE, address)
        return False
    return True
