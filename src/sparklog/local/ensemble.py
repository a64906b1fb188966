"""Which servers make up an ensemble of ZooKeeper: read from text, checked, and put as ZooKeeper wants it.

Source: ZooKeeper 3.9, ``QuorumPeerConfig``, and its administrator's guide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from sparklog.errors import ConfigError
from sparklog.local.ports import HIGHEST_PORT
from sparklog.structs import bracketed

HIGHEST_ID = 255
CLIENT_PORT = 2181
_SERVER = re.compile(
    r"(?P<id>\d{1,9})=(?:\[(?P<bracketed>[0-9A-Fa-f:.]+)\]|(?P<host>[^\s:\[\]]+))"
    r":(?P<peer>\d{1,9}):(?P<election>\d{1,9})(?::(?P<client>\d{1,9}))?(?::(?P<role>observer|participant))?"
)


@dataclass(frozen=True)
class Server:
    """One member: followers connect to ``peer_port`` while it leads, all others to ``election_port``.

    An observer answers clients as the others do, and has no vote.
    """

    id: int
    host: str
    peer_port: int
    election_port: int
    client_port: int = CLIENT_PORT
    observer: bool = False

    @property
    def ports(self) -> tuple[int, int, int]:
        return self.peer_port, self.election_port, self.client_port

    @property
    def address(self) -> str:
        """``host:port``, as clients want it."""
        return f"{bracketed(self.host)}:{self.client_port}"

    @property
    def line(self) -> str:
        """What a member's configuration says of this one."""
        role = "observer" if self.observer else "participant"
        return f"{bracketed(self.host)}:{self.peer_port}:{self.election_port}:{role}"


@dataclass(frozen=True)
class Ensemble:
    """All members; made only of servers that can be one. Raises ConfigError for others."""

    servers: tuple[Server, ...]

    def __post_init__(self) -> None:
        ids = [each.id for each in self.servers]
        twice = next((each for each in ids if ids.count(each) > 1), None)
        if twice is not None:
            raise ConfigError(f"two servers have the id {twice}; each has its own, from 1 to {HIGHEST_ID}")
        taken: dict[tuple[str, int], int] = {}
        for server in self.servers:
            _check(server)
            for port in server.ports:
                other = taken.setdefault((server.host, port), server.id)
                if other != server.id or server.ports.count(port) > 1:
                    raise ConfigError(f"port {port} of {server.host} is named twice, by server {other} and {server.id}")
        if not self.voters:
            raise ConfigError("an ensemble needs at least one server that votes; all of these are observers")

    @property
    def voters(self) -> int:
        return sum(not each.observer for each in self.servers)

    @property
    def is_one_server(self) -> bool:
        return len(self.servers) == 1

    @property
    def has_one_voter(self) -> bool:
        """Beside observers."""
        return self.voters == 1 and not self.is_one_server

    @property
    def may_fail(self) -> int:
        """So many of those that vote may be lost, and the others go on."""
        return (self.voters - 1) // 2

    @property
    def connect_string(self) -> str:
        """What brokers have as ``zookeeper.connect``."""
        return ",".join(each.address for each in self.servers)

    def server(self, own: int) -> Server:
        """The member of this id. Raises ConfigError if there is none."""
        for each in self.servers:
            if each.id == own:
                return each
        ids = ", ".join(str(each.id) for each in self.servers)
        raise ConfigError(f"no server has the id {own}; those named have {ids}")

    def with_client_port(self, own: int, port: int | None) -> Ensemble:
        """The same, but for the port on which the member ``own`` serves clients, if one is given."""
        if port is None:
            return self
        return Ensemble(tuple(replace(each, client_port=port) if each.id == own else each for each in self.servers))

    @property
    def warning(self) -> str | None:
        """Why this number of servers is not a good one; None if it is."""
        voters = self.voters
        if voters == 1:
            return "one server that votes: nothing goes on without it; three go on without any one of them"
        if voters % 2 == 0:
            return (
                f"{voters} servers vote, of which {self.may_fail} may be lost, no more than of {voters - 1}:"
                " take an odd number, or make one an observer"
            )
        return None


def parse_ensemble(text: str) -> Ensemble:
    """``ID=HOST:PEER-PORT:ELECTION-PORT[:CLIENT-PORT][:observer]``, with commas between servers."""
    return Ensemble(tuple(_servers(text)))


def _servers(text: str) -> Iterator[Server]:
    for item in filter(None, (each.strip() for each in text.split(","))):
        found = _SERVER.fullmatch(item)
        if found is None:
            raise ConfigError(
                f"{item!r} is not ID=HOST:PEER-PORT:ELECTION-PORT[:CLIENT-PORT][:observer], as in"
                " 1=zk1.example.org:2888:3888:2181 (an IPv6 address stands in brackets)"
            )
        yield Server(
            int(found["id"]),
            found["bracketed"] or found["host"],
            int(found["peer"]),
            int(found["election"]),
            int(found["client"] or CLIENT_PORT),
            found["role"] == "observer",
        )


def _check(server: Server) -> None:
    if not 1 <= server.id <= HIGHEST_ID:
        raise ConfigError(f"server id {server.id} is not one of 1 to {HIGHEST_ID}")
    for port in server.ports:
        if not 1 <= port <= HIGHEST_PORT:
            raise ConfigError(f"port {port} of server {server.id} is not one of 1 to {HIGHEST_PORT}")
