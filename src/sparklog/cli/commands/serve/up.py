"""``sparklog up``: a cluster on this machine, in the foreground."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparklog.cli.interruption import interruptible
from sparklog.cli.numbers import WholeNumber
from sparklog.cli.paths import PathTo
from sparklog.config.command_config import DEFAULT_BOOTSTRAP

if TYPE_CHECKING:
    from sparklog.local.cluster import LocalCluster

_NEXT = """\
Next, in another terminal:

  sparklog topic create greetings --partitions 2{option}
  echo hello | sparklog produce greetings{option}
  sparklog consume greetings{option}

with any Kafka client, such as kcat:

  echo hello | kcat -b {bootstrap} -t greetings -P
  kcat -b {bootstrap} -t greetings -C -e

or in PySpark:

  spark.read.format("sparklog").option("kafka.bootstrap.servers", "{bootstrap}") \\
       .option("subscribe", "greetings").load().show()

Ctrl-C stops the cluster; "sparklog up" with the same directory goes on from there."""

_NEXT_SECURELY = """\
Nobody comes in without a password. Those of the users admin and spark are in files that only you may read:

  {admin}
  {spark}

Next, in another terminal:

  export SPARKLOG_COMMAND_CONFIG={admin}
  sparklog topic create greetings --partitions 2
  echo hello | sparklog produce greetings
  sparklog consume greetings

with Kafka's own tools:

  kafka-topics.sh --bootstrap-server {bootstrap} --command-config {admin} --list

or in PySpark:

  from pathlib import Path
  from sparklog.config.properties import load_properties
  settings = {{f"kafka.{{name}}": value for name, value in load_properties(Path({spark_path!r})).items()}}
  spark.read.format("sparklog").options(**settings).option("subscribe", "greetings").load().show()

Other users: sparklog user and sparklog acl; docs/security.md says more.
Ctrl-C stops the cluster; "sparklog up --secure" with the same directory goes on from there."""


@click.command()
@click.option("--brokers", type=WholeNumber(1, 99), help="How many brokers; default: as many as the cluster has, or 1.")
@click.option(
    "--zookeepers",
    type=WholeNumber(1, 9),
    help="How many ZooKeepers, of which fewer than half may fail; default: as many as the cluster has, or 1.",
)
@click.option(
    "--data", type=PathTo(file_okay=False), default=Path("sparklog-data"), show_default=True,
    help="The cluster's directory, made if need be; a cluster that is there already goes on with its data.",
)  # fmt: skip
@click.option(
    "--port", type=WholeNumber(0, 65535), default=9092, show_default=True,
    help="The first broker's port, the next ones' follow; 0 picks free ones.",
)  # fmt: skip
@click.option(
    "--metrics-port", "first_metrics_port", type=WholeNumber(-1, 65535), default=0, show_default=True,
    help="The port of the first broker's metrics for Prometheus, the next ones' follow; 0 picks free ones, -1 is none.",
)  # fmt: skip
@click.option(
    "--web-port", type=WholeNumber(-1, 65535), default=-1, show_default=True,
    help="The port of the web page, which the first broker serves; 0 picks a free one, -1 is none.",
)  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, help="Address that the brokers listen on.")
@click.option("--advertised-host", default="", help="Address to tell clients; needed with --host 0.0.0.0.")
@click.option("--secure", is_flag=True, help="Let nobody in without a password: TLS, users, rights (docs/security.md).")
def up(
    brokers: int | None,
    zookeepers: int | None,
    data: Path,
    port: int,
    host: str,
    advertised_host: str,
    *,
    secure: bool,
    **ports: int,
) -> None:
    """Start a cluster on this machine: ZooKeeper and some brokers.

    It runs until Ctrl-C or SIGTERM. ZooKeeper needs Java 17 or newer; brokers do not. What dies is started
    again, and a line says so; another names each broker that reported errors while starting; others say what a start
    cut off a damaged log, and that a disk is full. In the --data directory are the records (broker-N), the process ids
    (such as zookeeper.pid, broker-0.pid) and what the processes print (logs).

    \b
    Examples:
      sparklog up
      sparklog up --brokers 3 --data /var/tmp/cluster --port 19092
      sparklog up --brokers 3 --zookeepers 3
      sparklog up --secure
      sparklog up --web-port 8080
      sparklog up --host 0.0.0.0 --advertised-host log.example.org
    """
    from sparklog.local.cluster import LocalCluster, SecureCluster, watched

    kind = watched(SecureCluster if secure else LocalCluster, ports["first_metrics_port"], ports["web_port"])
    cluster = kind(
        data, brokers, port, host=host, advertised_host=advertised_host, on_event=click.echo, zookeepers=zookeepers
    )
    _warn_of_left_out(cluster)
    try:
        with interruptible() as interruption, cluster:
            _describe(cluster)
            interruption.wait()
    except KeyboardInterrupt:
        click.echo("stopped")


def _warn_of_left_out(cluster: LocalCluster) -> None:
    """On standard error, where the directory has data of brokers that are not started."""
    if not cluster.left_out:
        return
    names, all_of_them = ", ".join(f"broker {each}" for each in cluster.left_out), cluster.left_out[-1] + 1
    again = f"sparklog up --brokers {all_of_them} --data {shlex.quote(str(cluster.directory.root))}"
    click.echo(
        f"WARNING: not started: {names}. Their data in {cluster.directory.root} is left lying, and what they alone have"
        f" cannot be read. To start all: Ctrl-C, then {again}{' --secure' if cluster.is_secure else ''}"
        " and your other options",
        err=True,
    )


def _describe(cluster: LocalCluster) -> None:
    width = 1 + max(len(name) for name in [*(each.name for each in cluster.zookeepers), cluster.brokers[-1].name])
    for zookeeper in cluster.zookeepers:
        click.echo(f"{zookeeper.name:<{width}} {zookeeper.connect_string:<21} process {zookeeper.pid}")
    for broker in cluster.brokers:
        click.echo(f"{broker.name:<{width}} {broker.address:<21} process {broker.pid}")
        if broker.metrics:
            by = f" by the token in {cluster.secured.metrics_token}" if cluster.secured is not None else ""
            click.echo(f"{broker.name:<{width}} metrics at {broker.metrics}{by}")
        if broker.web_url:
            click.echo(f"{broker.name:<{width}} web page at {broker.web_url}")
    click.echo(f"data in {cluster.directory.root}\n")
    bootstrap, secured = cluster.bootstrap_servers, cluster.secured
    if secured is not None:
        files = {user: secured.client_settings(user) for user in ("admin", "spark")}
        quoted = {user: shlex.quote(str(path)) for user, path in files.items()}
        click.echo(_NEXT_SECURELY.format(bootstrap=bootstrap, spark_path=str(files["spark"]), **quoted))
        return
    given = DEFAULT_BOOTSTRAP in bootstrap.split(",")
    click.echo(_NEXT.format(bootstrap=bootstrap, option="" if given else f" --bootstrap {bootstrap}"))
