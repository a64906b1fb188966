"""One member of an ensemble of ZooKeeper: a child JVM on the JARs that PySpark ships, as the only server of a small
cluster is (``zookeeper.py``).

Invariants: a directory is one member's for good, which its ``myid`` says; it is never started under another id, nor as
a member where it was the only server, for it would vote with another's promises, or with none. Members are added or
taken away by starting all of them with another list: nobody does it by a request (``reconfigEnabled`` stays off).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from sparklog.clock import Clock
from sparklog.errors import ConfigError
from sparklog.local.disk import shortage
from sparklog.local.ensemble import Ensemble
from sparklog.local.ports import require_free
from sparklog.local.zookeeper import EmbeddedZooKeeper, replace_file

_JOIN_S, _SYNC_S = 30, 10
"""How long a follower may take to copy what the leader has, and how far it may fall behind before it is left out."""
_SNAPSHOTS_KEPT = 3
_OURS = ("dataDir", "clientPort", "clientPortAddress", "tickTime", "server.", "reconfigEnabled", "dynamicConfigFile")
_UNREADABLE = "Unable to load database on disk"
_LOGGING = """\
status = warn
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{yyyy-MM-dd HH:mm:ss,SSS} %-7p zookeeper.%c{1}  %m %ex{short.message}%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
"""


class EnsembleMember(EmbeddedZooKeeper):
    """The member ``own`` of ``ensemble``, ready when a majority is there and it serves.

    ``host`` is where it listens for clients, its own entry's if it is empty; where that is every address of the machine
    it listens for the other members everywhere too. ``more`` are settings of ZooKeeper's by their names in ``zoo.cfg``.
    Raises ConfigError for an id that is not in the ensemble and for settings that are made from the arguments.
    """

    start_timeout_s: ClassVar = 120.0  # a majority has to be there, and to have elected a leader
    main_class: ClassVar = "org.apache.zookeeper.server.quorum.QuorumPeerMain"

    def __init__(
        self,
        data_dir: Path,
        ensemble: Ensemble,
        own: int,
        *,
        host: str = "",
        tick_time_ms: int = 2000,
        fsync: bool = True,
        more: Mapping[str, str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Raises ConfigError for a setting in ``more`` that the other arguments decide."""
        self.ensemble, self.server = ensemble, ensemble.server(own)
        self.name = f"ZooKeeper {own}"
        self._more = dict(more or {})
        taken = next((each for each in self._more if each.startswith(_OURS)), None)
        if taken is not None:
            raise ConfigError(f"{taken} is set by the options of the command")
        super().__init__(
            data_dir,
            self.server.client_port,
            host or self.server.host,
            tick_time_ms=tick_time_ms,
            fsync=fsync,
            clock=clock,
        )

    def spawn(self) -> None:
        peers = self.host if self._listens_everywhere else self.server.host
        ports = ((peers, self.server.peer_port), (peers, self.server.election_port), (self.host, self.port))
        for host, port in ports:
            require_free(host, port, self.name, "stop what holds it or name another port for this server")
        self._take_directory()
        super().spawn()

    @property
    def mode(self) -> str:
        """``leader``, ``follower``, ``observer`` or ``standalone``; empty while it does not serve."""
        for line in self.four_letter_word("srvr", timeout=2.0).splitlines():
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ").strip()
        return ""

    @property
    def fate(self) -> str:
        """How it ended; with what to do, where it could not read its own data and others have it."""
        said = self._child.output()
        if _UNREADABLE not in said or shortage(self.data_dir, said) or self.ensemble.voters == 1:
            return super().fate
        kept = self.data_dir / "version-2"
        return (
            f"{super().fate}, since its data cannot be read: move {kept} away while the others serve without it, and"
            " it copies everything from them"
        )

    def log_lines(self) -> str:
        """The whole lines that it has written since this was asked last."""
        return self._child.new_lines()

    def options(self) -> list[str]:
        return [f"-Dlog4j2.configurationFile={(self.data_dir / 'log4j2.properties').as_uri()}"]

    def settings(self) -> dict[str, object]:
        tick = self._tick_time_ms
        own: dict[str, object] = {
            "initLimit": math.ceil(1000 * _JOIN_S / tick),
            "syncLimit": math.ceil(1000 * _SYNC_S / tick),
            "4lw.commands.whitelist": "srvr,ruok,mntr",
            "autopurge.purgeInterval": 1,
            "autopurge.snapRetainCount": _SNAPSHOTS_KEPT,
            "quorumListenOnAllIPs": str(self._listens_everywhere).lower(),
            **({"peerType": "observer"} if self.server.observer else {}),
            **({"standaloneEnabled": "false"} if self.ensemble.has_one_voter else {}),
            **({"sslQuorum": "true", **self.tls.settings("ssl.quorum")} if self.tls else {}),
            **self._more,
        }
        # ZooKeeper ignores the line of an only server, and says so as of an error
        members = () if self.ensemble.is_one_server else self.ensemble.servers
        servers = {f"server.{each.id}": each.line for each in members}
        return {**super().settings(), **own, **servers}

    @property
    def _listens_everywhere(self) -> bool:
        return self.host in ("0.0.0.0", "::")

    def _take_directory(self) -> None:
        """Make the directory this member's. Raises ConfigError if it is another's."""
        path, own = self.data_dir / "myid", str(self.server.id)
        self.data_dir.mkdir(parents=True, exist_ok=True)
        found = path.read_text(errors="replace").strip() if path.exists() else None
        if found is None and (self.data_dir / "version-2").exists():
            raise ConfigError(
                f"{self.data_dir} has the data of a ZooKeeper that was no member of an ensemble (there is no myid);"
                f" choose another directory, or write {own} into {path} if the data is to be this member's"
            )
        if found not in (None, own):
            raise ConfigError(
                f"{self.data_dir} is the directory of member {found!r}, not of {own} ({path}): choose this member's own"
                " directory, or an empty one, into which it copies everything from the others"
            )
        replace_file(self.data_dir / "log4j2.properties", _LOGGING)
        if found is None:
            replace_file(path, f"{own}\n")
