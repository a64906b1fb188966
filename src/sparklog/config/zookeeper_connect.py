"""``zookeeper.connect``: the members of an ensemble that a broker may turn to, and the znode below which its tree is.

``host:port,host:port/chroot``, as ZooKeeper's clients read it: blanks and empty items count for nothing, the port is
2181 where none is said, an IPv6 address stands in brackets. A member that is named twice counts once.
Source: ZooKeeper 3.9, ``ConnectStringParser``, ``PathUtils.validatePath``.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from sparklog.errors import ConfigError
from sparklog.structs import Endpoint, bracketed

DEFAULT_PORT = 2181
_ADDRESS = re.compile(r"(?:\[(?P<bracketed>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^\s:\[\]/]+))(?::(?P<port>[0-9]{1,5}))?")


class ConnectString(NamedTuple):
    """Where the members listen; ``chroot`` is empty or begins with a slash."""

    members: tuple[Endpoint, ...]
    chroot: str

    @property
    def hosts(self) -> str:
        """The members alone, as ZooKeeper's clients want them."""
        return ",".join(f"{bracketed(host)}:{port}" for host, port in self.members)


def parse_connect(text: str) -> ConnectString:
    """Raises ConfigError for what names no member, or a path that no znode can have."""
    hosts, slash, path = text.partition("/")
    items = [item.strip() for item in hosts.split(",")]
    members = tuple(dict.fromkeys(_member(item) for item in items if item))
    if not members:
        raise ConfigError(f"{text!r} names no ZooKeeper: it is HOST:PORT,HOST:PORT/CHROOT")
    return ConnectString(members, _chroot(slash + path.strip()))


def _member(item: str) -> Endpoint:
    found = _ADDRESS.fullmatch(item)
    port = int(found["port"] or DEFAULT_PORT) if found else 0
    if found is None or not 1 <= port <= 65535:
        hint = "; an IPv6 address stands in brackets, as in [::1]:2181" if item.count(":") > 1 else ""
        raise ConfigError(f"{item!r} is not HOST:PORT with a port from 1 to 65535{hint}")
    return Endpoint(found["bracketed"] or found["host"], port)


def _chroot(path: str) -> str:
    """Without the slash at its end."""
    chroot = path.rstrip("/") if path.strip("/") else ""
    if any(step in ("", ".", "..") or "\0" in step for step in chroot.split("/")[1:]):
        raise ConfigError(f"{path!r} is no path of a znode: its steps are neither empty nor dots")
    return chroot


def complaint_about_connect(text: str) -> str | None:
    """Why this is no connect string; None if it is one."""
    try:
        parse_connect(text)
    except ConfigError as error:
        return str(error)
    return None
