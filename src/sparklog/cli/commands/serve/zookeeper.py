"""``sparklog zookeeper``: run one member of an ensemble in the foreground."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparklog.cli.interruption import interruptible
from sparklog.cli.numbers import WholeNumber
from sparklog.cli.paths import PathTo
from sparklog.errors import ConfigError, ConnectionFailed, SparklogError
from sparklog.local import service_manager

if TYPE_CHECKING:
    from sparklog.local.locked import LockedDirectory
    from sparklog.local.member import EnsembleMember

_LOOK_S = 0.2
_MODE_S = 1.0
"""Between two looks whether it is alive, and two questions for its part in the ensemble."""
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_PARTS = {
    "leader": "leads",
    "follower": "follows",
    "observer": "observes",
    "standalone": "serves alone",
    "": "serves nobody: it waits for a majority of the servers that vote",
}
_SILENT = "serves nobody"
"""Said of a server that waits for no others."""


@click.command()
@click.option("--id", "own", type=int, required=True, help="This server's id, one of those in --servers.")
@click.option(
    "--servers", required=True, metavar="ID=HOST:PEER:ELECTION:CLIENT,...",
    help="All servers, the same for each: id, host, and its ports for the leader's followers, for elections, and for"
    " clients (2181 if left out). :observer behind it makes one without a vote.",
)  # fmt: skip
@click.option(
    "--data", type=PathTo(file_okay=False), required=True,
    help="This server's directory, made if need be; it is never another server's.",
)  # fmt: skip
@click.option("--client-port", type=WholeNumber(1, 65535), help="Port for clients, if another than in --servers.")
@click.option(
    "--host", default="", help="Address to listen on, 0.0.0.0 for all; default: this server's own in --servers."
)
@click.option("--tick", type=WholeNumber(100), default=2000, show_default=True, help="tickTime, in milliseconds.")
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE",
    help="Any other setting of zoo.cfg, such as dataLogDir; may be repeated.",
)  # fmt: skip
@click.option(
    "--tls", type=(_FILE, _FILE), metavar="KEY-STORE TRUST-STORE",
    help="Two files of PEM: the key with its certificate, and the authorities to trust. Then all connections are by"
    " TLS, from clients and members that show a certificate: docs/security.md.",
)  # fmt: skip
def zookeeper(
    own: int,
    servers: str,
    data: Path,
    client_port: int | None,
    host: str,
    tick: int,
    settings: tuple[str, ...],
    tls: tuple[Path, Path] | None,
) -> None:
    """Run one ZooKeeper of an ensemble until SIGTERM or Ctrl-C, on the JARs that PySpark ships. It needs Java 17.

    Start one on each machine, with the same --servers; brokers have "zookeeper.connect" name all of them. An ensemble
    serves while more than half of the servers that vote live: three go on without one, five without two. Standard
    output says what part it has (it leads, follows, or waits for a majority); standard error has what ZooKeeper logs,
    as has zookeeper.log in the directory. It answers the commands srvr, ruok and mntr, and deletes old snapshots.

    \b
    Examples:
      sparklog zookeeper --id 1 --data /var/lib/zookeeper \\
          --servers 1=zk1:2888:3888:2181,2=zk2:2888:3888:2181,3=zk3:2888:3888:2181
    """
    from sparklog.cli.settings import parse_settings
    from sparklog.local.ensemble import parse_ensemble
    from sparklog.local.locked import LockedDirectory
    from sparklog.local.member import EnsembleMember
    from sparklog.local.zookeeper import ZooKeeperTls

    try:
        ensemble = parse_ensemble(servers).with_client_port(own, client_port)
        ensemble.server(own)
    except ConfigError as error:
        raise click.BadParameter(str(error), param_hint="--servers") from None
    if ensemble.warning:
        click.echo(f"note: {ensemble.warning}", err=True)
    member = EnsembleMember(
        data, ensemble, own, host=host, tick_time_ms=tick, more=parse_settings(settings, option="--set")
    )
    if tls is not None:
        member.tls = ZooKeeperTls(*(each.absolute() for each in tls))
    _run_locked(member, LockedDirectory(data, "ZooKeeper"))


def _run_locked(member: EnsembleMember, directory: LockedDirectory) -> None:
    """Run it as the only one in its directory, until a signal comes."""
    directory.lock()
    try:
        with interruptible():
            _run(member)
    except KeyboardInterrupt:
        click.echo("stopped")
    except SparklogError:
        raise
    except OSError as error:
        raise directory.unusable(error) from error
    finally:
        directory.unlock()


def _run(member: EnsembleMember) -> None:
    """Start it, tell of it, and stop it when a signal comes. Raises ConnectionFailed if it ends by itself."""
    member.spawn()
    try:
        click.echo(f"sparklog zookeeper {member.server.id} listening on {member.connect_string}")
        for part in _parts(member):
            text = _SILENT if member.ensemble.is_one_server and not part else _PARTS.get(part, part)
            click.echo(f"sparklog zookeeper {member.server.id} {text}")
            service_manager.tell(*([service_manager.READY] if part else []), service_manager.status(text))
    finally:
        service_manager.tell(service_manager.STOPPING)
        member.stop()
        click.echo(member.log_lines(), err=True, nl=False)


def _parts(member: EnsembleMember) -> Iterator[str]:
    """Its part, whenever that changes; what it logs meanwhile is passed on."""
    known = "" if member.ensemble.is_one_server else None  # an only one is silent while it starts
    asked_at = 0.0
    while True:
        time.sleep(_LOOK_S)
        click.echo(member.log_lines(), err=True, nl=False)
        if not member.alive:
            raise ConnectionFailed(f"{member.name} {member.fate}; what it said is above, and in {member.log_path}")
        if time.monotonic() - asked_at >= _MODE_S:
            asked_at = time.monotonic()
            part = member.mode
            if part != known:
                known = part
                yield part
