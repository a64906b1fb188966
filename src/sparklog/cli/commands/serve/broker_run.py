"""``sparklog broker run``: run one broker in the foreground."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from sparklog import not_compiled
from sparklog.cli.garbage import ShortCollections
from sparklog.cli.logs import LogFormat, begin_to_log
from sparklog.config.broker import BrokerConfig, parse_broker_config
from sparklog.config.properties import load_properties
from sparklog.errors import ConfigError
from sparklog.local import limits, service_manager
from sparklog.log.directories.privacy import UMASK

if TYPE_CHECKING:
    from sparklog.broker.server import Broker
    from sparklog.cli.web_process import WebProcess

_logger = logging.getLogger(__name__)
_SETTINGS = {
    "broker_id": "broker.id",
    "zookeeper": "zookeeper.connect",
    "data": "log.dirs",
    "host": "host.name",
    "advertised_host": "advertised.host.name",
    "port": "port",
    "metrics_port": "sparklog.metrics.port",
}
"""Options, and the settings that they give."""


class _StartedWrongly(click.ClickException):
    """No start with these files and settings can succeed: a line as of a failure, with the exit code of misuse.

    A service manager does not try again then.
    """

    exit_code = click.UsageError.exit_code

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"sparklog: {self.message}", file=file, err=file is None)


@click.command(short_help="Run one broker until SIGTERM or Ctrl-C.")
@click.option("--config", type=click.Path(path_type=Path), help="A server.properties file with Kafka's setting names.")
@click.option("--id", "broker_id", type=int, help="Broker id, unique in the cluster (broker.id).")
@click.option("--zookeeper", help="ZooKeeper, host:port[/chroot] (zookeeper.connect).")
@click.option("--data", help="Directory for the partitions (log.dirs).")
@click.option("--host", help="Address to listen on (host.name).")
@click.option("--advertised-host", help="Address to tell clients, if it is another (advertised.host.name).")
@click.option("--port", type=int, help="Port to listen on, 0 for a free one (port).")
@click.option("--metrics-port", type=int, help="Port for Prometheus, 0 for a free one (sparklog.metrics.port).")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Any other setting, by Kafka's name for it; may be repeated.",
)
@click.option(
    "--logging",
    "log_settings",
    type=click.Path(path_type=Path),
    envvar="SPARKLOG_LOGGING",
    help="A TOML file that says where log lines go, as conf/logging.toml does (or set SPARKLOG_LOGGING).",
)
@click.option(
    "--log-format",
    type=click.Choice([each.value for each in LogFormat]),
    envvar="SPARKLOG_LOG_FORMAT",
    help="Log lines as text (the default) or as JSON, an object a line (or set SPARKLOG_LOG_FORMAT).",
)
def run(
    config: Path | None,
    settings: tuple[str, ...],
    log_settings: Path | None,
    log_format: str | None,
    **options: str | int | None,
) -> None:
    """Run one broker until SIGTERM or Ctrl-C; a second signal stops it without waiting for requests in hand.

    It needs a ZooKeeper that runs ("sparklog up" starts one with the brokers), an id and a directory. What an option
    says counts more than --set, and that more than --config. When clients can connect, one line says so: "sparklog
    broker ID listening on HOST:PORT"; systemd is told too (Type=notify; units are in conf/systemd). The word "run" may
    be left out.

    Exit code 2, and nothing was started, if the command line is wrong, a file of --config or --logging cannot be read,
    or a setting cannot be.

    \b
    Examples:
      sparklog broker run --id 0 --zookeeper 127.0.0.1:2181 --data /var/lib/sparklog
      sparklog broker run --config server.properties --set log.retention.hours=24
      sparklog broker run --config server.properties --logging logging.toml
      sparklog broker --config server.properties --log-format json
    """
    try:
        parsed = _begin(config, settings, options, log_settings, LogFormat(log_format) if log_format else None)
        page = _page_of(parsed)
    except ConfigError as error:
        raise _StartedWrongly(str(error)) from error
    if parsed.authorizer_class_name:
        os.umask(os.umask(UMASK) | UMASK)
    asyncio.run(_serve(parsed, page))


def _begin(
    config: Path | None,
    settings: tuple[str, ...],
    options: dict[str, str | int | None],
    log_settings: Path | None,
    log_format: LogFormat | None,
) -> BrokerConfig:
    """Begin to log, say what is amiss, and have the settings. Raises ConfigError and BadParameter."""
    properties = load_properties(config) if config else {}
    for text in settings:
        name, separator, value = text.partition("=")
        if not separator:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--set")
        properties[name.strip()] = value.strip()
    properties |= {_SETTINGS[name]: str(value) for name, value in options.items() if value is not None}
    begin_to_log(log_settings, log_format, _id_in(properties))
    if not_compiled is not None:
        _logger.info(
            "the hot path is not compiled (%s): requests take twice the processor time;"
            ' "make setup" compiles it, and so does "pip install" where there is a C compiler',
            not_compiled,
        )
    if shortage := limits.shortage_of_files(limits.allow_many_files()):
        _logger.warning("%s: %s", shortage.what, shortage.advice)
    return parse_broker_config(properties)


def _id_in(properties: dict[str, str]) -> int | None:
    """The broker's id; None where it is none, which is told when all settings are parsed."""
    text = properties.get("broker.id", str(BrokerConfig().broker_id))
    return int(text) if text.strip().isdecimal() else None


def _page_of(config: BrokerConfig) -> WebProcess | None:
    """The web page, where ``sparklog.web.port`` asks for it. Raises ConfigError."""
    if config.web_port < 0:
        return None
    from sparklog.cli.web_process import WebProcess

    return WebProcess(config)


async def _serve(config: BrokerConfig, page: WebProcess | None) -> None:
    from sparklog.broker.server import Broker

    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    server = Broker(config)

    def on_signal() -> None:
        if stop.is_set():
            server.hurry()
        stop.set()
        server.give_up_start()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    async with _metrics_of(server, config):
        if page is None:
            await _run(server, config, stop)
            return
        try:
            click.echo(f"sparklog broker {config.broker_id} web page at {page.listen()}")
            await _run(server, config, stop, lambda: page.begin(server.listeners))
        finally:
            await page.end()


@asynccontextmanager
async def _metrics_of(server: Broker, config: BrokerConfig) -> AsyncIterator[None]:
    """Answer Prometheus meanwhile, where ``sparklog.metrics.port`` says so."""
    if config.metrics_port < 0:
        yield
        return
    from sparklog.metrics.endpoint import MetricsEndpoint

    endpoint = MetricsEndpoint(server, config)
    await endpoint.start()
    try:
        click.echo(f"sparklog broker {config.broker_id} metrics at http://{endpoint.address}/metrics")
        yield
    finally:
        await endpoint.close()


async def _run(
    server: Broker, config: BrokerConfig, stop: asyncio.Event, on_start: Callable[[], None] = lambda: None
) -> None:
    """Start, serve until ``stop`` or a failure, stop. ``on_start`` is called when clients can connect."""
    await server.start()
    try:
        with ShortCollections():
            addresses = ", ".join(map(str, server.listeners))
            click.echo(f"sparklog broker {config.broker_id} listening on {addresses}")
            service_manager.tell(service_manager.READY, service_manager.status(f"listening on {addresses}"))
            on_start()
            stopped = asyncio.ensure_future(stop.wait())
            await asyncio.wait((stopped, server.failure), return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            if server.failure.done():
                raise server.failure.result()
    finally:
        service_manager.tell(service_manager.STOPPING, service_manager.status("others take over what it leads"))
        await server.stop()
