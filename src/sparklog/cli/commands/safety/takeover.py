"""``sparklog takeover``: whether a running cluster of Kafka's can be taken over."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from sparklog.cli.connection import client_settings, command_config_option
from sparklog.cli.display import output_option, show_json, show_table
from sparklog.cli.guesses import GuessingGroup

_SESSION_TIMEOUT_S = 10.0


@click.group(cls=GuessingGroup)
def takeover() -> None:
    """Take over a running cluster of Kafka 3.9 in ZooKeeper mode, broker by broker: docs/takeover.md."""


@takeover.command()
@click.option("--zookeeper", required=True, metavar="HOST:PORT[/CHROOT]", help="ZooKeeper of the running cluster.")
@click.option(
    "--config",
    "configs",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A server.properties file that a new broker is to be started with; may be repeated.",
)
@click.option(
    "--zk-tls-config-file",
    "zookeeper_tls",
    type=click.Path(path_type=Path),
    help="A file with zookeeper.ssl.* settings, for a ZooKeeper that speaks TLS; as Kafka's tools take it.",
)
@output_option
@command_config_option
@click.pass_context
def check(
    ctx: click.Context, zookeeper: str, configs: tuple[Path, ...], zookeeper_tls: Path | None, *, as_json: bool
) -> None:
    """Say what would not work, and what to do about it; change nothing.

    Ends with 1 if something is to be done first, with 0 if nothing is.

    \b
    sparklog takeover check --zookeeper zk1:2181/kafka --config server.properties
    """
    from sparklog.client.cluster.config import ClientConfig
    from sparklog.config.properties import load_properties
    from sparklog.config.zookeeper_security import ZooKeeperSecurity
    from sparklog.takeover.findings import findings
    from sparklog.takeover.planned import read_planned
    from sparklog.takeover.survey import survey
    from sparklog.zk.client import ZkClient

    security, _ = ZooKeeperSecurity.divide(load_properties(zookeeper_tls) if zookeeper_tls else {})
    client = ClientConfig.from_properties(client_settings(ctx))
    zk = ZkClient(
        zookeeper,
        session_timeout=_SESSION_TIMEOUT_S,
        on_session=lambda _: None,
        makes_chroot=False,
        security=security,
    )
    try:
        found = findings(zk.guarded(lambda: asyncio.run(survey(zk, client))), map(read_planned, configs))
    finally:
        zk.close()
    if as_json:
        show_json([each._asdict() for each in found])
    elif found:
        rows = [("first" if each.stops else "know", each.subject, each.what, each.remedy) for each in found]
        show_table(("when", "subject", "what", "remedy"), rows)
    else:
        click.echo("nothing stands in the way")
    if any(each.stops for each in found):
        ctx.exit(1)
